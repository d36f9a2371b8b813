package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

// alive returns nil if the API's handler answers and, at a lone node, the ledger applied a proposal. It does not use the
// network: at the limit of connections a healthy node may accept none for a while. A node of a cluster proposes nothing: a
// follower cannot, and a leader without a majority is not cured by a restart.
func (m monitor) alive(ctx context.Context) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "/livez", http.NoBody)
	if err != nil {
		return err
	}
	r.Host = "localhost"
	answer := &statusWriter{}
	m.server.ServeHTTP(answer, r)
	if answer.status != http.StatusOK {
		return fmt.Errorf("/livez answers %d", answer.status)
	}
	if m.cluster != nil {
		return nil
	}
	if _, err = m.store.Propose(ctx, &flight.Tick{}); err != nil {
		return fmt.Errorf("the ledger applies no proposal: %w", err)
	}
	return nil
}

// statusWriter is an http.ResponseWriter that keeps the status only.
type statusWriter struct {
	header http.Header
	status int
}

func (w *statusWriter) Header() http.Header {
	if w.header == nil {
		w.header = make(http.Header)
	}
	return w.header
}

func (w *statusWriter) WriteHeader(status int) { w.status = status }

func (w *statusWriter) Write(p []byte) (int, error) {
	w.status = cmp.Or(w.status, http.StatusOK)
	return len(p), nil
}

// readyTimeout bounds the answers of all parts to one readiness check.
const readyTimeout = time.Second

// check is one part of a readiness check.
type check struct {
	name string
	ask  func(context.Context) error
}

// readiness checks ledger, etcd and leases, and returns the error of each that cannot take new flights. A node that does
// not act is ready if the leader is, as far as this node knows.
func (m monitor) readiness(ctx context.Context) wire.Ready {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	r := wire.Ready{Ready: true}
	checks := []check{{"ledger", m.ledgerReady}, {"etcd", m.etcdReady}, {"leases", m.leasesReady}}
	if m.act.Load() == nil {
		checks = []check{{"leader", m.leaderReady}}
	}
	for _, part := range checks {
		c := wire.Check{Name: part.name, OK: true}
		if err := part.ask(ctx); err != nil {
			c.OK, c.Error, r.Ready = false, err.Error(), false
		}
		r.Checks = append(r.Checks, c)
	}
	return r
}

func (m monitor) ledgerReady(context.Context) error {
	if _, leading := m.store.Applied(); !leading {
		return errors.New("the ledger has no leader")
	}
	return m.store.CheckDiskSpace()
}

// leaderReady returns nil if another node leads the ledger, and has said lately that it acts.
func (m monitor) leaderReady(context.Context) error {
	leader := m.store.Leader()
	switch v := m.cluster.viewOf(leader); {
	case leader == "":
		return errors.New("no node leads the ledger")
	case leader == m.cluster.name():
		return errors.New("this node leads the ledger and does not act yet")
	case v == nil || time.Since(v.sent) > 4*pollEvery:
		return fmt.Errorf("node %s, which leads the ledger, does not answer", leader)
	case !v.status.Acting:
		return fmt.Errorf("node %s leads the ledger and does not act yet", leader)
	}
	return nil
}

func (m monitor) leasesReady(ctx context.Context) error {
	if a := m.act.Load(); a != nil {
		return a.leases.Ready(ctx)
	}
	return errNotActing
}

func (m monitor) etcdReady(ctx context.Context) error {
	if m.etcdFull.Load() {
		return errors.New("etcd is full and rejects claims")
	}
	return m.etcd.answers(ctx)
}
