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
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/clock"
	"github.com/flightd/flightd/internal/strictjson"
)

// Requests and answers of the HTTP API.
type (
	OpenRequest         = wire.OpenRequest
	AbandonRequest      = wire.AbandonRequest
	RenewRequest        = wire.RenewRequest
	Policy              = wire.Policy
	ReportRequest       = wire.ReportRequest
	SuspendRequest      = wire.SuspendRequest
	VerificationRequest = wire.VerificationRequest
	ResolveRequest      = wire.ResolveRequest
	OperatorRequest     = wire.OperatorRequest
	Body                = wire.Body
	Flight              = wire.Flight
	FlightPage          = wire.FlightPage
	Receipt             = wire.Receipt
	Event               = wire.Event
	EventPage           = wire.EventPage
	History             = wire.History
	Duplicates          = wire.DuplicateStats
	Ready               = wire.Ready
	Version             = wire.Version
)

// OpenAnswer is the answer to Open or Verify.
type OpenAnswer struct {
	wire.OpenAnswer
	SentAt         time.Time     // when the answered request was sent: trust counts from then
	sentAt         clock.Instant // the same, on every clock
	mayHaveArrived bool          // with an error: the open may still be carried out
}

// SessionAnswer is the answer to NewSession or Renew.
type SessionAnswer struct {
	wire.SessionAnswer
	SentAt time.Time     // when the answered request was sent: trust counts from then
	sentAt clock.Instant // the same, on every clock
}

// Open asks for permission to perform an effect. Action, id and namespace are those of the key. Without a Nonce, Open
// makes one, and a NotAfter. A lost answer is requested again under the same nonce, which opens nothing new. After an
// error of an Open with your own nonce, either repeat it or call Abandon with the same Nonce and NotAfter. Errors:
// *Error, which may wrap *InDoubt, *Conflict, *Busy, *Unapproved, *Expired or *OpenExpired; *Unavailable when no server
// answers. An answer with Decision replay may be of a flight that failed.
func (c *Client) Open(ctx context.Context, key flight.Key, r OpenRequest) (OpenAnswer, error) {
	return c.openWithin(ctx, key, r, time.Time{})
}

// openWithin is Open with an end of the caller's wait; the zero time means no end.
func (c *Client) openWithin(ctx context.Context, key flight.Key, r OpenRequest, until time.Time) (OpenAnswer, error) {
	r.Action, r.ID = key.Name(), key.BusinessID()
	if r.Nonce == "" {
		r.Nonce, r.NotAfter = newNonce(), c.ledgerClock.notAfter(c.ledgerClock.validity(wire.Wait(r.WaitMS)))
	}
	return c.open(ctx, key, request{path: "/v1/flights:open", line: "open", body: strictjson.Append(nil, &r), waitUntil: until}, r.WaitMS)
}

// Verify reports the finding of a look-up. It is answered like Open, and takes a new nonce.
func (c *Client) Verify(ctx context.Context, key flight.Key, r VerificationRequest) (OpenAnswer, error) {
	if r.Nonce == "" {
		r.Nonce, r.NotAfter = newNonce(), c.ledgerClock.notAfter(c.ledgerClock.validity(wire.Wait(r.WaitMS)))
	}
	return c.open(ctx, key, request{path: flightPath(key.FlightID(), "/verification"), body: strictjson.Append(nil, &r)}, r.WaitMS)
}

// open sends an open or a verification and reads its answer. A failed flight is an answer, too.
func (re *requester) open(ctx context.Context, key flight.Key, r request, waitMS *int64) (OpenAnswer, error) {
	r.method, r.key, r.timeout = http.MethodPost, key, wire.Wait(waitMS)+defaultTryTimeout
	resp, err := re.ask(ctx, r)
	var a *wire.OpenAnswer
	if p := problemOf(err); p != nil && p.Code == wire.FlightFailed && p.Flight != nil {
		a = &wire.OpenAnswer{Decision: wire.DecisionReplay, FlightID: p.Flight.ID, Flight: p.Flight}
	} else if a, err = decode[wire.OpenAnswer](resp, err); err != nil {
		unread := resp.own && resp.status < http.StatusMultipleChoices // it was carried out
		return OpenAnswer{mayHaveArrived: resp.mayHaveArrived || unread}, err
	}
	if a.Deployment != "" && a.Deployment != re.deployment {
		return OpenAnswer{mayHaveArrived: true}, &effect.Unavailable{Code: "unreachable", Cause: fmt.Errorf("the answer is from another deployment: %s", a.Deployment)}
	}
	return OpenAnswer{OpenAnswer: *a, SentAt: resp.sentAt.Time, sentAt: resp.sentAt, mayHaveArrived: resp.mayHaveArrived}, nil
}

