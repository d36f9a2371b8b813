package flight_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

func statusOf(t *testing.T, d *flight.Due) flight.PoolStatus {
	t.Helper()
	for p := range d.Pools() {
		return p
	}
	return flight.PoolStatus{}
}

// A job keeps failing after three attempts that were not done, or after ten that workers have given back, until an attempt has another outcome.
func TestDue_Failing(t *testing.T) {
	d := flight.NewDue()
	jobs := make([]*flight.Flight, 7)
	for i := range jobs {
		jobs[i] = testJob(i, "", 0, flight.Time(i+1))
		d.Update(nil, jobs[i])
	}
	end := func(i int, outcome flight.Outcome, counted uint32) {
		next := *jobs[i]
		next.Attempts = append(slices.Clone(next.Attempts), flight.Attempt{Number: uint32(len(next.Attempts) + 1), OpenedAt: 1, ClosedAt: 2, Outcome: outcome})
		next.CountedAttempts += counted
		d.Update(jobs[i], &next)
		jobs[i] = &next
	}
	for n := range 10 {
		require.Equal(t, n > 2, statusOf(t, d).Failing > 0, n)
		end(0, flight.OutcomeNotDone, 1)
		end(1, flight.OutcomeNotDone, 0)
	}
	require.Equal(t, 2, statusOf(t, d).Failing)
	require.Equal(t, []flight.ID{jobs[0].ID, jobs[1].ID}, statusOf(t, d).Failed)
	end(0, flight.OutcomeUnknown, 1)
	require.Equal(t, []flight.ID{jobs[1].ID}, statusOf(t, d).Failed)
	for i := range jobs {
		for range 3 {
			end(i, flight.OutcomeNotDone, 1)
		}
	}
	require.Equal(t, len(jobs), statusOf(t, d).Failing)
	require.Len(t, statusOf(t, d).Failed, flight.MaxFailedJobs)
	for i, f := range jobs {
		over := *f
		over.State = flight.StateFailed
		d.Update(f, &over)
		require.Equal(t, len(jobs)-i-1, statusOf(t, d).Failing)
	}
}

// Each job is counted once. A lane is stuck when all that it lets open are in doubt, and names the first of them; the end of a job is
// told once.
func TestDue_Status(t *testing.T) {
	d, ended := flight.NewDue(), 0
	d.Ended = func(namespace, action string) {
		require.Equal(t, "test/charge", namespace+"/"+action)
		ended++
	}
	jobs := make([]*flight.Flight, 8)
	for i := range jobs {
		jobs[i] = testJob(i, "", 0, flight.Time(i+1))
		if i < 5 {
			jobs[i] = testJob(i, "a", 2, flight.Time(i+1))
		}
		d.Update(nil, jobs[i])
	}
	change := func(i int, change func(*flight.Flight)) {
		next := *jobs[i]
		change(&next)
		d.Update(jobs[i], &next)
		jobs[i] = &next
	}
	counts := func() []int {
		s := statusOf(t, d)
		return []int{s.Ready, s.Running, s.Scheduled(), s.Held, s.States[flight.StateInDoubt]}
	}
	require.Equal(t, []int{5, 0, 0, 3, 0}, counts())
	run := func(f *flight.Flight) {
		f.State, f.Attempts = flight.StateRunning, []flight.Attempt{{Number: 1, Session: flight.Session{ID: "s"}, OpenedAt: 9}}
	}
	doubt := func(f *flight.Flight) { f.State, f.Attempts = flight.StateInDoubt, nil }
	change(5, run)
	change(6, func(f *flight.Flight) { f.State, f.NotBefore = flight.StateScheduled, 100 })
	require.Equal(t, []int{3, 1, 1, 3, 0}, counts())
	change(0, run)
	change(0, doubt)
	require.Empty(t, statusOf(t, d).Stuck, "the lane lets another job open")
	change(1, doubt)
	require.Equal(t, []flight.StuckLane{{Lane: "a", Blocker: jobs[0].ID, Behind: 3}}, statusOf(t, d).Stuck)
	require.Equal(t, []int{1, 1, 1, 3, 2}, counts())
	first, blocked := d.LaneBlocker(jobs[4].ID)
	require.True(t, blocked)
	require.Equal(t, jobs[0].ID, first)
	_, blocked = d.LaneBlocker(jobs[1].ID)
	require.False(t, blocked)
	require.Equal(t, 5, d.LaneSize("test", "charge", "a"))
	change(0, func(f *flight.Flight) { f.State = flight.StateFailed })
	require.Empty(t, statusOf(t, d).Stuck)
	require.Equal(t, []int{2, 1, 1, 2, 1}, counts())
	require.Equal(t, 1, ended)
	d.Update(jobs[7], nil)
	require.Equal(t, 1, ended, "a job that is removed has not ended")
	for i := 1; i < 7; i++ {
		change(i, func(f *flight.Flight) { f.State = flight.StateCancelled })
	}
	require.Equal(t, 7, ended)
	require.Equal(t, flight.PoolStatus{}, statusOf(t, d))
}
