package runner

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/clock"
)

// fakeTransport is a Transport and an Attempt with scripted answers. It records its calls.
type fakeTransport struct {
	t      *testing.T
	opens  []func() (Answer, error) // in turn; the last one is repeated
	after  func(Completion) (Answer, error)
	verify func(flight.Finding, effect.Answer) (Answer, error)
	trust  context.Context
	cut    context.CancelCauseFunc

	asked   int
	renewed int
	ends    []Completion
}

func newFakeTransport(t *testing.T, opens ...func() (Answer, error)) *fakeTransport {
	s := &fakeTransport{t: t, opens: opens}
	s.trust, s.cut = context.WithCancelCause(t.Context())
	s.after = func(end Completion) (Answer, error) {
		if end.NotStarted {
			return Answer{Decision: DecisionRetry, RetryCause: end.Err}, nil
		}
		return Answer{Result: effect.Result{Key: key, Outcome: end.Outcome, Answer: end.Answer}}, nil
	}
	return s
}

func (t *fakeTransport) Open(context.Context, *effect.Call, time.Time) (Answer, error) {
	open := t.opens[min(t.asked, len(t.opens)-1)]
	t.asked++
	return open()
}
func (t *fakeTransport) Renew(context.Context) error { t.renewed++; return nil }
func (t *fakeTransport) Report(_ context.Context, end Completion) (Answer, error) {
	t.ends = append(t.ends, end)
	return t.after(end)
}
func (t *fakeTransport) Verify(_ context.Context, v flight.Finding, a effect.Answer) (Answer, error) {
	return t.verify(v, a)
}
func (t *fakeTransport) Trust() time.Duration {
	if t.trust.Err() != nil {
		return 0
	}
	return time.Minute
}
func (t *fakeTransport) Context() context.Context { return t.trust }
func (t *fakeTransport) Watch(context.Context, context.CancelCauseFunc) (stop func()) {
	return func() {}
}

// opened returns the answer to an Open that has opened an attempt; with changes the answer.
func (t *fakeTransport) opened(d Decision, with ...func(*Answer)) func() (Answer, error) {
	return func() (Answer, error) {
		a := Answer{Decision: d, Attempt: t, Spec: effect.Spec{Key: key, Number: 1}, SentAt: clock.Now()}
		for _, w := range with {
			w(&a)
		}
		return a, nil
	}
}

func paid(context.Context, *effect.Attempt) (effect.Answer, error) {
	return effect.Answer{ExternalID: "ch_1", Body: []byte("paid")}, nil
}

func unreachableHandler(t *testing.T) effect.Handler {
	return func(context.Context, *effect.Attempt) (effect.Answer, error) {
		t.Error("the handler must not run")
		return effect.Answer{}, nil
	}
}

// withRunner runs a test with a runner over a fakeTransport in virtual time, and closes the runner.
func withRunner(t *testing.T, test func(t *testing.T, s *fakeTransport, r *Runner)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newFakeTransport(t)
		r := New(s, 10*time.Second)
		test(t, s, r)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = r.Close(ctx)
		r.CancelBase()
	})
}

// If an effect must not start, its handler is not called and its attempt is reported as not started. Each row is one
// reason.
func TestMayStart(t *testing.T) {
	for name, row := range map[string]struct {
		with func(s *fakeTransport, r *Runner, a *Answer)
		want error
	}{
		"trust is over": {func(s *fakeTransport, _ *Runner, _ *Answer) { s.cut(effect.ErrLeaseLost) }, effect.ErrLeaseLost},
		"its time-out is over": {func(_ *fakeTransport, _ *Runner, a *Answer) {
			a.Policy.AttemptTimeout = time.Second
			a.SentAt = a.SentAt.Add(-time.Second)
		}, errTooLate},
		"the machine slept": {func(_ *fakeTransport, _ *Runner, a *Answer) {
			a.Policy.AttemptTimeout = time.Minute
			a.SentAt.SinceBoot -= time.Hour
		}, errTooLate},
		"the key may be forgotten":  {func(_ *fakeTransport, _ *Runner, a *Answer) { a.ResendUntil = a.SentAt }, errTooLate},
		"Close has begun meanwhile": {func(_ *fakeTransport, r *Runner, _ *Answer) { r.drain(effect.ErrClosed) }, effect.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			withRunner(t, func(t *testing.T, s *fakeTransport, r *Runner) {
				s.opens = append(s.opens, s.opened(DecisionProceed, func(a *Answer) { row.with(s, r, a) }))
				_, err := r.Do(t.Context(), effect.Call{Key: key}, unreachableHandler(t), 0)
				require.Error(t, err)
				require.NotEmpty(t, s.ends)
				for _, end := range s.ends {
					require.True(t, end.NotStarted)
					require.ErrorIs(t, end.Err, row.want)
				}
			})
		})
	}
}

