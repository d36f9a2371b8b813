package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/saga"
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
	t.Parallel()
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

// A step of unknown outcome whose undo does no harm is undone without a person. Its undo waits until the settle delay is over.
func TestSagas_UndoWithoutKnowing(t *testing.T) {
	t.Parallel()
	n := startNode(t, t.TempDir())
	c := connectTo(t, n)
	require.NoError(t, c.DefineSaga(t.Context(), "stay", 1, []byte(`{"saga": "stay", "version": 1, "steps": [
		{"name": "hotel", "settle_delay": "1s", "undo": {"safe_if_absent": true}},
		{"name": "pay", "no_undo": true}]}`)))
	lost, undone := make(chan time.Time, 1), make(chan string, 1)
	w := c.Worker(client.Concurrency(2))
	client.Work(w, "stay.hotel", func(context.Context, client.Attempt, tripStep) (charge, error) {
		lost <- time.Now()
		return charge{}, errors.New("the connection broke")
	})
	client.Work(w, "stay.pay", func(context.Context, client.Attempt, tripStep) (charge, error) {
		return charge{}, client.Refused(errors.New("no funds"))
	})
	client.Work(w, "stay.hotel.undo", func(_ context.Context, _ client.Attempt, in json.RawMessage) (charge, error) {
		undone <- string(in)
		return charge{}, nil
	})
	runWorker(t, w)
	a, err := c.StartSaga(t.Context(), "stay", "s-1", tripInput{})
	require.NoError(t, err)
	key := flight.MustKey(a.Saga.Key)
	s, err := c.WaitSaga(t.Context(), key.FlightID())
	require.NoError(t, err)
	require.Equal(t, wire.SagaUndone, s.State, "%+v", s)
	require.Greater(t, time.Since(<-lost), time.Second, "a request on its way reaches the provider first")
	require.JSONEq(t, `{"input": {"fails": ""}, "steps": {"hotel": {"outcome": "unknown", "external_id": null, "body": null}}}`, <-undone)
}

// An undo whose input refers to a field that the receipt does not have is performed by nobody. It waits for a person, and the saga with it.
func TestSagas_UndoWithoutItsInputIsInDoubt(t *testing.T) {
	t.Parallel()
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
	}, waitLimit, 20*time.Millisecond)
}

// One request waits for the end of a saga, for as long as it prefers.
func TestSagas_WaitForTheEnd(t *testing.T) {
	t.Parallel()
	n := startNode(t, t.TempDir())
	c := connectTo(t, n)
	require.NoError(t, c.DefineSaga(t.Context(), "trip", 1, []byte(tripDefinition)))
	a, err := c.StartSaga(t.Context(), "trip", "b-1", tripInput{})
	require.NoError(t, err)
	wait := func(seconds string) wire.Saga {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.url+"/v1/flights/"+a.Saga.ID+"/saga", nil)
		require.NoError(t, err)
		req.Header.Set("Prefer", "wait="+seconds)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		require.Equal(t, http.StatusOK, resp.StatusCode)
		require.Equal(t, "wait="+seconds, resp.Header.Get("Preference-Applied"))
		var s wire.Saga
		require.NoError(t, json.NewDecoder(resp.Body).Decode(&s))
		return s
	}
	began := time.Now()
	require.Equal(t, wire.SagaRunning, wait("1").State, "nobody works on it")
	require.GreaterOrEqual(t, time.Since(began), time.Second)
	w := c.Worker()
	workTrip(w, new(books))
	runWorker(t, w)
	require.Equal(t, wire.SagaDone, wait("50").State)
}

