package drill

import (
	"bufio"
	"encoding/json"
	"io"
	"sync"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/internal/crashpoint"
)

// line is what a caller's process says about itself.
type line struct {
	Point   crashpoint.Point `json:"point,omitempty"`   // it stands there
	Attempt uint32           `json:"attempt,omitempty"` // of which attempt, where it knows one
	Error   string           `json:"error,omitempty"`   // what the attempt, or everything, ended with
	Result  *Outcome         `json:"result,omitempty"`
	End     string           `json:"end,omitempty"`
}

// path is a caller's way from point to point: it says where it is, stops where it is told to, and dies where it is
// told to. The line is out before it does: it does not die with the process.
type path struct {
	crash *crashpoint.Set

	mu    sync.Mutex
	pause crashpoint.Point // where to stop; "" when that is over
	out   *json.Encoder
	in    *bufio.Reader
}

func newPath(cfg CallerConfig) *path {
	return &path{crash: cfg.Crash, pause: cfg.PauseAt, out: json.NewEncoder(cfg.Out), in: bufio.NewReader(cfg.In)}
}

// pass is called at a point. err is how the attempt has ended by then.
func (p *path) pass(at crashpoint.Point, attempt uint32, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := line{Point: at, Attempt: attempt}
	if err != nil {
		l.Error = err.Error()
	}
	_ = p.out.Encode(l) // nobody listens any more: then this process is about to be killed
	if p.pause == at {
		p.pause = ""
		if _, err := p.in.ReadString('\n'); err == io.EOF {
			return // the drill is gone
		}
	}
	p.crash.At(at)
}

// result says what Do gave.
func (p *path) result(r effect.Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := outcomeOf(r)
	_ = p.out.Encode(line{Result: &o})
}

func outcomeOf(r effect.Result) Outcome {
	return Outcome{
		ExternalID: r.Answer.ExternalID, Digest: r.Digest.String(), Attempt: r.Attempt,
		Source: r.Source.String(), Body: string(r.Answer.Body),
	}
}

// end is the last word.
func (p *path) end(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := line{End: endOf(err)}
	if err != nil {
		l.Error = err.Error()
	}
	return p.out.Encode(l)
}
