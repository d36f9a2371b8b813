package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/clock"
	"github.com/flightd/flightd/internal/wire"
)

// The shapes of single requests and answers.
type (
	OpenRequest     = wire.OpenRequest
	AbandonRequest  = wire.AbandonRequest
	RenewRequest    = wire.RenewRequest
	Policy          = wire.Policy
	ReportRequest   = wire.ReportRequest
	VerdictRequest  = wire.VerdictRequest
	ResolveRequest  = wire.ResolveRequest
	OperatorRequest = wire.OperatorRequest
	Body            = wire.Body
	Flight          = wire.Flight
	FlightPage      = wire.FlightPage
	Receipt         = wire.Receipt
	Event           = wire.Event
	EventPage       = wire.EventPage
	History         = wire.History
	Duplicates      = wire.Duplicates
	Ready           = wire.Ready
	Version         = wire.Version
)

// OpenAnswer is the answer to an open or a verdict.
type OpenAnswer struct {
	wire.OpenAnswer
	Sent   time.Time    // when the request was sent that this answers: trust counts from then
	sent   clock.Moment // the same, on every clock
	unsure bool         // beside an error: an open may still be carried out
}

// SessionAnswer is the answer to a session that was made or renewed.
type SessionAnswer struct {
	wire.SessionAnswer
	Sent time.Time    // when the request was sent that this answers: trust counts from then
	sent clock.Moment // the same, on every clock
}

// Open asks for permission to perform an effect. The key decides about action, id and namespace. Nonce and NotAfter are
// made where there is no nonce; a lost answer is asked for again under the same nonce, so that it costs nothing. Where an
// open that named a nonce is not answered, call Abandon with the same Nonce and NotAfter, unless it is sent again. Errors:
// *Error with the code, and inside *InDoubt, *Conflict, *Busy, *Unapproved, *Expired, *OpenExpired; *Unavailable when nobody
// answers. An answer with Decision replay may be of a flight that failed.
func (c *Client) Open(ctx context.Context, key flight.Key, r OpenRequest) (OpenAnswer, error) {
	r.Action, r.ID = key.Name(), key.BusinessID()
	if r.Nonce == "" {
		r.Nonce, r.NotAfter = newNonce(), c.ledger.notAfter()
	}
	return c.open(ctx, key, "/v1/flights:open", r.AppendJSON(nil), r.Nonce, r.WaitMS)
}

// Verdict brings what a look-up found out. It is answered like Open, and its nonce is not that of the open before.
func (c *Client) Verdict(ctx context.Context, key flight.Key, r VerdictRequest) (OpenAnswer, error) {
	if r.Nonce == "" {
		r.Nonce, r.NotAfter = newNonce(), c.ledger.notAfter()
	}
	return c.open(ctx, key, flightPath(key.FlightID(), "/verdict"), r.AppendJSON(nil), r.Nonce, r.WaitMS)
}

// open sends an open or a verdict and reads its answer. The failure of a flight is an answer, too. An answer about another
// flight is none: a caller that believed it would act without an attempt.
func (c *Client) open(ctx context.Context, key flight.Key, path string, body []byte, nonce string, waitMS *int64) (OpenAnswer, error) {
	resp, err := c.ask(ctx, request{
		method: http.MethodPost, path: path, body: body, key: key,
		has: flightAnswer(key), nonce: nonce, timeout: wire.Wait(waitMS) + defaultTry,
	})
	var a *wire.OpenAnswer
	if p := problemOf(err); p != nil && p.Code == wire.FlightFailed && p.Flight != nil {
		a = &wire.OpenAnswer{Decision: wire.DecisionReplay, FlightID: p.Flight.ID, Flight: p.Flight}
	} else if a, err = decode[wire.OpenAnswer](resp, err); err != nil {
		return OpenAnswer{unsure: resp.unsure}, err
	}
	if a.Deployment != "" && a.Deployment != c.deployment {
		return OpenAnswer{unsure: true}, &effect.Unavailable{Code: "unreachable", Cause: fmt.Errorf("an answer of another deployment: %s", a.Deployment)}
	}
	about := a.FlightID
	if a.Flight != nil {
		about = a.Flight.ID
	}
	if about != key.FlightID().String() {
		return OpenAnswer{unsure: true}, mixedUp(about)
	}
	return OpenAnswer{OpenAnswer: *a, Sent: resp.sent.Time, sent: resp.sent, unsure: resp.unsure}, nil
}

