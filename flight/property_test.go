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
	if p.Approval {
		p.ApprovalWithin = rapid.SampledFrom([]time.Duration{0, 3 * time.Second}).Draw(t, "approval within")
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
		step := drawPolicy(rt)
		step.SafeIfAbsent = rapid.Bool().Draw(rt, "safe if absent")
		v := &randomWalk{T: rt, w: newLedger(sagaKey, stepKey, undoKey), answers: answers,
			policy: map[flight.Key]flight.Policy{sagaKey: saga, stepKey: step, undoKey: drawPolicy(rt)}}
		v.run(400)
	})
	t.Logf("commands by their answers: %v", answers)
}

func (rw *randomWalk) run(steps int) {
	for range steps {
		c := rw.command()
		before := rw.encodedRecord(c)
		next, reply, err := rw.w.apply(c)
		require.NoError(rw, err, describe(c))
		rw.answers[reply.Decision]++
		require.Equal(rw, before, rw.encodedRecord(c), "%s: Apply changed its argument", describe(c))
		rw.history = append(rw.history, c)
		rw.w = next
		rw.roundTrip(c)
	}
}

func (rw *randomWalk) encodedRecord(c flight.Command) []byte {
	f := rw.w.view(c.Target()).Flight
	if f == nil {
		return nil
	}
	b, err := flight.EncodeRecord(f)
	require.NoError(rw, err)
	return b
}

// roundTrip encodes and decodes the present flight and the last command.
func (rw *randomWalk) roundTrip(c flight.Command) {
	if b := rw.encodedRecord(c); b != nil {
		f := new(flight.Flight)
		require.NoError(rw, flight.DecodeRecord(b, f))
		again, err := flight.EncodeRecord(f)
		require.NoError(rw, err)
		require.Equal(rw, b, again, "a flight changed by encoding and decoding")
	}
	switch c.(type) {
	case *tick, *restore:
		return
	}
	b, err := flight.Encode(c)
	require.NoError(rw, err)
	read, err := flight.Decode(b)
	require.NoError(rw, err)
	require.True(rw, reflect.DeepEqual(read, c), "%s decodes as %s", describe(c), describe(read))
}

func (rw *randomWalk) command() flight.Command {
	if len(rw.history) > 0 && rapid.IntRange(0, 9).Draw(rw.T, "again") == 0 {
		return rapid.SampledFrom(rw.history).Draw(rw.T, "said before")
	}
	i := rapid.IntRange(0, len(rw.w.keys)-1).Draw(rw.T, "key")
	k := rw.w.keys[i]
	g := uint32(1)
	if f := rw.w.flights[i]; f != nil {
		g = f.Generation
	}
	if rw.w.header.Reconciling && rapid.IntRange(0, 9).Draw(rw.T, "finish") == 0 {
		return &flight.FinishRestore{Epoch: rw.w.header.StoreEpoch, Force: true}
	}
	if rapid.Bool().Draw(rw.T, "onward") {
		return rw.liveCommand(k, i)
	}
	switch rapid.IntRange(0, 15).Draw(rw.T, "verb") {
	case 0, 1, 2:
		return rw.open(k)
	case 3, 4, 5, 6:
		return rw.report(k, i)
	case 7, 8:
		return rw.tick()
	case 9:
		return rw.endSession(k, i)
	case 10:
		return rw.byPerson(k, i, g)
	case 11:
		return rw.reportFinding(k, i, g)
	case 12:
		return rw.suspend(k, i, g)
	case 13:
		return rw.abandon(k)
	case 14:
		return rapid.SampledFrom([]flight.Command{
			&flight.Submit{Key: k, Submission: rw.submission(k)}, &flight.Expire{Key: k, Generation: g},
			&flight.Expire{Key: k, Generation: g}, &flight.WakeUp{Key: k, Generation: g}, &flight.FreeKey{Key: k, Generation: g, Actor: "ann"},
			&flight.CountDuplicates{Key: k, ID: flight.CountID{Source: 1, Number: uint64(rw.w.header.Now)}, Stats: flight.DuplicateStats{Count: 2, First: 1, Last: 2}},
			&flight.Redact{Key: k, Generation: g - uint32(rapid.IntRange(0, 5).Draw(rw.T, "old page")/5), Actor: "ann", Reason: "asked for"}, rw.importReceipt(k),
		}).Draw(rw.T, "other")
	}
	if rapid.IntRange(0, 9).Draw(rw.T, "rare") > 0 {
		return rw.tick()
	}
	h := rw.w.header
	return rapid.SampledFrom([]flight.Command{&flight.SealKey{Key: k}, &flight.Bootstrap{Deployment: "other"}, &restore{},
		&flight.RaiseEpoch{From: h.LeaseEpoch, Hold: providerWindow}, &flight.RecordGuard{Epoch: h.LeaseEpoch, Counter: h.GuardCounter + 1},
		&flight.Restore{From: h.StoreEpoch, Hold: providerWindow}, &flight.FinishRestore{Epoch: h.StoreEpoch, Force: rapid.Bool().Draw(rw.T, "force")},
		&flight.Tick{StepTo: h.Now.Add(providerWindow)}, &flight.Tick{StepTo: h.Now.Add(settleDelay)},
	}).Draw(rw.T, "rarest")
}

