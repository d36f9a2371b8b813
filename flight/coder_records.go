package flight

func (e *Event) sizeHint() int {
	const usual = 40
	return usual + len(e.Actor) + len(e.Note)
}

func (e *Event) transcode(w *coder) {
	requiredNumberField(w, 1, &e.Kind)
	numberField(w, 2, &e.Generation)
	numberField(w, 3, &e.Attempt)
	numberField(w, 4, &e.At)
	numberField(w, 5, &e.Outcome)
	textField(w, 6, &e.Actor)
	textField(w, 7, &e.Note)
}

func (f *Flight) sizeHint() int {
	const (
		usual       = 288
		perAttempt  = 64
		perEvidence = 96
		perUsed     = 32
		perPast     = 160
	)
	n := usual + len(f.Key.full) + f.Input.sizeHint() + len(f.Cause) + len(f.Requester)
	for i := range f.Attempts {
		a := &f.Attempts[i]
		n += perAttempt + len(a.Session.ID) + len(a.Owner) + len(a.Error) + len(a.Callbacks)
	}
	if f.Receipt != nil {
		n += len(f.Receipt.ExternalID) + f.Receipt.Body.sizeHint()
	}
	for i := range f.Evidence {
		n += perEvidence + len(f.Evidence[i].ExternalID) + len(f.Evidence[i].Error)
	}
	if f.Duplicates != nil {
		n += f.Duplicates.sizeHint()
	}
	return n + perUsed*len(f.UsedNonces) + perPast*len(f.PreviousGenerations)
}

func (f *Flight) transcode(w *coder) {
	w.fixedBytesField(1, f.ID[:], true)
	w.keyField(2, &f.Key, !f.Key.IsZero())
	numberField(w, 3, &f.Generation)
	numberField(w, 4, &f.State)
	f.transcodeSubmission(w)
	f.transcodeAttempts(w)
	f.transcodeVerification(w)
	if w.beginField(19, f.Receipt != nil) {
		allocOnRead(w, &f.Receipt).transcode(w)
		w.endField()
	}
	numberField(w, 20, &f.CreatedAt)
	numberField(w, 21, &f.FinishedAt)
	f.transcodeHistory(w)
	f.transcodeResolution(w)
	numberField(w, 29, &f.Phase)
	w.boolField(30, &f.Sealed)
	textField(w, 31, &f.Cause)
	numberField(w, 32, &f.InputGeneration)
	numberField(w, 33, &f.FinalState)
	if w.beginField(34, f.Redacted != nil) {
		allocOnRead(w, &f.Redacted).transcode(w)
		w.endField()
	}
	if w.beginField(35, f.Duplicates != nil) {
		allocOnRead(w, &f.Duplicates).transcode(w)
		w.endField()
	}
	numberField(w, 36, &f.Steps)
	if w.beginField(37, f.Place != nil) {
		allocOnRead(w, &f.Place).transcode(w)
		w.endField()
	}
	textField(w, 38, &f.Requester)
	if w.beginField(39, f.Ended != (Version{})) {
		f.Ended.transcode(w)
		w.endField()
	}
	w.boolField(40, &f.Unknown)
}

func (p *Place) transcode(w *coder) {
	if w.beginField(1, p.Queue != (Queue{})) {
		p.Queue.transcode(w)
		w.endField()
	}
	numberField(w, 2, &p.Due)
	if w.beginField(3, p.Since != (Version{})) {
		p.Since.transcode(w)
		w.endField()
	}
}

func (q *Queue) transcode(w *coder) {
	numberField(w, 1, &q.Priority)
	textField(w, 2, &q.Lane)
	numberField(w, 3, &q.Limit)
	numberField(w, 4, &q.RunAt)
	textField(w, 5, &q.Action)
	w.fixedBytesField(6, q.Trace[:], !q.Trace.IsZero())
}

