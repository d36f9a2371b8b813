package metrics

import (
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// namespace is the prefix of all names.
const namespace = "flightd"

// Config is what does not change while a node lives. A zero field means its default.
type Config struct {
	// Version is the program's own.
	Version string
	// TTL is that of the node's own session, for alerts that are relative to it; 0: not shown.
	TTL time.Duration
	// Actions is how many names of actions get series of their own; 100.
	Actions int
}

// defaultActions keeps a node below 2,000 series for all its actions.
const defaultActions = 100

// Metrics are the collectors of one node. Its methods may be called concurrently.
type Metrics struct {
	registry *prometheus.Registry
	calls    calls
	leases   leases
	raft     raft
	etcd     etcd
	library  *librarySink // of raft's own
}

// New makes the collectors. What is a state of the ledger or of the leases is shown from Watch on.
func New(cfg Config) *Metrics {
	if cfg.Actions <= 0 {
		cfg.Actions = defaultActions
	}
	m := &Metrics{registry: prometheus.NewRegistry(), library: newLibrarySink()}
	in := factory{m.registry}
	m.calls = newCalls(in, cfg.Actions)
	m.leases = newLeases(in)
	m.raft = newRaft(in)
	m.etcd = newEtcd(in)
	in.gauges("build_info", "Always 1; the labels say what runs here.", "version", "go_version").
		WithLabelValues(cfg.Version, runtime.Version()).Set(1)
	if cfg.TTL > 0 {
		in.gauge("lease_ttl_seconds", "How long the claims of this process outlive it.").Set(cfg.TTL.Seconds())
	}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// mostScrapes is how many answers are made at once; who comes when so many are on their way gets a 503.
const mostScrapes = 4

// Handler serves /metrics, /metrics/etcd and /metrics/raft.
func (m *Metrics) Handler() http.Handler {
	rafts := prometheus.NewRegistry()
	rafts.MustRegister(m.library)
	mux := http.NewServeMux()
	for path, from := range map[string]prometheus.Gatherer{
		"/metrics": m.registry, "/metrics/etcd": prometheus.DefaultGatherer, "/metrics/raft": rafts,
	} {
		mux.Handle("GET "+path, promhttp.HandlerFor(from, promhttp.HandlerOpts{
			MaxRequestsInFlight: mostScrapes, ErrorHandling: promhttp.ContinueOnError, // what can be shown is worth more than an error
		}))
	}
	return mux
}

// factory makes collectors in a registry.
type factory struct{ registry *prometheus.Registry }

func (f factory) counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help})
	f.registry.MustRegister(c)
	return c
}

func (f factory) counters(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
	f.registry.MustRegister(c)
	return c
}

func (f factory) gauge(name, help string) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help})
	f.registry.MustRegister(g)
	return g
}

func (f factory) gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, labels)
	f.registry.MustRegister(g)
	return g
}

func (f factory) histogram(name, help string, buckets []float64) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets})
	f.registry.MustRegister(h)
	return h
}

func (f factory) histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}, labels)
	f.registry.MustRegister(h)
	return h
}

// Bounds of buckets, in seconds.
func waits() []float64 { // of callers: from a read in memory to the longest wait
	return []float64{.0001, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 30, 60}
}

func claims() []float64 { // as waits, and beyond three times the default TTL
	return []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 15, 30, 45, 60, 90, 120, 300}
}

func efforts() []float64 { // of effects: up to an hour
	return []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600}
}

func writes() []float64 { // of one durable write
	return []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5}
}
