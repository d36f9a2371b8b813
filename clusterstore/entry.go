package clusterstore

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/flightd/flightd/flight"
)

// A log entry is a packet of commands: version, the leader's time, then each command behind its length.
const (
	entryVersion  = 1
	entryFixed    = 1 + 8
	commandPrefix = 4
	// maxEntry is where a packet stops growing: larger entries upset raft's heartbeats.
	maxEntry = 512 << 10
	// maxCommand is the longest command that fits into an entry.
	maxCommand = maxEntry - entryFixed - commandPrefix
)

var errEntry = errors.New("clusterstore: a log entry is cut off")

// appendHead starts an entry that was packed at the given ledger time.
func appendHead(b []byte, stamp flight.Time) []byte {
	return binary.BigEndian.AppendUint64(append(b, entryVersion), uint64(stamp))
}

// appendCommand adds an encoded command to an entry.
func appendCommand(b, command []byte) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(command))), command...)
}

// decodeEntry reads an entry whole before anything of it is applied: a node refuses what it cannot read.
func decodeEntry(b []byte) (flight.Time, []flight.Command, error) {
	if len(b) == 0 {
		return 0, nil, errEntry
	}
	if b[0] != entryVersion {
		return 0, nil, fmt.Errorf("%w: log entry of version %d", ErrNewer, b[0])
	}
	if len(b) < entryFixed {
		return 0, nil, errEntry
	}
	stamp := flight.Time(binary.BigEndian.Uint64(b[1:]))
	var commands []flight.Command
	for rest := b[entryFixed:]; len(rest) > 0; {
		if len(rest) < commandPrefix {
			return 0, nil, errEntry
		}
		n := uint64(binary.BigEndian.Uint32(rest))
		rest = rest[commandPrefix:]
		if n > uint64(len(rest)) {
			return 0, nil, errEntry
		}
		c, err := flight.Decode(rest[:n:n])
		if errors.Is(err, flight.ErrNewerCodec) {
			return 0, nil, fmt.Errorf("%w: %w", ErrNewer, err)
		}
		if err != nil {
			return 0, nil, err
		}
		commands, rest = append(commands, c), rest[n:]
	}
	return stamp, commands, nil
}
