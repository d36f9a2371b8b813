package linear

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/clock"
)

const (
	keysAtATime  = 200
	roundsOfAKey = 60              // mean
	workersOf    = 3               // of each client
	streamLife   = 3 * time.Second // a stream of events is then broken off, and resumed by another client
	streamEvents = 4               // or after so many events, mean: often in the middle of what one entry of the log has written
	readerWaits  = 2 * time.Second
)

// Reader reads a flight at one node, whatever state that is in. It sends no position that it has seen, as curl does not.
type Reader func(context.Context, flight.ID) (*client.Flight, error)

// Run makes operations at random, through all clients, until ctx ends, and records each one. Three users of each client pause between two
// operations, for pause on average. Each reader reads once in each pause. For the time erase, keys are redacted, and receipts expire: nodes
// then remove everything from their logs within a minute, which can no longer be checked. record is called from several goroutines. Processes
// with different seeds share no key and no name; their clocks are compared if they run on one machine.
func Run(ctx context.Context, clients []*client.Client, readers []Reader, seed uint64, pause, erase time.Duration, record func(Op)) {
	w := &workload{clients: clients, eraseUntil: time.Now().Add(erase), name: fmt.Sprintf("linear-%x", seed), record: record}
	var group sync.WaitGroup
	group.Go(func() { w.follow(ctx, seed, pause) })
	for i := range workersOf * len(clients) {
		group.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(i)))
			u := &user{workload: w, random: random}
			for clock.Sleep(ctx, time.Duration(random.Int64N(int64(2*pause)))) {
				u.client = random.IntN(len(clients))
				u.useKey(ctx)
			}
		})
	}
	for i, read := range readers {
		group.Go(func() {
			u := &user{workload: w, random: rand.New(rand.NewPCG(seed, 1<<33+uint64(i)))}
			for n := 0; clock.Sleep(ctx, pause); n++ {
				key, start := u.anyKey(), now()
				waits, cancel := context.WithTimeout(ctx, readerWaits)
				f, err := read(waits, key.FlightID())
				cancel()
				u.note(Op{Key: key.String(), Kind: Read, Client: fmt.Sprintf("%s/reader-%d.%d", w.name, i, n), Stale: err == nil && f.Receipt != nil}, f, err, start)
			}
		})
	}
	group.Wait()
}

type workload struct {
	clients    []*client.Client
	name       string // prefix of the keys' ids and of the clients' names
	record     func(Op)
	eraseUntil time.Time
	rounds     atomic.Int64
	unreported sync.Map // by key: the client.OpenAnswer of an attempt that was left, or whose outcome is unknown
}

// user acts as a caller, an operator and a reader in turn.
type user struct {
	*workload
	random      *rand.Rand
	client      int    // that the present round uses
	session     string // for many flights; "": none
	sessionFrom *client.Client
	renewed     time.Time
}

func now() int64 { return int64(clock.SinceBoot()) } // the same in all processes of a machine

// note records an operation that was begun at start and answered with f or err. What a client does not understand counts as unknown.
func (u *user) note(o Op, f *client.Flight, err error, start int64) {
	o.Client, o.Start, o.End = cmp.Or(o.Client, fmt.Sprintf("%s/%d", u.name, u.client)), start, now()
	var problem *client.Error
	var silent *effect.Unavailable
	switch {
	case err == nil:
		o.Answer = recordOf(f)
	case !errors.As(err, &problem):
		o.Unknown = true
	case o.Kind == Read && problem.Problem.Code == wire.NotFound:
		o.Answer = &Record{State: flight.StateAbsent.String(), Version: problem.Problem.Version}
	default:
		o.Code = string(problem.Problem.Code)
		o.Unknown = errors.As(err, &silent) || problem.Problem.Status >= 500
	}
	if o.Kind == Open && o.Answer == nil { // a copy of another refused open may still open an attempt
		var doubt *client.InDoubt
		o.Unknown = !(errors.As(err, &doubt) && doubt.Proposed || o.Code == string(wire.Expired))
	}
	if (o.Kind == Read || o.Kind == List) && o.Answer == nil {
		return // it says nothing
	}
	u.record(o)
}

func recordOf(f *client.Flight) *Record {
	r := &Record{State: f.State, Version: f.Version, Generation: f.Generation, Redacted: f.Redacted != nil}
	if f.LastAttempt != nil {
		r.Attempt = f.LastAttempt.Attempt
	}
	if f.Receipt != nil {
		r.Outcome, r.Digest, r.Bytes = f.Receipt.Outcome, f.Receipt.Digest, len(f.Receipt.Body)+len(f.Receipt.BodyBase64) > 0
	}
	return r
}

