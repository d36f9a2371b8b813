package flight

// Admit says whether the proof counts: Accepted, or Fenced, which changes and remembers nothing. The read must have been
// made after the session was, in the same history of etcd: a cached read from before would not show the marker of a session
// that lives. A counter below the recorded one is that of an etcd which has lost its past; the node that read it may not
// know yet. A session of an older lease epoch is over when that epoch's hold is, without a read.
func (c *Ended) Admit(h *Header) Decision {
	switch {
	case c.StoreEpoch != h.StoreEpoch, c.Epoch != h.LeaseEpoch, c.Session.Epoch > h.LeaseEpoch:
		return Fenced
	case c.Session.Epoch < h.LeaseEpoch && h.Now < h.EpochHold:
		return Fenced
	case c.Session.Epoch == h.LeaseEpoch && (c.ReadRevision < c.Session.Revision || c.Counter < h.Guard):
		return Fenced
	}
	return Accepted
}

// sessionEnded applies the proof to one flight that the session may hold. The create revision that the flight has recorded
// is compared as well: the attempt of a living session is not ended by a proof that names the session wrongly.
func (t *turn) sessionEnded(c *Ended) Decision {
	if d := c.Admit(&t.header); d != Accepted {
		return d
	}
	f := t.flight()
	holder := f.Holder()
	if holder == nil || holder.ID != c.Session.ID {
		return Accepted
	}
	proof := *c
	proof.Session = *holder
	if d := proof.Admit(&t.header); d != Accepted {
		return d
	}
	if f.Looking() {
		t.endLook()
	} else {
		t.lose("its session has ended")
	}
	return Accepted
}

// withdraw answers whether a session that was meant for this key holds it. Where it does not, the state machine remembers
// the session as ended.
func (t *turn) withdraw(c *Withdraw) Decision {
	switch holder := t.flight().Holder(); {
	case c.StoreEpoch != t.header.StoreEpoch:
		return Fenced
	case holder != nil && holder.ID == c.Session:
		return Busy
	}
	return Accepted
}
