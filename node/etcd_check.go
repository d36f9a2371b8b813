package node

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"google.golang.org/protobuf/proto"
)

// checkEtcd reads the files of the member before it is started. On a damaged database etcd ends the process from one of
// its own goroutines, and with a log that ends before the database's applied index it waits for a leader for ever. A
// crash does not cause that: etcd syncs an entry to the log before it applies the entry. Errors: *LockedError, or the
// damage.
func checkEtcd(dir string) error {
	member := filepath.Join(dir, "member")
	if _, err := os.Stat(member); errors.Is(err, fs.ErrNotExist) {
		return nil // the first start
	}
	applied, err := scanBackend(filepath.Join(member, "snap", "db"))
	if errors.Is(err, bolterrors.ErrTimeout) { // another process has locked the database
		return &LockedError{Dir: dir}
	}
	if err != nil {
		return fmt.Errorf("read the database: %w", err)
	}
	last, _, err := scanWAL(filepath.Join(member, "wal"))
	if err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	if last < applied {
		return fmt.Errorf("the log ends at entry %d, but the database has applied entry %d", last, applied)
	}
	return nil
}

// boltTimeout is the time to wait for the lock of the database. A tool may hold it, or a node with another data
// directory that contains this etcd directory.
const boltTimeout = time.Second

// scanBackend reads every key and value of the database and returns its applied index; 0 if there is no database. Bolt
// does not validate pages, so a damaged file makes it panic or read beyond the mapping. Both are returned as errors.
func scanBackend(path string) (applied uint64, err error) {
	if info, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
		return 0, nil // etcd rebuilds it from the log, or fails if the log has been compacted
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("damaged file: %v", p)
		}
	}()
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, Timeout: boltTimeout})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var ends byte // XOR of the first and last byte of all keys and values, so that each is read
	err = db.View(func(tx *bolt.Tx) error {
		if meta := tx.Bucket([]byte("meta")); meta != nil {
			if b := meta.Get([]byte("consistent_index")); len(b) == 8 {
				applied = binary.BigEndian.Uint64(b)
			}
		}
		return tx.ForEach(func(_ []byte, bucket *bolt.Bucket) error {
			return bucket.ForEach(func(key, value []byte) error {
				for _, b := range [][]byte{key, value} {
					if len(b) > 0 {
						ends ^= b[0] ^ b[len(b)-1]
					}
				}
				return nil
			})
		})
	})
	return applied, err
}

// scanWAL reads the newest segment of the log, whose name has the index of its first entry, and returns the index of
// the last complete entry. Older segments are not read: etcd itself reports their errors.
//
// It also returns the id of the member, which every segment has; 0 if the segment ends before it.
func scanWAL(dir string) (last, member uint64, err error) {
	segments, err := filepath.Glob(filepath.Join(dir, "*.wal"))
	if err != nil || len(segments) == 0 {
		return 0, 0, errors.Join(err, errors.New("no segment found"))
	}
	newest := slices.Max(segments)
	var number, first uint64
	if _, err := fmt.Sscanf(filepath.Base(newest), "%016x-%016x.wal", &number, &first); err != nil {
		return 0, 0, fmt.Errorf("invalid segment name %s: %w", filepath.Base(newest), err)
	}
	f, err := os.Open(newest)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return scanSegment(wal.NewDecoder(segment{f}), max(first, 1)-1)
}

// scanSegment returns the index of the last entry of a segment, and the id of its member; previous is the index before its first entry.
func scanSegment(records wal.Decoder, previous uint64) (last, member uint64, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("damaged record: %v", p)
		}
	}()
	last = previous
	record := new(walpb.Record)
	for {
		err := records.Decode(record)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return last, member, nil
		case err != nil:
			return 0, 0, err
		}
		switch record.GetType() {
		case wal.CrcType:
			records.UpdateCRC(record.GetCrc())
		case wal.MetadataType:
			var of etcdserverpb.Metadata
			if err := proto.Unmarshal(record.Data, &of); err != nil {
				return 0, 0, err
			}
			member = of.GetNodeID()
		case wal.EntryType:
			last = wal.MustUnmarshalEntry(record.Data).GetIndex()
		}
	}
}

// segment adapts a log file to etcd's decoder.
type segment struct{ *os.File }

// FileInfo implements the file interface of etcd's decoder.
func (s segment) FileInfo() (fs.FileInfo, error) { return s.Stat() }
