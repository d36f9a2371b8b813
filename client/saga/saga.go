// Package saga defines sagas in Go, works their steps and starts them: several writes, all of them or none of them.
//
// A step is an effect like every other, with one more function that undoes it. When a step is refused, or somebody cancels the saga, the
// steps that happened are undone in the reverse order of their ends. From the success of the pivot on, the saga only goes forward. A step
// whose outcome nobody knows stops the saga, visibly, until its recovery or a person has found out.
package saga

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/saga"
)

// Attempt is one attempt at a step or an undo.
type Attempt = client.Attempt

// Saga is a definition of a saga whose input is an I. Add steps with Step before a worker serves it.
type Saga[I any] struct {
	def      saga.Definition
	handlers []handler
}

// handler performs the jobs of one action.
type handler struct {
	action string
	lookUp effect.LookUp
	effect effect.Handler
}

// Option is an option of New.
type Option func(*saga.Definition)

// Version numbers the definition, from 1. A saga that runs stays with the version that it was started with; a changed definition needs a new
// number, or Run of the worker fails.
func Version(n uint32) Option { return func(d *saga.Definition) { d.Version = n } }

// Deadline cancels a saga that is not over after a time since its start, unless its pivot has succeeded.
func Deadline(after time.Duration) Option {
	return func(d *saga.Definition) { d.Deadline = saga.Duration(after) }
}

// New begins a definition, of version 1 unless Version says otherwise. Mistakes are the error of Start, and of Run of a worker.
func New[I any](name string, opts ...Option) *Saga[I] {
	s := &Saga[I]{def: saga.Definition{Saga: name, Version: 1}}
	for _, opt := range opts {
		opt(&s.def)
	}
	return s
}

// StepOption is an option of Step.
type StepOption func(*step)

// step is a step while it is being defined.
type step struct {
	saga.Step
	lookUp     effect.LookUp
	undo       effect.Handler
	undoLookUp effect.LookUp
}

// StepOf is a step whose result is an O.
type StepOf[O any] struct{ name string }

func (so *StepOf[O]) stepName() string { return so.name }

// Named is a step of any result.
type Named interface{ stepName() string }

// Step adds a step. Its function gets the saga's input; Result gives it the results of the steps that it comes after. What the function
// returns is read like the result of client.Do's function. A step without After starts at once.
func Step[I, O any](s *Saga[I], name string, perform func(ctx context.Context, at Attempt, in I) (O, error), opts ...StepOption) *StepOf[O] {
	st := step{Step: saga.Step{Name: name}}
	for _, opt := range opts {
		opt(&st)
	}
	position := len(s.def.Steps)
	s.def.Steps = append(s.def.Steps, st.Step)
	s.handlers = append(s.handlers, handler{s.def.ActionOf(position, false), st.lookUp, performs(perform)})
	if st.undo != nil {
		s.handlers = append(s.handlers, handler{s.def.ActionOf(position, true), st.undoLookUp, st.undo})
	}
	return &StepOf[O]{name}
}

// Approval adds a step that performs nothing: a person approves it (flightd approvals approve), or rejects it, which undoes the saga. The
// person sees the saga's input and the results of the steps that it comes after. Of the options it takes After and Expires.
func Approval[I any](s *Saga[I], name string, opts ...StepOption) *StepOf[struct{}] {
	st := step{Step: saga.Step{Name: name, Approval: &saga.Approval{}}}
	for _, opt := range opts {
		opt(&st)
	}
	s.def.Steps = append(s.def.Steps, st.Step)
	return &StepOf[struct{}]{name}
}

// Expires rejects an Approval that nobody has decided in time.
func Expires(after time.Duration) StepOption {
	return func(s *step) {
		if s.Step.Approval != nil {
			s.Step.Approval.Expires = saga.Duration(after)
		}
	}
}

// After lets a step start when the named ones have succeeded.
func After(steps ...Named) StepOption {
	return func(s *step) {
		for _, before := range steps {
			s.Needs = append(s.Needs, before.stepName())
		}
	}
}

// Pivot makes a step the point of no return: from its success on the saga is completed, never undone.
func Pivot() StepOption { return func(s *step) { s.Pivot = true } }

// NoUndo says that the step needs no undo: nothing is left of it that matters.
func NoUndo() StepOption { return func(s *step) { s.NoUndo = true } }

// Resend declares the recovery resend, as client.Resend.
func Resend(window time.Duration) StepOption {
	return func(s *step) { s.Recovery, s.ProviderWindow = "resend", saga.Duration(window) }
}

