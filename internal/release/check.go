package main

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// checkReproducible builds everything from two copies of the source and compares all bytes. The folders have names of
// different lengths, and the second build starts with an empty build cache, so that it reuses nothing of the first.
func checkReproducible(ctx context.Context, o buildSpec) error {
	work, err := os.MkdirTemp("", "flightd-release-check")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	first, second := o, o
	first.source, first.out = filepath.Join(work, "a"), filepath.Join(work, "first")
	second.source, second.out = filepath.Join(work, "another", "place", "of the second"), filepath.Join(work, "second")
	second.env = []string{"GOCACHE=" + filepath.Join(work, "cache"), "TZ=Pacific/Chatham", "LC_ALL=C"}
	// Both copies are made before the first build, because the source may be edited meanwhile.
	for _, b := range []buildSpec{first, second} {
		if err := copyTracked(ctx, o.source, b.source); err != nil {
			return err
		}
	}
	for _, b := range []buildSpec{first, second} {
		if err := build(ctx, b); err != nil {
			return err
		}
	}
	n, err := compareDirs(first.out, second.out)
	if err == nil {
		fmt.Printf("%d files, built twice: equal\n", n)
	}
	return err
}

// copyTracked copies the files that git tracks, from the work tree.
func copyTracked(ctx context.Context, from, to string) error {
	list, err := git(ctx, from, "ls-files", "-z")
	if err != nil {
		return err
	}
	for _, name := range strings.Split(strings.Trim(list, "\x00"), "\x00") {
		data, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			return err
		}
		target := filepath.Join(to, name)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(target, data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// compareDirs compares two folders and returns the number of their files.
func compareDirs(a, b string) (int, error) {
	names := make(map[string]bool)
	for _, dir := range []string{a, b} {
		files, err := os.ReadDir(dir)
		if err != nil {
			return 0, err
		}
		for _, f := range files {
			names[f.Name()] = true
		}
	}
	for name := range names {
		if err := compareFile(filepath.Join(a, name), filepath.Join(b, name)); err != nil {
			return 0, err
		}
	}
	if len(names) == 0 {
		return 0, fs.ErrNotExist
	}
	return len(names), nil
}

func compareFile(a, b string) error {
	first, err := os.ReadFile(a)
	if err != nil {
		return err
	}
	second, err := os.ReadFile(b)
	if err != nil {
		return err
	}
	if !bytes.Equal(first, second) {
		return fmt.Errorf("%s differs between the two builds", filepath.Base(a))
	}
	return nil
}
