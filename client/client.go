package client

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/runner"
)

// Client runs effects once through flightd servers. Its methods may be called at once from many goroutines.
type Client struct {
	opts       options
	servers    []string
	best       atomic.Uint32 // index of the server that answered last
	links      []*link       // by server; nil where http is used
	http       *http.Client
	deployment string // the only one that it speaks to; "" before Connect is done
	ledger     ledgerClock

	runner   *runner.Runner
	sessions sessions
	spool    *spool
	drained  chan struct{} // closed when the first round through the spool is over
	rounds   chan struct{} // closed when there will be none any more

	idle sync.WaitGroup // background work that only has to stop
}

var _ effect.Doer = (*Client)(nil)

// Connect finds a server, address being one or several separated by commas, which are tried in turn. It reports in the
// background what earlier clients left in the spool. Errors: *flight.InvalidError, *Unavailable when no server answers
// within the patience or ctx.
func Connect(ctx context.Context, address string, opts ...Option) (*Client, error) {
	o, err := newOptions(opts)
	if err != nil {
		return nil, err
	}
	servers, err := parseAddresses(address)
	if err != nil {
		return nil, err
	}
	c := &Client{opts: o, servers: servers, http: &http.Client{Transport: newTransport(), CheckRedirect: noRedirects}}
	for _, server := range servers {
		c.links = append(c.links, newLink(server))
	}
	c.runner = runner.New(transport{c}, o.hungAfter)
	c.sessions.client = c
	version, err := c.Version(ctx)
	if err == nil {
		c.deployment = version.Deployment
		c.spool, err = openSpool(o.spool, o.logger)
	}
	if err != nil {
		c.runner.End()
		c.hangUp()
		return nil, err
	}
	c.startDrain()
	return c, nil
}

// newTransport is tuned for many requests at once to few servers.
func newTransport() *http.Transport {
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 3 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		MaxIdleConns:          1024,
		MaxIdleConnsPerHost:   512,
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   5 * time.Second,
		ExpectContinueTimeout: time.Second,
		DisableCompression:    true,
		ForceAttemptHTTP2:     true,
	}
}

func noRedirects(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Namespace is that of keys that name none.
func (c *Client) Namespace() string { return c.opts.namespace }

// Key joins a name and an id to a key in the client's namespace. Errors are *flight.InvalidError.
func (c *Client) Key(name, id string) (flight.Key, error) {
	return flight.NewKey(c.opts.namespace, name, id)
}

// Deployment is the id of the deployment that the client is connected to. It speaks to no other one while it lives: requests
// name it, and a server of another one rejects them with the code wrong_deployment before it does anything.
func (c *Client) Deployment() string { return c.deployment }

// Close waits for running effects to finish and to report, as long as ctx lives; then their contexts are cancelled with
// ErrClosed, and what they still have to report goes to the spool. What no disk took is brought once more. It gives up
// the session, but for one under which a handler has not returned even then: that ends by its time to live. Whoever waits
// for somebody else, and every new call, gets ErrClosed.
func (c *Client) Close(ctx context.Context) error {
	late := c.runner.Close(ctx)
	if late == nil && c.runner.Life.Err() != nil { // all have returned, but not in time
		late = context.Cause(ctx)
	}
	if ctx.Err() != nil { // a last word keeps what was opened, and not sent, from becoming a doubt
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), closePatience)
		defer cancel()
		ctx = grace
	}
	c.lastRound(ctx)
	c.sessions.close(ctx)
	c.runner.End()
	c.idle.Wait()
	c.hangUp()
	return late
}

// background runs f as work that Close waits for, unless Close has begun.
func (c *Client) background(f func()) {
	if c.runner.Work.Enter() {
		c.runner.Work.Go(f)
		c.runner.Work.Leave()
	}
}

// hangUp closes the connections that nobody uses; those in use are closed by who uses them.
func (c *Client) hangUp() {
	for _, l := range c.links {
		if l != nil {
			l.close()
		}
	}
	c.http.CloseIdleConnections()
}

// newNonce is 128 random bits.
func newNonce() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails: it ends the program first
	return base64.RawURLEncoding.EncodeToString(b[:])
}
