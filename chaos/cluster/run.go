//go:build linux

package cluster

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/flightd/flightd/chaos/report"
)

// Options say what one run of chaos does.
type Options struct {
	Programs
	Seed    uint64 // of everything that is chosen by chance
	Nodes   int    // 3 or 5
	OwnEtcd bool   // etcd runs in three processes on hosts of its own, else in the nodes
	For     time.Duration
	Load    Load
	Faults
	Timeout time.Duration // how long work may go on after the last fault; what is not over then is judged as it is
	Lock    bool          // jobs in lanes beside a mutex of etcd, under workers that stand still, instead of the other workloads and faults
	First   bool          // one broken promise is enough: what takes its time is judged only if none was broken, or not at all
	Keep    string        // directory for the data and the logs of a run that fails
	Output  io.Writer
}

// Programs say where the programs of a run are.
type Programs struct {
	Flightd string // path of the binary under test
	Source  string // the root of the repository
	Self    string // path of this program, which is also the callers' and the workers'
}

// Faults say which faults happen.
type Faults struct {
	Kinds    []string // of faults, by their names; empty: all
	Together int      // most faults at once
	Loopback bool     // without root, in a user namespace (netbed.BecomeRoot): disks are of memory, and faults that need a device do not happen
}

// Load says how much a run does.
type Load struct {
	Callers int           // a third of them in each language
	Pause   time.Duration // mean pause of a caller between two keys
	Workers int
	Jobs    int
	Sagas   int
	Slow    int // how many times as slow as a quiet one of two cores the machine may be: the limits of recovery are multiplied by it
}

// run has what package require and etcdtest need of a test. FailNow ends the goroutine of the experiment.
type run struct {
	ctx   context.Context
	out   io.Writer
	began time.Time

	mu       sync.Mutex // guards the fields below
	failed   bool
	cleanups []func()
}

func (r *run) Helper()                  {}
func (r *run) Context() context.Context { return r.ctx }

func (r *run) Logf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _ = fmt.Fprintf(r.out, "%7.1fs  %s\n", time.Since(r.began).Seconds(), fmt.Sprintf(format, args...))
}

func (r *run) Errorf(format string, args ...any) {
	r.Logf("FAILED: "+format, args...)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
}

func (r *run) FailNow() {
	r.mu.Lock()
	r.failed = true
	r.mu.Unlock()
	runtime.Goexit()
}

func (r *run) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *run) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

// Run tears a cluster apart and judges what has happened. The error says that the run could not be carried out; broken promises are in
// the result.
func Run(ctx context.Context, opts *Options) (*report.Result, error) {
	r := &run{ctx: ctx, out: opts.Output, began: time.Now()}
	var result *report.Result
	r.do(func() {
		carryOut := experiment
		if opts.Lock {
			carryOut = lockExperiment
		}
		if result = carryOut(r, opts); result.Broken() > 0 {
			r.Errorf("%d promises were broken", result.Broken())
		}
	})
	for i := len(r.cleanups) - 1; i >= 0; i-- { // none of them adds another one
		r.do(r.cleanups[i])
	}
	if result == nil {
		return nil, fmt.Errorf("chaos: the run could not be carried out: see above; it is repeated with -seed %d", opts.Seed)
	}
	return result, ctx.Err()
}

// do calls f in a goroutine that FailNow may end, and waits for its end.
func (r *run) do(f func()) {
	var done sync.WaitGroup
	done.Go(f)
	done.Wait()
}

// actEnv has the URL of the provider: then this process is the command of flightd exec.
const actEnv = "FLIGHTD_CHAOS_ACT"

// RunPart runs this process as a part of a run, if its environment says so: callers in Go, a worker, of flightd or with a mutex, or the command of flightd exec.
func RunPart(in io.Reader, out io.Writer) (isPart bool, err error) {
	settings, worker := os.Getenv(callersEnv), os.Getenv(workerEnv)
	switch {
	case os.Getenv(actEnv) != "":
		return true, runAct(os.Getenv(actEnv), os.Getenv("FLIGHTD_KEY"))
	case strings.HasPrefix(worker, guardMutex):
		return true, runMutexWorker(settings, worker, out)
	case worker != "":
		return true, runWorker(settings, worker, out)
	case settings != "":
		return true, runCallers(settings, in, out)
	}
	return false, nil
}
