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
	Lanes int
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
	ID     string `json:"id"`
	Mishap string `json:"scenario"`
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
	defaultLanes = 3
	sharedLanes  = 4 // parallel runs at the flightd that is never killed
)

// Execute runs the drill. Broken promises are in the report. Execute returns an error only if the drill itself failed:
// an unknown name in Config.Only, a process that did not start, or the end of ctx.
func Perform(ctx context.Context, cfg Config) (Report, error) {
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
	if err = d.perform(ctx, runs); err == nil {
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
		return PlanWithout()
	}
	return Plan()
}

// drill is one execution.
type drill struct {
	cfg   Config
	dir   string
	crm   string
	books books

	mu   sync.Mutex // guards rows and done, and serializes Config.Progress
	rows []Row
	done int
}

// task is a run and the index of its row.
type task struct {
	place int
	run   Run
}

// execute executes all runs and waits for them. A worker with a flightd of its own executes the runs that kill flightd,
// one after the other. All other runs share one flightd, which is never killed, and execute in parallel.
func (d *drill) perform(ctx context.Context, runs []Run) error {
	crm, url, err := startServing(ctx, d.cfg.Binary, "CRM", filepath.Join(d.dir, "crm.log"), "", "drill", "crm")
	if err != nil {
		return err
	}
	defer crm.kill()
	d.crm, d.books = url, books{url: url, http: &http.Client{Timeout: 10 * time.Second}}
	var calm, deadly []task
	for i, run := range runs {
		if run.flightdDies() {
			deadly = append(deadly, task{i, run})
		} else {
			calm = append(calm, task{i, run})
		}
	}
	lanes := d.cfg.Lanes
	if lanes <= 0 {
		lanes = defaultLanes
	}
	var group sync.WaitGroup
	errs := make([]error, lanes+1)
	queue := tasksOf(deadly)
	for lane := range min(lanes, len(deadly)) {
		group.Go(func() { errs[lane] = d.lane(ctx, lane, queue, 1) })
	}
	if len(calm) > 0 {
		group.Go(func() { errs[lanes] = d.lane(ctx, lanes, tasksOf(calm), sharedLanes) })
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

// worker executes the runs of a queue at one flightd, atOnce of them in parallel, and waits for them.
func (d *drill) lane(ctx context.Context, number int, queue <-chan task, atOnce int) error {
	var h *house
	if !d.cfg.WithoutFlightd {
		var err error
		if h, err = newHouse(d.cfg.Binary, filepath.Join(d.dir, fmt.Sprintf("flightd-%d", number)), number); err != nil {
			return err
		}
		defer h.kill()
		if atOnce > 1 { // a single run starts flightd itself, with its own crash point
			if err := h.start(ctx, ""); err != nil {
				return err
			}
		}
	}
	var group sync.WaitGroup
	for range atOnce {
		group.Go(func() {
			for t := range queue {
				if ctx.Err() != nil {
					return
				}
				d.play(ctx, t, h)
			}
		})
	}
	group.Wait()
	return nil
}

func (d *drill) play(ctx context.Context, t task, h *house) {
	began := time.Now()
	p := &play{run: t.run, house: h, books: d.books, binary: d.cfg.Binary, crm: d.crm, dir: filepath.Join(d.dir, t.run.ID())}
	facts := p.perform(ctx)
	row := Row{
		ID: t.run.ID(), Mishap: t.run.Mishap(), Run: t.run, Facts: facts, KeySame: facts.SameKey(), Broken: Check(t.run, facts),
		TookMS: time.Since(began).Milliseconds(),
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rows[t.place] = row
	d.done++
	if d.cfg.Progress != nil {
		d.cfg.Progress(Progress{Row: row, Done: d.done, Total: len(d.rows)})
	}
}
