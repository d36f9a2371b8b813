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

// CollectRaft collects from now on what the raft library tells of itself, for /metrics/raft, until release is called.
// The library has one place for that in a process: it is for processes that are one node and nothing else.
func (m *Metrics) CollectRaft() (release func()) {
	cfg := &gometrics.Config{FilterDefault: true, TimerGranularity: timerUnit}
	_, _ = gometrics.NewGlobal(cfg, m.library) // it fails never
	return func() { _, _ = gometrics.NewGlobal(cfg, new(gometrics.BlackholeSink)) }
}

// timerUnit is in which the raft library's durations come, as its own documents have them: milliseconds.
const timerUnit = 1e6

// librarySink keeps of every name the library's newest value, or count and sum. It is called for each entry of the log,
// several times, and so does next to nothing: no labels (they are ids of peers), no quantiles.
type librarySink struct {
	known atomic.Pointer[map[libraryName]*libraryValue] // never written to: replaced
	mu    sync.Mutex                                    // held while it is
}

// libraryName is a name as the library gives it: up to four words.
type libraryName [4]string

func (n libraryName) String() string {
	return strings.ToLower(strings.Map(func(r rune) rune {
		if r == '.' || r == '-' || r == ' ' {
			return '_'
		}
		return r
	}, strings.TrimRight(strings.Join(n[:], "_"), "_")))
}

// libraryValue is what is kept of one name.
type libraryValue struct {
	kind  libraryKind
	bits  atomic.Uint64 // of the value or the sum, a float64
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

// SetGauge implements gometrics.MetricSink.
func (s *librarySink) SetGauge(key []string, x float32) {
	s.value(key, libraryGauge).bits.Store(math.Float64bits(float64(x)))
}

// SetGaugeWithLabels implements gometrics.MetricSink.
func (s *librarySink) SetGaugeWithLabels(key []string, x float32, _ []gometrics.Label) {
	s.SetGauge(key, x)
}

// EmitKey implements gometrics.MetricSink.
func (s *librarySink) EmitKey([]string, float32) {}

// IncrCounter implements gometrics.MetricSink.
func (s *librarySink) IncrCounter(key []string, x float32) {
	s.value(key, libraryCounter).add(float64(x))
}

// IncrCounterWithLabels implements gometrics.MetricSink.
func (s *librarySink) IncrCounterWithLabels(key []string, x float32, _ []gometrics.Label) {
	s.IncrCounter(key, x)
}

// AddSample implements gometrics.MetricSink.
func (s *librarySink) AddSample(key []string, x float32) { s.value(key, librarySample).add(float64(x)) }

// AddSampleWithLabels implements gometrics.MetricSink.
func (s *librarySink) AddSampleWithLabels(key []string, x float32, _ []gometrics.Label) {
	s.AddSample(key, x)
}

// Describe implements prometheus.Collector: which names there are is the library's to say, so none is.
func (s *librarySink) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (s *librarySink) Collect(to chan<- prometheus.Metric) {
	for name, v := range *s.known.Load() {
		help := "As the raft library tells it; durations are milliseconds."
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
