package effect

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/flightd/flightd/flight"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errBoom = errors.New("boom")

func attempt(mayStart func() error) *Attempt {
	return NewAttempt(Spec{Key: flight.MustKey("ns/charge/1"), Number: 1, IdempotencyKey: "the key", FencingToken: "the token",
		MayStart: mayStart, Context: context.Background()})
}

// The table of the package comment, row by row.
func TestClassify(t *testing.T) {
	marks := map[string]func(*Attempt){
		"nothing noted": func(*Attempt) {},
		"in use":        func(a *Attempt) { a.Watch() },
		"noted":         func(a *Attempt) { require.NoError(t, a.Sending()) },
	}
	rows := []struct {
		err  error
		want [3]flight.Outcome // nothing noted, in use, noted
	}{
		{nil, [3]flight.Outcome{flight.OutcomeSucceeded, flight.OutcomeSucceeded, flight.OutcomeSucceeded}},
		{Refused(errBoom), [3]flight.Outcome{flight.OutcomeRefused, flight.OutcomeRefused, flight.OutcomeRefused}},
		{fmt.Errorf("more: %w", Refused(errBoom)), [3]flight.Outcome{flight.OutcomeRefused, flight.OutcomeRefused, flight.OutcomeRefused}},
		{NotDone(errBoom), [3]flight.Outcome{flight.OutcomeNotDone, flight.OutcomeNotDone, flight.OutcomeNotDone}},
		{errBoom, [3]flight.Outcome{flight.OutcomeUnknown, flight.OutcomeNotDone, flight.OutcomeUnknown}},
		// The NotDone of another flight inside this effect says nothing about this one.
		{inner(NotDone(errBoom)), [3]flight.Outcome{flight.OutcomeUnknown, flight.OutcomeNotDone, flight.OutcomeUnknown}},
		{fmt.Errorf("more: %w", inner(NotDone(errBoom))), [3]flight.Outcome{flight.OutcomeUnknown, flight.OutcomeNotDone, flight.OutcomeUnknown}},
		{NotDone(inner(NotDone(errBoom))), [3]flight.Outcome{flight.OutcomeNotDone, flight.OutcomeNotDone, flight.OutcomeNotDone}},
		{context.DeadlineExceeded, [3]flight.Outcome{flight.OutcomeUnknown, flight.OutcomeNotDone, flight.OutcomeUnknown}},
	}
	for _, row := range rows {
		for i, mark := range []string{"nothing noted", "in use", "noted"} {
			at := attempt(nil)
			marks[mark](at)
			require.Equal(t, row.want[i], Classify(row.err, at), "%v, %s", row.err, mark)
		}
	}
	require.ErrorIs(t, Refused(errBoom), errBoom)
	require.ErrorIs(t, NotDone(errBoom), errBoom)
}

func inner(err error) error {
	return &Unsettled{Key: flight.MustKey("default/charge/inner"), Outcome: flight.OutcomeNotDone, Err: err}
}

// An attempt without a session, as in a test of a handler alone, never loses its lease. A conflict names the
// fields that differ where they are known; of a tombstone, or of a ready fingerprint, they are not.
func TestConflictNamesWhatItKnows(t *testing.T) {
	e := &Conflict{Key: flight.MustKey("default/charge/1"), Fields: []string{"/amount", "/currency"}}
	require.Contains(t, e.Error(), "(fields that differ: [/amount /currency])")
	e.Fields = nil
	require.NotContains(t, e.Error(), "differ: []")
	require.Contains(t, e.Error(), "default/charge/1 was first used with another input; if")
}

func TestAnAttemptWithoutALease(t *testing.T) {
	require.Nil(t, attempt(nil).LeaseLost())
}

func TestSendingWithoutALease(t *testing.T) {
	at := attempt(func() error { return ErrLeaseLost })
	err := at.Sending()
	require.ErrorIs(t, err, ErrLeaseLost)
	require.False(t, at.Sent())
	require.Equal(t, flight.OutcomeNotDone, Classify(err, at))
}

