package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/flightd/flightd/executor"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

// calls are the metrics of calls, attempts and effects.
type calls struct {
	actions  *actions
	duration [resultCount]prometheus.Observer // by result; results with the same source share one
	opened   prometheus.Counter
	attempt  prometheus.Histogram
	claim    prometheus.Histogram
	fenced   prometheus.Counter
	overlaps prometheus.Counter
	doubts   prometheus.Counter
	sweeps   prometheus.Counter
	behind   prometheus.Counter
	undos    prometheus.Counter
	sagas    [2]prometheus.Counter // done, undone
}

// resultCount is the length of executor.Results; a test checks it.
const resultCount = 13

// resultIndex returns the index of a result; an unknown result counts as an error.
func resultIndex(word string) int {
	switch word {
	case executor.ResultExecuted:
		return 0
	case executor.ResultJoined:
		return 1
	case executor.ResultReplayed:
		return 2
	case executor.ResultProceed:
		return 3
	case executor.ResultVerify:
		return 4
	case executor.ResultFailed:
		return 5
	case executor.ResultInDoubt:
		return 6
	case executor.ResultConflict:
		return 7
	case executor.ResultBusy:
		return 8
	case executor.ResultUnavailable:
		return 9
	case executor.ResultReconciling:
		return 10
	case executor.ResultCancelled:
		return 11
	}
	return resultCount - 1
}

// noSource is the source of a call that returned neither a receipt nor a permission.
const noSource = "none"

// sourceOf returns the value of the label source of a result.
func sourceOf(result string) string {
	switch result {
	case executor.ResultExecuted, executor.ResultJoined, executor.ResultReplayed, executor.ResultProceed, executor.ResultVerify:
		return result
	}
	return noSource
}

func newCalls(in factory, maxActions int) calls {
	byResult := in.counters("calls_total", "Calls and opens that were answered, by result.", "action", "result")
	byOutcome := in.counters("effects_total",
		"Attempts that ended, by outcome. An attempt whose holder was lost counts as unknown, and again if it reports later.", "action", "outcome")
	c := calls{
		actions: newActions(maxActions, func(name string) *actionSeries {
			s := new(actionSeries)
			for _, word := range executor.Results() {
				s.calls[resultIndex(word)] = byResult.WithLabelValues(name, word)
			}
			for o := flight.OutcomeSucceeded; o <= flight.OutcomeUnknown; o++ {
				s.effects[o] = byOutcome.WithLabelValues(name, o.String())
			}
			return s
		}),
		opened:  in.counter("attempts_total", "Attempts that were opened."),
		attempt: in.histogram("attempt_duration_seconds", "Time from the opening of an attempt to its report.", attemptBuckets()),
		claim: in.histogram("lease_acquire_duration_seconds",
			"Time to acquire the lease of a key, including the wait for other holders.", acquireBuckets()),
		fenced:   in.counter("reports_fenced_total", "Reports that arrived too late and were stored as evidence."),
		overlaps: in.counter("overlaps_total", "Late reports of success with another effect than the receipt: evidence of a second effect."),
		doubts:   in.counter("doubts_total", "Flights that became in doubt and wait for a person."),
		behind:   in.counter("ledger_behind_total", "Requests of callers that were told a later position of the ledger than it has: it has lost entries."),
		undos:    in.counter("compensations_total", "Undos of steps of sagas that succeeded."),
		sweeps:   in.counter("sweep_failures_total", "Sweeps for lost holders that failed."),
	}
	runs := in.counters("saga_runs_total", "Sagas that ended at this node while it led, by outcome.", "outcome")
	c.sagas = [2]prometheus.Counter{runs.WithLabelValues(wire.SagaDone), runs.WithLabelValues(wire.SagaUndone)}
	durations := in.histograms("call_duration_seconds",
		"Duration of calls and opens, by source of the answer; none: neither a receipt nor a permission.", waitBuckets(), "source")
	for _, word := range executor.Results() {
		c.duration[resultIndex(word)] = durations.WithLabelValues(sourceOf(word))
	}
	return c
}

// SagaEnded counts a saga that has ended.
func (m *Metrics) SagaEnded(outcome flight.Outcome) {
	i := 0
	if outcome != flight.OutcomeSucceeded {
		i = 1
	}
	m.calls.sagas[i].Inc()
}

// LedgerBehind counts a caller that was told a later position of the ledger than it has.
func (m *Metrics) LedgerBehind() { m.calls.behind.Inc() }

// Executor returns events that count and then call next.
func (m *Metrics) Executor(next executor.Events) executor.Events {
	c := &m.calls
	return executor.Events{
		Called: func(key flight.Key, result string, d time.Duration) {
			i := resultIndex(result)
			c.actions.series(key.Name()).calls[i].Inc()
			c.duration[i].Observe(d.Seconds())
			if next.Called != nil {
				next.Called(key, result, d)
			}
		},
		Claimed: func(key flight.Key, waited time.Duration) {
			c.claim.Observe(waited.Seconds())
			if next.Claimed != nil {
				next.Claimed(key, waited)
			}
		},
		Opened: func(key flight.Key, attempt uint32) {
			c.opened.Inc()
			if next.Opened != nil {
				next.Opened(key, attempt)
			}
		},
		Closed: func(key flight.Key, attempt uint32, outcome flight.Outcome, d time.Duration) {
			c.ended(key, outcome)
			if key.IsUndo() && outcome == flight.OutcomeSucceeded {
				c.undos.Inc()
			}
			c.attempt.Observe(d.Seconds())
			if next.Closed != nil {
				next.Closed(key, attempt, outcome, d)
			}
		},
		Lost: func(key flight.Key, attempt uint32) {
			c.ended(key, flight.OutcomeUnknown)
			if next.Lost != nil {
				next.Lost(key, attempt)
			}
		},
		Abandoned: func(key flight.Key, attempt uint32) {
			c.ended(key, flight.OutcomeNotDone)
			if next.Abandoned != nil {
				next.Abandoned(key, attempt)
			}
		},
		InDoubt:     countCalls3(c.doubts, next.InDoubt),
		Fenced:      countCalls2(c.fenced, next.Fenced),
		Overlap:     countCalls(c.overlaps, next.Overlap),
		Recovered:   next.Recovered,
		SweepFailed: countCalls(c.sweeps, next.SweepFailed),
	}
}

func (c *calls) ended(key flight.Key, outcome flight.Outcome) {
	if int(outcome) > 0 && int(outcome) < outcomeCount {
		c.actions.series(key.Name()).effects[outcome].Inc()
	}
}

// countCalls returns a function that increments c and calls next, which may be nil.
func countCalls[A any](c prometheus.Counter, next func(A)) func(A) {
	return func(a A) {
		c.Inc()
		if next != nil {
			next(a)
		}
	}
}

func countCalls2[A, B any](c prometheus.Counter, next func(A, B)) func(A, B) {
	return func(a A, b B) {
		c.Inc()
		if next != nil {
			next(a, b)
		}
	}
}

func countCalls3[A, B, C any](c prometheus.Counter, next func(A, B, C)) func(A, B, C) {
	return func(a A, b B, d C) {
		c.Inc()
		if next != nil {
			next(a, b, d)
		}
	}
}
