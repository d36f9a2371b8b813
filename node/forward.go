package node

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"sync/atomic"
	"time"

	"github.com/flightd/flightd/clusterstore/peer"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/auth"
	"github.com/flightd/flightd/lease"
	"github.com/flightd/flightd/remote"
)

// Headers between nodes.
const (
	headerCaller    = "Flightd-Caller"     // address of the caller, as the node that took the request saw it
	headerNotLeader = "Flightd-Not-Leader" // the node that was asked does not act; it has done nothing
	headerTokens    = "Flightd-Tokens"     // whether the node that took the request asks callers for tokens
	headerProgram   = "Flightd-Program"    // the request is of the program that embeds the node that took it
)

const (
	// leaderWait is how long a request waits for a leader: with the time to reach it, no more than five seconds.
	leaderWait = 4 * time.Second
	// renewalWait is how long a renewal waits for one, before this node renews the session by itself: trust lasts for seconds.
	renewalWait = time.Second
	// keptBody is the largest body that a node keeps in memory to send it again, to a leader that has done nothing with it
	// the first time.
	keptBody = 64 << 10
)

// forwarder serves callers at a node of a cluster: while this node acts, by itself; else it passes requests on to the leader.
//
// A request is sent to a leader once. It is sent again only if nothing of it has left, the other node says that it did
// nothing, or it is a GET. What broke in between is answered 503 leader_lost, which is final for nobody.
type forwarder struct {
	n     *node
	local *httpapi.API // serves the routes that describe this node, and renewals
	reads http.Handler // answers from this node's own ledger
}

func newForwarder(n *node) *forwarder {
	f := &forwarder{n: n}
	f.local, f.reads = f.localAPI(), f.readAPI()
	return f
}

// forCallers returns the handler for callers who connect.
func (f *forwarder) forCallers() http.Handler {
	if f.n.cfg.NoCredentials {
		return httpapi.LoopbackOnly(f)
	}
	return f
}

// ServeHTTP implements http.Handler.
func (f *forwarder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	place := f.local.Place(r)
	if place == httpapi.ThisNode {
		f.local.ServeHTTP(w, r)
		return
	}
	w.Header().Set(wire.HeaderNode, f.n.cluster.name())
	if a := f.n.act.Load(); a != nil {
		a.serveInTerm(w, r)
		return
	}
	body, whole, err := keepBody(r)
	if err != nil {
		httpapi.Problem(wire.RequestIncomplete, "the body did not arrive completely: "+err.Error()).ServeHTTP(w, r)
		return
	}
	if whole && (place == httpapi.Final || place == httpapi.FinalProposal) && f.answerHere(w, r, body) {
		return
	}
	if whole && place == httpapi.Renewal {
		ctx, cancel := context.WithTimeout(r.Context(), renewalWait)
		defer cancel()
		if f.passOn(ctx, w, r.WithContext(ctx), body, whole) != nil {
			r.Body = io.NopCloser(bytes.NewReader(body))
			f.local.ServeHTTP(w, r)
		}
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), leaderWait)
	defer cancel()
	if problem := f.passOn(ctx, w, r, body, whole); problem != nil {
		problem.ServeHTTP(w, r)
	}
}

// passOn has the request answered by the leader, this node or another one, and waits for a leader until ctx ends. It returns the
// answer to give if there is none.
func (f *forwarder) passOn(ctx context.Context, w http.ResponseWriter, r *http.Request, body []byte, whole bool) http.Handler {
	for {
		if a := f.n.act.Load(); a != nil {
			a.serveInTerm(w, r)
			return nil
		}
		if leader := f.n.store.Leader(); leader != "" && leader != f.n.cluster.name() {
			err := f.forward(w, r, leader)
			if err == nil {
				return nil
			}
			if again := errors.Is(err, errNotDone) || r.Method == http.MethodGet || r.Method == http.MethodHead; !again || !whole || r.Context().Err() != nil {
				return httpapi.Problem(wire.LeaderLost, "the node that leads the ledger did not answer; repeat the request with the same nonce")
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		f.n.cluster.waitChange(ctx, 50*time.Millisecond)
		if ctx.Err() != nil {
			return httpapi.Problem(wire.NoLeader, "no node leads the ledger: it needs a majority of the nodes")
		}
	}
}

// keepBody reads a small body into memory. whole is false for a larger one, which can be sent once.
func keepBody(r *http.Request) (body []byte, whole bool, err error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, true, nil
	}
	var arrived bytes.Buffer
	arrived.Grow(int(min(max(r.ContentLength, 0), keptBody)) + bytes.MinRead)
	if _, err := arrived.ReadFrom(io.LimitReader(r.Body, keptBody+1)); err != nil {
		return nil, false, err
	}
	body = arrived.Bytes()
	rest := r.Body
	if whole = len(body) <= keptBody; whole {
		r.Body = io.NopCloser(bytes.NewReader(body))
		return body, true, nil
	}
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), rest), rest}
	return nil, false, nil
}

