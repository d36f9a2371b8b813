package executor

// The moments of a call at which Config.Crash is called, in the order in which a call passes them. What is true if the
// process dies there stands in the package comment.
const (
	beforeOpen    = "before-open"
	duringOpen    = "during-open" // the claim is on its way, and the ledger is not asked yet
	afterOpen     = "after-open"
	beforeSend    = "before-send"
	afterEffect   = "after-effect"
	beforeReport  = "before-report"
	afterReport   = "after-report"
	beforeRelease = "before-release"
)
