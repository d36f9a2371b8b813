package metrics

import (
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/executor"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
	"github.com/flightd/flightd/lease/etcdlease"
)

// fakeLedger is a ledger with fixed flights.
type fakeLedger struct {
	stats    clusterstore.Stats
	live     []*flight.Flight
	now      flight.Time
	liveRead int
}

func (l *fakeLedger) Stats() clusterstore.Stats { return l.stats }
func (l *fakeLedger) Now() flight.Time          { return l.now }

func (l *fakeLedger) Live() iter.Seq2[*flight.Flight, error] {
	return func(yield func(*flight.Flight, error) bool) {
		for _, f := range l.live {
			if l.liveRead++; !yield(f, nil) {
				return
			}
		}
	}
}

// Counts implements Leases.
func (l *fakeLedger) Counts() (claims, sessions int) { return 2, 9 }

// scrape returns the answer of GET /metrics.
func scrape(t *testing.T, m *Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	require.Equal(t, http.StatusOK, w.Code)
	return w.Body.String()
}

// emitAllEvents sends every kind of event to m, about one key.
func emitAllEvents(m *Metrics, key flight.Key) {
	ex, le, st, co := m.Executor(executor.Events{}), m.Leases(lease.Events{}), m.Store(clusterstore.Events{}), m.Compactor(etcdlease.CompactorEvents{})
	for _, word := range executor.Results() {
		ex.Called(key, word, time.Millisecond)
	}
	ex.Claimed(key, time.Millisecond)
	ex.Opened(key, 1)
	ex.Closed(key, 1, flight.OutcomeSucceeded, time.Second)
	ex.Lost(key, 2)
	ex.Abandoned(key, 2)
	ex.InDoubt(key, 2, key.String())
	ex.Fenced(key, 1)
	ex.Overlap(key)
	ex.SweepFailed(errors.New(key.String()))
	le.SessionEnded("ses_"+flight.SessionID(key.BusinessID()), lease.ErrLost, 3)
	le.Committed(2, time.Millisecond, errors.New(key.String()))
	le.RenewFailed("", 0, nil)
	st.Appended(1, time.Millisecond)
	st.Applied(1, 2, time.Millisecond)
	st.Snapshot(7, time.Second, nil)
	st.Leader(true)
	st.Spooled(key)
	st.Unspooled(key)
	st.ReportQuarantined(key.BusinessID(), nil)
	st.Expired(4)
	co.SizeRead(3, 2, 10)
	co.NoSpace(true)
	co.Compacted(1, time.Second)
	co.Failed(errors.New(key.String()))
}

// TestNamesAreLinted checks units, suffixes, help texts and the prefix.
func TestNamesAreLinted(t *testing.T) {
	m := New(Config{Version: "1.2.3", TTL: 15 * time.Second})
	m.RegisterState(&fakeLedger{}, &fakeLedger{})
	emitAllEvents(m, flight.MustKey("default/charge/order-1"))
	problems, err := testutil.GatherAndLint(m.registry)
	require.NoError(t, err)
	require.Empty(t, problems)
	families, err := m.registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		name := f.GetName()
		require.True(t, strings.HasPrefix(name, "flightd_") || strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_"), name)
	}
}

// documentedMetrics are the metrics that must stay stable, with their labels.
var documentedMetrics = map[string][]string{
	"flightd_calls_total": {"action", "result"}, "flightd_effects_total": {"action", "outcome"}, "flightd_attempts_total": nil,
	"flightd_attempt_duration_seconds": nil, "flightd_call_duration_seconds": {"source"},
	"flightd_lease_acquire_duration_seconds": nil, "flightd_leases_held": nil, "flightd_leases_lost_total": {"reason"},
	"flightd_reports_fenced_total": nil, "flightd_overlaps_total": nil, "flightd_ledger_behind_total": nil, "flightd_in_doubt": nil,
	"flightd_in_doubt_oldest_age_seconds": nil, "flightd_approvals_waiting": nil, "flightd_approvals_oldest_age_seconds": nil, "flightd_receipts_stored": nil, "flightd_reconciling": nil, "flightd_build_info": {"go_version", "version"},
	"flightd_sagas_in_doubt": nil, "flightd_saga_in_doubt_oldest_age_seconds": nil, "flightd_saga_runs_total": {"outcome"}, "flightd_compensations_total": nil,
}

