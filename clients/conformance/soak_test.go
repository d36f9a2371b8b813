//go:build clients

package conformance

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
)

// soakSpan is the time during which a soak injects faults.
const soakSpan = 12 * time.Second

// TestSoak runs clients of all languages with the same keys under random faults. Requests and answers are lost,
// delayed, duplicated, exchanged and replaced. In two of three seeds flightd is killed, restarted and frozen, in one of
// them callers are, too, for longer than a lease lives. In the third seed nobody is killed, and the network copies, delays
// and exchanges twice as much. FLIGHTD_SOAKS is the number of seeds. FLIGHTD_SOAK_SEED repeats one seed, except for the
// timing of the processes.
//
// With FLIGHTD_CLIENTS_NODES, every proxy gives each request to another node of a cluster, and nodes are killed in turn, or frozen. In
// one of six seeds etcd has no majority at the end, while all callers are killed.
func TestSoak(t *testing.T) {
	runSeeds(t, func(t *evidence, seed uint64) {
		s := newSoak(t, seed, newServer(t))
		s.run()
		s.check()
	})
}

func runSeeds(t *testing.T, run func(t *evidence, seed uint64)) {
	seeds := []uint64{rand.Uint64() / 3 * 3}
	if given := os.Getenv("FLIGHTD_SOAK_SEED"); given != "" {
		seed, err := strconv.ParseUint(given, 10, 64)
		require.NoError(t, err)
		seeds = []uint64{seed}
	} else {
		n, _ := strconv.Atoi(os.Getenv("FLIGHTD_SOAKS"))
		for range max(n, 3) - 1 {
			seeds = append(seeds, seeds[len(seeds)-1]+1)
		}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { run(newEvidence(t, seed), seed) })
	}
}

// stallTime is shorter than the disk stall at which flightd exits, and longer than a short lease lives.
const stallTime = 4 * time.Second

// sweepTime limits the time to notice the end of a session and to verify the outcome.
const sweepTime = 5 * time.Second

// outageTime is longer than etcd may be away from a node of a cluster without consequences, and shorter than a disk stall.
const outageTime = 3500 * time.Millisecond

// soak is one run of TestSoak. Where no caller is killed or frozen, a flight without a request is never in doubt. Where
// flightd is not killed either, and the provider tells all outcomes, no caller is ever told of a doubt.
type soak struct {
	*evidence
	seed           uint64
	rnd            *lockedRand
	callersHealthy bool
	allHealthy     bool
	server         *server
	kills          int           // of flightd, so far
	longest        time.Duration // that a last call took
	lag            func()        // changes the lag of a node; nil: the nodes are processes
	provider       *soakProvider
	spool          string
	slots          []*callerSlot
	swaps          chan offer     // shared by all proxies
	callers        sync.WaitGroup // run waits for them

	mu       sync.Mutex
	usedKeys map[int]bool        // numbers of the keys in use
	answers  map[string][]answer // answers to the callers, by id
}

// callerSlot holds a driver process, and its successor after the process was killed.
type callerSlot struct {
	language language
	proxy    *proxy
	env      []string

	mu      sync.Mutex
	d       *driver
	killed  chan struct{}  // closed when d is killed
	waiting map[string]int // callers by id
}

// lockedRand is a random source for concurrent use.
type lockedRand struct {
	mu  sync.Mutex
	rnd *rand.Rand
}

func (r *lockedRand) intN(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rnd.IntN(n)
}

func (r *lockedRand) duration(most time.Duration) time.Duration {
	return time.Duration(r.intN(int(most)))
}

func newSoak(t *evidence, seed uint64, h *server) *soak {
	s := &soak{evidence: t, seed: seed, rnd: &lockedRand{rnd: rand.New(rand.NewPCG(seed, 3))}, callersHealthy: seed%3 < 2, allHealthy: seed%3 == 0, server: h, spool: t.TempDir(),
		swaps: make(chan offer), usedKeys: map[int]bool{}, answers: map[string][]answer{}}
	s.provider = newSoakProvider(t, s.rnd)
	s.provider.tellsOutcomes = s.allHealthy
	for _, l := range languages() {
		if !wanted()[l.name] {
			continue
		}
		l.requireReady(t)
		for i := range 2 {
			slot := &callerSlot{language: l, proxy: newProxy(t, s.server), waiting: map[string]int{}}
			if i == 1 {
				slot.env = []string{fmt.Sprint("FLIGHTD_TEST_PAUSES=", seed)} // read by the driver in Python
			}
			slot.proxy.swaps = s.swaps
			s.slots = append(s.slots, slot)
			s.restart(slot)
		}
	}
	return s
}

