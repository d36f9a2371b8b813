package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/internal/durable"
)

// certStore makes certificates in a directory. A key is created once and never replaced; a certificate is replaced by one
// rename, so a reader sees the old or the new one, and either belongs to the key. After a crash, the same
// call completes the directory; after one between a CA's key and its certificate, it says to remove the key.
type certStore struct {
	dir string
	now time.Time
}

// clockSkew is how much earlier than now a certificate is valid, for machines whose clocks are behind.
const clockSkew = time.Hour

// loopbackHosts are in every server's certificate, for the commands and probes of its own machine.
var loopbackHosts = []string{"localhost", "127.0.0.1", "::1"}

// initServer makes a CA unless there is one, and a server's certificate for these hosts, or without any for those of the
// old certificate.
func (s certStore) initServer(hosts []string, days int) (*madeCertificate, error) {
	var oldHosts []string
	old, err := readCertificate(s.path("server.crt"))
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
		} else if isHostName(h) {
			template.DNSNames = append(template.DNSNames, h)
		} else {
			return nil, cli.UsageError("--host %s: want a name or an IP address, without scheme and port", h)
		}
	}
	made, err := s.issue("server", template, days, true)
	if err == nil {
		made.Hosts = hosts
		made.DroppedHosts = slices.DeleteFunc(oldHosts, func(h string) bool { return slices.Contains(hosts, h) })
	}
	return made, err
}

// issueClient makes a client's certificate with the CA that is there.
func (s certStore) issueClient(name string, days int) (*madeCertificate, error) {
	return s.issue("client-"+name, &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, days, false)
}

// issue signs a certificate for the key NAME.key, which it creates if it is missing, and writes NAME.crt.
func (s certStore) issue(name string, template *x509.Certificate, days int, mayCreateCA bool) (*madeCertificate, error) {
	if mayCreateCA {
		if err := os.MkdirAll(s.dir, 0o755); err != nil {
			return nil, err
		}
	}
	ca, caKey, isNew, err := s.ca(mayCreateCA)
	if err != nil {
		return nil, err
	}
	key, err := s.key(name + ".key")
	if err != nil {
		return nil, err
	}
	template.NotBefore, template.NotAfter = s.now.Add(-clockSkew), s.now.AddDate(0, 0, days)
	if template.NotAfter.After(ca.NotAfter) { // a verifier checks the whole chain
		template.NotAfter = ca.NotAfter
	}
	if !template.NotAfter.After(s.now) {
		return nil, fmt.Errorf("%s expired at %s; make a CA in a new directory", s.path("ca.crt"), ca.NotAfter.UTC().Format(time.RFC3339))
	}
	path := s.path(name + ".crt")
	if err := s.sign(path, template, ca, key.Public(), caKey); err != nil {
		return nil, err
	}
	return &madeCertificate{CA: s.path("ca.crt"), CAIsNew: isNew, Cert: path, Key: s.path(name + ".key"), ExpiresAt: template.NotAfter.UTC().Format(time.RFC3339)}, nil
}

// ca returns the CA of the directory. It creates a missing one if it may. A certificate or a key alone is an error: the
// other is kept elsewhere, and callers would not trust another CA.
func (s certStore) ca(mayCreate bool) (cert *x509.Certificate, key crypto.Signer, isNew bool, err error) {
	path := s.path("ca.crt")
	cert, err = readCertificate(path)
	missing := errors.Is(err, fs.ErrNotExist)
	switch {
	case err != nil && !missing:
		return nil, nil, false, err
	case missing && cli.Exists(s.path("ca.key")):
		return nil, nil, false, &cli.Error{Code: cli.ExitConfig, Err: fmt.Errorf("%s has no ca.crt beside its ca.key", s.dir),
			Hint: "put the certificate of this CA there; if there never was one, because cert init was interrupted, remove ca.key"}
	case missing && !mayCreate:
		return nil, nil, false, &cli.Error{Code: cli.ExitConfig, Err: fmt.Errorf("there is no CA in %s", s.dir), Hint: "make one with flightd cert init " + s.dir}
	case !missing && !cli.Exists(s.path("ca.key")):
		return nil, nil, false, &cli.Error{Code: cli.ExitConfig, Err: fmt.Errorf("%s has no ca.key beside its ca.crt", s.dir),
			Hint: "put the key of this CA there, or make another CA in a new directory; callers must then trust both"}
	}
	if key, err = s.key("ca.key"); err != nil {
		return nil, nil, false, err
	}
	if missing {
		id := make([]byte, 4)
		_, _ = rand.Read(id) // never fails: it crashes the program instead
		template := &x509.Certificate{
			Subject: pkix.Name{CommonName: "flightd CA " + hex.EncodeToString(id)}, IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
			KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign, NotBefore: s.now.Add(-clockSkew), NotAfter: s.now.AddDate(0, 0, caDays),
		}
		if err := s.sign(path, template, template, key.Public(), key); err != nil {
			return nil, nil, false, err
		}
		if cert, err = readCertificate(path); err != nil {
			return nil, nil, false, err
		}
	}
	if public, ok := cert.PublicKey.(*ecdsa.PublicKey); !ok || !public.Equal(key.Public()) || !cert.IsCA {
		return nil, nil, false, fmt.Errorf("ca.crt and ca.key in %s do not belong together", s.dir)
	}
	return cert, key, missing, nil
}

// sign writes a certificate for a public key.
func (s certStore) sign(path string, template, parent *x509.Certificate, public crypto.PublicKey, signer crypto.Signer) error {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return err
	}
	template.SerialNumber = serial.Add(serial, big.NewInt(1)) // positive
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, signer)
	if err != nil {
		return err
	}
	return durable.Replace(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644)
}

// key reads a private key, or creates it if it is missing.
func (s certStore) key(name string) (key crypto.Signer, err error) {
	path := s.path(name)
	data, err := os.ReadFile(path)
	if err == nil {
		key, err = parseKey(data)
		if err != nil {
			err = fmt.Errorf("%s: %w", path, err)
		}
		return key, err
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	fresh, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(fresh)
	if err != nil {
		return nil, err
	}
	return fresh, durable.Create(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600)
}

func (s certStore) path(name string) string { return filepath.Join(s.dir, name) }

func parseKey(data []byte) (crypto.Signer, error) {
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, errors.New("no key in PEM")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, errors.New("not a key for signatures")
	}
	return signer, nil
}

// readCertificate reads the first certificate of a PEM file.
func readCertificate(path string) (*x509.Certificate, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, fmt.Errorf("%s has no certificate in PEM", path)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return cert, nil
}

// hostsOf returns the names and addresses of a certificate.
func hostsOf(cert *x509.Certificate) []string {
	hosts := slices.Clone(cert.DNSNames)
	for _, ip := range cert.IPAddresses {
		hosts = append(hosts, ip.String())
	}
	return hosts
}

// isHostName reports whether a certificate can be made for this name, whose first label may be a star.
func isHostName(host string) bool {
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
