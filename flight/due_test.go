package flight_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

// randomJob returns a random version of a job, or nil.
func randomJob(random *rand.Rand, n int, before *flight.Flight) *flight.Flight {
	if random.IntN(8) == 0 {
		return nil
	}
	key := flight.MustKey(fmt.Sprintf("test/%s/order-%d", []string{"charge", "mail"}[n%2], n))
	saga := n >= 30 && n < 32
	switch {
	case saga:
		key = flight.MustKey(fmt.Sprintf("test/trip/order-%d", n))
	case n >= 32: // a step or an undo of one of the two sagas
		key = flight.MustKey(fmt.Sprintf("test/trip/order-%d#step-%d%s", 30+n%2, n/4, []string{"", ".undo"}[n/2%2]))
	}
	f := &flight.Flight{Policy: flight.Policy{Saga: saga, Definition: fmt.Sprint("trip@", 1+n%2)}, ID: key.FlightID(), Key: key, Generation: 1, Steps: time.Duration(random.IntN(3)) * time.Second}
	f.Place = &flight.Place{Due: flight.Time(random.IntN(100)), Since: flight.Version{Index: random.Uint64N(50), Pos: uint32(n)}, Queue: flight.Queue{
		Priority: int16(random.IntN(3)), Lane: []string{"", "a", "b"}[random.IntN(3)], Limit: uint16(random.IntN(4)), Action: []string{"", "book"}[random.IntN(2)]}}
	if before != nil && random.IntN(4) > 0 {
		f.Place = before.Place
	}
	f.State = flight.State(random.IntN(int(flight.StateExpired) + 1))
	switch f.State {
	case flight.StateScheduled:
		f.NotBefore = flight.Time(1 + random.IntN(100))
	case flight.StateWaiting:
		f.Wake = &flight.Wake{At: flight.Time(random.IntN(100)), Live: uint8(random.IntN(5))}
		if random.IntN(2) == 0 && !saga {
			f.Wake.Callback, f.Attempts = true, []flight.Attempt{{Number: 1}}
		}
	case flight.StateAwaitingApproval:
		f.CreatedAt, f.Policy.ApprovalWithin = flight.Time(random.IntN(100)), time.Duration(random.IntN(2))*time.Millisecond
	case flight.StateRunning:
		if random.IntN(2) == 0 {
			f.Verification = &flight.Verification{NotBefore: flight.Time(random.IntN(100))}
			if random.IntN(2) == 0 {
				f.Verification.Session, f.Verification.Until = flight.Session{ID: "s"}, flight.Time(random.IntN(100))
			}
			break
		}
		f.Attempts = []flight.Attempt{{Number: 1, OpenedAt: flight.Time(random.IntN(100))}}
		f.Policy.AttemptTimeout = time.Duration(random.IntN(2)) * time.Millisecond
	}
	if random.IntN(5) == 0 || saga {
		f.Place = nil
	}
	return f
}

// contents has all that a table answers about flights at a time.
type contents struct {
	Ready   map[string][]flight.ID
	Pools   map[string]flight.PoolStatus
	Lanes   map[string][]string
	Overdue map[flight.ID]bool
	Start   flight.Time
	Queued  int
	Blocked []flight.ID
	Sagas   map[flight.ID]bool
	Uses    [2]int // sagas of each definition
}