// Verify declares the recovery verify, as client.Verify: look returns nil for a step that did not happen.
func Verify[I, O any](look func(ctx context.Context, at Attempt, in I) (*O, error), settle time.Duration) StepOption {
	return func(s *step) {
		s.Recovery, s.SettleDelay = "verify", saga.Duration(settle)
		s.lookUp = func(ctx context.Context, at *effect.Attempt) (flight.Finding, effect.Answer, error) {
			in, _, err := read[I](at)
			if err != nil {
				return flight.FindingNone, effect.Answer{}, err
			}
			found, err := look(ctx, at, in)
			switch {
			case err != nil:
				return flight.FindingNone, effect.Answer{}, err
			case found == nil:
				return flight.FindingNotHappened, effect.Answer{}, nil
			}
			return flight.FindingHappened, client.AnswerOf(*found), nil
		}
	}
}

// Timeout bounds an attempt of the step.
func Timeout(d time.Duration) StepOption { return func(s *step) { s.Timeout = saga.Duration(d) } }

// Retry says how often the step is tried again after it surely did not happen. The default is eight attempts, with pauses from 1 s to 1 min.
func Retry(attempts int, first, most time.Duration) StepOption {
	return func(s *step) {
		s.Step.Retry = &saga.Retry{Attempts: attempts, First: saga.Duration(first), Max: saga.Duration(most)}
	}
}

// RetryFor tries the step again for a time since its first attempt.
func RetryFor(within time.Duration) StepOption {
	return func(s *step) { s.Step.Retry = &saga.Retry{Within: saga.Duration(within)} }
}

// UndoOption is an option of Undo.
type UndoOption func(*undoOptions)

type undoOptions struct {
	saga.Undo
	nothing []int
}

// NothingToUndo names the HTTP statuses with which the provider says that there is nothing to undo: such an answer is success.
func NothingToUndo(statuses ...int) UndoOption {
	return func(u *undoOptions) { u.nothing = append(u.nothing, statuses...) }
}

// SafeIfAbsent says that the undo does no harm if the step did not happen: a step of unknown outcome is undone without finding out. Then
// the result is nil.
func SafeIfAbsent() UndoOption { return func(u *undoOptions) { u.SafeIfAbsent = true } }

// UndoResend is Resend for the undo.
func UndoResend(window time.Duration) UndoOption {
	return func(u *undoOptions) { u.Recovery, u.ProviderWindow = "resend", saga.Duration(window) }
}

// Undo declares how a step is undone. fn gets the result of the step; nil if it is not known: see SafeIfAbsent, and a receipt that a person
// has attached without a body. An undo that is refused, or whose attempts are used up, waits for a person.
func Undo[I, O any](fn func(ctx context.Context, at Attempt, in I, result *O) error, opts ...UndoOption) StepOption {
	var u undoOptions
	for _, opt := range opts {
		opt(&u)
	}
	return func(s *step) {
		s.Step.Undo = &u.Undo
		name := s.Name
		s.undo = func(ctx context.Context, at *effect.Attempt) (effect.Answer, error) {
			in, steps, err := read[I](at)
			if err != nil {
				return effect.Answer{}, err
			}
			if steps[name].Truncated {
				return effect.Answer{}, client.NotDone(fmt.Errorf("the result of step %s is longer than what is stored of it; its external id is %q", name, steps[name].ExternalID))
			}
			var result *O
			if body := steps[name].Body; len(body) > 0 && string(body) != "null" {
				result = new(O)
				if err := json.Unmarshal(body, result); err != nil {
					return effect.Answer{}, client.NotDone(fmt.Errorf("the result of step %s is not a %T: %w", name, *result, err))
				}
			}
			err = fn(ctx, at, in, result)
			if status, ok := effect.StatusOf(err); ok && slices.Contains(u.nothing, status) {
				err = nil
			}
			if err != nil {
				return effect.Answer{}, err
			}
			return effect.JSON("", struct{}{})
		}
	}
}

// stepResult is the end of an earlier step in the input of a job.
type stepResult struct {
	Outcome    string          `json:"outcome"`
	ExternalID string          `json:"external_id"`
	Body       json.RawMessage `json:"body"`
	Truncated  bool            `json:"truncated"` // only the beginning of the body is stored
}

type jobInput struct {
	Input json.RawMessage       `json:"input"`
	Steps map[string]stepResult `json:"steps"`
}

