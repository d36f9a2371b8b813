// Command godriver is the conformance driver of the Go client: see package conformance.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

// setup is the first line of input.
type setup struct {
	Address        string `json:"address"`
	TTL            int    `json:"ttl_s"`
	Spool          string `json:"spool"`
	RetryTimeoutMS int64  `json:"retry_timeout_ms"`
	ReportWaitMS   int64  `json:"report_wait_ms"`
	Work           string `json:"work"`
	Look           string `json:"look"`
}

// call is each further line of input.
type call struct {
	Call             int             `json:"call"`
	Callers          int             `json:"callers"`
	Name             string          `json:"name"`
	ID               string          `json:"id"`
	Input            json.RawMessage `json:"input"`
	Recovery         string          `json:"recovery"`
	WaitMS           int64           `json:"wait_ms"`
	SettleMS         int64           `json:"settle_ms"`
	AttemptTimeoutMS int64           `json:"attempt_timeout_ms"`
	ProviderWindowMS int64           `json:"provider_window_ms"`
	Before           string          `json:"before"`
	Effect           string          `json:"effect"`
	Look             string          `json:"look"`
	ThrowBefore      bool            `json:"throw_before"`
	Inner            string          `json:"inner"`
	LeaveBehind      string          `json:"leave_behind"`
	Twice            bool            `json:"twice"`
	Again            bool            `json:"again"`
	Submit           int             `json:"submit"`
	SubmitAll        int             `json:"submit_all"`
	Close            bool            `json:"close"`
	Odd              string          `json:"odd"`
	Entrance         string          `json:"entrance"`
}

// answer is the line of output of one caller.
type answer struct {
	Call       int             `json:"call"`
	Caller     int             `json:"caller"`
	Error      string          `json:"error,omitempty"`
	Detail     string          `json:"detail,omitempty"`
	Source     string          `json:"source,omitempty"`
	Value      json.RawMessage `json:"value,omitempty"`
	Body       []byte          `json:"body,omitempty"`
	ExternalID string          `json:"external_id,omitempty"`
	Attempt    uint32          `json:"attempt,omitempty"`
}

func main() {
	if err := run(context.Background(), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "godriver:", err)
		os.Exit(1)
	}
}

// driver runs calls through one client, which the first successful connect creates.
type driver struct {
	setup      setup
	mu         sync.Mutex // guards out
	out        *json.Encoder
	connecting sync.Mutex // guards c, and is held while c connects
	c          *client.Client
}

func run(ctx context.Context, in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	d := &driver{out: json.NewEncoder(out)}
	if !lines.Scan() {
		return errors.New("standard input is empty: want a set-up line")
	}
	if err := json.Unmarshal(lines.Bytes(), &d.setup); err != nil {
		return err
	}
	if d.setup.Work != "" {
		go d.work(ctx) // not waited for: it ends with the client, which is closed below
	}
	for lines.Scan() {
		var request call
		if err := json.Unmarshal(lines.Bytes(), &request); err != nil {
			return err
		}
		for caller := range request.Callers {
			go d.answer(ctx, request, caller) // not waited for: the end of input kills it, like an interrupted caller
		}
	}
	d.connecting.Lock()
	defer d.connecting.Unlock()
	if d.c != nil { // as programs do at their end
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		_ = d.c.Close(ctx)
	}
	return lines.Err()
}

func (d *driver) answer(ctx context.Context, request call, caller int) {
	a, err := d.do(ctx, request)
	if err != nil {
		a.Error, a.Detail = errorName(err), err.Error()
	}
	a.Call, a.Caller = request.Call, caller
	d.mu.Lock()
	defer d.mu.Unlock()
	_ = d.out.Encode(a) // fails only if the test has ended
}

