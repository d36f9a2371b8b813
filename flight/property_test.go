package flight_test

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/flightd/flightd/flight"
)

// randomWalk applies long random sequences of commands, beyond the exhaustive test: many sessions, a new nonce for every
// Open, more attempts and evidence than a flight stores, many generations, and repeats of earlier commands at any time.
type randomWalk struct {
	*rapid.T
	w        *ledger
	policy   map[flight.Key]flight.Policy
	history  []flight.Command
	sessions []flight.Session
	nonces   uint16
	answers  map[flight.Decision]int // of all walks of a test
}

func drawPolicy(t *rapid.T) flight.Policy {
	p := flight.Policy{
		Recovery:       rapid.SampledFrom([]flight.Recovery{flight.RecoveryHold, flight.RecoveryResend, flight.RecoveryResend, flight.RecoveryVerify}).Draw(t, "recovery"),
		AttemptTimeout: rapid.SampledFrom([]time.Duration{0, time.Second}).Draw(t, "time-out"),
		SettleDelay:    rapid.SampledFrom([]time.Duration{0, settleDelay}).Draw(t, "settle"),
		ProviderWindow: rapid.SampledFrom([]time.Duration{0, providerWindow, 10 * providerWindow}).Draw(t, "window"),
		Lookup:         rapid.Bool().Draw(t, "lookup"),
		VerifyAttempts: rapid.IntRange(0, 3).Draw(t, "tries"),
		Retention:      rapid.SampledFrom([]time.Duration{time.Second, retention, 10 * retention}).Draw(t, "retention"),
		Approval:       rapid.IntRange(0, 5).Draw(t, "approval") == 0,
		RunAfter:       rapid.SampledFrom([]time.Duration{0, 0, time.Second}).Draw(t, "run after"),
	}
	if n := rapid.SampledFrom([]int{0, 1, 3, 30}).Draw(t, "attempts"); n > 0 {
		p.Retry = flight.RetryPolicy{Attempts: n, MinBackoff: time.Second, MaxBackoff: 8 * time.Second,
			Within: rapid.SampledFrom([]time.Duration{0, providerWindow, 10 * providerWindow}).Draw(t, "within")}
	}
	return p
}

func TestProperty_LongHistoriesKeepInvariants(t *testing.T) {
	answers := make(map[flight.Decision]int)
	rapid.Check(t, func(rt *rapid.T) {
		v := &randomWalk{T: rt, w: newLedger(soloKey), policy: map[flight.Key]flight.Policy{soloKey: drawPolicy(rt)}, answers: answers}
		v.run(400)
	})
	t.Logf("commands by their answers: %v", answers)
}

func TestProperty_SagasKeepTheInvariants(t *testing.T) {
	answers := make(map[flight.Decision]int)
	rapid.Check(t, func(rt *rapid.T) {
		saga := flight.Policy{Saga: true, Retention: retention, Retry: flight.RetryPolicy{Attempts: rapid.IntRange(0, 2).Draw(rt, "attempts")}}
		v := &randomWalk{T: rt, w: newLedger(sagaKey, stepKey, undoKey), answers: answers,
			policy: map[flight.Key]flight.Policy{sagaKey: saga, stepKey: drawPolicy(rt), undoKey: drawPolicy(rt)}}
		v.run(400)
	})
	t.Logf("commands by their answers: %v", answers)
}

func (v *randomWalk) run(steps int) {
	for range steps {
		c := v.command()
		before := v.encodedRecord(c)
		next, reply, err := v.w.apply(c)
		require.NoError(v, err, describe(c))
		v.answers[reply.Decision]++
		require.Equal(v, before, v.encodedRecord(c), "%s: Apply changed its argument", describe(c))
		v.history = append(v.history, c)
		v.w = next
		v.roundTrip(c)
	}
}

func (v *randomWalk) encodedRecord(c flight.Command) []byte {
	f := v.w.view(c.Target()).Flight
	if f == nil {
		return nil
	}
	b, err := flight.EncodeRecord(f)
	require.NoError(v, err)
	return b
}

