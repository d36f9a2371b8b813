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
	if err != nil {
		t.Fatal(err)
	}
	second, _ := pack("f-v1", at.In(time.FixedZone("x", 3600)), []entry{b, a})
	if !bytes.Equal(first, second) {
		t.Error("order or time zone changed the bytes")
	}
	zip, err := gzip.NewReader(bytes.NewReader(first))
	if err != nil {
		t.Fatal(err)
	}
	archive, names := tar.NewReader(zip), []string{}
	for {
		h, err := archive.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, fmt.Sprintf("%s %o %d %d", h.Name, h.Mode, h.Uid, h.ModTime.Unix()))
	}
	if got := strings.Join(names, ", "); got != "f-v1/LICENSE 644 0 1700000000, f-v1/flightd 755 0 1700000000" {
		t.Errorf("got %s", got)
	}
}

// TestRelease_OfThisMachine: the archive has all files, the binary is static and has the version, and SHA256SUMS has
// the format of sha256sum -c.
func TestRelease_OfThisMachine(t *testing.T) {
	out := t.TempDir()
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	here := platform{"linux", "amd64"}
	o := buildSpec{source: root, out: out, version: "v9.9.9-test", at: time.Unix(1_700_000_000, 0), platforms: []platform{here}}
	if err := build(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	name := "flightd-v9.9.9-test-linux-amd64.tar.gz"
	data, err := os.ReadFile(filepath.Join(out, name))
	if err != nil {
		t.Fatal(err)
	}
	sums, _ := os.ReadFile(filepath.Join(out, "SHA256SUMS"))
	if want := fmt.Sprintf("%x  %s\n", sha256.Sum256(data), name); string(sums) != want {
		t.Errorf("sums: %q", sums)
	}
	files := unpack(t, data)
	for _, file := range []string{"flightd", "LICENSE", "NOTICES", "man/flightd.1", "man/flightd-exec.1", "completions/flightd.bash", "completions/_flightd", "completions/flightd.fish", "completions/flightd.ps1", "systemd/flightd.service"} {
		if len(files["flightd-v9.9.9-test-linux-amd64/"+file]) == 0 {
			t.Errorf("no %s", file)
		}
	}
	page := string(files["flightd-v9.9.9-test-linux-amd64/man/flightd-exec.1"])
	require.Contains(t, page, `"Nov 2023" "flightd v9.9.9-test"`, "the date and the version of the release, not of the build")
	notices := string(files["flightd-v9.9.9-test-linux-amd64/NOTICES"])
	if !strings.Contains(notices, "github.com/hashicorp/raft v") || !strings.Contains(notices, "Mozilla Public License") {
		t.Error("the licence of raft is missing")
	}
	binary := files["flightd-v9.9.9-test-linux-amd64/flightd"]
	if wd, _ := filepath.Abs(root); bytes.Contains(binary, []byte(wd)) || !bytes.Contains(binary, []byte("v9.9.9-test")) {
		t.Error("the binary contains the source folder, or lacks the version")
	}
}

func unpack(t *testing.T, data []byte) map[string][]byte {
	t.Helper()
	zip, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	files, archive := make(map[string][]byte), tar.NewReader(zip)
	for {
		h, err := archive.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(archive); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCheckStatic_RefusesWhatNeedsALoader(t *testing.T) {
	for _, name := range []string{"/bin/sh", "/usr/bin/env"} {
		data, err := os.ReadFile(name)
		if err != nil || !bytes.HasPrefix(data, []byte("\x7fELF")) {
			continue // not Linux
		}
		if err := checkStatic(data); err == nil {
			t.Errorf("%s was accepted as static", name)
		}
	}
	if err := checkStatic([]byte("#!/bin/sh")); err == nil {
		t.Error("a script was accepted as a binary")
	}
}

func TestSameFiles_FindsOneByteAndOneFile(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	write := func(dir, name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := compareDirs(a, b); err == nil {
		t.Error("two empty folders were accepted")
	}
	write(a, "x", "1")
	write(b, "x", "1")
	if n, err := compareDirs(a, b); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	write(b, "y", "1")
	if _, err := compareDirs(a, b); err == nil {
		t.Error("an extra file was not found")
	}
	write(a, "y", "2")
	if _, err := compareDirs(a, b); err == nil {
		t.Error("a different byte was not found")
	}
}

func TestArguments(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1")
	for _, args := range [][]string{{"-platforms", "linux"}, {"-version", "v1; rm"}, {"-version", "v1 2"}, {"-fly"}} {
		if err := run(t.Context(), args); err == nil {
			t.Errorf("%q was accepted", args)
		}
	}
	t.Setenv("SOURCE_DATE_EPOCH", "yesterday")
	if err := run(t.Context(), []string{"-version", "v1"}); err == nil {
		t.Error("yesterday was accepted as a time")
	}
}

// TestDockerfile_BuildsAsTheReleaseDoes: the Dockerfile has the same build flags, so that image and archive contain the
// same binary. The image runs as an unprivileged user, with an existing command.
func TestDockerfile_BuildsAsTheReleaseDoes(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	file := string(data)
	flags := buildFlags("${VERSION}")
	want := strings.Join(flags[:len(flags)-1], " ") + ` "` + flags[len(flags)-1] + `" ./cmd/flightd`
	if !strings.Contains(file, want) || !strings.Contains(file, "CGO_ENABLED=0") {
		t.Errorf("the Dockerfile does not build with %s", want)
	}
	module, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	needs := regexp.MustCompile(`(?m)^go (1\.\d+)`).FindStringSubmatch(string(module))
	if needs == nil || !strings.Contains(file, "FROM golang:"+needs[1]+" AS build") {
		t.Errorf("the Dockerfile builds with another Go than %v", needs)
	}
	last := file[strings.LastIndex(file, "FROM "):]
	for _, line := range []string{"FROM scratch", "USER 65532:65532", `ENTRYPOINT ["/flightd"]`, `CMD ["dev"]`} {
		if !strings.Contains(last, line+"\n") {
			t.Errorf("the image has no %s", line)
		}
	}
}

// TestUnit_StartsACommandThatThereIs: the unit starts an existing command and has type notify.
func TestUnit_StartsACommandThatThereIs(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(root, "deploy", "systemd", "flightd.service"))
	if err != nil {
		t.Fatal(err)
	}
	start := regexp.MustCompile(`(?m)^ExecStart=/usr/local/bin/flightd (.*)$`).FindStringSubmatch(string(data))
	if start == nil || !strings.Contains(string(data), "\nType=notify\n") {
		t.Fatal("the unit does not start flightd, or is not of type notify")
	}
	c := exec.Command("go", append([]string{"run", "./cmd/flightd"}, append(strings.Fields(start[1]), "--help")...)...)
	c.Dir = root
	if out, err := c.CombinedOutput(); err != nil || !strings.Contains(string(out), "flightd dev") {
		t.Errorf("flightd %s: %v\n%s", start[1], err, out)
	}
}
