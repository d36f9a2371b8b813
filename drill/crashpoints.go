package drill

import (
	"bufio"
	"encoding/json"
	"io"
	"sync"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/internal/crashpoint"
)

// message is one line of a caller process's output.
type message struct {
	Point   crashpoint.Point `json:"point,omitempty"`   // the point that the caller has reached
	Attempt uint32           `json:"attempt,omitempty"` // the attempt at Point, if one is open
	Error   string           `json:"error,omitempty"`   // error of the attempt or, with End, of the last call
	Result  *Outcome         `json:"result,omitempty"`
	End     string           `json:"end,omitempty"`
}

// crashPoints reports each crash point that a caller reaches, and pauses or kills the process at the configured ones.
// The message is written before the process dies, so the drill always reads it.
type crashPoints struct {
	crash *crashpoint.Set

	mu    sync.Mutex       // guards pause, out and in
	pause crashpoint.Point // point of the next pause; "" after it
	out   *json.Encoder
	in    *bufio.Reader
}

func newCrashPoints(cfg CallerConfig) *crashPoints {
	return &crashPoints{crash: cfg.Crash, pause: cfg.PauseAt, out: json.NewEncoder(cfg.Out), in: bufio.NewReader(cfg.In)}
}

// pass reports the point at. err is the error of the attempt, if it has ended with one.
func (p *crashPoints) pass(at crashpoint.Point, attempt uint32, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := message{Point: at, Attempt: attempt}
	if err != nil {
		l.Error = err.Error()
	}
	_ = p.out.Encode(l) // fails only if the drill has died; then the kernel kills this process, too
	if p.pause == at {
		p.pause = ""
		if _, err := p.in.ReadString('\n'); err == io.EOF {
			return // the drill has died
		}
	}
	p.crash.At(at)
}

// reportResult reports a result of Do.
func (p *crashPoints) reportResult(r effect.Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := outcomeOf(r)
	_ = p.out.Encode(message{Result: &o})
}

func outcomeOf(r effect.Result) Outcome {
	return Outcome{
		ExternalID: r.Answer.ExternalID, Digest: r.Digest.String(), Attempt: r.Attempt,
		Source: r.Source.String(), Body: string(r.Answer.Body),
	}
}

// reportEnd reports the end of the caller, its last message.
func (p *crashPoints) reportEnd(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := message{End: classifyEnd(err)}
	if err != nil {
		l.Error = err.Error()
	}
	return p.out.Encode(l)
}