func contentsOf(d *flight.Due, h *flight.Header, flights []*flight.Flight) contents {
	d.Advance(h)
	c := contents{Ready: make(map[string][]flight.ID), Pools: make(map[string]flight.PoolStatus), Lanes: make(map[string][]string), Overdue: make(map[flight.ID]bool),
		Start: d.NextStart(h), Queued: d.QueuedIn("test"),
		Sagas: make(map[flight.ID]bool), Uses: [2]int{d.SagasOf(flight.DefinitionID("test", "trip@1")), d.SagasOf(flight.DefinitionID("test", "trip@2"))}}
	for p := range d.Pools() {
		c.Pools[p.Action] = p
	}
	for id := range d.Overdue(h) {
		c.Overdue[id] = true
	}
	for id := range d.DueSagas() {
		c.Sagas[id] = true
	}
	for _, action := range []string{"charge", "mail", "trip", "book"} {
		c.Ready[action] = slices.Collect(d.ReadyJobs("test", action, true))
		for _, lane := range []string{"a", "b"} {
			for id, open := range d.LaneJobs("test", action, lane) {
				c.Lanes[action+lane] = append(c.Lanes[action+lane], fmt.Sprint(id, open))
			}
		}
	}
	for _, f := range flights {
		if f != nil && d.LaneBlocks(f.ID) {
			c.Blocked = append(c.Blocked, f.ID)
		}
	}
	return c
}

// The incrementally updated table equals a table that is built from the flights, in any order, at every time.
func TestDue_FollowsFlights(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	for range 20 {
		flights := make([]*flight.Flight, 40)
		h := flight.Header{Now: 1}
		table := flight.NewDue()
		for range 500 {
			n := random.IntN(len(flights))
			next := randomJob(random, n, flights[n])
			table.Update(flights[n], next)
			flights[n] = next
			if random.IntN(20) == 0 {
				h.Now++
				table.Advance(&h)
			}
			if random.IntN(100) == 0 {
				h.Now, h.Steps = h.Now+1000, h.Steps+time.Second
			}
			if random.IntN(10) > 0 {
				continue
			}
			rebuilt := flight.NewDue()
			for _, i := range random.Perm(len(flights)) {
				rebuilt.Update(nil, flights[i])
			}
			require.Equal(t, contentsOf(rebuilt, &h, flights), contentsOf(table, &h, flights))
		}
	}
}

// A saga that sleeps is due when fewer of its steps are not over than its driver had counted, whatever the order of the events.
func TestDue_Sagas(t *testing.T) {
	d := flight.NewDue()
	var signals int
	d.SagaDue = func() { signals++ }
	saga := &flight.Flight{ID: sagaKey.FlightID(), Key: sagaKey, Policy: flight.Policy{Saga: true}, State: flight.StateReady}
	step := &flight.Flight{ID: stepKey.FlightID(), Key: stepKey, State: flight.StateReady}
	due := func() []flight.ID { return slices.Collect(d.DueSagas()) }
	set := func(f **flight.Flight, state flight.State, wake *flight.Wake) {
		next := **f
		next.State, next.Wake = state, wake
		d.Update(*f, &next)
		*f = &next
	}
	d.Update(nil, saga)
	require.Equal(t, []flight.ID{saga.ID}, due(), "it was never driven")
	d.Update(nil, step)
	set(&saga, flight.StateWaiting, &flight.Wake{Live: 1})
	require.Empty(t, due())
	for _, state := range []flight.State{flight.StateRunning, flight.StateInDoubt, flight.StateReady} {
		set(&step, state, nil)
		require.Empty(t, due(), "the step is not over: %v", state)
	}
	set(&step, flight.StateSucceeded, nil)
	require.Equal(t, []flight.ID{saga.ID}, due())
	set(&saga, flight.StateRunning, nil)
	require.Equal(t, []flight.ID{saga.ID}, due(), "its driver may have died")
	require.Equal(t, 2, signals, "a saga that is due already is no news")
	set(&saga, flight.StateWaiting, &flight.Wake{Live: 1})
	require.Equal(t, []flight.ID{saga.ID}, due(), "the step was over before the suspend")
	set(&saga, flight.StateSucceeded, nil)
	require.Empty(t, due())
}

