package lease

import (
	"context"
	"time"

	"github.com/flightd/flightd/flight"
)

// Service gives out sessions and shows who holds what. All methods may be called at once from many goroutines.
type Service interface {
	// NewSession starts a session. Errors: ErrUnavailable (try again), ErrRegressed, ErrForeign, ErrClosed,
	// *flight.InvalidError for a Spec that cannot be.
	NewSession(ctx context.Context, spec Spec) (Session, error)
	// Session finds a session of a remote caller by its id, whoever started it, also after a restart of this process,
	// and renews it. ErrLost when it is gone.
	Session(ctx context.Context, id flight.SessionID) (Session, error)
	// Claims lists every claim that is held now, linearizably. From an etcd that has lost its past it answers
	// ErrRegressed, never a list that is too short.
	Claims(ctx context.Context) ([]Held, error)
	// Watch calls released for keys whose holder went away without letting go: its session ended. It is a hint and may
	// miss some: list again after it returned an error, and from time to time. It returns when ctx ends or the watch
	// broke. Calls come one at a time.
	Watch(ctx context.Context, released func(flight.Key)) error
	// Close ends the sessions that this process keeps and waits for everything in the background. Sessions of remote
	// callers go on: they belong to their callers.
	Close(ctx context.Context) error
}

// Session is one party that holds claims. Its callers in this process queue for a key instead of racing for it.
type Session interface {
	// ID is the name under which the session makes claims now. A kept session that lost its lease goes on under
	// another one; every claim says under which it was made.
	ID() flight.SessionID
	// Acquire claims the key and waits its turn until ctx ends. Errors: those of ctx, ErrUnavailable, ErrRegressed,
	// ErrForeign, ErrClosed, and ErrLost for a session that is not kept. After any error nothing stays claimed.
	Acquire(ctx context.Context, key flight.Key) (Lease, error)
	// TryAcquire claims the key, or says with *HeldError who has it. Other errors as of Acquire.
	TryAcquire(ctx context.Context, key flight.Key) (Lease, error)
	// Renew prolongs the session and gives the trust left, counted from before the request was sent. ErrLost when the
	// session is gone, ErrUnavailable when nobody knows. A kept session renews itself; here it may be asked to.
	Renew(ctx context.Context) (trust time.Duration, err error)
	// Close gives up the claims and the session. Leases that are still open die with the cause ErrClosed.
	Close(ctx context.Context) error
}

// Lease is the right to run attempts for one key. It keeps the crowd away and protects nothing outside: the ledger
// decides.
type Lease interface {
	// Claim is what the ledger wants to see.
	Claim() flight.Claim
	// Context ends when the lease does; context.Cause says why: ErrLost, ErrReleased, ErrClosed, ErrRegressed.
	Context() context.Context
	// Trust is what is left of the time in which the holder may believe in its lease. At zero or below it must not
	// start an effect. It is computed when asked and needs no timer to have fired.
	Trust() time.Duration
	// Release lets the key go, in the background. Session.Close and Service.Close wait for it. Repeating it is harmless. It
	// lets go of a lost one, too, whose claim may stand because its session is renewed through another node.
	Release()
}

// Remover takes a claim away that this process need not have made: that of a holder that hangs, or one made through
// another node. It is what an operator's steal and a report that arrives elsewhere use.
type Remover interface {
	// Remove deletes the claim if it is still exactly this one. nil when it is gone, also if it was gone before.
	Remove(ctx context.Context, key flight.Key, claim flight.Claim) error
}

// Guard is what the ledger knows of the lease side's past.
type Guard interface {
	// Epoch is the lease epoch. An operator raises it after etcd has lost its past.
	Epoch() uint32
	// MaxRevision is the highest etcd revision of this epoch that the ledger has seen; 0 when it has seen none.
	MaxRevision() int64
}

// Spec says what kind of session is wanted.
type Spec struct {
	TTL   time.Duration // how long claims outlive their holder; whole seconds, at least 2; 0: DefaultTTL
	Owner string        // host:pid or the like, for people; at most MaxOwner bytes
	Kept  bool          // renewed by this process until Close; else only by calls of Renew
}

// Held is a claim that somebody holds.
type Held struct {
	Key   flight.Key
	Claim flight.Claim
	Owner string
}

// Bounds and defaults; API.md 4a is the one place for the defaults.
const (
	DefaultTTL = 15 * time.Second
	MinTTL     = 2 * time.Second
	MaxTTL     = 10 * time.Minute
	// MaxOwner is the greatest length of an owner in bytes: with it a claim stays below 512 bytes.
	MaxOwner = 200
	// MaxDeployment is the greatest length of a deployment id in bytes.
	MaxDeployment = 64
	// MaxNode is the greatest length of a node's name in bytes.
	MaxNode = 64
)
