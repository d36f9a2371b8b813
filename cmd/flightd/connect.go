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
	"github.com/flightd/flightd/httpapi/wire"
)

// queryTimeout is how long read-only commands try to reach a server. Nothing is lost when they give up.
const queryTimeout = 3 * time.Second

// closeTimeout is how long a command that is about to end keeps sending spooled reports.
const closeTimeout = 2 * time.Second

// spoolTimeout is how long a command waits, before its first request, for spooled reports to be sent: the answer may
// depend on them.
const spoolTimeout = 2 * time.Second

// connectTimeout is how long a command waits for the first answer of a server: enough for a restart.
const connectTimeout = 5 * time.Second

// connect connects to the first server that answers, and sends the spooled reports before it returns: the outcome of
// the flight that the command asks about may be among them.
func (a *app) connect(ctx context.Context, opts ...client.Option) (*client.Client, error) {
	all, err := a.clientOptions()
	if err != nil {
		return nil, err
	}
	if file := a.exposedToken(); file != "" {
		a.say("other users of this machine may read the token in %s; run chmod 600 %s", file, file)
	}
	all = append(append(all, client.WithLogger(slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: slog.LevelWarn})))), opts...)
	waitCtx, cancel := context.WithTimeoutCause(ctx, connectTimeout, fmt.Errorf("no answer for %v", connectTimeout))
	defer cancel()
	c, err := client.Connect(waitCtx, strings.Join(a.servers, ","), all...)
	var pathErr *fs.PathError
	switch _, noSpool := client.DefaultSpoolDir(); {
	case err == nil:
		waitCtx, cancel := context.WithTimeout(ctx, spoolTimeout)
		defer cancel()
		c.WaitForSpool(waitCtx)
		return c, nil
	case noSpool != nil, errors.As(err, &pathErr):
		return nil, &exitError{code: exitConfig, err: err, hint: "set HOME, or set XDG_STATE_HOME to a directory that you own; outcomes that no server has stored yet are kept there"}
	}
	return nil, a.callError(err)
}

// withClient runs a short command with a client and closes the client.
func (a *app) withClient(ctx context.Context, do func(*client.Client) error, opts ...client.Option) error {
	c, err := a.connect(ctx, append(opts, client.WithRetryTimeout(queryTimeout))...)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		_ = c.Close(ctx) // reports that were not sent stay in the spool
	}()
	return a.callError(do(c))
}

// actorName returns the actor of a decision: the value of --actor, else the name of the OS user.
func actorName(actor string) string {
	if actor != "" {
		return actor
	}
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return ""
}

// callError adds the exit code and the hint to an error of a request, and prefixes its text with its code, if it has
// one.
func (a *app) callError(err error) error {
	var exit *exitError
	if err == nil || errors.As(err, &exit) {
		return err
	}
	var status exitStatus
	if errors.As(err, &status) {
		return err
	}
	word, code, hint := a.classOf(err)
	if word != "" {
		err = fmt.Errorf("%s: %w", word, err)
	}
	var apiErr *client.Error
	if errors.As(err, &apiErr) && apiErr.Unwrap() == nil && apiErr.Problem.Hint != "" {
		// The error's text ends with the hint, which is worded for HTTP.
		err = fmt.Errorf("%s", strings.TrimSuffix(err.Error(), " ("+apiErr.Problem.Hint+")"))
		hint = orDefault(hint, cliHint(&apiErr.Problem))
	}
	if token, from, bad := a.token(); code == exitForbidden && bad == nil && token != "" {
		hint = strings.TrimPrefix(hint+"; the token in use is "+from.Name+" from "+from.Origin, "; ")
	}
	return &exitError{code: code, err: err, hint: hint}
}