func (d *driver) connect(ctx context.Context) (_ *client.Client, err error) {
	d.connecting.Lock()
	defer d.connecting.Unlock()
	if d.c == nil {
		d.c, err = client.Connect(ctx, d.setup.Address, client.WithSpool(d.setup.Spool), client.WithNamespace(cmp.Or(os.Getenv("FLIGHTD_NAMESPACE"), "default")),
			client.WithSessionTTL(time.Duration(d.setup.TTL)*time.Second), client.WithRetryTimeout(ms(d.setup.RetryTimeoutMS)),
			client.WithReportTimeout(ms(d.setup.ReportWaitMS)))
	}
	return d.c, err
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

func (d *driver) do(ctx context.Context, request call) (a answer, err error) {
	c, err := d.connect(ctx)
	if err != nil {
		return a, err
	}
	switch {
	case request.Entrance != "":
		return d.odd(ctx, c, request)
	case request.Close:
		return answer{Source: "closed"}, c.Close(ctx)
	case request.SubmitAll > 0:
		return submitAll(ctx, c, request)
	case request.Submit > 0:
		return submit(ctx, c, request)
	}
	key, err := c.Key(request.Name, request.ID)
	if err != nil {
		return a, err
	}
	wanted := effect.Call{Key: key, Wait: ms(request.WaitMS)}
	if wanted.Submission, err = submission(request); err != nil {
		return a, err
	}
	if request.Look != "" {
		wanted.LookUp = lookUp(request.Look)
	}
	result, err := c.Do(ctx, wanted, request.handler(c))
	var declined *client.Declined
	var conflict *client.Conflict
	switch {
	case errors.As(err, &declined):
		a.Value, _ = json.Marshal(string(declined.Result.Answer.Body))
	case errors.As(err, &conflict):
		a.Value, _ = json.Marshal(conflict.Fields)
	}
	if err == nil && result.Truncated && result.Source != effect.SourceExecuted {
		err = &client.ReceiptTruncated{Result: result} // as client.Do of a type
	}
	if err != nil {
		return a, err
	}
	receipt, err := c.Receipt(ctx, key.FlightID())
	if err != nil {
		return a, err
	}
	a.Source, a.Value, a.Body = result.Source.String(), result.Answer.Body, receipt.Data
	a.ExternalID, a.Attempt = result.Answer.ExternalID, result.Attempt
	return a, nil
}

// work performs the jobs of the action charge. After SIGTERM it closes the client, as programs do.
func (d *driver) work(ctx context.Context) {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	c, err := d.connect(ctx)
	if err == nil {
		w := c.Worker()
		var look effect.LookUp
		if d.setup.Look != "" {
			look = lookUp(d.setup.Look)
		}
		w.Handle("charge", look, call{Effect: d.setup.Work}.handler(c))
		err = w.Run(ctx)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "the worker has ended: %s: %v\n", errorName(err), err)
	}
	if ctx.Err() != nil {
		_ = c.Close(context.WithoutCancel(ctx)) // it fails only if a report waits on disk
	}
}

// submit submits a job several times, and waits for its end.
func submit(ctx context.Context, c *client.Client, request call) (a answer, err error) {
	s, err := submission(request)
	if err != nil {
		return a, err
	}
	var said []string
	var job *client.Job
	for range request.Submit {
		job, err = c.SubmitJob(ctx, client.SubmitRequest{Action: request.Name, ID: request.ID, Input: request.Input, Policy: wire.PolicyOf(s.Policy)})
		if err != nil {
			return a, err
		}
		said = append(said, job.Status)
	}
	a.Source = strings.Join(said, " ")
	a.Value, err = client.Wait[json.RawMessage](ctx, c, job.Key)
	return a, err
}

// submitAll submits jobs in a batch, and tells how many are queued.
func submitAll(ctx context.Context, c *client.Client, request call) (a answer, err error) {
	jobs := func(yield func(string, any) bool) {
		for i := range request.SubmitAll {
			if !yield(fmt.Sprintf("%s-%d", request.ID, i), request.Input) {
				return
			}
		}
	}
	queued := 0
	for result, err := range c.SubmitAll(ctx, request.Name, jobs) {
		if err = errors.Join(err, result.Err); err != nil {
			return a, err
		}
		if result.Status == client.Queued {
			queued++
		}
	}
	return answer{Source: fmt.Sprint("queued ", queued)}, nil
}

func submission(request call) (s flight.Submission, err error) {
	s.Policy = flight.Policy{SettleDelay: ms(request.SettleMS), AttemptTimeout: ms(request.AttemptTimeoutMS), ProviderWindow: ms(request.ProviderWindowMS)}
	if request.Recovery != "" {
		if s.Policy.Recovery, err = flight.ParseRecovery(request.Recovery); err != nil {
			return s, err
		}
	}
	if len(request.Input) == 0 {
		s.Fingerprint = flight.FingerprintBytes(nil)
		return s, nil
	}
	s.Input = flight.NewBlob("application/json", request.Input, flight.MaxInput)
	s.Fingerprint, err = flight.FingerprintJSON(request.Input, nil)
	return s, err
}

