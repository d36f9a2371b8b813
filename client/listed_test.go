package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/httpapitest"
	"github.com/flightd/flightd/remote"
)

// kept gives the id of the client's session.
func (fi *fixture) kept(c *client.Client) string {
	fi.t.Helper()
	fi.useSession(c)
	require.Eventually(fi.t, func() bool { return len(fi.sessions()) == 1 }, stateLimit, time.Millisecond, "that of the first call has ended")
	return string(fi.sessions()[0])
}

// An answer that is older than a report lists its attempt once more. A report that nothing was done does not become a
// doubt by that, however long such answers come.
func TestOldRenewalAnswer_MakesNoDoubt(t *testing.T) {
	g := newFixture(t)
	g.fake.SetFaults(func(l *httpapitest.Faults) { l.RenewEvery = 5 * time.Millisecond })
	c := g.connect()
	session := g.kept(c)
	var listed client.SessionAnswer
	_, err := c.Do(t.Context(), call(`1`), func(_ context.Context, at *effect.Attempt) (effect.Answer, error) {
		var err error
		listed, err = c.Renew(t.Context(), session, client.RenewRequest{OpenDigest: fmt.Sprintf("%032d", 0)})
		require.NoError(t, err)
		return effect.Answer{}, client.NotDone(context.Canceled)
	})
	var unsettled *client.Unsettled
	require.ErrorAs(t, err, &unsettled)
	require.Len(t, listed.Open, 1)
	g.cannedAnswer, err = json.Marshal(listed.SessionAnswer)
	require.NoError(t, err)
	g.setFault(func(r *http.Request) fault {
		if hasSuffix(r, "/renew") {
			return canned
		}
		return none
	})
	reports := g.count("/report")
	require.Eventually(t, func() bool { return g.count("/report") > reports }, stateLimit, time.Millisecond, "it is reported again")
	f := g.flight(key)
	require.Equal(t, flight.StateReady, f.State)
	require.False(t, f.Tainted())
	require.Empty(t, f.Evidence)
}

// Pages of a renewal are read to their end.
func TestManyListedAttempts(t *testing.T) {
	g := newFixture(t)
	paged := make(chan struct{})
	var once sync.Once
	g.fake.SetFaults(func(l *httpapitest.Faults) {
		l.RenewEvery = 20 * time.Millisecond
		l.OnRenewed = func(_ flight.SessionID, what remote.RenewRequest) {
			if what.After != (flight.ID{}) {
				once.Do(func() { close(paged) })
			}
		}
	})
	c := g.connect()
	session, other := g.kept(c), g.connect()
	_, err := c.Do(t.Context(), call(`1`), func(context.Context, *effect.Attempt) (effect.Answer, error) {
		lost := func(i int) flight.Key { return flight.MustKey(fmt.Sprintf("default/lost/%d", i)) }
		g.setFault(func(r *http.Request) fault { // so that they stay open until there are all
			select {
			case <-paged:
				return none
			default:
				return map[bool]fault{true: refused}[hasSuffix(r, "/report") || hasSuffix(r, ":batch")]
			}
		})
		for i := range remote.MaxListed + 10 {
			_, err := other.Open(t.Context(), lost(i), client.OpenRequest{Session: session})
			require.NoError(t, err)
		}
		receive(t, paged)
		for i := range remote.MaxListed + 10 {
			f := g.waitForFlight(lost(i), func(f *flight.Flight) bool { return f.State != flight.StateRunning })
			require.Equal(t, flight.StateInDoubt, f.State)
			require.False(t, f.Newest().Lost, "its session lives")
		}
		return effect.Answer{}, nil
	})
	require.NoError(t, err)
}

// If the answer to an open names another session than the open, that session is renewed and trusted.
func TestTheSessionOfTheAnswerCounts(t *testing.T) {
	g := newFixture(t)
	g.fake.SetFaults(func(l *httpapitest.Faults) { l.RenewEvery = 5 * time.Millisecond })
	c := g.connect()
	g.useSession(c)
	another, err := c.NewSession(t.Context(), 0, "")
	require.NoError(t, err)
	g.setFault(func(r *http.Request) fault {
		if hasSuffix(r, ":open") {
			body, _ := io.ReadAll(r.Body)
			body = regexp.MustCompile(`"session":"[^"]*"`).ReplaceAll(body, []byte(`"session":"`+another.Session+`"`))
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		}
		return none
	})
	result, err := c.Do(t.Context(), call(`1`), func(ctx context.Context, at *effect.Attempt) (effect.Answer, error) {
		require.Equal(t, another.Session, string(g.flight(key).Newest().Session.ID))
		require.Eventually(t, func() bool { return g.count(another.Session+"/renew") > 2 }, stateLimit, time.Millisecond)
		require.NoError(t, at.Sending())
		g.fake.ExpireSession(t, flight.SessionID(another.Session))
		<-at.LeaseLost()
		return effect.Answer{}, nil
	})
	require.NoError(t, err)
	require.EqualValues(t, 1, result.Attempt)
}

// An open whose not_after the ledger does not take has opened nothing: another nonce follows, with the ledger's own
// time.
func TestOpenExpired(t *testing.T) {
	g := newFixture(t)
	c := g.connect()
	g.useSession(c)
	g.fake.Ledger.Advance(10 * time.Minute)
	opens := g.count(":open")
	result, err := c.Do(t.Context(), call(`1`), succeedingHandler(`1`))
	require.NoError(t, err)
	require.EqualValues(t, 1, result.Attempt)
	require.Equal(t, opens+2, g.count(":open"))
}
