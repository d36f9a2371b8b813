package lease

import (
	"strings"
	"testing"

	"github.com/flightd/flightd/flight"
)

func TestRecordsReadAsWritten(t *testing.T) {
	r := Record{
		Epoch: 7, Boot: Boot{1, 2, 3}, Deployment: strings.Repeat("d", MaxDeployment), Session: newSessionID(),
		Owner: strings.Repeat("o", MaxOwner), Nonce: 1 << 60,
	}
	value := recordValue(recordPrefix(r), r.Nonce)
	if len(value) > 512 {
		t.Errorf("the longest claim has %d bytes", len(value))
	}
	got, err := ParseRecord(value)
	if err != nil || got != r {
		t.Errorf("read %+v, %v; wrote %+v", got, err, r)
	}
	for n := range len(value) {
		if _, err := ParseRecord(value[:n]); err == nil {
			t.Errorf("a record cut to %d bytes was read", n)
		}
	}
}

func TestSessionIDsAreLongAndDistinct(t *testing.T) {
	seen := map[flight.SessionID]bool{}
	for range 1000 {
		id := newSessionID()
		if len(id) != 30 || seen[id] {
			t.Fatalf("session id %q", id)
		}
		seen[id] = true
	}
}

// A stray that was removed is still known for one: who saw it before may ask.
func TestStraysAreRememberedUntilTheyCannotLand(t *testing.T) {
	var s strays
	s.remember(1, stray{forget: t0.Add(strayFor)})
	s.remember(2, stray{forget: t0.Add(strayFor)})
	s.removed(1)
	if due := s.due(t0); len(due) != 1 || !s.has(1) || !s.has(2) || s.has(3) {
		t.Errorf("%d due, remembered %v", len(due), s.byNonce)
	}
	if due := s.due(t0.Add(2 * strayFor)); len(due) != 0 || s.has(1) || s.has(2) {
		t.Errorf("%d due, remembered %v", len(due), s.byNonce)
	}
}

func FuzzParseRecord(f *testing.F) {
	f.Add(recordValue(recordPrefix(Record{Epoch: 1, Deployment: "d", Session: "s", Owner: "o"}), 9))
	f.Add("")
	f.Fuzz(func(t *testing.T, value string) {
		r, err := ParseRecord(value)
		if err == nil && recordValue(recordPrefix(r), r.Nonce) != value {
			t.Errorf("%q reads as %+v, which is written differently", value, r)
		}
	})
}
