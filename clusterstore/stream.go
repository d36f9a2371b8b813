package clusterstore

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash"
	"io"
)

// A stream of rows copies a state to another node or into a backup: a header line, the rows, their number, and a
// SHA-256 checksum of all of it. A reader must not use a stream before it has checked the checksum.
const (
	streamMagic  = "flightd-ledger-rows"
	streamFormat = 1
	maxRow       = 64 << 20 // longest row; a larger length is corruption
)

// streamHeader is the first line of a stream, as JSON.
type streamHeader struct {
	Magic   string `json:"magic"`
	Format  int    `json:"format"`
	Cluster string `json:"cluster"`
	Applied uint64 `json:"applied"`
}

// rowWriter writes a stream.
type rowWriter struct {
	out  *bufio.Writer
	sum  hash.Hash
	rows uint64
}

func newRowWriter(w io.Writer, head streamHeader) (*rowWriter, error) {
	r := &rowWriter{out: bufio.NewWriterSize(w, 256<<10), sum: sha256.New()}
	head.Magic, head.Format = streamMagic, streamFormat
	line, err := json.Marshal(head)
	if err != nil {
		return nil, err
	}
	return r, r.write(append(line, '\n'))
}

func (r *rowWriter) write(b []byte) error {
	r.sum.Write(b)
	_, err := r.out.Write(b)
	return err
}

// row adds one row. The key must not be empty: an empty key marks the end of the rows.
func (r *rowWriter) row(key, value []byte) error {
	r.rows++
	var lengths [2 * binary.MaxVarintLen64]byte
	b := binary.AppendUvarint(lengths[:0], uint64(len(key)))
	b = binary.AppendUvarint(b, uint64(len(value)))
	if err := r.write(b); err != nil {
		return err
	}
	if err := r.write(key); err != nil {
		return err
	}
	return r.write(value)
}

// end completes the stream.
func (r *rowWriter) end() error {
	if err := r.write(binary.AppendUvarint([]byte{0, 0}, r.rows)); err != nil {
		return err
	}
	if _, err := r.out.Write(r.sum.Sum(nil)); err != nil {
		return err
	}
	return r.out.Flush()
}

// rowReader reads a stream.
type rowReader struct {
	in   *bufio.Reader
	sum  hash.Hash
	rows uint64
}

// newRowReader reads the header and rejects a stream that this version cannot read.
func newRowReader(in io.Reader) (*rowReader, streamHeader, error) {
	r := &rowReader{in: bufio.NewReaderSize(in, 256<<10), sum: sha256.New()}
	var head streamHeader
	line, err := r.in.ReadBytes('\n')
	if err != nil {
		return nil, head, streamReadError(err)
	}
	r.sum.Write(line)
	if err := json.Unmarshal(line, &head); err != nil || head.Magic != streamMagic {
		return nil, head, fmt.Errorf("%w: not a stream of ledger rows", ErrDamaged)
	}
	if head.Format > streamFormat {
		return nil, head, fmt.Errorf("%w: stream of rows of format %d", ErrNewer, head.Format)
	}
	return r, head, nil
}

// next reads one row; io.EOF after the last one, if number and checksum match.
func (r *rowReader) next() (key, value []byte, err error) {
	klen, err := r.readLength()
	if err != nil {
		return nil, nil, err
	}
	vlen, err := r.readLength()
	if err != nil {
		return nil, nil, err
	}
	if klen == 0 {
		return nil, nil, r.checkTrailer()
	}
	both := make([]byte, klen+vlen)
	if _, err := io.ReadFull(r.in, both); err != nil {
		return nil, nil, streamReadError(err)
	}
	r.sum.Write(both)
	r.rows++
	return both[:klen:klen], both[klen:], nil
}

func (r *rowReader) checkTrailer() error {
	rows, err := r.readLength()
	if err != nil {
		return err
	}
	want := r.sum.Sum(nil)
	got := make([]byte, len(want))
	if _, err := io.ReadFull(r.in, got); err != nil {
		return streamReadError(err)
	}
	if rows != r.rows || !bytes.Equal(got, want) {
		return fmt.Errorf("%w: checksum mismatch in a stream of rows", ErrDamaged)
	}
	return io.EOF
}

// readLength reads one number and adds it to the checksum.
func (r *rowReader) readLength() (uint64, error) {
	n, err := binary.ReadUvarint(r.in)
	if err != nil {
		return 0, streamReadError(err)
	}
	if n > maxRow {
		return 0, fmt.Errorf("%w: a stream of rows has a row of %d bytes", ErrDamaged, n)
	}
	r.sum.Write(binary.AppendUvarint(nil, n))
	return n, nil
}

// streamReadError classifies a read error: a truncated stream is ErrDamaged, others are errors of the sender or the
// file.
func streamReadError(err error) error {
	if isAny(err, io.EOF, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: a stream of rows is truncated: %w", ErrDamaged, err)
	}
	return storageError("read a stream of rows", err)
}
