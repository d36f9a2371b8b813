package flight

// View is all that a command sees of the ledger: the header, the flight of its key, and, when that key names a step,
// the flight of its saga. Flights in it are never changed; Apply returns new ones.
type View struct {
	Header Header
	Flight *Flight // nil: the key was never used
	Saga   *Flight // nil when the key is no step, or its saga was never used
	Ended  bool    // the session that an Open names is remembered as ended
}
