// Package executortest is the conformance suite of the ledger ports of executor and remote. The adapter of clusterstore
// and the fake of flightdtest both pass it, so a test with the fake is valid for the real ledger, too.
package executortest

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/executor"
	"github.com/flightd/flightd/flight"
)

// Store has all ports of one ledger.
type Store interface {
	executor.Ledger
	executor.Reader
	executor.Sessions
}

// Run runs the suite. open returns an empty, writable ledger after its Bootstrap, and closes it in t.Cleanup.
func Run(t *testing.T, open func(t *testing.T) Store) {
	for name, test := range map[string]func(*testing.T, Store){
		"an open and its repeat get the same answer": testOpen,
		"reads return the version of the last reply": testReads,
		"bodies are stored exactly":                  testBodies,
		"bodies of later generations":                testGenerations,
		"empty bodies":                               testEmptyBodies,
		"Wait is woken by changes of its own flight": testWait,
		"Wait ends with its context":                 testWaitEnds,
		"overdue flights are found":                  testOverdue,
		"reports are idempotent, late ones evidence": testReports,
		"time and epochs":                            testHeader,
		"sessions that hold flights end":             testSessions,
		"an ended context":                           testEndedContext,
		"concurrent flights":                         testConcurrent,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

func key(id string) flight.Key { return flight.MustKey("exam/charge/" + id) }

func openOf(b Store, id string, revision int64, input string) *flight.Open {
	o := &flight.Open{
		Key: key(id), Session: flight.Session{Epoch: b.Header().LeaseEpoch, Revision: revision, ID: "ses_exam"},
		Nonce: flight.Nonce{byte(revision)}, NotAfter: b.Now().Add(30 * time.Second), Owner: "exam", StoreEpoch: b.Header().StoreEpoch,
	}
	if input != "" {
		o.Submission = flight.Submission{Fingerprint: flight.FingerprintBytes([]byte(input)), Input: flight.NewBlob("text/plain", []byte(input), flight.MaxInput)}
	}
	return o
}

func propose(t *testing.T, b Store, c flight.Command) flight.Reply {
	t.Helper()
	reply, err := b.Propose(t.Context(), c)
	require.NoError(t, err)
	return reply
}

func report(t *testing.T, b Store, opened flight.Reply, o flight.Outcome, body string) flight.Reply {
	t.Helper()
	reply, err := b.Report(t.Context(), &flight.Report{
		Key: opened.Flight.Key, Generation: opened.Flight.Generation, Token: opened.Token, Outcome: o, ExternalID: "ch_1",
		Body: flight.NewBlob("text/plain", []byte(body), flight.MaxReceiptBody),
	})
	require.NoError(t, err)
	return reply
}

func read(t *testing.T, b Store, id string) *flight.Flight {
	t.Helper()
	f, err := b.Flight(key(id).FlightID())
	require.NoError(t, err)
	return f
}

func testOpen(t *testing.T, b Store) {
	o := openOf(b, "1", 10, "42 EUR")
	first := propose(t, b, o)
	require.Equal(t, flight.DecisionProceed, first.Decision)
	require.Equal(t, flight.Token{StoreEpoch: o.StoreEpoch, Number: 1}, first.Token)
	require.True(t, first.Changed)
	again := propose(t, b, openOf(b, "1", 10, "42 EUR"))
	require.Equal(t, flight.DecisionProceed, again.Decision)
	require.Equal(t, first.Token, again.Token)
	require.False(t, again.Changed)
	require.Equal(t, first.Flight.Version, again.Flight.Version)
	other := propose(t, b, openOf(b, "1", 11, "43 EUR"))
	require.Equal(t, flight.DecisionConflict, other.Decision)
	require.NotNil(t, other.Flight)
}

func testReads(t *testing.T, b Store) {
	require.Nil(t, read(t, b, "1"), "a key that was never used")
	opened := propose(t, b, openOf(b, "1", 10, "42 EUR"))
	f := read(t, b, "1")
	require.Equal(t, opened.Flight.Version, f.Version, "a read returns the version of the reply")
	require.Equal(t, flight.StateRunning, f.State)
	require.Nil(t, f.Input.Data, "a flight is read without bodies")
	require.Equal(t, 6, f.Input.StoredSize)
	closed := report(t, b, opened, flight.OutcomeSucceeded, "paid")
	require.Equal(t, flight.DecisionAccepted, closed.Decision)
	f = read(t, b, "1")
	require.Equal(t, closed.Flight.Version, f.Version)
	require.Equal(t, flight.StateSucceeded, f.State)
	require.Nil(t, f.Receipt.Body.Data)
	require.Equal(t, "ch_1", f.Receipt.ExternalID)
}

func testBodies(t *testing.T, b Store) {
	input, body := string(bytes.Repeat([]byte{0, 0xff, 7}, 60_000)), string(bytes.Repeat([]byte{1, 0xfe}, 32<<10))
	opened := propose(t, b, openOf(b, "1", 10, input))
	got, err := b.Input(opened.Flight)
	require.NoError(t, err)
	require.Equal(t, input, string(got))
	closed := report(t, b, opened, flight.OutcomeSucceeded, body)
	for range 2 {
		got, err = b.ReceiptBody(closed.Flight)
		require.NoError(t, err)
		require.Equal(t, body, string(got))
		clear(got) // each reader has its own copy
	}
}

func testGenerations(t *testing.T, b Store) {
	opened := propose(t, b, openOf(b, "1", 10, "first"))
	report(t, b, opened, flight.OutcomeSucceeded, "first receipt")
	freed := propose(t, b, &flight.FreeKey{Key: key("1"), Generation: 1})
	require.Equal(t, flight.StateAbsent, freed.Flight.State)
	opened = propose(t, b, openOf(b, "1", 11, "second"))
	require.Equal(t, flight.DecisionProceed, opened.Decision)
	require.EqualValues(t, 2, opened.Flight.Generation)
	input, err := b.Input(opened.Flight)
	require.NoError(t, err)
	require.Equal(t, "second", string(input))
	closed := report(t, b, opened, flight.OutcomeSucceeded, "second receipt")
	body, err := b.ReceiptBody(closed.Flight)
	require.NoError(t, err)
	require.Equal(t, "second receipt", string(body))

	opened = propose(t, b, openOf(b, "2", 20, "stays"))
	report(t, b, opened, flight.OutcomeUnknown, "")
	propose(t, b, &flight.Resolve{Key: key("2"), Generation: 1, Version: read(t, b, "2").Version, Finding: flight.FindingFail})
	propose(t, b, &flight.Retry{Key: key("2"), Generation: 1})
	opened = propose(t, b, openOf(b, "2", 21, "stays"))
	require.EqualValues(t, 2, opened.Flight.Generation)
	input, err = b.Input(opened.Flight)
	require.NoError(t, err, "a new generation after a retry has the first input")
	require.Equal(t, "stays", string(input))
}

func testEmptyBodies(t *testing.T, b Store) {
	opened := propose(t, b, openOf(b, "1", 10, ""))
	input, err := b.Input(opened.Flight)
	require.NoError(t, err)
	require.Empty(t, input)
	body, err := b.ReceiptBody(opened.Flight)
	require.NoError(t, err)
	require.Empty(t, body)
	closed := report(t, b, opened, flight.OutcomeSucceeded, "")
	body, err = b.ReceiptBody(closed.Flight)
	require.NoError(t, err)
	require.Empty(t, body)
}

func testWait(t *testing.T, b Store) {
	id := key("1").FlightID()
	woken := make(chan *flight.Flight)
	wait := func(seen flight.Version) {
		f, err := b.Wait(t.Context(), id, seen)
		if err != nil {
			t.Error(err)
		}
		woken <- f
	}
	go wait(flight.Version{})
	propose(t, b, openOf(b, "2", 10, "")) // another flight
	opened := propose(t, b, openOf(b, "1", 11, ""))
	require.Equal(t, opened.Flight.Version, (<-woken).Version)
	go wait(flight.Version{}) // the flight has changed before the wait
	require.Equal(t, opened.Flight.Version, (<-woken).Version)
	go wait(opened.Flight.Version)
	closed := report(t, b, opened, flight.OutcomeSucceeded, "paid")
	require.Equal(t, closed.Flight.Version, (<-woken).Version)
}

func testWaitEnds(t *testing.T, b Store) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := b.Wait(ctx, key("1").FlightID(), flight.Version{})
		ended <- err
	}()
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
}

