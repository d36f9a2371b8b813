package exec

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
)

// commandInput is the stored input of a flight: enough to recognize the command.
type commandInput struct {
	Program     string   `json:"program"`
	Argv        []string `json:"argv,omitempty"` // for people; absent with --secret-args, if it is long, and if no JSON holds it
	ArgvSHA256  string   `json:"argv_sha256"`
	Stdin       *string  `json:"stdin,omitempty"`
	StdinBase64 []byte   `json:"stdin_base64,omitempty"`
}

// stdin returns the command's standard input, or nil for an empty one.
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

// newCall validates the flags and returns the call.
func newCall(a *cli.App, f *Flags, argv []string) (effect.Call, error) {
	var call effect.Call
	var err error
	if f.key == "" {
		return call, cli.UsageError("--key is required: the name of the intent, such as order-42")
	}
	if call.Key, err = a.NewKey(f.key); err != nil {
		return call, err
	}
	if err := f.check(); err != nil {
		return call, err
	}
	if f.capture > flight.MaxReceiptBody {
		return call, cli.UsageError("--capture %s: a receipt keeps at most %d KiB", cli.SizeText(f.capture), flight.MaxReceiptBody>>10)
	}
	if call.Submission, err = newSubmission(a, f, argv); err != nil {
		return call, err
	}
	call.Wait = waitBound(f.wait)
	return call, nil
}

// maxStoredArgv bounds the bytes of the command line that is stored.
const maxStoredArgv = 4 << 10

// waitBound converts --wait for effect.Call, where 0 means no bound.
func waitBound(w time.Duration) time.Duration {
	switch w {
	case cli.Forever:
		return 0
	case 0:
		return time.Nanosecond
	}
	return w
}

func newSubmission(a *cli.App, f *Flags, argv []string) (flight.Submission, error) {
	input := commandInput{Program: filepath.Base(argv[0]), ArgvSHA256: argvDigest(argv)}
	if f.input == "" && cli.UnreadInput(a.In, cli.FirstByte) {
		return flight.Submission{}, &cli.Error{Code: cli.ExitUsage, Err: errors.New("standard input has data, which the command would not get; nothing was run"),
			Hint: "--input - stores it and passes it on; </dev/null gives the command an empty one"}
	}
	if f.input != "" {
		data, err := cli.ReadFile(a, f.input, flight.MaxInput)
		if err != nil {
			return flight.Submission{}, err
		}
		if len(data) == 0 {
			a.Say("--input %s is empty: so is the command's standard input", f.input)
		}
		if input.Stdin, input.StdinBase64 = encodeStream(data); input.Stdin == nil && input.StdinBase64 == nil {
			input.Stdin = new(string) // an empty input differs from no input
		}
	}
	fingerprinted, err := json.Marshal(input)
	if err != nil {
		return flight.Submission{}, err
	}
	data := fingerprinted
	if line := strings.Join(argv, " "); !f.secretArgs && len(line) <= maxStoredArgv && utf8.ValidString(line) {
		input.Argv = argv // outside the fingerprint: a call with --secret-args is the same call
		with, err := json.Marshal(input)
		if err != nil {
			return flight.Submission{}, err
		}
		if _, err = flight.CanonicalJSON(with); err == nil { // else an argument has a character that no input may have
			data = with
		}
	}
	if len(data) > flight.MaxInput {
		return flight.Submission{}, cli.UsageError("--input %s: the stored input would have %d bytes; at most %d are allowed", f.input, len(data), flight.MaxInput)
	}
	s := flight.Submission{
		Input:  flight.NewBlob("application/json", data, flight.MaxInput),
		Policy: flight.Policy{AttemptTimeout: f.timeout},
	}
	if s.Policy.Recovery, err = flight.ParseRecovery(f.recovery.Value); err != nil {
		return s, cli.UsageError("--recovery: %v", err)
	}
	if f.fingerprint.Value == "command" {
		s.Fingerprint, err = flight.FingerprintJSON(fingerprinted, nil)
	}
	return s, err
}
