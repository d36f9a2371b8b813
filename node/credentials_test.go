package node

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/auth"
)

// startClosed starts a node that demands tokens, and returns the first token if this start has made one.
func startClosed(t *testing.T, data string, change func(*Config)) (l *runningNode, first string) {
	t.Helper()
	l = startNodeWith(t, data, func(c *Config) {
		c.NoCredentials = false
		c.FirstToken.Print = func(secret string) { first = secret }
		if change != nil {
			change(c)
		}
	})
	return l, first
}

func (n *runningNode) statusAs(token string) int {
	n.t.Helper()
	req, err := http.NewRequest(http.MethodGet, n.url+"/v1/whoami", nil)
	require.NoError(n.t, err)
	req.Header.Set("Authorization", "Bearer "+token)
	answer, err := http.DefaultClient.Do(req)
	require.NoError(n.t, err)
	require.NoError(n.t, answer.Body.Close())
	return answer.StatusCode
}

// The first token is made once. It is replaced only when an operator gives a reason, and the old one is then invalid.
func TestFirstToken(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	n, first := startClosed(t, data, nil)
	require.Equal(t, http.StatusOK, n.statusAs(first))
	require.Equal(t, http.StatusUnauthorized, n.status("/v1/whoami"))
	n.end()
	n, again := startClosed(t, data, nil)
	require.Empty(t, again)
	require.Equal(t, http.StatusOK, n.statusAs(first))
	n.end()
	n, replaced := startClosed(t, data, func(c *Config) { c.Operator.NewAdminToken, c.Operator.Actor = "the token was lost", "ada" })
	require.Equal(t, http.StatusOK, n.statusAs(replaced))
	require.Equal(t, http.StatusUnauthorized, n.statusAs(first))
}

// A process that died after it wrote the file finds its token there, and so does an operator who has put one there.
func TestFirstTokenFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	inFile := func(c *Config) { c.FirstToken.File = file }
	given := auth.NewSecret(flight.AllNamespaces)
	require.NoError(t, os.WriteFile(file, []byte(given+"\n"), 0o600))
	n, called := startClosed(t, t.TempDir(), inFile)
	require.Equal(t, http.StatusOK, n.statusAs(given))
	require.Empty(t, called)
	n.end()

	require.NoError(t, os.Remove(file))
	data := t.TempDir()
	n, _ = startClosed(t, data, inFile)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	first := strings.TrimSpace(string(text))
	require.Equal(t, http.StatusOK, n.statusAs(first))
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	n.end()

	n, _ = startClosed(t, data, func(c *Config) { inFile(c); c.Operator.NewAdminToken = "it has leaked" })
	require.Equal(t, http.StatusUnauthorized, n.statusAs(first), "a token in the file does not survive its replacement")
	n.end()

	var invalid *flight.InvalidError
	require.ErrorAs(t, Run(t.Context(), Config{Data: t.TempDir(), Listen: Listen{Address: "127.0.0.1:0"}}), &invalid, "nobody would get the first token")
}

// A used token does not reach another ledger, also not if the operator had put it there: its callers would repeat their
// effects on a ledger that does not know them. The ledger that uses the token accepts it again.
func TestFirstTokenFileOfAnotherDeployment(t *testing.T) {
	t.Parallel()
	for _, given := range []bool{true, false} {
		file, data := filepath.Join(t.TempDir(), "token"), t.TempDir()
		if given {
			require.NoError(t, os.WriteFile(file, []byte(auth.NewSecret(flight.AllNamespaces)+"\n"), 0o600))
		}
		n, _ := startClosed(t, data, func(c *Config) { c.FirstToken.File = file })
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		n.end()
		var invalid *flight.InvalidError
		other := Config{Data: filepath.Join(t.TempDir(), "data"), FirstToken: FirstToken{File: file}}
		_, err = Init(t.Context(), other)
		require.ErrorAs(t, err, &invalid)
		require.Equal(t, "first_token_file", invalid.Field)
		require.NoDirExists(t, other.Data)
		_, err = storeSecret(file, auth.NewSecret(flight.AllNamespaces), "another", false)
		require.ErrorAs(t, err, &invalid, "a ledger that Init has left without a token")
		require.Contains(t, invalid.Detail, "deployment")
		n, _ = startClosed(t, data, func(c *Config) { c.FirstToken.File = file })
		require.Equal(t, http.StatusOK, n.statusAs(strings.TrimSpace(string(text))))
		n.end()
	}
}

// A file that another user could have written or read is not the first token, and neither is a token of one namespace.
// The error says what to do.
func TestFirstTokenFileOfOthers(t *testing.T) {
	given := auth.NewSecret(flight.AllNamespaces)
	write := func(t *testing.T, file, content string, mode os.FileMode) {
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
		require.NoError(t, os.Chmod(file, mode))
	}
	for name, test := range map[string]struct {
		plant func(t *testing.T, file string)
		want  string
	}{
		"writable by all": {func(t *testing.T, file string) { write(t, file, given, 0o666) }, "chmod 600"},
		"readable by all": {func(t *testing.T, file string) { write(t, file, given, 0o644) }, "chmod 600"},
		"of another user": {func(t *testing.T, file string) {
			write(t, file, given, 0o600)
			if err := os.Chown(file, 65534, 65534); err != nil {
				t.Skip("only root can give a file away")
			}
			if os.Geteuid() == 65534 {
				t.Skip("this user is that other user")
			}
		}, "another user"},
		"symbolic link": {func(t *testing.T, file string) {
			write(t, file+".target", given, 0o600)
			require.NoError(t, os.Symlink(file+".target", file))
		}, "symbolic link"},
		"FIFO":             {func(t *testing.T, file string) { require.NoError(t, syscall.Mkfifo(file, 0o600)) }, "not a regular file"},
		"not a token":      {func(t *testing.T, file string) { write(t, file, "not a token", 0o600) }, "not a token"},
		"of one namespace": {func(t *testing.T, file string) { write(t, file, auth.NewSecret("billing"), 0o600) }, "all namespaces"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "token")
			test.plant(t, file)
			secret, err := storeSecret(file, auth.NewSecret(flight.AllNamespaces), "d1", false)
			require.Empty(t, secret)
			var invalid *flight.InvalidError
			require.ErrorAs(t, err, &invalid)
			require.Equal(t, "first_token_file", invalid.Field)
			require.Contains(t, invalid.Detail, test.want)
		})
	}
}
