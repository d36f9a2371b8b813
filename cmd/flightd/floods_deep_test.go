//go:build deep

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/proctest"
)

// floodMemory is the memory limit of the node under floods: that of its cgroup if the test may make one, else of GOMEMLIMIT.
const floodMemory = 512 << 20

// The time of the worst call of another namespace beside the floods: the wanted one, which the test reports, and the one with which it fails.
// A machine that does other work takes longer than the node.
const (
	floodWanted = 250 * time.Millisecond
	floodWorst  = 5 * time.Second
)

// How long the floods last, their jobs and actions, and the attempts of one key.
const (
	floodTime    = 90 * time.Second
	floodJobs    = 80_000
	floodActions = 200_000
	floodHistory = 2_000
)

// floodedNode is a flightd serve process with a memory limit.
type floodedNode struct {
	t                     *testing.T
	dir, address, metrics string
	cgroup                string // the directory of its memory cgroup; empty without one
	process               *proctest.Process
}

// newFloodedNode makes a ledger.
func newFloodedNode(t *testing.T) *floodedNode {
	port := proctest.Ports(t)
	n := &floodedNode{t: t, dir: t.TempDir(), address: fmt.Sprint("127.0.0.1:", port), metrics: fmt.Sprint("127.0.0.1:", port+1)}
	out, err := exec.Command(program, "serve", "--init", "--data", n.path("data"), "--first-token-file", n.path("token")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	n.cgroup = makeCgroup(t, floodMemory)
	return n
}

func (n *floodedNode) path(name string) string { return filepath.Join(n.dir, name) }

// makeCgroup makes a memory cgroup below the one of this process, until the test ends. It returns an empty string where that is not possible.
func makeCgroup(t *testing.T, limit int) string {
	groups, _ := os.ReadFile("/proc/self/cgroup")
	for line := range strings.Lines(string(groups)) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, own, _ := strings.Cut(rest, ":")
		if controllers != "memory" { // version 2 permits no processes beside a group below
			continue
		}
		dir := filepath.Join("/sys/fs/cgroup/memory", own, fmt.Sprint("flightd-floods-", os.Getpid()))
		if os.Mkdir(dir, 0o755) != nil {
			return ""
		}
		t.Cleanup(func() { _ = os.Remove(dir) })
		if os.WriteFile(filepath.Join(dir, "memory.limit_in_bytes"), []byte(strconv.Itoa(limit)), 0o644) != nil {
			return ""
		}
		return dir
	}
	return ""
}

// start starts the node, and returns how long it took until it was ready.
func (n *floodedNode) start() time.Duration {
	n.t.Helper()
	spec := proctest.Spec{Name: "node", Path: program, Env: os.Environ(), Log: n.path("log"), ReadyTimeout: 3 * time.Minute,
		Args: []string{"serve", "--data", n.path("data"), "--listen", n.address, "--listen-metrics", n.metrics, "--first-token-file", n.path("token"), "--public-url", "http://" + n.address, "--notify-private"}}
	if n.cgroup == "" {
		spec.Env = append(spec.Env, fmt.Sprint("GOMEMLIMIT=", floodMemory/4*3))
	} else {
		spec.Path, spec.Args = "/bin/sh", append([]string{"-c", `echo $$ >` + n.cgroup + `/cgroup.procs && exec "$0" "$@"`, program}, spec.Args...)
	}
	began := time.Now()
	p, err := proctest.Start(spec)
	require.NoError(n.t, err)
	n.process = p
	n.t.Cleanup(p.Kill)
	ctx, cancel := context.WithTimeout(n.t.Context(), 3*time.Minute)
	defer cancel()
	require.NoError(n.t, proctest.AwaitHTTP(ctx, http.DefaultClient, "http://"+n.address+"/readyz"))
	return time.Since(began)
}

// status returns a field of /proc/PID/status in MiB.
func (n *floodedNode) status(field string) int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.process.Pid()))
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) == 3 && words[0] == field+":" {
			kib, _ := strconv.Atoi(words[1])
			return kib >> 10
		}
	}
	return 0
}

