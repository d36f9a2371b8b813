package client

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/strictjson"
)

// SubmitRequest is a job as the API has it.
type SubmitRequest = wire.SubmitRequest

// The states of a Job.
const (
	Queued    = wire.StatusQueued    // the job is new
	Duplicate = wire.StatusDuplicate // the key had a flight already, with the same input
)

// Job is a submitted job.
type Job struct {
	Key     flight.Key
	Status  string  // Queued or Duplicate
	Warning string  // for people; empty: none
	Flight  *Flight // as the server knew it; with its receipt if it has ended
}

// Submit asks the workers of the key's action to perform its effect, and does not wait for it. The same key is the same job,
// for every caller and however often it is submitted. Without a policy among the options, the action's document applies, else hold.
// Errors: *Conflict for another input, *Expired, *Unavailable, *flight.InvalidError, *Error.
func (re *requester) Submit(ctx context.Context, ref Ref, input any, opts ...JobOption) (*Job, error) {
	r, err := newSubmitRequest(ref.name, ref.id, input, opts)
	if err != nil {
		return nil, err
	}
	return re.SubmitJob(ctx, *r)
}

// SubmitJob is Submit for a request as the API has it.
func (re *requester) SubmitJob(ctx context.Context, r SubmitRequest) (*Job, error) {
	key, err := flight.NewKey(re.opts.namespace, r.Action, r.ID)
	if err == nil && !utf8.ValidString(r.Lane) { // its JSON would be another lane
		err = &flight.InvalidError{Field: "lane", Detail: "it is not valid UTF-8"}
	}
	if err != nil {
		return nil, err
	}
	a, err := decode[wire.SubmitAnswer](re.ask(ctx, request{
		method: http.MethodPost, path: "/v1/flights:submit", body: strictjson.Append(nil, &r), actor: true, key: key,
	}))
	if err != nil {
		return nil, err
	}
	return &Job{Key: key, Status: a.Status, Warning: a.Warning, Flight: a.Flight}, nil
}

func newSubmitRequest(action, id string, input any, opts []JobOption) (*wire.SubmitRequest, error) {
	var o jobOptions
	for _, opt := range opts {
		opt.applyToJob(&o)
	}
	data, err := effect.JSON("", input)
	if err != nil {
		return nil, &flight.InvalidError{Field: "input", Detail: err.Error()}
	}
	if o.invalid != nil {
		return nil, o.invalid
	}
	if o.laneBy != nil {
		return nil, &flight.InvalidError{Field: "lane", Detail: "LaneBy is an option of Work; a submission names its lane with Lane"}
	}
	r := &wire.SubmitRequest{Action: action, ID: id, Lane: o.lane, LaneLimit: int64(o.laneLimit), Priority: int64(o.priority), DelayMS: o.delay, Retry: o.retry, Policy: o.policy}
	if string(data.Body) != "null" {
		r.Input = data.Body
	}
	if !o.runAt.IsZero() {
		r.RunAt = o.runAt.UTC().Format(time.RFC3339Nano)
	}
	return r, nil
}

// SubmitResult says what became of one job of SubmitAll.
type SubmitResult struct {
	ID     string
	Status string // Queued, Duplicate, or the code of Err
	Err    error  // *Error; nil: the job is in the queue, or was before
}

// maxSubmitBatch is the length of a request of SubmitAll in bytes, or the first one that is longer.
const maxSubmitBatch = 1 << 20

