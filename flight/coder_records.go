package flight

func (e *Event) room() int {
	const usual = 40
	return usual + len(e.Who) + len(e.Note)
}

func (e *Event) walk(w *coder) {
	always(w, 1, &e.Kind)
	number(w, 2, &e.Generation)
	number(w, 3, &e.Attempt)
	number(w, 4, &e.At)
	number(w, 5, &e.Outcome)
	str(w, 6, &e.Who)
	str(w, 7, &e.Note)
}

func (f *Flight) room() int {
	const (
		usual       = 288
		perAttempt  = 64
		perEvidence = 96
		perUsed     = 32
		perPast     = 160
	)
	n := usual + len(f.Key.full) + f.Input.room() + len(f.Cause)
	for i := range f.Attempts {
		a := &f.Attempts[i]
		n += perAttempt + len(a.Session.ID) + len(a.Owner) + len(a.Error)
	}
	if f.Receipt != nil {
		n += len(f.Receipt.ExternalID) + f.Receipt.Body.room()
	}
	for i := range f.Evidence {
		n += perEvidence + len(f.Evidence[i].ExternalID) + len(f.Evidence[i].Error)
	}
	if f.Duplicates != nil {
		n += f.Duplicates.room()
	}
	return n + perUsed*len(f.UsedNonces) + perPast*len(f.Past)
}

func (f *Flight) walk(w *coder) {
	w.exact(1, f.ID[:], true)
	w.key(2, &f.Key, !f.Key.IsZero())
	number(w, 3, &f.Generation)
	number(w, 4, &f.State)
	f.walkDeclared(w)
	f.walkAttempts(w)
	f.walkProbe(w)
	if w.enter(19, f.Receipt != nil) {
		made(w, &f.Receipt).walk(w)
		w.leave()
	}
	number(w, 20, &f.CreatedAt)
	number(w, 21, &f.FinishedAt)
	f.walkPast(w)
	f.walkSettled(w)
	number(w, 29, &f.Phase)
	w.flag(30, &f.Sealed)
	str(w, 31, &f.Cause)
	number(w, 32, &f.InputFrom)
	number(w, 33, &f.Was)
	if w.enter(34, f.Redacted != nil) {
		made(w, &f.Redacted).walk(w)
		w.leave()
	}
	if w.enter(35, f.Duplicates != nil) {
		made(w, &f.Duplicates).walk(w)
		w.leave()
	}
}

// transcodeSubmission transcodes the fields 5 to 8.
func (f *Flight) walkDeclared(w *coder) {
	if w.enter(5, f.Version != (Version{})) {
		f.Version.walk(w)
		w.leave()
	}
	w.exact(6, f.Fingerprint[:], f.Fingerprint != NoFingerprint)
	if w.enter(7, !f.Input.absent()) {
		f.Input.walk(w)
		w.leave()
	}
	if w.enter(8, f.Policy != (Policy{})) {
		f.Policy.walk(w)
		w.leave()
	}
}

// transcodeAttempts transcodes the fields 9 to 15.
func (f *Flight) walkAttempts(w *coder) {
	if w.enter(9, !f.Fence.IsZero()) {
		f.Fence.walk(w)
		w.leave()
	}
	if list(w, 10, &f.Attempts) {
		for i := range f.Attempts {
			w.begin()
			f.Attempts[i].walk(w)
			w.end()
		}
		w.listed()
	}
	number(w, 11, &f.AttemptCount)
	number(w, 12, &f.Counted)
	number(w, 13, &f.Doubts)
	number(w, 14, &f.FirstSend)
	number(w, 15, &f.NotBefore)
}

// transcodeVerification transcodes the fields 16 to 18.
func (f *Flight) walkProbe(w *coder) {
	if w.enter(16, f.Probe != nil) {
		made(w, &f.Probe).walk(w)
		w.leave()
	}
	number(w, 17, &f.Probes)
	if w.enter(18, f.Cancel != nil) {
		made(w, &f.Cancel).walk(w)
		w.leave()
	}
}

// transcodeHistory transcodes the fields 22 to 26.
func (f *Flight) walkPast(w *coder) {
	if list(w, 22, &f.Evidence) {
		for i := range f.Evidence {
			w.begin()
			f.Evidence[i].walk(w)
			w.end()
		}
		w.listed()
	}
	number(w, 23, &f.EvidenceMore)
	w.flag(24, &f.Overlap)
	if list(w, 25, &f.UsedNonces) {
		for i := range f.UsedNonces {
			w.begin()
			f.UsedNonces[i].walk(w)
			w.end()
		}
		w.listed()
	}
	if list(w, 26, &f.Past) {
		for i := range f.Past {
			w.begin()
			f.Past[i].walk(w)
			w.end()
		}
		w.listed()
	}
}