// read reads the input of a job. An error of read means that nothing was done.
func read[I any](at Attempt) (in I, steps map[string]stepResult, err error) {
	var job jobInput
	if err := json.Unmarshal(at.Input(), &job); err != nil {
		return in, nil, client.NotDone(fmt.Errorf("the input of the job is not that of a step: %w", err))
	}
	if len(job.Input) > 0 {
		if err := json.Unmarshal(job.Input, &in); err != nil {
			return in, nil, client.NotDone(fmt.Errorf("the saga's input is not a %T: %w", in, err))
		}
	}
	return in, job.Steps, nil
}

func performs[I, O any](perform func(ctx context.Context, at Attempt, in I) (O, error)) effect.Handler {
	return func(ctx context.Context, at *effect.Attempt) (effect.Answer, error) {
		in, _, err := read[I](at)
		if err != nil {
			return effect.Answer{}, err
		}
		out, err := perform(ctx, at, in)
		if err != nil {
			return effect.Answer{}, err
		}
		return client.AnswerOf(out), nil
	}
}

// Result returns the result of an earlier step, in the function of a step that comes after it; ok is false if the earlier step was skipped
// or let pass, or if its result is not known.
func (so *StepOf[O]) Result(at Attempt) (result O, ok bool) {
	var job jobInput
	if json.Unmarshal(at.Input(), &job) != nil {
		return result, false
	}
	body := job.Steps[so.name].Body
	return result, len(body) > 0 && string(body) != "null" && json.Unmarshal(body, &result) == nil
}

// Register implements client.Service: the worker defines the saga before its first claim, and performs its steps and undos. Workers of
// old versions may go on beside it; jobs of their sagas have the same actions.
func (s *Saga[I]) Register(w *client.Worker) {
	for _, h := range s.handlers {
		w.Handle(h.action, h.lookUp, h.effect)
	}
	w.BeforeRun(func(ctx context.Context, c *client.Client) error { return s.Define(ctx, c) })
}

// Define stores the definition at the server, as every worker that serves the saga does: a saga must be defined before its first Start. The
// error is *client.Error with the code idempotency_conflict if the version is stored with another content.
func (s *Saga[I]) Define(ctx context.Context, c *client.Client) error {
	if found := saga.Lint(&s.def); len(found) > 0 {
		return fmt.Errorf("saga %s: %s", s.def.ID(), found[0])
	}
	return c.DefineSaga(ctx, s.def.Saga, int(s.def.Version), s.def.JSON())
}

// Start starts a saga, and does not wait for it. The same id is the same run, for every caller and however often it is started. Errors are those of
// client.StartSaga.
func (s *Saga[I]) Start(ctx context.Context, c *client.Client, id string, in I) (*Run, error) {
	a, err := c.StartSaga(ctx, s.def.Saga+"@"+strconv.FormatUint(uint64(s.def.Version), 10), id, in)
	if err != nil {
		return nil, err
	}
	key, err := flight.ParseStoredKey(a.Saga.Key)
	return &Run{client: c, Key: key}, err
}

// Run is a saga that was started.
type Run struct {
	client *client.Client
	Key    flight.Key
}

// Wait waits until the saga is over, or waits for a person: its State says which.
func (r *Run) Wait(ctx context.Context) (*client.Saga, error) {
	return r.client.WaitSaga(ctx, r.Key.FlightID())
}

// Cancel undoes the saga. The error is *client.Error with the code past_pivot if its pivot has succeeded, and with precondition_failed if the
// saga is over.
func (r *Run) Cancel(ctx context.Context, reason string) error {
	for seen := ""; ; {
		f, err := r.client.Flight(ctx, r.Key.FlightID())
		if err != nil {
			return err
		}
		_, err = r.client.Cancel(ctx, r.Key.FlightID(), f.Version, client.OperatorRequest{Reason: reason})
		if client.CodeOf(err) != wire.PreconditionFailed || f.Version == seen {
			return err
		}
		seen = f.Version // it may have gone on meanwhile
	}
}

// ErrNoReceipt is the error of Receipt for a step that has no receipt.
var ErrNoReceipt = errors.New("the step has no receipt")

// Receipt returns the result of a step of a run.
func (so *StepOf[O]) Receipt(run *client.Saga) (result O, err error) {
	for i := range run.Steps {
		if st := &run.Steps[i]; st.Step == so.name && st.Flight != nil && st.Flight.Receipt != nil && st.Flight.State == flight.StateSucceeded.String() {
			return result, json.Unmarshal(st.Flight.Receipt.Body, &result)
		}
	}
	return result, ErrNoReceipt
}
