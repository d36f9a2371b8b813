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

	// RaiseGuard adds one to the counter next to the guard key, in one transaction that compares the guard key, and
	// returns the lease epoch of that key and the new counter. The ledger's leader calls it every 10 s and then records
	// the counter in the ledger. Errors: ErrRegressed when the counter is below the ledger's record, else as of Living.
	// After a crash or a lost answer etcd may be ahead of the ledger by some steps, which is harmless.
	RaiseGuard(ctx context.Context) (epoch uint32, counter uint64, err error)
	// Close ends the local sessions and the pooled sessions, in etcd too, and waits until all requested releases are
	// done or ctx ends. Remote sessions remain in etcd.
	Close(ctx context.Context) error
}

// Sessions creates, finds and ends sessions.
type Sessions interface {
	// NewSession creates a session: its session key is in etcd when NewSession returns. A one-shot session comes from a pool
	// of sessions created in advance, and usually costs no I/O. Errors: ErrUnavailable, ErrRegressed, ErrForeign,
	// ErrClosed; *flight.InvalidError for an invalid Spec. After a crash or an error a session without an owner may
	// remain in etcd; it expires after its TTL.
	NewSession(ctx context.Context, spec Spec) (Session, error)
	// Session finds a remote session by its id, whichever node created it. While this process trusts the session it
	// costs no I/O; else the session key is read and the session renewed. ErrLost when the session has ended, is of another
	// lease epoch, or is a local session of any process.
	Session(ctx context.Context, id flight.SessionID) (Session, error)
	// EndSession ends a session, whichever process created it: trust ends here first, then the etcd lease is revoked,
	// which deletes the session key and all claims of the session. nil also when there is no such session.
	EndSession(ctx context.Context, id flight.SessionID) error
	// InUse reports whether the session is a local one and has unreleased leases, also after the session was lost.
	// While it is true this process must not propose flight.EndSession for the session.
	InUse(id flight.SessionID) bool
}

// Liveness reads which sessions exist.
type Liveness interface {
	// Living reads guard key, counter and session keys in one linearizable transaction: the session keys of the given sessions,
	// or of all sessions when no id is given, or very many are. A session that is missing in the answer, and whose
	// session key was created at or before its Revision, has ended. Errors: ErrRegressed when etcd knows less than the
	// ledger, ErrForeign when the prefix belongs to another deployment, ErrUnavailable also when the guard key has a
	// later lease epoch than the ledger on this node. With an error the answer is empty.
	Living(ctx context.Context, ids ...flight.SessionID) (Living, error)
	// Watch calls ended, one call at a time, with sessions whose session keys were deleted. A call is a hint and proves
	// nothing; deletions may be missed. Watch returns when ctx ends, or ErrUnavailable when the watch broke.
	Watch(ctx context.Context, ended func(flight.SessionID)) error
}

// ClaimKeys reads and deletes claims of all nodes. Any claim may be deleted at any time: the ledger decides which
// caller may act.
type ClaimKeys interface {
	// Claims lists all claims as of one revision, linearizably.
	Claims(ctx context.Context) ([]ListedClaim, error)
	// RemoveClaims deletes each of the claims whose key has not been written since it was listed. After an error some
	// of them may be deleted.
	RemoveClaims(ctx context.Context, claims []ListedClaim) error
	// ReleaseClaim deletes the claim of the key if its value names session and nonce. It works in the background,
	// shares transactions with other operations, and is repeated until etcd has answered or is rejected, or the service
	// is closed. Claims of an older lease epoch are not deleted: they end with their session. A lease of this process under a
	// remote session counts as released.
	ReleaseClaim(key flight.Key, session flight.SessionID, nonce flight.Nonce)
}

// Living is the result of Liveness.Living. For every session that it does not contain it is the proof of
// flight.EndSession{ReadRevision: Revision, Epoch: Epoch, Counter: Counter}.
type Living struct {
	Sessions map[flight.SessionID]struct{} // sessions whose session key was found
	Revision int64                         // etcd's revision of the read; at least that of every session created before
	Epoch    uint32                        // of the guard key
	Counter  uint64                        // of the guard key
}