// transcodeResolution transcodes the fields 27 and 28.
func (f *Flight) walkSettled(w *coder) {
	if w.enter(27, f.Settled != nil) {
		made(w, &f.Settled).walk(w)
		w.leave()
	}
	if w.enter(28, f.Wake != nil) {
		made(w, &f.Wake).walk(w)
		w.leave()
	}
}

func (v *Version) walk(w *coder) {
	number(w, 1, &v.Index)
	number(w, 2, &v.Pos)
}

func (a *Attempt) walk(w *coder) {
	number(w, 1, &a.Number)
	if w.enter(2, a.Session != (Session{})) {
		a.Session.walk(w)
		w.leave()
	}
	w.exact(3, a.Nonce[:], a.Nonce != (Nonce{}))
	str(w, 4, &a.Owner)
	number(w, 5, &a.OpenedAt)
	number(w, 6, &a.ClosedAt)
	number(w, 7, &a.Outcome)
	w.flag(8, &a.Lost)
	w.flag(9, &a.Doubt)
	number(w, 10, &a.Reported)
	str(w, 11, &a.Error)
	number(w, 12, &a.StoreEpoch)
	number(w, 13, &a.NotAfter)
}

func (r *Receipt) walk(w *coder) {
	number(w, 1, &r.Outcome)
	str(w, 2, &r.ExternalID)
	if w.enter(3, !r.Body.absent()) {
		r.Body.walk(w)
		w.leave()
	}
	number(w, 4, &r.At)
	number(w, 5, &r.Attempt)
	number(w, 6, &r.Source)
}

func (e *Evidence) walk(w *coder) {
	if w.enter(1, !e.Token.IsZero()) {
		e.Token.walk(w)
		w.leave()
	}
	number(w, 2, &e.Generation)
	number(w, 3, &e.Outcome)
	str(w, 4, &e.ExternalID)
	w.exact(5, e.Digest[:], !e.Digest.IsZero())
	number(w, 6, &e.At)
	str(w, 7, &e.Error)
}

func (p *Probe) walk(w *coder) {
	number(w, 1, &p.Number)
	number(w, 2, &p.NotBefore)
	number(w, 3, &p.Tries)
	if w.enter(4, p.Session != (Session{})) {
		p.Session.walk(w)
		w.leave()
	}
	w.exact(5, p.Nonce[:], p.Nonce != (Nonce{}))
	number(w, 6, &p.Until)
}

func (x *Mark) walk(w *coder) {
	str(w, 1, &x.Who)
	str(w, 2, &x.Why)
	number(w, 3, &x.At)
}

func (s *Settlement) walk(w *coder) {
	number(w, 1, &s.Verb)
	if w.enter(2, s.Version != (Version{})) {
		s.Version.walk(w)
		w.leave()
	}
	if w.enter(3, s.Mark != (Mark{})) {
		s.Mark.walk(w)
		w.leave()
	}
}

func (x *Wake) walk(w *coder) {
	number(w, 1, &x.At)
	w.flag(2, &x.Callback)
}

func (n *UsedNonce) walk(w *coder) {
	w.exact(1, n.Nonce[:], n.Nonce != (Nonce{}))
	number(w, 2, &n.Until)
}

func (p *Past) walk(w *coder) {
	number(w, 1, &p.Generation)
	number(w, 2, &p.State)
	if w.enter(3, p.Receipt != nil) {
		made(w, &p.Receipt).walk(w)
		w.leave()
	}
	if w.enter(4, p.EndedBy != (Mark{})) {
		p.EndedBy.walk(w)
		w.leave()
	}
}

func (t *Tally) room() int {
	const (
		usual     = 56
		perCaller = 16
	)
	n := usual
	for i := range t.Callers {
		n += perCaller + len(t.Callers[i].Who)
	}
	return n
}

func (t *Tally) walk(w *coder) {
	number(w, 1, &t.Count)
	number(w, 2, &t.First)
	number(w, 3, &t.Last)
	if list(w, 4, &t.Callers) {
		for i := range t.Callers {
			w.begin()
			t.Callers[i].walk(w)
			w.end()
		}
		w.listed()
	}
	if w.enter(5, t.Told != (Telling{})) {
		t.Told.walk(w)
		w.leave()
	}
}

func (c *Caller) walk(w *coder) {
	str(w, 1, &c.Who)
	number(w, 2, &c.At)
}

func (n *Telling) walk(w *coder) {
	number(w, 1, &n.Source)
	number(w, 2, &n.Number)
}
