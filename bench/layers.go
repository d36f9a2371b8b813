package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/effect"
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
	held, err := l.session.Reserve(ctx, orderKey("claim", n), flight.Nonce{1})
	if err != nil {
		return err
	}
	defer held.Release()
	return held.Claim(ctx)
}

// openAndReport proposes one Open and one Report without a claim.
func (l *layers) openAndReport(ctx context.Context, n uint64) error {
	return l.propose(ctx, call(orderKey("record", n)), flight.Session{Epoch: l.store.Header().LeaseEpoch, Revision: int64(n), ID: "bench"})
}

func orderKey(name string, n uint64) flight.Key {
	return flight.MustKey(fmt.Sprintf("bench/%s/order-%d", name, n))
}

// propose opens the call's flight under a session and reports it.
func (l *layers) propose(ctx context.Context, c effect.Call, session flight.Session) error {
	open := &flight.Open{
		Key: c.Key, Submission: c.Submission, Session: session,
		Nonce: flight.Nonce{1}, NotAfter: l.store.Now().Add(flight.MaxOpenLife / 2), Owner: "bench", StoreEpoch: l.store.Header().StoreEpoch,
	}
	reply, err := l.store.Propose(ctx, open)
	if err != nil || reply.Decision != flight.DecisionProceed {
		return fmt.Errorf("open: %v, %w", reply.Decision, err)
	}
	reply, err = l.store.Report(ctx, &flight.Report{
		Key: c.Key, Generation: reply.Flight.Generation, Token: reply.Token, Outcome: flight.OutcomeSucceeded,
		ExternalID: fixedAnswer.ExternalID, Body: flight.NewBlob(fixedAnswer.ContentType, fixedAnswer.Body, flight.MaxReceiptBody),
	})
	if err != nil || reply.Decision != flight.DecisionAccepted {
		return fmt.Errorf("report: %v, %w", reply.Decision, err)
	}
	return nil
}
