package metrics

import (
	"slices"
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

var results = executor.Results()

// resultIndex returns the index of a result; an unknown result counts as an error.
func resultIndex(word string) int {
	if i := slices.Index(results, word); i >= 0 {
		return i
	}
	return resultCount - 1
}

func newCalls(in factory, maxActions int) calls {
	byResult := in.counters("calls_total", "Calls and opens that were answered, by result.", "action", "result")
	byOutcome := in.counters("effects_total",
		"Attempts that ended, by outcome. An attempt whose holder was lost counts as unknown, and again if it reports later.", "action", "outcome")
	c := calls{
		actions: newActions(maxActions, func(name string) *actionSeries {
			s := new(actionSeries)
			for i, word := range results {
				s.calls[i] = byResult.WithLabelValues(name, word)
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
	for i, word := range results {
		source := "none"
		switch word {
		case executor.ResultExecuted, executor.ResultJoined, executor.ResultReplayed, executor.ResultProceed, executor.ResultVerify:
			source = word
		}
		c.duration[i] = durations.WithLabelValues(source)
	}
	return c
}

// SagaEnded counts a saga that has ended.
func (m *Metrics) SagaEnded(outcome flight.Outcome) {
	if outcome == flight.OutcomeSucceeded {
		m.calls.sagas[0].Inc()
	} else {
		m.calls.sagas[1].Inc()
	}
}

// LedgerBehind counts a caller that was told a later position of the ledger than it has.
func (m *Metrics) LedgerBehind() { m.calls.behind.Inc() }

// Executor returns events that count and then call next.
func (m *Metrics) Executor(next executor.Events) executor.Events {
	c := &m.calls
	return executor.Events{
		Called: then3(func(key flight.Key, result string, d time.Duration) {
			i := resultIndex(result)
			c.actions.series(key.Name()).calls[i].Inc()
			c.duration[i].Observe(d.Seconds())
		}, next.Called),
		Claimed: then2(func(_ flight.Key, waited time.Duration) { c.claim.Observe(waited.Seconds()) }, next.Claimed),
		Opened:  then2(func(flight.Key, uint32) { c.opened.Inc() }, next.Opened),
		Closed: then4(func(key flight.Key, _ uint32, outcome flight.Outcome, d time.Duration) {
			c.ended(key, outcome)
			if key.IsUndo() && outcome == flight.OutcomeSucceeded {
				c.undos.Inc()
			}
			c.attempt.Observe(d.Seconds())
		}, next.Closed),
		Lost:        then2(func(key flight.Key, _ uint32) { c.ended(key, flight.OutcomeUnknown) }, next.Lost),
		Abandoned:   then2(func(key flight.Key, _ uint32) { c.ended(key, flight.OutcomeNotDone) }, next.Abandoned),
		InDoubt:     then3(func(flight.Key, uint32, string) { c.doubts.Inc() }, next.InDoubt),
		Fenced:      then2(func(flight.Key, uint32) { c.fenced.Inc() }, next.Fenced),
		Overlap:     then(func(flight.Key) { c.overlaps.Inc() }, next.Overlap),
		Recovered:   next.Recovered,
		SweepFailed: then(func(error) { c.sweeps.Inc() }, next.SweepFailed),
	}
}

func (c *calls) ended(key flight.Key, outcome flight.Outcome) {
	if int(outcome) > 0 && int(outcome) < outcomeCount {
		c.actions.series(key.Name()).effects[outcome].Inc()
	}
}
