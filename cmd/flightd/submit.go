package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/strictjson"
)

// submitFlags hold the command line of a submission.
type submitFlags struct {
	file, input             string
	hasInput                bool // --input is given
	wait                    time.Duration
	job                     client.SubmitRequest // the fields that a line does not have
	recovery                *cli.Choice
	window, timeout, settle time.Duration
	delay                   time.Duration
	attempts                int
	approval                bool
	approvalExpires         time.Duration
}

func newSubmitCommand(a *cli.App) *cobra.Command {
	s := submitFlags{recovery: &cli.Choice{Words: []string{"hold", "resend", "verify"}}}
	c := &cobra.Command{
		Use:   "submit ACTION [ID]",
		Short: "Submit jobs for the workers of an action; the same key is the same job",
		Long: `Submits one job, or one for each line of a file (-f), and does not wait for its effect. A worker of the action performs it:
see flightd work. The same key is the same job, however often it is submitted, so a submission may be interrupted and
repeated. For each line:

  id            the id of the key; required
  input         JSON; the workers get it as it is
  lane, lane_limit
                jobs of a lane run one at a time, or at most so many, in the order of their submission
  priority      -1000 to 1000; jobs of a greater one are handed out first
  run_at, delay_ms
                the earliest time of the first attempt, as in 2027-01-31T09:30:00Z, or from now
  recovery, provider_window_ms, settle_ms, attempt_timeout_ms, retention
                the policy; the first submission of a key declares it
  approval      {"expires_ms": 86400000}; a person approves the job before it is handed out: see flightd approvals
  retry         {"attempts": 8, "first_ms": 1000, "max_ms": 60000, "within_ms": 0}

The flags are for the lines without the field. A job without a policy, retry or lane has that of its action (flightd actions),
else hold, eight attempts and no lane.

A rejected line changes nothing for the others. It is printed with its number, its code and a hint, and the exit code is 1.
A conflict is a line whose key has another input.`,
		Example: `  flightd submit charge order-42 --input '{"cents": 1999}'
  flightd submit charge order-42 --input @order.json --wait 1m    # prints the receipt
  flightd submit charge -f orders.ndjson --recovery resend --provider-window 24h --attempts 8
  jq -c '{id: .number, input: .}' orders.json | flightd submit charge -f -`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 || len(args) > 2 || (s.file != "") == (len(args) == 2) {
				return cli.UsageError("name an action, and the id of one job or a file of jobs with -f")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			s.job.Action, s.hasInput = args[0], cmd.Flags().Changed("input")
			switch {
			case s.file != "" && (s.hasInput || s.wait != 0):
				return cli.UsageError("--input and --wait are for one job")
			case s.window < 0 || s.timeout < 0 || s.settle < 0 || s.delay < 0 || s.approvalExpires < 0:
				return cli.UsageError("a duration cannot be negative")
			case s.attempts < 0:
				return cli.UsageError("--attempts cannot be negative; 0 is the default, eight")
			case cmd.Flags().Changed("lane") && s.job.Lane == "":
				return cli.UsageError("--lane is empty; leave it out for jobs without a lane")
			case slices.ContainsFunc([]time.Duration{s.window, s.timeout, s.settle, s.delay, s.approvalExpires}, func(d time.Duration) bool { return d%time.Millisecond != 0 }):
				return cli.UsageError("a duration is a whole number of milliseconds; 0 often means no limit")
			}
			s.job.Policy = wire.Policy{Recovery: s.recovery.Value, ProviderWindowMS: s.window.Milliseconds(), SettleMS: s.settle.Milliseconds(), AttemptTimeoutMS: s.timeout.Milliseconds()}
			if s.approval || s.approvalExpires > 0 {
				s.job.Approval = &wire.Approval{ExpiresMS: s.approvalExpires.Milliseconds()}
			}
			if s.job.DelayMS = s.delay.Milliseconds(); s.attempts > 0 {
				s.job.Retry = &wire.Retry{Attempts: int64(s.attempts)}
			}
			return a.WithClient(cmd.Context(), func(c *client.Client) error {
				if s.file != "" {
					return submitFile(cmd.Context(), a, c, &s)
				}
				s.job.ID = args[1]
				return submitOne(cmd.Context(), a, c, &s)
			}, client.WithRetryTimeout(watchTimeout), client.WithActor(cli.ActorName("")))
		},
	}
	flags := c.Flags()
	flags.StringVarP(&s.file, "file", "f", "", "file with a job on each line; - reads standard input")
	flags.StringVar(&s.input, "input", "", "the input of one job, as JSON; @FILE reads a file, @- standard input")
	cli.WaitVar(flags, &s.wait, "wait", 0, "wait for the receipt of one job and print it: a duration, 0 or forever")
	flags.StringVar(&s.job.Lane, "lane", "", "put the jobs into this lane of the action")
	flags.Int64Var(&s.job.LaneLimit, "lane-limit", 0, "how many jobs of the lane may run at once; 0: one")
	flags.Int64Var(&s.job.Priority, "priority", 0, "-1000 to 1000; jobs of a greater one are handed out first")
	flags.StringVar(&s.job.RunAt, "run-at", "", "earliest time of the first attempt, as in 2027-01-31T09:30:00Z")
	cli.DurationVar(flags, &s.delay, "delay", 0, "earliest time of the first attempt, from now")
	flags.Var(s.recovery, "recovery", "what follows an unknown outcome; empty: as the action declares it, else hold")
	cli.DurationVar(flags, &s.window, "provider-window", 0, "with --recovery resend: how long the provider knows an idempotency key; 0: always")
	cli.DurationVar(flags, &s.settle, "settle", 0, "with --recovery verify: how long after an attempt the provider is asked")
	cli.DurationVar(flags, &s.timeout, "timeout", 0, "end an attempt after this time; 0: never")
	flags.BoolVar(&s.approval, "approval", false, "a person approves the job before it is handed out: see flightd approvals")
	cli.DurationVar(flags, &s.approvalExpires, "approval-expires", 0, "with --approval: reject the job if nobody decides within this time; 0: never")
	flags.IntVar(&s.attempts, "attempts", 0, "how many attempts may end without an effect; 0: eight")
	return c
}

