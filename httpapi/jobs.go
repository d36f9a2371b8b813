package httpapi

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/auth"
	"github.com/flightd/flightd/internal/strictjson"
	"github.com/flightd/flightd/remote"
	"github.com/flightd/flightd/saga"
)

// Pools take jobs and hand them to workers. Errors are those of Calls.
type Pools interface {
	Submit(ctx context.Context, requests []remote.SubmitRequest) []remote.SubmitAnswer
	Claim(ctx context.Context, req remote.ClaimRequest) ([]remote.Job, error)
	Queues
}

// jobRoutes serve those who submit jobs, and the workers that perform them.
type jobRoutes struct {
	*flightWriter
	work       Work // without Pools the routes answer not_found
	calls      Calls
	documents  *documentStore
	deployment string
	publicURL  string // Callers.PublicURL
}

func (jr *jobRoutes) routes() []declaration {
	return []declaration{
		route{pattern: "POST /v1/flights:submit", serve: jr.withPools(jr.submit), access: with(auth.Submit)},
		route{pattern: "POST /v1/flights:claim", serve: jr.withPools(jr.claim), access: with(auth.Work)},
	}
}

func (jr *jobRoutes) withPools(serve handler) handler {
	if jr.work.Pools == nil {
		return func(http.ResponseWriter, *http.Request) error {
			return &wire.Invalid{Code: wire.NotFound, FieldError: wire.FieldError{Detail: "this server has no jobs"}}
		}
	}
	return serve
}

// submit serves POST /v1/flights:submit: one job, or a job on each line.
func (jr *jobRoutes) submit(w http.ResponseWriter, r *http.Request) error {
	ns, bad := namespace(r)
	if bad != nil {
		return bad
	}
	if wire.IsNDJSONType(r.Header.Get("Content-Type")) {
		return jr.submitLines(w, r, ns)
	}
	body, bad := jr.receiveBody(w, r, wire.MaxOpenBody)
	if bad != nil {
		return bad
	}
	req, err := jr.submitRequest(r, ns, body, new(int64))
	if err != nil {
		return err
	}
	a := jr.work.Pools.Submit(r.Context(), []remote.SubmitRequest{req})[0]
	if a.Err != nil {
		return about(req.Key, a.Err)
	}
	f, receipt, err := jr.loadReceiptBody(r, a.Flight)
	if err != nil {
		return about(req.Key, err)
	}
	setFlightHeaders(w.Header(), f)
	status, out := http.StatusOK, wire.SubmitAnswer{Status: wire.StatusDuplicate, Flight: wire.FlightOf(f, receipt, true)}
	if a.Queued {
		status, out.Status = http.StatusCreated, wire.StatusQueued
		if jr.work.Pools.Workers(ns, req.Key.Name()) == 0 {
			out.Warning = "no worker has asked for jobs of the action " + req.Key.Name() + " within a minute"
		}
	}
	return writeJSON(w, r, status, &out)
}

// submitRequest parses a body or a line. Its error has the key. added counts the new keys that are proposed together.
func (jr *jobRoutes) submitRequest(r *http.Request, ns string, body []byte, added *int64) (req remote.SubmitRequest, err error) {
	parsed, bad := wire.Decode[wire.SubmitRequest](body)
	if bad != nil {
		return req, bad
	}
	declared, err := jr.documents.policyOf(ns, parsed.Action)
	if err != nil {
		return req, err
	}
	var unnamed *wire.Invalid // the input names no lane
	if declared != nil {
		unnamed = parsed.Fill(declared)
	}
	if req.Key, req.Submission, req.Queue, bad = parsed.Parse(ns, jr.ledger.Now()); bad != nil {
		return req, about(req.Key, bad)
	}
	req.Queue.Trace = jr.traceOf(r)
	if bad = setRequester(r, &req.Submission, ""); bad != nil {
		return req, about(req.Key, bad)
	}
	if err := jr.limits.AllowWork(ns); err != nil {
		return req, about(req.Key, err)
	}
	f, err := jr.flightOf(r, req.Key.FlightID(), req.Key)
	if err == nil && (f == nil || f.State == flight.StateAbsent) { // else it keeps its lane
		if err = jr.limits.AllowFlights(req.Key, *added+1); unnamed != nil {
			err = unnamed
		}
		if err == nil {
			*added++
		}
	}
	if err != nil {
		err = about(req.Key, err)
	}
	return req, err
}

