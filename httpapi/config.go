package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/auth"
)

// Config holds the dependencies of the API. Remote, Ledger, Operator and About.Ready have no default.
type Config struct {
	Remote    Remote
	Work      Work
	Ledger    Ledger
	Operator  Operator
	Documents Documents     // nil: the routes of tokens, namespaces and the audit log answer not_found
	Restores  Restores      // nil: the routes of backups and restores answer not_found
	Notify    Notifications // nil: the routes of notifications answer not_found
	Events    Events
	Callers   Callers
	Cluster   Cluster
	About     About
	// Logger receives failures, and rejected requests at level debug; nil: slog.Default.
	Logger *slog.Logger
}

// Events configures the routes of events, and the counts of duplicates among them.
type Events struct {
	Feed       Feed             // nil: GET /v1/events answers not_found
	Duplicates DuplicateCounter // nil: duplicates are not counted
	// Heartbeat is the longest silence of an event stream; 0: 15 s.
	Heartbeat time.Duration
	// MaxStreams bounds the open event streams; 0, or more than 1,024: 1,024.
	MaxStreams int
}

// Work is what the node does with the jobs of others.
type Work struct {
	Pools Pools // nil: the node takes and hands out no jobs
	Sagas Sagas // nil: the node has no sagas
}

// Callers says who may call, and how much.
type Callers struct {
	// Auth checks the tokens of requests; nil: the server needs no credentials. With it, About.Metrics is not served.
	Auth *auth.Directory
	// TokenTime is the time at which the expiry of tokens is judged; nil: the ledger's time.
	TokenTime func() flight.Time
	// Limits bounds what the namespaces use; nil: they have no limits, and the node has its defaults.
	Limits *auth.Limiter
	// LoopbackOnly wraps all routes in the function of that name.
	LoopbackOnly bool
	// PublicURL is the URL of the API as providers reach it, without a slash at its end; "": no attempt waits for a callback.
	PublicURL string
	// Traces says that attempts store the sampled trace in the traceparent of their request: the node exports their spans.
	Traces bool
	// Lines wraps the handler of the lines of batches, as the handler of New is wrapped for requests; nil: it does not.
	Lines func(http.Handler) http.Handler

	bodyMemory int // bytes for bodies, and as many for answers; 0 means bodyMemorySize. Set only by tests.
}

// Cluster is what the node knows of the other nodes, and of its own place among them.
type Cluster struct {
	// State describes the nodes; nil: GET /v1/cluster answers not_found.
	State func() wire.Cluster
	// AwaitNodes waits until every other node that answers has applied what this one has, at most a second. It returns the
	// names of the others. nil: a lone node.
	AwaitNodes func(ctx context.Context) (notYet []string)
	// RaiseLeaseEpoch raises the lease epoch if etcd knows less than the ledger, else it changes nothing. Errors are those of
	// package effect.
	RaiseLeaseEpoch func(ctx context.Context, actor, reason string) error
	// ReplaceNode has propose store the document that makes the bearer of a certificate the successor of a node, unless that has been
	// decided already. nil: a lone node.
	ReplaceNode func(name, certificate string, whileRunning bool, propose func(context.Context, *flight.PutDocument) error) error
	// LedgerBehind reports whether the ledger does not reach a position that a caller was told, although this node leads. It is
	// called if the position is later than the ledger's. nil: positions are not compared.
	LedgerBehind func(ctx context.Context, position wire.Index) (bool, error)
	// ReplaceAnswer returns the code of the problem that is given instead of an answer with a status, or "". It is called before the answer
	// is written, unless the route's place is ThisNode. current: it rests on a read, and holds only while this node leads. nil: every answer is given.
	ReplaceAnswer func(ctx context.Context, status int, current bool) wire.Code
	// Follower is set at a node that does not lead the ledger. Of flights without a final receipt it streams the events alone, its
	// answers carry no ledger time, and it decides nothing: an answer with another status than 200, 304 and 424 means that the
	// leader has to be asked. Follower reports whether the node knows the documents of a minute ago; if not, it takes no token.
	Follower func() bool
}

// About describes the server and its health.
type About struct {
	Version wire.Version
	Ready   func(context.Context) wire.Ready
	// Ledger describes the ledger in GET /readyz, with figures or without; nil: the answer has no description.
	Ledger func(figures bool) wire.LedgerInfo
	// Node describes the node in GET /readyz?verbose; nil: the answer has no description.
	Node func(context.Context) *wire.Node
	// Metrics serves /metrics, /metrics/etcd and /metrics/raft; nil: these paths answer not_found.
	Metrics http.Handler
}