// roundTrip encodes and decodes the present flight and the last command.
func (v *randomWalk) roundTrip(c flight.Command) {
	if b := v.encodedRecord(c); b != nil {
		f := new(flight.Flight)
		require.NoError(v, flight.DecodeRecord(b, f))
		again, err := flight.EncodeRecord(f)
		require.NoError(v, err)
		require.Equal(v, b, again, "a flight changed by encoding and decoding")
	}
	switch c.(type) {
	case *tick, *restore:
		return
	}
	b, err := flight.Encode(c)
	require.NoError(v, err)
	read, err := flight.Decode(b)
	require.NoError(v, err)
	require.True(v, reflect.DeepEqual(read, c), "%s decodes as %s", describe(c), describe(read))
}

func (v *randomWalk) command() flight.Command {
	if len(v.history) > 0 && rapid.IntRange(0, 9).Draw(v.T, "again") == 0 {
		return rapid.SampledFrom(v.history).Draw(v.T, "said before")
	}
	i := rapid.IntRange(0, len(v.w.keys)-1).Draw(v.T, "key")
	k := v.w.keys[i]
	g := uint32(1)
	if f := v.w.flights[i]; f != nil {
		g = f.Generation
	}
	if v.w.header.Reconciling && rapid.IntRange(0, 9).Draw(v.T, "finish") == 0 {
		return &flight.FinishRestore{Epoch: v.w.header.StoreEpoch, Force: true}
	}
	if rapid.Bool().Draw(v.T, "onward") {
		return v.liveCommand(k, i)
	}
	switch rapid.IntRange(0, 15).Draw(v.T, "verb") {
	case 0, 1, 2:
		return v.open(k)
	case 3, 4, 5, 6:
		return v.report(k, i)
	case 7, 8:
		return v.tick()
	case 9:
		return v.endSession(k, i)
	case 10:
		return v.byPerson(k, i, g)
	case 11:
		return v.reportFinding(k, i, g)
	case 12:
		return v.suspend(k, i, g)
	case 13:
		return v.abandon(k)
	case 14:
		return rapid.SampledFrom([]flight.Command{
			&flight.Submit{Key: k, Submission: v.submission(k)}, &flight.Expire{Key: k, Generation: g},
			&flight.Expire{Key: k, Generation: g}, &flight.WakeUp{Key: k, Generation: g}, &flight.FreeKey{Key: k, Generation: g, Actor: "ann"},
			&flight.CountDuplicates{Key: k, ID: flight.CountID{Source: 1, Number: uint64(v.w.header.Now)}, Stats: flight.DuplicateStats{Count: 2, First: 1, Last: 2}},
			&flight.Redact{Key: k, Generation: g - uint32(rapid.IntRange(0, 5).Draw(v.T, "old page")/5), Actor: "ann", Reason: "asked for"}, v.importReceipt(k),
		}).Draw(v.T, "other")
	}
	if rapid.IntRange(0, 9).Draw(v.T, "rare") > 0 {
		return v.tick()
	}
	h := v.w.header
	return rapid.SampledFrom([]flight.Command{&flight.SealKey{Key: k}, &flight.Bootstrap{Deployment: "other"}, &restore{},
		&flight.RaiseEpoch{From: h.LeaseEpoch, Hold: providerWindow}, &flight.RecordGuard{Epoch: h.LeaseEpoch, Counter: h.GuardCounter + 1},
		&flight.Restore{From: h.StoreEpoch, Hold: providerWindow}, &flight.FinishRestore{Epoch: h.StoreEpoch, Force: rapid.Bool().Draw(v.T, "force")},
		&flight.Tick{StepTo: h.Now.Add(providerWindow)}, &flight.Tick{StepTo: h.Now.Add(settleDelay)},
	}).Draw(v.T, "rarest")
}

