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
	"github.com/flightd/flightd/internal/wire"
)

// Ticket is what the CRM makes.
type Ticket struct {
	ID         string `json:"id"`
	ExternalID string `json:"external_id"` // of whoever wanted it; the CRM does not look at it
	Subject    string `json:"subject"`
}

// Setting is how the CRM treats the requests of one external id.
type Setting struct {
	Honour bool  `json:"honour"` // one Idempotency-Key, one ticket
	LookUp bool  `json:"look_up"`
	Fault  Fault `json:"fault,omitempty"` // what becomes of the first request
}

// Count is what the CRM's books say about one external id: what really happened.
type Count struct {
	Tickets  []Ticket  `json:"tickets"`
	Requests []Request `json:"requests"`
}

// slowAnswer is how long a slow answer takes; the callers' time-out is far below.
const slowAnswer = 4 * attemptTimeout

// CRM is a small provider of side effects. It keeps its books in memory: it is the one process that nobody kills.
//
//	POST /tickets                       makes a ticket
//	GET  /tickets?external_id=…         finds tickets, where it can be asked
//	GET  /count?external_id=…           the books, for the drill and for the person who settles doubts
//	PUT  /settings/{external_id}        how to treat it, and what to do wrong
type CRM struct {
	mu    sync.Mutex
	made  int
	pages map[string]*page
}

// page is what the books say about one external id.
type page struct {
	setting Setting
	tickets []Ticket
	byKey   map[string]Ticket
	seen    []Request
}

// NewCRM makes a CRM with empty books.
func NewCRM() *CRM { return &CRM{pages: make(map[string]*page)} }

// Handler serves it.
func (c *CRM) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /tickets", c.create)
	mux.HandleFunc("GET /tickets", c.find)
	mux.HandleFunc("GET /count", c.count)
	mux.HandleFunc("PUT /settings/{external_id}", c.set)
	return mux
}

func (c *CRM) pageLocked(externalID string) *page {
	p := c.pages[externalID]
	if p == nil {
		p = &page{byKey: make(map[string]Ticket)}
		c.pages[externalID] = p
	}
	return p
}

// create makes a ticket and then, if it was told to, does not say so.
func (c *CRM) create(w http.ResponseWriter, r *http.Request) {
	var wanted Ticket
	if err := json.NewDecoder(r.Body).Decode(&wanted); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	request := Request{Key: r.Header.Get(effect.HeaderIdempotencyKey), Token: r.Header.Get(effect.HeaderFencingToken)}
	ticket, fault := c.carryOut(wanted, request)
	switch fault {
	case Drop:
		hangUp(w)
	case Slow:
		select {
		case <-time.After(slowAnswer):
			answer(w, http.StatusCreated, ticket)
		case <-r.Context().Done():
		}
	case ErrorAndTicket, ErrorNoTicket:
		http.Error(w, "try later", http.StatusServiceUnavailable)
	default:
		answer(w, http.StatusCreated, ticket)
	}
}

// carryOut is the effect: what it writes into the books has happened, whatever is answered.
func (c *CRM) carryOut(wanted Ticket, r Request) (Ticket, Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.pageLocked(wanted.ExternalID)
	p.seen = append(p.seen, r)
	fault := p.setting.Fault
	p.setting.Fault = NoFault
	if fault == ErrorNoTicket {
		return Ticket{}, fault
	}
	if known, ok := p.byKey[r.Key]; ok && p.setting.Honour {
		return known, fault
	}
	c.made++
	wanted.ID = fmt.Sprintf("T-%d", c.made)
	p.tickets = append(p.tickets, wanted)
	if r.Key != "" {
		p.byKey[r.Key] = wanted
	}
	return wanted, fault
}

func (c *CRM) find(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.pageLocked(r.URL.Query().Get("external_id"))
	if !p.setting.LookUp {
		http.NotFound(w, r)
		return
	}
	answer(w, http.StatusOK, append([]Ticket{}, p.tickets...))
}

func (c *CRM) count(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.pageLocked(r.URL.Query().Get("external_id"))
	answer(w, http.StatusOK, Count{Tickets: p.tickets, Requests: p.seen})
}

func (c *CRM) set(w http.ResponseWriter, r *http.Request) {
	var s Setting
	if err := json.NewDecoder(r.Body).Decode(&s); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pageLocked(r.PathValue("external_id")).setting = s
	w.WriteHeader(http.StatusNoContent)
}

func answer(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", wire.TypeJSON)
	w.WriteHeader(status)
	_, _ = w.Write(body) // whoever asked may be dead by now: that is what a drill is for
}

// hangUp closes the connection without an answer.
func hangUp(w http.ResponseWriter) {
	if h, ok := w.(http.Hijacker); ok {
		if conn, _, err := h.Hijack(); err == nil {
			_ = conn.Close()
		}
	}
}

// ServeCRM is the CRM's process: it writes its address to out and serves until in ends, which it does when the drill
// is gone.
func ServeCRM(ctx context.Context, in io.Reader, out io.Writer) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: NewCRM().Handler(), ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	if _, err := fmt.Fprintln(out, "http://"+l.Addr().String()); err != nil {
		return errors.Join(err, server.Close(), <-served)
	}
	gone := make(chan struct{})
	go func() { // it ends with the process where ctx is the end of the CRM
		defer close(gone)
		_, _ = io.Copy(io.Discard, in)
	}()
	select {
	case err := <-served:
		return err
	case <-gone:
	case <-ctx.Done():
	}
	err = server.Close()
	if e := <-served; !errors.Is(e, http.ErrServerClosed) {
		err = errors.Join(err, e)
	}
	return err
}
