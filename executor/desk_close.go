package executor

import (
	"context"
	"errors"
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
)

// Report brings the outcome of an attempt. It needs only the fence, not the lease: the ledger decides, not the clock.
// *effect.Unavailable with code report_pending: it is kept and will be committed; the effect must not be repeated.
func (d *Desk) Report(ctx context.Context, req ReportRequest) (*flight.Flight, error) {
	if req.Outcome < flight.Succeeded || req.Outcome > flight.Unknown {
		return nil, &flight.InvalidError{Field: "outcome", Detail: "an outcome is succeeded, refused, not_done or unknown"}
	}
	token, generation, err := flight.OpenSeal(req.FencingToken, d.ex.cfg.Memory.Header().Secret, req.ID)
	switch {
	case err != nil:
		return nil, err
	case token.Revision == 0:
		return nil, &flight.InvalidError{Field: "fencing_token", Detail: "this is the probe of a look-up, not the token of an attempt: bring it to verdict"}
	}
	f, err := d.ex.cfg.Ledger.Flight(req.ID)
	switch {
	case err != nil:
		return nil, d.ex.unavailable(flight.Key{}, err)
	case f == nil:
		return nil, &effect.Missing{ID: req.ID} // the token is ours: the ledger was put back from before the attempt
	case f.Key.IsZero():
		return f, &effect.Fenced{} // nothing is left that evidence could be kept with
	}
	d.ex.cfg.Crash(beforeReport)
	d.guests.report(req.ID, flight.Claim{Epoch: token.Epoch, Revision: token.Revision})
	// From here on the outcome survives this process if it can be written anywhere at all; the caller keeps it until
	// it is told so.
	reply, err := d.ex.cfg.Ledger.Report(ctx, &flight.Report{
		Key: f.Key, Generation: generation, Token: token, Outcome: req.Outcome,
		ExternalID: req.ExternalID, Body: req.Body, Error: req.Error,
	})
	if err != nil {
		return nil, d.notRecorded(f.Key, err)
	}
	d.ex.cfg.Crash(afterReport)
	d.ex.cfg.Events.NoteReport(&reply, token.Number, req.Outcome)
	d.letGo(f, token)
	d.overlook(f, reply.Flight)
	if reply.Decision != flight.Accepted {
		return reply.Flight, &effect.Fenced{Key: f.Key}
	}
	return reply.Flight, nil
}

func (d *Desk) notRecorded(key flight.Key, err error) error {
	if errors.Is(err, ErrPending) || errors.Is(err, ErrAmbiguous) {
		return &effect.Unavailable{Code: "report_pending", Cause: err}
	}
	return d.ex.unavailable(key, err)
}

// letGo gives up the claim of an attempt that has ended, off the critical path.
func (d *Desk) letGo(f *flight.Flight, token flight.Token) {
	d.ex.cfg.Crash(beforeRelease)
	claim := flight.Claim{Epoch: token.Epoch, Revision: token.Revision}
	if a := f.Newest(); a != nil && a.Token() == token {
		claim = a.Claim // else a newer attempt was opened, when this claim was gone
	}
	if g, known := d.leave(f, f.ID, claim); known {
		d.dismiss(g)
	}
}

// overlook gives up the claim of a look-up that a report has made needless. The looker's session goes with it where nothing
// is left that could be opened under it.
//
// Whoever was told here to look opens nothing under that claim. Another process may not have heard yet that it was to look, and
// ask for the same open once more, which now opens: its claim is left alone until that open can open nothing any more.
func (d *Desk) overlook(before, now *flight.Flight) {
	if !before.Looking() || before.Probe.Claim == (flight.Claim{}) || now.Looking() && now.Probe.Claim == before.Probe.Claim {
		return
	}
	claim := before.Probe.Claim
	if now.State.Terminal() || d.guests.rightOf(before.ID, claim) != nil {
		if g, known := d.leave(before, before.ID, claim); known && isSettled(now) {
			d.dismiss(g)
		}
		return
	}
	d.ex.background(2*d.ex.cfg.OpenLife, func(ctx context.Context) {
		if !rest(d.ex.service, d.ex.cfg.OpenLife) {
			return
		}
		f, err := d.ex.cfg.Ledger.Flight(before.ID)
		if a := f.OpenAttempt(); err == nil && (a == nil || a.Claim != claim) {
			d.remove(ctx, before.Key, claim)
		}
	}, func() {})
}

// leave lets go of what was claimed for a flight, if it is this claim, and gives the guest whose it was. Where another
// process made it, it is removed by name; where that fails, it ends with its session.
func (d *Desk) leave(f *flight.Flight, id flight.ID, claim flight.Claim) (g guest, known bool) {
	g, b, known := d.guests.leave(id, claim)
	switch {
	case b.right != nil:
		b.right.Release()
	case f != nil && !f.Key.IsZero() && claim.Session != "":
		d.ex.background(d.ex.cfg.OpenLife, func(ctx context.Context) { d.remove(ctx, f.Key, claim) }, func() {})
	}
	return g, known
}