// The same rules, and the provider's window, are checked right before each send.
func TestMayStartRightBeforeTheSend(t *testing.T) {
	for name, row := range map[string]struct {
		with func(*Answer)
		rest time.Duration
		want flight.Outcome
	}{
		"in time":                  {func(a *Answer) { a.ResendUntil = a.SentAt.Add(4 * time.Second) }, 3 * time.Second, flight.OutcomeSucceeded},
		"the key may be forgotten": {func(a *Answer) { a.ResendUntil = a.SentAt.Add(4 * time.Second) }, 5 * time.Second, flight.OutcomeNotDone},
		"no bound":                 {func(*Answer) {}, time.Hour, flight.OutcomeSucceeded},
	} {
		t.Run(name, func(t *testing.T) {
			withRunner(t, func(t *testing.T, s *fakeTransport, r *Runner) {
				s.opens = append(s.opens, s.opened(DecisionProceed, row.with))
				_, _ = r.Do(t.Context(), effect.Call{Key: key}, func(_ context.Context, at *effect.Attempt) (effect.Answer, error) {
					time.Sleep(row.rest)
					return effect.Answer{}, at.Sending()
				}, 0)
				require.Equal(t, row.want, s.ends[0].Outcome)
			})
		})
	}
}

// A failed Open is retried with growing pauses until the call ends with an error. A lost lease is renewed.
func TestFailedOpens_AreRetriedAndBounded(t *testing.T) {
	for _, why := range []error{effect.ErrLeaseLost, errors.New("refused")} {
		withRunner(t, func(t *testing.T, s *fakeTransport, r *Runner) {
			s.opens = append(s.opens, func() (Answer, error) { return Answer{Decision: DecisionRetry, RetryCause: why}, nil })
			began := time.Now()
			_, err := r.Do(t.Context(), effect.Call{Key: key}, unreachableHandler(t), 0)
			var unavailable *effect.Unavailable
			require.ErrorAs(t, err, &unavailable)
			require.ErrorIs(t, err, why)
			require.Equal(t, maxFailedOpens, s.asked)
			require.Greater(t, time.Since(began), 15*minRetryPause)
			require.Equal(t, errors.Is(why, effect.ErrLeaseLost), s.renewed == maxFailedOpens-1)
		})
	}
}

// A wait for another holder is not a failed Open, and resets the count of failed Opens.
func TestFailedOpens_EndedAttemptsDoNotCount(t *testing.T) {
	withRunner(t, func(t *testing.T, s *fakeTransport, r *Runner) {
		for i := range 3 * maxFailedOpens {
			why := errors.New("refused")
			if i%(maxFailedOpens-1) == 0 {
				why = nil
			}
			s.opens = append(s.opens, func() (Answer, error) { return Answer{Decision: DecisionRetry, RetryCause: why}, nil })
		}
		s.opens = append(s.opens, s.opened(DecisionProceed))
		_, err := r.Do(t.Context(), effect.Call{Key: key}, paid, 0)
		require.NoError(t, err)
	})
}

