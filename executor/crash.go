package executor

// The moments of a flight at which Config.Crash is called, in the order in which a flight passes them. What is true if
// the process dies there stands in the package comment.
const (
	beforeClaim   = "before-claim"
	afterClaim    = "after-claim"
	afterOpen     = "after-open"
	beforeSend    = "before-send"
	afterEffect   = "after-effect"
	beforeReport  = "before-report"
	afterReport   = "after-report"
	beforeRelease = "before-release"
)