// handler returns the handler that performs the effect at the provider.
func (ca call) handler(c *client.Client) effect.Handler {
	return func(ctx context.Context, at *effect.Attempt) (effect.Answer, error) {
		at.Watch()
		if ca.LeaveBehind != "" {
			go ca.runAfterReturn(at) // not waited for: the test needs a goroutine that outlives the handler
			return effect.Answer{}, errors.New("before the effect")
		}
		if ca.Before != "" {
			if _, err := get(ctx, ca.Before); err != nil {
				return effect.Answer{}, err
			}
		}
		if ca.ThrowBefore {
			return effect.Answer{}, errors.New("before the effect")
		}
		answer, err := ca.callProvider(ctx, at)
		if err == nil && ca.Twice || err != nil && ca.Again {
			answer, err = ca.callProvider(ctx, at)
		}
		if err == nil && ca.Inner != "" {
			err = ca.nested(ctx, c)
		}
		return answer, err
	}
}

// nested runs a flight inside the effect of another one. Its own effect returns NotDone.
func (ca call) nested(ctx context.Context, c *client.Client) error {
	key, err := c.Key(ca.Name, ca.Inner)
	if err != nil {
		return err
	}
	inner := effect.Call{Key: key}
	if inner.Submission, err = submission(call{}); err != nil {
		return err
	}
	_, err = c.Do(ctx, inner, func(context.Context, *effect.Attempt) (effect.Answer, error) {
		return effect.Answer{}, effect.NotDone(errors.New("the inner one"))
	})
	return err
}

// callProvider performs the effect.
func (ca call) callProvider(ctx context.Context, at *effect.Attempt) (effect.Answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, ca.Effect, bytes.NewReader(at.Input()))
	if err != nil {
		return effect.Answer{}, err
	}
	answer, err := client.FromHTTP((&http.Client{Transport: at.Transport(nil)}).Do(req))
	if err != nil {
		return answer, err
	}
	var charge struct{ ID string }
	err = json.Unmarshal(answer.Body, &charge)
	answer.ExternalID = charge.ID
	return answer, err
}

// runAfterReturn tries the effect after its handler has returned.
func (ca call) runAfterReturn(at *effect.Attempt) {
	ctx := context.Background()
	_, _ = get(ctx, ca.Before)
	_, _ = ca.callProvider(ctx, at)
	_, _ = get(ctx, ca.LeaveBehind)
}

func lookUp(url string) effect.LookUp {
	return func(ctx context.Context, _ *effect.Attempt) (flight.Finding, effect.Answer, error) {
		body, err := get(ctx, url)
		if err != nil {
			return flight.FindingNone, effect.Answer{}, err
		}
		var found struct {
			Happened bool
			Value    json.RawMessage
		}
		if err := json.Unmarshal(body, &found); err != nil {
			return flight.FindingNone, effect.Answer{}, err
		}
		if !found.Happened {
			return flight.FindingNotHappened, effect.Answer{}, nil
		}
		var charge struct{ ID string }
		err = json.Unmarshal(found.Value, &charge)
		return flight.FindingHappened, effect.Answer{ExternalID: charge.ID, ContentType: "application/json", Body: found.Value}, err
	}
}

func get(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}

// errorName returns the name of an error, which is the same in all languages.
func errorName(err error) string {
	var unsettled *client.Unsettled
	switch {
	case errors.As(err, new(*client.Unrecorded)):
		return "unrecorded"
	case errors.As(err, new(*client.Declined)):
		return "declined"
	case errors.As(err, new(*client.Failed)):
		return "flight_failed"
	case errors.As(err, new(*client.InDoubt)):
		return "in_doubt"
	case errors.As(err, new(*client.Fenced)):
		return "fenced"
	case errors.As(err, new(*client.Busy)):
		return "idempotency_in_flight"
	case errors.Is(err, effect.ErrLeaseLost):
		return "lease_lost"
	case errors.As(err, &unsettled):
		return unsettled.Outcome.String()
	case errors.As(err, new(*client.Unavailable)):
		return "unavailable"
	case errors.As(err, new(*client.ReceiptTruncated)):
		return "receipt_truncated"
	}
	return cmp.Or(string(client.CodeOf(err)), "invalid")
}
