package httpapi

import (
	"context"
	"io"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/auth"
	"github.com/flightd/flightd/remote"
)

// Remote serves callers that perform effects themselves, and their sessions.
type Remote interface {
	Calls
	Sessions
	Callbacks
}

// Calls are the requests about one flight. Errors are those of package effect, *flight.InvalidError, or the context's error.
type Calls interface {
	Open(ctx context.Context, req remote.OpenRequest) (remote.OpenAnswer, error)
	Abandon(ctx context.Context, req remote.AbandonRequest) error
	Verify(ctx context.Context, req remote.VerificationRequest) (remote.OpenAnswer, error)
	// Report returns the flight with *effect.Fenced, too, if this node knows it.
	Report(ctx context.Context, req remote.ReportRequest) (*flight.Flight, error)
}

// Callbacks are the requests about attempts that wait for their callbacks. Errors are those of Calls. Both return the flight with
// *effect.Fenced, too, if this node knows it.
type Callbacks interface {
	Suspend(ctx context.Context, req remote.SuspendRequest) (*flight.Flight, error)
	Callback(ctx context.Context, req remote.CallbackRequest) (*flight.Flight, error)
}

// Sessions manages the sessions of such callers. Errors are those of Calls, *effect.LeaseLost if the session has
// ended, and *effect.SessionInUse if it cannot be closed because attempts are open under it.
type Sessions interface {
	NewSession(ctx context.Context, ttl time.Duration, owner string) (remote.SessionAnswer, error)
	Renew(ctx context.Context, id flight.SessionID, renewal remote.RenewRequest) (remote.SessionAnswer, error)
	CloseSession(ctx context.Context, id flight.SessionID) error
}

// Ledger is the part of this node's ledger that the API reads.
type Ledger interface {
	LedgerState
	Flights
}

// LedgerState is what every route knows of the ledger.
type LedgerState interface {
	Header() flight.Header
	// Now returns the ledger's time, as far as this node knows it.
	Now() flight.Time
	// Flight returns nil if the key was never used.
	Flight(id flight.ID) (*flight.Flight, error)
	// Wait waits until the flight's version differs from known.
	Wait(ctx context.Context, id flight.ID, known flight.Version) (*flight.Flight, error)
}

// Flights reads what the ledger stores of flights beside their records.
type Flights interface {
	// Input returns the exact bytes of the flight's input; nil if none are stored.
	Input(f *flight.Flight) ([]byte, error)
	// ReceiptBody returns the stored bytes of the receipt's body; nil if none are stored.
	ReceiptBody(f *flight.Flight) ([]byte, error)
	List(q flight.Query) (flight.Page, error)
	History(id flight.ID) ([]flight.HistoryEvent, error)
}

// Documents are the documents of the ledger, its audit log, and what it counts per namespace.
type Documents interface {
	auth.Documents
	// Document returns nil if there is no such document. The document must not be changed.
	Document(id flight.DocumentID) *flight.Document
	AuditLog
	Usage
}

// AuditLog is the log of the decisions of people.
type AuditLog interface {
	// Audit returns the newest entries before a version that match; from the end, if before is zero. It reads a bounded
	// number of entries. next is the version to continue before; zero: there are no older ones that match. With a next,
	// entries may be fewer than limit, or none.
	Audit(before flight.Version, limit int, match func(*flight.AuditEntry) bool) (entries []flight.AuditEntry, next flight.Version, err error)
}

// Usage is what the namespaces use.
type Usage interface {
	// Stored returns how many flights each namespace stores, and how many tombstones all namespaces have together.
	Stored() (flights map[string]int64, tombstones int64)
	// SagasOf returns how many sagas use a definition and are not over.
	SagasOf(definition flight.DocumentID) int
	auth.Usage
}

// Operator applies the decisions of people.
type Operator interface {
	Propose(ctx context.Context, c flight.Command) (flight.Reply, error)
	// ProposeAll proposes independent commands at once. After an error some may have been applied; proposing all of
	// them again is harmless.
	ProposeAll(ctx context.Context, all []flight.Command) ([]flight.Reply, error)
}

// proposer is an Operator that completes a proposal even if its request ends. net/http also ends a request when the caller has closed its
// half of the connection and still reads the answer; the answer would then have to leave open whether the proposal was committed.
type proposer struct{ Operator }

func (p proposer) Propose(ctx context.Context, c flight.Command) (flight.Reply, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportTimeout)
	defer cancel()
	return p.Operator.Propose(ctx, c)
}

func (p proposer) ProposeAll(ctx context.Context, all []flight.Command) ([]flight.Reply, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportTimeout)
	defer cancel()
	return p.Operator.ProposeAll(ctx, all)
}

// Feed returns the events of all flights, in log order, as far as this node has applied the log.
type Feed interface {
	// Read returns about limit events after a position. It never splits the events of one command. A page may be empty
	// although More is set. Errors: *CompactedError, *FuturePositionError, or the read error.
	Read(after flight.Version, limit int) (flight.FeedPage, error)
	// Last returns the last n events that match, and the position after all events. It returns more than n rather than
	// split the events of one command. It scans backwards until stop returns true; with a nil stop, the implementation
	// chooses how far.
	Last(n int, match, stop func(*flight.FeedEvent) bool) (flight.FeedPage, error)
	// Await returns when there may be events after the position. Errors: the error of ctx, or that the ledger is
	// closed.
	Await(ctx context.Context, after flight.Version) error
}

// DuplicateCounter counts duplicates: calls that were answered without another effect. Both methods must be fast: they
// run while the caller waits.
type DuplicateCounter interface {
	// CountDuplicate counts one call of a key by the named caller.
	CountDuplicate(key flight.Key, actor string)
	// DuplicateStats returns the statistics of a flight; the zero value if it had no duplicates.
	DuplicateStats(id flight.ID) (flight.DuplicateStats, error)
}

// Restores makes backups of the ledger, and lists the keys that callers have asked for since it was restored.
type Restores interface {
	// Backup writes a tar archive. After an error the archive is incomplete.
	Backup(ctx context.Context, w io.Writer) error
	// Asked returns up to limit keys that callers have asked for after a key, sorted, and how many there are in all.
	Asked(after string, limit int) (keys []string, total int)
}
