package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

// workerEnv has the name of a worker: then callersEnv has its settings.
const workerEnv = "FLIGHTD_CHAOS_WORKER"

const (
	// workerSession is the time to live of the workers' sessions.
	workerSession = 5 * time.Second
	// workerSlots is how many jobs a worker performs at once.
	workerSlots = 8
	// laneLength is how many jobs a lane gets. It is also the length of the rows of jobs without a lane.
	laneLength = 20
)

// jobsOf returns the jobs of an experiment: of each recovery two lanes of limit 1, one of limit 2, and jobs without a lane, in turn.
func jobsOf(count int) (jobs []Job) {
	for i := range count {
		row := i / laneLength
		j := Job{Key: fmt.Sprintf("default/%s/job-%d", recoveries[row%3], i), Lasts: time.Duration(10+i*7%190) * time.Millisecond}
		if i%5 == 2 {
			j.Lasts = time.Duration(2000+i*37%3000) * time.Millisecond // so that a worker that is killed is mostly at work
		}
		if kind := row / 3 % 4; kind < 3 {
			j.Lane, j.Limit = fmt.Sprint("customer/", row), 1+kind/2
		} else if i%10 == 7 && i < count*3/4 { // later ones would make the end of the run late
			j.TimeOut = time.Second
			j.Lasts += flight.PauseBound // until then a client waits for its handler
		}
		jobs = append(jobs, j)
	}
	return jobs
}

// jobsAtWork returns jobs that are under way when workers die.
func jobsAtWork(count int) (jobs []Job) {
	for i := range count {
		jobs = append(jobs, Job{Key: fmt.Sprintf("default/%s%s%d", recoveries[i%3], atWork, i), Lasts: 8 * time.Second})
	}
	return jobs
}

// atWork is part of the keys of jobsAtWork.
const atWork = "/job-at-work-"

// runWorker performs jobs until the process gets SIGTERM.
func runWorker(settings, name string, out io.Writer) error {
	c := &callers{network: &http.Transport{}}
	if err := json.Unmarshal([]byte(settings), &c.cfg); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	by, err := client.Connect(ctx, strings.Join(c.cfg.URLs, ","), client.WithToken(c.cfg.Token), client.WithPlainHTTP(), client.WithOwner(name),
		client.WithSpool(filepath.Join(c.cfg.Spool, name)), client.WithSessionTTL(time.Duration(c.cfg.SessionMS)*time.Millisecond))
	if err != nil {
		return err
	}
	slots := workerSlots
	if c.cfg.MutexEtcd != "" {
		slots = 1 // as many as a worker with a mutex
	}
	w := by.Worker(client.Concurrency(slots))
	perform := func(ctx context.Context, at client.Attempt, in effectRequest) (json.RawMessage, error) {
		if c.cfg.MutexEtcd != "" {
			answer, err := c.update(ctx, at.Key().String(), at.Transport(c.network))
			return answer.Body, err
		}
		if in.Hangs {
			ctx = context.WithoutCancel(ctx)
		}
		answer, err := c.act(ctx, at, time.Duration(in.LastsMS)*time.Millisecond)
		return answer.Body, err
	}
	client.Work(w, recoveryHold, perform)
	client.Work(w, recoveryResend, perform)
	client.Work(w, actionApproved, perform)
	client.Work(w, recoveryVerify, perform, client.Verify(func(ctx context.Context, at client.Attempt) (*json.RawMessage, error) {
		finding, answer, err := c.find(ctx, at.Key())
		if err != nil || finding != flight.FindingHappened {
			return nil, err
		}
		return (*json.RawMessage)(&answer.Body), nil
	}, settleDelay))
	_, _ = fmt.Fprintln(out, "ready")
	err = w.Run(ctx)
	closing, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return errors.Join(err, by.Close(closing))
}

// submitters is how many lanes get jobs at once.
const submitters = 32

// submitJobs submits jobs, those of a lane one after the other with pauses until stop is closed, and waits until all are over.
func (c *callers) submitJobs(jobs []Job, pause time.Duration, stop <-chan struct{}) {
	var lanes sync.WaitGroup
	submitting, waiting := make(chan struct{}, submitters), make(chan struct{}, 128)
	for lane := range slices.Chunk(jobs, laneLength) {
		ends := make([]JobEnd, len(lane))
		submitting <- struct{}{}
		lanes.Go(func() {
			for i := range lane {
				ends[i].Queued = c.submitJob(&lane[i])
				select {
				case <-time.After(rand.N(2 * pause)):
				case <-stop:
				}
			}
			<-submitting
			waiting <- struct{}{}
			for i := range lane {
				ends[i].Key = lane[i].Key
				c.awaitJob(&ends[i])
				c.say(&event{JobEnd: &ends[i]})
			}
			<-waiting
		})
	}
	lanes.Wait()
}

