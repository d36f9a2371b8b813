package lease

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/flightd/flightd/flight"
)

// reservation is the Lease of this package.
type reservation struct {
	grant *grant
	key   flight.Key
	nonce flight.Nonce

	mu       sync.Mutex // guards the fields below; beginWrite and Release decide in its order
	released bool
	written  bool // the claim may be in etcd
	unknown  bool // an answer was lost: the claim may still be written later, whatever the next answer is
}

// The pauses before a write of a claim is repeated.
const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = time.Second
)

// Session implements Lease.
func (r *reservation) Session() flight.Session { return r.grant.ref }

// Trust implements Lease.
func (r *reservation) Trust() time.Duration { return r.grant.trust() }

// Context implements Lease.
func (r *reservation) Context() context.Context { return r.grant.trustCtx }

// Claim implements Lease.
func (r *reservation) Claim(ctx context.Context) error { return r.write(ctx, OpClaim) }

// Replace implements Lease.
func (r *reservation) Replace(ctx context.Context) error { return r.write(ctx, OpReplace) }

// write repeats the request until etcd answers. Repeating is harmless: a claim that an earlier request wrote has this
// lease's value and counts as written.
//
// If the process dies here, the claim may be in etcd without an attempt in the ledger. Other callers of the key then
// wait until the session ends or RemoveClaims deletes the claim.
func (r *reservation) write(ctx context.Context, kind OpKind) error {
	for pause := firstRetry; ; pause = min(2*pause, lastRetry) {
		err := r.tryWrite(ctx, kind)
		if !errors.Is(err, ErrUnavailable) {
			return err
		}
		select {
		case <-time.After(jitter(pause)):
		case <-r.grant.trustCtx.Done():
			return r.grant.lossCause()
		case <-ctx.Done():
			return err
		}
	}
}

func (r *reservation) tryWrite(ctx context.Context, kind OpKind) error {
	o := &op{reservation: r, done: make(chan error, 1)}
	o.Op = Op{Kind: kind, Key: r.key.String(), Session: r.grant.ref.ID, Lease: r.grant.lease, Value: r.value()}
	if !r.grant.lessor.batch.enqueue(o) {
		return ErrClosed
	}
	select {
	case err := <-o.done:
		return err
	case <-r.grant.trustCtx.Done():
		return r.grant.lossCause()
	case <-ctx.Done():
		return unavailable("claim", context.Cause(ctx))
	}
}

func (r *reservation) value() string {
	return ClaimValue{Epoch: r.grant.ref.Epoch, Nonce: r.nonce, Session: r.grant.ref.ID}.String()
}

// beginWrite is called right before the claim is sent. After an error the claim must not be sent.
func (r *reservation) beginWrite() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.released {
		return ErrReleased
	}
	if err := r.grant.lossCause(); err != nil {
		return err
	}
	r.written = true
	return nil
}

// markNotWritten records etcd's answer that the claim was not written.
func (r *reservation) markNotWritten() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.written = r.unknown
}

// markUnknown records that no answer came: the claim may be in etcd, or be written later.
func (r *reservation) markUnknown() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unknown = true
}

// needsDelete reports whether the claim may be in etcd and does not end with its etcd lease.
func (r *reservation) needsDelete() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.written && !r.grant.claimsEndWithLease()
}

// Release implements Lease. The deletion does not overtake a write of the claim: operations of one key are sent in
// order, and a write that is still queued is not sent after Release.
//
// If the process dies before the deletion is sent, the claim ends with its session.
func (r *reservation) Release() {
	r.mu.Lock()
	repeated, written := r.released, r.written
	r.released = true
	r.mu.Unlock()
	if repeated {
		return
	}
	if written {
		o := &op{reservation: r}
		o.Op = Op{Kind: OpRelease, Key: r.key.String(), Value: r.value()}
		r.grant.lessor.queueRelease(o)
	}
	r.grant.unreserve(r.nonce)
}

// jitter returns a random duration from 3/4 to 5/4 of pause, so that callers that failed together do not retry
// together.
func jitter(pause time.Duration) time.Duration {
	return pause*3/4 + rand.N(pause/2+1)
}