// After Classify, an attempt starts nothing more.
func TestClassify_EndsSending(t *testing.T) {
	url, _, acted := provider(t, false)
	at := attempt(nil)
	client := &http.Client{Transport: at.Transport(nil)}
	require.Equal(t, flight.OutcomeNotDone, Classify(errBoom, at))
	require.Error(t, at.Sending())
	resp, err := client.Post(url, "text/plain", strings.NewReader("x"))
	if err == nil {
		_ = resp.Body.Close()
	}
	require.Error(t, err)
	require.Zero(t, acted.Load())
	require.False(t, at.Sent())
}

// provider acts on every request, and hangs up on every second one of a connection without an answer.
func provider(t *testing.T, tls bool) (url string, client *http.Client, acted *atomic.Int32) {
	acted = new(atomic.Int32)
	type conn struct{ requests int }
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		c := r.Context().Value(conn{}).(*conn)
		if c.requests++; c.requests > 1 {
			acted.Add(1)
			panic(http.ErrAbortHandler)
		}
		if r.URL.Path != "/warm" {
			acted.Add(1)
		}
		w.Header().Set("Seen-Key", r.Header.Get(HeaderIdempotencyKey))
		w.Header().Set("Seen-Token", r.Header.Get(HeaderFencingToken))
		w.Header().Set("Seen-Proto", r.Proto)
	}))
	server.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		return context.WithValue(ctx, conn{}, &conn{})
	}
	if tls {
		server.EnableHTTP2 = true
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	return server.URL, server.Client(), acted
}

// H44 (docs/hazards.md): a provider that acts and closes a reused connection sees one effect, for every method, with and
// without a body. The first part shows that the hazard is real: Go's own client acts twice.
func TestHazard44_OneEffectPerAttempt(t *testing.T) {
	t.Run("the hazard", func(t *testing.T) {
		url, client, acted := provider(t, false)
		get(t, client, url+"/warm")
		req, err := http.NewRequest(http.MethodPost, url, strings.NewReader("x"))
		require.NoError(t, err)
		req.Header.Set(HeaderIdempotencyKey, "k")
		resp, err := client.Do(req)
		if err == nil {
			require.NoError(t, resp.Body.Close())
		}
		require.EqualValues(t, 2, acted.Load())
	})
	for _, secure := range []bool{false, true} {
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch} {
			for _, body := range []string{"", "x"} {
				t.Run(fmt.Sprintf("%s body=%q tls=%t", method, body, secure), func(t *testing.T) {
					url, client, acted := provider(t, secure)
					get(t, client, url+"/warm") // a connection that could be reused
					at := attempt(nil)
					own := &http.Client{Transport: at.Transport(client.Transport.(*http.Transport))}
					var reader io.Reader
					if body != "" {
						reader = strings.NewReader(body)
					}
					req, err := http.NewRequest(method, url, reader)
					require.NoError(t, err)
					resp, err := own.Do(req)
					require.NoError(t, err)
					require.NoError(t, resp.Body.Close())
					require.EqualValues(t, 1, acted.Load())
					require.Equal(t, "the key", resp.Header.Get("Seen-Key"))
					require.Equal(t, "the token", resp.Header.Get("Seen-Token"))
					require.Equal(t, "HTTP/1.1", resp.Header.Get("Seen-Proto"))
					require.Equal(t, secure, resp.TLS != nil)
					require.True(t, at.Sent())
					get(t, own, url) // on another connection: on the same one the provider would hang up
				})
			}
		}
	}
}

// A provider that acts and hangs up at once is of unknown outcome, and is asked once.
func TestHazard44_HangUp(t *testing.T) {
	var acted atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		acted.Add(1)
		panic(http.ErrAbortHandler)
	}))
	defer server.Close()
	at := attempt(nil)
	_, err := (&http.Client{Transport: at.Transport(nil)}).Post(server.URL, "", nil)
	require.Error(t, err)
	require.EqualValues(t, 1, acted.Load())
	require.Equal(t, flight.OutcomeUnknown, Classify(err, at))
}

// countingTransport is a RoundTripper that sends a request again when there was no answer.
type countingTransport struct{ base http.RoundTripper }

func (t countingTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.base.RoundTrip(req.Clone(req.Context()))
	if err != nil {
		return t.base.RoundTrip(req)
	}
	return resp, err
}

