// Package disk gives a node of a test a disk of its own, and breaks it: the disk is full, hangs, loses what was not synced, or is
// put back to an earlier copy. It also damages the data directory of a node that is down.
//
// A disk is an ext4 file system in a file, on a loop device: it needs Linux and root. A power cut is the ext4 ioctl
// EXT4_IOC_SHUTDOWN without a flush of the journal: from one moment on no byte goes to the device, and the next mount replays
// the journal. The device has no cache that could be lost, so of unsynced writes that the kernel has begun to write in the
// background, more may be left than on a real disk.
//
// If the process dies, a helper process thaws and unmounts the disk and removes its file.
package disk

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// Kind is a kind of files in the data directory of a node: a pattern of their paths.
type Kind string

// The kinds of files that are worth damaging.
const (
	RaftLog Kind = "ledger/log/*.log"
	Table   Kind = "ledger/[ls]*/*.sst" // of the log and of the state
	EtcdLog Kind = "etcd/member/wal/*.wal"
)

// TearTail cuts off the end of the newest file of a kind: at least one byte that was written, and at most this number.
func TearTail(data string, kind Kind, atMost int, r *rand.Rand) (did string, err error) {
	paths, contents, err := kind.files(data)
	if err != nil {
		return "", err
	}
	newest, used := paths[len(paths)-1], len(contents[len(paths)-1])
	left := used - 1 - r.IntN(min(used, atMost))
	return fmt.Sprintf("%s ends at byte %d instead of %d", newest, left, used), os.Truncate(newest, int64(left))
}

// FlipBit inverts a bit of one file of a kind. A table of a snapshot can be a hard link to one of the state: then both are damaged.
func FlipBit(data string, kind Kind, r *rand.Rand) (did string, err error) {
	paths, contents, err := kind.files(data)
	if err != nil {
		return "", err
	}
	i := r.IntN(len(paths))
	at, bit := r.IntN(len(contents[i])), r.IntN(8)
	f, err := os.OpenFile(paths[i], os.O_WRONLY, 0)
	if err != nil {
		return "", fmt.Errorf("disk: flip a bit: %w", err)
	}
	_, err = f.WriteAt([]byte{contents[i][at] ^ 1<<bit}, int64(at))
	return fmt.Sprintf("%s has bit %d of byte %d of %d inverted", paths[i], bit, at, len(contents[i])), errors.Join(err, f.Close())
}

// files returns the files of a kind, the oldest first, and their content without the zeros that are reserved at the end. It is an
// error if none has content.
func (k Kind) files(data string) (paths []string, contents [][]byte, err error) {
	found, err := filepath.Glob(filepath.Join(data, string(k)))
	for _, path := range found {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, nil, fmt.Errorf("disk: %w", err)
		}
		if content = bytes.TrimRight(content, "\x00"); len(content) > 0 {
			paths, contents = append(paths, path), append(contents, content)
		}
	}
	if err == nil && len(paths) == 0 {
		err = fmt.Errorf("disk: %s has no file %s with content", data, k)
	}
	return paths, contents, err
}

// Wipe removes everything in a data directory.
func Wipe(data string) (did string, err error) {
	entries, err := os.ReadDir(data)
	for _, entry := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(data, entry.Name())))
	}
	return fmt.Sprintf("%s is empty; it had %d entries", data, len(entries)), err
}
