package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/cmd/flightd/internal/cli"
)

// receiver takes notifications as a program of a user does: it verifies the signature by the published algorithm of Standard Webhooks
// before it reads anything.
type receiver struct {
	*httptest.Server
	t      testing.TB
	mu     sync.Mutex
	secret string
	got    []notification
	wrong  []string
	answer func(n int) int // status of the nth request; nil: 204
	n      int
}

type notification struct {
	id   string
	Type string
	Text string
	Data struct {
		Count                     int
		Key, State, Link, Command string
		Input                     map[string]any
		Attempts                  []struct {
			Owner  string
			SentAt time.Time `json:"sent_at"`
		}
	}
}

func startReceiver(t testing.TB) *receiver {
	re := &receiver{t: t}
	re.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		payload, err := io.ReadAll(r.Body)
		re.mu.Lock()
		defer re.mu.Unlock()
		re.n++
		if err != nil || !verified(re.secret, r.Header, payload) {
			re.wrong = append(re.wrong, string(payload))
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if re.answer != nil {
			if status := re.answer(re.n); status != http.StatusNoContent {
				w.WriteHeader(status)
				return
			}
		}
		m := notification{id: r.Header.Get("webhook-id")}
		if err := json.Unmarshal(payload, &m); err != nil {
			re.wrong = append(re.wrong, err.Error()+": "+string(payload))
		}
		re.got = append(re.got, m)
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(re.Close)
	return re
}

// verified is the verification of https://www.standardwebhooks.com: the signed content is id, timestamp and payload with dots between them,
// the key is what follows whsec_ in base64, and one of the signatures, which have a space between them, must be its HMAC-SHA256.
func verified(secret string, h http.Header, payload []byte) bool {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	at, err2 := strconv.ParseInt(h.Get("webhook-timestamp"), 10, 64)
	if err != nil || err2 != nil || len(key) == 0 || math.Abs(time.Since(time.Unix(at, 0)).Minutes()) > 5 {
		return false
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(h.Get("webhook-id") + "." + h.Get("webhook-timestamp") + "."))
	mac.Write(payload)
	want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	return slices.ContainsFunc(strings.Fields(h.Get("webhook-signature")), func(s string) bool { return hmac.Equal([]byte(s), []byte(want)) })
}

// of returns the messages about a key.
func (re *receiver) of(key string) (all []notification) {
	re.mu.Lock()
	defer re.mu.Unlock()
	for _, m := range re.got {
		if m.Data.Key == key {
			all = append(all, m)
		}
	}
	return all
}

// put makes a target of the receiver, and learns its secret.
func (re *receiver) put(flightd func(args ...string) result, args ...string) {
	re.t.Helper()
	r := flightd(append([]string{"notify", "put", "oncall", "--url", re.URL + "/T0/secret-path", "-o", "json"}, args...)...)
	require.Zero(re.t, r.code, "%s", r)
	var made client.Notify
	require.NoError(re.t, json.Unmarshal([]byte(r.out), &made))
	require.NotContains(re.t, r.out, "secret-path")
	require.True(re.t, strings.HasPrefix(made.Secret, "whsec_"), "%s", r)
	re.mu.Lock()
	defer re.mu.Unlock()
	re.secret = made.Secret
}

// An effect that is killed in the middle is in doubt, and the person on call gets one signed message of it, also when the server is killed
// before the message is taken: with link, command, and the input without what is redacted.
func TestNotify_KilledInMidEffect(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	re := startReceiver(t)
	re.put(s.flightd, "--redact", "exec=/program", "--redact", "exec=/argv", "--reason", "on call")
	r := s.flightd("notify", "test", "oncall")
	require.Zero(t, r.code, "%s", r)
	require.Contains(t, r.out, "answered 204")
	r = s.flightd("notify", "show", "oncall", "-o", "json")
	require.NotContains(t, r.out, "whsec_")

	re.mu.Lock()
	re.answer = func(int) int { return http.StatusServiceUnavailable }
	re.mu.Unlock()
	effect := s.begin("exec", "--key", "refund-7", "--", "sleep", "60")
	Eventually(t, "the effect runs", func() bool { return s.flight("refund-7").State == "running" })
	require.NoError(t, effect.cmd.Process.Signal(syscall.SIGKILL))
	Eventually(t, "the flight is in doubt", func() bool { return s.flight("refund-7").State == "in_doubt" })
	Eventually(t, "the target is failing", func() bool { return strings.Contains(s.flightd("notify", "ls").out, "503") })
	s.kill()
	re.mu.Lock()
	re.answer = nil
	re.mu.Unlock()
	s.start()
	const key = "default/exec/refund-7"
	Eventually(t, "the message arrives", func() bool { return len(re.of(key)) > 0 })
	m := re.of(key)[0]
	require.Equal(t, "flight.in_doubt", m.Type)
	require.Equal(t, "in_doubt", m.Data.State)
	require.Equal(t, s.url()+"/console/#/flight?namespace=default&key=default%2Fexec%2Frefund-7", m.Data.Link)
	require.Contains(t, m.Text, m.Data.Link)
	require.Contains(t, m.Text, "flightd doubt resolve "+key)
	require.Len(t, m.Data.Attempts, 1)
	require.NotEmpty(t, m.Data.Attempts[0].Owner)
	require.WithinDuration(t, time.Now(), m.Data.Attempts[0].SentAt, 3*time.Minute)
	require.NotContains(t, fmt.Sprint(m.Data.Input), "sleep", "it is redacted")
	require.Contains(t, fmt.Sprint(m.Data.Input), "[redacted]")
	// If the position was not stored yet, a restart sends the message again, under its id, and then nothing about the action for a minute.
	s.kill()
	s.start()
	r = s.flightd("exec", "--key", "mail/refund-8", "--failure", "unknown", "--", "sh", "-c", "exit 3")
	require.NotZero(t, r.code)
	Eventually(t, "the next message arrives", func() bool { return len(re.of("default/mail/refund-8")) > 0 })
	for _, again := range re.of(key) {
		require.Equal(t, m.id, again.id)
	}
	re.mu.Lock()
	defer re.mu.Unlock()
	require.Empty(t, re.wrong)
}

// The node that leads is killed again and again, while flights get into doubt and the receiver fails every third time: each doubt is
// notified at least once, nothing else is, and all copies of a message have one id.
func TestNotify_ChangesOfLeader(t *testing.T) {
	t.Parallel()
	c := startTrio(t)
	re := startReceiver(t)
	re.answer = func(n int) int {
		if n%3 == 0 {
			return http.StatusInternalServerError
		}
		return http.StatusNoContent
	}
	re.put(func(args ...string) result { return c.flightd(nil, args...) })
	for round := range leaderChanges {
		lead := c.leader()
		var running sync.WaitGroup
		for i := range 6 {
			running.Go(func() { // some before the kill, some after it
				r := c.flightd(nil, "exec", "--key", fmt.Sprintf("doubt-%d/%d-%d", i, round, i), "--failure", "unknown", "--", "sh", "-c", "exit 3")
				if r.code != cli.ExitFailed && r.code != 3 {
					t.Logf("%s", r)
				}
			})
			_ = c.flightd(nil, "exec", "--key", fmt.Sprintf("paid/%d-%d", round, i), "--", "true")
		}
		c.kill(lead)
		running.Wait()
		c.startNode(lead)
		c.whole()
	}
	r := c.flightd(nil, "doubt", "ls", "-o", "json", "--limit", "1000")
	require.Zero(t, r.code, "%s", r)
	var list struct{ Flights []client.Flight }
	require.NoError(t, json.Unmarshal([]byte(r.out), &list), "%s", r)
	require.GreaterOrEqual(t, len(list.Flights), 3*leaderChanges)
	doubts := map[string]bool{}
	for _, f := range list.Flights {
		doubts[f.Key] = true
	}
	counted := func() (n int, ids map[string]int) { // a receiver takes each id once
		re.mu.Lock()
		defer re.mu.Unlock()
		ids = map[string]int{}
		for _, m := range re.got {
			ids[m.id] = max(1, m.Data.Count)
		}
		for _, count := range ids {
			n += count
		}
		return n, ids
	}
	eventuallyWithin(t, 5*limit, "each doubt is counted", func() bool {
		n, _ := counted()
		return n >= len(doubts)
	})
	_, ids := counted()
	re.mu.Lock()
	defer re.mu.Unlock()
	messages := map[string]string{}
	for _, m := range re.got {
		require.Equal(t, "flight.in_doubt", m.Type)
		require.True(t, m.Data.Count > 1 || doubts[m.Data.Key], "%s was never in doubt", m.Data.Key)
		about := fmt.Sprint(m.Data.Key, m.Data.Count)
		require.Contains(t, []string{"", about}, messages[m.id], "two messages have one id")
		messages[m.id] = about
	}
	require.Empty(t, re.wrong)
	t.Logf("%d changes of leader, %d doubts, %d requests, %d messages taken, %d of them copies", leaderChanges, len(doubts), re.n, len(re.got), len(re.got)-len(ids))
}
