package executor

// Guests is how many remote callers the desk remembers.
func (d *Desk) Guests() int {
	d.guests.mu.Lock()
	defer d.guests.mu.Unlock()
	return len(d.guests.bySession) + len(d.guests.byFlight)
}
