package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The build of the image leaves out the texts in this folder, and not what the program embeds.
func TestImageHasTheDocument(t *testing.T) {
	ignored, err := os.ReadFile("../.dockerignore")
	require.NoError(t, err)
	require.Contains(t, string(ignored), "\ndocs/*\n!docs/docs.go\n!docs/openapi.json\n")
}

// llms.txt has the form of llmstxt.org: a title, a summary, and sections of links. It lists each page of this folder, and no file that is not there.
func TestLLMs(t *testing.T) {
	text, err := os.ReadFile("../llms.txt")
	require.NoError(t, err)
	require.Regexp(t, `\A# flightd\n\n> `, string(text))
	listed := map[string]bool{}
	_, sections, _ := strings.Cut(string(text), "\n## ")
	for line := range strings.Lines("## " + sections) {
		link := regexp.MustCompile(`^- \[[^\]]+\]\(([^)]+)\)(: .+)?\n$`).FindStringSubmatch(line)
		if link == nil {
			require.Regexp(t, `^(## \w+)?\n$`, line)
			continue
		}
		require.FileExists(t, filepath.Join("..", link[1]))
		require.False(t, listed[link[1]], "%s is listed twice", link[1])
		listed[link[1]] = true
	}
	require.NoError(t, filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".md") {
			require.True(t, listed["docs/"+filepath.ToSlash(path)], "list %s in llms.txt", path)
		}
		return err
	}))
}
