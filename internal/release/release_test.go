package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// root is the module's root, relative to this package.
const root = "../.."

func TestPack_TheSameFromTheSame(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	a, b := entry{"flightd", 0o755, []byte("binary")}, entry{"LICENSE", 0o644, []byte("free")}
	first, err := pack("f-v1", at, []entry{a, b})
	require.NoError(t, err)
	second, _ := pack("f-v1", at.In(time.FixedZone("x", 3600)), []entry{b, a})
	require.True(t, bytes.Equal(first, second), "order or time zone changed the bytes")
	zip, err := gzip.NewReader(bytes.NewReader(first))
	require.NoError(t, err)
	archive, names := tar.NewReader(zip), []string{}
	for {
		h, err := archive.Next()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		names = append(names, fmt.Sprintf("%s %o %d %d", h.Name, h.Mode, h.Uid, h.ModTime.Unix()))
	}
	got := strings.Join(names, ", ")
	require.Equal(t, "f-v1/LICENSE 644 0 1700000000, f-v1/flightd 755 0 1700000000", got, "got %s", got)
}

// TestRelease_OfThisMachine: the archive has all files, the binary is static and has the version, and SHA256SUMS has
// the format of sha256sum -c.
func TestRelease_OfThisMachine(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds everything once more, with the flags of a release; make long runs it")
	}
	out := t.TempDir()
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	here := platform{"linux", "amd64"}
	o := buildSpec{source: root, out: out, version: "v9.9.9-test", at: time.Unix(1_700_000_000, 0), platforms: []platform{here}}
	err := build(t.Context(), o)
	require.NoError(t, err)
	name := "flightd-v9.9.9-test-linux-amd64.tar.gz"
	data, err := os.ReadFile(filepath.Join(out, name))
	require.NoError(t, err)
	sums, _ := os.ReadFile(filepath.Join(out, "SHA256SUMS"))
	require.Equal(t, fmt.Sprintf("%x  %s\n", sha256.Sum256(data), name), string(sums), "sums: %q", sums)
	files := unpack(t, data)
	for _, file := range []string{"flightd", "LICENSE", "NOTICES", "man/flightd.1", "man/flightd-exec.1", "completions/flightd.bash", "completions/_flightd", "completions/flightd.fish", "completions/flightd.ps1", "systemd/flightd.service", "flightd.yaml"} {
		require.NotEqual(t, 0, len(files["flightd-v9.9.9-test-linux-amd64/"+file]), "no %s", file)
	}
	page := string(files["flightd-v9.9.9-test-linux-amd64/man/flightd-exec.1"])
	require.Contains(t, page, `"Nov 2023" "flightd v9.9.9-test"`, "the date and the version of the release, not of the build")
	notices := string(files["flightd-v9.9.9-test-linux-amd64/NOTICES"])
	require.Contains(t, notices, "github.com/hashicorp/raft v", "the licence of raft is missing")
	require.Contains(t, notices, "Mozilla Public License", "the licence of raft is missing")
	binary := files["flightd-v9.9.9-test-linux-amd64/flightd"]
	wd, _ := filepath.Abs(root)
	require.False(t, bytes.Contains(binary, []byte(wd)), "the binary contains the source folder, or lacks the version")
	require.True(t, bytes.Contains(binary, []byte("v9.9.9-test")), "the binary contains the source folder, or lacks the version")
}

func unpack(t *testing.T, data []byte) map[string][]byte {
	t.Helper()
	zip, err := gzip.NewReader(bytes.NewReader(data))
	require.NoError(t, err)
	files, archive := make(map[string][]byte), tar.NewReader(zip)
	for {
		h, err := archive.Next()
		if err == io.EOF {
			return files
		}
		require.NoError(t, err)
		files[h.Name], err = io.ReadAll(archive)
		require.NoError(t, err)
	}
}

func TestCheckStatic_RefusesWhatNeedsALoader(t *testing.T) {
	for _, name := range []string{"/bin/sh", "/usr/bin/env"} {
		data, err := os.ReadFile(name)
		if err != nil || !bytes.HasPrefix(data, []byte("\x7fELF")) {
			continue // not Linux
		}
		require.Error(t, checkStatic(data), "%s was accepted as static", name)
	}
	require.Error(t, checkStatic([]byte("#!/bin/sh")), "a script was accepted as a binary")
}