// submitOne submits one job, and with --wait prints its receipt.
func submitOne(ctx context.Context, a *cli.App, c *client.Client, s *submitFlags) error {
	var err error
	if s.job.Input, err = jsonInput(a, s.input, s.hasInput); err != nil {
		return err
	}
	job, err := c.SubmitJob(ctx, s.job)
	if err != nil {
		return err
	}
	if job.Warning != "" {
		a.Say("%s", job.Warning)
	}
	if s.wait != 0 {
		return waitForReceipt(ctx, a, c, job.Key, s.wait)
	}
	f := job.Flight
	return a.Print(map[string]any{"status": job.Status, "flight": f}, cli.Text("%s: %s, %s\n", displayKey(f), job.Status, f.State), f.ID)
}

// submitSummary says what became of the lines of a file.
type submitSummary struct {
	Read       int `json:"read"`
	Queued     int `json:"queued"`
	Duplicates int `json:"duplicates"`
	Conflicts  int `json:"conflicts"`
	Rejected   int `json:"rejected"` // for another reason
}

func (su *submitSummary) String() string {
	text := fmt.Sprintf("%s read: %s queued, %s, %s", cli.GroupDigits(su.Read), cli.GroupDigits(su.Queued),
		cli.Pluralize(su.Duplicates, "duplicate", "duplicates"), cli.Pluralize(su.Conflicts, "conflict", "conflicts"))
	if su.Rejected > 0 {
		text += fmt.Sprintf(", %d rejected", su.Rejected)
	}
	return text + "; safe to run again"
}

// submitRun submits the jobs of a file.
type submitRun struct {
	app    *cli.App
	client *client.Client
	sum    submitSummary
	shown  time.Time // when sum was shown last

	body    []byte // the lines that are not sent yet
	ids     []string
	numbers []int // of these lines in the file
}