func TestPromisedNamesAreThere(t *testing.T) {
	m := New(Config{Version: "1.2.3"})
	m.RegisterState(&fakeLedger{}, &fakeLedger{})
	families, err := m.registry.Gather()
	require.NoError(t, err)
	found := make(map[string][]string)
	for _, f := range families {
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		found[f.GetName()] = labels
	}
	for name, labels := range documentedMetrics {
		got, there := found[name]
		require.True(t, there, "%s must exist from the start, with the value 0", name)
		require.Equal(t, labels, got, name)
	}
}

// TestLabelsHoldNoKeys: labels contain no namespaces, ids or flight ids.
func TestLabelsHoldNoKeys(t *testing.T) {
	m := New(Config{})
	m.RegisterState(&fakeLedger{}, &fakeLedger{})
	key := flight.MustKey("secretnamespace/charge/secretid")
	emitAllEvents(m, key)
	text := scrape(t, m)
	require.Contains(t, text, `action="charge"`)
	require.NotContains(t, text, "secretnamespace")
	require.NotContains(t, text, "secretid")
	require.NotContains(t, text, key.FlightID().String())
}

// TestActionsAreBounded: the number of series is limited if a caller puts ids into action names, and no count is lost.
func TestActionsAreBounded(t *testing.T) {
	m := New(Config{Actions: 3})
	events := m.Executor(executor.Events{})
	var all sync.WaitGroup
	for worker := range 4 {
		all.Go(func() {
			for i := range 100 {
				events.Called(flight.MustKey(fmt.Sprintf("n/action-%d/x", (i*7+worker)%100)), executor.ResultExecuted, 0)
			}
		})
	}
	all.Wait()
	text := scrape(t, m)
	names := make(map[string]bool)
	total := 0
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, `flightd_calls_total{action="`); ok {
			name, rest, _ := strings.Cut(rest, `"`)
			names[name] = true
			if value, ok := strings.CutPrefix(rest, `,result="executed"} `); ok {
				var n int
				_, err := fmt.Sscan(value, &n)
				require.NoError(t, err)
				total += n
			}
		}
	}
	require.Len(t, names, 4, "three names and %s", OtherAction)
	require.True(t, names[OtherAction])
	require.Equal(t, 400, total)
}

// TestEventsArePassedOn: each event is passed to the next receiver, which is the log.
func TestEventsArePassedOn(t *testing.T) {
	m := New(Config{})
	passed := 0
	for _, wrap := range []any{m.Executor, m.Leases, m.Store, m.Compactor} {
		f := reflect.ValueOf(wrap)
		kind := f.Type().In(0)
		heard := make(map[string]bool)
		next := reflect.New(kind).Elem()
		for i := range kind.NumField() {
			name := kind.Field(i).Name
			next.Field(i).Set(reflect.MakeFunc(kind.Field(i).Type, func([]reflect.Value) []reflect.Value {
				heard[name] = true
				return nil
			}))
		}
		events := f.Call([]reflect.Value{next})[0]
		for i := range kind.NumField() {
			call := kind.Field(i).Type
			args := make([]reflect.Value, call.NumIn())
			for a := range args {
				args[a] = reflect.Zero(call.In(a))
			}
			events.Field(i).Call(args)
			require.True(t, heard[kind.Field(i).Name], "%s.%s", kind, kind.Field(i).Name)
			passed++
		}
	}
	require.Greater(t, passed, 30)
}

func TestResultsAreKnown(t *testing.T) {
	words := executor.Results()
	require.Len(t, words, resultCount)
	var places []int
	for _, word := range words {
		places = append(places, resultIndex(word))
	}
	slices.Sort(places)
	require.Len(t, slices.Compact(places), resultCount)
	require.Equal(t, resultIndex(executor.ResultError), resultIndex("never heard of"))
}

func TestLossesAreCountedByReason(t *testing.T) {
	m := New(Config{})
	ended := m.Leases(lease.Events{}).SessionEnded
	ended("s", lease.ErrClosed, 5)
	ended("s", lease.ErrLost, 2)
	ended("s", &lease.RegressedError{}, 3)
	text := scrape(t, m)
	require.Contains(t, text, `flightd_leases_lost_total{reason="revoked"} 2`)
	require.Contains(t, text, `flightd_leases_lost_total{reason="regressed"} 3`)
	require.Contains(t, text, `flightd_leases_lost_total{reason="expired"} 0`)
}