// submitChunk is how many lines of one request are proposed at once.
const submitChunk = 512

// submitLineSize is the memory, in bytes, that is counted for the answer to a line. A rejected job has about this length. The memory
// is counted before the jobs are submitted, so that a submission without memory changes nothing.
const submitLineSize = 512

// submitLines submits a job on each line, in their order, and answers with what became of each. A line that is not accepted changes
// nothing for the others. If the process dies, some jobs are in the ledger; the same lines again find them.
func (jr *jobRoutes) submitLines(w http.ResponseWriter, r *http.Request, ns string) error {
	body, bad := jr.receiveLines(w, r, wire.MaxSubmitBody)
	if bad != nil {
		return bad
	}
	lines := bytes.Split(bytes.TrimRight(body, "\r\n"), []byte("\n"))
	if len(lines) > wire.MaxSubmitLines {
		bad := wire.BadField("", "more than %d lines; send the rest in another request", wire.MaxSubmitLines)
		bad.Code = wire.PayloadTooLarge
		return bad
	}
	release, ok := holdAnswer(w, r, len(lines)*submitLineSize)
	if !ok {
		return problemError{problem: answerProblem(r)}
	}
	defer release()
	var out []byte
	number := 0
	for chunk := range slices.Chunk(lines, submitChunk) {
		if number > 0 && r.Context().Err() != nil {
			return r.Context().Err() // the caller has gone, or the node drains; the same lines again are harmless
		}
		out = append(out, jr.submitSome(r, ns, number, chunk)...)
		number += len(chunk)
	}
	w.Header()["Content-Type"] = []string{wire.TypeNDJSON}
	w.WriteHeader(http.StatusOK) // with the index of the ledger, which has all lines now
	_, _ = w.Write(out)          // an error says that the caller has gone
	return nil
}

// submitSome submits the lines after the first number ones. It returns the lines to answer with.
func (jr *jobRoutes) submitSome(r *http.Request, ns string, number int, lines [][]byte) (out []byte) {
	requests, errs := make([]remote.SubmitRequest, 0, len(lines)), make([]error, len(lines))
	added := int64(0)
	for i, line := range lines {
		var req remote.SubmitRequest
		if req, errs[i] = jr.submitRequest(r, ns, bytes.TrimSpace(line), &added); errs[i] == nil {
			requests = append(requests, req)
		}
	}
	answers := jr.work.Pools.Submit(r.Context(), requests)
	for i, err := range errs {
		line := wire.SubmitLine{Line: number + i + 1}
		if err == nil {
			a := answers[0]
			answers = answers[1:]
			if err = a.Err; err != nil {
				err = about(requests[len(requests)-len(answers)-1].Key, err)
			} else {
				line.Status, line.ID, line.FlightID = wire.StatusDuplicate, a.Flight.Key.BusinessID(), a.Flight.ID.String()
				if a.Queued {
					line.Status = wire.StatusQueued
				}
			}
		}
		if err != nil {
			line.Problem = namedProblem(r, err)
			line.Status = string(line.Problem.Code)
			jr.logProblem(r, line.Problem, err)
		}
		out = append(strictjson.Append(out, &line), '\n')
	}
	return out
}

