package clusterstore

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

// The test applies random commands to a few keys, and faults and crashes to the disk. It compares flights, bodies and
// histories with the replies, and the rows with each other.
func TestModel_AcknowledgedStateIsKept(t *testing.T) {
	const rounds, steps = 15, 250
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	for round := range uint64(rounds) {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &model{t: t, random: rand.New(rand.NewPCG(seed, round)), fs: vfs.NewCrashableMem(),
					ended: make(map[flight.SessionID]flight.Time)}
				defer m.end()
				m.open()
				for range steps {
					m.step()
					if m.random.IntN(10) == 0 {
						m.check()
					}
				}
			})
		})
	}
}

const modelKeys = 5

// model records everything that the ledger has acknowledged.
type model struct {
	t       *testing.T
	random  *rand.Rand
	fs      *vfs.MemFS
	s       *Store
	flights [modelKeys]*flight.Flight
	history [modelKeys][]flight.EventKind
	ended   map[flight.SessionID]flight.Time // time until which the end is recorded
	first   int                              // number of the oldest session that has not ended
	number  int                              // of the step
	story   []string                         // the last steps, for the failure message
}

func (m *model) open() {
	cfg := memConfig(m.fs)
	cfg.Log.Trailing = uint64(1 + m.random.IntN(10_000))
	if m.random.IntN(3) == 0 {
		cfg.Memory.Flights = 1
	}
	s, err := Open(context.Background(), cfg)
	require.NoError(m.t, err)
	m.s = s
}

func (m *model) end() {
	if m.t.Failed() {
		for _, line := range m.story[max(0, len(m.story)-60):] {
			m.t.Log(line)
		}
	}
	if m.s != nil {
		_ = m.s.Close(context.Background())
	}
}

func (m *model) logf(format string, args ...any) {
	m.story = append(m.story, fmt.Sprintf(format, args...))
}

// body returns a body with a length at or near a limit.
func (m *model) body() flight.Blob {
	lengths := []int{0, 1, 100, maxInlineBody - 1, maxInlineBody, maxInlineBody + 1, 2048, 3072, maxInlineTotal - 1, maxInlineTotal, maxInlineTotal + 1, 9000}
	b := make([]byte, lengths[m.random.IntN(len(lengths))])
	for i := range b {
		b[i] = byte(m.random.Uint32())
	}
	return flight.NewBlob("text/plain", b, flight.MaxReceiptBody)
}

// step runs one command or one disk operation.
func (m *model) step() {
	m.number++
	n := m.random.IntN(modelKeys)
	switch k := m.random.IntN(20); {
	case k < 4:
		m.report(n)
	case k == 4:
		m.disk()
	case k == 16:
		m.endSession()
	case k == 17:
		if m.random.IntN(2) == 0 {
			m.closeSession()
			return
		}
		m.withdraw(n)
	case k == 5:
		time.Sleep(time.Duration(m.random.IntN(40)) * time.Second) // virtual time
		for n, f := range m.flights {
			if f != nil {
				m.propose(n, &flight.Expire{Key: testKey(n), Generation: f.Generation})
			}
		}
	default:
		m.propose(n, m.command(k, n))
	}
}

