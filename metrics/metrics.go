package metrics

import (
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
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
	notified    *prometheus.CounterVec
	raftLibrary *librarySink // the metrics of the raft library
	actionLimit int          // Config.Actions
}

// New returns the collectors. The gauges of the ledger and of the leases are added by RegisterState.
func New(cfg Config) *Metrics {
	if cfg.Actions <= 0 {
		cfg.Actions = defaultActions
	}
	m := &Metrics{registry: prometheus.NewRegistry(), raftLibrary: newLibrarySink(), actionLimit: cfg.Actions}
	in := factory{promauto.With(m.registry)}
	m.calls = newCalls(in, cfg.Actions)
	m.leases = newLeases(in)
	m.raft = newRaft(in)
	m.etcd = newEtcd(in)
	m.notified = newNotified(in)
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
type factory struct{ promauto.Factory }

func (f factory) counter(name, help string) prometheus.Counter {
	return f.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help})
}

func (f factory) counters(name, help string, labels ...string) *prometheus.CounterVec {
	return f.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
}

func (f factory) gauge(name, help string) prometheus.Gauge {
	return f.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help})
}

func (f factory) gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	return f.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, labels)
}

func (f factory) histogram(name, help string, buckets []float64) prometheus.Histogram {
	return f.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets})
}

func (f factory) histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return f.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}, labels)
}

// collector collects gauges at each scrape.
type collector struct {
	gauges  []*prometheus.Desc
	collect func(to chan<- prometheus.Metric)
}

// Describe implements prometheus.Collector.
func (c collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range c.gauges {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(to chan<- prometheus.Metric) { c.collect(to) }

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