// liveCommand returns a command that changes the flight's state.
func (rw *randomWalk) liveCommand(k flight.Key, i int) flight.Command {
	f := rw.w.flights[i]
	absent := f == nil || f.State == flight.StateAbsent
	if absent && (k.IsStep() || rw.policy[k].Saga) {
		return &flight.Submit{Key: k, Submission: rw.submission(k)}
	}
	if absent || f.State == flight.StateReady {
		return rw.openUnder(k, rw.newSession(), time.Second)
	}
	switch {
	case f.Policy.Saga && f.OpenAttempt() != nil:
		return rw.drive(k, f)
	case f.State == flight.StateInDoubt:
		return &flight.Resolve{Key: k, Generation: f.Generation, Version: f.Version, Finding: flight.FindingNotHappened, Actor: "ann"}
	case f.State == flight.StateAwaitingApproval:
		return &flight.DecideApproval{Key: k, Generation: f.Generation, Fingerprint: f.Fingerprint, Version: f.Version, Finding: flight.FindingApproved}
	case f.State == flight.StateExpired || f.State.Terminal() && rapid.Bool().Draw(rw.T, "free"):
		return &flight.FreeKey{Key: k, Generation: f.Generation, Actor: "ann"}
	case f.State.Terminal():
		return &flight.Expire{Key: k, Generation: f.Generation}
	case f.State == flight.StateWaiting:
		return &flight.WakeUp{Key: k, Generation: f.Generation}
	case f.Verification != nil && f.HolderTime(&rw.w.header, f.Verification.NotBefore) <= rw.w.header.Now && f.Verification.Nonce == (flight.Nonce{}):
		return rw.openUnder(k, rw.newSession(), time.Second)
	case f.Verification != nil && f.HolderTime(&rw.w.header, f.Verification.NotBefore) <= rw.w.header.Now:
		return rw.reportFinding(k, i, f.Generation)
	case f.OpenAttempt() != nil:
		return rw.report(k, i)
	}
	return rw.tick()
}

// newSession returns an unused session of the present lease epoch.
func (rw *randomWalk) newSession() flight.Session {
	n := len(rw.sessions)
	x := flight.Session{ID: flight.SessionID(fmt.Sprint("ses_", n)), Revision: int64(10 + n), Epoch: rw.w.header.LeaseEpoch, OneShot: n%2 == 1}
	rw.sessions = append(rw.sessions, x)
	return x
}

// session returns a new session, or one of the last few.
func (rw *randomWalk) session() flight.Session {
	back := rapid.IntRange(-1, 4).Draw(rw.T, "session")
	if back < 0 || back >= len(rw.sessions) {
		return rw.newSession()
	}
	return rw.sessions[len(rw.sessions)-1-back]
}

// endSession proves that a session has ended, usually the holder of the key, with a read that is usually recent enough; or it
// withdraws the session.
func (rw *randomWalk) endSession(k flight.Key, i int) flight.Command {
	x := rw.session()
	if holder := rw.w.flights[i].Holder(); holder != nil && rapid.IntRange(0, 3).Draw(rw.T, "of another") > 0 {
		x = *holder
	}
	h := rw.w.header
	if rapid.IntRange(0, 5).Draw(rw.T, "withdraw") == 0 {
		return &flight.WithdrawSession{Key: k, Session: x.ID, StoreEpoch: h.StoreEpoch}
	}
	return &flight.EndSession{Session: x, ReadRevision: x.Revision - 1 + int64(rapid.IntRange(0, 9).Draw(rw.T, "read")),
		Epoch: h.LeaseEpoch - uint32(rapid.IntRange(0, 20).Draw(rw.T, "older epoch")/20), StoreEpoch: rw.storeEpoch(),
		Counter: h.GuardCounter - min(h.GuardCounter, uint64(rapid.IntRange(0, 20).Draw(rw.T, "older counter")/20))}
}

// storeEpoch returns the present store epoch, and rarely an older one.
func (rw *randomWalk) storeEpoch() uint32 {
	return rw.w.header.StoreEpoch - uint32(rapid.IntRange(0, 30).Draw(rw.T, "older store")/30)
}

