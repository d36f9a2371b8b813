package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

// queryTimeout is how long read-only commands try to reach a server. Nothing is lost when they give up.
const queryTimeout = 3 * time.Second

// CloseTimeout is how long a command that is about to end keeps sending spooled reports.
const CloseTimeout = 2 * time.Second

// spoolTimeout is how long a command waits, before its first request, for spooled reports to be sent: the answer may
// depend on them.
const spoolTimeout = 2 * time.Second

// connectTimeout is how long a command waits for the first answer of a server: enough for a restart.
const connectTimeout = 5 * time.Second

// Connect connects to the first server that answers, and sends the spooled reports before it returns: the outcome of
// the flight that the command asks about may be among them.
func (a *App) Connect(ctx context.Context, opts ...client.Option) (*client.Client, error) {
	all, err := a.ClientOptions()
	if err != nil {
		return nil, err
	}
	if file := a.ExposedToken(); file != "" {
		a.Say("other users of this machine may read the token in %s; run chmod 600 %s", file, file)
	}
	all = append(append(all, client.WithLogger(slog.New(slog.NewTextHandler(a.Err, &slog.HandlerOptions{Level: slog.LevelWarn})))), opts...)
	waitCtx, cancel := context.WithTimeoutCause(ctx, connectTimeout, fmt.Errorf("no answer for %v", connectTimeout))
	defer cancel()
	c, err := client.Connect(waitCtx, strings.Join(a.Servers, ","), all...)
	switch _, noSpool := client.DefaultSpoolDir(); {
	case err == nil:
		waitCtx, cancel := context.WithTimeout(ctx, spoolTimeout)
		defer cancel()
		c.WaitForSpool(waitCtx)
		return c, nil
	case noSpool != nil, errors.As(err, new(*fs.PathError)):
		return nil, &Error{Code: ExitConfig, Err: err, Hint: "set HOME, or set XDG_STATE_HOME to a directory that you own; outcomes that no server has stored yet are kept there"}
	}
	return nil, a.CallError(err)
}

// WithClient runs a short command with a client and closes the client.
func (a *App) WithClient(ctx context.Context, do func(*client.Client) error, opts ...client.Option) error {
	c, err := a.Connect(ctx, append([]client.Option{client.WithRetryTimeout(queryTimeout)}, opts...)...)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), CloseTimeout)
		defer cancel()
		_ = c.Close(ctx) // reports that were not sent stay in the spool
	}()
	return a.CallError(do(c))
}

// Run returns the RunE of a command that asks a server.
func (a *App) Run(do func(ctx context.Context, c *client.Client, args []string) error, opts ...client.Option) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		return a.WithClient(cmd.Context(), func(c *client.Client) error { return do(cmd.Context(), c, args) }, opts...)
	}
}

// ActorName returns the actor of a decision: the value of --actor, else the name of the OS user.
func ActorName(actor string) string {
	if actor != "" {
		return actor
	}
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return ""
}

// CallError adds the exit code and the hint to an error of a request, and prefixes its text with its code, if it has
// one.
func (a *App) CallError(err error) error {
	if err == nil || errors.As(err, new(*Error)) {
		return err
	}
	if errors.As(err, new(ExitStatus)) {
		return err
	}
	word, code, hint := a.ClassOf(err)
	if word != "" {
		err = fmt.Errorf("%s: %w", word, err)
	}
	if apiErr, ok := errors.AsType[*client.Error](err); ok && apiErr.Unwrap() == nil && apiErr.Problem.Hint != "" {
		// The error's text ends with the hint, which is worded for HTTP.
		err = fmt.Errorf("%s", strings.TrimSuffix(err.Error(), " ("+apiErr.Problem.Hint+")"))
		hint = cmp.Or(hint, cliHint(&apiErr.Problem))
	}
	if token, from, bad := a.Token(); code == ExitForbidden && bad == nil && token != "" {
		hint = strings.TrimPrefix(hint+"; the token in use is "+from.Name+" from "+from.Origin, "; ")
	}
	return &Error{Code: code, Err: err, Hint: hint}
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
		return SetTokenHint
	}
	return p.Hint
}

