package cluster

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/flightd/flightd/chaos/linear"
	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

// callersEnv has the settings of the callers' process, as JSON.
const callersEnv = "FLIGHTD_CHAOS_CALLERS"

// callersConfig is what a process of callers needs.
type callersConfig struct {
	Nodes     []string // names
	URLs      []string // of the nodes
	Addresses []string // of each client that calls: the URLs of some nodes, as clients take them
	Provider  string   // URL
	Token     string
	Spool     string
	Seed      uint64
	// Part and Parts say which callers of a load are of this process: each Parts-th one, from Part on.
	Part, Parts int
	policyTimes
	SessionMS int64  // of a worker: the time to live of its session
	MutexEtcd string // of the experiment with locks, in which a worker updates registers: the URL of the mutex's etcd
}

type policyTimes struct{ WindowMS, SettleMS int64 } // of the policies resend and verify

// order is a line that each process of callers reads. A process carries out several orders at once, and answers each one with
// event.Done. The callers in Python and TypeScript know load and close, and have nothing to do for the others.
type order struct {
	Do   string // load, pace, person, operations, approvals, callbacks, jobs, jobs at work, sagas, saga ends, lanes, flags, replay, close; or stop, which lets the order Name end its calls
	Name string

	Callers   int           // load: number of callers, of all languages together
	MaxKeys   int           // load: of each caller
	Count     int           // approvals, jobs, jobs at work, sagas: how many
	Lasts     time.Duration // load: of a long effect; sagas: how long one is waited for; operations: how long keys are erased
	LongOneIn int           // load: one in LongOneIn effects is long; 0: no effect is long
	Every     time.Duration // pace, callbacks: time between two starts; else: mean pause of a caller
	Keys      []string      // replay, flags
}

// callers is the process of the callers in Go. It runs on a host of its own and lives as long as the experiment.
type callers struct {
	cfg     callersConfig
	mixed   []*client.Client          // of several nodes
	only    map[string]*client.Client // of one node
	single  map[string]*client.Client // of one node, which is asked once
	network *http.Transport           // to the provider

	writing sync.Mutex // one event at a time
	out     io.Writer

	mu     sync.Mutex // guards the fields below
	stops  map[string]chan struct{}
	doubts map[string]time.Time // when the person first saw each
	sagas  []*SagaEnd
}

// runCallers carries out orders until its input ends.
func runCallers(settings string, in io.Reader, out io.Writer) error {
	c := &callers{out: out, network: &http.Transport{}, only: make(map[string]*client.Client), single: make(map[string]*client.Client), stops: make(map[string]chan struct{}), doubts: make(map[string]time.Time)}
	if err := json.Unmarshal([]byte(settings), &c.cfg); err != nil {
		return err
	}
	if err := c.connect(); err != nil {
		return err
	}
	c.say(&event{Done: "connected"})
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
	var running sync.WaitGroup
	for lines.Scan() {
		var o order
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return err
		}
		c.mu.Lock()
		stop := c.stops[o.Name]
		if stop == nil {
			stop = make(chan struct{})
			c.stops[o.Name] = stop
		}
		c.mu.Unlock()
		if o.Do == "stop" {
			close(stop)
			continue
		}
		running.Go(func() {
			c.carryOut(&o, stop)
			c.say(&event{Done: o.Name})
		})
	}
	running.Wait()
	return lines.Err()
}

func (c *callers) connect() error {
	open := func(name, servers string, more ...client.Option) (*client.Client, error) {
		return client.Connect(context.Background(), servers, append([]client.Option{client.WithToken(c.cfg.Token), client.WithPlainHTTP(), client.WithOwner(name),
			client.WithSpool(filepath.Join(c.cfg.Spool, name)), client.WithLogger(slog.Default().With("client", name))}, more...)...)
	}
	for i, addresses := range c.cfg.Addresses {
		mixed, err := open(fmt.Sprint("mixed-", i), addresses)
		if err != nil {
			return err
		}
		c.mixed = append(c.mixed, mixed)
	}
	for i, node := range c.cfg.Nodes {
		var err error
		if c.only[node], err = open("only-"+node, c.cfg.URLs[i]); err != nil {
			return err
		}
		if c.single[node], err = open("single-"+node, c.cfg.URLs[i], client.WithRetryTimeout(time.Millisecond)); err != nil {
			return err
		}
	}
	return nil
}

func (c *callers) say(e *event) {
	text, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	_, _ = c.out.Write(append(text, '\n')) // the test that reads has gone
}

