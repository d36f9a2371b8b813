package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/internal/proctest"
)

// runbook are the blocks of commands under "Back up and restore" in docs/operations.md.
type runbook struct {
	t      *testing.T
	dir    string // where the commands run
	env    []string
	blocks []string
	system *strings.Replacer // of the directories and addresses of the page
}

func openRunbook(t *testing.T, dir string, replaced ...string) *runbook {
	page, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(page), "\n## Back up and restore\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	b := &runbook{t: t, dir: dir, system: strings.NewReplacer(append([]string{"/var/lib/", dir + "/"}, replaced...)...),
		env: append(os.Environ(), "PATH="+filepath.Dir(program)+":"+os.Getenv("PATH"), "XDG_STATE_HOME="+dir)}
	for _, m := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllStringSubmatch(section, -1) {
		b.blocks = append(b.blocks, m[1])
	}
	return b
}

// command returns the only block that contains a text, as a command.
func (r *runbook) command(part string, more ...string) *exec.Cmd {
	r.t.Helper()
	text := ""
	for _, block := range r.blocks {
		if strings.Contains(block, part) {
			require.Empty(r.t, text, "two blocks have %q", part)
			text = block
		}
	}
	require.NotEmpty(r.t, text, "no block has %q", part)
	c := exec.Command("sh", "-ec", strings.TrimSuffix(r.system.Replace(text), "\n")+" "+strings.Join(more, " "))
	c.Dir, c.Env = r.dir, r.env
	return c
}

// run runs the block of command and returns its output.
func (r *runbook) run(part string, more ...string) string {
	r.t.Helper()
	out, err := r.command(part, more...).CombinedOutput()
	require.NoError(r.t, err, "%s: %s", part, out)
	return string(out)
}

// TestRestore_Runbook runs the commands of docs/operations.md: the backup of a cluster becomes one node and then three, and the effects
// since the backup do not happen again.
func TestRestore_Runbook(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var replaced []string
	var found []string
	for i, name := range []string{"a", "b", "c"} {
		replaced = append(replaced, fmt.Sprintf("10.0.0.%d:7430", i+1), proctest.Address(t))
		found = append(found, "--node", name+"="+proctest.Address(t))
	}
	b := openRunbook(t, dir, replaced...)
	token := filepath.Join(dir, "first-token")
	out, err := exec.Command(program, append(found, "cluster", "found", "--out", filepath.Join(dir, "cluster"), "--first-token-file", token)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	var addresses []string
	for range 3 {
		addresses = append(addresses, proctest.Address(t))
	}
	b.env = append(b.env, "FLIGHTD_TOKEN_FILE="+token, "FLIGHTD_ADDR=http://"+strings.Join(addresses, ",http://"))
	log := new(lockedBuffer)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(log.String())
		}
	})
	start := func(cluster string, data map[string]string) (kill func()) {
		var all []*exec.Cmd
		for i, name := range []string{"a", "b", "c"} {
			serve := exec.Command(program, "serve", "--cluster", filepath.Join(dir, cluster, name), "--data", filepath.Join(dir, data[name]), "--listen", addresses[i])
			serve.Stderr = log
			require.NoError(t, serve.Start())
			all = append(all, serve)
		}
		kill = func() {
			for _, serve := range all {
				_ = serve.Process.Kill()
				_ = serve.Wait()
			}
		}
		t.Cleanup(kill)
		return kill
	}
	shell := func(text string) (string, error) {
		c := exec.Command("sh", "-ec", text)
		c.Dir, c.Env = dir, b.env
		out, err := c.CombinedOutput()
		return string(out), err
	}
	pay := func(n int) (string, error) {
		return shell(fmt.Sprintf(`flightd exec --key pay-%d --wait 0 -- sh -c 'echo pay-%d >>books; echo paid'`, n, n))
	}
	paid := func(n int) {
		t.Helper()
		Eventually(t, fmt.Sprintf("pay-%d is answered", n), func() bool { _, err := pay(n); return err == nil })
	}
	kill := start("cluster", map[string]string{"a": "a1", "b": "b1", "c": "c1"})
	paid(1)
	b.run("flightd backup")
	paid(2)
	kill()

	b.run("flightd restore --from /var/lib")
	refused := exec.Command(program, "serve", "--cluster", filepath.Join(dir, "cluster/a"), "--data", filepath.Join(dir, "flightd-restored"), "--listen", addresses[0])
	out, err = refused.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "flightd cluster found --from", "the founding directory of the lost cluster")
	b.run("flightd cluster found --from /var/lib")
	start("cluster-restored", map[string]string{"a": "flightd-restored", "b": "b2", "c": "c2"})
	paid(1)
	said, err := pay(2)
	require.Error(t, err)
	require.Contains(t, said, "reconciling")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "happened.ndjson"), []byte(`{"key":"default/exec/pay-2","outcome":"succeeded","body":"paid"}`+"\n"), 0o600))
	b.run("flightd restore asked")
	keys, err := os.ReadFile(filepath.Join(dir, "keys.txt"))
	require.NoError(t, err)
	require.Equal(t, "default/exec/pay-2\n", string(keys))
	for _, data := range []string{"flightd-restored", "b2", "c2"} { // any node may be the next to lead, and to be asked for the keys
		Eventually(t, data+" has the keys", func() bool {
			asked, _ := os.ReadFile(filepath.Join(dir, data, "ASKED"))
			return string(asked) == string(keys)
		})
	}
	early, err := b.command("flightd restore finish").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(early), "the hold lasts")
	b.run("flightd restore finish", "--force")
	paid(2)
	paid(3)
	status := ""
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(status)
		}
	})
	Eventually(t, "three nodes again", func() bool {
		status, err = shell("flightd cluster status")
		return err == nil && len(regexp.MustCompile(`(?m)^[abc] .* ok .* -$`).FindAllString(status, -1)) == 3
	})
	books, err := os.ReadFile(filepath.Join(dir, "books"))
	require.NoError(t, err)
	require.Equal(t, "pay-1\npay-2\npay-3\n", string(books))
}

