package lease

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// commit takes one batch to etcd and gives the answers out. It is the only place from which claims are written.
//
// If the process dies before the transaction is sent, nothing was written. If it dies after that, claims may be in etcd
// that no process owns; they end with their sessions.
func (d *Lessor) commit(batch []*op) {
	ctx, cancel := context.WithTimeout(context.Background(), d.cfg.CommitTimeout)
	defer cancel()
	p, err := d.guard.admit(ctx)
	if err != nil {
		for _, o := range batch {
			d.answer(o, err)
		}
		return
	}
	send := make([]*Op, 0, len(batch))
	for _, o := range batch {
		if ok, err := o.start(); !ok {
			d.answer(o, err)
			continue
		}
		send = append(send, &o.Op)
		batch[len(send)-1] = o
	}
	batch = batch[:len(send)]
	if len(batch) == 0 {
		return
	}
	began := time.Now()
	err = d.cfg.Store.Commit(ctx, p.own, send)
	d.cfg.Events.committed(len(batch), time.Since(began), err)
	refused := isOwnership(err)
	switch {
	case refused:
		err = d.guard.changed(ctx)
	case err != nil:
		err = unavailable("writing claims", err)
	}
	for _, o := range batch {
		d.answer(o, d.result(o, refused, err))
	}
}

// start is asked right before the operation is sent. False: it must not be, and the error is its answer.
func (o *op) start() (bool, error) {
	switch {
	case o.lease == nil:
		return true, nil
	case o.Kind == OpRelease:
		return o.lease.needsDelete(), nil
	}
	err := o.lease.startWrite()
	return err == nil, err
}

// result is what became of one operation of a transaction. Refused: etcd found another guard key and did nothing.
func (d *Lessor) result(o *op, refused bool, err error) error {
	switch {
	case !o.Kind.Puts():
		return err
	case refused:
		o.lease.notWritten()
		return err
	case err != nil:
		o.lease.answerLost()
		return err
	case o.Done:
		d.cfg.Events.claimed(o.lease.key, o.lease.grant.ref.ID)
		return nil
	case o.Holder == nil:
		err := fmt.Errorf("%w: etcd does not know session %s", ErrLost, o.Session)
		o.lease.notWritten()
		o.lease.grant.lose(err)
		return err
	case o.Holder.Value == o.Value:
		return nil // an earlier request wrote it
	}
	o.lease.notWritten()
	h, err := o.Holder.held()
	if err != nil {
		return err
	}
	return &HeldError{Key: h.Key, Session: h.Session, Nonce: h.Nonce}
}

// answer gives one answer to whom it concerns. A release that etcd did not answer is kept for another try. In an etcd that
// is refused nothing is released: all sessions of this process are lost there, and the claims end with them.
func (d *Lessor) answer(o *op, err error) {
	refused := errors.Is(err, ErrRegressed) || errors.Is(err, ErrForeign)
	switch {
	case o.done != nil:
		o.done <- err
	case err != nil && !refused:
		d.mu.Lock()
		d.retries = append(d.retries, o)
		d.mu.Unlock()
	default:
		if o.lease != nil && err == nil {
			d.cfg.Events.released(o.lease.key, o.lease.grant.ref.ID)
		}
		d.pending.done()
	}
}

// release queues the deletion of a claim.
func (d *Lessor) release(o *op) {
	d.pending.add()
	if !d.batch.put(o) {
		d.pending.done() // closed: the claim ends with its session
	}
}

// retryReleases queues the releases that failed.
func (d *Lessor) retryReleases() {
	d.mu.Lock()
	retries := d.retries
	d.retries = nil
	d.mu.Unlock()
	for _, o := range retries {
		if !d.batch.put(o) {
			d.pending.done()
		}
	}
}
