package remote

import (
	"time"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/internal/answer"
)

// Replays answers opens at a node that does not lead the ledger, by the rules of Service, from the final receipts that this
// node has applied. It changes nothing. Only Ledger, Reader and Events of its Config are used.
type Replays struct{ service *Service }

// NewReplays returns the answers from a node's own view.
func NewReplays(cfg Config) Replays {
	return Replays{&Service{cfg: cfg, writer: answer.Builder{Reader: cfg.Reader}}}
}

// Open returns a replay, or an error: the leader has to be asked.
func (r Replays) Open(req OpenRequest) (OpenAnswer, error) {
	if err := checkOpen(&req); err != nil {
		return OpenAnswer{}, err
	}
	c := r.service.newCall(req)
	if err := c.readFlight(); err != nil {
		return OpenAnswer{}, err
	}
	if d := decide(&c.view); d.action != actionAnswerFlight || !c.view.flight.HasFinalReceipt() {
		return OpenAnswer{}, &effect.Unavailable{Code: "no_leader"}
	}
	a, err := c.answerFromFlight()
	if called := r.service.cfg.Events.Called; called != nil && err == nil {
		called(req.Key, resultLabel(a, nil), time.Since(c.start))
	}
	return a, err
}
