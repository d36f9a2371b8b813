package node

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Plain HTTP at an address that speaks TLS gets a complete problem, and nothing of the request is repeated. The answer
// is not lost, also if the request is long and is still being sent.
func TestTLS_PlainHTTPIsAnswered(t *testing.T) {
	a := newAuthority(t)
	a.write(1)
	var log syncBuffer
	s := serveTLS(a, a.files(), &log)
	for _, method := range []string{"GET", "POST", "post"} {
		for _, size := range []int{0, 100, 300 << 10} {
			req, err := http.NewRequest(method, "http://"+s.connections.Addr().String()+"/canary", strings.NewReader(strings.Repeat("canary", size/6)))
			require.NoError(t, err)
			req.Header.Set("Authorization", "Bearer canary")
			resp, err := http.DefaultTransport.RoundTrip(req)
			require.NoError(t, err, "%s %d", method, size)
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.Equal(t, http.StatusForbidden, resp.StatusCode)
			require.Equal(t, "HTTP/1.1", resp.Proto)
			require.True(t, resp.Close)
			require.Equal(t, "application/problem+json", resp.Header.Get("Content-Type"))
			require.Contains(t, string(body), `"code":"forbidden"`)
			require.Contains(t, string(body), "https://")
			require.Contains(t, string(body), resp.Header.Get("X-Request-Id"))
			require.NotContains(t, string(body)+fmt.Sprint(resp.Header), "canary")
			require.NoError(t, resp.Body.Close())
		}
	}
	c, err := net.Dial("tcp", s.connections.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Write([]byte{0x80, 'x', 'y', 'z', 0, 0, 0, 0}) // neither TLS nor HTTP
	require.NoError(t, err)
	got, _ := io.ReadAll(c)
	require.NotContains(t, string(got), "HTTP")
	require.NotContains(t, log.String(), "canary")
	require.NotContains(t, log.String(), "ERROR")
	require.EqualValues(t, 1, serial(t, s, a.trust()), "others are served")
}

// The rest of a plain request is read, so that the kernel does not reset the connection before the client has read the
// answer: for two seconds, and up to 512 KiB.
func TestTLS_PlainHTTPIsReadToItsEnd(t *testing.T) {
	for name, c := range map[string]struct {
		size    int
		hangsUp bool
		least   int // bytes that are read
		took    time.Duration
	}{
		"a complete request": {size: 300 << 10, hangsUp: true, least: 300 << 10},
		"a silent client":    {size: 100, least: 100, took: plainHTTPTime},
		"an endless client":  {size: 1 << 30, least: plainHTTPBytes},
	} {
		synctest.Test(t, func(t *testing.T) {
			theirs, ours := net.Pipe()
			defer theirs.Close()
			cs := newConnections(fromEverywhere{}, 1, nil)
			server := &connection{Conn: ours, owner: cs, expectsTLS: true}
			start, sent := time.Now(), make(chan int, 1)
			go func() {
				n := 0
				for chunk := bytes.Repeat([]byte("G"), 1<<10); n < c.size; {
					m, err := theirs.Write(chunk[:min(len(chunk), c.size-n)])
					n += m
					if err != nil {
						break
					}
				}
				if c.hangsUp {
					_ = theirs.Close()
				}
				sent <- n
			}()
			go func() { _, _ = io.Copy(io.Discard, theirs) }() // the answer
			_, err := server.Read(make([]byte, 5))
			require.ErrorIs(t, err, errPlainHTTP, name)
			require.NoError(t, server.Close())
			require.GreaterOrEqual(t, <-sent, c.least, name)
			require.Equal(t, c.took, time.Since(start), name)
		})
	}
}
