package main

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
	"github.com/flightd/flightd/lease/etcdlease"
	"github.com/flightd/flightd/node"
)

// startError adds the exit code and the hint to the error with which a node of this configuration did not start, or
// stopped.
func startError(err error, cfg *node.Config) error {
	if err == nil {
		return nil
	}
	code, hint := startHint(err, cfg)
	return &cli.Error{Code: code, Err: err, Hint: hint}
}

// startHint returns the exit code and the hint for an error of startError.
func startHint(err error, cfg *node.Config) (code int, hint string) {
	var invalid *flight.InvalidError
	var network *net.OpError
	var etcd *node.EtcdError
	var noLedger *node.NoLedgerError
	switch {
	case errors.As(err, &noLedger) && cfg.Deployment != "":
		return cli.ExitConfig, "name the directory of deployment " + cfg.Deployment + " with --data or FLIGHTD_DATA; FLIGHTD_DEPLOYMENT allows no other one"
	case errors.As(err, &noLedger) && slices.Contains(noLedger.Found, "etcd"):
		return cli.ExitConfig, "restore the whole data directory from one backup: its ledger is missing, and with it every receipt"
	case errors.As(err, &noLedger):
		return cli.ExitConfig, "name the directory of your ledger with --data or FLIGHTD_DATA; if there is none yet, make it once with flightd serve --init"
	case errors.As(err, new(*node.NotEmptyError)):
		return cli.ExitConfig, "if it has your ledger, start without --init; a new ledger, which has no record of past effects, needs an empty directory"
	case errors.As(err, new(*node.WrongDeploymentError)):
		return cli.ExitConfig, "name the directory of that deployment with --data or FLIGHTD_DATA, or correct FLIGHTD_DEPLOYMENT"
	case errors.As(err, new(*node.LockedError)), errors.As(err, new(*node.NotMemberError)):
		return cli.ExitConfig, ""
	case errors.As(err, &invalid):
		return cli.ExitConfig, configHint(invalid.Field, cfg)
	case errors.Is(err, etcdlease.ErrOldServer):
		return cli.ExitConfig, "upgrade every member of that etcd, one after the other, and start again"
	case errors.Is(err, lease.ErrRegressed) && len(cfg.Etcd.Endpoints) > 0:
		return cli.ExitConfig, "correct --etcd and --etcd-prefix if the leases were kept elsewhere before; if that etcd has lost its data for good, start once with --raise-lease-epoch 'REASON': the ledger has all receipts"
	case errors.Is(err, lease.ErrUnavailable) && len(cfg.Etcd.Endpoints) > 0:
		return cli.ExitUnreachable, "start it again: the next start waits for etcd"
	case errors.Is(err, lease.ErrRegressed):
		return cli.ExitConfig, "restore the previous etcd directory; if it is lost, start once with --raise-lease-epoch 'REASON': the ledger has all receipts"
	case errors.As(err, new(*node.LedgerLostError)), errors.Is(err, lease.ErrForeign):
		return cli.ExitConfig, "put the newest copy of this data directory back; if there is none, " + acceptHint(cfg)
	case errors.As(err, new(*node.CopiedError)):
		return cli.ExitConfig, "start the original directory if it is newer; else " + acceptHint(cfg) +
			"; add --moved if the directory was moved after a clean stop and no other copy has run since"
	case errors.As(err, &network) && network.Op == "listen":
		return cli.ExitUnreachable, listenHint(err)
	case systemErrorHint(err) != "": // the system's error decides, whatever error it is wrapped in
		return cli.ExitFailed, systemErrorHint(err)
	case errors.Is(err, clusterstore.ErrLocked):
		return cli.ExitConfig, "stop the flightd that uses the data directory"
	case isAnyOf(err, fs.ErrPermission, syscall.EROFS, syscall.ENOTDIR):
		return cli.ExitConfig, "make the data directory writable for this user, or name another one with --data or FLIGHTD_DATA"
	case errors.Is(err, clusterstore.ErrNewer):
		return cli.ExitConfig, "start the version of flightd that wrote it, or use another --data directory, which has no record of past effects"
	case isAnyOf(err, clusterstore.ErrForeign, clusterstore.ErrDamaged):
		return cli.ExitConfig, "restore the whole data directory from a backup: flightd restore --from BACKUP --data NEW, then flightd restore accept"
	case errors.As(err, &etcd) && etcd.Dir == "":
		return cli.ExitConfig, "name a prefix of its own with --etcd-prefix if another program writes there, and start once with --raise-lease-epoch 'REASON': the ledger has all receipts"
	case errors.As(err, &etcd):
		return cli.ExitConfig, "restore the previous etcd directory; if there is none, move " +
			etcd.Dir + " away and start once with --raise-lease-epoch 'REASON': the ledger has all receipts"
	}
	return cli.ExitFailed, "start it again; if it fails again, check the disk (dmesg)"
}

