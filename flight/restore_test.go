package flight_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

// restoredEpoch is the store epoch of a ledger that was restored at the time of the tests' start.
const restoredEpoch = uint32(start / 1000)

var (
	acceptRestore = step(func(w *ledger) flight.Command {
		return &flight.Restore{From: w.header.StoreEpoch, Hold: 5 * time.Minute, Actor: "ann", Reason: "disk"}
	})
	finishRestore = step(func(w *ledger) flight.Command {
		return &flight.FinishRestore{Epoch: w.header.StoreEpoch, Actor: "ann", Reason: "asked the provider"}
	})
	importX = step(func(*ledger) flight.Command { return importOf(soloKey, flight.OutcomeSucceeded, "x", fp1) })
)

// openRestored returns an Open under a session and in the store epoch of the restored ledger.
func openRestored(n flight.Nonce) step {
	return func(w *ledger) flight.Command {
		o := openOf(soloKey, flight.Policy{}, flight.Session{ID: "D", Revision: 5, Epoch: w.header.LeaseEpoch}, n, fp1)
		o.StoreEpoch, o.NotAfter = w.header.StoreEpoch, w.header.Now.Add(30*time.Second)
		return o
	}
}

// reconciled finishes the restore after its hold.
func (sc *script) reconciled() *script { return sc.run(afterTime(5*time.Minute), finishRestore) }

func TestRestore_RaisesEpochsAndHolds(t *testing.T) {
	v := flight.View{Header: testHeader}
	v.Header.GuardCounter = 7
	do := func(c flight.Command) flight.Reply {
		var reply flight.Reply
		v, reply = flight.Apply(v, c)
		return reply
	}
	require.Equal(t, flight.DecisionFailedPrecondition, do(&flight.Restore{From: 2}).Decision, "From is not the present epoch")
	require.Equal(t, flight.DecisionAccepted, do(&flight.Restore{From: 1, Moved: true}).Decision)
	require.Equal(t, uint32(1), v.Header.StoreEpoch, "a moved directory is the same ledger")
	require.Equal(t, flight.DecisionAccepted, do(&flight.Restore{From: 1, Hold: 5 * time.Minute}).Decision)
	want := testHeader
	want.StoreEpoch, want.LeaseEpoch, want.EpochHold, want.Reconciling, want.RestoredFrom = restoredEpoch, 2, start.Add(5*time.Minute), true, 1
	require.Equal(t, want, v.Header)
	require.Equal(t, flight.DecisionAccepted, do(&flight.Restore{From: 1, Hold: time.Hour}).Decision, "a repeat")
	require.Equal(t, want, v.Header)

	require.Equal(t, flight.DecisionFailedPrecondition, do(&flight.FinishRestore{Epoch: 1}).Decision)
	reply := do(&flight.FinishRestore{Epoch: restoredEpoch})
	require.Equal(t, flight.DecisionBusy, reply.Decision)
	require.Equal(t, 5*time.Minute, reply.Wait)
	require.True(t, v.Header.Reconciling)
	v.Header.Now = v.Header.EpochHold
	require.Equal(t, flight.DecisionAccepted, do(&flight.FinishRestore{Epoch: restoredEpoch}).Decision)
	require.False(t, v.Header.Reconciling)
	require.Equal(t, flight.DecisionAccepted, do(&flight.FinishRestore{Epoch: restoredEpoch}).Decision, "a repeat")

	require.Equal(t, flight.DecisionAccepted, do(&flight.Restore{From: restoredEpoch}).Decision, "a second restore")
	require.Equal(t, v.Header.Now.Add(flight.MaxOpenLife), v.Header.EpochHold, "every Open that was sent to the lost ledger has expired")
	require.Equal(t, flight.DecisionAccepted, do(&flight.FinishRestore{Epoch: v.Header.StoreEpoch, Force: true}).Decision)
	require.False(t, v.Header.Reconciling)
}

