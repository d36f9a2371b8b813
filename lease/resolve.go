package lease

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/flightd/flightd/flight"
)

// stray is a claim that may yet land in etcd although nobody in this process will own it.
type stray struct {
	key     flight.Key
	nonce   uint64
	forget  time.Time // past this it cannot land any more
	removed bool      // it landed and was removed; who saw it before may still ask
}

// strayFor is how long a request that was sent may still be on its way into etcd.
const strayFor = time.Minute

// resolve settles a batch whose answer was lost, by reading: a claim is ours exactly if its value carries our nonce.
// What reading cannot settle is answered as unavailable, and remembered as a stray.
func (d *Desk) resolve(batch []*op, cause error) {
	ctx, cancel := context.WithTimeout(context.Background(), d.cfg.CommitTimeout)
	defer cancel()
	keys := make([]string, 0, len(batch))
	for _, o := range batch {
		if o.Kind != OpRetire {
			keys = append(keys, o.Key)
		}
	}
	found, err := d.look(ctx, keys)
	won := 0
	for _, o := range batch {
		if o.Kind == OpClaim {
			d.resolveClaim(o, found[o.Key], cause, err)
			if o.Done {
				won++
			}
		} else {
			e, there := found[o.Key]
			o.err = err
			if err == nil && there && e.Revision == o.Revision {
				o.err = cause // not done, try again
			}
		}
		d.settle(o)
	}
	d.cfg.Events.ambiguous(len(batch), won, err)
}

func (d *Desk) resolveClaim(o *op, e Entry, cause, readErr error) {
	if readErr == nil && e.Revision > 0 && e.Value == o.Value {
		o.Done, o.Revision, o.err = true, e.Revision, nil
		return
	}
	o.Done, o.err = false, unavailable("claiming", cause)
	d.strays.remember(o.nonce, stray{key: o.key, nonce: o.nonce, forget: time.Now().Add(strayFor)})
}

// look reads claims and checks that etcd has not lost its past.
func (d *Desk) look(ctx context.Context, keys []string) (map[string]Entry, error) {
	p, err := d.guard.enter(ctx)
	if err != nil {
		return nil, err
	}
	entries, revision, err := d.cfg.Registry.Get(ctx, keys)
	if err != nil {
		return nil, unavailable("reading claims", err)
	}
	if err := d.guard.saw(p, revision); err != nil {
		return nil, err
	}
	found := make(map[string]Entry, len(entries))
	for _, e := range entries {
		found[e.Key] = e
	}
	return found, nil
}

// sweepStrays deletes claims of ours that landed late, and forgets those that will not. After a long outage there may be
// many.
func (d *Desk) sweepStrays(ctx context.Context) {
	for due := range slices.Chunk(d.strays.due(time.Now()), d.cfg.BatchSize) {
		keys := make([]string, len(due))
		for i, s := range due {
			keys[i] = s.key.String()
		}
		began := time.Now()
		found, err := d.look(ctx, keys)
		if err != nil {
			return
		}
		for i, s := range due {
			if ours, _ := d.evict(ctx, found[keys[i]]); !ours { // else, on an error, the next round tries again
				d.strays.unseen(s.nonce, began)
			}
		}
	}
}

// evict removes the entry if it is a stray of this process, and says whether it was one.
func (d *Desk) evict(ctx context.Context, e Entry) (bool, error) {
	r, err := ParseRecord(e.Value)
	if err != nil || r.Boot != d.cfg.Boot || !d.strays.has(r.Nonce) {
		return false, nil
	}
	h, err := e.held()
	if err != nil {
		return false, nil
	}
	if err := d.remove(ctx, h.Key, h.Claim); err != nil {
		return true, err
	}
	d.strays.removed(r.Nonce)
	d.cfg.Events.stray(h.Key, h.Claim)
	return true, nil
}

func isStamp(err error) bool {
	var stamp *StampError
	return errors.As(err, &stamp)
}

// unlessClassed gives err the class ErrUnavailable if it has none of this package.
func unlessClassed(err error, what string) error {
	for _, class := range [...]error{ErrUnavailable, ErrRegressed, ErrForeign, ErrLost, ErrClosed} {
		if errors.Is(err, class) {
			return err
		}
	}
	return unavailable(what, err)
}
