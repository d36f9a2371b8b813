package remote_test

import (
	"fmt"
	"iter"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/flightdtest"
	"github.com/flightd/flightd/remote"
)

// A paused action hands out nothing; the repeat of a claim that was answered gets its jobs; the end of the pause wakes the claims that
// wait, at once.
func TestQueues_Pause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var paused atomic.Bool
		fd := flightdtest.Open(t, flightdtest.Options{Paused: func(_, action string) bool { return action == "charge" && paused.Load() }})
		p, s := fd.Pools(), session(t, fd)
		submitJobs(t, p, 4)
		claim := func(nonce string, slots int) ([]remote.Job, error) {
			return p.Claim(t.Context(), remote.ClaimRequest{Namespace: "billing", Actions: []string{"mail", "charge"}, Slots: slots, Session: s, Nonce: nonce,
				NotAfter: fd.Ledger.Now().Add(20 * time.Second), Wait: 3 * time.Second})
		}
		jobs, err := claim("first", 1)
		require.Len(t, tokensOf(t, jobs, err), 1)
		paused.Store(true)
		require.NoError(t, p.PauseChanged(t.Context(), "billing", "charge"))
		again, err := claim("first", 1)
		require.Equal(t, tokensOf(t, jobs, nil), tokensOf(t, again, err))
		none, err := claim("second", 4)
		require.Empty(t, tokensOf(t, none, err))
		began := time.Now()
		go func() {
			time.Sleep(1300 * time.Millisecond) // between two looks
			paused.Store(false)
			if err := p.PauseChanged(t.Context(), "billing", "charge"); err != nil {
				t.Error(err)
			}
		}()
		rest, err := claim("third", 4)
		require.Len(t, tokensOf(t, rest, err), 3)
		require.Less(t, time.Since(began), 1400*time.Millisecond)
		report(t, fd, rest[0].OpenAnswer, flight.OutcomeSucceeded, "ch_1")
		queues := slices.Collect(p.Queues("billing", ""))
		require.Len(t, queues, 2)
		require.Equal(t, []string{"charge", "mail"}, []string{queues[0].Action, queues[1].Action})
		require.Equal(t, []int{3, 0, 1, 1}, []int{queues[0].Running, queues[0].Ready, queues[0].Workers, queues[1].Workers})
		require.Positive(t, queues[0].EndedPerSecond)
		require.Empty(t, slices.Collect(p.Queues("other", "")))
		require.Len(t, slices.Collect(p.Queues("", "")), 2)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.Less(t, slices.Collect(p.Queues("billing", ""))[0].EndedPerSecond, 0.001)
	})
}

// A claim that has looked before the pause opens its jobs: the pause is answered afterwards, and then every job that was handed out is
// seen as running.
func TestQueues_PauseDuringAClaim_WaitsForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var paused atomic.Bool
		fd := flightdtest.Open(t, flightdtest.Options{
			Paused:          func(string, string) bool { return paused.Load() },
			ConfigureRemote: func(cfg *remote.Config) { cfg.Limits = slowOpens{&limits{waits: 9}} },
		})
		p := fd.Pools()
		submitJobs(t, p, 2)
		s := session(t, fd)
		handed := make(chan int)
		go func() {
			jobs, err := p.Claim(t.Context(), remote.ClaimRequest{Namespace: "billing", Actions: []string{"charge"}, Slots: 2, Session: s, Nonce: "n",
				NotAfter: fd.Ledger.Now().Add(20 * time.Second), Wait: time.Second})
			if err != nil {
				t.Error(err)
			}
			handed <- len(jobs)
		}()
		time.Sleep(100 * time.Millisecond)
		paused.Store(true)
		require.NoError(t, p.PauseChanged(t.Context(), "billing", "charge"))
		require.Equal(t, 2, slices.Collect(p.Queues("billing", ""))[0].Running)
		require.Equal(t, 2, <-handed)
	})
}

// slowOpens are limits that take their time for each attempt.
type slowOpens struct{ remote.Limits }

func (slowOpens) AllowWork(string) error { return nil }

func (slowOpens) AllowAttempt(flight.Key, bool) error {
	time.Sleep(300 * time.Millisecond)
	return nil
}

// Claims that name ever new actions are remembered up to a bound, for two minutes at most, and no claim searches them.
func TestQueues_UnknownActions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fd := flightdtest.Open(t, flightdtest.Options{})
		p := fd.Pools()
		claim := func(s flight.SessionID, nonce string, actions ...string) {
			none, err := p.Claim(t.Context(), remote.ClaimRequest{Namespace: "noisy", Actions: actions, Slots: 1, Session: s, Nonce: nonce,
				NotAfter: fd.Ledger.Now().Add(20 * time.Second)})
			require.Empty(t, tokensOf(t, none, err))
		}
		flood := session(t, fd)
		for i := range 100 {
			actions := make([]string, 64)
			for k := range actions {
				actions[k] = fmt.Sprintf("unknown-%d-%d", i, k)
			}
			claim(flood, fmt.Sprint("flood-", i), actions...)
		}
		require.LessOrEqual(t, len(slices.Collect(p.Queues("noisy", ""))), 256, "the actions of one session")
		claim(session(t, fd), "good", "charge")
		require.Equal(t, 1, p.Workers("noisy", "charge"), "another session is counted")
		time.Sleep(50 * time.Second)
		claim(session(t, fd), "other", "charge")
		time.Sleep(30 * time.Second)
		claim(session(t, fd), "third", "charge")
		require.Equal(t, 2, p.Workers("noisy", "charge"), "those that asked in the last minute")
		require.Len(t, slices.Collect(p.Queues("noisy", "")), 1)
	})
}

// manyPools is a table with jobs of many actions.
type manyPools struct {
	remote.Jobs
	pools []flight.PoolStatus
}

func (m *manyPools) OnReady(func(namespace, action string))           {}
func (m *manyPools) OnEnded(func(namespace, action string))           {}
func (m *manyPools) Pools(string, string) iter.Seq[flight.PoolStatus] { return slices.Values(m.pools) }

// Very many actions are read without a list of them: each scrape and each read of the queues reads all.
func TestQueues_OfManyActions(t *testing.T) {
	const actions = 50_000
	m := &manyPools{}
	for i := range actions {
		m.pools = append(m.pools, flight.PoolStatus{Namespace: "noisy", Action: fmt.Sprintf("action-%05d", i), Ready: 1})
	}
	p := remote.NewPools(nil, m)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	n := 0
	for range p.Queues("", "") {
		n++
	}
	runtime.ReadMemStats(&after)
	require.Equal(t, actions, n)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
}