// anyKey returns one of the keys that are in use.
func (u *user) anyKey() flight.Key {
	return flight.MustKey(fmt.Sprintf("default/linear/%s-%d", u.name, u.rounds.Load()/roundsOfAKey+u.random.Int64N(keysAtATime)))
}

// useKey reads a key, and does one of the things that its state allows.
func (u *user) useKey(ctx context.Context) {
	c, chance := u.clients[u.client], u.random.IntN(100)
	u.rounds.Add(1)
	key, start := u.anyKey(), now()
	if chance < 3 {
		u.list(ctx, c, start)
		return
	}
	if chance < 9 { // any node may answer
		f, err := c.Flight(ctx, key.FlightID())
		u.note(Op{Key: key.String(), Kind: Read, Stale: err == nil && f.Receipt != nil}, f, err, start)
		return
	}
	f, err := c.WaitFlight(ctx, key.FlightID(), "", time.Second) // a wait is the leader's, although this one is answered at once
	u.note(Op{Key: key.String(), Kind: Read}, f, err, start)
	chance = u.random.IntN(100)
	switch {
	case client.CodeOf(err) == wire.NotFound, err == nil && f.State == ready && chance < 70, err == nil && f.Receipt != nil && chance < 20:
		u.open(ctx, c, key)
	case err != nil:
	case f.State == running && chance < 40, f.Receipt != nil && chance < 25:
		start = now()
		next, err := c.WaitFlight(ctx, key.FlightID(), f.Version, time.Second)
		u.note(Op{Key: key.String(), Kind: Read}, next, err, start)
	case f.State == inDoubt && chance < 35, f.State == ready && chance < 75, f.State == succeeded && chance < 30:
		if late, ok := u.unreported.Load(key); ok {
			u.report(ctx, c, key, late.(client.OpenAnswer), "succeeded")
		}
	default:
		u.decide(ctx, c, key, f, chance)
	}
}

func (u *user) list(ctx context.Context, c *client.Client, start int64) {
	page, err := c.List(ctx, client.Query{KeyPrefix: "default/linear/" + u.name + "-", Limit: 20, States: []string{[]string{running, inDoubt, ready, cancelled}[u.random.IntN(4)]}})
	if err != nil {
		return
	}
	for i := range page.Flights {
		u.note(Op{Key: page.Flights[i].Key, Kind: List}, &page.Flights[i], nil, start)
	}
}

// open opens a flight and mostly reports it, at once. Every seventh attempt is left: its session ends, and it is in doubt.
func (u *user) open(ctx context.Context, c *client.Client, key flight.Key) {
	r := client.OpenRequest{TTLMS: 2000, WaitMS: new(int64)}
	if isKeptShortly(key.String()) && time.Now().Before(u.eraseUntil) {
		r.Retention = "2s"
	}
	leave := u.random.IntN(7) == 0
	if u.random.IntN(2) == 0 && !leave {
		u.keepSession(ctx)
		if r.Session = u.session; r.Session != "" {
			r.TTLMS = 0
		}
	}
	start := now()
	a, err := c.Open(ctx, key, r)
	switch {
	case err != nil:
		u.session = "" // its attempts, if it has any, must not stay open
		u.note(Op{Key: key.String(), Kind: Open}, nil, err, start)
		return
	case a.Decision == wire.DecisionReplay: // an earlier try may have opened an attempt, whose flight a person has resolved meanwhile
		u.note(Op{Key: key.String(), Kind: Read, Stale: true}, a.Flight, nil, start)
		u.record(Op{Client: fmt.Sprintf("%s/%d", u.name, u.client), Key: key.String(), Kind: Open, Code: wire.DecisionReplay, Start: start, End: now()})
		return
	}
	opened := client.Flight{State: running, Generation: a.Generation, LastAttempt: &wire.Attempt{Attempt: a.Attempt}}
	u.note(Op{Key: key.String(), Kind: Open}, &opened, nil, start)
	outcome := []string{"succeeded", "succeeded", "succeeded", "succeeded", "refused", "not_done", "unknown"}[u.random.IntN(7)]
	if leave || outcome == "unknown" {
		u.unreported.Store(key, a)
	}
	if !leave {
		u.report(ctx, c, key, a, outcome)
	}
}