// cpu returns the processor time that the node has used.
func (n *floodedNode) cpu() time.Duration {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n.process.Pid()))
	words := strings.Fields(string(text))
	if len(words) < 15 {
		return 0
	}
	user, _ := strconv.Atoi(words[13])
	system, _ := strconv.Atoi(words[14])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// floodClient calls the API with one token.
type floodClient struct {
	address, token, namespace string
	http                      *http.Client
}

func newFloodClient(address, token, namespace string) *floodClient {
	return &floodClient{address, token, namespace, &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}, Timeout: time.Minute}}
}

// send decodes the answer into into, or drops it. It returns the status, which is 0 after an error of the connection.
func (c *floodClient) send(method, path, contentType string, body io.Reader, into any) (int, error) {
	r, err := http.NewRequest(method, "http://"+c.address+path, body)
	if err != nil {
		return 0, err
	}
	r.Header.Set("Authorization", "Bearer "+c.token)
	r.Header.Set("Flightd-Namespace", c.namespace)
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	answer, err := c.http.Do(r)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	if answer.StatusCode >= 300 {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 500))
		return answer.StatusCode, fmt.Errorf("%s %s: %d %s", method, path, answer.StatusCode, text)
	}
	if into != nil {
		return answer.StatusCode, json.NewDecoder(answer.Body).Decode(into)
	}
	_, err = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode, err
}

func (c *floodClient) post(path string, body, into any) error {
	text, err := json.Marshal(body)
	if err == nil {
		_, err = c.send(http.MethodPost, path, "application/json", strings.NewReader(string(text)), into)
	}
	return err
}

// session creates a session that needs no renewal while the test runs.
func (c *floodClient) session() (string, error) {
	var s struct{ Session string }
	err := c.post("/v1/sessions", map[string]any{"ttl_ms": 600_000}, &s)
	return s.Session, err
}

// latencies are the times that the calls of another namespace took.
type latencies struct {
	calls  []time.Duration
	worst  string
	failed []string
}

func (l *latencies) String() string {
	slices.Sort(l.calls)
	at := func(share float64) time.Duration {
		return l.calls[int(share*float64(len(l.calls)-1))].Round(10 * time.Microsecond)
	}
	return fmt.Sprintf("%d calls: median %v, 99%% within %v, worst %v (%s), %d failed", len(l.calls), at(0.5), at(0.99), at(1), l.worst, len(l.failed))
}

// probe makes the calls of a calm namespace, one at a time, until ctx ends: an open and its report, a submission, its claim and its report.
func probe(ctx context.Context, c *floodClient, name string) *latencies {
	l, began, worst := &latencies{}, time.Now(), time.Duration(0)
	call := func(what, path string, body, into any) bool {
		start := time.Now()
		err := c.post(path, body, into)
		took := time.Since(start)
		if l.calls = append(l.calls, took); took > worst {
			worst, l.worst = took, fmt.Sprintf("%s after %v", what, start.Sub(began).Round(100*time.Millisecond))
		}
		if err != nil {
			l.failed = append(l.failed, err.Error())
		}
		return err == nil
	}
	var session string
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ctx.Err() == nil; i++ {
		if session == "" {
			session, _ = c.session()
		}
		id := fmt.Sprint(name, "-", i)
		if i%2 == 0 {
			var a wire.OpenAnswer
			if call("open", "/v1/flights:open", map[string]any{"action": "pay", "id": id, "nonce": "nonce-0123456789-" + id, "wait_ms": 0, "session": session}, &a) {
				call("report", "/v1/flights/"+a.FlightID+"/report", map[string]any{"fencing_token": a.FencingToken, "outcome": "succeeded"}, nil)
			}
		} else {
			var a wire.ClaimAnswer
			call("submit", "/v1/flights:submit", map[string]any{"action": "job", "id": id, "input": 1}, nil)
			call("claim", "/v1/flights:claim", map[string]any{"session": session, "nonce": "claim-0123456789-" + id, "actions": []string{"job"}, "slots": 1, "wait_ms": 0}, &a)
			for _, j := range a.Jobs {
				call("report of a job", "/v1/flights/"+j.FlightID+"/report", map[string]any{"fencing_token": j.FencingToken, "outcome": "succeeded"}, nil)
			}
			if len(a.Jobs) == 0 {
				l.failed = append(l.failed, "the claim brought no job")
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	return l
}

// probeFor is probe for a time.
func probeFor(t *testing.T, c *floodClient, name string, d time.Duration) *latencies {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	return probe(ctx, c, name)
}

// slowTarget is a target of notifications that takes 53 ms for each. It notes when the first one about a namespace arrives.
type slowTarget struct {
	*httptest.Server
	messages atomic.Int64
	calm     chan time.Time
}

func newSlowTarget(t *testing.T) *slowTarget {
	s := &slowTarget{calm: make(chan time.Time, 1)}
	s.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.messages.Add(1)
		if strings.Contains(string(body), "calm/") {
			select {
			case s.calm <- time.Now():
			default:
			}
		}
		time.Sleep(53 * time.Millisecond)
	}))
	t.Cleanup(s.Close)
	return s
}

