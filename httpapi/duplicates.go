package httpapi

import (
	"errors"
	"net"
	"net/http"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/remote"
)

// isDuplicate reports whether an open was a duplicate: another caller performs, has performed or may have performed the
// effect, and this open was answered without a second one. A conflict is no duplicate, because its input differs.
func isDuplicate(answer remote.OpenAnswer, err error) bool {
	if err == nil {
		return answer.Decision == flight.DecisionReplay
	}
	return errors.As(err, new(*effect.Busy)) || errors.As(err, new(*effect.InDoubt)) || errors.As(err, new(*effect.Unapproved))
}

// callerName returns the owner that a request names, else the address it came from.
func callerName(r *http.Request, owner string) string {
	if owner != "" {
		return owner
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// noDuplicates is the DuplicateCounter that counts nothing.
type noDuplicates struct{}

func (noDuplicates) CountDuplicate(flight.Key, string) {}
func (noDuplicates) DuplicateStats(flight.ID) (flight.DuplicateStats, error) {
	return flight.DuplicateStats{}, nil
}
