//go:build chaos

package cluster

import "strings"

// add stores an event of the callers.
func (h *History) add(e *event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case e.Call != nil:
		h.Calls = append(h.Calls, *e.Call)
	case e.Reading != nil:
		h.Readings = append(h.Readings, *e.Reading)
	case e.Probe != nil:
		h.Probes = append(h.Probes, *e.Probe)
	case e.JobEnd != nil:
		h.JobEnds = append(h.JobEnds, *e.JobEnd)
	}
}

// keys returns every key that was called, once, in the order of first calls.
func (h *History) keys() (all []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	known := make(map[string]bool)
	for i := range h.Calls {
		if key := h.Calls[i].Key; !known[key] {
			known[key] = true
			all = append(all, key)
		}
	}
	return all
}

// effectsOf returns the effects of the keys of an order.
func (h *History) effectsOf(order string) (effects []Effect) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.Effects {
		if strings.Contains(e.Key, "/"+order+"-") {
			effects = append(effects, e)
		}
	}
	return effects
}

// event is a line that the process of the callers writes: one of its fields is set.
type event struct {
	Call    *Call    `json:",omitempty"`
	Reading *Reading `json:",omitempty"`
	Probe   *Probe   `json:",omitempty"`
	JobEnd  *JobEnd  `json:",omitempty"`
	Done    string   `json:",omitempty"` // the name of an order that was carried out
}