// acceptHint is the command with which an operator accepts that effects are missing in the ledger.
func acceptHint(cfg *node.Config) string {
	if cfg.Cluster != "" {
		return "replace the node at another one: flightd cluster replace NODE"
	}
	return "run flightd restore accept --data " + cfg.Data + " --reason WHY: nothing opens then until a person has said which effects happened"
}

// tlsFilesHint says where certificate files come from.
const tlsFilesHint = "--tls-cert and --tls-key name the PEM files of a certificate and its key; flightd cert init DIR makes both"

// configHint describes the values that a field of the configuration takes. It returns "" if the error says enough.
func configHint(field string, cfg *node.Config) string {
	_, _, noAddress := net.SplitHostPort(cfg.Listen.Address)
	switch {
	case field == "listen" && cfg.NoCredentials:
		return "--listen and FLIGHTD_LISTEN take a loopback address and a port, as in 127.0.0.1:7420; flightd serve serves other machines"
	case field == "listen" && cfg.Listen.TLS.Cert == "" && !cfg.Listen.AllowPlainHTTP && noAddress == nil:
		return "other machines need TLS: run flightd cert init DIR and set --tls-cert and --tls-key, or set --allow-plain-http if a proxy in front ends TLS"
	case field == "listen":
		return "--listen and FLIGHTD_LISTEN take an address and a port, as in 0.0.0.0:7420"
	case field == "listen_metrics" && cfg.NoCredentials:
		return "--listen-metrics and FLIGHTD_LISTEN_METRICS take a loopback address and a port, as in 127.0.0.1:9464"
	case field == "listen_metrics":
		return "--listen-metrics and FLIGHTD_LISTEN_METRICS take an address and a port, as in 127.0.0.1:9464"
	case strings.HasPrefix(field, "tls"):
		return tlsFilesHint
	case strings.HasPrefix(field, "etcd"):
		return "--etcd takes the URLs of the members, as in https://10.0.0.1:2379,https://10.0.0.2:2379; flightd help settings lists the settings beside it"
	case field == "deployment":
		return "unset FLIGHTD_DEPLOYMENT for --init, and set it to the id that --init prints"
	case field == "first_token_file":
		return "--first-token-file and FLIGHTD_FIRST_TOKEN_FILE take a file that only this user can read, in a directory that exists"
	}
	return ""
}

// systemErrorHint returns the hint for an error of the operating system, or "" if err is another error.
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
func exitNode(a *cli.App, why error) {
	code, message, hint := cli.Explain(nodeFailure(why))
	a.Complain(message, hint)
	os.Exit(code)
}

// nodeFailure adds the exit code and the hint to the error that ended a running node.
func nodeFailure(why error) error {
	hint := systemErrorHint(why)
	if errors.As(why, new(*node.DirectoryLostError)) {
		hint = "put the data directory back as it was, or restore a backup; nothing is acknowledged from now on"
	}
	if hint == "" {
		hint = "start it again, nothing acknowledged is lost; if it fails again, check the disk (dmesg)"
	}
	return &cli.Error{Code: cli.ExitDied, Err: why, Hint: hint}
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