// ClassOf is the single table of errors and exit codes.
func (a *App) ClassOf(err error) (word string, code int, hint string) {
	var (
		busy        *effect.Busy
		unapproved  *effect.Unapproved
		expired     *effect.Expired
		failed      *effect.Failed
		unavailable *effect.Unavailable
	)
	switch {
	case errors.As(err, new(*flight.InvalidError)):
		return "", ExitUsage, ""
	case errors.As(err, new(*effect.Conflict)):
		return string(wire.Conflict), ExitUsage, ""
	case errors.As(err, &busy):
		return string(wire.InFlight), ExitBusy, fmt.Sprintf("run flightd why %s to see which process runs it", busy.Key)
	case errors.As(err, new(*effect.InDoubt)):
		return string(wire.InDoubt), ExitInDoubt, ""
	case errors.As(err, &unapproved):
		return string(wire.ApprovalPending), ExitBusy, fmt.Sprintf("a person decides: flightd approvals show %[1]s, then flightd approvals approve %[1]s; then repeat the call", unapproved.Key)
	case errors.As(err, &expired):
		return string(wire.Expired), ExitFailed, fmt.Sprintf("use a new key for a new intent; flightd flights free %s --reason WHY frees this key, and its effect can then happen again", expired.Key)
	case errors.As(err, &failed):
		hint = fmt.Sprintf("run flightd flights retry %s --reason WHY to let it run again", failed.Key)
		if failed.Redacted {
			hint = "its input is erased; use a new id for another try"
		}
		return string(wire.FlightFailed), ExitFailed, hint
	case errors.As(err, new(*effect.Fenced)):
		return string(wire.Fenced), ExitInDoubt, ""
	case errors.As(err, new(*effect.Missing)):
		return string(wire.NotFound), ExitFailed, ""
	case errors.As(err, &unavailable):
		return "", ExitUnreachable, cmp.Or(TLSHint(err), a.unavailableHint(unavailable.Code))
	case errors.Is(err, effect.ErrLeaseLost):
		return string(wire.LeaseLost), ExitBusy, ""
	case errors.Is(err, context.DeadlineExceeded):
		return "", ExitUnreachable, ""
	}
	switch client.CodeOf(err) { // the text of these errors contains the code
	case wire.Forbidden, wire.Unauthenticated:
		return "", ExitForbidden, ""
	case wire.InputInvalid, wire.KeyInvalid, wire.KeyRequired, wire.PayloadTooLarge:
		return "", ExitUsage, ""
	case wire.WrongDeployment:
		if pin := a.Setting("deployment"); pin.Value != "" {
			return "", ExitConfig, "correct --server or FLIGHTD_ADDR, or the deployment from " + pin.Origin
		}
	}
	return "", ExitFailed, ""
}

// unavailableHint returns the hint for a server that does not answer, or that answers but cannot decide now.
func (a *App) unavailableHint(code string) string {
	const limit = ", or ask an administrator to raise the limit with flightd namespace set %s %s"
	switch {
	case code == "unreachable":
		return a.ServerHint()
	case code == string(wire.Reconciling):
		return "retry when an operator has looked up what flightd restore asked lists, and has run flightd restore finish"
	case code == string(wire.RateLimited):
		return fmt.Sprintf("retry later, which is safe"+limit, a.Namespace, "--opens-per-second")
	case code == string(wire.TooManyOpen):
		return fmt.Sprintf("wait until open attempts are reported"+limit, a.Namespace, "--max-open")
	case code == string(wire.QuotaExceeded):
		return fmt.Sprintf("wait until stored flights expire"+limit, a.Namespace, "--max-flights")
	}
	return "retry, which is safe; run flightd doctor to see which part of the server is not ready"
}

// ServerHint returns the hint for an address where no server answers. A caller with an address or a token uses a server
// that runs elsewhere: flightd dev would be another ledger.
func (a *App) ServerHint() string {
	server := a.Setting("server")
	token, _, _ := a.Token()
	switch {
	case server.Source != FromDefault:
		return fmt.Sprintf("check that a server runs at %s, and the address from %s", strings.Join(a.Servers, ", "), server.Origin)
	case token != "":
		return fmt.Sprintf("check that a server runs at %s, or set the address of yours with --server or FLIGHTD_ADDR", DefaultServer)
	}
	return "start a server with flightd dev, or set the address of another one with --server or FLIGHTD_ADDR"
}
