package main

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/httpapi/wire"
)

// testToken is a token that no output but that of token create may contain.
const testToken = "fltd_canary0123456789"

// fakeAPI is a server over TLS that answers the routes of tokens, namespaces and the audit log from one state, to
// requests with testToken.
type fakeAPI struct {
	url, dir string

	mu       sync.Mutex
	requests []string // method, path and body
	limits   wire.NamespaceLimits
	denied   wire.Code // answers all requests; "": none does
}

func startFakeAPI(t *testing.T, change ...func(*tls.Config)) *fakeAPI {
	t.Helper()
	dir, _ := makeCertificates(t)
	f := &fakeAPI{dir: dir}
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "server.crt"), filepath.Join(dir, "server.key"))
	require.NoError(t, err)
	s := httptest.NewUnstartedServer(f)
	s.TLS, s.Config.ErrorLog = &tls.Config{Certificates: []tls.Certificate{pair}}, log.New(io.Discard, "", 0)
	for _, c := range change {
		c(s.TLS)
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	f.url = s.URL
	return f
}

// env returns the settings of a caller of this server.
func (f *fakeAPI) env() map[string]string {
	return map[string]string{"FLIGHTD_ADDR": f.url, "FLIGHTD_CA_FILE": filepath.Join(f.dir, "ca.crt"), "FLIGHTD_TOKEN": testToken}
}

