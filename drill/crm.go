package drill

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/httpapi/wire"
)

// Ticket is the effect that the CRM creates.
type Ticket struct {
	ID         string `json:"id"`
	ExternalID string `json:"external_id"` // the caller's id; the CRM does not deduplicate by it
	Subject    string `json:"subject"`
}

// Setting configures how the CRM treats the requests of one external id.
type Setting struct {
	Honour bool  `json:"honour"` // one Idempotency-Key, one ticket
	LookUp bool  `json:"look_up"`
	Fault  Fault `json:"fault,omitempty"` // injected into the first request
}

// Count lists the tickets and requests that the CRM has recorded for one external id.
type Count struct {
	Tickets  []Ticket  `json:"tickets"`
	Requests []Request `json:"requests"`
}

// slowAnswer is the delay of a slow answer, far beyond the callers' time-out.
const slowAnswer = 4 * attemptTimeout

// CRM is a small provider of side effects. It keeps its records in memory, because the drill never kills it.
//
//	POST /tickets                       creates a ticket
//	GET  /tickets?external_id=…         finds tickets, if the setting allows look-ups
//	GET  /count?external_id=…           all tickets and requests, for the checks and for resolving a doubt
//	PUT  /settings/{external_id}        stores the Setting of an external id
type CRM struct {
	mu       sync.Mutex // guards all fields below, and the accounts
	created  int
	accounts map[string]*account
}

// account is the CRM's record of one external id.
type account struct {
	setting  Setting
	tickets  []Ticket
	byKey    map[string]Ticket
	requests []Request
}

// NewCRM returns a CRM without tickets.
func NewCRM() *CRM { return &CRM{accounts: make(map[string]*account)} }

// Handler returns the CRM's HTTP handler.
func (c *CRM) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /tickets", c.create)
	mux.HandleFunc("GET /tickets", c.find)
	mux.HandleFunc("GET /count", c.count)
	mux.HandleFunc("PUT /settings/{external_id}", c.set)
	return mux
}

func (c *CRM) accountLocked(externalID string) *account {
	p := c.accounts[externalID]
	if p == nil {
		p = &account{byKey: make(map[string]Ticket)}
		c.accounts[externalID] = p
	}
	return p
}

// create creates a ticket and answers as the injected fault demands.
func (c *CRM) create(w http.ResponseWriter, r *http.Request) {
	var wanted Ticket
	if err := json.NewDecoder(r.Body).Decode(&wanted); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	request := Request{Key: r.Header.Get(effect.HeaderIdempotencyKey), Token: r.Header.Get(effect.HeaderFencingToken)}
	ticket, fault := c.recordTicket(wanted, request)
	switch fault {
	case FaultDrop:
		closeConnection(w)
	case FaultSlow:
		select {
		case <-time.After(slowAnswer):
			writeJSON(w, http.StatusCreated, ticket)
		case <-r.Context().Done():
		}
	case FaultErrorAndTicket, FaultErrorNoTicket:
		http.Error(w, "try later", http.StatusServiceUnavailable)
	default:
		writeJSON(w, http.StatusCreated, ticket)
	}
}

// recordTicket performs the effect. A ticket that it records has been created, whatever the CRM answers afterwards.
func (c *CRM) recordTicket(wanted Ticket, r Request) (Ticket, Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.accountLocked(wanted.ExternalID)
	p.requests = append(p.requests, r)
	fault := p.setting.Fault
	p.setting.Fault = FaultNone
	if fault == FaultErrorNoTicket {
		return Ticket{}, fault
	}
	if known, ok := p.byKey[r.Key]; ok && p.setting.Honour {
		return known, fault
	}
	c.created++
	wanted.ID = fmt.Sprintf("T-%d", c.created)
	p.tickets = append(p.tickets, wanted)
	if r.Key != "" {
		p.byKey[r.Key] = wanted
	}
	return wanted, fault
}

func (c *CRM) find(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.accountLocked(r.URL.Query().Get("external_id"))
	if !p.setting.LookUp {
		http.NotFound(w, r)
		return
	}
	writeJSON(w, http.StatusOK, append([]Ticket{}, p.tickets...))
}

func (c *CRM) count(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.accountLocked(r.URL.Query().Get("external_id"))
	writeJSON(w, http.StatusOK, Count{Tickets: p.tickets, Requests: p.requests})
}

func (c *CRM) set(w http.ResponseWriter, r *http.Request) {
	var s Setting
	if err := json.NewDecoder(r.Body).Decode(&s); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.accountLocked(r.PathValue("external_id")).setting = s
	w.WriteHeader(http.StatusNoContent)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", wire.TypeJSON)
	w.WriteHeader(status)
	_, _ = w.Write(body) // the caller may have been killed meanwhile
}

// closeConnection closes the connection without an answer.
func closeConnection(w http.ResponseWriter) {
	if h, ok := w.(http.Hijacker); ok {
		if conn, _, err := h.Hijack(); err == nil {
			_ = conn.Close()
		}
	}
}

// ServeCRM runs the CRM process. It writes its address to out and serves until in is closed, which also happens when
// the drill dies.
func ServeCRM(ctx context.Context, in io.Reader, out io.Writer) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: NewCRM().Handler(), ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }() // each path below closes the server and receives from served
	if _, err := fmt.Fprintln(out, "http://"+l.Addr().String()); err != nil {
		return errors.Join(err, server.Close(), <-served)
	}
	inputClosed := make(chan struct{})
	go func() { // not waited for if ctx ends first: the read then lasts as long as the process
		defer close(inputClosed)
		_, _ = io.Copy(io.Discard, in)
	}()
	select {
	case err := <-served:
		return err
	case <-inputClosed:
	case <-ctx.Done():
	}
	err = server.Close()
	if e := <-served; !errors.Is(e, http.ErrServerClosed) {
		err = errors.Join(err, e)
	}
	return err
}
