package client_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/flight"
)

const canary = "fltd_canary-4f1c"

// credentials notes the Authorization header of every request, by path.
func (fi *fixture) credentials() (seen func() map[string][]string) {
	var mu sync.Mutex
	all := map[string][]string{}
	fi.setFault(func(r *http.Request) fault {
		mu.Lock()
		defer mu.Unlock()
		all[r.URL.Path] = append(all[r.URL.Path], r.Header.Get("Authorization"))
		return none
	})
	return func() map[string][]string { mu.Lock(); defer mu.Unlock(); return all }
}

// Every request carries the token: opens, reports, renewals, spool sends, long polls and event streams.
func TestToken_IsSentWithEveryRequest(t *testing.T) {
	g := newFixture(t)
	g.unrecorded()
	seen := g.credentials()
	c := g.connect(client.WithToken(canary))
	c.WaitForSpool(t.Context())
	g.useSession(c)
	_, err := c.WaitFlight(t.Context(), key.FlightID(), "", time.Second)
	require.NoError(t, err)
	for range c.Events(t.Context(), client.EventQuery{Last: 1}) {
		break
	}
	require.NoError(t, c.Close(t.Context()))
	paths := seen()
	require.Contains(t, paths, "/version")
	require.Contains(t, paths, "/v1/events")
	require.Contains(t, paths, "/v1/flights/"+key.FlightID().String()+"/report", "from the spool")
	for path, headers := range paths {
		for _, h := range headers {
			require.Equal(t, "Bearer "+canary, h, path)
		}
	}
}

// The option comes before the environment, the environment's token before its file, and a token before the address's
// user.
func TestToken_Precedence(t *testing.T) {
	g := newFixture(t)
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("of-the-file\r\n"), 0o600))
	for name, row := range map[string]struct {
		env, envFile string
		user         string
		opts         []client.Option
		want         string
	}{
		"none":                        {want: ""},
		"the environment":             {env: "of-the-environment", envFile: file, want: "Bearer of-the-environment"},
		"a line break at its end":     {env: "of-the-environment\r\n", want: "Bearer of-the-environment"},
		"the environment's file":      {envFile: file, want: "Bearer of-the-file"},
		"an option":                   {env: "x", envFile: "x", opts: []client.Option{client.WithToken("given")}, want: "Bearer given"},
		"an option's file":            {env: "x", opts: []client.Option{client.WithTokenFile(file)}, want: "Bearer of-the-file"},
		"an option before its file":   {opts: []client.Option{client.WithTokenFile(file), client.WithToken("given")}, want: "Bearer given"},
		"an empty option":             {env: "of-the-environment", opts: []client.Option{client.WithToken("")}, want: "Bearer of-the-environment"},
		"the address":                 {user: "u:p@", want: "Basic dTpw"},
		"a token beside an address's": {user: "u:p@", env: "of-the-environment", want: "Bearer of-the-environment"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("FLIGHTD_TOKEN", row.env)
			t.Setenv("FLIGHTD_TOKEN_FILE", row.envFile)
			seen := g.credentials()
			c := g.connectTo(strings.Replace(g.server.URL, "://", "://"+row.user, 1), row.opts...)
			require.NoError(t, c.Close(t.Context()))
			require.Equal(t, []string{row.want}, seen()["/version"])
		})
	}
}

