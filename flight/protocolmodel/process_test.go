package protocolmodel

// The states of a session in etcd.
const (
	sessionNone = iota
	sessionAlive
	sessionExpired
	sessionRevoked
)

// process is a caller, driver or worker with one long-lived session.
type process struct {
	alive   uint8
	trusts  uint8 // 0: it does not trust its session; else the generation of the renewal, 1 where there is one only
	session uint8
}

// trusting is a process whose session was made.
var trusting = process{alive: 1, trusts: 1, session: sessionAlive}

// sessionRules are the rules of a session, and its owner's faults, in a machine with states S.
type sessionRules[S comparable] struct {
	of               func(*S, int) *process
	noDeaths, frozen bool
	generation       func(*S) uint8 // of a renewal sent now; nil: 1
	dies             func(*S, int)  // clears what is lost with the process
	expires          func(*S, int)  // clears what ends with the session
}

// steps has the end of trust, the renewal and the death of a process, and the end of its session. A session may end while
// its owner trusts it only where machines freeze; the session of a dead owner ends eventually.
func (r *sessionRules[S]) steps(s *S, who int, out *steps[S]) {
	p := r.of(s, who)
	generation := uint8(1)
	if r.generation != nil {
		generation = r.generation(s)
	}
	if p.alive == 1 && p.trusts > 0 {
		t := *s
		r.of(&t, who).trusts = 0
		out.add(t, perhaps, "trust ends", who)
	}
	if p.alive == 1 && p.session == sessionAlive && p.trusts != generation {
		t := *s
		r.of(&t, who).trusts = generation
		out.add(t, eventually, "session renewed", who)
	}
	if p.alive == 1 && !r.noDeaths {
		t := *s
		*r.of(&t, who) = process{session: p.session}
		if r.dies != nil {
			r.dies(&t, who)
		}
		out.add(t, perhaps, "owner dies", who)
	}
	if p.session == sessionAlive && (p.trusts == 0 || r.frozen) {
		t := *s
		r.of(&t, who).session = sessionExpired
		if r.expires != nil {
			r.expires(&t, who)
		}
		out.add(t, p.alive == 0, "session expires", who)
	}
}
