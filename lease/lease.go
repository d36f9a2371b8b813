package lease

import (
	"context"
	"time"

	"github.com/flightd/flightd/flight"
)

// Service is a node's access to sessions and claims in etcd. All methods may be called at once from many goroutines.
//
// Every error is of one of the classes in errors.go, or a *flight.InvalidError. ErrUnavailable says that etcd did not
// answer within 9 s, or before ctx ended, and that nothing is known; each method may then be called again without harm.
type Service interface {
	Sessions
	Liveness
	ClaimKeys

	// RaiseGuard adds one to the counter beside the guard key, in one transaction that compares the guard key, and
	// returns the lease epoch of that key and the new counter. The ledger's leader calls it every 10 s and then records
	// the counter in the ledger. Errors: ErrRegressed when the counter is below what the ledger has recorded, else as
	// of Living. After a crash, or an answer that was lost, etcd may be ahead of the ledger by some steps; this harms
	// nothing.
	RaiseGuard(ctx context.Context) (epoch uint32, counter uint64, err error)
	// Close ends the sessions that this process keeps and those in its pool, in etcd too, and waits until the releases
	// that were asked for are done, or until ctx ends. Sessions of remote callers live on in etcd.
	Close(ctx context.Context) error
}

// Sessions makes, finds and ends sessions.
type Sessions interface {
	// NewSession makes a session: its marker is in etcd when NewSession returns. A one-shot session comes from a pool of
	// sessions that were made ahead, and usually costs no I/O. Errors: ErrUnavailable, ErrRegressed, ErrForeign,
	// ErrClosed; *flight.InvalidError for a Spec that is not possible. After a crash or an error a session that nobody
	// knows may be left in etcd; it expires after its TTL.
	NewSession(ctx context.Context, spec Spec) (Session, error)
	// Session finds the session of a remote caller by its id, whichever node made it. While this process trusts the
	// session it costs no I/O; else the marker is read and the session renewed. ErrLost when the session has ended, is
	// of another lease epoch, or is kept by another process for itself.
	Session(ctx context.Context, id flight.SessionID) (Session, error)
	// EndSession ends a session, whichever process made it: trust ends here first, then the etcd lease is revoked, which
	// deletes the marker and all claims of the session. nil also when there is no such session.
	EndSession(ctx context.Context, id flight.SessionID) error
	// InUse reports whether this process keeps the session and has leases under it that are not released, also after
	// the session was lost. While it is true this process must not propose flight.Ended for the session.
	InUse(id flight.SessionID) bool
}

// Liveness tells which sessions live.
type Liveness interface {
	// Living reads guard key, counter and markers in one linearizable transaction: the markers of the given sessions, or
	// of all sessions when no id is given, or very many are. A session that is missing in the answer, and whose marker
	// was created at or before its Revision, has ended. Errors: ErrRegressed when etcd knows less than the ledger,
	// ErrForeign when the prefix belongs to another deployment, ErrUnavailable also when the guard key is of a later
	// lease epoch than the ledger as this node knows it. No error comes with an answer.
	Living(ctx context.Context, ids ...flight.SessionID) (Living, error)
	// Watch calls ended, one call at a time, with sessions whose markers were deleted. It is a hint: it may miss some,
	// and proves nothing. Watch returns when ctx ends, or with ErrUnavailable when the watch broke.
	Watch(ctx context.Context, ended func(flight.SessionID)) error
}

// ClaimKeys reads and deletes claims, whoever wrote them. Any claim may be deleted at any time: the ledger decides who
// acts.
type ClaimKeys interface {
	// Claims lists all claims as of one moment, linearizably.
	Claims(ctx context.Context) ([]Held, error)
	// RemoveClaims deletes each of the claims whose key has not been written since it was listed. After an error some of
	// them may be deleted.
	RemoveClaims(ctx context.Context, claims []Held) error
	// ReleaseClaim deletes the claim of the key if its value names session and nonce. It works in the background, shares
	// transactions with others, and is repeated until etcd has answered, is refused, or the service is closed. A session of
	// an older lease epoch is not looked for: its claims end with it.
	ReleaseClaim(key flight.Key, session flight.SessionID, nonce flight.Nonce)
}

// Living is an answer of Liveness.Living, and the proof of flight.Ended{ReadRevision: Revision, Epoch: Epoch, Counter: Counter} for every
// session that is not in it.
type Living struct {
	Sessions map[flight.SessionID]struct{} // those whose marker was found
	Revision int64                         // of etcd when it was read; never below that of a session made before
	Epoch    uint32                        // of the guard key
	Counter  uint64                        // of the guard key
}

