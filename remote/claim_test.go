package remote_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/flightdtest"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/crashpoint"
	"github.com/flightd/flightd/remote"
)

// jobsView is one node's view of submitted jobs.
type jobsView struct {
	*faultyLedger
	remote.JobTable // Pools and lanes: not used
	all             []flight.ID
}

// Ready implements remote.Jobs.
func (v *jobsView) Ready(namespace, action string, lookUps bool) iter.Seq[flight.ID] {
	due, h := flight.NewDue(), v.Header()
	for _, id := range v.all {
		if f, err := v.Flight(id); err == nil && f != nil {
			due.Update(nil, f)
		}
	}
	h.Now = v.Now()
	due.Advance(&h)
	return due.ReadyJobs(namespace, action, lookUps)
}

// Paused implements remote.Jobs.
func (v *jobsView) Paused(string, string) bool { return false }

// Advance implements remote.Jobs.
func (v *jobsView) Advance() {}

// LookUps implements remote.Jobs.
func (v *jobsView) LookUps(int) []flight.ID { return v.all }

// OnReady implements remote.Jobs: claims look every second.
func (v *jobsView) OnReady(func(namespace, action string)) {}

// OnEnded implements remote.Jobs.
func (v *jobsView) OnEnded(func(namespace, action string)) {}

// poolsOf returns the pools of a node for the jobs with the numbers below count.
func poolsOf(s *remote.Service, l *faultyLedger, count int) *remote.Pools {
	v := &jobsView{faultyLedger: l}
	for i := range count {
		v.all = append(v.all, keyOf(fmt.Sprint(i)).FlightID())
	}
	return remote.NewPools(s, v)
}

// submitJobs submits the jobs with the numbers below count.
func submitJobs(t *testing.T, p *remote.Pools, count int) {
	t.Helper()
	var requests []remote.SubmitRequest
	for i := range count {
		requests = append(requests, remote.SubmitRequest{Key: keyOf(fmt.Sprint(i)), Submission: submissionOf(`{}`, flight.Policy{Recovery: flight.RecoveryResend})})
	}
	for _, a := range p.Submit(t.Context(), requests) {
		require.NoError(t, a.Err)
		require.True(t, a.Queued)
	}
}

// claimOf asks for jobs with a nonce that is valid for ten seconds.
func claimOf(l *faultyLedger, s flight.SessionID, nonce string, slots int) remote.ClaimRequest {
	return remote.ClaimRequest{Namespace: "billing", Actions: []string{"charge"}, Slots: slots, Session: s, Nonce: nonce, NotAfter: l.Now().Add(10 * time.Second),
		Owner: "worker", Wait: 2 * time.Second}
}

// tokensOf returns the fencing token of each job that was handed out.
func tokensOf(t *testing.T, jobs []remote.Job, err error) map[flight.Key]string {
	t.Helper()
	require.NoError(t, err)
	tokens := make(map[flight.Key]string)
	for i := range jobs {
		tokens[jobs[i].Flight.Key] = jobs[i].FencingToken
	}
	require.Len(t, tokens, len(jobs))
	return tokens
}

// withPools runs a test with the pools of two nodes over one ledger, and three jobs.
func withPools(t *testing.T, run func(t *testing.T, a *faultyLedger, fd *flightdtest.Flightd, here, there *remote.Pools)) {
	t.Helper()
	withTwoNodes(t, func(t *testing.T, a *faultyLedger, node, other *flightdtest.Flightd) {
		here, there := poolsOf(node.Remote(), a, 3), poolsOf(other.Remote(), &faultyLedger{Follower: other.Ledger.Follower()}, 3)
		submitJobs(t, here, 3)
		run(t, a, other, here, there)
	})
}

