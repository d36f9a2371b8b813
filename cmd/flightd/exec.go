package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/lease"
)

// execFlags hold the flags of exec.
type execFlags struct {
	key         string
	ttl         time.Duration
	timeout     time.Duration
	wait        waitValue
	capture     sizeValue
	recovery    *choice
	failure     *choice
	notDone     codesValue
	fingerprint *choice
	leaseLost   *choice
	input       string
	reportWait  time.Duration
	truncated   bool // a replay of output that is not stored whole is no failure
}

func (a *app) execCommand() *cobra.Command {
	f := execFlags{
		wait: waitValue(20 * time.Second), capture: 48 << 10,
		recovery: newChoice("hold", "resend"), failure: newChoice("unknown", "not_done", "refused"),
		fingerprint: newChoice("command", "none"), leaseLost: newChoice("finish", "kill"),
	}
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
pass the first to a provider that honours idempotency keys. Its standard input is empty, or the file of --input.

While another caller holds the key, exec waits (--wait) and prints after two seconds which process holds it.

Signals are forwarded to the command. After the command has ended, the first signal prints that the outcome is being
reported; the second one leaves the report on disk for the next flightd command. Ctrl-Z stops exec and the command, and
the session ends within --ttl.`,
		Example: `  flightd exec --key charge/order-42 -- ./charge.sh 42
  flightd exec --key nightly/2026-03-01 --timeout 1h --recovery resend -- ./report.sh
  flightd exec --key stock/order-42 --not-done-exit 75 -- ./reserve.sh
  flightd exec --key mail/case-17 --input letter.json -- ./send.sh`,
		Args: func(cmd *cobra.Command, args []string) error {
			if f.key == "" && cmd.ArgsLenAtDash() == 1 {
				return usageError("--key is missing: flightd exec --key %s -- …", args[0])
			}
			if cmd.ArgsLenAtDash() != 0 || len(args) == 0 {
				return usageError("write the command after --, as in flightd exec --key order-42 -- ./charge.sh 42")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.exec(context.WithoutCancel(cmd.Context()), f, args) // signals are forwarded to the command
		},
	}
	flags := c.Flags()
	flags.StringVarP(&f.key, "key", "k", "", "ID or NAME/ID of the intent, where %2F is a / of the id; build it from business identifiers, never from the clock or the attempt")
	flags.DurationVar(&f.ttl, "ttl", lease.DefaultTTL, "how long the key stays blocked after this process dies; whole seconds, at least 2s")
	flags.DurationVar(&f.timeout, "timeout", 0, "end the command after this time, with unknown outcome whatever its exit code; 0: never")
	flags.Var(&f.wait, "wait", "how long to wait while another caller holds the key: a duration, 0 or forever")
	flags.Var(&f.capture, "capture", "bytes of output kept for the replay, stdout and stderr together")
	flags.BoolVar(&f.truncated, "allow-truncated", false, "exit with the command's own code even if the replayed output is not complete")
	flags.Var(f.recovery, "recovery", "what follows an unknown outcome")
	flags.Var(f.failure, "failure", "the outcome of an exit code other than 0 and those of --not-done-exit")
	flags.Var(&f.notDone, "not-done-exit", "an exit code, 1 to 125, with which the command reports that nothing was done, as in 75; may be repeated")
	flags.Var(f.fingerprint, "fingerprint", "what must be equal in all calls with one key: command and input, or nothing")
	flags.Var(f.leaseLost, "on-lease-lost", "if the session is lost during the run: let the command finish, or kill it")
	flags.StringVar(&f.input, "input", "", "file for the command's standard input, stored with the flight; - reads standard input")
	flags.DurationVar(&f.reportWait, "report-wait", 5*time.Minute, "how long to retry the report while flightd is unreachable; then it stays on disk")
	return c
}

// commandInput is the stored input of a flight: enough to recognize the command. It has no arguments: they may be
// secrets.
type commandInput struct {
	Program     string  `json:"program"`
	ArgvSHA256  string  `json:"argv_sha256"`
	Stdin       *string `json:"stdin,omitempty"`
	StdinBase64 []byte  `json:"stdin_base64,omitempty"`
}

// stdin returns the command's standard input; nil: none.
func (c *commandInput) stdin() []byte {
	if c.Stdin != nil {
		return []byte(*c.Stdin)
	}
	return c.StdinBase64
}

// argvDigest returns a digest of the argument list. Every argument is length-prefixed, so ["a b"] and ["a", "b"]
// differ.
func argvDigest(argv []string) string {
	h := sha256.New()
	var length [8]byte
	for _, arg := range argv {
		binary.BigEndian.PutUint64(length[:], uint64(len(arg)))
		h.Write(length[:])
		io.WriteString(h, arg)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// execCall validates the flags and returns the call.
func (a *app) execCall(f execFlags, argv []string) (effect.Call, error) {
	var call effect.Call
	var err error
	if f.key == "" {
		return call, usageError("--key is required: the name of the intent, such as order-42")
	}
	if call.Key, err = a.newKey(f.key); err != nil {
		return call, err
	}
	if f.ttl < lease.MinTTL || f.ttl > lease.MaxTTL || f.ttl%time.Second != 0 {
		return call, usageError("--ttl %v: whole seconds from %v to %v", f.ttl, lease.MinTTL, lease.MaxTTL)
	}
	if f.timeout < 0 || f.reportWait < 0 {
		return call, usageError("--timeout and --report-wait cannot be negative")
	}
	if f.capture > flight.MaxReceiptBody {
		return call, usageError("--capture %s: a receipt keeps at most %d KiB", f.capture.String(), flight.MaxReceiptBody>>10)
	}
	if call.Submission, err = a.execSubmission(f, argv); err != nil {
		return call, err
	}
	call.Wait = execWait(f.wait)
	return call, nil
}

// execWait converts --wait for effect.Call, where 0 means no bound.
func execWait(w waitValue) time.Duration {
	switch time.Duration(w) {
	case forever:
		return 0
	case 0:
		return time.Nanosecond
	}
	return time.Duration(w)
}

func (a *app) execSubmission(f execFlags, argv []string) (flight.Submission, error) {
	input := commandInput{Program: filepath.Base(argv[0]), ArgvSHA256: argvDigest(argv)}
	if f.input != "" {
		data, err := a.readFile(f.input, flight.MaxInput)
		if err != nil {
			return flight.Submission{}, err
		}
		if input.Stdin, input.StdinBase64 = encodeStream(data); input.Stdin == nil && input.StdinBase64 == nil {
			input.Stdin = new(string) // an empty input differs from no input
		}
	}
	data, err := json.Marshal(input)
	if err != nil {
		return flight.Submission{}, err
	}
	if len(data) > flight.MaxInput {
		return flight.Submission{}, usageError("--input %s: the stored input would have %d bytes; at most %d are allowed", f.input, len(data), flight.MaxInput)
	}
	s := flight.Submission{
		Input:  flight.NewBlob("application/json", data, flight.MaxInput),
		Policy: flight.Policy{AttemptTimeout: f.timeout},
	}
	if s.Policy.Recovery, err = flight.ParseRecovery(f.recovery.value); err != nil {
		return s, usageError("--recovery: %v", err)
	}
	if f.fingerprint.value == "command" {
		s.Fingerprint, err = flight.FingerprintJSON(data, nil)
	}
	return s, err
}

// readFile reads the file of a flag, or standard input for -. It rejects more than limit bytes.
func (a *app) readFile(name string, limit int64) ([]byte, error) {
	var from io.Reader = a.in
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, &exitError{code: exitUsage, err: err}
		}
		defer file.Close()
		from = file
	}
	data, err := io.ReadAll(io.LimitReader(from, limit+1))
	if err != nil {
		return nil, &exitError{code: exitUsage, err: fmt.Errorf("read %s: %w", name, err)}
	}
	if int64(len(data)) > limit {
		return nil, usageError("%s has more than %d bytes", name, limit)
	}
	return data, nil
}