// liveCommand returns a command that changes the flight's state.
func (v *randomWalk) liveCommand(k flight.Key, i int) flight.Command {
	f := v.w.flights[i]
	if f == nil || f.State == flight.StateAbsent || f.State == flight.StateReady {
		return v.openUnder(k, v.newSession(), time.Second)
	}
	switch {
	case f.State == flight.StateInDoubt:
		return &flight.Resolve{Key: k, Generation: f.Generation, Version: f.Version, Finding: flight.FindingNotHappened, Actor: "ann"}
	case f.State == flight.StateAwaitingApproval:
		return &flight.DecideApproval{Key: k, Generation: f.Generation, Fingerprint: f.Fingerprint, Version: f.Version, Finding: flight.FindingApproved}
	case f.State == flight.StateExpired || f.State.Terminal() && rapid.Bool().Draw(v.T, "free"):
		return &flight.FreeKey{Key: k, Generation: f.Generation, Actor: "ann"}
	case f.State.Terminal():
		return &flight.Expire{Key: k, Generation: f.Generation}
	case f.State == flight.StateWaiting:
		return &flight.WakeUp{Key: k, Generation: f.Generation}
	case f.Verification != nil && f.HolderTime(&v.w.header, f.Verification.NotBefore) <= v.w.header.Now && f.Verification.Nonce == (flight.Nonce{}):
		return v.openUnder(k, v.newSession(), time.Second)
	case f.Verification != nil && f.HolderTime(&v.w.header, f.Verification.NotBefore) <= v.w.header.Now:
		return v.reportFinding(k, i, f.Generation)
	case f.OpenAttempt() != nil:
		return v.report(k, i)
	}
	return v.tick()
}

// newSession returns an unused session of the present lease epoch.
func (v *randomWalk) newSession() flight.Session {
	n := len(v.sessions)
	x := flight.Session{ID: flight.SessionID(fmt.Sprint("ses_", n)), Revision: int64(10 + n), Epoch: v.w.header.LeaseEpoch, OneShot: n%2 == 1}
	v.sessions = append(v.sessions, x)
	return x
}

// session returns a new session, or one of the last few.
func (v *randomWalk) session() flight.Session {
	back := rapid.IntRange(-1, 4).Draw(v.T, "session")
	if back < 0 || back >= len(v.sessions) {
		return v.newSession()
	}
	return v.sessions[len(v.sessions)-1-back]
}

// endSession proves that a session has ended, usually the holder of the key, with a read that is usually recent enough; or it
// withdraws the session.
func (v *randomWalk) endSession(k flight.Key, i int) flight.Command {
	x := v.session()
	if holder := v.w.flights[i].Holder(); holder != nil && rapid.IntRange(0, 3).Draw(v.T, "of another") > 0 {
		x = *holder
	}
	h := v.w.header
	if rapid.IntRange(0, 5).Draw(v.T, "withdraw") == 0 {
		return &flight.WithdrawSession{Key: k, Session: x.ID, StoreEpoch: h.StoreEpoch}
	}
	return &flight.EndSession{Session: x, ReadRevision: x.Revision - 1 + int64(rapid.IntRange(0, 9).Draw(v.T, "read")),
		Epoch: h.LeaseEpoch - uint32(rapid.IntRange(0, 20).Draw(v.T, "older epoch")/20), StoreEpoch: v.storeEpoch(),
		Counter: h.GuardCounter - min(h.GuardCounter, uint64(rapid.IntRange(0, 20).Draw(v.T, "older counter")/20))}
}

// storeEpoch returns the present store epoch, and rarely an older one.
func (v *randomWalk) storeEpoch() uint32 {
	return v.w.header.StoreEpoch - uint32(rapid.IntRange(0, 30).Draw(v.T, "older store")/30)
}