// SubmitAll submits jobs of one action, in batches, and yields what became of each, in order. A rejected job changes nothing for
// the others. After an error of a whole batch the iteration ends; all jobs again, from the first, is harmless.
func (re *requester) SubmitAll(ctx context.Context, action string, jobs iter.Seq2[string, any], opts ...JobOption) iter.Seq2[SubmitResult, error] {
	return func(yield func(SubmitResult, error) bool) {
		var lines []byte
		var ids []string
		flush := func() bool {
			results, err := re.SubmitLines(ctx, lines, ids)
			lines, ids = lines[:0], ids[:0]
			for _, r := range results {
				if !yield(r, nil) {
					return false
				}
			}
			return err == nil || yield(SubmitResult{}, err) && false
		}
		for id, input := range jobs {
			r, err := newSubmitRequest(action, id, input, opts)
			if err != nil {
				if len(ids) > 0 && !flush() || !yield(SubmitResult{ID: id, Status: string(wire.InputInvalid), Err: err}, nil) {
					return
				}
				continue
			}
			lines, ids = append(strictjson.Append(lines, r), '\n'), append(ids, id)
			if (len(lines) >= maxSubmitBatch || len(ids) == wire.MaxSubmitLines) && !flush() {
				return
			}
		}
		if len(ids) > 0 {
			flush()
		}
	}
}

// SubmitLines submits one SubmitRequest per line, as JSON, in one request, and returns what became of each. ids are those of the
// lines. After an error any of them may be queued; the same lines again are harmless.
func (re *requester) SubmitLines(ctx context.Context, lines []byte, ids []string) (results []SubmitResult, err error) {
	resp, err := re.ask(ctx, request{
		method: http.MethodPost, path: "/v1/flights:submit", body: lines, actor: true, contentType: wire.TypeNDJSON, timeout: time.Minute,
	})
	if err != nil {
		return nil, err
	}
	for line := range bytes.Lines(resp.body) {
		var l wire.SubmitLine
		n := len(results)
		if err := wire.DecodeAnswer(line, &l); err != nil || n == len(ids) || l.Line != n+1 {
			return nil, fmt.Errorf("client: line %d of the server's answer is not that of a job: %.200q", n+1, line)
		}
		r := SubmitResult{ID: ids[n], Status: l.Status}
		if l.Problem != nil {
			r.Err = newError(*l.Problem, flight.Key{})
		}
		results = append(results, r)
	}
	if len(results) < len(ids) {
		return nil, fmt.Errorf("client: the server's answer has %d lines for %d jobs", len(results), len(ids))
	}
	return results, nil
}

// Wait waits until a job has ended, and returns its receipt, decoded from JSON. Any caller may wait at any time, by the key: one made by
// Key, or one with its namespace, as in Job.Key. Errors: *Declined, *Failed, *InDoubt for a flight that needs a person, *Expired, and the
// cause of the end of ctx, joined with *Unapproved if the job awaits an approval.
func Wait[T any, K flight.Key | Ref](ctx context.Context, c *Client, key K) (T, error) {
	var zero T
	whole, _ := any(key).(flight.Key)
	if ref, ok := any(key).(Ref); ok {
		var err error
		if whole, err = c.Key(ref.name, ref.id); err != nil {
			return zero, err
		}
	}
	result, err := c.WaitResult(ctx, whole)
	if err != nil {
		return zero, err
	}
	return valueOf[T](result)
}

// JobOption is an option of Submit, SubmitAll and Work. Those of Work are the policy that the worker brings: see Worker.Run.
type JobOption interface{ applyToJob(*jobOptions) }

type jobOptions struct {
	policy    wire.Policy
	retry     *wire.Retry
	laneBy    *wire.LaneRule // of Work
	lookUp    effect.LookUp
	lane      string
	laneLimit int
	priority  int
	runAt     time.Time
	delay     int64 // in ms
	invalid   error
}

// ms returns a duration in milliseconds. A positive duration below a millisecond is invalid, because it would become 0, which often means
// no limit.
func (o *jobOptions) ms(field string, d time.Duration) int64 {
	if d > 0 && d < time.Millisecond {
		o.invalid = &flight.InvalidError{Field: field, Detail: d.String() + " is less than a millisecond"}
	}
	return d.Milliseconds()
}

type jobOption func(*jobOptions)

func (jo jobOption) applyToJob(o *jobOptions) { jo(o) }