// Two ledgers that were restored from one backup open attempts with the same numbers. Their store epochs differ, also where
// a clock is behind.
func TestRestore_GivesEachLedgerAnEpochOfItsOwn(t *testing.T) {
	epochAt := func(epoch uint32, now, wall flight.Time) uint32 {
		v := flight.View{Header: flight.Header{StoreEpoch: epoch, LeaseEpoch: 1, Now: now, Wall: wall}}
		v, _ = flight.Apply(v, &flight.Restore{From: epoch})
		return v.Header.StoreEpoch
	}
	require.Equal(t, uint32(1_700_000_000), epochAt(1, 1_700_000_000_999, 0))
	require.Equal(t, uint32(1_700_000_007), epochAt(1, 1_700_000_000_000, 1_700_000_007_000), "the ledger's time is behind")
	require.Equal(t, uint32(1_700_000_001), epochAt(1_700_000_000, 1_600_000_000_000, 0), "the clock is behind")
	require.Equal(t, uint32(4_294_901_759), epochAt(1, 1<<60, 0), "there is room above a clock that is far ahead")
}

// TestHazard22_NothingOpensBeforeTheRestoreIsFinished: a key that looks unused, ready or free may have run after the backup.
func TestHazard22_NothingOpensBeforeTheRestoreIsFinished(t *testing.T) {
	p := newScript(t, hold).run(acceptRestore, openRestored(nonce1)).expect(flight.DecisionReconciling, flight.StateAbsent)
	p.reconciled().run(openRestored(nonce1)).expect(flight.DecisionProceed, flight.StateRunning)

	p = newScript(t, hold).run(submit, acceptRestore, openRestored(nonce1)).expect(flight.DecisionReconciling, flight.StateReady)
	p.run(submit).expect(flight.DecisionAccepted, flight.StateReady)

	p = newScript(t, verify).run(open(1, nonce1), endSession(1), afterTime(settleDelay), acceptRestore, openRestored(nonce2))
	p.expect(flight.DecisionReconciling, flight.StateRunning).reconciled().run(openRestored(nonce3)).expect(flight.DecisionVerify, flight.StateRunning)

	p = newScript(t, hold).run(open(1, nonce1), report(1, flight.OutcomeSucceeded, "x"), acceptRestore, openRestored(nonce2))
	p.expect(flight.DecisionReplay, flight.StateSucceeded)
}

// TestHazard22_ALostSuccessBecomesTheReceipt: whatever the restored ledger knows of the key, unless it has a receipt.
func TestHazard22_ALostSuccessBecomesTheReceipt(t *testing.T) {
	late := lostReport(1, 3, flight.OutcomeSucceeded)
	for name, before := range map[string][]step{
		"a key that was never used":                       {acceptRestore},
		"ready":                                           {submit, acceptRestore},
		"an attempt of the lost ledger is open":           {open(1, nonce1), acceptRestore},
		"in doubt":                                        {open(1, nonce1), endSession(1), acceptRestore},
		"cancelled":                                       {submit, cancel, acceptRestore},
		"a person gave it up":                             {open(1, nonce1), endSession(1), resolve(flight.FindingFail), acceptRestore},
		"an unknown outcome was reported":                 {acceptRestore, lostReport(1, 4, flight.OutcomeUnknown)},
		"the restore is finished":                         {submit, acceptRestore, afterTime(5 * time.Minute), finishRestore},
		"an attempt is open after the restore":            {acceptRestore, afterTime(5 * time.Minute), finishRestore, openRestored(nonce1)},
		"an attempt of unknown outcome after the restore": {acceptRestore, afterTime(5 * time.Minute), finishRestore, openRestored(nonce1), report(1, flight.OutcomeUnknown, "")},
	} {
		t.Run(name, func(t *testing.T) {
			p := newScript(t, hold).run(before...).run(late).expect(flight.DecisionAccepted, flight.StateSucceeded)
			require.Equal(t, flight.SourceReportAfterRestore, p.flight().Receipt.Source)
			require.Equal(t, "y", p.flight().Receipt.ExternalID)
			p.run(late).expect(flight.DecisionAccepted, flight.StateSucceeded)
			p.check(!p.flight().Overlap && !p.last.Changed, "a repeat of the report that made the receipt")
			p.run(lostReport(1, 5, flight.OutcomeSucceeded)).expect(flight.DecisionFenced, flight.StateSucceeded)
			p.check(!p.flight().Overlap, "another attempt with the same effect")
			p.run(func(*ledger) flight.Command {
				return reportOf(soloKey, attemptRef{generation: 1, token: flight.Token{StoreEpoch: 1, Number: 6}}, flight.OutcomeSucceeded, "x")
			}).expect(flight.DecisionFenced, flight.StateSucceeded)
			p.check(p.flight().Overlap, "another effect")
		})
	}
	p := newScript(t, hold).run(open(1, nonce1), report(1, flight.OutcomeSucceeded, "x"), acceptRestore, late).expect(flight.DecisionFenced, flight.StateSucceeded)
	p.check(p.flight().Overlap && p.flight().Receipt.ExternalID == "x", "a receipt never changes")
}