// TestFloods floods a node with everything that one token may send, all at once: great lanes whose jobs are worked on, claims that
// name unknown actions, large answers that nobody reads, bodies of callbacks that never end, as many actions as jobs that are due at
// one time, reads of their queues, and approvals with a slow target of notifications. Calls of another namespace are answered, the
// memory stays within its limit, and the next start is as fast as that of a node that was stopped.
func TestFloods(t *testing.T) {
	n, target := newFloodedNode(t), newSlowTarget(t)
	empty := n.start()
	first, err := os.ReadFile(n.path("token"))
	require.NoError(t, err)
	admin := newFloodClient(n.address, strings.TrimSpace(string(first)), "")
	clients := map[string]*floodClient{}
	for _, ns := range []string{"calm", "flood"} {
		var made struct{ Token string }
		require.NoError(t, admin.post("/v1/tokens", map[string]any{"name": ns, "namespace": ns, "verbs": []string{"submit", "work", "read"}, "reason": "test"}, &made))
		clients[ns] = newFloodClient(n.address, made.Token, ns)
	}
	_, err = admin.send(http.MethodPut, "/v1/notify/slow", "application/json", strings.NewReader(fmt.Sprintf(`{"url":%q,"reason":"test"}`, target.URL)), nil)
	require.NoError(t, err)

	probeFor(t, clients["calm"], "warm", time.Second)
	quiet := probeFor(t, clients["calm"], "quiet", floodTime/4)
	t.Logf("without floods: %v", quiet)

	flood := startFlood(t, n, clients["flood"].token)
	cpu, began := n.cpu(), time.Now()
	var doubt sync.WaitGroup
	doubt.Go(func() { askForPerson(t, clients["calm"], target) })
	beside := probeFor(t, clients["calm"], "beside", floodTime)
	doubt.Wait()
	t.Logf("beside the floods: %v", beside)
	t.Logf("the node used %.2f cores, its memory was %d MiB at most, %d MiB in the end", (n.cpu()-cpu).Seconds()/time.Since(began).Seconds(), n.status("VmHWM"), n.status("VmRSS"))
	peak := n.status("VmHWM")
	if n.cgroup != "" {
		failures, _ := os.ReadFile(filepath.Join(n.cgroup, "memory.failcnt"))
		t.Logf("a cgroup of %d MiB, whose page cache was reclaimed %s times", floodMemory>>20, strings.TrimSpace(string(failures)))
	}
	t.Logf("the slow target got %d messages", target.messages.Load())
	n.process.Kill()
	flood.Kill()
	afterKill := n.start()
	require.NoError(t, n.process.Stop(time.Minute))
	afterStop := n.start()
	t.Logf("starts: %v with an empty ledger, %v after SIGKILL under floods, %v after a stop of the same ledger",
		empty.Round(time.Millisecond), afterKill.Round(time.Millisecond), afterStop.Round(time.Millisecond))
	require.Empty(t, beside.failed)
	require.Less(t, peak, floodMemory>>20)
	require.Less(t, afterKill, afterStop+2*time.Second)
	worst := slices.Max(beside.calls)
	if worst >= floodWanted {
		t.Logf("MISSED: the worst call took %v, %v is wanted", worst.Round(time.Millisecond), floodWanted)
	}
	require.Less(t, worst, floodWorst)
}