func (v *randomWalk) submission(k flight.Key) flight.Submission {
	s := flight.Submission{Fingerprint: fp1, Policy: v.policy[k], Input: bodies["x"]}
	if rapid.IntRange(0, 9).Draw(v.T, "fingerprint") == 0 {
		s.Fingerprint = rapid.SampledFrom([]flight.Fingerprint{fp2, flight.NoFingerprint}).Draw(v.T, "other fingerprint")
	}
	if k.IsStep() && len(v.w.openedAttempts[0]) > 0 && rapid.IntRange(0, 4).Draw(v.T, "worker of a pool") > 0 {
		s.Driver = v.newest(0).token
	}
	return s
}

func (v *randomWalk) open(k flight.Key) flight.Command {
	life := time.Duration(rapid.IntRange(-2, 63).Draw(v.T, "life")) * time.Second
	o := v.openUnder(k, v.session(), life)
	o.StoreEpoch = v.storeEpoch()
	return o
}

func (v *randomWalk) openUnder(k flight.Key, x flight.Session, life time.Duration) *flight.Open {
	return &flight.Open{Key: k, Submission: v.submission(k), Session: x, Nonce: v.newNonce(), NotAfter: v.w.header.Now.Add(life),
		Owner: "host:1", StoreEpoch: v.w.header.StoreEpoch}
}

func (v *randomWalk) newNonce() flight.Nonce {
	v.nonces++
	return flight.Nonce{byte(v.nonces >> 8), byte(v.nonces)}
}

// importReceipt imports a receipt, of any time.
func (v *randomWalk) importReceipt(k flight.Key) *flight.Import {
	c := importOf(k, rapid.SampledFrom([]flight.Outcome{flight.OutcomeSucceeded, flight.OutcomeSucceeded, flight.OutcomeRefused, flight.OutcomeUnknown}).Draw(v.T, "outcome brought"),
		rapid.SampledFrom([]string{"x", "y", ""}).Draw(v.T, "effect brought"), rapid.SampledFrom([]flight.Fingerprint{fp1, fp1, fp2, flight.NoFingerprint}).Draw(v.T, "fingerprint brought"))
	c.Input, c.CreatedAt = bodies["x"], v.w.header.Now.Add(time.Duration(rapid.IntRange(-9, 9).Draw(v.T, "created"))*time.Second)
	c.FinishedAt = v.w.header.Now.Add(time.Duration(rapid.IntRange(-9, 9).Draw(v.T, "finished")) * time.Second)
	return c
}

// newest returns the attempt that was opened last, or sometimes an earlier one.
func (v *randomWalk) newest(i int) attemptRef {
	refs := v.w.openedAttempts[i]
	if rapid.IntRange(0, 3).Draw(v.T, "old attempt") == 0 {
		return rapid.SampledFrom(refs).Draw(v.T, "attempt")
	}
	return refs[len(refs)-1]
}

func (v *randomWalk) report(k flight.Key, i int) flight.Command {
	if len(v.w.openedAttempts[i]) == 0 {
		return v.open(k)
	}
	o := rapid.SampledFrom([]flight.Outcome{flight.OutcomeSucceeded, flight.OutcomeRefused, flight.OutcomeNotDone, flight.OutcomeNotDone, flight.OutcomeNotDone,
		flight.OutcomeUnknown, flight.OutcomeUnknown, flight.OutcomeUnknown}).Draw(v.T, "outcome")
	id := ""
	if o == flight.OutcomeSucceeded {
		id = rapid.SampledFrom([]string{"x", "y"}).Draw(v.T, "effect")
	}
	at := v.newest(i)
	if rapid.IntRange(0, 9).Draw(v.T, "token of this ledger") > 0 {
		at.token.StoreEpoch = v.w.header.StoreEpoch // as a renewal returns it after a restore
	}
	if rapid.IntRange(0, 60).Draw(v.T, "lost attempt") == 0 {
		at.token.Number += 2
	}
	r := reportOf(k, at, o, id)
	r.RetryAfter = time.Duration(rapid.IntRange(0, 20).Draw(v.T, "retry after")/18) * time.Second
	return r
}

