package node

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/wire"
	"github.com/flightd/flightd/lease"
	"github.com/flightd/flightd/lease/etcdlease"
)

// openAgain opens the key of openAttempt as another caller and returns the answer.
func openAgain(t *testing.T, in *testNode, id string) (status int, body string) {
	t.Helper()
	status, body, err := post(in.server.url()+"/v1/flights:open", `{"action":"pay","id":"`+id+`","input":{"n":1},"nonce":"`+nonce("again-"+id)+`","wait_ms":0}`)
	if err != nil {
		t.Fatal(err)
	}
	return status, body
}

// startError starts a node that should fail and returns the error; nil: the node became ready.
func startError(t *testing.T, cfg Config) error {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	cfg.Ready = func(Ready) { stop() }
	return Run(ctx, cfg)
}

// A start with a restored or lost etcd fails until an operator gives a reason. After that no receipt is missing, new
// keys execute, and an attempt that was open is not taken over.
func TestHazard20_ALostEtcdIsAcceptedByAPersonAlone(t *testing.T) {
	data := t.TempDir()
	etcdDir, older := filepath.Join(data, "etcd"), filepath.Join(t.TempDir(), "older")
	in := open(t, data, nil)
	openAttempt(t, in.server.url(), "before")
	if err := in.stopNode(); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(older, os.DirFS(etcdDir)); err != nil {
		t.Fatal(err)
	}

	in = open(t, data, nil)
	paid := openAttempt(t, in.server.url(), "paid")
	if status, body := report(t, in.server.url(), paid); status != http.StatusOK {
		t.Fatalf("report: %d %s", status, body)
	}
	running := openAttempt(t, in.server.url(), "running")
	if err := in.stopNode(); err != nil {
		t.Fatal(err)
	}

	losses := []struct {
		name string
		lose func() error
	}{
		{"an older copy", func() error { return errors.Join(os.RemoveAll(etcdDir), os.CopyFS(etcdDir, os.DirFS(older))) }},
		{"nothing left", func() error { return os.RemoveAll(etcdDir) }},
	}
	for i, loss := range losses {
		if err := loss.lose(); err != nil {
			t.Fatal(err)
		}
		cfg := Dev(data, "127.0.0.1:0")
		if err := startError(t, cfg); !errors.Is(err, lease.ErrRegressed) {
			t.Fatalf("%s: the start returned %v", loss.name, err)
		}
		cfg.RaiseLeaseEpoch, cfg.Actor = "the disk of etcd died", "ann"
		for start := range 2 { // the second one finds nothing to raise
			in = openConfig(t, cfg)
			openAttempt(t, in.server.url(), fmt.Sprintf("new-%d-%d", i, start))
			if epoch := in.store.Header().LeaseEpoch; epoch != uint32(i)+2 {
				t.Errorf("%s: the lease epoch is %d", loss.name, epoch)
			}
			if hold := in.store.Header().EpochHold.Until(in.store.Now()); hold > lease.MaxTTL || hold < lease.MaxTTL-time.Minute {
				t.Errorf("%s: the hold of open attempts is %v", loss.name, hold)
			}
			if status, body := openAgain(t, in, "paid"); status != http.StatusOK || !strings.Contains(body, `"`+string(wire.DecisionReplay)+`"`) {
				t.Errorf("%s: the receipt: %d %s", loss.name, status, body)
			}
			status, body := openAgain(t, in, "running")
			if err := in.sweeper.Sweep(t.Context()); err != nil {
				t.Error(err)
			}
			id, err := flight.ParseID(running.FlightID)
			if err != nil {
				t.Fatal(err)
			}
			if f, err := in.store.Flight(id); err != nil || f.OpenAttempt() == nil || f.AttemptNumber() != 1 || status == http.StatusCreated {
				t.Errorf("%s: an open attempt was taken over: %v, %d %s", loss.name, err, status, body)
			}
			if err := in.stopNode(); err != nil {
				t.Fatal(err)
			}
		}
	}

	in = open(t, data, nil)
	if status, body := report(t, in.server.url(), running); status != http.StatusOK || !strings.Contains(body, `"succeeded"`) {
		t.Errorf("report of the open attempt: %d %s", status, body)
	}
}

func knownIndex(t *testing.T, e *etcd, deployment string) uint64 {
	t.Helper()
	known, err := etcdlease.LedgerIndex(t.Context(), e.client, deployment)
	if err != nil {
		t.Fatal(err)
	}
	return known
}

