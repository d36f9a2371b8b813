// Package ledgerlog checks what the nodes of a cluster have written, after their processes have ended: their logs are one log,
// each node's stored state is the one that this log makes, and no command in it broke a promise.
//
// Check applies the common log in memory, by the rules of package flight, but without the code of the nodes, which has tables,
// caches and rows. At the entry of each stored state and snapshot it compares every flight, the header, the ended sessions and their flights;
// bodies, histories, documents and counts of duplicates are not compared. Each command is judged by package flighttest, which
// knows the rules, and by judge.go, which knows the promises.
//
// The nodes of a long run keep neither the beginning of the log nor the states of that time: what followers have written is Collected during the run. Where
// entries are missing all the same, Check goes on from the next state or snapshot after which the log is whole; Counts.Missing counts them.
package ledgerlog

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/flight"
)

// Log is what one node has written.
type Log = clusterstore.Inspection

// Read reads the ledger in the data directory of a node whose process has ended, and changes nothing in it.
func Read(data string) (*Log, error) { return clusterstore.Inspect(filepath.Join(data, "ledger"), 0) }

// Collected is what the nodes have applied, put together from several of them during a run: parts between which entries are missing. Each
// part but the first goes on from its only image. The zero value is empty.
type Collected struct {
	parts []*Log
	gaps  int // nodes in a row that lacked the entry after the last one
}

// newest returns the part that Add goes on with.
func (c *Collected) newest() *Log {
	if len(c.parts) == 0 {
		c.parts = []*Log{{}}
	}
	return c.parts[len(c.parts)-1]
}

// Add adds what a node has applied since; data is a copy of its directory, or the directory when its process has ended. A node that has
// received a snapshot lacks entries that others have; if the next node lacks them, too, another part begins from its state.
func (c *Collected) Add(data string) error {
	part, next := c.newest(), uint64(1)
	if n := len(part.Entries); n > 0 {
		next = part.Entries[n-1].Index + 1
	}
	log, err := clusterstore.Inspect(filepath.Join(data, "ledger"), next)
	if err != nil || len(log.Entries) == 0 {
		return err
	}
	if log.Entries[0].Index == next {
		part.Entries, c.gaps = append(part.Entries, log.Entries...), 0
		return nil
	}
	if c.gaps++; c.gaps == 1 {
		return nil
	}
	if log, err = Read(data); err != nil {
		return err
	}
	log.Images, c.gaps = log.Images[:1], 0
	log.Entries = slices.DeleteFunc(log.Entries, func(e clusterstore.LogEntry) bool { return e.Index > log.Images[0].Applied.Index })
	c.parts = append(c.parts, log)
	return nil
}

// Violation is a promise that the log breaks.
type Violation struct {
	Rule  string
	Key   string // "": it is about no key
	Index uint64 // of the entry
	Text  string
}

func (v Violation) String() string {
	return fmt.Sprintf("%s: %s at entry %d: %s", v.Rule, v.Key, v.Index, v.Text)
}

// Counts says what Check has looked at.
type Counts struct {
	To, Missing uint64 // the last entry that was applied, and how many before it were not
	States      int    // stored states and snapshots that were compared
	Commands    int
	Seen        Seen
}

// Check judges the logs of all nodes of one cluster, and what was collected of them before.
func Check(collected *Collected, logs ...*Log) (found []Violation, n Counts) {
	c := &check{n: &n, report: func(v Violation) { found = append(found, v) }, watch: newWatch(&n.Seen)}
	newest := collected.newest()
	for _, part := range collected.parts[:len(collected.parts)-1] {
		c.part(part)
	}
	c.part(newest, logs...)
	return found, n
}

// check is what Check does.
type check struct {
	n      *Counts
	report func(Violation)
	watch  *watch
}