// mixedUp is for an answer about something else than what was asked.
func mixedUp(about string) error {
	return &effect.Unavailable{Code: "unreachable", Cause: fmt.Errorf("an answer about another flight: %s", about)}
}

func problemOf(err error) *Problem {
	if err == nil { // nearly always; what errors.As needs would be made for nothing
		return nil
	}
	var e *Error
	if !errors.As(err, &e) {
		return nil
	}
	return &e.Problem
}

// Report brings the outcome of an attempt, and tries until it is answered, or ctx or the patience ends. It keeps
// nothing on disk: Record does. Errors: *Error, inside it *Fenced; *Unavailable.
func (c *Client) Report(ctx context.Context, key flight.Key, r ReportRequest) (*Flight, error) {
	r.Key = key.String()
	ask := c.reportRequest(key, r.AppendJSON(nil))
	ask.patience = c.opts.patience
	return c.bring(ctx, ask)
}

// flightOf reads an answer that is that flight. Others name it, too: one to an open, which is no answer to a report.
func flightOf(id flight.ID, resp response, err error) (*Flight, error) {
	f, err := decode[Flight](resp, err)
	if err == nil && (f.ID != id.String() || f.State == "") {
		return nil, mixedUp(f.ID)
	}
	return f, err
}

// flightAnswer is what only an answer about that flight has: others have a "state", too.
func flightAnswer(key flight.Key) string { return `"` + key.FlightID().String() + `"` }

const reportTry = 15 * time.Second

// NewSession makes a session of its own, for a caller that keeps it and renews it. A ttl of 0 is the server's default.
func (c *Client) NewSession(ctx context.Context, ttl time.Duration, owner string) (SessionAnswer, error) {
	return c.newSession(ctx, ttl, owner, 0)
}

func (c *Client) newSession(ctx context.Context, ttl time.Duration, owner string, tries int) (SessionAnswer, error) {
	body := append([]byte(`{"ttl_ms":`), strconv.FormatInt(ttl.Milliseconds(), 10)...)
	body = append(append(body, `,"owner":`...), strconv.QuoteToASCII(printable(owner))...)
	return sessionAnswer(c.ask(ctx, request{method: http.MethodPost, path: "/v1/sessions", body: append(body, '}'), has: `"trust_ms"`, tries: tries}))
}

func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || r == '\\' {
			return '?'
		}
		return r
	}, s)
}

// Renew prolongs a session, and ends nothing under it. The answer lists the attempts that are open under the session where
// r.OpenDigest is not that of them; where it says More, renew again with the last one's FlightID as After. *LeaseLost is
// inside the error when the session is gone.
func (c *Client) Renew(ctx context.Context, session string, r RenewRequest) (SessionAnswer, error) {
	return c.renew(ctx, session, r, 0, 0)
}

func (c *Client) renew(ctx context.Context, session string, r RenewRequest, timeout time.Duration, tries int) (SessionAnswer, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return SessionAnswer{}, err
	}
	resp, err := c.ask(ctx, request{
		method: http.MethodPost, path: "/v1/sessions/" + url.PathEscape(session) + "/renew", body: body,
		has: `"` + session + `"`, timeout: timeout, tries: tries,
	})
	if to, bad := decode[struct{ Session, Decision string }](resp, err); bad == nil && (to.Session != session || to.Decision != "") {
		return SessionAnswer{}, &effect.Unavailable{Code: "unreachable", Cause: errors.New("an answer to something else than a renewal")}
	}
	return sessionAnswer(resp, err)
}

