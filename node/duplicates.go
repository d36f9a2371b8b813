package node

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
)

// countingDoer is the executor for programs that embed a node. It counts their duplicate calls, as the API does for its
// callers.
type countingDoer struct {
	effect.Doer
	store *clusterstore.Store
	actor string // host:pid of this process
}

func newCountingDoer(d effect.Doer, s *clusterstore.Store) countingDoer {
	host, _ := os.Hostname()
	return countingDoer{Doer: d, store: s, actor: fmt.Sprintf("%s:%d", host, os.Getpid())}
}

// Do implements effect.Doer.
func (c countingDoer) Do(ctx context.Context, call effect.Call, h effect.Handler) (effect.Result, error) {
	result, err := c.Doer.Do(ctx, call, h)
	switch {
	case !suppressed(result, err):
	case result.FlightID == (flight.ID{}):
		c.store.CountDuplicate(call.Key, c.actor)
	default:
		c.store.CountDuplicateOf(result.FlightID, call.Key, c.actor)
	}
	return result, err
}

// suppressed reports whether the call performed no effect because another call did, is doing, or may have done it.
func suppressed(r effect.Result, err error) bool {
	if err == nil {
		return r.Source != effect.SourceExecuted
	}
	var (
		declined *effect.Declined
		failed   *effect.Failed
		doubt    *effect.InDoubt
		busy     *effect.Busy
	)
	if r.Source != effect.SourceExecuted && (errors.As(err, &declined) || errors.As(err, &failed) || errors.As(err, &doubt)) {
		return true
	}
	return errors.As(err, &busy)
}
