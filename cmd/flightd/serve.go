package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/console"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/crashpoint"
	"github.com/flightd/flightd/lease/etcdlease"
	"github.com/flightd/flightd/node"
)

// onceFlags are reasons for an unusual start. They apply to one start, so they are flags and not settings.
type onceFlags struct {
	raiseLeaseEpoch string // start although etcd has lost its data
	newAdminToken   string // replace the lost token admin
}

func newServeCommand(a *cli.App) *cobra.Command {
	var once onceFlags
	var create bool
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run the node of a company: over TLS, for callers with a token",
		Long: `Runs a node: the API, etcd and the ledger in one process. Every request needs a token. With --etcd the node keeps its leases in
an etcd of your own, and runs none.

serve --init makes the ledger once, in an empty directory, prints the id of its deployment and ends. It writes a token with all
rights to --first-token-file, or prints it to standard error; make the others with flightd token create. Every other start needs
a directory with a ledger: a directory that is empty, or named by mistake, knows no effect, and each would happen again.
FLIGHTD_DEPLOYMENT in the settings of the server rejects every other ledger, too.

serve refuses to start where somebody outside this machine could act without a credential: an address that other machines
reach needs a certificate, or --allow-plain-http if a proxy in front ends TLS. A certificate that is replaced on disk is used
for new connections, without a restart.

All callers of a key must use the same ledger: one node, or the nodes of one cluster (flightd cluster found). Ctrl-C or SIGTERM stops it; nothing
acknowledged is lost.`,
		Example: `  flightd serve --init --first-token-file first-token
  flightd cert init /etc/flightd/tls --host flightd.example.com
  flightd serve --listen 0.0.0.0:7420 --tls-cert /etc/flightd/tls/server.crt --tls-key /etc/flightd/tls/server.key
  flightd serve -c /etc/flightd/flightd.yaml
  flightd serve --new-admin-token 'the laptop with the token is lost'`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if create && once != (onceFlags{}) {
				return cli.UsageError("--init makes a new ledger, which needs neither --new-admin-token nor --raise-lease-epoch")
			}
			if cmd.Flags().Changed("new-admin-token") && strings.TrimSpace(once.newAdminToken) == "" {
				return cli.UsageError("--new-admin-token needs a reason, as in --new-admin-token 'the laptop with the token is lost'")
			}
			cfg, err := serveConfig(a, once)
			if err != nil {
				return err
			}
			if create {
				return createLedger(cmd.Context(), a, cfg)
			}
			return runNode(cmd.Context(), a, cfg)
		},
	}
	flags := c.Flags()
	flags.BoolVar(&create, "init", false, "make a new ledger in an empty directory, and end; never in a unit, a container file or a script that runs again")
	flags.String("data", "", "data directory (FLIGHTD_DATA; that of systemd, else "+cli.ServeData+")")
	cli.AddSettings(flags, "cluster", "etcd", "etcd_cert", "etcd_key", "etcd_ca", "etcd_prefix", "etcd_allow_plain_http", "listen", "listen_metrics",
		"tls_cert", "tls_key", "tls_client_ca", "allow_plain_http", "first_token_file")
	flags.StringVar(&once.newAdminToken, "new-admin-token", "", "REASON to replace, in this start only, the lost token admin of all namespaces; the old one ends")
	nodeFlags(flags, &once)
	return c
}

func newDevCommand(a *cli.App) *cobra.Command {
	var once onceFlags
	var nodes, only int
	c := &cobra.Command{
		Use:   "dev",
		Short: "Run a node on this machine only, without credentials; its data is kept between starts",
		Long: `Runs a node: the API, etcd and the ledger in one process, ready in a second. Its data is kept between starts, in the directory
that it prints. A start in another directory is another ledger, which knows no effect of the first.

This is flightd serve with a developer's defaults: the node listens on the loopback address only and needs no credentials.
Ctrl-C stops it; nothing acknowledged is lost.

With --nodes 3 it runs a cluster: three processes with data, ports and etcd members of their own. The APIs listen on the port of
--listen and the two after it. Any one of them may die: DATA/node-N/flightd.pid names its process, and --node N starts it again.`,
		Example: `  flightd dev
  flightd dev --data /tmp/try --listen 127.0.0.1:0
  flightd dev --nodes 3
  flightd dev --nodes 3 --node 2    # starts node 2 alone`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if nodes > 0 || cmd.Flags().Changed("node") {
				d, err := newDevNodes(a, nodes)
				switch {
				case err != nil:
					return err
				case once.raiseLeaseEpoch != "":
					return cli.UsageError("--raise-lease-epoch is not taken with --nodes: run flightd cluster raise-lease-epoch while the nodes run")
				case cmd.Flags().Changed("node"):
					return d.runOne(cmd.Context(), only)
				}
				return d.runAll(cmd.Context())
			}
			if err := checkNotCluster(a.Setting("data").Value); err != nil {
				return err
			}
			cfg := node.Dev(a.Setting("data").Value, a.Setting("listen").Value)
			cfg.Operator.RaiseLeaseEpoch = once.raiseLeaseEpoch
			return runNode(cmd.Context(), a, cfg)
		},
	}
	flags := c.Flags()
	flags.IntVar(&nodes, "nodes", 0, "number of nodes of a cluster on this machine: 3 or 5; none: a lone node")
	flags.IntVar(&only, "node", 0, "with --nodes: start this node alone, after its process has ended")
	flags.String("data", "", "data directory (FLIGHTD_DATA; ./flightd-data)")
	flags.String("listen", "", "loopback address of the API; port 0 picks a free port (FLIGHTD_LISTEN; 127.0.0.1:7420)")
	flags.String("listen-metrics", "", "second loopback address for metrics and health, as in 127.0.0.1:9464 (FLIGHTD_LISTEN_METRICS; none)")
	nodeFlags(flags, &once)
	return c
}