// Session is a party that holds attempts. A session of a remote caller has one etcd lease. A kept session renews itself,
// takes one etcd lease after another when they are lost, and one beside another when there are very many attempts; each
// of them is a session of its own to the ledger.
type Session interface {
	// Ref is the session under which the next Reserve would be made, or the one lost last.
	Ref() flight.Session
	// Reserve gives the lease of one attempt. It writes nothing, and makes no call as long as a trusted etcd lease has
	// room; a kept session that has none asks etcd for one. Errors: ErrLost for a remote caller's session that has ended;
	// ErrUnavailable, ErrRegressed, ErrForeign, ErrClosed.
	Reserve(ctx context.Context, key flight.Key, nonce flight.Nonce) (Lease, error)
	// Renew prolongs the session and returns the trust left, counted from before the request was sent. ErrLost when the
	// session is gone. A kept session renews itself; the call is allowed.
	Renew(ctx context.Context) (trust time.Duration, err error)
	// Trust is what is left of the time in which the session of Ref may be trusted; 0 or less: start nothing.
	Trust() time.Duration
	// TTL is the time to live that etcd granted.
	TTL() time.Duration
	// Close ends trust at once and then the session in etcd, with all its claims, whether its leases are released or
	// not. ErrUnavailable: it expires after its TTL.
	Close(ctx context.Context) error
}

// Lease belongs to one attempt under one session. Its user calls Claim at most once at a time, and Release at the end.
type Lease interface {
	// Session is what the attempt's Open names.
	Session() flight.Session
	// Trust is what is left of the time in which the session may be trusted. At zero or below no effect may start. It is
	// computed from the clocks when asked, and needs no timer to have fired.
	Trust() time.Duration
	// Context ends when trust in the session does, never because of the claim or Release; context.Cause says why:
	// ErrLost, ErrRegressed, ErrForeign, ErrClosed.
	Context() context.Context
	// Claim writes the claim of the key if there is none and the session's marker exists, and returns nil when the claim
	// is this lease's, whether from this call or an earlier one. *HeldError: there is another claim, and nothing was
	// written. ErrLost: the session is gone. While etcd does not answer, Claim asks again until ctx or trust ends; then
	// the claim may or may not be there, or be written later. Release deletes it.
	Claim(ctx context.Context) error
	// Replace writes the claim whether there is another one or not, if the session's marker exists. Errors as of Claim,
	// without *HeldError.
	Replace(ctx context.Context) error
	// Release gives the reservation back and has the claim deleted if its value is still this lease's. It returns at
	// once; the deletion shares a transaction with others, goes out after a Claim or Replace that is not answered yet,
	// and is repeated until etcd has answered. A repeat of Release does nothing. After a crash before the deletion the
	// claim ends with its session.
	Release()
}

// Guard is what the ledger knows of etcd's past, as far as this node has read. Both values are of the present lease epoch.
type Guard interface {
	// Epoch is the lease epoch. An operator raises it after etcd has lost its past.
	Epoch() uint32
	// Counter is the highest counter of the guard key that the ledger has recorded in this epoch; 0: none.
	Counter() uint64
}

// Spec says what kind of session is wanted.
type Spec struct {
	TTL     time.Duration // how long the session outlives its last renewal; whole seconds, at least 2; 0: DefaultTTL
	Owner   string        // host:pid or the like, for people; at most MaxOwner bytes. A one-shot session does not tell it
	Kept    bool          // renewed by this process until Close; else only by calls of Renew and Session
	OneShot bool          // for one attempt; not with Kept
}

// Held is a claim in etcd. Session and Nonce are zero where its value is damaged or of a newer version.
type Held struct {
	Key         flight.Key
	Session     flight.SessionID
	Nonce       flight.Nonce
	ModRevision int64 // etcd revision of its last write
}

// Bounds and defaults.
const (
	DefaultTTL = 15 * time.Second
	MinTTL     = 2 * time.Second
	MaxTTL     = 10 * time.Minute
	// MaxOwner is the greatest length of an owner in bytes.
	MaxOwner = 200
	// MaxDeployment is the greatest length of a deployment id in bytes.
	MaxDeployment = 64
	// MaxNode is the greatest length of a node's name in bytes.
	MaxNode = 64
)
