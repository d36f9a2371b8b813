package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/spf13/cobra"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/crashpoint"
	"github.com/flightd/flightd/lease"
	"github.com/flightd/flightd/node"
)

func (a *app) devCommand() *cobra.Command {
	var data, listen, metrics string
	c := &cobra.Command{
		Use:   "dev",
		Short: "Everything in one process on this machine: ready in a second, data kept between starts",
		Example: `  flightd dev
  flightd dev --data /tmp/try --listen 127.0.0.1:0`,
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.dev(cmd.Context(), data, listen, metrics) },
	}
	c.Flags().StringVar(&data, "data", "", "directory that holds everything (FLIGHTD_DATA; ./flightd-data)")
	c.Flags().StringVar(&listen, "listen", "", "loopback address of the API; port 0 takes a free one (FLIGHTD_LISTEN; 127.0.0.1:7420)")
	c.Flags().StringVar(&metrics, "listen-metrics", "", "loopback address of metrics and health apart from the API, as in 127.0.0.1:9464 (FLIGHTD_LISTEN_METRICS; none)")
	return c
}

func (a *app) dev(ctx context.Context, data, listen, metrics string) error {
	crash, err := crashpoint.Parse(a.env(crashpoint.Env))
	if err != nil {
		return &coded{code: exitConfig, err: err}
	}
	cfg := node.Dev(firstOf(data, a.env("FLIGHTD_DATA")), firstOf(listen, a.env("FLIGHTD_LISTEN")))
	cfg.ListenMetrics = firstOf(metrics, a.env("FLIGHTD_LISTEN_METRICS"))
	cfg.Version = buildVersion()
	cfg.Crash = crash
	cfg.Logger = slog.New(slog.NewTextHandler(a.err, nil))
	cfg.Ready = a.welcome
	node.Tune()
	return devError(node.Run(ctx, cfg))
}

func firstOf(words ...string) string {
	for _, w := range words {
		if w != "" {
			return w
		}
	}
	return ""
}

// welcome says where flightd is and what to try. The address is data, so that a script can read it.
func (a *app) welcome(r node.Ready) {
	_, _ = fmt.Fprintln(a.out, r.URL)
	server := ""
	if r.URL != defaultServer {
		server = "--server " + r.URL + " "
	}
	_, _ = fmt.Fprintf(a.err, `flightd is ready after %s
  API   %s   (this machine only, no credentials)
  data  %s   (kept between starts)

try in another terminal:
  flightd %sexec --key pay-7 -- sh -c 'echo paid by $$; date'
  flightd %sexec --key pay-7 -- sh -c 'echo paid by $$; date'    # the same output, and nothing ran
  flightd %swhy pay-7
`, r.Took.Round(time.Millisecond), r.URL, r.Data, server, server, server)
}

// devError says why a node did not start, or stopped, with its exit code.
func devError(err error) error {
	var locked *node.LockedError
	var invalid *flight.InvalidError
	var network *net.OpError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &locked), errors.As(err, &invalid):
		return &coded{code: exitConfig, err: err}
	case errors.Is(err, lease.ErrRegressed), errors.Is(err, lease.ErrForeign):
		return &coded{code: exitConfig, err: err, hint: "etcd and ledger in the data directory are not of the same time: put back what was there, or start with another --data"}
	case errors.As(err, &network) && network.Op == "listen":
		return &coded{code: exitUnreachable, err: err, hint: "something else has this address; give another one with --listen"}
	}
	return &coded{code: exitFailed, err: err}
}
