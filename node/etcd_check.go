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
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
)

// checkEtcd reads what a member left, before it is started: on a database that is damaged it ends the process, from a
// goroutine of its own, and behind a log that has lost its entries it waits for a leader for ever. What the log lacks of
// what the database has applied was synced once, so it is no crash that took it.
func checkEtcd(dir string) error {
	member := filepath.Join(dir, "member")
	if _, err := os.Stat(member); errors.Is(err, fs.ErrNotExist) {
		return nil // the first start
	}
	applied, err := scanBackend(filepath.Join(member, "snap", "db"))
	if errors.Is(err, bolterrors.ErrTimeout) { // of the wait for its lock
		return &LockedError{Dir: dir}
	}
	if err != nil {
		return fmt.Errorf("its database cannot be read: %w", err)
	}
	last, err := scanWAL(filepath.Join(member, "wal"))
	if err != nil {
		return fmt.Errorf("its log cannot be read: %w", err)
	}
	if last < applied {
		return fmt.Errorf("its log ends with entry %d, and its database holds entry %d", last, applied)
	}
	return nil
}

// boltPatience is how long the lock of the database is waited for, which a tool may have, or a node that has another data
// directory and this etcd in it.
const boltPatience = time.Second

// scanBackend visits every page of the database that holds something, and gives the entry up to which it was applied; 0
// where there is none. The database believes what it reads, so that a damaged one panics, or leads behind its end.
func scanBackend(path string) (applied uint64, err error) {
	if info, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
		return 0, nil // made anew of the log, or refused where the log does not reach back
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("it is damaged: %v", p)
		}
	}()
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, Timeout: boltPatience})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var ends byte // of all keys and values: what has two ends that can be read is there
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

// scanWAL reads the newest segment of the log, whose name says which entry it begins with, and gives the index of the last
// entry; one that is torn at the very end never was. The segments before it etcd reads itself, and says what it finds.
func scanWAL(dir string) (last uint64, err error) {
	segments, err := filepath.Glob(filepath.Join(dir, "*.wal"))
	if err != nil || len(segments) == 0 {
		return 0, errors.Join(err, errors.New("it is gone"))
	}
	newest := slices.Max(segments)
	var number, first uint64
	if _, err := fmt.Sscanf(filepath.Base(newest), "%016x-%016x.wal", &number, &first); err != nil {
		return 0, fmt.Errorf("what is %s? %w", filepath.Base(newest), err)
	}
	f, err := os.Open(newest)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return lastEntry(wal.NewDecoder(segment{f}), max(first, 1)-1)
}

// lastEntry gives the index of the last entry of a segment; before is that of the one before its first.
func lastEntry(records wal.Decoder, before uint64) (last uint64, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("it is damaged: %v", p)
		}
	}()
	last = before
	record := new(walpb.Record)
	for {
		err := records.Decode(record)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return last, nil
		case err != nil:
			return 0, err
		}
		switch record.GetType() {
		case wal.CrcType:
			records.UpdateCRC(record.GetCrc())
		case wal.EntryType:
			last = wal.MustUnmarshalEntry(record.Data).GetIndex()
		}
	}
}

// segment is a file of the log as its decoder wants it.
type segment struct{ *os.File }

// FileInfo is what the decoder wants to know of the file.
func (s segment) FileInfo() (fs.FileInfo, error) { return s.Stat() }
