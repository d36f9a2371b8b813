package httpapi_test

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/docs"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/httpapitest"
)

// unread is the connection of a caller that does not read until it is let go.
type unread struct {
	*httptest.ResponseRecorder
	writes chan struct{} // closed when the answer is written
	read   chan struct{} // closed when the caller reads
}

func (u *unread) Write(p []byte) (int, error) {
	close(u.writes)
	<-u.read
	return u.ResponseRecorder.Write(p)
}

// Large answers that their callers do not read use a quarter of the memory for answers. Further large answers of the namespace are
// rejected; small answers and those of another namespace are not.
func TestAnswers_NotRead(t *testing.T) {
	cfg := httpapitest.New(t).Config()
	cfg.SetBodyMemory(8*len(docs.OpenAPI) + 1)
	handler := httpapi.New(cfg)
	request := func(path, namespace string) *http.Request {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Header.Set("Flightd-Namespace", namespace)
		return r
	}
	get := func(path, namespace string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, request(path, namespace))
		return w
	}
	read := make(chan struct{})
	var slow sync.WaitGroup
	for range 2 {
		u := &unread{httptest.NewRecorder(), make(chan struct{}), read}
		slow.Go(func() { handler.ServeHTTP(u, request("/openapi.json", "noisy")) })
		<-u.writes
	}
	w := get("/openapi.json", "noisy")
	require.Equal(t, http.StatusTooManyRequests, w.Code, "the namespace has a quarter")
	require.Contains(t, w.Body.String(), `"code":"rate_limited"`)
	require.NotEmpty(t, w.Header().Get("Retry-After"))
	require.Equal(t, http.StatusOK, get("/version", "noisy").Code, "a small answer")
	w = get("/openapi.json", "quiet")
	require.Equal(t, http.StatusOK, w.Code, "another namespace")
	require.Len(t, w.Body.Bytes(), len(docs.OpenAPI))
	close(read)
	slow.Wait()
	require.Equal(t, http.StatusOK, get("/openapi.json", "noisy").Code, "the memory is free again")
}
