package client

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
)

// Client runs effects once through flightd servers. Its methods may be called at once from many goroutines.
type Client struct {
	opts       options
	servers    []string
	best       atomic.Uint32 // index of the server that answered last
	links      []*link       // by server; nil where http is used
	http       *http.Client
	deployment atomic.Value // string: the deployment that answered last
	ledger     ledgerClock

	trips    trips
	sessions sessions
	spool    *spool
	drained  chan struct{} // closed when the first round through the spool is over
	rounds   chan struct{} // closed when there will be none any more

	life   context.Context // of handlers and of work in the background; ends when Close loses its patience
	kill   context.CancelCauseFunc
	ending context.Context // ends when Close begins: background work that may be left for later stops
	end    context.CancelFunc
	work   sync.WaitGroup // effects on their way and what else must be finished
	idle   sync.WaitGroup // background work that only has to stop
	gate   gate
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
	c.life, c.kill = context.WithCancelCause(context.Background())
	c.ending, c.end = context.WithCancel(c.life)
	c.sessions.client = c
	version, err := c.Version(ctx)
	if err == nil {
		c.deployment.Store(version.Deployment)
		c.spool, err = openSpool(o.spool, o.logger)
	}
	if err != nil {
		c.end()
		c.kill(effect.ErrClosed)
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

// Deployment is the id of the deployment that the client is connected to.
func (c *Client) Deployment() string {
	id, _ := c.deployment.Load().(string) // none before Connect is done
	return id
}

// at takes note of the deployment that an attempt is of: another one may have taken the place of the one that answered
// first, and only its clients deliver the report then.
func (c *Client) at(deployment string) {
	if deployment != "" && deployment != c.Deployment() {
		c.deployment.Store(deployment)
	}
}

// elsewhere reports whether a report was refused by another deployment than its own, or cannot be known to have been: then
// it waits.
func (c *Client) elsewhere(ctx context.Context, deployment string) bool {
	version, err := c.version(ctx, 1)
	if err != nil {
		return true
	}
	c.deployment.Store(version.Deployment)
	return version.Deployment != deployment
}

// Close waits for running effects to finish and to report, as long as ctx lives; then their contexts are cancelled with
// ErrClosed, and what they still have to report goes to the spool. What no disk took is brought once more. It gives up
// the session, but for one under which a handler has not returned even then: that ends by its time to live. Whoever waits
// for somebody else, and every new call, gets ErrClosed.
func (c *Client) Close(ctx context.Context) error {
	c.gate.shut()
	c.end()
	var late error
	if !waitFor(ctx, &c.work) {
		late = context.Cause(ctx)
		c.kill(effect.ErrClosed)
		patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.opts.hungAfter)
		defer cancel()
		if !waitFor(patience, &c.work) {
			late = errors.Join(late, errors.New("client: a handler did not return after its context had ended"))
		}
	}
	if ctx.Err() != nil { // a last word keeps what was opened, and not sent, from becoming a doubt
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), closePatience)
		defer cancel()
		ctx = grace
	}
	c.lastRound(ctx)
	c.sessions.close(ctx)
	c.kill(effect.ErrClosed)
	c.idle.Wait()
	c.hangUp()
	return late
}

// background runs f as work that Close waits for, unless Close has begun.
func (c *Client) background(f func()) {
	if c.gate.enter(&c.work) {
		go func() {
			defer c.work.Done()
			f()
		}()
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

// waitFor waits for wg as long as ctx lives and answers whether it is done.
func waitFor(ctx context.Context, wg *sync.WaitGroup) bool {
	home := make(chan struct{})
	go func() { wg.Wait(); close(home) }() // it ends with the last of wg, whom somebody else waits for
	select {
	case <-home:
		return true
	case <-ctx.Done():
	}
	select {
	case <-home:
		return true
	default:
		return false
	}
}

// gate lets work in until it is shut. It exists because a WaitGroup must not grow from zero while it is waited for.
type gate struct {
	mu   sync.RWMutex
	down bool
}

func (g *gate) enter(wg *sync.WaitGroup) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if !g.down {
		wg.Add(1)
	}
	return !g.down
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.down = true
}

// newNonce is 128 random bits.
func newNonce() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails: it ends the program first
	return base64.RawURLEncoding.EncodeToString(b[:])
}
