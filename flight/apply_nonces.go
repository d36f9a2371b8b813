package flight

import "slices"

// isUsedNonce reports whether the nonce has opened an attempt, or was used up without opening one.
func (t *turn) isUsed(nonce Nonce) bool {
	f := t.flight()
	return f != nil && (f.attemptOf(nonce) != nil ||
		slices.ContainsFunc(f.UsedNonces, func(u UsedNonce) bool { return u.Nonce == nonce }))
}

// attemptByNonce returns the stored attempt of this generation that the nonce has opened; nil if there is none.
func (f *Flight) attemptOf(nonce Nonce) *Attempt {
	for i := range f.Attempts {
		if f.Attempts[i].Nonce == nonce {
			return &f.Attempts[i]
		}
	}
	return nil
}

// answerUsedNonce answers an Open whose nonce is used up. DecisionInDoubt is repeated to a caller that may have lost that
// answer. The caller of a lost attempt gets DecisionFenced instead, because its Abandon can still remove the taint.
func (t *turn) answerUsed(nonce Nonce) Decision {
	if f := t.flight(); f.State == InDoubt && f.attemptOf(nonce) == nil {
		return Doubtful
	}
	return Fenced
}

// rejectFarNotAfter rejects an Open whose NotAfter is too far ahead, and uses up its nonce. The caller continues with
// another nonce; a copy of this Open that arrives when its NotAfter is no longer too far ahead would open an attempt
// without a caller.
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

// noncesExhausted reports whether the flight remembers MaxUsedNonces used nonces that have not expired.
func (t *turn) exhausted() bool {
	f := t.flight()
	return f != nil && len(f.UsedNonces) >= MaxUsedNonces && len(t.unexpired(f.UsedNonces)) >= MaxUsedNonces
}

// useNonce remembers a used nonce until every Open that carries it has expired. A command that changes nothing else keeps the
// flight's version.
func (t *turn) use(nonce Nonce, until Time) {
	t.quiet = t.after == nil && t.before != nil
	f := t.edit()
	f.UsedNonces = append(slices.Clip(t.unexpired(f.UsedNonces)), UsedNonce{Nonce: nonce, Until: until})
}

// usedNoncesOf returns the nonces that a flight passes on to its next generation or its tombstone.
func (t *turn) usedNoncesOf(f *Flight) []UsedNonce {
	used := t.unexpired(f.UsedNonces)
	for i := range f.Attempts {
		used = t.withNonceOf(used, &f.Attempts[i])
	}
	return used
}

// appendNonceOf appends the nonce of an attempt, unless every Open that carries it has expired.
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