// remove takes a claim away that another process made; where that fails, it ends with its session.
func (d *Desk) remove(ctx context.Context, key flight.Key, claim flight.Claim) {
	if remover, ok := d.ex.cfg.Leases.(lease.Remover); ok {
		_ = remover.Remove(ctx, key, claim)
	}
}

// dropped forgets an attempt whose holder turned out to be gone.
func (d *Desk) dropped(f *flight.Flight) {
	if g, b, known := d.guests.leave(f.ID, f.Newest().Claim); known && b.right != nil {
		b.right.Release()
		d.dismiss(g)
	}
}

// Verdict brings the result of a look-up, and answers like Open what may be done now. A repeat is answered by what is
// true then: with the same session and nonce the attempt that the first one opened.
func (d *Desk) Verdict(ctx context.Context, req VerdictRequest) (OpenAnswer, error) {
	if req.Result != flight.Happened && req.Result != flight.DidNotHappen && req.Result != flight.NoVerb {
		return OpenAnswer{}, &flight.InvalidError{Field: "result", Detail: "a look-up says happened, not_happened or unknown"}
	}
	start := time.Now()
	f, probe, generation, err := d.openProbe(req)
	if err != nil {
		return OpenAnswer{}, err
	}
	reply, err := d.ex.cfg.Ledger.Propose(ctx, &flight.Verdict{
		Key: f.Key, Generation: generation, Probe: probe, Result: req.Result, ExternalID: req.ExternalID, Body: req.Body,
	})
	switch now := reply.Flight; {
	case err != nil:
		return OpenAnswer{}, d.ex.unavailable(f.Key, err)
	case reply.Decision == flight.Missing, reply.Decision == flight.Fenced && (now.Looking() || now.Generation != generation):
		return OpenAnswer{}, &effect.Fenced{Key: f.Key} // somebody else was sent to look, or the key was freed
	case req.Result == flight.Happened && !isSettled(now):
		return OpenAnswer{}, &effect.Fenced{Key: f.Key} // another word counted, but who has seen the effect must not act
	}
	d.ex.settle.forget(f.ID)
	d.ex.cfg.Events.Note(f.Key, reply.Events)
	open := req.Open
	open.Key = f.Key
	open.Submission = flight.Submission{Fingerprint: f.Fingerprint, Input: f.Input, Policy: f.Policy}
	if open.Nonce == (flight.Nonce{}) {
		open.Nonce = UnnamedNonce()
	}
	g, known := d.rise(ctx, f, probe)
	if known {
		open.Session = g.session.ID()
	}
	v := visit{req: open, id: open.Key.FlightID()}
	answer, err := d.open(ctx, &v)
	answer.countFrom(start)
	if known && !v.forsaken && (err != nil || answer.Session != g.session.ID()) {
		d.dismiss(g)
	}
	return answer, err
}

// rise ends a look-up's hold on its key, and gives the guest whose it was, if this process let it in. Where the flight does
// not look any more, or somebody else does, what is aboard now is none of this caller's look-up.
func (d *Desk) rise(ctx context.Context, f *flight.Flight, probe uint32) (g guest, known bool) {
	if !f.Looking() || f.Probe.Number != probe {
		return g, false
	}
	claim := f.Probe.Claim
	g, b, known := d.guests.leave(f.ID, claim)
	switch {
	case b.right != nil:
		b.right.Release()
		d.guests.enter(g) // a session that was made for this flight alone goes on with it
	case claim != (flight.Claim{}):
		d.remove(ctx, f.Key, claim)
	}
	return g, known
}

// probeToken hides the number of a probe in a sealed token: no attempt has revision 0.
func probeToken(number uint32) flight.Token { return flight.Token{Number: number} }

func (d *Desk) sealProbe(f *flight.Flight, number uint32) string {
	return probeToken(number).Seal(d.ex.cfg.Memory.Header().Secret, f.ID, f.Generation, "")
}

func (d *Desk) openProbe(req VerdictRequest) (f *flight.Flight, number, generation uint32, err error) {
	token, generation, err := flight.OpenSeal(req.Probe, d.ex.cfg.Memory.Header().Secret, req.ID)
	if err != nil || token != probeToken(token.Number) {
		return nil, 0, 0, &flight.InvalidError{Field: "probe", Detail: "this is not the probe of a look-up of this flight"}
	}
	f, err = d.ex.cfg.Ledger.Flight(req.ID)
	switch {
	case err != nil:
		return nil, 0, 0, d.ex.unavailable(flight.Key{}, err)
	case f == nil || f.Key.IsZero():
		return nil, 0, 0, &effect.Fenced{}
	}
	return f, token.Number, generation, nil
}
