package httpapi

import (
	"errors"
	"net"
	"net/http"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/remote"
)

// suppressed reports whether an open was a duplicate: it came to a flight that somebody else performs, has performed or
// may have performed, and was answered without another effect. A conflict is none: it meant something else.
func suppressed(answer remote.OpenAnswer, err error) bool {
	if err == nil {
		return answer.Decision == flight.Replay
	}
	var (
		busy       *effect.Busy
		doubt      *effect.InDoubt
		unapproved *effect.Unapproved
	)
	return errors.As(err, &busy) || errors.As(err, &doubt) || errors.As(err, &unapproved)
}

// caller is who sent a request: in its own words, else by its address.
func caller(r *http.Request, owner string) string {
	if owner != "" {
		return owner
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// untold counts nothing.
type untold struct{}

func (untold) Duplicate(flight.Key, string)          {}
func (untold) Tally(flight.ID) (flight.Tally, error) { return flight.Tally{}, nil }
