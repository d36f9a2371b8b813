package effect

import (
	"fmt"

	"github.com/flightd/flightd/flight"
)

// Unsettled says that the attempt ended without ending the flight: the effect surely did not happen this time, or a
// resend is allowed. Calling Do again opens the next attempt; no policy of the call's does it by itself.
type Unsettled struct {
	Key     flight.Key
	Outcome flight.Outcome // NotDone, or Unknown under recovery resend
	Err     error          // what the handler returned
}

func (e *Unsettled) Error() string { return fmt.Sprintf("%s: %s: %v", e.Key, e.Outcome, e.Err) }
func (e *Unsettled) Unwrap() error { return e.Err }

// Missing says that there is no such flight: its key was never used, or was freed.
type Missing struct {
	ID flight.ID
}

func (e *Missing) Error() string { return "there is no flight " + e.ID.String() }
