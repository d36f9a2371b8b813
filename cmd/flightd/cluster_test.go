package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/clusterstore/peer"
	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/internal/auth"
)

// foundArgs returns the arguments of flightd cluster found for three nodes.
func foundArgs(out string, more ...string) []string {
	return append([]string{"cluster", "found", "--node", "a=10.0.0.1:7430", "--node", "b=10.0.0.2:7430", "--node", "c=c.example.com:7430", "--out", out}, more...)
}

// tokenHash returns the hash of the first token in the directory of a node.
func tokenHash(t *testing.T, dir string) string {
	t.Helper()
	f, err := peer.Load(dir)
	require.NoError(t, err)
	return f.TokenSHA256
}

func hashOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

func TestClusterFound_PrintsTheFirstTokenOnce(t *testing.T) {
	out := filepath.Join(t.TempDir(), "cluster")
	r := flightd(nil, foundArgs(out)...).want(t, cli.ExitOK, "", "")
	secret := regexp.MustCompile(`fltd_\S+`).FindAllString(r.out+r.err, -1)
	require.Len(t, secret, 1, "%v", r)
	require.NotContains(t, r.out, secret[0])
	require.True(t, auth.WellFormed(secret[0]))
	for _, name := range []string{"a", "b", "c"} {
		require.Equal(t, hashOf(secret[0]), tokenHash(t, filepath.Join(out, name)))
		require.Contains(t, r.out, "flightd serve --cluster "+filepath.Join(out, name))
	}
	require.Contains(t, r.err, "keep "+filepath.Join(out, "ca.key")+" apart")
	require.NoError(t, filepath.WalkDir(out, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			var data []byte
			data, err = os.ReadFile(path)
			require.NotContains(t, string(data), secret[0], path)
		}
		return err
	}))
}

func TestClusterFound_WritesTheFirstTokenToAFile(t *testing.T) {
	dir := t.TempDir()
	out, file := filepath.Join(dir, "cluster"), filepath.Join(dir, "token")
	r := flightd(nil, foundArgs(out, "--first-token-file", file)...).want(t, cli.ExitOK, "", "")
	require.NotContains(t, r.out+r.err, auth.Prefix)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, hashOf(strings.TrimSpace(string(text))), tokenHash(t, filepath.Join(out, "a")))
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o600), info.Mode().Perm())

	again := flightd(nil, foundArgs(filepath.Join(dir, "other"), "--first-token-file", file)...)
	require.Equal(t, cli.ExitUsage, again.code, "%v", again)
	require.Contains(t, again.err, "exists: name a new file")
	kept, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, text, kept)

	other := filepath.Join(dir, "other-token")
	again = flightd(nil, foundArgs(out, "--first-token-file", other)...)
	require.Equal(t, cli.ExitUsage, again.code, "%v", again)
	require.Contains(t, again.err, "is not empty")
	require.NoFileExists(t, other)
}

func TestClusterFound_EveryFormat(t *testing.T) {
	dir := t.TempDir()
	var made madeCluster
	r := flightd(nil, foundArgs(filepath.Join(dir, "json"), "-o", "json")...).want(t, cli.ExitOK, "", "")
	require.NoError(t, json.Unmarshal([]byte(r.out), &made))
	require.Equal(t, madeNode{
		Name: "a", Address: "10.0.0.1:7430", Etcd: "10.0.0.1:7431", Directory: filepath.Join(dir, "json", "a"),
		Start: "flightd serve --cluster " + filepath.Join(dir, "json", "a"),
	}, made.Nodes[0])
	require.FileExists(t, made.CAKey)
	var value map[string]any
	r = flightd(nil, foundArgs(filepath.Join(dir, "yaml"), "-o", "yaml")...)
	require.NoError(t, yaml.Unmarshal([]byte(r.out), &value), "%v", r)
	require.Contains(t, value, "cluster_id")
	f := func() string {
		return strings.TrimSpace(flightd(nil, foundArgs(filepath.Join(dir, "id"), "-o", "id")...).out)
	}()
	a, err := peer.Load(filepath.Join(dir, "id", "a"))
	require.NoError(t, err)
	require.Equal(t, a.ClusterID, f)
}

func TestClusterFound_RejectsWhatCannotBeACluster(t *testing.T) {
	out := filepath.Join(t.TempDir(), "cluster")
	for want, args := range map[string][]string{
		"--out is missing":    {"--node", "a=h:1"},
		"want NAME=HOST:PORT": {"--out", out, "--node", "10.0.0.1:7430"},
		"not with 0":          {"--out", out},
		"HOST:PORT":           {"--out", out, "--node", "a=h", "--node", "b=h:3", "--node", "c=h:5"},
		"node a is named":     {"--out", out, "--node", "a=h:1", "--node", "a=h:3", "--node", "c=h:5"},
	} {
		r := flightd(nil, append([]string{"cluster", "found"}, args...)...).want(t, cli.ExitUsage, "", want)
		require.Empty(t, r.out)
		require.NotContains(t, r.err, auth.Prefix)
		require.NoDirExists(t, out)
	}
}

// The first node of a moved ledger starts with its data directory, the others with new ones.
func TestClusterFound_FromNamesTheData(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.kill()
	var made madeCluster
	out := filepath.Join(t.TempDir(), "cluster")
	r := s.flightd(foundArgs(out, "--from", s.data, "-o", "json")...).want(t, cli.ExitOK, "", "")
	require.NoError(t, json.Unmarshal([]byte(r.out), &made))
	require.Equal(t, "flightd serve --cluster "+filepath.Join(out, "a")+" --data "+s.data, made.Nodes[0].Start)
	require.Equal(t, "flightd serve --cluster "+filepath.Join(out, "b"), made.Nodes[1].Start)
}
