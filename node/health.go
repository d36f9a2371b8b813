package node

import (
	"context"
	"errors"
	"time"

	"github.com/flightd/flightd/internal/wire"
)

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
