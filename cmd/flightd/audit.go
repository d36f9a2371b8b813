package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/httpapi/wire"
)

// maxAuditPage is the largest page that audit ls asks for.
const maxAuditPage = 100

var auditTable = cli.Table[wire.AuditEntry]{
	Heading: []string{"AT", "VERB", "NAMESPACE", "SUBJECT", "ACTOR", "REASON"},
	Row: func(e *wire.AuditEntry) (string, []string) {
		return e.Version, []string{cli.FormatTime(e.At.Time), e.Verb, e.Namespace, e.Subject, e.Actor, e.Reason}
	},
}

func newAuditCommand(a *cli.App) *cobra.Command {
	var limit int
	var verb string
	c := &cobra.Command{
		Use:   "ls",
		Short: "List the decisions of operators and administrators, the newest first",
		Example: `  flightd audit ls
  flightd audit ls --verb resolve --limit 1000 -o json`,
		PreRunE: func(*cobra.Command, []string) error { return checkLimit(limit) },
		RunE: auditTable.List(a, func(ctx context.Context, c *client.Client, _ []string) ([]wire.AuditEntry, any, error) {
			entries, next, err := cli.Pages(limit, maxAuditPage, "", func(before string, limit int) ([]wire.AuditEntry, string, error) {
				page, err := c.Audit(ctx, before, verb, limit)
				if err != nil {
					return nil, "", err
				}
				return page.Entries, page.Next, nil
			})
			if next != "" && (a.Format == "table" || a.Format == "id") {
				a.Say("there may be more; raise --limit to see them")
			}
			return entries, client.AuditPage{Entries: entries, Next: next}, err
		}),
	}
	c.Flags().IntVar(&limit, "limit", 100, "list at most this many")
	c.Flags().StringVar(&verb, "verb", "", "only this verb")
	return cli.CommandGroup("audit", "Show who decided what, when and why", acceptAllNamespaces(c))
}

// checkLimit rejects a --limit below 1.
func checkLimit(limit int) error {
	if limit < 1 {
		return cli.UsageError("--limit %d: at least 1", limit)
	}
	return nil
}
