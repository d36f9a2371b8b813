package main

import (
	"context"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/drill"
	"github.com/flightd/flightd/internal/crashpoint"
)

func newDrillCommand(a *cli.App) *cobra.Command {
	var cfg drill.Config
	c := &cobra.Command{
		Use:   "drill",
		Short: "Kill caller and server at every point of no return, and count the effects",
		Long: `Starts a small CRM, flightd, and callers that create one ticket each. It kills caller, flightd or both with SIGKILL at
every point of no return, injects faults into the CRM, and retries with the same key. It prints one row per run; the exit
code is 1 if a promise was broken. Everything runs on this machine, in a directory of its own.

With --without-flightd the callers call the CRM directly and retry when they are not sure: the same checks then find
duplicates.`,
		Example: `  flightd drill
  flightd drill --only after-effect                # one point, every victim, every recovery
  flightd drill --only caller,verify -o json
  flightd drill --without-flightd                  # the control: it must fail`,
		RunE: func(cmd *cobra.Command, _ []string) error { return runDrill(cmd.Context(), a, cfg) },
	}
	flags := c.Flags()
	flags.StringSliceVar(&cfg.Only, "only", nil, "run only these points, faults, victims or recoveries")
	flags.IntVar(&cfg.Workers, "workers", 3, "how many servers are killed in parallel")
	flags.StringVar(&cfg.Dir, "data", "", "directory for logs and data, which is kept (default a new one, kept only if a promise was broken)")
	flags.BoolVar(&cfg.WithoutFlightd, "without-flightd", false, "let the callers act without flightd, as a control")
	c.AddCommand(
		&cobra.Command{
			Use:    "crm",
			Short:  "Run the CRM of a drill",
			Hidden: true,
			RunE:   func(cmd *cobra.Command, _ []string) error { return drill.ServeCRM(cmd.Context(), a.In, a.Out) },
		}, newDrillCallerCommand(a))
	return c
}

func runDrill(ctx context.Context, a *cli.App, cfg drill.Config) error {
	if cfg.Workers < 1 {
		return cli.UsageError("--workers %d: at least 1", cfg.Workers)
	}
	if _, err := drill.Select(drill.PlanOf(cfg), cfg.Only); err != nil {
		return cli.UsageError("--only: %v", err)
	}
	var err error
	if cfg.Binary, err = os.Executable(); err != nil {
		return err
	}
	cfg.Progress = func(p drill.Progress) {
		a.Say("%d of %d: %s, %s: %s", p.Done, p.Total, p.Row.Scenario, p.Row.Recovery, p.Row.Result())
	}
	report, err := drill.Execute(ctx, cfg)
	if err != nil {
		return err
	}
	if err := writeDrill(a, report); err != nil {
		return err
	}
	if report.Broken > 0 {
		return cli.ExitStatus(cli.ExitFailed)
	}
	return nil
}

func writeDrill(a *cli.App, report drill.Report) error {
	var ids []string
	for _, row := range report.Rows {
		ids = append(ids, row.ID)
	}
	if a.Format != "table" {
		a.Say("%s", report.Summary())
	}
	return a.Print(report, func(b *strings.Builder) { _ = report.WriteTable(b) }, ids...)
}

// newDrillCallerCommand is a caller process of a drill.
func newDrillCallerCommand(a *cli.App) *cobra.Command {
	var cfg drill.CallerConfig
	var pause string
	c := &cobra.Command{
		Use:    "caller",
		Short:  "Run one caller of a drill",
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if cfg.Crash, err = crashpoint.Parse(a.Env(crashpoint.Env)); err != nil {
				return &cli.Error{Code: cli.ExitConfig, Err: err}
			}
			cfg.Server, cfg.PauseAt = strings.Join(a.Servers, ","), crashpoint.Point(pause)
			cfg.In, cfg.Out, cfg.Logger = a.In, a.Out, slog.New(slog.NewTextHandler(a.Err, nil))
			return drill.RunCaller(cmd.Context(), cfg)
		},
	}
	flags := c.Flags()
	flags.StringVar(&cfg.CRM, "crm", "", "address of the CRM")
	flags.StringVar(&cfg.ID, "id", "", "the intent")
	flags.StringVar(&cfg.Recovery, "recovery", "", "resend, verify, hold or none")
	flags.StringVar(&cfg.Spool, "spool", "", "directory for spooled reports")
	flags.StringVar(&pause, "pause-at", "", "point at which to wait for a line on standard input")
	flags.BoolVar(&cfg.WatchOpen, "watch-open", false, "pass the point during-open once an open was sent")
	return c
}