// testOverdue: an attempt that waits for its callback is overdue when the callback's time has come, until a WakeUp ends it.
func testOverdue(t *testing.T, b Store) {
	var want []flight.ID
	for i := range 25 {
		opened := propose(t, b, openOf(b, fmt.Sprint(i), int64(i+1), ""))
		wake := flight.Wake{At: b.Now().Add(time.Hour), Callback: true}
		if i%2 == 0 {
			wake.At = b.Now()
			want = append(want, opened.Flight.ID)
		}
		propose(t, b, &flight.Suspend{Key: opened.Flight.Key, Generation: 1, Token: opened.Token, Wake: wake})
	}
	require.ElementsMatch(t, want, b.Overdue(100))
	require.Len(t, b.Overdue(3), 3)
	for _, id := range want {
		f, err := b.Flight(id)
		require.NoError(t, err)
		require.Eventually(t, func() bool { // the time of the command may be behind Now
			return propose(t, b, &flight.WakeUp{Key: f.Key, Generation: f.Generation}).Decision != flight.DecisionBusy
		}, 10*time.Second, time.Millisecond)
	}
	require.Empty(t, b.Overdue(100))
}

func testReports(t *testing.T, b Store) {
	first := propose(t, b, openOf(b, "1", 10, ""))
	closed := report(t, b, first, flight.OutcomeSucceeded, "paid")
	again := report(t, b, first, flight.OutcomeSucceeded, "paid")
	require.Equal(t, flight.DecisionAccepted, again.Decision)
	require.Equal(t, closed.Flight.Version, again.Flight.Version)
	other, err := b.Report(t.Context(), &flight.Report{Key: key("1"), Generation: 1, Token: first.Token, Outcome: flight.OutcomeSucceeded, ExternalID: "ch_2"})
	require.NoError(t, err)
	require.Equal(t, flight.DecisionFenced, other.Decision)
	require.True(t, other.Flight.Overlap)
	require.Contains(t, eventKinds(other.Events), flight.EventOverlap)
	lost, err := b.Report(t.Context(), &flight.Report{Key: key("2"), Generation: 1, Token: first.Token, Outcome: flight.OutcomeNotDone})
	require.NoError(t, err)
	require.Equal(t, flight.DecisionFenced, lost.Decision)
	require.Len(t, read(t, b, "2").Evidence, 1, "evidence of an attempt that this ledger never had")
}

