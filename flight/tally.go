package flight

// MaxCallers is how many of those who called last a tally names.
const MaxCallers = 8

// Tally counts the duplicates of a key, over all its generations: calls that were answered without another effect. It
// is for people to read, and no rule reads it: a count may be lost in a crash, and none is made twice.
type Tally struct {
	Count   uint64   `cbor:"1,keyasint,omitempty"`
	First   Time     `cbor:"2,keyasint,omitempty"`
	Last    Time     `cbor:"3,keyasint,omitempty"`
	Callers []Caller `cbor:"4,keyasint,omitempty"` // at most MaxCallers, newest last
	Told    Telling  `cbor:"5,keyasint,omitzero"`  // what was added last
}

// Caller is who called, in its own words, and when.
type Caller struct {
	Who string `cbor:"1,keyasint,omitempty"`
	At  Time   `cbor:"2,keyasint,omitempty"`
}

// Telling names one Count, so that a repeat of it is known for one.
type Telling struct {
	Source uint64 `cbor:"1,keyasint,omitempty"` // the process that counted, by a number of its own
	Number uint64 `cbor:"2,keyasint,omitempty"` // rises with every Count of that process
}

// Plus is the tally with what came after it. Neither is changed; the nil Tally is empty.
func (t *Tally) Plus(more Tally) Tally {
	switch {
	case t == nil, t.Count == 0:
		more.Callers = newest(nil, more.Callers)
		return more
	case more.Count == 0:
		return *t
	}
	sum := Tally{Count: t.Count + more.Count, First: t.First, Last: max(t.Last, more.Last), Told: more.Told}
	if more.First > 0 {
		sum.First = min(t.First, more.First)
	}
	sum.Callers = newest(t.Callers, more.Callers)
	return sum
}

// newest are the last MaxCallers of two lists, of which the second one came later.
func newest(a, b []Caller) []Caller {
	if len(a)+len(b) == 0 {
		return nil
	}
	all := make([]Caller, 0, MaxCallers)
	keep := func(list []Caller, room int) {
		for _, c := range list[max(0, len(list)-room):] {
			all = append(all, Caller{Who: Text(c.Who), At: c.At})
		}
	}
	keep(a, MaxCallers-min(MaxCallers, len(b)))
	keep(b, MaxCallers)
	return all
}

// Count adds duplicates to the tally of a key. It changes nothing else of the flight, not even its version: a person
// who decides about a flight has seen it, however often it was asked for since.
type Count struct {
	Key     Key     `cbor:"1,keyasint"`
	Telling Telling `cbor:"2,keyasint,omitzero"`
	Tally   Tally   `cbor:"3,keyasint,omitzero"` // what came since the last Count of that process
}

func (t *turn) count(c *Count) Decision {
	f := t.flight()
	switch {
	case t.absent():
		return Missing
	case f.State == Expired:
		return Gone
	case c.Tally.Count == 0, f.Duplicates != nil && f.Duplicates.Told == c.Telling:
		return Accepted
	}
	t.quiet = true
	sum := f.Duplicates.Plus(c.Tally)
	sum.Told = c.Telling
	t.edit().Duplicates = &sum
	return Accepted
}
