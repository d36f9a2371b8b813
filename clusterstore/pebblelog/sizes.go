package pebblelog

import "fmt"

// sizeStep is the number of bytes that are appended between two marks.
const sizeStep = 1 << 20

// sizes estimates the total size of the newest entries of the log. It has marks in the order of the log, and interpolates
// between two marks. The zero value is that of an empty log.
type sizes struct {
	marks []sizeMark
	total uint64 // bytes up to the newest entry
}

// sizeMark is the total size of the entries up to index, in bytes.
type sizeMark struct{ index, bytes uint64 }

// add adds appended entries, from..to.
func (s *sizes) add(from, to, bytes uint64) {
	if len(s.marks) == 0 {
		s.marks = append(s.marks, sizeMark{from - 1, s.total})
	}
	if s.total += bytes; s.total-s.marks[len(s.marks)-1].bytes >= sizeStep {
		s.marks = append(s.marks, sizeMark{to, s.total})
	}
}

// cut adapts the marks to a log of which the entries first..last are left. last is 0 if no entry is left.
func (s *sizes) cut(first, last uint64) {
	for len(s.marks) > 1 && s.marks[1].index < first {
		s.marks = s.marks[1:]
	}
	for n := len(s.marks); n > 0 && s.marks[n-1].index > last; n-- {
		s.marks = s.marks[:n-1]
	}
	if last == 0 {
		s.marks = nil
	}
}

// newest returns the number of newest entries that together have at least the given bytes, where last is the index of the
// newest entry. If the whole log has fewer bytes, it returns last.
func (s *sizes) newest(bytes, last uint64) (entries uint64) {
	switch {
	case bytes == 0:
		return 0
	case s.total <= bytes:
		return last
	}
	target := s.total - bytes
	next := sizeMark{last, s.total}
	for i := len(s.marks) - 1; i >= 0; i-- {
		if m := s.marks[i]; m.bytes <= target {
			part := float64(target-m.bytes) / float64(next.bytes-m.bytes)
			return last - m.index - uint64(part*float64(next.index-m.index))
		}
		next = s.marks[i]
	}
	return last
}

// loadSizes measures the entries that Open found, all of which are in tables then. It assumes that they are equally long.
func (s *Store) loadSizes() error {
	first, last := s.firstIndex.Load(), s.lastIndex.Load()
	if last == 0 {
		return nil
	}
	bytes, err := s.db.EstimateDiskUsage(logKey(first), logKey(last))
	if err != nil {
		return fmt.Errorf("pebblelog: measure the log: %w", err)
	}
	s.sizes = sizes{marks: []sizeMark{{first - 1, 0}, {last, bytes}}, total: bytes}
	return nil
}

// Newest estimates the number of newest entries that together have at least the given bytes. If the whole log has fewer
// bytes, the result is at least the number of its entries.
func (s *Store) Newest(bytes uint64) (entries uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sizes.newest(bytes, s.lastIndex.Load())
}