// A repeated claim, at any node, gets the jobs of which it was not told, and no others. When some of them have been reported, it
// gets fewer. When all have been, the node that has answered it hands out no other job instead.
func TestClaim_Repeated_SameJobs(t *testing.T) {
	withPools(t, func(t *testing.T, a *faultyLedger, fd *flightdtest.Flightd, here, there *remote.Pools) {
		req := claimOf(a, session(t, fd), "first", 2)
		jobs, err := here.Claim(t.Context(), req)
		lost := tokensOf(t, jobs, err)
		require.Len(t, lost, 2)
		sleep(t, 3*time.Second)
		for _, p := range []*remote.Pools{there, here, there} {
			again, err := p.Claim(t.Context(), req)
			require.Equal(t, lost, tokensOf(t, again, err))
			for i := range again {
				require.GreaterOrEqual(t, again[i].Age(), jobs[0].Age(), "its time-out has run since the first delivery")
				require.Equal(t, wire.JobNonce("first", again[i].Flight.ID), again[i].Nonce)
			}
		}
		report(t, fd, jobs[0].OpenAnswer, flight.OutcomeSucceeded, "ch_1")
		for _, p := range []*remote.Pools{here, there} {
			again, err := p.Claim(t.Context(), req)
			require.Equal(t, map[flight.Key]string{jobs[1].Flight.Key: jobs[1].FencingToken}, tokensOf(t, again, err))
		}
		report(t, fd, jobs[1].OpenAnswer, flight.OutcomeSucceeded, "ch_2")
		again, err := here.Claim(t.Context(), req)
		require.Empty(t, tokensOf(t, again, err))
		rest, err := there.Claim(t.Context(), claimOf(a, session(t, fd), "second", 9))
		require.Len(t, tokensOf(t, rest, err), 1)
		require.NotContains(t, lost, rest[0].Flight.Key)
	})
}

// The node dies in the middle of a claim, and the worker repeats the claim at another node: it gets every job, and each of them has
// one attempt.
func TestClaim_NodeDies_NoJobLost(t *testing.T) {
	for _, point := range []string{crashpoint.BeforeOpen, crashpoint.DuringOpen, crashpoint.AfterOpen} {
		t.Run(point, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cl := newCluster(t)
				dying, next := cl.node("n1", point), cl.node("n2", "")
				pools := poolsOf(next.Service, next.ledger, 3)
				submitJobs(t, pools, 3)
				s, err := next.NewSession(t.Context(), 0, "worker")
				require.NoError(t, err)
				req := claimOf(next.ledger, s.Session, "nonce", 3)
				go func() { _, _ = poolsOf(dying.Service, dying.ledger, 3).Claim(t.Context(), req) }()
				sleep(t, time.Second)
				require.True(t, dying.ledger.isDead())
				jobs, err := pools.Claim(t.Context(), req)
				require.NotEmpty(t, tokensOf(t, jobs, err))
				if rest := 3 - len(jobs); rest > 0 { // the dead node has not opened them
					more, err := pools.Claim(t.Context(), claimOf(next.ledger, s.Session, "next", 3))
					require.Len(t, tokensOf(t, more, err), rest)
					jobs = append(jobs, more...)
				}
				for i := range jobs {
					f, err := next.Report(t.Context(), reportOf(jobs[i].OpenAnswer, flight.OutcomeSucceeded, "ch_1"))
					require.NoError(t, err)
					require.EqualValues(t, 1, f.AttemptCount)
				}
			})
		})
	}
}

// A job is handed out once, although two nodes offer it at the same time: to two workers, the second of which may have ended it when
// the first one is answered, and to two sessions that use one nonce.
func TestClaim_TwoNodesAtOnce_HandedOutOnce(t *testing.T) {
	for _, row := range []struct {
		nonce string
		ended bool
	}{{"first", false}, {"second", false}, {"second", true}} {
		t.Run(fmt.Sprint(row), func(t *testing.T) {
			withPools(t, func(t *testing.T, a *faultyLedger, fd *flightdtest.Flightd, here, there *remote.Pools) {
				var second []remote.Job
				var err error
				var once atomic.Bool
				a.beforePropose = func(c flight.Command) { // both nodes have taken the jobs
					if _, opens := c.(*flight.Open); opens && once.CompareAndSwap(false, true) {
						second, err = there.Claim(t.Context(), claimOf(a, session(t, fd), row.nonce, 3))
						for i := range second {
							if row.ended {
								report(t, fd, second[i].OpenAnswer, flight.OutcomeSucceeded, "ch_1")
							}
						}
					}
				}
				first, failed := here.Claim(t.Context(), claimOf(a, session(t, fd), "first", 3))
				require.NoError(t, failed)
				require.NoError(t, err)
				handed := append(slices.Clone(first), second...)
				require.NotEmpty(t, second)
				require.Len(t, tokensOf(t, handed, nil), 3)
			})
		})
	}
}

