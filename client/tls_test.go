package client_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
)

// issuer is a small certificate authority with its files.
type issuer struct {
	t    *testing.T
	dir  string
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

// newIssuer makes an authority, with its certificate in file "ca".
func newIssuer(t *testing.T) *issuer {
	a := &issuer{t: t, dir: t.TempDir()}
	a.key, a.cert = a.issue("ca", &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

func (i *issuer) path(name string) string { return filepath.Join(i.dir, name) }

// issue makes a certificate in the file name, with its key in name.key.
func (i *issuer) issue(name string, like *x509.Certificate) (*ecdsa.PrivateKey, *x509.Certificate) {
	i.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(i.t, err)
	like.SerialNumber, like.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: name}
	if like.NotAfter.IsZero() {
		like.NotAfter = time.Now().Add(time.Hour)
	}
	parent, signer := i.cert, i.key
	if parent == nil {
		parent, signer = like, key
	}
	der, err := x509.CreateCertificate(rand.Reader, like, parent, key.Public(), signer)
	require.NoError(i.t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(i.t, err)
	require.NoError(i.t, os.WriteFile(i.path(name), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	require.NoError(i.t, os.WriteFile(i.path(name+".key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
	cert, err := x509.ParseCertificate(der)
	require.NoError(i.t, err)
	return key, cert
}

// serveTLS serves a flightd with the certificate in that file.
func (i *issuer) serveTLS(name string, change func(*tls.Config)) (address string) {
	g := newFixture(i.t)
	pair, err := tls.LoadX509KeyPair(i.path(name), i.path(name+".key"))
	require.NoError(i.t, err)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.api.ServeHTTP(w, r) }))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // of rejected handshakes
	if change != nil {
		change(server.TLS)
	}
	server.StartTLS()
	i.t.Cleanup(server.Close)
	return server.URL
}

// connectTLS connects and closes. It would repeat its request for an hour.
func connectTLS(t *testing.T, address string, opts ...client.Option) error {
	opts = append([]client.Option{client.WithoutSpool(), client.WithRetryTimeout(time.Hour)}, opts...)
	c, err := client.Connect(t.Context(), address, opts...)
	if err == nil {
		require.NoError(t, c.Close(t.Context()))
	}
	return err
}

var loopback = []net.IP{net.IPv4(127, 0, 0, 1)}

// A server's certificate is checked against the authority of the options, or else of the environment.
func TestTLS_Authority(t *testing.T) {
	a := newIssuer(t)
	a.issue("server", &x509.Certificate{IPAddresses: loopback})
	address := a.serveTLS("server", nil)

	err := connectTLS(t, address)
	require.ErrorContains(t, err, "is not trusted")
	require.ErrorContains(t, err, "set FLIGHTD_CA_FILE to the PEM file of the authority")
	var unavailable *client.Unavailable
	require.ErrorAs(t, err, &unavailable)

	require.NoError(t, connectTLS(t, address, client.WithCAFile(a.path("ca"))))
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	require.NoError(t, connectTLS(t, address, client.WithTLSConfig(&tls.Config{RootCAs: pool})))
	t.Setenv("FLIGHTD_CA_FILE", a.path("ca"))
	require.NoError(t, connectTLS(t, address))
	require.Error(t, connectTLS(t, address, client.WithTLSConfig(&tls.Config{})), "the given configuration comes first")
	require.Error(t, connectTLS(t, address, client.WithCAFile(newIssuer(t).path("ca"))))

	require.ErrorContains(t, connectTLS(t, address, client.WithCAFile(a.path("none"))), "ca_file")
	require.ErrorContains(t, connectTLS(t, address, client.WithCAFile(a.path("server.key"))), "no certificate in PEM")
}

// A certificate of another name, or an old one, is no matter of the authority.
func TestTLS_OtherCertificates(t *testing.T) {
	a := newIssuer(t)
	for name, row := range map[string]struct {
		cert x509.Certificate
		says string
	}{
		"another name": {x509.Certificate{DNSNames: []string{"elsewhere"}}, "127.0.0.1"},
		"expired":      {x509.Certificate{IPAddresses: loopback, NotAfter: time.Now().Add(-time.Minute)}, "expired"},
	} {
		a.issue("server", &row.cert)
		err := connectTLS(t, a.serveTLS("server", nil), client.WithCAFile(a.path("ca")))
		require.ErrorContains(t, err, row.says, name)
		require.NotContains(t, err.Error(), "FLIGHTD_CA_FILE", name)
	}
}

// A server of which the certificate is not trusted does not stop the client from asking the next one.
func TestTLS_NextServer(t *testing.T) {
	a, other := newIssuer(t), newIssuer(t)
	a.issue("server", &x509.Certificate{IPAddresses: loopback})
	other.issue("server", &x509.Certificate{IPAddresses: loopback})
	require.NoError(t, connectTLS(t, other.serveTLS("server", nil)+","+a.serveTLS("server", nil), client.WithCAFile(a.path("ca"))))
}

// A client certificate is read again for each connection.
func TestTLS_ClientCertificate(t *testing.T) {
	a := newIssuer(t)
	a.issue("server", &x509.Certificate{IPAddresses: loopback})
	a.issue("me", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	var shown []string
	address := a.serveTLS("server", func(cfg *tls.Config) {
		cfg.ClientAuth, cfg.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		cfg.ClientCAs.AddCert(a.cert)
		cfg.VerifyConnection = func(s tls.ConnectionState) error {
			shown = append(shown, s.PeerCertificates[0].Subject.CommonName)
			return nil
		}
	})
	ca := client.WithCAFile(a.path("ca"))
	require.Error(t, connectTLS(t, address, ca, client.WithRetryTimeout(time.Millisecond)))
	require.NoError(t, connectTLS(t, address, ca, client.WithClientCertificate(a.path("me"), a.path("me.key"))))
	t.Setenv("FLIGHTD_CLIENT_CERT", a.path("me"))
	require.ErrorContains(t, connectTLS(t, address, ca), "a client certificate needs two files")
	t.Setenv("FLIGHTD_CLIENT_KEY", a.path("me.key"))
	require.NoError(t, connectTLS(t, address, ca))

	c, err := client.Connect(t.Context(), address, ca, client.WithoutSpool())
	require.NoError(t, err)
	a.issue("new", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	require.NoError(t, os.Rename(a.path("new"), a.path("me")))
	require.NoError(t, os.Rename(a.path("new.key"), a.path("me.key")))
	c.CloseIdleConnections()
	_, err = c.Version(t.Context())
	require.NoError(t, err)
	require.NoError(t, c.Close(t.Context()))
	require.Equal(t, []string{"me", "me", "me", "new"}, shown)
}

// A server that demands a client certificate, or rejects the one that the client shows, is not asked again. The error
// names the settings. Nothing was sent, so nothing is abandoned, and a report stays in the spool.
func TestTLS_ClientCertificateIsRejected(t *testing.T) {
	for name, version := range map[string]uint16{"TLS 1.2": tls.VersionTLS12, "TLS 1.3": tls.VersionTLS13} {
		t.Run(name, func(t *testing.T) {
			a, other := newIssuer(t), newIssuer(t)
			a.issue("server", &x509.Certificate{IPAddresses: loopback})
			other.issue("me", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
			demand := func(cfg *tls.Config) {
				cfg.MaxVersion, cfg.ClientAuth, cfg.ClientCAs = version, tls.RequireAndVerifyClientCert, x509.NewCertPool()
				cfg.ClientCAs.AddCert(a.cert)
			}
			address, ca := a.serveTLS("server", demand), client.WithCAFile(a.path("ca"))
			for name, opts := range map[string][]client.Option{
				"without one":                   {ca},
				"with one of another authority": {ca, client.WithClientCertificate(other.path("me"), other.path("me.key"))},
			} {
				err := connectTLS(t, address, opts...)
				require.ErrorContains(t, err, "set FLIGHTD_CLIENT_CERT and FLIGHTD_CLIENT_KEY", name)
				var unavailable *client.Unavailable
				require.ErrorAs(t, err, &unavailable, name)
			}
			require.NoError(t, connectTLS(t, address+","+a.serveTLS("server", nil), ca), "by the next server")
		})
	}
}

// While a server rejects the client's certificate, an open ends at once and leaves nothing open, and a report stays in
// the spool. Both succeed again as soon as the server accepts the certificate.
func TestTLS_ClientCertificateIsRejectedLater(t *testing.T) {
	a := newIssuer(t)
	a.issue("server", &x509.Certificate{IPAddresses: loopback})
	pair, err := tls.LoadX509KeyPair(a.path("server"), a.path("server.key"))
	require.NoError(t, err)
	var demand atomic.Bool
	g := newFixture(t)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.server.Config.Handler.ServeHTTP(w, r) }))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		cfg := &tls.Config{Certificates: []tls.Certificate{pair}}
		if demand.Load() {
			cfg.ClientAuth = tls.RequireAnyClientCert
		}
		return cfg, nil
	}}
	server.StartTLS()
	t.Cleanup(server.Close)
	c := g.connectTo(server.URL, client.WithCAFile(a.path("ca")), client.WithReportTimeout(200*time.Millisecond), client.WithRetryTimeout(time.Hour))

	_, err = c.Do(t.Context(), call(`1`), func(context.Context, *effect.Attempt) (effect.Answer, error) {
		demand.Store(true)
		server.CloseClientConnections()
		return effect.Answer{}, nil
	})
	var unrecorded *client.Unrecorded
	require.ErrorAs(t, err, &unrecorded)
	require.Len(t, g.files(), 1)
	other := call(`1`)
	other.Key = flight.MustKey("default/charge/other")
	abandons := g.count(":abandon")
	_, err = c.Do(t.Context(), other, unreachableHandler(t))
	require.ErrorContains(t, err, "set FLIGHTD_CLIENT_CERT and FLIGHTD_CLIENT_KEY")
	require.Equal(t, abandons, g.count(":abandon"))

	demand.Store(false)
	g.waitForFlight(key, func(f *flight.Flight) bool { return f.State.Terminal() })
}
