package main

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
	"github.com/flightd/flightd/lease/etcdlease"
)

// layers are the two layers below the executor, lease and ledger, which are measured separately.
type layers struct {
	lessor  *lease.Lessor
	session lease.Session
	store   *clusterstore.Store
}

// firstEpoch is a lease guard for a new etcd: epoch 1, counter 0.
type firstEpoch struct{}

func (firstEpoch) Header() flight.Header { return flight.Header{LeaseEpoch: 1} }

func openLayers(ctx context.Context, dir string, raw *rawPath) (*layers, error) {
	p := &layers{}
	var err error
	if p.lessor, err = etcdlease.New(etcdlease.Config{Client: raw.client, Server: raw.member.Server, Deployment: "bench", Node: "bench", Ledger: firstEpoch{}}); err != nil {
		return nil, err
	}
	if p.session, err = p.lessor.NewSession(ctx, lease.Spec{Owner: "bench", AutoRenew: true}); err != nil {
		p.close()
		return nil, err
	}
	if p.store, err = clusterstore.Open(ctx, clusterstore.Config{Dir: filepath.Join(dir, "ledger")}); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (l *layers) close() {
	if l.session != nil {
		_ = l.session.Close(context.Background())
	}
	_ = l.lessor.Close(context.Background())
	if l.store != nil {
		_ = l.store.Close(context.Background())
	}
}

// claimOnly makes one claim, which is released in the background.
func (l *layers) claimOnly(ctx context.Context, n uint64) error {
	held, err := l.session.Reserve(ctx, orderKey(n), flight.Nonce{1})
	if err != nil {
		return err
	}
	defer held.Release()
	return held.Claim(ctx)
}

// openAndReport proposes one Open and one Report without a claim.
func (l *layers) openAndReport(ctx context.Context, n uint64) error {
	return smallOrder(n).openAndReport(ctx, l.store, unclaimed(l.store))
}

// claimOpenReport claims and opens in parallel, then reports, without the executor.
func (l *layers) claimOpenReport(ctx context.Context, n uint64) error {
	o := smallOrder(n)
	held, err := l.session.Reserve(ctx, o.Key, flight.Nonce{1})
	if err != nil {
		return err
	}
	defer held.Release()
	claimed := make(chan error, 1)
	go func() { claimed <- held.Claim(ctx) }() // the return statement waits for it
	return errors.Join(o.openAndReport(ctx, l.store, held.Session()), <-claimed)
}
