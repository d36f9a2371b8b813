package executor_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/executor"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/flightdtest"
	"github.com/flightd/flightd/lease/leasetest"
)

var errReset = errors.New("connection reset")

func TestHandler_SeesTheAttempt(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		call := callOf("1", `{"amount":42}`, flight.Policy{Recovery: flight.RecoveryResend, Retry: flight.RetryPolicy{Attempts: 2}})
		var keys, tokens []string
		_, err := fd.Do(t.Context(), call, func(ctx context.Context, at *effect.Attempt) (effect.Answer, error) {
			keys, tokens = append(keys, at.IdempotencyKey()), append(tokens, at.FencingToken())
			require.Equal(t, call.Key, at.Key())
			require.Equal(t, `{"amount":42}`, string(at.Input()))
			require.EqualValues(t, len(keys), at.Number())
			require.NoError(t, at.Sending())
			if at.Number() == 1 {
				require.Nil(t, at.Previous())
				return effect.Answer{}, errReset
			}
			require.Equal(t, flight.OutcomeUnknown, at.Previous().Outcome)
			return effect.Answer{}, nil
		})
		require.NoError(t, err)
		require.Equal(t, keys[0], keys[1], "a resend carries the same key")
		require.Len(t, keys[0], 64)
		require.Less(t, tokens[0], tokens[1], "tokens sort by age")
	})
}

// After a deploy the caller submits another input for the same key: later attempts still get the first input.
func TestHazard31_FirstInputIsSentAgain(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		p := flight.Policy{Recovery: flight.RecoveryResend}
		before, after := callOf("1", `{"note":"old words"}`, p), callOf("1", `{"note":"new words"}`, p)
		before.Submission.Fingerprint, after.Submission.Fingerprint = flight.NoFingerprint, flight.NoFingerprint
		_, err := fd.Do(t.Context(), before, func(context.Context, *effect.Attempt) (effect.Answer, error) { return effect.Answer{}, errReset })
		require.Equal(t, flight.OutcomeUnknown, requireAs[*effect.Unsettled](t, err).Outcome)
		_, err = fd.Do(t.Context(), after, func(_ context.Context, at *effect.Attempt) (effect.Answer, error) {
			require.Equal(t, `{"note":"old words"}`, string(at.Input()))
			return effect.Answer{}, nil
		})
		require.NoError(t, err)

		none := effect.Call{Key: keyOf("2"), Submission: flight.Submission{Policy: p}}
		_, err = fd.Do(t.Context(), none, func(context.Context, *effect.Attempt) (effect.Answer, error) { return effect.Answer{}, errReset })
		require.Error(t, err)
		none.Submission.Input = after.Submission.Input
		_, err = fd.Do(t.Context(), none, func(_ context.Context, at *effect.Attempt) (effect.Answer, error) {
			require.Empty(t, at.Input(), "the first call had no input")
			return effect.Answer{}, nil
		})
		require.NoError(t, err)
	})
}

// A handler that does not end with its context counts as hung after HungAfter. Its late report is accepted unless a
// newer attempt was opened, and it may start nothing more.
func TestHazard16_AHandlerThatHangs(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		call, g := callOf("1", `{}`, flight.Policy{AttemptTimeout: 10 * time.Second}), newBlockingHandler()
		began := time.Now()
		first := doInBackground(t.Context(), fd, call, func(ctx context.Context, at *effect.Attempt) (effect.Answer, error) {
			answer, err := g.handle(ctx, at)
			require.Error(t, at.Sending(), "the attempt has timed out")
			return answer, err
		})
		<-g.started
		requireAs[*effect.InDoubt](t, (<-first).err)
		require.Equal(t, 25*time.Second, time.Since(began))
		waitForReleases(t)
		claims, err := fd.Leases.Claims(t.Context())
		require.NoError(t, err)
		require.Empty(t, claims, "the claim is released")
		g.result <- nil
		synctest.Wait()
		f := fd.Flight(call.Key)
		require.Equal(t, flight.StateSucceeded, f.State, "the late report ends the doubt")
		require.EqualValues(t, 1, f.AttemptCount)
	})
}

