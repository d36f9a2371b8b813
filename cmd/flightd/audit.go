package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/cmd/flightd/internal/cli"
)

// maxAuditPage is the largest page that audit ls asks for.
const maxAuditPage = 100

func newAuditCommand(a *cli.App) *cobra.Command {
	return cli.CommandGroup("audit", "Show who decided what, when and why", newAuditListCommand(a))
}

func newAuditListCommand(a *cli.App) *cobra.Command {
	var limit int
	var verb string
	c := &cobra.Command{
		Use:   "ls",
		Short: "List the decisions of operators and administrators, the newest first",
		Example: `  flightd audit ls
  flightd audit ls --verb resolve --limit 1000 -o json`,
		Args: cli.ExactArgs(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 {
				return cli.UsageError("--limit %d: at least 1", limit)
			}
			return a.WithClient(cmd.Context(), func(c *client.Client) error { return listAudit(cmd.Context(), a, c, verb, limit) })
		},
	}
	c.Flags().IntVar(&limit, "limit", 100, "list at most this many")
	c.Flags().StringVar(&verb, "verb", "", "only this verb")
	return acceptAllNamespaces(c)
}

func listAudit(ctx context.Context, a *cli.App, c *client.Client, verb string, limit int) error {
	var all client.AuditPage
	for len(all.Entries) < limit {
		page, err := c.Audit(ctx, all.Next, verb, min(limit-len(all.Entries), maxAuditPage))
		if err != nil {
			return err
		}
		all.Entries, all.Next = append(all.Entries, page.Entries...), page.Next
		if page.Next == "" {
			break
		}
	}
	all.Entries = all.Entries[:min(limit, len(all.Entries))]
	rows, ids := [][]string{}, []string{}
	for _, e := range all.Entries {
		rows = append(rows, []string{cli.FormatTime(e.At.Time), e.Verb, e.Namespace, e.Subject, e.Actor, e.Reason})
		ids = append(ids, e.Version)
	}
	if all.Next != "" && (a.Format == "table" || a.Format == "id") {
		a.Say("there may be more; raise --limit to see them")
	}
	return a.PrintList([]string{"AT", "VERB", "NAMESPACE", "SUBJECT", "ACTOR", "REASON"}, rows, ids, all)
}
