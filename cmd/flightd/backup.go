package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/node"
)

func newBackupCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "backup DIR",
		Short: "Back up the ledger of a running server into a new directory",
		Long: `Writes all flights, receipts, documents and spooled reports of a running server into DIR, with a manifest that has the
version, the feature level, the index of the last entry, and the checksum of each file. Callers are served meanwhile.
Sessions and claims are not in a backup: they end with the ledger that is lost.

A backup has the hashes of all tokens, and the secret that seals fencing tokens: store it like a password. It needs a token
of all namespaces with the verb admin.`,
		Example: `  flightd backup /backups/flightd-$(date +%F)
  flightd restore --from /backups/flightd-2026-11-20 --data /var/lib/flightd`,
		Args: cli.ExactArgs(1, "a directory"),
		RunE: func(cmd *cobra.Command, args []string) error { return writeBackup(cmd.Context(), a, args[0]) },
	}
}

// writeBackup writes into a directory that is missing or empty. If the process dies, the directory has no manifest, and no
// restore accepts it.
func writeBackup(ctx context.Context, a *cli.App, dir string) error {
	names, err := os.ReadDir(dir)
	switch {
	case err == nil && len(names) > 0:
		return &cli.Error{Code: cli.ExitUsage, Err: fmt.Errorf("%s is not empty", dir), Hint: "name a new directory for each backup"}
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return &cli.Error{Code: cli.ExitUsage, Err: err}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return a.WithClient(ctx, func(c *client.Client) error {
		in, out := io.Pipe()
		go func() { out.CloseWithError(c.Backup(ctx, out)) }() // ends when unpack has closed in
		err := unpack(in, dir)
		_ = in.CloseWithError(errors.New("the archive could not be written")) // without effect after its end
		if err != nil {
			return err
		}
		m, err := clusterstore.ReadBackup(dir)
		if err != nil {
			return err
		}
		a.Say("backed up %s up to entry %d, feature level %d", m.Deployment, m.Index, m.FeatureLevel)
		return a.PrintUnlessTable(dir, m)
	})
}

// unpack writes the files of a tar archive into a directory, each synced.
func unpack(archive io.Reader, dir string) error {
	for in := tar.NewReader(archive); ; {
		head, err := in.Next()
		if errors.Is(err, io.EOF) {
			_, err = io.Copy(io.Discard, archive) // the sender ends without an error, too
			return err
		}
		if err != nil {
			return err
		}
		if !filepath.IsLocal(head.Name) || head.Typeflag != tar.TypeReg {
			return fmt.Errorf("the archive has an entry %q", head.Name)
		}
		path := filepath.Join(dir, head.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, in)
		if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
			return err
		}
	}
}

// acceptedStep is the next step of an operator who has restored a data directory.
const acceptedStep = "flightd restore accept --data %s --reason WHY"

