package lease

import (
	"encoding/binary"
	"errors"

	"github.com/flightd/flightd/flight"
)

// recordVersion is the first byte of every claim's value.
const recordVersion = 1

// Record is the value of a claim: who made it. Nonce is unique in one life of a process, so that a claim whose answer
// was lost can be recognised.
type Record struct {
	Epoch      uint32
	Boot       Boot
	Deployment string
	Session    flight.SessionID
	Owner      string
	Nonce      uint64
}

// recordPrefix is everything but the nonce: the same for all claims of a term.
func recordPrefix(r Record) string {
	b := make([]byte, 0, 1+4+16+3+len(r.Deployment)+len(r.Session)+len(r.Owner))
	b = append(b, recordVersion)
	b = binary.BigEndian.AppendUint32(b, r.Epoch)
	b = append(b, r.Boot[:]...)
	for _, s := range [...]string{r.Deployment, string(r.Session), r.Owner} {
		b = append(b, byte(len(s)))
		b = append(b, s...)
	}
	return string(b)
}

// recordValue is prefix and nonce.
func recordValue(prefix string, nonce uint64) string {
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], nonce)
	return prefix + string(n[:])
}

var errRecord = errors.New("lease: this is not the value of a claim of this version")

// ParseRecord reads the value of a claim.
func ParseRecord(b string) (Record, error) {
	var r Record
	if len(b) < 1+4+16 || b[0] != recordVersion {
		return r, errRecord
	}
	r.Epoch = binary.BigEndian.Uint32([]byte(b[1:5]))
	copy(r.Boot[:], b[5:21])
	b = b[21:]
	var words [3]string
	for i := range words {
		if len(b) < 1 || len(b) < 1+int(b[0]) {
			return Record{}, errRecord
		}
		words[i], b = b[1:1+int(b[0])], b[1+int(b[0]):]
	}
	if len(b) != 8 {
		return Record{}, errRecord
	}
	r.Deployment, r.Session, r.Owner = words[0], flight.SessionID(words[1]), words[2]
	r.Nonce = binary.BigEndian.Uint64([]byte(b))
	return r, nil
}

// held reads an entry as a claim that somebody holds. Of one whose value cannot be read, because it is damaged or of a newer
// version, only that is known: its epoch is 0, which is nobody's.
func (e Entry) held() (Held, error) {
	key, err := flight.ParseKey(e.Key)
	if err != nil {
		return Held{}, err
	}
	r, err := ParseRecord(e.Value)
	if err != nil {
		return Held{Key: key, Claim: flight.Claim{Revision: e.Revision}, Owner: "somebody unknown"}, nil
	}
	return Held{Key: key, Claim: flight.Claim{Epoch: r.Epoch, Revision: e.Revision, Session: r.Session}, Owner: r.Owner}, nil
}
