package main

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
)

// order is one flight: a call, and the answer of its handler. All its fields are derived from its key.
type order struct {
	effect.Call
	answer effect.Answer
	act    effect.Handler
}

func orderKey(n uint64) flight.Key { return flight.MustKey(fmt.Sprintf("bench/charge/order-%010d", n)) }

func submission(input []byte, fingerprint flight.Fingerprint) flight.Submission {
	return flight.Submission{Fingerprint: fingerprint, Input: flight.NewBlob("application/json", input, flight.MaxInput)}
}

var smallAnswer = effect.Answer{ExternalID: "ext-1", ContentType: "application/json", Body: []byte(`{"ok":true}`)}

func actSmall(context.Context, *effect.Attempt) (effect.Answer, error) { return smallAnswer, nil }

// small returns an order with a small input and answer, which are always the same.
func small(key flight.Key) order {
	input := []byte(`{"amount":4200,"currency":"EUR"}`)
	return order{effect.Call{Key: key, Submission: submission(input, flight.FingerprintBytes(input))}, smallAnswer, actSmall}
}

func smallOrder(n uint64) order { return small(orderKey(n)) }

// Lengths of the inputs and bodies of a large ledger in bytes, uniformly distributed.
const (
	inputFrom, inputTo = 40, 120 // before base64 in JSON
	bodyFrom, bodyTo   = 200, 500
)

// shortRetention is the retention of receipts that expire in the run.
const shortRetention = time.Second

// largeOrder returns order n of a large ledger. Its input and answer are random and thus incompressible.
func (o *options) largeOrder(n uint64) order {
	rng := rand.New(rand.NewPCG(1, n))
	bytes := func(from, to int) []byte {
		b := make([]byte, from+rng.IntN(to-from+1))
		var word [8]byte
		for at := 0; at < len(b); at += len(word) {
			binary.LittleEndian.PutUint64(word[:], rng.Uint64())
			copy(b[at:], word[:])
		}
		return b
	}
	input := []byte(`{"order":"` + base64.StdEncoding.EncodeToString(bytes(inputFrom, inputTo)) + `"}`)
	fingerprint, err := flight.FingerprintJSON(input, nil)
	if err != nil {
		panic(err) // cannot happen: the input is valid JSON
	}
	answer := effect.Answer{ExternalID: "ch_" + hex.EncodeToString(bytes(12, 12)), ContentType: "application/octet-stream", Body: bytes(bodyFrom, bodyTo)}
	l := order{effect.Call{Key: orderKey(n), Submission: submission(input, fingerprint)}, answer,
		func(context.Context, *effect.Attempt) (effect.Answer, error) { return answer, nil }}
	l.Submission.Policy.AttemptTimeout = 30 * time.Second
	if n >= o.large.stored && n < o.large.stored+o.large.ending {
		l.Submission.Policy.Retention = shortRetention
	}
	return l
}

// newKeys returns a function that executes an order with a new key.
func newKeys(doer effect.Doer, orders func(uint64) order) func(context.Context, uint64) error {
	return func(ctx context.Context, n uint64) error {
		o := orders(n)
		_, err := doer.Do(ctx, o.Call, o.act)
		return err
	}
}

// replays returns a function that replays one of the orders below stored, and checks its receipt.
func replays(doer effect.Doer, orders func(uint64) order, stored uint64) func(context.Context, uint64) error {
	return func(ctx context.Context, _ uint64) error {
		o := orders(rand.Uint64N(stored))
		result, err := doer.Do(ctx, o.Call, o.act)
		switch {
		case err != nil:
			return err
		case result.Source != effect.SourceReplayed:
			return fmt.Errorf("replay of %s: the source is %s", o.Key, result.Source)
		case result.Answer.ExternalID != o.answer.ExternalID || len(result.Answer.Body) != len(o.answer.Body):
			return fmt.Errorf("%s: the stored receipt differs from the reported one", o.Key)
		}
		return nil
	}
}

// smallReplays returns a workload that replays one of the small orders below stored at a server. They are executed before it.
func smallReplays(name string, at, storedAt effect.Doer, stored uint64) workload {
	keys := make([]flight.Key, stored)
	for n := range keys {
		keys[n] = orderKey(uint64(n))
	}
	one := small(keys[0]) // made once, so that its making is not measured
	orders := func(n uint64) order {
		o := one
		o.Key = keys[n]
		return o
	}
	return workload{name: name, once: replays(at, orders, stored), prepare: func(ctx context.Context) error {
		_, err := load{callers: 256, once: newKeys(storedAt, orders), more: func(n uint64) bool { return n < stored }}.run(ctx, new(atomic.Uint64))
		return err
	}}
}

// open returns the Open of the order in a ledger, without a claim.
func (o order) open(s *clusterstore.Store, session flight.Session) *flight.Open {
	open := &flight.Open{Key: o.Key, Submission: o.Submission, Session: session,
		NotAfter: s.Now().Add(flight.MaxOpenLife / 2), Owner: "worker-7:4242", StoreEpoch: s.Header().StoreEpoch}
	copy(open.Nonce[:], o.Submission.Fingerprint[:])
	return open
}

// report returns the report of the order's success.
func (o order) report(token flight.Token) *flight.Report {
	return &flight.Report{Key: o.Key, Generation: 1, Token: token, Outcome: flight.OutcomeSucceeded, ExternalID: o.answer.ExternalID,
		Body: flight.NewBlob(o.answer.ContentType, o.answer.Body, flight.MaxReceiptBody)}
}

// openAndReport proposes the Open of the order and its Report to a ledger.
func (o order) openAndReport(ctx context.Context, s *clusterstore.Store, session flight.Session) error {
	reply, err := s.Propose(ctx, o.open(s, session))
	if err != nil || reply.Decision != flight.DecisionProceed {
		return fmt.Errorf("open %s: %v, %w", o.Key, reply.Decision, err)
	}
	reply, err = s.Report(ctx, o.report(reply.Token))
	if err != nil || reply.Decision != flight.DecisionAccepted {
		return fmt.Errorf("report %s: %v, %w", o.Key, reply.Decision, err)
	}
	return nil
}

// unclaimed returns a session of a ledger's epoch. Its revision 0 is valid for the new etcd of a node that is started on this ledger
// later.
func unclaimed(s *clusterstore.Store) flight.Session {
	return flight.Session{Epoch: s.Header().LeaseEpoch, ID: "7587884e2c3f1a01"}
}
