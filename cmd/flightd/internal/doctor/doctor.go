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

// Run examines the servers of an invocation and prints the findings. The error is only an exit code, if a check has a finding or no
// server answers.
func Run(ctx context.Context, a *cli.App) error {
	if _, err := a.ClientOptions(); err != nil { // nothing can be asked without them
		return err
	}
	colours := map[string]cli.Colour{StatusOK: cli.Green, StatusWarn: cli.Yellow, StatusFail: cli.Red}
	r := &run{App: a}
	r.measure(ctx)
	report := summarize(r.findings)
	var ids []string
	for _, f := range report.Findings {
		if f.Status != StatusOK && f.Status != statusSkip {
			ids = append(ids, f.Check)
		}
	}
	err := a.Print(report, func(b *strings.Builder) {
		for _, f := range report.Findings {
			word := a.Paint(a.Out, colours[f.Status], f.Status) + strings.Repeat(" ", 5-len(f.Status))
			fmt.Fprintf(b, "%s %-9s %s\n", word, f.Check, f.Says)
			if f.Do != "" {
				fmt.Fprintf(b, "%16s%s\n", "-> ", f.Do)
			}
		}
	}, ids...)
	switch {
	case err != nil:
		return err
	case r.noServer:
		return cli.ExitStatus(cli.ExitUnreachable)
	case report.Status != StatusOK:
		return cli.ExitStatus(cli.ExitFailed)
	}
	return nil
}
