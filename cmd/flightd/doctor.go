package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// The words of a finding.
const (
	ok   = "ok"
	warn = "warn"
	fail = "fail"
)

// finding is what the doctor says of one thing.
type finding struct {
	Check  string         `json:"check"`
	Status string         `json:"status"` // ok, warn or fail
	Says   string         `json:"says"`
	Do     string         `json:"do,omitempty"` // what to do about it
	Facts  map[string]any `json:"facts,omitempty"`
}

// diagnosis is all findings, and the worst word among them.
type diagnosis struct {
	Status   string    `json:"status"`
	Findings []finding `json:"findings"`
}

// diagnose draws the sum.
func diagnose(findings []finding) diagnosis {
	d := diagnosis{Status: ok, Findings: findings}
	for _, f := range findings {
		if f.Status == fail || d.Status == ok {
			d.Status = f.Status
		}
	}
	return d
}

func (a *app) doctorCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check clocks, disk, etcd, leases, versions and what waits to be reported, and say what to do",
		Long: `Checks what flightd stands on, from where you are: the folders of your settings and reports, each server, its parts,
its version, its clock against yours, its etcd, how quickly leases are renewed, and how quickly its data directory
writes. Nothing is changed: a session is made and given up, a file in the data directory written and removed.

The exit code is 0 when nothing failed (a warning is no failure), 69 when no server answers, 1 when something else
failed.`,
		Example: `  flightd doctor
  flightd doctor --data /var/lib/flightd -o json
  flightd doctor -o id                # only the names of what is not well`,
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.doctor(cmd.Context()) },
	}
	c.Flags().String("data", "", "data directory whose disk is measured (the server's, where it is on this machine)")
	return c
}

func (a *app) doctor(ctx context.Context) error {
	e := &examination{app: a}
	e.look(ctx)
	if err := a.writeDiagnosis(diagnose(e.findings)); err != nil {
		return err
	}
	switch {
	case e.alone:
		return silent(exitUnreachable)
	case diagnose(e.findings).Status == fail:
		return silent(exitFailed)
	}
	return nil
}

func (a *app) writeDiagnosis(d diagnosis) error {
	switch a.format {
	case "id":
		for _, f := range d.Findings {
			if f.Status == ok {
				continue
			}
			if _, err := fmt.Fprintln(a.out, f.Check); err != nil {
				return err
			}
		}
		return nil
	case "table":
		for _, f := range d.Findings {
			if err := a.writeFinding(f); err != nil {
				return err
			}
		}
		return nil
	}
	return a.print(d)
}

func (a *app) writeFinding(f finding) error {
	colours := map[string]colour{ok: green, warn: yellow, fail: red}
	word := a.paint(a.out, colours[f.Status], f.Status) + strings.Repeat(" ", 5-len(f.Status))
	_, err := fmt.Fprintf(a.out, "%s %-9s %s\n", word, f.Check, f.Says)
	if f.Do != "" && err == nil {
		_, err = fmt.Fprintf(a.out, "%16s%s\n", "-> ", f.Do)
	}
	return err
}
