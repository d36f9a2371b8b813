package node

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/httpapi/wire"
)

// Every node takes a suspend and a callback. Of callbacks that arrive at all nodes at once, with different outcomes, one is taken.
func TestCluster_OneCallbackIsTaken(t *testing.T) {
	long(t)
	t.Parallel()
	c := newTestCluster(t, func(cfg *Config) { cfg.Listen.PublicURL = "https://flightd.example.com/" })
	url := func(i int) string { return c.nodes[i].server.url() }
	var open wire.OpenAnswer
	require.Eventually(t, func() bool { // a leader raises the feature level first
		status, body, err := post(url(0)+"/v1/flights:open", `{"action":"render","id":"film-7","callback":true,"nonce":"`+nonce("callback")+`"}`)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal([]byte(body), &open))
		return status == http.StatusCreated
	}, 20*time.Second, 50*time.Millisecond)
	path, ok := strings.CutPrefix(open.CallbackURL, "https://flightd.example.com/v1/callbacks/")
	require.True(t, ok, "%s", open.CallbackURL)
	require.Eventually(t, func() bool {
		status, _, err := post(url(1)+"/v1/flights/"+open.FlightID+"/suspend", `{"fencing_token":"`+open.FencingToken+`","key":"`+open.Key+`","deadline_ms":600000}`)
		require.NoError(t, err)
		return status == http.StatusOK
	}, 20*time.Second, 50*time.Millisecond)

	var mu sync.Mutex
	var wait sync.WaitGroup
	taken, late := map[string]bool{}, 0
	for n := range 12 {
		wait.Go(func() {
			job := strconv.Itoa(n)
			status, body, err := post(url(n%3)+"/v1/callbacks/"+path, `{"outcome":"succeeded","external_id":"`+job+`"}`)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				t.Error(err)
			case status == http.StatusOK:
				taken[job] = true
			case status == http.StatusConflict && strings.Contains(body, `"fenced"`):
				late++
			default:
				t.Errorf("%d %s", status, body)
			}
		})
	}
	wait.Wait()
	require.Len(t, taken, 1, "one callback is taken")
	require.Equal(t, 11, late)
	require.Eventually(t, func() bool { // a follower answers receipts from its own, earlier view
		answer, err := http.Get(url(2) + "/v1/flights/" + open.FlightID)
		require.NoError(t, err)
		defer answer.Body.Close()
		var f wire.Flight
		require.NoError(t, json.NewDecoder(answer.Body).Decode(&f))
		require.Equal(t, "succeeded", f.State)
		require.True(t, taken[f.Receipt.ExternalID])
		return len(f.Evidence) == 11
	}, 10*time.Second, 50*time.Millisecond, "the others are evidence")
}