// askForPerson makes a doubt of the calm namespace in the middle of the floods, and logs when the slow target is told.
func askForPerson(t *testing.T, c *floodClient, target *slowTarget) {
	timer := time.NewTimer(floodTime / 2)
	defer timer.Stop()
	<-timer.C
	var a wire.OpenAnswer
	began := time.Now()
	err := c.post("/v1/flights:open", map[string]any{"action": "doubt", "id": "1", "nonce": "nonce-0123456789", "wait_ms": 0}, &a)
	if err == nil {
		err = c.post("/v1/flights/"+a.FlightID+"/report", map[string]any{"fencing_token": a.FencingToken, "outcome": "unknown"}, nil)
	}
	select {
	case at := <-target.calm:
		t.Logf("a doubt of the calm namespace was at the slow target after %v", at.Sub(began).Round(time.Millisecond))
	case <-time.After(time.Minute): // a busy machine takes longer
		t.Errorf("a doubt of the calm namespace did not reach the slow target: %v", err)
	}
}

// startFlood starts the process that floods: with the lowest priority, and with one thread that runs Go.
func startFlood(t *testing.T, n *floodedNode, token string) *proctest.Process {
	p, err := proctest.Start(proctest.Spec{Name: "flood", Path: os.Args[0], Args: []string{"-test.run=^TestFloods_Process$", "-test.v"}, Log: n.path("flood-log"),
		Env:  append(os.Environ(), "FLIGHTD_TEST_PARENT=flood", "FLIGHTD_TEST_FLOOD="+n.address+" "+n.metrics+" "+token, "GOMAXPROCS=1"),
		Line: func(line string) { t.Log("flood: ", line) }})
	require.NoError(t, err)
	t.Cleanup(p.Kill)
	require.NoError(t, syscall.Setpriority(syscall.PRIO_PROCESS, p.Pid(), 19))
	return p
}

// flooder sends everything that one token may send.
type flooder struct {
	*floodClient
	metrics string
	due     time.Time
	t       *testing.T

	mu     sync.Mutex // guards the fields below
	counts map[string]int
	errors map[string]string
}

func (f *flooder) count(what string, n int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		what += " rejected"
		f.errors[what] = err.Error()
	}
	f.counts[what] += n
}

// TestFloods_Process is the process that floods.
func TestFloods_Process(t *testing.T) {
	words := strings.Fields(os.Getenv("FLIGHTD_TEST_FLOOD"))
	if len(words) != 3 {
		t.Skip("TestFloods starts it")
	}
	f := &flooder{floodClient: newFloodClient(words[0], words[2], "flood"), metrics: words[1], due: time.Now().Add(floodTime / 2), t: t, counts: map[string]int{}, errors: map[string]string{}}
	for _, flood := range []func(){f.actions, f.lanes, f.approvals, f.callbacks, f.unread, f.queues, f.scrapes} {
		go flood()
	}
	for range 4 {
		go f.unknown()
	}
	for begun := time.Now(); ; {
		time.Sleep(floodTime / 4)
		var used syscall.Rusage
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used)
		f.mu.Lock()
		fmt.Printf("after %v, with %.2f cores: %v\n", time.Since(begun).Round(time.Second), time.Duration(used.Utime.Nano()+used.Stime.Nano()).Seconds()/time.Since(begun).Seconds(), f.counts)
		for what, err := range f.errors {
			fmt.Println(what, err)
		}
		f.mu.Unlock()
	}
}