// restart starts a new process in a slot and kills the old one. Calls of the old process end by the closed channel.
func (s *soak) restart(slot *callerSlot) {
	slot.mu.Lock()
	defer slot.mu.Unlock()
	if slot.d != nil {
		close(slot.killed)
		slot.d.signal(syscall.SIGKILL)
	}
	slot.d, slot.killed = newDriver(s, slot.language, setup{Address: slot.proxy.url, Spool: s.spool, TTL: int(s.ttl() / time.Second),
		RetryTimeoutMS: 3000, ReportWaitMS: 1000, env: slices.Concat(slot.env, s.server.credentialFiles())}), make(chan struct{})
}

// ttl is the session's TTL: short if leases are to be lost, else long enough for clients to abandon unanswered opens, or
// to renew it all the same.
func (s *soak) ttl() time.Duration {
	switch {
	case s.allHealthy:
		return 8 * shortTTL
	case s.callersHealthy:
		return 3 * shortTTL
	}
	return shortTTL
}

// begin sends a call to the slot's process. The channel is closed when that process is killed. joins says that the call may get the
// answer to one that another caller of the process has begun before; end ends it.
func (s *callerSlot) begin(c call) (p *pending, killed chan struct{}, joins bool, end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	joins = s.waiting[c.ID] > 0
	s.waiting[c.ID]++
	return s.d.begin(c), s.killed, joins, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.waiting[c.ID]--
	}
}

// run starts the callers, injects faults for soakSpan, removes the faults, and waits for the callers.
func (s *soak) run() {
	over := make(chan struct{})
	start := time.Now()
	for _, slot := range s.slots {
		slot.proxy.setFaults(s.faults())
		for range 4 {
			s.callers.Go(func() { s.call(slot, start, over) })
		}
	}
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	s.callers.Go(func() { s.readFlights(ctx) })
	if s.lag == nil {
		s.callers.Go(func() { s.readFeed(ctx) })
	}
	for time.Since(start) < soakSpan {
		if s.lag != nil {
			s.lag()
		}
		if !s.allHealthy {
			s.injectProcessFault()
		}
		<-time.After(s.rnd.duration(time.Second))
	}
	if s.isCluster() && !s.callersHealthy && s.seed%2 == 0 {
		s.takeEtcdAway()
	}
	for _, slot := range s.slots {
		slot.proxy.setFaults(func(string) fault { return fault{} })
	}
	s.provider.stopFaults()
	close(over)
	cancel()
	s.note("the faults are over")
	s.callers.Wait()
}

// injectProcessFault kills or freezes flightd or a caller, at random.
func (s *soak) injectProcessFault() {
	slot := s.slots[s.rnd.intN(len(s.slots))]
	node := s.server.nodes[s.kills%len(s.server.nodes)]
	switch n := s.rnd.intN(10); {
	case n < 3 && s.lag != nil:
	case n < 2, n%2 == 1 && s.isCluster(): // of a cluster, a node is killed more often
		s.note("node %d is killed", s.kills%len(s.server.nodes)+1)
		s.kills++
		node.kill()
		<-time.After(s.rnd.duration(3 * time.Second))
		node.start()
		s.note("it runs again")
	case n < 3:
		s.note("node %d is frozen", s.kills%len(s.server.nodes)+1)
		node.freeze(s.rnd.duration(stallTime))
		s.note("it goes on")
	case s.callersHealthy:
	case n < 6:
		s.note("the %s process of %s is killed", slot.language.name, slot.proxy.url)
		s.restart(slot)
	case n < 9:
		s.note("the %s process of %s is frozen", slot.language.name, slot.proxy.url)
		slot.d.signal(syscall.SIGSTOP)
		<-time.After(s.rnd.duration(3 * shortTTL))
		slot.d.signal(syscall.SIGCONT)
		s.note("it goes on")
	}
}

