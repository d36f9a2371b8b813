package metrics

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/flight"
)

// Ledger is the part of the ledger that a scrape reads.
type Ledger interface {
	Stats() clusterstore.Stats
	// Live returns flights that have not ended, oldest first, after a position.
	Live(after clusterstore.LivePlace, limit int) ([]*flight.Flight, clusterstore.LivePlace, error)
	// Now returns the ledger's time.
	Now() flight.Time
}

// Leases is the part of the lessor that a scrape reads.
type Leases interface {
	Held() (claims, sessions int)
}

// RegisterState adds the gauges of the ledger and of the leases. It must be called once.
func (m *Metrics) Watch(ledger Ledger, held Leases) {
	m.registry.MustRegister(&states{ledger: ledger, leases: held, figures: figures(),
		flights: prometheus.NewDesc(namespace+"_flights", "Flights in the ledger, by state; the same on every node.", []string{"state"}, nil)})
}

// stateCollector collects all gauges of the ledger and of the leases from one sample.
type states struct {
	ledger  Ledger
	leases  Leases
	figures []figure
	flights *prometheus.Desc
}

// stateGauge is one of these gauges.
type figure struct {
	desc *prometheus.Desc
	of   func(*reading) float64 // NaN if the value is unknown: then the series is omitted, because 0 would be a value
}

// sample holds the values of one scrape.
type reading struct {
	clusterstore.Stats
	claims, sessions int
	doubtAge         float64 // seconds
}

func figures() []figure {
	f := func(name, help string, of func(*reading) float64) figure {
		return figure{prometheus.NewDesc(namespace+"_"+name, help, nil, nil), of}
	}
	return []figure{
		f("in_doubt", "Flights in doubt, which wait for a person; the same on every node.",
			func(r *reading) float64 { return float64(r.Flights[flight.InDoubt]) }),
		f("in_doubt_oldest_age_seconds", "Age of the oldest flight in doubt, since the end of its newest attempt; 0: none is in doubt; absent: not found.",
			func(r *reading) float64 { return r.doubtAge }),
		f("receipts_stored", "Flights that succeeded or failed and whose receipts are replayed; the same on every node.",
			func(r *reading) float64 {
				return float64(r.Flights[flight.StateSucceeded] + r.Flights[flight.StateFailed])
			}),
		f("leases_held", "Attempts of this process's own calls that hold a claim; attempts of remote callers are not counted.",
			func(r *reading) float64 { return float64(r.claims) }),
		f("lease_sessions", "Sessions that this process renews, for itself and for remote callers.",
			func(r *reading) float64 { return float64(r.sessions) }),
		f("reports_waiting", "Reports on this node's disk that the ledger has not stored yet.",
			func(r *reading) float64 { return float64(r.Spooled) }),
		f("reports_put_aside", "Quarantined reports on this node's disk: unreadable, or for flights that the ledger does not have; absent if unknown.",
			func(r *reading) float64 {
				if r.Aside < 0 {
					return math.NaN()
				}
				return float64(r.Aside)
			}),
		f("raft_leading", "1 while this node is the leader and accepts proposals.", func(r *reading) float64 { return oneIf(r.Leading) }),
		f("raft_term", "Raft term of this node.", func(r *reading) float64 { return float64(r.Term) }),
		f("raft_commit_index", "Index of the newest log entry that this node knows to be committed.",
			func(r *reading) float64 { return float64(r.Commit) }),
		f("raft_applied_index", "Index of the newest log entry that this node has applied.",
			func(r *reading) float64 { return float64(r.Applied) }),
		f("raft_first_index", "Index of the oldest entry in this node's log.", func(r *reading) float64 { return float64(r.First) }),
		f("raft_last_index", "Index of the newest entry in this node's log.", func(r *reading) float64 { return float64(r.Last) }),
		f("raft_log_bytes", "Disk space used by the raft log.", func(r *reading) float64 { return float64(r.LogBytes) }),
		f("ledger_bytes", "Disk space used by the stored flights.", func(r *reading) float64 { return float64(r.RowBytes) }),
		f("disk_free_bytes", "Free disk space for the ledger; absent if unknown.", func(r *reading) float64 {
			if !r.FreeKnown {
				return math.NaN()
			}
			return float64(r.FreeBytes)
		}),
	}
}

// Describe implements prometheus.Collector.
func (s *states) Describe(to chan<- *prometheus.Desc) {
	for _, f := range s.figures {
		to <- f.desc
	}
	to <- s.flights
}

// Collect implements prometheus.Collector.
func (s *states) Collect(to chan<- prometheus.Metric) {
	r := reading{Stats: s.ledger.Stats()}
	r.claims, r.sessions = s.leases.Held()
	r.doubtAge = s.oldestDoubt(r.Flights[flight.InDoubt])
	for _, f := range s.figures {
		if value := f.of(&r); !math.IsNaN(value) {
			to <- prometheus.MustNewConstMetric(f.desc, prometheus.GaugeValue, value)
		}
	}
	for state, n := range r.Flights {
		if state := flight.State(state); state != flight.Absent {
			to <- prometheus.MustNewConstMetric(s.flights, prometheus.GaugeValue, float64(n), state.String())
		}
	}
}

// A scrape reads at most this many live flights, in batches. If there are more, only the oldest ones are considered.
const (
	doubtsLooked = 20_000
	doubtsChunk  = 1000
)

// oldestDoubtAge returns the age in seconds of the oldest of the given number of doubts; NaN if none was found.
func (s *states) oldestDoubt(doubts int64) float64 {
	now, found := s.ledger.Now(), doubts == 0
	oldest := now
	var place clusterstore.LivePlace
	for looked := 0; doubts > 0 && looked < doubtsLooked; looked += doubtsChunk {
		page, next, err := s.ledger.Live(place, doubtsChunk)
		for _, f := range page {
			if f.State == flight.InDoubt {
				oldest, found = min(oldest, doubtSince(f)), true
				doubts--
			}
		}
		if err != nil || len(page) < doubtsChunk {
			break
		}
		place = next
	}
	if !found {
		return math.NaN()
	}
	return now.At().Sub(oldest.At()).Seconds()
}

// doubtSince returns when the newest attempt ended, as flightd doubt ls shows it. The flight became in doubt then, or
// later if look-ups came first.
func doubtSince(f *flight.Flight) flight.Time {
	if a := f.Newest(); a != nil && a.ClosedAt > 0 {
		return a.ClosedAt
	}
	return f.CreatedAt
}
