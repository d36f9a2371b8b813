package lease

import (
	"context"
	"errors"
)

// Close implements Service. Order: nobody new; releases that were asked for; the sessions kept here and the pool, in
// etcd too; then the lanes. Sessions of remote callers only end here, not in etcd.
func (d *Desk) Close(ctx context.Context) error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	d.endLife()
	kept, pooled := d.kept, d.pool.ready
	d.kept, d.pool.ready = nil, nil
	d.mu.Unlock()

	d.again()
	errs := []error{d.pending.wait(ctx)}
	for s := range kept {
		errs = append(errs, s.Close(ctx))
	}
	for _, t := range pooled {
		errs = append(errs, d.revoke(ctx, t))
	}
	d.endTerms(func(*term) bool { return true }, ErrClosed)
	d.batch.close()
	d.work.Wait()
	return errors.Join(errs...)
}
