package flight_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

// applyAll applies commands, checks every step, and returns the last answer.
func tell(t *testing.T, w *world, commands ...flight.Command) (*world, flight.Reply) {
	t.Helper()
	var reply flight.Reply
	for _, c := range commands {
		var err error
		w, reply, err = w.step(c)
		require.NoError(t, err, describe(c))
	}
	return w, reply
}

func TestImport_MakesAFlightThatIsOver(t *testing.T) {
	c := importOf(soloKey, flight.Succeeded, "x", fp1)
	w, reply := tell(t, newWorld(soloKey), c)
	require.Equal(t, flight.Accepted, reply.Decision)
	f := w.flight(soloKey)
	require.Equal(t, flight.StateSucceeded, f.State)
	require.Equal(t, c.FinishedAt, f.FinishedAt)
	require.Equal(t, c.FinishedAt, f.CreatedAt)
	require.Equal(t, c.FinishedAt.Add(retains), f.ExpiresAt(), "the retention starts at FinishedAt")
	require.Equal(t, flight.FromImport, f.Receipt.Source)

	_, reply = tell(t, w, openOf(soloKey, flight.Policy{Retention: retains}, sessions[0], nonce1, fp1))
	require.Equal(t, flight.Replay, reply.Decision, "the effect does not run again")
	_, reply = tell(t, w, openOf(soloKey, flight.Policy{Retention: retains}, sessions[0], nonce1, fp2))
	require.Equal(t, flight.Conflict, reply.Decision)
}

func TestImport_LeavesAKnownKeyAlone(t *testing.T) {
	open := openOf(soloKey, flight.Policy{Retention: retains}, sessions[0], nonce1, fp1)
	token := attemptRef{generation: 1, token: flight.Token{StoreEpoch: 1, Number: 1}}
	done := []flight.Command{open, reportOf(soloKey, token, flight.Succeeded, "x")}
	brought := importOf(soloKey, flight.Succeeded, "x", fp1)
	for name, c := range map[string]struct {
		given []flight.Command
		bring *flight.Import
		want  flight.Decision
	}{
		"the same receipt, imported before":  {[]flight.Command{brought}, brought, flight.Accepted},
		"another receipt, imported before":   {[]flight.Command{brought}, importOf(soloKey, flight.Succeeded, "y", fp1), flight.Conflict},
		"the same receipt, reported here":    {done, brought, flight.Replay},
		"another receipt, reported here":     {done, importOf(soloKey, flight.Succeeded, "y", fp1), flight.Conflict},
		"another outcome":                    {done, importOf(soloKey, flight.Refused, "x", fp1), flight.Conflict},
		"another input":                      {done, importOf(soloKey, flight.Succeeded, "x", fp2), flight.Conflict},
		"no input":                           {done, importOf(soloKey, flight.Succeeded, "x", flight.NoFingerprint), flight.Replay},
		"an attempt is open":                 {done[:1], brought, flight.Busy},
		"in doubt":                           {[]flight.Command{open, reportOf(soloKey, token, flight.Unknown, "")}, brought, flight.Doubtful},
		"it ended without a receipt":         {[]flight.Command{&flight.Submit{Key: soloKey, Submission: open.Submission}, &flight.Cancel{Key: soloKey, Generation: 1}}, brought, flight.Conflict},
		"a person freed it to be done again": {append(done[:2:2], &flight.Free{Key: soloKey, Generation: 1}), brought, flight.Precluded},
		"its retention is over":              {append(done[:2:2], &tick{by: retains + time.Second}, &flight.Expire{Key: soloKey, Generation: 1}), brought, flight.Gone},
		"an unknown outcome is no receipt":   {nil, importOf(soloKey, flight.Unknown, "", fp1), flight.Precluded},
		"a not_done outcome is no receipt":   {nil, importOf(soloKey, flight.NotDone, "", fp1), flight.Precluded},
		"a saga's step belongs to its saga":  {nil, importOf(stepKey, flight.Succeeded, "x", fp1), flight.Precluded},
		"an open that never came changes nothing": {[]flight.Command{abandonOf(soloKey, nonce1)},
			brought, flight.Accepted},
	} {
		w, _ := tell(t, newWorld(soloKey, stepKey), c.given...)
		_, reply := tell(t, w, c.bring)
		require.Equal(t, c.want, reply.Decision, name)
	}
}

func TestImport_ComesFromThePast(t *testing.T) {
	c := importOf(soloKey, flight.Succeeded, "x", fp1)
	c.FinishedAt, c.CreatedAt = start.Add(time.Hour), start.Add(2*time.Hour)
	w, _ := tell(t, newWorld(soloKey), c)
	require.Equal(t, start, w.flight(soloKey).FinishedAt)
	require.Equal(t, start, w.flight(soloKey).CreatedAt)
}