// part judges a part of the log: what was collected of it, and what nodes have of it now.
func (c *check) part(collected *Log, logs ...*Log) {
	n, before := c.n, c.n.To
	log := mergeLogs(collected.Entries, logs, c.report)
	base, images := &clusterstore.Image{}, []*clusterstore.Image(nil)
	for _, l := range append([]*Log{collected}, logs...) {
		for i := range l.Images {
			images = append(images, &l.Images[i])
			n.To = max(n.To, l.Images[i].Applied.Index)
		}
	}
	slices.SortStableFunc(images, func(a, b *clusterstore.Image) int { return cmp.Compare(a.Applied.Index, b.Applied.Index) })
	for index := uint64(1); index <= n.To; index++ {
		if log[index] == nil { // the first state that needs none of the entries up to here
			base = images[slices.IndexFunc(images, func(im *clusterstore.Image) bool { return im.Applied.Index >= index })]
		}
	}
	for log[n.To+1] != nil {
		n.To++
	}
	n.Missing += max(base.Applied.Index, before) - before

	j := &judge{report: c.report, accounts: make(map[flight.ID]*account), undos: make(map[flight.Key][]*account)}
	l, err := newLedger(base, j, n.Seen.Ends)
	index := base.Applied.Index
	for err == nil {
		for ; len(images) > 0 && images[0].Applied.Index <= index; images = images[1:] {
			if images[0].Applied.Index == index { // else entries are missing before it
				l.compare(images[0], index, c.report)
				n.States++
			}
		}
		if index++; index > n.To {
			return
		}
		c.watch.term = log[index].Term
		err = l.apply(log[index], func(s *step) { n.Commands++; j.judge(s); c.watch.step(s) })
		n.Seen.Ends = l.ends
	}
	c.report(Violation{"readable log", "", index, err.Error()})
}

// mergeLogs compares the logs and returns the common one. Two entries of one index and term are the same, and so are those that
// two nodes have both applied: up to the entry of its state, unless a snapshot has replaced its log. The entries after the last
// applied one are those of the node that has applied most. They may not be committed, but a leader could commit them.
func mergeLogs(collected []clusterstore.LogEntry, logs []*Log, report func(Violation)) map[uint64]*clusterstore.LogEntry {
	applied := func(l *Log) uint64 {
		if len(l.Images) > 0 && slices.ContainsFunc(l.Entries, func(e clusterstore.LogEntry) bool { return e.EntryID == l.Images[0].Applied }) {
			return l.Images[0].Applied.Index
		}
		return 0
	}
	logs = slices.SortedStableFunc(slices.Values(logs), func(a, b *Log) int { return cmp.Compare(applied(b), applied(a)) })
	merged := make(map[uint64]*clusterstore.LogEntry)
	for i := range collected {
		merged[collected[i].Index] = &collected[i]
	}
	for i, l := range logs {
		last := applied(l)
		for k := range l.Entries {
			e := &l.Entries[k]
			other := merged[e.Index]
			if other == nil && (i == 0 || e.Index <= last) {
				merged[e.Index] = e
			}
			if other == nil {
				continue
			}
			if same := e.Term == other.Term; same && (e.Type != other.Type || !bytes.Equal(e.Data, other.Data)) || !same && e.Index <= last {
				report(Violation{"one log", "", e.Index, fmt.Sprintf("node %s has an entry of term %d and %d bytes, another node one of term %d and %d bytes",
					l.Node, e.Term, len(e.Data), other.Term, len(other.Data))})
			}
		}
	}
	return merged
}

// step is one command as it was applied to one flight, or to the header.
type step struct {
	at            flight.Version
	key           flight.Key
	command       flight.Command
	before, after flight.View
	reply         flight.Reply
}

// ledger applies the commands of a log in memory.
type ledger struct {
	documents flight.Documents

	header   flight.Header
	flights  map[flight.ID]*flight.Flight // without the bytes of bodies
	sessions *flight.Sessions
	due      *flight.Due
	ends     []flight.Time             // of the sessions whose end was proved
	touched  map[flight.Version]string // as in clusterstore.Image
}

func newLedger(from *clusterstore.Image, j *judge, ends []flight.Time) (*ledger, error) {
	l := &ledger{header: from.Header, flights: make(map[flight.ID]*flight.Flight), sessions: flight.NewSessions(), due: flight.NewDue(), touched: make(map[flight.Version]string), ends: ends}
	maps.Copy(l.touched, from.Touched)
	for id, record := range from.Flights {
		f := new(flight.Flight)
		if err := flight.DecodeRecord(record, f); err != nil {
			return nil, err
		}
		l.flights[id] = f
		l.sessions.Update(nil, f)
		l.due.Update(nil, f)
		j.adopt(f)
	}
	for _, doc := range from.Documents {
		l.documents.Restore(doc)
	}
	for _, e := range slices.SortedStableFunc(slices.Values(from.Ended), func(a, b flight.EndedSession) int { return cmp.Compare(a.Until, b.Until) }) {
		l.sessions.RestoreEnded(e)
	}
	return l, nil
}