// A saga is no job, and has no times of an attempt: nothing but its steps and its driver's time wakes it.
func TestDue_SagaIsNoJob(t *testing.T) {
	d := flight.NewDue()
	policy := flight.Policy{Saga: true, RunAfter: time.Minute, AttemptTimeout: time.Second}
	saga, _ := applyTo(d, nil, 100, 1, &flight.Submit{Key: sagaKey, Submission: flight.Submission{Policy: policy}, Queue: &flight.Queue{RunAt: 500}})
	require.Equal(t, flight.StateReady, saga.State)
	require.Nil(t, saga.Place)
	saga, reply := applyTo(d, saga, 101, 2, &flight.Open{Key: sagaKey, Nonce: nonce1, NotAfter: 101, StoreEpoch: 1})
	require.Equal(t, flight.DecisionProceed, reply.Decision)
	later := testHeader
	later.Now = later.Now.Add(time.Hour)
	require.Empty(t, slices.Collect(d.Overdue(&later)), "the time-out of a driver ends by its next Open")
	require.Equal(t, []flight.ID{saga.ID}, slices.Collect(d.DueSagas()))
}

// Workers claim a job by the action that its submission names, else by the name of its key.
func TestDue_Action(t *testing.T) {
	d := flight.NewDue()
	step := testJob(1, "", 0, 1)
	step.Key, step.ID, step.Place.Queue.Action = stepKey, stepKey.FlightID(), "trip.hotel"
	d.Update(nil, step)
	require.Equal(t, []flight.ID{step.ID}, slices.Collect(d.ReadyJobs("test", "trip.hotel", true)))
	require.Empty(t, slices.Collect(d.ReadyJobs("test", "trip", true)))
}

func testJob(n int, lane string, limit uint16, due flight.Time) *flight.Flight {
	key := flight.MustKey(fmt.Sprintf("test/charge/order-%d", n))
	return &flight.Flight{ID: key.FlightID(), Key: key, State: flight.StateReady,
		Place: &flight.Place{Due: due, Since: flight.Version{Index: uint64(n)}, Queue: flight.Queue{Lane: lane, Limit: limit}}}
}

// A lane of limit one opens its first job alone, whatever state that job is in, and the end of it opens the next.
func TestDue_LaneInOrder(t *testing.T) {
	d := flight.NewDue()
	var signals int
	d.Ready = func(string, string) { signals++ }
	first, second, other := testJob(1, "customer/7", 0, 10), testJob(2, "customer/7", 0, 10), testJob(3, "customer/8", 0, 10)
	for _, f := range []*flight.Flight{first, second, other} {
		d.Update(nil, f)
	}
	require.Equal(t, 2, signals)
	require.Equal(t, []flight.ID{first.ID, other.ID}, slices.Collect(d.ReadyJobs("test", "charge", true)))
	for _, state := range []flight.State{flight.StateRunning, flight.StateInDoubt, flight.StateAwaitingApproval} {
		next := *first
		next.State = state
		d.Update(first, &next)
		first = &next
		require.True(t, d.LaneBlocks(second.ID), state)
		require.Equal(t, []flight.ID{other.ID}, slices.Collect(d.ReadyJobs("test", "charge", true)))
	}
	done := *first
	done.State = flight.StateSucceeded
	d.Update(first, &done)
	require.False(t, d.LaneBlocks(second.ID))
	require.Equal(t, 3, signals)
	require.Equal(t, []flight.ID{second.ID, other.ID}, slices.Collect(d.ReadyJobs("test", "charge", true)))
}

// A job that is due later stands behind every job that is due before it, also behind one that was submitted afterwards.
func TestDue_LaneOrdersByFirstDueTime(t *testing.T) {
	d := flight.NewDue()
	later := testJob(1, "a", 0, 100)
	later.State, later.NotBefore = flight.StateScheduled, 100
	d.Update(nil, later)
	require.Equal(t, flight.Time(100), d.NextStart(&flight.Header{Now: 1}))
	now := testJob(2, "a", 0, 50)
	d.Update(nil, now)
	require.True(t, d.LaneBlocks(later.ID))
	require.Zero(t, d.NextStart(&flight.Header{Now: 1}), "a job that its lane holds has no timer")
	d.Update(now, nil)
	d.Advance(&flight.Header{Now: 100})
	require.Equal(t, []flight.ID{later.ID}, slices.Collect(d.ReadyJobs("test", "charge", true)))
}

