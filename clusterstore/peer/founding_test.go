package peer_test

import (
	"crypto/x509"
	"encoding/pem"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/clusterstore/peer"
)

var threeNodes = []peer.Node{
	{Name: "a", Address: "10.0.0.1:7430"}, {Name: "b", Address: "b.example.com:7430"}, {Name: "c-3", Address: "[fd00::3]:7430", Etcd: "etcd.example.com:2380"},
}

const tokenHash = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// found makes the founding directories of threeNodes.
func found(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "cluster")
	require.NoError(t, peer.Found(dir, threeNodes, peer.FoundOptions{TokenSHA256: tokenHash}))
	return dir
}

func TestFound_EachNodeLoadsItsDirectory(t *testing.T) {
	dir := found(t)
	ids := make(map[string]bool)
	for i, name := range []string{"a", "b", "c-3"} {
		f, err := peer.Load(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, name, f.Self.Name)
		require.Equal(t, f.Nodes[i], f.Self)
		require.Len(t, f.Nodes, 3)
		require.Equal(t, tokenHash, f.TokenSHA256)
		require.NoFileExists(t, filepath.Join(f.Dir, "ca.key"))
		ids[f.ClusterID] = true

		data, err := os.ReadFile(f.Cert())
		require.NoError(t, err)
		block, _ := pem.Decode(data)
		cert, err := x509.ParseCertificate(block.Bytes)
		require.NoError(t, err)
		require.Contains(t, cert.DNSNames, name+"."+f.ClusterID+".flightd")
		require.NotEmpty(t, cert.AuthorityKeyId, "openssl -x509_strict wants it")
		require.WithinDuration(t, time.Now().AddDate(10, 0, 0), cert.NotAfter, time.Minute)
		for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
			_, err = cert.Verify(x509.VerifyOptions{Roots: f.TLS().RootCAs, KeyUsages: []x509.ExtKeyUsage{usage}})
			require.NoError(t, err)
		}
	}
	require.Len(t, ids, 1)
	b, err := peer.Load(filepath.Join(dir, "b"))
	require.NoError(t, err)
	require.Equal(t, []string{"10.0.0.1:7431", "b.example.com:7431", "etcd.example.com:2380"}, []string{b.Nodes[0].Etcd, b.Nodes[1].Etcd, b.Nodes[2].Etcd})
	files := 0
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		require.NoError(t, err)
		info, err := d.Info()
		require.NoError(t, err)
		want := fs.FileMode(0o600)
		if d.IsDir() {
			want = 0o700
		} else {
			files++
		}
		require.Equal(t, want, info.Mode().Perm(), path)
		return nil
	}))
	require.Equal(t, 2+3*4, files)
}

func TestFound_RejectsWhatCannotBeACluster(t *testing.T) {
	change := func(f func(n []peer.Node)) []peer.Node {
		nodes := append([]peer.Node(nil), threeNodes...)
		f(nodes)
		return nodes
	}
	for want, nodes := range map[string][]peer.Node{
		"not with 2":           threeNodes[:2],
		"not with 4":           append(change(func([]peer.Node) {}), peer.Node{Name: "d", Address: "d:1"}),
		"node a is named":      change(func(n []peer.Node) { n[1].Name = "a" }),
		`node "B"`:             change(func(n []peer.Node) { n[1].Name = "B" }),
		`node "-b"`:            change(func(n []peer.Node) { n[1].Name = "-b" }),
		`node ""`:              change(func(n []peer.Node) { n[1].Name = "" }),
		"want HOST:PORT":       change(func(n []peer.Node) { n[1].Address = "10.0.0.2" }),
		"the other nodes":      change(func(n []peer.Node) { n[1].Address = "0.0.0.0:7430" }),
		"without a scheme":     change(func(n []peer.Node) { n[1].Address = "[http://b]:7430" }),
		"want a port":          change(func(n []peer.Node) { n[1].Address = "b:65536" }),
		`"b:65536": want`:      change(func(n []peer.Node) { n[1].Address = "b:65535" }), // etcd's port is the next one
		"that of node a: give": change(func(n []peer.Node) { n[1].Address = "10.0.0.1:7431" }),
	} {
		dir := filepath.Join(t.TempDir(), "cluster")
		require.ErrorContains(t, peer.Found(dir, nodes, peer.FoundOptions{}), want)
		require.NoDirExists(t, dir)
	}
	dir := t.TempDir()
	require.ErrorContains(t, peer.Found(dir, threeNodes, peer.FoundOptions{TokenSHA256: "abc"}), "/token_sha256")
	require.NoError(t, os.Chmod(dir, 0o755))
	require.NoError(t, peer.Found(dir, threeNodes, peer.FoundOptions{}), "an empty directory")
	info, err := os.Stat(dir)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o700), info.Mode().Perm())
	require.ErrorContains(t, peer.Found(dir, threeNodes, peer.FoundOptions{}), "is not empty")
}

