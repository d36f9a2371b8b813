//go:build linux

package cluster

import (
	"github.com/flightd/flightd/chaos/linear"
)

// add stores an event of the callers.
func (h *History) add(e *event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case e.Call != nil:
		h.Calls = append(h.Calls, *e.Call)
	case e.Reading != nil:
		h.Readings = append(h.Readings, *e.Reading)
	case e.JobEnd != nil:
		h.JobEnds = append(h.JobEnds, *e.JobEnd)
	case e.ApprovalEnd != nil:
		h.Approvals = append(h.Approvals, *e.ApprovalEnd)
	case e.Op != nil:
		h.Ops = append(h.Ops, *e.Op)
	case e.SagaEnd != nil:
		h.SagaEnds = append(h.SagaEnds, *e.SagaEnd)
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

// event is a line that the process of the callers writes: one of its fields is set.
type event struct {
	Call        *Call        `json:",omitempty"`
	Reading     *Reading     `json:",omitempty"`
	JobEnd      *JobEnd      `json:",omitempty"`
	SagaEnd     *SagaEnd     `json:",omitempty"`
	ApprovalEnd *ApprovalEnd `json:",omitempty"`
	Op          *linear.Op   `json:",omitempty"`
	Done        string       `json:",omitempty"` // the name of an order that was carried out
}
