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

// everyCommand returns one command of each kind.
func everyCommand() []flight.Command {
	return []flight.Command{new(flight.Submit), new(flight.Open), new(flight.Report), new(flight.Abandon), new(flight.EndSession),
		new(flight.ReportFinding), new(flight.Suspend), new(flight.WakeUp), new(flight.Cancel), new(flight.Resolve), new(flight.DecideApproval),
		new(flight.Retry), new(flight.FreeKey), new(flight.SealKey), new(flight.BeginUndo), new(flight.Expire), new(flight.Bootstrap),
		new(flight.RaiseEpoch), new(flight.Tick), new(flight.Redact), new(flight.Import), new(flight.CountDuplicates),
		new(flight.WithdrawSession), new(flight.RecordGuard), new(flight.RaiseLevel), new(flight.PutDocument),
		new(flight.DeleteDocument), new(flight.CloseSession), new(flight.Restore), new(flight.FinishRestore), new(flight.PassPivot)}
}

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

func filled[T any](v *T) *T {
	n := filler(0)
	n.fill(reflect.ValueOf(v).Elem())
	return v
}

func TestCodec_EveryFieldOfEveryCommandComesBack(t *testing.T) {
	for _, c := range everyCommand() {
		n := filler(0)
		n.fill(reflect.ValueOf(c).Elem())
		for _, full := range []bool{false, true} {
			want := c
			if !full && !c.Target().IsZero() { // all zero but the key
				want = reflect.New(reflect.TypeOf(c).Elem()).Interface().(flight.Command)
				reflect.ValueOf(want).Elem().FieldByName("Key").Set(reflect.ValueOf(soloKey))
			}
			b, err := flight.Encode(want)
			require.NoError(t, err)
			got, err := flight.Decode(b)
			require.NoError(t, err, "%T reads as %+v, want %+v: %v", want, got, want, err)
			require.Equal(t, want, got, "%T reads as %+v, want %+v: %v", want, got, want, err)
		}
	}
}

// TestCodec_Golden checks that the codec still writes the bytes that the golden files have: from the first release on, logs and
// states with these bytes must stay readable. If this test fails, the format was changed by accident. An intended change is a new
// field with a new number, which comes under a feature level; then run -update.
func TestCodec_Golden(t *testing.T) {
	var commands strings.Builder
	for _, c := range everyCommand() {
		n := filler(0)
		n.fill(reflect.ValueOf(c).Elem())
		b, err := flight.Encode(c)
		require.NoError(t, err)
		fmt.Fprintf(&commands, "%s %x\n", strings.TrimPrefix(fmt.Sprintf("%T", c), "*flight."), b)
	}
	golden(t, "testdata/commands.golden", commands.String())
	f, err1 := flight.EncodeRecord(filled(new(flight.Flight)))
	h, err2 := flight.EncodeRecord(filled(new(flight.Header)))
	e, err3 := flight.EncodeRecord(filled(new(flight.Event)))
	stats, err4 := flight.EncodeRecord(filled(new(flight.DuplicateStats)))
	d, err5 := flight.EncodeRecord(filled(new(flight.Document)))
	line, err6 := flight.EncodeRecord(filled(new(flight.AuditEntry)))
	require.NoError(t, errors.Join(err1, err2, err3, err4, err5, err6))
	records := fmt.Sprintf("Flight %x\nHeader %x\nEvent %x\nDuplicateStats %x\nDocument %x\nAuditEntry %x\n", f, h, e, stats, d, line)
	golden(t, "testdata/records.golden", records)
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

func FuzzDecode(f *testing.F) {
	for _, c := range everyCommand() {
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
		once, err := flight.Encode(c)
		require.NoError(t, err, "encode a decoded command: %v", err)
		again, err := flight.Decode(once)
		require.NoError(t, err, "decode an encoded command: %v", err)
		twice, err := flight.Encode(again)
		require.NoError(t, err, "a command has two spellings: %x and %x: %v", once, twice, err)
		require.True(t, bytes.Equal(once, twice), "a command has two spellings: %x and %x: %v", once, twice, err)
		// The rules answer every decodable command and keep the invariants.
		w := newLedger(soloKey)
		w.keys[0] = c.Target()
		_, _, err = w.apply(c)
		require.NoError(t, err, "%+v: %v", c, err)
	})
}

func FuzzDecodeRecord(f *testing.F) {
	one, err1 := flight.EncodeRecord(filled(new(flight.Flight)))
	two, err2 := flight.EncodeRecord(filled(new(flight.Header)))
	three, err3 := flight.EncodeRecord(filled(new(flight.Event)))
	four, err4 := flight.EncodeRecord(filled(new(flight.DuplicateStats)))
	err := errors.Join(err1, err2, err3, err4)
	require.NoError(f, err)
	for _, b := range [][]byte{one, two, three, four, {1, 0xa0}, {1}, {}} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		recordStays(t, b, new(flight.Flight), new(flight.Flight))
		recordStays(t, b, new(flight.Header), new(flight.Header))
		recordStays(t, b, new(flight.Event), new(flight.Event))
		recordStays(t, b, new(flight.DuplicateStats), new(flight.DuplicateStats))
	})
}

func recordStays[R interface {
	*flight.Flight | *flight.Header | *flight.Event | *flight.DuplicateStats
}](t *testing.T, b []byte, r, again R) {
	if flight.DecodeRecord(b, r) != nil {
		return
	}
	once, err := flight.EncodeRecord(r)
	require.NoError(t, err)
	err = flight.DecodeRecord(once, again)
	require.NoError(t, err)
	twice, err := flight.EncodeRecord(again)
	require.NoError(t, err, "a record has two spellings: %x and %x: %v", once, twice, err)
	require.True(t, bytes.Equal(once, twice), "a record has two spellings: %x and %x: %v", once, twice, err)
}