func (c *callers) carryOut(o *order, stop <-chan struct{}) {
	var group sync.WaitGroup
	defer group.Wait()
	switch o.Do {
	case "load":
		for i := c.cfg.Part; i < o.Callers; i += c.cfg.Parts {
			group.Go(func() { c.load(o, i, stop) })
		}
	case "pace":
		c.every(o.Every, stop, func(i int) {
			group.Go(func() {
				c.callUntilEnd(c.mixed[i%len(c.mixed)], fmt.Sprint(o.Name, i), fmt.Sprintf("hold/%s-%d", o.Name, i), 0)
			})
		})
	case "replay":
		slots := make(chan struct{}, 24)
		for _, key := range o.Keys {
			for _, node := range c.cfg.Nodes {
				slots <- struct{}{}
				group.Go(func() {
					c.replay(node, key)
					<-slots
				})
			}
		}
	case "jobs":
		c.submitJobs(jobsOf(o.Count), o.Every, stop)
	case "jobs at work":
		c.submitAtWork(jobsAtWork(o.Count))
	case "person":
		c.every(o.Every, stop, func(int) { c.decideAll(10 * time.Second) })
		for until := time.Now().Add(time.Minute); time.Now().Before(until) && c.decideAll(0) > 0; {
			time.Sleep(500 * time.Millisecond)
		}
	case "approvals":
		c.runApprovals(o)
	case "callbacks":
		c.runCallbacks(o, stop)
	case "operations":
		ctx, cancel := context.WithCancel(context.Background())
		go func() { // ends with stop
			<-stop
			cancel()
		}()
		linear.Run(ctx, c.mixed[:3], c.readers(), c.cfg.Seed, o.Every, o.Lasts, func(op linear.Op) { c.say(&event{Op: &op}) })
	case "sagas":
		c.runSagas(o, stop)
	case "saga ends":
		c.readSagas()
	case "lanes":
		c.submitLanes(stop)
	case "flags":
		c.readFlags(o.Keys)
	case "close":
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		for _, mixed := range c.mixed {
			group.Go(func() {
				if err := mixed.Close(ctx); err != nil {
					slog.Error("a client was not closed", "error", err)
				}
			})
		}
		group.Wait()
	default:
		panic("unknown order " + o.Do)
	}
}

// every calls f with 0, 1 and so on until stop is closed.
func (c *callers) every(pause time.Duration, stop <-chan struct{}, f func(int)) {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for i := 0; ; i++ {
		f(i)
		select {
		case <-stop:
			return
		case <-tick.C:
		}
	}
}

// load is one caller, which uses one key after the other. Every fourth key is shared by four callers of all languages, who use it
// at about the same time.
func (c *callers) load(o *order, caller int, stop <-chan struct{}) {
	random := rand.New(rand.NewPCG(c.cfg.Seed, uint64(caller)))
	for step := 0; step < o.MaxKeys; step++ {
		key := fmt.Sprintf("%s/%s-%d-%d", recoveries[random.IntN(3)], o.Name, caller, step)
		if step%4 == 3 {
			key = fmt.Sprintf("%s/%s-shared-%d-%d", recoveries[step/4%3], o.Name, caller/4, step)
		}
		lasts := time.Duration(random.IntN(20)) * time.Millisecond
		if o.LongOneIn > 0 && random.IntN(o.LongOneIn) == 0 {
			lasts = o.Lasts
		}
		succeeded := c.callUntilEnd(c.mixed[caller%len(c.mixed)], fmt.Sprint(o.Name, caller), key, lasts)
		if succeeded && step%8 == 5 {
			c.callWithAnotherInput(c.mixed[caller%len(c.mixed)], fmt.Sprint(o.Name, caller), key)
		}
		select {
		case <-stop:
			return
		case <-time.After(o.Every/2 + rand.N(o.Every)):
		}
	}
}

// callOf returns the call of a key. Callers in all languages send the same input, and get the same fingerprint.
func (c *callers) callOf(key flight.Key) effect.Call {
	input, err := json.Marshal(effectRequest{Key: key.String()})
	if err != nil {
		panic(err)
	}
	fingerprint, err := flight.FingerprintJSON(input, nil)
	if err != nil {
		panic(err)
	}
	return effect.Call{Key: key, Wait: 20 * time.Second, LookUp: c.lookUp, Callback: key.Name() == actionCallback, Submission: flight.Submission{
		Fingerprint: fingerprint, Input: flight.NewBlob(wire.TypeJSON, input, flight.MaxInput), Policy: policyOf(recoveryOf(key.String())),
	}}
}

