package clusterstore

import (
	"crypto/sha256"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

// stateHash returns the SHA-256 sum of the state as of the last entry applied here: all rows but the index of that entry,
// and the header without the ledger's time. Two voters that have applied the same commands have the same hash, and a
// command that changes nothing does not change it.
func stateHash(t *testing.T, s *Store) [sha256.Size]byte {
	t.Helper()
	s.fsm.flush()
	h := sha256.New()
	require.NoError(t, s.state.scan([]byte{0}, []byte{0xff}, func(key, value []byte) (bool, error) {
		switch key[0] {
		case metaRow:
			return true, nil
		case headerRow:
			var header flight.Header
			if err := flight.DecodeRecord(value, &header); err != nil {
				return false, err
			}
			if header.EpochHold > 0 {
				header.EpochHold = header.EpochHold.Add(-header.Steps) // steps move it
			}
			header.Now, header.Wall, header.Steps, header.Version = 0, 0, 0, flight.Version{}
			var err error
			if value, err = flight.EncodeRecord(&header); err != nil {
				return false, err
			}
		}
		for _, part := range [...][]byte{key, value} {
			h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
			h.Write(part)
		}
		return true, nil
	}))
	return [sha256.Size]byte(h.Sum(nil))
}
