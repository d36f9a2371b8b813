package lease

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// commit sends one batch to etcd and answers its operations. No other function writes claims.
//
// If the process dies before the transaction is sent, nothing is written. If it dies after that, claims without an
// owner may be in etcd; they end with their sessions.
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
		err = unavailable("write claims", err)
	}
	for _, o := range batch {
		d.answer(o, d.result(o, refused, err))
	}
}

// prepareSend is called right before the operation is sent. False: it must not be sent, and the error is its answer.
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

// resultOf returns the answer to one operation of a transaction. refused: the guard key was not the expected one, and
// etcd wrote nothing.
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
		err := fmt.Errorf("%w: session %s is not in etcd", ErrLost, o.Session)
		o.lease.notWritten()
		o.lease.grant.lose(err)
		return err
	case o.Holder.Value == o.Value:
		return nil // an earlier request of this lease wrote it
	}
	o.lease.notWritten()
	h, err := o.Holder.held()
	if err != nil {
		return err
	}
	return &HeldError{Key: h.Key, Session: h.Session, Nonce: h.Nonce}
}

// complete sends the answer to the waiting caller, if any. A failed release without a caller is repeated by the next
// maintenance, except in a rejected etcd: all sessions of this process are lost there, and the claims end with them.
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

// queueRelease queues the deletion of a claim.
func (d *Lessor) release(o *op) {
	d.pending.add()
	if !d.batch.put(o) {
		d.pending.done() // closed: the claim ends with its session
	}
}

// retryReleases queues the failed releases again.
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
