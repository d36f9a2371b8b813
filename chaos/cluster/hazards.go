package cluster

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/flightd/flightd/chaos/ledgerlog"
	"github.com/flightd/flightd/chaos/linear"
	"github.com/flightd/flightd/chaos/report"
	"github.com/flightd/flightd/flight"
)

// evidence is what hazards are counted by.
type evidence struct {
	*History
	faults  []report.Fault
	log     *ledgerlog.Seen
	arrived map[string]Effect // the first request of each attempt, by attemptName
}

// hazard is a row of docs/hazards.md.
type hazard struct {
	number int
	text   string // with which the row begins
	how    string // it is met, or why not, and the test that shows it
	count  func(e *evidence) int
}

func attemptName(key string, number uint32) string { return fmt.Sprint(key, " ", number) }

// numberOf returns the attempt of a request; 0: it does not say. A sealed token begins with the store epoch and the number, in hex.
func numberOf(e *Effect) uint32 {
	if len(e.FencingToken) < 16 {
		return 0
	}
	number, _ := strconv.ParseUint(e.FencingToken[8:16], 16, 32)
	return uint32(number)
}

// hazards says how often a run met each hazard.
func hazards(h *History, faults []report.Fault, log *ledgerlog.Seen) (rows []report.Hazard) {
	e := &evidence{History: h, faults: faults, log: log, arrived: make(map[string]Effect)}
	for i := range h.Effects {
		name := attemptName(h.Effects[i].Key, numberOf(&h.Effects[i]))
		if first, known := e.arrived[name]; !known || h.Effects[i].At.Before(first.At) {
			e.arrived[name] = h.Effects[i]
		}
	}
	for _, row := range allHazards() {
		r := report.Hazard{Number: row.number, Text: row.text, How: row.how}
		if row.count != nil {
			r.Met = row.count(e)
		}
		rows = append(rows, r)
	}
	return rows
}

// during counts the effects and the calls that were under way in a fault of some kinds that bit, or at its beginning.
func (e *evidence) during(atBegin, calls bool, kinds ...string) (count int) {
	for i := range e.faults {
		f := &e.faults[i]
		until := f.Healed
		if atBegin {
			until = f.Began
		}
		if f.Bites == 0 || !slices.Contains(kinds, f.Kind) {
			continue
		}
		for _, x := range e.Effects {
			count += boolInt(!x.Repeat && x.At.Before(until) && x.At.Add(x.Lasts).After(f.Began))
		}
		for n := range e.Calls {
			count += boolInt(calls && e.Calls[n].Began.Before(until) && e.Calls[n].Ended.After(f.Began))
		}
	}
	return count
}

// bitten counts the faults that were seen to do something, by the beginnings of their kinds.
func (e *evidence) bitten(kinds ...string) (count int) {
	for i := range e.faults {
		count += boolInt(e.faults[i].Bites > 0 && slices.ContainsFunc(kinds, func(kind string) bool { return strings.HasPrefix(e.faults[i].Kind, kind) }))
	}
	return count
}

// lost counts lost attempts.
func (e *evidence) lost(is func(l *ledgerlog.LostAttempt, request *Effect) bool) (count int) {
	for _, l := range e.log.Lost {
		var request *Effect
		if x, known := e.arrived[attemptName(l.Key, l.Number)]; known {
			request = &x
		}
		count += boolInt(is(l, request))
	}
	return count
}

// killed reports whether a process was killed at a moment for which is holds.
func (e *evidence) killed(name string, is func(at time.Time) bool) bool {
	return slices.ContainsFunc(e.faults, func(f report.Fault) bool { return f.Kind == "worker killed" && f.Victim == name && is(f.Began) })
}

// logged counts a hazard as the log shows it.
func logged(number int) func(*evidence) int {
	return func(e *evidence) int { return e.log.Hazards[number] }
}

// overtaken counts lost attempts whose caller found out after the next one had opened, before or while it sent.
func overtaken(e *evidence) int {
	return e.lost(func(l *ledgerlog.LostAttempt, request *Effect) bool {
		next, known := e.arrived[attemptName(l.Key, l.Next)]
		return l.Next > 0 && !l.SameSession && (l.GivenUp || request != nil && known && request.At.After(next.At))
	})
}

