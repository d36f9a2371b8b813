package metrics

import (
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// namespace is the prefix of all metric names.
const namespace = "flightd"

// Config configures Metrics. A zero field means its default.
type Config struct {
	// Version is the version of the program.
	Version string
	// TTL is the time to live of the node's own session, for alerts that are relative to it; 0: not exported.
	TTL time.Duration
	// Actions is the number of action names with their own series; default 100.
	Actions int
}

// defaultActions keeps a node below 2,000 series for all its actions.
const defaultActions = 100

// Metrics holds the collectors of one node. Its methods are safe for concurrent use.
type Metrics struct {
	registry    *prometheus.Registry
	calls       calls
	leases      leases
	raft        raft
	etcd        etcd
	raftLibrary *librarySink // the metrics of the raft library
	actionLimit int          // Config.Actions
}

// New returns the collectors. The gauges of the ledger and of the leases are added by RegisterState.
func New(cfg Config) *Metrics {
	if cfg.Actions <= 0 {
		cfg.Actions = defaultActions
	}
	m := &Metrics{registry: prometheus.NewRegistry(), raftLibrary: newLibrarySink(), actionLimit: cfg.Actions}
	in := factory{m.registry}
	m.calls = newCalls(in, cfg.Actions)
	m.leases = newLeases(in)
	m.raft = newRaft(in)
	m.etcd = newEtcd(in)
	in.gauges("build_info", "Always 1; the labels have the versions.", "version", "go_version").
		WithLabelValues(cfg.Version, runtime.Version()).Set(1)
	if cfg.TTL > 0 {
		in.gauge("lease_ttl_seconds", "Time to live of the claims of this process after it has died.").Set(cfg.TTL.Seconds())
	}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// maxConcurrentScrapes limits the scrapes that are served at once; further scrapes get a 503.
const maxConcurrentScrapes = 4

// Handler serves /metrics, /metrics/etcd and /metrics/raft.
func (m *Metrics) Handler() http.Handler {
	rafts := prometheus.NewRegistry()
	rafts.MustRegister(m.raftLibrary)
	mux := http.NewServeMux()
	for path, from := range map[string]prometheus.Gatherer{
		"/metrics": m.registry, "/metrics/etcd": prometheus.DefaultGatherer, "/metrics/raft": rafts,
	} {
		mux.Handle("GET "+path, promhttp.HandlerFor(from, promhttp.HandlerOpts{
			MaxRequestsInFlight: maxConcurrentScrapes, ErrorHandling: promhttp.ContinueOnError, // a partial answer is better than an error
		}))
	}
	return mux
}

// factory creates and registers collectors.
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

// Upper bounds of buckets, in seconds.
func waitBuckets() []float64 { // calls: from a read in memory to the longest wait
	return []float64{.0001, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 30, 60}
}

func acquireBuckets() []float64 { // lease acquisition: up to several TTLs
	return []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 15, 30, 45, 60, 90, 120, 300}
}

func attemptBuckets() []float64 { // attempts: up to an hour
	return []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600}
}

func writeBuckets() []float64 { // one durable write
	return []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5}
}
