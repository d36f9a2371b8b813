package lease

import (
	"errors"
	"fmt"

	"github.com/flightd/flightd/flight"
)

// The error classes. Every error of this package and its stores is one of these by errors.Is, or a
// *flight.InvalidError. An error because the caller's context ended is ErrUnavailable and wraps the cause of the
// context.
var (
	// ErrHeld: the key has another claim, which *HeldError names.
	ErrHeld = errors.New("lease: the key is claimed")
	// ErrLost: the session has ended, or is not trusted any more.
	ErrLost = errors.New("lease: the session is lost")
	// ErrUnavailable: etcd did not answer in time. The caller may retry.
	ErrUnavailable = errors.New("lease: etcd does not answer")
	// ErrRegressed: etcd knows less than the ledger; *RegressedError has the figures. No session is created and no
	// claim written until an operator raises the lease epoch.
	ErrRegressed = errors.New("lease: etcd is older than the ledger's record")
	// ErrForeign: the prefix in etcd belongs to another deployment. No session is created and no claim written.
	ErrForeign = errors.New("lease: the etcd prefix belongs to another deployment")
	// ErrReleased: Claim or Replace of a lease that was released.
	ErrReleased = errors.New("lease: released")
	// ErrClosed: the session or the service was closed by its owner.
	ErrClosed = errors.New("lease: closed")
)

// Causes of a loss that this process has found without etcd.
var (
	errExpired = fmt.Errorf("%w: no renewal was answered in time", ErrLost)
	errEpoch   = fmt.Errorf("%w: the lease epoch was raised", ErrLost)
	errEnded   = fmt.Errorf("%w: it was ended by EndSession", ErrLost)
)

// The results of LostReason.
const (
	LostExpired   = "expired"   // no renewal was answered in time
	LostRevoked   = "revoked"   // the session is not in etcd, or EndSession ended it
	LostEpoch     = "epoch"     // an operator raised the lease epoch
	LostRegressed = "regressed" // etcd knows less than the ledger
	LostForeign   = "foreign"   // the prefix in etcd belongs to another deployment
)

// LostReasons returns all results of LostReason.
func LostReasons() []string {
	return []string{LostExpired, LostRevoked, LostEpoch, LostRegressed, LostForeign}
}

// LostReason returns the reason for the cause of Events.SessionEnded, or "" if the owner closed the session.
func LostReason(cause error) string {
	switch {
	case cause == nil, errors.Is(cause, ErrClosed):
		return ""
	case errors.Is(cause, errExpired):
		return LostExpired
	case errors.Is(cause, errEpoch):
		return LostEpoch
	case errors.Is(cause, ErrRegressed):
		return LostRegressed
	case errors.Is(cause, ErrForeign):
		return LostForeign
	}
	return LostRevoked
}

// HeldError names the existing claim of a key. Session and Nonce are zero if its value cannot be decoded.
type HeldError struct {
	Key     flight.Key
	Session flight.SessionID
	Nonce   flight.Nonce
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("lease: %s is claimed under session %q", e.Key, e.Session)
}

// Is makes every HeldError an ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// RegressedError has the difference between etcd and the ledger.
type RegressedError struct {
	Epoch    uint32 // lease epoch of the comparison: a higher epoch ends the refusal
	Recorded uint64 // counter of the guard key that the ledger has recorded
	Found    uint64 // counter in etcd
	Reason   string // for people
}

func (e *RegressedError) Error() string {
	return fmt.Sprintf("lease: etcd is older than the ledger's record: %s (counter in etcd %d, in the ledger %d, lease epoch %d); "+
		"claims are disabled until the lease epoch is raised", e.Reason, e.Found, e.Recorded, e.Epoch)
}

// Is makes every RegressedError an ErrRegressed.
func (e *RegressedError) Is(target error) bool { return target == ErrRegressed }

// unavailable returns an ErrUnavailable that names the operation and wraps err.
func unavailable(operation string, err error) error {
	if err == nil {
		return fmt.Errorf("%w: %s", ErrUnavailable, operation)
	}
	if errors.Is(err, ErrUnavailable) {
		return fmt.Errorf("%s: %w", operation, err)
	}
	return fmt.Errorf("%w: %s: %w", ErrUnavailable, operation, err)
}

// ensureClass returns err if it has a class of this package, else an ErrUnavailable that wraps err.
func ensureClass(err error, operation string) error {
	for _, class := range [...]error{ErrUnavailable, ErrRegressed, ErrForeign, ErrLost, ErrClosed} {
		if errors.Is(err, class) {
			return err
		}
	}
	return unavailable(operation, err)
}

func isOwnershipError(err error) bool {
	return errors.As(err, new(*OwnershipError))
}