// claim serves POST /v1/flights:claim. The answer comes when there is a job, or when the wait is over.
func (jr *jobRoutes) claim(w http.ResponseWriter, r *http.Request) error {
	start := time.Now()
	claim, bad := receive(jr.receiveBody, w, r, wire.MaxSmallBody, wire.Decode[wire.ClaimRequest])
	if bad == nil {
		bad = claim.Parse()
	}
	ns, foreign := namespace(r)
	if bad == nil {
		bad = foreign
	}
	if bad != nil {
		return aboutOpen(flight.Key{}, claim.Nonce, bad)
	}
	var open remote.OpenRequest
	jr.setStillAllowed(r, &open)
	publicURL := ""
	if claim.Callback {
		publicURL = jr.publicURL
	}
	inputs := make(map[flight.ID][]byte) // of steps
	jobs, err := jr.work.Pools.Claim(r.Context(), remote.ClaimRequest{
		Size: func(f *flight.Flight) int {
			const other, base64 = 1 << 10, 4.0 / 3 // bytes of a job besides its input, and of its input if it is not JSON
			if !f.Key.IsStep() || jr.work.Sagas == nil {
				return other + int(base64*float64(f.Input.StoredSize))
			}
			input, err := jr.work.Sagas.StepInput(f)
			if err == nil {
				inputs[f.ID] = input
			}
			return other + len(input)
		},
		Namespace: ns, Actions: claim.Actions, WithoutLookUp: claim.WithoutLookUp, Slots: int(claim.Slots), Session: jr.unsealSession(r, claim.Session), Nonce: claim.Nonce,
		NotAfter: flight.Time(claim.NotAfter), Owner: auth.Redact(claim.Owner), Wait: wire.Wait(claim.WaitMS), StillAllowed: open.StillAllowed, PublicURL: publicURL, Trace: jr.traceOf(r),
	})
	if err != nil {
		return aboutOpen(flight.Key{}, claim.Nonce, err)
	}
	out := wire.ClaimAnswer{Nonce: claim.Nonce, Jobs: make([]wire.Job, 0, len(jobs))}
	for i := range jobs {
		j := &jobs[i]
		decision := wire.DecisionProceed
		if j.Decision == flight.DecisionVerify {
			decision = wire.DecisionVerify
		}
		job := wire.Job{OpenAnswer: jr.grantedAnswer(r, decision, j.Nonce, &j.OpenAnswer, jr.deployment)}
		policy := wire.PolicyOf(j.Flight.Policy)
		job.Policy, job.PolicyDiffers = &policy, false
		job.AgeMS = j.Age().Milliseconds() + 1
		if j.Flight.Key.IsStep() && jr.work.Sagas != nil {
			job.Action = j.Flight.Place.Queue.Action
			if job.Input = inputs[j.Flight.ID]; job.Input == nil {
				if job.Input, err = jr.work.Sagas.StepInput(j.Flight); err != nil { // nobody acts without it
					jr.refuseStep(r.Context(), j, err)
					continue
				}
			}
		}
		out.Jobs = append(out.Jobs, job)
	}
	out.ServedMS = time.Since(start).Milliseconds()
	return writeJSON(w, r, http.StatusOK, &out)
}

// refuseStep ends the attempt of a step whose input cannot be made: no worker has got it. A step that must not fail waits for a person then, and
// so does one that was to be looked up, after some look-ups without a finding. If the input could not be read, a renewal lists the attempt, and
// the worker abandons it.
func (jr *jobRoutes) refuseStep(ctx context.Context, j *remote.Job, why error) {
	jr.log.Error("the input of a step of a saga could not be made, so it is not handed out", "key", j.Flight.Key.String(), "error", why)
	if !errors.As(why, new(*saga.InputError)) {
		return
	}
	if j.Decision == flight.DecisionVerify {
		_, _ = jr.calls.Verify(ctx, remote.VerificationRequest{ID: j.Flight.ID, Verification: j.Verification, Result: flight.FindingNone, Open: remote.OpenRequest{NoNonce: true}})
		return // the answer is that the key is busy, or in doubt
	}
	_, err := jr.calls.Report(ctx, remote.ReportRequest{ID: j.Flight.ID, Key: j.Flight.Key, FencingToken: j.FencingToken, Outcome: flight.OutcomeRefused,
		Error: "its input cannot be made: " + why.Error()})
	if err != nil {
		jr.log.Warn("a step without an input is still open", "key", j.Flight.Key.String(), "error", err)
	}
}
