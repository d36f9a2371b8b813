package metrics

import (
	"maps"
	"math"
	"strings"
	"sync"
	"sync/atomic"

	gometrics "github.com/hashicorp/go-metrics"
	"github.com/prometheus/client_golang/prometheus"
)

// CollectRaft collects the metrics of the raft library, for /metrics/raft, until release is called. The library has one
// global sink per process, so only a process that runs a single node may call it.
func (m *Metrics) CollectRaft() (release func()) {
	cfg := &gometrics.Config{FilterDefault: true, TimerGranularity: timerUnit}
	_, _ = gometrics.NewGlobal(cfg, m.raftLibrary) // never fails with this configuration
	return func() { _, _ = gometrics.NewGlobal(cfg, new(gometrics.BlackholeSink)) }
}

// timerUnit sets the unit of durations to milliseconds, as in the documentation of the raft library.
const timerUnit = 1e6

// librarySink keeps the newest value, or the count and sum, of each metric of the library. The library calls it several
// times per log entry, so it must be fast: it drops labels, which are peer ids, and computes no quantiles.
type librarySink struct {
	known atomic.Pointer[map[libraryName]*libraryValue] // an immutable map, replaced under mu
	mu    sync.Mutex                                    // serialises replacements of known
}

// libraryName is a metric name of the library: up to four parts.
type libraryName [4]string

func (n libraryName) String() string {
	return strings.ToLower(strings.Map(func(r rune) rune {
		if r == '.' || r == '-' || r == ' ' {
			return '_'
		}
		return r
	}, strings.TrimRight(strings.Join(n[:], "_"), "_")))
}

// libraryValue is the state of one metric.
type libraryValue struct {
	kind  libraryKind
	bits  atomic.Uint64 // the float64 bits of the value or sum
	count atomic.Uint64
}

type libraryKind int

const (
	libraryGauge libraryKind = iota
	libraryCounter
	librarySample
)

var _ gometrics.MetricSink = (*librarySink)(nil)

func newLibrarySink() *librarySink {
	s := new(librarySink)
	s.known.Store(new(map[libraryName]*libraryValue))
	return s
}

func (s *librarySink) value(key []string, kind libraryKind) *libraryValue {
	var name libraryName
	copy(name[:], key)
	if v := (*s.known.Load())[name]; v != nil {
		return v
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known := *s.known.Load()
	if v := known[name]; v != nil {
		return v
	}
	more := maps.Clone(known)
	if more == nil {
		more = make(map[libraryName]*libraryValue)
	}
	v := &libraryValue{kind: kind}
	more[name] = v
	s.known.Store(&more)
	return v
}

func (v *libraryValue) add(x float64) {
	v.count.Add(1)
	for {
		old := v.bits.Load()
		if v.bits.CompareAndSwap(old, math.Float64bits(math.Float64frombits(old)+x)) {
			return
		}
	}
}

func (s *librarySink) SetGauge(key []string, x float32) {
	s.value(key, libraryGauge).bits.Store(math.Float64bits(float64(x)))
}

func (s *librarySink) SetGaugeWithLabels(key []string, x float32, _ []gometrics.Label) {
	s.SetGauge(key, x)
}

func (s *librarySink) EmitKey([]string, float32) {}

func (s *librarySink) IncrCounter(key []string, x float32) {
	s.value(key, libraryCounter).add(float64(x))
}

func (s *librarySink) IncrCounterWithLabels(key []string, x float32, _ []gometrics.Label) {
	s.IncrCounter(key, x)
}

func (s *librarySink) AddSample(key []string, x float32) { s.value(key, librarySample).add(float64(x)) }

func (s *librarySink) AddSampleWithLabels(key []string, x float32, _ []gometrics.Label) {
	s.AddSample(key, x)
}

// Describe implements prometheus.Collector. It sends no descriptors, because the library chooses the names at run time.
func (s *librarySink) Describe(chan<- *prometheus.Desc) {}

func (s *librarySink) Collect(to chan<- prometheus.Metric) {
	for name, v := range *s.known.Load() {
		help := "A metric of the raft library; durations are in milliseconds."
		x := math.Float64frombits(v.bits.Load())
		switch v.kind {
		case libraryGauge:
			to <- prometheus.MustNewConstMetric(prometheus.NewDesc(name.String(), help, nil, nil), prometheus.GaugeValue, x)
		case libraryCounter:
			to <- prometheus.MustNewConstMetric(prometheus.NewDesc(name.String()+"_total", help, nil, nil), prometheus.CounterValue, x)
		default:
			to <- prometheus.MustNewConstSummary(prometheus.NewDesc(name.String(), help, nil, nil), v.count.Load(), x, nil)
		}
	}
}
