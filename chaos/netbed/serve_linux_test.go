package netbed

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/internal/proctest"
)

// deployment is `flightd serve` on one host, with TLS and tokens, as a company runs it.
type deployment struct {
	t       *testing.T
	bed     *Bed
	dir     string
	flightd string // path of the binary
	url     string
	admin   string // the first token
}

func serve(t *testing.T) *deployment {
	t.Helper()
	d := &deployment{t: t, bed: newBed(t, "server", "client"), dir: t.TempDir()}
	d.flightd = filepath.Join(d.dir, "flightd")
	out, err := exec.Command("go", "build", "-C", "../..", "-o", d.flightd, "./cmd/flightd").CombinedOutput()
	require.NoError(t, err, string(out))
	server := d.bed.Host("server")
	d.run("client", nil, "cert", "init", d.path("pki"), "--host", server.Address.String())
	d.run("server", nil, "serve", "--init", "--data", d.path("data"), "--first-token-file", d.path("token"))

	p, err := proctest.Start(proctest.Spec{Name: "flightd", Path: d.flightd, Env: d.env(), Log: d.path("log"), Start: server.Start,
		Args: []string{"serve", "--data", d.path("data"), "--listen", net.JoinHostPort(server.Address.String(), "7420"),
			"--tls-cert", d.path("pki/server.crt"), "--tls-key", d.path("pki/server.key"), "--first-token-file", d.path("token")}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Stop(time.Minute), "a stop is clean") })
	d.url, err = p.AwaitReady(t.Context())
	require.NoError(t, err)
	token, err := os.ReadFile(d.path("token"))
	require.NoError(t, err)
	d.admin = strings.TrimSpace(string(token))
	return d
}

func (d *deployment) path(name string) string { return filepath.Join(d.dir, name) }

func (d *deployment) env(more ...string) []string {
	return append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + d.dir, "FLIGHTD_CA_FILE=" + d.path("pki/ca.crt"), "FLIGHTD_ADDR=" + d.url}, more...)
}

// run runs flightd on a host and returns its standard output.
func (d *deployment) run(host string, env []string, args ...string) string {
	d.t.Helper()
	out, err := d.command(host, env, args...)
	require.NoError(d.t, err, "flightd %v: %s", args, out)
	return out
}

func (d *deployment) command(host string, env []string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(d.t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, d.flightd, args...)
	cmd.Env = d.env(env...)
	var out, said strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := d.bed.Host(host).Start(cmd); err != nil {
		return "", err
	}
	if err := cmd.Wait(); err != nil {
		return said.String(), err
	}
	return out.String(), nil
}

func (d *deployment) asAdmin() []string { return []string{"FLIGHTD_TOKEN=" + d.admin} }

// token creates a token and returns its secret.
func (d *deployment) token(args ...string) string {
	d.t.Helper()
	out := d.run("client", d.asAdmin(), append([]string{"token", "create", "--reason", "a test"}, args...)...)
	return strings.TrimSpace(out)
}

// problem is an answer of flightd to a rejected request.
type problem struct {
	status int
	Code   string `json:"code"`
	Hint   string `json:"hint"`
}

// get sends a request from the client's host.
func (d *deployment) get(url, authorization, namespace string) (p problem) {
	d.t.Helper()
	pem, err := os.ReadFile(d.path("pki/ca.crt"))
	require.NoError(d.t, err)
	roots := x509.NewCertPool()
	require.True(d.t, roots.AppendCertsFromPEM(pem))
	client := http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (c net.Conn, err error) {
			err = d.bed.Host("client").Do(func() error {
				c, err = new(net.Dialer).DialContext(ctx, network, address)
				return err
			})
			return c, err
		}}}
	req, err := http.NewRequestWithContext(d.t.Context(), http.MethodGet, url, nil)
	require.NoError(d.t, err)
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	if namespace != "" {
		req.Header.Set("Flightd-Namespace", namespace)
	}
	answer, err := client.Do(req)
	require.NoError(d.t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	require.NoError(d.t, err)
	require.NoError(d.t, json.Unmarshal(body, &p), "%s", body)
	p.status = answer.StatusCode
	return p
}

