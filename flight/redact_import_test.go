package flight_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

// applyAll applies commands, checks every step, and returns the last answer.
func applyAll(t *testing.T, w *ledger, commands ...flight.Command) (*ledger, flight.Reply) {
	t.Helper()
	var reply flight.Reply
	for _, c := range commands {
		var err error
		w, reply, err = w.apply(c)
		require.NoError(t, err, describe(c))
	}
	return w, reply
}

func TestImport_CreatesFinishedFlight(t *testing.T) {
	c := importOf(soloKey, flight.OutcomeSucceeded, "x", fp1)
	w, reply := applyAll(t, newLedger(soloKey), c)
	require.Equal(t, flight.DecisionAccepted, reply.Decision)
	f := w.flight(soloKey)
	require.Equal(t, flight.StateSucceeded, f.State)
	require.Equal(t, c.FinishedAt, f.FinishedAt)
	require.Equal(t, c.FinishedAt, f.CreatedAt)
	require.Equal(t, c.FinishedAt.Add(retention), f.ExpiresAt(), "the retention starts at FinishedAt")
	require.Equal(t, flight.SourceImport, f.Receipt.Source)

	_, reply = applyAll(t, w, openOf(soloKey, flight.Policy{Retention: retention}, sessions[0], nonce1, fp1))
	require.Equal(t, flight.DecisionReplay, reply.Decision, "the effect does not run again")
	_, reply = applyAll(t, w, openOf(soloKey, flight.Policy{Retention: retention}, sessions[0], nonce1, fp2))
	require.Equal(t, flight.DecisionConflict, reply.Decision)
}

func TestImport_LeavesKnownKeyUnchanged(t *testing.T) {
	open := openOf(soloKey, flight.Policy{Retention: retention}, sessions[0], nonce1, fp1)
	token := attemptRef{generation: 1, token: flight.Token{StoreEpoch: 1, Number: 1}}
	done := []flight.Command{open, reportOf(soloKey, token, flight.OutcomeSucceeded, "x")}
	brought := importOf(soloKey, flight.OutcomeSucceeded, "x", fp1)
	for name, c := range map[string]struct {
		given []flight.Command
		bring *flight.Import
		want  flight.Decision
	}{
		"the same receipt, imported before":  {[]flight.Command{brought}, brought, flight.DecisionAccepted},
		"another receipt, imported before":   {[]flight.Command{brought}, importOf(soloKey, flight.OutcomeSucceeded, "y", fp1), flight.DecisionConflict},
		"the same receipt, reported here":    {done, brought, flight.DecisionReplay},
		"another receipt, reported here":     {done, importOf(soloKey, flight.OutcomeSucceeded, "y", fp1), flight.DecisionConflict},
		"another outcome":                    {done, importOf(soloKey, flight.OutcomeRefused, "x", fp1), flight.DecisionConflict},
		"another input":                      {done, importOf(soloKey, flight.OutcomeSucceeded, "x", fp2), flight.DecisionConflict},
		"no input":                           {done, importOf(soloKey, flight.OutcomeSucceeded, "x", flight.NoFingerprint), flight.DecisionReplay},
		"an attempt is open":                 {done[:1], brought, flight.DecisionBusy},
		"in doubt":                           {[]flight.Command{open, reportOf(soloKey, token, flight.OutcomeUnknown, "")}, brought, flight.DecisionInDoubt},
		"it ended without a receipt":         {[]flight.Command{&flight.Submit{Key: soloKey, Submission: open.Submission}, &flight.Cancel{Key: soloKey, Generation: 1}}, brought, flight.DecisionConflict},
		"a person freed it to be done again": {append(done[:2:2], &flight.FreeKey{Key: soloKey, Generation: 1}), brought, flight.DecisionFailedPrecondition},
		"its retention is over":              {append(done[:2:2], &tick{by: retention + time.Second}, &flight.Expire{Key: soloKey, Generation: 1}), brought, flight.DecisionExpired},
		"an unknown outcome is no receipt":   {nil, importOf(soloKey, flight.OutcomeUnknown, "", fp1), flight.DecisionFailedPrecondition},
		"a not_done outcome is no receipt":   {nil, importOf(soloKey, flight.OutcomeNotDone, "", fp1), flight.DecisionFailedPrecondition},
		"a saga's step belongs to its saga":  {nil, importOf(stepKey, flight.OutcomeSucceeded, "x", fp1), flight.DecisionFailedPrecondition},
		"an open that never came changes nothing": {[]flight.Command{abandonOf(soloKey, nonce1)},
			brought, flight.DecisionAccepted},
	} {
		w, _ := applyAll(t, newLedger(soloKey, stepKey), c.given...)
		_, reply := applyAll(t, w, c.bring)
		require.Equal(t, c.want, reply.Decision, name)
	}
}

func TestImport_ClampsTimes(t *testing.T) {
	c := importOf(soloKey, flight.OutcomeSucceeded, "x", fp1)
	c.FinishedAt, c.CreatedAt = start.Add(time.Hour), start.Add(2*time.Hour)
	w, _ := applyAll(t, newLedger(soloKey), c)
	require.Equal(t, start, w.flight(soloKey).FinishedAt)
	require.Equal(t, start, w.flight(soloKey).CreatedAt)
}

