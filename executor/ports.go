package executor

import (
	"context"
	"errors"
	"fmt"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/clock"
)

// Ledger is the part of the replicated ledger that one flight needs.
type Ledger interface {
	// Propose adds a command to the ledger and returns the reply of the rules; a reply is durable. effect.ErrAmbiguous: the
	// command may or may not have been applied, and the same command may be proposed again without harm. After any
	// other error the command was not applied.
	Propose(ctx context.Context, c flight.Command) (flight.Reply, error)
	// Report adds the outcome of an attempt. effect.ErrPending: the report is stored on this node's disk and will be committed
	// later.
	Report(ctx context.Context, r *flight.Report) (flight.Reply, error)
	// Flight returns this node's view of a flight, without the bytes of bodies; nil if the key was never used.
	Flight(id flight.ID) (*flight.Flight, error)
	// Wait waits until the flight's version differs from the one seen, and returns the flight.
	Wait(ctx context.Context, id flight.ID, seen flight.Version) (*flight.Flight, error)
}

// ProposeUntilKnown proposes a command, and repeats it after effect.ErrAmbiguous until the answer is known or ctx ends. A
// repeated command is harmless: its key and nonce, or its token, identify it. repeated reports that an earlier proposal
// may have been applied; an error after that is effect.ErrAmbiguous, too.
func ProposeUntilKnown(ctx context.Context, ledger Ledger, c flight.Command) (reply flight.Reply, repeated bool, err error) {
	return proposeUntil(ctx, ledger, c, func(err error) bool { return errors.Is(err, effect.ErrAmbiguous) })
}

// proposeUntil proposes a command, and repeats it after the errors for which again returns true, until ctx ends.
func proposeUntil(ctx context.Context, ledger Ledger, c flight.Command, isRetryable func(error) bool) (reply flight.Reply, repeated bool, err error) {
	var unknown error
	for pause := minRetryPause; ; pause = min(2*pause, maxRetryPause) {
		reply, err = ledger.Propose(ctx, c)
		switch {
		case err == nil:
			return reply, unknown != nil, nil
		case errors.Is(err, effect.ErrAmbiguous):
			unknown = err
		case unknown != nil: // this proposal was not applied; an earlier one may have been
			err = fmt.Errorf("%w; then: %w", unknown, err)
		}
		if !isRetryable(err) || !clock.Sleep(ctx, clock.Jitter(pause)) {
			return reply, unknown != nil, err
		}
	}
}

// Reader is the rest that executor and remote read of the ledger.
type Reader interface {
	// Header returns the ledger's header as of the last command applied at this node.
	Header() flight.Header
	// Now returns this node's estimate of the ledger's time.
	Now() flight.Time
	// Overdue returns at most limit flights that need a WakeUp: the time of an open attempt, of a callback or of a sleeping saga
	// has come by Now.
	Overdue(limit int) []flight.ID
	// Input returns the exact bytes of the flight's input.
	Input(f *flight.Flight) ([]byte, error)
	// ReceiptBody returns the exact bytes that are stored of the receipt's body.
	ReceiptBody(f *flight.Flight) ([]byte, error)
}

// Sessions is this node's view of the sessions that hold flights. A session holds a flight if it has an open attempt,
// or a verification.
type Sessions interface {
	// HeldBy returns the flights that a session holds, ordered by id: at most limit flights after the given one (zero:
	// from the first), and the number of all flights that the session holds.
	HeldBy(id flight.SessionID, after flight.ID, limit int) (flights []flight.ID, all int)
	// HeldCount returns how many flights all sessions hold together.
	HeldCount() int
	// Holders returns every session that holds a flight, in no order.
	Holders() []flight.Session
}