// isCluster reports whether the nodes are the processes of a cluster.
func (s *soak) isCluster() bool { return s.lag == nil && len(s.server.nodes) > 1 }

// takeEtcdAway freezes all nodes but one, and kills all callers meanwhile. Their sessions end, and the keys that they hold stay
// blocked for another lease.DefaultTTL: the leader gives owners that live the time to report.
func (s *soak) takeEtcdAway() {
	s.note("all nodes but one are frozen, and all callers are killed")
	var frozen sync.WaitGroup
	for _, node := range s.server.nodes[1:] {
		frozen.Go(func() { node.freeze(outageTime) })
	}
	for _, slot := range s.slots {
		s.restart(slot)
	}
	frozen.Wait()
	s.note("they go on")
}

// blockTime is how long the session of a dead caller may block a key.
func (s *soak) blockTime() time.Duration {
	if s.isCluster() && !s.allHealthy { // nodes are killed and frozen, and etcd may be away from the leader
		return s.ttl() + sweepTime + lease.DefaultTTL
	}
	return s.ttl() + sweepTime
}

// faults returns a function that chooses a random fault for each request.
func (s *soak) faults() func(string) fault {
	answers := slices.SortedFunc(maps.Values(cannedAnswers()), func(a, b cannedAnswer) int { return strings.Compare(a.body+a.kind, b.body+b.kind) })
	return func(path string) (f fault) {
		if path == "/version" {
			return f
		}
		if s.allHealthy {
			return s.doubledFault()
		}
		switch n := s.rnd.intN(100); {
		case n < 16:
			f.cut = true
		case n < 36:
			f.drop = true
		case n < 48:
			f.delay = s.rnd.duration(2 * shortTTL)
		case n < 54:
			f.canned = &answers[s.rnd.intN(len(answers))]
			f.cut = f.canned.rejects() || s.rnd.intN(2) == 0
		case n < 70:
			f.repeatAfter, f.extraRepeats = s.rnd.duration(2*shortTTL), s.rnd.intN(3)
		case n < 76:
			f.exchange = true
		case strings.HasSuffix(path, "/renew"): // a running effect must survive late copies of a renewal
			f.repeatAfter, f.extraRepeats = s.rnd.duration(shortTTL), 1
		}
		return f
	}
}

// doubledFault copies, delays and exchanges twice as much as faults, and each of these faults comes with any other.
func (s *soak) doubledFault() (f fault) {
	switch n := s.rnd.intN(100); {
	case n < 8:
		f.cut = true
	case n < 18:
		f.drop = true
	}
	if s.rnd.intN(100) < 32 {
		f.repeatAfter, f.extraRepeats = s.rnd.duration(2*shortTTL), s.rnd.intN(3)
	}
	if s.rnd.intN(100) < 24 {
		f.delay = s.rnd.duration(2 * shortTTL)
	}
	f.exchange = s.rnd.intN(100) < 12
	return f
}

// soakKey is a key and its recovery policy: hold for half of the keys, verify or resend for the others.
type soakKey struct {
	id       string
	recovery string
}

func (s *soak) keyOf(n int) soakKey {
	recovery := []string{"hold", "verify", "hold", "resend"}[n%4]
	return soakKey{id: fmt.Sprintf("%s-%d", recovery, n), recovery: recovery}
}

func (s *soak) useKey(n int) soakKey {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.usedKeys[n] = true
	return s.keyOf(n)
}

func (s *soak) callOf(k soakKey) call {
	c := call{Name: "charge", ID: k.id, Callers: 1, Input: map[string]any{"id": k.id, "cents": 4200}, Recovery: k.recovery, WaitMS: 3000,
		Effect: s.provider.url + "/effect/" + k.id}
	if s.allHealthy && s.rnd.intN(2) == 0 { // it leaves with busy, and a copy of its open arrives later
		c.WaitMS = 1
	}
	switch k.recovery {
	case "verify":
		c.Look, c.SettleMS, c.AttemptTimeoutMS = s.provider.url+"/look/"+k.id, 200, 8000
	case "resend":
		c.ProviderWindowMS = int(time.Hour / time.Millisecond)
	}
	return c
}

