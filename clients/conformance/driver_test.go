//go:build clients

package conformance

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/internal/proctest"
)

// language is a client language.
type language struct {
	name   string
	needs  string // the required tool
	file   string // the file that must have been built
	advice string
	driver func() []string
}

func languages() []language {
	compiled := filepath.Join("..", "typescript", "dist", "conformance", "driver.mjs")
	return []language{
		{name: "go", needs: "go", driver: func() []string { return []string{binaries.driver} }},
		{name: "python", needs: "python3", file: "driver.py", advice: "install Python 3.9 or later",
			driver: func() []string { return []string{python(), "-B", "driver.py"} }},
		{name: "typescript", needs: "node", file: compiled,
			advice: "install Node 20 or later with npm, then `npm ci && npm run build` in clients/typescript",
			driver: func() []string { return []string{"node", compiled} }},
	}
}

// python returns the interpreter that python3 starts, which can be a script that chooses a version, and takes longer than the interpreter.
var python = sync.OnceValue(func() string {
	path, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		return "python3"
	}
	return strings.TrimSpace(string(path))
})

// wanted returns the selected languages: all, or those in FLIGHTD_CLIENTS.
func wanted() map[string]bool {
	names := strings.Fields(os.Getenv("FLIGHTD_CLIENTS"))
	if len(names) == 0 {
		names = []string{"go", "python", "typescript"}
	}
	set := make(map[string]bool)
	for _, n := range names {
		set[n] = true
	}
	return set
}

// requireReady fails the test if the language's tools are missing. A selected language is never skipped.
func (l language) requireReady(t testing.TB) {
	t.Helper()
	_, err := exec.LookPath(l.needs)
	if err == nil && l.file != "" {
		_, err = os.Stat(l.file)
	}
	require.NoError(t, err, "the %s client cannot be tested: %v: %s (`make clients` builds the drivers; CLIENTS=\"go python\" selects languages)", l.name, err, l.advice)
}

// setup is a driver's first line.
type setup struct {
	Address        string `json:"address"`
	TTL            int    `json:"ttl_s,omitempty"`
	Spool          string `json:"spool"`
	RetryTimeoutMS int    `json:"retry_timeout_ms"`
	ReportWaitMS   int    `json:"report_wait_ms"`
	Work           string `json:"work,omitempty"` // the effect of jobs that the driver performs
	Look           string `json:"look,omitempty"` // the look-up of these jobs

	env []string // of the process
}

// call is each further line.
type call struct {
	Call             int    `json:"call"`
	Callers          int    `json:"callers"`
	Name             string `json:"name"`
	ID               string `json:"id"`
	Input            any    `json:"input,omitempty"`
	Recovery         string `json:"recovery,omitempty"`
	WaitMS           int    `json:"wait_ms,omitempty"`
	SettleMS         int    `json:"settle_ms,omitempty"`
	AttemptTimeoutMS int    `json:"attempt_timeout_ms,omitempty"`
	ProviderWindowMS int    `json:"provider_window_ms,omitempty"`
	Before           string `json:"before,omitempty"`
	Effect           string `json:"effect"`
	Look             string `json:"look,omitempty"`
	ThrowBefore      bool   `json:"throw_before,omitempty"`
	Twice            bool   `json:"twice,omitempty"`        // call the effect a second time in the same attempt
	Again            bool   `json:"again,omitempty"`        // call the effect a second time, after an error
	Inner            string `json:"inner,omitempty"`        // id of a flight inside this effect; its own effect is not done
	Swallow          bool   `json:"swallow,omitempty"`      // catch the error of the effect, and return no result
	Unrun            bool   `json:"unrun,omitempty"`        // return work that has not run, in place of a result
	Submit           int    `json:"submit,omitempty"`       // submit a job that often, and wait for its end
	SubmitAll        int    `json:"submit_all,omitempty"`   // submit so many jobs in a batch
	Close            bool   `json:"close,omitempty"`        // close the client
	Odd              string `json:"odd,omitempty"`          // an odd value, name or duration of the driver
	Entrance         string `json:"entrance,omitempty"`     // that it is put through
	LeaveBehind      string `json:"leave_behind,omitempty"` // requested by the leftover goroutine after its effect
}

