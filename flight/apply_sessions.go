package flight

// Admit checks the proof: it returns DecisionAccepted, or DecisionFenced for a proof that must change and remember nothing.
// The read must be later than the creation of the session, in the same history of etcd: an older cached read would not show
// the session key of a live session. A guard counter below the recorded one comes from an etcd that has lost data; the node
// that read it may not know yet. A session of an older lease epoch needs no read: it has ended when the hold of its epoch
// expires.
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

// endSession applies the proof to one flight that the session may hold. The proof is also checked against the create
// revision in the flight's record: a proof with a wrong revision must not end the attempt of a live session.
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

// withdrawSession returns DecisionBusy if the session holds the key. Otherwise it returns DecisionAccepted, and the state
// machine remembers the session as ended.
func (t *turn) withdraw(c *Withdraw) Decision {
	switch holder := t.flight().Holder(); {
	case c.StoreEpoch != t.header.StoreEpoch:
		return Fenced
	case holder != nil && holder.ID == c.Session:
		return Busy
	}
	return Accepted
}
