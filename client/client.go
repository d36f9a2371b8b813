package client

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"net/http"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/gate"
	"github.com/flightd/flightd/internal/runner"
)

// Client runs effects once through flightd servers. Its methods may be called at once from many goroutines.
type Client struct {
	requester
	reporter

	runner   *runner.Runner
	sessions sessions
	left     leftOpens

	loops gate.Gate // goroutines that renew sessions and send the spool; Close waits for them last
}

var _ effect.Doer = (*Client)(nil)

// requester sends requests to the servers of a deployment, and keeps what their answers say of them and of the ledger.
type requester struct {
	opts        options
	servers     []string
	picker      picker
	http        roundTripper
	deployment  string // of WithDeployment, else "" until Connect has read it; constant from then on
	ledgerClock ledgerClock
	ledgerIndex ledgerIndex
	gatherers   []gatherer // by server; nil: each request is sent by its own route
}

// roundTripper makes requests: an *http.Transport, or a handlerTransport.
type roundTripper interface {
	http.RoundTripper
	CloseIdleConnections()
}

// Connect returns a client of the server at address: one address, or several of one deployment, separated by commas. If one
// of them is the leader of a cluster, requests go there; after a failure they are tried at the others in turn. It asks for the server's version, and starts to send the reports that earlier clients left in the spool. The
// token and the certificates are those of the options, or else of the environment: see WithToken and WithCAFile. A token
// is sent over https:// alone, except to loopback: see WithPlainHTTP.
// Errors: *flight.InvalidError; *Unavailable when no server answers within WithRetryTimeout or ctx; *Error with the code
// wrong_deployment when they are not of WithDeployment.
func Connect(ctx context.Context, address string, opts ...Option) (*Client, error) {
	o, err := newOptions(opts)
	if err != nil {
		return nil, err
	}
	servers, err := parseAddresses(address)
	if err != nil {
		return nil, err
	}
	if err := o.checkPlainHTTP(servers); err != nil {
		return nil, err
	}
	tlsConfig, err := o.resolveTLS(servers)
	if err != nil {
		return nil, err
	}
	c := &Client{requester: requester{opts: o, deployment: o.deployment, servers: servers, http: newTransport(&o, tlsConfig)}}
	if o.handler != nil {
		c.http = handlerTransport{o.handler}
	} else if !o.noBatches {
		c.gatherers = make([]gatherer, len(servers))
		for i := range servers {
			c.gatherers[i].re, c.gatherers[i].server = &c.requester, servers[i]
		}
	}
	c.runner = runner.New(transport{c}, o.times.hungAfter)
	c.reporter = reporter{server: &c.requester, runner: c.runner}
	c.sessions.client, c.left.client = c, c
	version, err := c.Version(ctx)
	if err == nil {
		c.deployment = version.Deployment
		c.spool, err = openSpool(o.spool.dir, o.logger)
	}
	if err != nil {
		c.runner.CancelBase()
		c.http.CloseIdleConnections()
		return nil, err
	}
	c.startSpoolLoop(&c.loops)
	return c, nil
}

// Namespace returns the namespace of keys without one.
func (c *Client) Namespace() string { return c.opts.namespace }

// Key makes a key in the client's namespace. Errors are *flight.InvalidError.
func (c *Client) Key(name, id string) (flight.Key, error) {
	return flight.NewKey(c.opts.namespace, name, id)
}

// Deployment returns the id of the deployment that the client is connected to. A client never changes its deployment:
// each request names it, and a server of another deployment rejects the request unread, with the code wrong_deployment.
func (c *Client) Deployment() string { return c.deployment }

// Close waits until the running handlers have returned and their reports are recorded. When ctx ends first, Close
// cancels the handlers' contexts with ErrClosed, and their reports go to the spool. New calls, and calls that wait for
// another caller's attempt, return ErrClosed at once.
//
// Reports that could not be spooled are sent once more. Sessions are closed at the server, except one under which a
// handler has still not returned: that session ends by its time to live, so that nobody acts beside the handler.
func (c *Client) Close(ctx context.Context) error {
	late := c.runner.Close(ctx)
	if late == nil && c.runner.BaseContext.Err() != nil { // all handlers have returned, but only after ctx
		late = context.Cause(ctx)
	}
	if ctx.Err() != nil { // without an abandon, attempts that never started would become in doubt
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeSessionTimeout)
		defer cancel()
		ctx = grace
	}
	c.sendUnspooled(ctx)
	c.left.close(ctx)
	c.sessions.close(ctx)
	c.runner.CancelBase()
	c.loops.Close()
	for i := range c.gatherers {
		c.gatherers[i].running.Close()
	}
	c.http.CloseIdleConnections()
	return late
}

// SessionsInUse returns the sessions under which an effect may run, or whose reports are not stored yet: also those that have
// ended at the server.
func (c *Client) SessionsInUse() []string {
	c.sessions.mu.Lock()
	defer c.sessions.mu.Unlock()
	ids := []string{}
	for s := range c.sessions.all {
		if s.acts() {
			ids = append(ids, s.id)
		}
	}
	return ids
}

// SpooledReports returns how many reports are in the client's spool on disk.
func (c *Client) SpooledReports() int {
	return len(c.spool.files())
}

// goWork runs f on a goroutine that Close waits for. It does nothing once Close has begun.
func (c *Client) goWork(f func()) {
	if c.runner.Work.Enter() {
		c.runner.Work.Go(f)
		c.runner.Work.Leave()
	}
}

// newNonce returns 128 random bits.
func newNonce() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: it crashes the program instead
	return base64.RawURLEncoding.EncodeToString(b[:])
}