// The person who decides about an approval of a saga sees who has started the saga, its input, and the receipts of the steps before.
func TestSagas_ApprovalShowsWhoAsksForWhat(t *testing.T) {
	t.Parallel()
	n := startNode(t, t.TempDir())
	c := connectTo(t, n, client.WithActor("ann"))
	require.NoError(t, c.DefineSaga(t.Context(), "stay", 1, []byte(`{"saga": "stay", "version": 1, "steps": [
		{"name": "hotel", "no_undo": true}, {"name": "boss", "needs": ["hotel"], "approval": {}}]}`)))
	w := c.Worker()
	client.Work(w, "stay.hotel", func(context.Context, client.Attempt, tripStep) (charge, error) { return charge{"room_17"}, nil })
	runWorker(t, w)
	a, err := c.StartSaga(t.Context(), "stay", "s-1", tripInput{"never"})
	require.NoError(t, err)
	require.Equal(t, "ann", a.Saga.RequestedBy)
	key := flight.MustKey(a.Saga.Key)
	boss, err := key.Step("boss")
	require.NoError(t, err)
	var gate *client.Flight
	require.Eventually(t, func() bool {
		gate, err = c.Flight(t.Context(), boss.FlightID())
		return err == nil && gate.Approval != nil
	}, waitLimit, 20*time.Millisecond)
	require.Equal(t, "ann", gate.Approval.RequestedBy)
	in, err := c.Input(t.Context(), boss.FlightID())
	require.NoError(t, err)
	require.JSONEq(t, `{"input":{"fails":"never"},"steps":{"hotel":{"outcome":"succeeded","external_id":"","body":{"id":"room_17"}}}}`, string(in.Data))
	require.Equal(t, flight.NewBlob("", in.Data, flight.MaxInput).Digest.String(), in.Digest)
	_, err = c.Reject(t.Context(), boss.FlightID(), gate.Version, client.ApprovalDecision{Actor: "bob", Reason: "too expensive"})
	require.NoError(t, err)
	in, err = c.Input(t.Context(), boss.FlightID())
	require.NoError(t, err)
	require.Contains(t, string(in.Data), "room_17", "what was decided about stays readable")
}

