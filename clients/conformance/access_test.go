//go:build clients

package conformance

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// secure says that every server demands a token and has TLS: FLIGHTD_CLIENTS_SECURE is set.
var secure = os.Getenv("FLIGHTD_CLIENTS_SECURE") != ""

// certificates returns the directory with ca.crt, and with server.crt and server.key for this machine, which all
// servers and proxies use.
var certificates = sync.OnceValues(func() (dir string, err error) {
	dir = filepath.Join(filepath.Dir(binaries.driver), "tls")
	return dir, exec.Command(binaries.flightd, "cert", "init", dir, "--host", "127.0.0.1").Run()
})

// access is what a caller of a secure server needs, and what the server needs to demand it.
type access struct {
	caFile, certFile, keyFile string
	tokenFile                 string // made by the first start with a data directory
	transport                 *http.Transport
}

func newAccess(t testing.TB, data string) *access {
	t.Helper()
	dir, err := certificates()
	require.NoError(t, err)
	a := &access{caFile: filepath.Join(dir, "ca.crt"), certFile: filepath.Join(dir, "server.crt"), keyFile: filepath.Join(dir, "server.key"),
		tokenFile: data + ".token"}
	pem, err := os.ReadFile(a.caFile)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(pem))
	a.transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	t.Cleanup(a.transport.CloseIdleConnections)
	return a
}

func (a *access) token(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile(a.tokenFile)
	require.NoError(t, err)
	return strings.TrimSpace(string(text))
}

// serveArgs are the arguments of a server that demands the token.
func (a *access) serveArgs(data string) []string {
	return []string{"serve", "--data", data, "--listen", "127.0.0.1:0", "--tls-cert", a.certFile, "--tls-key", a.keyFile, "--first-token-file", a.tokenFile}
}

// initLedger makes the server's ledger before the first start.
func (a *access) initLedger(data string) error {
	if _, err := os.Stat(data); err == nil {
		return nil
	}
	made := exec.Command(binaries.flightd, "serve", "--init", "--data", data, "--first-token-file", a.tokenFile)
	made.Env = environment()
	if out, err := made.CombinedOutput(); err != nil {
		return fmt.Errorf("make the ledger: %w: %s", err, out)
	}
	return nil
}

// credentials returns the environment of a program that calls the server, with the token itself.
func (s *server) credentials() []string {
	s.t.Helper()
	if s.access == nil {
		return nil
	}
	return []string{"FLIGHTD_CA_FILE=" + s.access.caFile, "FLIGHTD_TOKEN=" + s.access.token(s.t)}
}

// credentialFiles returns the environment of a program that calls the server over all restarts: with the token's file.
func (s *server) credentialFiles() []string {
	if s.access == nil {
		return nil
	}
	return []string{"FLIGHTD_CA_FILE=" + s.access.caFile, "FLIGHTD_TOKEN_FILE=" + s.access.tokenFile}
}

// transport returns the transport of the proxy's requests, which have their callers' tokens.
func (s *server) transport() http.RoundTripper {
	if s.access == nil {
		return http.DefaultTransport
	}
	return s.access.transport
}

// request sends a request to the server without the proxy, with a token.
func (s *server) request(method, path, body string, header ...string) (*http.Response, error) {
	s.t.Helper()
	req, err := http.NewRequest(method, s.address()+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	if s.access != nil {
		req.Header.Set("Authorization", "Bearer "+s.access.token(s.t))
	}
	return (&http.Client{Transport: s.transport()}).Do(req)
}

// requireTurnedAway checks that the servers of another deployment have rejected the caller: as another deployment, or
// in the secure mode also by its token, which they do not know.
func (t *trial) requireTurnedAway(a answer) {
	t.Helper()
	allowed := []string{"wrong_deployment"}
	if secure {
		allowed = append(allowed, "unauthenticated", "unavailable")
	}
	require.Contains(t, allowed, a.Error, "%+v", a)
}

// useSecureServer gives the trial a lone server with TLS and a token, in every mode.
func (t *trial) useSecureServer() {
	t.Helper()
	t.server = startServer(t.T, true)
	t.proxy = newProxy(t.T, t.server)
}

// withoutAccess: a caller without a valid token, or that does not trust the server's certificate, gets an error that
// says what to do. Nothing is opened, and the token is not shown.
func withoutAccess(t *trial) {
	t.useSecureServer()
	const wrong = "fltd_canary-4f1c"
	trusted := "FLIGHTD_CA_FILE=" + t.server.access.caFile
	for name, row := range map[string]struct {
		env         []string
		error, says string
	}{
		"no token":      {[]string{trusted}, "unauthenticated", "("},
		"unknown token": {[]string{trusted, "FLIGHTD_TOKEN=" + wrong}, "unauthenticated", "("},
		"no authority":  {[]string{"FLIGHTD_TOKEN=" + wrong}, "unavailable", "FLIGHTD_CA_FILE"},
	} {
		d := t.driver(func(s *setup) { s.env = row.env })
		a := d.do(t.call())
		require.Equal(t, row.error, a.Error, "%s: %+v", name, a)
		require.Contains(t, a.Detail, row.says, name)
		require.NotContains(t, a.Detail+d.log.String(), wrong, name)
	}
	require.Empty(t, t.flight().State)
	require.Empty(t, t.providerRequests())
	t.requireAnswer(t.driver().do(t.call()), "executed")
}

// tokenReplaced: while the server rejects the token, a report waits in the spool. Once the token's file has a valid
// token again, the same process delivers it.
func tokenReplaced(t *trial) {
	t.useSecureServer()
	file := filepath.Join(t.TempDir(), "token")
	write := func(token string) { require.NoError(t, os.WriteFile(file, []byte(token+"\n"), 0o600)) }
	valid := t.server.access.token(t)
	write(valid)
	t.provider.block("/effect")
	d := t.driver(reportWait(300), func(s *setup) {
		s.env = []string{"FLIGHTD_CA_FILE=" + t.server.access.caFile, "FLIGHTD_TOKEN_FILE=" + file}
	})
	p := d.begin(t.call())
	t.provider.waitArrived(t, "/effect")
	write("fltd_canary-4f1c")
	<-time.After(1500 * time.Millisecond) // a client reads the file at most once a second
	t.provider.unblock("/effect")
	t.requireAnswer(p.waitOne(), "unrecorded")
	require.Len(t, t.spooled(), 1)
	write(valid)
	t.waitFlight("has its receipt", succeeded)
	eventually(t, "the spool is empty", waitTimeout, func() bool { return len(t.spooled()) == 0 })
	t.requireAnswer(d.do(t.call()), "replayed")
	require.NotContains(t, d.log.String(), "canary")
	t.requireOneEffect(1)
}
