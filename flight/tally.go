package flight

// MaxCallers is the number of last callers that DuplicateStats lists.
const MaxCallers = 8

// DuplicateStats counts the duplicates of a key, over all its generations: calls that were answered without another effect.
// The statistics are for people; no rule depends on them. A crash may lose a count, but no count is added twice.
type Tally struct {
	Count   uint64   `cbor:"1,keyasint,omitempty"`
	First   Time     `cbor:"2,keyasint,omitempty"`
	Last    Time     `cbor:"3,keyasint,omitempty"`
	Callers []Caller `cbor:"4,keyasint,omitempty"` // at most MaxCallers, newest last
	Told    Telling  `cbor:"5,keyasint,omitzero"`  // id of the last CountDuplicates that was added
}

// Caller is the name that a caller gave itself, and the time of its call.
type Caller struct {
	Who string `cbor:"1,keyasint,omitempty"`
	At  Time   `cbor:"2,keyasint,omitempty"`
}

// CountID identifies one CountDuplicates, so that a repeat of it is recognized.
type Telling struct {
	Source uint64 `cbor:"1,keyasint,omitempty"` // number of the counting process
	Number uint64 `cbor:"2,keyasint,omitempty"` // rises with every CountDuplicates of that process
}

// Add returns the sum of two statistics, of which more is the later one. It changes neither; a nil receiver is empty.
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

// newest returns the last MaxCallers of two lists, of which b is the later one.
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

// CountDuplicates adds to the duplicate statistics of a key. It changes nothing else of the flight and keeps its version:
// duplicate calls do not invalidate the version on which a person decides.
type Count struct {
	Key     Key     `cbor:"1,keyasint"`
	Telling Telling `cbor:"2,keyasint,omitzero"`
	Tally   Tally   `cbor:"3,keyasint,omitzero"` // duplicates since the last CountDuplicates of that process
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
