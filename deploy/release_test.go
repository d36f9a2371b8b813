// Package deploy_test tests what is delivered: release.sh and the Dockerfile. Package main of cmd/flightd tests the systemd unit.
package deploy_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// root is the module's root, relative to this package.
const root = ".."

func release(t *testing.T, env string, args ...string) ([]byte, error) {
	t.Helper()
	c := exec.CommandContext(t.Context(), "./release.sh", args...)
	c.Env = append(os.Environ(), env)
	return c.CombinedOutput()
}

// TestRelease: the archive has all files with the commit's time and no user, the binary is static and has the version, and
// SHA256SUMS has the format of sha256sum -c. make release-check compares two builds.
func TestRelease(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds an archive; make packages-try runs it")
	}
	out := t.TempDir()
	const name = "flightd-v9.9.9-test-linux-amd64"
	text, err := release(t, "SOURCE_DATE_EPOCH=1700000000", "v9.9.9-test", "linux/amd64", out)
	require.NoError(t, err, "%s", text)
	data, err := os.ReadFile(filepath.Join(out, name+".tar.gz"))
	require.NoError(t, err)
	sums, err := os.ReadFile(filepath.Join(out, "SHA256SUMS"))
	require.NoError(t, err)
	require.Equal(t, fmt.Sprintf("%x  %s.tar.gz\n", sha256.Sum256(data), name), string(sums))
	files := unpack(t, data)
	for _, file := range []string{"flightd", "LICENSE", "NOTICES", "man/flightd.1", "man/flightd-exec.1", "completions/flightd.bash", "completions/_flightd", "completions/flightd.fish", "completions/flightd.ps1", "systemd/flightd.service", "flightd.yaml"} {
		require.NotEmpty(t, files[name+"/"+file], "no %s", file)
	}
	page := string(files[name+"/man/flightd-exec.1"])
	require.Contains(t, page, `"Nov 2023" "flightd v9.9.9-test"`, "the date and the version of the release, not of the build")
	notices := string(files[name+"/NOTICES"])
	require.Contains(t, notices, "github.com/hashicorp/raft v", "the licence of raft is missing")
	require.Contains(t, notices, "Mozilla Public License", "the licence of raft is missing")
	binary := files[name+"/flightd"]
	wd, err := filepath.Abs(root)
	require.NoError(t, err)
	require.False(t, bytes.Contains(binary, []byte(wd)), "the binary contains the source folder")
	require.True(t, bytes.Contains(binary, []byte("v9.9.9-test")), "the binary lacks the version")
	program, err := elf.NewFile(bytes.NewReader(binary))
	require.NoError(t, err)
	for _, p := range program.Progs {
		require.NotEqual(t, elf.PT_INTERP, p.Type, "the binary needs a dynamic loader")
	}
}

func TestReleaseArguments(t *testing.T) {
	for _, args := range [][]string{{"v1; rm", "linux/amd64"}, {"v1 2", "linux/amd64"}, {"v1"}} {
		text, err := release(t, "SOURCE_DATE_EPOCH=1", args...)
		require.Error(t, err, "%q was accepted: %s", args, text)
	}
	text, err := release(t, "SOURCE_DATE_EPOCH=yesterday", "v1", "linux/amd64")
	require.ErrorContains(t, err, "exit status 2", "%s", text)
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
		require.Equal(t, int64(1700000000), h.ModTime.Unix(), h.Name)
		require.Zero(t, h.Uid+h.Gid, h.Name)
		require.Empty(t, h.Uname+h.Gname, h.Name)
		files[h.Name], err = io.ReadAll(archive)
		require.NoError(t, err)
	}
}

// TestDockerfile_BuildsAsTheReleaseDoes: the Dockerfile has the same build flags, so that image and archive contain the
// same binary. The image runs as an unprivileged user, with an existing command.
func TestDockerfile_BuildsAsTheReleaseDoes(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	require.NoError(t, err)
	file := string(data)
	script, err := os.ReadFile("release.sh")
	require.NoError(t, err)
	flags := regexp.MustCompile(`-trimpath .*-ldflags ".*" ./cmd/flightd`).FindString(string(script))
	require.NotEmpty(t, flags)
	require.Contains(t, file, strings.ReplaceAll(flags, "${version}", "${VERSION}"), "the Dockerfile builds with other flags")
	require.Contains(t, file, "CGO_ENABLED=0")
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