// problemOf returns the problem document in err, or nil if there is none.
func problemOf(err error) *Problem {
	if err == nil { // the usual case: saves an allocation
		return nil
	}
	var e *Error
	if !errors.As(err, &e) {
		return nil
	}
	return &e.Problem
}

// Abandon declares that no effect was started under the nonce of an open, and that none will be. It ends the attempt
// that the nonce has opened, or prevents it from opening one. r.NotAfter is that of the open; action and id are those
// of the key.
func (c *Client) Abandon(ctx context.Context, key flight.Key, r AbandonRequest) error {
	r.Action, r.ID = key.Name(), wire.IDOf(key)
	_, err := c.ask(ctx, request{
		method: http.MethodPost, path: "/v1/flights:abandon", line: "abandon", body: strictjson.Append(nil, &r), key: key, timeout: abandonTryTimeout,
	})
	return err
}

// Report sends the outcome of an attempt until a server answers, ctx ends, or WithRetryTimeout is over. It stores
// nothing on disk: use Record for that. Errors: *Error, which may wrap *Fenced; *Unavailable.
func (c *Client) Report(ctx context.Context, key flight.Key, r ReportRequest) (*Flight, error) {
	r.Key = key.String()
	ask := c.newReportRequest(key, strictjson.Append(nil, &r))
	ask.retryTimeout = c.opts.times.retry
	return decode[Flight](c.ask(ctx, ask))
}

const reportTryTimeout = 15 * time.Second

// NewSession makes a session that the caller renews and closes itself. A ttl of 0 is the server's default.
func (c *Client) NewSession(ctx context.Context, ttl time.Duration, owner string) (SessionAnswer, error) {
	return c.newSession(ctx, ttl, owner, 0)
}

func (re *requester) newSession(ctx context.Context, ttl time.Duration, owner string, tries int) (SessionAnswer, error) {
	body, err := json.Marshal(wire.SessionRequest{TTLMS: ttl.Milliseconds(), Owner: owner, Nonce: newNonce()})
	if err != nil {
		return SessionAnswer{}, err
	}
	return sessionAnswer(re.ask(ctx, request{
		method: http.MethodPost, path: "/v1/sessions", body: body, maxTries: tries,
	}))
}

// Renew renews a session. The answer lists the attempts that are open under the session, unless r.OpenDigest matches
// them. When More is set, renew again with the last FlightID as After. The error wraps *LeaseLost when the session has
// ended.
func (c *Client) Renew(ctx context.Context, session string, r RenewRequest) (SessionAnswer, error) {
	return c.renew(ctx, session, r, 0, 0)
}

func (re *requester) renew(ctx context.Context, session string, r RenewRequest, timeout time.Duration, tries int) (SessionAnswer, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return SessionAnswer{}, err
	}
	return sessionAnswer(re.ask(ctx, request{
		method: http.MethodPost, path: "/v1/sessions/" + url.PathEscape(session) + "/renew", body: body,
		timeout: timeout, maxTries: tries,
	}))
}

// CloseSession ends a session. While attempts are open under it, the server rejects that with session_in_use.
func (c *Client) CloseSession(ctx context.Context, session string) error {
	_, err := c.ask(ctx, request{method: http.MethodPost, path: "/v1/sessions/" + url.PathEscape(session) + "/close", body: []byte("{}")})
	return err
}

func sessionAnswer(resp response, err error) (SessionAnswer, error) {
	a, err := decode[wire.SessionAnswer](resp, err)
	if err != nil {
		return SessionAnswer{}, err
	}
	return SessionAnswer{SessionAnswer: *a, SentAt: resp.sentAt.Time, sentAt: resp.sentAt}, nil
}

// Flight reads one flight. The error wraps *Missing when its key was never used.
func (re *requester) Flight(ctx context.Context, id flight.ID) (*Flight, error) {
	resp, err := re.ask(ctx, request{method: http.MethodGet, path: flightPath(id, "")})
	return decode[Flight](resp, err)
}

