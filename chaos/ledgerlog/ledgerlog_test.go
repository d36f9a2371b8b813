package ledgerlog

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/flight"
)

// run writes two logs: that of a node with flights of all kinds and an undone saga, and that of a node which is a part behind.
func run(t *testing.T) (whole, behind string) {
	whole, behind = t.TempDir(), t.TempDir()
	var s *clusterstore.Store
	open := func() {
		var err error
		s, err = clusterstore.Open(context.Background(), clusterstore.Config{Dir: filepath.Join(whole, "ledger")})
		require.NoError(t, err)
	}
	do := func(want flight.Decision, c flight.Command) flight.Reply {
		reply, err := s.Propose(context.Background(), c)
		require.NoError(t, err)
		require.Equal(t, want, reply.Decision, "%T", c)
		return reply
	}
	opens := byte(0)
	start := func(key flight.Key, p flight.Policy) flight.Token {
		opens++
		c := &flight.Open{Key: key, Submission: flight.Submission{Policy: p}, Nonce: flight.Nonce{opens}, NotAfter: s.Now() + 20_000, StoreEpoch: 1}
		if !p.Saga {
			c.Session = flight.Session{ID: "a", Revision: 7, Epoch: 1}
		}
		return do(flight.DecisionProceed, c).Token
	}
	end := func(key flight.Key, generation uint32, token flight.Token, o flight.Outcome) *flight.Report {
		c := &flight.Report{Key: key, Generation: generation, Token: token, Outcome: o, Body: flight.NewBlob("text/plain", []byte(key.String()), 100)}
		do(flight.DecisionAccepted, c)
		return c
	}
	open()
	once, doubt := flight.MustKey("n/pay/once"), flight.MustKey("n/pay/doubt")
	late := *end(once, 1, start(once, flight.Policy{}), flight.OutcomeSucceeded)
	do(flight.DecisionAccepted, &late) // a repeat
	late.Token.Number, late.ExternalID = 9, "other"
	do(flight.DecisionFenced, &late)
	do(flight.DecisionAccepted, &flight.FreeKey{Key: once, Generation: 1, Actor: "ann", Reason: "again"})
	end(once, 2, start(once, flight.Policy{}), flight.OutcomeRefused)
	end(doubt, 1, start(doubt, flight.Policy{}), flight.OutcomeUnknown)
	f, err := s.Flight(doubt.FlightID())
	require.NoError(t, err)
	do(flight.DecisionAccepted, &flight.Resolve{Key: doubt, Generation: 1, Version: f.Version, Finding: flight.FindingNotHappened, Actor: "ann", Reason: "looked"})
	start(doubt, flight.Policy{})
	do(flight.DecisionAccepted, &flight.EndSession{Session: flight.Session{ID: "a", Revision: 7, Epoch: 1}, ReadRevision: 8, Epoch: 1, StoreEpoch: 1})
	require.NoError(t, s.Close(context.Background()))
	require.NoError(t, os.CopyFS(behind, os.DirFS(whole)))

	open()
	trip := flight.MustKey("n/trip/1")
	key := func(name string) flight.Key { k, err := trip.Step(name); require.NoError(t, err); return k }
	do(flight.DecisionAccepted, &flight.PutDocument{ID: flight.DefinitionID("n", "trip@1"), Body: []byte("{}")})
	do(flight.DecisionAccepted, &flight.Submit{Key: trip, Submission: flight.Submission{Policy: flight.Policy{Saga: true, Definition: "trip@1"}}})
	opens += 100
	driver := start(trip, flight.Policy{Saga: true, Definition: "trip@1"})
	use := func(name string, o flight.Outcome) {
		p := flight.Policy{Recovery: flight.RecoveryResend}
		do(flight.DecisionAccepted, &flight.Submit{Key: key(name), Submission: flight.Submission{Policy: p, Driver: driver}, Queue: &flight.Queue{Action: "trip." + name}})
		opens += 10
		c := &flight.Open{Key: key(name), Submission: flight.Submission{Policy: p}, Session: flight.Session{ID: "b", Revision: 9, Epoch: 1}, Nonce: flight.Nonce{opens},
			NotAfter: s.Now() + 20_000, StoreEpoch: 1}
		end(key(name), 1, do(flight.DecisionProceed, c).Token, o)
	}
	use("car", flight.OutcomeSucceeded)
	use("hotel", flight.OutcomeSucceeded)
	use("taxi", flight.OutcomeUnknown)
	do(flight.DecisionAccepted, &flight.Cancel{Key: trip, Generation: 1, Actor: "ann", Reason: "no"})
	c := &flight.Open{Key: key("taxi"), Session: flight.Session{ID: "b", Revision: 9, Epoch: 1}, Nonce: flight.Nonce{255}, NotAfter: s.Now() + 20_000, StoreEpoch: 1}
	end(key("taxi"), 1, do(flight.DecisionProceed, c).Token, flight.OutcomeSucceeded) // it was sent again, to find out
	do(flight.DecisionAccepted, &flight.BeginUndo{Key: trip, Generation: 1, Token: driver})
	use("taxi.undo", flight.OutcomeSucceeded)
	use("hotel.undo", flight.OutcomeSucceeded)
	use("car.undo", flight.OutcomeSucceeded)
	end(trip, 1, driver, flight.OutcomeRefused)
	require.NoError(t, s.Close(context.Background()))
	return whole, behind
}