// At no time are more jobs of a lane open than the smallest limit of any of them.
func TestDue_LaneLimits(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	d := flight.NewDue()
	var flights []*flight.Flight
	opened := 0
	for now := range flight.Time(5000) {
		set := func(i int, state flight.State) {
			next := *flights[i]
			next.State = state
			d.Update(flights[i], &next)
			flights[i] = &next
		}
		flights = slices.DeleteFunc(flights, func(f *flight.Flight) bool { return f.State.Terminal() })
		switch i := random.IntN(max(1, len(flights))); {
		case len(flights) < 6:
			f := testJob(int(now), "a", uint16(random.IntN(5)), now)
			d.Update(nil, f)
			flights = append(flights, f)
		case flights[i].State == flight.StateReady && !d.LaneBlocks(flights[i].ID):
			set(i, flight.StateRunning)
			opened++
		case flights[i].State == flight.StateRunning:
			set(i, []flight.State{flight.StateReady, flight.StateSucceeded}[random.IntN(2)])
		}
		running, limit := 0, 100
		for _, f := range flights {
			if f.State == flight.StateRunning {
				running++
				limit = min(limit, int(max(1, f.Place.Queue.Limit)))
			}
		}
		require.LessOrEqual(t, running, limit)
	}
	require.Greater(t, opened, 100)
}

// A lane lets exactly the jobs open that its rule names: fewer jobs stand before each than the smallest limit among them and its own.
func TestDue_LaneFollowsItsRule(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	most := 0
	for range 20 {
		d, jobs := flight.NewDue(), []*flight.Flight{}
		for n := range 300 {
			if i := random.IntN(60); i < len(jobs) {
				d.Update(jobs[i], nil)
				jobs = slices.Delete(jobs, i, i+1)
			}
			f := testJob(n, "a", uint16(random.IntN(100)), flight.Time(random.IntN(1000)))
			d.Update(nil, f)
			jobs = append(jobs, f)
			slices.SortFunc(jobs, func(a, b *flight.Flight) int {
				return cmp.Or(cmp.Compare(a.Place.Due, b.Place.Due), cmp.Compare(a.Place.Since.Index, b.Place.Since.Index))
			})
			smallest, open := 100, 0
			for i, f := range jobs {
				smallest = min(smallest, int(max(1, f.Place.Queue.Limit)))
				if i < smallest {
					open++
				}
				require.Equal(t, i >= smallest, d.LaneBlocks(f.ID), "job %d of %d", i, len(jobs))
			}
			for p := range d.Pools() {
				require.Equal(t, open, p.Ready)
				require.Equal(t, len(jobs)-open, p.Held)
			}
			most = max(most, open)
		}
	}
	require.Greater(t, most, 5, "jobs that were open at once")
}

// Jobs of a greater priority are handed out first; the oldest one is found in every priority.
func TestDue_Priorities(t *testing.T) {
	d := flight.NewDue()
	low, high, higher := testJob(1, "", 0, 5), testJob(2, "", 0, 20), testJob(3, "", 0, 10)
	high.Place.Queue.Priority, higher.Place.Queue.Priority = 5, 9
	for _, f := range []*flight.Flight{low, high, higher} {
		d.Update(nil, f)
	}
	require.Equal(t, []flight.ID{higher.ID, high.ID, low.ID}, slices.Collect(d.ReadyJobs("test", "charge", true)))
	for p := range d.Pools() {
		require.Equal(t, flight.PoolStatus{Namespace: "test", Action: "charge", States: flight.StateCounts{flight.StateReady: 3}, Ready: 3, Oldest: 5}, p)
	}
}

