package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/lease"
	"github.com/flightd/flightd/lease/etcdlease/etcdtest"
)

// owner is a remote caller with a session of its own, which speaks the HTTP protocol and chooses the node of each request.
type owner struct {
	ctx   context.Context
	urls  []string
	index wire.Index // greatest position that a node has told
	http  *http.Client

	key, nonce    string
	id            string // of the flight
	session       wire.SessionAnswer
	opened        wire.OpenAnswer
	trustedTo     time.Time // the session must not end before
	renewAt       time.Time
	sawCancel     bool // a renewal has answered that a cancel was requested
	cancelRenewal int  // number of the renewal that answered the cancel, counted from it; 0: no cancel was accepted
	renewals      []string
	failed        error
}

// reply is the answer of a node.
type reply struct {
	status int
	code   wire.Code
	header http.Header
	body   []byte
	sentAt time.Time
}

func (r *reply) String() string { return fmt.Sprintf("%d %s", r.status, r.body) }

// ask sends a request to node n, and to the next nodes after it until one answers for good. into gets a successful answer.
func (o *owner) ask(n int, method, path string, header http.Header, body, into any) (r *reply, err error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(o.ctx, time.Minute)
	defer cancel()
	for ; ; n++ {
		if r, err = o.try(ctx, o.urls[n%len(o.urls)], method, path, header, text); err == nil && r.status < 500 && r.status != http.StatusTooManyRequests {
			break
		}
		pause := time.NewTimer(50 * time.Millisecond)
		select {
		case <-pause.C:
		case <-ctx.Done():
			return r, fmt.Errorf("%s %s: %w: %v: %v", method, path, ctx.Err(), err, r)
		}
	}
	if r.status < 300 && into != nil {
		err = json.Unmarshal(r.body, into)
	}
	return r, err
}

func (o *owner) try(ctx context.Context, url, method, path string, header http.Header, body []byte) (*reply, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if request.Header.Set("Content-Type", wire.TypeJSON); header != nil {
		request.Header = header.Clone()
		request.Header.Set("Content-Type", wire.TypeJSON)
	}
	if o.index != (wire.Index{}) {
		request.Header.Set(wire.HeaderIndex, o.index.String())
	}
	r := &reply{sentAt: time.Now()}
	answer, err := o.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	r.status, r.header = answer.StatusCode, answer.Header
	if r.body, err = io.ReadAll(answer.Body); err != nil {
		return nil, err
	}
	if index, err := wire.ParseIndex(r.header.Get(wire.HeaderIndex)); err == nil && index.After(o.index) {
		o.index = index
	}
	var problem wire.Problem
	if r.status >= 300 && json.Unmarshal(r.body, &problem) == nil {
		r.code = problem.Code
	}
	return r, nil
}

// open creates a session and opens the key under it, at node n.
func (o *owner) open(n int) error {
	r, err := o.ask(n, http.MethodPost, "/v1/sessions", nil, &wire.SessionRequest{Owner: "owner of " + o.key, Nonce: o.nonce}, &o.session)
	if err != nil || r.status != http.StatusCreated || o.session.Nonce != o.nonce {
		return fmt.Errorf("create a session: %v: %w", r, err)
	}
	o.extend(r, o.session.TrustMS)
	var now int64
	if _, err := fmt.Sscan(r.header.Get(wire.HeaderLedgerTime), &now); err != nil {
		return err
	}
	wait := int64(20_000)
	r, err = o.ask(n, http.MethodPost, "/v1/flights:open", nil, &wire.OpenRequest{Action: "test", ID: o.key, Nonce: o.nonce, NotAfter: now + wait + 20_000,
		Session: o.session.Session, WaitMS: &wait}, &o.opened)
	if err != nil || r.status != http.StatusCreated || o.opened.Nonce != o.nonce || o.opened.Session != o.session.Session {
		return fmt.Errorf("open: %v: %w", r, err)
	}
	o.id = o.opened.FlightID
	return nil
}

// extend counts the trust that an answer grants, and the time of the next renewal, from when its request was sent.
func (o *owner) extend(r *reply, trustMS int64) {
	if to := r.sentAt.Add(time.Duration(trustMS) * time.Millisecond); to.After(o.trustedTo) {
		o.trustedTo = to
	}
	o.renewAt = r.sentAt.Add(time.Duration(o.session.RenewEveryMS) * time.Millisecond)
}