// submit submits jobs, so many in one request. line writes the fields of each.
func (f *flooder) submit(what string, jobs, step int, line func(i int) string) {
	for from := 0; from < jobs; from += step {
		var lines strings.Builder
		for i := from; i < min(jobs, from+step); i++ {
			lines.WriteString("{" + line(i) + "}\n")
		}
		_, err := f.send(http.MethodPost, "/v1/flights:submit", "application/x-ndjson", strings.NewReader(lines.String()), nil)
		f.count(what, step, err)
	}
}

// actions submits one job of each of many actions, all of them due at one time.
func (f *flooder) actions() {
	at := f.due.UTC().Format("2006-01-02T15:04:05.000Z")
	f.submit("jobs of an action each", floodActions, 1000, func(i int) string {
		return fmt.Sprintf(`"action":"action-%d","id":"due","run_at":%q`, i, at)
	})
	f.submit("jobs due at one time", floodJobs, 1000, func(i int) string { return fmt.Sprintf(`"action":"due","id":"%d","run_at":%q`, i, at) })
}

// lanes submits jobs of one lane with the greatest limit, and works on them.
func (f *flooder) lanes() {
	f.submit("jobs of a lane", floodJobs/10, 1000, func(i int) string { return fmt.Sprintf(`"action":"lane","id":"%d","lane":"l","lane_limit":1000`, i) })
	for range 2 {
		go f.work()
	}
	f.submit("jobs of a lane", floodJobs/10*9, 1000, func(i int) string { return fmt.Sprintf(`"action":"lane","id":"b%d","lane":"l","lane_limit":1000`, i) })
}

func (f *flooder) work() {
	session, err := f.session()
	f.count("sessions of workers", 1, err)
	for i := 0; ; i++ {
		var a wire.ClaimAnswer
		err := f.post("/v1/flights:claim", map[string]any{"session": session, "nonce": fmt.Sprint("work-0123456789-", i), "actions": []string{"lane"}, "slots": 64, "wait_ms": 1000}, &a)
		if len(a.Jobs) == 0 {
			f.count("claims", 1, err)
			continue
		}
		var lines strings.Builder
		for _, j := range a.Jobs {
			fmt.Fprintf(&lines, `{"report":{"fencing_token":%q,"outcome":"succeeded"},"flight_id":%q}`+"\n", j.FencingToken, j.FlightID)
		}
		_, err = f.send(http.MethodPost, "/v1/flights:batch", "application/x-ndjson", strings.NewReader(lines.String()), nil)
		f.count("jobs worked on", len(a.Jobs), err)
	}
}

// approvals submits a thousand jobs that each need an approval.
func (f *flooder) approvals() {
	f.submit("approvals", 1000, 100, func(i int) string { return fmt.Sprintf(`"action":"approve","id":"%d","approval":{}`, i) })
}

// unknown claims jobs of actions that do not exist, under many sessions.
func (f *flooder) unknown() {
	var sessions []string
	for i := 0; ; i++ {
		if len(sessions) < 100 {
			s, err := f.session()
			f.count("sessions", 1, err)
			sessions = append(sessions, s)
		}
		var names []string
		for k := range wire.MaxClaimActions {
			names = append(names, fmt.Sprintf("unknown-%p-%d-%d-%s", &sessions, i, k, strings.Repeat("x", 150)))
		}
		f.count("claims of unknown actions", 1, f.post("/v1/flights:claim", map[string]any{"session": sessions[i%len(sessions)], "nonce": fmt.Sprintf("nonce-0123456789-%p-%d", &sessions, i), "actions": names, "slots": 1, "wait_ms": 0}, nil))
	}
}

func (f *flooder) queues() {
	for {
		_, err := f.send(http.MethodGet, "/v1/queues", "", http.NoBody, nil)
		f.count("reads of the queues", 1, err)
	}
}

