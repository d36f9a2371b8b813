package flight

// View is the part of the ledger that a command can read: the header, the flight of its key, and, when that key names a
// step, the flight of its saga. Apply never changes a flight of its view; it returns new ones.
type View struct {
	Header       Header
	Flight       *Flight // nil: the key was never used
	Saga         *Flight // nil when the key is not a step, or its saga was never used
	SessionEnded bool    // the session of an Open is remembered as ended
	LaneBlocked  bool    // other jobs stand before the flight in its lane: Due.LaneBlocks
	NoDefinition bool    // the definition of the saga that a Submit starts is not stored: Documents.LackDefinition
}
