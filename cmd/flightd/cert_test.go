package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/internal/cert"
	"github.com/flightd/flightd/internal/durable"
)

// makeCertificates runs flightd cert init for a new directory.
func makeCertificates(t testing.TB, args ...string) (dir string, made cert.Made) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "tls")
	r := flightd(nil, append([]string{"cert", "init", dir, "-o", "json"}, args...)...).want(t, cli.ExitOK, "", "")
	require.NoError(t, json.Unmarshal([]byte(r.out), &made), "%v", r)
	return dir, made
}

// roots returns a pool of the CA of the directory.
func roots(t testing.TB, dir string) *x509.CertPool {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	require.NoError(t, err)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(data))
	return pool
}

// TestCert_ServerIsVerifiedByItsCA for each of its hosts, as a server, and for the time that was asked for.
func TestCert_ServerIsVerifiedByItsCA(t *testing.T) {
	dir, made := makeCertificates(t, "--host", "flightd.example.com,10.0.0.7", "--host", "*.internal", "--days", "90")
	require.True(t, made.CAIsNew)
	served, err := cert.Read(filepath.Join(dir, "server.crt"))
	require.NoError(t, err)
	for host, verified := range map[string]bool{
		"flightd.example.com": true, "10.0.0.7": true, "a.internal": true, "localhost": true, "127.0.0.1": true, "::1": true,
		"example.com": false, "10.0.0.8": false, "internal": false,
	} {
		_, err := served.Verify(x509.VerifyOptions{Roots: roots(t, dir), DNSName: host})
		require.Equal(t, verified, err == nil, "%s: %v", host, err)
	}
	_, err = served.Verify(x509.VerifyOptions{Roots: roots(t, dir), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	require.Error(t, err, "a server's certificate is no client's")
	require.WithinDuration(t, time.Now().AddDate(0, 0, 90), served.NotAfter, time.Minute)
	ca, err := cert.Read(filepath.Join(dir, "ca.crt"))
	require.NoError(t, err)
	require.True(t, ca.MaxPathLenZero && ca.IsCA)
	for file, mode := range map[string]os.FileMode{"ca.key": 0o600, "server.key": 0o600, "ca.crt": 0o644, "server.crt": 0o644} {
		info, err := os.Stat(filepath.Join(dir, file))
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode().Perm(), file)
	}
	left, _ := filepath.Glob(filepath.Join(dir, durable.TempPrefix+"*"))
	require.Empty(t, left)
}

// TestCert_OpenSSLAgrees if it is installed.
func TestCert_OpenSSLAgrees(t *testing.T) {
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Skip("openssl is not installed")
	}
	dir, _ := makeCertificates(t, "--host", "flightd.example.com")
	require.Zero(t, flightd(nil, "cert", "client", dir, "billing").code)
	for _, args := range [][]string{
		{"verify", "-x509_strict", "-purpose", "sslserver", "-verify_hostname", "flightd.example.com", "-CAfile", "ca.crt", "server.crt"},
		{"verify", "-x509_strict", "-purpose", "sslclient", "-CAfile", "ca.crt", "client-billing.crt"},
		{"pkey", "-in", "server.key", "-noout", "-check"},
	} {
		c := exec.Command(openssl, args...)
		c.Dir = dir
		out, err := c.CombinedOutput()
		require.NoError(t, err, "%v: %s", args, out)
	}
}

