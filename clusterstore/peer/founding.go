package peer

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/flightd/flightd/internal/strictjson"
)

// Node is one node of a cluster.
type Node struct {
	Name    string `json:"name"`    // 1 to 32 lower-case letters, digits and '-'
	Address string `json:"address"` // HOST:PORT of the node port, as the other nodes reach it
	Etcd    string `json:"etcd"`    // HOST:PORT of etcd's peer port; for Found, "" is the port after that of Address
}

// Founding is the content of a node's founding directory.
type Founding struct {
	Dir         string
	ClusterID   string // a UUID
	Self        Node   // the node of this directory
	Nodes       []Node // all nodes, Self included, in the order in which they were named to Found
	TokenSHA256 string // SHA-256 of the first token in hex; "": none was made
	Replacement bool   // the node founds nothing: it waits until the leader takes it, in place of the one before or as a new one
	// Takes are the certificates of the nodes that a lone ledger, which this node has, takes in; nil: a new ledger.
	Takes map[string]string

	certificate tls.Certificate
	ca          *x509.CertPool
}

// The files of a founding directory.
const (
	caCertFile   = "ca.crt"
	caKeyFile    = "ca.key"
	certFile     = "node.crt"
	keyFile      = "node.key"
	foundingFile = "founding.json"
)

// foundingFormat is the format of founding.json.
const foundingFormat = 1

// foundingJSON is the content of founding.json.
type foundingJSON struct {
	Format      int               `json:"format"`
	ClusterID   string            `json:"cluster_id"`
	Self        string            `json:"self"`
	Nodes       []Node            `json:"nodes"`
	TokenSHA256 string            `json:"token_sha256,omitempty"`
	Replacement bool              `json:"replacement,omitempty"`
	Takes       map[string]string `json:"takes,omitempty"`
}

// CACert returns the path of the certificate of the node CA.
func (f *Founding) CACert() string { return filepath.Join(f.Dir, caCertFile) }

// Cert returns the path of the node's certificate, which is valid for servers and for clients.
func (f *Founding) Cert() string { return filepath.Join(f.Dir, certFile) }

// Key returns the path of the key of the node's certificate.
func (f *Founding) Key() string { return filepath.Join(f.Dir, keyFile) }

// Node returns the node of this name.
func (f *Founding) Node(name string) (n Node, found bool) { return nodeNamed(f.Nodes, name) }

// Certificate returns the SHA-256 of the node's certificate in hex.
func (f *Founding) Certificate() string { return fingerprint(f.certificate.Leaf) }

func fingerprint(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return hex.EncodeToString(sum[:])
}

// TLS returns a new configuration for servers and clients: TLS 1.3, the certificate of this node, and the node CA alone. A
// client sets ServerName, and both set NextProtos.
func (f *Founding) TLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{f.certificate},
		RootCAs: f.ca, ClientCAs: f.ca, ClientAuth: tls.RequireAndVerifyClientCert, SessionTicketsDisabled: true,
	}
}

// Load reads the founding directory of a node. It rejects a directory that is incomplete, that was changed by hand into a
// contradiction, whose key others can read, or whose certificate is not valid now. The error names the file and the remedy; a
// missing file is fs.ErrNotExist.
func Load(dir string) (*Founding, error) {
	f := &Founding{Dir: dir}
	for _, load := range []func() error{f.loadNodes, f.loadCertificate} {
		if err := load(); err != nil {
			return nil, fmt.Errorf("founding directory %s: %w", dir, err)
		}
	}
	return f, nil
}

// loadNodes reads founding.json.
func (f *Founding) loadNodes() error {
	data, err := os.ReadFile(filepath.Join(f.Dir, foundingFile))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is missing: name the directory of a node that flightd cluster found has made: %w", foundingFile, fs.ErrNotExist)
	}
	if err != nil {
		return err
	}
	var later struct {
		Format int `json:"format"`
	}
	if err := strictjson.DecodeAnswer(data, &later); err == nil && later.Format > foundingFormat {
		return fmt.Errorf("%s has format %d, and this flightd reads format %d: install the version of flightd that made the directory", foundingFile, later.Format, foundingFormat)
	}
	var file foundingJSON
	err = strictjson.DecodeRequest(data, &file)
	if err == nil {
		err = f.setNodes(&file)
	}
	if err != nil {
		return fmt.Errorf("%s: %w; copy the directory again from where flightd cluster found has made it", foundingFile, err)
	}
	return nil
}

// setNodes checks the content of founding.json and takes it over.
func (f *Founding) setNodes(file *foundingJSON) error {
	self, found := nodeNamed(file.Nodes, file.Self)
	switch {
	case file.Format != foundingFormat:
		return fmt.Errorf("/format: want %d", foundingFormat)
	case !isUUID(file.ClusterID):
		return errors.New("/cluster_id: not a UUID in lower case")
	case !found:
		return fmt.Errorf("/self: /nodes has no node %q", file.Self)
	}
	if err := checkNodes(file.Nodes); err != nil {
		return err
	}
	f.ClusterID, f.Self, f.Nodes, f.TokenSHA256 = file.ClusterID, self, file.Nodes, file.TokenSHA256
	f.Replacement, f.Takes = file.Replacement, file.Takes
	return checkTokenHash(file.TokenSHA256)
}