// seen returns the requests since the last call, without those of connecting.
func (f *fakeAPI) seen() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	seen := f.requests
	f.requests = nil
	return seen
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w.Header()[wire.HeaderEcho] = r.Header[wire.HeaderEcho]
	body, _ := io.ReadAll(r.Body)
	if r.URL.Path != "/version" {
		f.requests = append(f.requests, strings.TrimSpace(r.Method+" "+r.URL.RequestURI()+" "+string(body)))
	}
	code := f.denied
	if r.Header.Get("Authorization") != "Bearer "+testToken {
		code = wire.Unauthenticated
	}
	if strings.Contains(string(body), `"namespace":"missing"`) {
		code = wire.NotFound
	}
	if code != "" {
		class, _ := code.Class()
		w.WriteHeader(class.Status)
		_ = json.NewEncoder(w).Encode(wire.Problem{Status: class.Status, Code: code, Title: class.Title, Detail: "no"})
		return
	}
	at := wire.Time{Time: time.Date(2026, 11, 20, 14, 3, 0, 0, time.UTC)}
	var answer any
	switch path := r.URL.Path; {
	case path == "/version":
		answer = wire.Version{Version: "test", API: "v1", Deployment: "d"}
	case r.Method == http.MethodPost:
		w.WriteHeader(http.StatusCreated)
		answer = wire.NewToken{Name: "billing", Namespace: "shop", Verbs: []string{"submit", "read"}, ExpiresAt: at, Token: "fltd_new"}
	case path == "/v1/tokens":
		answer = wire.TokenList{Tokens: []wire.Token{{Name: "admin", Namespace: "*", Verbs: []string{"admin"}, CreatedAt: at, Secrets: 1}, {Name: "old", Namespace: "shop", Verbs: []string{"read"}, CreatedAt: at, ExpiresAt: at}}}
	case path == "/v1/audit" && r.URL.Query().Get("before") == "":
		answer = wire.AuditPage{Entries: []wire.AuditEntry{{At: at, Version: "1-7", Verb: "revoke", Namespace: "shop", Subject: "token/billing", Actor: "kim", Reason: "it was in a log"}}, Next: "1-7"}
	case path == "/v1/audit":
		answer = wire.AuditPage{Entries: []wire.AuditEntry{{At: at, Version: "1-3", Verb: "resolve", Namespace: "shop", Subject: "shop/charge/7"}}}
	case path == "/v1/whoami":
		answer = wire.WhoAmI{Name: "admin", Namespace: "*", Verbs: []string{"submit", "admin"}}
	case r.Method == http.MethodPut:
		var request wire.NamespaceRequest
		_ = json.Unmarshal(body, &request)
		f.limits = request.NamespaceLimits
		answer = wire.Namespace{Name: "shop", NamespaceLimits: f.limits, Open: 2, Stored: 70}
	case path == "/v1/namespaces":
		answer = wire.NamespaceList{Namespaces: []wire.Namespace{{Name: "shop", NamespaceLimits: f.limits, Open: 2, Stored: 70}}}
	default:
		answer = struct{}{}
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// TestAdmin_EveryFormat: standard output has data only, of every command of an administrator, over TLS and with a token.
func TestAdmin_EveryFormat(t *testing.T) {
	f := startFakeAPI(t)
	for _, command := range []string{
		"token create billing", "token ls", "token revoke billing --reason lost --yes", "namespace set shop --burst 7", "namespace ls", "namespace rm shop --reason unused",
		"audit ls", "whoami",
	} {
		for _, format := range cli.Formats() {
			r := flightd(f.env(), append(strings.Fields(command), "-o", format)...)
			require.Zero(t, r.code, "%s -o %s: %v", command, format, r)
			require.NoError(t, checkReadable(format, r.out), "%s -o %s: %v", command, format, r)
			require.NotContains(t, r.out+r.err, testToken, "%s -o %s", command, format)
			require.NotContains(t, r.out, "flightd:", "%s -o %s", command, format)
		}
	}
}

// TestAdmin_RequestsAndTables: the requests that the commands send, and what they print.
func TestAdmin_RequestsAndTables(t *testing.T) {
	f := startFakeAPI(t)
	for _, test := range []struct{ command, requests, prints string }{
		{"token create billing -n shop", `POST /v1/tokens {"name":"billing","namespace":"shop","verbs":["submit","read"],"reason":"none given"}, GET /v1/namespaces`, "fltd_new\n"},
		{"token create ops -A --verbs operate,read --expires 90d --reason new", `POST /v1/tokens {"name":"ops","namespace":"*","verbs":["operate","read"],"expires_in_ms":7776000000,"reason":"new"}`, "fltd_new\n"},
		{"token create billing --rotate --keep-old-for 1h", `POST /v1/tokens {"name":"billing","namespace":"default","rotate":true,"keep_old_ms":3600000,"reason":"none given"}`, "fltd_new\n"},
		{"token ls", "GET /v1/tokens", "admin  admin"},
		{"token revoke billing -n shop --reason lost --yes", `DELETE /v1/tokens/shop/billing {"reason":"lost"}`, ""},
		{"token revoke admin -A --reason lost --yes", `DELETE /v1/tokens/%2A/admin {"reason":"lost"}`, ""},
		{"namespace set shop --max-open 7 --reason load", `PUT /v1/namespaces/shop {"max_open":7,"reason":"load"}`, "0        0      7"},
		{"namespace set shop --opens-per-second 9 --burst 8", `PUT /v1/namespaces/shop {"opens_per_second":9,"burst":8,"reason":"none given"}`, "9        8"},
		{"namespace ls", "GET /v1/namespaces", "shop"},
		{"namespace rm shop --reason unused", `DELETE /v1/namespaces/shop {"reason":"unused"}`, ""},
		{"audit ls", "GET /v1/audit?limit=100, GET /v1/audit?before=1-7&limit=99", "it was in a log"},
		{"audit ls --limit 1 --verb revoke", "GET /v1/audit?limit=1&verb=revoke", "token/billing"},
		{"whoami", "GET /v1/whoami", "admin  *          submit,admin  never expires"},
	} {
		r := flightd(f.env(), strings.Fields(test.command)...).want(t, cli.ExitOK, "", "")
		require.Equal(t, test.requests, strings.Join(f.seen(), ", "), test.command)
		require.Contains(t, r.out, test.prints, "%s: %v", test.command, r)
	}
}

// TestAdmin_ListsTakeAllNamespaces, which they list anyway.
func TestAdmin_ListsTakeAllNamespaces(t *testing.T) {
	f := startFakeAPI(t)
	for _, list := range []string{"token", "audit", "namespace"} {
		r, all := flightd(f.env(), list, "ls"), flightd(f.env(), list, "ls", "-A")
		require.Zero(t, all.code, "%s: %v", list, all)
		require.Equal(t, r.out, all.out, list)
	}
}

// TestTokenList_ExpiredToken: the list names its end, and not that it never expires.
func TestTokenList_ExpiredToken(t *testing.T) {
	f := startFakeAPI(t)
	r := flightd(f.env(), "token", "ls")
	require.Regexp(t, `shop +old .* expired 2026-11-20`, r.out, "%v", r)
	require.Regexp(t, `admin .* never expires`, r.out, "%v", r)
}

// TestTokenCreate_OutFile is replaced only when the new secret is complete, and nothing goes to standard output.
func TestTokenCreate_OutFile(t *testing.T) {
	f := startFakeAPI(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "billing.token")
	require.NoError(t, os.WriteFile(file, []byte("fltd_old\n"), 0o644))
	content := func() string {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		return string(data)
	}
	args := []string{"token", "create", "billing", "--rotate", "--keep-old-for", "1h", "--out", file}
	flightd(f.env(), append(args, "-n", "missing")...).
		want(t, cli.ExitFailed, "", "no token billing in namespace missing\n  set -n NAMESPACE, or -A")
	require.Equal(t, "fltd_old\n", content())
	for _, format := range cli.Formats() {
		require.NoError(t, os.WriteFile(file, []byte("fltd_old\n"), 0o644))
		r := flightd(f.env(), append(args, "-o", format)...).want(t, cli.ExitOK, "", "")
		require.Empty(t, r.out)
		require.Contains(t, r.err, "older secrets end 20", "%v", r)
		require.NotContains(t, r.err, "fltd_new")
		require.Equal(t, "fltd_new\n", content())
		info, err := os.Stat(file)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	}
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 1)
}

