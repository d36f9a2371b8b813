package arch

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// repository returns every text file of the repository by its path from the root, without dependencies and build results.
func repository(t *testing.T) map[string]string {
	t.Helper()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	skipped := []string{".git", "bin", "dist", "node_modules", "flightd-data", "__pycache__"}
	texts := []string{".go", ".md", ".py", ".ts", ".mts", ".json", ".yml", ".yaml", ".http", ".txt", ".sh", ".service", ".golden", ""}
	files := map[string]string{}
	err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains(skipped, d.Name()):
			return filepath.SkipDir
		case !d.Type().IsRegular() || !slices.Contains(texts, filepath.Ext(p)) || strings.HasPrefix(d.Name(), "package-lock"):
			return nil
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		files[filepath.ToSlash(name)] = string(text)
		return nil
	})
	require.NoError(t, err)
	require.NotEmpty(t, files["README.md"])
	return files
}

var (
	link  = regexp.MustCompile(`\]\(([^)#\s]+)(?:#[^)]*)?\)`)
	cited = regexp.MustCompile(`\b(?:[\w./-]+/)?[\w-]+\.md\b`)
)

// TestDocuments_CitedOnesExist checks that a clone is complete in itself: links lead to files of the repository, and comments cite no
// document that is absent.
func TestDocuments_CitedOnesExist(t *testing.T) {
	files := repository(t)
	var absent []string
	exists := func(name string) bool {
		if _, ok := files[name]; ok {
			return true
		}
		_, err := os.Stat(filepath.Join("../..", name))
		return err == nil
	}
	for name, text := range files {
		dir := filepath.ToSlash(filepath.Dir(name))
		switch filepath.Ext(name) {
		case ".md":
			for _, m := range link.FindAllStringSubmatch(text, -1) {
				if !strings.Contains(m[1], "://") && !strings.HasPrefix(m[1], "mailto:") && !strings.HasPrefix(m[1], "/") && !exists(filepath.Join(dir, m[1])) {
					absent = append(absent, fmt.Sprintf("%s links to %s", name, m[1]))
				}
			}
		case ".go", ".py", ".ts", ".mts":
			if name == "internal/arch/docs_test.go" {
				continue
			}
			for line := range strings.Lines(text) {
				comment := strings.TrimSpace(line)
				if !strings.HasPrefix(comment, "//") && !strings.HasPrefix(comment, "#") {
					continue
				}
				for _, c := range cited.FindAllString(comment, -1) {
					if !exists(c) && !exists(filepath.Join(dir, c)) && !exists(filepath.Join("docs", c)) {
						absent = append(absent, fmt.Sprintf("%s cites %s", name, c))
					}
				}
			}
		}
	}
	slices.Sort(absent)
	require.Empty(t, absent)
}

var (
	testName   = regexp.MustCompile("`(Test[A-Za-z0-9_]+)`")
	testFunc   = regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9_]+)\(`)
	hazardTest = regexp.MustCompile(`^TestHazard((?:\d\d_)+)`)
)

// TestHazards_EachNamesItsTest compares docs/hazards.md with the tests. A name that ends in _ stands for all tests that begin with it.
func TestHazards_EachNamesItsTest(t *testing.T) {
	files := repository(t)
	var tests []string
	for name, text := range files {
		if strings.HasSuffix(name, "_test.go") {
			for _, m := range testFunc.FindAllStringSubmatch(text, -1) {
				tests = append(tests, m[1])
			}
		}
	}
	var numbers []string
	for line := range strings.Lines(files["docs/hazards.md"]) {
		if !strings.HasPrefix(line, "| H") {
			continue
		}
		number := strings.TrimPrefix(strings.TrimSpace(strings.Split(line, "|")[1]), "H")
		numbers = append(numbers, fmt.Sprintf("%02s", number))
		named := testName.FindAllStringSubmatch(line, -1)
		require.NotEmpty(t, named, "H%s names no test", number)
		for _, m := range named {
			found := slices.ContainsFunc(tests, func(test string) bool {
				return test == m[1] || strings.HasSuffix(m[1], "_") && strings.HasPrefix(test, m[1])
			})
			require.True(t, found, "H%s names %s, and there is no such test", number, m[1])
		}
	}
	require.NotEmpty(t, numbers)
	for _, test := range tests {
		if m := hazardTest.FindStringSubmatch(test); m != nil {
			for _, number := range strings.Split(strings.TrimSuffix(m[1], "_"), "_") {
				require.Contains(t, numbers, number, "%s has no row in docs/hazards.md", test)
			}
		} else if !strings.HasPrefix(test, "TestHazards_") {
			require.False(t, strings.HasPrefix(test, "TestHazard"), "%s does not name its hazard by two digits", test)
		}
	}
}
