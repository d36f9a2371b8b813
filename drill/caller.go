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
	"github.com/flightd/flightd/internal/crashpoint"
	"github.com/flightd/flightd/internal/wire"
)

// How long things take in a drill: as short as flightd allows, so that dead holders are noticed soon.
const (
	sessionTTL     = 2 * time.Second
	attemptTimeout = time.Second
	settleDelay    = 1500 * time.Millisecond // a request that the attempt left behind is with the CRM by then
	callPatience   = 30 * time.Second        // of a caller, with everything
)

// namespace and action are those of the keys in a drill.
const (
	namespace = "drill"
	action    = "create-ticket"
)

// CallerConfig is what a caller's process needs to know.
type CallerConfig struct {
	Server   string // flightd's address
	CRM      string // the CRM's address
	ID       string // of the intent
	Recovery string // resend, verify or hold; none: act without flightd
	Spool    string // where reports wait that nobody has taken
	// PauseAt is where the caller stops, once, until it reads a line.
	PauseAt crashpoint.Point
	// Crash is where it dies.
	Crash *crashpoint.Set
	// WatchOpen puts a relay between the caller and flightd, which passes during-open when an open has left.
	WatchOpen bool

	In     io.Reader
	Out    io.Writer
	Logger *slog.Logger
}

// caller is the program of a user of flightd: it wants one ticket for one intent.
type caller struct {
	cfg  CallerConfig
	path *path
	key  flight.Key
}

// RunCaller is the caller's process. What happens to it is written to Out, one JSON document in a line; its error is
// of the drill's own set-up.
func RunCaller(ctx context.Context, cfg CallerConfig) error {
	ctx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	c := &caller{cfg: cfg, path: newPath(cfg)}
	if cfg.Recovery == NoRecovery {
		return c.actAlone(ctx)
	}
	server := cfg.Server
	if cfg.WatchOpen {
		relay, err := startRelay(cfg.Server, func() { c.path.pass(crashpoint.DuringOpen, 0, nil) })
		if err != nil {
			return err
		}
		defer relay.close()
		server = relay.url()
	}
	return c.act(ctx, server)
}

// act wants the ticket through flightd, and wants it again: the duplicate must get the same receipt.
func (c *caller) act(ctx context.Context, server string) error {
	call, err := c.call()
	if err != nil {
		return err
	}
	fd, err := client.Connect(ctx, server, client.WithNamespace(namespace), client.WithTTL(sessionTTL), client.WithSpool(c.cfg.Spool),
		client.WithPatience(callPatience/2), client.WithReportWait(callPatience/2), client.WithLogger(c.cfg.Logger))
	if err != nil {
		return c.path.end(err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = fd.Close(ctx) // what could not be reported is in the spool
	}()
	c.path.pass(crashpoint.BeforeOpen, 0, nil)
	result, err := fd.Do(ctx, call, c.createTicket)
	if err != nil {
		return c.path.end(err)
	}
	c.path.pass(crashpoint.AfterReport, result.Attempt, nil)
	c.path.result(result)
	if result, err = fd.Do(ctx, call, c.createTicket); err == nil {
		c.path.result(result)
		c.path.pass(crashpoint.BeforeRelease, result.Attempt, nil)
	}
	return c.path.end(err)
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

// createTicket is the handler: the effect.
func (c *caller) createTicket(ctx context.Context, at *effect.Attempt) (effect.Answer, error) {
	c.path.pass(crashpoint.AfterOpen, at.Number(), nil)
	dialer := net.Dialer{}
	base := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		c.path.pass(crashpoint.BeforeSend, at.Number(), nil)
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
		c.path.pass(crashpoint.AfterEffect, at.Number(), nil)
	}
	answer, err := client.FromHTTP(resp, err)
	if err == nil {
		answer.ExternalID, err = ticketID(answer.Body)
	}
	c.path.pass(crashpoint.BeforeReport, at.Number(), err)
	return answer, err
}

func ticketID(body []byte) (string, error) {
	var t Ticket
	err := json.Unmarshal(body, &t)
	return t.ID, err
}

// lookUp asks the CRM whether there is a ticket.
func (c *caller) lookUp(ctx context.Context, _ *effect.Attempt) (flight.Verb, effect.Answer, error) {
	found, err := books{url: c.cfg.CRM, http: http.DefaultClient}.find(ctx, c.cfg.ID)
	switch {
	case err != nil:
		return flight.NoVerb, effect.Answer{}, err
	case len(found) == 0:
		return flight.DidNotHappen, effect.Answer{}, nil
	}
	answer, err := effect.JSON(found[0].ID, found[0])
	return flight.Happened, answer, err
}

// aloneTries is how often a caller without flightd tries.
const aloneTries = 3

// actAlone is the program that people write first: it tries again when it is not sure.
func (c *caller) actAlone(ctx context.Context) error {
	body, err := json.Marshal(c.ticket())
	if err != nil {
		return err
	}
	for range aloneTries {
		var made effect.Answer
		if made, err = c.tryAlone(ctx, body); err == nil {
			id, err := ticketID(made.Body)
			c.path.result(effect.Result{Answer: effect.Answer{ExternalID: id, Body: made.Body}})
			return c.path.end(err)
		}
	}
	return c.path.end(err)
}

func (c *caller) tryAlone(ctx context.Context, body []byte) (effect.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.cfg.CRM+"/tickets", bytes.NewReader(body))
	if err != nil {
		return effect.Answer{}, err
	}
	req.Header.Set("Content-Type", wire.TypeJSON)
	c.path.pass(crashpoint.BeforeSend, 0, nil)
	resp, err := http.DefaultClient.Do(req)
	if err == nil {
		c.path.pass(crashpoint.AfterEffect, 0, nil)
	}
	made, err := client.FromHTTP(resp, err)
	c.path.pass(crashpoint.BeforeReport, 0, err)
	return made, err
}

// How a caller's process ended, for the drill.
const (
	endedWell    = "succeeded"
	endedInDoubt = "in_doubt" // a person must settle it
	endedAgain   = "again"    // coming back is right
	endedBadly   = "failed"
)

// endOf tells what an error of Do allows.
func endOf(err error) string {
	var (
		doubt       *effect.InDoubt
		busy        *effect.Busy
		unsettled   *effect.Unsettled
		unrecorded  *effect.Unrecorded
		unavailable *effect.Unavailable
		fenced      *effect.Fenced
	)
	switch {
	case err == nil:
		return endedWell
	case errors.As(err, &doubt):
		return endedInDoubt
	case errors.As(err, &busy), errors.As(err, &unsettled), errors.As(err, &unrecorded), errors.As(err, &unavailable), errors.As(err, &fenced),
		errors.Is(err, effect.ErrLeaseLost):
		return endedAgain
	}
	return endedBadly
}
