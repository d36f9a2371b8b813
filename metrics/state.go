package metrics

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/flight"
)

// Ledger is what is read of the memory of flights when somebody scrapes.
type Ledger interface {
	Stats() clusterstore.Stats
	// Live gives flights that are not over, oldest first, behind a place.
	Live(after clusterstore.LivePlace, limit int) ([]*flight.Flight, clusterstore.LivePlace, error)
	// Now is the ledger's time.
	Now() flight.Time
}

// Leases is what is read of the lease side.
type Leases interface {
	Held() (claims, sessions int)
}

// Watch shows from now on how ledger and leases stand. It must be called once.
func (m *Metrics) Watch(ledger Ledger, held Leases) {
	m.registry.MustRegister(&states{ledger: ledger, leases: held, figures: figures(),
		flights: prometheus.NewDesc(namespace+"_flights", "Flights that the ledger holds, by state; it is the same on every node.", []string{"state"}, nil)})
}

// states is the collector of all that is a state and not an event. One reading serves all of it.
type states struct {
	ledger  Ledger
	leases  Leases
	figures []figure
	flights *prometheus.Desc
}

// figure is one of them.
type figure struct {
	desc *prometheus.Desc
	of   func(*reading) float64 // no number where it is not known: then there is no series, because 0 would be an answer
}

// reading is what was read for one scrape.
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
		f("in_doubt", "Flights that wait for a person; it is the same on every node.",
			func(r *reading) float64 { return float64(r.Flights[flight.InDoubt]) }),
		f("in_doubt_oldest_age_seconds", "For how long the oldest doubt has been one, counted from the end of its newest attempt; 0: there is no doubt; missing: it was not found.",
			func(r *reading) float64 { return r.doubtAge }),
		f("receipts_stored", "Flights that ended succeeded or failed and are kept and replayed; it is the same on every node.",
			func(r *reading) float64 {
				return float64(r.Flights[flight.StateSucceeded] + r.Flights[flight.StateFailed])
			}),
		f("leases_held", "Attempts of this process's own calls whose claims are not released yet; those of remote callers are not counted.",
			func(r *reading) float64 { return float64(r.claims) }),
		f("lease_sessions", "Sessions that this process keeps, or renews for remote callers.",
			func(r *reading) float64 { return float64(r.sessions) }),
		f("reports_waiting", "Reports on this node's disk that the ledger has not taken yet.",
			func(r *reading) float64 { return float64(r.Spooled) }),
		f("reports_put_aside", "Reports on this node's disk that it cannot read, or of flights that the ledger does not know; it is missing where that is not known.",
			func(r *reading) float64 {
				if r.Aside < 0 {
					return math.NaN()
				}
				return float64(r.Aside)
			}),
		f("raft_leading", "1 while this node leads and takes proposals.", func(r *reading) float64 { return oneIf(r.Leading) }),
		f("raft_term", "Raft's term, as this node knows it.", func(r *reading) float64 { return float64(r.Term) }),
		f("raft_commit_index", "Index of the newest entry that this node knows to be committed.",
			func(r *reading) float64 { return float64(r.Commit) }),
		f("raft_applied_index", "Index of the newest entry that was applied here.",
			func(r *reading) float64 { return float64(r.Applied) }),
		f("raft_first_index", "Index of the oldest entry in this node's log.", func(r *reading) float64 { return float64(r.First) }),
		f("raft_last_index", "Index of the newest entry in this node's log.", func(r *reading) float64 { return float64(r.Last) }),
		f("raft_log_bytes", "Disk that the raft log takes.", func(r *reading) float64 { return float64(r.LogBytes) }),
		f("ledger_bytes", "Disk that the stored flights take.", func(r *reading) float64 { return float64(r.RowBytes) }),
		f("disk_free_bytes", "Disk that is left where the ledger is; it is missing where that is not known.", func(r *reading) float64 {
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

// A scrape looks at this many living flights at most, in chunks: beyond that its answer is about the oldest of them.
const (
	doubtsLooked = 20_000
	doubtsChunk  = 1000
)

// oldestDoubt is the age in seconds of the oldest of so many doubts; no number where none of them was found.
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

// doubtSince is when the newest attempt ended, as in flightd doubt ls: there the flight came to be in doubt, unless look-ups
// tried to find out first.
func doubtSince(f *flight.Flight) flight.Time {
	if a := f.Newest(); a != nil && a.ClosedAt > 0 {
		return a.ClosedAt
	}
	return f.CreatedAt
}
