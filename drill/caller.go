package drill

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/crashpoint"
)

// Durations of a drill: as short as flightd allows, so that dead holders are noticed soon.
const (
	sessionTTL     = 2 * time.Second
	attemptTimeout = time.Second
	settleDelay    = 1500 * time.Millisecond // a late request of the dead attempt has reached the CRM by then
	callTimeout    = 30 * time.Second        // for all calls of one caller
)

// The namespace and action of all keys in a drill.
const (
	namespace = "drill"
	action    = "create-ticket"
)

// CallerConfig configures a caller process.
type CallerConfig struct {
	Server   string // flightd's address
	CRM      string // the CRM's address
	ID       string // id of the intent
	Recovery string // resend, verify or hold; none: call the CRM without flightd
	Spool    string // directory for reports that no server has stored
	// PauseAt is the point at which the caller pauses, once, until it reads a line from In.
	PauseAt crashpoint.Point
	// Crash names the points at which the caller kills itself.
	Crash *crashpoint.Set
	// WatchOpen puts a proxy between the caller and flightd, which passes during-open after an open was sent.
	WatchOpen bool

	In     io.Reader
	Out    io.Writer
	Logger *slog.Logger
}

// caller is a program that uses flightd to create one ticket for one intent.
type caller struct {
	cfg    CallerConfig
	points *crashPoints
	key    flight.Key
}

// RunCaller runs a caller process. It writes its messages to Out, one JSON document per line. A failed call is a
// message, not an error: RunCaller returns an error only if the set-up or the output fails.
func RunCaller(ctx context.Context, cfg CallerConfig) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	c := &caller{cfg: cfg, points: newCrashPoints(cfg)}
	if cfg.Recovery == NoRecovery {
		return c.actDirectly(ctx)
	}
	server := cfg.Server
	if cfg.WatchOpen {
		proxy, err := startProxy(cfg.Server, func() { c.points.pass(crashpoint.DuringOpen, 0, nil) })
		if err != nil {
			return err
		}
		defer proxy.close()
		server = proxy.url()
	}
	return c.act(ctx, server)
}

// act creates the ticket through flightd, and calls a second time: the duplicate must get the same receipt.
func (c *caller) act(ctx context.Context, server string) error {
	call, err := c.call()
	if err != nil {
		return err
	}
	fd, err := client.Connect(ctx, server, client.WithNamespace(namespace), client.WithSessionTTL(sessionTTL), client.WithSpool(c.cfg.Spool),
		client.WithRetryTimeout(callTimeout/2), client.WithReportTimeout(callTimeout/2), client.WithLogger(c.cfg.Logger))
	if err != nil {
		return c.points.reportEnd(err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = fd.Close(ctx) // an unsent report is in the spool
	}()
	c.points.pass(crashpoint.BeforeOpen, 0, nil)
	result, err := fd.Do(ctx, call, c.createTicket)
	if err != nil {
		return c.points.reportEnd(err)
	}
	c.points.pass(crashpoint.AfterReport, result.Attempt, nil)
	c.points.reportResult(result)
	if result, err = fd.Do(ctx, call, c.createTicket); err == nil {
		c.points.reportResult(result)
		c.points.pass(crashpoint.BeforeRelease, result.Attempt, nil)
	}
	return c.points.reportEnd(err)
}

func (c *caller) call() (call effect.Call, err error) {
	recovery, err := flight.ParseRecovery(c.cfg.Recovery)
	if err != nil {
		return call, err
	}
	if c.key, err = flight.NewKey(namespace, action, c.cfg.ID); err != nil {
		return call, err
	}
	input, err := json.Marshal(c.ticket())
	if err != nil {
		return call, err
	}
	fingerprint, err := flight.FingerprintJSON(input, nil)
	if err != nil {
		return call, err
	}
	return effect.Call{
		Key: c.key,
		Submission: flight.Submission{
			Fingerprint: fingerprint, Input: flight.NewBlob(wire.TypeJSON, input, flight.MaxInput),
			Policy: flight.Policy{Recovery: recovery, AttemptTimeout: attemptTimeout, SettleDelay: settleDelay},
		},
		LookUp: c.lookUp,
	}, nil
}

func (c *caller) ticket() Ticket {
	return Ticket{ExternalID: c.cfg.ID, Subject: "one ticket for one intent"}
}

// createTicket is the handler that performs the effect.
func (c *caller) createTicket(ctx context.Context, at *effect.Attempt) (effect.Answer, error) {
	c.points.pass(crashpoint.AfterOpen, at.Number(), nil)
	dialer := net.Dialer{}
	base := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		c.points.pass(crashpoint.BeforeSend, at.Number(), nil)
		return dialer.DialContext(ctx, network, address)
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.cfg.CRM+"/tickets", bytes.NewReader(at.Input()))
	if err != nil {
		return effect.Answer{}, err
	}
	req.Header.Set("Content-Type", wire.TypeJSON)
	provider := http.Client{Transport: at.Transport(base)}
	resp, err := provider.Do(req)
	if err == nil {
		c.points.pass(crashpoint.AfterEffect, at.Number(), nil)
	}
	answer, err := client.FromHTTP(resp, err)
	if err == nil {
		answer.ExternalID, err = ticketID(answer.Body)
	}
	c.points.pass(crashpoint.BeforeReport, at.Number(), err)
	return answer, err
}

