package clusterstore

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

func tokenID(name string) flight.DocumentID {
	return flight.DocumentID{Namespace: "billing", Kind: flight.KindToken, Name: name}
}

// changeDocuments puts, changes and deletes documents.
func changeDocuments(t *testing.T, s *Store) {
	t.Helper()
	for n := range 4 {
		id := tokenID(fmt.Sprint("worker-", n))
		first := propose(t, s, &flight.PutDocument{ID: id, Body: []byte("one"), Actor: "ann", Reason: "new"})
		require.Equal(t, flight.DecisionAccepted, first.Decision)
		changed := propose(t, s, &flight.PutDocument{ID: id, Expect: first.Document.Version, Body: []byte("two"), Actor: "bob"})
		switch n {
		case 2:
			propose(t, s, &flight.DeleteDocument{ID: id, Expect: changed.Document.Version, Actor: "bob", Reason: "leaked"})
		case 3: // of an old version: nothing changes
			late := propose(t, s, &flight.DeleteDocument{ID: id, Expect: first.Document.Version, Actor: "bob"})
			require.Equal(t, flight.DecisionFailedPrecondition, late.Decision)
		}
	}
}

func auditOf(t *testing.T, s *Store) []string {
	t.Helper()
	lines, next, err := s.Audit(flight.Version{}, 1000, func(*flight.AuditEntry) bool { return true })
	require.NoError(t, err)
	require.Zero(t, next)
	said := make([]string, len(lines))
	for i, line := range lines {
		said[len(lines)-1-i] = fmt.Sprintf("%s %s %s %s %s", line.Verb, line.Namespace, line.Subject, line.Actor, line.Reason)
	}
	return said
}

func TestDocuments_AreStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		s, err := Open(context.Background(), memConfig(fs))
		require.NoError(t, err)
		changeDocuments(t, s)
		key := testKey(1)
		openAndReport(t, s, 1)
		propose(t, s, &flight.FreeKey{Key: key, Generation: 1, Actor: "ann", Reason: "a mistake"})
		propose(t, s, &flight.FreeKey{Key: key, Generation: 1, Actor: "ann", Reason: "a mistake"}) // a repeat

		wantAudit := []string{
			"create_token billing token/worker-0 ann new", "change_token billing token/worker-0 bob ",
			"create_token billing token/worker-1 ann new", "change_token billing token/worker-1 bob ",
			"create_token billing token/worker-2 ann new", "change_token billing token/worker-2 bob ", "delete_token billing token/worker-2 bob leaked",
			"create_token billing token/worker-3 ann new", "change_token billing token/worker-3 bob ",
			"free test " + key.String() + " ann a mistake"}
		require.Equal(t, wantAudit, auditOf(t, s))
		page, err := s.feed.Read(flight.Version{}, 1000)
		require.NoError(t, err)
		kinds := map[flight.EventKind]int{}
		for _, e := range page.Events {
			kinds[e.Kind]++
			require.Equal(t, e.Key.IsZero(), !e.Document.IsZero())
		}
		require.Equal(t, 8, kinds[flight.EventDocumentPut])
		require.Equal(t, 1, kinds[flight.EventDocumentDeleted])

		want, hash := s.Documents(""), stateHash(t, s)
		require.Len(t, want, 3)
		require.Equal(t, "two", string(s.Document(tokenID("worker-1")).Body))
		require.Nil(t, s.Document(tokenID("worker-2")))
		require.NoError(t, s.Close(context.Background()))

		for _, lost := range []string{"", stateName(1)} { // a restart, and one that applies the whole log again
			if lost != "" {
				require.NoError(t, fs.RemoveAll("ledger/"+lost))
			}
			reopened, err := Open(context.Background(), memConfig(fs))
			require.NoError(t, err)
			require.Equal(t, want, reopened.Documents(""))
			require.Equal(t, wantAudit, auditOf(t, reopened))
			require.Equal(t, hash, stateHash(t, reopened))
			requireConsistent(t, reopened)
			require.NoError(t, reopened.Close(context.Background()))
		}
	})
}