// The next attempt runs under the same claim while the hung handler resumes: the hung one may start nothing.
func TestHazard12_16_HungHandlerStartsNothingWhileNextAttemptRuns(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		p := flight.Policy{Recovery: flight.RecoveryResend, AttemptTimeout: 10 * time.Second, Retry: flight.RetryPolicy{Attempts: 3}}
		call, first, second, refused := callOf("1", `{}`, p), newBlockingHandler(), newBlockingHandler(), make(chan error, 1)
		done := doInBackground(t.Context(), fd, call, func(ctx context.Context, at *effect.Attempt) (effect.Answer, error) {
			if at.Number() > 1 {
				return second.handle(ctx, at)
			}
			_, _ = first.handle(ctx, at)
			refused <- at.Sending()
			return effect.Answer{}, errReset
		})
		<-first.started
		<-second.started
		first.result <- nil
		require.ErrorIs(t, <-refused, context.DeadlineExceeded)
		second.result <- nil
		require.NoError(t, (<-done).err)
	})
}

func TestRetries(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		p := flight.Policy{Retry: flight.RetryPolicy{Attempts: 3, MinBackoff: time.Second, MaxBackoff: time.Minute}}
		h, n := failingHandler(effect.NotDone(errReset), effect.RetryAfter(effect.NotDone(errReset), 45*time.Second))
		began := time.Now()
		result, err := fd.Do(t.Context(), callOf("1", `{}`, p), h)
		require.NoError(t, err)
		require.EqualValues(t, 3, result.Attempt)
		require.GreaterOrEqual(t, time.Since(began), 45*time.Second+500*time.Millisecond, "Retry-After and backoff")
		require.Less(t, time.Since(began), 48*time.Second)
		require.EqualValues(t, 3, n.Load())

		h, n = failingHandler(effect.NotDone(errReset), effect.NotDone(errReset), effect.NotDone(errReset))
		_, err = fd.Do(t.Context(), callOf("2", `{}`, p), h)
		require.Equal(t, flight.StateFailed, requireAs[*effect.Failed](t, err).State)
		require.EqualValues(t, 3, n.Load())
	})
}

// The provider replays a stored 500 for the idempotency key: after the last retry the outcome is still unknown.
func TestHazard33_AnErrorThatIsReplayed(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		p := flight.Policy{Recovery: flight.RecoveryResend, Retry: flight.RetryPolicy{Attempts: 3, MinBackoff: time.Second}}
		h, n := failingHandler(errReset, errReset, errReset, errReset)
		_, err := fd.Do(t.Context(), callOf("1", `{}`, p), h)
		requireAs[*effect.InDoubt](t, err)
		require.EqualValues(t, 3, n.Load())
	})
}

func TestCancelWhileItRuns(t *testing.T) {
	for name, c := range map[string]struct {
		end   error
		state flight.State
	}{
		"it stopped in time": {effect.NotDone(errReset), flight.StateCancelled},
		"it had happened":    {nil, flight.StateSucceeded},
		"unknown":            {errReset, flight.StateInDoubt},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
				call, in := callOf("1", `{}`, flight.Policy{Retry: flight.RetryPolicy{Attempts: 5}}), make(chan struct{})
				done := doInBackground(t.Context(), fd, call, func(ctx context.Context, _ *effect.Attempt) (effect.Answer, error) {
					close(in)
					<-ctx.Done()
					return effect.Answer{}, c.end
				})
				<-in
				sleep(t, 50*time.Millisecond)
				fd.Cancel(t, call.Key, "changed our mind")
				<-done
				require.Equal(t, c.state, fd.Flight(call.Key).State)
			})
		})
	}
}