func TestLoad_NamesTheFileAndTheRemedy(t *testing.T) {
	other := found(t)
	edit := func(old, new string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			path := filepath.Join(dir, "founding.json")
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Contains(t, string(text), old)
			require.NoError(t, os.WriteFile(path, []byte(strings.Replace(string(text), old, new, 1)), 0o600))
		}
	}
	take := func(from string, files ...string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			for _, file := range files {
				data, err := os.ReadFile(filepath.Join(dir, from, file))
				if filepath.IsAbs(from) {
					data, err = os.ReadFile(filepath.Join(from, file))
				}
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(filepath.Join(dir, file), data, 0o600))
			}
		}
	}
	remove := func(file string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) { require.NoError(t, os.Remove(filepath.Join(dir, file))) }
	}
	for _, test := range []struct {
		name   string
		damage func(t *testing.T, dir string)
		want   []string
	}{
		{"no founding", remove("founding.json"), []string{"founding.json is missing", "flightd cluster found"}},
		{"unknown field", edit(`"format"`, `"extra": 1, "format"`), []string{"founding.json", "/extra", "unknown field", "copy the directory"}},
		{"later format", edit(`"format": 1`, `"extra": 1, "format": 2`), []string{"founding.json has format 2", "install"}},
		{"no format", edit(`"format": 1`, `"format": 0`), []string{"/format"}},
		{"cluster id", edit(`"cluster_id": "`, `"cluster_id": "0`), []string{"/cluster_id"}},
		{"self is unknown", edit(`"self": "a"`, `"self": "x"`), []string{"/self"}},
		{"self is another", edit(`"self": "a"`, `"self": "b"`), []string{"node.crt is not the certificate of node b"}},
		{"other address", edit("10.0.0.1:7430", "10.0.0.9:7430"), []string{"node.crt", "10.0.0.9"}},
		{"bad node", edit(`"name": "b"`, `"name": "a"`), []string{"node a is named twice"}},
		{"bad hash", edit(`"token_sha256": "0`, `"token_sha256": "`), []string{"/token_sha256"}},
		{"key is readable", func(t *testing.T, dir string) { require.NoError(t, os.Chmod(filepath.Join(dir, "node.key"), 0o640)) }, []string{"node.key has mode 0640", "chmod 600"}},
		{"no key", remove("node.key"), []string{"node.key", "copy the directory"}},
		{"no CA", remove("ca.crt"), []string{"ca.crt", "copy the directory"}},
		{"empty CA", func(t *testing.T, dir string) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, "ca.crt"), nil, 0o600))
		}, []string{"ca.crt has no certificate"}},
		{"other CA", take(other, "ca.crt"), []string{"node.crt", "unknown authority"}},
		{"other key", take("../b", "node.key"), []string{"node.crt and node.key"}},
		{"certificate of b", take("../b", "node.key", "node.crt"), []string{"node.crt is not the certificate of node a"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := filepath.Join(found(t), "a")
			test.damage(t, dir)
			_, err := peer.Load(dir)
			for _, want := range append(test.want, dir) {
				require.ErrorContains(t, err, want)
			}
		})
	}
	_, err := peer.Load(t.TempDir())
	require.ErrorIs(t, err, fs.ErrNotExist)
}