func TestAdmin_Mistakes(t *testing.T) {
	for command, says := range map[string]string{
		"token create":                                      "a name",
		"token create a --verbs submti":                     "did you mean submit?",
		"token create a --keep-old-for 1h":                  "needs --rotate",
		"token create a --expires soon":                     "--expires soon: want a duration from 1s to 3660d or a future time",
		"token create a --expires 2020-01-31":               "--expires 2020-01-31: it is in the past",
		"token create a --expires 4000d":                    "from 1s to 3660d",
		"token create a --rotate --keep-old-for 2031-01-31": "--keep-old-for 2031-01-31: want a duration",
		"token revoke a --reason lost":                      "pass --yes",
		"token create a --out /":                            "is a directory",
		"token create a --out /none/token":                  "--out /none/token",
		"token revoke a":                                    "--reason is missing",
		"namespace set a":                                   "no limit is given",
		"namespace set a --burst many":                      "--burst many: a whole number",
		"namespace rm a":                                    "--reason is missing",
		"audit ls --limit 0":                                "--limit 0",
		"whoami --token fltd_x":                             "unknown flag: --token",
		"serve --tls-certt a":                               "did you mean --tls-cert?",
	} {
		flightd(map[string]string{"FLIGHTD_ADDR": "127.0.0.1:1"}, strings.Fields(command)...).want(t, cli.ExitUsage, "", says)
	}
}

