package client_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
)

// lateCopy is the situation of the tests below: another client holds the key, a client is answered busy, the key becomes
// free, and only then a copy of the client's open arrives, which the network has made.
type lateCopy struct {
	*fixture
	c    *client.Client
	body []byte // of the client's open
}

func newLateCopy(t *testing.T, warm bool) *lateCopy {
	g := newBubbleFixture(t)
	l := &lateCopy{fixture: g, c: g.connect()}
	if warm {
		g.useSession(l.c)
	}
	held, free := make(chan struct{}), make(chan struct{})
	holder := doInBackground(t.Context(), g.connect(), call(`1`), func(context.Context, *effect.Attempt) (effect.Answer, error) {
		close(held)
		<-free
		return effect.Answer{}, client.NotDone(errors.New("no connection"))
	})
	<-held
	g.setFault(func(r *http.Request) fault {
		if hasSuffix(r, ":open") {
			l.body, _ = io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(l.body))
		}
		return none
	})
	hasty := call(`1`)
	hasty.Wait = time.Nanosecond
	_, err := l.c.Do(t.Context(), hasty, unreachableHandler(t))
	var busy *client.Busy
	require.ErrorAs(t, err, &busy)
	require.Zero(t, g.count(":abandon"))
	close(free)
	<-holder
	return l
}

// arrive lets the copy arrive, and returns its status.
func (l *lateCopy) arrive() int {
	r := httptest.NewRequest(http.MethodPost, "/v1/flights:open", bytes.NewReader(l.body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	l.api.ServeHTTP(w, r)
	return w.Code
}

// requireNoDoubt checks that no attempt is left of the copy.
func (l *lateCopy) requireNoDoubt() {
	l.t.Helper()
	f := l.flight(key)
	require.Equal(l.t, flight.StateReady, f.State, "%s", f.Cause)
	require.False(l.t, f.Tainted())
}

// The copy opens an attempt for nobody, which the client abandons: by a renewal of its session, which lists the attempt,
// or without a session when not_after has passed.
func TestLateCopy_OpensAnAttemptThatIsAbandoned(t *testing.T) {
	for _, warm := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l := newLateCopy(t, warm)
			require.Equal(t, http.StatusCreated, l.arrive())
			time.Sleep(6 * time.Second)
			require.Equal(t, 1, l.count(":abandon"))
			l.requireNoDoubt()
		})
	}
}

// Close abandons what it leaves, or closes the session: a copy that arrives then opens nothing.
func TestLateCopy_AfterClose(t *testing.T) {
	for _, warm := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l := newLateCopy(t, warm)
			require.NoError(t, l.c.Close(t.Context()))
			require.NotEqual(t, http.StatusCreated, l.arrive())
			l.requireNoDoubt()
		})
	}
}

// A copy has opened an attempt when Close closes the session.
func TestLateCopy_BeforeClose(t *testing.T) {
	for _, warm := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l := newLateCopy(t, warm)
			require.Equal(t, http.StatusCreated, l.arrive())
			require.NoError(t, l.c.Close(t.Context()))
			l.requireNoDoubt()
			time.Sleep(time.Minute)
			l.requireNoDoubt()
		})
	}
}

// The client's session ends before a renewal could list the attempt: the client abandons it all the same.
func TestLateCopy_OfALostSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLateCopy(t, true)
		require.Equal(t, http.StatusCreated, l.arrive())
		l.expireSessions()
		require.Equal(t, flight.StateInDoubt, l.waitForFlight(key, func(f *flight.Flight) bool { return f.OpenAttempt() == nil }).State)
		time.Sleep(10 * time.Second)
		l.requireNoDoubt()
	})
}