// CloseSession gives a session up. The server refuses that with session_in_use while attempts are open under it.
func (c *Client) CloseSession(ctx context.Context, session string) error {
	_, err := c.ask(ctx, request{method: http.MethodPost, path: "/v1/sessions/" + url.PathEscape(session) + "/close", body: []byte("{}")})
	return err
}

func sessionAnswer(resp response, err error) (SessionAnswer, error) {
	a, err := decode[wire.SessionAnswer](resp, err)
	if err != nil {
		return SessionAnswer{}, err
	}
	return SessionAnswer{SessionAnswer: *a, Sent: resp.sent.Time, sent: resp.sent}, nil
}

// Flight reads one flight. *Missing is inside the error when its key was never used.
func (c *Client) Flight(ctx context.Context, id flight.ID) (*Flight, error) {
	resp, err := c.ask(ctx, request{method: http.MethodGet, path: flightPath(id, ""), has: `"` + id.String() + `"`})
	return flightOf(id, resp, err)
}

// WaitFlight reads one flight as soon as it has another version than the one seen, or as it is when wait is over.
func (c *Client) WaitFlight(ctx context.Context, id flight.ID, seen string, wait time.Duration) (*Flight, error) {
	seconds := min(int(wait/time.Second), wire.MaxWaitMS/1000)
	resp, err := c.ask(ctx, request{
		method: http.MethodGet, path: flightPath(id, ""), ifNone: `"` + seen + `"`,
		prefer: "wait=" + strconv.Itoa(seconds), timeout: wait + defaultTry,
	})
	if err == nil && resp.status == http.StatusNotModified {
		return c.Flight(ctx, id)
	}
	return flightOf(id, resp, err)
}

// Query says which flights List shows.
type Query struct {
	States    []string      // any of these; empty: all
	Action    string        // only those of this name
	KeyPrefix string        // only those whose full key starts so
	Since     time.Duration // only those made within this time; 0: all
	Limit     int           // at most so many on a page; 0: the server's default
	Cursor    string        // FlightPage.Next of the page before
	// AllNamespaces asks for the flights of all of them; else they are of the client's.
	AllNamespaces bool
}

// List reads one page of flights, without the bodies of their receipts.
func (c *Client) List(ctx context.Context, q Query) (*FlightPage, error) {
	path := withQuery("/v1/flights", "state", strings.Join(q.States, ","), "action", q.Action, "key_prefix", q.KeyPrefix,
		"since", q.Since.String(), "limit", strconv.Itoa(q.Limit), "cursor", q.Cursor)
	return decode[FlightPage](c.ask(ctx, request{method: http.MethodGet, path: path, everywhere: q.AllNamespaces}))
}

// withQuery is a path with those parameters, named and given in turn, that ask for something.
func withQuery(path string, parameters ...string) string {
	v := url.Values{}
	for i := 0; i < len(parameters); i += 2 {
		if value := parameters[i+1]; value != "" && value != "0" && value != "0s" {
			v.Set(parameters[i], value)
		}
	}
	if len(v) == 0 {
		return path
	}
	return path + "?" + v.Encode()
}

// ReceiptBody is the body of a receipt as it was reported, byte for byte.
type ReceiptBody struct {
	Outcome     string
	ExternalID  string
	ContentType string
	Data        []byte // what is kept of it
	Size        int    // its full length
	Digest      string // over all of it
}

