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
	if suppressed(result, err) {
		c.store.CountDuplicate(call.Key, c.actor)
	}
	return result, err
}

// suppressed reports whether the call performed no effect because another call did, is doing, or may have done it.
func suppressed(r effect.Result, err error) bool {
	if err == nil {
		return r.Source != effect.SourceExecuted
	}
	return errors.As(err, new(*effect.Busy)) ||
		r.Source != effect.SourceExecuted && (errors.As(err, new(*effect.Declined)) || errors.As(err, new(*effect.Failed)) || errors.As(err, new(*effect.InDoubt)))
}

// passedFlights is how many flights' counts go along with a status: at 8 KiB each, as base64, they fit into its answer.
const passedFlights = 64

// takeDuplicates removes counts of a node for the leader that asks for its status. They are lost if the answer is, because a
// duplicate that is not counted is better than a call that nobody made.
func takeDuplicates(from *clusterstore.Store) (counts [][]byte) {
	for _, c := range from.TakeDuplicates(passedFlights) {
		if text, err := flight.Encode(c); err == nil {
			counts = append(counts, text)
		}
	}
	return counts
}

// addDuplicates adds the counts of another node to those that this node proposes.
func addDuplicates(to *clusterstore.Store, counts [][]byte) {
	for _, text := range counts {
		c, err := flight.Decode(text)
		if count, ok := c.(*flight.CountDuplicates); err == nil && ok {
			to.AddDuplicates(count)
		}
	}
}
