package metrics

import (
	"iter"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/flight"
)

// Ledger is the part of the ledger that a scrape reads.
type Ledger interface {
	Stats() clusterstore.Stats
	// Live yields the flights that have not ended, oldest first.
	Live() iter.Seq2[*flight.Flight, error]
	// Now returns the ledger's time.
	Now() flight.Time
}

// Leases is the part of the lessor that a scrape reads.
type Leases interface {
	Counts() (claims, sessions int)
}

// RegisterState adds the gauges of the ledger and of the leases. It must be called once.
func (m *Metrics) RegisterState(ledger Ledger, held Leases) {
	c := &stateCollector{ledger: ledger, leases: held, gauges: stateGauges(),
		flights: prometheus.NewDesc(namespace+"_flights", "Flights in the ledger, by state; the same on every node.", []string{"state"}, nil)}
	all := []*prometheus.Desc{c.flights}
	for _, g := range c.gauges {
		all = append(all, g.desc)
	}
	m.registry.MustRegister(collector{all, c.collect})
}

// RegisterCertificate adds the gauge of the API's certificate. expires returns its end. It must be called at most once.
func (m *Metrics) RegisterCertificate(expires func() time.Time) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Name: "tls_certificate_expiry_timestamp_seconds",
		Help: "Unix time at which the API's TLS certificate expires; absent without TLS."},
		func() float64 { return float64(expires().Unix()) }))
}

// stateCollector collects all gauges of the ledger and of the leases from one sample.
type stateCollector struct {
	ledger  Ledger
	leases  Leases
	gauges  []stateGauge
	flights *prometheus.Desc
}

// stateGauge is one of these gauges.
type stateGauge struct {
	desc  *prometheus.Desc
	value func(*sample) float64 // NaN if the value is unknown: then the series is omitted, because 0 would be a value
}

// sample holds the values of one scrape.
type sample struct {
	clusterstore.Stats
	claims, sessions   int
	oldestDoubtSeconds float64
	oldestUnrunSeconds float64

	oldestApprovalSeconds float64
	sagaDoubts            sagaDoubts
}

// sagaDoubts are the sagas with a step or an undo in doubt, as far as a scrape has read.
type sagaDoubts struct {
	sagas         map[flight.ID]bool
	oldestSeconds float64 // NaN if it was not found
}

func stateGauges() []stateGauge {
	f := func(name, help string, of func(*sample) float64) stateGauge {
		return stateGauge{prometheus.NewDesc(namespace+"_"+name, help, nil, nil), of}
	}
	return []stateGauge{
		f("in_doubt", "Flights in doubt, which wait for a person; the same on every node.",
			func(r *sample) float64 { return float64(r.Flights[flight.StateInDoubt]) }),
		f("in_doubt_oldest_age_seconds", "Age of the oldest flight in doubt, since the end of its newest attempt; 0: none is in doubt; absent: not found.",
			func(r *sample) float64 { return r.oldestDoubtSeconds }),
		f("approvals_waiting", "Flights that await a person's approval; the same on every node.",
			func(r *sample) float64 { return float64(r.Flights[flight.StateAwaitingApproval]) }),
		f("approvals_oldest_age_seconds", "Age of the oldest flight that awaits approval, since its submission; 0: none does; absent: not found.",
			func(r *sample) float64 { return r.oldestApprovalSeconds }),
		f("resolved_not_run_oldest_age_seconds", "Age of the oldest resolution that an effect did not happen after which no caller has run it; 0: there is none; absent: not found.",
			func(r *sample) float64 { return r.oldestUnrunSeconds }),
		f("sagas_in_doubt", "Sagas that wait for a person, because a step or an undo is in doubt; absent: not found.",
			func(r *sample) float64 {
				if math.IsNaN(r.sagaDoubts.oldestSeconds) {
					return math.NaN()
				}
				return float64(len(r.sagaDoubts.sagas))
			}),
		f("saga_in_doubt_oldest_age_seconds", "Age of the oldest doubt of a step or an undo of a saga; 0: there is none; absent: not found.",
			func(r *sample) float64 { return r.sagaDoubts.oldestSeconds }),
		f("receipts_stored", "Flights that succeeded or failed and whose receipts are replayed; the same on every node.",
			func(r *sample) float64 {
				return float64(r.Flights[flight.StateSucceeded] + r.Flights[flight.StateFailed])
			}),
		f("leases_held", "Attempts of this process's own calls that hold a claim; attempts of remote callers are not counted.",
			func(r *sample) float64 { return float64(r.claims) }),
		f("lease_sessions", "Sessions that this process renews, for itself and for remote callers.",
			func(r *sample) float64 { return float64(r.sessions) }),
		f("reports_waiting", "Reports on this node's disk that the ledger has not stored yet.",
			func(r *sample) float64 { return float64(r.Spooled) }),
		f("reports_quarantined", "Quarantined reports on this node's disk: unreadable, or for flights that the ledger does not have; absent if unknown.",
			func(r *sample) float64 {
				if r.Quarantined < 0 {
					return math.NaN()
				}
				return float64(r.Quarantined)
			}),
		f("reconciling", "1 while the ledger is a restored one, and opens nothing before an operator has finished the restore.",
			func(r *sample) float64 { return boolValue(r.Reconciling) }),
		f("raft_leading", "1 while this node is the leader and accepts proposals.", func(r *sample) float64 { return boolValue(r.Leading) }),
		f("raft_term", "Raft term of this node.", func(r *sample) float64 { return float64(r.Term) }),
		f("raft_commit_index", "Index of the newest log entry that this node knows to be committed.",
			func(r *sample) float64 { return float64(r.Commit) }),
		f("raft_applied_index", "Index of the newest log entry that this node has applied.",
			func(r *sample) float64 { return float64(r.Applied) }),
		f("raft_first_index", "Index of the oldest entry in this node's log.", func(r *sample) float64 { return float64(r.First) }),
		f("raft_last_index", "Index of the newest entry in this node's log.", func(r *sample) float64 { return float64(r.Last) }),
		f("raft_log_bytes", "Disk space used by the raft log.", func(r *sample) float64 { return float64(r.LogBytes) }),
		f("ledger_bytes", "Disk space used by the stored flights.", func(r *sample) float64 { return float64(r.StateBytes) }),
		f("disk_free_bytes", "Free disk space for the ledger; absent if unknown.", func(r *sample) float64 {
			if !r.FreeKnown {
				return math.NaN()
			}
			return float64(r.FreeBytes)
		}),
		f("disk_damaged", "1 if a block on this node's disk was found damaged since the start.", func(r *sample) float64 { return boolValue(r.Damaged) }),
	}
}

