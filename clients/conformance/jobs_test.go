//go:build clients

package conformance

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"
)

// jobScenarios are the scenarios about submitted jobs and workers. The Go client has tests of its own for them.
func jobScenarios() (all []scenario) {
	for name, run := range map[string]func(*trial){"job-submitted-three-times": jobSubmittedThreeTimes, "job-of-a-killed-worker-hold": jobOfAKilledWorkerHold,
		"job-of-a-killed-worker-resend": jobOfAKilledWorkerResend, "job-not-done-is-handed-out-again": jobNotDone, "claim-answer-lost": claimAnswerLost,
		"claims-without-room": claimsWithoutRoom, "worker-drains": workerDrains} {
		all = append(all, scenario{name, func(t *trial) {
			if t.language.name == "go" {
				t.Skip("client/worker_test.go")
			}
			run(t)
		}})
	}
	return all
}

// worker starts a process that performs jobs. The scenarios share a server, so each has a namespace of its own.
func (t *trial) worker(changes ...func(*setup)) *driver {
	return t.driver(append(changes, t.ownNamespace, func(s *setup) { s.Work = t.provider.url + "/effect" })...)
}

func (t *trial) submitter() *driver { return t.driver(t.ownNamespace) }

func (t *trial) ownNamespace(s *setup) {
	t.key = "jobs-" + t.language.name + "-" + t.id + "/charge/" + t.id
	s.env = append(s.env, "FLIGHTD_NAMESPACE=jobs-"+t.language.name+"-"+t.id)
}

func submit(times int) func(*call) { return func(c *call) { c.Submit = times } }

// jobSubmittedThreeTimes: jobs that are submitted three times each, and performed by two workers, are done once.
func jobSubmittedThreeTimes(t *trial) {
	const n = 20
	workers := []*driver{t.worker(), t.worker()}
	d := t.submitter()
	var all []*pending
	for i := range n {
		all = append(all, d.begin(t.call(submit(3), func(c *call) { c.ID += fmt.Sprint("-", i) })))
	}
	for _, p := range all {
		a := p.waitOne()
		require.Empty(t, a.Error, a.Detail)
		require.Equal(t, "queued duplicate duplicate", a.Source)
		require.NotEmpty(t, t.value(a).ID)
	}
	require.Len(t, t.charges(), n)
	require.Len(t, t.providerRequests(), n)
	for _, w := range workers {
		require.NotContains(t, w.log.String(), "not succeeded")
	}
}

// killWorker kills a worker in its effect, and returns the call that waits for the job.
func (t *trial) killWorker(changes ...func(*call)) *pending {
	t.provider.configure(func(p *provider) { p.honour = true })
	t.provider.block("/effect")
	w := t.worker(ttl(int(shortTTL / time.Second)))
	p := t.submitter().begin(t.call(append(changes, submit(1))...))
	t.provider.waitArrived(t, "/effect")
	w.signal(syscall.SIGKILL)
	t.provider.unblock("/effect")
	return p
}

// jobOfAKilledWorkerHold: nobody acts again for a job whose worker was killed in its effect, under hold.
func jobOfAKilledWorkerHold(t *trial) {
	p := t.killWorker()
	t.worker()
	t.requireAnswer(p.waitOne(), "in_doubt")
	require.Len(t, t.providerRequests(), 1)
}

// jobOfAKilledWorkerResend: another worker sends the same idempotency key again, under resend.
func jobOfAKilledWorkerResend(t *trial) {
	p := t.killWorker(recovery("resend"), longWindow)
	t.worker()
	a := p.waitOne()
	require.Empty(t, a.Error, a.Detail)
	require.Len(t, t.providerRequests(), 2)
	require.Equal(t, t.providerRequests()[0].key, t.providerRequests()[1].key)
	t.requireOneEffect(2)
}

// jobNotDone: a job whose effect did not happen is handed out again.
func jobNotDone(t *trial) {
	t.provider.configure(func(p *provider) { p.status = []int{http.StatusTooManyRequests} })
	t.worker()
	a := t.submitter().do(t.call(submit(1)))
	require.Empty(t, a.Error, a.Detail)
	require.Len(t, t.providerRequests(), 2)
	t.requireOneEffect(2)
}

// claimAnswerLost: the answer to a claim is lost after the jobs were handed out. The repeat brings them, and each is done once.
func claimAnswerLost(t *trial) {
	submitted := t.submitter().begin(t.call(submit(1)))
	t.waitFlight("is queued", func(f wireFlight) bool { return f.State == "ready" })
	t.proxy.failOnce(":claim", fault{drop: true})
	t.worker()
	a := submitted.waitOne()
	require.Empty(t, a.Error, a.Detail)
	require.GreaterOrEqual(t, len(t.proxy.requests(":claim")), 2)
	require.False(t, t.requireOneEffect(1).Tainted)
	require.Len(t, t.providerRequests(), 1)
}

// claimsWithoutRoom: a server without room for waits answers each claim at once. The worker pauses between its claims, and gets the job that
// comes.
func claimsWithoutRoom(t *trial) {
	t.proxy.setFaults(func(path string) fault { return fault{noWait: strings.HasSuffix(path, ":claim")} })
	t.worker()
	claims := func() int { return len(t.proxy.requests(":claim")) }
	eventually(t, "it claims", waitTimeout, func() bool { return claims() > 0 })
	<-time.After(2 * time.Second)
	require.LessOrEqual(t, claims(), 12)
	a := t.submitter().do(t.call(submit(1)))
	require.Empty(t, a.Error, a.Detail)
	t.requireOneEffect(1)
}

// workerDrains: after SIGTERM a worker claims nothing more, and its running job ends and is reported. A job that was handed out
// meanwhile is given back, long before the session would end. Then the session is closed.
func workerDrains(t *trial) {
	t.provider.block("/effect")
	w := t.worker(ttl(60))
	d := t.submitter()
	running := d.begin(t.call(submit(1)))
	t.provider.waitArrived(t, "/effect")
	w.signal(syscall.SIGTERM)
	time.Sleep(500 * time.Millisecond) // until the process has handled the signal, which nothing shows in every language
	later := d.begin(t.call(submit(1), func(c *call) { c.ID += "-later" }))
	t.server.waitFlight(t.key+"-later", "is queued", waitTimeout, func(f wireFlight) bool { return f.State == "ready" })
	t.provider.unblock("/effect")
	a := running.waitOne()
	require.Empty(t, a.Error, a.Detail)
	eventually(t, "its session is closed", waitTimeout, func() bool { return len(t.proxy.requests("/close")) > 0 })
	t.server.waitFlight(t.key+"-later", "was not handed out, or given back", waitTimeout, func(f wireFlight) bool { return f.State == "ready" && !f.Tainted })
	require.Len(t, t.providerRequests(), 1)
	t.worker()
	a = later.waitOne()
	require.Empty(t, a.Error, a.Detail)
	require.Len(t, t.charges(), 2)
}
