package main

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
)

// stamped is the version of a release. Only the linker sets it (-X main.stamped=v1.2.3), which requires a package
// variable.
var stamped string

// buildVersion returns the release's version, else the version in the binary's build info: the module's version, else
// the commit, else cli.UnknownVersion.
func buildVersion() string {
	if stamped != "" {
		return stamped
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return cli.UnknownVersion
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
		return cli.UnknownVersion
	}
	return "devel-" + commit[:12] + dirty
}

func newVersionCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program",
		Example: "  flightd version\n  flightd version -o json",
		RunE:    func(*cobra.Command, []string) error { return printVersion(a) },
	}
}

func printVersion(a *cli.App) error {
	return a.PrintLine(a.Version, struct {
		Version string `json:"version"`
		Go      string `json:"go"`
		OS      string `json:"os"`
		Arch    string `json:"arch"`
	}{a.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH})
}
