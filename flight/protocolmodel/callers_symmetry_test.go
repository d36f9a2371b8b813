package protocolmodel

import (
	"bytes"
	"unsafe"
)

// canonical clears fields that no rule reads any more, and orders interchangeable nodes and callers.
func (cc *callersConfig) canonical(t *callersState) {
	for c := range cc.callers {
		if p := &t.callers[c]; p.alive == 0 {
			*p = caller{}
			for n := c * cc.noncesPerCaller; n < (c+1)*cc.noncesPerCaller; n++ {
				t.owed &^= bit(n)
			}
		} else if p.phase == callerIsThrough {
			p.attempt = 0
		}
	}
	if cc.interchangeable {
		t.orderBySymmetry()
		return
	}
	if cc.oneShot || cc.nodes != 2 {
		return
	}
	for c := range cc.callers {
		a, b := t.handlers[0][c], t.handlers[1][c]
		x := uint(a.nonce)<<8 | uint(a.claim)<<4 | uint(a.answer)
		y := uint(b.nonce)<<8 | uint(b.claim)<<4 | uint(b.answer)
		if x != y {
			if y < x {
				t.handlers[0], t.handlers[1] = t.handlers[1], t.handlers[0]
			}
			return
		}
	}
}

// orderBySymmetry replaces a state by the least of its four images under swapping the nodes and swapping the callers.
func (s *callersState) orderBySymmetry() {
	best := *s
	for i := 1; i < 4; i++ {
		u := *s
		if i&1 != 0 {
			u.handlers[0], u.handlers[1] = u.handlers[1], u.handlers[0]
		}
		if i&2 != 0 {
			u.swapCallers()
		}
		if u.less(&best) {
			best = u
		}
	}
	*s = best
}

// swapCallers renames callers 0 and 1, each with one nonce and two sessions.
func (s *callersState) swapCallers() {
	nonces := func(set uint8) uint8 { return set&^3 | set&1<<1 | set&2>>1 }
	sessions := func(set uint8) uint8 { return set&0xf0 | set&3<<2 | set&12>>2 }
	session := func(plusOne uint8) uint8 {
		if plusOne == 0 {
			return 0
		}
		return (plusOne - 1) ^ 2 + 1
	}
	s.callers[0], s.callers[1] = s.callers[1], s.callers[0]
	for c := range 2 {
		s.callers[c].session = session(s.callers[c].session)
	}
	for _, set := range []*uint8{&s.used, &s.forgotten, &s.abandons, &s.answers, &s.requests, &s.nodeAbandons, &s.owed} {
		*set = nonces(*set)
	}
	s.opens, s.withdrawn = sessions(s.opens), sessions(s.withdrawn)
	s.sessions[0], s.sessions[1], s.sessions[2], s.sessions[3] = s.sessions[2], s.sessions[3], s.sessions[0], s.sessions[1]
	s.claim = session(s.claim)
	for k := range int(s.attemptCount) {
		s.attempts[k].nonce ^= 1
		s.sessionOfAttempt[k] ^= 2
	}
	for i := range 2 {
		s.handlers[i][0], s.handlers[i][1] = s.handlers[i][1], s.handlers[i][0]
		for c := range 2 {
			if n := s.handlers[i][c].nonce; n > 0 {
				s.handlers[i][c].nonce = 3 - n
			}
		}
	}
}

func (s *callersState) less(u *callersState) bool {
	x := unsafe.Slice((*byte)(unsafe.Pointer(s)), unsafe.Sizeof(*s))
	y := unsafe.Slice((*byte)(unsafe.Pointer(u)), unsafe.Sizeof(*u))
	return bytes.Compare(x, y) < 0
}