// TestCert_AgainRenewsTheServerAlone: the CA and all keys stay, the hosts stay unless others are named, and at every moment
// server.crt belongs to server.key.
func TestCert_AgainRenewsTheServerAlone(t *testing.T) {
	dir, first := makeCertificates(t, "--host", "flightd.example.com")
	read := func(name string) string {
		data, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		return string(data)
	}
	before := map[string]string{}
	for _, name := range []string{"ca.crt", "ca.key", "server.key", "server.crt"} {
		before[name] = read(name)
	}
	held, err := os.Open(filepath.Join(dir, "server.crt")) // replaced by a rename, an open file keeps the old content
	require.NoError(t, err)
	defer held.Close()
	r := flightd(nil, "cert", "init", dir, "-o", "json").want(t, cli.ExitOK, "", "")
	var again cert.Made
	require.NoError(t, json.Unmarshal([]byte(r.out), &again))
	require.False(t, again.CAIsNew)
	require.ElementsMatch(t, first.Hosts, again.Hosts)
	for _, name := range []string{"ca.crt", "ca.key", "server.key"} {
		require.Equal(t, before[name], read(name), name)
	}
	require.NotEqual(t, before["server.crt"], read("server.crt"))
	old := make([]byte, len(before["server.crt"]))
	_, err = held.ReadAt(old, 0)
	require.NoError(t, err)
	require.Equal(t, before["server.crt"], string(old))
	_, err = tls.LoadX509KeyPair(filepath.Join(dir, "server.crt"), filepath.Join(dir, "server.key"))
	require.NoError(t, err)

	require.Zero(t, flightd(nil, "cert", "init", dir, "--host", "other.example.com").code)
	served, err := cert.Read(filepath.Join(dir, "server.crt"))
	require.NoError(t, err)
	require.NoError(t, served.VerifyHostname("other.example.com"))
	require.Error(t, served.VerifyHostname("flightd.example.com"))
}

// TestCert_IncompleteDirectories: a CA whose key or certificate is elsewhere is not replaced.
func TestCert_IncompleteDirectories(t *testing.T) {
	dir, _ := makeCertificates(t)
	require.NoError(t, os.Rename(filepath.Join(dir, "ca.crt"), filepath.Join(dir, "elsewhere")))
	for _, args := range [][]string{{"cert", "init", dir}, {"cert", "client", dir, "billing"}} {
		r := flightd(nil, args...)
		require.Equal(t, cli.ExitConfig, r.code, "%v: %v", args, r)
		require.Contains(t, r.err, "has no ca.crt beside its ca.key", "%v: %v", args, r)
		require.NoFileExists(t, filepath.Join(dir, "ca.crt"))
	}
	require.NoError(t, os.Rename(filepath.Join(dir, "elsewhere"), filepath.Join(dir, "ca.crt")))
	require.NoError(t, os.Remove(filepath.Join(dir, "server.crt")))
	require.Zero(t, flightd(nil, "cert", "init", dir).code)
	served, err := cert.Read(filepath.Join(dir, "server.crt"))
	require.NoError(t, err)
	_, err = served.Verify(x509.VerifyOptions{Roots: roots(t, dir)})
	require.NoError(t, err)

	caOf := func() string { data, _ := os.ReadFile(filepath.Join(dir, "ca.crt")); return string(data) }
	before := caOf()
	require.NoError(t, os.Remove(filepath.Join(dir, "ca.key")))
	for _, args := range [][]string{{"cert", "init", dir}, {"cert", "client", dir, "billing"}} {
		r := flightd(nil, args...)
		require.Equal(t, cli.ExitConfig, r.code, "%v: %v", args, r)
		require.Contains(t, r.err, "ca.key", "%v: %v", args, r)
	}
	require.Equal(t, before, caOf())
	other, _ := makeCertificates(t)
	key, err := os.ReadFile(filepath.Join(other, "ca.key"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ca.key"), key, 0o600))
	require.Contains(t, flightd(nil, "cert", "init", dir).err, "do not belong together")
	require.Equal(t, before, caOf())
}

// TestCert_ClientsAndServerTrustEachOther over a real connection; a server's certificate is not taken from a client.
func TestCert_ClientsAndServerTrustEachOther(t *testing.T) {
	dir, _ := makeCertificates(t)
	require.Zero(t, flightd(nil, "cert", "client", dir, "billing").code)
	pair := func(name string) tls.Certificate {
		p, err := tls.LoadX509KeyPair(filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key"))
		require.NoError(t, err)
		return p
	}
	for name, trusted := range map[string]bool{"client-billing": true, "server": false} {
		a, b := net.Pipe()
		server := tls.Server(a, &tls.Config{Certificates: []tls.Certificate{pair("server")}, ClientCAs: roots(t, dir), ClientAuth: tls.RequireAndVerifyClientCert})
		client := tls.Client(b, &tls.Config{Certificates: []tls.Certificate{pair(name)}, RootCAs: roots(t, dir), ServerName: "localhost"})
		said := make(chan error, 1)
		go func() {
			err := server.HandshakeContext(t.Context())
			_ = a.Close()
			said <- err
		}()
		err := client.HandshakeContext(t.Context())
		_ = b.Close()
		require.Equal(t, trusted, <-said == nil, name)
		if trusted {
			require.NoError(t, err, name)
		}
	}
}

func TestCert_Mistakes(t *testing.T) {
	dir := t.TempDir()
	for _, test := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"init", dir, "--host", "https://a"}, cli.ExitUsage, "without scheme and port"},
		{[]string{"init", dir, "--host", "a:7420"}, cli.ExitUsage, "without scheme and port"},
		{[]string{"init", dir, "--days", "0"}, cli.ExitUsage, "--days 0"},
		{[]string{"init", dir, "--days", "4000"}, cli.ExitUsage, "--days 4000"},
		{[]string{"init"}, cli.ExitUsage, "a directory"},
		{[]string{"client", dir, "billing"}, cli.ExitConfig, "flightd cert init " + dir},
		{[]string{"client", dir, "../x"}, cli.ExitUsage, "is not a name"},
		{[]string{"client", dir}, cli.ExitUsage, "a directory and a name"},
		{[]string{"init", "/dev/null/x"}, cli.ExitConfig, "not a directory"},
	} {
		r := flightd(nil, append([]string{"cert"}, test.args...)...)
		require.Equal(t, test.code, r.code, "%v: %v", test.args, r)
		require.Contains(t, r.err, test.says, "%v: %v", test.args, r)
	}
	names, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, names)
}

