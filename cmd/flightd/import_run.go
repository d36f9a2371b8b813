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
	"github.com/flightd/flightd/cmd/flightd/internal/cli"
)

// importWorkers is the number of concurrent requests.
const importWorkers = 4

// importRun is a running import.
type importRun struct {
	*cli.App
	importFlags
	client *client.Client
	start  time.Time

	mu         sync.Mutex // guards all below
	sum        importSummary
	progressAt time.Time // of the last progress message
	firstErr   error     // the first error
}

// importBatch is the part of the file that is sent in one request.
type importBatch struct {
	lines   []byte
	numbers []int // of its lines in the file
}

// run imports the file, to its end or to the first error. It waits for its workers.
func (r *importRun) run(ctx context.Context, from io.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	batches := make(chan *importBatch)
	var senders sync.WaitGroup
	for range importWorkers {
		senders.Go(func() {
			for b := range batches {
				if err := r.sendBatch(ctx, b); err != nil {
					r.setErr(err)
					cancel()
				}
			}
		})
	}
	r.setErr(r.read(ctx, from, batches))
	close(batches)
	senders.Wait()
	return r.firstErr
}

// setErr records the first error.
func (r *importRun) setErr(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.firstErr == nil {
		r.firstErr = err
	}
}

// read checks every line and sends batches. The valid lines before an invalid one are still sent. An invalid line ends
// the import; a dry run reports it and reads on, and --keep-going skips it.
func (r *importRun) read(ctx context.Context, from io.Reader, batches chan<- *importBatch) error {
	lines := &lineReader{in: bufio.NewReaderSize(from, maxLine)}
	b, now := new(importBatch), time.Now()
	flush := func() error {
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
		if err != nil && !errors.Is(err, errLongLine) {
			if failed := flush(); failed != nil || !errors.Is(err, io.EOF) {
				return errors.Join(failed, err)
			}
			return r.invalidLines()
		}
		if err == nil && len(line) == 0 {
			continue
		}
		if err == nil {
			err = client.CheckImport(line, r.Namespace, now)
		}
		if err != nil {
			if !r.keepGoing && !r.dryRun {
				return errors.Join(flush(), &cli.Error{Code: cli.ExitUsage, Err: fmt.Errorf("line %d: %w", lines.number, err),
					Hint: "correct it and repeat the command, or skip invalid lines with --keep-going"})
			}
			r.skipLine(lines.number, err)
			continue
		}
		if len(b.numbers) == client.MaxImportLines || len(b.lines)+len(line)+1 > client.MaxImportBody {
			if err := flush(); err != nil {
				return err
			}
		}
		b.lines = append(append(b.lines, line...), '\n')
		b.numbers = append(b.numbers, lines.number)
	}
}

// lineRange names the lines of a batch.
func (b *importBatch) lineRange() string {
	first, last := b.numbers[0], b.numbers[len(b.numbers)-1]
	if first == last {
		return fmt.Sprintf("line %d", first)
	}
	return fmt.Sprintf("lines %d to %d", first, last)
}

// maxInvalidLines bounds how many invalid lines a dry run reports one by one.
const maxInvalidLines = 100

// skipLine reports and counts an invalid line.
func (r *importRun) skipLine(number int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sum.Unread++
	r.sum.Lines++
	switch {
	case r.keepGoing:
		r.Say("line %d skipped: %v", number, err)
	case r.sum.Unread <= maxInvalidLines:
		r.Say("line %d: %v", number, err)
	}
}

// invalidLines returns the error of a dry run that has found invalid lines.
func (r *importRun) invalidLines() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.sum.Unread
	if n == 0 || r.keepGoing {
		return nil
	}
	if n > maxInvalidLines {
		r.Say("%s not shown", cli.Pluralize(n-maxInvalidLines, "more invalid line is", "more invalid lines are"))
	}
	return &cli.Error{Code: cli.ExitUsage, Err: fmt.Errorf("%s", cli.Pluralize(n, "line is invalid", "lines are invalid")),
		Hint: "correct them and repeat the command, or skip invalid lines with --keep-going"}
}

// sendBatch sends one batch to a server and adds up the answer.
func (r *importRun) sendBatch(ctx context.Context, b *importBatch) error {
	answer, err := r.client.Import(ctx, b.lines, r.dryRun)
	if err != nil {
		return fmt.Errorf("%s: %w", b.lineRange(), err)
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
	if now := time.Now(); now.Sub(r.progressAt) > time.Second {
		if !r.progressAt.IsZero() || now.Sub(r.start) > time.Second {
			r.Say("%s", r.progressLocked())
		}
		r.progressAt = now
	}
	return nil
}

func (r *importRun) progress() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.progressLocked()
}

func (r *importRun) progressLocked() string {
	return fmt.Sprintf("%s, %d %s, %d existed already, %s", cli.Pluralize(r.sum.Lines, "line", "lines"), r.sum.Imported, importedWord(r.dryRun),
		r.sum.Existing, cli.Pluralize(len(r.sum.Differing), "differs", "differ"))
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

// status returns the exit code of an import that read the whole file.
func (r *importRun) status() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sum.Unread > 0 || len(r.sum.Differing) > 0 {
		return cli.ExitStatus(cli.ExitFailed)
	}
	return nil
}
