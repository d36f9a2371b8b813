//go:build linux

package cluster

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"
)

// balancerPort is the port of the balancer, on its host.
const balancerPort = 80

// startBalancer starts a balancer of the kind that companies have before their servers: it gives every request to the next node, whatever
// the node's state, and answers 502 when the node does not take it. It returns its URL.
func (b *bed) startBalancer() string {
	l, err := b.host("balancer").Listen(balancerPort)
	require.NoError(b.t, err)
	var next atomic.Uint64
	var nodes []*url.URL
	for _, name := range b.names {
		node, err := url.Parse(b.url(name))
		require.NoError(b.t, err)
		nodes = append(nodes, node)
	}
	quiet := log.New(io.Discard, "", 0)
	server := &http.Server{ErrorLog: quiet, Handler: &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(nodes[next.Add(1)%uint64(len(nodes))]) },
		Transport:     b.transport("balancer"),
		FlushInterval: -1,
		ErrorLog:      quiet,
	}}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) }) // ends with Close
	b.t.Cleanup(func() {
		_ = server.Close()
		serving.Wait()
	})
	return "http://" + l.Addr().String()
}

// transport returns a transport whose connections begin at a host.
func (b *bed) transport(host string) *http.Transport {
	return &http.Transport{MaxIdleConnsPerHost: 64, DialContext: func(ctx context.Context, network, address string) (c net.Conn, err error) {
		err = b.host(host).Do(func() error {
			c, err = (&net.Dialer{Timeout: 2 * time.Second}).DialContext(ctx, network, address)
			return err
		})
		return c, err
	}}
}