// behind counts answers of nodes that did not know what another client had been told before the question.
func behind(e *evidence) (count int) {
	latest := make(map[string][]linear.Op)
	for i := range e.Ops {
		latest[e.Ops[i].Key] = append(latest[e.Ops[i].Key], e.Ops[i])
	}
	version := func(o *linear.Op) (v flight.Version) {
		if o.Answer != nil {
			v, _ = flight.ParseVersion(o.Answer.Version) // zero for a key that was never used
		}
		return v
	}
	for i := range e.Ops {
		o := &e.Ops[i]
		count += boolInt(o.Stale && o.Answer != nil && slices.ContainsFunc(latest[o.Key], func(p linear.Op) bool { return p.End < o.Start && version(&p).After(version(o)) }))
	}
	return count
}

// replayedErrors counts repeats that the provider answered with the error that it had stored.
func replayedErrors(e *evidence) (count int) {
	failed := make(map[string]bool)
	for _, x := range e.Effects {
		failed[x.IdempotencyKey] = failed[x.IdempotencyKey] || !x.Repeat && x.Trouble == string(troubleErrors)
		count += boolInt(x.Repeat && failed[x.IdempotencyKey])
	}
	return count
}

// afterUndo counts the effects of steps that happened after the step's undo.
func afterUndo(e *evidence) (count int) {
	undone := make(map[string]time.Time)
	for _, x := range e.Effects {
		if step, isUndo := strings.CutSuffix(x.Key, ".undo"); isUndo && undone[step].IsZero() {
			undone[step] = x.At
		}
	}
	for _, x := range e.Effects {
		count += boolInt(!x.Repeat && !undone[x.Key].IsZero() && x.At.After(undone[x.Key]))
	}
	return count
}

const (
	noEtcd      = "etcd has no majority for a time"
	notRestored = "not met here: no fault puts etcd or the ledger of all nodes back; shown by "
	withTimeOut = "jobs with a time-out, whose handlers hang: "
)