// nodeFlags adds the flags that serve and dev share.
func nodeFlags(flags *pflag.FlagSet, once *onceFlags) {
	flags.StringVar(&once.raiseLeaseEpoch, "raise-lease-epoch", "", "REASON to start, this once, although etcd has lost its data; no receipt is lost, and running flights wait for their old leases")
	cli.AddSettings(flags, "public_url", "notify_private", "log_level", "log_format")
}

// serveConfig returns the configuration of flightd serve. The node checks addresses and certificate files.
func serveConfig(a *cli.App, once onceFlags) (cfg node.Config, err error) {
	cfg = node.Config{
		Data: a.Setting("data").Value, Cluster: a.Setting("cluster").Value,
		Listen: node.Listen{
			Address: a.Setting("listen").Value,
			TLS:     node.TLSFiles{Cert: a.Setting("tls_cert").Value, Key: a.Setting("tls_key").Value, ClientCA: a.Setting("tls_client_ca").Value},
		},
		FirstToken: node.FirstToken{File: a.Setting("first_token_file").Value, Print: func(secret string) { printFirstToken(a, secret) }},
		Operator:   node.Operator{NewAdminToken: once.newAdminToken, RaiseLeaseEpoch: once.raiseLeaseEpoch},
	}
	if a.Setting("data").Source == cli.FromDefault {
		cfg.Data = cmp.Or(a.Env("STATE_DIRECTORY"), cli.ServeData) // systemd sets the variable for StateDirectory=
	}
	cfg.Etcd = node.ExternalEtcd{
		Endpoints: cli.Addresses(a.Setting("etcd").Value), Cert: a.Setting("etcd_cert").Value, Key: a.Setting("etcd_key").Value, CA: a.Setting("etcd_ca").Value,
		Prefix: etcdlease.Root(a.Setting("etcd_prefix").Value),
	}
	if cfg.Etcd.AllowPlainHTTP, err = a.BoolSetting("etcd_allow_plain_http"); err != nil {
		return cfg, err
	}
	cfg.Listen.AllowPlainHTTP, err = a.BoolSetting("allow_plain_http")
	return cfg, err
}

// wallOffsetEnv is the environment variable with the duration by which a node's wall clock is wrong, for tests.
const wallOffsetEnv = "FLIGHTD_WALL_OFFSET"

// runNode runs a node until ctx ends.
func runNode(ctx context.Context, a *cli.App, cfg node.Config) error {
	crash, err := crashpoint.Parse(a.Env(crashpoint.Env))
	if err != nil {
		return &cli.Error{Code: cli.ExitConfig, Err: err}
	}
	cfg.Listen.Metrics, cfg.Listen.PublicURL = a.Setting("listen_metrics").Value, a.Setting("public_url").Value
	if cfg.Listen.NotifyPrivate, err = a.BoolSetting("notify_private"); err != nil {
		return err
	}
	cfg.Process.Crash = crash
	if offset := a.Env(wallOffsetEnv); offset != "" {
		if cfg.Process.WallOffset, err = time.ParseDuration(offset); err != nil {
			return &cli.Error{Code: cli.ExitConfig, Err: fmt.Errorf("%s: %w", wallOffsetEnv, err)}
		}
	}
	if err := completeConfig(a, &cfg); err != nil {
		return err
	}
	ctx, stopSignals := cli.NotifyContext(ctx, syscall.SIGHUP) // the terminal was closed
	defer stopSignals()
	aliveCtx, stopWatchdog := context.WithCancel(ctx)
	defer stopWatchdog()
	var watchdog sync.WaitGroup // runNode waits for it below
	var printErr error          // of printing the banner; the node runs on and returns it at the end
	cfg.Ready = func(r node.Ready) {
		printErr = printBanner(a, r, &cfg)
		notifySupervisor(a, "READY=1\nSTATUS=answers at "+r.URL)
		if every := watchdogInterval(); every > 0 {
			watchdog.Go(func() {
				feedWatchdog(aliveCtx, every, r.Alive, func(state string) { notifySupervisor(a, state) }, cfg.Logger)
			})
		}
	}
	node.Tune(&cfg)
	notified := make(chan struct{}) // closed when the supervisor was notified; runNode waits for it below
	stop := context.AfterFunc(ctx, func() {
		defer close(notified)
		notifySupervisor(a, "STOPPING=1")
	})
	err = node.Run(ctx, cfg)
	stopWatchdog()
	watchdog.Wait()
	if !stop() {
		<-notified
	}
	return startError(errors.Join(err, printErr), &cfg)
}