func TestImport_RaisesAnOverlapWithEvidence(t *testing.T) {
	stray := reportOf(soloKey, attemptRef{generation: 1, token: flight.Token{StoreEpoch: 1, Number: 1}}, flight.Succeeded, "y")
	w, _ := tell(t, newWorld(soloKey), abandonOf(soloKey, nonce1),
		stray, importOf(soloKey, flight.Succeeded, "x", fp1))
	require.True(t, w.flight(soloKey).Overlap)
}

func TestRedact_ErasesBytesAndNothingElse(t *testing.T) {
	open := openOf(soloKey, flight.Policy{Retention: retains}, sessions[0], nonce1, fp1)
	open.Submission.Input = body("secret")
	token := attemptRef{generation: 1, token: flight.Token{StoreEpoch: 1, Number: 1}}
	redact := &flight.Redact{Key: soloKey, Generation: 1, Who: "ann", Why: "asked for"}
	w, reply := tell(t, newWorld(soloKey), open, redact)
	require.Equal(t, flight.Precluded, reply.Decision, "a flight in progress needs its input")
	w, _ = tell(t, w, reportOf(soloKey, token, flight.Succeeded, "x"))
	before := w.flight(soloKey)
	w, reply = tell(t, w, redact)
	require.Equal(t, flight.Accepted, reply.Decision)
	f := w.flight(soloKey)
	require.Empty(t, append(f.Input.Data, f.Receipt.Body.Data...))
	require.Equal(t, before.Receipt.Body.Digest, f.Receipt.Body.Digest)
	require.Equal(t, "x", f.Receipt.ExternalID)
	require.Equal(t, flight.Mark{Who: "ann", Why: "asked for", At: start}, *f.Redacted)
	require.NotEmpty(t, before.Receipt.Body.Data, "the record before is unchanged")

	_, reply = tell(t, w, openOf(soloKey, flight.Policy{Retention: retains}, sessions[1], nonce2, fp1))
	require.Equal(t, flight.Replay, reply.Decision, "the key is guarded as before")
	w, _ = tell(t, w, &tick{by: retains + time.Second}, &flight.Expire{Key: soloKey, Generation: 1})
	require.Equal(t, flight.Expired, w.flight(soloKey).State)
}

func TestRedact_WithoutItsInputNothingIsRetried(t *testing.T) {
	submission := flight.Submission{Fingerprint: fp1, Input: body("secret")}
	w, _ := tell(t, newWorld(soloKey), &flight.Submit{Key: soloKey, Submission: submission}, &flight.Cancel{Key: soloKey, Generation: 1},
		&flight.Redact{Key: soloKey, Generation: 1, Who: "ann"})
	_, reply := tell(t, w, &flight.Retry{Key: soloKey, Generation: 1})
	require.Equal(t, flight.Precluded, reply.Decision)
	w, reply = tell(t, w, &flight.Free{Key: soloKey, Generation: 1}, openOf(soloKey, flight.Policy{Retention: retains}, sessions[0], nonce1, fp1))
	require.Equal(t, flight.Proceed, reply.Decision, "the next caller submits its own input")
	require.Nil(t, w.flight(soloKey).Redacted)
}

func TestRedact_ReachesEarlierGenerations(t *testing.T) {
	w, _ := tell(t, newWorld(soloKey), importOf(soloKey, flight.Succeeded, "x", fp1), &flight.Free{Key: soloKey, Generation: 1},
		&flight.Redact{Key: soloKey, Generation: 2, Who: "ann"})
	require.Zero(t, w.flight(soloKey).Past[0].Receipt.Body.Kept)
	_, reply := tell(t, w, &flight.Redact{Key: soloKey, Generation: 2, Who: "ann"})
	require.Equal(t, flight.Missing, reply.Decision, "there is nothing left to erase")
}

// A delayed redaction of one generation erases nothing of the next generation.
func TestRedact_IsOfTheGenerationThatWasSeen(t *testing.T) {
	w, _ := tell(t, newWorld(soloKey), importOf(soloKey, flight.Succeeded, "x", fp1), &flight.Free{Key: soloKey, Generation: 1},
		openOf(soloKey, flight.Policy{Retention: retains}, sessions[0], nonce1, fp1),
		reportOf(soloKey, attemptRef{generation: 2, token: flight.Token{StoreEpoch: 1, Number: 1}}, flight.Succeeded, "y"))
	require.Equal(t, flight.StateSucceeded, w.flight(soloKey).State)
	for _, generation := range []uint32{1, 3} {
		_, reply := tell(t, w, &flight.Redact{Key: soloKey, Generation: generation, Who: "ann"})
		require.Equal(t, flight.Precluded, reply.Decision)
	}
	_, reply := tell(t, w, &flight.Redact{Key: soloKey, Generation: 2, Who: "ann"})
	require.Equal(t, flight.Accepted, reply.Decision)
}
