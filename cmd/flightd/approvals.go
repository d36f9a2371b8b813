package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

func newApprovalsCommand(a *cli.App) *cobra.Command {
	return cli.CommandGroup("approvals", "List, show, approve and reject the flights that need a person's approval before they act",
		listCommand(a, &flightList{
			query: client.Query{States: []string{flight.StateAwaitingApproval.String()}}, what: "approvals",
			read: oldest(approvalSince, "await approval", "younger one is", "younger ones are"), show: approvalTable,
		}, &cobra.Command{
			Short:   "List the flights that await approval, the oldest first",
			Example: "  flightd approvals ls\n  flightd approvals ls -A                     # in all namespaces\n  flightd approvals ls --action refund",
		}),
		newShowCommand(a, "approvals show refund/order-42", flight.StateAwaitingApproval,
			"Show what a flight that awaits approval will do: its input, policy, requester and deadline"),
		newApprovalCommand(a, "approve", "", flight.FindingApproved,
			"Approve a flight: the next caller, or a worker, performs its effect", (*client.Client).Approve),
		newApprovalCommand(a, "reject", " --reason 'the customer is unknown'", flight.FindingRejected,
			"Reject a flight: it is cancelled, and its effect does not happen", (*client.Client).Reject))
}

func approvalTable(ctx context.Context, b *strings.Builder, c *client.Client, waiting []client.Flight) {
	inputs, now := shortInputs(ctx, c, waiting), time.Now()
	rows := make([][]string, 0, len(waiting))
	for i, f := range waiting {
		r := cmp.Or(f.Approval, &wire.ApprovalRequest{})
		rows = append(rows, []string{listedKey(&f), cli.AgeText(now.Sub(f.CreatedAt.Time)), cli.FormatTime(r.ExpiresAt.Time), r.RequestedBy, inputs[i]})
	}
	cli.WriteTable(b, []string{"KEY", "AGE", "DECIDE UNTIL", "REQUESTED BY", "INPUT"}, rows)
}

// approvalSince returns when a flight that awaits approval was submitted.
func approvalSince(f *client.Flight) time.Time { return f.CreatedAt.Time }

// approvalCall is the client method of a decision.
type approvalCall func(c *client.Client, ctx context.Context, id flight.ID, version string, d client.ApprovalDecision) (*client.Flight, error)

func newApprovalCommand(a *cli.App, verb, reason string, finding flight.Finding, short string, do approvalCall) *cobra.Command {
	c := &cobra.Command{
		Use:   verb + " KEY-or-ID",
		Short: short,
		Long: short + `.

The input, the policy and the requester are shown first. The decision is about the version that is shown: after any change
it is rejected. The first decision counts. The same one again changes nothing, and another one is told who decided.`,
		Example: "  flightd approvals " + verb + " refund/order-42" + reason,

		Annotations: map[string]string{statesAnnotation: flight.StateAwaitingApproval.String()},
	}
	decide := func(ctx context.Context, c *client.Client, args []string, reason string) error {
		return decideApproval(ctx, a, c, args[0], verb, finding, func(id flight.ID, version string) (*client.Flight, error) {
			return do(c, ctx, id, version, client.ApprovalDecision{Reason: reason})
		})
	}
	if finding == flight.FindingApproved {
		return a.Optional(c, "the reason for the decision; recorded", "", nil, decide)
	}
	return a.Decision(c, nil, decide)
}

// decideApproval shows a flight that awaits approval, asks, and decides about the version that was shown.
func decideApproval(ctx context.Context, a *cli.App, c *client.Client, word, verb string, finding flight.Finding, do func(id flight.ID, version string) (*client.Flight, error)) error {
	f, id, err := a.FindFlight(ctx, c, word, false)
	if err != nil {
		return err
	}
	if f.State != flight.StateAwaitingApproval.String() {
		if s := f.Resolution; s != nil && isApproval(s) {
			already := fmt.Errorf("%s: already %s %s; it is %s", displayKey(f), s.Result, decidedText(s), f.State)
			if s.Result == finding.String() {
				a.Say("%v", already)
				return writeFlight(a, f)
			}
			return &cli.Error{Code: cli.ExitFailed, Err: already, Hint: "run flightd why " + f.Key}
		}
		return &cli.Error{Code: cli.ExitFailed, Err: fmt.Errorf("%s does not await approval: it is %s", displayKey(f), f.State), Hint: "run flightd why " + f.Key + " to see its history"}
	}
	if !a.Yes {
		var b strings.Builder
		cli.WriteTable(&b, []string{"FLIGHT", f.ID}, flightRows(f))
		w := readFullFlight(ctx, a, c, f)
		w.write(&b, cli.HideUser(a.Servers[0]))
		_, _ = fmt.Fprint(a.Err, b.String())
	}
	if err := a.Confirm(true, "%s, version %s: %s it?", displayKey(f), f.Version, verb); err != nil {
		return err
	}
	seen := f.Version
	if f, err = do(id, seen); err != nil {
		return err
	}
	decided := finding.String()
	if s := f.Resolution; f.Source != "" && s != nil && isApproval(s) { // somebody was faster
		decided = "already " + s.Result + " " + decidedText(s)
	}
	a.Say("%s, version %s: %s; %s", displayKey(f), seen, decided, stateText(f))
	return writeFlight(a, f)
}

// isApproval reports whether a resolution is a decision about an approval.
func isApproval(s *wire.Resolution) bool {
	return s.Result == flight.FindingApproved.String() || s.Result == flight.FindingRejected.String()
}

// decidedText says who decided about an approval, when and why.
func decidedText(s *wire.Resolution) string {
	if s.Actor == "" {
		return "on " + cli.FormatTime(s.At.Time) + noteSuffix(s.Reason)
	}
	return "by " + cli.OneLine(s.Actor) + " on " + cli.FormatTime(s.At.Time) + noteSuffix(s.Reason)
}

// policyText describes the policy of a flight that awaits approval.
func policyText(r *wire.ApprovalRequest) string {
	parts := []string{cmp.Or(r.Policy.Recovery, flight.RecoveryHold.String())}
	add := func(format string, ms int64) {
		if ms > 0 {
			parts = append(parts, fmt.Sprintf(format, time.Duration(ms)*time.Millisecond))
		}
	}
	add("provider window %v", r.Policy.ProviderWindowMS)
	add("time-out %v", r.Policy.AttemptTimeoutMS)
	if r.Retry != nil {
		parts = append(parts, cli.Pluralize(int(r.Retry.Attempts), "attempt", "attempts"))
	}
	return strings.Join(parts, ", ")
}

// approvalText describes a flight that awaits approval, and the commands that decide.
func approvalText(f *client.Flight) string {
	r := cmp.Or(f.Approval, &wire.ApprovalRequest{})
	s := "awaiting approval"
	if r.RequestedBy != "" {
		s += ", requested by " + cli.OneLine(r.RequestedBy)
	}
	if !r.ExpiresAt.IsZero() {
		s += ", and rejected at " + cli.FormatTime(r.ExpiresAt.Time) + " if nobody decides"
	}
	return s + "; its policy: " + policyText(r) + "; to decide, run:\n     flightd approvals approve " + f.Key + "\n     flightd approvals reject " + f.Key + " --reason WHY"
}
