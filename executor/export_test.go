package executor

// Guests is how many remote callers the desk remembers.
func (d *Desk) Guests() int {
	d.guests.mu.Lock()
	defer d.guests.mu.Unlock()
	return len(d.guests.bySession) + len(d.guests.byFlight)
}

// Notes is how many attempts and look-ups of remote callers the desk remembers.
func (d *Desk) Notes() (n int) {
	d.guests.mu.Lock()
	defer d.guests.mu.Unlock()
	for _, s := range d.guests.bySession {
		n += len(s.flights)
	}
	return n
}
