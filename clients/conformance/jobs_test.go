//go:build clients

package conformance

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"
)

// jobScenarios are the scenarios about submitted jobs and workers.
func jobScenarios() []scenario {
	return []scenario{{"job-submitted-three-times", jobSubmittedThreeTimes}, {"job-of-a-killed-worker-hold", jobOfAKilledWorkerHold},
		{"job-of-a-killed-worker-resend", jobOfAKilledWorkerResend}, {"job-of-a-worker-without-lookup", jobOfAWorkerWithoutLookUp},
		{"job-not-done-is-handed-out-again", jobNotDone}, {"claim-answer-lost", claimAnswerLost}, {"claims-without-room", claimsWithoutRoom},
		{"claims-rejected", claimsRejected}, {"wait-without-room", waitWithoutRoom}, {"wait-through-an-approval", waitThroughApproval}, {"wait-through-an-outage", waitThroughOutage},
		{"batch-answered-by-maintenance", batchAnsweredByMaintenance}, {"worker-drains", workerDrains}, {"job-that-no-client-can-read", jobThatNobodyReads}, {"closed-client-claims-nothing", closedClientClaimsNothing}}
}

// worker starts a process that performs jobs. The scenarios share a server, so each has a namespace of its own.
func (t *trial) worker(changes ...func(*setup)) *driver {
	return t.driver(append(changes, t.ownNamespace, func(s *setup) { s.Work = t.provider.url + "/effect" })...)
}

func (t *trial) submitter() *driver { return t.driver(t.ownNamespace) }

