// Package console serves the console: static files that make a browser a client of the HTTP API. The files hold no data and need no
// token; each request of the page to the API carries the token of the person.
//
// static/vendor has files of others as npm has them: preact-htm.js is preact/standalone.module.js of htm 3.1.1, which contains preact;
// uplot.js is dist/uPlot.iife.min.js of uPlot 1.6.32, with a last line that exports it.
package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"
)

// Path is where the console is served.
const Path = "/console"

//go:embed static
var static embed.FS

// policy lets the page run its own scripts and ask its own server, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// contentTypes are those of the files, by the end of their name. A file with another end is not served.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml",
	".LICENSE": "text/plain; charset=utf-8",
}

// file is a file as it is sent.
type file struct {
	contentType, etag string
	plain, compressed []byte
}

// files returns all files by their name. It compresses them once, when the console is asked for first.
var files = sync.OnceValue(func() map[string]file {
	all := make(map[string]file)
	// Neither reading an embedded file nor writing to a bytes.Buffer can fail.
	_ = fs.WalkDir(static, "static", func(name string, d fs.DirEntry, _ error) error {
		kind, served := contentTypes[path.Ext(name)]
		if d.IsDir() || !served {
			return nil
		}
		plain, _ := static.ReadFile(name)
		var compressed bytes.Buffer
		w := gzip.NewWriter(&compressed)
		_, _ = w.Write(plain)
		_ = w.Close()
		sum := sha256.Sum256(plain)
		all[strings.TrimPrefix(name, "static/")] = file{kind, hex.EncodeToString(sum[:8]), plain, compressed.Bytes()}
		return nil
	})
	return all
})

// Serves reports whether a path belongs to the console.
func Serves(path string) bool { return path == Path || strings.HasPrefix(path, Path+"/") }

// Handler serves the files of the console below Path, to anyone.
func Handler() http.Handler { return http.HandlerFunc(serve) }

func serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	for name, value := range map[string]string{
		"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
		"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-cache",
	} {
		h.Set(name, value)
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "the console is only read; the API is below /v1", http.StatusMethodNotAllowed)
		return
	}
	if r.URL.Path == Path {
		http.Redirect(w, r, Path+"/", http.StatusPermanentRedirect)
		return
	}
	name := strings.TrimPrefix(r.URL.Path, Path+"/")
	if name == "" {
		name = "index.html"
	}
	f, found := files()[name]
	if !found {
		http.Error(w, "the console has no such file; its first page is "+Path+"/", http.StatusNotFound)
		return
	}
	body, tag := f.plain, `"`+f.etag+`"`
	h.Set("Vary", "Accept-Encoding")
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		body, tag = f.compressed, `"`+f.etag+`-gzip"`
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("Etag", tag)
	if strings.Contains(r.Header.Get("If-None-Match"), tag) {
		h.Del("Content-Encoding")
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Type", f.contentType)
	if w.WriteHeader(http.StatusOK); r.Method == http.MethodGet {
		_, _ = w.Write(body) // a browser that misses the answer repeats its request
	}
}