// command returns a command that needs no open attempt.
func (m *model) command(k, n int) flight.Command {
	key, generation, version := testKey(n), uint32(1), flight.Version{}
	if f := m.flights[n]; f != nil {
		generation, version = f.Generation, f.Version
	}
	switch k {
	case 6:
		return &flight.Cancel{Key: key, Generation: generation}
	case 7:
		return &flight.FreeKey{Key: key, Generation: generation}
	case 8:
		return &flight.Retry{Key: key, Generation: generation}
	case 9:
		return &flight.Redact{Key: key, Generation: generation}
	case 10:
		return &flight.Import{Key: key, Input: m.body(), Outcome: flight.OutcomeSucceeded, ExternalID: "x", Body: m.body(), Retention: time.Minute}
	case 11:
		return &flight.CountDuplicates{Key: key, ID: flight.CountID{Source: 1, Number: uint64(m.number)}, Stats: flight.DuplicateStats{Count: 1, First: 1, Last: 2}}
	case 12:
		verb := []flight.Finding{flight.FindingHappened, flight.FindingNotHappened}[m.random.IntN(2)]
		return &flight.Resolve{Key: key, Generation: generation, Version: version, Finding: verb, Body: m.body()}
	}
	header := m.s.Header()
	if k == 13 {
		used := m.number - m.random.IntN(20) // of an earlier Open, or of one that never comes
		return &flight.Abandon{Key: key, Nonce: nonce(used), NotAfter: m.s.Now().Add(10 * time.Second), StoreEpoch: header.StoreEpoch}
	}
	recovery := []flight.Recovery{flight.RecoveryHold, flight.RecoveryResend, flight.RecoveryVerify}[m.random.IntN(3)]
	return &flight.Open{
		Key: key, Submission: flight.Submission{Input: m.body(), Policy: flight.Policy{Recovery: recovery, Retention: time.Minute, AttemptTimeout: 30 * time.Second}},
		Session: m.session(), Nonce: nonce(m.number), NotAfter: m.s.Now().Add(10 * time.Second), StoreEpoch: header.StoreEpoch,
	}
}

// session returns one of a few sessions; the oldest may have ended.
func (m *model) session() flight.Session {
	return sessionOf(m.s, flight.SessionID(fmt.Sprint("session-", m.first+m.random.IntN(3))))
}

// endSession proposes the proof that a session has ended, or an invalid one.
func (m *model) endSession() {
	session := m.session()
	c := &flight.EndSession{Session: session, ReadRevision: session.Revision - int64(m.random.IntN(2)), Epoch: session.Epoch, StoreEpoch: m.s.Header().StoreEpoch}
	held, all := m.s.HeldBy(session.ID, flight.ID{}, modelKeys)
	require.Len(m.t, held, all)
	reply, err := m.s.Propose(context.Background(), c)
	require.NoError(m.t, err)
	m.logf("end of %s: %v, %d flights", session.ID, reply.Decision, len(reply.PerFlight))
	require.Equal(m.t, c.ReadRevision == session.Revision, reply.Decision == flight.DecisionAccepted)
	require.False(m.t, reply.More)
	if reply.Decision == flight.DecisionAccepted {
		require.Len(m.t, reply.PerFlight, all)
		m.remember(session.ID)
	}
	for _, ended := range reply.PerFlight {
		require.True(m.t, ended.Changed)
		m.record(m.numberOf(ended.Flight.ID), ended)
	}
}

func (m *model) numberOf(id flight.ID) int {
	return slices.IndexFunc(m.flights[:], func(f *flight.Flight) bool { return f != nil && f.ID == id })
}

func (m *model) withdraw(n int) {
	session := m.session()
	reply, err := m.s.Propose(context.Background(), &flight.WithdrawSession{Key: testKey(n), Session: session.ID, StoreEpoch: m.s.Header().StoreEpoch})
	require.NoError(m.t, err)
	m.logf("withdraw %s of %d: %v", session.ID, n, reply.Decision)
	holder := m.flights[n].Holder()
	require.Equal(m.t, holder != nil && holder.ID == session.ID, reply.Decision == flight.DecisionBusy)
	require.False(m.t, reply.Changed)
	if reply.Decision == flight.DecisionAccepted {
		m.remember(session.ID)
	}
}

// closeSession closes a session, which is accepted only if it holds no flight.
func (m *model) closeSession() {
	session := m.session()
	reply, err := m.s.Propose(context.Background(), &flight.CloseSession{Session: session.ID, StoreEpoch: m.s.Header().StoreEpoch})
	require.NoError(m.t, err)
	m.logf("close %s: %v", session.ID, reply.Decision)
	holds := slices.ContainsFunc(m.flights[:], func(f *flight.Flight) bool { h := f.Holder(); return h != nil && h.ID == session.ID })
	require.Equal(m.t, holds, reply.Decision == flight.DecisionBusy)
	if reply.Decision == flight.DecisionAccepted {
		m.remember(session.ID)
	}
}

