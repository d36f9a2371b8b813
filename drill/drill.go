package drill

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Config configures a drill.
type Config struct {
	Binary string // this program
	// Dir holds the data and logs of all processes. "" creates a directory, which is removed if no promise was broken.
	Dir string
	// Only selects runs by the names that Select accepts.
	Only []string
	// Workers is the number of flightd processes that are killed in parallel. 0 means 3.
	Workers int
	// WithoutFlightd is the control: the callers call the CRM directly.
	WithoutFlightd bool
	// Progress, if not nil, is called after every run, under a lock.
	Progress func(Progress)
}

// Progress reports one finished run.
type Progress struct {
	Row         Row
	Done, Total int
}

// Row is one run with its result.
type Row struct {
	ID       string `json:"id"`
	Scenario string `json:"scenario"`
	Run
	Facts
	KeySame bool     `json:"same_key"`
	Broken  []string `json:"broken"` // the broken promises
	TookMS  int64    `json:"took_ms"`
}

// Report is the result of a drill.
type Report struct {
	Rows   []Row         `json:"rows"`
	Broken int           `json:"broken"` // number of rows with a broken promise
	Took   time.Duration `json:"-"`
	Dir    string        `json:"dir,omitempty"` // directory of logs and data, if it was kept
}

// Limits of parallel work.
const (
	defaultWorkers = 3
	sharedRuns     = 4 // parallel runs at the flightd that is never killed
)

// Execute runs the drill. Broken promises are in the report. Execute returns an error only if the drill itself failed:
// an unknown name in Config.Only, a process that did not start, or the end of ctx.
func Execute(ctx context.Context, cfg Config) (Report, error) {
	began := time.Now()
	runs, err := Select(PlanOf(cfg), cfg.Only)
	if err != nil {
		return Report{}, err
	}
	dir, temporary := cfg.Dir, cfg.Dir == ""
	if temporary {
		if dir, err = os.MkdirTemp("", "flightd-drill-"); err != nil {
			return Report{}, err
		}
	} else if err := os.MkdirAll(dir, 0o700); err != nil {
		return Report{}, err
	}
	d := &drill{cfg: cfg, dir: dir, rows: make([]Row, len(runs))}
	if err = d.execute(ctx, runs); err == nil {
		err = context.Cause(ctx)
	}
	report := Report{Rows: d.rows, Took: time.Since(began), Dir: dir}
	for _, row := range d.rows {
		if len(row.Broken) > 0 {
			report.Broken++
		}
	}
	if temporary && (ctx.Err() != nil || err == nil && (report.Broken == 0 || cfg.WithoutFlightd)) {
		report.Dir = ""
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return report, err
}

// PlanOf returns all runs of a drill, before Config.Only selects some.
func PlanOf(cfg Config) []Run {
	if cfg.WithoutFlightd {
		return PlanWithoutFlightd()
	}
	return Plan()
}

// drill is one execution.
type drill struct {
	cfg       Config
	dir       string
	crmURL    string
	crmClient crmClient

	mu   sync.Mutex // guards rows and done, and serializes Config.Progress
	rows []Row
	done int
}

// task is a run and the index of its row.
type task struct {
	index int
	run   Run
}

// execute executes all runs and waits for them. A worker with a flightd of its own executes the runs that kill flightd,
// one after the other. All other runs share one flightd, which is never killed, and execute in parallel.
func (d *drill) execute(ctx context.Context, runs []Run) error {
	crm, url, err := startServerProcess(ctx, processSpec(d.cfg.Binary, "CRM", filepath.Join(d.dir, "crm.log"), "", "drill", "crm"))
	if err != nil {
		return err
	}
	defer crm.Kill()
	d.crmURL, d.crmClient = url, crmClient{url: url, http: &http.Client{Timeout: 10 * time.Second}}
	var shared, killing []task
	for i, run := range runs {
		if run.killsFlightd() {
			killing = append(killing, task{i, run})
		} else {
			shared = append(shared, task{i, run})
		}
	}
	workers := d.cfg.Workers
	if workers <= 0 {
		workers = defaultWorkers
	}
	var group sync.WaitGroup
	errs := make([]error, workers+1)
	queue := tasksOf(killing)
	for worker := range min(workers, len(killing)) {
		group.Go(func() { errs[worker] = d.worker(ctx, worker, queue, 1) })
	}
	if len(shared) > 0 {
		group.Go(func() { errs[workers] = d.worker(ctx, workers, tasksOf(shared), sharedRuns) })
	}
	group.Wait()
	return errors.Join(errs...)
}

func tasksOf(tasks []task) <-chan task {
	queue := make(chan task, len(tasks))
	for _, t := range tasks {
		queue <- t
	}
	close(queue)
	return queue
}

// worker executes the runs of a queue at one flightd, at most parallel of them at a time, and waits for them.
func (d *drill) worker(ctx context.Context, number int, queue <-chan task, parallel int) error {
	var s *server
	if !d.cfg.WithoutFlightd {
		var err error
		if s, err = newServer(d.cfg.Binary, filepath.Join(d.dir, fmt.Sprintf("flightd-%d", number)), number); err != nil {
			return err
		}
		defer s.kill()
		if parallel > 1 { // a single run starts flightd itself, with its own crash point
			if err := s.start(ctx, ""); err != nil {
				return err
			}
		}
	}
	var group sync.WaitGroup
	for range parallel {
		group.Go(func() {
			for t := range queue {
				if ctx.Err() != nil {
					return
				}
				d.executeRun(ctx, t, s)
			}
		})
	}
	group.Wait()
	return nil
}

func (d *drill) executeRun(ctx context.Context, t task, s *server) {
	began := time.Now()
	r := &runner{run: t.run, server: s, crmClient: d.crmClient, binary: d.cfg.Binary, crmURL: d.crmURL, dir: filepath.Join(d.dir, t.run.ID())}
	facts := r.execute(ctx)
	row := Row{
		ID: t.run.ID(), Scenario: t.run.Scenario(), Run: t.run, Facts: facts, KeySame: facts.SameKey(), Broken: Check(t.run, facts),
		TookMS: time.Since(began).Milliseconds(),
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rows[t.index] = row
	d.done++
	if d.cfg.Progress != nil {
		d.cfg.Progress(Progress{Row: row, Done: d.done, Total: len(d.rows)})
	}
}