// apply applies a command to a flight at a time and keeps the table, as the state machine does.
func applyTo(d *flight.Due, f *flight.Flight, now flight.Time, index uint64, c flight.Command) (*flight.Flight, flight.Reply) {
	h := testHeader
	h.Now, h.Version = now, flight.Version{Index: index}
	view := flight.View{Header: h, Flight: f}
	if f != nil {
		view.LaneBlocked = d.LaneBlocks(f.ID)
	}
	next, reply := flight.Apply(view, c)
	d.Update(f, next.Flight)
	return next.Flight, reply
}

// Nobody opens a job before those that stand before it in its lane, not even a caller that acts itself. A retry by a person
// puts the job at the end.
func TestDue_LaneHoldsEveryOpen(t *testing.T) {
	d := flight.NewDue()
	submit := func(n int) *flight.Submit {
		return &flight.Submit{Key: flight.MustKey(fmt.Sprintf("test/charge/order-%d", n)), Queue: &flight.Queue{Lane: "a"}}
	}
	open := func(n int, nonce byte) *flight.Open {
		h := testHeader
		return &flight.Open{Key: submit(n).Key, Session: flight.Session{ID: "s", Epoch: h.LeaseEpoch}, Nonce: flight.Nonce{nonce}, NotAfter: 1000, StoreEpoch: h.StoreEpoch}
	}
	first, reply := applyTo(d, nil, 100, 1, submit(1))
	require.Equal(t, flight.DecisionAccepted, reply.Decision)
	second, _ := applyTo(d, nil, 100, 2, submit(2))
	_, reply = applyTo(d, second, 101, 3, open(2, 1))
	require.Equal(t, flight.DecisionBusy, reply.Decision)
	first, reply = applyTo(d, first, 102, 4, open(1, 2))
	require.Equal(t, flight.DecisionProceed, reply.Decision)
	_, reply = applyTo(d, second, 103, 5, open(2, 3))
	require.Equal(t, flight.DecisionBusy, reply.Decision)
	first, _ = applyTo(d, first, 104, 6, &flight.Report{Key: first.Key, Generation: 1, Token: reply.Token, Outcome: flight.OutcomeNotDone})
	require.Equal(t, flight.StateRunning, first.State, "a report with another token changes nothing")
	first, _ = applyTo(d, first, 104, 7, &flight.Cancel{Key: first.Key, Generation: 1})
	first, _ = applyTo(d, first, 105, 8, &flight.Report{Key: first.Key, Generation: 1, Token: testHeader.TokenOf(first.Newest()), Outcome: flight.OutcomeNotDone})
	require.Equal(t, flight.StateCancelled, first.State)
	first, reply = applyTo(d, first, 106, 9, &flight.Retry{Key: first.Key, Generation: 1})
	require.Equal(t, flight.DecisionAccepted, reply.Decision)
	require.True(t, d.LaneBlocks(first.ID))
	second, reply = applyTo(d, second, 107, 10, open(2, 4))
	require.Equal(t, flight.DecisionProceed, reply.Decision)
	require.NotNil(t, second.OpenAttempt())
}

// A job with run_at is scheduled, and its place in its lane is that time.
func TestDue_RunAt(t *testing.T) {
	d := flight.NewDue()
	f, _ := applyTo(d, nil, 100, 1, &flight.Submit{Key: flight.MustKey("test/charge/order-1"), Queue: &flight.Queue{RunAt: 500}})
	require.Equal(t, flight.StateScheduled, f.State)
	require.Equal(t, flight.Time(500), f.Place.Due)
	require.Equal(t, flight.Time(500), d.NextStart(&testHeader))
	late, _ := applyTo(d, nil, 700, 2, &flight.Submit{Key: flight.MustKey("test/charge/order-2"), Queue: &flight.Queue{RunAt: 500}})
	require.Equal(t, flight.StateReady, late.State)
	require.Equal(t, flight.Time(700), late.Place.Due, "not before its submission")
}
