//go:build clients

package conformance

import (
	"bytes"
	"context"
	"io"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flightdtest"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/httpapitest"
	"github.com/flightd/flightd/httpapi/wire"
)

// TestSoakOfALaggingNode runs clients of all languages against two nodes in this process, on the ledger of flightdtest. Every proxy
// gives each request to the other node. One of them leads, and its ledger loses answers. The other one lags by some commands, and
// answers what a follower answers from its own ledger. FLIGHTD_SOAKS and FLIGHTD_SOAK_SEED are those of TestSoak; flightd is not
// killed.
func TestSoakOfALaggingNode(t *testing.T) {
	runSeeds(t, func(t *evidence, seed uint64) {
		leader := httpapitest.New(t)
		late := &lateNode{view: leader.Ledger.Follower(), leader: httpapi.New(leader.Config())}
		cfg := leader.FollowerConfig(late.view)
		cfg.Cluster.LedgerBehind = func(context.Context, wire.Index) (bool, error) { return true, nil }
		late.own = httpapi.New(cfg)
		h := &server{t: t}
		for _, api := range []http.Handler{late.leader, late} {
			listening := httptest.NewServer(api)
			t.Cleanup(listening.Close)
			h.nodes = append(h.nodes, &server{t: t, url: listening.URL})
		}
		s := newSoak(t, seed, h)
		s.lag = func() {
			late.view.Lag([...]int{0, 1, 3, 9, 30, math.MaxInt}[s.rnd.intN(6)])
			leader.Ledger.LoseAnswers(s.rnd.intN(3))
		}
		s.run()
		late.view.Lag(0)
		leader.Ledger.LoseAnswers(0)
		s.check()
		require.NotZero(t, late.answered.Load())
		t.Logf("the late node answered %d requests, and passed on %d that it could not answer", late.answered.Load(), late.passedOn.Load())
	})
}

// lateNode is a node that does not lead, and lags. Like the follower of a cluster it answers reads and opens with final receipts from
// its own ledger, and passes everything else on to the leader.
type lateNode struct {
	view               *flightdtest.Follower
	own, leader        http.Handler
	answered, passedOn atomic.Int64 // of the requests that may be answered from the own ledger
}

func (n *lateNode) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if r.URL.Path == "/v1/flights:open" || r.Method == http.MethodGet && strings.HasPrefix(r.URL.Path, "/v1/flights/") {
		answer := httptest.NewRecorder()
		n.own.ServeHTTP(answer, r)
		if slices.Contains([]int{http.StatusOK, http.StatusNotModified, http.StatusFailedDependency}, answer.Code) {
			n.answered.Add(1)
			maps.Copy(w.Header(), answer.Header())
			w.WriteHeader(answer.Code)
			_, _ = w.Write(answer.Body.Bytes()) // fails if the client has closed the connection
			return
		}
		n.passedOn.Add(1)
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	n.leader.ServeHTTP(w, r)
}