// TestHazard22_ALostUnknownIsADoubt: at the latest when the open attempt has ended without a receipt.
func TestHazard22_ALostUnknownIsADoubt(t *testing.T) {
	late := lostReport(1, 3, flight.OutcomeUnknown)
	p := newScript(t, hold).run(acceptRestore, late).expect(flight.DecisionAccepted, flight.StateInDoubt)
	p.run(late).expect(flight.DecisionAccepted, flight.StateInDoubt)
	p.check(!p.last.Changed && p.flight().TaintingAttempts == 1, "a repeat")
	p.run(resolve(flight.FindingNotHappened)).expect(flight.DecisionAccepted, flight.StateAbsent)
	p.reconciled().run(openRestored(nonce1)).expect(flight.DecisionProceed, flight.StateRunning)
	require.Equal(t, fp1, p.flight().Fingerprint, "input and policy are those of the first Open that brings them")
	require.Equal(t, flight.Token{StoreEpoch: restoredEpoch, Number: 4}, p.last.Token)

	p = newScript(t, hold).run(acceptRestore, late, resolve(flight.FindingFail), retry).expect(flight.DecisionFailedPrecondition, flight.StateFailed)
	p.run(free).expect(flight.DecisionAccepted, flight.StateAbsent)

	p = newScript(t, resend).run(submit, acceptRestore, late).expect(flight.DecisionAccepted, flight.StateInDoubt)
	p.run(resolve(flight.FindingNotHappened)).expect(flight.DecisionAccepted, flight.StateReady)

	p = newScript(t, verify).run(submit, acceptRestore, late).expect(flight.DecisionAccepted, flight.StateRunning)
	p.reconciled().run(openRestored(nonce1)).expect(flight.DecisionVerify, flight.StateRunning)
	p.run(finding(flight.FindingNotHappened, 0)).expect(flight.DecisionAccepted, flight.StateReady)

	p = newScript(t, hold).run(acceptRestore).reconciled().run(openRestored(nonce1), late).expect(flight.DecisionAccepted, flight.StateRunning)
	p.run(report(1, flight.OutcomeNotDone, "")).expect(flight.DecisionAccepted, flight.StateInDoubt)
}

// TestHazard22_OtherLostReportsAreEvidence: a refusal or a not_done says nothing about the other attempts that were lost.
func TestHazard22_OtherLostReportsAreEvidence(t *testing.T) {
	for _, o := range []flight.Outcome{flight.OutcomeRefused, flight.OutcomeNotDone} {
		p := newScript(t, hold).run(submit, acceptRestore, lostReport(1, 3, o)).expect(flight.DecisionFenced, flight.StateReady)
		p.check(len(p.flight().Evidence) == 1 && p.flight().Fence.Number == 3, "evidence, and its number is not used again")
		p = newScript(t, hold).run(open(1, nonce1), acceptRestore, lostReport(1, 3, o)).expect(flight.DecisionFenced, flight.StateRunning)
		p.run(report(1, flight.OutcomeNotDone, "")).expect(flight.DecisionAccepted, flight.StateReady)
	}
	p := newScript(t, hold).run(submit, acceptRestore, lostReport(2, 3, flight.OutcomeSucceeded)).expect(flight.DecisionFenced, flight.StateReady)
	p.check(p.flight().Generation == 1, "a generation that this ledger does not know")
	p = newScript(t, hold).run(acceptRestore, lostReport(2, 3, flight.OutcomeSucceeded)).expect(flight.DecisionAccepted, flight.StateSucceeded)
	p.check(p.flight().Generation == 2, "a lost flight continues in the generation of its report")
}

