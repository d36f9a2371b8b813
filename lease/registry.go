package lease

import (
	"context"
	"fmt"
	"time"

	"github.com/flightd/flightd/flight"
)

// Registry is the place where claims are kept: etcd, or the fake. It holds no rules; they are in this package.
//
// A Registry answers ErrLost for a lease or a session that is gone, *StampError where the guard key says something
// else than asked for, and any other error where it does not know what happened.
type Registry interface {
	Leases
	Claims
	Hints
	Stamps
}

// Leases are the lives of sessions: an etcd lease each, with a marker key on it.
type Leases interface {
	// Grant makes a lease and the session's marker on it, if the stamp is right. The time to live may be longer than
	// asked for.
	Grant(ctx context.Context, stamp Stamp, m Marker) (Granted, error)
	// Renew starts the lease's time anew and gives it.
	Renew(ctx context.Context, id LeaseID) (time.Duration, error)
	// Revoke ends the lease and deletes everything on it. nil when it was gone.
	Revoke(ctx context.Context, id LeaseID) error
	// Markers lists the sessions there are; of one session only, when id is not empty.
	Markers(ctx context.Context, id flight.SessionID) ([]Marker, error)
}

// Claims are the keys held.
type Claims interface {
	// Commit carries out the operations at once, if the stamp is right, and writes the answers into them. A claim that
	// was made has the revision returned. After an error any of them may have happened, or may happen later.
	Commit(ctx context.Context, stamp Stamp, ops []*Op) (revision int64, err error)
	// Get reads claims by key, linearizably. Keys that nobody holds are missing in the answer.
	Get(ctx context.Context, keys []string) (found []Entry, revision int64, err error)
	// List reads all claims, linearizably and as of one moment.
	List(ctx context.Context) (all []Entry, revision int64, err error)
}

// Hints tell early what polling would find out later. They may be lost.
type Hints interface {
	// Gone returns when the key is deleted after the revision seen, or when ctx ends, and not before.
	Gone(ctx context.Context, key string, seen int64)
	// Deaths calls lost with the keys of sessions that ended without being retired, until ctx ends or the watch breaks.
	Deaths(ctx context.Context, lost func(keys []string)) error
}

// Stamps are the guard key: whose etcd prefix this is, and in which lease epoch.
type Stamps interface {
	// Stamp reads the guard key, linearizably; nil when there is none.
	Stamp(ctx context.Context) (found *Stamp, revision int64, err error)
	// SetStamp replaces old (nil: no guard key) by new. *StampError when it is not old any more.
	SetStamp(ctx context.Context, old *Stamp, new Stamp) error
}

// LeaseID names an etcd lease.
type LeaseID int64

// Boot is one life of a process.
type Boot [16]byte

// Stamp is the content of the guard key.
type Stamp struct {
	Deployment string
	Epoch      uint32
}

// StampError says that the guard key is not what it should be; nothing was done.
type StampError struct{ Found *Stamp }

func (e *StampError) Error() string {
	if e.Found == nil {
		return "lease: there is no guard key"
	}
	return fmt.Sprintf("lease: the guard key names deployment %q, lease epoch %d", e.Found.Deployment, e.Found.Epoch)
}

// Marker is the key that shows that a session lives.
type Marker struct {
	Session flight.SessionID
	Lease   LeaseID       // filled in by Grant and Markers
	TTL     time.Duration // as granted
	Epoch   uint32
	Kept    bool
	Boot    Boot
	Node    string
	Owner   string // "" for sessions granted ahead
}

// Granted is a new lease.
type Granted struct {
	Lease    LeaseID
	TTL      time.Duration
	Revision int64 // of etcd after the marker was written
}

// OpKind says what an Op does.
type OpKind uint8

// The operations that travel in batches.
const (
	// OpClaim puts the key if nobody has it and the session's marker is there.
	OpClaim OpKind = iota + 1
	// OpRelease deletes the key if its create revision is Revision.
	OpRelease
	// OpRetire marks the session's marker, so that its end is nobody's death.
	OpRetire
)

// Op is one operation of a batch. A batch names each key at most once.
type Op struct {
	Kind     OpKind
	Key      string
	Session  flight.SessionID
	Lease    LeaseID
	Value    string
	Revision int64

	// Done: the claim was made, the key was deleted, the marker was marked.
	Done bool
	// Holder is who has the key, for a claim that was not made; nil says that the session's marker is gone.
	Holder *Entry
}

// Entry is a claim as it is stored.
type Entry struct {
	Key      string
	Value    string
	Revision int64 // create revision
	Seen     int64 // a revision of etcd at which it was there
}
