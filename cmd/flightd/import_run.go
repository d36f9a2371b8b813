package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/flightd/flightd/client"
)

// importers is how many requests are under way at once.
const importers = 4

// importRun is one import while it goes on.
type importRun struct {
	*app
	importing
	client *client.Client
	start  time.Time

	mu     sync.Mutex
	sum    importSummary
	told   time.Time
	failed error
}

// importBatch is a piece of the file for one request.
type importBatch struct {
	lines   []byte
	numbers []int // of its lines in the file
}

// all reads the file to its end, or to the first thing that goes wrong.
func (r *importRun) all(ctx context.Context, from io.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	batches := make(chan *importBatch)
	var senders sync.WaitGroup
	for range importers {
		senders.Go(func() {
			for b := range batches {
				if err := r.send(ctx, b); err != nil {
					r.fail(err)
					cancel()
				}
			}
		})
	}
	r.fail(r.read(ctx, from, batches))
	close(batches)
	senders.Wait()
	return r.failed
}

// fail keeps the first thing that went wrong.
func (r *importRun) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed == nil {
		r.failed = err
	}
}

// read checks line after line and packs them into batches. What was good before a bad line is still sent.
func (r *importRun) read(ctx context.Context, from io.Reader, batches chan<- *importBatch) error {
	lines := &lineReader{in: bufio.NewReaderSize(from, longestLine)}
	b, now := new(importBatch), time.Now()
	hand := func() error {
		if len(b.numbers) == 0 {
			return nil
		}
		select {
		case batches <- b:
			b = new(importBatch)
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	for {
		line, err := lines.next()
		if err != nil {
			if failed := hand(); failed != nil || errors.Is(err, io.EOF) {
				return failed
			}
			return err
		}
		if len(line) == 0 {
			continue
		}
		if err := client.CheckImport(line, r.namespace, now); err != nil {
			if !r.keepGoing {
				return errors.Join(hand(), &coded{code: exitUsage, err: fmt.Errorf("line %d: %w", lines.number, err),
					hint: "correct it and repeat the command, or pass over such lines with --keep-going"})
			}
			r.skip(lines.number, err)
			continue
		}
		if len(b.numbers) == client.MaxImportLines || len(b.lines)+len(line)+1 > client.MaxImportBody {
			if err := hand(); err != nil {
				return err
			}
		}
		b.lines = append(append(b.lines, line...), '\n')
		b.numbers = append(b.numbers, lines.number)
	}
}

// where names the lines of a batch.
func (b *importBatch) where() string {
	first, last := b.numbers[0], b.numbers[len(b.numbers)-1]
	if first == last {
		return fmt.Sprintf("line %d", first)
	}
	return fmt.Sprintf("lines %d to %d", first, last)
}

// skip passes over a line that cannot be read.
func (r *importRun) skip(number int, err error) {
	r.say("line %d is passed over: %v", number, err)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sum.Unread++
	r.sum.Lines++
}

// send brings one batch to a server.
func (r *importRun) send(ctx context.Context, b *importBatch) error {
	answer, err := r.client.Import(ctx, b.lines, r.dryRun)
	if err != nil {
		return fmt.Errorf("%s: %w", b.where(), err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sum.Lines += answer.Lines
	r.sum.Imported += answer.Imported
	r.sum.Existing += answer.Existing
	for _, d := range answer.Differing {
		if d.Line > 0 && d.Line <= len(b.numbers) {
			d.Line = b.numbers[d.Line-1]
		}
		r.sum.Differing = append(r.sum.Differing, d)
	}
	if now := time.Now(); now.Sub(r.told) > time.Second {
		if !r.told.IsZero() || now.Sub(r.start) > time.Second {
			r.say("%s", r.progressLocked())
		}
		r.told = now
	}
	return nil
}

func (r *importRun) progress() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.progressLocked()
}

func (r *importRun) progressLocked() string {
	return fmt.Sprintf("%s, %d %s, %d there already, %s", counted(r.sum.Lines, "line", "lines"), r.sum.Imported, imported(r.dryRun),
		r.sum.Existing, counted(len(r.sum.Differing), "differs", "differ"))
}

func (r *importRun) summary() importSummary {
	r.mu.Lock()
	defer r.mu.Unlock()
	sum := r.sum
	sum.DryRun, sum.Seconds = r.dryRun, time.Since(r.start).Seconds()
	if sum.Differing == nil {
		sum.Differing = []client.ImportTrouble{}
	}
	return sum
}

// verdict is the exit code of an import that came to its end.
func (r *importRun) verdict() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sum.Unread > 0 || len(r.sum.Differing) > 0 {
		return silent(exitFailed)
	}
	return nil
}