// keepSession renews the session of the user, or makes one.
func (u *user) keepSession(ctx context.Context) {
	var err error
	var made client.SessionAnswer
	switch {
	case u.session == "":
		u.sessionFrom = u.clients[u.client]
		made, err = u.sessionFrom.NewSession(ctx, 5*time.Second, u.name)
		u.session, u.renewed = made.Session, time.Now()
	case time.Since(u.renewed) > time.Second:
		u.renewed = time.Now()
		_, err = u.sessionFrom.Renew(ctx, u.session, client.RenewRequest{})
	}
	if err != nil {
		u.session = ""
	}
}

// receipt returns a new receipt and its digest.
func (u *user) receipt() (client.Body, string) {
	text := fmt.Appendf(nil, `{"receipt":"%x"}`, u.random.Uint64())
	return client.Body{JSON: text}, flight.Digest(sha256.Sum256(text)).String()
}

func (u *user) report(ctx context.Context, c *client.Client, key flight.Key, at client.OpenAnswer, outcome string) {
	o, r := Op{Key: key.String(), Kind: Report, Generation: at.Generation, Attempt: at.Attempt, Word: outcome}, client.ReportRequest{FencingToken: at.FencingToken, Outcome: outcome}
	if outcome == "succeeded" || outcome == "refused" {
		r.Body, o.Digest = u.receipt()
	}
	start := now()
	f, err := c.Report(ctx, key, r)
	u.note(o, f, err, start)
}

// decide makes a decision of a person about the flight as it was read.
func (u *user) decide(ctx context.Context, c *client.Client, key flight.Key, seen *client.Flight, chance int) {
	o := Op{Key: key.String(), Generation: seen.Generation, Version: seen.Version}
	reason := client.OperatorRequest{Key: key.String(), Reason: fmt.Sprintf("test %x", u.random.Uint64()), Actor: fmt.Sprintf("%s/%d", u.name, u.client)}
	decide := c.Cancel
	switch over := slices.Contains([]string{succeeded, failed, cancelled, expired}, seen.State); {
	case seen.State == inDoubt && chance < 90:
		r := client.ResolveRequest{Result: []string{"happened", "not_happened", "fail"}[u.random.IntN(3)], Reason: reason.Reason, Actor: reason.Actor}
		if r.Result == "happened" {
			r.Body, o.Digest = u.receipt()
		}
		o.Kind, o.Word = Resolve, r.Result
		decide = func(ctx context.Context, id flight.ID, version string, _ client.OperatorRequest) (*client.Flight, error) {
			return c.Resolve(ctx, id, version, r)
		}
	case !over:
		o.Kind = Cancel
	case seen.Receipt == nil && seen.State != expired && chance < 60:
		o.Kind, decide = Retry, c.Retry
	case seen.State != expired && seen.Redacted == nil && chance < 60 && time.Now().Before(u.eraseUntil):
		o.Kind, decide = Redact, c.Redact
	default:
		o.Kind, decide = Free, c.Free
	}
	start := now()
	f, err := decide(ctx, key.FlightID(), seen.Version, reason)
	u.note(o, f, err, start)
}

// follow follows the events of the keys, and goes on at another client whenever a stream is broken off.
func (w *workload) follow(ctx context.Context, seed uint64, pause time.Duration) {
	prefix, last, random := "default/linear/"+w.name+"-", "", rand.New(rand.NewPCG(seed, 1<<32))
	for i := 0; ctx.Err() == nil; i++ {
		broken := false
		life, end := context.WithTimeout(ctx, streamLife)
		for e, err := range w.clients[i%len(w.clients)].Events(life, client.EventQuery{After: last, KeyPrefix: prefix}) {
			kind := Event
			switch {
			case client.CodeOf(err) == wire.Expired: // the log does not reach back: begin anew, with a sign
				w.record(Op{Client: prefix, Kind: Gap, Start: now(), End: now()})
				last = ""
			case e.Kind == wire.MessageGap:
				kind = Gap
			}
			if err != nil {
				break
			}
			last = e.ID
			w.record(Op{Client: prefix, Key: e.Key, Kind: kind, Version: e.ID, Generation: e.Generation, Word: fmt.Sprint(e.Kind, " from client ", i%len(w.clients), " in stream ", i), Start: now(), End: now()})
			if broken = random.IntN(streamEvents) == 0; broken {
				break
			}
		}
		if end(); !broken {
			clock.Sleep(ctx, pause)
		}
	}
}