// RunAt sets the earliest time of the first attempt.
func RunAt(t time.Time) JobOption { return jobOption(func(o *jobOptions) { o.runAt = t }) }

// Delay sets the earliest time of the first attempt, from the submission.
func Delay(d time.Duration) JobOption {
	return jobOption(func(o *jobOptions) { o.delay = o.ms("delay", d) })
}

// Lane puts the job into a lane of its action: the jobs of a lane run one at a time, in the order of their submission.
func Lane(name string) JobOption {
	return jobOption(func(o *jobOptions) {
		if o.lane = name; name == "" || !utf8.ValidString(name) {
			o.invalid = &flight.InvalidError{Field: "lane", Detail: "it is empty or not valid UTF-8; leave the option Lane out for a job without a lane"}
		}
	})
}

// LaneLimit lets at most n jobs of the lane run at once.
func LaneLimit(n int) JobOption { return jobOption(func(o *jobOptions) { o.laneLimit = n }) }

// Priority sets the priority, from -1000 to 1000. Jobs of a greater one are handed out first.
func Priority(n int) JobOption { return jobOption(func(o *jobOptions) { o.priority = n }) }

// LaneBy is an option of Work: each job of the action is put into the lane that its input names at a JSON pointer, as in "/customer".
// At most limit jobs of a lane run at once; 0: one. A submission that names a lane overrides it.
func LaneBy(pointer string, limit int) JobOption {
	return jobOption(func(o *jobOptions) { o.laneBy = &wire.LaneRule{By: pointer, Limit: int64(limit)} })
}

// Hold declares the recovery hold: after a crash between effect and report, a person decides.
func Hold() JobOption {
	return jobOption(func(o *jobOptions) { o.policy.Recovery = flight.RecoveryHold.String() })
}

// Resend declares the recovery resend: the provider honours the idempotency key for the window (0: always).
func Resend(window time.Duration) JobOption {
	return jobOption(func(o *jobOptions) {
		o.policy.Recovery, o.policy.ProviderWindowMS = flight.RecoveryResend.String(), o.ms("window", window)
	})
}

// Timeout bounds an attempt.
func Timeout(d time.Duration) JobOption {
	return jobOption(func(o *jobOptions) { o.policy.AttemptTimeoutMS = o.ms("timeout", d) })
}

// JobPolicy declares a whole policy.
func JobPolicy(policy flight.Policy) JobOption {
	return jobOption(func(o *jobOptions) {
		if err := policy.Validate(); err != nil {
			o.invalid = err
		}
		o.policy = wire.PolicyOf(policy)
	})
}

// Verify declares the recovery verify: after a crash, look asks the provider, not before settle is over. It returns nil for an
// effect that did not happen.
func Verify[O any](look func(ctx context.Context, at Attempt) (*O, error), settle time.Duration) JobOption {
	return jobOption(func(o *jobOptions) {
		o.policy.Recovery, o.policy.SettleMS = flight.RecoveryVerify.String(), o.ms("settle", settle)
		o.lookUp = func(ctx context.Context, at *effect.Attempt) (flight.Finding, effect.Answer, error) {
			found, err := look(ctx, at)
			switch {
			case err != nil:
				return flight.FindingNone, effect.Answer{}, err
			case found == nil:
				return flight.FindingNotHappened, effect.Answer{}, nil
			}
			return flight.FindingHappened, answerOf(*found), nil
		}
	})
}

// Retry says how often a job is handed out again after its effect surely did not happen.
type Retry struct {
	Attempts   int           // the first one included
	First, Max time.Duration // pauses; 0: the server's
	Within     time.Duration // from the first attempt; 0: no bound
}

func (r Retry) applyToJob(o *jobOptions) {
	o.retry = &wire.Retry{Attempts: int64(r.Attempts), FirstMS: o.ms("retry.first", r.First), MaxMS: o.ms("retry.max", r.Max), WithinMS: o.ms("retry.within", r.Within)}
}