// The handler ends while its outcome is reported as unknown: its own report comes after that one.
func TestHungHandlerEndsDuringTheReport(t *testing.T) {
	withRunner(t, func(t *testing.T, s *fakeTransport, r *Runner) {
		s.opens = append(s.opens, s.opened(DecisionProceed, func(a *Answer) { a.Policy.AttemptTimeout = time.Minute }))
		release := make(chan struct{})
		s.after = func(end Completion) (Answer, error) {
			if !end.Late {
				close(release)
				synctest.Wait()
				require.Len(t, s.ends, 1)
			}
			return Answer{Decision: DecisionUnsettled}, nil
		}
		_, err := r.Do(t.Context(), effect.Call{Key: key}, func(context.Context, *effect.Attempt) (effect.Answer, error) {
			<-release
			return effect.Answer{}, effect.NotDone(errors.New("refused"))
		}, 0)
		require.Error(t, err)
		synctest.Wait()
		require.Len(t, s.ends, 2)
		require.Equal(t, flight.OutcomeNotDone, s.ends[1].Outcome)
	})
}

// A caller with another input does not join: it gets a conflict at once, before the ledger knows of any input.
func TestDo_AnotherInputIsAConflict(t *testing.T) {
	withRunner(t, func(t *testing.T, s *fakeTransport, r *Runner) {
		turn, first := make(chan struct{}), make(chan error, 1)
		s.opens = append(s.opens, func() (Answer, error) { <-turn; return s.opened(DecisionProceed)() })
		go func() {
			_, err := r.Do(t.Context(), effect.Call{Key: key, Submission: flight.Submission{Fingerprint: flight.Fingerprint{1}}}, paid, 0)
			first <- err
		}()
		synctest.Wait()
		other := effect.Call{Key: key, Submission: flight.Submission{Fingerprint: flight.Fingerprint{2}}}
		_, err := r.Do(t.Context(), other, unreachableHandler(t), 0)
		require.ErrorAs(t, err, new(*effect.Conflict))
		close(turn)
		require.NoError(t, <-first)
	})
}

// A caller without a look-up abandons its verification. A joiner with a look-up runs it.
func TestLookUp_JoinerThatCanLooks(t *testing.T) {
	withRunner(t, func(t *testing.T, s *fakeTransport, r *Runner) {
		turn := make(chan struct{})
		s.opens = append(s.opens, func() (Answer, error) { <-turn; return s.opened(DecisionVerify)() })
		s.verify = func(v flight.Finding, found effect.Answer) (Answer, error) {
			require.Equal(t, flight.FindingHappened, v)
			return Answer{Result: effect.Result{Key: key, Answer: found}}, nil
		}
		blind := make(chan error, 1)
		go func() {
			_, err := r.Do(t.Context(), effect.Call{Key: key}, unreachableHandler(t), 0)
			blind <- err
		}()
		synctest.Wait()
		seeing := make(chan effect.Result, 1)
		go func() {
			result, _ := r.Do(t.Context(), effect.Call{Key: key, LookUp: lookUpReturning(flight.FindingHappened, effect.Answer{ExternalID: "ch_1"}, nil)}, unreachableHandler(t), 0)
			seeing <- result
		}()
		synctest.Wait()
		close(turn)
		var doubt *effect.InDoubt
		require.ErrorAs(t, <-blind, &doubt)
		require.Equal(t, NoLookUpCause, doubt.Cause)
		require.Equal(t, "ch_1", (<-seeing).Answer.ExternalID)
		require.Len(t, s.ends, 1)
		require.True(t, s.ends[0].NotStarted)
	})
}

func lookUpReturning(v flight.Finding, a effect.Answer, err error) effect.LookUp {
	return func(context.Context, *effect.Attempt) (flight.Finding, effect.Answer, error) { return v, a, err }
}

