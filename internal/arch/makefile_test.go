package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// Tests that leave themselves out under the race detector run without it: make unraced names them, as .ci/run has no other run of their
// package.
func TestMakefile_RunsWhatTheRaceDetectorIsTooSlowFor(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	require.NoError(t, err)
	named := regexp.MustCompile(`(?m)^TABLES = (.*)$`).FindSubmatch(makefile)
	require.NotNil(t, named)
	files, err := filepath.Glob("../../*/*_test.go")
	require.NoError(t, err)
	skipped := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, test := range regexp.MustCompile(`func (Test\w+)\(t \*testing\.T\) \{\n\tskipUnderRace\(t\)`).FindAllSubmatch(text, -1) {
			require.Equal(t, "remote", filepath.Base(filepath.Dir(file)), "make unraced has tables of package remote alone")
			require.Regexp(t, "^("+string(named[1])+")", string(test[1]), file)
			skipped++
		}
	}
	require.NotZero(t, skipped)
}

// Each check of .ci/run is a target.
func TestMakefile_HasTheTargetsOfCI(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	require.NoError(t, err)
	script, err := os.ReadFile("../../.ci/run")
	require.NoError(t, err)
	lanes := regexp.MustCompile(`(?m)^\tlane \d+ ([a-z -]+?)(?: &)?$`).FindAllSubmatch(script, -1)
	require.Len(t, lanes, 4)
	for _, lane := range lanes {
		for _, target := range regexp.MustCompile(`\S+`).FindAll(lane[1], -1) {
			require.Regexp(t, `(?m)^`+string(target)+`:`, string(makefile))
		}
	}
}
