package lease

import (
	"context"
	"runtime"
	"testing"

	"github.com/flightd/flightd/flight"
)

// A claim is taken away at the moment when it was made, and its term ends at that moment, too: the turn on the key is given
// on once, not by both.
func TestTheTurnOfAHoldIsGivenOnOnce(t *testing.T) {
	key, land := flight.MustKey("test/charge/1"), make(chan struct{})
	d := &Desk{slots: slots{byKey: make(map[flight.Key]*slot)}}
	d.batch = newBatcher(1, 10, func(batch []*op) {
		<-land
		for _, o := range batch {
			d.settle(o)
		}
	})
	defer d.batch.close()
	ended := &term{desk: d, cause: ErrClosed}
	enter := func(ctx context.Context) error { return d.slots.enter(ctx, key, false) }
	if err := enter(t.Context()); err != nil {
		t.Fatal(err)
	}
	ended.mu.Lock() // it has ended, but the hold does not know yet
	made := make(chan error, 1)
	go func() { _, err := newHold(ended, key, 1); made <- err }()
	for d.slots.holder(key) == nil {
		runtime.Gosched()
	}
	h, taken := d.slots.holder(key), make(chan struct{})
	go func() { h.giveUp(ErrLost); close(taken) }()
	<-h.Context().Done()
	ended.mu.Unlock()
	<-taken
	if err := <-made; err != nil { // then the turn is still its caller's, as acquire has it
		d.slots.leave(key)
		if err := enter(t.Context()); err != nil {
			t.Fatal(err)
		}
		close(land)
	} else {
		close(land)
		if err := enter(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.pending.wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if enter(over) == nil {
		t.Error("two have the turn on one key")
	}
}