func read(t *testing.T, dir string) *Log {
	l, err := Read(dir)
	require.NoError(t, err)
	return l
}

func TestARealLogIsClean(t *testing.T) {
	whole, behind := run(t)
	before := files(t, whole)
	a, b := read(t, whole), read(t, behind)
	require.Equal(t, before, files(t, whole), "Read has changed the directory")
	found, n := Check(&Collected{}, a, b)
	require.Empty(t, found)
	require.Equal(t, []int{1, 0, 1, 1, 1}, []int{n.Seen.Hazards[10], n.Seen.Hazards[5], n.Seen.Hazards[9], n.Seen.Hazards[42], len(n.Seen.Ends)})
	require.Equal(t, []int{1, 1, 12, 1}, []int{n.Seen.Events["lost"], n.Seen.Events["freed"], n.Seen.Answers["Open proceed"], n.Seen.Answers["Report fenced"]})
	lost := n.Seen.Lost[0]
	require.Equal(t, []any{1, "n/pay/doubt", uint32(2), sessionEnded}, []any{len(n.Seen.Lost), lost.Key, lost.Number, lost.Cause})
	require.Equal(t, []any{a.Images[0].Applied.Index, uint64(0), 2, 12, 11}, []any{n.To, n.Missing, n.States, n.Seen.Events["opened"], n.Seen.Events["reported"]})

	a.Entries, b.Entries = a.Entries[5:], b.Entries[5:] // compacted: the states remain
	found, n = Check(&Collected{}, a, b)
	require.Empty(t, found)
	require.Equal(t, b.Images[0].Applied.Index, n.Missing)
	require.Equal(t, []int{2, 8}, []int{n.States, n.Seen.Events["opened"]})

	collected := &Collected{}
	require.NoError(t, collected.Add(behind))
	known := len(collected.newest().Entries)
	require.NoError(t, collected.Add(whole))
	require.Greater(t, len(collected.newest().Entries), known)
	found, n = Check(collected, a, b)
	require.Empty(t, found)
	require.Zero(t, n.Missing, "what was collected stands for what was compacted")

	a, b = read(t, whole), read(t, behind)
	at := int(b.Images[0].Applied.Index)
	parts := &Collected{parts: []*Log{{Entries: a.Entries[:at-3]}, {Images: b.Images[:1], Entries: a.Entries[at-1 : at]}}}
	a.Entries = a.Entries[at:]
	found, n = Check(parts, a)
	require.Empty(t, found)
	require.Equal(t, []int{3, 11, 2}, []int{int(n.Missing), n.Seen.Events["opened"], n.States}, "each part is judged; one open is in between")

	collected.newest().Entries = collected.newest().Entries[:3]
	a, b = read(t, whole), read(t, behind)
	a.Entries = a.Entries[2:]
	collected.newest().Entries[2].Term++
	found, _ = Check(collected, a, b)
	require.NotEmpty(t, found, "the node had applied another entry before")

	s, err := clusterstore.Open(context.Background(), clusterstore.Config{Dir: filepath.Join(behind, "ledger")})
	require.NoError(t, err)
	_, err = Read(behind)
	require.Error(t, err, "a process has it open")
	require.NoError(t, s.Close(context.Background()))

	empty := t.TempDir()
	_, err = Read(empty)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.Empty(t, files(t, empty))
}

