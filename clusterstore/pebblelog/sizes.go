package pebblelog

import "fmt"

// sizeStep is how many bytes of entries are appended between two marks.
const sizeStep = 1 << 20

// sizes knows roughly where in the log how many bytes are: marks in the order of the log, and a straight line between two
// of them. The zero sizes is that of an empty log.
type sizes struct {
	marks []sizeMark
	total uint64 // bytes up to the newest entry
}

// sizeMark says that the entries up to index have so many bytes.
type sizeMark struct{ index, bytes uint64 }

// add adds appended entries, from..to.
func (z *sizes) add(from, to, bytes uint64) {
	if len(z.marks) == 0 {
		z.marks = append(z.marks, sizeMark{from - 1, z.total})
	}
	if z.total += bytes; z.total-z.marks[len(z.marks)-1].bytes >= sizeStep {
		z.marks = append(z.marks, sizeMark{to, z.total})
	}
}

// cut adapts the marks to a log that has the entries first..last left; 0: none.
func (z *sizes) cut(first, last uint64) {
	for len(z.marks) > 1 && z.marks[1].index < first {
		z.marks = z.marks[1:]
	}
	for n := len(z.marks); n > 0 && z.marks[n-1].index > last; n-- {
		z.marks = z.marks[:n-1]
	}
	if last == 0 {
		z.marks = nil
	}
}

// newest returns how many of the newest entries have at least so many bytes, when last is the newest entry. A log that
// has fewer bytes returns last.
func (z *sizes) newest(bytes, last uint64) (entries uint64) {
	switch {
	case bytes == 0:
		return 0
	case z.total <= bytes:
		return last
	}
	target := z.total - bytes
	next := sizeMark{last, z.total}
	for i := len(z.marks) - 1; i >= 0; i-- {
		if m := z.marks[i]; m.bytes <= target {
			part := float64(target-m.bytes) / float64(next.bytes-m.bytes)
			return last - m.index - uint64(part*float64(next.index-m.index))
		}
		next = z.marks[i]
	}
	return last
}

// loadSizes measures the entries that Open found, which are in tables then. It divides their bytes equally.
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

// Newest returns how many of the newest entries have at least so many bytes, roughly; of a shorter log, at least as many
// as it has.
func (s *Store) Newest(bytes uint64) (entries uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sizes.newest(bytes, s.lastIndex.Load())
}