func TestAgeOfTheOldestDoubt(t *testing.T) {
	s := &fakeLedger{now: 1_000_000}
	m := New(Config{})
	m.RegisterState(s, s)
	require.Contains(t, scrape(t, m), "flightd_in_doubt_oldest_age_seconds 0\n")
	require.Zero(t, s.liveRead, "no flights are read if none is in doubt")

	for i := range flight.Time(2500) {
		s.live = append(s.live, &flight.Flight{State: flight.StateRunning, CreatedAt: i + 1})
	}
	doubtful := func(created, closed flight.Time) *flight.Flight {
		return &flight.Flight{State: flight.StateInDoubt, CreatedAt: created, Attempts: []flight.Attempt{
			{Number: 1, ClosedAt: closed - 10, Outcome: flight.OutcomeUnknown, Taints: true}, {Number: 2, ClosedAt: closed, Outcome: flight.OutcomeUnknown, Taints: true},
		}}
	}
	s.live = append(s.live, doubtful(3000, 900_000), doubtful(3001, 700_000), &flight.Flight{State: flight.StateRunning, CreatedAt: 3002})
	s.stats.Flights[flight.StateInDoubt] = 2
	text := scrape(t, m)
	require.Contains(t, text, "flightd_in_doubt 2\n")
	require.Contains(t, text, "flightd_in_doubt_oldest_age_seconds 300\n")

	s.live = s.live[:0]
	for i := range flight.Time(maxLiveScan) {
		s.live = append(s.live, &flight.Flight{State: flight.StateReady, CreatedAt: i + 1})
	}
	s.live = append(s.live, doubtful(maxLiveScan+1, 900_000))
	s.stats.Flights[flight.StateInDoubt] = 1
	text = scrape(t, m)
	require.Contains(t, text, "flightd_in_doubt 1\n")
	require.NotContains(t, text, "\nflightd_in_doubt_oldest_age_seconds ", "0 would mean that no flight is in doubt")
}

// The gauges of approvals count those that wait, and show the age of the oldest.
func TestAgeOfTheOldestApproval(t *testing.T) {
	s := &fakeLedger{now: 1_000_000}
	m := New(Config{})
	m.RegisterState(s, s)
	require.Contains(t, scrape(t, m), "\nflightd_approvals_oldest_age_seconds 0\n")
	s.live = append(s.live, &flight.Flight{State: flight.StateRunning, CreatedAt: 1}, &flight.Flight{State: flight.StateAwaitingApproval, CreatedAt: 400_000},
		&flight.Flight{State: flight.StateAwaitingApproval, CreatedAt: 500_000})
	s.stats.Flights[flight.StateAwaitingApproval] = 2
	text := scrape(t, m)
	require.Contains(t, text, "\nflightd_approvals_waiting 2\n")
	require.Contains(t, text, "\nflightd_approvals_oldest_age_seconds 600\n")
	s.live = nil
	require.NotContains(t, scrape(t, m), "\nflightd_approvals_oldest_age_seconds ", "0 would mean that none waits")
}

// Two doubts of one saga are one saga that waits. An undo that succeeded is a compensation.
func TestSagas(t *testing.T) {
	s := &fakeLedger{now: 1_000_000}
	m := New(Config{})
	m.RegisterState(s, s)
	text := scrape(t, m)
	require.Contains(t, text, "flightd_sagas_in_doubt 0\n")
	require.Contains(t, text, "flightd_saga_in_doubt_oldest_age_seconds 0\n")
	for i, key := range []string{"a/trip/1#hotel", "a/trip/1#seat.undo", "a/trip/2#hotel", "a/charge/1"} {
		s.live = append(s.live, &flight.Flight{Key: flight.MustKey(key), State: flight.StateInDoubt, CreatedAt: flight.Time(900_000 - 100_000*i)})
	}
	s.stats.Flights[flight.StateInDoubt] = 4
	text = scrape(t, m)
	require.Contains(t, text, "flightd_sagas_in_doubt 2\n")
	require.Contains(t, text, "flightd_saga_in_doubt_oldest_age_seconds 300\n")

	m.SagaEnded(flight.OutcomeSucceeded)
	m.SagaEnded(flight.OutcomeRefused)
	m.SagaEnded(flight.OutcomeRefused)
	closed := m.Executor(executor.Events{}).Closed
	for key, outcome := range map[string]flight.Outcome{"a/trip/1#seat.undo": flight.OutcomeSucceeded, "a/trip/1#hotel.undo": flight.OutcomeNotDone, "a/trip/1#hotel": flight.OutcomeSucceeded} {
		closed(flight.MustKey(key), 1, outcome, time.Second)
	}
	text = scrape(t, m)
	require.Contains(t, text, `flightd_saga_runs_total{outcome="done"} 1`)
	require.Contains(t, text, `flightd_saga_runs_total{outcome="undone"} 2`)
	require.Contains(t, text, "flightd_compensations_total 1\n")
}