// Receipt reads the exact bytes of a receipt's body.
func (c *Client) Receipt(ctx context.Context, id flight.ID) (*ReceiptBody, error) {
	resp, err := c.ask(ctx, request{method: http.MethodGet, path: flightPath(id, "/receipt"), receipt: id.String()})
	if err != nil {
		return nil, err
	}
	size, _ := strconv.Atoi(resp.header.Get(wire.HeaderReceiptSize)) // see isReceipt
	externalID := resp.header.Get(wire.HeaderExternalID)
	if text, err := url.PathUnescape(externalID); err == nil {
		externalID = text
	}
	return &ReceiptBody{
		Outcome: resp.header.Get(wire.HeaderReceiptOutcome), ExternalID: externalID,
		ContentType: resp.header.Get("Content-Type"), Data: resp.body, Size: size,
		Digest: resp.header.Get(wire.HeaderReceiptDigest),
	}, nil
}

// InputBody is the input of a flight as it was first submitted, byte for byte.
type InputBody struct {
	ContentType string
	Data        []byte
	Digest      string
}

// Input reads the exact bytes of a flight's input. *Missing is inside the error where the flight has no input or is not
// known; where its bytes were erased, or its retention is over, the code is expired.
func (c *Client) Input(ctx context.Context, id flight.ID) (*InputBody, error) {
	resp, err := c.ask(ctx, request{method: http.MethodGet, path: flightPath(id, "/input"), receipt: id.String()}) // its headers are a receipt's
	if err != nil {
		return nil, err
	}
	return &InputBody{ContentType: resp.header.Get("Content-Type"), Data: resp.body, Digest: resp.header.Get(wire.HeaderReceiptDigest)}, nil
}

// History reads what happened to a flight, in order, and what is known of its duplicates.
func (c *Client) History(ctx context.Context, id flight.ID) (*History, error) {
	return decode[History](c.ask(ctx, request{method: http.MethodGet, path: flightPath(id, "/events")}))
}

// Resolve settles a flight in doubt, as it was seen at the version.
func (c *Client) Resolve(ctx context.Context, id flight.ID, version string, r ResolveRequest) (*Flight, error) {
	return c.decide(ctx, id, "/resolve", version, r.AppendJSON(nil))
}

// Cancel asks that the effect should not happen any more. What is running learns it by its next renewal.
func (c *Client) Cancel(ctx context.Context, id flight.ID, version string, r OperatorRequest) (*Flight, error) {
	return c.decide(ctx, id, "/cancel", version, r.AppendJSON(nil))
}

// Retry lets a flight that ended without a receipt run again.
func (c *Client) Retry(ctx context.Context, id flight.ID, version string, r OperatorRequest) (*Flight, error) {
	return c.decide(ctx, id, "/retry", version, r.AppendJSON(nil))
}

// Free lets the effect of a finished key run again, for whoever comes.
func (c *Client) Free(ctx context.Context, id flight.ID, version string, r OperatorRequest) (*Flight, error) {
	return c.decide(ctx, id, "/free", version, r.AppendJSON(nil))
}

func (c *Client) decide(ctx context.Context, id flight.ID, verb, version string, body []byte) (*Flight, error) {
	resp, err := c.ask(ctx, request{
		method: http.MethodPost, path: flightPath(id, verb), body: body, ifMatch: `"` + version + `"`, actor: true,
	})
	return flightOf(id, resp, err)
}

// Ready asks whether the server is ready, and what is not. It asks once.
func (c *Client) Ready(ctx context.Context) (*Ready, error) {
	resp, err := c.ask(ctx, request{method: http.MethodGet, path: "/readyz?verbose", tries: 1})
	if resp.status == http.StatusServiceUnavailable {
		err = nil
	}
	return decode[Ready](resp, err)
}

// Version asks which version the server has, and to which deployment it belongs.
func (c *Client) Version(ctx context.Context) (*Version, error) {
	resp, err := c.ask(ctx, request{method: http.MethodGet, path: "/version", has: `"version"`})
	v, err := decode[Version](resp, err)
	if err == nil {
		c.ledger.set(v.LedgerTime, resp.sent) // the header may have been lost on its way
	}
	return v, err
}

func flightPath(id flight.ID, rest string) string { return "/v1/flights/" + id.String() + rest }