// A ledger restored from a backup without its etcd would repeat the effects since the backup, so the start fails. An
// operator without a newer ledger removes etcd's data, too, and gives a reason.
func TestOlderLedgerIsRejected(t *testing.T) {
	data := t.TempDir()
	dir, older := filepath.Join(data, "ledger"), filepath.Join(t.TempDir(), "older")
	in := open(t, data, nil)
	openAttempt(t, in.server.url(), "early")
	if err := in.stopNode(); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(older, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	for _, meanwhile := range []bool{false, true} {
		in = open(t, data, func(u *tuning) {
			u.indexEvery = time.Hour
			if meanwhile {
				u.indexEvery = time.Millisecond
			}
		})
		paid := openAttempt(t, in.server.url(), fmt.Sprintf("paid-%v", meanwhile))
		if status, body := report(t, in.server.url(), paid); status != http.StatusOK {
			t.Fatalf("report: %d %s", status, body)
		}
		deployment := in.store.Header().Deployment
		index, _ := in.store.Applied()
		if meanwhile {
			await(t, "the index is recorded in etcd", func() bool { return knownIndex(t, in.etcd, deployment) >= index })
		}
		if err := in.stopNode(); err != nil {
			t.Fatal(err)
		}
		e, err := startEtcd(t.Context(), etcdConfig(filepath.Join(data, "etcd"), etcdQuota, in.cfg.Logger), clusterstore.Kill)
		if err != nil {
			t.Fatal(err)
		}
		if known := knownIndex(t, e, deployment); known < index {
			t.Errorf("etcd has recorded entry %d at the stop, want %d", known, index)
		}
		e.close()
		if in = open(t, data, nil); in.stopNode() != nil { // the newest ledger is accepted
			t.Fatal("the stop failed")
		}
		newest := filepath.Join(t.TempDir(), "newest")
		if err := errors.Join(os.Rename(dir, newest), os.CopyFS(dir, os.DirFS(older))); err != nil {
			t.Fatal(err)
		}
		cfg := Dev(data, "127.0.0.1:0")
		for _, why := range []string{"", "a reason for something else"} {
			var lost *LedgerLostError
			if cfg.RaiseLeaseEpoch = why; !errors.As(startError(t, cfg), &lost) || lost.LedgerIndex >= lost.EtcdIndex {
				t.Fatalf("with the older ledger: %+v", lost)
			}
		}
		if err := errors.Join(os.RemoveAll(dir), os.Rename(newest, dir)); err != nil {
			t.Fatal(err)
		}
	}

	if err := errors.Join(os.RemoveAll(dir), os.CopyFS(dir, os.DirFS(older)), os.RemoveAll(filepath.Join(data, "etcd"))); err != nil {
		t.Fatal(err)
	}
	cfg := Dev(data, "127.0.0.1:0")
	cfg.RaiseLeaseEpoch = "the newer ledger is gone for good"
	in = openConfig(t, cfg)
	openAttempt(t, in.server.url(), "late")
}

// A damaged value in etcd is an *EtcdError, whose hint repairs it, too: move etcd's directory away and raise the epoch.
func TestUnreadableEtcdValueIsAnEtcdError(t *testing.T) {
	for _, name := range []string{"ledger", "guard"} {
		data := t.TempDir()
		in := open(t, data, func(u *tuning) { u.indexEvery = time.Hour })
		openAttempt(t, in.server.url(), "one")
		prefix := etcdlease.DefaultPrefix(in.store.Header().Deployment)
		if err := in.stopNode(); err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(data, "etcd")
		e, err := startEtcd(t.Context(), etcdConfig(dir, etcdQuota, in.cfg.Logger), clusterstore.Kill)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = e.client.Put(t.Context(), prefix+name, "1\x80"); err != nil {
			t.Fatal(err)
		}
		e.close()
		cfg := Dev(data, "127.0.0.1:0")
		var broken *EtcdError
		if err := startError(t, cfg); !errors.As(err, &broken) || broken.Dir != dir {
			t.Fatalf("%s: the start returned %v", name, err)
		}
		if err := os.Rename(dir, filepath.Join(t.TempDir(), "aside")); err != nil {
			t.Fatal(err)
		}
		cfg.RaiseLeaseEpoch = "its etcd was damaged"
		in = openConfig(t, cfg)
		openAttempt(t, in.server.url(), "two")
	}
}