func newRestoreCommand(a *cli.App) *cobra.Command {
	var from string
	c := &cobra.Command{
		Use:   "restore --from BACKUP --data NEW",
		Short: "Restore a ledger from a backup, and finish a restore",
		Long: `Makes a new data directory from a backup, also from that of a cluster: the ledger begins as that of a single node, and flightd cluster
found --from makes a cluster of it before step 3, or later. The steps of a restore:

  1. flightd restore --from BACKUP --data NEW     checks the backup and makes the directory
  2. flightd restore accept --data NEW --reason WHY
     before the first start on a directory that was restored or copied, or whose ledger has lost entries
  3. start flightd. Stored receipts are replayed, and reports of effects that were under way are taken. Nothing opens:
     a key without a receipt may have succeeded after the backup
  4. flightd restore asked                        the keys that may run again: look them up at the provider
     flightd import FILE                          and import the receipts of those that happened
  5. flightd restore finish --reason WHY          from now on, a key without a receipt is opened again`,
		Example: `  flightd restore --from /backups/flightd-2026-11-20 --data /var/lib/flightd
  flightd restore accept --data /var/lib/flightd --reason 'the disk of db1 died'
  flightd restore asked -o id
  flightd restore finish --reason 'all charges since noon are imported'`,
		Args: cli.NoSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			data := a.Setting("data")
			if from == "" || data.Source == cli.FromDefault {
				return &cli.Error{Code: cli.ExitUsage, Err: errors.New("--from and --data are needed"), Hint: "see flightd restore --help"}
			}
			m, err := node.RestoreBackup(from, data.Value)
			if err != nil {
				return restoreError(err, "name a new directory with --data")
			}
			a.Say("restored %s up to entry %d, of %s; next: "+acceptedStep, m.Deployment, m.Index, m.CreatedAt.Format(time.RFC3339), data.Value)
			return a.PrintUnlessTable(m.Deployment, m)
		},
	}
	c.Flags().StringVar(&from, "from", "", "directory of the backup")
	c.Flags().String("data", "", "new data directory (FLIGHTD_DATA)")
	c.AddCommand(newRestoreAcceptCommand(a),
		&cobra.Command{
			Use:   "asked",
			Short: "List the keys that may run when the restore is finished",
			Long: `Lists the keys that have neither a receipt nor a doubt in the restored ledger, and may run when the restore is finished: its flights,
jobs among them, the steps of its sagas, the undos of those that were cancelled, and what callers have asked for since. Look them up at
the provider, import the receipts of those that happened, and finish the restore.

A table names the first 1,000 keys; -o id names all.`,
			Example: `  flightd restore asked
  flightd restore asked -o id > keys.txt`,
			RunE: a.Run(func(ctx context.Context, c *client.Client, _ []string) error {
				keys, err := askedKeys(ctx, a, c)
				if err != nil {
					return err
				}
				rows := make([][]string, min(len(keys), 1000))
				for i := range rows {
					rows[i] = []string{keys[i]}
				}
				if more := len(keys) - len(rows); more > 0 {
					rows = append(rows, []string{fmt.Sprintf("… %d more; -o id lists all", more)})
				}
				return a.PrintList([]string{"KEY"}, rows, keys, map[string][]string{"keys": keys})
			}),
		}, newRestoreFinishCommand(a))
	return c
}

func restoreError(err error, dataHint string) error {
	switch {
	case errors.Is(err, clusterstore.ErrBackup):
		return &cli.Error{Code: cli.ExitConfig, Err: err, Hint: "check --from, or use another backup; nothing was restored. A copy of a data directory needs only flightd restore accept"}
	case errors.Is(err, fs.ErrNotExist):
		return &cli.Error{Code: cli.ExitConfig, Err: err, Hint: "check --from; nothing was restored"}
	case errors.Is(err, clusterstore.ErrNewer):
		return &cli.Error{Code: cli.ExitConfig, Err: err, Hint: "use the version of flightd that made the backup, or a newer one"}
	case errors.As(err, new(*node.CopiedError)):
		return &cli.Error{Code: cli.ExitConfig, Err: err, Hint: "if its node runs, stop it with SIGTERM, then move the directory; else accept without --moved: nothing opens then until a person has said which effects happened"}
	case errors.As(err, new(*flight.InvalidError)):
		return &cli.Error{Code: cli.ExitConfig, Err: err, Hint: dataHint}
	}
	return err
}