func eventKinds(events []flight.Event) (kinds []flight.EventKind) {
	for _, e := range events {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

func testHeader(t *testing.T, b Store) {
	h := b.Header()
	require.NotEmpty(t, h.Deployment)
	require.NotEmpty(t, h.Secret)
	require.Positive(t, h.LeaseEpoch)
	before := b.Now()
	opened := propose(t, b, openOf(b, "1", 1000, ""))
	require.GreaterOrEqual(t, b.Now(), before)
	require.GreaterOrEqual(t, b.Now(), opened.Flight.CreatedAt)
	propose(t, b, &flight.RecordGuard{Epoch: h.LeaseEpoch, Counter: 7})
	require.EqualValues(t, 7, b.Header().GuardCounter)
	late := openOf(b, "2", 1001, "")
	late.NotAfter = b.Now().Add(-time.Second)
	require.Equal(t, flight.DecisionOpenExpired, propose(t, b, late).Decision)
	require.Nil(t, read(t, b, "2"))
}

func testSessions(t *testing.T, b Store) {
	h := b.Header()
	const flights = flight.MaxEndSessionFlights + 10
	ended := &flight.EndSession{ReadRevision: 20, Epoch: h.LeaseEpoch, StoreEpoch: h.StoreEpoch}
	for i := range flights {
		opened := propose(t, b, openOf(b, fmt.Sprint(i), 10, ""))
		ended.Session = opened.Flight.Newest().Session
	}
	held, all := b.HeldBy(ended.Session.ID, flight.ID{}, 100)
	require.Len(t, held, 100)
	require.Equal(t, flights, all)
	next, _ := b.HeldBy(ended.Session.ID, held[99], flights)
	require.Len(t, next, flights-100, "flights after the given one")
	require.Equal(t, flights, b.HeldCount())
	require.Equal(t, []flight.Session{ended.Session}, b.Holders())

	stale := *ended
	stale.ReadRevision = 9
	require.Equal(t, flight.DecisionFenced, propose(t, b, &stale).Decision, "etcd was read before the session was created")
	require.Equal(t, flights, b.HeldCount())
	propose(t, b, &flight.RecordGuard{Epoch: h.LeaseEpoch, Counter: 3})
	require.Equal(t, flight.DecisionFenced, propose(t, b, ended).Decision, "etcd was restored from a backup")
	ended.Counter = 3
	require.True(t, propose(t, b, ended).More)
	require.Equal(t, 10, b.HeldCount())
	require.Equal(t, flight.DecisionSessionEnded, propose(t, b, openOf(b, "new", 10, "")).Decision)
	require.False(t, propose(t, b, ended).More)
	require.Zero(t, b.HeldCount())
	require.Equal(t, flight.StateInDoubt, read(t, b, "7").State)

	other := openOf(b, "other", 10, "")
	other.Session.ID = "ses_other"
	withdraw := &flight.WithdrawSession{Key: other.Key, Session: other.Session.ID, StoreEpoch: h.StoreEpoch}
	require.Equal(t, flight.DecisionAccepted, propose(t, b, withdraw).Decision)
	require.Equal(t, flight.DecisionSessionEnded, propose(t, b, other).Decision)

	closing := &flight.CloseSession{Session: "ses_closing", StoreEpoch: h.StoreEpoch}
	var tokens []flight.Token
	for _, id := range []string{"closing-1", "closing-2"} {
		o := openOf(b, id, 10, "")
		o.Session.ID = closing.Session
		tokens = append(tokens, propose(t, b, o).Token)
	}
	for i, id := range []string{"closing-1", "closing-2"} {
		require.Equal(t, flight.DecisionBusy, propose(t, b, closing).Decision, "it holds a flight")
		key := openOf(b, id, 10, "").Key
		propose(t, b, &flight.Report{Key: key, Generation: 1, Token: tokens[i], Outcome: flight.OutcomeNotDone})
	}
	old := *closing
	old.StoreEpoch++
	require.Equal(t, flight.DecisionFenced, propose(t, b, &old).Decision, "another store epoch")
	for range 2 {
		require.Equal(t, flight.DecisionAccepted, propose(t, b, closing).Decision)
	}
	late := openOf(b, "closing-3", 10, "")
	late.Session.ID = closing.Session
	require.Equal(t, flight.DecisionSessionEnded, propose(t, b, late).Decision)
}

func testEndedContext(t *testing.T, b Store) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.Propose(ctx, openOf(b, "1", 10, ""))
	if err == nil {
		return // the reply came first
	}
	again := propose(t, b, openOf(b, "1", 10, ""))
	require.Equal(t, flight.DecisionProceed, again.Decision, "the second try proceeds, whether or not the first was applied")
	require.EqualValues(t, 1, again.Flight.AttemptCount)
}

func testConcurrent(t *testing.T, b Store) {
	const flights = 200
	done := make(chan error, flights)
	for i := range flights {
		go func() { done <- openAndReport(t.Context(), b, fmt.Sprint(i), int64(i+1)) }()
	}
	for range flights {
		require.NoError(t, <-done)
	}
	require.Zero(t, b.HeldCount())
}

// openAndReport opens and reports one flight, and reads the result.
func openAndReport(ctx context.Context, b Store, id string, revision int64) error {
	opened, err := b.Propose(ctx, openOf(b, id, revision, id))
	if err != nil {
		return err
	}
	if opened.Decision != flight.DecisionProceed {
		return fmt.Errorf("%s: %v", id, opened.Decision)
	}
	closed, err := b.Report(ctx, &flight.Report{Key: key(id), Generation: 1, Token: opened.Token, Outcome: flight.OutcomeSucceeded,
		Body: flight.NewBlob("", []byte("receipt of "+id), flight.MaxReceiptBody)})
	if err != nil {
		return err
	}
	body, err := b.ReceiptBody(closed.Flight)
	if err == nil && string(body) != "receipt of "+id {
		err = fmt.Errorf("%s: receipt %q", id, body)
	}
	return err
}
