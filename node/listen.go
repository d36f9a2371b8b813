package node

import (
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/flightd/flightd/flight"
)

// check checks the settings of addresses, TLS and etcd against each other. It reads no file and resolves no name. The error
// is *flight.InvalidError with the name of the setting.
func (c *Config) check() error {
	invalid := func(setting, detail string) error { return &flight.InvalidError{Field: setting, Detail: detail} }
	switch f := c.Listen.TLS; {
	case f.Cert != "" && f.Key == "":
		return invalid("tls_key", "missing: tls_cert is set; set tls_key to the file of its private key")
	case f.Cert == "" && f.Key != "":
		return invalid("tls_cert", "missing: tls_key is set; set tls_cert to the file of its certificate")
	case f.Cert == "" && f.ClientCA != "":
		return invalid("tls_client_ca", "client certificates need TLS; set tls_cert and tls_key, too")
	}
	if u, err := url.Parse(c.Listen.PublicURL); c.Listen.PublicURL != "" &&
		(err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || strings.ContainsAny(c.Listen.PublicURL, "?#")) {
		return invalid("public_url", "it must be an absolute URL that begins with http:// or https://, without a user, a query or a fragment, as in https://flightd.example.com")
	}
	if err := c.Etcd.check(); err != nil {
		return err
	}
	if c.Cluster != "" && c.Operator.RaiseLeaseEpoch != "" { // it would count whenever this node leads, and a person means it once
		return invalid("raise_lease_epoch", "a cluster raises it while it runs; start the node without, and run flightd cluster raise-lease-epoch --reason WHY")
	}
	if err := c.checkAddress("listen", c.Listen.Address); err != nil {
		return err
	}
	if c.Listen.Metrics == "" {
		return nil
	}
	return c.checkAddress("listen_metrics", c.Listen.Metrics)
}

// checkAddress checks the address of a setting as it is written. The only name that counts as this machine is localhost.
func (c *Config) checkAddress(setting, address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return &flight.InvalidError{Field: setting, Detail: fmt.Sprintf("%q is not host:port", address)}
	}
	if _, err := net.LookupPort("tcp", port); err != nil {
		return &flight.InvalidError{Field: setting, Detail: fmt.Sprintf("%q is not a port", port)}
	}
	ip := net.ParseIP(host)
	return c.checkReach(setting, host, host == "localhost" || ip != nil && ip.IsLoopback())
}

// checkReach decides whether a setting may listen on a host. A host without a loopback address can be reached from
// other machines: then somebody could act without a credential, or read a token from the network.
func (c *Config) checkReach(setting, host string, loopback bool) error {
	switch {
	case loopback:
		return nil
	case c.NoCredentials:
		return &flight.InvalidError{Field: setting, Detail: fmt.Sprintf(
			"%q is not a loopback address, and requests need no token here; use 127.0.0.1, or a node that requires tokens", host)}
	case setting == "listen" && c.Listen.TLS.Cert == "" && !c.Listen.AllowPlainHTTP:
		return &flight.InvalidError{Field: setting, Detail: fmt.Sprintf(
			"%q is not a loopback address, and tokens would travel in clear text; set tls_cert and tls_key, or allow_plain_http if a proxy in front ends TLS", host)}
	}
	return nil
}

// listen listens on the address of a setting, which passed check.
func (c *Config) listen(setting, address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	return c.checkListener(setting, l)
}

// checkListener repeats checkReach with the address that a name was resolved to. It closes a listener that it rejects.
func (c *Config) checkListener(setting string, l net.Listener) (net.Listener, error) {
	ip := l.Addr().(*net.TCPAddr).IP
	if err := c.checkReach(setting, ip.String(), ip.IsLoopback()); err != nil {
		_ = l.Close()
		return nil, err
	}
	return l, nil
}