// cliHint rewords the hint of a problem for the command line, where bodies and ETags are not visible.
func cliHint(p *client.Problem) string {
	class, _ := p.Code.Class()
	switch {
	case p.Code == wire.PreconditionFailed && p.Key != "":
		return fmt.Sprintf("run flightd why %s to see its state and its history", p.Key)
	case p.Code == wire.InputInvalid && p.Hint == class.Hint: // the message already names the field
		return ""
	case p.Code == wire.Unauthenticated:
		return setTokenHint
	}
	return p.Hint
}

// classOf is the single table of errors and exit codes.
func (a *app) classOf(err error) (word string, code int, hint string) {
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
		return string(wire.InFlight), exitBusy, fmt.Sprintf("run flightd why %s to see which process runs it", busy.Key)
	case errors.As(err, &doubt):
		return string(wire.InDoubt), exitInDoubt, ""
	case errors.As(err, &unapproved):
		return string(wire.ApprovalPending), exitBusy, ""
	case errors.As(err, &expired):
		return string(wire.Expired), exitFailed, fmt.Sprintf("use a new key for a new intent; flightd flights free %s --reason WHY frees this key, and its effect can then happen again", expired.Key)
	case errors.As(err, &failed):
		hint = fmt.Sprintf("run flightd flights retry %s --reason WHY to let it run again", failed.Key)
		if failed.Redacted {
			hint = "its input is erased; use a new id for another try"
		}
		return string(wire.FlightFailed), exitFailed, hint
	case errors.As(err, &fenced):
		return string(wire.Fenced), exitInDoubt, ""
	case errors.As(err, &missing):
		return string(wire.NotFound), exitFailed, ""
	case errors.As(err, &unavailable):
		return "", exitUnreachable, orDefault(tlsHint(err), a.unavailableHint(unavailable.Code))
	case errors.Is(err, effect.ErrLeaseLost):
		return string(wire.LeaseLost), exitBusy, ""
	case errors.Is(err, context.DeadlineExceeded):
		return "", exitUnreachable, ""
	}
	switch client.CodeOf(err) { // the text of these errors contains the code
	case wire.Forbidden, wire.Unauthenticated:
		return "", exitForbidden, ""
	case wire.InputInvalid, wire.KeyInvalid, wire.KeyRequired, wire.PayloadTooLarge:
		return "", exitUsage, ""
	case wire.WrongDeployment:
		if pin := a.setting("deployment"); pin.Value != "" {
			return "", exitConfig, "correct --server or FLIGHTD_ADDR, or the deployment from " + pin.Origin
		}
	}
	return "", exitFailed, ""
}

// unavailableHint returns the hint for a server that does not answer, or that answers but cannot decide now.
func (a *app) unavailableHint(code string) string {
	const limit = ", or ask an administrator to raise the limit with flightd namespace set %s %s"
	switch {
	case code == "unreachable":
		return a.serverHint()
	case code == string(wire.Reconciling):
		return "retry when an operator has looked up what flightd restore asked lists, and has run flightd restore finish"
	case code == string(wire.RateLimited):
		return fmt.Sprintf("retry later, which is safe"+limit, a.namespace, "--opens-per-second")
	case code == string(wire.TooManyOpen):
		return fmt.Sprintf("wait until open attempts are reported"+limit, a.namespace, "--max-open")
	case code == string(wire.QuotaExceeded):
		return fmt.Sprintf("wait until stored flights expire"+limit, a.namespace, "--max-flights")
	}
	return "retry, which is safe; run flightd doctor to see which part of the server is not ready"
}

// serverHint returns the hint for an address where no server answers. A caller with an address or a token uses a server
// that runs elsewhere: flightd dev would be another ledger.
func (a *app) serverHint() string {
	server := a.setting("server")
	token, _, _ := a.token()
	switch {
	case server.source != fromDefault:
		return fmt.Sprintf("check that a server runs at %s, and the address from %s", strings.Join(a.servers, ", "), server.Origin)
	case token != "":
		return fmt.Sprintf("check that a server runs at %s, or set the address of yours with --server or FLIGHTD_ADDR", defaultServer)
	}
	return "start a server with flightd dev, or set the address of another one with --server or FLIGHTD_ADDR"
}
