package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/clock"
)

func newQueuesCommand(a *cli.App) *cobra.Command {
	var all bool
	c := cli.CommandGroup("queues", "Show the jobs and the workers of each action, pause and resume actions",
		newQueuesWatchCommand(a),
		queueDecision(a, &cobra.Command{
			Use:   "pause ACTION",
			Short: "Hand out no job of an action until it is resumed",
			Long: `Hands out no job of an action, in one namespace, until flightd queues resume. Jobs that workers have go on; jobs are submitted as
before, and wait. The pause is stored in the ledger, so it survives restarts. Another pause replaces the reason.`,
			Example: "  flightd queues pause charge --reason 'the bank is down'",
		}, (*client.Client).PauseQueue, pausedText),
		queueDecision(a, &cobra.Command{
			Use:     "resume ACTION",
			Short:   "Hand out the jobs of an action again",
			Long:    "Ends the pause of an action. The workers that wait get jobs at once.",
			Example: "  flightd queues resume charge --reason 'the bank is back'",
		}, (*client.Client).ResumeQueue, func(q *client.Queue) string {
			return fmt.Sprintf("the jobs of the action %s are handed out", q.Action)
		}),
		newQueuesDrainCommand(a))
	c.Long = `Shows each action that has jobs or workers, or is paused: how many jobs are ready to be handed out, how many workers have,
how long the oldest ready one has been due, the workers that have asked for jobs within a minute, the jobs in doubt, and how
many jobs end per second. That rate is a mean over half a minute, and is measured at the node that leads the ledger, since it
leads. Below the table are the paused actions, the lanes that wait for a person, and the jobs that keep failing: those that workers
cannot read, or whose last three attempts had no effect. -o json has all numbers.`
	c.Example = "  flightd queues\n  flightd queues -A                                  # in all namespaces\n  flightd queues watch\n" +
		"  flightd queues pause charge --reason 'the bank is down'"
	c.RunE = a.Run(func(ctx context.Context, c *client.Client, _ []string) error {
		queues, err := c.Queues(ctx, all)
		if err != nil {
			return err
		}
		if len(queues) == 0 && a.Format == "table" {
			printEmptyList(a, "queues", all)
		}
		return a.Print(map[string][]client.Queue{"queues": queues}, func(b *strings.Builder) { writeQueues(b, queues, all) }, queueNames(queues)...)
	})
	allNamespacesFlag(c.Flags(), &all)
	return c
}

// queueName is the name of a queue in a list, with its namespace if the list has all.
func queueName(q *client.Queue, everywhere bool) string {
	if everywhere {
		return q.Namespace + "/" + q.Action
	}
	return q.Action
}

func queueNames(queues []client.Queue) (names []string) {
	for i := range queues {
		names = append(names, queues[i].Action)
	}
	return names
}

// writeQueues writes the table of queues, and below it what a person may want to end.
func writeQueues(b *strings.Builder, queues []client.Queue, everywhere bool) {
	var rows [][]string
	var notes []string
	for i := range queues {
		q := &queues[i]
		name, oldest := queueName(q, everywhere), "-"
		if q.Ready > 0 {
			oldest = cli.AgeText(time.Duration(q.OldestReadyMS) * time.Millisecond)
		}
		rows = append(rows, []string{name, strconv.Itoa(q.Ready), strconv.Itoa(q.Running), oldest, strconv.Itoa(q.Workers), strconv.Itoa(q.InDoubt),
			strconv.FormatFloat(q.EndedPerSecond, 'f', 1, 64)})
		if p := q.Paused; p != nil {
			notes = append(notes, fmt.Sprintf("%s is paused since %s by %s: %s", name, cli.FormatTime(p.At.Time), cmp.Or(p.Actor, "an unnamed person"), p.Reason))
		}
		for _, l := range q.StuckLanes {
			notes = append(notes, fmt.Sprintf("%s: lane %s is stuck: %s is in doubt, and %s", name, l.Lane, l.Blocker, cli.Pluralize(l.Behind, "job waits", "jobs wait")))
		}
		for _, f := range q.FailingJobs {
			notes = append(notes, fmt.Sprintf("%s: %s keeps failing: %s", name, f.Key, f.Cause))
		}
		if more := q.Failing - len(q.FailingJobs); more > 0 {
			notes = append(notes, fmt.Sprintf("%s: %s", name, cli.Pluralize(more, "more job keeps failing", "more jobs keep failing")))
		}
	}
	if len(rows) > 0 {
		cli.WriteTable(b, []string{"ACTION", "READY", "RUNNING", "OLDEST", "WORKERS", "DOUBTS", "RATE/s"}, rows)
	}
	for _, note := range notes {
		b.WriteString(cli.OneLine(note) + "\n")
	}
}

