package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/flightd/flightd/chaos/cluster"
	"github.com/flightd/flightd/chaos/plant"
)

// runPlanted plants each bug whose name contains one of the words, one after the other, and requires that a run finds it: the checkers are
// checked. It prints a line for each, and returns an error that names those that were not found.
func runPlanted(ctx context.Context, base *cluster.Options, words []string, out io.Writer) error {
	var missed []string
	count := 0
	ctx, cancel := context.WithCancel(ctx)
	ahead := buildAhead(ctx, base.Source, words)
	defer func() {
		cancel()
		for left := range ahead { // until its goroutine has ended
			_ = os.RemoveAll(left.dir)
		}
	}()
	for built := range ahead {
		bug := built.bug
		count++
		began := time.Now()
		var found []string
		err := errors.New("it was not tried")
		for opts, tries := *base, 0; tries < plantTries && (len(found) == 0 || err != nil) && ctx.Err() == nil; tries++ {
			found, err = findPlanted(ctx, opts, &built)
			opts.Seed, opts.For = opts.Seed+1, 2*opts.For
		}
		if err != nil {
			found = append(found, err.Error())
		}
		if len(found) == 0 || err != nil {
			missed = append(missed, bug.Name)
		}
		_ = os.RemoveAll(built.dir)
		_, _ = fmt.Fprintf(out, "| %s | %s | %s | %s | %.0f s |\n", bug.Name, bug.Rule, bug.Faults, strings.Join(found, ", "), time.Since(began).Seconds())
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if len(missed) > 0 {
		return fmt.Errorf("%d of %d planted bugs were not found: %s", len(missed), count, strings.Join(missed, "; "))
	}
	_, _ = fmt.Fprintf(out, "all %d planted bugs were found\n", count)
	return nil
}

// plantTries is how often a bug is run for until it is found, with another seed each time, and for twice as long as before: many of them need two
// things to happen at once.
const plantTries = 3

// planted is a bug, and the program that was built with it in a directory of its own.
type planted struct {
	bug *plant.Bug
	dir string
	err error // of the build
}

// program returns the path of flightd, or of this program if the bug is in the client library.
func (p *planted) program() string {
	if p.bug.Callers {
		return filepath.Join(p.dir, "chaos")
	}
	return filepath.Join(p.dir, "flightd")
}

// buildAhead builds the chosen bugs one after the other, each while the one before it is tried: a slow machine hides no broken promise. The
// channel is closed after the last one, or soon after the end of ctx.
func buildAhead(ctx context.Context, source string, words []string) <-chan planted {
	ahead := make(chan planted)
	go func() { // ends by the receiver, or by ctx
		defer close(ahead)
		for i := range plant.Bugs {
			p := planted{bug: &plant.Bugs[i]}
			if !slices.ContainsFunc(words, func(word string) bool { return word == "all" || strings.Contains(p.bug.Name, word) }) {
				continue
			}
			if p.dir, p.err = os.MkdirTemp("", "flightd-planted-"); p.err == nil {
				p.err = plant.Build(ctx, *p.bug, source, p.program())
			}
			select {
			case ahead <- p:
			case <-ctx.Done():
				_ = os.RemoveAll(p.dir)
				return
			}
		}
	}()
	return ahead
}

// findPlanted runs a short experiment with one bug, and returns the invariants that it has broken.
func findPlanted(ctx context.Context, opts cluster.Options, built *planted) (broken []string, err error) {
	if built.err != nil {
		return nil, built.err
	}
	bug := built.bug
	if bug.Callers {
		opts.Self = built.program()
	} else {
		opts.Flightd = built.program()
	}
	opts.Faults, opts.Timeout, opts.First = cluster.Faults{Kinds: strings.Split(bug.Faults, ","), Together: 1, Loopback: opts.Loopback}, 40*time.Second, true
	opts.Load.Jobs, opts.Load.Sagas = 200, 60
	if slices.Contains([]string{plant.FreezeCallers, plant.CutCallers}, bug.Faults) {
		opts.For = max(opts.For, 45*time.Second) // a session must end meanwhile
	}
	log, err := os.Create(filepath.Join(built.dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	opts.Output, opts.Keep = log, built.dir
	result, err := cluster.Run(ctx, &opts)
	if err != nil {
		text, _ := os.ReadFile(log.Name())
		return nil, fmt.Errorf("%w: %.2000s", err, text[max(0, len(text)-2000):])
	}
	for _, i := range result.Invariants {
		if len(i.Violations) > 0 {
			broken = append(broken, fmt.Sprintf("%s (%d)", i.Name, len(i.Violations)))
		}
	}
	return broken, nil
}
