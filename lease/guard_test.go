package lease

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHazard20_Judge(t *testing.T) {
	own := Ownership{Deployment: "d", Epoch: 3}
	for _, c := range []struct {
		name    string
		owner   *Ownership
		counter uint64
		known   uint64
		write   bool
		class   error
	}{
		{"new etcd, new ledger", nil, 0, 0, true, nil},
		{"guard key gone, none recorded", nil, 7, 0, true, nil},
		{"guard key gone", nil, 0, 1, false, ErrRegressed},
		{"guard key gone, counter higher", nil, 500, 100, false, ErrRegressed},
		{"all well", &Ownership{"d", 3}, 100, 100, false, nil},
		{"etcd is ahead of the ledger's record", &Ownership{"d", 3}, 101, 100, false, nil},
		{"counter back by one", &Ownership{"d", 3}, 99, 100, false, ErrRegressed},
		{"counter gone", &Ownership{"d", 3}, 0, 100, false, ErrRegressed},
		{"epoch was raised", &Ownership{"d", 2}, 7, 0, true, nil},
		{"epoch was raised, and etcd restored again", &Ownership{"d", 2}, 7, 8, false, ErrRegressed},
		{"epoch was raised, and an even older etcd restored", &Ownership{"d", 2}, 9, 8, false, ErrRegressed},
		{"this ledger is behind", &Ownership{"d", 4}, 100, 100, false, ErrUnavailable},
		{"foreign", &Ownership{"e", 3}, 100, 0, false, ErrForeign},
		{"foreign and back", &Ownership{"e", 3}, 5, 100, false, ErrForeign},
	} {
		t.Run(c.name, func(t *testing.T) {
			write, err := judge(GuardState{Owner: c.owner, Counter: c.counter}, own, c.known)
			require.ErrorIs(t, err, c.class)
			require.Equal(t, c.write, write)
		})
	}
}

func TestErrorsCarryTheirClass(t *testing.T) {
	require.ErrorIs(t, &HeldError{}, ErrHeld)
	require.NotErrorIs(t, &HeldError{}, ErrLost)
	require.ErrorIs(t, &RegressedError{}, ErrRegressed)
	cause := errors.New("why")
	err := unavailable("outer", unavailable("inner", cause))
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorIs(t, err, cause)
	err = ensureClass(&RegressedError{}, "")
	require.ErrorIs(t, err, ErrRegressed)
	require.NotErrorIs(t, err, ErrUnavailable)
}