// A number is assigned again after a restore. The report of its first attempt does not count for the second one.
func TestHazard22_ALostAttemptIsNotTakenForANewOne(t *testing.T) {
	p := newScript(t, hold).run(open(1, nonce1), report(1, flight.OutcomeNotDone, ""), acceptRestore).reconciled()
	p.run(openRestored(nonce2)).expect(flight.DecisionProceed, flight.StateRunning)
	require.Equal(t, flight.Token{StoreEpoch: restoredEpoch, Number: 2}, p.last.Token)
	p.run(lostReport(1, 2, flight.OutcomeNotDone)).expect(flight.DecisionFenced, flight.StateRunning)
	p.run(lostReport(1, 2, flight.OutcomeRefused)).expect(flight.DecisionFenced, flight.StateRunning)
}

// The attempts of the lost ledger end when the hold is over, by the rules of a raised lease epoch.
func TestRestore_EndsAttemptsAfterTheHold(t *testing.T) {
	p := newScript(t, hold).run(open(1, nonce1), acceptRestore, wakeUp).expect(flight.DecisionBusy, flight.StateRunning)
	p.run(afterTime(5*time.Minute), wakeUp).expect(flight.DecisionInDoubt, flight.StateInDoubt)
	p.run(report(1, flight.OutcomeNotDone, "")).expect(flight.DecisionAccepted, flight.StateReady)
}

// While the ledger is reconciling, an import gives a flight the receipt that the restore has lost.
func TestRestore_ImportsIntoKnownKeys(t *testing.T) {
	for name, before := range map[string][]step{
		"ready":       {submit, acceptRestore},
		"running":     {open(1, nonce1), acceptRestore},
		"in doubt":    {open(1, nonce1), endSession(1), acceptRestore},
		"cancelled":   {submit, cancel, acceptRestore},
		"a freed key": {submit, cancel, free, acceptRestore},
	} {
		t.Run(name, func(t *testing.T) {
			p := newScript(t, hold).run(before...).run(importX).expect(flight.DecisionAccepted, flight.StateSucceeded)
			require.Equal(t, flight.SourceImport, p.flight().Receipt.Source)
			p.run(importX).expect(flight.DecisionAccepted, flight.StateSucceeded)
			p.reconciled().run(openRestored(nonce2)).expect(flight.DecisionReplay, flight.StateSucceeded)
		})
	}
	p := newScript(t, hold).run(submit, acceptRestore, func(*ledger) flight.Command { return importOf(soloKey, flight.OutcomeRefused, "", fp1) })
	p.expect(flight.DecisionBusy, flight.StateReady)
	newScript(t, hold).run(submit, acceptRestore).reconciled().run(importX).expect(flight.DecisionBusy, flight.StateReady)
}

func TestRestore_ErasesTheBodyOfARedactedFlight(t *testing.T) {
	redact := atGeneration(func(g uint32) flight.Command { return &flight.Redact{Key: soloKey, Generation: g, Actor: "ann"} })
	for _, late := range []step{lostReport(1, 3, flight.OutcomeSucceeded), importX} {
		p := newScript(t, hold).run(submit, cancel, redact, acceptRestore, late).expect(flight.DecisionAccepted, flight.StateSucceeded)
		require.Zero(t, p.flight().Receipt.Body.StoredSize)
		require.False(t, p.flight().Receipt.Body.Digest.IsZero())
	}
}

