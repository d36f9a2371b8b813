package runner

import (
	"context"
	"fmt"

	"github.com/flightd/flightd/flight"
)

// insideKey finds the call whose handler, or look-up, a context is given to.
type insideKey struct{}

// checkInside rejects a call that the handler, or the look-up, of this very key makes: it would wait for itself.
func (cs *calls) checkInside(ctx context.Context, key flight.Key) error {
	c, _ := ctx.Value(insideKey{}).(*call)
	if c == nil || c.owner != cs || c.in.Key != key || c.over() {
		return nil
	}
	return &flight.InvalidError{Field: "key", Detail: fmt.Sprintf(
		"the handler of %s asks for the same key and would wait for itself; another effect needs a key of its own", key)}
}