// TestCert_EveryFormat: standard output has data only.
func TestCert_EveryFormat(t *testing.T) {
	dir, _ := makeCertificates(t)
	for _, args := range [][]string{{"cert", "init", dir}, {"cert", "client", dir, "billing"}} {
		for _, format := range cli.Formats() {
			r := flightd(nil, append(args, "-o", format)...)
			require.Zero(t, r.code, "%v: %v", args, r)
			require.Empty(t, r.err, "%v: %v", args, r)
			require.Contains(t, r.out, ".crt", "%v: %v", args, r)
			require.Equal(t, args[1] == "init" && format != "id", strings.Contains(r.out, "localhost"), "%v shows the names: %v", args, r)
			require.NoError(t, checkReadable(format, r.out), "%v: %v", args, r)
		}
	}
}

// TestCert_InitSaysWhichNamesAreGone: --host replaces all names of the old certificate.
func TestCert_InitSaysWhichNamesAreGone(t *testing.T) {
	dir, first := makeCertificates(t, "--host", "old.example.com,10.0.0.7,both.example.com")
	require.Empty(t, first.DroppedHosts)
	r := flightd(nil, "cert", "init", dir).want(t, cli.ExitOK, "", "")
	require.Empty(t, r.err, "a renewal keeps the names: %v", r)
	r = flightd(nil, "cert", "init", dir, "--host", "new.example.com,both.example.com").
		want(t, cli.ExitOK, "", "not for old.example.com,10.0.0.7, as")
	require.Contains(t, r.err, "--host new.example.com,both.example.com,localhost,127.0.0.1,::1,old.example.com,10.0.0.7", "%v", r)
	r = flightd(nil, "cert", "init", dir, "--host", "new.example.com,both.example.com")
	require.Empty(t, r.err, "they are gone already: %v", r)
}
