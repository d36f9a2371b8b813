package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// buildFlags returns the flags for a binary that does not depend on the building machine. The Dockerfile has the same
// flags.
func buildFlags(version string) []string {
	return []string{"-trimpath", "-buildvcs=false", "-ldflags", "-s -w -buildid= -X main.stamped=" + version}
}

// toolEnv returns the environment of the toolchain, without the variables that would change the bytes of the binary.
func toolEnv(p platform, more []string) []string {
	env := append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.os, "GOARCH="+p.arch,
		"GOFLAGS=", "GOWORK=off", "GOEXPERIMENT=", "GOAMD64=v1", "GOARM64=v8.0", "GO_EXTLINK_ENABLED=0")
	return append(env, more...)
}

// build writes all archives and SHA256SUMS.
func build(ctx context.Context, o buildSpec) error {
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "flightd-release")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	common, err := commonEntries(ctx, o, work)
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, p := range o.platforms {
		archive, err := buildOne(ctx, o, p, work, common)
		if err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		name := archiveName(o.version, p) + ".tar.gz"
		if err := os.WriteFile(filepath.Join(o.out, name), archive, 0o644); err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(archive), name)
		fmt.Printf("%s  %.1f MiB\n", filepath.Join(o.out, name), float64(len(archive))/(1<<20))
	}
	return os.WriteFile(filepath.Join(o.out, "SHA256SUMS"), []byte(sums.String()), 0o644)
}

func archiveName(version string, p platform) string { return "flightd-" + version + "-" + p.String() }

func buildOne(ctx context.Context, o buildSpec, p platform, work string, common []entry) ([]byte, error) {
	binary, err := compile(ctx, o, p, filepath.Join(work, "flightd-"+p.String()))
	if err != nil {
		return nil, err
	}
	if p.os == "linux" {
		if err := checkStatic(binary); err != nil {
			return nil, err
		}
	}
	notices, err := notices(ctx, o, p)
	if err != nil {
		return nil, err
	}
	entries := append([]entry{{"flightd", 0o755, binary}, {"NOTICES", 0o644, notices}}, common...)
	if p.os == "linux" {
		for name, from := range map[string]string{"systemd/flightd.service": "deploy/systemd/flightd.service", "flightd.yaml": "deploy/flightd.yaml"} {
			data, err := os.ReadFile(filepath.Join(o.source, from))
			if err != nil {
				return nil, err
			}
			entries = append(entries, entry{name, 0o644, data})
		}
	}
	return pack(archiveName(o.version, p), o.at, entries)
}

// compile builds the binary for a platform.
func compile(ctx context.Context, o buildSpec, p platform, to string) ([]byte, error) {
	to, err := filepath.Abs(to)
	if err != nil {
		return nil, err
	}
	args := append([]string{"build", "-o", to}, buildFlags(o.version)...)
	if _, err := goTool(ctx, o, p, append(args, "./cmd/flightd")...); err != nil {
		return nil, err
	}
	return os.ReadFile(to)
}

// goTool runs the go command in the source folder.
func goTool(ctx context.Context, o buildSpec, p platform, args ...string) ([]byte, error) {
	c := exec.CommandContext(ctx, "go", args...)
	c.Dir, c.Env = o.source, toolEnv(p, o.env)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w\n%s", args[0], err, stderr.Bytes())
	}
	return out, nil
}

// commonEntries returns the files that are the same for every platform. The program itself writes manual and
// completions, so it is built for this machine first. Its version command proves that the version was stamped.
func commonEntries(ctx context.Context, o buildSpec, work string) ([]entry, error) {
	here := filepath.Join(work, "here")
	if _, err := compile(ctx, o, platform{runtime.GOOS, runtime.GOARCH}, here); err != nil {
		return nil, err
	}
	output, err := exec.CommandContext(ctx, here, "version").Output()
	if err != nil || strings.TrimSpace(string(output)) != o.version {
		return nil, fmt.Errorf("flightd version prints %q (%v), not %s", output, err, o.version)
	}
	licence, err := os.ReadFile(filepath.Join(o.source, "LICENSE"))
	if err != nil {
		return nil, err
	}
	entries := []entry{{"LICENSE", 0o644, licence}}
	manual, err := manPages(ctx, here, filepath.Join(work, "man"), o.at)
	if err != nil {
		return nil, err
	}
	entries = append(entries, manual...)
	for _, file := range []struct {
		name string
		args []string
	}{
		{"completions/flightd.bash", []string{"completion", "bash"}},
		{"completions/_flightd", []string{"completion", "zsh"}},
		{"completions/flightd.fish", []string{"completion", "fish"}},
		{"completions/flightd.ps1", []string{"completion", "powershell"}},
	} {
		text, err := exec.CommandContext(ctx, here, file.args...).Output()
		if err != nil {
			return nil, fmt.Errorf("flightd %s: %w", strings.Join(file.args, " "), err)
		}
		entries = append(entries, entry{file.name, 0o644, text})
	}
	return entries, nil
}

// manPages has the program write its manual into dir. The pages bear the date of the release, in UTC.
func manPages(ctx context.Context, program, dir string, at time.Time) (entries []entry, err error) {
	c := exec.CommandContext(ctx, program, "man", dir)
	c.Env = append(os.Environ(), "TZ=UTC", fmt.Sprintf("SOURCE_DATE_EPOCH=%d", at.Unix()))
	if out, err := c.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("flightd man: %w\n%s", err, out)
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil {
		return nil, err
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry{"man/" + filepath.Base(page), 0o644, text})
	}
	return entries, nil
}

// checkStatic rejects a Linux binary that needs a dynamic loader or a shared library.
func checkStatic(binary []byte) error {
	file, err := elf.NewFile(bytes.NewReader(binary))
	if err != nil {
		return err
	}
	defer file.Close()
	for _, p := range file.Progs {
		if p.Type == elf.PT_INTERP {
			return fmt.Errorf("the binary is not static: it needs a dynamic loader")
		}
	}
	if needs, err := file.ImportedLibraries(); err == nil && len(needs) > 0 {
		return fmt.Errorf("the binary is not static: it needs %s", strings.Join(needs, ", "))
	}
	return nil
}