// callUntilEnd calls a key until there is an answer that another call would not change. It reports whether that is a receipt.
func (c *callers) callUntilEnd(by *client.Client, caller, name string, lasts time.Duration) bool {
	key := flight.MustKey("default/" + name)
	call := c.callOf(key)
	handler := func(ctx context.Context, at *effect.Attempt) (effect.Answer, error) { return c.act(ctx, at, lasts) }
	for until := time.Now().Add(3 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		record := &Call{Key: key.String(), Caller: caller, Lasts: lasts, Began: time.Now()}
		result, err := by.Do(context.Background(), call, handler)
		record.Ended, record.Result = time.Now(), resultOf(err)
		record.Source, record.Attempt, record.Body, record.Digest = result.Source.String(), result.Attempt, string(result.Answer.Body), result.Digest.String()
		if err != nil {
			record.Err = fmt.Sprintf("%T: %v", err, err)
		}
		c.say(&event{Call: record})
		switch record.Result {
		case resultSucceeded, resultInDoubt, resultOther:
			return record.Result == resultSucceeded
		}
		if time.Now().After(until) {
			return false
		}
	}
}

// readers returns a reader for each node.
func (c *callers) readers() (all []linear.Reader) {
	for _, url := range c.cfg.URLs {
		all = append(all, func(ctx context.Context, id flight.ID) (*client.Flight, error) {
			f := new(client.Flight)
			return f, getJSON(ctx, &http.Client{Transport: c.network}, url+"/v1/flights/"+id.String(), c.cfg.Token, f)
		})
	}
	return all
}

// getJSON gets what a node says at a URL.
func getJSON(ctx context.Context, with *http.Client, url, token string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	request.Header.Set(wire.HeaderAuthorization, "Bearer "+token)
	answer, err := with.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, answer.Status)
	}
	return json.NewDecoder(answer.Body).Decode(into)
}

// callWithAnotherInput calls a key that was used with another input. It must be refused.
func (c *callers) callWithAnotherInput(by *client.Client, caller, name string) {
	key := flight.MustKey("default/" + name)
	call := c.callOf(key)
	call.Submission.Fingerprint = flight.FingerprintBytes([]byte("another input"))
	record := &Call{Key: key.String(), Caller: caller + " with another input", Began: time.Now(), Result: resultOther, Err: "another input was not refused"}
	_, err := by.Do(context.Background(), call, func(ctx context.Context, at *effect.Attempt) (effect.Answer, error) { return c.act(ctx, at, 0) })
	record.Ended = time.Now()
	var conflict *effect.Conflict
	switch {
	case err == nil:
		c.say(&event{Call: record})
	case errors.As(err, &conflict):
		c.say(&event{Conflict: true})
	}
}

// decideAll decides, as a person would, what has become of the effects of calls that have been in doubt for a while, by the provider's
// books. Jobs and sagas have a person of their own. It returns how many are in doubt, or 1 if it could not see that.
func (c *callers) decideAll(olderThan time.Duration) (left int) {
	for _, recovery := range append(recoveries[:], actionCallback, actionExec) {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		var deciding sync.WaitGroup
		page, err := c.mixed[0].List(ctx, client.Query{States: []string{"in_doubt"}, Action: recovery, Limit: 200})
		if err != nil {
			slog.Warn("a person cannot see the doubts", "error", err)
			left++
		} else {
			for i := range page.Flights {
				f := &page.Flights[i]
				if isJob(f.Key) || isStep(f.Key) {
					continue
				}
				left++
				if c.doubtLasts(f.Key+f.Version) >= olderThan {
					deciding.Go(func() {
						if err := c.decideDoubt(ctx, c.mixed[0], flight.MustKey(f.Key), f.Version); err != nil {
							slog.Warn("a person could not decide", "key", f.Key, "error", err)
						}
					})
				}
			}
		}
		deciding.Wait()
		cancel()
	}
	return left
}

// doubtLasts returns how long ago the person first saw a doubt.
func (c *callers) doubtLasts(doubt string) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.doubts[doubt].IsZero() {
		c.doubts[doubt] = time.Now()
	}
	return time.Since(c.doubts[doubt])
}