// noRoomPause is the pause before a server is asked again that had no room for a wait, and answered at once.
const noRoomPause = 2 * time.Second

// pauseUnlessWaited pauses if the server has not waited before it answered that nothing has changed. It returns false if ctx has ended.
func pauseUnlessWaited(ctx context.Context, resp response, wait time.Duration) bool {
	return resp.header.Get(wire.HeaderPreferenceApplied) != "" || clock.Sleep(ctx, min(noRoomPause, wait))
}

// WaitFlight returns a flight as soon as its version differs from seen, or unchanged after wait.
func (re *requester) WaitFlight(ctx context.Context, id flight.ID, seen string, wait time.Duration) (*Flight, error) {
	return re.waitFlight(ctx, id, seen, wait, 0)
}

func (re *requester) waitFlight(ctx context.Context, id flight.ID, seen string, wait, retryTimeout time.Duration) (*Flight, error) {
	seconds := min(int(wait/time.Second), wire.MaxWaitMS/1000)
	resp, err := re.ask(ctx, request{
		method: http.MethodGet, path: flightPath(id, ""), ifNoneMatch: `"` + seen + `"`,
		prefer: "wait=" + strconv.Itoa(seconds), timeout: wait + defaultTryTimeout, retryTimeout: retryTimeout,
	})
	if err == nil && resp.status == http.StatusNotModified {
		if !pauseUnlessWaited(ctx, resp, wait) {
			return nil, context.Cause(ctx)
		}
		resp, err = re.ask(ctx, request{method: http.MethodGet, path: flightPath(id, ""), retryTimeout: retryTimeout})
	}
	return decode[Flight](resp, err)
}

// untilEndOfContext is a retry timeout that is longer than any context lasts.
const untilEndOfContext = 100 * 365 * 24 * time.Hour

// WaitResult is Wait for the whole result. A flight that awaits approval has not ended; if ctx ends meanwhile, the error also wraps
// *Unapproved. The wait outlasts outages of the servers until ctx ends.
func (c *Client) WaitResult(ctx context.Context, key flight.Key) (effect.Result, error) {
	for seen, unapproved := "", false; ; {
		f, err := c.waitFlight(ctx, key.FlightID(), seen, wire.MaxWaitMS*time.Millisecond/2, untilEndOfContext)
		switch missing := (*effect.Missing)(nil); {
		case ctx.Err() != nil && unapproved:
			return effect.Result{}, fmt.Errorf("%w: %w", &effect.Unapproved{Key: key}, context.Cause(ctx))
		case ctx.Err() != nil:
			return effect.Result{}, context.Cause(ctx)
		case errors.As(err, &missing):
			return effect.Result{}, fmt.Errorf("%s was never submitted: %w", key, err)
		case err != nil:
			return effect.Result{}, err
		case isDecided(f) && f.State != flight.StateAwaitingApproval.String():
			return resultOf(f)
		}
		seen, unapproved = f.Version, f.State == flight.StateAwaitingApproval.String()
	}
}

// Query selects the flights of List.
type Query struct {
	States    []string // any of these; empty is all
	Action    string   // name in the key
	KeyPrefix string   // prefix of the full key
	Contains  string   // part of the full key
	// ExternalID is an external id of the receipt or of evidence. With ExternalID or Contains, a page may be short or empty although more
	// pages follow.
	ExternalID string
	Since      time.Duration // maximum age; 0 is all
	Limit      int           // flights per page; 0 is the server's default
	Cursor     string        // FlightPage.Next of the page before
	// AllNamespaces lists the flights of all namespaces, not only of the client's.
	AllNamespaces bool
}

// List reads one page of flights, without receipt bodies.
func (c *Client) List(ctx context.Context, q Query) (*FlightPage, error) {
	path := withQuery("/v1/flights", "state", strings.Join(q.States, ","), "action", q.Action, "key_prefix", q.KeyPrefix, "contains", q.Contains, "external_id", q.ExternalID,
		"since", q.Since.String(), "limit", strconv.Itoa(q.Limit), "cursor", q.Cursor)
	return decode[FlightPage](c.ask(ctx, request{method: http.MethodGet, path: path, allNamespaces: q.AllNamespaces}))
}

