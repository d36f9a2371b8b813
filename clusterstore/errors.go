package clusterstore

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"
)

// These errors are definite: the command was not and will not be applied by this call.
var (
	// ErrNotLeader: this node is not the leader; send the command to the leader.
	ErrNotLeader = errors.New("clusterstore: this node is not the leader of the ledger")
	// ErrUnavailable: the ledger accepts no new work now (leadership transfer, full disk, or the caller's context
	// ended before the command left this process). Try again later.
	ErrUnavailable = errors.New("clusterstore: the ledger accepts no new work now")
	// ErrTooLarge: the command is larger than a log entry may be.
	ErrTooLarge = errors.New("clusterstore: the command is too large")
	// ErrClosed: the store is closed.
	ErrClosed = errors.New("clusterstore: closed")
)

// ErrPending: a report is not committed yet. It is stored in this node's spool and is proposed until it is committed.
var ErrPending = errors.New("clusterstore: the report is stored in the spool and will be committed later")

// Errors with which Open rejects a directory.
var (
	// ErrLocked: another process has it open.
	ErrLocked = errors.New("clusterstore: the data directory is in use by another process")
	// ErrForeign: it belongs to another node or another cluster.
	ErrForeign = errors.New("clusterstore: the data directory belongs to another node or cluster")
	// ErrNewer: a newer version of flightd wrote it.
	ErrNewer = errors.New("clusterstore: written by a newer version of flightd")
	// ErrOlder: an older version of flightd wrote it, in a format that this version cannot read.
	ErrOlder = errors.New("clusterstore: written by an older version of flightd")
	// ErrDamaged: durable data is lost or unreadable, and the rest of the directory cannot replace it.
	ErrDamaged = errors.New("clusterstore: the data directory is damaged")
)

// AmbiguousError: the command may have been applied, or may still be. Every command is idempotent; propose it again
// to learn the result.
type AmbiguousError struct{ Cause error }

func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("clusterstore: it is unknown whether the command was applied: %v", e.Cause)
}

func (e *AmbiguousError) Unwrap() error { return e.Cause }

// classifyRaftError maps an error of raft to an error of this package. Only the errors listed here are definite;
// every other error, including one that a later raft adds, is ambiguous.
func classifyRaftError(err error) error {
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

// isAmbiguous reports whether err leaves the result of a command unknown.
func isAmbiguous(err error) bool {
	var a *AmbiguousError
	return errors.As(err, &a)
}