// loadCertificate reads the certificates and the key.
func (f *Founding) loadCertificate() error {
	const copyAgain = "copy the directory again from where flightd cluster found has made it"
	info, err := os.Stat(f.Key())
	if err != nil {
		return fmt.Errorf("%s: %w; %s", keyFile, err, copyAgain)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return fmt.Errorf("%s has mode %04o, so other users can act as this node: run chmod 600 %s", keyFile, mode, f.Key())
	}
	data, err := os.ReadFile(f.CACert())
	if err != nil {
		return fmt.Errorf("%s: %w; %s", caCertFile, err, copyAgain)
	}
	f.ca = x509.NewCertPool()
	if !f.ca.AppendCertsFromPEM(data) {
		return fmt.Errorf("%s has no certificate in PEM; %s", caCertFile, copyAgain)
	}
	if f.certificate, err = tls.LoadX509KeyPair(f.Cert(), f.Key()); err != nil {
		return fmt.Errorf("%s and %s: %w; %s", certFile, keyFile, err, copyAgain)
	}
	leaf := f.certificate.Leaf
	for _, host := range []string{serverName(f.Self.Name, f.ClusterID), hostOf(f.Self.Address), hostOf(f.Self.Etcd)} {
		if err := leaf.VerifyHostname(host); err != nil {
			return fmt.Errorf("%s is not the certificate of node %s of cluster %s: %w; %s", certFile, f.Self.Name, f.ClusterID, err, copyAgain)
		}
	}
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		_, err := leaf.Verify(x509.VerifyOptions{Roots: f.ca, KeyUsages: []x509.ExtKeyUsage{usage}})
		if invalid := (x509.CertificateInvalidError{}); errors.As(err, &invalid) && invalid.Reason == x509.Expired {
			return fmt.Errorf("%s: %w; check the clock of this machine", certFile, err)
		}
		if err != nil {
			return fmt.Errorf("%s: %w; %s", certFile, err, copyAgain)
		}
	}
	return nil
}

// The numbers of nodes that a cluster can be founded with.
const (
	minNodes = 3
	maxNodes = 7
)

var nodeName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,31}$`)

// checkNodes checks the nodes of a founding.
func checkNodes(nodes []Node) error {
	if n := len(nodes); n < minNodes || n > maxNodes || n%2 == 0 {
		return fmt.Errorf("a cluster is founded with 3, 5 or 7 nodes, and not with %d", n)
	}
	names, addresses := make(map[string]bool), make(map[string]string)
	for _, n := range nodes {
		if !nodeName.MatchString(n.Name) {
			return fmt.Errorf("node %q: a name has 1 to 32 lower-case letters, digits and '-', with a letter or digit first", n.Name)
		}
		if names[n.Name] {
			return fmt.Errorf("node %s is named twice", n.Name)
		}
		names[n.Name] = true
		for _, address := range []string{n.Address, n.Etcd} {
			if err := checkAddress(address); err != nil {
				return fmt.Errorf("node %s: %w", n.Name, err)
			}
			if other, used := addresses[address]; used {
				return fmt.Errorf("node %s: address %s is that of node %s: give each node two ports, one for the nodes and one for etcd", n.Name, address, other)
			}
			addresses[address] = n.Name
		}
	}
	return nil
}

// hostName accepts the names for which a certificate can be made.
var hostName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*$`)

// checkAddress checks an address under which other nodes reach a node.
func checkAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("address %q: want HOST:PORT", address)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 || strconv.Itoa(n) != port {
		return fmt.Errorf("address %q: want a port from 1 to 65535", address)
	}
	ip := net.ParseIP(host)
	switch {
	case ip != nil && ip.IsUnspecified(), host == "":
		return fmt.Errorf("address %q: want a host that the other nodes reach", address)
	case ip == nil && (len(host) > 253 || !hostName.MatchString(host)):
		return fmt.Errorf("address %q: want an IP address or a host name without a scheme", address)
	}
	return nil
}

// checkTokenHash checks the hash of the first token.
func checkTokenHash(sum string) error {
	if raw, err := hex.DecodeString(sum); err != nil || len(raw) != 0 && len(raw) != 32 || sum != strings.ToLower(sum) {
		return errors.New("/token_sha256: want 64 hex digits in lower case, or none")
	}
	return nil
}

// nodeNamed returns the node of this name.
func nodeNamed(nodes []Node, name string) (n Node, found bool) {
	for _, n := range nodes {
		if n.Name == name {
			return n, true
		}
	}
	return Node{}, false
}

// serverName is the DNS name in a node's certificate that proves its name and its cluster.
func serverName(node, clusterID string) string { return node + "." + clusterID + ".flightd" }

// hostOf returns the host of an address that checkAddress has accepted.
func hostOf(address string) string {
	host, _, _ := net.SplitHostPort(address)
	return host
}

// isUUID reports whether a text is a UUID in its usual form.
func isUUID(text string) bool {
	id, err := uuid.Parse(text)
	return err == nil && id.String() == text
}
