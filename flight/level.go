package flight

// The feature level says which commands and records a log, a state and a snapshot may hold. It is stored in the header and
// never falls. A build reads all levels up to MaxLevel. A node that reads an entry of a higher level stops before it applies
// any of it. So the level may rise only when every voter can read the new one; until then an older build can take over.
//
// Nothing was released yet, so everything is in level 1, and level 1 may change until the first release. From then on, a
// new command or record is a new level: a constant here, and a case in Levels.Required.
const (
	// LevelBase is the level of ledgers that no RaiseLevel has changed.
	LevelBase uint32 = 1
	// MaxLevel is the highest level that this build reads.
	MaxLevel = LevelBase
)

// Levels are the feature levels of a build. Tests invent levels that no build has.
type Levels struct {
	// Max is the highest level that the build reads.
	Max uint32
	// Required returns the lowest feature level at which the ledger accepts a command.
	Required func(Command) uint32
}

// BuiltLevels are the levels of this build.
func BuiltLevels() Levels {
	return Levels{Max: MaxLevel, Required: func(Command) uint32 { return LevelBase }}
}

// RaiseLevel raises the feature level. Its proposer has made sure that every voter reads the new level. A repeat changes
// nothing.
type RaiseLevel struct {
	Level uint32 `cbor:"1,keyasint"`
}

// FeatureLevel is the feature level of the ledger.
func (h *Header) FeatureLevel() uint32 { return max(h.Level, LevelBase) }

// raiseLevel sets the level of the header. A node that does not read the level has stopped before.
func (t *transition) raiseLevel(c *RaiseLevel) Decision {
	t.header.Level = max(t.header.FeatureLevel(), c.Level)
	return DecisionAccepted
}
