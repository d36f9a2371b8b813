package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
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
	var raiseReason string
	c := &cobra.Command{
		Use:   "dev",
		Short: "Run a node in one process: API, etcd and ledger; its data is kept between starts",
		Long: `Runs a node: the API, etcd and the ledger in one process, ready in a second. Its data is kept between starts.

This is the only kind of node so far, for development and for production; releases contain a systemd unit. The node listens
on the loopback address only and needs no credentials. Ctrl-C stops it; nothing acknowledged is lost.`,
		Example: `  flightd dev
  flightd dev --data /tmp/try --listen 127.0.0.1:0`,
		Args: exactArgs(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.dev(cmd.Context(), raiseReason) },
	}
	c.Flags().String("data", "", "data directory (FLIGHTD_DATA; ./flightd-data)")
	c.Flags().String("listen", "", "loopback address of the API; port 0 picks a free port (FLIGHTD_LISTEN; 127.0.0.1:7420)")
	c.Flags().String("listen-metrics", "", "second loopback address for metrics and health, as in 127.0.0.1:9464 (FLIGHTD_LISTEN_METRICS; none)")
	c.Flags().StringVar(&raiseReason, "raise-lease-epoch", "", "REASON to start, this once, although etcd has lost its data; no receipt is lost, and running flights wait for their old leases")
	c.Flags().String("log-level", "", "debug, info, warn or error (FLIGHTD_LOG_LEVEL; info)")
	c.Flags().String("log-format", "", "text or json (FLIGHTD_LOG_FORMAT; text)")
	return c
}

// dev runs a node until ctx ends. raiseReason is the reason to start although etcd has lost its data; it applies to one
// start, so it is a flag and not a setting.
func (a *app) dev(ctx context.Context, raiseReason string) error {
	crash, err := crashpoint.Parse(a.env(crashpoint.Env))
	if err != nil {
		return &exitError{code: exitConfig, err: err}
	}
	cfg := node.Dev(a.setting("data").Value, a.setting("listen").Value)
	cfg.ListenMetrics = a.setting("listen_metrics").Value
	cfg.Version, cfg.DedicatedProcess = buildVersion(), true
	cfg.Crash, cfg.Kill = crash, a.exitNode
	cfg.RaiseLeaseEpoch, cfg.Actor = raiseReason, actorName("")
	if cfg.Logger, err = a.logger(); err != nil {
		return err
	}
	var printErr error // of printing the banner; the node runs on and returns it at the end
	first := isFirstStart(cfg.Data)
	cfg.Ready = func(r node.Ready) {
		printErr = a.printBanner(r, first)
		a.notifySupervisor("READY=1\nSTATUS=answers at " + r.URL)
	}
	node.Tune()
	ctx, stopSignals := notifyContext(ctx, syscall.SIGHUP) // the terminal was closed
	defer stopSignals()
	notified := make(chan struct{}) // closed when the supervisor was notified; dev waits for it below
	stop := context.AfterFunc(ctx, func() {
		defer close(notified)
		a.notifySupervisor("STOPPING=1")
	})
	err = node.Run(ctx, cfg)
	if !stop() {
		<-notified
	}
	return devError(errors.Join(err, printErr))
}

// logger returns the node's logger, which writes to standard error.
func (a *app) logger() (*slog.Logger, error) {
	levels := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}
	level, format := a.setting("log_level"), a.setting("log_format")
	minLevel, known := levels[level.Value]
	if !known {
		return nil, a.invalidSetting(level, "the levels are debug, info, warn and error", "")
	}
	options := &slog.HandlerOptions{Level: minLevel}
	switch format.Value {
	case "text":
		return slog.New(slog.NewTextHandler(a.err, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(a.err, options)), nil
	}
	return nil, a.invalidSetting(format, "the formats are text and json", "")
}

// isFirstStart reports whether no node has used the data directory yet.
func isFirstStart(data string) bool {
	_, err := os.Stat(filepath.Join(data, "ledger"))
	return errors.Is(err, fs.ErrNotExist)
}

// printBanner prints the address to standard output, so that a script can read it, and the banner to standard error. At
// the first start of a data directory, the banner has commands to try.
func (a *app) printBanner(r node.Ready, first bool) error {
	if err := a.writeReady(r); err != nil {
		return err
	}
	metrics := ""
	if r.Metrics != "" {
		metrics = "\n  metrics  " + r.Metrics + "/metrics"
	}
	_, err := fmt.Fprintf(a.err, `flightd is ready after %s
  API      %s   (this machine only, no credentials)
  data     %s   (kept between starts)%s
`, r.Took.Round(time.Millisecond), r.URL, r.Data, metrics)
	if err != nil || !first {
		return err
	}
	server := ""
	if r.URL != defaultServer {
		server = "--server " + r.URL + " "
	}
	_, err = fmt.Fprintf(a.err, `
try in another terminal:
  flightd %sexec --key first-try -- sh -c 'echo paid by $$; date'
  flightd %sexec --key first-try -- sh -c 'echo paid by $$; date'    # the same output; nothing is run
  flightd %swhy first-try
`, server, server, server)
	return err
}

