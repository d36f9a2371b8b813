package node

import (
	"context"
	"errors"
	"time"

	"github.com/flightd/flightd/internal/wire"
)

// patience is how long readiness waits for a part to answer.
const patience = time.Second

// readiness asks every part whether it can do its share of a flight, and says which one cannot.
func (n *node) readiness(ctx context.Context) wire.Ready {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r := wire.Ready{Ready: true}
	for _, part := range []struct {
		name string
		ask  func(context.Context) error
	}{{"ledger", n.ledgerReady}, {"etcd", n.etcdReady}, {"leases", n.desk.Ready}} {
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
	return n.store.Room()
}

func (n *node) etcdReady(ctx context.Context) error {
	if n.noSpace.Load() {
		return errors.New("etcd is full and takes no claims")
	}
	_, err := n.etcd.client.Status(ctx, "")
	return err
}
