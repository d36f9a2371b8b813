package lease

import (
	"errors"
	"testing"
)

func TestHazard20_Judge(t *testing.T) {
	mine := Stamp{Deployment: "d", Epoch: 3}
	for _, c := range []struct {
		name     string
		found    *Stamp
		revision int64
		known    int64
		write    bool
		class    error
	}{
		{"new etcd, new ledger", nil, 5, 0, true, nil},
		{"guard key gone", nil, 5, 1, false, ErrRegressed},
		{"guard key gone, revision higher", nil, 500, 100, false, ErrRegressed},
		{"all well", &Stamp{"d", 3}, 100, 100, false, nil},
		{"revision back by one", &Stamp{"d", 3}, 99, 100, false, ErrRegressed},
		{"epoch was raised", &Stamp{"d", 2}, 7, 0, true, nil},
		{"epoch was raised, and the past is lost again", &Stamp{"d", 2}, 7, 8, false, ErrRegressed},
		{"this ledger is behind", &Stamp{"d", 4}, 100, 100, false, ErrUnavailable},
		{"foreign", &Stamp{"e", 3}, 100, 0, false, ErrForeign},
		{"foreign and back", &Stamp{"e", 3}, 5, 100, false, ErrForeign},
	} {
		t.Run(c.name, func(t *testing.T) {
			write, err := judge(c.found, c.revision, mine, c.known)
			if write != c.write || !errors.Is(err, c.class) || (err == nil) != (c.class == nil) {
				t.Errorf("write %v, %v; want %v, %v", write, err, c.write, c.class)
			}
		})
	}
}

func TestErrorsCarryTheirClass(t *testing.T) {
	if err := error(&HeldError{}); !errors.Is(err, ErrHeld) || errors.Is(err, ErrLost) {
		t.Error("HeldError")
	}
	if err := error(&RegressedError{}); !errors.Is(err, ErrRegressed) {
		t.Error("RegressedError")
	}
	cause := errors.New("why")
	if err := unavailable("what", unavailable("inner", cause)); !errors.Is(err, ErrUnavailable) || !errors.Is(err, cause) {
		t.Errorf("unavailable: %v", err)
	}
	if err := unlessClassed(&RegressedError{}, ""); !errors.Is(err, ErrRegressed) || errors.Is(err, ErrUnavailable) {
		t.Errorf("unlessClassed: %v", err)
	}
}