// completeConfig sets what every start of a node needs.
func completeConfig(a *cli.App, cfg *node.Config) (err error) {
	cfg.Deployment = a.Setting("deployment").Value
	cfg.Process.Version, cfg.Process.Dedicated, cfg.Process.Traces = a.Version, true, true
	cfg.Process.Kill, cfg.Operator.Actor = func(why error) { exitNode(a, why) }, cli.ActorName("")
	cfg.Logger, err = logger(a)
	return err
}

// createLedger makes the ledger of flightd serve --init.
func createLedger(ctx context.Context, a *cli.App, cfg node.Config) error {
	if err := completeConfig(a, &cfg); err != nil {
		return err
	}
	var err error
	if cfg.Data, err = filepath.Abs(cfg.Data); err != nil {
		return err
	}
	ctx, stopSignals := cli.NotifyContext(ctx)
	defer stopSignals()
	deployment, err := node.Init(ctx, cfg)
	if err != nil {
		return startError(err, &cfg)
	}
	if err := a.PrintLine(deployment, map[string]string{"data": cfg.Data, "deployment": deployment}); err != nil || a.Format == "json" || a.Format == "yaml" {
		return err
	}
	_, err = fmt.Fprintf(a.Err, "the ledger in %s is new and empty; this is its deployment, which FLIGHTD_DEPLOYMENT can name\nstart it with the same settings and without --init\n", cfg.Data)
	return err
}

// printFirstToken prints the token admin to standard error: at the first start, and when --new-admin-token replaces it. No
// other output has the token.
func printFirstToken(a *cli.App, secret string) {
	_, _ = fmt.Fprintf(a.Err, `the token admin, with all rights in all namespaces; it is shown only now, and only here:

  %s

store it where you store passwords, then set FLIGHTD_TOKEN to it and make a token for each caller with flightd token create

`, secret)
}

// printBanner prints the address to standard output, so that a script can read it, and the banner to standard error. If the
// ledger is empty, the banner of dev has commands to try.
func printBanner(a *cli.App, r node.Ready, cfg *node.Config) error {
	err := a.PrintLine(r.URL, struct {
		URL        string           `json:"url"`
		Data       string           `json:"data"`
		Deployment string           `json:"deployment"`
		Ledger     *wire.LedgerInfo `json:"ledger"`
		TookMS     int64            `json:"took_ms"`
	}{r.URL, r.Data, r.Deployment, &r.Ledger, r.Took.Milliseconds()})
	if err != nil || a.Silent {
		return err
	}
	metrics := ""
	if r.Metrics != "" {
		metrics = "\n  metrics  " + r.Metrics + "/metrics"
	}
	_, err = fmt.Fprintf(a.Err, `flightd is ready after %s
  API      %s   (%s)
  console  %s
  data     %s   (%s)%s
`, r.Took.Round(time.Millisecond), r.URL, accessText(cfg), r.URL+console.Path+"/", r.Data, cli.LedgerText(&r.Ledger, time.Now()), metrics)
	if err != nil || !r.Ledger.Empty || !cfg.NoCredentials {
		return err
	}
	server := ""
	if r.URL != cli.DefaultServer {
		server = "--server " + r.URL + " "
	}
	_, err = fmt.Fprintf(a.Err, `
try in another terminal:
  flightd %sexec --key first-try -- sh -c 'echo paid by $$; date'
  flightd %sexec --key first-try -- sh -c 'echo paid by $$; date'    # the same output; nothing is run
  flightd %swhy first-try
`, server, server, server)
	return err
}

// accessText describes who can use the API, for the banner.
func accessText(cfg *node.Config) string {
	switch {
	case cfg.NoCredentials:
		return "this machine only, no credentials"
	case cfg.Listen.TLS.ClientCA != "":
		return "TLS, client certificates, tokens"
	case cfg.Listen.TLS.Cert != "":
		return "TLS, tokens"
	}
	return "plain HTTP, tokens"
}

// logger returns the node's logger, which writes to standard error.
func logger(a *cli.App) (*slog.Logger, error) {
	levels := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}
	level, format := a.Setting("log_level"), a.Setting("log_format")
	minLevel, known := levels[level.Value]
	if !known {
		return nil, a.InvalidSetting(level, "the levels are debug, info, warn and error", "")
	}
	options := &slog.HandlerOptions{Level: minLevel}
	switch format.Value {
	case "text":
		return slog.New(slog.NewTextHandler(a.Err, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(a.Err, options)), nil
	}
	return nil, a.InvalidSetting(format, "the formats are text and json", "")
}