// withQuery appends the parameters, given as name and value in turn, whose value is not zero.
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

// ReceiptBody is the body of a receipt, byte for byte as it was reported.
type ReceiptBody struct {
	Outcome     string
	ExternalID  string
	ContentType string
	Data        []byte // the stored beginning
	Size        int    // of the whole body
	Digest      string // over the whole body
}

// Receipt reads the exact bytes of a receipt's body.
func (c *Client) Receipt(ctx context.Context, id flight.ID) (*ReceiptBody, error) {
	resp, err := c.ask(ctx, request{method: http.MethodGet, path: flightPath(id, "/receipt")})
	if err != nil {
		return nil, err
	}
	size, _ := strconv.Atoi(resp.header.Get(wire.HeaderReceiptSize))
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

// Input reads the exact bytes of a flight's input. The error wraps *Missing when the flight has no input or is unknown.
// Its code is expired when the bytes were erased or the retention is over.
func (c *Client) Input(ctx context.Context, id flight.ID) (*InputBody, error) {
	resp, err := c.ask(ctx, request{method: http.MethodGet, path: flightPath(id, "/input")}) // the headers are those of a receipt
	if err != nil {
		return nil, err
	}
	return &InputBody{ContentType: resp.header.Get("Content-Type"), Data: resp.body, Digest: resp.header.Get(wire.HeaderReceiptDigest)}, nil
}

// History reads all pages of a flight's events, in order, and its duplicate statistics.
func (c *Client) History(ctx context.Context, id flight.ID) (*History, error) {
	var all *History
	for after := ""; ; {
		page, err := decode[History](c.ask(ctx, request{method: http.MethodGet, path: withQuery(flightPath(id, "/events"), "after", after)}))
		if err != nil {
			return nil, err
		}
		if all != nil {
			page.Events = append(all.Events, page.Events...)
		}
		if all, after = page, page.Next; after == "" {
			return all, nil
		}
	}
}

// Resolve resolves a flight in doubt, if it is still at that version.
func (c *Client) Resolve(ctx context.Context, id flight.ID, version string, r ResolveRequest) (*Flight, error) {
	return c.operatorRequest(ctx, id, "/resolve", version, &r)
}

// Cancel requests that the effect no longer happens. A running attempt is notified by its next renewal.
func (c *Client) Cancel(ctx context.Context, id flight.ID, version string, r OperatorRequest) (*Flight, error) {
	return c.operatorRequest(ctx, id, "/cancel", version, &r)
}

// Retry makes a flight that ended without a receipt ready to run again.
func (c *Client) Retry(ctx context.Context, id flight.ID, version string, r OperatorRequest) (*Flight, error) {
	return c.operatorRequest(ctx, id, "/retry", version, &r)
}

// Free makes a finished key unused: the next caller runs its effect again.
func (c *Client) Free(ctx context.Context, id flight.ID, version string, r OperatorRequest) (*Flight, error) {
	return c.operatorRequest(ctx, id, "/free", version, &r)
}

func (re *requester) operatorRequest(ctx context.Context, id flight.ID, verb, version string, body any) (*Flight, error) {
	resp, err := re.ask(ctx, request{
		method: http.MethodPost, path: flightPath(id, verb), body: strictjson.Append(nil, body), ifMatch: `"` + version + `"`, actor: true,
	})
	return decode[Flight](resp, err)
}

// Ready reads the server's readiness checks, with a single try.
func (c *Client) Ready(ctx context.Context) (*Ready, error) {
	resp, err := c.ask(ctx, request{method: http.MethodGet, path: "/readyz?verbose", maxTries: 1})
	if resp.own && resp.status == http.StatusServiceUnavailable {
		err = nil
	}
	return decode[Ready](resp, err)
}

// versionPath is the path of Version.
const versionPath = "/version"

// Version reads the server's version and its deployment.
func (c *Client) Version(ctx context.Context) (*Version, error) {
	resp, err := c.ask(ctx, request{method: http.MethodGet, path: versionPath})
	v, err := decode[Version](resp, err)
	if err == nil {
		c.ledgerClock.set(v.LedgerTime, false) // a proxy may have removed the header
	}
	return v, err
}

func flightPath(id flight.ID, rest string) string { return "/v1/flights/" + id.String() + rest }