func (s *stateCollector) collect(to chan<- prometheus.Metric) {
	r := sample{Stats: s.ledger.Stats()}
	r.claims, r.sessions = s.leases.Counts()
	s.setOldestAges(&r)
	for _, f := range s.gauges {
		if value := f.value(&r); !math.IsNaN(value) {
			to <- prometheus.MustNewConstMetric(f.desc, prometheus.GaugeValue, value)
		}
	}
	for state, n := range r.Flights {
		if state := flight.State(state); state != flight.StateAbsent {
			to <- prometheus.MustNewConstMetric(s.flights, prometheus.GaugeValue, float64(n), state.String())
		}
	}
}

// maxLiveScan is how many live flights a scrape reads. If there are more, only the oldest ones are considered.
const maxLiveScan = 20_000

// setOldestAges sets the ages in seconds of the oldest doubt, of the oldest flight that awaits approval, and of the oldest resolved
// flight that no caller has run since. An age is NaN if it was not found.
func (s *stateCollector) setOldestAges(r *sample) {
	doubts, approvals := r.Flights[flight.StateInDoubt], r.Flights[flight.StateAwaitingApproval]
	waiting := r.Flights[flight.StateReady] + r.Flights[flight.StateScheduled] // for a caller
	now := s.ledger.Now()
	oldestDoubt, foundDoubt, oldestApproval, foundApproval, oldestUnrun, foundUnrun := now, doubts == 0, now, approvals == 0, now, false
	oldestOfSagas, sagas := now, make(map[flight.ID]bool)
	all, read := true, 0
	if doubts+approvals+waiting > 0 {
		for f, err := range s.ledger.Live() {
			if all = err == nil && (doubts > 0 || approvals > 0 || waiting > 0) && read < maxLiveScan; !all {
				break
			}
			read++
			switch f.State {
			case flight.StateInDoubt:
				oldestDoubt, foundDoubt = min(oldestDoubt, doubtSince(f)), true
				if f.Key.IsStep() {
					oldestOfSagas, sagas[f.Key.Saga().FlightID()] = min(oldestOfSagas, doubtSince(f)), true
				}
				doubts--
			case flight.StateAwaitingApproval:
				oldestApproval, foundApproval = min(oldestApproval, f.CreatedAt), true
				approvals--
			case flight.StateReady, flight.StateScheduled:
				if since := f.UnrunSince(); since > 0 {
					oldestUnrun, foundUnrun = min(oldestUnrun, since), true
				}
				waiting--
			}
		}
	}
	if all { // the counts are of another moment
		waiting = 0
	}
	age := func(since flight.Time, found bool) float64 {
		if !found {
			return math.NaN()
		}
		return now.AsTime().Sub(since.AsTime()).Seconds()
	}
	r.oldestDoubtSeconds, r.oldestApprovalSeconds, r.oldestUnrunSeconds = age(oldestDoubt, foundDoubt), age(oldestApproval, foundApproval), age(oldestUnrun, foundUnrun || waiting <= 0)
	r.sagaDoubts = sagaDoubts{sagas, age(oldestOfSagas, all || doubts <= 0)}
}

// doubtSince returns when the newest attempt ended, as flightd doubt ls shows it. The flight became in doubt then, or
// later if look-ups came first.
func doubtSince(f *flight.Flight) flight.Time {
	if a := f.Newest(); a != nil && a.ClosedAt > 0 {
		return a.ClosedAt
	}
	return f.CreatedAt
}
