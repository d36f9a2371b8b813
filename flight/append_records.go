package flight

func (e *Event) room() int {
	const usual = 40
	return usual + len(e.Who) + len(e.Note)
}

func (e *Event) appendCBOR(b []byte) []byte {
	m := newFields(b)
	m.key(1)
	m.b = appendHead(m.b, cborUint, uint64(e.Kind))
	m.uint(2, uint64(e.Generation))
	m.uint(3, uint64(e.Attempt))
	m.int(4, int64(e.At))
	m.uint(5, uint64(e.Outcome))
	m.text(6, e.Who)
	m.text(7, e.Note)
	return m.end()
}

func (f *Flight) room() int {
	const (
		usual       = 288
		perAttempt  = 64
		perEvidence = 96
		perSpent    = 40
		perPast     = 160
	)
	n := usual + len(f.Key.full) + f.Input.room() + len(f.Cause)
	for i := range f.Attempts {
		a := &f.Attempts[i]
		n += perAttempt + len(a.Claim.Session) + len(a.Owner) + len(a.Error)
	}
	if f.Receipt != nil {
		n += len(f.Receipt.ExternalID) + f.Receipt.Body.room()
	}
	for i := range f.Evidence {
		n += perEvidence + len(f.Evidence[i].ExternalID) + len(f.Evidence[i].Error)
	}
	for i := range f.Spent {
		n += perSpent + len(f.Spent[i].Session)
	}
	if f.Duplicates != nil {
		n += f.Duplicates.room()
	}
	return n + perPast*len(f.Past)
}

func (f *Flight) appendCBOR(b []byte) []byte {
	m := newFields(b)
	m.key(1)
	m.b = appendBytes(m.b, f.ID[:])
	if !f.Key.IsZero() {
		m.key(2)
		m.b = f.Key.appendCBOR(m.b)
	}
	m.uint(3, uint64(f.Generation))
	m.uint(4, uint64(f.State))
	f.appendDeclared(&m)
	f.appendAttempts(&m)
	f.appendProbe(&m)
	if f.Receipt != nil {
		m.key(19)
		m.b = f.Receipt.appendCBOR(m.b)
	}
	m.int(20, int64(f.CreatedAt))
	m.int(21, int64(f.FinishedAt))
	f.appendPast(&m)
	f.appendSettled(&m)
	m.uint(29, uint64(f.Phase))
	m.flag(30, f.Sealed)
	m.text(31, f.Cause)
	m.uint(32, uint64(f.InputFrom))
	m.uint(33, uint64(f.Was))
	if f.Redacted != nil {
		m.key(34)
		m.b = f.Redacted.appendCBOR(m.b)
	}
	if f.Duplicates != nil {
		m.key(35)
		m.b = f.Duplicates.appendCBOR(m.b)
	}
	return m.end()
}

// appendDeclared writes the fields 5 to 8.
func (f *Flight) appendDeclared(m *fields) {
	if f.Version != (Version{}) {
		m.key(5)
		m.b = f.Version.appendCBOR(m.b)
	}
	if f.Fingerprint != NoFingerprint {
		m.key(6)
		m.b = appendBytes(m.b, f.Fingerprint[:])
	}
	if !f.Input.absent() {
		m.key(7)
		m.b = f.Input.appendCBOR(m.b)
	}
	if f.Policy != (Policy{}) {
		m.key(8)
		m.b = f.Policy.appendCBOR(m.b)
	}
}

// appendAttempts writes the fields 9 to 15.
func (f *Flight) appendAttempts(m *fields) {
	if !f.Fence.IsZero() {
		m.key(9)
		m.b = f.Fence.appendCBOR(m.b)
	}
	if len(f.Attempts) > 0 {
		m.key(10)
		m.b = appendHead(m.b, cborArray, uint64(len(f.Attempts)))
		for i := range f.Attempts {
			m.b = f.Attempts[i].appendCBOR(m.b)
		}
	}
	m.uint(11, uint64(f.AttemptCount))
	m.uint(12, uint64(f.Counted))
	m.uint(13, uint64(f.Doubts))
	m.int(14, int64(f.FirstSend))
	m.int(15, int64(f.NotBefore))
}

// appendProbe writes the fields 16 to 18.
func (f *Flight) appendProbe(m *fields) {
	if f.Probe != nil {
		m.key(16)
		m.b = f.Probe.appendCBOR(m.b)
	}
	m.uint(17, uint64(f.Probes))
	if f.Cancel != nil {
		m.key(18)
		m.b = f.Cancel.appendCBOR(m.b)
	}
}