// A token that cannot be sent is an error of Connect, which does not show it.
func TestToken_ThatCannotBeSent(t *testing.T) {
	dir := t.TempDir()
	file := func(text string) string {
		path := filepath.Join(dir, fmt.Sprintf("%x", text))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	for name, opt := range map[string]client.Option{
		"a space":           client.WithToken(canary + " x"),
		"a line break":      client.WithToken(canary + "\n"),
		"a control":         client.WithToken(canary + "\x01"),
		"outside ASCII":     client.WithToken(canary + "é"),
		"a file with lines": client.WithTokenFile(file(canary + "\n" + canary + "\n")),
		"an empty file":     client.WithTokenFile(file("\n")),
		"no file":           client.WithTokenFile(filepath.Join(dir, "none")),
	} {
		_, err := client.Connect(t.Context(), "http://127.0.0.1:1", client.WithoutSpool(), opt)
		require.ErrorContains(t, err, "token", name)
		require.NotContains(t, err.Error(), canary, name)
	}
	for name, opt := range map[string]client.Option{"a token": client.WithToken("Bearer " + canary), "a file": client.WithTokenFile(file("bearer " + canary))} {
		_, err := client.Connect(t.Context(), "http://127.0.0.1:1", client.WithoutSpool(), opt)
		require.ErrorContains(t, err, `begins with "Bearer ": leave that word out`, name)
		require.NotContains(t, err.Error(), canary, name)
	}
	missing := filepath.Join(dir, "none")
	t.Setenv("FLIGHTD_TOKEN_FILE", missing)
	_, err := client.Connect(t.Context(), "http://127.0.0.1:1", client.WithoutSpool())
	require.ErrorContains(t, err, "FLIGHTD_TOKEN_FILE: open "+missing)
	t.Setenv("FLIGHTD_TOKEN_FILE", "")
	_, err = client.Connect(t.Context(), "http://user:"+canary+"@127.0.0.1:1?x=y", client.WithoutSpool())
	require.ErrorContains(t, err, "127.0.0.1:1?x=y")
	require.NotContains(t, err.Error(), canary)
}

// A token is sent over plain HTTP to this machine alone, unless the caller allows more.
func TestToken_OverPlainHTTP(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end() // no request leaves
	for name, row := range map[string]struct {
		address string
		env     map[string]string
		opts    []client.Option
		host    string // named by the error; "": the token may be sent
	}{
		"another machine":    {address: "http://user:pw@flightd.example.com:7420/x", opts: []client.Option{client.WithToken(canary)}, host: "http://flightd.example.com:7420;"},
		"without a scheme":   {address: "10.0.0.1:7420", opts: []client.Option{client.WithToken(canary)}, host: "http://10.0.0.1:7420;"},
		"the second address": {address: "https://a,http://b", env: map[string]string{"FLIGHTD_TOKEN": canary}, host: "http://b;"},
		"a name like local":  {address: "http://localhost.example.com", env: map[string]string{"FLIGHTD_TOKEN": canary}, host: "http://localhost.example.com;"},
		"not allowed":        {address: "http://b", env: map[string]string{"FLIGHTD_TOKEN": canary, "FLIGHTD_ALLOW_PLAIN_HTTP": "false"}, host: "http://b;"},
		"https":              {address: "https://flightd.example.com", opts: []client.Option{client.WithToken(canary)}},
		"loopback":           {address: "LOCALHOST:1,http://127.9.9.9:1,http://[::1]:1", opts: []client.Option{client.WithToken(canary)}},
		"without a token":    {address: "http://flightd.example.com"},
		"allowed":            {address: "http://b", opts: []client.Option{client.WithToken(canary), client.WithPlainHTTP()}},
		"allowed by its env": {address: "http://b", env: map[string]string{"FLIGHTD_TOKEN": canary, "FLIGHTD_ALLOW_PLAIN_HTTP": "true"}},
	} {
		t.Run(name, func(t *testing.T) {
			for k, v := range row.env {
				t.Setenv(k, v)
			}
			_, err := client.Connect(ended, row.address, append(row.opts, client.WithoutSpool())...)
			if row.host == "" {
				require.ErrorIs(t, err, context.Canceled)
				return
			}
			var invalid *flight.InvalidError
			require.ErrorAs(t, err, &invalid)
			require.ErrorContains(t, err, "the token would travel in clear text to "+row.host+" write https://")
			require.ErrorContains(t, err, "FLIGHTD_ALLOW_PLAIN_HTTP=true")
			require.NotContains(t, err.Error(), "pw")
			require.NotContains(t, err.Error(), canary)
		})
	}
}

// A replaced token is used without a restart. While the file has no valid token, the last one is used.
func TestTokenFile_IsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newBubbleFixture(t)
		file := filepath.Join(t.TempDir(), "token")
		replace := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
		replace("first\n")
		seen := g.credentials()
		c := g.connect(client.WithTokenFile(file))
		ask := func() string {
			_, err := c.Version(t.Context())
			require.NoError(t, err)
			all := seen()["/version"]
			return all[len(all)-1]
		}
		replace("second\n")
		require.Equal(t, "Bearer first", ask(), "at most one read in a second")
		time.Sleep(time.Second)
		require.Equal(t, "Bearer second", ask())
		for _, bad := range []string{"", "not one word\n"} {
			replace(bad)
			time.Sleep(time.Second)
			require.Equal(t, "Bearer second", ask())
		}
		require.NoError(t, os.Remove(file))
		time.Sleep(time.Second)
		require.Equal(t, "Bearer second", ask())
		require.Equal(t, 3, strings.Count(g.logged(), "the token file cannot be used"), g.logged())
		require.NotContains(t, g.logged(), "not one word")
		replace("third\n")
		time.Sleep(time.Second)
		require.Equal(t, "Bearer third", ask())
	})
}

