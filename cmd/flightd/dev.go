package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/crashpoint"
	"github.com/flightd/flightd/lease"
	"github.com/flightd/flightd/node"
)

func (a *app) devCommand() *cobra.Command {
	var raise string
	c := &cobra.Command{
		Use:   "dev",
		Short: "Everything in one process on this machine: ready in a second, data kept between starts",
		Long: `Runs a node: the API, etcd and the ledger in one process, ready in a second, with its data kept between starts.

It is the only kind of node so far, on a desk as on a machine where it runs for good; a unit for systemd comes with it. It
answers on the loopback address alone and asks nobody for a credential. Ctrl-C ends it; nothing acknowledged is lost.`,
		Example: `  flightd dev
  flightd dev --data /tmp/try --listen 127.0.0.1:0`,
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.dev(cmd.Context(), raise) },
	}
	c.Flags().String("data", "", "directory that holds everything (FLIGHTD_DATA; ./flightd-data)")
	c.Flags().String("listen", "", "loopback address of the API; port 0 takes a free one (FLIGHTD_LISTEN; 127.0.0.1:7420)")
	c.Flags().String("listen-metrics", "", "loopback address of metrics and health apart from the API, as in 127.0.0.1:9464 (FLIGHTD_LISTEN_METRICS; none)")
	c.Flags().StringVar(&raise, "raise-lease-epoch", "", "REASON to go on, at this start, with an etcd that has lost its past; no receipt is lost, and what was in the air waits")
	c.Flags().String("log-level", "", "debug, info, warn or error (FLIGHTD_LOG_LEVEL; info)")
	c.Flags().String("log-format", "", "text or json (FLIGHTD_LOG_FORMAT; text)")
	return c
}

// dev runs a node. raise says why it may go on with an etcd that has lost its past: that is of one start, and no setting.
func (a *app) dev(ctx context.Context, raise string) error {
	crash, err := crashpoint.Parse(a.env(crashpoint.Env))
	if err != nil {
		return &coded{code: exitConfig, err: err}
	}
	cfg := node.Dev(a.setting("data").Value, a.setting("listen").Value)
	cfg.ListenMetrics = a.setting("listen_metrics").Value
	cfg.Version, cfg.Alone = buildVersion(), true
	cfg.Crash, cfg.Kill = crash, a.die
	cfg.RaiseLeaseEpoch, cfg.Who = raise, person("")
	if cfg.Logger, err = a.logger(); err != nil {
		return err
	}
	var wrong error // with the terminal; a node does not end because of it
	cfg.Ready = func(r node.Ready) {
		wrong = a.welcome(r)
		a.tellSupervisor("READY=1\nSTATUS=answers at " + r.URL)
	}
	node.Tune()
	ctx, unheed := until(ctx, syscall.SIGHUP) // its terminal was closed
	defer unheed()
	told := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(told)
		a.tellSupervisor("STOPPING=1")
	})
	err = node.Run(ctx, cfg)
	if !stop() {
		<-told
	}
	return devError(errors.Join(err, wrong))
}

// logger writes what the node has to say to where talk goes.
func (a *app) logger() (*slog.Logger, error) {
	levels := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}
	level, format := a.setting("log_level"), a.setting("log_format")
	from, known := levels[level.Value]
	if !known {
		return nil, a.unsettled(level, "the levels are debug, info, warn and error", "")
	}
	options := &slog.HandlerOptions{Level: from}
	switch format.Value {
	case "text":
		return slog.New(slog.NewTextHandler(a.err, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(a.err, options)), nil
	}
	return nil, a.unsettled(format, "the formats are text and json", "")
}

// welcome says where flightd is and what to try. The address is data, so that a script can read it.
func (a *app) welcome(r node.Ready) error {
	if err := a.writeReady(r); err != nil {
		return err
	}
	server := ""
	if r.URL != defaultServer {
		server = "--server " + r.URL + " "
	}
	metrics := ""
	if r.Metrics != "" {
		metrics = "\n  see   " + r.Metrics + "/metrics"
	}
	_, err := fmt.Fprintf(a.err, `flightd is ready after %s
  API   %s   (this machine only, no credentials)
  data  %s   (kept between starts)%s

try in another terminal:
  flightd %sexec --key pay-7 -- sh -c 'echo paid by $$; date'
  flightd %sexec --key pay-7 -- sh -c 'echo paid by $$; date'    # the same output, and nothing ran
  flightd %swhy pay-7
`, r.Took.Round(time.Millisecond), r.URL, r.Data, metrics, server, server, server)
	return err
}

func (a *app) writeReady(r node.Ready) error {
	switch a.format {
	case "json", "yaml":
		return a.print(struct {
			URL        string `json:"url"`
			Data       string `json:"data"`
			Deployment string `json:"deployment"`
			TookMS     int64  `json:"took_ms"`
		}{r.URL, r.Data, r.Deployment, r.Took.Milliseconds()})
	}
	_, err := fmt.Fprintln(a.out, r.URL)
	return err
}

