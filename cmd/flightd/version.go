package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// stamped is the version of a release. Only the linker sets it (-X main.stamped=v1.2.3), which requires a package
// variable.
var stamped string

// unknownVersion is the version of a build without version information, as by go run.
const unknownVersion = "devel"

// buildVersion returns the release's version, else the version in the binary's build info: the module's version, else
// the commit, else unknownVersion.
func buildVersion() string {
	if stamped != "" {
		return stamped
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return unknownVersion
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	commit, dirty := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	if len(commit) < 12 {
		return unknownVersion
	}
	return "devel-" + commit[:12] + dirty
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program",
		Example: "  flightd version\n  flightd version -o json",
		Args:    exactArgs(0, "no arguments"),
		RunE:    func(*cobra.Command, []string) error { return a.printVersion() },
	}
}

func (a *app) printVersion() error {
	v := struct {
		Version string `json:"version"`
		Go      string `json:"go"`
		OS      string `json:"os"`
		Arch    string `json:"arch"`
	}{a.version, runtime.Version(), runtime.GOOS, runtime.GOARCH}
	if a.format == "table" || a.format == "id" {
		_, err := fmt.Fprintln(a.out, v.Version)
		return err
	}
	return a.printData(v)
}