// answer is the result of one caller.
type answer struct {
	Call       int             `json:"call"`
	Caller     int             `json:"caller"`
	Error      string          `json:"error"`
	Detail     string          `json:"detail"`
	Source     string          `json:"source"`
	Value      json.RawMessage `json:"value"`
	Body       []byte          `json:"body"`
	ExternalID string          `json:"external_id"`
	Attempt    int             `json:"attempt"`
}

// driver is a child process with one client.
type driver struct {
	t   testing.TB
	cmd *exec.Cmd
	in  io.WriteCloser
	log *lockedBuffer

	mu      sync.Mutex // guards calls and answers
	calls   int
	answers map[int]chan answer
}

// newDriver starts a driver, which is killed at the end of the test.
func newDriver(t testing.TB, l language, s setup) *driver {
	t.Helper()
	args := l.driver()
	d := &driver{t: t, cmd: exec.Command(args[0], args[1:]...), log: new(lockedBuffer), answers: make(map[int]chan answer)}
	d.cmd.Env, d.cmd.SysProcAttr, d.cmd.Stderr = environment(s.env...), proctest.KillWithParent(), d.log
	out, err := d.cmd.StdoutPipe()
	require.NoError(t, err)
	d.in, err = d.cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, d.cmd.Start())
	readerDone := make(chan struct{})
	go func() { defer close(readerDone); d.readAnswers(out) }() // the cleanup waits for it
	t.Cleanup(func() {
		_ = d.cmd.Process.Kill()
		<-readerDone
		_ = d.cmd.Wait()
		if t.Failed() && d.log.String() != "" {
			t.Logf("output of the driver:\n%s", d.log)
		}
	})
	d.send(s)
	return d
}

func (d *driver) readAnswers(out io.Reader) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var a answer
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			d.t.Errorf("invalid output of the driver %q: %v", lines.Text(), err)
			continue
		}
		d.mu.Lock()
		to := d.answers[a.Call]
		d.mu.Unlock()
		to <- a
	}
}

func (d *driver) send(line any) {
	d.t.Helper()
	data, err := json.Marshal(line)
	require.NoError(d.t, err)
	_, err = d.in.Write(append(data, '\n'))
	require.NoError(d.t, err)
}

// pending is a call that was sent.
type pending struct {
	d       *driver
	callers int
	answers chan answer
}

// begin sends a call.
func (d *driver) begin(c call) *pending {
	d.t.Helper()
	c.Callers = max(c.Callers, 1)
	p := &pending{d: d, callers: c.Callers, answers: make(chan answer, c.Callers)}
	d.mu.Lock()
	d.calls++
	c.Call = d.calls
	d.answers[c.Call] = p.answers
	d.mu.Unlock()
	d.send(c)
	return p
}

// wait waits for the answers of all callers.
func (p *pending) wait() (all []answer) {
	p.d.t.Helper()
	over := time.After(waitTimeout)
	for range p.callers {
		select {
		case a := <-p.answers:
			all = append(all, a)
		case <-over:
			p.d.t.Fatalf("%d of %d callers got their answers within %v\n%s", len(all), p.callers, waitTimeout, p.d.log)
		}
	}
	return all
}

func (p *pending) waitOne() answer { p.d.t.Helper(); return p.wait()[0] }

// do sends a call and returns its answer.
func (d *driver) do(c call) answer { d.t.Helper(); return d.begin(c).waitOne() }

func (d *driver) signal(s syscall.Signal) {
	d.t.Helper()
	require.NoError(d.t, d.cmd.Process.Signal(s))
}

// lockedBuffer is a buffer for concurrent writes and reads.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
