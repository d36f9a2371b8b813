package lease

import (
	"errors"
	"fmt"

	"github.com/flightd/flightd/flight"
)

// The classes of errors. Everything that this package and its stores return is one of these or a
// *flight.InvalidError; errors.Is tells. An error after which the caller's context had ended is ErrUnavailable, and the
// cause of the context is in it.
var (
	// ErrHeld: another claim is in the way; *HeldError says which.
	ErrHeld = errors.New("lease: the key is claimed")
	// ErrLost: the session is gone, or is not trusted any more.
	ErrLost = errors.New("lease: the session is lost")
	// ErrUnavailable: etcd did not answer in time. Try again.
	ErrUnavailable = errors.New("lease: etcd does not answer")
	// ErrRegressed: etcd knows less than the ledger; *RegressedError has the figures. No session is made and nothing is
	// claimed until an operator raises the lease epoch.
	ErrRegressed = errors.New("lease: etcd has lost its past")
	// ErrForeign: the prefix in etcd belongs to another deployment. No session is made and nothing is claimed.
	ErrForeign = errors.New("lease: the etcd prefix belongs to another deployment")
	// ErrReleased: Claim or Replace of a lease that was released.
	ErrReleased = errors.New("lease: released")
	// ErrClosed: the session or the service was closed by its owner.
	ErrClosed = errors.New("lease: closed")
)

// Why a session is lost, where it is not etcd that says so.
var (
	errExpired = fmt.Errorf("%w: no renewal was answered in time", ErrLost)
	errEpoch   = fmt.Errorf("%w: the lease epoch was raised", ErrLost)
	errEnded   = fmt.Errorf("%w: somebody ended it", ErrLost)
)

// The words of LostReason.
const (
	LostExpired   = "expired"   // no renewal was answered in time
	LostRevoked   = "revoked"   // etcd no longer knows the session, or somebody ended it
	LostEpoch     = "epoch"     // an operator raised the lease epoch
	LostRegressed = "regressed" // etcd has lost its past
	LostForeign   = "foreign"   // the prefix in etcd belongs to another deployment
)

// LostReasons are all of these words.
func LostReasons() []string {
	return []string{LostExpired, LostRevoked, LostEpoch, LostRegressed, LostForeign}
}

// LostReason names why a session ended, for Events.SessionEnded; "" where nothing was lost: its owner closed it.
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

// HeldError names the claim that is in the way. Session and Nonce are zero where its value cannot be decoded.
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

// RegressedError says how etcd contradicts the ledger.
type RegressedError struct {
	Epoch uint32 // the lease epoch in which it was seen: a higher one ends the refusal
	Known uint64 // the counter of the guard key that the ledger has recorded
	Seen  uint64 // the counter that etcd has
	Why   string // for people
}

func (e *RegressedError) Error() string {
	return fmt.Sprintf("lease: etcd has lost its past: %s (counter %d, recorded in the ledger %d, lease epoch %d); nothing is claimed until the lease epoch is raised",
		e.Why, e.Seen, e.Known, e.Epoch)
}

// Is makes every RegressedError an ErrRegressed.
func (e *RegressedError) Is(target error) bool { return target == ErrRegressed }

// unavailable gives err the class ErrUnavailable, with its text kept.
func unavailable(what string, err error) error {
	if err == nil {
		return fmt.Errorf("%w: %s", ErrUnavailable, what)
	}
	if errors.Is(err, ErrUnavailable) {
		return fmt.Errorf("%s: %w", what, err)
	}
	return fmt.Errorf("%w: %s: %w", ErrUnavailable, what, err)
}

// unlessClassed gives err the class ErrUnavailable if it has none of this package.
func unlessClassed(err error, what string) error {
	for _, class := range [...]error{ErrUnavailable, ErrRegressed, ErrForeign, ErrLost, ErrClosed} {
		if errors.Is(err, class) {
			return err
		}
	}
	return unavailable(what, err)
}

func isOwnership(err error) bool {
	var other *OwnershipError
	return errors.As(err, &other)
}