// errNotDone: the leader did nothing with the request.
var errNotDone = errors.New("the request was not acted on")

// forward passes a request on to the leader and copies its answer. After an error nothing was answered; errNotDone says
// that the leader did nothing with the request, because it does not lead, or nothing of the request has left.
func (f *forwarder) forward(w http.ResponseWriter, r *http.Request, leader string) (failed error) {
	var left atomic.Bool // a part of the request has left
	proxy := httputil.ReverseProxy{
		Transport: f.n.cluster.port.Client(leader), FlushInterval: -1, ErrorLog: slog.NewLogLogger(f.n.cfg.Logger.Handler(), slog.LevelDebug),
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host = "https", leader
			p.Out.URL.RawQuery = p.In.URL.RawQuery // as it was written: the leader judges it
			p.Out.Header[headerCaller], p.Out.Header[headerTokens] = []string{r.RemoteAddr}, []string{f.n.cfg.asksForTokens()}
			p.Out.Header.Del(headerProgram) // a caller's means nothing
			if httpapi.NodeOf(r.Context()) != "" {
				p.Out.Header[headerProgram] = []string{"1"}
			}
			trace := httptrace.ClientTrace{WroteHeaders: func() { left.Store(true) }}
			p.Out = p.Out.WithContext(httptrace.WithClientTrace(p.Out.Context(), &trace))
		},
		ModifyResponse: func(answer *http.Response) error {
			if answer.Header.Get(headerNotLeader) != "" {
				return errNotDone
			}
			answer.Header.Del(wire.HeaderNode) // this node took the request
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) {
			if failed = err; !left.Load() {
				failed = errors.Join(errNotDone, err)
			}
		},
	}
	proxy.ServeHTTP(w, r)
	return failed
}

// asksForTokens says whether this node asks callers for tokens, as the value of headerTokens.
func (c *Config) asksForTokens() string {
	if c.NoCredentials {
		return "no"
	}
	return "yes"
}

// serveForwarded serves a request that another node has passed on.
func (p peerAPI) serveForwarded(w http.ResponseWriter, r *http.Request) {
	a := p.act.Load()
	if a == nil {
		w.Header().Set(headerNotLeader, "1")
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	if taken := r.Header.Get(headerTokens); taken != p.cfg.asksForTokens() {
		p.cfg.Logger.Error("a node of the cluster asks callers for tokens, and another one does not: its requests are rejected", "this_node_asks", p.cfg.asksForTokens(), "other_node_asks", taken)
		httpapi.Problem(wire.NoLeader, "the nodes of this cluster disagree whether callers need a token").ServeHTTP(w, r)
		return
	}
	r.RemoteAddr = r.Header.Get(headerCaller)
	r.Header.Del(headerCaller)
	r.Header.Del(headerTokens)
	if id, found := peer.From(r.Context()); found && r.Header[headerProgram] != nil {
		r = r.WithContext(httpapi.AsNode(r.Context(), id.Node))
	}
	a.serveInTerm(w, r)
}

// localAPI serves what this node answers without the leader: the routes that describe it, and renewals.
func (f *forwarder) localAPI() *httpapi.API {
	a := &actor{node: f.n}
	a.remote = prolonger{leases: f.n.prolonging}
	if !f.n.cfg.NoCredentials {
		a.tokens = auth.NewDirectory(f.n.store, f.n.cfg.Logger)
	}
	cfg := a.apiConfig()
	cfg.Cluster.LedgerBehind = nil // this node may lag
	cfg.Cluster.ReplaceAnswer = func(_ context.Context, status int, _ bool) wire.Code {
		if status >= http.StatusBadRequest && status < http.StatusInternalServerError {
			return wire.NoLeader // its view of sessions and tokens may be old, so it rejects no renewal
		}
		return ""
	}
	return httpapi.New(cfg)
}

// prolonger serves renewals while no node leads the ledger. No other method is called.
type prolonger struct {
	httpapi.Remote
	leases lease.Service
}

// Renew implements httpapi.Sessions.
func (p prolonger) Renew(ctx context.Context, id flight.SessionID, r remote.RenewRequest) (remote.SessionAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, leaderWait)
	defer cancel()
	return remote.Prolong(ctx, p.leases, id, r)
}
