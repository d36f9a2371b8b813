package tmpreal

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/executor"
	"github.com/flightd/flightd/executor/executortest"
	"github.com/flightd/flightd/flight"
)

type ledger struct {
	*clusterstore.Store
	mu *sync.Mutex
	at map[flight.ID]clusterstore.LivePlace
}

func (l ledger) Propose(ctx context.Context, c flight.Command) (flight.Reply, error) {
	r, err := l.Store.Propose(ctx, c)
	return r, cls(err)
}
func (l ledger) Report(ctx context.Context, c *flight.Report) (flight.Reply, error) {
	r, err := l.Store.Report(ctx, c)
	return r, cls(err)
}
func cls(err error) error {
	var a *clusterstore.AmbiguousError
	if errors.As(err, &a) {
		return fmt.Errorf("%w: %w", executor.ErrAmbiguous, err)
	}
	return err
}
func (l ledger) Live(after flight.ID, limit int) ([]*flight.Flight, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	page, place, err := l.Store.Live(l.at[after], limit)
	if err == nil && len(page) == limit {
		l.at[page[limit-1].ID] = place
	}
	return page, err
}
func (l ledger) Input(f *flight.Flight) ([]byte, error) { return l.body(f.ID, f.Generation, clusterstore.Input, f.Input) }
func (l ledger) ReceiptBody(f *flight.Flight) ([]byte, error) {
	if f.Receipt == nil {
		return nil, nil
	}
	return l.body(f.ID, f.Generation, clusterstore.Receipt, f.Receipt.Body)
}
func (l ledger) body(id flight.ID, generation uint32, part clusterstore.Part, b flight.Blob) ([]byte, error) {
	if b.Kept == 0 {
		return nil, nil
	}
	return l.Body(id, generation, part)
}

func open(t testing.TB) ledger {
	s, err := clusterstore.Open(context.Background(), clusterstore.Config{Dir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close(context.Background())) })
	_, err = s.Propose(context.Background(), &flight.Bootstrap{Deployment: "test-deployment", Secret: []byte("secret")})
	require.NoError(t, err)
	return ledger{s, new(sync.Mutex), map[flight.ID]clusterstore.LivePlace{}}
}

func TestExam(t *testing.T) {
	executortest.Run(t, func(t *testing.T) executortest.Book { return open(t) })
}