// allHazards returns the rows H1 to H43. The counts of the log are those of the part that the nodes still have.
func allHazards() []hazard {
	withoutEtcd := []string{"no majority at all", "most nodes killed", "all nodes killed", "power cut at all nodes at once", "all of etcd frozen", "etcd's members cut off from each other"}
	return []hazard{
		{1, "A caller pauses between its claim and its open.", "calls and workers, frozen or cut off: opens under an ended session, of a key that another one has opened", logged(1)},
		{2, "A caller pauses after its open was granted and before it sends.", "workers frozen for up to three sessions: a lost attempt whose caller gave up, or sent, after the next one had opened", overtaken},
		{3, "A caller dies while it sends.", "workers killed: a lost attempt without a report, whose request was at the provider at that moment", func(e *evidence) int {
			return e.lost(func(l *ledgerlog.LostAttempt, x *Effect) bool {
				return !l.Reported && x != nil && e.killed(l.Owner, func(at time.Time) bool { return at.After(x.At) && at.Before(x.At.Add(x.Lasts)) })
			})
		}},
		{4, "A caller dies after the effect and before its report.", "workers killed: a lost attempt without a report, whose effect is in the provider's books", func(e *evidence) int {
			return e.lost(func(l *ledgerlog.LostAttempt, x *Effect) bool {
				return !l.Reported && x != nil && e.killed(l.Owner, func(at time.Time) bool { return at.After(x.At) })
			})
		}},
		{5, "A report arrives after a later attempt has opened.", "workers and callers frozen, handlers that hang: reports kept as evidence", logged(5)},
		{6, "A report arrives after its session has ended and before another attempt opens.", "workers and callers frozen: accepted reports of lost attempts", logged(6)},
		{7, "The session ends while the open waits to be committed.", "no majority, frozen callers: opens after the end of their session, and lost attempts whose caller then said that nothing was sent", logged(7)},
		{8, "The answer to an open is lost.", "nodes killed or cut off under all workloads: granted opens that were asked again or given up", logged(8)},
		{9, "The answer to a report is lost.", "nodes killed or cut off under all workloads: reports that had been accepted before", logged(9)},
		{10, "A command is committed twice.", "nodes killed or cut off under all workloads: commands that are in the log again", logged(10)},
		{11, "Two goroutines, or two nodes, ask for one key under one session.", "keys shared by four callers: calls that joined another one, and opens under the session that holds the key", func(e *evidence) (count int) {
			for i := range e.Calls {
				count += boolInt(e.Calls[i].Source == "joined")
			}
			return count + e.log.Hazards[11]
		}},
		{12, "A session opens a key again while its earlier handler still runs.", withTimeOut + "attempts under the same session as one whose handler hung, or that were lost and reported later", func(e *evidence) int {
			return e.log.Hazards[12] + e.lost(func(l *ledgerlog.LostAttempt, _ *Effect) bool { return l.SameSession && l.Reported })
		}},
		{13, "etcd is unreachable in the middle of an effect.", noEtcd + ": effects under way then", func(e *evidence) int { return e.during(false, false, withoutEtcd...) }},
		{14, "The ledger is unreachable, and etcd answers.", "no majority of the ledger: calls and effects under way then", func(e *evidence) int { return e.during(false, true, "no majority of the ledger") }},
		{15, "Renewals arrive at etcd, and their answers do not come back.", "a node cut off from what others send: faults that dropped packets", func(e *evidence) int { return e.bitten("node cut off from what others send") }},
		{16, "A handler hangs while its session is renewed.", withTimeOut + "reports that say so, and attempts that the ledger ended", func(e *evidence) int {
			return e.log.Hazards[16] + e.lost(func(l *ledgerlog.LostAttempt, _ *Effect) bool { return l.Cause == "its time-out is over" })
		}},
		{17, "The session of a dead caller does not expire.", "workers killed while " + noEtcd + ": their lost attempts", func(e *evidence) int {
			return e.lost(func(l *ledgerlog.LostAttempt, _ *Effect) bool {
				return e.killed(l.Owner, func(at time.Time) bool {
					return slices.ContainsFunc(e.faults, func(f report.Fault) bool {
						return f.Bites > 0 && slices.Contains(withoutEtcd, f.Kind) && f.Began.Before(at.Add(workerSession)) && f.Healed.After(at)
					})
				})
			})
		}},
		{18, "Many leases expire at once.", noEtcd + ", callers frozen: sessions that ended within a second with four others", func(e *evidence) int { return e.log.EndedTogether(4) }},
		{19, "A watch misses an event.", "not met here: what a watch has missed is not seen from outside; shown by TestHazard19_", nil},
		{20, "etcd is restored from a backup.", notRestored + "TestHazard20_", func(e *evidence) int { return e.log.Answers["RaiseEpoch accepted"] }},
		{21, "A restored etcd brings a session back to life.", notRestored + "TestHazard21_", nil},
		{22, "The ledger is restored from a backup.", notRestored + "TestHazard22_", nil},
		{23, "etcd and the ledger are restored to different times.", "not met here: docs/hazards.md has no such row; it is H20 and H22 at once", nil},
		{24, "A majority of the ledger is lost for good.", "not met here: docs/hazards.md has no such row; every node that is lost is replaced", nil},
		{25, "The wall clock jumps ahead.", "a node six hours ahead under all workloads: jumps that other nodes saw", func(e *evidence) int { return e.bitten("clock six hours ahead") }},
		{26, "The wall clock jumps back.", "a node six hours behind under all workloads: jumps that other nodes saw", func(e *evidence) int { return e.bitten("clock six hours behind") }},
		{27, "The machine sleeps.", "not met here: all hosts share the machine's clocks, which go on while a process is frozen; shown by TestHazard02_07_27_", nil},
		{28, "Raft answers with an error although the entry may be committed.", "leaders killed or cut off under all workloads: commands that are in the log again in a later term", logged(28)},
		{29, "A follower that lags behind does not know a flight.", "operators and readers, slow or cut links: answers older than what another client was told before", behind},
		{30, "A key comes with another input.", "keys shared by four callers, one call in eight with another input: calls that were refused for it", func(e *evidence) int { return e.Conflicts }},
		{31, "A new release of the caller sends another body for the same intent.", "not met here: callers have one release; shown by TestHazard31_", nil},
		{32, "A request is repeated after the provider has forgotten the idempotency key.", "keys that are sent again: attempts that were held back because the provider's two minutes were over", logged(32)},
		{33, "The provider repeats a stored error for the key.", "keys that are sent again, the provider answers 500 for ever: repeats that got the stored error", replayedErrors},
		{34, "A duplicate arrives after the receipt's retention.", "operators and readers, two seconds of retention in the first sixth of the run: opens that were answered expired", func(e *evidence) (count int) {
			for i := range e.Ops {
				count += boolInt(e.Ops[i].Kind == linear.Open && e.Ops[i].Code == "expired")
			}
			return count
		}},
		{35, "A node stops while effects and requests are in progress.", "nodes stopped under all workloads: calls and effects under way at that moment", func(e *evidence) int { return e.during(true, true, "node stopped, which hands leadership over") }},
		{36, "A process restarts before its old session has ended.", "workers killed and started again: attempts that were lost when their worker had opened others under its next session", func(e *evidence) int {
			return e.lost(func(l *ledgerlog.LostAttempt, _ *Effect) bool {
				return l.Restarted && e.killed(l.Owner, func(time.Time) bool { return true })
			})
		}},
		{37, "Two deployments share one etcd", "not met here: there is one deployment; shown by TestHazard37_", nil},
		{38, "A write that failed, or a disk that stalled, reaches the disk later.", "full and stalled disks under all workloads: faults that were seen to refuse or to hold writes", func(e *evidence) int { return e.bitten("disk full", "disk nearly full", "disk stalls") }},
		{39, "Two drivers run one saga.", "sagas, nodes killed, frozen or cut off: drivers that began when another one's attempt was open, and the commands of drivers that another one had overtaken", logged(39)},
		{40, "An undo overtakes its step, or a step starts after its undo.", "cancelled sagas, workers frozen: opens of steps after the cancel, and effects after their undo", func(e *evidence) int { return e.log.Hazards[40] + afterUndo(e) }},
		{41, "An undo fails for good.", "sagas, whose provider refuses one undo in twenty: undos in doubt", logged(41)},
		{42, "A step succeeds just as its saga is cancelled, or after it was taken for not done.", "sagas that two persons cancel, workers frozen: successes after the cancel", logged(42)},
		{43, "A person resolves a doubt while the effect's report is on its way.", "operators who resolve and report at once, workers frozen: decisions that came after a report, and reports after a decision", func(e *evidence) int { return e.log.Hazards[43] + raced(e) }},
	}
}

