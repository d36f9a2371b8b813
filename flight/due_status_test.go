package flight_test

import (
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
