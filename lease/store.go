package lease

import (
	"context"
	"fmt"
	"time"

	"github.com/flightd/flightd/flight"
)

// Store keeps sessions and claims: etcd, or the fake. It has no rules; they are in this package.
//
// A Store returns ErrLost for an etcd lease that is gone, *OwnershipError where the guard key is not the expected one,
// and any other error where it is not known what happened. All its reads are linearizable.
type Store interface {
	EtcdLeases
	Markers
	ClaimStore
	GuardStore
}

// EtcdLeases are what sessions live on.
type EtcdLeases interface {
	// Grant makes an etcd lease and the session's marker on it, if the guard key is the expected one. The TTL may be
	// longer than asked for.
	Grant(ctx context.Context, own Ownership, m Marker) (Granted, error)
	// Renew starts the lease's time anew and returns its TTL.
	Renew(ctx context.Context, id LeaseID) (time.Duration, error)
	// Revoke ends the lease and deletes all keys attached to it. nil when it was gone.
	Revoke(ctx context.Context, id LeaseID) error
}

// Markers are the keys that show that sessions live.
type Markers interface {
	// Marker reads one; nil when there is none.
	Marker(ctx context.Context, id flight.SessionID) (*Marker, error)
	// Markers lists all.
	Markers(ctx context.Context) ([]Marker, error)
	// WatchMarkers calls deleted for markers that are deleted from now on, until ctx ends or the watch breaks.
	WatchMarkers(ctx context.Context, deleted func(flight.SessionID)) error
}

// ClaimStore holds the claims.
type ClaimStore interface {
	// Commit carries out the operations in one transaction, if the guard key is the expected one, and writes the results
	// into them. No two of them name one key. After an error that is not *OwnershipError any of them may have happened,
	// or may happen later.
	Commit(ctx context.Context, own Ownership, ops []*Op) error
	// List reads all claims as of one moment.
	List(ctx context.Context) ([]Entry, error)
}

// GuardStore holds the guard key and the counter beside it.
type GuardStore interface {
	ReadGuard(ctx context.Context) (GuardState, error)
	// ReadLiving is ReadGuard and, in the same transaction, a search for markers: of the given sessions, or of all
	// sessions when none is given. Others may be in the answer, too.
	ReadLiving(ctx context.Context, ids []flight.SessionID) (GuardState, []flight.SessionID, error)
	// SetOwnership replaces the guard key old (nil: none) by new. *OwnershipError when it is not old any more.
	SetOwnership(ctx context.Context, old *Ownership, new Ownership) error
	// RaiseCounter puts from+1 in place of from, if the guard key is the expected one. False when the counter is not
	// from any more.
	RaiseCounter(ctx context.Context, own Ownership, from uint64) (bool, error)
}

// LeaseID names an etcd lease.
type LeaseID int64

// Incarnation is one life of a process.
type Incarnation [16]byte

// Ownership is the content of the guard key.
type Ownership struct {
	Deployment string
	Epoch      uint32
}

// GuardState is what one read found.
type GuardState struct {
	Owner    *Ownership // nil: there is no guard key
	Counter  uint64     // 0: there is no counter
	Revision int64      // of etcd
}

// OwnershipError says that the guard key is not the expected one; nothing was done.
type OwnershipError struct{ Found *Ownership }

func (e *OwnershipError) Error() string {
	if e.Found == nil {
		return "lease: there is no guard key"
	}
	return fmt.Sprintf("lease: the guard key names deployment %q, lease epoch %d", e.Found.Deployment, e.Found.Epoch)
}

// Marker is the value of the key that shows that a session lives, and what etcd says of that key.
type Marker struct {
	Session     flight.Session // ID, Epoch and OneShot are stored, Revision is the key's
	Lease       LeaseID        // of the key
	TTL         time.Duration
	Kept        bool
	Incarnation Incarnation // that made it
	Node        string      // that made it
	Owner       string
}

// Granted is a new etcd lease.
type Granted struct {
	Lease    LeaseID
	TTL      time.Duration
	Revision int64 // create revision of the marker
}

// OpKind says what an Op does.
type OpKind uint8

// The operations that share transactions.
const (
	// OpClaim puts the key if it does not exist and the session's marker does.
	OpClaim OpKind = iota + 1
	// OpReplace puts the key if the session's marker exists.
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
	// Holder is the claim in the way of an OpClaim that is not done; nil says that the session's marker is gone.
	Holder *Entry
}

// Entry is a claim as it is stored.
type Entry struct {
	Key         string
	Value       string
	ModRevision int64
}