// abandon abandons an Open that was sent before, or that is never sent; or it repeats an earlier Open under another session.
func (v *randomWalk) abandon(k flight.Key) flight.Command {
	for j := len(v.history) - 1; j >= 0; j-- {
		o, ok := v.history[j].(*flight.Open)
		if !ok || o.Key != k || rapid.Bool().Draw(v.T, "an earlier one") {
			continue
		}
		if rapid.Bool().Draw(v.T, "repeat") {
			again := *o
			again.Session, again.StoreEpoch = v.session(), v.w.header.StoreEpoch
			return &again
		}
		return &flight.Abandon{Key: k, Nonce: o.Nonce, NotAfter: o.NotAfter, StoreEpoch: v.storeEpoch(), Error: "gone"}
	}
	return &flight.Abandon{Key: k, Nonce: v.newNonce(), NotAfter: v.w.header.Now.Add(time.Second), StoreEpoch: v.w.header.StoreEpoch}
}

func (v *randomWalk) tick() flight.Command {
	return &tick{by: rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, settleDelay, 16 * time.Second, providerWindow, retention, 10 * retention}).Draw(v.T, "time"),
		ahead: rapid.SampledFrom([]time.Duration{0, 0, 0, settleDelay, retention}).Draw(v.T, "wall clock")}
}

func (v *randomWalk) byPerson(k flight.Key, i int, g uint32) flight.Command {
	version := flight.Version{}
	if f := v.w.flights[i]; f != nil && rapid.IntRange(0, 5).Draw(v.T, "stale page") > 0 {
		version = f.Version
	}
	verb := rapid.SampledFrom([]flight.Finding{flight.FindingHappened, flight.FindingNotHappened, flight.FindingNotHappened, flight.FindingFail, flight.FindingApproved}).Draw(v.T, "verb of a person")
	return rapid.SampledFrom([]flight.Command{
		&flight.Cancel{Key: k, Generation: g, Actor: "ann", Reason: "enough"},
		&flight.Resolve{Key: k, Generation: g, Version: version, Finding: verb, ExternalID: "y", Body: bodies["y"], Actor: "ann", Reason: "saw it"},
		&flight.Resolve{Key: k, Generation: g, Version: version, Finding: verb, ExternalID: "x", Body: bodies["x"], Actor: "bob"},
		&flight.DecideApproval{Key: k, Generation: g, Fingerprint: fp1, Version: version, Finding: flight.FindingApproved, Actor: "ann"},
		&flight.DecideApproval{Key: k, Generation: g, Fingerprint: fp1, Version: version, Finding: rapid.SampledFrom([]flight.Finding{flight.FindingApproved, flight.FindingRejected}).Draw(v.T, "decision"), Actor: "ann"},
		&flight.Retry{Key: k, Generation: g, Actor: "ann"},
	}).Draw(v.T, "person")
}

func (v *randomWalk) reportFinding(k flight.Key, i int, g uint32) flight.Command {
	f := v.w.flights[i]
	if f == nil || f.Verification == nil {
		return v.endSession(k, i)
	}
	return &flight.ReportFinding{Key: k, Generation: g, Verification: f.Verification.Number - uint32(rapid.IntRange(0, 5).Draw(v.T, "stale")/5),
		Finding:    rapid.SampledFrom([]flight.Finding{flight.FindingHappened, flight.FindingNotHappened, flight.FindingNone, flight.FindingNone}).Draw(v.T, "found"),
		ExternalID: "x", Body: bodies["x"]}
}

func (v *randomWalk) suspend(k flight.Key, i int, g uint32) flight.Command {
	if len(v.w.openedAttempts[i]) == 0 {
		return v.open(k)
	}
	at := v.newest(i)
	if i == 0 && len(v.w.keys) > 1 && rapid.Bool().Draw(v.T, "turn") {
		return &flight.BeginUndo{Key: k, Generation: at.generation, Token: at.token}
	}
	wake := flight.Wake{At: v.w.header.Now.Add(settleDelay), Callback: rapid.Bool().Draw(v.T, "callback")}
	return &flight.Suspend{Key: k, Generation: g, Token: at.token, Wake: wake}
}