// A service on another machine guards its effect with a token over TLS. Without a valid token, nothing is read and
// nothing is done, and the answer says what to do.
func TestServe_GuardsAnEffectOfAnotherHost(t *testing.T) {
	d := serve(t)
	worker := []string{"FLIGHTD_TOKEN=" + d.token("worker", "--namespace", "billing")}
	effects := d.path("effects")
	effect := []string{"exec", "--key", "charge/order-1", "--", "sh", "-c", "echo charged | tee -a " + effects}
	for range 3 {
		require.Equal(t, "charged\n", d.run("client", worker, effect...))
	}
	did, err := os.ReadFile(effects)
	require.NoError(t, err)
	require.Equal(t, "charged\n", string(did), "the effect happens once")
	require.Contains(t, d.run("client", worker, "why", "charge/order-1"), "billing/charge/order-1", "the namespace is that of the token")

	revoked := d.token("gone", "--namespace", "billing", "--verbs", "read")
	expired := d.token("short", "--namespace", "billing", "--verbs", "read", "--expires", "1s")
	foreign := d.token("foreign", "--namespace", "other", "--verbs", "read")
	submit := d.token("submitter", "--namespace", "billing", "--verbs", "submit")
	list := d.url + "/v1/flights"
	require.Equal(t, http.StatusOK, d.get(list, "Bearer "+revoked, "").status)
	d.run("client", d.asAdmin(), "token", "revoke", "gone", "--namespace", "billing", "--reason", "a test", "--yes")
	require.Eventually(t, func() bool { return d.get(list, "Bearer "+expired, "").status == http.StatusUnauthorized }, 20*time.Second, 100*time.Millisecond)
	for name, c := range map[string]struct {
		url, authorization, namespace string
		status                        int
	}{
		"no token":               {list, "", "", http.StatusUnauthorized},
		"a malformed token":      {list, "Bearer fltd_", "", http.StatusUnauthorized},
		"another scheme":         {list, "Basic YWRtaW46YWRtaW4=", "", http.StatusUnauthorized},
		"an unknown token":       {list, "Bearer fltd_" + strings.Repeat("A", 43), "", http.StatusUnauthorized},
		"a revoked token":        {list, "Bearer " + revoked, "", http.StatusUnauthorized},
		"an expired token":       {list, "Bearer " + expired, "", http.StatusUnauthorized},
		"a foreign token":        {list, "Bearer " + foreign, "billing", http.StatusForbidden},
		"a token without a verb": {list, "Bearer " + submit, "", http.StatusForbidden},
		"plain HTTP":             {strings.Replace(list, "https://", "http://", 1), "Bearer " + d.admin, "", http.StatusForbidden},
	} {
		p := d.get(c.url, c.authorization, c.namespace)
		require.Equal(t, c.status, p.status, name)
		require.Contains(t, []string{"unauthenticated", "forbidden"}, p.Code, name)
		require.NotEmpty(t, p.Hint, name)
	}
	said, err := d.command("client", nil, "exec", "--key", "charge/order-2", "--", "sh", "-c", "echo again >> "+effects)
	require.Error(t, err)
	require.Contains(t, said, "unauthenticated")
	require.Contains(t, said, "FLIGHTD_TOKEN")
	did, err = os.ReadFile(effects)
	require.NoError(t, err)
	require.Equal(t, "charged\n", string(did))
}

// The network of the client fails between the effect and its report. The report arrives when the network is back, and the
// effect is not repeated.
func TestServe_NetworkFailsBeforeTheReport(t *testing.T) {
	d := serve(t)
	worker := []string{"FLIGHTD_TOKEN=" + d.token("worker", "--namespace", "billing")}
	effects, gate := d.path("effects"), d.path("gate")
	require.NoError(t, syscall.Mkfifo(gate, 0o600))
	done := make(chan error, 1)
	go func() {
		_, err := d.command("client", worker, "exec", "--ttl", "5s", "--key", "charge/order-1", "--", "sh", "-c", "echo charged >> "+effects+"; cat "+gate)
		done <- err
	}()
	opened, err := os.OpenFile(gate, os.O_WRONLY, 0) // returns when the command reads: the effect has happened
	require.NoError(t, err)
	cut, err := d.bed.Impair(Impairment{Loss: 100}, BothWays(d.bed.Host("client"), d.bed.Host("server"))...)
	require.NoError(t, err)
	require.NoError(t, opened.Close())
	heal(t, cut)
	require.NoError(t, <-done)
	d.run("client", worker, "exec", "--key", "charge/order-1", "--", "sh", "-c", "echo charged >> "+effects+"; cat "+gate)
	did, err := os.ReadFile(effects)
	require.NoError(t, err)
	require.Equal(t, "charged\n", string(did))
}
