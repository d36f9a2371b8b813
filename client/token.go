package client

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/flightd/flightd/flight"
)

// The settings that Connect reads from the environment where no option is given.
const (
	envDeployment = "FLIGHTD_DEPLOYMENT"
	envToken      = "FLIGHTD_TOKEN"
	envTokenFile  = "FLIGHTD_TOKEN_FILE"
	envCAFile     = "FLIGHTD_CA_FILE"
	envClientCert = "FLIGHTD_CLIENT_CERT"
	envClientKey  = "FLIGHTD_CLIENT_KEY"
	envPlainHTTP  = "FLIGHTD_ALLOW_PLAIN_HTTP"
)

// tokenSource returns the token for the next request, or "" if there is no token. It is a function, so that no dump of a
// Client shows the token.
type tokenSource func() string

// WithToken sets the token of every request. It is sent as Authorization: Bearer, in place of a user in the address,
// and never to another server than those of Connect. The default is FLIGHTD_TOKEN, else the file FLIGHTD_TOKEN_FILE. An
// empty token counts as no option.
func WithToken(token string) Option {
	return func(o *options) {
		o.token = nil
		if token != "" {
			o.token = func() string { return token }
		}
	}
}

// WithTokenFile sets the file that has the token. It is read again at most once a second, so that a replaced token is
// used without a restart. WithToken takes precedence.
func WithTokenFile(path string) Option { return func(o *options) { o.tokenFile = path } }

// WithPlainHTTP allows Connect to send a token over http:// to another machine: every machine on the way can then read
// it. It is for a proxy on a trusted network. The default is FLIGHTD_ALLOW_PLAIN_HTTP=true.
func WithPlainHTTP() Option { return func(o *options) { o.tls.plainHTTP = true } }

// checkPlainHTTP rejects a server to which the token would travel in clear text.
func (o *options) checkPlainHTTP(servers []string) error {
	allowed, _ := strconv.ParseBool(os.Getenv(envPlainHTTP))
	if o.tls.plainHTTP || allowed || o.token() == "" {
		return nil
	}
	for _, server := range servers {
		u, err := url.Parse(server)
		if err == nil && u.Scheme == "http" && !isLoopback(u.Hostname()) {
			return &flight.InvalidError{Field: "address", Detail: fmt.Sprintf("the token would travel in clear text to http://%s; "+
				"write https://, or set %s=true if you trust the whole network on the way", u.Host, envPlainHTTP)}
		}
	}
	return nil
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && ip.IsLoopback()
}

// resolveToken sets o.token from the options, or else from the environment.
func (o *options) resolveToken() error {
	path, name := o.tokenFile, "the token file"
	switch fromEnv := strings.TrimRight(os.Getenv(envToken), "\r\n"); {
	case o.token != nil:
		return checkToken(o.token(), "the token")
	case path == "" && fromEnv != "":
		o.token = func() string { return fromEnv }
		return checkToken(fromEnv, envToken)
	case path == "":
		path, name = os.Getenv(envTokenFile), envTokenFile
	}
	o.token = func() string { return "" }
	if path == "" {
		return nil
	}
	f := &tokenFile{path: path, name: name, logger: o.logger}
	token, err := f.read()
	if err != nil {
		return err
	}
	f.token, f.readAt = token, time.Now()
	o.token = f.current
	return nil
}

// checkToken rejects a token that cannot be sent in a header. The error does not show it.
func checkToken(token, name string) error {
	if word, _, spaced := strings.Cut(token, " "); spaced && strings.EqualFold(word, "Bearer") {
		return &flight.InvalidError{Field: "token", Detail: name + ` begins with "Bearer ": leave that word out`}
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return &flight.InvalidError{Field: "token", Detail: name + " has a space, a control character or one outside ASCII (it is not shown here)"}
	}
	return nil
}

// tokenFile is a token in a file that may be replaced at any time.
type tokenFile struct {
	path   string
	name   string // of its setting
	logger *slog.Logger

	mu      sync.Mutex // guards the fields below
	token   string     // the last valid one
	readAt  time.Time
	lastErr string // of the last read; "": it succeeded
}

// tokenFileInterval is the time between two reads of a token file.
const tokenFileInterval = time.Second

// current returns the token in the file. While the file cannot be read, or has no valid token, the last one stays.
func (f *tokenFile) current() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.readAt) < tokenFileInterval {
		return f.token
	}
	f.readAt = time.Now()
	token, err := f.read()
	if err == nil {
		f.token, f.lastErr = token, ""
	} else if err.Error() != f.lastErr {
		f.lastErr = err.Error()
		f.logger.Error("flightd: the token file cannot be used; the previous token stays in use", "error", err)
	}
	return f.token
}

func (f *tokenFile) read() (string, error) {
	b, err := os.ReadFile(f.path)
	if err != nil {
		return "", &flight.InvalidError{Field: "token_file", Detail: f.name + ": " + err.Error()}
	}
	token := strings.TrimRight(string(b), "\r\n")
	if token == "" {
		err = &flight.InvalidError{Field: "token", Detail: "the file " + f.path + " is empty"}
	}
	return token, errors.Join(err, checkToken(token, "the file "+f.path))
}