func TestSameFiles_FindsOneByteAndOneFile(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	write := func(dir, name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, err := compareDirs(a, b)
	require.Error(t, err, "two empty folders were accepted")
	write(a, "x", "1")
	write(b, "x", "1")
	n, err := compareDirs(a, b)
	require.Equal(t, 1, n, "%d, %v", n, err)
	require.NoError(t, err, "%d, %v", n, err)
	write(b, "y", "1")
	_, err = compareDirs(a, b)
	require.Error(t, err, "an extra file was not found")
	write(a, "y", "2")
	_, err = compareDirs(a, b)
	require.Error(t, err, "a different byte was not found")
}

func TestArguments(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1")
	for _, args := range [][]string{{"-platforms", "linux"}, {"-version", "v1; rm"}, {"-version", "v1 2"}, {"-fly"}} {
		require.Error(t, run(t.Context(), args), "%q was accepted", args)
	}
	t.Setenv("SOURCE_DATE_EPOCH", "yesterday")
	require.Error(t, run(t.Context(), []string{"-version", "v1"}), "yesterday was accepted as a time")
}

// TestDockerfile_BuildsAsTheReleaseDoes: the Dockerfile has the same build flags, so that image and archive contain the
// same binary. The image runs as an unprivileged user, with an existing command.
func TestDockerfile_BuildsAsTheReleaseDoes(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	require.NoError(t, err)
	file := string(data)
	flags := buildFlags("${VERSION}")
	want := strings.Join(flags[:len(flags)-1], " ") + ` "` + flags[len(flags)-1] + `" ./cmd/flightd`
	require.Contains(t, file, want, "the Dockerfile does not build with %s", want)
	require.Contains(t, file, "CGO_ENABLED=0", "the Dockerfile does not build with %s", want)
	module, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	needs := regexp.MustCompile(`(?m)^go (1\.\d+)`).FindStringSubmatch(string(module))
	require.NotNil(t, needs, "the Dockerfile builds with another Go than %v", needs)
	require.Regexp(t, `(?m)^FROM golang:`+regexp.QuoteMeta(needs[1])+`\.\d+ AS build$`, file, "a patch version of the Go that go.mod names")
	last := file[strings.LastIndex(file, "FROM "):]
	for _, line := range []string{"FROM scratch", "USER 65532:65532", `ENTRYPOINT ["/flightd"]`, `CMD ["serve"]`, "EXPOSE 7420", "EXPOSE 9464", `HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 CMD ["/flightd", "ready"]`} {
		require.Contains(t, last, line+"\n", "the image has no %s", line)
	}
}

// TestUnit_StartsACommandThatThereIs: the unit starts an existing command and has type notify.
func TestUnit_StartsACommandThatThereIs(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(root, "deploy", "systemd", "flightd.service"))
	require.NoError(t, err)
	start := regexp.MustCompile(`(?m)^ExecStart=/usr/local/bin/flightd (.*)$`).FindStringSubmatch(string(data))
	require.NotNil(t, start, "the unit does not start flightd, or is not of type notify")
	require.NotContains(t, start[1], "--init", "a restart must not make a ledger")
	require.Contains(t, string(data), "\nType=notify\n", "the unit does not start flightd, or is not of type notify")
	require.Contains(t, string(data), "\nWatchdogSec=30\n")
	require.Contains(t, string(data), "\nEnvironmentFile=-/etc/flightd/env\n")
	require.NotContains(t, string(data), "IPAddress", "callers are on other machines")
	c := exec.Command("go", append([]string{"run", "./cmd/flightd"}, append(strings.Fields(start[1]), "--help")...)...)
	c.Dir = root
	out, err := c.CombinedOutput()
	require.NoError(t, err, "flightd %s: %v\n%s", start[1], err, out)
	require.Contains(t, string(out), "flightd serve", "flightd %s: %v\n%s", start[1], err, out)
}