func resultOf(err error) string {
	var unsettled *effect.Unsettled
	var unrecorded *effect.Unrecorded
	switch {
	case errors.As(err, new(*effect.Suspended)):
		return resultSuspended
	case err == nil:
		return resultSucceeded
	case errors.As(err, new(*effect.InDoubt)):
		return resultInDoubt
	case errors.As(err, &unrecorded) && unrecorded.Result.Outcome == flight.OutcomeNotDone:
		return resultUnavailable
	case unrecorded != nil && unrecorded.Result.Outcome == flight.OutcomeUnknown:
		return resultUnsettled
	case unrecorded != nil:
		return resultUnrecorded
	case errors.As(err, new(*effect.Busy)), errors.As(err, new(*effect.Unavailable)), errors.As(err, &unsettled) && unsettled.Outcome == flight.OutcomeNotDone:
		return resultUnavailable
	case unsettled != nil:
		return resultUnsettled
	case errors.As(err, new(*effect.Fenced)):
		return resultFenced
	}
	return resultOther
}

func policyOf(recovery string) flight.Policy {
	switch recovery {
	case recoveryResend:
		return flight.Policy{Recovery: flight.RecoveryResend, ProviderWindow: providerWindow}
	case recoveryVerify:
		return flight.Policy{Recovery: flight.RecoveryVerify, SettleDelay: settleDelay}
	}
	return flight.Policy{}
}

func (c *callers) act(ctx context.Context, at *effect.Attempt, lasts time.Duration) (effect.Answer, error) {
	if rand.IntN(30) == 0 {
		time.Sleep(rand.N(6 * time.Second)) // of work before the request
	}
	body, err := json.Marshal(effectRequest{Key: at.Key().String(), LastsMS: lasts.Milliseconds(), CallBack: at.CallbackURL()})
	if err != nil {
		return effect.Answer{}, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.cfg.Provider+"/effects", strings.NewReader(string(body)))
	if err != nil {
		return effect.Answer{}, err
	}
	answer, err := effect.FromHTTP((&http.Client{Transport: at.Transport(c.network)}).Do(request))
	if err == nil && at.CallbackURL() != "" {
		return effect.Answer{}, at.Suspend(ctx, time.Minute)
	}
	return answer, err
}

func (c *callers) lookUp(ctx context.Context, at *effect.Attempt) (flight.Finding, effect.Answer, error) {
	return c.find(ctx, at.Key())
}

// find asks the provider whether the effect of a key has happened.
func (c *callers) find(ctx context.Context, key flight.Key) (flight.Finding, effect.Answer, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.cfg.Provider+"/effects?key="+url.QueryEscape(key.String()), http.NoBody)
	if err != nil {
		return flight.FindingNone, effect.Answer{}, err
	}
	response, err := (&http.Client{Transport: c.network}).Do(request)
	if err == nil && response.StatusCode == http.StatusNotFound {
		return flight.FindingNotHappened, effect.Answer{}, response.Body.Close()
	}
	found, err := effect.FromHTTP(response, err)
	return flight.FindingHappened, found, err
}

// codeOf returns the code of a problem, or "unreachable" when no server answered.
func codeOf(err error) string {
	var unavailable *effect.Unavailable
	switch code := client.CodeOf(err); {
	case code != "":
		return string(code)
	case errors.As(err, &unavailable):
		return unavailable.Code
	}
	return "error"
}

// replay asks one node for a key that must not be performed again.
func (c *callers) replay(node, key string) {
	r := &Reading{Key: key, Node: node}
	defer func() { c.say(&event{Reading: r}) }()
	id := flight.MustKey(key)
	result, err := c.only[node].Do(context.Background(), c.callOf(id), func(context.Context, *effect.Attempt) (effect.Answer, error) {
		return effect.Answer{}, effect.NotDone(errors.New("the key was opened again"))
	})
	if err != nil {
		r.Err = err.Error()
		return
	}
	r.Source, r.Body, r.Digest = result.Source.String(), string(result.Answer.Body), result.Digest.String()
	f, err := c.only[node].Flight(context.Background(), id.FlightID())
	if err != nil {
		r.Err = err.Error()
		return
	}
	r.State, r.Overlap, r.Evidence = f.State, f.Overlap, len(f.Evidence)
	if node != c.cfg.Nodes[0] {
		return // one node's history of attempts is enough
	}
	history, err := c.only[node].History(context.Background(), id.FlightID())
	if err != nil {
		r.Err = err.Error()
		return
	}
	for i := range history.Events {
		if history.Events[i].Kind == flight.EventLost.String() {
			r.Lost++
		}
	}
}