func newRestoreAcceptCommand(a *cli.App) *cobra.Command {
	var operator cli.OperatorFlags
	var accepted node.Acceptance
	c := &cobra.Command{
		Use:   "accept --data DIR --reason WHY",
		Short: "Accept a data directory that was restored or copied, before its next start",
		Long: `A node does not start on a directory that was restored or copied since its last start, or whose ledger has lost entries:
effects that happened since then are unknown to it, and would happen again. This command stores your acceptance in the
directory, in which no node may run. The next start raises the store epoch and the lease epoch, moves the data of etcd
away, and opens no flight until flightd restore finish.

--moved says that the directory was moved after a clean stop, and that no other copy of it has run since. Then nothing is
missing, and the next start opens flights at once. The audit log has your statement. It is rejected if the node was not
stopped, because the directory may be a copy of a node that ran on, and for a backup that was restored.`,
		Example: `  flightd restore accept --data /var/lib/flightd --reason 'restored the backup of Friday: the disk died'
  flightd restore accept --data /srv/flightd --moved --reason 'new disk'`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := operator.Check(); err != nil {
				return err
			}
			data := a.Setting("data")
			if data.Source == cli.FromDefault {
				return &cli.Error{Code: cli.ExitUsage, Err: errors.New("--data is missing"), Hint: "name the data directory, as in --data /var/lib/flightd"}
			}
			what := "Effects that happened after the copy was made are unknown to the ledger in %s."
			if accepted.Moved {
				what = "You say that %s was moved after a clean stop, and that no other copy of it has run: if one has, its effects happen again."
			}
			if err := a.Confirm(true, what+" Accept it?", data.Value); err != nil {
				return err
			}
			accepted.Reason, accepted.Actor = operator.Reason, cli.ActorName(operator.Actor)
			if err := node.AcceptRestore(data.Value, accepted); err != nil {
				return restoreError(err, "name the directory that flightd restore made, or the copy")
			}
			a.Say("accepted; the next start of flightd on %s acts on it", data.Value)
			return a.PrintUnlessTable(data.Value, map[string]string{"done": "accept_restore", "data": data.Value})
		},
	}
	operator.Add(c.Flags(), cli.DecisionReason)
	c.Flags().String("data", "", "data directory (FLIGHTD_DATA)")
	c.Flags().BoolVar(&accepted.Moved, "moved", false, "the directory was moved after a clean stop, and no other copy has run: nothing is missing")
	cli.DurationVar(c.Flags(), &accepted.Hold, "hold", 0, "least time before the restore can be finished, as in 2h; raised to the longest session, time-out and settle delay of the ledger")
	return c
}

// askedKeys returns the keys of flightd restore asked; an error if the server's ledger is not a restored one.
func askedKeys(ctx context.Context, a *cli.App, c *client.Client) ([]string, error) {
	state, err := c.Restore(ctx)
	if err == nil && !state.Reconciling {
		err = &cli.Error{Code: cli.ExitFailed, Err: errors.New("the server has no restore to finish"), Hint: "check --server, which is " + a.Setting("server").Value}
	}
	if err != nil {
		return nil, err
	}
	keys, _, err := cli.Pages(math.MaxInt, cli.MaxPage, "", func(after string, limit int) ([]string, string, error) {
		page, err := c.Asked(ctx, after, limit)
		if err != nil {
			return nil, "", err
		}
		return page.Keys, page.Next, nil
	})
	return keys, err
}

func newRestoreFinishCommand(a *cli.App) *cobra.Command {
	var force bool
	c := &cobra.Command{
		Use:   "finish --reason WHY",
		Short: "Let flights open again in a restored ledger",
		Long: `Ends a restore: from now on, a key without a receipt is opened again. Its effect happens a second time if it happened after
the backup and was not imported.

Before the hold is over, callers of the ledger that was lost may still act, and their reports may still come. --force ends it
earlier: use it only if every such caller is dead.`,
		Example: `  flightd restore finish --reason 'all charges since the backup are imported'`,
	}
	c.Flags().BoolVar(&force, "force", false, "also before the hold is over")
	return a.Decision(c, nil, func(ctx context.Context, c *client.Client, _ []string, reason string) error {
		keys, err := askedKeys(ctx, a, c)
		if err != nil {
			return err
		}
		if err := a.Confirm(true, "A key without a receipt opens again. flightd restore asked lists %s that may run. Finish it?", cli.Pluralize(len(keys), "key", "keys")); err != nil {
			return err
		}
		state, err := c.FinishRestore(ctx, reason, force)
		if err != nil {
			return err
		}
		a.Say("finished: flights open again")
		return a.PrintUnlessTable(fmt.Sprint(state.StoreEpoch), state)
	})
}