func (t *trial) ownNamespace(s *setup) {
	t.key = "jobs-" + t.id + "/charge/" + t.id
	s.env = append(s.env, "FLIGHTD_NAMESPACE=jobs-"+t.id)
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

// jobOfAWorkerWithoutLookUp: a worker without a look-up performs new jobs under verify. A job whose outcome is unknown is left to a worker that
// can look it up, without a busy loop.
func jobOfAWorkerWithoutLookUp(t *trial) {
	settled := func(c *call) { c.Recovery, c.SettleMS = "verify", 100 }
	unable := t.worker()
	a := t.submitter().do(t.call(settled, submit(1), func(c *call) { c.ID += "-new" }))
	require.Empty(t, a.Error, a.Detail)
	unable.signal(syscall.SIGKILL)
	t.provider.configure(func(p *provider) { p.charges, p.requests, p.arrivals = nil, nil, make(map[string]int) })

	p := t.killWorker(settled)
	t.worker()
	t.waitFlight("has to be looked up", func(f wireFlight) bool { return f.Tainted })
	<-time.After(time.Second)
	before := len(t.proxy.requests(":claim"))
	<-time.After(3 * time.Second)
	require.LessOrEqual(t, len(t.proxy.requests(":claim"))-before, 10)
	t.worker(func(s *setup) { s.Look = t.provider.url + "/look" })
	a = p.waitOne()
	require.Empty(t, a.Error, a.Detail)
	require.Len(t, t.providerRequests(), 1)
	require.Len(t, t.charges(), 1)
}

// claimsRejected: a worker whose first claim is rejected ends, with the error.
func claimsRejected(t *trial) {
	t.proxy.failUntil(":claim", fault{cut: true, own: true, canned: &cannedAnswer{403, "application/problem+json", `{"code":"forbidden","status":403,"retryable":false}`}})
	w := t.worker()
	eventually(t, "it ends", waitTimeout, func() bool { return strings.Contains(w.log.String(), "the worker has ended: forbidden") })
	require.Len(t, t.proxy.requests(":claim"), 1)
}

// waitWithoutRoom: a server without room for waits answers each wait for a job at once. The caller pauses in between, and gets the receipt.
func waitWithoutRoom(t *trial) {
	isRead := func(path string) bool { return strings.HasPrefix(path, "/v1/flights/fl_") }
	t.proxy.setFaults(func(path string) fault { return fault{noWait: isRead(path)} })
	p := t.submitter().begin(t.call(submit(1)))
	t.waitFlight("is queued", func(f wireFlight) bool { return f.State == "ready" })
	<-time.After(3 * time.Second)
	reads := 0
	for _, r := range t.proxy.requests("") {
		if isRead(r.path) {
			reads++
		}
	}
	require.LessOrEqual(t, reads, 12)
	t.worker()
	a := p.waitOne()
	require.Empty(t, a.Error, a.Detail)
	t.requireOneEffect(1)
}

// waitThroughApproval: a wait for a job goes on while the job awaits its approval.
func waitThroughApproval(t *trial) {
	d := t.submitter()
	namespace, _, _ := strings.Cut(t.key, "/")
	ask := func(path, body string, header ...string) {
		answer, err := t.server.request(http.MethodPost, path, body, append(header, "Flightd-Namespace", namespace)...)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Less(t, answer.StatusCode, 300)
	}
	c := t.call(submit(1), func(c *call) { c.Input = nil })
	ask("/v1/flights:submit", fmt.Sprintf(`{"action":%q,"id":%q,"approval":{}}`, c.Name, c.ID))
	p := d.begin(c)
	eventually(t, "it waits", waitTimeout, func() bool { return len(t.proxy.requests("/"+t.flight().ID)) > 0 })
	f := t.flight()
	require.Equal(t, "awaiting_approval", f.State)
	ask("/v1/flights/"+f.ID+"/approve", `{"reason":"checked"}`, "If-Match", `"`+f.Version+`"`)
	t.worker()
	a := p.waitOne()
	require.Empty(t, a.Error, a.Detail)
	require.Equal(t, "duplicate", a.Source)
	t.requireOneEffect(1)
}

// waitThroughOutage: a wait for a job without limit outlasts an outage that is longer than the client's time for retries.
func waitThroughOutage(t *trial) {
	t.proxy.setFaults(func(string) fault { return fault{noWait: true} })
	p := t.driver(t.ownNamespace, func(s *setup) { s.RetryTimeoutMS = 300 }).begin(t.call(submit(1)))
	reads := func() (n int) { return len(t.proxy.requests("/" + t.flight().ID)) }
	t.waitFlight("is queued", func(f wireFlight) bool { return f.State == "ready" })
	eventually(t, "it waits", waitTimeout, func() bool { return reads() > 0 })
	before := reads()
	t.proxy.setFaults(func(string) fault { return fault{drop: true} })
	eventually(t, "it asks again", waitTimeout, func() bool { return reads() > before })
	<-time.After(3 * time.Second) // ten times the time for retries
	select {
	case a := <-p.answers:
		t.Fatalf("the wait ended in the outage: %+v", a)
	default:
	}
	t.proxy.setFaults(nil)
	t.worker()
	a := p.waitOne()
	require.Empty(t, a.Error, a.Detail)
	t.requireOneEffect(1)
}

// batchAnsweredByMaintenance: a batch is sent again after an answer that does not name each of its jobs.
func batchAnsweredByMaintenance(t *trial) {
	page := cannedAnswers()["maintenance"]
	t.proxy.failOnce(":submit", fault{cut: true, canned: &page})
	a := t.submitter().do(t.call(func(c *call) { c.SubmitAll = 3 }))
	require.Empty(t, a.Error, a.Detail)
	require.Equal(t, "queued 3", a.Source)
	t.server.waitFlight(t.key+"-2", "is queued", waitTimeout, func(f wireFlight) bool { return f.State == "ready" })
}

// jobThatNobodyReads: a job with a policy or an input that the client cannot read is not done, with the reason, which the queue shows, and its
// attempts end. The jobs beside it are performed.
func jobThatNobodyReads(t *trial) {
	t.proxy.setFaults(func(path string) fault {
		if !strings.HasSuffix(path, ":claim") {
			return fault{}
		}
		return fault{edit: func(body string) string {
			return strings.NewReplacer(`"attempt_timeout_ms":54321`, `"attempt_timeout_ms":"soon"`, `"input":"no base64"`, `"input_base64":"*"`).Replace(body)
		}}
	})
	d := t.submitter()
	var good []*pending
	for i := range 3 {
		good = append(good, d.begin(t.call(submit(1), func(c *call) { c.ID += fmt.Sprint("-", i) })))
	}
	namespace, _, _ := strings.Cut(t.key, "/")
	ask := func(method, path, body string, into any) {
		eventually(t, "an answer for "+path, waitTimeout, func() bool {
			answer, err := t.server.request(method, path, body, "Flightd-Namespace", namespace)
			require.NoError(t, err)
			defer answer.Body.Close()
			if answer.StatusCode >= http.StatusInternalServerError {
				return false
			}
			require.Less(t, answer.StatusCode, 300)
			require.NoError(t, json.NewDecoder(answer.Body).Decode(into))
			return true
		})
	}
	ended := t.key + "-ends"
	ask(http.MethodPost, "/v1/flights:submit", fmt.Sprintf(`{"action":"charge","id":%q,"attempt_timeout_ms":54321}`, t.id), new(any))
	ask(http.MethodPost, "/v1/flights:submit", fmt.Sprintf(`{"action":"charge","id":%q,"input":"no base64","retry":{"attempts":2}}`, t.id+"-ends"), new(any))
	t.worker()
	var list struct {
		Queues []struct {
			FailingJobs []struct{ Key, Cause string } `json:"failing_jobs"`
		}
	}
	eventually(t, "the queue shows the job", waitTimeout, func() bool {
		ask(http.MethodGet, "/v1/queues", "", &list)
		return len(list.Queues) == 1 && len(list.Queues[0].FailingJobs) == 1
	})
	require.Equal(t, t.key, list.Queues[0].FailingJobs[0].Key)
	require.Contains(t, list.Queues[0].FailingJobs[0].Cause, "this client cannot read the job: ")
	require.Contains(t, list.Queues[0].FailingJobs[0].Cause, "attempt_timeout_ms")
	for _, p := range good {
		a := p.waitOne()
		require.Empty(t, a.Error, a.Detail)
	}
	t.server.waitFlight(ended, "has failed", waitTimeout, func(f wireFlight) bool { return f.State == "failed" })
	require.EqualValues(t, 2, t.server.flight(ended).Attempts)
	t.waitHistory(ended, "this client cannot read the job: ")
	require.Len(t, t.charges(), 3)
}

// closedClientClaimsNothing: the end of a client ends its worker.
func closedClientClaimsNothing(t *trial) {
	w := t.worker()
	eventually(t, "it claims", waitTimeout, func() bool { return len(t.proxy.requests(":claim")) > 0 })
	require.Equal(t, "closed", w.do(call{Close: true}).Source)
	eventually(t, "its session is closed", waitTimeout, func() bool { return len(t.proxy.requests("/close")) > 0 })
	before := len(t.proxy.requests(":claim"))
	p := t.submitter().begin(t.call(submit(1)))
	t.waitFlight("is queued", func(f wireFlight) bool { return f.State == "ready" })
	<-time.After(time.Second)
	require.LessOrEqual(t, len(t.proxy.requests(":claim")), before+1, "at most the repeat of the claim that was sent before")
	require.Empty(t, t.providerRequests())
	t.worker()
	a := p.waitOne()
	require.Empty(t, a.Error, a.Detail)
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
