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

// execFlags are what a person says about a command.
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
}

func (a *app) execCommand() *cobra.Command {
	f := execFlags{
		wait: waitValue(20 * time.Second), capture: 48 << 10,
		recovery: newChoice("hold", "resend"), failure: newChoice("unknown", "not_done", "refused"),
		fingerprint: newChoice("command", "none"), leaseLost: newChoice("finish", "kill"),
	}
	c := &cobra.Command{
		Use:   "exec --key [NAME/]ID [flags] -- COMMAND [ARGUMENT...]",
		Short: "Run a command once per key, then replay its output: flock(1) with a memory",
		Long: `Runs a command once per key, whoever asks, how often and from where. Everybody else gets what it printed, byte for
byte, and its exit code.

Exit 0 of the command means that it happened. A code that --not-done-exit names means that it surely did not (the key
stays free). Any other is what --failure says, by default unknown: a script can fail after it has charged the card.
Of a command that was killed, or whose shell says so by 129 and more, the outcome is always unknown. What becomes of an
unknown outcome is what --recovery says: hold waits for a person (flightd doubt resolve), resend runs the command again.

A flightd inside of the command ends with 79 instead of 75 where somebody else is at it: that says nothing of what the
command did before. It knows where it is by FLIGHTD_FLIGHT_ID: do not name 75 where env -i, sudo or ssh takes that away.

The command finds IDEMPOTENCY_KEY, FLIGHTD_KEY, FLIGHTD_FLIGHT_ID, FLIGHTD_FENCING_TOKEN and FLIGHTD_ATTEMPT in its
environment: pass the first on to a provider that honours such a key. Its standard input is empty, or what --input names.

Signals go to the command. While the outcome of one that has ended is reported, a first signal is told so, and a second
one leaves the report on disk for the next flightd command. Ctrl-Z stops both, and the claim on the key is lost within --ttl.`,
		Example: `  flightd exec --key charge/order-42 -- ./charge.sh 42
  flightd exec --key nightly/2026-03-01 --timeout 1h --recovery resend -- ./report.sh
  flightd exec --key stock/order-42 --not-done-exit 75 -- ./reserve.sh
  flightd exec --key mail/case-17 --input letter.json -- ./send.sh`,
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.ArgsLenAtDash() != 0 || len(args) == 0 {
				return usage("the command stands behind --: flightd exec --key order-42 -- ./charge.sh 42")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.exec(context.WithoutCancel(cmd.Context()), f, args) // signals are the command's
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.key, "key", "", "names the intent: ID, or NAME/ID; built from business identifiers, never from the clock or the attempt")
	flags.DurationVar(&f.ttl, "ttl", lease.DefaultTTL, "how long the key stays claimed when this process vanishes; whole seconds, at least 2s")
	flags.DurationVar(&f.timeout, "timeout", 0, "kill the command after so long, with unknown outcome; 0: never")
	flags.Var(&f.wait, "wait", "how long to wait for somebody else's run: a duration, 0 or forever")
	flags.Var(&f.capture, "capture", "how much output is kept for the replay, stdout and stderr together")
	flags.Var(f.recovery, "recovery", "what to do about an unknown outcome")
	flags.Var(f.failure, "failure", "what an exit code other than 0 means that --not-done-exit does not name")
	flags.Var(&f.notDone, "not-done-exit", "an exit code by which the whole command says that nothing was done, 1 to 125, as in 75; may be repeated")
	flags.Var(f.fingerprint, "fingerprint", "what must be the same under one key: command and input, or nothing")
	flags.Var(f.leaseLost, "on-lease-lost", "when the claim on the key is lost in mid-run: let the command finish, or kill it")
	flags.StringVar(&f.input, "input", "", "file for the command's standard input, stored with the flight; - is this program's own")
	flags.DurationVar(&f.reportWait, "report-wait", 5*time.Minute, "how long to try to report the outcome when flightd is unreachable; the report stays on disk")
	return c
}

// commandInput is what is stored of a command: enough to know it again. Arguments may hold secrets.
type commandInput struct {
	Program     string  `json:"program"`
	ArgvSHA256  string  `json:"argv_sha256"`
	Stdin       *string `json:"stdin,omitempty"`
	StdinBase64 []byte  `json:"stdin_base64,omitempty"`
}

// stdin is what the command reads, nil for nothing.
func (c *commandInput) stdin() []byte {
	if c.Stdin != nil {
		return []byte(*c.Stdin)
	}
	return c.StdinBase64
}

// argvDigest tells two command lines apart, however their words are cut.
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

// call is what exec asks flightd for.
func (a *app) execCall(f execFlags, argv []string) (effect.Call, error) {
	var call effect.Call
	var err error
	if f.key == "" {
		return call, usage("--key is required: it names the intent, such as order-42")
	}
	if call.Key, err = a.newKey(f.key); err != nil {
		return call, err
	}
	if f.ttl < lease.MinTTL || f.ttl > lease.MaxTTL || f.ttl%time.Second != 0 {
		return call, usage("--ttl %v: whole seconds from %v to %v", f.ttl, lease.MinTTL, lease.MaxTTL)
	}
	if f.timeout < 0 || f.reportWait < 0 {
		return call, usage("--timeout and --report-wait cannot be negative")
	}
	if f.capture > flight.MaxReceiptBody {
		return call, usage("--capture %s: a receipt keeps at most %d KiB", f.capture.String(), flight.MaxReceiptBody>>10)
	}
	if call.Submission, err = a.execSubmission(f, argv); err != nil {
		return call, err
	}
	call.Wait = execWait(f.wait)
	return call, nil
}

// execWait is the wait as a call has it, where 0 means as long as it takes.
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
			input.Stdin = new(string) // an empty input is not the same as none
		}
	}
	data, err := json.Marshal(input)
	if err != nil {
		return flight.Submission{}, err
	}
	if len(data) > flight.MaxInput {
		return flight.Submission{}, usage("--input %s: with what is stored beside it, it is %d bytes; at most %d are kept", f.input, len(data), flight.MaxInput)
	}
	s := flight.Submission{
		Input:  flight.NewBlob("application/json", data, flight.MaxInput),
		Policy: flight.Policy{AttemptTimeout: f.timeout},
	}
	if s.Policy.Recovery, err = flight.ParseRecovery(f.recovery.value); err != nil {
		return s, usage("--recovery: %v", err)
	}
	if f.fingerprint.value == "command" {
		s.Fingerprint, err = flight.FingerprintJSON(data, nil)
	}
	return s, err
}

// readFile reads a file that a flag names, - for standard input, refusing more than limit bytes.
func (a *app) readFile(name string, limit int64) ([]byte, error) {
	var from io.Reader = a.in
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, &coded{code: exitUsage, err: err}
		}
		defer file.Close()
		from = file
	}
	data, err := io.ReadAll(io.LimitReader(from, limit+1))
	if err != nil {
		return nil, &coded{code: exitUsage, err: fmt.Errorf("read %s: %w", name, err)}
	}
	if int64(len(data)) > limit {
		return nil, usage("%s is longer than the %d bytes that are kept", name, limit)
	}
	return data, nil
}
