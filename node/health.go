package node

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/wire"
)

// alive returns nil if the API's handler answers and the ledger applied a proposal. It does not use the network: at the
// limit of connections a healthy node may accept none for a while.
func (n *node) alive(ctx context.Context) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "/livez", http.NoBody)
	if err != nil {
		return err
	}
	r.Host = "localhost"
	answer := &statusWriter{}
	n.server.ServeHTTP(answer, r)
	if answer.status != http.StatusOK {
		return fmt.Errorf("/livez answers %d", answer.status)
	}
	if _, err = n.store.Propose(ctx, &flight.Tick{}); err != nil {
		return fmt.Errorf("the ledger applies no proposal: %w", err)
	}
	return nil
}

// statusWriter is an http.ResponseWriter that keeps the status only.
type statusWriter struct {
	header http.Header
	status int
}

// Header implements http.ResponseWriter.
func (w *statusWriter) Header() http.Header {
	if w.header == nil {
		w.header = make(http.Header)
	}
	return w.header
}

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(status int) { w.status = status }

// Write implements http.ResponseWriter.
func (w *statusWriter) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return len(p), nil
}

// readyTimeout bounds the answers of all parts to one readiness check.
const readyTimeout = time.Second

// readiness checks ledger, etcd and leases, and returns the error of each that cannot take new flights.
func (n *node) readiness(ctx context.Context) wire.Ready {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	r := wire.Ready{Ready: true}
	for _, part := range []struct {
		name string
		ask  func(context.Context) error
	}{{"ledger", n.ledgerReady}, {"etcd", n.etcdReady}, {"leases", n.leases.Ready}} {
		c := wire.Check{Name: part.name, OK: true}
		if err := part.ask(ctx); err != nil {
			c.OK, c.Error, r.Ready = false, err.Error(), false
		}
		r.Checks = append(r.Checks, c)
	}
	return r
}

func (n *node) ledgerReady(context.Context) error {
	if _, leading := n.store.Applied(); !leading {
		return errors.New("the ledger has no leader")
	}
	return n.store.CheckDiskSpace()
}

func (n *node) etcdReady(ctx context.Context) error {
	if n.etcdFull.Load() {
		return errors.New("etcd is full and rejects claims")
	}
	_, err := n.etcd.client.Status(ctx, "")
	return err
}
