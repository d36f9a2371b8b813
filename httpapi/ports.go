package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/wire"
	"github.com/flightd/flightd/remote"
)

// Remote serves callers who perform effects themselves. Errors are those of package effect, *flight.InvalidError, or the
// context's.
type Remote interface {
	Open(ctx context.Context, req remote.OpenRequest) (remote.OpenAnswer, error)
	Abandon(ctx context.Context, req remote.AbandonRequest) error
	Verdict(ctx context.Context, req remote.VerdictRequest) (remote.OpenAnswer, error)
	// Report returns the flight also with *effect.Fenced, where it is known.
	Report(ctx context.Context, req remote.ReportRequest) (*flight.Flight, error)
	Sessions
}

// Sessions keeps the sessions of such callers. Errors as of Remote; *effect.LeaseLost when a session is gone,
// *effect.SessionInUse when it is not closed because attempts are open under it.
type Sessions interface {
	NewSession(ctx context.Context, ttl time.Duration, owner string) (remote.SessionAnswer, error)
	Renew(ctx context.Context, id flight.SessionID, what remote.Renewal) (remote.SessionAnswer, error)
	CloseSession(ctx context.Context, id flight.SessionID) error
}

// Ledger is the part of the ledger that this interface reads, as this node has it.
type Ledger interface {
	Header() flight.Header
	// Now is the ledger's time as this node can tell it. Every answer carries it.
	Now() flight.Time
	// Flight is nil when the key was never used.
	Flight(id flight.ID) (*flight.Flight, error)
	// Wait waits until the flight has another version than the one seen.
	Wait(ctx context.Context, id flight.ID, seen flight.Version) (*flight.Flight, error)
	// Input gives the exact bytes of the flight's input; nil when there are none.
	Input(f *flight.Flight) ([]byte, error)
	// ReceiptBody gives the exact bytes that are kept of the receipt's body; nil when there are none.
	ReceiptBody(f *flight.Flight) ([]byte, error)
	List(q Query) (Page, error)
	History(id flight.ID) ([]Event, error)
}

// Operator carries out what people decide.
type Operator interface {
	Propose(ctx context.Context, c flight.Command) (flight.Reply, error)
	// ProposeAll proposes many at once, each by itself. With an error it is not known what became of which; to propose
	// them again does no harm.
	ProposeAll(ctx context.Context, all []flight.Command) ([]flight.Reply, error)
}

// Query says which flights a list shows. A zero field asks for nothing in particular.
type Query struct {
	States    []flight.State
	Namespace string
	Name      string      // of the action
	Prefix    string      // of the full key
	Since     flight.Time // created then or later
	After     Cursor      // go on behind this place
	Limit     int
}

// Cursor is a place in a list: newest first by creation, then by id. The zero Cursor is before everything.
type Cursor struct {
	Created flight.Time
	ID      flight.ID
}

// Page is a part of a list. More says that there may be more behind Next, also when the page is short or empty.
type Page struct {
	Flights []*flight.Flight
	Next    Cursor
	More    bool
}

// Event is one line of a flight's history, and the version that it made.
type Event struct {
	Version flight.Version
	flight.Event
}

// Config is what the interface needs. Remote, Ledger, Operator and Ready have no default.
type Config struct {
	Remote   Remote
	Ledger   Ledger
	Feed     Feed    // nil: there is nothing at its route
	Tallies  Tallies // nil: nothing is counted
	Operator Operator
	Ready    func(context.Context) wire.Ready
	// About is what the node tells about itself to those who ask for all of it; nil: nothing.
	About   func(context.Context) *wire.Node
	Version wire.Version
	// Dev refuses what a web page could send: see LoopbackOnly.
	Dev bool
	// Metrics serves /metrics and what is below it; nil: nobody does.
	Metrics http.Handler
	// Heartbeat is how long a stream of events may be silent; 0: 15 s.
	Heartbeat time.Duration
	// Logger is told of what fails inside; nil: slog.Default.
	Logger *slog.Logger
}