// While the ledger is reconciling, an import gives a step or an undo of a saga the receipt that the restore has lost, as a late report
// would. The state of the saga does not matter.
func TestRestore_ImportsStepsOfSagas(t *testing.T) {
	policy := flight.Policy{Saga: true, Retention: retention}
	start := &flight.Submit{Key: sagaKey, Submission: flight.Submission{Policy: policy, Fingerprint: fp1}}
	drive := openOf(sagaKey, policy, flight.Session{}, nonce1, fp1)
	driver := flight.Token{StoreEpoch: 1, Number: 1}
	submitted := &flight.Submit{Key: stepKey, Submission: flight.Submission{Policy: flight.Policy{Retention: retention}, Driver: driver}}
	restored := &flight.Restore{From: 1, Hold: time.Minute}
	for name, before := range map[string][]flight.Command{
		"the ledger knows no saga":   nil,
		"the saga was not driven":    {start},
		"the step was not submitted": {start, drive},
		"the step waits":             {start, drive, submitted},
		"an attempt is open":         {start, drive, submitted, openOf(stepKey, flight.Policy{}, sessions[0], nonce2, fp1)},
		"the saga is undone": {start, drive, submitted, &flight.Cancel{Key: sagaKey, Generation: 1}, &flight.Cancel{Key: stepKey, Generation: 1, Driver: driver},
			&flight.BeginUndo{Key: sagaKey, Generation: 1, Token: driver}, &flight.Report{Key: sagaKey, Generation: 1, Token: driver, Outcome: flight.OutcomeRefused}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, k := range [...]flight.Key{stepKey, undoKey} {
				brought := importOf(k, flight.OutcomeSucceeded, "x", flight.Fingerprint{})
				w, _ := applyAll(t, newLedger(sagaKey, stepKey, undoKey), append(slices.Clip(before), restored)...)
				_, reply := applyAll(t, w, importOf(k, flight.OutcomeRefused, "", flight.Fingerprint{}))
				require.Equal(t, flight.DecisionFailedPrecondition, reply.Decision)
				w, reply = applyAll(t, w, brought)
				require.Equal(t, flight.DecisionAccepted, reply.Decision)
				f := w.flight(k)
				require.Equal(t, flight.StateSucceeded, f.State)
				require.Equal(t, flight.SourceImport, f.Receipt.Source)
				require.NotZero(t, f.Ended, "undos follow the order of the ends")
				w, reply = applyAll(t, w, brought)
				require.Equal(t, flight.DecisionAccepted, reply.Decision, "a repeat")
				w, reply = applyAll(t, w, &tick{by: time.Minute}, &flight.FinishRestore{Epoch: w.header.StoreEpoch}, brought)
				require.Equal(t, flight.DecisionFailedPrecondition, reply.Decision, "the restore is over")
				require.Equal(t, f.Receipt, w.flight(k).Receipt)
			}
		})
	}
}

// A saga that was not driven before the backup may have run since. While the ledger is reconciling, a cancel marks such a saga instead of
// ending it, and the driver undoes the steps that happened.
func TestRestore_ACancelledSagaIsDriven(t *testing.T) {
	for _, approval := range []bool{false, true} {
		policy := flight.Policy{Saga: true, Retention: retention, Approval: approval}
		start := &flight.Submit{Key: sagaKey, Submission: flight.Submission{Policy: policy, Fingerprint: fp1}}
		mark := &flight.Cancel{Key: sagaKey, Generation: 1, Reason: "ordered twice"}
		w, _ := applyAll(t, newLedger(sagaKey, stepKey), start, mark)
		require.Equal(t, flight.StateCancelled, w.flight(sagaKey).State, "it has begun nothing")
		w, _ = applyAll(t, newLedger(sagaKey, stepKey), start, &flight.Restore{From: 1, Hold: time.Minute}, mark)
		require.Equal(t, flight.StateReady, w.flight(sagaKey).State)
		require.NotNil(t, w.flight(sagaKey).Cancel)
		drive := openOf(sagaKey, policy, flight.Session{}, nonce1, fp1)
		drive.StoreEpoch, drive.NotAfter = w.header.StoreEpoch, w.header.Now.Add(90*time.Second)
		_, reply := applyAll(t, w, importOf(stepKey, flight.OutcomeSucceeded, "x", flight.Fingerprint{}), &tick{by: time.Minute}, &flight.FinishRestore{Epoch: w.header.StoreEpoch}, drive)
		require.Equal(t, flight.DecisionProceed, reply.Decision)
	}
}
