package gate

import "sync"

// Signal wakes all goroutines that wait for a change. The zero Signal is ready for use.
type Signal struct {
	mu sync.Mutex // guards ch
	ch chan struct{}
}

// Next returns a channel that the next Broadcast closes.
func (s *Signal) Next() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch == nil {
		s.ch = make(chan struct{})
	}
	return s.ch
}

// Broadcast closes the channel that Next has returned.
func (s *Signal) Broadcast() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch != nil {
		close(s.ch)
		s.ch = nil
	}
}