// A copy of a claim that arrives after its time opens nothing, at any node.
func TestClaim_LateCopy_OpensNothing(t *testing.T) {
	withPools(t, func(t *testing.T, a *faultyLedger, fd *flightdtest.Flightd, here, there *remote.Pools) {
		req := claimOf(a, session(t, fd), "late", 3)
		defer keepRenewed(t, fd, req.Session)()
		sleep(t, 11*time.Second)
		for _, p := range []*remote.Pools{here, there} {
			jobs, err := p.Claim(t.Context(), req)
			require.Empty(t, jobs, "%v", err)
		}
		jobs, err := there.Claim(t.Context(), claimOf(a, req.Session, "next", 3))
		require.Len(t, tokensOf(t, jobs, err), 3)
		for i := range jobs {
			require.EqualValues(t, 1, jobs[i].Flight.AttemptCount)
		}
	})
}

// The jobs of a claim whose worker is gone are handed out again when its session has ended, and not before.
func TestClaim_WorkerGone_HandedOutAfterSession(t *testing.T) {
	withPools(t, func(t *testing.T, a *faultyLedger, fd *flightdtest.Flightd, here, there *remote.Pools) {
		jobs, err := here.Claim(t.Context(), claimOf(a, session(t, fd), "gone", 2))
		require.Len(t, tokensOf(t, jobs, err), 2)
		worker := session(t, fd)
		defer keepRenewed(t, fd, worker)()
		began, got := time.Now(), 0
		for i := 0; got < 3; i++ {
			next, err := there.Claim(t.Context(), claimOf(a, worker, fmt.Sprint(i), 3))
			if got += len(tokensOf(t, next, err)); got > 1 {
				require.Greater(t, time.Since(began), 14*time.Second, "the session of the gone worker lives")
			}
			require.Less(t, time.Since(began), 20*time.Second)
		}
	})
}

// slowLimits permits no attempt, and takes its time.
type slowLimits struct{ limits }

func (*slowLimits) AllowWork(string) error { return nil }

func (*slowLimits) AllowAttempt(flight.Key, bool) error {
	time.Sleep(300 * time.Millisecond)
	return errors.New("not now")
}

// A claim ends with its wait, also if there are more jobs that cannot be opened than it can try in the time until the first of them is
// tried again.
func TestClaim_NoJobCanBeOpened_EndsWithItsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fd := flightdtest.Open(t, flightdtest.Options{ConfigureRemote: func(cfg *remote.Config) { cfg.Limits = &slowLimits{limits{waits: 1}} }})
		submitJobs(t, fd.Pools(), 20)
		req := remote.ClaimRequest{Namespace: "billing", Actions: []string{"charge"}, Slots: 1, Session: session(t, fd), Nonce: "n",
			NotAfter: fd.Ledger.Now().Add(20 * time.Second), Wait: 2 * time.Second}
		began := time.Now()
		jobs, err := fd.Pools().Claim(t.Context(), req)
		require.NoError(t, err)
		require.Empty(t, jobs)
		require.Less(t, time.Since(began), 3*time.Second)
	})
}

// A claim opens only the jobs that fit into its answer. The others are there for the next claim at once. A job that is too large by itself
// is handed out alone.
func TestClaim_LargeJobs_RestStaysUnclaimed(t *testing.T) {
	for size, answers := range map[int][]int{2 << 20: {2, 1}, 3 << 20: {1, 1, 1}, 70 << 20: {1, 1, 1}} {
		withPools(t, func(t *testing.T, a *faultyLedger, fd *flightdtest.Flightd, here, there *remote.Pools) {
			worker := session(t, fd)
			for i, want := range answers {
				req := claimOf(a, worker, fmt.Sprint("claim-", i), 10)
				req.Size, req.Wait = func(*flight.Flight) int { return size }, 0
				jobs, err := here.Claim(t.Context(), req)
				handed := tokensOf(t, jobs, err)
				require.Len(t, handed, want)
				again, err := there.Claim(t.Context(), req)
				require.Equal(t, handed, tokensOf(t, again, err), "a repeat gets the same jobs")
			}
		})
	}
}

