package node

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/openapi/openapitest"
)

// TestContract replays the conversations of httpapi/testdata/contract with a real node and validates every request and
// answer against the OpenAPI document. Together they contain every successful answer.
func TestContract(t *testing.T) {
	files, err := filepath.Glob("../httpapi/testdata/contract/*.http")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no conversations: %v", err)
	}
	document, err := httpapi.Document()
	if err != nil {
		t.Fatal(err)
	}
	checker, err := openapitest.New(document)
	if err != nil {
		t.Fatal(err)
	}
	in := open(t, t.TempDir(), func(u *tuning) { u.expireEvery = 100 * time.Millisecond })
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		scripts, err := openapitest.Parse(string(text))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for i := range scripts {
			t.Run(filepath.Base(file)+"/"+scripts[i].Title, func(t *testing.T) {
				if err := scripts[i].Run(ctx, client, in.server.url(), checker); err != nil {
					t.Errorf("%s: %v", file, err)
				}
			})
		}
	}
	for _, answer := range checker.Unseen() {
		if answer != "ready 503" { // a healthy node does not return it
			t.Errorf("no conversation has the answer %s", answer)
		}
	}
}
