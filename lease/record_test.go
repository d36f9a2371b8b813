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