// Row 42: a provider performs a step after a person has said that it did not happen, and after the saga is undone. The late report shows, and a
// person has it undone, once, with what is known of it.
func TestHazard42_LateSuccessIsUndoneOnRequest(t *testing.T) {
	t.Parallel()
	n := startNode(t, t.TempDir())
	c := connectTo(t, n, client.WithActor("ann"))
	require.NoError(t, c.DefineSaga(t.Context(), "stay", 1, []byte(`{"saga": "stay", "version": 1, "steps": [
		{"name": "room", "undo": {"action": "room.cancel", "input": {"id": {"$from": "/steps/room/external_id"}, "body": {"$from": "/steps/room/body/id"}, "nights": {"$from": "/input/nights"}}}},
		{"name": "gift", "no_undo": true}]}`)))
	start := func(id string) flight.Key {
		a, err := c.StartSaga(t.Context(), "stay", id, map[string]int{"nights": 2})
		require.NoError(t, err)
		return flight.MustKey(a.Saga.Key)
	}
	rejected := func(key flight.Key, step string, code wire.Code, detail string) {
		t.Helper()
		_, err := c.UndoLate(t.Context(), key.FlightID(), client.UndoLateRequest{Step: step, Reason: "a test"})
		require.Equal(t, code, client.CodeOf(err), "%v", err)
		require.Contains(t, err.Error(), detail)
		var at *client.Error
		require.ErrorAs(t, err, &at)
		require.NotEmpty(t, at.Problem.Hint)
	}
	var canceled []string
	w := c.Worker()
	client.Work(w, "room.cancel", func(_ context.Context, at client.Attempt, in json.RawMessage) (charge, error) {
		canceled = append(canceled, at.Key().String()+" "+string(in))
		return charge{}, nil
	})
	late := start("s-1")
	rejected(late, "room", wire.PreconditionFailed, "the saga is not over")
	room, err := late.Step("room")
	require.NoError(t, err)
	session, err := c.NewSession(t.Context(), time.Minute, "a slow worker")
	require.NoError(t, err)
	_, body, err := post(n.url+"/v1/flights:claim", fmt.Sprintf(`{"session":%q,"nonce":"slow","actions":["stay.room"],"slots":1,"wait_ms":10000}`, session.Session))
	require.NoError(t, err)
	var claimed wire.ClaimAnswer
	require.NoError(t, json.Unmarshal([]byte(body), &claimed))
	require.Len(t, claimed.Jobs, 1)
	stateOf := func(id flight.ID, want string) (f *client.Flight) {
		t.Helper()
		require.Eventually(t, func() bool {
			f, err = c.Flight(t.Context(), id)
			return err == nil && f.State == want
		}, waitLimit, 20*time.Millisecond, "%s: %+v", want, f)
		return f
	}
	require.Eventually(t, func() bool {
		f, err := c.Flight(t.Context(), late.FlightID())
		if err == nil {
			_, err = c.Cancel(t.Context(), late.FlightID(), f.Version, client.OperatorRequest{Reason: "the customer called"})
		}
		return err == nil
	}, waitLimit, 20*time.Millisecond)
	slow := client.ReportRequest{FencingToken: claimed.Jobs[0].FencingToken, Outcome: "unknown", Error: "the hotel does not answer"}
	_, err = c.Report(t.Context(), room, slow)
	require.NoError(t, err)
	f := stateOf(room.FlightID(), "in_doubt")
	_, err = c.Resolve(t.Context(), room.FlightID(), f.Version, client.ResolveRequest{Result: "not_happened", Reason: "the hotel has no booking"})
	require.NoError(t, err)
	stateOf(late.FlightID(), "failed")
	rejected(late, "room", wire.PreconditionFailed, "no success of the step room has come")
	rejected(late, "gift", wire.PreconditionFailed, "has no undo")
	rejected(late, "rom", wire.InputInvalid, `has no step "rom"`)
	_, err = c.UndoLate(t.Context(), late.FlightID(), client.UndoLateRequest{Step: "room"})
	require.Equal(t, wire.InputInvalid, client.CodeOf(err), "without a reason")

	slow.Outcome, slow.Error, slow.Body = "succeeded", "", wire.Body{ExternalID: "r-17", JSON: json.RawMessage(`{"id":"r-17"}`)}
	_, err = c.Report(t.Context(), room, slow)
	require.Equal(t, wire.Fenced, client.CodeOf(err), "it is evidence")
	s, err := c.Saga(t.Context(), late.FlightID())
	require.NoError(t, err)
	require.Equal(t, wire.SagaUndone, s.State)
	require.True(t, s.Steps[0].Late)
	require.Nil(t, s.Steps[0].LateUndo)
	for range 2 {
		s, err = c.UndoLate(t.Context(), late.FlightID(), client.UndoLateRequest{Step: "room", Reason: "the hotel has booked after all"})
		require.NoError(t, err)
	}
	require.Equal(t, "default/room.cancel/undo-late:room:stay:s-1", s.Steps[0].LateUndo.Key)
	client.Work(w, "stay.room", func(context.Context, client.Attempt, json.RawMessage) (charge, error) { return charge{"r-1"}, nil })
	client.Work(w, "stay.gift", func(context.Context, client.Attempt, json.RawMessage) (charge, error) { return charge{}, nil })
	runWorker(t, w)
	undo := stateOf(flight.MustKey(s.Steps[0].LateUndo.Key).FlightID(), "succeeded")
	require.Equal(t, []string{undo.Key + ` {"body":null,"id":"r-17","nights":2}`}, canceled)
	s, err = c.Saga(t.Context(), late.FlightID())
	require.NoError(t, err)
	require.Equal(t, "succeeded", s.Steps[0].LateUndo.State)
	story, err := c.History(t.Context(), flight.MustKey(undo.Key).FlightID())
	require.NoError(t, err)
	require.Equal(t, "ann", story.Events[0].Actor)
	require.Equal(t, "the hotel has booked after all", story.Events[0].Note)
	audit, err := c.Audit(t.Context(), "", "submit", 10)
	require.NoError(t, err)
	require.Len(t, audit.Entries, 1)
	require.Equal(t, undo.Key, audit.Entries[0].Subject)

	done := start("s-2")
	stateOf(done.FlightID(), "succeeded")
	rejected(done, "room", wire.PreconditionFailed, "the saga is done")
}

