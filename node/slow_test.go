package node

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/httpapi/wire"
)

// slowCallers keeps n connections open that send one byte a second: in the TLS handshake, in the headers and in the
// body. A connection that the server closes is dialed again until ctx ends.
type slowCallers struct {
	address string
	tls     *tls.Config
	open    atomic.Int64 // connections at the moment
	closed  atomic.Int64 // connections that the server closed so far
}

const slowHeaders = "POST /v1/flights:open HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nX-Filler: "

// run returns when ctx has ended.
func (s *slowCallers) run(ctx context.Context, n int) {
	var callers sync.WaitGroup
	for i := range n {
		callers.Go(func() {
			for ctx.Err() == nil {
				s.one(ctx, i%3)
			}
		})
	}
	callers.Wait()
}

func (s *slowCallers) one(ctx context.Context, kind int) {
	raw, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.address)
	if err != nil {
		return
	}
	defer raw.Close()
	c, rest := raw, strings.Repeat("x", 1000)
	if kind == 0 {
		_, err = io.WriteString(raw, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03") // the beginning of a ClientHello of 512 bytes
	} else {
		over := tls.Client(raw, s.tls)
		if over.HandshakeContext(ctx) != nil {
			return
		}
		c = over
		if kind == 1 {
			_, err = io.WriteString(c, slowHeaders)
		} else {
			_, err = io.WriteString(c, slowHeaders+"\r\nContent-Length: 1000\r\n\r\n{")
		}
	}
	s.open.Add(1)
	defer s.open.Add(-1)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for err == nil {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_, err = io.WriteString(c, rest[:1])
		}
	}
	s.closed.Add(1)
}

// newFlights opens and reports new flights with 8 callers until ctx ends, and counts them.
func newFlights(ctx context.Context, t *testing.T, client *http.Client, url string, done *atomic.Int64) {
	send := func(path, body string, want int) (answer wire.OpenAnswer) {
		resp, err := client.Post(url+path, "application/json", strings.NewReader(body))
		for err != nil && ctx.Err() == nil { // at the limit a connection that was unused for half a second may be closed
			resp, err = client.Post(url+path, "application/json", strings.NewReader(body))
		}
		if err != nil {
			return answer
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != want || json.Unmarshal(text, &answer) != nil {
			t.Errorf("a new flight: %d %s, %v", resp.StatusCode, text, err)
		}
		return answer
	}
	var callers sync.WaitGroup
	for caller := range 8 {
		callers.Go(func() {
			for n := 0; ctx.Err() == nil && !t.Failed(); n++ {
				id := fmt.Sprintf("%d-%d", caller, n)
				a := send("/v1/flights:open", fmt.Sprintf(`{"action":"pay","id":%q,"nonce":%q,"wait_ms":0}`, id, "nonce-0123456789-"+id), http.StatusCreated)
				send("/v1/flights/"+a.FlightID+"/report", `{"fencing_token":"`+a.FencingToken+`","outcome":"succeeded"}`, http.StatusOK)
				done.Add(1)
			}
		})
	}
	callers.Wait()
}

// inASecond returns how much a counter grows in a second.
func inASecond(n *atomic.Int64) int64 {
	before, start := n.Load(), time.Now()
	<-time.NewTimer(time.Second).C
	return int64(float64(n.Load()-before) / time.Since(start).Seconds())
}

// memory returns the bytes of heap and stacks in use.
func memory() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}

// With 2,000 slow connections and a stream that nobody reads, new flights keep at least half their rate, and memory stays
// below its bound. So they do with fewer slow connections that are more than the limit.
func TestSlowCallersDoNotStopOthers(t *testing.T) {
	if testing.Short() {
		t.Skip("it measures rates; make long runs it")
	}
	for limit, slow := range map[int]int{8192: 2000, 32: 200} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			a := newAuthority(t)
			a.write(1)
			cfg := Dev(t.TempDir(), "127.0.0.1:0")
			cfg.Listen.TLS, cfg.tuning.connections = a.files(), limit
			in := openConfig(t, cfg)
			url, client := in.server.url(), a.client()
			client.Transport.(*http.Transport).MaxIdleConnsPerHost = 8

			unread, err := tls.Dial("tcp", strings.TrimPrefix(url, "https://"), a.trust())
			require.NoError(t, err)
			defer unread.Close()
			_, err = io.WriteString(unread, "GET /v1/events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
			require.NoError(t, err)

			var done atomic.Int64
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			defer running.Wait()
			defer cancel()
			running.Go(func() { newFlights(ctx, t, client, url, &done) })
			await(t, "flights are executed", func() bool { return done.Load() > 100 })
			var alone, beside []int64
			for range 2 {
				alone = append(alone, inASecond(&done))
			}
			before := memory()
			callers := &slowCallers{address: strings.TrimPrefix(url, "https://"), tls: a.trust()}
			callers.tls.ServerName = "127.0.0.1"
			slowCtx, stopSlow := context.WithCancel(ctx)
			defer stopSlow()
			running.Go(func() { callers.run(slowCtx, slow) })
			await(t, "the slow callers are connected", func() bool { return callers.open.Load()+callers.closed.Load() >= int64(slow) })
			grown := 0.0
			for n := 0; n < 8 && (n < 2 || 2*slices.Max(beside) < slices.Max(alone)); n++ { // more often on a busy machine
				beside = append(beside, inASecond(&done))
				grown = max(grown, memory()-before)
			}
			t.Logf("flights per second alone %v, beside %d slow connections %v; %d open, %d closed; %.1f MiB more memory",
				alone, slow, beside, callers.open.Load(), callers.closed.Load(), grown/(1<<20))
			require.Less(t, grown, float64(256<<20), "for both ends of each connection")
			if limit > slow {
				require.Greater(t, callers.open.Load(), int64(slow/2), "they must still be connected")
			}
			if 2*slices.Max(beside) < slices.Max(alone) { // another process may have become busy since the rate alone was measured
				stopSlow()
				await(t, "the slow callers are gone", func() bool { return callers.open.Load() == 0 })
				alone = []int64{inASecond(&done), inASecond(&done)}
				t.Logf("flights per second alone afterwards: %v", alone)
			}
			require.GreaterOrEqual(t, 2*slices.Max(beside), slices.Max(alone))
		})
	}
}