// renew renews the session at node n. A node that knows the leader must know the attempt, and that it is open.
func (o *owner) renew(n int) error {
	own := wire.OpenDigest([]wire.OpenAttempt{{Nonce: wire.NonceHex(o.nonce), Attempt: o.opened.Attempt}})
	var a wire.SessionAnswer
	r, err := o.ask(n, http.MethodPost, "/v1/sessions/"+o.session.Session+"/renew", nil, &wire.RenewRequest{OpenDigest: own}, &a)
	switch {
	case err != nil:
		return err
	case r.status != http.StatusOK || a.Session != o.session.Session:
		return fmt.Errorf("renew, with trust for another %v: %v", time.Until(o.trustedTo), r)
	case a.TrustMS > 0 && a.OpenDigest != own:
		return fmt.Errorf("the attempt is not open: %v", r)
	}
	o.sawCancel = o.sawCancel || slices.Contains(a.CancelRequested, o.id)
	o.extend(r, a.TrustMS)
	o.renewals = append(o.renewals, fmt.Sprintf("%s by %s, leader %q: trust %d, cancel %v", r.sentAt.Format("05.000"), r.header.Get(wire.HeaderNode), r.header.Get(wire.HeaderLeader), a.TrustMS, o.sawCancel))
	return nil
}

// act waits for the end of the effect, or of its attempt's cancel, and renews the session at node n as often as it should.
func (o *owner) act(n int, lasts time.Duration) error {
	end := time.NewTimer(lasts)
	defer end.Stop()
	for !o.sawCancel {
		next := time.NewTimer(time.Until(o.renewAt))
		select {
		case <-end.C:
			return nil
		case <-next.C:
		}
		if err := o.renew(n); err != nil {
			return err
		}
	}
	return nil
}

// cancel asks node n to cancel the flight, until the ledger has the request.
func (o *owner) cancel(n int) error {
	for {
		var f wire.Flight
		r, err := o.ask(n, http.MethodGet, "/v1/flights/"+o.id, nil, nil, &f)
		if err != nil || r.status != http.StatusOK || f.CancelRequested != nil {
			return err
		}
		r, err = o.ask(n, http.MethodPost, "/v1/flights/"+o.id+"/cancel", http.Header{"If-Match": {r.header.Get("ETag")}},
			&wire.OperatorRequest{Reason: "a test", Actor: "operator"}, nil)
		switch {
		case err != nil:
			return err
		case r.status == http.StatusOK:
			return nil
		case r.status != http.StatusPreconditionFailed: // perhaps by a try whose answer was lost
			return fmt.Errorf("cancel: %v", r)
		}
	}
}

// maxCancelRenewals is the number of renewals by the leader within which a cancel is answered.
const maxCancelRenewals = 2

// awaitCancel renews the session at node n, at once and then as often as it should, until a renewal answers the cancel.
func (o *owner) awaitCancel(n int) error {
	for o.cancelRenewal = 1; ; {
		before := o.trustedTo
		if err := o.renew(n); err != nil || o.sawCancel {
			return err
		}
		if o.trustedTo.After(before) { // else a node without a leader has answered, which grants no trust and knows no cancels
			if o.cancelRenewal == maxCancelRenewals {
				return errors.New("no renewal answers the cancel")
			}
			o.cancelRenewal++
		}
		next := time.NewTimer(time.Until(o.renewAt))
		<-next.C
	}
}

// report reports the outcome at node n. The flight must have ended with it.
func (o *owner) report(n int, outcome flight.Outcome, state flight.State) error {
	var f wire.Flight
	report := &wire.ReportRequest{FencingToken: o.opened.FencingToken, Key: o.opened.Key, Outcome: outcome.String()}
	if outcome == flight.OutcomeSucceeded {
		report.ExternalID = "effect of " + o.key
	}
	r, err := o.ask(n, http.MethodPost, "/v1/flights/"+o.id+"/report", nil, report, &f)
	if err != nil || r.status != http.StatusOK || f.State != state.String() {
		return fmt.Errorf("report %s: %v: %w", outcome, r, err)
	}
	return nil
}

// check reads the flight at node n.
func (o *owner) check(n int) error {
	var f wire.Flight
	r, err := o.ask(n, http.MethodGet, "/v1/flights/"+o.id, nil, nil, &f)
	if err != nil || r.status != http.StatusOK || f.Attempts != 1 || f.LastAttempt.Lost ||
		o.sawCancel && f.State != flight.StateCancelled.String() || !o.sawCancel && (f.Receipt == nil || f.Receipt.ExternalID != "effect of "+o.key) {
		return fmt.Errorf("node %d, flight %s: %v: %w", n%len(o.urls)+1, o.key, r, err)
	}
	return nil
}

