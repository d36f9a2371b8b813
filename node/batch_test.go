package node

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/httpapi/wire"
)

// batch sends lines to a node and returns their answers in order, if the batch was not rejected as a whole.
func (c *testCluster) batch(i int, lines ...string) (a answer, answers []wire.BatchAnswer) {
	c.t.Helper()
	a = c.fetch(i, http.MethodPost, "/v1/flights:batch", strings.Join(lines, "\n"), "Content-Type", "application/x-ndjson")
	if a.status != http.StatusOK {
		return a, nil
	}
	answers = make([]wire.BatchAnswer, len(lines))
	for text := range strings.Lines(a.body) {
		line, err := wire.DecodeBatchAnswer([]byte(text))
		require.NoError(c.t, err)
		answers[line.Line-1] = line
	}
	return a, answers
}

// A follower passes a batch on, also one that is too large to be kept. Each line is answered within the term of its leader.
func TestCluster_Batches(t *testing.T) {
	t.Parallel()
	c := newTestCluster(t)
	lead := c.leader()
	follower := (lead + 1) % 3
	open := func(id, input string) string {
		return `{"open":{"action":"pay","id":"` + id + `","input":"` + input + `","nonce":"` + nonce(id) + `"}}`
	}
	var lines []string
	for i := range 200 {
		lines = append(lines, open(fmt.Sprint("batch-", i), strings.Repeat("x", 1000)))
	}
	require.Greater(t, len(strings.Join(lines, "\n")), keptBody)
	whole, answers := c.batch(follower, lines...)
	require.Equal(t, http.StatusOK, whole.status, whole.body)
	require.Equal(t, []string{c.names[follower]}, whole.header["Flightd-Node"])
	for _, a := range answers {
		require.Equal(t, http.StatusCreated, a.Status, "%s", a.Body)
		require.NotEmpty(t, a.Index)
	}

	defer c.isolate(lead)() // it does not know yet that another node will lead
	whole, answers = c.batch(lead, open("batch-0", "another input"), `{"abandon":{}}`)
	if whole.status == http.StatusOK {
		require.Equal(t, http.StatusServiceUnavailable, answers[0].Status, "a conflict that only a leader may state: %s", answers[0].Body)
		require.Contains(t, string(answers[0].Body), string(wire.LeaderLost))
		require.Equal(t, http.StatusBadRequest, answers[1].Status, "%s", answers[1].Body)
	} else { // on a slow machine it knows that its term has ended
		require.Equal(t, http.StatusServiceUnavailable, whole.status, whole.body)
	}
}
