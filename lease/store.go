package lease

import (
	"context"
	"fmt"
	"time"

	"github.com/flightd/flightd/flight"
)

// Store stores sessions and claims in etcd or in the fake. It has no rules; they are in this package.
//
// A Store returns ErrLost for an etcd lease that is gone and *OwnershipError for an unexpected guard key. After any
// other error the result is unknown. All reads are linearizable, and all methods may be called concurrently.
type Store interface {
	EtcdLeases
	SessionKeys
	ClaimStore
	EpochStore
}

// EtcdLeases creates, renews and revokes etcd leases.
type EtcdLeases interface {
	// Grant creates an etcd lease and the session key on it, if the guard key is the expected one. The TTL may be
	// longer than requested.
	Grant(ctx context.Context, own Ownership, m SessionKey) (Granted, error)
	// Renew restarts the TTL of the lease and returns it.
	Renew(ctx context.Context, id LeaseID) (time.Duration, error)
	// Revoke ends the lease and deletes all keys attached to it. nil also when the lease does not exist.
	Revoke(ctx context.Context, id LeaseID) error
}

// SessionKeys reads session keys, the keys that exist while their session does.
type SessionKeys interface {
	// SessionKey reads one session key; nil when it does not exist.
	SessionKey(ctx context.Context, id flight.SessionID) (*SessionKey, error)
	// SessionKeys lists all session keys.
	SessionKeys(ctx context.Context) ([]SessionKey, error)
	// WatchSessionKeys calls deleted for session keys that are deleted from now on, until ctx ends or the watch breaks.
	WatchSessionKeys(ctx context.Context, deleted func(flight.SessionID)) error
}

// ClaimStore stores claims.
type ClaimStore interface {
	// Commit performs the operations in one transaction, if the guard key is the expected one, and writes the results
	// into them. Each operation has another key. After an error that is not *OwnershipError any of them may have been
	// performed, or may be performed later.
	Commit(ctx context.Context, own Ownership, ops []*Op) error
	// List reads all claims as of one revision.
	List(ctx context.Context) ([]RawClaim, error)
}

// EpochStore stores the guard key and its counter.
type EpochStore interface {
	ReadGuard(ctx context.Context) (GuardState, error)
	// ReadLiving is ReadGuard and, in the same transaction, a read of session keys: of the given sessions, or of all
	// sessions when none is given. The answer may contain other sessions, too.
	ReadLiving(ctx context.Context, ids []flight.SessionID) (GuardState, []flight.SessionID, error)
	// SetOwnership replaces the guard key old (nil: none) by new. *OwnershipError when the key is not old any more.
	SetOwnership(ctx context.Context, old *Ownership, new Ownership) error
	// RaiseCounter replaces the counter from by from+1, if the guard key is the expected one. False when the counter is
	// not from any more.
	RaiseCounter(ctx context.Context, own Ownership, from uint64) (bool, error)
}

// LeaseID is the id of an etcd lease.
type LeaseID int64

// Incarnation identifies one run of a process.
type Incarnation [16]byte

// Ownership is the content of the guard key.
type Ownership struct {
	Deployment string
	Epoch      uint32
}

// GuardState is the result of one read.
type GuardState struct {
	Owner    *Ownership // nil: there is no guard key
	Counter  uint64     // 0: there is no counter
	Revision int64      // of etcd
}

// OwnershipError says that the guard key is not the expected one. Nothing was written.
type OwnershipError struct{ Found *Ownership }

func (e *OwnershipError) Error() string {
	if e.Found == nil {
		return "lease: there is no guard key"
	}
	return fmt.Sprintf("lease: the guard key names deployment %q, lease epoch %d", e.Found.Deployment, e.Found.Epoch)
}

// SessionKey is the value and the metadata of the key that exists while its session does.
type SessionKey struct {
	Session     flight.Session // ID, Epoch and OneShot are stored, Revision is the key's
	Lease       LeaseID        // of the key
	TTL         time.Duration
	AutoRenew   bool        // a local session of the incarnation
	Incarnation Incarnation // that created it
	Node        string      // that created it
	Owner       string
}

// Granted is a new etcd lease.
type Granted struct {
	Lease    LeaseID
	TTL      time.Duration
	Revision int64 // create revision of the session key
}

// OpKind is the kind of an Op.
type OpKind uint8

// The kinds of operations.
const (
	// OpClaim puts the key if it does not exist and the session key does.
	OpClaim OpKind = iota + 1
	// OpReplace puts the key if the session key exists.
	OpReplace
	// OpRelease deletes the key if its value is Value.
	OpRelease
	// OpRemove deletes the key if its mod revision is ModRevision.
	OpRemove
)

// Puts reports whether the operation writes a claim.
func (k OpKind) Puts() bool { return k == OpClaim || k == OpReplace }

// Op is one operation of a transaction.
type Op struct {
	Kind        OpKind
	Key         string
	Session     flight.SessionID
	Lease       LeaseID // to which a claim is attached
	Value       string
	ModRevision int64

	// Done: the key was written, or deleted.
	Done bool
	// Holder is the existing claim if an OpClaim is not done. nil: the session key is gone.
	Holder *RawClaim
}

// RawClaim is a stored claim with its value not decoded.
type RawClaim struct {
	Key         string
	Value       string
	ModRevision int64
}
