package flight_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

// allocatedBy returns how many bytes f allocates. The number does not depend on the speed of the machine.
func allocatedBy(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// A job that enters or leaves a lane with a great limit does not walk all jobs of the lane.
func TestDue_LaneWithAGreatLimit(t *testing.T) {
	const n = 20_000
	d, jobs := flight.NewDue(), make([]*flight.Flight, n+100)
	for i := range jobs {
		jobs[i] = testJob(i, "a", 60_000, flight.Time(i+1))
	}
	for _, f := range jobs[:n] {
		d.Update(nil, f)
	}
	require.Less(t, allocatedBy(func() {
		for i, f := range jobs[n:] {
			d.Update(nil, f)
			over := *jobs[n/2+i]
			over.State = flight.StateSucceeded
			d.Update(jobs[n/2+i], &over)
		}
	}), uint64(1<<20), "200 changes of a lane of %d jobs", n)
}

// Many jobs with the same due time become ready in steps, so that the lock of the table can be released between the steps.
func TestDue_AdvancesInSteps(t *testing.T) {
	const n = 5000
	d, ready := flight.NewDue(), 0
	d.Ready = func(string, string) { ready++ }
	for i := range n {
		f := testJob(i, "", 0, 100)
		f.State, f.NotBefore = flight.StateScheduled, 100
		d.Update(nil, f)
	}
	h := &flight.Header{Now: 100}
	steps := 0
	for before := 0; d.NextStart(h) != 0; before = ready {
		d.Advance(h)
		require.LessOrEqual(t, ready-before, 1000, "jobs of one step")
		require.Greater(t, ready, before)
		steps++
	}
	require.Equal(t, n, ready)
	require.Greater(t, steps, 1)
	require.False(t, d.Advance(h))
}

// PoolsFrom starts at a namespace without visiting the others, and an interrupted iteration can be continued.
func TestDue_PoolsFrom(t *testing.T) {
	d := flight.NewDue()
	for i := range 1000 {
		for _, namespace := range []string{"noisy", "quiet"} {
			if namespace == "quiet" && i >= 3 {
				continue
			}
			key := flight.MustKey(fmt.Sprintf("%s/charge-%d/order", namespace, i))
			d.Update(nil, &flight.Flight{ID: key.FlightID(), Key: key, Generation: 1, State: flight.StateReady, Place: &flight.Place{}})
		}
	}
	var quiet []string
	for p := range d.PoolsFrom("quiet", "") {
		require.Equal(t, "quiet", p.Namespace, "the last namespace")
		quiet = append(quiet, p.Action)
	}
	require.Equal(t, []string{"charge-0", "charge-1", "charge-2"}, quiet)
	all, namespace, action := 0, "", ""
	for more := true; more; {
		more = false
		for p := range d.PoolsFrom(namespace, action) {
			more, namespace, action = true, p.Namespace, p.Action
			if all++; all%7 == 0 {
				break
			}
		}
	}
	require.Equal(t, 1003, all)
}
