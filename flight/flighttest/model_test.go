package flighttest_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
	. "github.com/flightd/flightd/flight/flighttest"
)

// ledger applies the model's operations to a few keys with Apply.
type ledger struct {
	header  flight.Header
	flights map[string]*flight.Flight
}

func newLedger() *ledger {
	return &ledger{header: flight.Header{LeaseEpoch: 1, StoreEpoch: 1, Now: 1000}, flights: map[string]*flight.Flight{}}
}

func (l *ledger) do(t *testing.T, o Op) Result {
	k := flight.MustKey("test/model/" + o.Key)
	f := l.flights[o.Key]
	g, version, probe := uint32(1), flight.Version{}, uint32(0)
	if f != nil {
		g, version, probe = f.Generation, f.Version, f.Verifications
	}
	var c flight.Command
	switch o.Kind {
	case OpOpen:
		c = &flight.Open{Key: k, Submission: flight.Submission{Policy: flight.Policy{Recovery: o.Recovery, SettleDelay: time.Millisecond}},
			Session: sessionOf(o.Nonce), Nonce: o.Nonce, NotAfter: notAfter, StoreEpoch: 1}
	case OpReport:
		c = &flight.Report{Key: k, Generation: g, Token: o.Token, Outcome: o.Outcome, ExternalID: o.Effect}
	case OpAbandon:
		c = &flight.Abandon{Key: k, Nonce: o.Nonce, NotAfter: notAfter, StoreEpoch: 1}
	case OpReportFinding:
		c = &flight.ReportFinding{Key: k, Generation: g, Verification: probe, Finding: o.Finding, ExternalID: o.Effect}
	case OpResolve:
		c = &flight.Resolve{Key: k, Generation: g, Version: version, Finding: o.Finding, ExternalID: o.Effect}
	case OpGet:
		return resultOf(f, flight.DecisionAccepted)
	}
	reply := l.apply(t, o.Key, c)
	result := resultOf(l.flights[o.Key], reply.Decision)
	result.Token = reply.Token
	return result
}

func (l *ledger) apply(t *testing.T, key string, c flight.Command) flight.Reply {
	l.header.Version.Index++
	l.header.Now += 2
	before := flight.View{Header: l.header, Flight: l.flights[key]}
	after, reply := flight.Apply(before, c)
	require.NoError(t, Check(before, c, after, reply))
	l.header, l.flights[key] = after.Header, after.Flight
	return reply
}

// lose proves that the session of a key's open attempt has ended, if an attempt is open.
func (l *ledger) lose(t *testing.T, key string) {
	if holder := l.flights[key].Holder(); holder != nil {
		l.apply(t, key, &flight.EndSession{Session: *holder, ReadRevision: holder.Revision, Epoch: 1, StoreEpoch: 1})
	}
}

// notAfter is the NotAfter of every Open: histories are shorter than MaxOpenLife.
const notAfter = flight.Time(30_000)

// sessionOf returns the session of a nonce's caller. Each caller has its own session.
func sessionOf(n flight.Nonce) flight.Session {
	return flight.Session{ID: flight.SessionID(fmt.Sprintf("%x", n)), Revision: 7, Epoch: 1}
}

func resultOf(f *flight.Flight, d flight.Decision) Result {
	result := Result{Decision: d}
	if f != nil {
		result.State = f.State
		if f.Receipt != nil {
			result.Effect = f.Receipt.ExternalID
		}
	}
	return result
}

// history returns a random history of a correct ledger: answers arrive late or never, and a command without an answer may
// have been applied or lost.
func history(t *testing.T, r *rand.Rand, keys, each int) []porcupine.Operation {
	l := newLedger()
	tokens, nonces := map[string][]flight.Token{}, map[string][]flight.Nonce{}
	var all []porcupine.Operation
	for at := int64(0); at < int64(keys*each); at++ {
		k := r.IntN(keys)
		o := Op{Key: fmt.Sprint(k), Kind: OpKind(1 + r.IntN(6)), Recovery: flight.Recovery(k % 3)}
		o.Finding = flight.Finding(1 + r.IntN(3))
		if o.Kind == OpReportFinding {
			o.Finding = flight.Finding(r.IntN(3))
		}
		o.Outcome = flight.Outcome(1 + r.IntN(4))
		if known := tokens[o.Key]; len(known) > 0 {
			o.Token = known[len(known)-1-min(r.IntN(3)/2, len(known)-1)]
		} else {
			o.Kind = OpOpen
		}
		if o.Kind == OpOpen || o.Kind == OpAbandon {
			o.Nonce = flight.Nonce{1, byte(at >> 16), byte(at >> 8), byte(at)}
			if known := nonces[o.Key]; len(known) > 0 && (o.Kind == OpAbandon || r.IntN(4) == 0) {
				o.Nonce = known[len(known)-1-min(r.IntN(3), len(known)-1)]
			}
			nonces[o.Key] = append(nonces[o.Key], o.Nonce)
		}
		if r.IntN(4) == 0 {
			l.lose(t, o.Key)
		}
		if o.Kind == OpReport && o.Outcome == flight.OutcomeSucceeded || o.Finding == flight.FindingHappened && (o.Kind == OpReportFinding || o.Kind == OpResolve) {
			o.Effect = fmt.Sprint("effect ", r.IntN(2))
		}
		op := porcupine.Operation{ClientId: int(at), Input: o, Call: 10*at - r.Int64N(25), Return: 10*at + r.Int64N(25)}
		silent := r.IntN(10) == 0
		if silent {
			op.Output, op.Return = Result{}, Never
		}
		if !silent || r.IntN(2) == 0 {
			result := l.do(t, o)
			if result.Decision == flight.DecisionProceed {
				tokens[o.Key] = append(tokens[o.Key], result.Token)
			}
			if !silent {
				op.Output = result
			}
		}
		all = append(all, op)
	}
	return all
}