// A resolution that the effect did not happen frees its key for the next caller. If none comes, its age shows it.
func TestAgeOfTheOldestFlightThatNobodyRunsAgain(t *testing.T) {
	s := &fakeLedger{now: 1_000_000}
	m := New(Config{})
	m.RegisterState(s, s)
	const name = "flightd_resolved_not_run_oldest_age_seconds"
	require.Contains(t, scrape(t, m), name+" 0\n")
	resolved := func(finding flight.Finding, at, opened flight.Time) *flight.Flight {
		return &flight.Flight{State: flight.StateReady, CreatedAt: flight.Time(len(s.live)) + at, Attempts: []flight.Attempt{{Number: 1, OpenedAt: opened, Outcome: flight.OutcomeNotDone}},
			Resolution: &flight.Resolution{Finding: finding, By: flight.Attribution{At: at}}}
	}
	s.live = append(s.live, &flight.Flight{State: flight.StateReady, CreatedAt: 1}, resolved(flight.FindingApproved, 100_000, 90_000), resolved(flight.FindingNotHappened, 200_000, 200_001))
	s.stats.Flights[flight.StateReady] = int64(len(s.live))
	require.Contains(t, scrape(t, m), name+" 0\n", "approved, and run since")
	s.live = append(s.live, resolved(flight.FindingNotHappened, 300_000, 50_000), resolved(flight.FindingNotHappened, 400_000, 200_000))
	s.stats.Flights[flight.StateReady] = int64(len(s.live))
	require.Contains(t, scrape(t, m), name+" 700\n")

	s.live = s.live[:0]
	for i := range flight.Time(maxLiveScan + 1) {
		s.live = append(s.live, &flight.Flight{State: flight.StateReady, CreatedAt: i + 1})
	}
	s.stats.Flights[flight.StateReady] = int64(len(s.live))
	require.NotContains(t, scrape(t, m), "\n"+name, "0 would mean that there is none")
}

// TestQuarantinedReports: the gauge is absent if the number is unknown.
func TestQuarantinedReports(t *testing.T) {
	for aside, want := range map[int]bool{0: true, 2: true, -1: false} {
		m := New(Config{})
		s := &fakeLedger{stats: clusterstore.Stats{Quarantined: aside}}
		m.RegisterState(s, s)
		line := fmt.Sprintf("\nflightd_reports_quarantined %d\n", aside)
		require.Equal(t, want, strings.Contains(scrape(t, m), line), line)
		require.Equal(t, want, strings.Contains(scrape(t, m), "\nflightd_reports_quarantined "))
	}
}

// TestDiskFree_ZeroIsShown: the alert for a full disk must not end when the free space reaches 0.
func TestDiskFree_ZeroIsShown(t *testing.T) {
	s := &fakeLedger{}
	m := New(Config{})
	m.RegisterState(s, s)
	require.NotContains(t, scrape(t, m), "flightd_disk_free_bytes", "the free space is unknown")
	s.stats.FreeKnown = true
	require.Contains(t, scrape(t, m), "flightd_disk_free_bytes 0\n")
}

// TestMetrics_LibrariesAreServedSeparately: the metrics of etcd are not in the registry of flightd.
func TestMetrics_LibrariesAreServedSeparately(t *testing.T) {
	m := New(Config{})
	for line := range strings.Lines(scrape(t, m)) {
		require.False(t, strings.HasPrefix(line, "etcd_") || strings.HasPrefix(line, "grpc_"), line)
	}
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics/etcd", nil))
	require.Equal(t, http.StatusOK, w.Code)
	require.NotContains(t, w.Body.String(), "flightd_")
}
