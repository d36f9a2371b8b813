package peer

import (
	"crypto/ecdsa"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/flightd/flightd/internal/durable"
)

// Replace makes the founding directory of the node that takes the place of node self of a cluster, with a new key and
// certificate. caDir has the node CA, as Found has left it. If dir is a directory that an earlier call for this node has made,
// Replace returns that one. The other nodes refuse the new node until the leader knows its certificate.
//
// If the process dies in Replace, or after an error, dir is incomplete and must be removed before Replace is called again.
func Replace(caDir, dir, clusterID, self string, nodes []Node) (*Founding, error) {
	made, err := Load(dir)
	if errors.Is(err, fs.ErrNotExist) {
		if err = writeReplacement(caDir, dir, clusterID, self, nodes); err == nil {
			made, err = Load(dir)
		}
	}
	if err == nil && (!made.Replacement || made.ClusterID != clusterID || made.Self.Name != self) {
		err = fmt.Errorf("%s is the directory of node %s of cluster %s: name a new one", dir, made.Self.Name, made.ClusterID)
	}
	if err != nil {
		return nil, fmt.Errorf("replace node %s: %w", self, err)
	}
	return made, nil
}

func writeReplacement(caDir, dir, clusterID, self string, nodes []Node) error {
	pair, err := tls.LoadX509KeyPair(filepath.Join(caDir, caCertFile), filepath.Join(caDir, caKeyFile))
	if err != nil {
		return fmt.Errorf("the node CA in %s: %w", caDir, err)
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok || pair.Leaf.Subject.CommonName != caName(clusterID) {
		return fmt.Errorf("%s is the CA %q, and the cluster is %s: name the directory that flightd cluster found made for this cluster", caDir, pair.Leaf.Subject.CommonName, clusterID)
	}
	n, found := nodeNamed(nodes, self)
	if !found {
		return fmt.Errorf("the cluster has no node %q", self)
	}
	if err := checkNodes(nodes); err != nil {
		return err
	}
	file := &foundingJSON{Format: foundingFormat, ClusterID: clusterID, Self: self, Nodes: nodes, Replacement: true}
	if _, err := writeNode(dir, file, n, pair.Leaf, key); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("%s exists and is no complete founding directory: remove it, or name a new one", dir)
		}
		return fmt.Errorf("%w; remove %s before you repeat the command", err, dir)
	}
	return durable.SyncDir(filepath.Dir(filepath.Clean(dir)))
}
