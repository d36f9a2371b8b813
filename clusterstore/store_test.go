package clusterstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

// openStore opens a store that the test closes. Its clock is the test's: the system's counts since boot, which is real time in
// tests with a fake clock, so a slow machine would move the ledger's time.
func openStore(tb testing.TB, cfg Config) *Store {
	tb.Helper()
	if cfg.Clock.Mono == nil {
		start := time.Now()
		cfg.Clock.Mono = func() time.Duration { return time.Since(start) }
	}
	s, err := Open(context.Background(), cfg)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, s.Close(context.Background())) })
	return s
}

func memConfig(fs vfs.FS) Config {
	return Config{Dir: "ledger", FS: fs, Memory: Memory{BlockCache: 4 << 20, MemTable: 1 << 20, Flights: 4096}}
}

func testKey(n int) flight.Key { return flight.MustKey(fmt.Sprintf("test/charge/order-%d", n)) }

func nonce(n int) (out flight.Nonce) {
	binary.BigEndian.PutUint64(out[:], uint64(n))
	return out
}

// sessionOf returns the session with that name, as the Opens of the tests have it.
func sessionOf(s *Store, id flight.SessionID) flight.Session {
	return flight.Session{ID: id, Revision: 7, Epoch: s.Header().LeaseEpoch}
}

// openOf returns the Open of key n by its first caller.
func openOf(s *Store, key flight.Key, n int) *flight.Open {
	input := []byte(fmt.Sprintf(`{"amount":%d,"currency":"EUR"}`, n))
	blob := flight.NewBlob("application/json", input, flight.MaxInput)
	return &flight.Open{Key: key,
		Submission: flight.Submission{Fingerprint: flight.Fingerprint(blob.Digest), Input: blob, Policy: flight.Policy{AttemptTimeout: 30 * time.Second}},
		Session:    sessionOf(s, "session-a"),
		Nonce:      nonce(n), NotAfter: s.Now().Add(20 * time.Second), Owner: "host:1", StoreEpoch: s.Header().StoreEpoch}
}

func reportOf(key flight.Key, token flight.Token, body string) *flight.Report {
	return &flight.Report{Key: key, Generation: 1, Token: token, Outcome: flight.OutcomeSucceeded, ExternalID: "ext-" + body,
		Body: flight.NewBlob("application/json", []byte(body), flight.MaxReceiptBody)}
}

// openAndReport opens and reports one flight.
func openAndReport(tb testing.TB, s *Store, n int) flight.Reply {
	tb.Helper()
	key := testKey(n)
	opened, err := s.Propose(context.Background(), openOf(s, key, n))
	require.NoError(tb, err)
	require.Equal(tb, flight.DecisionProceed, opened.Decision)
	reported, err := s.Report(context.Background(), reportOf(key, opened.Token, fmt.Sprintf(`{"id":%d}`, n)))
	require.NoError(tb, err)
	require.Equal(tb, flight.DecisionAccepted, reported.Decision)
	return reported
}

func TestOneFlight(t *testing.T) {
	s := openStore(t, memConfig(vfs.NewMem()))
	openAndReport(t, s, 7)
	f, err := s.Flight(testKey(7).FlightID())
	require.NoError(t, err)
	require.Equal(t, flight.StateSucceeded, f.State)
	require.Nil(t, f.Input.Data)
	require.Nil(t, f.Receipt.Body.Data)
	input, err := s.Body(f.ID, f.Generation, BodyInput)
	require.NoError(t, err)
	require.Equal(t, `{"amount":7,"currency":"EUR"}`, string(input))
	receipt, err := s.Body(f.ID, f.Generation, BodyReceipt)
	require.NoError(t, err)
	require.Equal(t, `{"id":7}`, string(receipt))
	history, err := s.History(f.ID)
	require.NoError(t, err)
	require.Len(t, history, 3)
	for f := range s.Live() {
		require.Fail(t, "a flight is live", f.Key.String())
	}
	require.NoError(t, s.Barrier(context.Background()))
	require.Equal(t, int64(1), s.Counts()[flight.StateSucceeded])
}

// Live goes on after its first page, and yields each flight once.
func TestLive_SeveralPages(t *testing.T) {
	s := openStore(t, memConfig(vfs.NewMem()))
	var opens []flight.Command
	for n := range 2*livePage + 1 {
		opens = append(opens, openOf(s, testKey(n), 1))
	}
	_, err := s.ProposeAll(context.Background(), opens)
	require.NoError(t, err)
	seen := make(map[flight.ID]int)
	for f, err := range s.Live() {
		require.NoError(t, err)
		seen[f.ID]++
		require.Equal(t, 1, seen[f.ID])
	}
	require.Equal(t, len(opens), len(seen))
}
