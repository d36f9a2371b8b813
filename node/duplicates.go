package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/clusterstore/peer"
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

// maxPassedDuplicates bounds the counts that a node passes on at a time, in bytes: clusterstore takes 512 flights.
const maxPassedDuplicates = 16 << 20

// passDuplicates gives counts of this node to the leader, once: after an error in the middle they count as given, because a
// duplicate that is not counted is better than a call that nobody made.
func (n *node) passDuplicates(ctx context.Context, counts []*flight.CountDuplicates) (given bool) {
	leader := n.store.Leader()
	commands := make([][]byte, len(counts))
	for i, c := range counts {
		commands[i], _ = flight.Encode(c) // an empty one is skipped by the leader
	}
	body, err := json.Marshal(commands)
	if err != nil || leader == "" || leader == n.cluster.name() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+leader+duplicatesPath, bytes.NewReader(body))
	if err != nil {
		return false
	}
	r.GetBody = nil // net/http would send the request again
	answer, err := n.cluster.port.Client(leader).RoundTrip(r)
	if err != nil {
		var unsent *peer.DialError
		return !errors.As(err, &unsent)
	}
	_ = answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}

// serveDuplicates takes the counts of another node. They are lost if this process dies before it has proposed them.
func (n *node) serveDuplicates(w http.ResponseWriter, r *http.Request) {
	if n.act.Load() == nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	var commands [][]byte
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxPassedDuplicates))
	if err == nil {
		err = json.Unmarshal(body, &commands)
	}
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	var counts []*flight.CountDuplicates
	for _, text := range commands {
		if c, err := flight.Decode(text); err == nil {
			if count, ok := c.(*flight.CountDuplicates); ok {
				counts = append(counts, count)
			}
		}
	}
	n.store.AddDuplicates(counts)
}
