package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/cmd/flightd/internal/cli"
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
