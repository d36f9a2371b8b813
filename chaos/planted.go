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
	for i := range plant.Bugs {
		bug := &plant.Bugs[i]
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !slices.ContainsFunc(words, func(word string) bool { return word == "all" || strings.Contains(bug.Name, word) }) {
			continue
		}
		count++
		began := time.Now()
		var found []string
		err := errors.New("it was not tried")
		for opts, tries := *base, 0; tries < plantTries && (len(found) == 0 || err != nil) && ctx.Err() == nil; tries++ {
			found, err = findPlanted(ctx, opts, bug)
			opts.Seed, opts.For = opts.Seed+1, 2*opts.For
		}
		if err != nil {
			found = append(found, err.Error())
		}
		if len(found) == 0 || err != nil {
			missed = append(missed, bug.Name)
		}
		_, _ = fmt.Fprintf(out, "| %s | %s | %s | %s | %.0f s |\n", bug.Name, bug.Rule, bug.Faults, strings.Join(found, ", "), time.Since(began).Seconds())
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

// findPlanted runs a short experiment with one bug, and returns the invariants that it has broken.
func findPlanted(ctx context.Context, opts cluster.Options, bug *plant.Bug) (broken []string, err error) {
	dir, err := os.MkdirTemp("", "flightd-planted-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	target, binary := "flightd", &opts.Flightd
	if bug.Callers {
		target, binary = "chaos", &opts.Self
	}
	*binary = filepath.Join(dir, target)
	if err := plant.Build(ctx, *bug, opts.Source, *binary); err != nil {
		return nil, err
	}
	opts.Faults, opts.Timeout, opts.First = cluster.Faults{Kinds: strings.Split(bug.Faults, ","), Together: 1, Loopback: opts.Loopback}, 40*time.Second, true
	opts.Load.Jobs, opts.Load.Sagas = 200, 60
	if slices.Contains([]string{plant.FreezeCallers, plant.CutCallers}, bug.Faults) {
		opts.For = max(opts.For, 45*time.Second) // a session must end meanwhile
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	opts.Output, opts.Keep = log, dir
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