// submitFile submits a job for each line, in the order of the lines, in batches of as many lines as can be read without waiting.
// If the process dies, some jobs are queued; the same file again finds them.
func submitFile(ctx context.Context, a *cli.App, c *client.Client, s *submitFlags) error {
	from, err := cli.OpenFile(a, s.file)
	if err != nil {
		return err
	}
	defer from.Close()
	in := bufio.NewReaderSize(from, maxLine)
	lines, run := &lineReader{in: in}, &submitRun{app: a, client: c, shown: time.Now()}
	for err == nil {
		line, failed := lines.next()
		if failed != nil && !errors.Is(failed, errLongLine) {
			err = cmp.Or(run.flush(ctx), failed)
			break
		}
		if len(line) > 0 || failed != nil {
			run.sum.Read++
			r, bad := wire.Decode[wire.SubmitRequest](line)
			switch {
			case failed != nil:
				bad = wire.BadField("", "%v", failed)
			case bad == nil && r.Action != "" && r.Action != s.job.Action:
				bad = wire.BadField("/action", "is %s; the command submits jobs of %s", r.Action, s.job.Action)
			}
			if bad == nil {
				fillJob(&r, &s.job)
				run.body, run.ids, run.numbers = append(strictjson.Append(run.body, &r), '\n'), append(run.ids, r.ID), append(run.numbers, lines.number)
			} else {
				run.sum.Rejected++
				run.complain(lines.number, fmt.Sprintf("%s: %v", bad.Code, bad), bad.Hint)
			}
		}
		if in.Buffered() == 0 || len(run.ids) == maxSubmitLines || len(run.body) > maxSubmitBody {
			err = run.flush(ctx)
		}
	}
	if !errors.Is(err, io.EOF) {
		a.Say("%s", &run.sum)
		return err
	}
	if err := a.Print(&run.sum, cli.Text("%v\n", &run.sum)); err != nil {
		return err
	}
	if run.sum.Conflicts+run.sum.Rejected > 0 {
		return cli.ExitStatus(cli.ExitFailed)
	}
	return nil
}

// flush submits the lines that are not sent yet, and counts what became of each.
func (sr *submitRun) flush(ctx context.Context) error {
	if len(sr.ids) == 0 {
		return nil
	}
	results, err := sr.client.SubmitLines(ctx, sr.body, sr.ids)
	for i, r := range results {
		problem, failed := errors.AsType[*client.Error](r.Err)
		switch {
		case r.Status == client.Queued:
			sr.sum.Queued++
			continue
		case r.Status == client.Duplicate:
			sr.sum.Duplicates++
			continue
		case !failed:
			continue
		case problem.Problem.Code == wire.Conflict:
			sr.sum.Conflicts++
		default:
			sr.sum.Rejected++
		}
		_, message, hint := cli.Explain(sr.app.CallError(problem))
		sr.complain(sr.numbers[i], message, hint)
	}
	sr.body, sr.ids, sr.numbers = sr.body[:0], sr.ids[:0], sr.numbers[:0]
	if err == nil && sr.app.OnTerminal() && time.Since(sr.shown) > time.Second {
		sr.shown = time.Now()
		sr.app.Say("%s", &sr.sum)
	}
	return err
}

// complain says why a line was rejected, for the first of such lines. The summary has counted it.
func (sr *submitRun) complain(number int, message, hint string) {
	switch n := sr.sum.Conflicts + sr.sum.Rejected; {
	case n <= maxInvalidLines:
		sr.app.Complain(fmt.Sprintf("line %d: %s", number, message), hint)
	case n == maxInvalidLines+1:
		sr.app.Say("further rejected lines are counted, and not shown")
	}
}

// The lines of one request, and their bytes, less the last line.
const (
	maxSubmitLines = 2000
	maxSubmitBody  = 1 << 20
)

// fillJob sets the fields that a line does not have.
func fillJob(r, flags *client.SubmitRequest) {
	r.Action = flags.Action
	if r.Lane = cmp.Or(r.Lane, flags.Lane); r.Lane != "" {
		r.LaneLimit = cmp.Or(r.LaneLimit, flags.LaneLimit)
	}
	if r.RunAt == "" && r.DelayMS == 0 {
		r.RunAt, r.DelayMS = flags.RunAt, flags.DelayMS
	}
	if r.Policy == (wire.Policy{}) {
		r.Policy = flags.Policy
	}
	r.Approval = cmp.Or(r.Approval, flags.Approval) // also of a line with a policy: what needs an approval must not run without one
	r.Priority, r.Retry = cmp.Or(r.Priority, flags.Priority), cmp.Or(r.Retry, flags.Retry)
}
