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

// Config is what a drill needs to know.
type Config struct {
	Binary string // this program
	// Dir holds everything that the processes leave; "" for a new one, which is removed when nothing was broken.
	Dir string
	// Only selects runs; see Select.
	Only []string
	// Lanes is how many flightds are killed side by side; 0: 3.
	Lanes int
	// WithoutFlightd lets the caller act by itself, as the control.
	WithoutFlightd bool
	// Progress is told of every run that is over, one at a time; nil: nobody is.
	Progress func(Progress)
}

// Progress is one run that is over.
type Progress struct {
	Row         Row
	Done, Total int
}

// Row is one run and what became of it.
type Row struct {
	ID     string `json:"id"`
	Mishap string `json:"mishap"`
	Run
	Facts
	KeySame bool     `json:"same_key"`
	Broken  []string `json:"broken"` // what was promised and not kept; empty when all was
	TookMS  int64    `json:"took_ms"`
}

// Report is what a drill found.
type Report struct {
	Rows   []Row         `json:"rows"`
	Broken int           `json:"broken"` // how many rows broke a promise
	Took   time.Duration `json:"-"`
	Dir    string        `json:"dir,omitempty"` // where logs and data are, if they were kept
}

// Bounds of what happens at once.
const (
	defaultLanes = 3
	sharedLanes  = 4 // runs that share the flightd that nobody kills
)

// Perform performs the drill. Its error says why it could not be performed; promises that were broken are in the report.
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

// PlanOf gives the runs of a drill before any are selected.
func PlanOf(cfg Config) []Run {
	if cfg.WithoutFlightd {
		return PlanWithout()
	}
	return Plan()
}

// drill is one performance.
type drill struct {
	cfg   Config
	dir   string
	crm   string
	books books

	mu   sync.Mutex
	rows []Row
	done int
}

// task is a run and its place in the table.
type task struct {
	place int
	run   Run
}

// perform plays all runs: those that kill flightd one after the other in each of a few lanes, the others side by side
// around a flightd that nobody kills.
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

// lane plays runs around one flightd, so many at once.
func (d *drill) lane(ctx context.Context, number int, queue <-chan task, atOnce int) error {
	var h *house
	if !d.cfg.WithoutFlightd {
		var err error
		if h, err = newHouse(d.cfg.Binary, filepath.Join(d.dir, fmt.Sprintf("flightd-%d", number)), number); err != nil {
			return err
		}
		defer h.kill()
		if atOnce > 1 { // where only one run is played at once, it starts flightd as it needs it
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
