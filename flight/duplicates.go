package flight

// MaxCallers is the number of last callers that DuplicateStats lists.
const MaxCallers = 8

// DuplicateStats counts the duplicates of a key, over all its generations: calls that were answered without another effect.
// The statistics are for people; no rule depends on them. A crash may lose a count, but no count is added twice.
type DuplicateStats struct {
	Count     uint64   `cbor:"1,keyasint,omitempty"`
	First     Time     `cbor:"2,keyasint,omitempty"`
	Last      Time     `cbor:"3,keyasint,omitempty"`
	Callers   []Caller `cbor:"4,keyasint,omitempty"` // at most MaxCallers, newest last
	LastCount CountID  `cbor:"5,keyasint,omitzero"`  // id of the last CountDuplicates that was added
}

// Caller is the name that a caller gave itself, and the time of its call.
type Caller struct {
	Actor string `cbor:"1,keyasint,omitempty"`
	At    Time   `cbor:"2,keyasint,omitempty"`
}

// CountID identifies one CountDuplicates, so that a repeat of it is recognized.
type CountID struct {
	Source uint64 `cbor:"1,keyasint,omitempty"` // number of the counting process
	Number uint64 `cbor:"2,keyasint,omitempty"` // rises with every CountDuplicates of that process
}

// Add returns the sum of two statistics, of which more is the later one. It changes neither; a nil receiver is empty.
func (s *DuplicateStats) Add(more DuplicateStats) DuplicateStats {
	switch {
	case s == nil, s.Count == 0:
		more.Callers = newest(nil, more.Callers)
		return more
	case more.Count == 0:
		return *s
	}
	sum := DuplicateStats{Count: s.Count + more.Count, First: s.First, Last: max(s.Last, more.Last), LastCount: more.LastCount}
	if more.First > 0 {
		sum.First = min(s.First, more.First)
	}
	sum.Callers = newest(s.Callers, more.Callers)
	return sum
}

// newest returns the last MaxCallers of two lists, of which b is the later one.
func newest(a, b []Caller) []Caller {
	if len(a)+len(b) == 0 {
		return nil
	}
	all := make([]Caller, 0, MaxCallers)
	keep := func(list []Caller, limit int) {
		for _, c := range list[max(0, len(list)-limit):] {
			all = append(all, Caller{Actor: Sanitize(c.Actor), At: c.At})
		}
	}
	keep(a, MaxCallers-min(MaxCallers, len(b)))
	keep(b, MaxCallers)
	return all
}

// CountDuplicates adds to the duplicate statistics of a key. It changes nothing else of the flight and keeps its version:
// duplicate calls do not invalidate the version on which a person decides.
type CountDuplicates struct {
	Key   Key            `cbor:"1,keyasint"`
	ID    CountID        `cbor:"2,keyasint,omitzero"`
	Stats DuplicateStats `cbor:"3,keyasint,omitzero"` // duplicates since the last CountDuplicates of that process
}

func (t *transition) countDuplicates(c *CountDuplicates) Decision {
	f := t.flight()
	switch {
	case t.absent():
		return DecisionNotFound
	case f.State == StateExpired:
		return DecisionExpired
	case c.Stats.Count == 0, f.Duplicates != nil && f.Duplicates.LastCount == c.ID:
		return DecisionAccepted
	}
	t.keepsVersion = true
	sum := f.Duplicates.Add(c.Stats)
	sum.LastCount = c.ID
	t.editFlight().Duplicates = &sum
	return DecisionAccepted
}
