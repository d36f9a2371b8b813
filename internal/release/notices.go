package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
)

// notices returns the licences of all modules in the binary, which most of them require, and the location of each
// module's source, which the MPL requires.
func notices(ctx context.Context, o buildSpec, p platform) ([]byte, error) {
	const format = `{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}`
	out, err := goTool(ctx, o, p, "list", "-deps", "-f", format, "./cmd/flightd")
	if err != nil {
		return nil, err
	}
	modules := make(map[string]string) // path and version to folder
	for line := range strings.Lines(string(out)) {
		if words := strings.Fields(line); len(words) == 3 {
			modules[words[0]+" "+words[1]] = words[2]
		}
	}
	names := make([]string, 0, len(modules))
	for name := range modules {
		names = append(names, name)
	}
	sort.Strings(names)
	var all bytes.Buffer
	all.WriteString("This program contains the following modules. The source of each is at https://pkg.go.dev/PATH@VERSION.\n")
	for _, name := range names {
		texts, err := licenseTexts(modules[name])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		fmt.Fprintf(&all, "\n%s\n%s\n\n%s\n", strings.Repeat("=", 80), name, strings.TrimSpace(texts))
	}
	return all.Bytes(), nil
}

// licenseFile matches the names of licence files.
var licenseFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([.-].*)?$`)

// licenseTexts returns the licences in a module's folder. A module without a licence must not be distributed: it is an
// error.
func licenseTexts(dir string) (string, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	var texts []string
	for _, f := range files {
		if f.IsDir() || !licenseFile.MatchString(f.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			return "", err
		}
		texts = append(texts, strings.ReplaceAll(string(text), "\r\n", "\n"))
	}
	if len(texts) == 0 {
		return "", fmt.Errorf("the module has no licence file")
	}
	return strings.Join(texts, "\n\n"), nil
}
