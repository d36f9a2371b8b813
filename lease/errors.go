package lease

import (
	"errors"
	"fmt"

	"github.com/flightd/flightd/flight"
)

// The classes of errors. Everything that this package and its implementations return is one of these, an error of the
// caller's context, or a *flight.InvalidError; errors.Is tells.
var (
	// ErrHeld: somebody else has the key; *HeldError says who.
	ErrHeld = errors.New("lease: the key is held")
	// ErrLost: the session, and with it every lease of it, is gone or can no longer be believed in.
	ErrLost = errors.New("lease: the session is lost")
	// ErrUnavailable: etcd did not answer in time; nothing is claimed. Try again.
	ErrUnavailable = errors.New("lease: etcd does not answer")
	// ErrRegressed: etcd knows less than the ledger; *RegressedError has the figures. Nothing is claimed until an
	// operator raises the lease epoch.
	ErrRegressed = errors.New("lease: etcd has lost its past")
	// ErrForeign: the prefix in etcd belongs to another deployment. Nothing is claimed.
	ErrForeign = errors.New("lease: the etcd prefix belongs to another deployment")
	// ErrReleased is the cause of the context of a lease that was released.
	ErrReleased = errors.New("lease: released")
	// ErrClosed: the session or the service was closed by its owner.
	ErrClosed = errors.New("lease: closed")
)

// Why a session is lost, where it is not etcd that says so.
var (
	errSilence = fmt.Errorf("%w: no renewal was answered in time", ErrLost)
	errEpoch   = fmt.Errorf("%w: the lease epoch was raised", ErrLost)
)

// The words of LostReason.
const (
	LostExpired   = "expired"   // no renewal was answered in time
	LostRevoked   = "revoked"   // etcd no longer knows the session
	LostEpoch     = "epoch"     // an operator raised the lease epoch
	LostRegressed = "regressed" // etcd has lost its past
	LostForeign   = "foreign"   // the prefix in etcd belongs to another deployment
)

// LostReasons are all of these words.
func LostReasons() []string {
	return []string{LostExpired, LostRevoked, LostEpoch, LostRegressed, LostForeign}
}

// LostReason names why a term ended, for Events.TermEnded; "" where nothing was lost: its owner closed it.
func LostReason(cause error) string {
	switch {
	case cause == nil, errors.Is(cause, ErrClosed), errors.Is(cause, ErrReleased):
		return ""
	case errors.Is(cause, errSilence):
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

// HeldError says who has a key.
type HeldError struct {
	Key   flight.Key
	Claim flight.Claim
	Owner string
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("lease: %s is held by %s (session %s, revision %d)", e.Key, e.Owner, e.Claim.Session, e.Claim.Revision)
}

// Is makes every HeldError an ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// RegressedError says how etcd contradicts the ledger.
type RegressedError struct {
	Epoch uint32 // the lease epoch in which it was seen: a higher one ends the refusal
	Known int64  // the highest revision known before
	Seen  int64  // what etcd shows instead
	Why   string // for people
}

func (e *RegressedError) Error() string {
	return fmt.Sprintf("lease: etcd has lost its past: %s (revision %d, known before %d, lease epoch %d); nothing is claimed until the lease epoch is raised",
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
