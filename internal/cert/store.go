package cert

import (
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/durable"
)

// Store makes certificates in a directory. A key is created once and never replaced; a certificate is replaced by one
// rename, so a reader sees the old or the new one, and either belongs to the key. After a crash, the same
// call completes the directory; after one between a CA's key and its certificate, it says to remove the key.
type Store struct{ Dir string }

// Error is an error with its remedy: the CA in a directory cannot be used.
type Error struct {
	Err  error
	Hint string
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// caYears is the validity of a CA.
const caYears = 10

// loopbackHosts are in every server's certificate, for the commands and probes of its own machine.
var loopbackHosts = []string{"localhost", "127.0.0.1", "::1"}

// Made describes a certificate that was made.
type Made struct {
	CA      string   `json:"ca"`
	CAIsNew bool     `json:"ca_is_new"`
	Cert    string   `json:"cert"`
	Key     string   `json:"key"`
	Hosts   []string `json:"hosts,omitempty"`
	// DroppedHosts are those of the certificate that was replaced, which the new one does not have.
	DroppedHosts []string `json:"dropped_hosts,omitempty"`
	ExpiresAt    string   `json:"expires_at"`
}

// InitServer makes a CA unless there is one, and a server's certificate for these hosts, or without any for those of the
// old certificate. The error is *flight.InvalidError for a host of another form.
func (s Store) InitServer(hosts []string, days int) (*Made, error) {
	var oldHosts []string
	old, err := Read(s.path("server.crt"))
	switch {
	case err == nil:
		oldHosts = hostsOf(old)
	case !errors.Is(err, fs.ErrNotExist) && len(hosts) == 0:
		return nil, err
	}
	if len(hosts) == 0 {
		hosts = slices.Clone(oldHosts)
	}
	for _, h := range loopbackHosts {
		if !slices.Contains(hosts, h) {
			hosts = append(hosts, h)
		}
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: commonName(hosts)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else if ValidHost(h) {
			template.DNSNames = append(template.DNSNames, h)
		} else {
			return nil, &flight.InvalidError{Field: "host", Detail: h + ": want a name or an IP address, without scheme and port"}
		}
	}
	made, err := s.issue("server", template, days, true)
	if err == nil {
		made.Hosts = hosts
		made.DroppedHosts = slices.DeleteFunc(oldHosts, func(h string) bool { return slices.Contains(hosts, h) })
	}
	return made, err
}

// IssueClient makes a client's certificate with the CA that is there.
func (s Store) IssueClient(name string, days int) (*Made, error) {
	return s.issue("client-"+name, &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, days, false)
}

// issue signs a certificate for the key NAME.key, which it creates if it is missing, and writes NAME.crt.
func (s Store) issue(name string, template *x509.Certificate, days int, mayCreateCA bool) (*Made, error) {
	if mayCreateCA {
		if err := os.MkdirAll(s.Dir, 0o755); err != nil {
			return nil, err
		}
	}
	ca, caKey, isNew, err := s.ca(mayCreateCA)
	if err != nil {
		return nil, err
	}
	key, err := Key(s.path(name + ".key"))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	until := now.AddDate(0, 0, days)
	if until.After(ca.NotAfter) { // a verifier checks the whole chain
		until = ca.NotAfter
	}
	if !until.After(now) {
		return nil, fmt.Errorf("%s expired at %s; make a CA in a new directory", s.path("ca.crt"), ca.NotAfter.UTC().Format(time.RFC3339))
	}
	made, err := Sign(template, ca, key.Public(), caKey, until)
	if err != nil {
		return nil, err
	}
	path := s.path(name + ".crt")
	if err := durable.Replace(path, PEM(made), 0o644); err != nil {
		return nil, err
	}
	return &Made{CA: s.path("ca.crt"), CAIsNew: isNew, Cert: path, Key: s.path(name + ".key"), ExpiresAt: until.UTC().Format(time.RFC3339)}, nil
}

// ca returns the CA of the directory. It creates a missing one if it may. A certificate or a key alone is an error: the
// other is kept elsewhere, and callers would not trust another CA.
func (s Store) ca(mayCreate bool) (cert *x509.Certificate, key crypto.Signer, isNew bool, err error) {
	path := s.path("ca.crt")
	cert, err = Read(path)
	missing := errors.Is(err, fs.ErrNotExist)
	_, keyErr := os.Stat(s.path("ca.key"))
	switch {
	case err != nil && !missing:
		return nil, nil, false, err
	case missing && keyErr == nil:
		return nil, nil, false, &Error{Err: fmt.Errorf("%s has no ca.crt beside its ca.key", s.Dir),
			Hint: "put the certificate of this CA there; if there never was one, because cert init was interrupted, remove ca.key"}
	case missing && !mayCreate:
		return nil, nil, false, &Error{Err: fmt.Errorf("there is no CA in %s", s.Dir), Hint: "make one with flightd cert init " + s.Dir}
	case !missing && keyErr != nil:
		return nil, nil, false, &Error{Err: fmt.Errorf("%s has no ca.key beside its ca.crt", s.Dir),
			Hint: "put the key of this CA there, or make another CA in a new directory; callers must then trust both"}
	}
	if key, err = Key(s.path("ca.key")); err != nil {
		return nil, nil, false, err
	}
	if missing {
		id := make([]byte, 4)
		_, _ = rand.Read(id) // never fails: it crashes the program instead
		template := &x509.Certificate{
			Subject: pkix.Name{CommonName: "flightd CA " + hex.EncodeToString(id)}, IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
			KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		}
		if cert, err = Sign(template, template, key.Public(), key, time.Now().AddDate(caYears, 0, 0)); err == nil {
			err = durable.Replace(path, PEM(cert), 0o644)
		}
		if err != nil {
			return nil, nil, false, err
		}
	}
	if public, ok := cert.PublicKey.(*ecdsa.PublicKey); !ok || !public.Equal(key.Public()) || !cert.IsCA {
		return nil, nil, false, fmt.Errorf("ca.crt and ca.key in %s do not belong together", s.Dir)
	}
	return cert, key, missing, nil
}

func (s Store) path(name string) string { return filepath.Join(s.Dir, name) }

// hostsOf returns the names and addresses of a certificate.
func hostsOf(cert *x509.Certificate) []string {
	hosts := slices.Clone(cert.DNSNames)
	for _, ip := range cert.IPAddresses {
		hosts = append(hosts, ip.String())
	}
	return hosts
}

// ValidHost reports whether a certificate can be made for this name, whose first label may be a star.
func ValidHost(host string) bool {
	if len(host) > 253 {
		return false
	}
	for _, label := range strings.Split(strings.TrimPrefix(host, "*."), ".") {
		if label == "" || len(label) > 63 || strings.ContainsFunc(label, func(r rune) bool {
			return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_')
		}) {
			return false
		}
	}
	return true
}

// commonName returns the name in the subject of a server's certificate; programs read only the hosts.
func commonName(hosts []string) string {
	name, _ := os.Hostname()
	if len(hosts) > 0 {
		name = hosts[0]
	}
	return cmp.Or(name, "flightd")
}
