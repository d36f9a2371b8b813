package traces

import (
	"cmp"
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/flightd/flightd/flight"
)

// Feed reads the events of the ledger: see clusterstore.Feed.
type Feed interface {
	Read(after flight.Version, limit int) (flight.FeedPage, error)
	End() (flight.Version, error)
	Await(ctx context.Context, after flight.Version) error
}

// Attempts exports the span of each attempt that ends from now on, while leads returns true, until ctx ends or the feed is closed. It reads the feed, so no
// call waits for it.
func (ex *Exporter) Attempts(ctx context.Context, feed Feed, ledger Ledger, leads func() bool) {
	at, err := feed.End()
	for err == nil {
		stopped := feed.Await(ctx, at) != nil // what was applied before the stop is still read
		var page flight.FeedPage
		for page.Next, page.More = at, true; err == nil && page.More; {
			var compacted *flight.CompactedError
			if page, err = feed.Read(at, 256); errors.As(err, &compacted) { // the events before are missed
				at, page.More, err = compacted.First, true, nil
				continue
			}
			for i := range page.Events {
				if leads() {
					ex.exportAttempt(&page.Events[i], ledger)
				}
			}
			if err == nil {
				at = page.Next
			}
		}
		if stopped {
			return
		}
	}
	if ctx.Err() == nil {
		ex.log.Warn("the spans of attempts are not exported any more: the events of the ledger could not be read", "error", err)
	}
}

// exportAttempt exports the span of the attempt that ended with the event.
func (ex *Exporter) exportAttempt(e *flight.FeedEvent, ledger Ledger) {
	if e.Kind != flight.EventReported && e.Kind != flight.EventLost && e.Kind != flight.EventAbandoned {
		return
	}
	f, err := ledger.Flight(e.Key.FlightID())
	if err != nil || f == nil || f.Generation != e.Generation {
		return
	}
	for i := range f.Attempts {
		a := &f.Attempts[i]
		if a.Number != e.Attempt || a.Trace.IsZero() || a.ClosedAt != e.At { // a late report does not end it again
			continue
		}
		name := f.Key.Name()
		if f.Place != nil {
			name = cmp.Or(f.Place.Queue.Action, name)
		}
		ctx := context.WithValue(trace.ContextWithRemoteSpanContext(context.Background(), contextOf(a.Trace)), spanKey{}, f.Span(a))
		_, span := ex.tracer.Start(ctx, name, trace.WithTimestamp(a.OpenedAt.AsTime()), trace.WithAttributes(attributesOf(f)...),
			trace.WithAttributes(attribute.Int64("flightd.attempt", int64(a.Number)), attribute.String("flightd.outcome", e.Outcome.String()), attribute.Bool("flightd.lost", e.Kind == flight.EventLost)))
		if e.Outcome != flight.OutcomeSucceeded {
			span.SetStatus(codes.Error, e.Outcome.String())
		}
		span.End(trace.WithTimestamp(a.ClosedAt.AsTime()))
	}
}
