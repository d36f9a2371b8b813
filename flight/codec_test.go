package flight_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

var updateGolden = flag.Bool("update", false, "write the golden files anew")

// filler sets every nested field to a distinct value.
type filler int

func (f *filler) fill(v reflect.Value) {
	*f++
	if v.Type() == reflect.TypeFor[flight.Key]() {
		v.Set(reflect.ValueOf(stepKey))
		return
	}
	if v.Type() == reflect.TypeFor[flight.DocumentID]() {
		v.Set(reflect.ValueOf(flight.DocumentID{Namespace: "billing", Kind: flight.KindToken, Name: fmt.Sprintf("name-%d", *f)}))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			f.fill(v.Field(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		f.fill(v.Index(0))
		f.fill(v.Index(1))
	case reflect.Array:
		for i := range v.Len() {
			v.Index(i).SetUint(uint64(*f+filler(i)) % 251)
		}
	case reflect.String:
		v.SetString(fmt.Sprintf("text %d", *f))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Uint8:
		v.SetUint(uint64(*f%200) + 1)
	case reflect.Uint16:
		v.SetUint(uint64(*f) * 101)
	case reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(*f) * 1001)
	case reflect.Int16:
		v.SetInt(-int64(*f % 100))
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(*f) * 1_000_003)
	default:
		panic("no value for " + v.Type().String())
	}
}

// TestCodec_Golden checks that the codec still writes the bytes that the golden files have, and reads them: from the first release on, logs
// and states with these bytes must stay readable. If this test fails, the format was changed by accident. An intended change is a new
// field with a new number, which comes under a feature level; then run -update.
func TestCodec_Golden(t *testing.T) {
	var commands, records strings.Builder
	for _, v := range everyType() {
		n := filler(0)
		n.fill(reflect.ValueOf(v).Elem())
		if e, ok := v.(*flight.AuditEntry); ok {
			e.Version = flight.Version{} // the key of its row
		}
		head, rest, err := encode(v)
		require.NoError(t, err)
		file := &records
		if _, command := v.(flight.Command); command {
			file = &commands
		}
		fmt.Fprintf(file, "%s %x%x\n", reflect.TypeOf(v).Elem().Name(), head, rest)
		again := reflect.New(reflect.TypeOf(v).Elem())
		require.NoError(t, decode(append(head, rest...), again))
		require.Equal(t, v, again.Interface())
	}
	golden(t, "testdata/commands.golden", commands.String())
	golden(t, "testdata/records.golden", records.String())
}

func golden(t *testing.T, file, now string) {
	t.Helper()
	if *updateGolden {
		err := os.WriteFile(file, []byte(now), 0o644)
		require.NoError(t, err)
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, now, string(want), "%s differs from the present encoding", file)
}

func TestCodec_RejectsUndecodable(t *testing.T) {
	tick, err := flight.Encode(&flight.Tick{})
	require.NoError(t, err)
	good, err := flight.Encode(&flight.SealKey{Key: soloKey})
	require.NoError(t, err)
	change := func(at int, to byte) []byte { b := bytes.Clone(good); b[at] = to; return b }
	for name, c := range map[string]struct {
		bytes []byte
		newer bool
	}{
		"empty":             {nil, false},
		"one byte":          {[]byte{1}, false},
		"another version":   {change(0, 2), true},
		"another kind":      {change(1, 99), true},
		"kind zero":         {change(1, 0), true},
		"truncated":         {good[:len(good)-1], false},
		"trailing data":     {append(bytes.Clone(tick), 0), false},
		"no key":            {[]byte{1, 14, 0xa0}, false},
		"null":              {[]byte{1, 14, 0xf6}, false},
		"an invalid key":    {[]byte{1, 14, 0xa1, 1, 0x63, 'a', '/', 'b'}, false},
		"an unknown field":  {[]byte{1, 19, 0xa1, 2, 1}, false},
		"a duplicate field": {[]byte{1, 18, 0xa2, 1, 1, 1, 2}, false},
		"indefinite length": {[]byte{1, 19, 0xbf, 0xff}, false},
	} {
		got, err := flight.Decode(c.bytes)
		require.Error(t, err, "%s: read as %+v, %v", name, got, err)
		require.Equal(t, c.newer, errors.Is(err, flight.ErrNewerCodec), "%s: read as %+v, %v", name, got, err)
	}
	require.Error(t, flight.DecodeRecord(nil, new(flight.Flight)), "an empty record was decoded")
	err = flight.DecodeRecord([]byte{2, 0xa0}, new(flight.Header))
	require.ErrorIs(t, err, flight.ErrNewerCodec, "a record of version 2: %v", err)
}

// FuzzDecode checks that the rules answer every decodable command and keep the invariants.
func FuzzDecode(f *testing.F) {
	for _, c := range flight.NewCommands() {
		n := filler(0)
		n.fill(reflect.ValueOf(c).Elem())
		b, err := flight.Encode(c)
		require.NoError(f, err)
		f.Add(b)
		f.Add(b[:len(b)/2])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := flight.Decode(b)
		if err != nil {
			return
		}
		w := newLedger(soloKey)
		w.keys[0] = c.Target()
		_, _, err = w.apply(c)
		require.NoError(t, err, "%+v: %v", c, err)
	})
}
