package lease

import (
	"testing"
	"time"
)

// A stray is looked for until a look that began when it could not land any more has not shown it. One that was removed is
// still known for one: who saw it before may ask.
func TestStraysAreForgottenOnceLookedFor(t *testing.T) {
	now := time.Now()
	var s strays
	s.remember(1, stray{nonce: 1, forget: now.Add(strayFor)})
	s.remember(2, stray{nonce: 2, forget: now.Add(strayFor)})
	late := now.Add(10 * strayFor)
	for _, at := range []time.Time{now, late} {
		if n := len(s.due(at)); n != 2 {
			t.Fatalf("%d are looked for after %v", n, at.Sub(now))
		}
	}
	s.unseen(1, now.Add(strayFor))
	if !s.has(1) {
		t.Fatal("it may still land")
	}
	s.unseen(1, late)
	s.removed(2)
	s.unseen(2, now)
	if s.has(1) || !s.has(2) || len(s.due(now)) != 0 {
		t.Fatal("one was looked for in vain, the other was removed and may still be asked about")
	}
	if s.due(late); s.has(2) {
		t.Fatal("nobody can ask any more")
	}
}
