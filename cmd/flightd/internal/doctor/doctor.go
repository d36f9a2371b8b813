package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
)

// Status of a finding.
const (
	StatusOK   = "ok"
	statusSkip = "skip" // the token does not allow the measurement
	StatusWarn = "warn"
	StatusFail = "fail"
)

// Finding is the result of one check.
type Finding struct {
	Check  string         `json:"check"`
	Status string         `json:"status"` // ok, skip, warn or fail
	Says   string         `json:"says"`
	Do     string         `json:"do,omitempty"` // the remedy; empty if and only if Status is ok or skip
	Facts  map[string]any `json:"facts,omitempty"`
}

// Report holds all findings and the worst status among them.
type Report struct {
	Status   string    `json:"status"`
	Findings []Finding `json:"findings"`
}

// summarize returns the report of these findings.
func summarize(findings []Finding) Report {
	d := Report{Status: StatusOK, Findings: findings}
	for _, f := range findings {
		if f.Status == statusSkip {
			continue
		}
		if f.Status == StatusFail || d.Status == StatusOK {
			d.Status = f.Status
		}
	}
	return d
}

func Run(ctx context.Context, a *cli.App) error {
	if _, err := a.ClientOptions(); err != nil { // nothing can be asked without them
		return err
	}
	e := &run{App: a}
	e.measure(ctx)
	if err := writeDoctorReport(a, summarize(e.findings)); err != nil {
		return err
	}
	switch {
	case e.noServer:
		return cli.ExitStatus(cli.ExitUnreachable)
	case summarize(e.findings).Status == StatusFail:
		return cli.ExitStatus(cli.ExitFailed)
	}
	return nil
}

func writeDoctorReport(a *cli.App, d Report) error {
	switch a.Format {
	case "id":
		for _, f := range d.Findings {
			if f.Status == StatusOK || f.Status == statusSkip {
				continue
			}
			if _, err := fmt.Fprintln(a.Out, f.Check); err != nil {
				return err
			}
		}
		return nil
	case "table":
		for _, f := range d.Findings {
			if err := writeFinding(a, f); err != nil {
				return err
			}
		}
		return nil
	}
	return a.PrintData(d)
}

func writeFinding(a *cli.App, f Finding) error {
	colours := map[string]cli.Colour{StatusOK: cli.Green, StatusWarn: cli.Yellow, StatusFail: cli.Red}
	word := a.Paint(a.Out, colours[f.Status], f.Status) + strings.Repeat(" ", 5-len(f.Status))
	_, err := fmt.Fprintf(a.Out, "%s %-9s %s\n", word, f.Check, f.Says)
	if f.Do != "" && err == nil {
		_, err = fmt.Fprintf(a.Out, "%16s%s\n", "-> ", f.Do)
	}
	return err
}