// queueRetry is how long a watch and a drain retry while no server answers.
const queueRetry = time.Minute

func newQueuesWatchCommand(a *cli.App) *cobra.Command {
	var all bool
	var every time.Duration
	c := &cobra.Command{
		Use:   "watch",
		Short: "Follow the queues until Ctrl-C",
		Long: `Shows the table of flightd queues again and again on a terminal. Elsewhere it prints a line for each action at first, and then
whenever one of its numbers changes, other than the age and the rate; with -o json a line of JSON.`,
		Example: "  flightd queues watch\n  flightd queues watch -A -o json",
		PreRunE: func(*cobra.Command, []string) error {
			if every < 100*time.Millisecond {
				return cli.UsageError("--every %v: at least 100ms", every)
			}
			return nil
		},
		RunE: a.Run(func(ctx context.Context, c *client.Client, _ []string) error {
			return watchQueues(ctx, a, c, all, every)
		}, client.WithRetryTimeout(queueRetry)),
	}
	allNamespacesFlag(c.Flags(), &all)
	cli.DurationVar(c.Flags(), &every, "every", 2*time.Second, "the pause between two looks")
	return c
}

// clearScreen moves the cursor of a terminal to its first line and clears it.
const clearScreen = "\x1b[H\x1b[2J"

// watchQueues shows the queues until ctx ends.
func watchQueues(ctx context.Context, a *cli.App, c *client.Client, all bool, every time.Duration) error {
	redraw := a.Format == "table" && a.OutOnTerminal()
	seen := make(map[string]string)
	for {
		queues, err := c.Queues(ctx, all)
		if err != nil {
			return ignoreCancelled(ctx, err)
		}
		if redraw {
			var b strings.Builder
			writeQueues(&b, queues, all)
			_, err = io.WriteString(a.Out, clearScreen+b.String())
		} else {
			err = writeQueueChanges(a, queues, seen, all)
		}
		if err != nil {
			return err
		}
		if !clock.Sleep(ctx, every) {
			return nil
		}
	}
}

// writeQueueChanges prints a line for each queue that has changed since the last call, and for each one that is gone.
func writeQueueChanges(a *cli.App, queues []client.Queue, seen map[string]string, all bool) error {
	now := make(map[string]bool)
	for _, q := range queues {
		now[queueName(&q, true)] = true
	}
	for name := range seen {
		if !now[name] {
			namespace, action, _ := strings.Cut(name, "/")
			queues = append(queues, client.Queue{Namespace: namespace, Action: action})
		}
	}
	for i := range queues {
		q := &queues[i]
		name := queueName(q, true)
		line := fmt.Sprintf("%s  ready %d  running %d  scheduled %d  waiting %d  in doubt %d  held %d  workers %d", queueName(q, all),
			q.Ready, q.Running, q.Scheduled, q.Waiting, q.InDoubt, q.Held, q.Workers)
		if q.Paused != nil {
			line += "  paused: " + cli.OneLine(q.Paused.Reason)
		}
		if seen[name] == line {
			continue
		}
		seen[name] = line
		if err := a.PrintStreamed(q, time.Now().UTC().Format("15:04:05Z")+"  "+line); err != nil {
			return err
		}
	}
	maps.DeleteFunc(seen, func(name, _ string) bool { return !now[name] })
	return nil
}

// pausedText describes an action that is paused.
func pausedText(q *client.Queue) string {
	return fmt.Sprintf("the action %s is paused; %s", q.Action, cli.Pluralize(q.Running, "of its jobs is still running", "of its jobs are still running"))
}

// queueCall is a client method that changes one action.
type queueCall func(c *client.Client, ctx context.Context, action, reason string) (*client.Queue, error)

// queueDecision completes a command that changes one action.
func queueDecision(a *cli.App, c *cobra.Command, change queueCall, done func(*client.Queue) string) *cobra.Command {
	c.Args = cli.ExactArgs(1, "an action")
	return a.Decision(c, nil, func(ctx context.Context, c *client.Client, args []string, reason string) error {
		q, err := change(c, ctx, args[0], reason)
		if err != nil {
			return err
		}
		return printQueueDone(a, q, done(q))
	})
}

// printQueueDone confirms a change of a queue: in words on standard error, or in the format of -o.
func printQueueDone(a *cli.App, q *client.Queue, what string) error {
	if a.Format == "table" {
		a.Say("%s", what)
	}
	return a.PrintUnlessTable(q.Action, q)
}