// call is one caller. All callers use the same few keys at a time, and new keys every half second.
func (s *soak) call(slot *callerSlot, start time.Time, over <-chan struct{}) {
	for {
		select {
		case <-over:
			return
		default:
		}
		k := s.useKey(3*int(time.Since(start)/(500*time.Millisecond)) + s.rnd.intN(9))
		final := s.isFinal(k.id)
		p, gone, joins, end := slot.begin(s.callOf(k))
		began := time.Now()
		select {
		case a := <-p.answers:
			s.note("%s through %s: %s after %v, joins %v: %s", slot.language.name, slot.proxy.url, k.id, time.Since(began), joins, a.summary())
			s.recordAnswer(k.id, a)
			if final && !joins && a.showsOpen() {
				s.Errorf("time went back: %s was final, and then a %s client got %s", k.id, slot.language.name, a.summary())
			}
		case <-gone:
			s.note("%s through %s: %s, and the process was killed", slot.language.name, slot.proxy.url, k.id)
		case <-time.After(waitTimeout):
			s.Errorf("no answer for %s from the %s client within %v", k.id, slot.language.name, waitTimeout)
			return
		}
		end()
		<-time.After(s.rnd.duration(100 * time.Millisecond))
	}
}

// isFinal reports whether a caller has got the final answer of a key.
func (s *soak) isFinal(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.answers[id], func(a answer) bool { return a.Error == "" || a.Error == "declined" })
}

// showsOpen reports whether an answer shows a flight that had not ended when its call began.
func (a *answer) showsOpen() bool {
	return a.Error == "" && a.Source != "replayed" || slices.Contains([]string{"in_doubt", "idempotency_in_flight", "not_done", "unknown", "unrecorded", "lease_lost"}, a.Error)
}

func (s *soak) recordAnswer(id string, a answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[id] = append(s.answers[id], a)
}

// check checks all keys after the faults have ended.
func (s *soak) check() {
	for i, node := range s.server.nodes {
		if s.lag == nil && node.hasEnded() {
			s.Fatalf("node %d has ended by itself: see %s", i+1, node.log)
		}
	}
	eventually(s, "all reports are delivered", waitTimeout, func() bool {
		left, err := os.ReadDir(s.spool)
		require.NoError(s, err)
		return !slices.ContainsFunc(left, func(e os.DirEntry) bool { return strings.HasSuffix(e.Name(), ".report") })
	})
	s.stopCallers()
	d := newDriver(s, languages()[0], setup{Address: s.server.address(), Spool: s.spool, RetryTimeoutMS: 20_000, ReportWaitMS: 20_000, env: s.server.credentialFiles()})
	counts := map[string]int{}
	for _, n := range slices.Sorted(maps.Keys(s.usedKeys)) {
		s.checkKey(d, s.keyOf(n), counts)
	}
	s.Logf("%d keys, flightd killed %d times, the longest last call took %v; %v", len(s.usedKeys), s.kills, s.longest.Round(time.Millisecond), counts)
}

// stopCallers kills the callers, which ends their sessions. Otherwise a session could block a verification that was
// assigned to it before a restart of flightd. With healthy callers it first waits until the clients have abandoned all
// unanswered opens: no flight without a request may be running or in doubt, and no flight at all where flightd was
// healthy, too. A copy of an open can begin an attempt after its caller has left with busy; the client abandons it when
// the open's not_after has passed. A flight whose recovery is not hold may wait for the verification of its next caller.
func (s *soak) stopCallers() {
	for _, slot := range s.slots {
		slot.proxy.repeats.Wait() // each copy has arrived
	}
	for n := range s.usedKeys {
		k := s.keyOf(n)
		unsent := len(s.provider.account(k.id).requests) == 0
		if k.recovery != "hold" || !s.allHealthy && !(s.callersHealthy && unsent) {
			continue
		}
		key := "default/charge/" + k.id
		for f, start := s.server.flight(key), time.Now(); f.Tainted || f.State == "in_doubt" || f.State == "running"; f = s.server.flight(key) {
			if time.Since(start) > waitTimeout {
				s.Errorf("nobody was killed, or no request was sent, for %s, but its state is %s: %s", key, f.State, s.server.history(key))
				break
			}
			<-time.After(100 * time.Millisecond)
		}
	}
	for _, slot := range s.slots {
		slot.d.signal(syscall.SIGKILL)
	}
}