// TestCredentials_EverySource: the token comes from the environment, else from a file, else from the settings; a stronger
// source wins. The CA and the client certificate are used by every command.
func TestCredentials_EverySource(t *testing.T) {
	f := startFakeAPI(t)
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte(testToken+"\n"), 0o600))
	ca := filepath.Join(f.dir, "ca.crt")
	for name, test := range map[string]struct {
		config string
		env    map[string]string
		args   []string
		code   int
	}{
		"environment":                        {"", map[string]string{"FLIGHTD_TOKEN": testToken}, nil, cli.ExitOK},
		"environment before its file":        {"", map[string]string{"FLIGHTD_TOKEN": testToken, "FLIGHTD_TOKEN_FILE": "/none"}, nil, cli.ExitOK},
		"environment's file":                 {"", map[string]string{"FLIGHTD_TOKEN_FILE": file}, nil, cli.ExitOK},
		"environment's file before settings": {"token: fltd_wrong\n", map[string]string{"FLIGHTD_TOKEN_FILE": file}, nil, cli.ExitOK},
		"environment before settings' file":  {"token_file: /none\n", map[string]string{"FLIGHTD_TOKEN": testToken}, nil, cli.ExitOK},
		"flag before environment":            {"", map[string]string{"FLIGHTD_TOKEN": "fltd_wrong"}, []string{"--token-file", file}, cli.ExitOK},
		"settings":                           {"token: " + testToken + "\n", nil, nil, cli.ExitOK},
		"settings' file":                     {"token_file: " + file + "\n", nil, nil, cli.ExitOK},
		"none":                               {"", nil, nil, cli.ExitForbidden},
		"wrong":                              {"", map[string]string{"FLIGHTD_TOKEN": "fltd_wrong"}, nil, cli.ExitForbidden},
		"no such file":                       {"token_file: /none\n", nil, nil, cli.ExitConfig},
		"empty file":                         {"token_file: /dev/null\n", nil, nil, cli.ExitConfig},
		"a line":                             {"", map[string]string{"FLIGHTD_TOKEN": testToken + "\n"}, nil, cli.ExitOK},
		"two lines":                          {"", map[string]string{"FLIGHTD_TOKEN": testToken + "\nx"}, nil, cli.ExitConfig},
		"a line break at its end":            {"", map[string]string{"FLIGHTD_TOKEN": testToken + "\n"}, nil, cli.ExitOK},
		"with its scheme":                    {"", map[string]string{"FLIGHTD_TOKEN": "Bearer " + testToken}, nil, cli.ExitConfig},
		"a certificate without its key":      {"", map[string]string{"FLIGHTD_TOKEN": testToken, "FLIGHTD_CLIENT_CERT": ca}, nil, cli.ExitConfig},
		"no such CA":                         {"", map[string]string{"FLIGHTD_TOKEN": testToken, "FLIGHTD_CA_FILE": "/none"}, nil, cli.ExitConfig},
	} {
		env := withConfig(t, test.config)
		env["FLIGHTD_ADDR"], env["FLIGHTD_CA_FILE"] = f.url, ca
		for k, v := range test.env {
			env[k] = v
		}
		for _, command := range []string{"whoami", "flights ls", "doctor"} {
			if command != "whoami" && test.code == cli.ExitOK {
				continue // the fake answers only whoami
			}
			r := flightd(env, append(strings.Fields(command), test.args...)...)
			want := test.code
			if command == "doctor" && want == cli.ExitForbidden {
				want = cli.ExitFailed // a finding
			}
			require.Equal(t, want, r.code, "%s, %s: %v", name, command, r)
			require.NotContains(t, r.out+r.err, "fltd_canary", "%s, %s", name, command)
			require.NotContains(t, r.out+r.err, "fltd_wrong", "%s, %s", name, command)
		}
	}
	env := f.env()
	delete(env, "FLIGHTD_CA_FILE")
	r := flightd(env, "whoami").want(t, cli.ExitUnreachable, "", "")
	require.Contains(t, r.err, "FLIGHTD_CA_FILE", "the hint: %v", r)
	r = flightd(env, "doctor")
	require.Contains(t, r.out, "fail  tls", "%v", r)
}

// TestCredentials_OverPlainHTTP are sent to this machine alone, unless a setting allows more.
func TestCredentials_OverPlainHTTP(t *testing.T) {
	env := withConfig(t, "")
	env["FLIGHTD_ADDR"], env["FLIGHTD_TOKEN"] = "http://flightd.invalid", testToken
	flightd(env, "whoami").want(t, cli.ExitUsage, "", "clear text to http://flightd.invalid; write https://")
	r := flightd(env, "doctor")
	require.Contains(t, r.out, "http://flightd.invalid was not asked", "%v", r)
	allowed := withConfig(t, "allow_plain_http: true\n")
	allowed["FLIGHTD_ADDR"], allowed["FLIGHTD_TOKEN"] = env["FLIGHTD_ADDR"], testToken
	r = flightd(allowed, "doctor")
	require.Contains(t, r.out, "http://flightd.invalid does not answer", "%v", r)
}

// TestCredentials_ClientCertificateIsDemanded says at once which settings are missing.
func TestCredentials_ClientCertificateIsDemanded(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		f := startFakeAPI(t, func(cfg *tls.Config) { cfg.ClientAuth, cfg.MaxVersion = tls.RequireAnyClientCert, version })
		r := flightd(f.env(), "whoami").want(t, cli.ExitUnreachable, "", "")
		require.Contains(t, r.err, "\n  the server rejected the TLS connection", "the hint: %v", r)
		require.Contains(t, r.err, "set FLIGHTD_CLIENT_CERT and FLIGHTD_CLIENT_KEY", "%v", r)
		r = flightd(f.env(), "doctor")
		require.Contains(t, r.out, "FLIGHTD_CLIENT_CERT", "%v", r)
	}
}

