package node

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/executor"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
)

// ledger is the store as the executor wants it: its Ledger and its Memory.
type ledger struct {
	*clusterstore.Store
	pages *pages
}

func newLedger(s *clusterstore.Store) ledger { return ledger{Store: s, pages: new(pages)} }

var (
	_ executor.Ledger = ledger{}
	_ executor.Memory = ledger{}
	_ lease.Guard     = guard{}
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

// Live implements executor.Memory. The store's order is another than that of ids, so the place behind the last flight
// of a full page is remembered until somebody goes on from it.
func (l ledger) Live(after flight.ID, limit int) ([]*flight.Flight, error) {
	page, place, err := l.Store.Live(l.pages.turn(after), limit)
	if err == nil && len(page) == limit {
		l.pages.mark(page[limit-1].ID, place)
	}
	return page, err
}

// pages remembers where readers of living flights are.
type pages struct {
	mu sync.Mutex
	at map[flight.ID]clusterstore.LivePlace
}

func (p *pages) turn(after flight.ID) clusterstore.LivePlace {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.at[after]
}

// mostPages bounds what is remembered; readers that gave up are forgotten with those that go on, who then start over.
const mostPages = 4096

func (p *pages) mark(last flight.ID, place clusterstore.LivePlace) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.at == nil || len(p.at) >= mostPages {
		p.at = make(map[flight.ID]clusterstore.LivePlace)
	}
	p.at[last] = place
}

// Input implements executor.Memory.
func (l ledger) Input(f *flight.Flight) ([]byte, error) {
	return l.body(f.ID, f.Generation, clusterstore.Input, f.Input)
}

// ReceiptBody implements executor.Memory.
func (l ledger) ReceiptBody(f *flight.Flight) ([]byte, error) {
	if f.Receipt == nil {
		return nil, nil
	}
	return l.body(f.ID, f.Generation, clusterstore.Receipt, f.Receipt.Body)
}

// body reads the bytes of a blob; an empty one has no row of its own.
func (l ledger) body(id flight.ID, generation uint32, part clusterstore.Part, b flight.Blob) ([]byte, error) {
	if b.Kept == 0 {
		return nil, nil
	}
	return l.Body(id, generation, part)
}

// ledgerError gives the store's errors the classes that the executor knows. It keeps what they say.
func ledgerError(err error) error {
	var ambiguous *clusterstore.AmbiguousError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, clusterstore.ErrPending):
		return fmt.Errorf("%w: %w", executor.ErrPending, err)
	case errors.As(err, &ambiguous):
		return fmt.Errorf("%w: %w", executor.ErrAmbiguous, err)
	}
	return err
}

// guard is what the lease side must not contradict.
type guard struct{ store *clusterstore.Store }

// Epoch implements lease.Guard.
func (g guard) Epoch() uint32 { return g.store.Header().LeaseEpoch }

// MaxRevision implements lease.Guard.
func (g guard) MaxRevision() int64 { return g.store.Header().MaxRevision }
