// Package cert reads, makes and renews certificates and their keys: those of a server and its clients (Store), those of the nodes of
// a cluster (Sign, Key), and those that a server uses while their files are replaced (Served). Nothing else parses PEM.
package cert

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/flightd/flightd/internal/durable"
)

// clockSkew is how much earlier than now a certificate is valid, for machines whose clocks are behind.
const clockSkew = time.Hour

// Sign makes a certificate for a public key, valid from now until an end. A CA signs itself.
func Sign(template, parent *x509.Certificate, public crypto.PublicKey, signer crypto.Signer, until time.Time) (*x509.Certificate, error) {
	template.NotBefore, template.NotAfter = time.Now().Add(-clockSkew), until
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, signer) // it draws the serial number
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// PEM returns a certificate as the content of a file.
func PEM(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

// Key reads a private key, or creates it if it is missing, readable by its owner alone.
func Key(path string) (crypto.Signer, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return NewKey(path)
	}
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("%s: no key in PEM", path)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("%s: not a key for signatures", path)
	}
	return signer, nil
}

// NewKey creates a private key. The error is fs.ErrExist if there is a file.
func NewKey(path string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return key, durable.Create(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600)
}

// Read reads the first certificate of a PEM file.
func Read(path string) (*x509.Certificate, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	chain, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return chain[0], nil
}

// Parse parses a PEM file of one or more certificates. A file that ends within a block is an error: it is
// still being written.
func Parse(file []byte) ([]*x509.Certificate, error) {
	var all []*x509.Certificate
	for {
		block, rest := pem.Decode(file)
		if block == nil {
			break
		}
		file = rest
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		all = append(all, cert)
	}
	switch {
	case bytes.Contains(file, []byte("-----BEGIN")):
		return nil, fmt.Errorf("incomplete PEM block after %d certificates", len(all))
	case len(all) == 0:
		return nil, fmt.Errorf("no certificate in PEM format")
	}
	return all, nil
}
