package effect

import (
	"fmt"

	"github.com/flightd/flightd/flight"
)

// LeaseLost says that the caller's session is gone: no effect may be started under it. What was started may finish and
// is to be reported.
type LeaseLost struct {
	Key flight.Key // zero where it is about the session as such
}

func (e *LeaseLost) Error() string {
	if e.Key.IsZero() {
		return "the session is lost"
	}
	return fmt.Sprintf("%s: the session is lost", e.Key)
}