// files returns the contents of all files but the locks.
func files(t *testing.T, dir string) map[string]string {
	all := make(map[string]string)
	require.NoError(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && d.Name() != "LOCK" {
			b, err := os.ReadFile(path)
			all[path] = string(b)
			return err
		}
		return err
	}))
	return all
}

func TestDamagedLogsAreFound(t *testing.T) {
	whole, behind := run(t)
	for rule, damage := range map[string]func(a, b *Log){
		"one log":       func(_, b *Log) { b.Entries[4].Data[12] ^= 1 },
		"one log ":      func(_, b *Log) { b.Entries[4].Term++ },
		"same state":    func(a, _ *Log) { clear(a.Images[0].Flights) },
		"same state ":   func(_, b *Log) { b.Images[0].Header.GuardCounter++ },
		"same state  ":  func(a, b *Log) { a.Entries[9].Type, b.Entries[9].Type = 1, 1 },
		"same state   ": func(a, _ *Log) { a.Images[0].Ended = nil },
		"readable log":  func(a, b *Log) { a.Entries[4].Data, b.Entries[4].Data = a.Entries[4].Data[:12], b.Entries[4].Data[:12] },
	} {
		a, b := read(t, whole), read(t, behind)
		damage(a, b)
		found, _ := Check(&Collected{}, a, b)
		require.True(t, slices.ContainsFunc(found, func(v Violation) bool { return v.Rule == strings.TrimSpace(rule) }), "%s: %v", rule, found)
	}
}