// Session is a holder of attempts. A remote session has one etcd lease. A local session renews its etcd leases,
// replaces a lost one, and has several when there are very many attempts; the ledger sees each etcd lease as a session
// of its own.
type Session interface {
	// Ref returns the session that the next Reserve will use, or the last one if it is lost.
	Ref() flight.Session
	// Reserve returns the lease of one attempt. It writes nothing, and makes no call while a trusted etcd lease has
	// capacity; a local session without such a lease requests one from etcd. Errors: ErrLost for a remote session that
	// has ended; ErrUnavailable, ErrRegressed, ErrForeign, ErrClosed.
	Reserve(ctx context.Context, key flight.Key, nonce flight.Nonce) (Lease, error)
	// Renew renews the session and returns the remaining trust, counted from before the request was sent. ErrLost when
	// the session has ended. A local session may be renewed, too.
	Renew(ctx context.Context) (trust time.Duration, err error)
	// Trust returns the remaining time in which the session of Ref may be trusted. At zero or below no effect may
	// start.
	Trust() time.Duration
	// TTL returns the time to live that etcd granted.
	TTL() time.Duration
	// Close ends trust at once and then the session in etcd, with all its claims, whether its leases are released or
	// not. ErrUnavailable: it expires after its TTL.
	Close(ctx context.Context) error
}

// Lease belongs to one attempt under one session. Its user calls Claim at most once at a time, and Release at the end.
type Lease interface {
	// Session returns the session that the attempt's Open names.
	Session() flight.Session
	// Trust returns the remaining time in which the session may be trusted. At zero or below no effect may start. It is
	// computed from the clocks when called and does not depend on a timer.
	Trust() time.Duration
	// Context ends when trust in the session ends, never because of the claim or Release. Its cause is one of ErrLost,
	// ErrRegressed, ErrForeign, ErrClosed.
	Context() context.Context
	// Claim writes the claim of the key if the key has none and the session key exists. It returns nil when the
	// key has this lease's claim, from this call or an earlier one. Errors: *HeldError when there is another claim and
	// nothing was written, ErrLost when the session has ended, ErrReleased. While etcd does not answer, Claim retries
	// until ctx or trust ends; then the claim may exist, or be written later. Release deletes it.
	Claim(ctx context.Context) error
	// Replace writes the claim even if there is another one, if the session key exists. Errors as of Claim,
	// without *HeldError.
	Replace(ctx context.Context) error
	// Release ends the reservation and deletes the claim if its value is still this lease's. It returns at once. The
	// deletion shares a transaction with other operations, is sent after a Claim or Replace in flight, and is repeated
	// until etcd has answered. A second Release does nothing. After a crash before the deletion the claim ends with its
	// session.
	Release()
}

// LedgerState is the ledger's record of etcd, as far as this node has read the ledger: its lease epoch, which an operator
// raises after etcd was restored or lost, and the highest counter of the guard key in this epoch.
type LedgerState interface {
	Header() flight.Header
}

// Spec describes a new session.
type Spec struct {
	TTL       time.Duration // the session expires this long after its last renewal; whole seconds, at least 2; 0: DefaultTTL
	Owner     string        // host:pid or the like, for people; at most MaxOwner bytes. A pooled session has none
	AutoRenew bool          // renewed by this process until Close; else only by calls of Renew and Session
	OneShot   bool          // for one attempt; not with AutoRenew
}

// ListedClaim is a claim in etcd. Session and Nonce are zero if its value is damaged or of a newer version.
type ListedClaim struct {
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
	// MaxOwner is the maximum length of an owner in bytes.
	MaxOwner = 200
	// MaxDeployment is the maximum length of a deployment id in bytes.
	MaxDeployment = 64
	// MaxNode is the maximum length of a node's name in bytes.
	MaxNode = 64
)
