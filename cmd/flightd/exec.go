package main

import (
	"github.com/spf13/cobra"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/cmd/flightd/internal/exec"
)

func newExecCommand(a *cli.App) *cobra.Command {
	f := exec.NewFlags()
	c := &cobra.Command{
		Use:   "exec --key [NAME/]ID [flags] -- COMMAND [ARGUMENT...]",
		Short: "Run a command once per key; later calls replay its output",
		Long: `Runs a command once per key, from any process on any machine. Every other call with the key gets the command's output,
byte for byte, and its exit code. If the output is longer than --capture, every other call gets its beginning and exit code
74, unless --allow-truncated is given.

Exit code 0 means that the effect happened. A code named with --not-done-exit means that nothing was done: the key stays
free. --failure decides what any other code means; the default is unknown, because a script can fail after it has charged
the card. --recovery decides what follows an unknown outcome: hold waits for a person (flightd doubt resolve), resend runs
the command again.

The outcome is always unknown if the command was killed, ends with 129 or more as a shell does for a killed command, or was
cut short: by --timeout, a forwarded signal or --on-lease-lost kill. A command that was cut short and ends with 0 gets the
exit code of a killed one.

A flightd inside the command exits with 79 instead of 75 if another caller holds its key: the command may have acted
before. It detects this by FLIGHTD_FLIGHT_ID. Do not name 75 with --not-done-exit if env -i, sudo or ssh removes that
variable.

The command's environment has IDEMPOTENCY_KEY, FLIGHTD_KEY, FLIGHTD_FLIGHT_ID, FLIGHTD_FENCING_TOKEN and FLIGHTD_ATTEMPT:
pass the first to a provider that honours idempotency keys. FLIGHTD_TOKEN is removed unless --pass-token is given. Its
standard input is empty, or the file of --input; data on standard input is rejected without --input -.

The command line is stored and shown with a doubt, unless it is longer than 4 KiB or not valid text. Give --secret-args if an argument is a secret.

While another caller holds the key, exec waits (--wait) and prints after two seconds which process holds it.

Signals are forwarded to the command. After the command has ended, the first signal prints that the outcome is being
reported; the second one leaves the report on disk for the next flightd command. Ctrl-Z stops exec and the command, and
the session ends within --ttl.`,
		Example: `  flightd exec --key charge/order-42 -- ./charge.sh 42
  flightd exec --key nightly/2026-03-01 --timeout 1h --recovery resend -- ./report.sh
  flightd exec --key stock/order-42 --not-done-exit 75 -- ./reserve.sh
  flightd exec --key mail/case-17 --input letter.json -- ./send.sh`,
		Args: func(cmd *cobra.Command, args []string) error { return f.CheckArgs(cmd.ArgsLenAtDash(), args) },
		RunE: func(cmd *cobra.Command, args []string) error {
			return exec.Run(cmd.Context(), a, f, args)
		},
	}
	f.Add(c.Flags())
	return c
}

func newWorkCommand(a *cli.App) *cobra.Command {
	f := exec.NewWorkFlags()
	c := &cobra.Command{
		Use:   "work ACTION... [flags] -- COMMAND [ARGUMENT...]",
		Short: "Run a command for each submitted job of an action, until Ctrl-C",
		Long: `Claims the jobs of the actions, and runs the command for each. The command reads the job's input from standard input, and
what it prints to standard output is the receipt: JSON, if other programs read it. Standard error is that of the worker.

Exit code 0 means that the effect happened. A code named with --not-done-exit means that nothing was done: the job is handed
out again, after a pause, until its attempts are used up. --failure decides what any other code means; the default is
unknown, because a script can fail after it has charged the card. The recovery of the job decides what follows an unknown
outcome: hold waits for a person (flightd doubt resolve), resend hands the job out again. The outcome is always unknown if the
command was killed or cut short: see flightd exec --help.

A job has the policy of its submission, else that of its action (flightd actions), else hold. With --recovery, --timeout or
--attempts, the worker declares the policy of its actions, if they have none and its token has the verb define. An action's
policy that is there counts, and the worker does not start if its recovery or its provider window is another one.

The command's environment has IDEMPOTENCY_KEY, FLIGHTD_KEY, FLIGHTD_FLIGHT_ID, FLIGHTD_FENCING_TOKEN and FLIGHTD_ATTEMPT:
pass the first to a provider that honours idempotency keys. FLIGHTD_TOKEN is removed unless --pass-token is given.

After SIGTERM, SIGINT or SIGHUP the worker claims nothing more, and ends when its commands have ended, at the latest after
--drain; a second signal ends the commands. If the worker dies, its commands are killed, and after --ttl each of its jobs is
in doubt, or handed out again, as its recovery says.`,
		Example: `  flightd work charge -- ./charge.sh
  flightd work charge --concurrency 4 --not-done-exit 75 -- ./charge.sh
  flightd work charge --recovery resend --provider-window 24h --attempts 8 -- ./charge.sh
  flightd work mail sms -- ./notify.sh        # FLIGHTD_KEY names the action`,
		Args: func(cmd *cobra.Command, args []string) error { return f.CheckArgs(cmd.ArgsLenAtDash(), args) },
		RunE: func(cmd *cobra.Command, args []string) error {
			if code, isInit, err := exec.RunAsInit(cmd.Context()); isInit {
				if err == nil && code != 0 {
					err = cli.ExitStatus(code)
				}
				return err
			}
			dash := cmd.ArgsLenAtDash()
			return exec.Work(cmd.Context(), a, f, args[:dash], args[dash:])
		},
	}
	f.Add(c.Flags())
	return c
}
