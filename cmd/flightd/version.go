package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// stamped is the version of a release. The linker writes it (-X main.stamped=v1.2.3), which it can do to a package's
// variable alone; nothing else does.
var stamped string

// buildVersion is the release's, else what the toolchain wrote into the binary: the module's version where it was
// installed as a module, else the commit it was built from.
func buildVersion() string {
	if stamped != "" {
		return stamped
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
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
		return "devel"
	}
	return "devel-" + commit[:12] + dirty
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "The version of this program",
		Example: "  flightd version\n  flightd version -o json",
		Args:    exactly(0, "no arguments"),
		RunE: func(*cobra.Command, []string) error {
			v := struct {
				Version string `json:"version"`
				Go      string `json:"go"`
				OS      string `json:"os"`
				Arch    string `json:"arch"`
			}{buildVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH}
			if a.format == "table" || a.format == "id" {
				_, err := fmt.Fprintln(a.out, v.Version)
				return err
			}
			return a.print(v)
		},
	}
}