// TestCredentials_RejectedOnesAreExplained by the command and by doctor, with the exit codes of the help.
func TestCredentials_RejectedOnesAreExplained(t *testing.T) {
	f := startFakeAPI(t)
	env := f.env()
	delete(env, "FLIGHTD_TOKEN")
	flightd(env, "flights", "ls").want(t, cli.ExitForbidden, "", "unauthenticated")
	r := flightd(env, "doctor").want(t, cli.ExitFailed, "fail  token", "")
	require.Contains(t, r.out, "demands a token, and none is set", "%v", r)
	require.Contains(t, r.out, "ok    tls", "%v", r)
	f.denied = wire.Forbidden
	r = flightd(f.env(), "exec", "--key", "a", "--", "true").want(t, cli.ExitForbidden, "", "forbidden")
	require.Contains(t, r.err, "the token in use is token from env FLIGHTD_TOKEN")
}

// TestSecrets_AreNeverPrinted by config show, and not in an error about the settings file, in any line near the mistake.
func TestSecrets_AreNeverPrinted(t *testing.T) {
	for name, content := range map[string]string{
		"valid": "token: " + testToken + "\n", "unknown": "token: " + testToken + "\ncolour: red\n", "before": "colour: red\ntoken: " + testToken + "\n",
		"type": "token: [" + testToken + "]\n", "no text": "token: 0123456789canary\nlisten: 1\n", "quoted": "\"token\": \"canary of another form\"\nx: y\n",
		"block": "token: |\n  " + testToken + "\nx: y\n", "syntax": "token: \"" + testToken + "\noutput: json\n", "twice": "token: " + testToken + "\ntoken: " + testToken + "\n",
		"a map": "token: {a: " + testToken + "}\n", "tab": "\ttoken: " + testToken + "\n", "no space": "token:" + testToken + "\n",
	} {
		env := withConfig(t, content)
		for _, args := range [][]string{{"config", "show"}, {"config", "show", "--origin"}, {"config", "show", "-o", "yaml"}, {"config", "show", "--origin", "-o", "json"}, {"version"}} {
			r := flightd(env, args...)
			require.NotContains(t, r.out+r.err, "canary", "%s, %v: %v", name, args, r)
			require.Equal(t, name == "valid", r.code == cli.ExitOK, "%s, %v: %v", name, args, r)
		}
	}
	r := flightd(map[string]string{"FLIGHTD_TOKEN": testToken}, "config", "show", "--origin")
	require.Regexp(t, `token +\(hidden\) +env FLIGHTD_TOKEN`, r.out)
}

// TestSettings_TypesAreStrict: each mistake is shown with its line, its column and a caret.
func TestSettings_TypesAreStrict(t *testing.T) {
	for content, says := range map[string]string{
		"namespace: a\nlisten: 7420\n":           "[2:9] listen takes a text",
		"namespace: a\nlog_level:\n":             "[2:1] log_level takes a text",
		"data: true\n":                           "[1:7] data takes a text",
		"allow_plain_http: \"yes\"\n":            "[1:19] allow_plain_http takes true or false",
		"server: [a, 1]\n":                       "server takes a text, or a list of texts",
		"- namespace: a\n":                       "want lines of the form NAME: VALUE",
		"namespace: a\n---\nnamespace: b\n":      "[3:1] a settings file has one document",
		"namespace: a\n---\n---\nnamespace: b\n": "[4:1] a settings file has one document",
		"listen_metrcs: a\n":                     "did you mean listen_metrics?",
		"namespace: a\nnamespace: b\n":           "[2:1]",
	} {
		r := flightd(withConfig(t, content), "version")
		require.Equal(t, cli.ExitConfig, r.code, "%q: %v", content, r)
		require.Contains(t, r.err, says, "%q: %v", content, r)
		require.Contains(t, r.err, "^", "%q: %v", content, r)
		require.Contains(t, r.err, "config.yaml: [", "%q: %v", content, r)
	}
	for _, content := range []string{"", "# nothing\n", "---\n", "---\nnamespace: a\n", "namespace: \"2026\"\nserver: a\n"} {
		require.Zero(t, flightd(withConfig(t, content), "version").code, "%q", content)
	}
}
