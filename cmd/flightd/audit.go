package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/flightd/flightd/client"
)

// maxAuditPage is the largest page that audit ls asks for.
const maxAuditPage = 100

func (a *app) auditCommand() *cobra.Command {
	return commandGroup("audit", "Show who decided what, when and why", a.auditList())
}

func (a *app) auditList() *cobra.Command {
	var limit int
	var verb string
	c := &cobra.Command{
		Use:   "ls",
		Short: "List the decisions of operators and administrators, the newest first",
		Example: `  flightd audit ls
  flightd audit ls --verb resolve --limit 1000 -o json`,
		Args: exactArgs(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 {
				return usageError("--limit %d: at least 1", limit)
			}
			return a.withClient(cmd.Context(), func(c *client.Client) error { return a.listAudit(cmd.Context(), c, verb, limit) })
		},
	}
	c.Flags().IntVar(&limit, "limit", 100, "list at most this many")
	c.Flags().StringVar(&verb, "verb", "", "only this verb")
	return acceptAllNamespaces(c)
}

func (a *app) listAudit(ctx context.Context, c *client.Client, verb string, limit int) error {
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
		rows = append(rows, []string{formatTime(e.At.Time), e.Verb, e.Namespace, e.Subject, e.Actor, e.Reason})
		ids = append(ids, e.Version)
	}
	if all.Next != "" && (a.format == "table" || a.format == "id") {
		a.say("there may be more; raise --limit to see them")
	}
	return a.printList([]string{"AT", "VERB", "NAMESPACE", "SUBJECT", "ACTOR", "REASON"}, rows, ids, all)
}
