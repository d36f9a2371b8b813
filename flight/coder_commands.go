package flight

func (c *Open) room() int {
	const usual = 224
	return usual + len(c.Key.full) + c.Submission.Input.room() + len(c.Session.ID) + len(c.Owner)
}

func (c *Open) walk(w *coder) {
	w.key(1, &c.Key, true)
	if w.enter(2, true) {
		c.Submission.walk(w)
		w.leave()
	}
	if w.enter(3, true) {
		c.Session.walk(w)
		w.leave()
	}
	w.exact(4, c.Nonce[:], true)
	always(w, 5, &c.NotAfter)
	str(w, 6, &c.Owner)
	number(w, 7, &c.StoreEpoch)
}

func (c *Report) room() int {
	const usual = 128
	return usual + len(c.Key.full) + len(c.ExternalID) + c.Body.room() + len(c.Error)
}

func (c *Report) walk(w *coder) {
	w.key(1, &c.Key, true)
	always(w, 2, &c.Generation)
	if w.enter(3, true) {
		c.Token.walk(w)
		w.leave()
	}
	always(w, 4, &c.Outcome)
	str(w, 5, &c.ExternalID)
	if w.enter(6, !c.Body.absent()) {
		c.Body.walk(w)
		w.leave()
	}
	str(w, 7, &c.Error)
	number(w, 8, &c.RetryAfter)
}

func (c *Import) room() int {
	const usual = 160
	return usual + len(c.Key.full) + c.Input.room() + len(c.ExternalID) + c.Body.room() + len(c.Who)
}

func (c *Import) walk(w *coder) {
	w.key(1, &c.Key, true)
	w.exact(2, c.Fingerprint[:], c.Fingerprint != NoFingerprint)
	if w.enter(3, !c.Input.absent()) {
		c.Input.walk(w)
		w.leave()
	}
	always(w, 4, &c.Outcome)
	str(w, 5, &c.ExternalID)
	if w.enter(6, !c.Body.absent()) {
		c.Body.walk(w)
		w.leave()
	}
	number(w, 7, &c.CreatedAt)
	number(w, 8, &c.FinishedAt)
	number(w, 9, &c.Retention)
	str(w, 10, &c.Who)
}

func (s *Submission) walk(w *coder) {
	w.exact(1, s.Fingerprint[:], s.Fingerprint != NoFingerprint)
	if w.enter(2, !s.Input.absent()) {
		s.Input.walk(w)
		w.leave()
	}
	if w.enter(3, s.Policy != (Policy{})) {
		s.Policy.walk(w)
		w.leave()
	}
	if w.enter(4, !s.Driver.IsZero()) {
		s.Driver.walk(w)
		w.leave()
	}
}

// sizeHint is the size of the blob's text and data; the owner's constant covers the numbers.
func (b *Blob) room() int { return len(b.ContentType) + len(b.Data) }

// isZero reports whether there is no blob. A blob of zero bytes is not zero: it has a digest.
func (b *Blob) absent() bool {
	return b.ContentType == "" && b.Size == 0 && b.Kept == 0 && b.Digest.IsZero() && b.Data == nil
}

func (b *Blob) walk(w *coder) {
	str(w, 1, &b.ContentType)
	number(w, 2, &b.Size)
	number(w, 3, &b.Kept)
	w.exact(4, b.Digest[:], !b.Digest.IsZero())
	w.data(5, &b.Data)
}

func (p *Policy) walk(w *coder) {
	number(w, 1, &p.Recovery)
	number(w, 2, &p.AttemptTimeout)
	number(w, 3, &p.SettleDelay)
	number(w, 4, &p.ProviderWindow)
	w.flag(5, &p.Lookup)
	number(w, 6, &p.LookTries)
	if w.enter(7, p.Retry != (RetryPolicy{})) {
		p.Retry.walk(w)
		w.leave()
	}
	number(w, 8, &p.Retention)
	w.flag(9, &p.Approval)
	number(w, 10, &p.RunAfter)
	w.flag(11, &p.Saga)
}

func (r *RetryPolicy) walk(w *coder) {
	number(w, 1, &r.Attempts)
	number(w, 2, &r.MinBackoff)
	number(w, 3, &r.MaxBackoff)
	number(w, 4, &r.Within)
}

func (s *Session) walk(w *coder) {
	str(w, 1, &s.ID)
	number(w, 2, &s.Revision)
	number(w, 3, &s.Epoch)
	w.flag(4, &s.OneShot)
}

func (t *Token) walk(w *coder) {
	number(w, 1, &t.StoreEpoch)
	number(w, 2, &t.Number)
}
