package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/auth"
	"github.com/flightd/flightd/remote"
)

// Remote serves callers that perform effects themselves. Errors are those of package effect, *flight.InvalidError, or
// the context's error.
type Remote interface {
	Open(ctx context.Context, req remote.OpenRequest) (remote.OpenAnswer, error)
	Abandon(ctx context.Context, req remote.AbandonRequest) error
	Verify(ctx context.Context, req remote.VerificationRequest) (remote.OpenAnswer, error)
	// Report returns the flight with *effect.Fenced, too, if this node knows it.
	Report(ctx context.Context, req remote.ReportRequest) (*flight.Flight, error)
	Sessions
}

// Sessions manages the sessions of such callers. Errors are those of Remote, *effect.LeaseLost if the session has
// ended, and *effect.SessionInUse if it cannot be closed because attempts are open under it.
type Sessions interface {
	NewSession(ctx context.Context, ttl time.Duration, owner string) (remote.SessionAnswer, error)
	Renew(ctx context.Context, id flight.SessionID, renewal remote.RenewRequest) (remote.SessionAnswer, error)
	CloseSession(ctx context.Context, id flight.SessionID) error
}

// Ledger is the part of this node's ledger that the API reads.
type Ledger interface {
	Header() flight.Header
	// Now returns the ledger's time, as far as this node knows it.
	Now() flight.Time
	// Flight returns nil if the key was never used.
	Flight(id flight.ID) (*flight.Flight, error)
	// Wait waits until the flight's version differs from known.
	Wait(ctx context.Context, id flight.ID, known flight.Version) (*flight.Flight, error)
	// Input returns the exact bytes of the flight's input; nil if none are stored.
	Input(f *flight.Flight) ([]byte, error)
	// ReceiptBody returns the stored bytes of the receipt's body; nil if none are stored.
	ReceiptBody(f *flight.Flight) ([]byte, error)
	List(q flight.Query) (flight.Page, error)
	History(id flight.ID) ([]flight.HistoryEvent, error)
}

// Documents are the documents of the ledger, its audit log, and what it counts per namespace.
type Documents interface {
	// Documents returns the documents of a kind, sorted by namespace and name. They must not be changed.
	Documents(kind string) []*flight.Document
	// Document returns nil if there is no such document. The document must not be changed.
	Document(id flight.DocumentID) *flight.Document
	// Audit returns the newest entries before a version that match; from the end, if before is zero. It reads a bounded
	// number of entries. next is the version to continue before; zero: there are no older ones that match. With a next,
	// entries may be fewer than limit, or none.
	Audit(before flight.Version, limit int, match func(*flight.AuditEntry) bool) (entries []flight.AuditEntry, next flight.Version, err error)
	DocumentsVersion() flight.Version // of the last change of any document
	// Stored returns how many flights each namespace stores, and how many tombstones all namespaces have together.
	Stored() (flights map[string]int64, tombstones int64)
	auth.Usage
}

// Operator applies the decisions of people.
type Operator interface {
	Propose(ctx context.Context, c flight.Command) (flight.Reply, error)
	// ProposeAll proposes independent commands at once. After an error some may have been applied; proposing all of
	// them again is harmless.
	ProposeAll(ctx context.Context, all []flight.Command) ([]flight.Reply, error)
}

// Config holds the dependencies of the API. Remote, Ledger, Operator and Ready have no default.
type Config struct {
	Remote     Remote
	Ledger     Ledger
	Feed       Feed             // nil: GET /v1/events answers not_found
	Duplicates DuplicateCounter // nil: duplicates are not counted
	Operator   Operator
	Documents  Documents // nil: the routes of tokens, namespaces and the audit log answer not_found
	Restores   Restores  // nil: the routes of backups and restores answer not_found
	// LedgerBehind reports whether the ledger does not reach a position that a caller was told, although this node leads. It is
	// called if the position is later than the ledger's. nil: positions are not compared.
	LedgerBehind func(ctx context.Context, told wire.Index) (bool, error)
	// Follower is set at a node that does not lead the ledger. Of flights without a final receipt it streams the events alone, its
	// answers carry no ledger time, and it decides nothing: an answer with another status than 200, 304 and 424 means that the
	// leader has to be asked. Follower reports whether the node knows the documents of a minute ago; if not, it takes no token.
	Follower func() bool
	// TokenTime is the time at which the expiry of tokens is judged; nil: the ledger's time.
	TokenTime func() flight.Time
	// Cluster describes the nodes; nil: a lone node.
	Cluster func() wire.Cluster
	// AwaitNodes waits until every other node that answers has applied what this one has, at most a second. It returns the
	// names of the others. nil: a lone node.
	AwaitNodes func(ctx context.Context) (notYet []string)
	// RaiseLeaseEpoch raises the lease epoch if etcd knows less than the ledger, else it changes nothing. Errors are those of
	// package effect.
	RaiseLeaseEpoch func(ctx context.Context, actor, reason string) error
	// ReplaceNode returns the document that makes the bearer of a certificate the successor of a node; nil: that has been decided
	// already. The field nil: a lone node.
	ReplaceNode func(name, certificate string, whileRunning bool) (*flight.PutDocument, *wire.Invalid)
	// Auth checks the tokens of requests; nil: the server needs no credentials. With it, Metrics is not served.
	Auth *auth.Directory
	// Limits bounds what the namespaces use; nil: they have no limits, and the node has its defaults.
	Limits *auth.Limiter
	Ready  func(context.Context) wire.Ready
	// LedgerInfo describes the ledger in GET /readyz, with figures or without; nil: the answer has no description.
	LedgerInfo func(figures bool) wire.LedgerInfo
	// NodeInfo describes the node in GET /readyz?verbose; nil: the answer has no description.
	NodeInfo func(context.Context) *wire.Node
	Version  wire.Version
	// LoopbackOnly wraps all routes in the function of that name.
	LoopbackOnly bool
	// Metrics serves /metrics, /metrics/etcd and /metrics/raft; nil: these paths answer not_found.
	Metrics http.Handler
	// Heartbeat is the longest silence of an event stream; 0: 15 s.
	Heartbeat time.Duration
	// MaxStreams bounds the open event streams; 0, or more than 1,024: 1,024.
	MaxStreams int
	// Logger receives failures, and rejected requests at level debug; nil: slog.Default.
	Logger *slog.Logger

	bodyMemory int // bytes; 0: maxBodyMemory. For tests.
}
