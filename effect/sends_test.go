package effect

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

// An answer is about one request. It says nothing about earlier requests of the handler.
func TestAnswer_OfOneRequestAmongSeveral(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/lost":
			panic(http.ErrAbortHandler)
		case "/gone":
			w.WriteHeader(http.StatusNotFound)
		case "/refused":
			w.WriteHeader(http.StatusUnprocessableEntity)
		}
	}))
	defer server.Close()
	for name, row := range map[string]struct {
		sends []string // method and path through Transport, or "Sending"
		want  flight.Outcome
	}{
		"a 404 alone":                         {[]string{"POST /gone"}, flight.OutcomeNotDone},
		"a 422 alone":                         {[]string{"POST /refused"}, flight.OutcomeRefused},
		"a 404 to what Sending was for":       {[]string{"Sending", "plain POST /gone"}, flight.OutcomeNotDone},
		"a 404 to a GET after a lost POST":    {[]string{"POST /lost", "GET /gone"}, flight.OutcomeUnknown},
		"a 422 to a GET after a lost POST":    {[]string{"POST /lost", "GET /refused"}, flight.OutcomeUnknown},
		"a 422 after a POST that succeeded":   {[]string{"POST /ok", "POST /refused"}, flight.OutcomeUnknown},
		"a 404 after a POST that succeeded":   {[]string{"POST /ok", "POST /gone"}, flight.OutcomeUnknown},
		"a 404 after two calls of Sending":    {[]string{"Sending", "Sending", "plain POST /gone"}, flight.OutcomeUnknown},
		"a 422 after two calls of Sending":    {[]string{"Sending", "Sending", "plain POST /refused"}, flight.OutcomeUnknown},
		"a 404 through Transport, and other":  {[]string{"Sending", "POST /gone"}, flight.OutcomeUnknown},
		"a 404 after a 404":                   {[]string{"POST /gone", "POST /gone"}, flight.OutcomeNotDone},
		"a 404 after a 422":                   {[]string{"POST /refused", "POST /gone"}, flight.OutcomeNotDone},
		"a 404 after a GET that succeeded":    {[]string{"GET /ok", "POST /gone"}, flight.OutcomeNotDone},
		"a 404 after one that reached nobody": {[]string{"POST http://127.0.0.1:1/", "POST /gone"}, flight.OutcomeNotDone},
	} {
		t.Run(name, func(t *testing.T) {
			at := NewAttempt(Spec{Recovery: flight.RecoveryHold})
			through := &http.Client{Transport: at.Transport(&http.Transport{DisableKeepAlives: true})}
			var err error
			for _, send := range row.sends {
				if send == "Sending" {
					require.NoError(t, at.Sending())
					continue
				}
				client := through
				if rest, plain := strings.CutPrefix(send, "plain "); plain {
					send, client = rest, server.Client()
				}
				method, path, _ := strings.Cut(send, " ")
				if strings.HasPrefix(path, "/") {
					path = server.URL + path
				}
				req, bad := http.NewRequest(method, path, nil)
				require.NoError(t, bad)
				_, err = FromHTTP(client.Do(req))
			}
			require.Equal(t, row.want, Classify(err, at), "%v", err)
		})
	}
}

// Under resend a handler may send again, as long as the provider surely knows the key of its first send.
func TestRepeatAfterTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for rest, sent := range map[time.Duration]bool{9 * time.Second: true, 10 * time.Second: false} {
			at := NewAttempt(Spec{Recovery: flight.RecoveryResend, Window: 10 * time.Second})
			require.NoError(t, at.Sending())
			time.Sleep(rest)
			err := at.Sending()
			require.Equal(t, sent, err == nil)
			require.Equal(t, flight.OutcomeUnknown, Classify(errors.Join(err, errors.New("lost")), at))
		}
	})
}

// A proxy that tunnels may take its time to connect. What was to go through the tunnel is kept back when its attempt
// has ended.
func TestTunnel_LeaseLostWhileItOpens(t *testing.T) {
	var acted atomic.Int32
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { acted.Add(1) }))
	defer server.Close()
	for _, late := range []bool{false, true} {
		asked, release := make(chan struct{}), make(chan struct{})
		base := server.Client().Transport.(*http.Transport).Clone()
		base.Proxy = http.ProxyURL(tunnel(t, asked, release))
		at := NewAttempt(Spec{Recovery: flight.RecoveryHold})
		done := make(chan error, 1)
		go func() {
			_, err := FromHTTP((&http.Client{Transport: at.Transport(base)}).Post(server.URL, "", nil))
			done <- err
		}()
		<-asked
		if late {
			Classify(errors.New("the handler returned"), at)
		}
		close(release)
		require.Equal(t, late, <-done != nil)
	}
	require.EqualValues(t, 1, acted.Load())
}

// tunnel is a proxy that signals a CONNECT request, and connects when it is released.
func tunnel(t *testing.T, asked chan<- struct{}, release <-chan struct{}) *url.URL {
	t.Helper()
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(asked)
		<-release
		up, err := net.Dial("tcp", r.Host)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer up.Close()
		down, from, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer down.Close()
		_, _ = io.WriteString(down, "HTTP/1.1 200 OK\r\n\r\n")
		go func(from *bufio.ReadWriter) {
			_, _ = io.Copy(up, from)
			_ = up.(*net.TCPConn).CloseWrite()
		}(from)
		_, _ = io.Copy(down, up)
	}))
	t.Cleanup(proxy.Close)
	at, err := url.Parse(proxy.URL)
	require.NoError(t, err)
	return at
}