func (o *owner) close(n int) error {
	r, err := o.ask(n, http.MethodPost, "/v1/sessions/"+o.session.Session+"/close", nil, struct{}{}, nil)
	if err != nil || r.status != http.StatusOK {
		return fmt.Errorf("close the session: %v: %w", r, err)
	}
	return nil
}

func (tr *trio) owner(key string) *owner {
	return &owner{ctx: tr.t.Context(), urls: tr.urls, http: http.DefaultClient, key: key, nonce: fmt.Sprintf("%016x", rand.Uint64())}
}

// live performs one flight with a session of its own: opened at node n, renewed at the next one and reported at the last one,
// where its cancel, if there is one, is asked for as well.
func (o *owner) live(n int, lasts time.Duration, cancelled, closes bool) error {
	outcome, state := flight.OutcomeSucceeded, flight.StateSucceeded
	steps := []func() error{func() error { return o.open(n) }, func() error { return o.renew(n + 1) }, func() error { return o.act(n+1, lasts) }}
	if cancelled {
		outcome, state = flight.OutcomeNotDone, flight.StateCancelled
		steps = append(steps, func() error { return o.cancel(n + 2) }, func() error { return o.awaitCancel(n + 1) })
	}
	steps = append(steps, func() error { return o.report(n+2, outcome, state) })
	if closes { // else as if the owner died
		steps = append(steps, func() error { return o.close(n) })
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// Sessions are opened at one node, renewed at a second one and reported at a third one, while the nodes are killed in turn. No
// attempt ends before its report, each report is stored, a cancel is told with the second renewal at the latest, and a TTL later
// etcd has neither a lease nor a claim, whether or not the owners have closed their sessions.
func TestDevNodes_SessionsAcrossNodes(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	c := startTrio(t)
	const workers = 32
	owners := make([]*owner, sessionRounds)
	for i := range owners {
		owners[i] = c.owner(fmt.Sprint("round-", i))
	}
	var next atomic.Int32
	var working sync.WaitGroup
	for w := range workers {
		random := rand.New(rand.NewPCG(seed, uint64(w)))
		working.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(owners); i = int(next.Add(1)) - 1 {
				o := owners[i]
				o.failed = o.live(random.IntN(3), time.Duration(random.IntN(8000))*time.Millisecond, i%4 == 0, i%2 == 0)
			}
		})
	}
	var kills int
	pause := time.NewTicker(2 * lease.DefaultTTL / 3) // two renewals
	defer pause.Stop()
	for ; int(next.Load()) < len(owners); kills++ {
		victim := kills%3 + 1
		if kills%2 == 0 {
			victim = c.leader()
		}
		c.kill(victim)
		c.startNode(victim)
		c.whole()
		<-pause.C
	}
	working.Wait()

	for i := range 1 + sessionRounds/500 { // the leader dies as soon as it has taken a cancel
		o, lead := c.owner(fmt.Sprint("leader-", i)), c.leader()-1
		owners = append(owners, o)
		require.NoError(t, o.open(lead+1))
		require.NoError(t, o.cancel(lead))
		c.kill(lead + 1)
		kills++
		require.NoError(t, o.awaitCancel(lead+2))
		require.NoError(t, o.report(lead+1, flight.OutcomeNotDone, flight.StateCancelled))
		c.startNode(lead + 1)
		c.whole()
	}

	var byRenewal [maxCancelRenewals + 1]int
	for _, o := range owners {
		require.NoError(t, o.failed, "%s: %q", o.key, o.renewals)
		for n := range 3 {
			require.NoError(t, o.check(n))
		}
		byRenewal[o.cancelRenewal]++
	}
	t.Logf("%d sessions, %d kills; of %d cancels, %v were answered by the first and the second renewal", len(owners), kills, len(owners)-byRenewal[0], byRenewal[1:])
	expired := time.NewTimer(lease.DefaultTTL + 2*time.Second)
	<-expired.C
	for n := 1; n <= 3; n++ {
		c.kill(n)
	}
	keys, leases := etcdtest.Leased(t, filepath.Join(c.data, devNodeName(1), "etcd"))
	require.Empty(t, keys)
	require.Empty(t, leases)
	require.NoError(t, os.RemoveAll(c.data)) // etcd allocates its logs in advance
}