// Trust is checked right before the send: the machine was suspended between Open and handler. The attempt is published as abandoned.
func TestHazard02_07_27_TrustIsLostBeforeTheSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fd *flightdtest.Flightd
		slept, published := false, new(transcript)
		events := recordEvents(published)
		events.Claimed, events.Called = nil, nil
		fd = flightdtest.Open(t, flightdtest.Options{Events: events, Configure: func(cfg *executor.Config) {
			cfg.Crash = func(point string) {
				if point == "after-open" && !slept {
					slept = true
					fd.Leases.Suspend(time.Minute)
				}
			}
		}})
		call, c := callOf("1", `{}`, flight.Policy{}), new(countingHandler)
		result, err := fd.Do(t.Context(), call, c.handle)
		require.NoError(t, err)
		require.EqualValues(t, 1, c.n.Load())
		require.EqualValues(t, 2, result.Attempt, "the first attempt was abandoned")
		require.False(t, fd.Flight(call.Key).Tainted())
		kinds := []flight.EventKind{}
		for _, e := range fd.Ledger.History(call.Key) {
			kinds = append(kinds, e.Kind)
		}
		require.NotContains(t, kinds, flight.EventLost, "the abandoned attempt was never in doubt")
		require.Contains(t, kinds, flight.EventAbandoned)
		require.Equal(t, fmt.Sprintf("opened %[1]s 1\nabandoned %[1]s 1\nopened %[1]s 2\nclosed %[1]s 2: succeeded after 0s\n", call.Key), published.String())
	})
}

// etcd is down for more than two TTLs while an effect runs. The effect ends and is recorded. Under verify its context
// ends with the lease, because the look-up needs a bound.
func TestHazard13_EtcdIsAwayInMidEffect(t *testing.T) {
	for _, recovery := range recoveries {
		t.Run(recovery.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
				call, g := callOf("1", `{}`, flight.Policy{Recovery: recovery, AttemptTimeout: time.Hour}), newBlockingHandler()
				call.LookUp = lookUpAt(&provider{Say: t.Logf})
				var ended error
				done := doInBackground(t.Context(), fd, call, func(ctx context.Context, at *effect.Attempt) (effect.Answer, error) {
					require.NoError(t, at.Sending())
					answer, err := g.handle(ctx, at)
					<-at.LeaseLost()
					require.ErrorIs(t, at.Sending(), effect.ErrLeaseLost)
					ended = context.Cause(ctx)
					return answer, err
				})
				<-g.started
				fd.Leases.Partition(leasetest.CutRequests)
				sleep(t, 35*time.Second)
				_, err := fd.Do(t.Context(), callOf("2", `{}`, flight.Policy{}), unreachableHandler(t))
				require.Equal(t, "lease_unavailable", requireAs[*effect.Unavailable](t, err).Code)
				g.result <- nil
				got := <-done
				require.NoError(t, got.err)
				require.Equal(t, flight.StateSucceeded, fd.Flight(call.Key).State)
				require.EqualValues(t, 1, fd.Flight(call.Key).AttemptCount)
				if recovery == flight.RecoveryVerify {
					require.ErrorIs(t, ended, effect.ErrLeaseLost)
				} else {
					require.NoError(t, ended)
				}
				again, err := fd.Do(t.Context(), call, unreachableHandler(t))
				require.NoError(t, err, "a receipt is replayed without etcd")
				require.Equal(t, effect.SourceReplayed, again.Source)
			})
		})
	}
}

// A receipt over the limit never fails the attempt.
func TestReceiptsOverTheLimitAreShortened(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		call, body := callOf("1", `{}`, flight.Policy{}), make([]byte, flight.MaxReceiptBody+1000)
		for i := range body {
			body[i] = byte(i)
		}
		whole := flight.NewBlob("", body, len(body))
		for _, source := range []effect.Source{effect.SourceExecuted, effect.SourceReplayed} {
			result, err := fd.Do(t.Context(), call, func(context.Context, *effect.Attempt) (effect.Answer, error) {
				return effect.Answer{ExternalID: "ch_1", Body: body}, nil
			})
			require.NoError(t, err)
			require.Equal(t, source, result.Source)
			require.True(t, result.Truncated)
			require.Equal(t, whole.Digest, result.Digest)
			require.Equal(t, len(body), result.Size)
			require.Equal(t, body[:flight.MaxReceiptBody], result.Answer.Body)
			require.Equal(t, "ch_1", result.Answer.ExternalID)
		}
	})
}

