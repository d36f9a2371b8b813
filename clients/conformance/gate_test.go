//go:build clients

package conformance

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
)

// hasServe reports whether the flightd under test has the command serve. Without it, a gate stands in front of flightd
// dev.
var hasServe = sync.OnceValue(func() bool {
	return exec.Command(binaries.flightd, "serve", "--help").Run() == nil
})

// startGated starts `flightd dev` behind a gate that has TLS, demands the token, and takes it off.
func (h *server) startGated() (cmd *exec.Cmd, address string, stop func()) {
	h.t.Helper()
	a := h.access
	if _, err := os.Stat(a.tokenFile); err != nil {
		require.NoError(h.t, os.WriteFile(a.tokenFile, []byte("fltd_"+rand.Text()+"\n"), 0o600))
	}
	want := "Bearer " + a.token(h.t)
	cmd, upstream := h.startProcess("dev", "--data", h.data, "--listen", "127.0.0.1:0")
	target, err := url.Parse(upstream)
	require.NoError(h.t, err)
	forward := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target); r.Out.Header.Del("Authorization") },
		FlushInterval: -1,
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ErrorLog:      log.New(io.Discard, "", 0),
	}
	gate := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == want {
			forward.ServeHTTP(w, r)
			return
		}
		w.Header().Set("WWW-Authenticate", "Bearer")
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"code":"unauthenticated","status":401,"retryable":false,"detail":"no valid token","hint":"set FLIGHTD_TOKEN"}`)
	}))
	pair, err := tls.LoadX509KeyPair(a.certFile, a.keyFile)
	require.NoError(h.t, err)
	gate.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	gate.Config.ErrorLog = log.New(io.Discard, "", 0)
	gate.StartTLS()
	return cmd, gate.URL, func() { gate.CloseClientConnections(); gate.Close() }
}

// makeCertificates makes an authority, and a certificate for this machine, with the names of `flightd cert init`.
func makeCertificates(dir string) error {
	caKey, errCA := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err = errors.Join(errCA, err, os.Mkdir(dir, 0o700)); err != nil {
		return err
	}
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "flightd CA"}, NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "127.0.0.1"}, NotAfter: ca.NotAfter,
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	caDER, errCA := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	leafDER, errLeaf := x509.CreateCertificate(rand.Reader, leaf, ca, key.Public(), caKey)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err = errors.Join(errCA, errLeaf, err); err != nil {
		return err
	}
	write := func(name, kind string, data []byte) error {
		return os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}), 0o600)
	}
	return errors.Join(write("ca.crt", "CERTIFICATE", caDER), write("server.crt", "CERTIFICATE", leafDER), write("server.key", "PRIVATE KEY", secret))
}