func TestBrokenPromisesAreFound(t *testing.T) {
	whole, _ := run(t)
	log := read(t, whole)
	var steps []*step
	at := func(key, command string, nth int) int {
		for i, s := range steps {
			if s.key.String() == key && fmt.Sprintf("%T", s.command) == "*flight."+command {
				if nth--; nth < 0 {
					return i
				}
			}
		}
		t.Fatal(key, command, nth)
		return -1
	}
	edit := func(i int, change func(f *flight.Flight)) { // the flight after a step
		f := *steps[i].reply.Flight
		change(&f)
		steps[i].reply.Flight, steps[i].after.Flight = &f, &f
	}
	move := func(from, n, to int) { // n steps behind another one
		moved := slices.Clone(steps[from : from+n])
		steps = slices.Insert(slices.Delete(steps, from, from+n), to-n+1, moved...)
	}
	again := func(i int) *step { // a copy of a step, behind it
		copied := *steps[i]
		steps = slices.Insert(steps, i+1, &copied)
		return &copied
	}
	const once, doubt, trip = "n/pay/once", "n/pay/doubt", "n/trip/1"
	for _, c := range []struct {
		rule, name string
		damage     func()
	}{
		{"one open attempt", "granted to two nonces", func() {
			s := again(at(doubt, "Open", 1))
			open := *s.command.(*flight.Open)
			open.Nonce, s.command, s.reply.Events = flight.Nonce{99}, &open, nil
		}},
		{"one open attempt", "two are open", func() { steps = slices.Delete(steps, at(doubt, "Report", 0), at(doubt, "Report", 0)+1) }},
		{"one open attempt", "a nonce opens twice", func() {
			steps[at(once, "Open", 1)].command.(*flight.Open).Nonce = steps[at(once, "Open", 0)].command.(*flight.Open).Nonce
		}},
		{"fencing token", "it stays", func() { steps[at(once, "Open", 1)].reply.Token.Number = 1 }},
		{"fencing token", "it falls to an older store epoch", func() { steps[at(once, "Open", 1)].reply.Token.StoreEpoch = 0 }},
		{"accepted report", "of an attempt that is not the newest", func() { steps[at(once, "Report", 3)].command.(*flight.Report).Token.Number-- }},
		{"accepted report", "after the end", func() { again(at(once, "Report", 3)) }},
		{"accepted report", "a repeat with an effect", func() { steps[at(once, "Report", 1)].reply.Changed = true }},
		{"receipt kept", "another digest", func() {
			edit(at(once, "Report", 1), func(f *flight.Flight) { r := *f.Receipt; r.Body.Digest[0]++; f.Receipt = &r })
		}},
		{"receipt kept", "gone", func() { edit(at(once, "Report", 1), func(f *flight.Flight) { f.Receipt = nil }) }},
		{"receipt kept", "gone from the earlier generations", func() {
			edit(at(once, "Open", 1), func(f *flight.Flight) { f.PreviousGenerations = []flight.PreviousGeneration{{Generation: 1}} })
		}},
		{"receipt kept", "not that of the report", func() { steps[at(once, "Report", 0)].command.(*flight.Report).Body.Digest[0]++ }},
		{"no way back", "an ended flight runs", func() { edit(at(once, "Report", 1), func(f *flight.Flight) { f.State = flight.StateRunning }) }},
		{"no way back", "an older version", func() { edit(at(once, "Report", 1), func(f *flight.Flight) { f.Version.Index-- }) }},
		{"no way back", "a generation that nobody asked for", func() { steps[at(once, "FreeKey", 0)].command.(*flight.FreeKey).Actor = "" }},
		{"no way back", "forgotten", func() { s := again(at(once, "Report", 1)); s.reply.Flight = nil }},
		{"end of a doubt", "without a reason", func() { steps[at(doubt, "Resolve", 0)].command.(*flight.Resolve).Reason = "" }},
		{"end of a doubt", "by a clock", func() { s := steps[at(doubt, "Resolve", 0)]; s.command = &flight.WakeUp{Key: s.key, Generation: 1} }},
		{"phase of a saga", "by a cancel", func() { s := steps[at(trip, "BeginUndo", 0)]; s.command = &flight.Cancel{Key: s.key, Generation: 1} }},
		{"phase of a saga", "committed after the flip", func() {
			edit(at(trip, "Report", 0), func(f *flight.Flight) { f.Phase = flight.PhaseCommitted })
			s := steps[at(trip, "Report", 0)]
			s.command = &flight.PassPivot{Key: s.key, Generation: 1}
		}},
		{"undo after step", "before the flip", func() { move(at(trip, "BeginUndo", 0), 1, len(steps)-1) }},
		{"undo after step", "before the end of the step", func() { move(at(trip+"#car", "Report", 0), 1, len(steps)-1) }},
		{"undo after step", "of a step that has not happened", func() {
			edit(at(trip+"#car", "Report", 0), func(f *flight.Flight) { f.State, f.Unknown = flight.StateCancelled, true })
		}},
		{"nothing after mark", "a step opens after the cancel", func() { move(at(trip+"#car", "Open", 0), 2, at(trip, "Cancel", 0)) }},
		{"nothing after mark", "a step goes on after the flip", func() { move(at(trip+"#taxi", "Open", 1), 2, at(trip, "BeginUndo", 0)) }},
		{"order of undos", "that of the first step first", func() { move(at(trip+"#hotel.undo", "Submit", 0), 3, at(trip+"#car.undo", "Report", 0)) }},
		{"order of undos", "two at once", func() { move(at(trip+"#hotel.undo", "Report", 0), 1, len(steps)-1) }},
		{"step", "a change that is not stored", func() { steps[at(doubt, "Resolve", 0)].reply.Changed = false }},
	} {
		t.Run(c.rule+": "+c.name, func(t *testing.T) {
			var found []Violation
			j := &judge{report: func(v Violation) { found = append(found, v) }, accounts: make(map[flight.ID]*account), undos: make(map[flight.Key][]*account)}
			l, err := newLedger(new(clusterstore.Image), j, nil)
			require.NoError(t, err)
			steps = nil
			for i := range log.Entries {
				require.NoError(t, l.apply(&log.Entries[i], func(s *step) { steps = append(steps, s) }))
			}
			c.damage()
			for _, s := range steps {
				j.judge(s)
			}
			require.True(t, slices.ContainsFunc(found, func(v Violation) bool { return v.Rule == c.rule }), "%v", found)
		})
	}
}