// The hash shows a change of any row, and no change of the time alone.
func TestStateHash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t, memConfig(vfs.NewMem()))
		before := stateHash(t, s)
		time.Sleep(time.Minute)
		propose(t, s, &flight.Tick{})
		require.Equal(t, before, stateHash(t, s))
		open := openOf(s, testKey(1), 1)
		propose(t, s, open)
		opened := stateHash(t, s)
		require.NotEqual(t, before, opened)
		propose(t, s, &flight.PutDocument{ID: tokenID("a"), Body: []byte("one")})
		require.NotEqual(t, opened, stateHash(t, s))
	})
}

// A restored snapshot may lack the newest document. Readers that cache by the version of the documents read them again.
func TestDocuments_VersionDiffersAfterARestore(t *testing.T) {
	cfg := memConfig(vfs.NewMem())
	cfg.ClusterID = "c"
	from := openStore(t, cfg)
	leaked := propose(t, from, &flight.PutDocument{ID: tokenID("leaked"), Body: []byte("one")})
	propose(t, from, &flight.PutDocument{ID: tokenID("other"), Body: []byte("one")})
	cfg = memConfig(vfs.NewMem())
	cfg.ClusterID = "c"
	follower := openStore(t, cfg)
	restoreFrom(t, follower, from)
	before := follower.DocumentsVersion()
	require.Len(t, follower.Documents(""), 2)
	propose(t, from, &flight.DeleteDocument{ID: tokenID("leaked"), Expect: leaked.Document.Version})
	restoreFrom(t, follower, from)
	require.Len(t, follower.Documents(""), 1)
	require.NotEqual(t, before, follower.DocumentsVersion())
}

// restoreFrom restores a snapshot of another store.
func restoreFrom(t *testing.T, s, from *Store) {
	t.Helper()
	require.NoError(t, from.takeSnapshot())
	list, err := from.snaps.List()
	require.NoError(t, err)
	_, rows, err := from.snaps.Open(list[0].ID)
	require.NoError(t, err)
	require.NoError(t, s.fsm.Restore(rows))
	require.NoError(t, rows.Close())
}

func TestAudit_Pages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t, memConfig(vfs.NewMem()))
		changeDocuments(t, s)
		puts := func(e *flight.AuditEntry) bool { return e.Verb == "create_token" }
		all, next, err := s.Audit(flight.Version{}, 10, puts)
		require.NoError(t, err)
		require.Zero(t, next)
		require.Len(t, all, 4)
		first, next, err := s.Audit(flight.Version{}, 3, puts)
		require.NoError(t, err)
		require.True(t, next.After(all[3].Version))
		rest, next, err := s.Audit(next, 3, puts)
		require.NoError(t, err)
		require.Zero(t, next)
		require.Equal(t, all, append(first, rest...))
	})
}

// A call reads a bounded part of the log. Its next is the last line read, also if none of them matched.
func TestAudit_ReadsABoundedPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t, memConfig(vfs.NewMem()))
		batch := s.state.db.NewBatch()
		for i := range uint64(maxAuditScan + 10) {
			value, err := flight.EncodeRecord(&flight.AuditEntry{Verb: "free"})
			require.NoError(t, err)
			require.NoError(t, batch.Set(auditKey(nil, flight.Version{Index: 1 + i}), value, nil))
		}
		require.NoError(t, batch.Commit(nil))
		scanned := 0
		match := func(e *flight.AuditEntry) bool { scanned++; return e.Version.Index == 3 }
		lines, next, err := s.Audit(flight.Version{}, 1, match)
		require.NoError(t, err)
		require.Empty(t, lines)
		require.Equal(t, flight.Version{Index: 11}, next)
		require.LessOrEqual(t, scanned, maxAuditScan+1)
		lines, next, err = s.Audit(next, 1, match)
		require.NoError(t, err)
		require.Len(t, lines, 1)
		require.Zero(t, next)
	})
}

func TestEncodeListed(t *testing.T) {
	want := map[string]int64{"a": 1, "billing": 1 << 40}
	got := make(map[string]int64)
	b := encodeListed(map[string]int64{"a": 1, "billing": 1 << 40, "empty": 0})
	require.NoError(t, decodeListed(b, got))
	require.Equal(t, want, got)
	for n := range len(b) {
		if n != 3 { // the end of the first namespace
			require.Equal(t, n == 0, decodeListed(b[:n], map[string]int64{}) == nil, n)
		}
	}
	require.Equal(t, 13, len(documentKey(nil, flight.DocumentID{Namespace: "ns", Kind: "kind", Name: "abc"})))
}
