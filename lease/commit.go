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
func (l *Lessor) commit(batch []*op) {
	ctx, cancel := context.WithTimeout(context.Background(), l.cfg.CommitTimeout)
	defer cancel()
	p, err := l.guard.admit(ctx)
	if err != nil {
		for _, o := range batch {
			l.complete(o, err)
		}
		return
	}
	send := make([]*Op, 0, len(batch))
	for _, o := range batch {
		if ok, err := o.prepareSend(); !ok {
			l.complete(o, err)
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
	err = l.cfg.Store.Commit(ctx, p.owner, send)
	if f := l.cfg.Events.Committed; f != nil {
		f(len(batch), time.Since(began), err)
	}
	refused := isOwnershipError(err)
	switch {
	case refused:
		err = l.guard.ownershipChanged(ctx)
	case err != nil:
		err = unavailable("write claims", err)
	}
	for _, o := range batch {
		l.complete(o, l.resultOf(o, refused, err))
	}
}

// prepareSend is called right before the operation is sent. If it returns false, the operation must not be sent, and the
// error is its answer.
func (o *op) prepareSend() (bool, error) {
	switch {
	case o.reservation == nil:
		return true, nil
	case o.Kind == OpRelease:
		return o.reservation.needsDelete(), nil
	}
	err := o.reservation.beginWrite()
	return err == nil, err
}

// resultOf returns the answer to one operation of a transaction. refused reports that the guard key was not the expected
// one, so etcd wrote nothing.
func (l *Lessor) resultOf(o *op, refused bool, err error) error {
	switch {
	case !o.Kind.Puts():
		return err
	case refused:
		o.reservation.markNotWritten()
		return err
	case err != nil:
		o.reservation.markUnknown()
		return err
	case o.Done:
		if f := l.cfg.Events.Claimed; f != nil {
			f(o.reservation.key, o.reservation.grant.ref.ID)
		}
		return nil
	case o.Holder == nil:
		err := fmt.Errorf("%w: session %s is not in etcd", ErrLost, o.Session)
		o.reservation.markNotWritten()
		o.reservation.grant.markGone(err)
		return err
	case o.Holder.Value == o.Value:
		return nil // an earlier request of this lease wrote it
	}
	o.reservation.markNotWritten()
	h, err := o.Holder.decode()
	if err != nil {
		return err
	}
	return &HeldError{Key: h.Key, Session: h.Session, Nonce: h.Nonce}
}

// complete sends the answer to the waiting caller, if any. A failed release without a caller is repeated by the next
// maintenance, except in a rejected etcd: all sessions of this process are lost there, and the claims end with them.
func (l *Lessor) complete(o *op, err error) {
	refused := errors.Is(err, ErrRegressed) || errors.Is(err, ErrForeign)
	switch {
	case o.done != nil:
		o.done <- err
	case err != nil && !refused:
		l.mu.Lock()
		l.failedReleases = append(l.failedReleases, o)
		l.mu.Unlock()
	default:
		if f := l.cfg.Events.Released; f != nil && o.reservation != nil && err == nil {
			f(o.reservation.key, o.reservation.grant.ref.ID)
		}
		l.pending.done()
	}
}

// queueRelease queues the deletion of a claim.
func (l *Lessor) queueRelease(o *op) {
	l.pending.add()
	if !l.batch.enqueue(o) {
		l.pending.done() // closed: the claim ends with its session
	}
}

// retryReleases queues the failed releases again.
func (l *Lessor) retryReleases() {
	l.mu.Lock()
	retries := l.failedReleases
	l.failedReleases = nil
	l.mu.Unlock()
	for _, o := range retries {
		if !l.batch.enqueue(o) {
			l.pending.done()
		}
	}
}
