package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/flightd/flightd/client"
)

// clientOptions returns the options of every client: its namespace, its token, and its TLS files.
func (a *app) clientOptions() ([]client.Option, error) {
	options := []client.Option{client.WithNamespace(a.namespace), client.WithDeployment(a.setting("deployment").Value)}
	token, from, err := a.token()
	switch {
	case err != nil:
		return nil, err
	case from.Name == "token_file":
		options = append(options, client.WithTokenFile(from.Value)) // read again when it changes
	case token != "":
		options = append(options, client.WithToken(token))
	}
	plain, err := a.boolSetting("allow_plain_http")
	if err != nil {
		return nil, err
	}
	if plain {
		options = append(options, client.WithPlainHTTP())
	}
	if _, err := a.clientTLS(); err != nil {
		return nil, err
	}
	if path := a.setting("ca_file").Value; path != "" {
		options = append(options, client.WithCAFile(path))
	}
	if cert := a.setting("client_cert").Value; cert != "" {
		options = append(options, client.WithClientCertificate(cert, a.setting("client_key").Value))
	}
	return options, nil
}

// token returns the token of this invocation, and the setting that it comes from; "": there is none. Of token and
// token_file the one from the stronger source counts. No error contains the token.
func (a *app) token() (string, settingValue, error) {
	from := a.setting("token")
	token := strings.TrimRight(from.Value, "\r\n")
	if file := a.setting("token_file"); file.Value != "" && (token == "" || file.source < from.source) {
		from = file
		data, err := os.ReadFile(file.Value)
		if err != nil {
			return "", from, &exitError{code: exitConfig, err: fmt.Errorf("token_file, from %s: %w", file.Origin, err)}
		}
		if token = strings.TrimSpace(string(data)); token == "" {
			return "", from, &exitError{code: exitConfig, err: fmt.Errorf("token_file, from %s: %s is empty", file.Origin, file.Value)}
		}
	}
	token = strings.TrimSpace(token) // of a variable that was set from a file
	if word, _, spaced := strings.Cut(token, " "); spaced && strings.EqualFold(word, "Bearer") {
		return "", from, &exitError{code: exitConfig, err: fmt.Errorf(`%s, from %s: it begins with "Bearer "`, from.Name, from.Origin),
			hint: "leave that word out"}
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", from, &exitError{code: exitConfig, err: fmt.Errorf("%s, from %s: a token has no spaces and only ASCII characters", from.Name, from.Origin),
			hint: "a token begins with fltd_; copy the whole token, and nothing else, into the variable or the file"}
	}
	return token, from, nil
}

// clientTLS returns the TLS settings for the servers. It rejects files that cannot be used, with exitConfig.
func (a *app) clientTLS() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	invalid := func(name string, err error) error {
		return &exitError{code: exitConfig, err: fmt.Errorf("%s, from %s: %w", name, a.setting(name).Origin, err)}
	}
	if path := a.setting("ca_file").Value; path != "" {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, invalid("ca_file", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(data) {
			return nil, invalid("ca_file", fmt.Errorf("%s has no certificate in PEM", path))
		}
	}
	cert, key := a.setting("client_cert").Value, a.setting("client_key").Value
	switch {
	case cert == "" && key == "":
	case cert == "":
		return nil, invalid("client_key", errors.New("client_cert is missing"))
	case key == "":
		return nil, invalid("client_cert", errors.New("client_key is missing"))
	default:
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, invalid("client_cert", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// setTokenHint says how to set a token.
const setTokenHint = "set FLIGHTD_TOKEN, or token_file in the settings; an administrator creates a token with flightd token create"

// tlsHint returns the hint for a connection that failed because of TLS; "": the error has another cause.
func tlsHint(err error) string {
	var notVerified *tls.CertificateVerificationError
	var unknown x509.UnknownAuthorityError
	var otherName x509.HostnameError
	var invalid x509.CertificateInvalidError
	var notTLS tls.RecordHeaderError
	var alert *net.OpError // of a type that crypto/tls does not export
	switch {
	case errors.As(err, &otherName):
		return "use a name that is in the server's certificate, or make one with flightd cert init DIR --host NAME"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "renew the server's certificate; flightd cert init DIR does, and the server needs no restart"
	case errors.As(err, &unknown):
		return "set --ca-file or FLIGHTD_CA_FILE to the CA of the server's certificate; flightd cert init wrote it to ca.crt"
	case errors.As(err, &notVerified):
		return "check the server's certificate, and the CA in --ca-file or FLIGHTD_CA_FILE"
	case errors.As(err, &notTLS), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return "this address speaks plain HTTP; use http:// only on this machine or a network that you trust"
	case errors.As(err, &alert) && alert.Op == "remote error":
		return "the server rejected the TLS connection; if it demands a client certificate, set FLIGHTD_CLIENT_CERT and FLIGHTD_CLIENT_KEY"
	}
	return ""
}
