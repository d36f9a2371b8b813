package clusterstore

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
)

// These errors are definite: the command was not and will not be applied by this call. Callers get the code of their class.
var (
	// ErrNotLeader: this node is not the leader; send the command to the leader.
	ErrNotLeader error = &effect.Unavailable{Code: "no_leader", Cause: errors.New("clusterstore: this node is not the leader of the ledger")}
	// ErrUnavailable: the ledger accepts no new work now (leadership transfer, full disk, or the caller's context
	// ended before the command left this process). Try again later.
	ErrUnavailable error = &effect.Unavailable{Code: "no_leader", Cause: errors.New("clusterstore: the ledger accepts no new work now")}
	// ErrFeatureLevel: the feature level of the ledger is too low for the command, or may not rise yet.
	ErrFeatureLevel error = &effect.Unavailable{Code: "no_leader", Cause: errors.New("clusterstore: the feature level of the ledger is too low")}
	// ErrTooLarge: the command is larger than a log entry may be.
	ErrTooLarge error = &flight.InvalidError{Field: "body", Detail: "larger than the ledger accepts"}
	// ErrClosed: the store is closed, which it is only while its node stops.
	ErrClosed error = &effect.Unavailable{Code: "draining", Cause: errors.New("clusterstore: closed")}
)

// Errors with which Open rejects a directory.
var (
	// ErrLocked: another process has it open.
	ErrLocked = errors.New("clusterstore: the data directory is in use by another process")
	// ErrForeign: it belongs to another node or another cluster.
	ErrForeign = errors.New("clusterstore: the data directory belongs to another node or cluster")
	// ErrNewer: a newer version of flightd wrote it.
	ErrNewer = errors.New("clusterstore: written by a newer version of flightd")
	// ErrDamaged: durable data is lost or unreadable, and the rest of the directory cannot replace it.
	ErrDamaged = errors.New("clusterstore: the data directory is damaged")
)

// ambiguous returns effect.ErrAmbiguous with a cause.
func ambiguous(cause error) error { return fmt.Errorf("%w: %w", effect.ErrAmbiguous, cause) }

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
	return ambiguous(err)
}