func (a answer) summary() string {
	if a.Error != "" || a.Source == "" {
		return fmt.Sprintf("%s (%.60s)", a.Error, a.Detail)
	}
	return fmt.Sprintf("%s %.20s", a.Source, a.Body)
}

// history returns the events of a flight as text.
func (s *server) history(key string) string {
	id := flight.MustKey(key).FlightID().String()
	answer, err := s.request(http.MethodGet, "/v1/flights/"+id+"/events", "")
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	return string(text)
}

// checkKey calls once more for a key, and compares the flight, all answers to callers, and the provider's account.
func (s *soak) checkKey(d *driver, k soakKey, counts map[string]int) {
	key := "default/charge/" + k.id
	last := s.callOf(k)
	last.WaitMS = 32_000 // longer than blockTime
	before, asked := s.server.flight(key), time.Now()
	final := d.do(last)
	took := time.Since(asked)
	s.longest = max(s.longest, took)
	s.note("last call of %s after %v: %s", k.id, took, final.summary())
	f := s.server.flight(key)
	account := s.provider.account(k.id)
	s.recordAnswer(k.id, final)
	describe := func() string {
		var answers []string
		for _, a := range s.answers[k.id] {
			answers = append(answers, a.summary())
		}
		return fmt.Sprintf("%s\n%s before the last call, now %s, tainted %v, attempts %d\nanswers: %s\nprovider: %s\nhistory:%s", key, before.State, f.State, f.Tainted, f.Attempts,
			strings.Join(answers, "; "), account, s.server.history(key))
	}
	if final.Error != "" && final.Error != "declined" && !(final.Error == "in_doubt" && f.State == "in_doubt") {
		s.Errorf("the last call of a key was answered with %s: %s", final.Error, describe())
	}
	if took > s.blockTime() {
		s.Errorf("a key was blocked for %v, longer than a dead caller may block it: %s", took, describe())
	}
	if s.allHealthy && f.Tainted {
		s.Errorf("tainted, though each outcome was told: %s", describe())
	}
	if final.Error == "in_doubt" && k.recovery != "hold" {
		s.Errorf("in doubt, though the recovery is not hold: %s", describe())
	}
	if len(account.charges) > 1 {
		s.Errorf("the effect happened %d times: %s", len(account.charges), describe())
	}
	if k.recovery == "hold" && account.repeatedAfterUnknown() {
		s.Errorf("a request followed a request with an unknown outcome: %s", describe())
	}
	if s.callersHealthy && (f.Tainted || f.State == "in_doubt") && len(account.requests) == 0 {
		s.Errorf("in doubt, though no request was sent: %s", describe())
	}
	if f.State == "succeeded" && len(account.charges) != 1 || f.State == "failed" && len(account.charges) != 0 {
		s.Errorf("%s, but the effect happened %d times: %s", f.State, len(account.charges), describe())
	}
	for _, key := range account.keys() {
		if key != account.requests[0].key {
			s.Errorf("two idempotency keys: %s", describe())
		}
	}
	for _, a := range s.answers[k.id] {
		counts[k.recovery+" "+a.Source+a.Error]++
		switch {
		case a.Error == "in_doubt" && s.allHealthy:
			s.Errorf("a caller was told of a doubt, though nobody was killed: %s", describe())
		case a.Error == "" && (f.State != "succeeded" || string(a.Body) != string(final.Body) || len(a.Body) == 0):
			s.Errorf("a caller has another receipt: %s: %s", a.summary(), describe())
		case a.Error == "declined" && f.State != "failed":
			s.Errorf("a caller got declined: %s", describe())
		case a.Error == "unrecorded" && (strings.Contains(a.Detail, "ended as succeeded") || strings.Contains(a.Detail, "ended as refused")) && f.State != "succeeded" && f.State != "failed":
			s.Errorf("an outcome was lost: %s", describe())
		}
	}
}
