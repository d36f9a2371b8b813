package flight

import "slices"

// isUsed reports whether the nonce has opened an attempt before, or may not open one any more.
func (t *turn) isUsed(nonce Nonce) bool {
	f := t.flight()
	return f != nil && (f.attemptOf(nonce) != nil ||
		slices.ContainsFunc(f.UsedNonces, func(u UsedNonce) bool { return u.Nonce == nonce }))
}

// attemptOf is the attempt of this generation that the nonce has opened, as far as it is kept; else nil.
func (f *Flight) attemptOf(nonce Nonce) *Attempt {
	for i := range f.Attempts {
		if f.Attempts[i].Nonce == nonce {
			return &f.Attempts[i]
		}
	}
	return nil
}

// answerUsed answers an Open whose nonce opens nothing any more. A caller that was answered Doubtful and did not hear it is
// answered so again; but not the caller of an attempt that was lost, who can take back its doubt by an Abandon.
func (t *turn) answerUsed(nonce Nonce) Decision {
	if f := t.flight(); f.State == InDoubt && f.attemptOf(nonce) == nil {
		return Doubtful
	}
	return Fenced
}

// tooFarAhead refuses an Open that would be valid for too long, and uses up its nonce: its caller takes another one, and a
// copy of it that arrives later, when its NotAfter is not too far ahead any more, would open an attempt of which nobody knows.
func (t *turn) tooFarAhead(c *Open) Decision {
	switch {
	case t.isUsed(c.Nonce), c.NotAfter > t.header.Now.Add(MaxNonceLife):
		return OpenExpired
	case t.exhausted():
		return Exhausted
	}
	t.use(c.Nonce, c.NotAfter)
	return OpenExpired
}

// exhausted reports whether the flight remembers as many used nonces as it may.
func (t *turn) exhausted() bool {
	f := t.flight()
	return f != nil && len(f.UsedNonces) >= MaxUsedNonces && len(t.unexpired(f.UsedNonces)) >= MaxUsedNonces
}

// use remembers a nonce that opens nothing any more for as long as an Open that carries it may be valid. Where this is all
// that the command changes, the flight keeps its version.
func (t *turn) use(nonce Nonce, until Time) {
	t.quiet = t.after == nil && t.before != nil
	f := t.edit()
	f.UsedNonces = append(slices.Clip(t.unexpired(f.UsedNonces)), UsedNonce{Nonce: nonce, Until: until})
}

// usedNoncesOf is what a flight that gives way to a new generation or a tombstone leaves of its nonces.
func (t *turn) usedNoncesOf(f *Flight) []UsedNonce {
	used := t.unexpired(f.UsedNonces)
	for i := range f.Attempts {
		used = t.withNonceOf(used, &f.Attempts[i])
	}
	return used
}

func (t *turn) withNonceOf(used []UsedNonce, a *Attempt) []UsedNonce {
	if a.NotAfter < t.header.Now {
		return used
	}
	return append(slices.Clip(used), UsedNonce{Nonce: a.Nonce, Until: a.NotAfter})
}

func (t *turn) unexpired(used []UsedNonce) []UsedNonce {
	expired := func(u UsedNonce) bool { return u.Until < t.header.Now }
	if !slices.ContainsFunc(used, expired) {
		return used
	}
	return slices.DeleteFunc(slices.Clone(used), expired)
}