// A success whose external ID is too long, or invalid UTF-8, is recorded as a success.
func TestReport_SanitizesTexts(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		answer := effect.Answer{ExternalID: "ch_\xe9" + strings.Repeat("x", 600<<10), ContentType: "text/pl\xe9in", Body: []byte("paid")}
		result, err := fd.Do(t.Context(), callOf("1", `{}`, flight.Policy{}), func(context.Context, *effect.Attempt) (effect.Answer, error) {
			return answer, nil
		})
		require.NoError(t, err)
		require.Equal(t, flight.Sanitize(answer.ExternalID), result.Answer.ExternalID)
		f := fd.Flight(keyOf("1"))
		require.Equal(t, flight.StateSucceeded, f.State)
		require.Len(t, f.Receipt.ExternalID, flight.MaxText-1)

		_, err = fd.Do(t.Context(), callOf("2", `{}`, flight.Policy{}), func(context.Context, *effect.Attempt) (effect.Answer, error) {
			return effect.Answer{}, effect.NotDone(errors.New("Ung\xfcltig " + strings.Repeat("x", 600<<10)))
		})
		require.Error(t, err)
		require.Len(t, fd.Flight(keyOf("2")).Newest().Error, flight.MaxText-1)
	})
}

// A handler may reuse the bytes of its answer while the report is not committed yet.
func TestReport_CopiesAnswerBytes(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		body := []byte("paid")
		_, err := fd.Do(t.Context(), callOf("1", `{}`, flight.Policy{}), func(context.Context, *effect.Attempt) (effect.Answer, error) {
			fd.Ledger.Cut()
			return effect.Answer{Body: body}, nil
		})
		var unrecorded *effect.Unrecorded
		require.ErrorAs(t, err, &unrecorded)
		clear(body)
		require.Equal(t, "paid", string(unrecorded.Result.Answer.Body))
		fd.Ledger.Heal()
		synctest.Wait()
		result, err := fd.Do(t.Context(), callOf("1", `{}`, flight.Policy{}), unreachableHandler(t))
		require.NoError(t, err)
		require.Equal(t, "paid", string(result.Answer.Body))
	})
}

// A handler may change its input: the next attempt still gets the input as submitted.
func TestInput_IsCopiedPerAttempt(t *testing.T) {
	bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
		p := flight.Policy{Recovery: flight.RecoveryResend, Retry: flight.RetryPolicy{Attempts: 2, MinBackoff: time.Second}}
		result, err := fd.Do(t.Context(), callOf("1", `{"amount":42}`, p), func(_ context.Context, at *effect.Attempt) (effect.Answer, error) {
			if at.Number() == 1 {
				clear(at.Input())
				return effect.Answer{}, errReset
			}
			return effect.Answer{Body: at.Input()}, nil
		})
		require.NoError(t, err)
		require.Equal(t, `{"amount":42}`, string(result.Answer.Body))
	})
}

// A second attempt starts inside the provider's window, and its handler is slow: a send after the window could be a
// second effect.
func TestResend_IsNotStartedAfterTheWindow(t *testing.T) {
	for rest, want := range map[time.Duration]flight.Outcome{10 * time.Second: flight.OutcomeSucceeded, 20 * time.Second: flight.OutcomeNotDone} {
		bubble(t, func(t *testing.T, fd *flightdtest.Flightd) {
			call := callOf("1", `{}`, flight.Policy{Recovery: flight.RecoveryResend, ProviderWindow: 100 * time.Second})
			_, err := fd.Do(t.Context(), call, func(_ context.Context, at *effect.Attempt) (effect.Answer, error) {
				return effect.Answer{}, errors.Join(at.Sending(), errReset)
			})
			require.Error(t, err)
			time.Sleep(80 * time.Second) // a slow clock leaves 95 s of the window
			_, err = fd.Do(t.Context(), call, func(_ context.Context, at *effect.Attempt) (effect.Answer, error) {
				time.Sleep(rest)
				return effect.Answer{}, at.Sending()
			})
			require.Equal(t, want == flight.OutcomeSucceeded, err == nil)
			require.Equal(t, want, fd.Flight(call.Key).Newest().Outcome)
		})
	}
}
