package peer

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The successor of a node has another certificate of the same CA; a repeat returns the directory that is there.
func TestReplace_MakesADirectoryOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca, out := filepath.Join(dir, "ca"), filepath.Join(dir, "c-2")
	nodes := []Node{{Name: "a", Address: "h:1", Etcd: "h:2"}, {Name: "b", Address: "h:3", Etcd: "h:4"}, {Name: "c", Address: "h:5", Etcd: "h:6"}}
	require.NoError(t, Found(ca, nodes, FoundOptions{}))
	first, err := Load(filepath.Join(ca, "c"))
	require.NoError(t, err)
	made, err := Replace(ca, out, first.ClusterID, "c", nodes)
	require.NoError(t, err)
	require.True(t, made.Replacement)
	require.False(t, first.Replacement)
	require.NotEqual(t, first.Certificate(), made.Certificate())
	require.Equal(t, first.Nodes, made.Nodes)
	again, err := Replace(ca, out, first.ClusterID, "c", nodes)
	require.NoError(t, err)
	require.Equal(t, made.Certificate(), again.Certificate())

	for name, try := range map[string]func() (*Founding, error){
		"name a new one":           func() (*Founding, error) { return Replace(ca, out, first.ClusterID, "b", nodes) },
		"is the directory of node": func() (*Founding, error) { return Replace(ca, filepath.Join(ca, "c"), first.ClusterID, "c", nodes) },
		"made for this cluster":    func() (*Founding, error) { return Replace(ca, filepath.Join(dir, "1"), "another", "c", nodes) },
		`has no node "x"`:          func() (*Founding, error) { return Replace(ca, filepath.Join(dir, "2"), first.ClusterID, "x", nodes) },
		"the node CA in":           func() (*Founding, error) { return Replace(dir, filepath.Join(dir, "3"), first.ClusterID, "c", nodes) },
		"no complete founding":     func() (*Founding, error) { return Replace(ca, dir, first.ClusterID, "c", nodes) },
	} {
		_, err := try()
		require.ErrorContains(t, err, name)
	}
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 2, "a call that was rejected has left something")
}