// devError says why a node did not start, or stopped, with its exit code.
func devError(err error) error {
	var locked *node.LockedError
	var forgot *node.LedgerLostError
	var invalid *flight.InvalidError
	var network *net.OpError
	var etcd *node.EtcdError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &locked):
		return &coded{code: exitConfig, err: err}
	case errors.As(err, &invalid):
		return &coded{code: exitConfig, err: err, hint: addressHint(invalid.Field)}
	case errors.Is(err, lease.ErrRegressed):
		return &coded{code: exitConfig, err: err, hint: "put back the etcd directory that was there; where it is gone for good, start once with --raise-lease-epoch 'REASON': the ledger has all receipts"}
	case errors.As(err, &forgot), errors.Is(err, lease.ErrForeign):
		return &coded{code: exitConfig, err: err, hint: "put back the ledger directory that was there, or start with another --data, which then knows of nothing that was done"}
	case errors.As(err, &network) && network.Op == "listen":
		return &coded{code: exitUnreachable, err: err, hint: listenHint(err)}
	case refusalHint(err) != "": // before what it was taken for
		return &coded{code: exitFailed, err: err, hint: refusalHint(err)}
	case errors.Is(err, clusterstore.ErrLocked):
		return &coded{code: exitConfig, err: err, hint: "one data directory has one flightd: stop that one, or give this one another --data"}
	case anyOf(err, fs.ErrPermission, syscall.EROFS, syscall.ENOTDIR):
		return &coded{code: exitConfig, err: err, hint: "the data directory must be one that this user can write: name another one with --data or FLIGHTD_DATA, or make it yours"}
	case anyOf(err, clusterstore.ErrNewer, clusterstore.ErrOlder):
		return &coded{code: exitConfig, err: err, hint: "start the flightd that wrote it, or give this one another --data, which then knows of nothing that was done"}
	case anyOf(err, clusterstore.ErrForeign, clusterstore.ErrDamaged):
		return &coded{code: exitConfig, err: err, hint: "put back what was there, the whole directory of one time, or give another --data, which then knows of nothing that was done"}
	case errors.As(err, &etcd):
		return &coded{code: exitConfig, err: err, hint: "no receipt is lost, they are in the ledger: put back the etcd directory that was there; where there is none, move " +
			etcd.Dir + " away and start once with --raise-lease-epoch 'REASON'"}
	}
	return &coded{code: exitFailed, err: err}
}

// addressHint says what is taken for an address to listen on; "" for what is none.
func addressHint(field string) string {
	switch field {
	case "listen":
		return "--listen and FLIGHTD_LISTEN take a loopback address and a port, as in 127.0.0.1:7420"
	case "listen_metrics":
		return "--listen-metrics and FLIGHTD_LISTEN_METRICS take a loopback address and a port, as in 127.0.0.1:9464"
	}
	return ""
}

// refusalHint is what helps where the system refused what a node needs; "" where it was not the system.
func refusalHint(err error) string {
	switch {
	case anyOf(err, syscall.ENOSPC, syscall.EDQUOT):
		return "make room on the disk of the data directory: nothing new starts before 256 MiB are free, they are the reserve for reports; nothing is lost"
	case anyOf(err, syscall.EMFILE, syscall.ENFILE):
		return "allow more open files (ulimit -n, or LimitNOFILE= of its unit) and start again; nothing is lost"
	case errors.Is(err, syscall.EFBIG):
		return "allow larger files (ulimit -f, or LimitFSIZE= of its unit) and start again; nothing is lost"
	case errors.Is(err, syscall.EIO):
		return "the disk of the data directory fails: look at its health (dmesg), and copy the whole directory to another one before anything else"
	}
	return ""
}

// die ends the process where a running node cannot go on, before anybody is answered once more.
func (a *app) die(why error) {
	code, message, hint := explain(deathError(why))
	a.complain(message, hint)
	os.Exit(code)
}

// deathError gives the end of a running node its exit code, and the way out.
func deathError(why error) error {
	hint := refusalHint(why)
	if hint == "" {
		hint = "start it again, nothing that was acknowledged is lost; where it ends like this once more, look at the health of its disk (dmesg)"
	}
	return &coded{code: exitDied, err: why, hint: hint}
}

func anyOf(err error, causes ...error) bool {
	return slices.ContainsFunc(causes, func(cause error) bool { return errors.Is(err, cause) })
}

func listenHint(err error) string {
	if errors.Is(err, fs.ErrPermission) {
		return "this user may not take it; give one with a port above 1023 with --listen"
	}
	return "something else has this address; give another one with --listen"
}