// apply applies an entry and calls see with each step.
func (l *ledger) apply(e *clusterstore.LogEntry, see func(*step)) error {
	now, wall, commands, err := e.Decode()
	if err != nil || now == 0 {
		return err
	}
	l.header.Now, l.header.Wall = max(l.header.Now, now), wall
	l.sessions.ForgetExpired(l.header.Now)
	for pos, c := range commands {
		l.header.Version = flight.Version{Index: e.Index, Pos: uint32(pos)}
		switch c := c.(type) {
		case *flight.PutDocument, *flight.DeleteDocument:
			l.documents.Apply(&l.header, l.due, c)
		case *flight.EndSession:
			if c.Admit(&l.header) == flight.DecisionAccepted {
				if !l.sessions.HasEnded(c.Session.ID, l.header.Now) {
					l.ends = append(l.ends, l.header.Now)
				}
				l.sessions.MarkEnded(c.Session.ID, l.header.Now)
				held, _ := l.sessions.HeldFlights(c.Session.ID, flight.ID{}, flight.MaxEndSessionFlights)
				for _, id := range held {
					if reply := l.applyTo(l.flights[id].Key, c, see); len(reply.Events) > 0 {
						l.touched[l.header.Version] += string(id[:])
					}
				}
			}
		case *flight.CloseSession:
			if _, held := l.sessions.HeldFlights(c.Session, flight.ID{}, 0); c.Admit(&l.header, held) == flight.DecisionAccepted {
				l.sessions.MarkEnded(c.Session, l.header.Now)
			}
		default:
			reply := l.applyTo(c.Target(), c, see)
			if w, ok := c.(*flight.WithdrawSession); ok && reply.Decision == flight.DecisionAccepted {
				l.sessions.MarkEnded(w.Session, l.header.Now)
			}
		}
	}
	return nil
}

func (l *ledger) applyTo(key flight.Key, c flight.Command, see func(*step)) flight.Reply {
	id := key.FlightID()
	s := &step{at: l.header.Version, key: key, command: c, before: flight.View{Header: l.header, Flight: l.flights[id], NoDefinition: l.documents.LackDefinition(c)}}
	if key.IsStep() {
		s.before.Saga = l.flights[key.Saga().FlightID()]
	}
	if open, ok := c.(*flight.Open); ok {
		s.before.SessionEnded, s.before.LaneBlocked = l.sessions.HasEnded(open.Session.ID, l.header.Now), l.due.LaneBlocks(id)
	}
	s.after, s.reply = flight.Apply(s.before, c)
	see(s)
	l.header = s.after.Header
	switch f := s.after.Flight; {
	case s.reply.Deleted:
		delete(l.flights, id)
	case s.reply.Changed:
		stored := *f
		stored.Input.Data = nil
		if r := f.Receipt; r != nil && r.Body.Data != nil {
			without := *r
			without.Body.Data = nil
			stored.Receipt = &without
		}
		l.sessions.Update(s.before.Flight, &stored)
		l.due.Update(s.before.Flight, &stored)
		l.flights[id] = &stored
	}
	return s.reply
}

// compare compares the ledger with a stored state of the same entry.
func (l *ledger) compare(im *clusterstore.Image, index uint64, report func(Violation)) {
	differs := func(key, text string) { report(Violation{"same state", key, index, text}) }
	ended := make(map[flight.EndedSession]int)
	for _, e := range l.sessions.EndedSessions() {
		ended[e]++
	}
	for _, e := range im.Ended {
		ended[e]--
	}
	maps.DeleteFunc(ended, func(_ flight.EndedSession, n int) bool { return n == 0 })
	want, err := flight.EncodeRecord(&l.header)
	if got, err2 := flight.EncodeRecord(&im.Header); err != nil || err2 != nil || !bytes.Equal(want, got) {
		differs("", "the header of a stored state differs from that of the log") // not shown: it has the secret
	}
	if len(ended) > 0 {
		differs("", "a stored state has other ended sessions than the log")
	}
	if !maps.Equal(l.touched, im.Touched) {
		differs("", "a stored state names other flights of ended sessions than the log, or in another order")
	}
	for id, f := range l.flights {
		without, got := *f, flight.Flight{}
		without.Duplicates = nil
		if want, err := flight.EncodeRecord(&without); err != nil || !bytes.Equal(want, im.Flights[id]) {
			err := flight.DecodeRecord(im.Flights[id], &got)
			differs(f.Key.String(), fmt.Sprintf("%v of version %v by the log, %v of version %v in a stored state (%v)", f.State, f.Version, got.State, got.Version, err))
		}
	}
	for id := range im.Flights {
		if l.flights[id] == nil {
			differs(id.String(), "a stored state has a flight that the log does not make")
		}
	}
}