// remember records that a session has ended.
func (m *model) remember(id flight.SessionID) {
	m.ended[id] = m.s.Header().Now.Add(flight.MaxOpenLife)
	m.first += m.random.IntN(2)
}

func (m *model) propose(n int, c flight.Command) {
	reply, err := m.s.Propose(context.Background(), c)
	require.NoError(m.t, err)
	if open, ok := c.(*flight.Open); ok && m.ended[open.Session.ID] >= m.s.Header().Now {
		require.NotEqual(m.t, flight.DecisionProceed, reply.Decision, "%s has ended", open.Session.ID)
	}
	m.logf("%T %d: %v, changed %v", c, n, reply.Decision, reply.Changed)
	m.record(n, reply)
}

// report ends an open attempt, by Propose or Report.
func (m *model) report(n int) {
	f := m.flights[n]
	if f == nil || f.OpenAttempt() == nil {
		return
	}
	outcomes := []flight.Outcome{flight.OutcomeSucceeded, flight.OutcomeSucceeded, flight.OutcomeRefused, flight.OutcomeNotDone, flight.OutcomeUnknown}
	r := &flight.Report{Key: f.Key, Generation: f.Generation, Token: f.OpenAttempt().Token(), Outcome: outcomes[m.random.IntN(len(outcomes))], Body: m.body()}
	if m.random.IntN(2) == 0 {
		m.propose(n, r)
		return
	}
	reply, err := m.s.Report(context.Background(), r)
	require.NoError(m.t, err)
	m.logf("report %d of %v: %v", n, r.Outcome, reply.Decision)
	m.record(n, reply)
}

// record records a reply. A tombstone has no history.
func (m *model) record(n int, reply flight.Reply) {
	was := m.flights[n]
	if reply.Changed && !reply.Deleted && reply.Flight.State == flight.StateExpired && (was == nil || was.State != flight.StateExpired) {
		m.history[n] = nil
	} else {
		for _, e := range reply.Events {
			m.history[n] = append(m.history[n], e.Kind)
		}
	}
	if reply.Flight != nil || reply.Deleted {
		m.flights[n] = reply.Flight
	}
}

// disk runs a disk operation of the store, or a crash.
func (m *model) disk() {
	ctx := context.Background()
	switch k := m.random.IntN(9); k {
	case 0, 1:
		m.logf("flush")
		m.s.fsm.flush()
	case 2:
		m.logf("flush into a table")
		m.s.fsm.flush()
		require.NoError(m.t, m.s.state.db.Flush(context.Background()))
	case 3:
		m.logf("compact")
		require.NoError(m.t, m.s.state.db.Compact(ctx, []byte{0}, []byte{255}, false))
	case 4:
		m.logf("snapshot")
		require.NoError(m.t, m.s.takeSnapshot())
	case 5:
		m.logf("scrub")
		_, err := m.s.Scrub(ctx)
		require.NoError(m.t, err)
	default:
		m.crash(k == 8)
	}
}

// crash keeps the synced data, and a random part of the rest.
func (m *model) crash(withoutState bool) {
	percent := m.random.IntN(101)
	m.logf("crash, %d %% of what was not synced is there", percent)
	crashed := m.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: m.random})
	require.NoError(m.t, m.s.Close(context.Background()))
	m.fs = crashed
	if withoutState {
		name, err := readFile(m.fs, "ledger/"+currentFile)
		require.NoError(m.t, err)
		m.logf("its state is lost: %s", name)
		require.NoError(m.t, m.fs.RemoveAll("ledger/"+string(bytes.TrimSpace(name))))
	}
	m.open()
	m.check()
}

