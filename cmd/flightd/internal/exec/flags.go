package exec

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/lease"
)

// Flags hold the flags of exec.
type Flags struct {
	key         string
	ttl         time.Duration
	timeout     time.Duration
	wait        time.Duration
	capture     int
	recovery    *cli.Choice
	failure     *cli.Choice
	notDone     []int
	fingerprint *cli.Choice
	leaseLost   *cli.Choice
	input       string
	reportWait  time.Duration
	secretArgs  bool // the arguments are not stored
	passToken   bool // the command gets FLIGHTD_TOKEN
	truncated   bool // a replay of output that is not stored whole is no failure
}

// NewFlags returns the defaults of the flags that have a type of their own.
func NewFlags() *Flags {
	return &Flags{
		recovery: cli.NewChoice("hold", "resend"), failure: cli.NewChoice("unknown", "not_done", "refused"),
		fingerprint: cli.NewChoice("command", "none"), leaseLost: cli.NewChoice("finish", "kill"),
	}
}

// CheckArgs rejects a command line without a command behind --. dash is the number of arguments before the --, or negative
// without one.
func (f *Flags) CheckArgs(dash int, args []string) error {
	if f.key == "" && dash == 1 {
		return cli.UsageError("--key is missing: flightd exec --key %s -- …", args[0])
	}
	if dash != 0 || len(args) == 0 {
		return cli.UsageError("write the command after --, as in flightd exec --key order-42 -- ./charge.sh 42")
	}
	return nil
}

// Add adds the flags to those of a command.
func (f *Flags) Add(flags *pflag.FlagSet) {
	flags.StringVarP(&f.key, "key", "k", "", "ID or NAME/ID of the intent, where %2F is a / of the id; build it from business identifiers, never from the clock or the attempt")
	cli.DurationVar(flags, &f.timeout, "timeout", 0, "end the command after this time, with unknown outcome whatever its exit code; 0: never")
	cli.WaitVar(flags, &f.wait, "wait", 20*time.Second, "how long to wait while another caller holds the key: a duration, 0 or forever")
	cli.SizeVar(flags, &f.capture, "capture", 48<<10, "bytes of output kept for the replay, stdout and stderr together")
	flags.BoolVar(&f.truncated, "allow-truncated", false, "exit with the command's own code even if the replayed output is not complete")
	flags.Var(f.recovery, "recovery", "what follows an unknown outcome")
	flags.Var(f.fingerprint, "fingerprint", "what must be equal in all calls with one key: command and input, or nothing")
	flags.StringVar(&f.input, "input", "", "file for the command's standard input, stored with the flight; - reads standard input")
	flags.BoolVar(&f.secretArgs, "secret-args", false, "store only the digest of the arguments, because they are secrets; without it, people see the command line with a doubt")
	f.addCommon(flags)
}

// addCommon adds the flags that exec and work share.
func (f *Flags) addCommon(flags *pflag.FlagSet) {
	cli.DurationVar(flags, &f.ttl, "ttl", lease.DefaultTTL, "how long the key stays blocked after this process dies; whole seconds, at least 2s")
	flags.Var(f.failure, "failure", "the outcome of an exit code other than 0 and those of --not-done-exit")
	cli.CodesVar(flags, &f.notDone, "not-done-exit", "an exit code, 1 to 125, with which the command reports that nothing was done, as in 75; may be repeated")
	flags.Var(f.leaseLost, "on-lease-lost", "if the session is lost during the run: let the command finish, or kill it")
	flags.BoolVar(&f.passToken, "pass-token", false, "keep FLIGHTD_TOKEN in the command's environment, for a flightd inside it")
	cli.DurationVar(flags, &f.reportWait, "report-wait", 5*time.Minute, "how long to retry the report while flightd is unreachable; then it stays on disk")
}

// check rejects values of the flags that no server is needed for.
func (f *Flags) check() error {
	if f.ttl < lease.MinTTL || f.ttl > lease.MaxTTL || f.ttl%time.Second != 0 {
		return cli.UsageError("--ttl %v: whole seconds from %v to %v", f.ttl, lease.MinTTL, lease.MaxTTL)
	}
	if f.timeout < 0 || f.reportWait < 0 {
		return cli.UsageError("--timeout and --report-wait cannot be negative")
	}
	return nil
}