// A failed look-up returns FindingNone, and a hung one is waited for until its time-out and hungAfter are over.
func TestRunLookUp(t *testing.T) {
	hangs := func(ctx context.Context, _ *effect.Attempt) (flight.Finding, effect.Answer, error) {
		<-ctx.Done()
		time.Sleep(15 * time.Second)
		return flight.FindingHappened, effect.Answer{}, nil
	}
	for name, row := range map[string]struct {
		look effect.LookUp
		want flight.Finding
		took time.Duration
	}{
		"it happened":        {look: lookUpReturning(flight.FindingHappened, effect.Answer{}, nil), want: flight.FindingHappened},
		"it did not":         {look: lookUpReturning(flight.FindingNotHappened, effect.Answer{}, nil), want: flight.FindingNotHappened},
		"it does not know":   {look: lookUpReturning(flight.FindingNone, effect.Answer{}, nil)},
		"it says nonsense":   {look: lookUpReturning(99, effect.Answer{}, nil)},
		"an error":           {look: lookUpReturning(flight.FindingHappened, effect.Answer{}, errors.New("cut"))},
		"a panic":            {look: func(context.Context, *effect.Attempt) (flight.Finding, effect.Answer, error) { panic("boom") }},
		"it does not return": {look: hangs, took: 40 * time.Second},
		"its goroutine ends": {look: func(context.Context, *effect.Attempt) (flight.Finding, effect.Answer, error) {
			runtime.Goexit()
			return flight.FindingHappened, effect.Answer{}, nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			withRunner(t, func(t *testing.T, s *fakeTransport, r *Runner) {
				s.opens = append(s.opens, s.opened(DecisionVerify))
				s.verify = func(v flight.Finding, _ effect.Answer) (Answer, error) {
					require.Equal(t, row.want, v)
					return Answer{}, nil
				}
				began := time.Now()
				_, err := r.Do(t.Context(), effect.Call{Key: key, LookUp: row.look}, unreachableHandler(t), 0)
				require.NoError(t, err)
				require.Equal(t, row.took, time.Since(began))
			})
		})
	}
}

// A handler or a look-up that calls Do for its own key would wait for itself.
func TestDo_ReentryIsRejected(t *testing.T) {
	withRunner(t, func(t *testing.T, s *fakeTransport, r *Runner) {
		s.opens = append(s.opens, s.opened(DecisionProceed))
		var after context.Context
		_, err := r.Do(t.Context(), effect.Call{Key: key}, func(ctx context.Context, _ *effect.Attempt) (effect.Answer, error) {
			after = context.WithoutCancel(ctx)
			_, err := r.Do(ctx, effect.Call{Key: key}, unreachableHandler(t), 0)
			var invalid *flight.InvalidError
			require.ErrorAs(t, err, &invalid)
			_, err = r.Do(ctx, effect.Call{Key: flight.MustKey("default/charge/order-43")}, paid, 0)
			require.NoError(t, err)
			return effect.Answer{}, nil
		}, 0)
		require.NoError(t, err)
		_, err = r.Do(after, effect.Call{Key: key}, paid, 0)
		require.NoError(t, err, "the handler has ended")

		s.opens, s.asked = append(s.opens[:0], s.opened(DecisionVerify)), 0
		s.verify = func(flight.Finding, effect.Answer) (Answer, error) { return Answer{}, nil }
		lookUp := func(ctx context.Context, _ *effect.Attempt) (flight.Finding, effect.Answer, error) {
			_, err := r.Do(ctx, effect.Call{Key: key}, unreachableHandler(t), 0)
			require.ErrorAs(t, err, new(*flight.InvalidError))
			return flight.FindingHappened, effect.Answer{}, nil
		}
		_, err = r.Do(t.Context(), effect.Call{Key: key, LookUp: lookUp}, unreachableHandler(t), 0)
		require.NoError(t, err)
	})
}

// Each caller gets its own source and its own copy of the bytes.
func TestResultFor_EachCallerOwnsItsBytes(t *testing.T) {
	own := effect.Result{Key: key, Source: effect.SourceExecuted, Answer: effect.Answer{Body: []byte("paid")}}
	failed := &effect.Failed{Key: key}
	for name, err := range map[string]error{"a value": nil, "declined": &effect.Declined{Result: own},
		"unrecorded": &effect.Unrecorded{Result: own, Cause: failed}, "another error": failed} {
		t.Run(name, func(t *testing.T) {
			c := &call{joined: true, result: own, err: err}
			got, gotErr := c.resultFor(effect.SourceJoined)
			require.Equal(t, effect.SourceJoined, got.Source)
			clear(got.Answer.Body)
			switch e := gotErr.(type) {
			case *effect.Declined:
				require.Equal(t, effect.SourceJoined, e.Result.Source)
			case *effect.Unrecorded:
				require.Equal(t, effect.SourceJoined, e.Result.Source)
				clear(e.Result.Answer.Body)
			default:
				require.Equal(t, err, gotErr)
			}
			require.Equal(t, "paid", string(own.Answer.Body))
		})
	}
}
