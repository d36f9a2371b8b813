package main

import (
	"github.com/spf13/cobra"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/cmd/flightd/internal/doctor"
)

func newDoctorCommand(a *cli.App) *cobra.Command {
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check server, token, TLS, clocks, disk, etcd, leases, versions, doubts and spooled reports, and print remedies",
		Long: `Checks the directories of your settings and spooled reports, and each server: its certificate, your token, its
components, its version, its clock against yours, flights in doubt, flights that a person resolved as not happened and that
nobody has run since, its etcd, the time of lease renewals, and the sync time of its data directory. Servers of one list are
compared, and so are the nodes of a cluster. Nothing is changed:
doctor creates and closes one session, and writes and removes one file in the data directory.

A token without operate or admin skips the checks of the server's components.

The exit code is 0 if every check is ok or skipped, 69 if no server answers, and 1 otherwise.`,
		Example: `  flightd doctor
  flightd doctor --data /var/lib/flightd -o json
  flightd doctor -o id                # only the names of checks with a warning or failure`,
		RunE: func(cmd *cobra.Command, _ []string) error { return doctor.Run(cmd.Context(), a) },
	}
	c.Flags().String("data", "", "data directory whose disk is measured (the server's, if it is on this machine)")
	return c
}
