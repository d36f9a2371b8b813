package node

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
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
		c.FirstToken = func(secret string) { first = secret }
		if change != nil {
			change(c)
		}
	})
	return l, first
}

func (l *runningNode) statusAs(token string) int {
	l.t.Helper()
	req, err := http.NewRequest(http.MethodGet, l.url+"/v1/whoami", nil)
	require.NoError(l.t, err)
	req.Header.Set("Authorization", "Bearer "+token)
	answer, err := http.DefaultClient.Do(req)
	require.NoError(l.t, err)
	require.NoError(l.t, answer.Body.Close())
	return answer.StatusCode
}

// The first token is made once. It is replaced only when an operator gives a reason, and the old one is then invalid.
func TestFirstToken(t *testing.T) {
	data := t.TempDir()
	n, first := startClosed(t, data, nil)
	require.Equal(t, http.StatusOK, n.statusAs(first))
	require.Equal(t, http.StatusUnauthorized, n.status("/v1/whoami"))
	n.end()
	n, again := startClosed(t, data, nil)
	require.Empty(t, again)
	require.Equal(t, http.StatusOK, n.statusAs(first))
	n.end()
	n, replaced := startClosed(t, data, func(c *Config) { c.NewAdminToken, c.Actor = "the token was lost", "ada" })
	require.Equal(t, http.StatusOK, n.statusAs(replaced))
	require.Equal(t, http.StatusUnauthorized, n.statusAs(first))
}

// A process that died after it wrote the file finds its token there, and so does an operator who has put one there.
func TestFirstTokenFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	inFile := func(c *Config) { c.FirstTokenFile = file }
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

	n, _ = startClosed(t, data, func(c *Config) { inFile(c); c.NewAdminToken = "it has leaked" })
	require.Equal(t, http.StatusUnauthorized, n.statusAs(first), "a token in the file does not survive its replacement")
	n.end()

	require.NoError(t, os.WriteFile(file, []byte("not a token"), 0o600))
	var invalid *flight.InvalidError
	require.ErrorAs(t, Run(t.Context(), Config{Data: t.TempDir(), Listen: "127.0.0.1:0", FirstTokenFile: file}), &invalid)
	require.Equal(t, "first_token_file", invalid.Field)
	require.ErrorAs(t, Run(t.Context(), Config{Data: t.TempDir(), Listen: "127.0.0.1:0"}), &invalid, "nobody would get the first token")
}
