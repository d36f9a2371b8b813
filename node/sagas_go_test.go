package node

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/client/saga"
	"github.com/flightd/flightd/httpapi/wire"
)

type booking struct {
	Cents int    `json:"cents"`
	Fails string `json:"fails"`
}

type room struct {
	ID string `json:"id"`
}

// tripInGo defines a trip whose providers write books. started receives when the seat's provider has the request, and waits for go on.
func tripInGo(b *books, started chan<- string, goOn <-chan struct{}) (*saga.Saga[booking], *saga.StepOf[room], *saga.StepOf[charge]) {
	trip := saga.New[booking]("journey", saga.Version(2), saga.Deadline(48*time.Hour))
	hotel := saga.Step(trip, "hotel", func(_ context.Context, at saga.Attempt, in booking) (room, error) {
		b.write("%s hotel", at.Key().BusinessID())
		return room{"room_17"}, nil
	}, saga.Resend(24*time.Hour), saga.Undo(func(_ context.Context, at saga.Attempt, in booking, r *room) error {
		b.write("%s undo %s", at.Key().BusinessID(), r.ID)
		_, err := client.FromHTTP(&http.Response{StatusCode: http.StatusGone, Body: http.NoBody}, nil)
		return err // the provider has forgotten the room
	}, saga.NothingToUndo(http.StatusNotFound, http.StatusGone)))
	seat := saga.Step(trip, "seat", func(ctx context.Context, at saga.Attempt, in booking) (room, error) {
		if started != nil {
			started <- at.Key().BusinessID()
			<-goOn
		}
		if in.Fails == "seat" {
			return room{}, client.Refused(errors.New("sold out"))
		}
		b.write("%s seat", at.Key().BusinessID())
		return room{"12A"}, nil
	}, saga.Undo(func(_ context.Context, at saga.Attempt, in booking, r *room) error {
		b.write("%s undo %s", at.Key().BusinessID(), r.ID)
		return nil
	}))
	paid := saga.Step(trip, "pay", func(_ context.Context, at saga.Attempt, in booking) (charge, error) {
		r, ok := hotel.Result(at)
		s, found := seat.Result(at)
		if !ok || !found {
			return charge{}, client.NotDone(errors.New("an earlier result is missing"))
		}
		b.write("%s pay for %s and %s", at.Key().BusinessID(), r.ID, s.ID)
		return charge{"ch_1"}, nil
	}, saga.After(hotel, seat), saga.Pivot())
	saga.Step(trip, "voucher", func(_ context.Context, at saga.Attempt, in booking) (struct{}, error) {
		b.write("%s voucher", at.Key().BusinessID())
		return struct{}{}, nil
	}, saga.After(paid), saga.RetryFor(72*time.Hour))
	return trip, hotel, paid
}

func TestSagas_InGo(t *testing.T) {
	t.Parallel()
	n := startNode(t, t.TempDir())
	c := connectTo(t, n)
	b := new(books)
	trip, hotel, paid := tripInGo(b, nil, nil)
	w := c.Worker(client.Concurrency(4))
	w.Serve(trip)
	runWorker(t, w)
	require.Eventually(t, func() bool {
		_, err := trip.Start(t.Context(), c, "b-1", booking{Cents: 100})
		return err == nil
	}, waitLimit, 20*time.Millisecond, "the worker defines it")
	run, err := trip.Start(t.Context(), c, "b-1", booking{Cents: 100})
	require.NoError(t, err)
	out, err := run.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, wire.SagaDone, out.State)
	got, err := paid.Receipt(out)
	require.NoError(t, err)
	require.Equal(t, charge{"ch_1"}, got)
	r, err := hotel.Receipt(out)
	require.NoError(t, err)
	require.Equal(t, room{"room_17"}, r)
	require.Contains(t, b.of("b-1"), "pay for room_17 and 12A")
	err = run.Cancel(t.Context(), "too late")
	require.Error(t, err)

	run, err = trip.Start(t.Context(), c, "b-2", booking{Fails: "seat"})
	require.NoError(t, err)
	out, err = run.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, wire.SagaUndone, out.State, "the provider's 410 says that there is nothing to undo")
	require.True(t, strings.Contains(out.Cause, "seat"), out.Cause)
	require.Equal(t, []string{"hotel", "undo room_17"}, b.of("b-2"))
	_, err = paid.Receipt(out)
	require.ErrorIs(t, err, saga.ErrNoReceipt)

	changed := saga.New[booking]("journey", saga.Version(2))
	saga.Step(changed, "hotel", func(context.Context, saga.Attempt, booking) (room, error) { return room{}, nil }, saga.NoUndo())
	other := c.Worker()
	other.Serve(changed)
	require.Equal(t, wire.Conflict, client.CodeOf(other.Run(t.Context())), "another content under the same version")
}

// A server that dies while a step runs goes on with the saga when it is back, and nobody asks for it. A cancel that came before is not
// lost: the step that ran meanwhile is undone.
func TestSagas_GoOnAfterARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n := startNode(t, dir)
	c, err := client.Connect(t.Context(), n.url, client.WithSpool(t.TempDir()), client.WithSessionTTL(time.Minute))
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	b := new(books)
	started, goOn := make(chan string, 16), make(chan struct{})
	trip, _, _ := tripInGo(b, started, goOn)
	w := c.Worker(client.Concurrency(4))
	w.Serve(trip)
	runWorker(t, w)
	release := sync.OnceFunc(func() { close(goOn) })
	defer release()
	var runs []*saga.Run
	for _, id := range []string{"b-1", "b-2"} {
		require.Eventually(t, func() bool {
			run, err := trip.Start(t.Context(), c, id, booking{})
			if err == nil {
				runs = append(runs, run)
			}
			return err == nil
		}, waitLimit, 20*time.Millisecond)
	}
	<-started
	<-started
	require.Eventually(t, func() bool { return len(b.of("b-1")) == 1 && len(b.of("b-2")) == 1 }, waitLimit, 10*time.Millisecond)
	require.NoError(t, runs[1].Cancel(t.Context(), "the customer called"))
	require.NoError(t, runs[1].Cancel(t.Context(), "the customer called"), "a second cancel changes nothing")
	n.end()
	startNodeWith(t, dir, func(cfg *Config) { cfg.Listen.Address = strings.TrimPrefix(n.url, "http://") })
	release()
	out, err := runs[0].Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, wire.SagaDone, out.State)
	out, err = runs[1].Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, wire.SagaUndone, out.State)
	require.Equal(t, "the customer called", out.Cause)
	done := b.of("b-2")
	require.ElementsMatch(t, []string{"hotel", "seat", "undo 12A", "undo room_17"}, done)
	require.Equal(t, "undo room_17", done[3], "the seat ended last, so it is undone first")
}
