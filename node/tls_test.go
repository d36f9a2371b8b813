package node

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/cert"
)

// authority signs the certificates of a test.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	dir  string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	a := &authority{t: t, cert: cert, key: key, dir: t.TempDir()}
	require.NoError(t, os.WriteFile(a.path("ca.pem"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	return a
}

func (a *authority) path(name string) string { return filepath.Join(a.dir, name) }

func (a *authority) files() TLSFiles {
	return TLSFiles{Cert: a.path("cert.pem"), Key: a.path("key.pem")}
}

// issue returns a certificate for loopback addresses and its key, as PEM.
func (a *authority) issue(serial int64, change ...func(*x509.Certificate)) (cert, key []byte) {
	a.t.Helper()
	pair, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, c := range change {
		c(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &pair.PublicKey, a.key)
	require.NoError(a.t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(pair)
	require.NoError(a.t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
}

// replace replaces a file by rename.
func (a *authority) replace(name string, contents []byte) {
	a.t.Helper()
	require.NoError(a.t, os.WriteFile(a.path(name+".new"), contents, 0o600))
	require.NoError(a.t, os.Rename(a.path(name+".new"), a.path(name)))
}

// write issues a certificate and writes the pair.
func (a *authority) write(serial int64) {
	a.t.Helper()
	cert, key := a.issue(serial)
	a.replace("cert.pem", cert)
	a.replace("key.pem", key)
}

// trust returns the configuration of a client that trusts this authority.
func (a *authority) trust() *tls.Config {
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	return &tls.Config{RootCAs: roots}
}

// client returns a client that trusts this authority.
func (a *authority) client() *http.Client {
	transport := &http.Transport{TLSClientConfig: a.trust()}
	a.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 20 * time.Second}
}

// serveTLS serves "ok" with an authority's files, which are read again at each handshake.
func serveTLS(a *authority, files TLSFiles, log io.Writer) *server {
	a.t.Helper()
	certs, err := cert.Serve(files, slog.New(slog.NewTextHandler(log, nil)))
	require.NoError(a.t, err)
	certs.RecheckAfter = 0
	return serveConnections(a.t, 1000, certs, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }))
}

// serial returns the number of the certificate that a new connection sees.
func serial(t *testing.T, s *server, cfg *tls.Config) int64 {
	t.Helper()
	c, err := tls.Dial("tcp", s.connections.Addr().String(), cfg)
	require.NoError(t, err)
	defer c.Close()
	return c.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
}

// Files that cannot be used fail the start. The error names the setting and the path.
func TestTLS_UnusableFilesFailTheStart(t *testing.T) {
	a := newAuthority(t)
	cert, key := a.issue(1)
	_, otherKey := a.issue(2)
	expired, expiredKey := a.issue(3, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
	early, earlyKey := a.issue(4, func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) })
	for name, c := range map[string]struct {
		cert, key, ca []byte // nil: no file
		withCA        bool
		setting, file string
		says          string
	}{
		"no certificate":         {key: key, setting: "tls_cert", file: "cert.pem", says: "no such file"},
		"no key":                 {cert: cert, setting: "tls_key", file: "key.pem", says: "no such file"},
		"no client CA":           {cert: cert, key: key, withCA: true, setting: "tls_client_ca", file: "ca.pem", says: "no such file"},
		"certificate not PEM":    {cert: []byte("x"), key: key, setting: "tls_cert", file: "cert.pem", says: "no certificate"},
		"half a certificate":     {cert: append(bytes.Clone(cert), cert[:len(cert)/2]...), key: key, setting: "tls_cert", file: "cert.pem", says: "incomplete"},
		"key not PEM":            {cert: cert, key: []byte("x"), setting: "tls_key", file: "key.pem", says: "private key"},
		"key of another one":     {cert: cert, key: otherKey, setting: "tls_key", file: "key.pem", says: "not the private key"},
		"files swapped":          {cert: key, key: cert, setting: "tls_cert", file: "cert.pem", says: "no certificate"},
		"expired":                {cert: expired, key: expiredKey, setting: "tls_cert", file: "cert.pem", says: "expired"},
		"not valid yet":          {cert: early, key: earlyKey, setting: "tls_cert", file: "cert.pem", says: "not valid before"},
		"client CA without cert": {cert: cert, key: key, ca: key, withCA: true, setting: "tls_client_ca", file: "ca.pem", says: "no certificate"},
	} {
		dir := t.TempDir()
		files := TLSFiles{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
		if c.withCA {
			files.ClientCA = filepath.Join(dir, "ca.pem")
		}
		for file, contents := range map[string][]byte{"cert.pem": c.cert, "key.pem": c.key, "ca.pem": c.ca} {
			if contents != nil {
				require.NoError(t, os.WriteFile(filepath.Join(dir, file), contents, 0o600))
			}
		}
		data := filepath.Join(dir, "data")
		err := Run(t.Context(), Config{Data: data, NoCredentials: true, Listen: Listen{Address: "127.0.0.1:0", TLS: files}})
		var invalid *flight.InvalidError
		require.ErrorAs(t, err, &invalid, name)
		require.Equal(t, c.setting, invalid.Field, name)
		require.Contains(t, invalid.Detail, filepath.Join(dir, c.file), name)
		require.Contains(t, invalid.Detail, c.says, name)
		require.NoDirExists(t, data, "%s: the start has changed something", name)
	}
}

// No request fails while the pair is replaced again and again, and each new connection sees the newest certificate.
func TestTLS_ReplacedUnderLoad(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	a.write(1)
	s := serveTLS(a, a.files(), io.Discard)
	var callers sync.WaitGroup
	var requests [2]atomic.Int64
	stop := make(chan struct{})
	defer func() {
		close(stop)
		callers.Wait()
	}()
	for n := range 6 {
		client := a.client()
		client.Transport.(*http.Transport).DisableKeepAlives = n%2 == 0
		callers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				resp, err := client.Get(s.url() + "/")
				if err != nil {
					t.Errorf("a request failed: %v", err)
					return
				}
				if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "ok" {
					t.Errorf("a request failed: %q, %v", body, err)
				}
				_ = resp.Body.Close()
				requests[n%2].Add(1)
			}
		})
	}
	for n := int64(2); n <= 20; n++ {
		a.write(n)
		await(t, "a new connection sees the new certificate", func() bool { return serial(t, s, a.trust()) == n })
		before := [2]int64{requests[0].Load(), requests[1].Load()}
		await(t, "requests on new and on kept connections", func() bool {
			return t.Failed() || requests[0].Load() > before[0]+2 && requests[1].Load() > before[1]+2
		})
	}
}

