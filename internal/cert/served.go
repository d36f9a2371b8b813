package cert

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flightd/flightd/flight"
)

// Files are the paths of PEM files. They are read again when they change; see Served.
type Files struct {
	Cert string // certificate, followed by its intermediate certificates; "": plain HTTP
	Key  string // private key of Cert
	// ClientCA has the certificates of authorities. If set, a client must present a certificate that one of them has
	// signed. It needs a token nevertheless.
	ClientCA string
}

// Served has the TLS configuration of files that may be replaced while the node runs.
//
// Each handshake uses the files as they are, read again at most once in RecheckAfter. Their contents are compared, not
// their times: a link may be replaced, and times may be coarse. While the files cannot be used, because one of the pair
// was replaced before the other, the pair before remains in use; the log has one warning for each such content.
type Served struct {
	files  Files
	log    *slog.Logger
	Config *tls.Config // for tls.Server; asks current at each handshake

	loaded       atomic.Pointer[loadedTLS]
	RecheckAfter time.Duration // 1 s; set before the first handshake

	mu      sync.Mutex // guards checked and warned, and is held while the files are read
	checked time.Time
	warned  [sha256.Size]byte // of the contents or the error of the newest warning
}

// loadedTLS is the configuration that the files had at one time. It is constant.
type loadedTLS struct {
	config  *tls.Config
	expires time.Time         // of the certificate
	digest  [sha256.Size]byte // of the files' contents
}

// Serve reads the files. Errors are *flight.InvalidError with the name of the setting and the path.
func Serve(files Files, log *slog.Logger) (*Served, error) {
	c := &Served{files: files, log: log, RecheckAfter: time.Second, checked: time.Now()}
	c.Config = &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.current().config, nil },
	}
	contents, err := readTLS(files)
	if err != nil {
		return nil, err
	}
	loaded, err := parseTLS(files, contents, time.Now())
	if err != nil {
		return nil, err
	}
	c.loaded.Store(loaded)
	return c, nil
}

// Expires returns the end of the certificate in use.
func (s *Served) Expires() time.Time { return s.current().expires }

// current returns the configuration for a handshake. It never waits for a disk: while one caller reads the files, others
// get the configuration before.
func (s *Served) current() *loadedTLS {
	if s.mu.TryLock() {
		if now := time.Now(); now.Sub(s.checked) >= s.RecheckAfter {
			s.reload(now)
			s.checked = now
		}
		s.mu.Unlock()
	}
	return s.loaded.Load()
}

// reload uses the files if they have changed and can be used. The caller holds mu.
func (s *Served) reload(now time.Time) {
	contents, err := readTLS(s.files)
	digest := contents.digest()
	if err == nil {
		if digest == s.loaded.Load().digest {
			return
		}
		var loaded *loadedTLS
		if loaded, err = parseTLS(s.files, contents, now); err == nil {
			s.loaded.Store(loaded)
			s.log.Info("the TLS certificate was replaced", "file", s.files.Cert, "expires", loaded.expires)
			return
		}
	} else {
		digest = sha256.Sum256([]byte(err.Error()))
	}
	if digest != s.warned {
		s.warned = digest
		s.log.Warn("the TLS files have changed and cannot be used; the certificate before remains in use", "error", err)
	}
}

// tlsContents are the contents of the files.
type tlsContents struct{ cert, key, clientCA []byte }

func (t *tlsContents) digest() [sha256.Size]byte {
	cert, key, ca := sha256.Sum256(t.cert), sha256.Sum256(t.key), sha256.Sum256(t.clientCA)
	return sha256.Sum256(bytes.Join([][]byte{cert[:], key[:], ca[:]}, nil))
}

func readTLS(files Files) (contents tlsContents, err error) {
	for _, f := range []struct {
		setting, path string
		to            *[]byte
	}{{"tls_cert", files.Cert, &contents.cert}, {"tls_key", files.Key, &contents.key}, {"tls_client_ca", files.ClientCA, &contents.clientCA}} {
		if f.path == "" {
			continue
		}
		if *f.to, err = os.ReadFile(f.path); err != nil {
			return contents, &flight.InvalidError{Field: f.setting, Detail: fmt.Sprintf("%v; name a PEM file that flightd can read", err)}
		}
	}
	return contents, nil
}

// parseTLS checks the contents and returns their configuration. Its errors do not contain any part of the key.
func parseTLS(files Files, contents tlsContents, now time.Time) (*loadedTLS, error) {
	invalid := func(setting, path, format string, args ...any) error {
		return &flight.InvalidError{Field: setting, Detail: path + ": " + fmt.Sprintf(format, args...)}
	}
	chain, err := Parse(contents.cert)
	if err != nil {
		return nil, invalid("tls_cert", files.Cert, "%v", err)
	}
	pair, err := tls.X509KeyPair(contents.cert, contents.key)
	if err != nil {
		return nil, invalid("tls_key", files.Key, "not the private key of %s: %v", files.Cert, err)
	}
	leaf := chain[0]
	switch {
	case now.After(leaf.NotAfter):
		return nil, invalid("tls_cert", files.Cert, "the certificate expired at %s; replace it", leaf.NotAfter.Format(time.RFC3339))
	case now.Before(leaf.NotBefore):
		return nil, invalid("tls_cert", files.Cert, "the certificate is not valid before %s; check the clock", leaf.NotBefore.Format(time.RFC3339))
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, Certificates: []tls.Certificate{pair}}
	if files.ClientCA != "" {
		authorities, err := Parse(contents.clientCA)
		if err != nil {
			return nil, invalid("tls_client_ca", files.ClientCA, "%v", err)
		}
		cfg.ClientAuth, cfg.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		for _, a := range authorities {
			cfg.ClientCAs.AddCert(a)
		}
		cfg.SessionTicketsDisabled = true // a resumed session would not be checked against replaced authorities
	}
	return &loadedTLS{config: cfg, expires: leaf.NotAfter, digest: contents.digest()}, nil
}
