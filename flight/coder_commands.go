package flight

func (c *Submit) sizeHint() int {
	const usual = 160
	size := usual + len(c.Key.full) + c.Submission.Input.sizeHint() + len(c.Submission.Requester)
	if c.Queue != nil {
		size += len(c.Queue.Action) + len(c.Queue.Lane)
	}
	return size
}

func (c *Submit) transcode(w *coder) {
	w.keyField(1, &c.Key, true)
	if w.beginField(2, true) {
		c.Submission.transcode(w)
		w.endField()
	}
	if w.beginField(3, c.Queue != nil) {
		allocOnRead(w, &c.Queue).transcode(w)
		w.endField()
	}
}

func (c *Open) sizeHint() int {
	const usual = 224
	return usual + len(c.Key.full) + c.Submission.Input.sizeHint() + len(c.Submission.Requester) + len(c.Submission.Reason) + len(c.Session.ID) + len(c.Owner)
}

func (c *Open) transcode(w *coder) {
	w.keyField(1, &c.Key, true)
	if w.beginField(2, true) {
		c.Submission.transcode(w)
		w.endField()
	}
	if w.beginField(3, true) {
		c.Session.transcode(w)
		w.endField()
	}
	w.fixedBytesField(4, c.Nonce[:], true)
	requiredNumberField(w, 5, &c.NotAfter)
	textField(w, 6, &c.Owner)
	numberField(w, 7, &c.StoreEpoch)
	w.fixedBytesField(8, c.Trace[:], !c.Trace.IsZero())
}

func (c *Suspend) sizeHint() int {
	const usual = 48
	return usual + len(c.Key.full)
}

func (c *Suspend) transcode(w *coder) {
	w.keyField(1, &c.Key, true)
	requiredNumberField(w, 2, &c.Generation)
	if w.beginField(3, true) {
		c.Token.transcode(w)
		w.endField()
	}
	if w.beginField(4, true) {
		c.Wake.transcode(w)
		w.endField()
	}
}

func (c *Report) sizeHint() int {
	const usual = 128
	return usual + len(c.Key.full) + len(c.ExternalID) + c.Body.sizeHint() + len(c.Error)
}

func (c *Report) transcode(w *coder) {
	w.keyField(1, &c.Key, true)
	requiredNumberField(w, 2, &c.Generation)
	if w.beginField(3, true) {
		c.Token.transcode(w)
		w.endField()
	}
	requiredNumberField(w, 4, &c.Outcome)
	textField(w, 5, &c.ExternalID)
	if w.beginField(6, !c.Body.isZero()) {
		c.Body.transcode(w)
		w.endField()
	}
	textField(w, 7, &c.Error)
	numberField(w, 8, &c.RetryAfter)
}

func (c *Import) sizeHint() int {
	const usual = 160
	return usual + len(c.Key.full) + c.Input.sizeHint() + len(c.ExternalID) + c.Body.sizeHint() + len(c.Actor)
}

func (c *Import) transcode(w *coder) {
	w.keyField(1, &c.Key, true)
	w.fixedBytesField(2, c.Fingerprint[:], c.Fingerprint != NoFingerprint)
	if w.beginField(3, !c.Input.isZero()) {
		c.Input.transcode(w)
		w.endField()
	}
	requiredNumberField(w, 4, &c.Outcome)
	textField(w, 5, &c.ExternalID)
	if w.beginField(6, !c.Body.isZero()) {
		c.Body.transcode(w)
		w.endField()
	}
	numberField(w, 7, &c.CreatedAt)
	numberField(w, 8, &c.FinishedAt)
	numberField(w, 9, &c.Retention)
	textField(w, 10, &c.Actor)
}

func (s *Submission) transcode(w *coder) {
	w.fixedBytesField(1, s.Fingerprint[:], s.Fingerprint != NoFingerprint)
	if w.beginField(2, !s.Input.isZero()) {
		s.Input.transcode(w)
		w.endField()
	}
	if w.beginField(3, s.Policy != (Policy{})) {
		s.Policy.transcode(w)
		w.endField()
	}
	if w.beginField(4, !s.Driver.IsZero()) {
		s.Driver.transcode(w)
		w.endField()
	}
	textField(w, 5, &s.Requester)
	textField(w, 6, &s.Reason)
}

// sizeHint is the size of the blob's text and data; the owner's constant covers the numbers.
func (b *Blob) sizeHint() int { return len(b.ContentType) + len(b.Data) }

// isZero reports whether there is no blob. A blob of zero bytes is not zero: it has a digest.
func (b *Blob) isZero() bool {
	return b.ContentType == "" && b.Size == 0 && b.StoredSize == 0 && b.Digest.IsZero() && b.Data == nil
}

func (b *Blob) transcode(w *coder) {
	textField(w, 1, &b.ContentType)
	numberField(w, 2, &b.Size)
	numberField(w, 3, &b.StoredSize)
	w.fixedBytesField(4, b.Digest[:], !b.Digest.IsZero())
	w.bytesField(5, &b.Data)
}

func (p *Policy) transcode(w *coder) {
	numberField(w, 1, &p.Recovery)
	numberField(w, 2, &p.AttemptTimeout)
	numberField(w, 3, &p.SettleDelay)
	numberField(w, 4, &p.ProviderWindow)
	w.boolField(5, &p.Lookup)
	numberField(w, 6, &p.VerifyAttempts)
	if w.beginField(7, p.Retry != (RetryPolicy{})) {
		p.Retry.transcode(w)
		w.endField()
	}
	numberField(w, 8, &p.Retention)
	w.boolField(9, &p.Approval)
	numberField(w, 10, &p.RunAfter)
	w.boolField(11, &p.Saga)
	numberField(w, 12, &p.ApprovalWithin)
	textField(w, 13, &p.Definition)
	w.boolField(14, &p.SafeIfAbsent)
}

func (r *RetryPolicy) transcode(w *coder) {
	numberField(w, 1, &r.Attempts)
	numberField(w, 2, &r.MinBackoff)
	numberField(w, 3, &r.MaxBackoff)
	numberField(w, 4, &r.Within)
}

func (s *Session) transcode(w *coder) {
	textField(w, 1, &s.ID)
	numberField(w, 2, &s.Revision)
	numberField(w, 3, &s.Epoch)
	w.boolField(4, &s.OneShot)
}

func (t *Token) transcode(w *coder) {
	numberField(w, 1, &t.StoreEpoch)
	numberField(w, 2, &t.Number)
}