// raced counts decisions about a doubt that were refused because the doubt had changed while a report of the same key was under way.
func raced(e *evidence) (count int) {
	for i := range e.Ops {
		o := &e.Ops[i]
		count += boolInt(o.Kind == linear.Resolve && o.Code == "precondition_failed" && slices.ContainsFunc(e.Ops, func(p linear.Op) bool {
			return p.Kind == linear.Report && p.Key == o.Key && p.Start < o.End && p.End > o.Start
		}))
	}
	return count
}

// notCovered says what no run of this kind shows.
func notCovered(nodes int, ownEtcd bool, missing uint64) []string {
	all := []string{
		"Restores: etcd, or the ledger of all nodes, put back from a backup; the loss of a majority's disks for good.",
		"Membership: nodes added or taken away under load, new addresses, expired certificates. Only nodes whose disk is damaged are replaced.",
		"Versions: nodes, clients and workers of one release, without upgrade or way back.",
		"Time: sleeping machines, and clocks that swing or are years off.",
		"Hardware: all hosts are namespaces of one machine with one kernel and one memory, disks are files, and a power cut is simulated; no other system or processor.",
		"Network: duplicated and damaged packets, and links of a modem's bandwidth.",
		"Disks: single errors of reads and writes, writes that are slow and not stalled, damaged snapshots and damaged files of etcd besides its log.",
		"Processes: deaths at chosen lines (they come at random moments), and limits of memory.",
		"Providers: one that declares what it does not keep, such as idempotency keys that it forgets within its window; one that acts twice on one request. flightd promises nothing then.",
		"Callers: programs that embed a node, calls and sagas with a time-out, several namespaces and tokens, and inputs and receipts at their limits.",
		"People and ledgers with a secret: attacks, stolen tokens, and a host that lies. The callers, the provider and the nodes keep to the protocol.",
	}
	if nodes < 5 {
		all = append(all, fmt.Sprintf("%d nodes: a ring, in which no two of five nodes see the same majority, needs -nodes 5.", nodes))
	}
	if !ownEtcd {
		all = append(all, "etcd ran in the nodes: an etcd that dies, freezes or is cut off by itself needs -own-etcd.")
	}
	if missing > 0 {
		all = append(all, fmt.Sprintf("%d entries of the log were removed before they were collected, as a redaction demands: hazards are counted by the others.", missing))
	}
	return all
}