// A program may put what it likes in the place of http.DefaultTransport, such as one that sends again or a test's
// double. Then nothing is sent, and the outcome is not_done.
func TestTransportWithAForeignDefault(t *testing.T) {
	original := http.DefaultTransport
	for name, replaced := range map[string]http.RoundTripper{
		"none": nil, "a nil pointer": (*http.Transport)(nil), "of another kind": countingTransport{original},
	} {
		t.Run(name, func(t *testing.T) {
			url, _, acted := provider(t, false)
			at := attempt(nil)
			http.DefaultTransport = replaced
			transport := at.Transport(nil)
			http.DefaultTransport = original
			_, err := (&http.Client{Transport: transport}).Post(url, "text/plain", strings.NewReader("x"))
			require.ErrorContains(t, err, "pass an *http.Transport to at.Transport")
			require.Zero(t, acted.Load())
			require.Equal(t, flight.OutcomeNotDone, Classify(err, at))
		})
	}
}

func get(t *testing.T, client *http.Client, url string) {
	t.Helper()
	resp, err := client.Get(url)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
}

// No byte is written when the lease is lost, before dialing or while it took its time; the error says that nothing
// happened.
func TestTransportWithoutALease(t *testing.T) {
	for _, secure := range []bool{false, true} {
		for _, lostAfter := range []int32{0, 1} { // looks at the lease that still go well
			t.Run(fmt.Sprintf("tls=%t after=%d", secure, lostAfter), func(t *testing.T) {
				url, client, acted := provider(t, secure)
				var looks atomic.Int32
				at := attempt(func() error {
					if looks.Add(1) > lostAfter {
						return ErrLeaseLost
					}
					return nil
				})
				_, err := (&http.Client{Transport: at.Transport(client.Transport.(*http.Transport))}).Post(url, "text/plain", strings.NewReader("x"))
				require.ErrorIs(t, err, ErrLeaseLost)
				require.Zero(t, acted.Load())
				require.False(t, at.Sent())
				require.Equal(t, flight.OutcomeNotDone, Classify(err, at))
				require.Equal(t, lostAfter+1, looks.Load())
			})
		}
	}
}

// A refused connection: nothing was sent.
func TestTransportConnectionRefused(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	at := attempt(nil)
	_, err = (&http.Client{Transport: at.Transport(nil)}).Post("http://"+listener.Addr().String(), "", nil)
	require.Error(t, err)
	require.Equal(t, flight.OutcomeNotDone, Classify(err, at))
}

// The deprecated Dial fields of the base transport are used, too.
func TestTransportDialsAsItsBase(t *testing.T) {
	for _, secure := range []bool{false, true} {
		url, client, acted := provider(t, secure)
		plain := client.Transport.(*http.Transport)
		for name, base := range map[string]*http.Transport{
			"Dial": {Dial: func(network, address string) (net.Conn, error) {
				return net.Dial(network, strings.Replace(address, "away.example.com", "127.0.0.1", 1))
			}, TLSClientConfig: plain.TLSClientConfig},
			"DialTLS": {DialTLS: func(network, address string) (net.Conn, error) {
				return tls.Dial(network, strings.Replace(address, "away.example.com", "127.0.0.1", 1), plain.TLSClientConfig)
			}},
		} {
			if name == "DialTLS" && !secure {
				continue
			}
			t.Run(fmt.Sprintf("%s tls=%t", name, secure), func(t *testing.T) {
				acted.Store(0)
				at := attempt(nil)
				away := strings.Replace(url, "127.0.0.1", "away.example.com", 1)
				resp, err := (&http.Client{Transport: at.Transport(base)}).Post(away, "", nil)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				require.EqualValues(t, 1, acted.Load())
				require.True(t, at.Sent())
			})
		}
	}
}

// A look-up through a client has no token: a provider that checks tokens is not sent an empty one.
func TestTransportWithoutAToken(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if _, sent := r.Header[HeaderFencingToken]; sent || r.Header.Get(HeaderIdempotencyKey) != "the key" {
			t.Errorf("it goes out with %v", r.Header)
		}
	}))
	defer server.Close()
	at := NewAttempt(Spec{Key: flight.MustKey("ns/charge/1"), IdempotencyKey: "the key"})
	get(t, &http.Client{Transport: at.Transport(nil)}, server.URL)
}

