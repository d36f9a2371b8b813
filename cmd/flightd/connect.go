package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os/user"
	"strings"
	"time"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/wire"
)

// lookPatience is how long commands that only look try to reach a server; nothing is lost when they give up.
const lookPatience = 3 * time.Second

// farewell is how long a command stays to report what earlier ones left in the spool.
const farewell = 2 * time.Second

// spoolPatience is how long a command waits until what earlier ones left in the spool is sent: what it asks for may depend
// on it.
const spoolPatience = 2 * time.Second

// connectPatience is how long a server may take to answer at all before a command gives up: enough for one that is
// just being restarted.
const connectPatience = 5 * time.Second

// connect finds a server. Connecting drains the report spool, whatever the command is for, and before it asks for anything:
// the outcome of a flight may lie there.
func (a *app) connect(ctx context.Context, opts ...client.Option) (*client.Client, error) {
	all := append([]client.Option{
		client.WithNamespace(a.namespace),
		client.WithLogger(slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: slog.LevelWarn}))),
	}, opts...)
	patience, cancel := context.WithTimeoutCause(ctx, connectPatience, fmt.Errorf("no answer for %v", connectPatience))
	defer cancel()
	c, err := client.Connect(patience, strings.Join(a.servers, ","), all...)
	var homeless *fs.PathError
	switch _, nowhere := client.DefaultSpool(); {
	case err == nil:
		patience, cancel := context.WithTimeout(ctx, spoolPatience)
		defer cancel()
		c.AwaitSpool(patience)
		return c, nil
	case nowhere != nil, errors.As(err, &homeless):
		return nil, &coded{code: exitConfig, err: err, hint: "set HOME, or XDG_STATE_HOME to a folder of your own: outcomes that no server has taken yet wait there"}
	}
	return nil, callError(err)
}

// withClient runs a command that needs a server and no more than a moment.
func (a *app) withClient(ctx context.Context, do func(*client.Client) error, opts ...client.Option) error {
	c, err := a.connect(ctx, append(opts, client.WithPatience(lookPatience))...)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
		defer cancel()
		_ = c.Close(ctx) // what could not be reported stays on disk
	}()
	return callError(do(c))
}

// person is who decides: as the command line says, else the user of the operating system.
func person(as string) string {
	if as != "" {
		return as
	}
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return ""
}

// callError gives an error of a call its exit code, and says it with its code where it has one.
func callError(err error) error {
	var c *coded
	if err == nil || errors.As(err, &c) {
		return err
	}
	var s silent
	if errors.As(err, &s) {
		return err
	}
	word, code, hint := classOf(err)
	if word != "" {
		err = fmt.Errorf("%s: %w", word, err)
	}
	var said *client.Error
	if errors.As(err, &said) && said.Unwrap() == nil && said.Problem.Hint != "" { // it stands behind the text, and in words of HTTP
		err = fmt.Errorf("%s", strings.TrimSuffix(err.Error(), " ("+said.Problem.Hint+")"))
		hint = orWord(hint, hintHere(&said.Problem))
	}
	return &coded{code: code, err: err, hint: hint}
}

// hintHere is the hint of a problem for somebody at a command line, who sees neither bodies nor ETags.
func hintHere(p *client.Problem) string {
	class, _ := p.Code.Class()
	switch {
	case p.Code == wire.PreconditionFailed && p.Key != "":
		return fmt.Sprintf("flightd why %s tells how it stands, and how it came to that", p.Key)
	case p.Code == wire.InputInvalid && p.Hint == class.Hint: // where the mistake is stands in the message
		return ""
	}
	return p.Hint
}

// classOf is the one table of errors and exit codes.
func classOf(err error) (word string, code int, hint string) {
	var (
		invalid     *flight.InvalidError
		conflict    *effect.Conflict
		busy        *effect.Busy
		doubt       *effect.InDoubt
		unapproved  *effect.Unapproved
		expired     *effect.Expired
		failed      *effect.Failed
		fenced      *effect.Fenced
		missing     *effect.Missing
		unavailable *effect.Unavailable
	)
	switch {
	case errors.As(err, &invalid):
		return "", exitUsage, ""
	case errors.As(err, &conflict):
		return string(wire.Conflict), exitUsage, ""
	case errors.As(err, &busy):
		return string(wire.InFlight), exitBusy, fmt.Sprintf("flightd why %s tells who is at it", busy.Key)
	case errors.As(err, &doubt):
		return string(wire.InDoubt), exitInDoubt, ""
	case errors.As(err, &unapproved):
		return string(wire.ApprovalPending), exitBusy, ""
	case errors.As(err, &expired):
		return string(wire.Expired), exitFailed, fmt.Sprintf("a new intent needs a key of its own; flightd flights free %s --reason WHY gives this one away, and then its effect can happen again", expired.Key)
	case errors.As(err, &failed):
		hint = fmt.Sprintf("flightd flights retry %s --reason WHY lets it run again", failed.Key)
		if failed.Redacted {
			hint = "its input is erased; another try is a new intent with an id of its own"
		}
		return string(wire.FlightFailed), exitFailed, hint
	case errors.As(err, &fenced):
		return string(wire.Fenced), exitInDoubt, ""
	case errors.As(err, &missing):
		return string(wire.NotFound), exitFailed, ""
	case errors.As(err, &unavailable):
		return "", exitUnreachable, unavailableHint(unavailable.Code)
	case errors.Is(err, effect.ErrLeaseLost):
		return string(wire.LeaseLost), exitBusy, ""
	case errors.Is(err, context.DeadlineExceeded):
		return "", exitUnreachable, ""
	}
	switch client.CodeOf(err) { // these errors say their codes themselves
	case wire.Forbidden, wire.Unauthenticated:
		return "", exitForbidden, ""
	case wire.InputInvalid, wire.KeyInvalid, wire.KeyRequired, wire.PayloadTooLarge:
		return "", exitUsage, ""
	}
	return "", exitFailed, ""
}

// unavailableHint says what to do about a server that is not there, or is and cannot decide.
func unavailableHint(code string) string {
	if code == "unreachable" {
		return "is flightd running? flightd dev starts one; --server or FLIGHTD_ADDR says where it is"
	}
	return "asking again is safe; flightd doctor says what is missing there"
}