// transcodeSubmission transcodes the fields 5 to 8.
func (f *Flight) transcodeSubmission(w *coder) {
	if w.beginField(5, f.Version != (Version{})) {
		f.Version.transcode(w)
		w.endField()
	}
	w.fixedBytesField(6, f.Fingerprint[:], f.Fingerprint != NoFingerprint)
	if w.beginField(7, !f.Input.isZero()) {
		f.Input.transcode(w)
		w.endField()
	}
	if w.beginField(8, f.Policy != (Policy{})) {
		f.Policy.transcode(w)
		w.endField()
	}
}

// transcodeAttempts transcodes the fields 9 to 15.
func (f *Flight) transcodeAttempts(w *coder) {
	if w.beginField(9, !f.Fence.IsZero()) {
		f.Fence.transcode(w)
		w.endField()
	}
	if beginList(w, 10, &f.Attempts) {
		for i := range f.Attempts {
			w.beginMap()
			f.Attempts[i].transcode(w)
			w.endMap()
		}
		w.endList()
	}
	numberField(w, 11, &f.AttemptCount)
	numberField(w, 12, &f.CountedAttempts)
	numberField(w, 13, &f.TaintingAttempts)
	numberField(w, 14, &f.FirstSend)
	numberField(w, 15, &f.NotBefore)
}

// transcodeVerification transcodes the fields 16 to 18.
func (f *Flight) transcodeVerification(w *coder) {
	if w.beginField(16, f.Verification != nil) {
		allocOnRead(w, &f.Verification).transcode(w)
		w.endField()
	}
	numberField(w, 17, &f.Verifications)
	if w.beginField(18, f.Cancel != nil) {
		allocOnRead(w, &f.Cancel).transcode(w)
		w.endField()
	}
}

// transcodeHistory transcodes the fields 22 to 26.
func (f *Flight) transcodeHistory(w *coder) {
	if beginList(w, 22, &f.Evidence) {
		for i := range f.Evidence {
			w.beginMap()
			f.Evidence[i].transcode(w)
			w.endMap()
		}
		w.endList()
	}
	numberField(w, 23, &f.EvidenceOmitted)
	w.boolField(24, &f.Overlap)
	if beginList(w, 25, &f.UsedNonces) {
		for i := range f.UsedNonces {
			w.beginMap()
			f.UsedNonces[i].transcode(w)
			w.endMap()
		}
		w.endList()
	}
	if beginList(w, 26, &f.PreviousGenerations) {
		for i := range f.PreviousGenerations {
			w.beginMap()
			f.PreviousGenerations[i].transcode(w)
			w.endMap()
		}
		w.endList()
	}
}

// transcodeResolution transcodes the fields 27 and 28.
func (f *Flight) transcodeResolution(w *coder) {
	if w.beginField(27, f.Resolution != nil) {
		allocOnRead(w, &f.Resolution).transcode(w)
		w.endField()
	}
	if w.beginField(28, f.Wake != nil) {
		allocOnRead(w, &f.Wake).transcode(w)
		w.endField()
	}
}

func (v *Version) transcode(w *coder) {
	numberField(w, 1, &v.Index)
	numberField(w, 2, &v.Pos)
}

func (a *Attempt) transcode(w *coder) {
	numberField(w, 1, &a.Number)
	if w.beginField(2, a.Session != (Session{})) {
		a.Session.transcode(w)
		w.endField()
	}
	w.fixedBytesField(3, a.Nonce[:], a.Nonce != (Nonce{}))
	textField(w, 4, &a.Owner)
	numberField(w, 5, &a.OpenedAt)
	numberField(w, 6, &a.ClosedAt)
	numberField(w, 7, &a.Outcome)
	w.boolField(8, &a.Lost)
	w.boolField(9, &a.Taints)
	numberField(w, 10, &a.ReportedOutcomes)
	textField(w, 11, &a.Error)
	numberField(w, 12, &a.StoreEpoch)
	numberField(w, 13, &a.NotAfter)
	w.fixedBytesField(14, a.Trace[:], !a.Trace.IsZero())
	w.bytesField(15, &a.Callbacks)
}

