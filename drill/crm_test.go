package drill

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/effect"
)

// post requests a ticket. It returns the status, or 0 without an answer, and the ticket's id.
func post(t *testing.T, ctx context.Context, url, externalID, key string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/tickets", strings.NewReader(`{"external_id":"`+externalID+`"}`))
	require.NoError(t, err)
	req.GetBody = nil // otherwise net/http may retry the request
	req.Header.Set(effect.HeaderIdempotencyKey, key)
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	if resp.StatusCode >= 300 {
		return resp.StatusCode, ""
	}
	id, err := ticketID(body)
	require.NoError(t, err)
	return resp.StatusCode, id
}

func newCRM(t *testing.T) crmClient {
	server := httptest.NewServer(NewCRM().Handler())
	t.Cleanup(server.Close)
	return crmClient{url: server.URL, http: server.Client()}
}

func TestCRM_HonoursKeysIfConfigured(t *testing.T) {
	crm, ctx := newCRM(t), t.Context()
	require.NoError(t, crm.set(ctx, "yes", Setting{Honour: true}))
	_, first := post(t, ctx, crm.url, "yes", "k")
	_, again := post(t, ctx, crm.url, "yes", "k")
	_, other := post(t, ctx, crm.url, "yes", "k2")
	require.Equal(t, first, again)
	require.NotEqual(t, first, other)
	_, first = post(t, ctx, crm.url, "no", "k")
	_, again = post(t, ctx, crm.url, "no", "k")
	require.NotEqual(t, first, again)
	count, err := crm.count(ctx, "no")
	require.NoError(t, err)
	require.Len(t, count.Tickets, 2)
	require.Equal(t, []Request{{Key: "k"}, {Key: "k"}}, count.Requests)
}

func TestCRM_AllowsLookUpIfConfigured(t *testing.T) {
	crm, ctx := newCRM(t), t.Context()
	require.NoError(t, crm.set(ctx, "yes", Setting{LookUp: true}))
	found, err := crm.find(ctx, "yes")
	require.NoError(t, err)
	require.Empty(t, found)
	_, id := post(t, ctx, crm.url, "yes", "k")
	found, err = crm.find(ctx, "yes")
	require.NoError(t, err)
	require.Equal(t, []Ticket{{ID: id, ExternalID: "yes"}}, found)
	_, err = crm.find(ctx, "no")
	require.ErrorContains(t, err, "404")
}

func TestCRM_InjectsFaultOnce(t *testing.T) {
	for _, test := range []struct {
		fault   Fault
		status  int
		tickets int
	}{{FaultDrop, 0, 1}, {FaultErrorAndTicket, 503, 1}, {FaultErrorNoTicket, 503, 0}} {
		crm, ctx := newCRM(t), t.Context()
		require.NoError(t, crm.set(ctx, "x", Setting{Fault: test.fault}))
		status, _ := post(t, ctx, crm.url, "x", "k")
		require.Equal(t, test.status, status, test.fault)
		count, err := crm.count(ctx, "x")
		require.NoError(t, err)
		require.Len(t, count.Tickets, test.tickets, test.fault)
		status, _ = post(t, ctx, crm.url, "x", "k")
		require.Equal(t, http.StatusCreated, status, test.fault)
	}
}

func TestCRM_SlowAnswer(t *testing.T) {
	crm := newCRM(t)
	require.NoError(t, crm.set(t.Context(), "x", Setting{Fault: FaultSlow}))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	status, _ := post(t, ctx, crm.url, "x", "k")
	require.Zero(t, status)
	count, err := crm.count(t.Context(), "x")
	require.NoError(t, err)
	require.Len(t, count.Tickets, 1)
}

func TestCRM_StopsWithTheDrill(t *testing.T) {
	in, drill := io.Pipe()
	out, crm := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- ServeCRM(t.Context(), in, crm) }()
	url, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	_, id := post(t, t.Context(), strings.TrimSpace(url), "x", "k")
	require.Equal(t, "T-1", id)
	require.NoError(t, drill.Close())
	require.NoError(t, <-ended)
}
