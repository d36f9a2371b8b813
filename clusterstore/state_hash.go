package clusterstore

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/flightd/flightd/flight"
)

// StateHash returns the SHA-256 sum of the state as of the last entry applied here: all rows but the index of that entry,
// and the header without the ledger's time. Two voters that have applied the same commands have the same hash, and a
// command that changes nothing does not change it.
func (r *reader) StateHash() (sum [sha256.Size]byte, err error) {
	r.fsm.flush()
	h := sha256.New()
	err = r.fsm.state.scan([]byte{0}, []byte{0xff}, func(key, value []byte) (bool, error) {
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
			_, _ = h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part)))) // a hash returns no error
			_, _ = h.Write(part)
		}
		return true, nil
	})
	return [sha256.Size]byte(h.Sum(nil)), err
}
