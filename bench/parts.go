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
type parts struct {
	desk    *lease.Lessor
	session lease.Session
	store   *clusterstore.Store
}

// firstEpoch is a lease guard for a new etcd: epoch 1, counter 0.
type noPast struct{}

func (noPast) Epoch() uint32   { return 1 }
func (noPast) Counter() uint64 { return 0 }

func openParts(ctx context.Context, dir string, raw *rawPath) (*parts, error) {
	p := &parts{}
	var err error
	if p.desk, err = etcdlease.New(etcdlease.Config{Client: raw.client, Server: raw.member.Server, Deployment: "bench", Node: "bench", Guard: noPast{}}); err != nil {
		return nil, err
	}
	if p.session, err = p.desk.NewSession(ctx, lease.Spec{Owner: "bench", Kept: true}); err != nil {
		p.close()
		return nil, err
	}
	if p.store, err = clusterstore.Open(ctx, clusterstore.Config{Dir: filepath.Join(dir, "ledger")}); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *parts) close() {
	if p.session != nil {
		_ = p.session.Close(context.Background())
	}
	_ = p.desk.Close(context.Background())
	if p.store != nil {
		_ = p.store.Close(context.Background())
	}
}

// claimOnly makes one claim, which is released in the background.
func (p *parts) claim(ctx context.Context, n uint64) error {
	held, err := p.session.Reserve(ctx, orderKey("claim", n), flight.Nonce{1})
	if err != nil {
		return err
	}
	defer held.Release()
	return held.Claim(ctx)
}

// openAndReport proposes one Open and one Report without a claim.
func (p *parts) record(ctx context.Context, n uint64) error {
	return p.fly(ctx, call(orderKey("record", n)), flight.Session{Epoch: p.store.Header().LeaseEpoch, Revision: int64(n), ID: "bench"})
}

func orderKey(name string, n uint64) flight.Key {
	return flight.MustKey(fmt.Sprintf("bench/%s/order-%d", name, n))
}

// propose opens the call's flight under a session and reports it.
func (p *parts) fly(ctx context.Context, c effect.Call, session flight.Session) error {
	open := &flight.Open{
		Key: c.Key, Submission: c.Submission, Session: session,
		Nonce: flight.Nonce{1}, NotAfter: p.store.Now().Add(flight.MaxOpenLife / 2), Owner: "bench", StoreEpoch: p.store.Header().StoreEpoch,
	}
	reply, err := p.store.Propose(ctx, open)
	if err != nil || reply.Decision != flight.Proceed {
		return fmt.Errorf("open: %v, %w", reply.Decision, err)
	}
	reply, err = p.store.Report(ctx, &flight.Report{
		Key: c.Key, Generation: reply.Flight.Generation, Token: reply.Token, Outcome: flight.Succeeded,
		ExternalID: emptyAnswer.ExternalID, Body: flight.NewBlob(emptyAnswer.ContentType, emptyAnswer.Body, flight.MaxReceiptBody),
	})
	if err != nil || reply.Decision != flight.Accepted {
		return fmt.Errorf("report: %v, %w", reply.Decision, err)
	}
	return nil
}