func TestModel_AcceptsCorrectLedger(t *testing.T) {
	for seed := range uint64(2000) {
		h := history(t, rand.New(rand.NewPCG(seed, 1)), 3, 25)
		require.Equal(t, porcupine.Ok, porcupine.CheckOperationsTimeout(Model(), h, time.Minute),
			"seed %d: a correct history of %d operations was rejected", seed, len(h))
	}
}

func TestModel_RejectsViolations(t *testing.T) {
	token := func(number uint32) flight.Token { return flight.Token{StoreEpoch: 1, Number: number} }
	open := func(nonce byte) Op { return Op{Kind: OpOpen, Nonce: flight.Nonce{nonce}} }
	resendOpen := func(nonce byte) Op { o := open(nonce); o.Recovery = flight.RecoveryResend; return o }
	abandon := func(nonce byte) Op { return Op{Kind: OpAbandon, Nonce: flight.Nonce{nonce}} }
	report := func(tk flight.Token, o flight.Outcome, effect string) Op {
		return Op{Kind: OpReport, Token: tk, Outcome: o, Effect: effect}
	}
	proceed := func(tk flight.Token) Result {
		return Result{Decision: flight.DecisionProceed, Token: tk, State: flight.StateRunning}
	}
	accepted := Result{Decision: flight.DecisionAccepted}
	doubtful := Result{Decision: flight.DecisionInDoubt, State: flight.StateInDoubt}
	done := func(d flight.Decision, effect string) Result {
		return Result{Decision: d, State: flight.StateSucceeded, Effect: effect}
	}
	get := Op{Kind: OpGet}
	notDone := Op{Kind: OpResolve, Finding: flight.FindingNotHappened}
	type step struct {
		op     Op
		result Result
	}
	first, second := token(1), token(2)
	for _, c := range []struct {
		name  string
		good  bool
		steps []step
	}{
		{"a flight from open to replay", true, []step{{open(1), proceed(first)}, {report(first, flight.OutcomeSucceeded, "x"), done(flight.DecisionAccepted, "x")}, {open(2), done(flight.DecisionReplay, "x")}, {get, done(flight.DecisionAccepted, "x")}}},
		{"a report without an answer is observed", true, []step{{open(1), proceed(first)}, {report(first, flight.OutcomeSucceeded, "x"), Result{}}, {get, done(flight.DecisionAccepted, "x")}}},
		{"a report without an answer is not observed yet", true, []step{{open(1), proceed(first)}, {report(first, flight.OutcomeSucceeded, "x"), Result{}}, {get, Result{Decision: flight.DecisionAccepted, State: flight.StateRunning}}}},
		{"a report is observed and then not", false, []step{{open(1), proceed(first)}, {report(first, flight.OutcomeSucceeded, "x"), Result{}}, {get, done(flight.DecisionAccepted, "x")}, {get, Result{Decision: flight.DecisionAccepted, State: flight.StateRunning}}}},
		{"a late report is accepted", false, []step{{resendOpen(1), proceed(first)}, {resendOpen(2), proceed(second)}, {report(first, flight.OutcomeSucceeded, "x"), done(flight.DecisionAccepted, "x")}}},
		{"a late report is fenced", true, []step{{resendOpen(1), proceed(first)}, {resendOpen(2), proceed(second)}, {report(first, flight.OutcomeSucceeded, "x"), Result{Decision: flight.DecisionFenced, State: flight.StateRunning}}}},
		{"the newest report is fenced", false, []step{{open(1), proceed(first)}, {report(first, flight.OutcomeSucceeded, "x"), Result{Decision: flight.DecisionFenced}}}},
		{"a receipt changes", false, []step{{open(1), proceed(first)}, {report(first, flight.OutcomeSucceeded, "x"), accepted}, {get, done(flight.DecisionAccepted, "y")}}},
		{"a second receipt is accepted", false, []step{{open(1), proceed(first)}, {report(first, flight.OutcomeSucceeded, "x"), accepted}, {report(first, flight.OutcomeSucceeded, "y"), accepted}}},
		{"a receipt is lost", false, []step{{open(1), proceed(first)}, {report(first, flight.OutcomeSucceeded, "x"), accepted}, {open(2), proceed(second)}}},
		{"a replay without a receipt", false, []step{{open(1), done(flight.DecisionReplay, "x")}}},
		{"two proceed under hold", false, []step{{open(1), proceed(first)}, {open(2), proceed(second)}}},
		{"two proceed with one token", false, []step{{resendOpen(1), proceed(first)}, {resendOpen(2), proceed(first)}}},
		{"two proceed under hold, one without an answer", false, []step{{open(1), Result{}}, {open(2), proceed(second)}}},
		{"a token jumps", false, []step{{resendOpen(1), proceed(first)}, {resendOpen(2), proceed(token(3))}}},
		{"an earlier attempt proceeds again", false, []step{{resendOpen(1), proceed(first)}, {resendOpen(2), proceed(second)}, {resendOpen(1), proceed(first)}}},
		{"a repeat proceeds", true, []step{{open(1), proceed(first)}, {open(1), proceed(first)}}},
		{"a used nonce opens again", false, []step{{open(1), proceed(first)}, {report(first, flight.OutcomeNotDone, ""), accepted}, {open(1), proceed(second)}}},
		{"an abandoned nonce opens", false, []step{{abandon(1), accepted}, {open(1), proceed(first)}}},
		{"an abandoned nonce opens, the abandon without an answer", true, []step{{abandon(1), Result{}}, {open(1), proceed(first)}}},
		{"a nonce opens that was answered in doubt", false, []step{{open(1), proceed(first)}, {open(2), doubtful}, {notDone, accepted}, {open(2), proceed(second)}}},
		{"a person allows another", true, []step{{open(1), proceed(first)}, {notDone, accepted}, {open(2), proceed(second)}}},
		{"a decision without an answer and another proceeds", true, []step{{open(1), proceed(first)}, {notDone, Result{}}, {open(2), proceed(second)}}},
		{"a person overrides a receipt", false, []step{{open(1), proceed(first)}, {report(first, flight.OutcomeSucceeded, "x"), accepted}, {Op{Kind: OpResolve, Finding: flight.FindingHappened, Effect: "y"}, accepted}}},
		{"an unknown outcome loses its taint", false, []step{{open(1), proceed(first)}, {report(first, flight.OutcomeUnknown, ""), accepted}, {open(2), proceed(second)}}},
		{"not done frees the flight", true, []step{{open(1), proceed(first)}, {report(first, flight.OutcomeNotDone, ""), accepted}, {open(2), proceed(second)}}},
		{"an abandoned attempt frees the flight", true, []step{{open(1), proceed(first)}, {abandon(1), accepted}, {open(2), proceed(second)}}},
		{"an attempt that has reported is abandoned", false, []step{{open(1), proceed(first)}, {report(first, flight.OutcomeUnknown, ""), accepted}, {abandon(1), accepted}, {open(2), proceed(second)}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var h []porcupine.Operation
			for i, s := range c.steps {
				op := porcupine.Operation{ClientId: i, Input: s.op, Output: s.result, Call: int64(10 * i), Return: int64(10*i + 5)}
				if s.result == (Result{}) {
					op.Return = Never
				}
				h = append(h, op)
			}
			require.Equal(t, c.good, porcupine.CheckOperations(Model(), h))
		})
	}
}

func TestModel_PartitionsByKey(t *testing.T) {
	open := func(key string, at int64) porcupine.Operation {
		return porcupine.Operation{Input: Op{Key: key, Kind: OpOpen, Nonce: flight.Nonce{1}},
			Output: Result{Decision: flight.DecisionProceed, Token: flight.Token{StoreEpoch: 1, Number: 1}}, Call: at, Return: at + 1}
	}
	require.True(t, porcupine.CheckOperations(Model(), []porcupine.Operation{open("a", 1), open("b", 2)}))
}

func BenchmarkModel(b *testing.B) {
	var t testing.T
	h := history(&t, rand.New(rand.NewPCG(1, 1)), 2000, 15)
	for b.Loop() {
		require.True(b, porcupine.CheckOperations(Model(), h), "rejected")
	}
	b.ReportMetric(float64(len(h)), "operations")
}