func newQueuesDrainCommand(a *cli.App) *cobra.Command {
	var wait time.Duration
	c := &cobra.Command{
		Use:   "drain ACTION",
		Short: "Pause an action, and wait until none of its jobs runs",
		Long: `Pauses an action as flightd queues pause does, and waits until no worker has one of its jobs. A job that waits for the callback of
its provider does not run. The action stays paused: also if the command is interrupted, and if --wait ends first, which is
exit code 1.`,
		Example: "  flightd queues drain charge --reason 'new version of the workers' && ./deploy.sh && flightd queues resume charge --reason deployed",
		Args:    cli.ExactArgs(1, "an action"),
	}
	cli.DurationVar(c.Flags(), &wait, "wait", 0, "wait at most so long; 0: until none runs")
	return a.Decision(c, nil, func(ctx context.Context, c *client.Client, args []string, reason string) error {
		q, err := c.PauseQueue(ctx, args[0], reason)
		if err != nil {
			return err
		}
		waitCtx, cancel := context.WithCancel(ctx)
		if wait > 0 {
			waitCtx, cancel = context.WithTimeout(ctx, wait)
		}
		defer cancel()
		for said := 0; q.Running > 0; {
			if q.Running != said {
				said = q.Running
				a.Say("%s", pausedText(q))
			}
			if !clock.Sleep(waitCtx, drainInterval) {
				return &cli.Error{Code: cli.ExitFailed, Err: errors.New("the action stays paused; " + cli.Pluralize(said, "of its jobs is", "of its jobs are") + " still running"),
					Hint: "run the command again to wait on, or flightd queues resume " + args[0]}
			}
			queues, err := c.Queues(ctx, false)
			if err != nil {
				return err
			}
			i := slices.IndexFunc(queues, func(found client.Queue) bool { return found.Action == args[0] })
			if i < 0 || queues[i].Paused == nil {
				return &cli.Error{Code: cli.ExitFailed, Err: fmt.Errorf("somebody has resumed the action %s", args[0]), Hint: "flightd audit ls says who"}
			}
			q = &queues[i]
		}
		return printQueueDone(a, q, fmt.Sprintf("the action %s is paused, and none of its jobs is running", args[0]))
	}, client.WithRetryTimeout(queueRetry))
}

// drainInterval is how often drain looks.
const drainInterval = 500 * time.Millisecond

func newLanesCommand(a *cli.App) *cobra.Command {
	return cli.CommandGroup("lanes", "Show the jobs of a lane, and what blocks it", &cobra.Command{
		Use:   "show (ACTION LANE | KEY-or-ID)",
		Short: "Show the jobs of a lane in their order, and what blocks it",
		Long: `Shows the jobs of a lane that are not over, in the order in which they run, which of them the lane lets open, and what keeps the lane
from going on. Name the lane by its action and its name, or by one of its jobs.`,
		Example: "  flightd lanes show charge customer/7\n  flightd lanes show charge/order-42               # the lane of this job",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return nil
			}
			return cli.ExactArgs(2, "an action and a lane, or a key or an id")(cmd, args)
		},
		RunE: a.Run(func(ctx context.Context, c *client.Client, args []string) error {
			lane, err := findLane(ctx, a, c, args)
			if err != nil {
				return err
			}
			var ids []string
			for _, j := range lane.Jobs {
				ids = append(ids, j.FlightID)
			}
			return a.Print(lane, func(b *strings.Builder) { writeLane(b, lane) }, ids...)
		}),
	})
}

// findLane reads the lane that is named by an action and a name, or by one of its jobs.
func findLane(ctx context.Context, a *cli.App, c *client.Client, args []string) (*client.LaneJobs, error) {
	if len(args) == 2 {
		return c.LaneJobs(ctx, args[0], args[1])
	}
	f, _, err := a.FindFlight(ctx, c, args[0], false)
	if err != nil {
		return nil, err
	}
	key, err := flight.ParseStoredKey(f.Key)
	if err != nil {
		return nil, err
	}
	return c.LaneOf(ctx, key)
}

func writeLane(b *strings.Builder, lane *client.LaneJobs) {
	fmt.Fprintf(b, "lane %s of %s/%s: %s\n", cli.OneLine(lane.Lane), lane.Namespace, lane.Action, cli.Pluralize(lane.Total, "job", "jobs"))
	if len(lane.Jobs) == 0 {
		return
	}
	var rows [][]string
	for i, j := range lane.Jobs {
		open := "waits"
		if j.MayOpen {
			open = "may run"
		}
		rows = append(rows, []string{strconv.Itoa(i + 1), j.Key, j.State, open})
	}
	cli.WriteTable(b, []string{"#", "KEY", "STATE", "LANE"}, rows)
	if more := lane.Total - len(lane.Jobs); more > 0 {
		fmt.Fprintf(b, "%s not shown\n", cli.Pluralize(more, "more job is", "more jobs are"))
	}
	if lane.BlockedBy != "" {
		fmt.Fprintf(b, "blocked: %s\n", cli.OneLine(lane.BlockedBy))
	} else {
		fmt.Fprintln(b, "nothing blocks it")
	}
}
