package flight

// Every flight writes an Open, a Report, its record and some events, and reflection over them takes about three times as
// long as this and leaves more garbage. So these types, and what they are made of, are written by hand: field by field
// in the order of their numbers, which is the order of the core deterministic encoding, to exactly the bytes that their
// struct tags promise. Whoever adds a field adds it here or in append_records.go too; a test compares every field with
// its tag.

// appender is a command or record that is written by hand. It is never nil.
type appender interface {
	// room is how many bytes appendCBOR usually needs at most; a wrong guess costs time and nothing else.
	room() int
	// appendCBOR writes the whole behind b.
	appendCBOR(b []byte) []byte
}

// The major types of CBOR (RFC 8949, section 3.1), in place.
const (
	cborUint  = 0 << 5
	cborMinus = 1 << 5 // -1 minus the argument
	cborBytes = 2 << 5
	cborText  = 3 << 5
	cborArray = 4 << 5
	cborMap   = 5 << 5
	cborTrue  = 7<<5 | 21
)

// The arguments of a CBOR head that say how many bytes of argument follow; smaller arguments stand in the head itself.
const (
	cbor8 = 24 + iota
	cbor16
	cbor32
	cbor64
)

// appendHead writes a head in its shortest form, the only one that is deterministic.
func appendHead(b []byte, major byte, n uint64) []byte {
	switch {
	case n < cbor8:
		return append(b, major|byte(n))
	case n <= 0xff:
		return append(b, major|cbor8, byte(n))
	case n <= 0xffff:
		return append(b, major|cbor16, byte(n>>8), byte(n))
	case n <= 0xffff_ffff:
		return append(b, major|cbor32, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
	}
	return append(b, major|cbor64, byte(n>>56), byte(n>>48), byte(n>>40), byte(n>>32),
		byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
}

func appendInt(b []byte, n int64) []byte {
	if n < 0 {
		return appendHead(b, cborMinus, uint64(^n))
	}
	return appendHead(b, cborUint, uint64(n))
}

func appendBytes(b, data []byte) []byte {
	return append(appendHead(b, cborBytes, uint64(len(data))), data...)
}

func appendText(b []byte, s string) []byte {
	return append(appendHead(b, cborText, uint64(len(s))), s...)
}

// fields is a map from integers while it is being written behind b. Its methods leave out what is zero, as omitempty
// does; a field that is always there, or is no plain value, says key and appends to b itself.
type fields struct {
	b    []byte
	head int // where the map's head stands
	n    int
}

func newFields(b []byte) fields { return fields{b: append(b, cborMap), head: len(b)} }

// end sets the head. One byte was left for it; a map of more fields than that can say is moved up.
func (m *fields) end() []byte {
	if m.n < cbor8 {
		m.b[m.head] |= byte(m.n)
		return m.b
	}
	m.b = append(m.b, 0)
	copy(m.b[m.head+2:], m.b[m.head+1:])
	m.b[m.head], m.b[m.head+1] = cborMap|cbor8, byte(m.n)
	return m.b
}

func (m *fields) key(k byte) {
	m.n++
	if k < cbor8 {
		m.b = append(m.b, k)
		return
	}
	m.b = append(m.b, cbor8, k)
}

func (m *fields) uint(k byte, n uint64) {
	if n != 0 {
		m.key(k)
		m.b = appendHead(m.b, cborUint, n)
	}
}

func (m *fields) int(k byte, n int64) {
	if n != 0 {
		m.key(k)
		m.b = appendInt(m.b, n)
	}
}

func (m *fields) flag(k byte, is bool) {
	if is {
		m.key(k)
		m.b = append(m.b, cborTrue)
	}
}

func (m *fields) text(k byte, s string) {
	if s != "" {
		m.key(k)
		m.b = appendText(m.b, s)
	}
}

func (m *fields) bytes(k byte, data []byte) {
	if len(data) > 0 {
		m.key(k)
		m.b = appendBytes(m.b, data)
	}
}

func (k Key) appendCBOR(b []byte) []byte { return appendText(b, k.full) }

func (c *Open) room() int {
	const usual = 224
	return usual + len(c.Key.full) + c.Submission.Input.room() + len(c.Claim.Session) + len(c.Owner)
}

func (c *Open) appendCBOR(b []byte) []byte {
	m := newFields(b)
	m.key(1)
	m.b = c.Key.appendCBOR(m.b)
	m.key(2)
	m.b = c.Submission.appendCBOR(m.b)
	m.key(3)
	m.b = c.Claim.appendCBOR(m.b)
	m.key(4)
	m.b = appendBytes(m.b, c.Nonce[:])
	m.key(5)
	m.b = appendInt(m.b, int64(c.NotAfter))
	m.text(6, c.Owner)
	m.uint(7, uint64(c.StoreEpoch))
	return m.end()
}

func (c *Report) room() int {
	const usual = 128
	return usual + len(c.Key.full) + len(c.ExternalID) + c.Body.room() + len(c.Error)
}

func (c *Report) appendCBOR(b []byte) []byte {
	m := newFields(b)
	m.key(1)
	m.b = c.Key.appendCBOR(m.b)
	m.key(2)
	m.b = appendHead(m.b, cborUint, uint64(c.Generation))
	m.key(3)
	m.b = c.Token.appendCBOR(m.b)
	m.key(4)
	m.b = appendHead(m.b, cborUint, uint64(c.Outcome))
	m.text(5, c.ExternalID)
	if !c.Body.absent() {
		m.key(6)
		m.b = c.Body.appendCBOR(m.b)
	}
	m.text(7, c.Error)
	m.int(8, int64(c.RetryAfter))
	return m.end()
}

func (c *Import) room() int {
	const usual = 160
	return usual + len(c.Key.full) + c.Input.room() + len(c.ExternalID) + c.Body.room() + len(c.Who)
}

func (c *Import) appendCBOR(b []byte) []byte {
	m := newFields(b)
	m.key(1)
	m.b = c.Key.appendCBOR(m.b)
	if c.Fingerprint != NoFingerprint {
		m.key(2)
		m.b = appendBytes(m.b, c.Fingerprint[:])
	}
	if !c.Input.absent() {
		m.key(3)
		m.b = c.Input.appendCBOR(m.b)
	}
	m.key(4)
	m.b = appendHead(m.b, cborUint, uint64(c.Outcome))
	m.text(5, c.ExternalID)
	if !c.Body.absent() {
		m.key(6)
		m.b = c.Body.appendCBOR(m.b)
	}
	m.int(7, int64(c.CreatedAt))
	m.int(8, int64(c.FinishedAt))
	m.int(9, int64(c.Retention))
	m.text(10, c.Who)
	return m.end()
}

func (s *Submission) appendCBOR(b []byte) []byte {
	m := newFields(b)
	if s.Fingerprint != NoFingerprint {
		m.key(1)
		m.b = appendBytes(m.b, s.Fingerprint[:])
	}
	if !s.Input.absent() {
		m.key(2)
		m.b = s.Input.appendCBOR(m.b)
	}
	if s.Policy != (Policy{}) {
		m.key(3)
		m.b = s.Policy.appendCBOR(m.b)
	}
	if !s.Driver.IsZero() {
		m.key(4)
		m.b = s.Driver.appendCBOR(m.b)
	}
	return m.end()
}

// room is what the texts of the blob need; the numbers are counted by whoever holds it.
func (b *Blob) room() int { return len(b.ContentType) + len(b.Data) }

// absent reports whether there is no blob at all. One of no bytes that was there is another thing.
func (b *Blob) absent() bool {
	return b.ContentType == "" && b.Size == 0 && b.Kept == 0 && b.Digest.IsZero() && b.Data == nil
}

func (b *Blob) appendCBOR(to []byte) []byte {
	m := newFields(to)
	m.text(1, b.ContentType)
	m.int(2, int64(b.Size))
	m.int(3, int64(b.Kept))
	if !b.Digest.IsZero() {
		m.key(4)
		m.b = appendBytes(m.b, b.Digest[:])
	}
	m.bytes(5, b.Data)
	return m.end()
}

func (p *Policy) appendCBOR(b []byte) []byte {
	m := newFields(b)
	m.uint(1, uint64(p.Recovery))
	m.int(2, int64(p.AttemptTimeout))
	m.int(3, int64(p.SettleDelay))
	m.int(4, int64(p.ProviderWindow))
	m.flag(5, p.Lookup)
	m.int(6, int64(p.LookTries))
	if p.Retry != (RetryPolicy{}) {
		m.key(7)
		m.b = p.Retry.appendCBOR(m.b)
	}
	m.int(8, int64(p.Retention))
	m.flag(9, p.Approval)
	m.int(10, int64(p.RunAfter))
	m.flag(11, p.Saga)
	return m.end()
}

func (r *RetryPolicy) appendCBOR(b []byte) []byte {
	m := newFields(b)
	m.int(1, int64(r.Attempts))
	m.int(2, int64(r.MinBackoff))
	m.int(3, int64(r.MaxBackoff))
	m.int(4, int64(r.Within))
	return m.end()
}

func (c *Claim) appendCBOR(b []byte) []byte {
	m := newFields(b)
	m.uint(1, uint64(c.Epoch))
	m.int(2, c.Revision)
	m.text(3, string(c.Session))
	return m.end()
}

func (t *Token) appendCBOR(b []byte) []byte {
	m := newFields(b)
	m.uint(1, uint64(t.Epoch))
	m.int(2, t.Revision)
	m.uint(3, uint64(t.Number))
	return m.end()
}