// check compares everything.
func (m *model) check() {
	bodies := 0
	for n, want := range m.flights {
		got, err := m.s.Flight(testKey(n).FlightID())
		require.NoError(m.t, err)
		if want == nil {
			require.Nil(m.t, got)
			continue
		}
		require.NotNil(m.t, got)
		if !bytes.Equal(m.encoded(want), m.encoded(got)) {
			require.Equal(m.t, *want, *got, "flight %d", n)
		}
		bodies += m.checkBody(got, got.Generation, BodyInput, got.Input)
		bodies += m.checkReceipt(got, got.Generation, got.Receipt)
		for _, past := range got.PreviousGenerations {
			bodies += m.checkReceipt(got, past.Generation, past.Receipt)
		}
		history, err := m.s.History(got.ID)
		require.NoError(m.t, err)
		var kinds []flight.EventKind
		for _, e := range history {
			kinds = append(kinds, e.Kind)
		}
		require.Equal(m.t, m.history[n], kinds, "history of %d", n)
	}
	requireConsistent(m.t, m.s)
	require.Equal(m.t, bodies, m.keptBodies(), "the state holds exactly the bodies that the flights refer to")
	m.checkSessions()
}

// checkSessions compares the holders and the ended sessions.
func (m *model) checkSessions() {
	held := make(map[flight.SessionID][]flight.ID)
	for _, f := range m.flights {
		if holder := f.Holder(); holder != nil {
			held[holder.ID] = append(held[holder.ID], f.ID)
		}
	}
	all := 0
	for id, want := range held {
		got, n := m.s.HeldBy(id, flight.ID{}, modelKeys)
		require.Equal(m.t, len(want), n)
		require.ElementsMatch(m.t, want, got, "held by %s", id)
		all += n
	}
	require.Equal(m.t, all, m.s.HeldCount())
	require.Len(m.t, m.s.Holders(), len(held))
	now := m.s.Header().Now
	maps.DeleteFunc(m.ended, func(_ flight.SessionID, until flight.Time) bool { return until < now })
	got := make(map[flight.SessionID]flight.Time)
	for _, e := range m.s.fsm.sessions.EndedSessions() {
		if e.Until >= now { // the entry of a clock step leaves the others to the next entry
			got[e.ID] = e.Until
		}
	}
	require.Equal(m.t, m.ended, got, "the ended sessions")
}

func (m *model) encoded(f *flight.Flight) []byte {
	b, err := flight.EncodeRecord(f)
	require.NoError(m.t, err)
	return b
}

func (m *model) checkReceipt(f *flight.Flight, generation uint32, r *flight.Receipt) (kept int) {
	if r == nil {
		return m.checkBody(f, generation, BodyReceipt, flight.Blob{})
	}
	return m.checkBody(f, generation, BodyReceipt, r.Body)
}

// checkBody reads a body that the flight refers to, and counts it.
func (m *model) checkBody(f *flight.Flight, generation uint32, p BodyKind, b flight.Blob) (kept int) {
	body, err := m.s.Body(f.ID, generation, p)
	if b.StoredSize == 0 {
		require.Empty(m.t, body, "%s has no body %d of generation %d", f.Key, p, generation)
		return 0
	}
	require.NoError(m.t, err, "%s, body %d of generation %d", f.Key, p, generation)
	require.Equal(m.t, b.Digest, flight.NewBlob("text/plain", body, flight.MaxReceiptBody).Digest)
	return 1
}

// keptBodies counts the bodies in the state, inline and separate.
func (m *model) keptBodies() (kept int) {
	for key, row := range dump(m.t, m.s) {
		if key[0] != flightRows {
			continue
		}
		switch key[kindOffset] {
		case bodyRow:
			kept++
		case recordRow:
			r, err := decodeRecord([]byte(row))
			require.NoError(m.t, err)
			kept += len(r.bodies)
		}
	}
	return kept
}
