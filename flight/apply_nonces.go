package flight

import "slices"

// isUsedNonce reports whether the nonce has opened an attempt, or was used up without opening one.
func (t *transition) isUsedNonce(nonce Nonce) bool {
	f := t.flight()
	return f != nil && (f.attemptByNonce(nonce) != nil ||
		slices.ContainsFunc(f.UsedNonces, func(u UsedNonce) bool { return u.Nonce == nonce }))
}

// attemptByNonce returns the stored attempt of this generation that the nonce has opened, or nil if there is none.
func (f *Flight) attemptByNonce(nonce Nonce) *Attempt {
	for i := range f.Attempts {
		if f.Attempts[i].Nonce == nonce {
			return &f.Attempts[i]
		}
	}
	return nil
}

// answerUsedNonce answers an Open whose nonce is used up. DecisionInDoubt is repeated to a caller that may have lost that
// answer. The caller of a lost attempt gets DecisionFenced instead, because its Abandon can still remove the taint.
func (t *transition) answerUsedNonce(nonce Nonce) Decision {
	if f := t.flight(); f.State == StateInDoubt && f.attemptByNonce(nonce) == nil {
		return DecisionInDoubt
	}
	return DecisionFenced
}

// rejectFarNotAfter rejects an Open whose NotAfter is too far ahead, and uses up its nonce. The caller continues with
// another nonce; a copy of this Open that arrives when its NotAfter is no longer too far ahead would open an attempt
// without a caller.
func (t *transition) rejectFarNotAfter(c *Open) Decision {
	switch {
	case t.isUsedNonce(c.Nonce), c.NotAfter > t.header.Now.Add(MaxNonceLife):
		return DecisionOpenExpired
	case t.noncesExhausted():
		return DecisionExhausted
	}
	t.useNonce(c.Nonce, c.NotAfter)
	return DecisionOpenExpired
}

// noncesExhausted reports whether the flight remembers MaxUsedNonces used nonces that have not expired.
func (t *transition) noncesExhausted() bool {
	f := t.flight()
	return f != nil && len(f.UsedNonces) >= MaxUsedNonces && len(t.unexpiredNonces(f.UsedNonces)) >= MaxUsedNonces
}

// useNonce remembers a used nonce until every Open that carries it has expired. A command that changes nothing else keeps the
// flight's version.
func (t *transition) useNonce(nonce Nonce, until Time) {
	t.keepsVersion = t.after == nil && t.before != nil
	f := t.editFlight()
	f.UsedNonces = append(slices.Clip(t.unexpiredNonces(f.UsedNonces)), UsedNonce{Nonce: nonce, Until: until})
}

// usedNoncesOf returns the nonces that a flight passes on to its next generation or its tombstone.
func (t *transition) usedNoncesOf(f *Flight) []UsedNonce {
	used := t.unexpiredNonces(f.UsedNonces)
	for i := range f.Attempts {
		used = t.appendNonceOf(used, &f.Attempts[i])
	}
	return used
}

// appendNonceOf appends the nonce of an attempt, unless every Open that carries it has expired.
func (t *transition) appendNonceOf(used []UsedNonce, a *Attempt) []UsedNonce {
	if a.NotAfter < t.header.Now {
		return used
	}
	return append(slices.Clip(used), UsedNonce{Nonce: a.Nonce, Until: a.NotAfter})
}

func (t *transition) unexpiredNonces(used []UsedNonce) []UsedNonce {
	expired := func(u UsedNonce) bool { return u.Until < t.header.Now }
	if !slices.ContainsFunc(used, expired) {
		return used
	}
	return slices.DeleteFunc(slices.Clone(used), expired)
}
