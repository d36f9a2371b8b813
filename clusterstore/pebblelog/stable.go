package pebblelog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/hashicorp/raft"
)

// Set stores a stable value, which is durable when Set returns.
func (s *Store) Set(key, value []byte) error {
	if !s.inFlight.Enter() {
		return ErrClosed
	}
	defer s.inFlight.Leave()
	if err := s.db.Set(stableKey(key), value, pebble.Sync); err != nil {
		return fmt.Errorf("pebblelog: set %s: %w", key, err)
	}
	return nil
}

// Get reads a stable value. For a value that was never set it returns the error text that raft expects: "not found".
func (s *Store) Get(key []byte) ([]byte, error) {
	if !s.inFlight.Enter() {
		return nil, ErrClosed
	}
	defer s.inFlight.Leave()
	value, closer, err := s.db.Get(stableKey(key))
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, errNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("pebblelog: get %s: %w", key, err)
	}
	return bytes.Clone(value), closer.Close()
}

// SetUint64 stores a number, which is durable when SetUint64 returns.
func (s *Store) SetUint64(key []byte, value uint64) error {
	return s.Set(key, binary.BigEndian.AppendUint64(nil, value))
}

// GetUint64 reads a number. For a number that was never set it returns the error text that raft expects: "not found".
func (s *Store) GetUint64(key []byte) (uint64, error) {
	value, err := s.Get(key)
	if err != nil {
		return 0, err
	}
	if len(value) != 8 {
		return 0, fmt.Errorf("%w: %s has %d bytes, want 8", ErrCorrupt, key, len(value))
	}
	return binary.BigEndian.Uint64(value), nil
}

// Bootstrap writes the first entry of a new cluster's log, its configuration, together with term 1. Both are in one
// synced write: if the process dies in Bootstrap, both are stored or none.
func (s *Store) Bootstrap(configuration raft.Configuration) error {
	if !s.inFlight.Enter() {
		return ErrClosed
	}
	defer s.inFlight.Leave()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lastIndex.Load() != 0 {
		return errors.New("pebblelog: bootstrap: the log is not empty")
	}
	entry := &raft.Log{Index: 1, Term: 1, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(configuration)}
	value := make([]byte, encodedLen(entry))
	encodeEntry(value, entry)
	batch := s.db.NewBatch()
	defer func() { _ = batch.Close() }()
	err := errors.Join(
		batch.Set(stableKey([]byte(currentTerm)), binary.BigEndian.AppendUint64(nil, 1), nil),
		batch.Set(logKey(1), value, nil),
		batch.Commit(pebble.Sync))
	if err != nil {
		return fmt.Errorf("pebblelog: bootstrap: %w", err)
	}
	s.extendRange(1, 1)
	return nil
}

func stableKey(name []byte) []byte { return append([]byte{stablePrefix}, name...) }

// HasTerm reports whether raft ever stored its term here.
func (s *Store) HasTerm() (bool, error) {
	_, err := s.GetUint64([]byte(currentTerm))
	if errors.Is(err, errNotFound) {
		return false, nil
	}
	return err == nil, err
}
