package node

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

// A node listens only where nobody can act without a credential, and where no token travels in clear text unless the
// operator has allowed it. The zero Config is closed.
func TestConfig_AddressesAndTLS(t *testing.T) {
	const everywhere = "0.0.0.0:7420"
	pair := TLSFiles{Cert: "c.pem", Key: "k.pem"}
	for name, c := range map[string]struct {
		Config
		setting string // with the error; "": none
		advice  string // part of the error
	}{
		"defaults":                        {Config: Config{}},
		"dev":                             {Config: Dev("", "")},
		"every loopback address":          {Config: Dev("", "127.9.9.9:1")},
		"IPv6 loopback":                   {Config: Dev("", "[::1]:7420")},
		"localhost":                       {Config: Dev("", "localhost:0")},
		"dev everywhere":                  {Dev("", everywhere), "listen", "127.0.0.1"},
		"dev on all addresses":            {Dev("", ":7420"), "listen", "127.0.0.1"},
		"dev on all IPv6 addresses":       {Dev("", "[::]:7420"), "listen", "127.0.0.1"},
		"dev on a private address":        {Dev("", "192.168.1.1:7420"), "listen", "127.0.0.1"},
		"dev on a name":                   {Dev("", "example.org:7420"), "listen", "127.0.0.1"},
		"no port":                         {Dev("", "127.0.0.1"), "listen", "host:port"},
		"a port out of range":             {Dev("", "127.0.0.1:99999"), "listen", "not a port"},
		"a port that is no number":        {Dev("", "127.0.0.1:x"), "listen", "not a port"},
		"dev with TLS everywhere":         {Config{NoCredentials: true, Listen: Listen{Address: everywhere, TLS: pair}}, "listen", "127.0.0.1"},
		"dev over plain HTTP everywhere":  {Config{NoCredentials: true, Listen: Listen{Address: everywhere, AllowPlainHTTP: true}}, "listen", "127.0.0.1"},
		"dev with TLS":                    {Config: Config{NoCredentials: true, Listen: Listen{TLS: pair}}},
		"tokens everywhere":               {Config{Listen: Listen{Address: everywhere}}, "listen", "tls_cert"},
		"tokens everywhere on a name":     {Config{Listen: Listen{Address: "example.org:7420"}}, "listen", "allow_plain_http"},
		"tokens with TLS everywhere":      {Config: Config{Listen: Listen{Address: everywhere, TLS: pair}}},
		"tokens behind a proxy":           {Config: Config{Listen: Listen{Address: everywhere, AllowPlainHTTP: true}}},
		"certificate without key":         {Config{Listen: Listen{TLS: TLSFiles{Cert: "c.pem"}}}, "tls_key", "set tls_key"},
		"key without certificate":         {Config{Listen: Listen{TLS: TLSFiles{Key: "k.pem"}}}, "tls_cert", "set tls_cert"},
		"client CA without TLS":           {Config{Listen: Listen{TLS: TLSFiles{ClientCA: "ca.pem"}}}, "tls_client_ca", "set tls_cert"},
		"client CA":                       {Config: Config{Listen: Listen{TLS: TLSFiles{Cert: "c.pem", Key: "k.pem", ClientCA: "ca.pem"}}}},
		"dev with metrics":                {Config: Config{NoCredentials: true, Listen: Listen{Metrics: "127.0.0.1:9464"}}},
		"dev with metrics everywhere":     {Config{NoCredentials: true, Listen: Listen{Metrics: ":9464"}}, "listen_metrics", "127.0.0.1"},
		"tokens with metrics everywhere":  {Config: Config{Listen: Listen{Metrics: ":9464"}}},
		"metrics without a port":          {Config{Listen: Listen{Metrics: "127.0.0.1"}}, "listen_metrics", "host:port"},
		"public URL":                      {Config: Config{Listen: Listen{PublicURL: "https://flightd.example.com/effects/"}}},
		"public URL without a scheme":     {Config{Listen: Listen{PublicURL: "flightd.example.com:7420"}}, "public_url", "https://"},
		"public URL of another scheme":    {Config{Listen: Listen{PublicURL: "ftp://flightd.example.com"}}, "public_url", "https://"},
		"public URL that is a path":       {Config{Listen: Listen{PublicURL: "/flightd"}}, "public_url", "https://"},
		"public URL with a query":         {Config{Listen: Listen{PublicURL: "https://flightd.example.com?"}}, "public_url", "query"},
		"public URL with a user":          {Config{Listen: Listen{PublicURL: "https://a:b@flightd.example.com"}}, "public_url", "user"},
		"metrics do not excuse the other": {Config{Listen: Listen{Address: everywhere, Metrics: ":9464"}}, "listen", "tls_cert"},
	} {
		c.FirstToken.Print = func(string) {}
		_, err := c.withDefaults()
		if c.setting == "" {
			require.NoError(t, err, name)
			continue
		}
		var invalid *flight.InvalidError
		require.ErrorAs(t, err, &invalid, name)
		require.Equal(t, c.setting, invalid.Field, name)
		require.Contains(t, invalid.Detail, c.advice, name)
	}
}

// The name localhost may resolve to an address that is not a loopback address.
func TestHostResolvingElsewhereIsRejected(t *testing.T) {
	for setting, cfg := range map[string]Config{"listen": {}, "listen_metrics": Dev("", "")} {
		ours, err := cfg.listen(setting, "localhost:0")
		require.NoError(t, err)
		_ = ours.Close()
		everybody, err := net.Listen("tcp", "0.0.0.0:0")
		require.NoError(t, err)
		var invalid *flight.InvalidError
		_, err = cfg.checkListener(setting, everybody)
		require.ErrorAs(t, err, &invalid, "an address that other machines reach: %v", err)
		require.Equal(t, setting, invalid.Field)
		_, err = everybody.Accept()
		require.Error(t, err, "it still listens")
	}
}
