package clusterstore

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/flightd/flightd/flight"
)

// Documents returns the documents of a kind in the order of their ids, of all kinds if kind is empty, as of the last entry
// applied here. They must not be changed.
func (r *reader) Documents(kind string) []*flight.Document {
	r.fsm.tablesMu.RLock()
	defer r.fsm.tablesMu.RUnlock()
	return r.fsm.documents.List(kind)
}

// Document returns a document, which must not be changed, or nil if it does not exist.
func (r *reader) Document(id flight.DocumentID) *flight.Document {
	r.fsm.tablesMu.RLock()
	defer r.fsm.tablesMu.RUnlock()
	return r.fsm.documents.Get(id)
}

// DocumentsVersion is the version of the last change of any document since this process loaded its state, or else the
// index up to which the state was applied then. While it is the same, so are all documents but the positions of notifications.
func (r *reader) DocumentsVersion() flight.Version { return r.fsm.published.Load().documentsVersion }

// SagasOf returns how many sagas use a definition and are not over.
func (r *reader) SagasOf(definition flight.DocumentID) int {
	r.fsm.tablesMu.RLock()
	defer r.fsm.tablesMu.RUnlock()
	return r.fsm.due.SagasOf(definition)
}

// HeldIn returns how many flights of a namespace are held by sessions: their outcome was not reported yet.
func (r *reader) HeldIn(namespace string) int {
	r.fsm.tablesMu.RLock()
	defer r.fsm.tablesMu.RUnlock()
	return r.fsm.sessions.HeldIn(namespace)
}

// StoredIn returns how many flights of a namespace are stored. Tombstones are not counted.
func (r *reader) StoredIn(namespace string) int64 {
	r.fsm.tablesMu.RLock()
	defer r.fsm.tablesMu.RUnlock()
	return r.fsm.listed[namespace]
}

// Stored returns how many flights each namespace stores, and how many tombstones all namespaces have together: a tombstone does
// not store its key.
func (r *reader) Stored() (flights map[string]int64, tombstones int64) {
	r.fsm.tablesMu.RLock()
	defer r.fsm.tablesMu.RUnlock()
	flights = maps.Clone(r.fsm.listed)
	maps.DeleteFunc(flights, func(_ string, n int64) bool { return n <= 0 })
	return flights, r.fsm.published.Load().meta.Counts[flight.StateExpired]
}

// applyToDocument applies a command about a document.
func (mb *memBatch) applyToDocument(c flight.Command, at flight.Version) (flight.Reply, error) {
	reply := mb.fsm.documents.Apply(&mb.fsm.header, mb.fsm.due, c)
	if !reply.Changed {
		return reply, nil
	}
	if reply.Document == nil || reply.Document.ID.Kind != flight.KindNotified { // those change often, and nobody caches them
		mb.fsm.documentsVersion = at
	}
	if deleted, ok := c.(*flight.DeleteDocument); ok {
		mb.rows = append(mb.rows, row{key: documentKey(nil, deleted.ID), deleted: true})
		return reply, nil
	}
	value, err := flight.EncodeRecord(reply.Document)
	if err == nil {
		mb.putSharedRow(documentKey(nil, reply.Document.ID), value)
	}
	return reply, err
}

// recordAudit writes a line of the audit log for a command that has changed the ledger.
func (mb *memBatch) recordAudit(c flight.Command, at flight.Version) error {
	line, ok := flight.Audit(c, mb.fsm.header.Now)
	if !ok {
		return nil
	}
	value, err := flight.EncodeRecord(&line)
	if err == nil {
		mb.putSharedRow(auditKey(nil, at), value)
	}
	return err
}

// maxAuditScan bounds the lines of the audit log that one call of Audit reads.
const maxAuditScan = 10_000

// Audit returns the lines of the audit log before a version that match, newest first, at most limit. The zero version is
// the end of the log. It reads at most maxAuditScan lines. next is the version to continue before; zero: no earlier line
// matches. With a next, lines may be fewer than limit, or none.
func (r *reader) Audit(before flight.Version, limit int, match func(*flight.AuditEntry) bool) (lines []flight.AuditEntry, next flight.Version, err error) {
	r.fsm.flush()
	to := kindKey(auditRow + 1)
	if before != (flight.Version{}) {
		to = auditKey(nil, before)
	}
	scanned, more := 0, false
	err = r.fsm.state.scanBack(kindKey(auditRow), to, func(key, value []byte) (bool, error) {
		var line flight.AuditEntry
		if err := decodeAudit(key, value, &line); err != nil {
			return false, err
		}
		matches := match(&line)
		if more = scanned == maxAuditScan || matches && len(lines) == limit; more {
			return false, nil
		}
		if matches {
			lines = append(lines, line)
		}
		scanned, next = scanned+1, line.Version
		return true, nil
	})
	if !more {
		next = flight.Version{}
	}
	return lines, next, err
}

func decodeAudit(key, value []byte, line *flight.AuditEntry) error {
	if len(key) != 13 {
		return fmt.Errorf("%w: the key of a line of the audit log has a wrong length", ErrDamaged)
	}
	line.Version = flight.Version{Index: binary.BigEndian.Uint64(key[1:]), Pos: binary.BigEndian.Uint32(key[9:])}
	return flight.DecodeRecord(value, line)
}

// loadDocuments reads all documents.
func (s *state) loadDocuments() (*flight.Documents, error) {
	all := new(flight.Documents)
	err := s.scan(kindKey(documentRow), kindKey(documentRow+1), func(_, value []byte) (bool, error) {
		d := new(flight.Document)
		if err := flight.DecodeRecord(value, d); err != nil {
			return false, err
		}
		all.Restore(d)
		return true, nil
	})
	return all, err
}

// loadListed reads the number of listed flights by namespace.
func (s *state) loadListed() (map[string]int64, error) {
	listed := make(map[string]int64)
	_, err := s.get(kindKey(namespacesRow), func(b []byte) error { return decodeListed(b, listed) })
	return listed, err
}

// encodeListed encodes the number of listed flights by namespace: each name with its length in front, and its number.
func encodeListed(listed map[string]int64) []byte {
	var b []byte
	for _, namespace := range slices.Sorted(maps.Keys(listed)) {
		if listed[namespace] > 0 {
			b = append(append(b, byte(len(namespace))), namespace...)
			b = binary.AppendUvarint(b, uint64(listed[namespace]))
		}
	}
	return b
}

func decodeListed(b []byte, listed map[string]int64) error {
	for len(b) > 0 {
		n := int(b[0])
		if len(b) < 1+n {
			return errTruncatedRow
		}
		namespace := string(b[1 : 1+n])
		count, rest, ok := cutUvarint(b[1+n:])
		if !ok {
			return errTruncatedRow
		}
		listed[namespace], b = int64(count), rest
	}
	return nil
}
