package flight

// NewCommands returns an empty command of each kind.
func NewCommands() (all []Command) {
	for k := range 256 {
		if c := newCommand(kind(k)); c != nil {
			all = append(all, c)
		}
	}
	return all
}