func TestImport_RaisesAnOverlapWithEvidence(t *testing.T) {
	p := newScript(t, hold).run(submit, cancel, acceptRestore, lostReport(2, 3, flight.OutcomeSucceeded), free)
	p.run(importX).expect(flight.DecisionAccepted, flight.StateSucceeded)
	p.check(p.flight().Overlap, "the evidence of its generation is another effect")
}

func TestRedact_ErasesOnlyBytes(t *testing.T) {
	open := openOf(soloKey, flight.Policy{Retention: retention}, sessions[0], nonce1, fp1)
	open.Submission.Input = body("secret")
	token := attemptRef{generation: 1, token: flight.Token{StoreEpoch: 1, Number: 1}}
	redact := &flight.Redact{Key: soloKey, Generation: 1, Actor: "ann", Reason: "asked for"}
	w, reply := applyAll(t, newLedger(soloKey), open, redact)
	require.Equal(t, flight.DecisionFailedPrecondition, reply.Decision, "a flight in progress needs its input")
	w, _ = applyAll(t, w, reportOf(soloKey, token, flight.OutcomeSucceeded, "x"))
	before := w.flight(soloKey)
	w, reply = applyAll(t, w, redact)
	require.Equal(t, flight.DecisionAccepted, reply.Decision)
	f := w.flight(soloKey)
	require.Empty(t, append(f.Input.Data, f.Receipt.Body.Data...))
	require.Equal(t, before.Receipt.Body.Digest, f.Receipt.Body.Digest)
	require.Equal(t, "x", f.Receipt.ExternalID)
	require.Equal(t, flight.Attribution{Actor: "ann", Reason: "asked for", At: start}, *f.Redacted)
	require.NotEmpty(t, before.Receipt.Body.Data, "the record before is unchanged")

	_, reply = applyAll(t, w, openOf(soloKey, flight.Policy{Retention: retention}, sessions[1], nonce2, fp1))
	require.Equal(t, flight.DecisionReplay, reply.Decision, "the key is guarded as before")
	w, _ = applyAll(t, w, &tick{by: retention + time.Second}, &flight.Expire{Key: soloKey, Generation: 1})
	require.Equal(t, flight.StateExpired, w.flight(soloKey).State)
}

func TestRedact_PreventsRetry(t *testing.T) {
	submission := flight.Submission{Fingerprint: fp1, Input: body("secret")}
	w, _ := applyAll(t, newLedger(soloKey), &flight.Submit{Key: soloKey, Submission: submission}, &flight.Cancel{Key: soloKey, Generation: 1},
		&flight.Redact{Key: soloKey, Generation: 1, Actor: "ann"})
	_, reply := applyAll(t, w, &flight.Retry{Key: soloKey, Generation: 1})
	require.Equal(t, flight.DecisionFailedPrecondition, reply.Decision)
	w, reply = applyAll(t, w, &flight.FreeKey{Key: soloKey, Generation: 1}, openOf(soloKey, flight.Policy{Retention: retention}, sessions[0], nonce1, fp1))
	require.Equal(t, flight.DecisionProceed, reply.Decision, "the next caller submits its own input")
	require.Nil(t, w.flight(soloKey).Redacted)
}

func TestRedact_ErasesPreviousGenerations(t *testing.T) {
	w, _ := applyAll(t, newLedger(soloKey), importOf(soloKey, flight.OutcomeSucceeded, "x", fp1), &flight.FreeKey{Key: soloKey, Generation: 1},
		&flight.Redact{Key: soloKey, Generation: 2, Actor: "ann"})
	require.Zero(t, w.flight(soloKey).PreviousGenerations[0].Receipt.Body.StoredSize)
	_, reply := applyAll(t, w, &flight.Redact{Key: soloKey, Generation: 2, Actor: "ann"})
	require.Equal(t, flight.DecisionNotFound, reply.Decision, "there is nothing left to erase")
}

// A delayed redaction of one generation erases nothing of the next generation.
func TestRedact_ChecksGeneration(t *testing.T) {
	w, _ := applyAll(t, newLedger(soloKey), importOf(soloKey, flight.OutcomeSucceeded, "x", fp1), &flight.FreeKey{Key: soloKey, Generation: 1},
		openOf(soloKey, flight.Policy{Retention: retention}, sessions[0], nonce1, fp1),
		reportOf(soloKey, attemptRef{generation: 2, token: flight.Token{StoreEpoch: 1, Number: 1}}, flight.OutcomeSucceeded, "y"))
	require.Equal(t, flight.StateSucceeded, w.flight(soloKey).State)
	for _, generation := range []uint32{1, 3} {
		_, reply := applyAll(t, w, &flight.Redact{Key: soloKey, Generation: generation, Actor: "ann"})
		require.Equal(t, flight.DecisionFailedPrecondition, reply.Decision)
	}
	_, reply := applyAll(t, w, &flight.Redact{Key: soloKey, Generation: 2, Actor: "ann"})
	require.Equal(t, flight.DecisionAccepted, reply.Decision)
}