func (r *Receipt) transcode(w *coder) {
	numberField(w, 1, &r.Outcome)
	textField(w, 2, &r.ExternalID)
	if w.beginField(3, !r.Body.isZero()) {
		r.Body.transcode(w)
		w.endField()
	}
	numberField(w, 4, &r.At)
	numberField(w, 5, &r.Attempt)
	numberField(w, 6, &r.Source)
}

func (e *Evidence) transcode(w *coder) {
	if w.beginField(1, !e.Token.IsZero()) {
		e.Token.transcode(w)
		w.endField()
	}
	numberField(w, 2, &e.Generation)
	numberField(w, 3, &e.Outcome)
	textField(w, 4, &e.ExternalID)
	w.fixedBytesField(5, e.Digest[:], !e.Digest.IsZero())
	numberField(w, 6, &e.At)
	textField(w, 7, &e.Error)
}

func (v *Verification) transcode(w *coder) {
	numberField(w, 1, &v.Number)
	numberField(w, 2, &v.NotBefore)
	numberField(w, 3, &v.Tries)
	if w.beginField(4, v.Session != (Session{})) {
		v.Session.transcode(w)
		w.endField()
	}
	w.fixedBytesField(5, v.Nonce[:], v.Nonce != (Nonce{}))
	numberField(w, 6, &v.Until)
}

func (a *Attribution) transcode(w *coder) {
	textField(w, 1, &a.Actor)
	textField(w, 2, &a.Reason)
	numberField(w, 3, &a.At)
}

func (r *Resolution) transcode(w *coder) {
	numberField(w, 1, &r.Finding)
	if w.beginField(2, r.Version != (Version{})) {
		r.Version.transcode(w)
		w.endField()
	}
	if w.beginField(3, r.By != (Attribution{})) {
		r.By.transcode(w)
		w.endField()
	}
}

func (wa *Wake) transcode(w *coder) {
	numberField(w, 1, &wa.At)
	w.boolField(2, &wa.Callback)
	numberField(w, 3, &wa.Live)
	w.boolField(4, &wa.Marked)
}

func (n *UsedNonce) transcode(w *coder) {
	w.fixedBytesField(1, n.Nonce[:], n.Nonce != (Nonce{}))
	numberField(w, 2, &n.Until)
}

func (p *PreviousGeneration) transcode(w *coder) {
	numberField(w, 1, &p.Generation)
	numberField(w, 2, &p.State)
	if w.beginField(3, p.Receipt != nil) {
		allocOnRead(w, &p.Receipt).transcode(w)
		w.endField()
	}
	if w.beginField(4, p.EndedBy != (Attribution{})) {
		p.EndedBy.transcode(w)
		w.endField()
	}
}

func (s *DuplicateStats) sizeHint() int {
	const (
		usual     = 56
		perCaller = 16
	)
	n := usual
	for i := range s.Callers {
		n += perCaller + len(s.Callers[i].Actor)
	}
	return n
}

func (s *DuplicateStats) transcode(w *coder) {
	numberField(w, 1, &s.Count)
	numberField(w, 2, &s.First)
	numberField(w, 3, &s.Last)
	if beginList(w, 4, &s.Callers) {
		for i := range s.Callers {
			w.beginMap()
			s.Callers[i].transcode(w)
			w.endMap()
		}
		w.endList()
	}
	if w.beginField(5, s.LastCount != (CountID{})) {
		s.LastCount.transcode(w)
		w.endField()
	}
}

func (c *Caller) transcode(w *coder) {
	textField(w, 1, &c.Actor)
	numberField(w, 2, &c.At)
}

func (i *CountID) transcode(w *coder) {
	numberField(w, 1, &i.Source)
	numberField(w, 2, &i.Number)
}
