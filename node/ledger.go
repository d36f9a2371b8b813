package node

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/executor"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
)

// ledger adapts the store to the ports of the executor: Ledger and Memory.
type ledger struct{ *clusterstore.Store }

var (
	_ executor.Ledger   = ledger{}
	_ executor.Reader   = ledger{}
	_ lease.LedgerState = ledgerState{}
)

// Propose implements executor.Ledger.
func (l ledger) Propose(ctx context.Context, c flight.Command) (flight.Reply, error) {
	reply, err := l.Store.Propose(ctx, c)
	return reply, ledgerError(err)
}

// Report implements executor.Ledger.
func (l ledger) Report(ctx context.Context, r *flight.Report) (flight.Reply, error) {
	reply, err := l.Store.Report(ctx, r)
	return reply, ledgerError(err)
}

// livePage is the number of live flights in one read.
const livePage = 1000

// Live implements executor.Reader.
func (l ledger) Live() iter.Seq2[*flight.Flight, error] {
	return func(yield func(*flight.Flight, error) bool) {
		var place clusterstore.LiveCursor
		for {
			page, next, err := l.Store.Live(place, livePage)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, f := range page {
				if !yield(f, nil) {
					return
				}
			}
			if len(page) < livePage {
				return
			}
			place = next
		}
	}
}

// Input implements executor.Reader.
func (l ledger) Input(f *flight.Flight) ([]byte, error) {
	return l.body(f.ID, f.Generation, clusterstore.BodyInput, f.Input)
}

// ReceiptBody implements executor.Reader.
func (l ledger) ReceiptBody(f *flight.Flight) ([]byte, error) {
	if f.Receipt == nil {
		return nil, nil
	}
	return l.body(f.ID, f.Generation, clusterstore.BodyReceipt, f.Receipt.Body)
}

// body reads the bytes of a blob; an empty blob has no row of its own.
func (l ledger) body(id flight.ID, generation uint32, part clusterstore.BodyKind, b flight.Blob) ([]byte, error) {
	if b.StoredSize == 0 {
		return nil, nil
	}
	return l.Body(id, generation, part)
}

// ledgerError wraps the store's errors in the error classes of the executor.
func ledgerError(err error) error {
	if err == nil {
		return nil
	}
	var ambiguous *clusterstore.AmbiguousError
	switch {
	case errors.Is(err, clusterstore.ErrPending):
		return fmt.Errorf("%w: %w", executor.ErrPending, err)
	case errors.As(err, &ambiguous):
		return fmt.Errorf("%w: %w", executor.ErrAmbiguous, err)
	}
	return err
}

// ledgerState adapts the store to lease.LedgerState.
type ledgerState struct{ store *clusterstore.Store }

// Epoch implements lease.LedgerState.
func (s ledgerState) Epoch() uint32 { return s.store.Header().LeaseEpoch }

// Counter implements lease.LedgerState.
func (s ledgerState) Counter() uint64 { return s.store.Header().GuardCounter }
