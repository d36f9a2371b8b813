package protocolmodel

// The model of claims: rule 2 and control 14. Three callers with live, trusted sessions and no faults; claims with create
// and mod revision, the claim beside its Open, overwrites, releases by comparison. Property C1: a release deletes only a
// claim of its own node. Strong: when nothing is in flight, a caller whose effect is in progress has the claim.

// The phases of a caller in the model of claims.
const (
	claimerUnused = iota
	claimerAsks
	claimerActs // its effect is in progress
	claimerOver
	claimerBusy // it was answered busy, and waits
)

// The transactions of etcd that are in flight.
const (
	txnNone = iota
	txnPutIfAbsent
	txnOverwrite
	txnRelease
)

const (
	claimOpenNone = iota
	claimOpenSent
	claimOpenProceed
	claimOpenBusy
)

type claimer struct {
	phase, open, txn         uint8
	createRevision, revision uint8 // of its own put; 0: none
	answeredAfterProceed     uint8 // the transaction after proceed was answered
}

type claimsState struct {
	owner, createRevision, revision uint8 // of the claim; owner: caller + 1
	etcdRevision                    uint8
	flight, holder                  uint8
	foreignDeleted                  uint8
	callers                         [3]claimer
}

// claimsConfig is a configuration of the model of claims.
type claimsConfig struct {
	byCreateRevision bool // control 14
	strong           bool // an effect in progress has its claim once nothing is in flight
	putAgain         bool // after proceed: if the claim is not the granted one, put it
	awaitOverwrite   bool // no abandon while an overwrite is unanswered
	retries          bool // a caller that was answered busy asks again
}

const maxClaimRevision = 15

func (c *claimsConfig) successors(s *claimsState, out *steps[claimsState]) {
	for i := range s.callers {
		q := &s.callers[i]
		again := q.phase == claimerBusy && c.retries && q.txn == txnNone && s.flight == free
		if q.phase == claimerUnused || again {
			t := *s
			t.callers[i] = claimer{phase: claimerAsks, open: claimOpenSent, txn: txnPutIfAbsent}
			out.add(t, eventually, "caller asks", i)
		}
		if q.txn != txnNone && s.etcdRevision < maxClaimRevision {
			c.commitTxn(s, i, out)
		}
		if q.open == claimOpenSent {
			t := *s
			p := &t.callers[i]
			if s.flight == free {
				t.flight, t.holder = running, uint8(i)
				p.open = claimOpenProceed
			} else {
				p.open, p.phase = claimOpenBusy, claimerBusy
				p.releaseOwn()
			}
			out.add(t, eventually, "ledger answers", i, int(p.open))
		}
		if q.phase == claimerAsks && q.open == claimOpenProceed && q.txn == txnNone {
			t := *s
			p := &t.callers[i]
			if q.revision == 0 || c.putAgain && q.answeredAfterProceed == 0 {
				p.txn = txnOverwrite
				out.add(t, eventually, "overwrite sent", i)
			} else {
				p.phase = claimerActs
				out.add(t, eventually, "EFFECT", i)
			}
		}
		if (q.phase == claimerAsks || q.phase == claimerActs) && q.open == claimOpenProceed && !(c.awaitOverwrite && q.txn == txnOverwrite) {
			t := *s
			t.flight = free
			t.callers[i].phase = claimerOver
			t.callers[i].releaseOwn()
			out.add(t, eventually, "attempt ends as not done, the key is free", i)
		}
	}
}

// releaseOwn sends the release of a claim that was granted.
func (c *claimer) releaseOwn() {
	if c.txn == txnNone && c.revision != 0 {
		c.txn = txnRelease
	}
}

// commitTxn: etcd commits and answers the transaction of a caller.
func (c *claimsConfig) commitTxn(s *claimsState, i int, out *steps[claimsState]) {
	q := &s.callers[i]
	t := *s
	p := &t.callers[i]
	p.txn = txnNone
	switch q.txn {
	case txnPutIfAbsent, txnOverwrite:
		if q.txn == txnOverwrite {
			p.answeredAfterProceed = 1
		}
		if s.owner == 0 || q.txn == txnOverwrite && (q.revision == 0 || q.revision != s.revision) {
			t.etcdRevision++
			if s.owner == 0 {
				t.createRevision = t.etcdRevision
			}
			t.owner, t.revision = uint8(i)+1, t.etcdRevision
			p.createRevision, p.revision = t.createRevision, t.revision
		}
		if p.phase == claimerOver || p.phase == claimerBusy {
			p.releaseOwn()
		}
	case txnRelease:
		match := s.revision == q.revision
		if c.byCreateRevision {
			match = s.createRevision == q.createRevision
		}
		if s.owner != 0 && match {
			if int(s.owner) != i+1 {
				t.foreignDeleted = 1
			}
			t.etcdRevision++
			t.owner, t.createRevision, t.revision = 0, 0, 0
		}
		p.createRevision, p.revision = 0, 0
	}
	out.add(t, eventually, [...]string{"", "etcd: claim put if absent", "etcd: claim overwritten", "etcd: claim released"}[q.txn], i)
}

func (c *claimsConfig) violation(s *claimsState) string {
	if s.foreignDeleted == 1 {
		return "C1 a release deletes a claim that another node wrote"
	}
	if !c.strong {
		return ""
	}
	acts := -1
	for i := range s.callers {
		q := &s.callers[i]
		if q.txn != txnNone || q.open == claimOpenSent || q.phase == claimerAsks {
			return "" // something is in flight
		}
		if q.phase == claimerActs {
			acts = i
		}
	}
	if acts >= 0 && int(s.owner) != acts+1 {
		return "S5 an effect is in progress, nothing is in flight, and the claim is not its own"
	}
	return ""
}

func (c claimsConfig) run(limits Limits) Result {
	return explore(model[claimsState]{
		successors: c.successors, violation: c.violation,
		outcome: func(s *claimsState) outcome { return outcome{flight: s.flight} },
	}, limits)
}

// claimsConfigurations has letter C: rule 2 and control 14.
func claimsConfigurations() []Configuration {
	return []Configuration{
		{Name: "C1 release by mod revision", Short: true, run: claimsConfig{retries: true}.run},
		{Name: "C2 an effect without its claim, as rule 2 admits", Expect: Violates, Short: true,
			run: claimsConfig{strong: true, retries: true}.run},
		{Name: "C3 as C2, the claim put again after proceed", Expect: Violates, Short: true,
			run: claimsConfig{strong: true, putAgain: true, retries: true}.run},
		{Name: "C4 as C3, no abandon while an overwrite is unanswered: always with its claim", Short: true,
			run: claimsConfig{strong: true, putAgain: true, awaitOverwrite: true, retries: true}.run},
		{Name: "CN1 control 14: release by create revision", Expect: Violates, Short: true,
			run: claimsConfig{byCreateRevision: true}.run},
		{Name: "CN2 control 14 with the repairs of C4", Expect: Violates, Short: true,
			run: claimsConfig{strong: true, putAgain: true, awaitOverwrite: true, byCreateRevision: true}.run},
	}
}