// A worker without a look-up is not handed the job that has to be looked up, but the one behind it. The other job is left to a worker
// with a look-up.
func TestClaim_WithoutLookUp_OtherJobs(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		ledger := &faultyLedger{Follower: fd.Ledger.Follower()}
		pools := poolsOf(fd.Remote(), ledger, 2)
		policy := flight.Policy{Recovery: flight.RecoveryVerify, SettleDelay: time.Second}
		for i := range 2 {
			require.NoError(t, pools.Submit(t.Context(), []remote.SubmitRequest{{Key: keyOf(fmt.Sprint(i)), Submission: submissionOf(`{}`, policy)}})[0].Err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go pools.Run(ctx)
		claim := func(nonce string, without ...string) []remote.Job {
			req := claimOf(ledger, session(t, fd), nonce, 1)
			req.WithoutLookUp = without
			jobs, err := pools.Claim(t.Context(), req)
			require.NoError(t, err)
			return jobs
		}
		first := claim("first", "charge")
		require.Len(t, first, 1)
		require.Equal(t, keyOf("0"), first[0].Flight.Key)
		_, err := fd.Remote().Report(t.Context(), reportOf(first[0].OpenAnswer, flight.OutcomeUnknown, ""))
		require.NoError(t, err)
		sleep(t, 2*time.Second) // the settle delay is over
		next := claim("next", "charge")
		require.Len(t, next, 1)
		require.Equal(t, keyOf("1"), next[0].Flight.Key)
		require.Empty(t, claim("none", "charge"))
		last := claim("last")
		require.Len(t, last, 1)
		require.Equal(t, keyOf("0"), last[0].Flight.Key)
		require.Equal(t, flight.DecisionVerify, last[0].Decision)
	})
}

// A job whose only attempt was lost by a restore is handed out for a look-up, of which nothing is known but its key.
func TestHazard22_ALookUpOfALostAttempt(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		policy := flight.Policy{Recovery: flight.RecoveryVerify, SettleDelay: 10 * time.Second}
		lost := reportOf(proceed(t, fd, openOf("0", `{}`, policy, 1)), flight.OutcomeUnknown, "")
		before := flightdtest.New(t)
		ledger := &faultyLedger{Follower: before.Ledger.Follower()}
		pools := poolsOf(before.Remote(), ledger, 1)
		require.NoError(t, pools.Submit(t.Context(), []remote.SubmitRequest{{Key: keyOf("0"), Submission: submissionOf(`{}`, policy)}})[0].Err)
		f, err := before.Remote().Report(t.Context(), lost)
		require.NoError(t, err)
		require.True(t, f.Verifying())
		require.Empty(t, f.Attempts)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go pools.Run(ctx)
		req := claimOf(ledger, session(t, before), "first", 1)
		jobs, err := pools.Claim(t.Context(), req)
		require.NoError(t, err)
		require.Empty(t, jobs, "the settle delay is not over")
		sleep(t, 9*time.Second)
		req = claimOf(ledger, session(t, before), "second", 1)
		for range 2 {
			jobs, err = pools.Claim(t.Context(), req)
			require.NoError(t, err)
			require.Len(t, jobs, 1, "the delay is waited for once")
			require.Equal(t, flight.DecisionVerify, jobs[0].Decision)
			require.Nil(t, jobs[0].Previous)
		}
		a, err := before.Remote().Verify(t.Context(), remote.VerificationRequest{ID: f.ID, Verification: jobs[0].Verification, Result: flight.FindingHappened,
			ExternalID: "ch_1", Open: remote.OpenRequest{Nonce: flight.Nonce{9}}})
		require.NoError(t, err)
		require.Equal(t, "ch_1", a.Flight.Receipt.ExternalID)
	})
}
