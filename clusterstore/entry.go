package clusterstore

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/flightd/flightd/flight"
)

// A log entry is a batch of commands: the version, the ledger's time as stamped by the leader, the leader's wall clock, then
// each command with its length in front.
const (
	entryVersion  = 1
	entryFixed    = 1 + 8 + 8
	commandPrefix = 4
	// maxEntry is the size limit of a batch: larger entries delay raft's heartbeats.
	maxEntry = 512 << 10
	// maxCommand is the longest command that fits into an entry.
	maxCommand = maxEntry - entryFixed - commandPrefix
)

var errTruncatedEntry = errors.New("clusterstore: a log entry is truncated")

// stamp is the time at which the leader encoded an entry.
type stamp struct {
	now  flight.Time
	wall flight.Time // of the leader's wall clock where it was later than now, else 0
}

// appendHeader starts an entry.
func appendHeader(b []byte, at stamp) []byte {
	b = binary.BigEndian.AppendUint64(append(b, entryVersion), uint64(at.now))
	return binary.BigEndian.AppendUint64(b, uint64(at.wall))
}

// splitHeader decodes the stamp of an entry and returns the bytes of its commands.
func splitHeader(b []byte) (at stamp, commands []byte, err error) {
	switch {
	case len(b) == 0:
		return at, nil, errTruncatedEntry
	case b[0] != entryVersion:
		return at, nil, fmt.Errorf("%w: log entry of version %d", ErrNewer, b[0])
	case len(b) < entryFixed:
		return at, nil, errTruncatedEntry
	}
	at.now, at.wall = flight.Time(binary.BigEndian.Uint64(b[1:])), flight.Time(binary.BigEndian.Uint64(b[9:]))
	return at, b[entryFixed:], nil
}

// appendCommand adds an encoded command to an entry.
func appendCommand(b, command []byte) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(command))), command...)
}

// decodeEntry decodes a whole entry before any of it is applied, so that an unreadable command leaves no half-applied
// entry. An entry that raises the feature level above maxLevel is unreadable: entries of that level follow.
func decodeEntry(b []byte, maxLevel uint32) (at stamp, commands []flight.Command, err error) {
	at, rest, err := splitHeader(b)
	if err != nil {
		return at, nil, err
	}
	for len(rest) > 0 {
		if len(rest) < commandPrefix {
			return at, nil, errTruncatedEntry
		}
		n := uint64(binary.BigEndian.Uint32(rest))
		rest = rest[commandPrefix:]
		if n > uint64(len(rest)) {
			return at, nil, errTruncatedEntry
		}
		c, err := flight.Decode(rest[:n:n])
		if errors.Is(err, flight.ErrNewerCodec) {
			return at, nil, fmt.Errorf("%w: %w", ErrNewer, err)
		}
		if err != nil {
			return at, nil, err
		}
		if raise, ok := c.(*flight.RaiseLevel); ok && raise.Level > maxLevel {
			return at, nil, fmt.Errorf("%w: entries of feature level %d follow", ErrNewer, raise.Level)
		}
		commands, rest = append(commands, c), rest[n:]
	}
	return at, commands, nil
}
