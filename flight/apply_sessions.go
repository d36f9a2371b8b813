package flight

// Admit checks the proof: it returns DecisionAccepted, or DecisionFenced for a proof that must change and remember nothing.
// The read must be later than the creation of the session, in the same history of etcd: an older cached read would not show
// the session key of a live session. A guard counter below the recorded one comes from an etcd that has lost data; the node
// that read it may not know yet. A session of an older lease epoch needs no read: it has ended when the hold of its epoch
// expires.
func (c *EndSession) Admit(h *Header) Decision {
	switch {
	case c.StoreEpoch != h.StoreEpoch, c.Epoch != h.LeaseEpoch, c.Session.Epoch > h.LeaseEpoch:
		return DecisionFenced
	case c.Session.Epoch < h.LeaseEpoch && h.Now < h.EpochHold:
		return DecisionFenced
	case c.Session.Epoch == h.LeaseEpoch && (c.ReadRevision < c.Session.Revision || c.Counter < h.GuardCounter):
		return DecisionFenced
	}
	return DecisionAccepted
}

// endSession applies the proof to one flight that the session may hold. The proof is also checked against the create
// revision in the flight's record: a proof with a wrong revision must not end the attempt of a live session.
func (t *transition) endSession(c *EndSession) Decision {
	if d := c.Admit(&t.header); d != DecisionAccepted {
		return d
	}
	f := t.flight()
	holder := f.Holder()
	if holder == nil || holder.ID != c.Session.ID {
		return DecisionAccepted
	}
	proof := *c
	proof.Session = *holder
	if d := proof.Admit(&t.header); d != DecisionAccepted {
		return d
	}
	if f.Verifying() {
		t.releaseVerification()
	} else {
		t.markLost("its session has ended")
	}
	return DecisionAccepted
}

// Admit decides on the close of a session that holds a number of flights.
func (c *CloseSession) Admit(h *Header, held int) Decision {
	switch {
	case c.StoreEpoch != h.StoreEpoch:
		return DecisionFenced
	case held > 0:
		return DecisionBusy
	}
	return DecisionAccepted
}

// withdrawSession returns DecisionBusy if the session holds the key. Otherwise it returns DecisionAccepted, and the state
// machine remembers the session as ended.
func (t *transition) withdrawSession(c *WithdrawSession) Decision {
	switch holder := t.flight().Holder(); {
	case c.StoreEpoch != t.header.StoreEpoch:
		return DecisionFenced
	case holder != nil && holder.ID == c.Session:
		return DecisionBusy
	}
	return DecisionAccepted
}