func ticketID(body []byte) (string, error) {
	var t Ticket
	err := json.Unmarshal(body, &t)
	return t.ID, err
}

// lookUp asks the CRM whether it has a ticket for the intent.
func (c *caller) lookUp(ctx context.Context, _ *effect.Attempt) (flight.Finding, effect.Answer, error) {
	found, err := crmClient{url: c.cfg.CRM, http: http.DefaultClient}.find(ctx, c.cfg.ID)
	switch {
	case err != nil:
		return flight.FindingNone, effect.Answer{}, err
	case len(found) == 0:
		return flight.FindingNotHappened, effect.Answer{}, nil
	}
	answer, err := effect.JSON(found[0].ID, found[0])
	return flight.FindingHappened, answer, err
}

// directAttempts is the number of requests after which a caller without flightd stops.
const directAttempts = 3

// actDirectly calls the CRM without flightd, and retries after every error.
func (c *caller) actDirectly(ctx context.Context) error {
	body, err := json.Marshal(c.ticket())
	if err != nil {
		return err
	}
	for range directAttempts {
		var made effect.Answer
		if made, err = c.tryDirectly(ctx, body); err == nil {
			id, err := ticketID(made.Body)
			c.points.reportResult(effect.Result{Answer: effect.Answer{ExternalID: id, Body: made.Body}})
			return c.points.reportEnd(err)
		}
	}
	return c.points.reportEnd(err)
}

func (c *caller) tryDirectly(ctx context.Context, body []byte) (effect.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.cfg.CRM+"/tickets", bytes.NewReader(body))
	if err != nil {
		return effect.Answer{}, err
	}
	req.Header.Set("Content-Type", wire.TypeJSON)
	c.points.pass(crashpoint.BeforeSend, 0, nil)
	resp, err := http.DefaultClient.Do(req)
	if err == nil {
		c.points.pass(crashpoint.AfterEffect, 0, nil)
	}
	made, err := client.FromHTTP(resp, err)
	c.points.pass(crashpoint.BeforeReport, 0, err)
	return made, err
}

// The possible ends of a caller process.
const (
	endSucceeded = "succeeded"
	endInDoubt   = "in_doubt" // a person must resolve the flight
	endRetry     = "retry"    // a new caller may retry
	endFailed    = "failed"
)

// classifyEnd maps an error of Do to the end of the caller process.
func classifyEnd(err error) string {
	switch {
	case err == nil:
		return endSucceeded
	case errors.As(err, new(*effect.InDoubt)):
		return endInDoubt
	case errors.As(err, new(*effect.Busy)), errors.As(err, new(*effect.Unsettled)), errors.As(err, new(*effect.Unrecorded)), errors.As(err, new(*effect.Unavailable)), errors.As(err, new(*effect.Fenced)),
		errors.Is(err, effect.ErrLeaseLost):
		return endRetry
	}
	return endFailed
}
