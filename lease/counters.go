package lease

import (
	"context"
	"sync"
	"time"
)

// pending counts what is under way in the background, and lets somebody wait until there is nothing.
type pending struct {
	mu   sync.Mutex
	n    int
	zero chan struct{} // closed when n falls to 0; nil when nobody waits
}

func (p *pending) add() {
	p.mu.Lock()
	p.n++
	p.mu.Unlock()
}

func (p *pending) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n--; p.n == 0 && p.zero != nil {
		close(p.zero)
		p.zero = nil
	}
}

func (p *pending) wait(ctx context.Context) error {
	p.mu.Lock()
	if p.n == 0 {
		p.mu.Unlock()
		return nil
	}
	if p.zero == nil {
		p.zero = make(chan struct{})
	}
	zero := p.zero
	p.mu.Unlock()
	select {
	case <-zero:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// strays remembers claims that may land late, by their nonce.
type strays struct {
	mu      sync.Mutex
	byNonce map[uint64]stray
}

func (s *strays) remember(nonce uint64, what stray) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byNonce == nil {
		s.byNonce = make(map[uint64]stray)
	}
	s.byNonce[nonce] = what
}

func (s *strays) has(nonce uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.byNonce[nonce]
	return ok
}

func (s *strays) removed(nonce uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if what, ok := s.byNonce[nonce]; ok {
		what.removed = true
		s.byNonce[nonce] = what
	}
}

// unseen forgets a stray that was not there when it was looked for, if it could not land any more when the look began.
func (s *strays) unseen(nonce uint64, began time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if what, ok := s.byNonce[nonce]; ok && !what.removed && began.After(what.forget) {
		delete(s.byNonce, nonce)
	}
}

// due gives what must be looked for, and forgets what was removed and nobody can ask about any more.
func (s *strays) due(now time.Time) []stray {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []stray
	for nonce, what := range s.byNonce {
		switch {
		case !what.removed:
			list = append(list, what)
		case now.After(what.forget):
			delete(s.byNonce, nonce)
		}
	}
	return list
}