// Row 41: the provider refuses three undos for good. Each waits for a person, and its saga with it: one runs again, one gets a receipt, one is let pass.
func TestHazard41_APersonMovesAnUndoOn(t *testing.T) {
	t.Parallel()
	n := startNode(t, t.TempDir())
	c := connectTo(t, n)
	require.NoError(t, c.DefineSaga(t.Context(), "trip", 1, []byte(tripDefinition)))
	b, strike := new(books), &atomic.Bool{}
	strike.Store(true)
	w := c.Worker()
	workTrip(w, b)
	client.Work(w, "trip.hotel.undo", func(_ context.Context, at client.Attempt, _ tripStep) (charge, error) {
		if strike.Load() {
			return charge{}, client.Refused(errors.New("we are on strike"))
		}
		b.write("%s undo hotel", at.Key().BusinessID())
		return charge{}, nil
	})
	runWorker(t, w)
	for i, r := range []struct {
		decision client.ResolveRequest
		books    []string
		undo     string
	}{
		{client.ResolveRequest{Result: "happened", Body: wire.Body{ExternalID: "fax-1"}}, []string{"hotel"}, "succeeded"},
		{client.ResolveRequest{Result: "fail"}, []string{"hotel"}, "passed"},
		{client.ResolveRequest{Result: "not_happened"}, []string{"hotel", "undo hotel"}, "succeeded"},
	} {
		id := fmt.Sprintf("b-%d", i)
		a, err := c.StartSaga(t.Context(), "trip", id, tripInput{"seat"})
		require.NoError(t, err)
		key := flight.MustKey(a.Saga.Key)
		s, err := c.WaitSaga(t.Context(), key.FlightID())
		require.NoError(t, err)
		require.Equal(t, wire.SagaInDoubt, s.State)
		require.Contains(t, s.Steps[0].Undo.Cause, "we are on strike")
		undo, err := key.Step("hotel.undo")
		require.NoError(t, err)
		strike.Store(r.decision.Result != "not_happened")
		r.decision.Reason = "I have called the hotel"
		_, err = c.Resolve(t.Context(), undo.FlightID(), s.Steps[0].Undo.Version, r.decision)
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			s, err = c.Saga(t.Context(), key.FlightID())
			return err == nil && s.State == wire.SagaUndone
		}, waitLimit, 20*time.Millisecond)
		require.Equal(t, r.books, b.of(id))
		var summary saga.Summary
		require.NoError(t, json.Unmarshal(s.Receipt.Body, &summary))
		require.Equal(t, r.undo, summary.Steps["hotel"].Undo)
	}
}

// Two late successes of one step are two effects, also if their undo has the same input. The second one is not taken for undone.
func TestSagas_ASecondLateSuccessIsAConflict(t *testing.T) {
	t.Parallel()
	n := startNode(t, t.TempDir())
	c := connectTo(t, n, client.WithActor("ann"))
	require.NoError(t, c.DefineSaga(t.Context(), "stay", 1, []byte(`{"saga": "stay", "version": 1, "steps": [{"name": "room", "undo": {"input": {"$from": "/input"}}}]}`)))
	a, err := c.StartSaga(t.Context(), "stay", "s-1", 1)
	require.NoError(t, err)
	key := flight.MustKey(a.Saga.Key)
	room, err := key.Step("room")
	require.NoError(t, err)
	session, err := c.NewSession(t.Context(), time.Minute, "a slow worker")
	require.NoError(t, err)
	_, body, err := post(n.url+"/v1/flights:claim", fmt.Sprintf(`{"session":%q,"nonce":"slow","actions":["stay.room"],"slots":1,"wait_ms":10000}`, session.Session))
	require.NoError(t, err)
	var claimed wire.ClaimAnswer
	require.NoError(t, json.Unmarshal([]byte(body), &claimed))
	require.Len(t, claimed.Jobs, 1)
	report := client.ReportRequest{FencingToken: claimed.Jobs[0].FencingToken, Outcome: "refused", Error: "sold out"}
	_, err = c.Report(t.Context(), room, report)
	require.NoError(t, err)
	s, err := c.WaitSaga(t.Context(), key.FlightID())
	require.NoError(t, err)
	require.Equal(t, wire.SagaUndone, s.State)
	for i, want := range []wire.Code{"", wire.Conflict} {
		report.Outcome, report.Error, report.Body = "succeeded", "", wire.Body{ExternalID: fmt.Sprintf("r-%d", i)}
		_, err = c.Report(t.Context(), room, report)
		require.Equal(t, wire.Fenced, client.CodeOf(err), "it is evidence")
		for range 2 {
			_, err = c.UndoLate(t.Context(), key.FlightID(), client.UndoLateRequest{Step: "room", Reason: "it has booked after all"})
			require.Equal(t, want, client.CodeOf(err), "%d: %v", i, err)
		}
	}
}