func (rw *randomWalk) submission(k flight.Key) flight.Submission {
	s := flight.Submission{Fingerprint: fp1, Policy: rw.policy[k], Input: bodies["x"]}
	if rapid.IntRange(0, 9).Draw(rw.T, "fingerprint") == 0 {
		s.Fingerprint = rapid.SampledFrom([]flight.Fingerprint{fp2, flight.NoFingerprint}).Draw(rw.T, "other fingerprint")
	}
	if k.IsStep() && len(rw.w.openedAttempts[0]) > 0 && rapid.IntRange(0, 4).Draw(rw.T, "worker of a pool") > 0 {
		s.Driver = rw.newest(0).token
	}
	return s
}

func (rw *randomWalk) open(k flight.Key) flight.Command {
	life := time.Duration(rapid.IntRange(-2, 63).Draw(rw.T, "life")) * time.Second
	o := rw.openUnder(k, rw.session(), life)
	o.StoreEpoch = rw.storeEpoch()
	return o
}

// drive returns a command of the driver of a saga.
func (rw *randomWalk) drive(k flight.Key, f *flight.Flight) flight.Command {
	token := rw.newest(0).token
	step := rapid.SampledFrom(rw.w.keys[1:]).Draw(rw.T, "step")
	return rapid.SampledFrom([]flight.Command{
		&flight.Suspend{Key: k, Generation: f.Generation, Token: token, Wake: flight.Wake{Live: 1, Marked: rapid.Bool().Draw(rw.T, "marked")}},
		&flight.Cancel{Key: k, Generation: f.Generation, Actor: "saga"}, &flight.BeginUndo{Key: k, Generation: f.Generation, Token: token},
		&flight.PassPivot{Key: k, Generation: f.Generation, Token: token}, &flight.Submit{Key: step, Submission: rw.submission(step)},
		&flight.Submit{Key: step, Submission: rw.submission(step)}, &flight.Cancel{Key: step, Generation: 1, Driver: token},
		&flight.SealKey{Key: step, Driver: token}, rw.report(k, 0),
	}).Draw(rw.T, "driver")
}

func (rw *randomWalk) openUnder(k flight.Key, x flight.Session, life time.Duration) *flight.Open {
	if rw.policy[k].Saga && rapid.IntRange(0, 7).Draw(rw.T, "driver with a session") > 0 {
		x = flight.Session{}
	}
	return &flight.Open{Key: k, Submission: rw.submission(k), Session: x, Nonce: rw.newNonce(), NotAfter: rw.w.header.Now.Add(life),
		Owner: "host:1", StoreEpoch: rw.w.header.StoreEpoch}
}

func (rw *randomWalk) newNonce() flight.Nonce {
	rw.nonces++
	return flight.Nonce{byte(rw.nonces >> 8), byte(rw.nonces)}
}

// importReceipt imports a receipt, of any time.
func (rw *randomWalk) importReceipt(k flight.Key) *flight.Import {
	c := importOf(k, rapid.SampledFrom([]flight.Outcome{flight.OutcomeSucceeded, flight.OutcomeSucceeded, flight.OutcomeRefused, flight.OutcomeUnknown}).Draw(rw.T, "outcome brought"),
		rapid.SampledFrom([]string{"x", "y", ""}).Draw(rw.T, "effect brought"), rapid.SampledFrom([]flight.Fingerprint{fp1, fp1, fp2, flight.NoFingerprint}).Draw(rw.T, "fingerprint brought"))
	c.Input, c.CreatedAt = bodies["x"], rw.w.header.Now.Add(time.Duration(rapid.IntRange(-9, 9).Draw(rw.T, "created"))*time.Second)
	c.FinishedAt = rw.w.header.Now.Add(time.Duration(rapid.IntRange(-9, 9).Draw(rw.T, "finished")) * time.Second)
	return c
}

// newest returns the attempt that was opened last, or sometimes an earlier one.
func (rw *randomWalk) newest(i int) attemptRef {
	refs := rw.w.openedAttempts[i]
	if rapid.IntRange(0, 3).Draw(rw.T, "old attempt") == 0 {
		return rapid.SampledFrom(refs).Draw(rw.T, "attempt")
	}
	return refs[len(refs)-1]
}

func (rw *randomWalk) report(k flight.Key, i int) flight.Command {
	if len(rw.w.openedAttempts[i]) == 0 {
		return rw.open(k)
	}
	o := rapid.SampledFrom([]flight.Outcome{flight.OutcomeSucceeded, flight.OutcomeRefused, flight.OutcomeNotDone, flight.OutcomeNotDone, flight.OutcomeNotDone,
		flight.OutcomeUnknown, flight.OutcomeUnknown, flight.OutcomeUnknown}).Draw(rw.T, "outcome")
	id := ""
	if o == flight.OutcomeSucceeded {
		id = rapid.SampledFrom([]string{"x", "y"}).Draw(rw.T, "effect")
	}
	at := rw.newest(i)
	if rapid.IntRange(0, 9).Draw(rw.T, "token of this ledger") > 0 {
		at.token.StoreEpoch = rw.w.header.StoreEpoch // as a renewal returns it after a restore
	}
	if rapid.IntRange(0, 60).Draw(rw.T, "lost attempt") == 0 {
		at.token.Number += 2
	}
	r := reportOf(k, at, o, id)
	r.RetryAfter = time.Duration(rapid.IntRange(0, 20).Draw(rw.T, "retry after")/18) * time.Second
	return r
}