func (f *flooder) scrapes() {
	for {
		answer, err := http.Get("http://" + f.metrics + "/metrics")
		if err == nil {
			_, err = io.Copy(io.Discard, answer.Body)
			_ = answer.Body.Close()
		}
		f.count("scrapes", 1, err)
		time.Sleep(100 * time.Millisecond)
	}
}

// hold sends the beginning of a request on each of n connections, and does not read. A connection that ends is made again.
func (f *flooder) hold(what string, n int, request func(i int) string) {
	for i := range n {
		go func() {
			for {
				c, err := net.Dial("tcp", f.address)
				if err == nil {
					_ = c.(*net.TCPConn).SetReadBuffer(4096)
					if _, err = io.WriteString(c, request(i)); err == nil {
						f.count(what, 1, nil)
						for err == nil { // the connection has ended when nothing more can be written
							time.Sleep(time.Second)
							_, err = io.WriteString(c, "x")
						}
					}
					_ = c.Close()
				}
				time.Sleep(100 * time.Millisecond)
			}
		}()
	}
}

func (f *flooder) head(method, path string, length int) string {
	return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nFlightd-Namespace: flood\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", method, path, f.address, f.token, length)
}

// callbacks holds bodies of 3 MiB open at the callback URL of a flight that has ended, and of one that has not.
func (f *flooder) callbacks() {
	var urls []string
	for i := range 2 {
		var a wire.OpenAnswer
		err := f.post("/v1/flights:open", map[string]any{"action": "render", "id": fmt.Sprint(i), "nonce": fmt.Sprint("nonce-0123456789-", i), "callback": true, "ttl_ms": 600_000}, &a)
		if i == 0 && err == nil {
			err = f.post("/v1/flights/"+a.FlightID+"/report", map[string]any{"fencing_token": a.FencingToken, "outcome": "succeeded"}, nil)
		}
		f.count("flights with a callback", 1, err)
		urls = append(urls, strings.TrimPrefix(a.CallbackURL, "http://"+f.address))
	}
	for _, url := range urls {
		f.hold("bodies of callbacks", 41, func(int) string {
			return f.head("POST", url, 3<<20) + `{"outcome":"succeeded","body":"` + strings.Repeat("x", 3<<20-200)
		})
	}
}

// unread asks for large answers and reads none.
func (f *flooder) unread() {
	session, err := f.session()
	f.count("sessions", 1, err)
	f.submit("large jobs", 16, 16, func(i int) string {
		return fmt.Sprintf(`"action":"large","id":"%d","input":"%s"`, i, strings.Repeat("x", 250<<10))
	})
	claim := fmt.Sprintf(`{"session":%q,"nonce":"large-0123456789","actions":["large"],"slots":16,"wait_ms":0,"not_after":%d}`, session, time.Now().Add(50*time.Second).UnixMilli())
	history := f.history(session)
	f.hold("answers that nobody reads", 40, func(i int) string {
		switch i % 4 {
		case 0:
			return f.head("GET", "/v1/queues", 0)
		case 1:
			return f.head("GET", "/v1/flights/"+history+"/events", 0)
		}
		return f.head("POST", "/v1/flights:claim", len(claim)) + claim
	})
}

// history makes a flight with a long history, and returns its id.
func (f *flooder) history(session string) string {
	var a wire.OpenAnswer
	for i := range floodHistory {
		err := f.post("/v1/flights:open", map[string]any{"action": "history", "id": "1", "nonce": fmt.Sprint("nonce-0123456789-", i), "session": session, "wait_ms": 0}, &a)
		if err == nil {
			err = f.post("/v1/flights/"+a.FlightID+"/report", map[string]any{"fencing_token": a.FencingToken, "outcome": "not_done", "error": strings.Repeat("x", 1000)}, nil)
		}
		f.count("attempts of one key", 1, err)
	}
	return a.FlightID
}
