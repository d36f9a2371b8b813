package etcdtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/version"

	"github.com/flightd/flightd/internal/proctest"
)

// Member is a member of an etcd that runs in a process of its own.
type Member struct {
	Name         string
	Dir          string // its data; its log is written beside it
	Client, Peer string // HOST:PORT of the two ports
	// Cert, Key and CA are PEM files for both ports, which then demand a client certificate. "": plain HTTP.
	Cert, Key, CA string
}

// URL returns the address for clients.
func (m *Member) URL() string { return m.scheme() + m.Client }

func (m *Member) scheme() string {
	if m.Cert != "" {
		return "https://"
	}
	return "http://"
}

// URLs returns the addresses of the members for clients.
func URLs(members []Member) (urls []string) {
	for i := range members {
		urls = append(urls, members[i].URL())
	}
	return urls
}

// Binary builds the etcd server of the module's version, unless that was done before, and returns its path.
func Binary() (string, error) {
	path := filepath.Join(os.TempDir(), "flightd-test-etcd-"+version.Version)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/flightd/flightd").Output() // tests of another module call Binary, too
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "flightd-test-build-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	build := exec.Command("go", "build", "-C", strings.TrimSpace(string(module)), "-o", filepath.Join(dir, "etcd"), "go.etcd.io/etcd/server/v3")
	build.Env, build.Stderr = append(os.Environ(), "CGO_ENABLED=0"), os.Stderr
	if err := build.Run(); err != nil {
		return "", err
	}
	return path, os.Rename(filepath.Join(dir, "etcd"), path)
}

// Spec describes the process of member n: of a new etcd, or of one that was stopped.
func Spec(binary string, members []Member, n int) proctest.Spec {
	m := &members[n]
	var all []string
	for i := range members {
		all = append(all, members[i].Name+"="+members[i].scheme()+members[i].Peer)
	}
	args := []string{
		"--name", m.Name, "--data-dir", m.Dir, "--initial-cluster", strings.Join(all, ","),
		"--listen-client-urls", m.URL(), "--advertise-client-urls", m.URL(),
		"--listen-peer-urls", m.scheme() + m.Peer, "--initial-advertise-peer-urls", m.scheme() + m.Peer,
		"--auto-compaction-mode", "revision", "--auto-compaction-retention", "1000", "--log-outputs", "stdout," + m.Dir + ".log",
	}
	if m.Cert != "" {
		args = append(args, "--cert-file", m.Cert, "--key-file", m.Key, "--trusted-ca-file", m.CA, "--client-cert-auth",
			"--peer-cert-file", m.Cert, "--peer-key-file", m.Key, "--peer-trusted-ca-file", m.CA, "--peer-client-cert-auth")
	}
	return proctest.Spec{
		Name: "etcd " + m.Name, Path: binary, Args: args, Log: m.Dir + ".log",
		Ready: func(line string) bool { return strings.Contains(line, "ready to serve client requests") },
	}
}

// Processes are the members of an etcd on the loopback interface.
type Processes struct {
	Members []Member

	t       testing.TB
	binary  string
	running []*proctest.Process
}

// StartProcesses starts an etcd of new members. A member without a directory or ports gets its own. They are killed when the test
// ends.
func StartProcesses(t testing.TB, members ...Member) *Processes {
	t.Helper()
	p := NewProcesses(t, members...)
	p.Start()
	return p
}

// NewProcesses is StartProcesses without a start.
func NewProcesses(t testing.TB, members ...Member) *Processes {
	t.Helper()
	binary, err := Binary()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for i := range members {
		m := &members[i]
		if m.Dir == "" {
			m.Dir, m.Client, m.Peer = filepath.Join(dir, m.Name), proctest.Address(t), proctest.Address(t)
		}
	}
	return &Processes{Members: members, t: t, binary: binary, running: make([]*proctest.Process, len(members))}
}

// Start starts members, or all, and waits until they serve clients.
func (p *Processes) Start(numbers ...int) {
	p.t.Helper()
	if len(numbers) == 0 {
		for i := range p.Members {
			numbers = append(numbers, i)
		}
	}
	for _, n := range numbers {
		started, err := proctest.Start(Spec(p.binary, p.Members, n))
		if err != nil {
			p.t.Fatal(err)
		}
		p.running[n] = started
		p.t.Cleanup(started.Kill)
	}
	for _, n := range numbers {
		if _, err := p.running[n].AwaitReady(p.t.Context()); err != nil {
			p.t.Fatal(err)
		}
	}
}

// Process returns the process of a member.
func (p *Processes) Process(n int) *proctest.Process { return p.running[n] }
