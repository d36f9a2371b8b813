package doctor

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/httpapi/wire"
)

// isRejection reports whether a server answered, and rejected the credentials.
func isRejection(err error) bool {
	code := client.CodeOf(err)
	return code == wire.Unauthenticated || code == wire.Forbidden
}

// access is what doctor knows about this machine's token.
type access struct {
	set      bool   // there is a token
	origin   string // where it comes from
	exposed  string // a file with the token that other users may read; "": none
	insecure string // an address to which the token goes in plain text over a network; "": none
	me       *client.WhoAmI
	err      error // of asking for me
	now      time.Time
}

// expiryWarn is how long before its end the token or the certificate is reported.
const expiryWarn = 14 * 24 * time.Hour

func checkToken(a access) Finding {
	facts, says := map[string]any{"set": a.set}, "the server demands no token"
	var soon bool // its end is near
	var renew string
	if me := a.me; a.err == nil && me != nil && me.Name != "" {
		facts["name"], facts["namespace"], facts["verbs"] = me.Name, me.Namespace, me.Verbs
		says = fmt.Sprintf("%s of %s may %s, %s", me.Name, cli.NamespaceText(me.Namespace), strings.Join(me.Verbs, ", "), cli.ExpiryText(me.ExpiresAt.Time))
		scope := "-n " + me.Namespace
		if me.Namespace == wire.AllNamespaces {
			scope = "-A"
		}
		soon = !me.ExpiresAt.IsZero() && me.ExpiresAt.Sub(a.now) < expiryWarn
		renew = "renew it in time with flightd token create " + me.Name + " " + scope + " --rotate"
	}
	code := client.CodeOf(a.err)
	return judge("token", says, facts,
		rule{code == wire.Unauthenticated && a.set, StatusFail, "the server does not know the token from " + a.origin + ": it is mistyped, expired, revoked, or of another deployment", cli.SetTokenHint},
		rule{code == wire.Unauthenticated, StatusFail, "the server demands a token, and none is set", cli.SetTokenHint},
		rule{code == wire.Forbidden, StatusFail, "forbidden: " + text(a.err), "use a token of this namespace and with this right; flightd whoami shows yours"},
		rule{a.err != nil && code != wire.NotFound, StatusWarn, "/v1/whoami does not answer: " + text(a.err), "see the server's log"},
		rule{!a.set, StatusOK, "", ""},
		rule{a.insecure != "", StatusWarn, "the token goes to " + a.insecure + " in plain text", "use https://; everybody on the way can read the token"},
		rule{a.exposed != "", StatusWarn, "other users of this machine may read the token in " + a.exposed, "chmod 600 " + a.exposed},
		rule{soon, StatusWarn, "", renew})
}

// certificate is what doctor knows about a server's certificate.
type certificate struct {
	address  string
	notAfter time.Time
	err      error
}

func checkCertificate(c certificate, now time.Time) Finding {
	facts := map[string]any{"address": c.address}
	if c.err == nil {
		facts["expires_at"] = c.notAfter.UTC().Format(time.RFC3339)
	}
	return judge("tls", c.address+" has a certificate that this machine trusts; it expires "+cli.FormatTime(c.notAfter), facts,
		rule{c.err != nil, StatusFail, c.address + ": " + text(c.err), cmp.Or(tlsHint(c.err), "check the address and the server's certificate")},
		rule{c.notAfter.Sub(now) < expiryWarn, StatusWarn, "", "renew the server's certificate; flightd cert init DIR does, and the server needs no restart"})
}

// measureCertificate makes a TLS connection to a server. It sends no request.
func (r *run) measureCertificate(ctx context.Context, address string) (c certificate, isTLS bool) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" {
		return c, false
	}
	config, err := r.ClientTLS()
	if err != nil {
		return certificate{address: address, err: err}, true
	}
	ctx, cancel := context.WithTimeout(ctx, doctorTimeout)
	defer cancel()
	port := cmp.Or(u.Port(), "443")
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return certificate{address: address, err: err}, true
	}
	defer conn.Close()
	return certificate{address: address, notAfter: conn.(*tls.Conn).ConnectionState().PeerCertificates[0].NotAfter}, true
}

// speaksTLS reports whether a server at an address with http:// makes a TLS handshake. No certificate is checked, and no
// request is sent.
func speaksTLS(ctx context.Context, address string) bool {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, doctorTimeout)
	defer cancel()
	conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "80")))
	if err != nil {
		return errors.As(err, new(tls.AlertError)) // as of a server that demands a client certificate
	}
	_ = conn.Close()
	return true
}

// measureAccess asks a server about the token.
func (r *run) measureAccess(ctx context.Context, c *client.Client) access {
	a := r.localAccess()
	a.me, a.err = c.WhoAmI(ctx)
	return a
}

// localAccess describes the token without asking a server.
func (r *run) localAccess() access {
	a := access{now: time.Now()}
	token, from, err := r.Token()
	if err != nil || token == "" {
		return a
	}
	a.set, a.origin, a.exposed = true, from.Origin, r.ExposedToken()
	for _, address := range r.Servers {
		u, err := url.Parse(address)
		if err == nil && u.Scheme == "http" && u.Hostname() != "localhost" && !net.ParseIP(u.Hostname()).IsLoopback() {
			a.insecure = address
		}
	}
	return a
}

// rejectedHint says what to do about a server that answers and rejects the credentials.
func rejectedHint(err error) string {
	if problem, ok := errors.AsType[*client.Error](err); ok && problem.Problem.Status == http.StatusForbidden {
		return "use a token with this right, and https:// if the server speaks TLS"
	}
	return cli.SetTokenHint
}
