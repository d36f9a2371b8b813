package cli

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

// ClientOptions returns the options of every client: its namespace, its token, and its TLS files.
func (s *Settings) ClientOptions() ([]client.Option, error) {
	options := []client.Option{client.WithNamespace(s.Namespace), client.WithDeployment(s.Setting("deployment").Value)}
	token, from, err := s.Token()
	switch {
	case err != nil:
		return nil, err
	case from.Name == "token_file":
		options = append(options, client.WithTokenFile(from.Value)) // read again when it changes
	case token != "":
		options = append(options, client.WithToken(token))
	}
	plain, err := s.BoolSetting("allow_plain_http")
	if err != nil {
		return nil, err
	}
	if plain {
		options = append(options, client.WithPlainHTTP())
	}
	if _, err := s.ClientTLS(); err != nil {
		return nil, err
	}
	if path := s.Setting("ca_file").Value; path != "" {
		options = append(options, client.WithCAFile(path))
	}
	if cert := s.Setting("client_cert").Value; cert != "" {
		options = append(options, client.WithClientCertificate(cert, s.Setting("client_key").Value))
	}
	return options, nil
}

// Token returns the token of this invocation and the setting that it comes from, or "" if there is no token. Of token and
// token_file the one from the stronger source counts. No error contains the token.
func (s *Settings) Token() (string, Value, error) {
	from := s.Setting("token")
	token := strings.TrimRight(from.Value, "\r\n")
	if file := s.Setting("token_file"); file.Value != "" && (token == "" || file.Source < from.Source) {
		from = file
		data, err := os.ReadFile(file.Value)
		if err != nil {
			return "", from, &Error{Code: ExitConfig, Err: fmt.Errorf("token_file, from %s: %w", file.Origin, err)}
		}
		if token = strings.TrimSpace(string(data)); token == "" {
			return "", from, &Error{Code: ExitConfig, Err: fmt.Errorf("token_file, from %s: %s is empty", file.Origin, file.Value)}
		}
	}
	token = strings.TrimSpace(token) // of a variable that was set from a file
	if word, _, spaced := strings.Cut(token, " "); spaced && strings.EqualFold(word, "Bearer") {
		return "", from, &Error{Code: ExitConfig, Err: fmt.Errorf(`%s, from %s: it begins with "Bearer "`, from.Name, from.Origin),
			Hint: "leave that word out"}
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", from, &Error{Code: ExitConfig, Err: fmt.Errorf("%s, from %s: a token has no spaces and only ASCII characters", from.Name, from.Origin),
			Hint: "a token begins with fltd_; copy the whole token, and nothing else, into the variable or the file"}
	}
	return token, from, nil
}

// ClientTLS returns the TLS settings for the servers. It rejects files that cannot be used, with ExitConfig.
func (s *Settings) ClientTLS() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	invalid := func(name string, err error) error {
		return &Error{Code: ExitConfig, Err: fmt.Errorf("%s, from %s: %w", name, s.Setting(name).Origin, err)}
	}
	if path := s.Setting("ca_file").Value; path != "" {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, invalid("ca_file", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(data) {
			return nil, invalid("ca_file", fmt.Errorf("%s has no certificate in PEM", path))
		}
	}
	cert, key := s.Setting("client_cert").Value, s.Setting("client_key").Value
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

// SetTokenHint says how to set a token.
const SetTokenHint = "set FLIGHTD_TOKEN, or token_file in the settings; an administrator creates a token with flightd token create"

// TLSHint returns the hint for a connection that failed because of TLS, or "" if the error has another cause.
func TLSHint(err error) string {
	var invalid x509.CertificateInvalidError
	var alert *net.OpError // of a type that crypto/tls does not export
	switch {
	case errors.As(err, new(x509.HostnameError)):
		return "use a name that is in the server's certificate, or make one with flightd cert init DIR --host NAME"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "renew the server's certificate; flightd cert init DIR does, and the server needs no restart"
	case errors.As(err, new(x509.UnknownAuthorityError)):
		return "set --ca-file or FLIGHTD_CA_FILE to the CA of the server's certificate; flightd cert init wrote it to ca.crt"
	case errors.As(err, new(*tls.CertificateVerificationError)):
		return "check the server's certificate, and the CA in --ca-file or FLIGHTD_CA_FILE"
	case errors.As(err, new(tls.RecordHeaderError)), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return "this address speaks plain HTTP; use http:// only on this machine or a network that you trust"
	case errors.As(err, &alert) && alert.Op == "remote error":
		return "the server rejected the TLS connection; if it demands a client certificate, set FLIGHTD_CLIENT_CERT and FLIGHTD_CLIENT_KEY"
	}
	return ""
}

// ExposedToken returns the file that the token comes from if other users may read it, else "".
func (s *Settings) ExposedToken() string {
	_, from, err := s.Token()
	file := s.Config.Path
	switch {
	case err != nil:
		return ""
	case from.Name == "token_file":
		file = from.Value
	case from.Source != FromFile:
		return ""
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm()&0o004 == 0 {
		return ""
	}
	return file
}
