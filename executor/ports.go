package executor

import (
	"context"
	"errors"
	"iter"

	"github.com/flightd/flightd/flight"
)

// Ledger is what one flight needs of the memory of flights.
type Ledger interface {
	// Propose brings a command into the ledger and answers what the rules say of it. An answer is durable. Errors:
	// one that is ErrAmbiguous may or may not have been applied, and can be proposed again without harm; any other
	// surely was not applied.
	Propose(ctx context.Context, c flight.Command) (flight.Reply, error)
	// Report brings the outcome of an attempt, however long it takes. ErrPending: it is safe on this node's disk and
	// will be committed later.
	Report(ctx context.Context, r *flight.Report) (flight.Reply, error)
	// Flight reads what this node knows, without the bytes of bodies; nil when it knows nothing.
	Flight(id flight.ID) (*flight.Flight, error)
	// Wait waits until the flight's version is another than the one seen.
	Wait(ctx context.Context, id flight.ID, seen flight.Version) (*flight.Flight, error)
}

// Memory is what else the executor reads of the ledger.
type Memory interface {
	// Header is the ledger's header as of the last command that was applied here.
	Header() flight.Header
	// Now is the ledger's time as this node can tell it.
	Now() flight.Time
	// Live gives the flights that are neither absent nor terminal, each once; one that ends while it is read may be
	// among them. An error ends it.
	Live() iter.Seq2[*flight.Flight, error]
	// Input gives the exact bytes of the flight's input.
	Input(f *flight.Flight) ([]byte, error)
	// ReceiptBody gives the exact bytes that are kept of the receipt's body.
	ReceiptBody(f *flight.Flight) ([]byte, error)
}

// Sessions is what the ledger knows of the sessions that hold its flights: those with an attempt open, or sent to ask the
// provider. It is this node's view.
type Sessions interface {
	// HeldBy gives the flights that a session holds, in the order of their ids: at most limit of them behind the given
	// one (zero: from the first on), and how many it holds in all.
	HeldBy(id flight.SessionID, after flight.ID, limit int) (flights []flight.ID, all int)
	// HeldCount is how many flights all sessions hold together.
	HeldCount() int
	// Holders gives every session that holds a flight, in no order.
	Holders() []flight.Session
}

// The classes of a ledger's errors.
var (
	// ErrAmbiguous: the command may or may not have been applied.
	ErrAmbiguous = errors.New("executor: not known whether the ledger applied the command")
	// ErrPending: the report is kept and will be committed.
	ErrPending = errors.New("executor: the report will be committed later")
)
