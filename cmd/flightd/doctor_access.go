package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/flightd/flightd/client"
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

func checkToken(a access) checkResult {
	f := checkResult{Check: "token", Status: statusOK, Says: "the server demands no token", Facts: map[string]any{"set": a.set}}
	switch code := client.CodeOf(a.err); {
	case code == wire.Unauthenticated && a.set:
		f.Status, f.Says, f.Do = statusFail, "the server does not know the token from "+a.origin+": it is mistyped, expired, revoked, or of another deployment", setTokenHint
	case code == wire.Unauthenticated:
		f.Status, f.Says, f.Do = statusFail, "the server demands a token, and none is set", setTokenHint
	case code == wire.Forbidden:
		f.Status, f.Says, f.Do = statusFail, "forbidden: "+a.err.Error(), "use a token of this namespace and with this right; flightd whoami shows yours"
	case code == wire.NotFound:
	case a.err != nil:
		f.Status, f.Says, f.Do = statusWarn, "/v1/whoami does not answer: "+a.err.Error(), "see the server's log"
	case a.me != nil && a.me.Name != "":
		f.Facts["name"], f.Facts["namespace"], f.Facts["verbs"] = a.me.Name, a.me.Namespace, a.me.Verbs
		f.Says = fmt.Sprintf("%s of %s may %s, %s", a.me.Name, namespaceText(a.me.Namespace), strings.Join(a.me.Verbs, ", "), expiryText(a.me.ExpiresAt.Time))
	}
	switch {
	case f.Status != statusOK || !a.set:
	case a.insecure != "":
		f.Status, f.Says = statusWarn, "the token goes to "+a.insecure+" in plain text"
		f.Do = "use https://; everybody on the way can read the token"
	case a.exposed != "":
		f.Status, f.Says = statusWarn, "other users of this machine may read the token in "+a.exposed
		f.Do = "chmod 600 " + a.exposed
	case a.me != nil && !a.me.ExpiresAt.IsZero() && a.me.ExpiresAt.Sub(a.now) < expiryWarn:
		scope := "-n " + a.me.Namespace
		if a.me.Namespace == wire.AllNamespaces {
			scope = "-A"
		}
		f.Status, f.Do = statusWarn, "renew it in time with flightd token create "+a.me.Name+" "+scope+" --rotate"
	}
	return f
}

// certificate is what doctor knows about a server's certificate.
type certificate struct {
	address  string
	notAfter time.Time
	err      error
}

func checkCertificate(c certificate, now time.Time) checkResult {
	f := checkResult{Check: "tls", Status: statusOK, Facts: map[string]any{"address": c.address}}
	if c.err != nil {
		f.Status, f.Says, f.Do = statusFail, c.address+": "+c.err.Error(), orDefault(tlsHint(c.err), "check the address and the server's certificate")
		return f
	}
	f.Facts["expires_at"] = c.notAfter.UTC().Format(time.RFC3339)
	f.Says = c.address + " has a certificate that this machine trusts; it expires " + formatTime(c.notAfter)
	if c.notAfter.Sub(now) < expiryWarn {
		f.Status, f.Do = statusWarn, "renew the server's certificate; flightd cert init DIR does, and the server needs no restart"
	}
	return f
}

// measureCertificate makes a TLS connection to a server. It sends no request.
func (dr *doctorRun) measureCertificate(ctx context.Context, address string) (c certificate, isTLS bool) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" {
		return c, false
	}
	config, err := dr.clientTLS()
	if err != nil {
		return certificate{address: address, err: err}, true
	}
	ctx, cancel := context.WithTimeout(ctx, doctorTimeout)
	defer cancel()
	port := orDefault(u.Port(), "443")
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
	conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), orDefault(u.Port(), "80")))
	var alert tls.AlertError
	if err != nil {
		return errors.As(err, &alert) // as of a server that demands a client certificate
	}
	_ = conn.Close()
	return true
}

// measureAccess asks a server about the token.
func (dr *doctorRun) measureAccess(ctx context.Context, c *client.Client) access {
	a := dr.localAccess()
	a.me, a.err = c.WhoAmI(ctx)
	return a
}

// localAccess describes the token without asking a server.
func (dr *doctorRun) localAccess() access {
	a := access{now: time.Now()}
	token, from, err := dr.token()
	if err != nil || token == "" {
		return a
	}
	a.set, a.origin, a.exposed = true, from.Origin, dr.exposedToken()
	for _, address := range dr.servers {
		u, err := url.Parse(address)
		if err == nil && u.Scheme == "http" && u.Hostname() != "localhost" && !net.ParseIP(u.Hostname()).IsLoopback() {
			a.insecure = address
		}
	}
	return a
}

// exposedToken returns the file that the token comes from if other users may read it; "": there is none.
func (a *app) exposedToken() string {
	_, from, err := a.token()
	file := a.config.path
	switch {
	case err != nil:
		return ""
	case from.Name == "token_file":
		file = from.Value
	case from.source != fromFile:
		return ""
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm()&0o004 == 0 {
		return ""
	}
	return file
}

// rejectedHint says what to do about a server that answers and rejects the credentials.
func rejectedHint(err error) string {
	var problem *client.Error
	if errors.As(err, &problem) && problem.Problem.Status == http.StatusForbidden {
		return "use a token with this right, and https:// if the server speaks TLS"
	}
	return setTokenHint
}
