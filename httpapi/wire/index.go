package wire

import (
	"fmt"
	"strconv"
	"strings"
)

// Index is a position of the ledger, as in the header Flightd-Index. An answer carries the position that it is at least as new
// as. A client sends the greatest position that it was told by its deployment, so that no server answers from an older ledger.
type Index struct {
	Epoch uint32 // store epoch: it rises with every restore
	Entry uint64 // index of an entry
}

func (i Index) String() string {
	return strconv.FormatUint(uint64(i.Epoch), 10) + "-" + strconv.FormatUint(i.Entry, 10)
}

// ParseIndex parses the header.
func ParseIndex(text string) (Index, error) {
	epoch, entry, found := strings.Cut(text, "-")
	e, err := strconv.ParseUint(epoch, 10, 32)
	n, entryErr := strconv.ParseUint(entry, 10, 64)
	if i := (Index{uint32(e), n}); found && err == nil && entryErr == nil && i.String() == text {
		return i, nil
	}
	return Index{}, fmt.Errorf("%.50q is not EPOCH-INDEX", text)
}

// After reports whether i is a later position than other.
func (i Index) After(other Index) bool {
	return i.Epoch > other.Epoch || i.Epoch == other.Epoch && i.Entry > other.Entry
}
