//go:build browser

package console

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestClusterPage_LoneNode(t *testing.T) {
	t.Parallel()
	s := startDev(t)
	p := openTab(t, 1280, 800, false)
	p.visit(s.url + "/console/#/cluster")
	p.sees(".says", "a lone node")
	p.sees(".rows td", "leader")
	for _, fact := range []string{s.data, "free; the ledger has", "in use of", "feature level"} {
		p.sees(".facts dd", fact)
	}
	require.Equal(t, 3, value[int](p, `document.querySelectorAll(".facts .state.done").length`), "the parts of the node")
	p.sees(".facts dd", "none since the nodes started")
	answer, err := http.Get(s.url + "/v1/backup")
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, answer.Body)
	require.NoError(t, err)
	p.sees(".facts dd", "by lone")
}

// The node that leads dies. The pages keep their data while no node leads, say so, and go on by themselves at their own node, and a decision that
// was made in between counts.
func TestCluster_ChangeOfLeader(t *testing.T) {
	t.Parallel()
	s := startDev(t, "--nodes", "3")
	s.succeed("charge", "before", object{}, "ok")
	s.doubt("charge", "order-1", object{"cents": 1})
	leader, _ := s.must("GET", "/v1/cluster", nil)["leader"].(string)
	number, err := strconv.Atoi(strings.TrimPrefix(leader, "node-"))
	require.NoError(t, err)
	port, err := strconv.Atoi(s.url[strings.LastIndex(s.url, ":")+1:])
	require.NoError(t, err)
	other := &server{t: t, url: "http://127.0.0.1:" + strconv.Itoa(port+number%3)} // the node after the leader
	cluster, live, p := openTab(t, 1280, 800, true), openTab(t, 1280, 800, false), openTab(t, 1280, 800, false)
	cluster.failedRequests, live.failedRequests, p.failedRequests = true, true, true
	p.visit(link(other, "default", "default/charge/order-1"))
	p.sees(".says .state", "in doubt")
	cluster.visit(other.url + "/console/#/cluster")
	cluster.sees(".says", "3 of 3 nodes")
	cluster.sees(".says", leader+" leads. Callers are served also if 1 more node is lost.")
	live.visit(other.url + "/console/#/live")
	live.sees(".feed", "charge/before")

	text, err := os.ReadFile(filepath.Join(s.data, leader, "flightd.pid"))
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	require.NoError(t, err)
	process, err := os.FindProcess(pid)
	require.NoError(t, err)
	require.NoError(t, process.Kill())
	p.decide("resolve", "not_happened", "looked it up")
	p.sees(".says .state", "ready")
	p.until(`!document.querySelector("main .problem") && !document.querySelector(".offline.on")`)
	require.Equal(t, "ready", other.must("GET", "/v1/flights?key=default/charge/order-1", nil)["state"])
	cluster.until(fmt.Sprintf(`document.querySelectorAll(".rows tbody tr").length === 3 && document.querySelector(".says").innerText.includes("2 of 3 nodes") && !document.querySelector(".says").innerText.includes(%q)`, leader+" leads"))
	cluster.sees(".rows tr", "unreachable")
	cluster.until(`document.querySelector(".stale").innerText === ""`)
	other.succeed("charge", "after", object{}, "ok")
	live.sees(".feed", "charge/after")
	require.Equal(t, 1, live.times("charge/before"), "what the page has seen is not read twice")
	live.until(`document.querySelector(".stale").innerText === ""`)
}