// While a pair is half replaced or broken, the one before remains in use, and the log has one warning for it. The key is
// never in the log.
func TestTLS_BrokenPairIsNotUsed(t *testing.T) {
	a := newAuthority(t)
	a.write(1)
	var log syncBuffer
	s := serveTLS(a, a.files(), &log)
	warnings := func() int { return strings.Count(log.String(), "level=WARN") }
	cert, key := a.issue(2)
	for i, breaks := range []func(){
		func() { a.replace("cert.pem", cert) },
		func() { a.replace("key.pem", []byte("garbage")) },
		func() { require.NoError(t, os.Remove(a.path("key.pem"))) },
		func() { a.replace("key.pem", key[:len(key)/2]) },
	} {
		breaks()
		for range 3 {
			require.EqualValues(t, 1, serial(t, s, a.trust()))
		}
		require.Equal(t, i+1, warnings(), log.String())
	}
	a.replace("key.pem", key)
	require.EqualValues(t, 2, serial(t, s, a.trust()))
	require.Equal(t, 4, warnings())
	for line := range strings.Lines(string(key)) {
		require.NotContains(t, log.String(), strings.TrimSpace(line))
	}
	expired, expiredKey := a.issue(3, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
	a.replace("cert.pem", expired)
	a.replace("key.pem", expiredKey)
	require.EqualValues(t, 2, serial(t, s, a.trust()))
	require.Contains(t, log.String(), "expired")
}

// With a client CA only clients with a certificate of it are served; a replaced CA holds for new connections.
func TestTLS_ClientCertificates(t *testing.T) {
	ours, others := newAuthority(t), newAuthority(t)
	ours.write(1)
	files := ours.files()
	files.ClientCA = ours.path("clients.pem")
	readCA := func(a *authority) []byte {
		b, err := os.ReadFile(a.path("ca.pem"))
		require.NoError(t, err)
		return b
	}
	ours.replace("clients.pem", readCA(ours))
	s := serveTLS(ours, files, io.Discard)
	clients := make(map[*authority]*http.Client) // by the authority of the client's certificate; each resumes its TLS session
	get := func(from *authority) error {
		if clients[from] == nil {
			clients[from] = ours.client()
			transport := clients[from].Transport.(*http.Transport)
			transport.DisableKeepAlives = true
			transport.TLSClientConfig.ClientSessionCache = tls.NewLRUClientSessionCache(1)
			if from != nil {
				pair, err := tls.X509KeyPair(from.issue(7))
				require.NoError(t, err)
				transport.TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
			}
		}
		resp, err := clients[from].Get(s.url() + "/")
		if err == nil {
			require.NoError(t, resp.Body.Close())
		}
		return err
	}
	require.NoError(t, get(ours))
	require.Error(t, get(nil))
	require.Error(t, get(others))
	ours.replace("clients.pem", readCA(others))
	require.Error(t, get(ours))
	require.NoError(t, get(others))
}

// TLS 1.2 is the oldest version, and HTTP/1.1 the only protocol.
func TestTLS_Versions(t *testing.T) {
	a := newAuthority(t)
	a.write(1)
	s := serveTLS(a, a.files(), io.Discard)
	for version, good := range map[uint16]bool{tls.VersionTLS10: false, tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
		cfg := a.trust()
		cfg.MinVersion, cfg.MaxVersion, cfg.NextProtos = version, version, []string{"h2", "http/1.1"}
		c, err := tls.Dial("tcp", s.connections.Addr().String(), cfg)
		require.Equal(t, good, err == nil, "%s: %v", tls.VersionName(version), err)
		if err == nil {
			require.Equal(t, "http/1.1", c.ConnectionState().NegotiatedProtocol)
			require.NoError(t, c.Close())
		}
	}
}
