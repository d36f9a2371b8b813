package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// buildSpec describes a release to build.
type buildSpec struct {
	source    string // root of the module
	out       string // where archives and sums go
	version   string
	at        time.Time // of every entry in an archive
	platforms []platform
	env       []string // for the toolchain, in addition to this process's
}

// platform is the GOOS and GOARCH of a binary.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "-" + p.arch }

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	version := flags.String("version", "", "version to stamp (from git: the nearest tag, else the commit)")
	out := flags.String("out", "dist", "folder for archives and SHA256SUMS")
	platforms := flags.String("platforms", "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64", "platforms to build for")
	check := flags.Bool("check", false, "build twice, in different folders, and compare the bytes; no archive is kept")
	if err := flags.Parse(args); err != nil {
		return err
	}
	o := buildSpec{source: ".", out: *out, version: *version}
	var err error
	if o.platforms, err = parsePlatforms(*platforms); err != nil {
		return err
	}
	if o.version == "" {
		if o.version, err = versionOf(ctx, o.source); err != nil {
			return err
		}
	}
	if !validVersion(o.version) {
		return fmt.Errorf("-version %q: letters, digits, '.', '_', '+' and '-', as in v1.2.3", o.version)
	}
	if o.at, err = commitTime(ctx, o.source); err != nil {
		return err
	}
	if *check {
		return checkReproducible(ctx, o)
	}
	return build(ctx, o)
}

func parsePlatforms(list string) (all []platform, err error) {
	for _, word := range strings.Split(list, ",") {
		system, arch, ok := strings.Cut(strings.TrimSpace(word), "/")
		if !ok || system == "" || arch == "" {
			return nil, fmt.Errorf("-platforms: %q is not OS/ARCH, such as linux/amd64", word)
		}
		all = append(all, platform{system, arch})
	}
	return all, nil
}

// validVersion rejects characters with a special meaning in file names or linker flags.
func validVersion(v string) bool {
	return v != "" && strings.Trim(v, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-") == ""
}

// versionOf returns the version by git describe: the nearest tag and the distance from it, else the commit.
func versionOf(ctx context.Context, source string) (string, error) {
	version, err := git(ctx, source, "describe", "--tags", "--match", "v[0-9]*", "--always", "--dirty")
	if err != nil {
		return "", fmt.Errorf("find the version in git: set -version, or VERSION=v1.2.3 for make: %w", err)
	}
	if !strings.HasPrefix(version, "v") {
		version = "devel-" + version
	}
	return version, nil
}

// commitTime returns SOURCE_DATE_EPOCH, or the time of the last commit.
func commitTime(ctx context.Context, source string) (time.Time, error) {
	epoch := os.Getenv("SOURCE_DATE_EPOCH")
	if epoch == "" {
		var err error
		if epoch, err = git(ctx, source, "log", "-1", "--format=%ct"); err != nil {
			return time.Time{}, fmt.Errorf("find the commit time in git: set SOURCE_DATE_EPOCH: %w", err)
		}
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH %q: want seconds since 1970: %w", epoch, err)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

func git(ctx context.Context, dir string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, "git", args...)
	c.Dir = dir
	out, err := c.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("git %s: %s", args[0], strings.TrimSpace(string(exit.Stderr)))
	}
	return strings.TrimSpace(string(out)), err
}
