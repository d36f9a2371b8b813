package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

// books are what the providers of a test saga have done, in order.
type books struct {
	mu      sync.Mutex
	entries []string
}

func (b *books) write(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.entries = append(b.entries, fmt.Sprintf(format, args...))
}

func (b *books) of(id string) (entries []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.entries {
		if rest, ok := cutID(e, id); ok {
			entries = append(entries, rest)
		}
	}
	return entries
}

func cutID(entry, id string) (string, bool) {
	if len(entry) > len(id) && entry[:len(id)+1] == id+" " {
		return entry[len(id)+1:], true
	}
	return "", false
}

const tripDefinition = `{"saga": "trip", "version": 1, "steps": [
	{"name": "hotel", "undo": {}},
	{"name": "seat", "needs": ["hotel"], "undo": {}},
	{"name": "pay", "needs": ["seat"], "pivot": true},
	{"name": "voucher", "needs": ["pay"]}]}`

type tripInput struct {
	Fails string `json:"fails"` // the step that is refused
}

type tripStep struct {
	Input tripInput                  `json:"input"`
	Steps map[string]json.RawMessage `json:"steps"`
}

// workTrip performs the steps and undos of the saga trip.
func workTrip(w *client.Worker, b *books) {
	for _, step := range []string{"hotel", "seat", "pay", "voucher"} {
		client.Work(w, "trip."+step, func(_ context.Context, at client.Attempt, in tripStep) (charge, error) {
			if in.Input.Fails == step {
				return charge{}, client.Refused(errors.New("sold out"))
			}
			b.write("%s %s", at.Key().BusinessID(), step)
			return charge{step + "_1"}, nil
		})
		client.Work(w, "trip."+step+".undo", func(_ context.Context, at client.Attempt, in tripStep) (charge, error) {
			b.write("%s undo %s after %d steps", at.Key().BusinessID(), step, len(in.Steps))
			return charge{}, nil
		})
	}
}

func TestSagas_AllOrNothing(t *testing.T) {
	n := startNode(t, t.TempDir())
	c := connectTo(t, n)
	require.NoError(t, c.DefineSaga(t.Context(), "trip", 1, []byte(tripDefinition)))
	require.NoError(t, c.DefineSaga(t.Context(), "trip", 1, []byte(tripDefinition)), "the same definition again")
	b := new(books)
	w := c.Worker(client.Concurrency(4))
	workTrip(w, b)
	runWorker(t, w)
	run := func(id, fails string) *client.Saga {
		a, err := c.StartSaga(t.Context(), "trip", id, tripInput{fails})
		require.NoError(t, err)
		require.Equal(t, wire.StatusQueued, a.Status)
		key := flight.MustKey(a.Saga.Key)
		s, err := c.WaitSaga(t.Context(), key.FlightID())
		require.NoError(t, err)
		return s
	}
	s := run("b-1", "")
	require.Equal(t, wire.SagaDone, s.State, "%+v", s)
	require.Equal(t, []string{"hotel", "seat", "pay", "voucher"}, b.of("b-1"))
	s = run("b-2", "seat")
	require.Equal(t, wire.SagaUndone, s.State)
	require.Equal(t, []string{"hotel", "undo hotel after 1 steps"}, b.of("b-2"))
	s = run("b-3", "pay")
	require.Equal(t, wire.SagaUndone, s.State)
	require.Equal(t, []string{"hotel", "seat", "undo seat after 2 steps", "undo hotel after 1 steps"}, b.of("b-3"))
	s = run("b-4", "voucher")
	require.Equal(t, wire.SagaInDoubt, s.State, "past the pivot nothing is undone")
	require.Equal(t, []string{"hotel", "seat", "pay"}, b.of("b-4"))
	again, err := c.StartSaga(t.Context(), "trip@1", "b-1", tripInput{})
	require.NoError(t, err)
	require.Equal(t, wire.StatusDuplicate, again.Status)
}

// An undo whose input refers to a field that the receipt does not have is performed by nobody. It waits for a person, and the saga with it.
func TestSagas_UndoWithoutItsInputIsInDoubt(t *testing.T) {
	n := startNode(t, t.TempDir())
	c := connectTo(t, n)
	require.NoError(t, c.DefineSaga(t.Context(), "stay", 1, []byte(`{"saga": "stay", "version": 1, "steps": [
		{"name": "hotel", "undo": {"input": {"room": {"$from": "/steps/hotel/body/room"}}}},
		{"name": "pay", "needs": ["hotel"], "no_undo": true}]}`)))
	w := c.Worker()
	client.Work(w, "stay.hotel", func(context.Context, client.Attempt, tripStep) (charge, error) {
		return charge{"a room without a number"}, nil
	})
	client.Work(w, "stay.pay", func(context.Context, client.Attempt, tripStep) (charge, error) {
		return charge{}, client.Refused(errors.New("no funds"))
	})
	client.Work(w, "stay.hotel.undo", func(context.Context, client.Attempt, json.RawMessage) (charge, error) {
		t.Error("the undo was performed without an input")
		return charge{}, nil
	})
	runWorker(t, w)
	a, err := c.StartSaga(t.Context(), "stay", "s-1", tripInput{})
	require.NoError(t, err)
	key := flight.MustKey(a.Saga.Key)
	s, err := c.WaitSaga(t.Context(), key.FlightID())
	require.NoError(t, err)
	require.Equal(t, wire.SagaInDoubt, s.State)
	undo := s.Steps[0].Undo
	require.Contains(t, undo.Cause, "its input cannot be made")
	undoKey, err := key.Step("hotel.undo")
	require.NoError(t, err)
	_, err = c.Resolve(t.Context(), undoKey.FlightID(), undo.Version, client.ResolveRequest{Result: "fail", Reason: "cancelled by telephone"})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		s, err := c.Saga(t.Context(), key.FlightID())
		return err == nil && s.State == wire.SagaUndone
	}, 10*time.Second, 20*time.Millisecond)
}