func (a *app) writeReady(r node.Ready) error {
	switch a.format {
	case "json", "yaml":
		return a.printData(struct {
			URL        string `json:"url"`
			Data       string `json:"data"`
			Deployment string `json:"deployment"`
			TookMS     int64  `json:"took_ms"`
		}{r.URL, r.Data, r.Deployment, r.Took.Milliseconds()})
	}
	_, err := fmt.Fprintln(a.out, r.URL)
	return err
}

// devError adds the exit code and the hint to the error with which a node did not start, or stopped.
func devError(err error) error {
	var locked *node.LockedError
	var ledgerLost *node.LedgerLostError
	var invalid *flight.InvalidError
	var network *net.OpError
	var etcd *node.EtcdError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &locked):
		return &exitError{code: exitConfig, err: err}
	case errors.As(err, &invalid):
		return &exitError{code: exitConfig, err: err, hint: addressHint(invalid.Field)}
	case errors.Is(err, lease.ErrRegressed):
		return &exitError{code: exitConfig, err: err, hint: "restore the previous etcd directory; if it is lost, start once with --raise-lease-epoch 'REASON': the ledger has all receipts"}
	case errors.As(err, &ledgerLost), errors.Is(err, lease.ErrForeign):
		return &exitError{code: exitConfig, err: err, hint: "restore the previous ledger directory, or use another --data directory, which has no record of past effects"}
	case errors.As(err, &network) && network.Op == "listen":
		return &exitError{code: exitUnreachable, err: err, hint: listenHint(err)}
	case systemErrorHint(err) != "": // the system's error decides, whatever error it is wrapped in
		return &exitError{code: exitFailed, err: err, hint: systemErrorHint(err)}
	case errors.Is(err, clusterstore.ErrLocked):
		return &exitError{code: exitConfig, err: err, hint: "stop the flightd that uses the data directory, or use another --data directory"}
	case isAnyOf(err, fs.ErrPermission, syscall.EROFS, syscall.ENOTDIR):
		return &exitError{code: exitConfig, err: err, hint: "make the data directory writable for this user, or name another one with --data or FLIGHTD_DATA"}
	case isAnyOf(err, clusterstore.ErrNewer, clusterstore.ErrOlder):
		return &exitError{code: exitConfig, err: err, hint: "start the version of flightd that wrote it, or use another --data directory, which has no record of past effects"}
	case isAnyOf(err, clusterstore.ErrForeign, clusterstore.ErrDamaged):
		return &exitError{code: exitConfig, err: err, hint: "restore the whole data directory from one backup, or use another --data directory, which has no record of past effects"}
	case errors.As(err, &etcd):
		return &exitError{code: exitConfig, err: err, hint: "restore the previous etcd directory; if there is none, move " +
			etcd.Dir + " away and start once with --raise-lease-epoch 'REASON': the ledger has all receipts"}
	}
	return &exitError{code: exitFailed, err: err}
}

// addressHint describes the addresses that a listen setting takes; "": field is not such a setting.
func addressHint(field string) string {
	switch field {
	case "listen":
		return "--listen and FLIGHTD_LISTEN take a loopback address and a port, as in 127.0.0.1:7420"
	case "listen_metrics":
		return "--listen-metrics and FLIGHTD_LISTEN_METRICS take a loopback address and a port, as in 127.0.0.1:9464"
	}
	return ""
}

// systemErrorHint returns the hint for an error of the operating system; "": err is not one.
func systemErrorHint(err error) string {
	switch {
	case isAnyOf(err, syscall.ENOSPC, syscall.EDQUOT):
		return "free space on the disk of the data directory: nothing new starts with less than 256 MiB free, the reserve for reports; nothing is lost"
	case isAnyOf(err, syscall.EMFILE, syscall.ENFILE):
		return "allow more open files (ulimit -n, or LimitNOFILE= in the unit) and start again; nothing is lost"
	case errors.Is(err, syscall.EFBIG):
		return "allow larger files (ulimit -f, or LimitFSIZE= in the unit) and start again; nothing is lost"
	case errors.Is(err, syscall.EIO):
		return "copy the whole data directory to another disk first: its disk is failing (see dmesg)"
	}
	return ""
}

// exitNode ends the process when a running node cannot continue, before any further answer is sent.
func (a *app) exitNode(why error) {
	code, message, hint := explain(nodeFailure(why))
	a.complain(message, hint)
	os.Exit(code)
}

// nodeFailure adds the exit code and the hint to the error that ended a running node.
func nodeFailure(why error) error {
	hint := systemErrorHint(why)
	if hint == "" {
		hint = "start it again, nothing acknowledged is lost; if it fails again, check the disk (dmesg)"
	}
	return &exitError{code: exitDied, err: why, hint: hint}
}

// isAnyOf reports whether err is one of causes.
func isAnyOf(err error, causes ...error) bool {
	return slices.ContainsFunc(causes, func(cause error) bool { return errors.Is(err, cause) })
}

func listenHint(err error) string {
	if errors.Is(err, fs.ErrPermission) {
		return "choose a port above 1023 with --listen"
	}
	return "choose another address with --listen; this one is in use"
}
