package main

import (
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
)

func newManCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:     "man DIRECTORY",
		Short:   "Write the manual, one page per command, into a directory",
		Example: "  flightd man man1 && man ./man1/flightd.1",
		Hidden:  true, // for packagers
		Args:    cli.ExactArgs(1, "a directory"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			root := newRoot(a) // a tree of its own, since the texts are changed
			root.DisableAutoGenTag = true
			root.Long = root.Short + ".\n\nData goes to standard output, messages go to standard error.\n\n" + exitCodesPage() + "\n\n" + settingsPage()
			fenceTables(root)
			return doc.GenManTree(root, &doc.GenManHeader{Source: "flightd " + a.Version, Manual: "User Commands"}, args[0])
		},
	}
}

// fenceTables marks the indented paragraphs of all descriptions as code, so that their lines are kept as they are.
func fenceTables(cmd *cobra.Command) {
	paragraphs := strings.Split(cmd.Long, "\n\n")
	for i, p := range paragraphs {
		if strings.HasPrefix(p, "  ") {
			paragraphs[i] = "```\n" + p + "\n```"
		}
	}
	cmd.Long = strings.Join(paragraphs, "\n\n")
	for _, c := range cmd.Commands() {
		fenceTables(c)
	}
}