// No error, dump, log or spool file shows the token.
func TestToken_IsNeverShown(t *testing.T) {
	g := newFixture(t)
	var shown strings.Builder
	c := g.connect(client.WithToken(canary), client.WithReportTimeout(50*time.Millisecond), client.WithRetryTimeout(50*time.Millisecond))
	fmt.Fprintf(&shown, "%v %+v %#v", c, c, c)
	for _, f := range []fault{cutBefore, shutOut, refused} {
		g.setFault(func(r *http.Request) fault {
			if hasSuffix(r, "/report") {
				return f
			}
			return none
		})
		charge := call(`1`)
		charge.Key = flight.MustKey(fmt.Sprintf("default/charge/%d", f))
		_, err := c.Do(t.Context(), charge, succeedingHandler(`1`))
		require.Error(t, err)
		fmt.Fprintf(&shown, "%v %+v %#v", err, err, err)
		g.setFault(func(*http.Request) fault { return f })
		_, err = c.Version(t.Context())
		require.Error(t, err)
		fmt.Fprintf(&shown, "%v %+v %#v", err, err, err)
	}
	g.setFault(nil)
	for _, name := range g.files() {
		b, err := os.ReadFile(filepath.Join(g.spool, name))
		require.NoError(t, err)
		shown.Write(b)
	}
	require.Len(t, g.files(), 3)
	shown.WriteString(g.logged())
	require.NotContains(t, shown.String(), canary)
}

// An open over a quota waits as long as the server says, and is repeated within the retry timeout.
func TestOpen_OverAQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newBubbleFixture(t)
		c := g.connect(client.WithRetryTimeout(10 * time.Second))
		asked := 0
		g.setFault(func(r *http.Request) fault {
			if asked++; asked < 3 {
				return overQuota
			}
			return none
		})
		began := time.Now()
		_, err := c.Do(t.Context(), call(`1`), succeedingHandler(`1`))
		require.NoError(t, err)
		require.Equal(t, 4*time.Second, time.Since(began).Truncate(time.Second), "2 s as often as it said so")

		g.setFault(func(*http.Request) fault { return overQuota })
		other := call(`1`)
		other.Key = flight.MustKey("default/charge/other")
		_, err = c.Do(t.Context(), other, unreachableHandler(t))
		require.Equal(t, client.Code("quota_exceeded"), client.CodeOf(err))
		var unavailable *client.Unavailable
		require.ErrorAs(t, err, &unavailable)
	})
}
