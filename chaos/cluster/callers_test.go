//go:build chaos

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
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

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
	Part, Parts        int
	WindowMS, SettleMS int64 // of the policies resend and verify
	SessionMS          int64 // of a worker: the time to live of its session
	Slots              int   // of a worker: how many jobs it performs at once
}

// order is a line that each process of callers reads. A process carries out several orders at once, and answers each one with
// event.Done. The callers in Python and TypeScript know load and close, and have nothing to do for the others.
type order struct {
	Do   string // load, flights, pace, probe, read, replay, jobs, close; or stop, which lets the order Name end its calls
	Name string

	Callers   int           // load: number of callers, of all languages together; flights: of each key
	MaxKeys   int           // load: of each caller
	Count     int           // flights, jobs: how many
	Lasts     time.Duration // flights: of each effect; load: of a long one
	LongOneIn int           // load: one in LongOneIn effects is long; 0: no effect is long
	Recovery  []string      // flights: taken in turn
	Every     time.Duration // pace, probe, read: time between two starts; load, jobs: mean pause of a caller
	Node      string        // probe, read
	Keys      []string      // replay
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

	mu    sync.Mutex // guards the fields below
	stops map[string]chan struct{}
	acked []*Call // the last successes
}

// runCallers carries out orders until its input ends.
func runCallers(settings string, in io.Reader, out io.Writer) error {
	c := &callers{out: out, network: &http.Transport{}, only: make(map[string]*client.Client), single: make(map[string]*client.Client), stops: make(map[string]chan struct{})}
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
	case "flights":
		for i := range o.Count * o.Callers {
			key := fmt.Sprintf("%s/%s-%d", o.Recovery[i%o.Count%len(o.Recovery)], o.Name, i%o.Count)
			group.Go(func() { c.callUntilEnd(c.mixed[(i+i/o.Count)%len(c.mixed)], fmt.Sprint(o.Name, i), key, o.Lasts) })
		}
	case "pace":
		c.every(o.Every, stop, func(i int) {
			group.Go(func() {
				c.callUntilEnd(c.mixed[i%len(c.mixed)], fmt.Sprint(o.Name, i), fmt.Sprintf("hold/%s-%d", o.Name, i), 0)
			})
		})
	case "probe":
		c.every(o.Every, stop, func(i int) {
			group.Go(func() { c.probeOpen(o.Node, fmt.Sprintf("hold/%s-%d", o.Name, i)) })
			group.Go(func() { c.probeRead(o.Node) })
		})
	case "read":
		c.every(o.Every, stop, func(int) { group.Go(func() { c.probeRead(o.Node) }) })
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
		c.submitJobs(jobsOf(o.Count), o.Every)
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
	recoveries := []string{recoveryHold, recoveryResend, recoveryVerify}
	for step := 0; step < o.MaxKeys; step++ {
		key := fmt.Sprintf("%s/%s-%d-%d", recoveries[random.IntN(3)], o.Name, caller, step)
		if step%4 == 3 {
			key = fmt.Sprintf("%s/%s-shared-%d-%d", recoveries[step/4%3], o.Name, caller/4, step)
		}
		lasts := time.Duration(random.IntN(20)) * time.Millisecond
		if o.LongOneIn > 0 && random.IntN(o.LongOneIn) == 0 {
			lasts = o.Lasts
		}
		c.callUntilEnd(c.mixed[caller%len(c.mixed)], fmt.Sprint(o.Name, caller), key, lasts)
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
	return effect.Call{Key: key, Wait: 20 * time.Second, LookUp: c.lookUp, Submission: flight.Submission{
		Fingerprint: fingerprint, Input: flight.NewBlob(wire.TypeJSON, input, flight.MaxInput), Policy: policyOf(recoveryOf(key.String())),
	}}
}

// callUntilEnd calls a key until there is an answer that another call would not change.
func (c *callers) callUntilEnd(by *client.Client, caller, name string, lasts time.Duration) {
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
		case resultSucceeded:
			c.acknowledged(record)
			return
		case resultInDoubt, resultOther:
			return
		}
		if time.Now().After(until) {
			return
		}
	}
}

func resultOf(err error) string {
	var doubt *effect.InDoubt
	var unrecorded *effect.Unrecorded
	var busy *effect.Busy
	var unavailable *effect.Unavailable
	var unsettled *effect.Unsettled
	var fenced *effect.Fenced
	switch {
	case err == nil:
		return resultSucceeded
	case errors.As(err, &doubt):
		return resultInDoubt
	case errors.As(err, &unrecorded):
		return resultUnrecorded
	case errors.As(err, &busy), errors.As(err, &unavailable), errors.As(err, &unsettled) && unsettled.Outcome == flight.OutcomeNotDone:
		return resultUnavailable
	case errors.As(err, &fenced):
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
	body, err := json.Marshal(effectRequest{Key: at.Key().String(), LastsMS: lasts.Milliseconds()})
	if err != nil {
		return effect.Answer{}, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.cfg.Provider+"/effects", strings.NewReader(string(body)))
	if err != nil {
		return effect.Answer{}, err
	}
	return effect.FromHTTP((&http.Client{Transport: at.Transport(c.network)}).Do(request))
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

// acknowledged remembers the last successes, for probes.
func (c *callers) acknowledged(success *Call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.acked = append(c.acked, success); len(c.acked) > 50 {
		c.acked = c.acked[1:]
	}
}

// probeOpen asks one node, once, to open a new key.
func (c *callers) probeOpen(node, name string) {
	key := flight.MustKey("default/" + name)
	p := &Probe{Node: node, Key: key.String(), Open: true, Began: time.Now()}
	answered, err := c.single[node].Open(context.Background(), key, client.OpenRequest{})
	p.Ended = time.Now()
	if p.Answer = answered.Decision; err != nil {
		p.Answer, p.Err = codeOf(err), err.Error()
	}
	c.say(&event{Probe: p})
}

// probeRead asks one node, once, for a key that was acknowledged lately.
func (c *callers) probeRead(node string) {
	c.mu.Lock()
	if len(c.acked) == 0 {
		c.mu.Unlock()
		return
	}
	acked := c.acked[rand.IntN(len(c.acked))]
	c.mu.Unlock()
	p := &Probe{Node: node, Key: acked.Key, Began: time.Now()}
	f, err := c.single[node].Flight(context.Background(), flight.MustKey(acked.Key).FlightID())
	p.Ended = time.Now()
	if err != nil {
		p.Answer, p.Err = codeOf(err), err.Error()
	} else if p.Answer = f.State; f.Receipt != nil {
		p.Digest = f.Receipt.Digest
	}
	c.say(&event{Probe: p})
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
	r.State, r.Attempts, r.Overlap, r.Evidence = f.State, f.Attempts, f.Overlap, len(f.Evidence)
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

// spooledFiles returns the reports in a spool of the callers, also those that were rejected.
func spooledFiles(spool string) (files []string, err error) {
	err = filepath.WalkDir(spool, func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			files = append(files, path)
		}
		return err
	})
	return files, err
}
