package main

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
)

// storedFlight is one flight of the ledger. All its fields are derived from its number.
type storedFlight struct {
	key        flight.Key
	externalID string
	input      []byte
	body       []byte
	nonce      flight.Nonce
	retention  time.Duration
}

// Lengths of inputs and bodies in bytes, uniformly distributed. The contents are random and thus incompressible.
const (
	inputFrom, inputTo = 40, 120 // before base64 in JSON
	bodyFrom, bodyTo   = 200, 500
	octets             = "application/octet-stream"
)

// shortRetention is the retention of receipts that expire in the run.
const shortRetention = time.Second

func keyOf(n int) flight.Key { return flight.MustKey(fmt.Sprintf("shop/charge-card/order-%010d", n)) }

// flightAt returns flight number n. Flights from o.receipts on expire in the run.
func flightAt(o *options, n int) storedFlight {
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	bytes := func(from, to int) []byte {
		b := make([]byte, from+rng.IntN(to-from+1))
		var word [8]byte
		for at := 0; at < len(b); at += len(word) {
			binary.LittleEndian.PutUint64(word[:], rng.Uint64())
			copy(b[at:], word[:])
		}
		return b
	}
	g := storedFlight{key: keyOf(n), input: []byte(`{"order":"` + base64.StdEncoding.EncodeToString(bytes(inputFrom, inputTo)) + `"}`), body: bytes(bodyFrom, bodyTo)}
	binary.BigEndian.PutUint64(g.nonce[:], uint64(n))
	g.externalID = "ch_" + hex.EncodeToString(bytes(12, 12))
	if n >= o.receipts {
		g.retention = shortRetention
	}
	return g
}

func (f *storedFlight) submission() flight.Submission {
	fingerprint, err := flight.FingerprintJSON(f.input, nil)
	if err != nil {
		panic(err) // cannot happen: the input is valid JSON
	}
	return flight.Submission{Fingerprint: fingerprint, Input: flight.NewBlob("application/json", f.input, flight.MaxInput),
		Policy: flight.Policy{AttemptTimeout: 30 * time.Second, Retention: f.retention}}
}

// open returns the Open of the flight. Its session has revision 0, which is valid for the new etcd of a node that is
// started on this ledger later.
func (f *storedFlight) open(s *clusterstore.Store) *flight.Open {
	h := s.Header()
	return &flight.Open{Key: f.key, Submission: f.submission(), Session: flight.Session{Epoch: h.LeaseEpoch, ID: "7587884e2c3f1a01"},
		Nonce: f.nonce, NotAfter: s.Now().Add(20 * time.Second), Owner: "worker-7:4242", StoreEpoch: h.StoreEpoch}
}

func (f *storedFlight) report(token flight.Token) *flight.Report {
	return &flight.Report{Key: f.key, Generation: 1, Token: token, Outcome: flight.OutcomeSucceeded, ExternalID: f.externalID,
		Body: flight.NewBlob(octets, f.body, flight.MaxReceiptBody)}
}

// openAndReport opens flight number n in a ledger and reports its success.
func openAndReport(ctx context.Context, s *clusterstore.Store, o *options, n int) error {
	g := flightAt(o, n)
	opened, err := s.Propose(ctx, g.open(s))
	if err != nil {
		return err
	}
	if opened.Decision != flight.DecisionProceed {
		return fmt.Errorf("%s: the decision is %v, not proceed", g.key, opened.Decision)
	}
	_, err = s.Report(ctx, g.report(opened.Token))
	return err
}

// call returns the executor's call for the flight.
func (f *storedFlight) call() effect.Call { return effect.Call{Key: f.key, Submission: f.submission()} }

func (f *storedFlight) effect(context.Context, *effect.Attempt) (effect.Answer, error) {
	return effect.Answer{ExternalID: f.externalID, ContentType: octets, Body: f.body}, nil
}