// abandon abandons an Open that was sent before, or that is never sent; or it repeats an earlier Open under another session.
func (rw *randomWalk) abandon(k flight.Key) flight.Command {
	for j := len(rw.history) - 1; j >= 0; j-- {
		o, ok := rw.history[j].(*flight.Open)
		if !ok || o.Key != k || rapid.Bool().Draw(rw.T, "an earlier one") {
			continue
		}
		if rapid.Bool().Draw(rw.T, "repeat") {
			again := *o
			again.Session, again.StoreEpoch = rw.session(), rw.w.header.StoreEpoch
			return &again
		}
		return &flight.Abandon{Key: k, Nonce: o.Nonce, NotAfter: o.NotAfter, StoreEpoch: rw.storeEpoch(), Error: "gone"}
	}
	return &flight.Abandon{Key: k, Nonce: rw.newNonce(), NotAfter: rw.w.header.Now.Add(time.Second), StoreEpoch: rw.w.header.StoreEpoch}
}

func (rw *randomWalk) tick() flight.Command {
	return &tick{by: rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, settleDelay, 16 * time.Second, providerWindow, retention, 10 * retention}).Draw(rw.T, "time"),
		ahead: rapid.SampledFrom([]time.Duration{0, 0, 0, settleDelay, retention}).Draw(rw.T, "wall clock")}
}

func (rw *randomWalk) byPerson(k flight.Key, i int, g uint32) flight.Command {
	version := flight.Version{}
	if f := rw.w.flights[i]; f != nil && rapid.IntRange(0, 5).Draw(rw.T, "stale page") > 0 {
		version = f.Version
	}
	verb := rapid.SampledFrom([]flight.Finding{flight.FindingHappened, flight.FindingNotHappened, flight.FindingNotHappened, flight.FindingFail, flight.FindingApproved}).Draw(rw.T, "verb of a person")
	return rapid.SampledFrom([]flight.Command{
		&flight.Cancel{Key: k, Generation: g, Actor: "ann", Reason: "enough"},
		&flight.Resolve{Key: k, Generation: g, Version: version, Finding: verb, ExternalID: "y", Body: bodies["y"], Actor: "ann", Reason: "saw it"},
		&flight.Resolve{Key: k, Generation: g, Version: version, Finding: verb, ExternalID: "x", Body: bodies["x"], Actor: "bob"},
		&flight.DecideApproval{Key: k, Generation: g, Fingerprint: fp1, Version: version, Finding: flight.FindingApproved, Actor: "ann"},
		&flight.DecideApproval{Key: k, Generation: g, Fingerprint: fp1, Version: version, Finding: rapid.SampledFrom([]flight.Finding{flight.FindingApproved, flight.FindingRejected}).Draw(rw.T, "decision"), Actor: "ann"},
		&flight.Retry{Key: k, Generation: g, Actor: "ann"},
	}).Draw(rw.T, "person")
}

func (rw *randomWalk) reportFinding(k flight.Key, i int, g uint32) flight.Command {
	f := rw.w.flights[i]
	if f == nil || f.Verification == nil {
		return rw.endSession(k, i)
	}
	return &flight.ReportFinding{Key: k, Generation: g, Verification: f.Verification.Number - uint32(rapid.IntRange(0, 5).Draw(rw.T, "stale")/5),
		Finding:    rapid.SampledFrom([]flight.Finding{flight.FindingHappened, flight.FindingNotHappened, flight.FindingNone, flight.FindingNone}).Draw(rw.T, "found"),
		ExternalID: "x", Body: bodies["x"]}
}

func (rw *randomWalk) suspend(k flight.Key, i int, g uint32) flight.Command {
	if len(rw.w.openedAttempts[i]) == 0 {
		return rw.open(k)
	}
	at := rw.newest(i)
	if i == 0 && len(rw.w.keys) > 1 && rapid.Bool().Draw(rw.T, "turn") {
		return &flight.BeginUndo{Key: k, Generation: at.generation, Token: at.token}
	}
	wake := flight.Wake{At: rw.w.header.Now.Add(settleDelay), Callback: rapid.Bool().Draw(rw.T, "callback")}
	return &flight.Suspend{Key: k, Generation: g, Token: at.token, Wake: wake}
}
