package metrics

import (
	"iter"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Queue is the state of the jobs of one action in one namespace.
type Queue struct {
	Action                  string
	Ready, Running, Workers int
	OldestSeconds           float64 // age of the oldest ready job
	Paused                  bool
}

// RegisterQueues adds the gauges of the queues. state returns them, and whether this node leads the ledger; if not, there are
// no gauges. It must be called at most once.
func (m *Metrics) RegisterQueues(state func() (queues iter.Seq[Queue], leads bool)) {
	f := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(namespace+"_queue_"+name, help+" Of all namespaces, at the node that leads the ledger.", []string{"action"}, nil)
	}
	c := &queueCollector{state: state, limit: m.actionLimit, known: make(map[string]bool), gauges: []*prometheus.Desc{
		f("ready_jobs", "Jobs that are handed out when a worker asks, unless the action is paused."),
		f("running_jobs", "Jobs that a worker's session holds."),
		f("oldest_ready_age_seconds", "Since when the oldest ready job of an action that is not paused has been due; 0: there is none."),
		f("workers", "Workers that have asked for jobs within a minute."),
		f("unclaimed_jobs", "Ready jobs of actions that are not paused, and that no worker has asked for within a minute."),
		f("paused", "In how many namespaces the action is paused."),
	}}
	m.registry.MustRegister(collector{c.gauges, c.collect})
}

type queueCollector struct {
	state  func() (iter.Seq[Queue], bool)
	limit  int
	gauges []*prometheus.Desc // ready, running, oldest, workers, unclaimed, paused

	mu    sync.Mutex
	known map[string]bool // the names that have their own series: the first ones, at most limit
}

// label returns the value of the label action for a name.
func (c *queueCollector) label(action string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.known[action]:
		return action
	case len(c.known) < c.limit:
		action = strings.Clone(action) // a substring of a key would keep the whole key in memory
		c.known[action] = true
		return action
	}
	return OtherAction
}

func (c *queueCollector) collect(to chan<- prometheus.Metric) {
	queues, leads := c.state()
	if !leads {
		return
	}
	sums := map[string]*[6]float64{OtherAction: new([6]float64)} // so that the names exist from the start
	for q := range queues {
		action := c.label(q.Action)
		if sums[action] == nil {
			sums[action] = new([6]float64)
		}
		s := sums[action]
		s[0] += float64(q.Ready)
		s[1] += float64(q.Running)
		s[3] += float64(q.Workers)
		switch {
		case q.Paused:
			s[5]++
		default:
			s[2] = max(s[2], q.OldestSeconds)
			if q.Workers == 0 {
				s[4] += float64(q.Ready)
			}
		}
	}
	for action, s := range sums {
		for i, d := range c.gauges {
			to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, s[i], action)
		}
	}
}