// appendPast writes the fields 22 to 26.
func (f *Flight) appendPast(m *fields) {
	if len(f.Evidence) > 0 {
		m.key(22)
		m.b = appendHead(m.b, cborArray, uint64(len(f.Evidence)))
		for i := range f.Evidence {
			m.b = f.Evidence[i].appendCBOR(m.b)
		}
	}
	m.uint(23, uint64(f.EvidenceMore))
	m.flag(24, f.Overlap)
	if len(f.Spent) > 0 {
		m.key(25)
		m.b = appendHead(m.b, cborArray, uint64(len(f.Spent)))
		for i := range f.Spent {
			m.b = f.Spent[i].appendCBOR(m.b)
		}
	}
	if len(f.Past) > 0 {
		m.key(26)
		m.b = appendHead(m.b, cborArray, uint64(len(f.Past)))
		for i := range f.Past {
			m.b = f.Past[i].appendCBOR(m.b)
		}
	}
}

// appendSettled writes the fields 27 and 28.
func (f *Flight) appendSettled(m *fields) {
	if f.Settled != nil {
		m.key(27)
		m.b = f.Settled.appendCBOR(m.b)
	}
	if f.Wake != nil {
		m.key(28)
		m.b = f.Wake.appendCBOR(m.b)
	}
}

func (v *Version) appendCBOR(b []byte) []byte {
	m := newFields(b)
	m.uint(1, v.Index)
	m.uint(2, uint64(v.Pos))
	return m.end()
}

func (a *Attempt) appendCBOR(b []byte) []byte {
	m := newFields(b)
	m.uint(1, uint64(a.Number))
	if a.Claim != (Claim{}) {
		m.key(2)
		m.b = a.Claim.appendCBOR(m.b)
	}
	if a.Nonce != (Nonce{}) {
		m.key(3)
		m.b = appendBytes(m.b, a.Nonce[:])
	}
	m.text(4, a.Owner)
	m.int(5, int64(a.OpenedAt))
	m.int(6, int64(a.ClosedAt))
	m.uint(7, uint64(a.Outcome))
	m.flag(8, a.Lost)
	m.flag(9, a.Doubt)
	m.uint(10, uint64(a.Reported))
	m.text(11, a.Error)
	return m.end()
}

func (r *Receipt) appendCBOR(b []byte) []byte {
	m := newFields(b)
	m.uint(1, uint64(r.Outcome))
	m.text(2, r.ExternalID)
	if !r.Body.absent() {
		m.key(3)
		m.b = r.Body.appendCBOR(m.b)
	}
	m.int(4, int64(r.At))
	m.uint(5, uint64(r.Attempt))
	m.uint(6, uint64(r.Source))
	return m.end()
}

func (e *Evidence) appendCBOR(b []byte) []byte {
	m := newFields(b)
	if !e.Token.IsZero() {
		m.key(1)
		m.b = e.Token.appendCBOR(m.b)
	}
	m.uint(2, uint64(e.Generation))
	m.uint(3, uint64(e.Outcome))
	m.text(4, e.ExternalID)
	if !e.Digest.IsZero() {
		m.key(5)
		m.b = appendBytes(m.b, e.Digest[:])
	}
	m.int(6, int64(e.At))
	m.text(7, e.Error)
	return m.end()
}

func (p *Probe) appendCBOR(b []byte) []byte {
	m := newFields(b)
	m.uint(1, uint64(p.Number))
	m.int(2, int64(p.NotBefore))
	m.int(3, int64(p.Tries))
	if p.Claim != (Claim{}) {
		m.key(4)
		m.b = p.Claim.appendCBOR(m.b)
	}
	return m.end()
}

func (x *Mark) appendCBOR(b []byte) []byte {
	m := newFields(b)
	m.text(1, x.Who)
	m.text(2, x.Why)
	m.int(3, int64(x.At))
	return m.end()
}

func (s *Settlement) appendCBOR(b []byte) []byte {
	m := newFields(b)
	m.uint(1, uint64(s.Verb))
	if s.Version != (Version{}) {
		m.key(2)
		m.b = s.Version.appendCBOR(m.b)
	}
	if s.Mark != (Mark{}) {
		m.key(3)
		m.b = s.Mark.appendCBOR(m.b)
	}
	return m.end()
}

func (w *Wake) appendCBOR(b []byte) []byte {
	m := newFields(b)
	m.int(1, int64(w.At))
	m.flag(2, w.Callback)
	return m.end()
}

func (s *SpentNonce) appendCBOR(b []byte) []byte {
	m := newFields(b)
	m.text(1, string(s.Session))
	if s.Nonce != (Nonce{}) {
		m.key(2)
		m.b = appendBytes(m.b, s.Nonce[:])
	}
	m.int(3, int64(s.Until))
	return m.end()
}

func (p *Past) appendCBOR(b []byte) []byte {
	m := newFields(b)
	m.uint(1, uint64(p.Generation))
	m.uint(2, uint64(p.State))
	if p.Receipt != nil {
		m.key(3)
		m.b = p.Receipt.appendCBOR(m.b)
	}
	if p.EndedBy != (Mark{}) {
		m.key(4)
		m.b = p.EndedBy.appendCBOR(m.b)
	}
	return m.end()
}
