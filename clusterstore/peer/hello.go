package peer

import (
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"

	"github.com/flightd/flightd/internal/strictjson"
)

// Identity is the other end of a connection, as its certificate and its hello prove and name it.
type Identity struct {
	Node     string // proved by the certificate
	Instance string // random id of that node's start or data directory, as the node names it
	// Certificate is the SHA-256 of the certificate in hex.
	Certificate string
}

// RefusedError says that a node, this one or the other end, has refused a connection.
type RefusedError struct {
	By     string // the node that refused
	Reason string
	Code   Code
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("node %s refused the connection: %s", e.By, e.Reason)
}

// Code says which check of a connection failed.
type Code string

// The codes of a refusal.
const (
	CodeCluster     Code = "wrong_cluster"     // the other end belongs to another cluster
	CodeNode        Code = "wrong_node"        // the hello is for another node
	CodeCertificate Code = "wrong_certificate" // the certificate is not that of the node in the hello
	CodeHello       Code = "invalid_hello"     // the hello cannot be read
	CodeNotAdmitted Code = "not_admitted"      // Config.Admit rejected the other end
	CodeStarting    Code = "starting"          // the node does not serve this protocol yet
)

// hello is what each end sends first. Fields of later versions are ignored.
type hello struct {
	Cluster  string `json:"cluster,omitempty"`
	Node     string `json:"node"`
	Instance string `json:"instance,omitempty"`
	To       string `json:"to,omitempty"`
	Error    string `json:"error,omitempty"` // set: Node refuses the connection
	Code     Code   `json:"code,omitempty"`
}

// maxHello is the length of the longest hello.
const maxHello = 4 << 10

// writeHello sends a hello.
func writeHello(w io.Writer, h *hello) error {
	body, err := json.Marshal(h)
	if err != nil {
		return err
	}
	if len(body) > maxHello { // a reason of Config.Admit
		return writeHello(w, &hello{Node: h.Node, Error: h.Error[:maxHello/16], Code: h.Code})
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(body))), body...))
	return err
}

// readHello reads a hello, and no byte behind it.
func readHello(r io.Reader) (h hello, err error) {
	var length [2]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return h, err
	}
	n := binary.BigEndian.Uint16(length[:])
	if n > maxHello {
		return h, fmt.Errorf("a hello of %d bytes: the maximum is %d", n, maxHello)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return h, err
	}
	return h, strictjson.DecodeAnswer(body, &h)
}

// own returns the hello of this node to another one.
func (p *Port) own(to string) *hello {
	return &hello{Cluster: p.founding.ClusterID, Node: p.founding.Self.Name, Instance: p.instance, To: to}
}

// check decides whether the other end of a connection is accepted, and records its identity. It returns nil or the reason.
func (p *Port) check(c *conn, t *tls.Conn, h *hello) *RefusedError {
	self := p.founding.Self.Name
	refuse := func(code Code, format string, args ...any) *RefusedError {
		return &RefusedError{By: self, Reason: fmt.Sprintf(format, args...), Code: code}
	}
	switch {
	case h.Cluster != p.founding.ClusterID:
		return refuse(CodeCluster, "node %q is of cluster %q, and node %s is of cluster %s", h.Node, h.Cluster, self, p.founding.ClusterID)
	case h.To != self:
		return refuse(CodeNode, "the connection is for node %q, and this address is that of node %s: compare the addresses in %s", h.To, self, foundingFile)
	case h.Node == self:
		return refuse(CodeNode, "the other end is node %s as well: two processes use the directory of one node, or its address leads back to it", self)
	case !nodeName.MatchString(h.Node):
		return refuse(CodeHello, "%q is not the name of a node", h.Node)
	case !isUUID(h.Instance):
		return refuse(CodeHello, "node %s names no instance", h.Node)
	}
	leaf := t.ConnectionState().PeerCertificates[0]
	if err := leaf.VerifyHostname(serverName(h.Node, h.Cluster)); err != nil {
		return refuse(CodeCertificate, "the hello is that of node %s, and the certificate is that of %s", h.Node, leaf.Subject.CommonName)
	}
	identity := Identity{Node: h.Node, Instance: h.Instance, Certificate: fingerprint(leaf)}
	if err := p.admit(c, identity); err != nil {
		return refuse(CodeNotAdmitted, "%s", err)
	}
	return nil
}
