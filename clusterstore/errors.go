package clusterstore

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"
)

// A definite "no": the command was not and will not be applied by this call.
var (
	// ErrNotLeader: this node does not lead; ask the one that does.
	ErrNotLeader = errors.New("clusterstore: this node does not lead the ledger")
	// ErrUnavailable: the ledger takes no new work now (hand-over, full disk, the caller's time was over before the
	// command left this process); try again later.
	ErrUnavailable = errors.New("clusterstore: the ledger takes no new work now")
	// ErrTooLarge: the command is larger than a log entry may be.
	ErrTooLarge = errors.New("clusterstore: the command is too large")
	// ErrClosed: the store is closed.
	ErrClosed = errors.New("clusterstore: closed")
)

// ErrPending says that a report is not committed yet but on this node's disk, and will be proposed until it is.
var ErrPending = errors.New("clusterstore: the report is kept in the spool and will be committed later")

// Reasons for which Open refuses a directory.
var (
	// ErrLocked: another process has it open.
	ErrLocked = errors.New("clusterstore: the data directory is in use by another process")
	// ErrForeign: it belongs to another node or another cluster.
	ErrForeign = errors.New("clusterstore: the data directory belongs to another node or cluster")
	// ErrNewer: a newer version of flightd wrote it.
	ErrNewer = errors.New("clusterstore: written by a newer version of flightd")
	// ErrOlder: a version of flightd wrote it that this one cannot go on from.
	ErrOlder = errors.New("clusterstore: written by an older version of flightd")
	// ErrDamaged: something that was durable is gone or unreadable, and what is left does not make up for it.
	ErrDamaged = errors.New("clusterstore: the data directory is damaged")
)

// AmbiguousError says that the command may or may not have been, or be, applied. Every command may be proposed again
// without harm; that is how to find out.
type AmbiguousError struct{ Cause error }

func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("clusterstore: not known whether the command was applied: %v", e.Cause)
}

func (e *AmbiguousError) Unwrap() error { return e.Cause }

// verdict translates what raft says about an entry: the one table of what is a definite "no". Everything that is not
// in it is unknown, also errors that raft may grow.
func verdict(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader):
		return ErrNotLeader
	case errors.Is(err, raft.ErrEnqueueTimeout), errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return &AmbiguousError{Cause: err}
}

// ambiguous reports whether err leaves it open what became of a command.
func ambiguous(err error) bool {
	var a *AmbiguousError
	return errors.As(err, &a)
}
