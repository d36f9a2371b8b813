package peer

import (
	"crypto/ecdsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/flightd/flightd/internal/cert"
	"github.com/flightd/flightd/internal/durable"
)

// FoundOptions are the options of Found.
type FoundOptions struct {
	TokenSHA256 string // SHA-256 of the first token in hex; "": no token is made
	// From prepares a lone ledger for the first node, which takes the others in, and returns its cluster id. It is called when all
	// else was checked. nil: a new ledger.
	From func() (clusterID string, err error)
}

const (
	certificateYears = 10
)

// Found makes the founding directories of a new cluster: DIR/NAME for each node, to be copied to that node, and DIR/ca.crt and
// DIR/ca.key, the node CA, which signs the certificate of a node that is replaced. The directory must be absent or empty.
//
// If the process dies during Found, or if Found returns an error after it has written a file, the directory is incomplete and
// must be removed before Found is called again. When Found returns nil, all files are durable.
func Found(dir string, nodes []Node, o FoundOptions) error {
	nodes = slices.Clone(nodes)
	for i := range nodes {
		n := &nodes[i]
		if host, port, err := net.SplitHostPort(n.Address); n.Etcd == "" && err == nil {
			next, _ := strconv.Atoi(port) // checkNodes rejects it
			n.Etcd = net.JoinHostPort(host, strconv.Itoa(next+1))
		}
	}
	if err := errors.Join(checkNodes(nodes), checkTokenHash(o.TokenSHA256)); err != nil {
		return fmt.Errorf("found a cluster: %w", err)
	}
	if left, err := os.ReadDir(dir); err == nil && len(left) > 0 {
		return fmt.Errorf("found a cluster: %s is not empty: name a new directory; if an earlier run was interrupted, remove it", dir)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("found a cluster: %w", err)
	}
	clusterID, err := uuid.NewString(), error(nil)
	if o.From != nil {
		if clusterID, err = o.From(); err == nil && !isUUID(clusterID) {
			err = fmt.Errorf("the id %q of its cluster is not a UUID", clusterID)
		}
		if err != nil {
			return fmt.Errorf("found a cluster from a lone ledger: %w", err)
		}
	}
	if err := writeFounding(dir, clusterID, nodes, o); err != nil {
		return fmt.Errorf("found a cluster: %w; remove %s before you repeat the command", err, dir)
	}
	return nil
}

// writeFounding writes all directories, the founding.json of each node last.
func writeFounding(dir, clusterID string, nodes []Node, o FoundOptions) error {
	file := foundingJSON{Format: foundingFormat, ClusterID: clusterID, Nodes: nodes, TokenSHA256: o.TokenSHA256}
	ca := &x509.Certificate{
		Subject: pkix.Name{CommonName: caName(file.ClusterID)}, KeyUsage: x509.KeyUsageCertSign,
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o700); err != nil { // an empty directory that was there
		return err
	}
	caKey, err := cert.NewKey(filepath.Join(dir, caKeyFile))
	if err == nil {
		ca, err = writeCertificate(filepath.Join(dir, caCertFile), ca, ca, caKey, caKey)
	}
	if err != nil {
		return err
	}
	var certificates map[string]string
	if o.From != nil {
		certificates = make(map[string]string)
	}
	for i, n := range slices.Backward(nodes) {
		file.Self, file.Replacement = n.Name, o.From != nil && i > 0
		if i == 0 {
			file.Takes = certificates
		}
		certificate, err := writeNode(filepath.Join(dir, n.Name), &file, n, ca, caKey)
		if err != nil {
			return err
		}
		if o.From != nil {
			certificates[n.Name] = fingerprint(certificate)
		}
	}
	return durable.SyncDir(filepath.Dir(filepath.Clean(dir)))
}

func caName(clusterID string) string { return "flightd node CA " + clusterID }

// writeNode makes the directory of a node and writes it, founding.json last.
func writeNode(dir string, file *foundingJSON, n Node, ca *x509.Certificate, caKey *ecdsa.PrivateKey) (made *x509.Certificate, err error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	key, err := cert.NewKey(filepath.Join(dir, keyFile))
	if err != nil {
		return nil, err
	}
	text, err := json.MarshalIndent(file, "", "  ")
	if err == nil {
		made, err = writeCertificate(filepath.Join(dir, certFile), nodeCertificate(n, file.ClusterID), ca, key, caKey)
	}
	if err := errors.Join(err, durable.Create(filepath.Join(dir, caCertFile), cert.PEM(ca), 0o600)); err != nil {
		return nil, err
	}
	return made, durable.Create(filepath.Join(dir, foundingFile), append(text, '\n'), 0o600)
}

// nodeCertificate returns the template of a node's certificate. The host names are for etcd's members, which verify them.
func nodeCertificate(n Node, clusterID string) *x509.Certificate {
	name := serverName(n.Name, clusterID)
	c := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, host := range slices.Compact([]string{hostOf(n.Address), hostOf(n.Etcd)}) {
		if ip := net.ParseIP(host); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, host)
		}
	}
	return c
}

// writeCertificate signs a certificate for key with the key of the CA, writes it, and returns it.
func writeCertificate(path string, template, ca *x509.Certificate, key, caKey *ecdsa.PrivateKey) (*x509.Certificate, error) {
	made, err := cert.Sign(template, ca, key.Public(), caKey, time.Now().AddDate(certificateYears, 0, 0))
	if err != nil {
		return nil, err
	}
	return made, durable.Create(path, cert.PEM(made), 0o600)
}