// TestRestore_ClusterCycles: three nodes under load, a backup, more load, and the death of all nodes; the backup becomes one voter and then three
// nodes, as docs/operations.md prints it for flightd dev --nodes 3. Reports of the lost cluster arrive before and after the end of the restore. No
// key's effect happens twice without the operator's word, and each cycle begins with the three nodes of the one before. The hold is cut short by
// --force: every caller of the lost cluster has ended, or only reports.
func TestRestore_ClusterCycles(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	c, a := startTrio(t), newAgency(t)
	w := newRestoreWorld(&server{t: t, state: c.state}, seed)
	everyNode := func() { w.address = strings.TrimPrefix(c.urls[w.rng.IntN(3)], "http://") }
	var sagas, jobs []string
	for w.cycle = range clusterRestoreCycles {
		c.whole()
		everyNode()
		require.Zero(t, w.flightd("sagas", "apply", a.path("trip.yaml")).code)
		begin := func(kind string, n int) {
			for i := range n {
				id := fmt.Sprintf("%s-%d-%d", kind, w.cycle, i)
				require.Zero(t, c.flightd(nil, "sagas", "start", "trip", "--id", id, "--input", `{"cents":12,"mail":"ann@example.com"}`).code)
				require.Zero(t, c.flightd(nil, "submit", "mail", id, "--input", "{}").code)
				sagas, jobs = append(sagas, id), append(jobs, id)
			}
		}
		all := func() *server {
			return &server{t: t, state: c.state, address: strings.TrimPrefix(strings.Join(c.urls, ","), "http://")}
		}
		work := func() (stop func(syscall.Signal)) {
			worker := all().begin("work", "hotel.book", "seat.book", "charge", "mail", "hotel.cancel", "seat.cancel", "--concurrency", "4", "--", a.path("job.sh"))
			return func(by syscall.Signal) {
				worker.signal(by)
				_ = worker.cmd.Wait()
			}
		}
		begin("before", 3)
		stop := work()
		for range 3 {
			everyNode()
			w.act(t, 1+w.rng.IntN(5))
		}
		stop(syscall.SIGTERM) // an attempt of a worker that the backup has as open would block its key until the hold is over
		backup := filepath.Join(t.TempDir(), "flightd-backup")
		backingUp := all().begin("backup", backup)
		for range 4 {
			everyNode()
			w.act(t, 1+w.rng.IntN(5))
		}
		made := backingUp.wait()
		require.Zero(t, made.code, "%v", made)
		begin("after", 2)
		stop = work()
		for range 4 {
			everyNode()
			w.act(t, 1+w.rng.IntN(5))
		}
		for n := 1; n <= 3; n++ {
			c.kill(n)
		}
		c.stop()
		stop(syscall.SIGKILL)

		_, port, err := net.SplitHostPort(c.listen)
		require.NoError(t, err)
		first, err := strconv.Atoi(port)
		require.NoError(t, err)
		b := openRunbook(t, filepath.Dir(backup), ":7522", fmt.Sprint(":", first+102), ":7524", fmt.Sprint(":", first+104), ":7526", fmt.Sprint(":", first+106),
			"flightd dev --nodes 3 --data flightd-again", "true")
		b.run("flightd dev --nodes 3")
		c.data = filepath.Join(filepath.Dir(backup), "flightd-again")
		c.start()
		c.whole()
		everyNode()
		for key := range w.effect {
			if decision, _ := w.open(t, key); decision == "proceed" {
				t.Fatalf("%s opens in a restored ledger, cycle %d", key, w.cycle)
			}
		}
		w.sendLate(t, 0.5)
		books := a.all()
		var receipts strings.Builder
		for _, entry := range books {
			id, _, step := strings.Cut(entry, "#")
			key := "default/mail/" + id
			if step {
				key = "default/trip/" + entry
			}
			fmt.Fprintf(&receipts, `{"key":%q,"outcome":"succeeded","body":{"id":"room_17","pnr":"X7"}}`+"\n", key)
		}
		for key := range w.effect { // a key with an open attempt in the backup and without a withheld report would be blocked until the end of the hold
			state := w.state(key)
			switch {
			case state == "succeeded":
			case !w.busy[key] && (state == "running" || w.rng.IntN(3) > 0):
				fmt.Fprintf(&receipts, `{"key":%q,"outcome":"succeeded"}`+"\n", key)
			default:
				w.words[key]++
			}
		}
		a.write("receipts.ndjson", receipts.String())
		imported := c.flightd(nil, "import", a.path("receipts.ndjson"))
		require.NotContains(t, imported.err+imported.out, "the flight is", "%v", imported) // those of earlier cycles have other receipts, and are not changed
		everyNode()
		w.post("/v1/restore:finish", fmt.Sprintf(`{"force":true,"reason":"cycle %d","actor":"ada"}`, w.cycle), nil)
		w.sendLate(t, 0.5)
		w.settle(t)
		begin("after", 2)
		stop = work()
		for i := range sagas {
			over := c.flightd(nil, "sagas", "watch", "trip/"+sagas[i])
			require.Zero(t, over.code, "%v", over)
			over = c.flightd(nil, "flights", "wait", "mail/"+jobs[i])
			require.Zero(t, over.code, "%v", over)
		}
		stop(syscall.SIGTERM)
		sagas, jobs = nil, nil
	}
	again := 0
	for key, n := range w.effect {
		require.LessOrEqual(t, n, 1+w.words[key], "effects of %s", key)
		if n > 1 {
			again++
		}
	}
	seen := map[string]bool{}
	for _, entry := range a.all() {
		require.False(t, seen[entry], "%s happened twice", entry)
		seen[entry] = true
	}
	c.whole()
	t.Logf("%d cycles, %d keys, %d of them acted again by the operator's word; %d effects of jobs and steps, none twice", clusterRestoreCycles, len(w.effect), again, len(seen))
}

// all returns the jobs and the steps that have happened, as often as they have.
func (a *agency) all() (entries []string) {
	text, _ := os.ReadFile(a.path("books"))
	for line := range strings.Lines(string(text)) {
		entry, _, _ := strings.Cut(line, " ")
		entries = append(entries, entry)
	}
	return entries
}