func TestFromHTTP(t *testing.T) {
	want := map[int]flight.Outcome{200: flight.OutcomeSucceeded, 201: flight.OutcomeSucceeded, 204: flight.OutcomeSucceeded, 302: flight.OutcomeUnknown,
		400: flight.OutcomeRefused, 401: flight.OutcomeNotDone, 402: flight.OutcomeRefused, 404: flight.OutcomeNotDone, 408: flight.OutcomeUnknown,
		409: flight.OutcomeUnknown, 422: flight.OutcomeRefused, 429: flight.OutcomeNotDone, 500: flight.OutcomeUnknown, 503: flight.OutcomeUnknown}
	for status, outcome := range want {
		at := attempt(nil)
		require.NoError(t, at.Sending())
		resp := &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"text/plain"}}, Body: io.NopCloser(strings.NewReader("body"))}
		answer, err := FromHTTP(resp, nil)
		require.Equal(t, outcome, Classify(err, at), status)
		require.Equal(t, "body", string(answer.Body))
		require.Equal(t, "text/plain", answer.ContentType)
	}
	_, err := FromHTTP(nil, errBoom)
	require.ErrorIs(t, err, errBoom)
	cut := &http.Response{StatusCode: 200, Body: io.NopCloser(io.MultiReader(strings.NewReader("x"), failingReader{}))}
	_, err = FromHTTP(cut, nil)
	require.ErrorIs(t, err, errBoom)
}

type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, errBoom }

// The first of two requests went out, the second was kept back: that says nothing about the first.
func TestClassify_SecondSendNotSent(t *testing.T) {
	lost := errors.New("the lease is lost")
	for _, sentBefore := range []bool{false, true} {
		var refuse error
		at := NewAttempt(Spec{Key: flight.MustKey("ns/a/1"), MayStart: func() error { return refuse }})
		if sentBefore {
			require.NoError(t, at.Sending())
		}
		refuse = lost
		want := flight.OutcomeNotDone
		if sentBefore {
			want = flight.OutcomeUnknown
		}
		bySending := at.Sending()
		require.ErrorIs(t, bySending, lost)
		_, byTransport := (&http.Client{Transport: at.Transport(nil)}).Get("http://127.0.0.1:1/")
		require.ErrorIs(t, byTransport, lost)
		for _, err := range []error{bySending, byTransport} {
			require.Equal(t, want, Classify(fmt.Errorf("second request: %w", err), at), "sent before: %v, by %v", sentBefore, err)
		}
	}
}

// The answer to one request says nothing about another one that is still on its way, and may have changed something.
func TestNotDone_AnotherRequestIsOnItsWay(t *testing.T) {
	held, come := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(held) })
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery == "held" {
			close(come)
			<-held
		}
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer server.Close()
	defer release()
	at := attempt(nil)
	client, ended := &http.Client{Transport: at.Transport(nil)}, make(chan error, 1)
	go func() {
		_, err := FromHTTP(client.Post(server.URL+"?held", "", nil))
		ended <- err
	}()
	<-come
	_, err := FromHTTP(client.Post(server.URL, "", nil))
	require.Equal(t, flight.OutcomeUnknown, Classify(err, at))
	release()
	require.Error(t, <-ended)
}

func TestFromHTTPPassesThePauseOn(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for asked, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, "-1": 0, "soon": 0, "1.5": 0, "Fri, 31 Dec 99999 23:59:59 GMT": 0,
		"Fri, 02 Jan 2026 03:05:05 GMT": time.Minute, "Friday, 02-Jan-26 03:05:05 GMT": time.Minute, "Fri Jan  2 03:05:05 2026": time.Minute, "Fri, 02 Jan 2026 03:04:00 GMT": 0,
	} {
		require.Equal(t, want, parseRetryAfter(http.Header{"Retry-After": {asked}}, now), "%q", asked)
	}
	for _, asked := range []string{"99999999", "99999999999999999999", "Fri, 31 Dec 9999 23:59:59 GMT"} {
		_, err := FromHTTP(&http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {asked}}, Body: http.NoBody}, nil)
		require.Equal(t, MaxPause, RequestedPause(err), asked)
	}
	for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusBadGateway} {
		resp := &http.Response{StatusCode: status, Header: http.Header{"Retry-After": {"7"}}, Body: io.NopCloser(strings.NewReader("later"))}
		_, err := FromHTTP(resp, nil)
		require.Equal(t, 7*time.Second, RequestedPause(err), "%d", status)
	}
}
