package console

import (
	"compress/gzip"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func get(t *testing.T, target string, headers ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, target, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, r)
	return w.Result()
}

func body(t *testing.T, r io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(r)
	require.NoError(t, err)
	return string(b)
}

func TestHandler(t *testing.T) {
	page := get(t, "/console/")
	require.Equal(t, http.StatusOK, page.StatusCode)
	require.Equal(t, "text/html; charset=utf-8", page.Header.Get("Content-Type"))
	require.Equal(t, policy, page.Header.Get("Content-Security-Policy"))
	require.NotContains(t, policy, "unsafe")
	text := body(t, page.Body)
	require.Contains(t, text, "main.js")

	redirected := get(t, "/console")
	require.Equal(t, "/console/", redirected.Header.Get("Location"))
	require.Equal(t, http.StatusNotFound, get(t, "/console/absent.js").StatusCode)
	require.Equal(t, http.StatusNotFound, get(t, "/console/../console.go").StatusCode)
	require.True(t, Serves("/console") && Serves("/console/main.js") && !Serves("/consoles") && !Serves("/v1/flights"))

	compressed := get(t, "/console/", "Accept-Encoding", "gzip")
	require.Equal(t, "gzip", compressed.Header.Get("Content-Encoding"))
	plain, err := gzip.NewReader(compressed.Body)
	require.NoError(t, err)
	require.Equal(t, text, body(t, plain))
	require.Equal(t, http.StatusNotModified, get(t, "/console/", "Accept-Encoding", "gzip", "If-None-Match", compressed.Header.Get("Etag")).StatusCode)
	require.Equal(t, http.StatusOK, get(t, "/console/", "If-None-Match", compressed.Header.Get("Etag")).StatusCode, "the tag of other bytes")

	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/console/", strings.NewReader("{}")))
	require.Equal(t, http.StatusMethodNotAllowed, w.Code)
}

// The policy of the page stops inline scripts and styles, and text that became markup would be an attack: a key, an input or a cause
// may hold anything.
func TestFiles_AreSmallAndSafe(t *testing.T) {
	comments, imports := regexp.MustCompile(`(?m)^//.*$`), regexp.MustCompile(`(?:from|import)\s*\(?\s*"([^"]+)"`)
	total := 0
	require.NoError(t, fs.WalkDir(static, "static", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := static.ReadFile(name)
		require.NoError(t, err)
		require.Contains(t, contentTypes, path.Ext(name), "%s is not served", name)
		total += len(text)
		if strings.Contains(name, "vendor/") {
			return nil
		}
		for _, word := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "https://", " style=\"", " onclick=\"", "<script>", "<style"} {
			require.NotContains(t, string(text), word, name)
		}
		for _, m := range imports.FindAllStringSubmatch(comments.ReplaceAllString(string(text), ""), -1) {
			_, err := static.ReadFile(path.Join(path.Dir(name), m[1]))
			require.NoError(t, err, "%s imports %s", name, m[1])
		}
		return nil
	}))
	require.LessOrEqual(t, total, 250<<10)
}