// submitJob submits a job three times at once, at different nodes. Some answers are lost: the submission is then repeated at the
// next node. It returns how often it was told that the job is new.
func (c *callers) submitJob(j *Job) int {
	key := flight.MustKey(j.Key)
	policy := policyOf(recoveryOf(j.Key))
	policy.AttemptTimeout = j.TimeOut
	opts := []client.JobOption{client.JobPolicy(policy)}
	if j.Lane != "" {
		opts = append(opts, client.Lane(j.Lane), client.LaneLimit(j.Limit))
	}
	input := effectRequest{Key: j.Key, LastsMS: j.Lasts.Milliseconds(), Hangs: j.TimeOut > 0}
	var copies sync.WaitGroup
	var queued atomic.Int32
	for first := range 3 {
		copies.Go(func() {
			c.askNodes(first, func(ctx context.Context, node *client.Client) error {
				job, err := node.Submit(ctx, client.Key(key.Name(), key.BusinessID()), input, opts...)
				if err == nil && job.Status == client.Queued {
					queued.Add(1)
				}
				return err
			})
		})
	}
	copies.Wait()
	return int(queued.Load())
}

// submitAtWork submits jobs some of whose workers die. It waits until the attempts of the dead are declared lost, and until all jobs are over.
func (c *callers) submitAtWork(jobs []Job) {
	var waiting sync.WaitGroup
	for i := range jobs {
		waiting.Go(func() {
			key, end := flight.MustKey(jobs[i].Key), JobEnd{Key: jobs[i].Key, Queued: c.submitJob(&jobs[i])}
			for over := false; end.Lost.IsZero() && !over; time.Sleep(50 * time.Millisecond) {
				f, err := c.mixed[0].Flight(context.Background(), key.FlightID())
				if over = err == nil && f.State == "succeeded"; err == nil && f.LastAttempt != nil && (f.LastAttempt.Lost || f.LastAttempt.Attempt > 1) {
					end.Lost = time.Now()
				}
			}
			c.awaitJob(&end)
			c.say(&event{JobEnd: &end})
		})
	}
	waiting.Wait()
}

// askNodes asks one node after the other until there is an answer. One request in four has so little time that its answer may be lost.
func (c *callers) askNodes(first int, ask func(ctx context.Context, node *client.Client) error) {
	for n := first; ; n++ {
		within := 5 * time.Second
		if rand.IntN(4) == 0 {
			within = rand.N(20 * time.Millisecond)
		}
		ctx, cancel := context.WithTimeout(context.Background(), within)
		err := ask(ctx, c.single[c.cfg.Nodes[n%len(c.cfg.Nodes)]])
		cancel()
		if err == nil {
			return
		}
		time.Sleep(rand.N(50 * time.Millisecond))
	}
}

// awaitJob waits until a job is over. It decides doubts by the provider's books, as a person would.
func (c *callers) awaitJob(end *JobEnd) {
	key, by := flight.MustKey(end.Key), c.mixed[rand.IntN(len(c.mixed))]
	for until := time.Now().Add(5 * time.Minute); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
		ctx, cancel := context.WithDeadline(context.Background(), until)
		result, err := by.WaitResult(ctx, key)
		var doubt *effect.InDoubt
		if errors.As(err, &doubt) {
			err = c.decideDoubt(ctx, by, doubt.Key, doubt.Version.String())
			end.Doubts++
		} else if err == nil {
			end.Body = compact(string(result.Answer.Body))
		}
		cancel()
		if end.Body != "" {
			return
		}
		if err != nil {
			end.Err = fmt.Sprintf("%T: %v", err, err)
		}
	}
}

// decideDoubt decides a doubt by the provider's books, as a person would who has seen this version of the flight.
func (c *callers) decideDoubt(ctx context.Context, by *client.Client, key flight.Key, version string) error {
	time.Sleep(2 * lookUpLag) // a person takes a moment, and the provider tells of an effect a little later
	finding, answer, err := c.find(ctx, key)
	if err != nil {
		return err
	}
	r := client.ResolveRequest{Result: "not_happened", Reason: "the provider's books"}
	if finding == flight.FindingHappened {
		if r.Result = "happened"; isStep(key.String()) || isJob(key.String()) || key.Name() == actionApproved {
			r.JSON = []byte(compact(string(answer.Body)))
		} else {
			r.Base64, r.ContentType = answer.Body, wire.TypeJSON // byte for byte
		}
	}
	_, err = by.Resolve(ctx, key.FlightID(), version, r)
	return err
}
