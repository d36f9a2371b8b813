package protocolmodel

import (
	"bytes"
	"unsafe"
)

// canonical clears fields that no rule reads any more, and orders interchangeable nodes and callers.
func (g *callersConfig) canonical(t *callersState) {
	for c := range g.callers {
		if p := &t.callers[c]; p.alive == 0 {
			*p = caller{}
			for n := c * g.noncesPerCaller; n < (c+1)*g.noncesPerCaller; n++ {
				t.owed &^= bit(n)
			}
		} else if p.phase == callerIsThrough {
			p.attempt = 0
		}
	}
	if g.interchangeable {
		t.orderBySymmetry()
		return
	}
	if g.oneShot || g.nodes != 2 {
		return
	}
	for c := range g.callers {
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
func (t *callersState) orderBySymmetry() {
	best := *t
	for i := 1; i < 4; i++ {
		u := *t
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
	*t = best
}

// swapCallers renames callers 0 and 1, each with one nonce and two sessions.
func (t *callersState) swapCallers() {
	nonces := func(set uint8) uint8 { return set&^3 | set&1<<1 | set&2>>1 }
	sessions := func(set uint8) uint8 { return set&0xf0 | set&3<<2 | set&12>>2 }
	session := func(plusOne uint8) uint8 {
		if plusOne == 0 {
			return 0
		}
		return (plusOne - 1) ^ 2 + 1
	}
	t.callers[0], t.callers[1] = t.callers[1], t.callers[0]
	for c := range 2 {
		t.callers[c].session = session(t.callers[c].session)
	}
	for _, set := range []*uint8{&t.used, &t.forgotten, &t.abandons, &t.answers, &t.requests, &t.nodeAbandons, &t.owed} {
		*set = nonces(*set)
	}
	t.opens, t.withdrawn = sessions(t.opens), sessions(t.withdrawn)
	t.sessions[0], t.sessions[1], t.sessions[2], t.sessions[3] = t.sessions[2], t.sessions[3], t.sessions[0], t.sessions[1]
	t.claim = session(t.claim)
	for k := range int(t.attemptCount) {
		t.attempts[k].nonce ^= 1
		t.attempts[k].session ^= 2
	}
	for i := range 2 {
		t.handlers[i][0], t.handlers[i][1] = t.handlers[i][1], t.handlers[i][0]
		for c := range 2 {
			if n := t.handlers[i][c].nonce; n > 0 {
				t.handlers[i][c].nonce = 3 - n
			}
		}
	}
}

func (t *callersState) less(u *callersState) bool {
	x := unsafe.Slice((*byte)(unsafe.Pointer(t)), unsafe.Sizeof(*t))
	y := unsafe.Slice((*byte)(unsafe.Pointer(u)), unsafe.Sizeof(*u))
	return bytes.Compare(x, y) < 0
}
