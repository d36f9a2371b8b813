package node

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// safeBuffer collects the log of a node.
type safeBuffer struct {
	mu sync.Mutex // guards Buffer
	bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

// No token and no private key is in a log, an answer, a metric, a profile or a file of the data directory, wherever a
// caller has put the token. The only exception is the answer that hands a new token out.
func TestSecretsStayHidden(t *testing.T) {
	data, log, ca := t.TempDir(), new(safeBuffer), newAuthority(t)
	ca.write(1)
	var admin, metricsURL string
	n := startNodeWith(t, data, func(c *Config) {
		c.NoCredentials, c.FirstToken.Print, c.Listen.TLS, c.Listen.Metrics = false, func(secret string) { admin = secret }, ca.files(), "127.0.0.1:0"
		c.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		ready := c.Ready
		c.Ready = func(r Ready) { metricsURL = r.Metrics; ready(r) }
	})
	client := ca.client()
	defer client.CloseIdleConnections()
	var said bytes.Buffer // every answer but those that hand out a token
	ask := func(method, path, authorization, body string, change func(*http.Request)) (answer []byte) {
		req, err := http.NewRequest(method, n.url+path, strings.NewReader(body))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/json")
		if authorization != "" {
			req.Header.Set("Authorization", authorization)
		}
		if change != nil {
			change(req)
		}
		resp, err := client.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		answer, err = io.ReadAll(resp.Body)
		require.NoError(t, err)
		if !bytes.Contains(answer, []byte(`"token":"fltd_`)) {
			fmt.Fprintf(&said, "%v %s\n", resp.Header, answer)
		}
		return answer
	}
	create := func(rotate bool) string {
		var made struct{ Token string }
		body := fmt.Sprintf(`{"name":"worker","namespace":"billing","verbs":["submit","read"],"reason":"test","rotate":%v}`, rotate)
		require.NoError(t, json.Unmarshal(ask("POST", "/v1/tokens", "Bearer "+admin, body, nil), &made))
		require.NotEmpty(t, made.Token)
		return made.Token
	}
	secrets := []string{admin, create(false), create(true)}
	for _, secret := range secrets {
		open := `{"action":"charge","id":"order-1","input":{"amount":1},"nonce":"0123456789abcdef-` + secret[5:9] + `"}`
		ask("POST", "/v1/flights:open", "Bearer "+secret, open, nil)
		for _, authorization := range []string{secret, "Basic " + secret, "bearer  " + secret, "Bearer " + secret + "x", "Bearer " + secret + ", Bearer " + secret} {
			ask("GET", "/v1/flights", authorization, "", nil)
		}
		ask("GET", "/v1/flights?key=default/a/"+url.QueryEscape(secret), "Bearer "+admin, "", nil)
		ask("GET", "/v1/flights?token="+secret, "Bearer "+admin, "", nil)
		ask("GET", "/"+secret, "", "", nil)
		ask("GET", "/v1/flights/"+secret, "Bearer "+admin, "", nil)
		ask("GET", "/v1/flights", "", "", func(r *http.Request) { r.URL.User = url.UserPassword("token", secret) })
		for _, header := range []string{"X-Request-Id", "Flightd-Namespace", "Flightd-Actor", "Flightd-Deployment", "Traceparent", "If-Match", "Cookie", "X-Token", "User-Agent"} {
			ask("GET", "/v1/flights", "Bearer "+admin, "", func(r *http.Request) { r.Header.Set(header, secret) })
		}
		ask("POST", "/v1/flights:open", "Bearer "+admin, `{"action":"`+secret+`","id":"`+secret, nil)
		ask("POST", "/v1/flights:open", "Bearer "+admin, `{"`+secret+`":1}`, nil)
	}
	ask("GET", "/v1/audit", "Bearer "+admin, "", nil)
	ask("GET", "/v1/tokens", "Bearer "+admin, "", nil)
	said.WriteString(body(t, metricsURL+"/metrics") + body(t, metricsURL+"/metrics/raft") + body(t, metricsURL+"/metrics/etcd"))
	for _, profile := range []string{"heap", "goroutine"} {
		require.NoError(t, pprof.Lookup(profile).WriteTo(&said, 1))
	}
	n.end()

	key, err := os.ReadFile(ca.files().Key)
	require.NoError(t, err)
	hidden := [][]byte{[]byte(strings.Split(string(key), "\n")[1])}
	for _, secret := range secrets {
		hidden = append(hidden, []byte(secret[5:40]), []byte(url.QueryEscape(secret)))
	}
	scan := func(place string, text []byte) {
		for i, secret := range hidden {
			if at := bytes.Index(text, secret); at >= 0 {
				t.Errorf("secret %d is in %s: …%.200q", i, place, text[max(0, at-150):])
			}
		}
	}
	scan("the log", log.Bytes())
	scan("an answer", said.Bytes())
	read := 0
	require.NoError(t, filepath.WalkDir(data, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		read += len(content)
		scan(path, content)
		return err
	}))
	require.Greater(t, read, 10_000)
	require.Contains(t, log.String(), "httpapi: request rejected", "the log is at level debug")
}
