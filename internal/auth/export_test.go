package auth

// Namespaces returns how many namespaces the limiter remembers.
func (l *Limiter) Namespaces() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.namespaces)
}
