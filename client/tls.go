package client

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/flightd/flightd/flight"
)

// WithTLSConfig sets the TLS configuration for servers with https. FLIGHTD_CA_FILE, FLIGHTD_CLIENT_CERT and
// FLIGHTD_CLIENT_KEY are then not read. WithCAFile and WithClientCertificate change a copy of it.
func WithTLSConfig(cfg *tls.Config) Option { return func(o *options) { o.tls.config = cfg } }

// WithCAFile sets the PEM file of the authorities that servers' certificates are checked against, in place of the
// system's. The default is FLIGHTD_CA_FILE.
func WithCAFile(path string) Option { return func(o *options) { o.tls.caFile = path } }

// WithClientCertificate sets the PEM files of the certificate that the client shows to servers, and of its key. They
// are read again for each new connection. The default is FLIGHTD_CLIENT_CERT and FLIGHTD_CLIENT_KEY.
func WithClientCertificate(certFile, keyFile string) Option {
	return func(o *options) { o.tls.cert, o.tls.key = certFile, keyFile }
}

// resolveTLS returns the TLS configuration of the options, or else of the environment; nil without an https server.
func (o *options) resolveTLS(servers []string) (*tls.Config, error) {
	if !slices.ContainsFunc(servers, func(server string) bool { return strings.HasPrefix(server, "https:") }) {
		return nil, nil
	}
	caFile, certFile, keyFile := o.tls.caFile, o.tls.cert, o.tls.key
	caName := "" // the setting that names the file, for errors
	cfg := o.tls.config.Clone()
	if cfg == nil {
		cfg = &tls.Config{MinVersion: tls.VersionTLS12}
		if caFile == "" {
			caFile, caName = os.Getenv(envCAFile), envCAFile+": "
		}
		if certFile == "" && keyFile == "" {
			certFile, keyFile = os.Getenv(envClientCert), os.Getenv(envClientKey)
		}
	}
	if caFile != "" {
		pem, err := os.ReadFile(caFile)
		if err != nil {
			return nil, &flight.InvalidError{Field: "ca_file", Detail: caName + err.Error()}
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, &flight.InvalidError{Field: "ca_file", Detail: caName + caFile + " has no certificate in PEM"}
		}
	}
	if certFile == "" && keyFile == "" {
		return cfg, nil
	}
	if certFile == "" || keyFile == "" {
		return nil, &flight.InvalidError{Field: "client_cert", Detail: "a client certificate needs two files: the certificate and its key"}
	}
	read := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err != nil {
			err = &flight.InvalidError{Field: "client_cert", Detail: err.Error()}
		}
		return &pair, err
	}
	cfg.Certificates, cfg.GetClientCertificate = nil, read
	_, err := read(nil)
	return cfg, err
}

// newTransport returns a transport for many concurrent requests to a few servers.
//
// The number of connections per server is not limited: opens wait at the server for up to a minute, and with a limit
// they could keep renewals and reports from a connection until the session is lost. HTTP/1.1 alone is spoken, because
// an HTTP/2 transport repeats POST requests by itself.
func newTransport(o *options, tlsConfig *tls.Config) *http.Transport {
	dial := o.dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}).DialContext
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            dial,
		TLSClientConfig:        tlsConfig,
		Protocols:              protocols,
		TLSHandshakeTimeout:    5 * time.Second,
		MaxIdleConnsPerHost:    512,
		IdleConnTimeout:        30 * time.Second, // servers keep idle connections for longer
		MaxResponseHeaderBytes: 1 << 20,
		DisableCompression:     true,
	}
}

// untrustedError is the error of a server whose certificate was rejected. Nothing was sent to it.
type untrustedError struct {
	server string // host and port
	cause  error
}

func (e *untrustedError) Error() string {
	var invalid x509.CertificateInvalidError
	text := fmt.Sprintf("the certificate of %s is not trusted: %v", e.server, e.cause)
	if errors.As(e.cause, new(x509.HostnameError)) || errors.As(e.cause, &invalid) && invalid.Reason == x509.Expired {
		return text
	}
	return text + " (set " + envCAFile + " to the PEM file of the authority that issued it)"
}

func (e *untrustedError) Unwrap() error { return e.cause }

// rejectedError is the error of a server that rejected the client's certificate, or demands one. The server has read
// nothing of the request.
type rejectedError struct {
	server string // host and port
	cause  error
}

func (e *rejectedError) Error() string {
	return fmt.Sprintf("%s rejected the TLS connection: %v (if it demands a client certificate, set %s and %s to the PEM files of "+
		"one that it accepts)", e.server, e.cause, envClientCert, envClientKey)
}

func (e *rejectedError) Unwrap() error { return e.cause }

// explainTLS replaces the error of a certificate that was rejected, by the client or by the server, by one that says
// what to do. reused says that the connection had served another request before.
//
// In TLS 1.3 the client's handshake ends before the server has read the client's certificate. The server's alert then
// arrives as the first data of a new connection, after the request was written, and the server has discarded that
// request. On a reused connection an alert proves nothing about the request.
func explainTLS(err error, server string, reused bool) error {
	if notVerified, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return &untrustedError{server, notVerified.Err}
	}
	var alert *net.OpError // of a type that crypto/tls does not export
	if errors.As(err, &alert) && alert.Op == "remote error" && !reused && isCertificateAlert(alert.Err.Error()) {
		return &rejectedError{server, alert}
	}
	return err
}

// isCertificateAlert reports whether an alert is one by which servers reject a client's certificate or its absence.
func isCertificateAlert(text string) bool {
	return strings.Contains(text, "certificate") || strings.HasSuffix(text, "handshake failure") || strings.HasSuffix(text, "access denied")
}

// isRejectedByTLS reports whether the client or the server rejected the other's certificate: nothing was carried out.
func isRejectedByTLS(err error) bool {
	return errors.As(err, new(*untrustedError)) || errors.As(err, new(*rejectedError))
}
