package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// Status of a finding.
const (
	statusOK   = "ok"
	statusSkip = "skip" // the token does not allow the measurement
	statusWarn = "warn"
	statusFail = "fail"
)

// checkResult is the result of one check.
type checkResult struct {
	Check  string         `json:"check"`
	Status string         `json:"status"` // ok, skip, warn or fail
	Says   string         `json:"says"`
	Do     string         `json:"do,omitempty"` // the remedy; empty if and only if Status is ok or skip
	Facts  map[string]any `json:"facts,omitempty"`
}

// doctorReport holds all findings and the worst status among them.
type doctorReport struct {
	Status   string        `json:"status"`
	Findings []checkResult `json:"findings"`
}

// summarize returns the report of these findings.
func summarize(findings []checkResult) doctorReport {
	d := doctorReport{Status: statusOK, Findings: findings}
	for _, f := range findings {
		if f.Status == statusSkip {
			continue
		}
		if f.Status == statusFail || d.Status == statusOK {
			d.Status = f.Status
		}
	}
	return d
}

func (a *app) doctorCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check server, token, TLS, clocks, disk, etcd, leases, versions, doubts and spooled reports, and print remedies",
		Long: `Checks the directories of your settings and spooled reports, and each server: its certificate, your token, its
components, its version, its clock against yours, flights in doubt, flights that a person resolved as not happened and that
nobody has run since, its etcd, the time of lease renewals, and the sync time of its data directory. Servers of one list are
compared, and so are the nodes of a cluster. Nothing is changed:
doctor creates and closes one session, and writes and removes one file in the data directory.

A token without operate or admin skips the checks of the server's components.

The exit code is 0 if no check failed (warnings are not failures), 69 if no server answers, and 1 otherwise.`,
		Example: `  flightd doctor
  flightd doctor --data /var/lib/flightd -o json
  flightd doctor -o id                # only the names of checks with a warning or failure`,
		Args: exactArgs(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.doctor(cmd.Context()) },
	}
	c.Flags().String("data", "", "data directory whose disk is measured (the server's, if it is on this machine)")
	return c
}

func (a *app) doctor(ctx context.Context) error {
	if _, err := a.clientOptions(); err != nil { // nothing can be asked without them
		return err
	}
	e := &doctorRun{app: a}
	e.measure(ctx)
	if err := a.writeDoctorReport(summarize(e.findings)); err != nil {
		return err
	}
	switch {
	case e.noServer:
		return exitStatus(exitUnreachable)
	case summarize(e.findings).Status == statusFail:
		return exitStatus(exitFailed)
	}
	return nil
}

func (a *app) writeDoctorReport(d doctorReport) error {
	switch a.format {
	case "id":
		for _, f := range d.Findings {
			if f.Status == statusOK || f.Status == statusSkip {
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
	return a.printData(d)
}

func (a *app) writeFinding(f checkResult) error {
	colours := map[string]colour{statusOK: green, statusWarn: yellow, statusFail: red}
	word := a.paint(a.out, colours[f.Status], f.Status) + strings.Repeat(" ", 5-len(f.Status))
	_, err := fmt.Fprintf(a.out, "%s %-9s %s\n", word, f.Check, f.Says)
	if f.Do != "" && err == nil {
		_, err = fmt.Fprintf(a.out, "%16s%s\n", "-> ", f.Do)
	}
	return err
}
