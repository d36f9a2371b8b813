package flight_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
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
		new(flight.WithdrawSession), new(flight.RecordGuard), new(flight.RaiseLevel), new(flight.PutDocument), new(flight.PromoteDocument),
		new(flight.DeleteDocument), new(flight.CloseSession), new(flight.Restore), new(flight.FinishRestore), new(flight.PassPivot)}
}

// level5Fields are the fields of level 5 inside of older records and commands.
var level5Fields = []string{"Submission.Requester", "Submission.Reason", "Flight.Requester", "Policy.ApprovalWithin", "Policy.Definition", "Queue.Action", "Flight.Ended", "Policy.SafeIfAbsent", "Flight.Unknown", "Wake.Live",
	"Wake.Marked", "Cancel.Driver", "SealKey.Driver"}

// level6Fields are those of level 6.
var level6Fields = []string{"Attempt.Callbacks", "Open.Trace", "Attempt.Trace", "Queue.Trace"}

func isField(fields []string, t reflect.Type, field int) bool {
	return slices.Contains(fields, t.Name()+"."+t.Field(field).Name)
}

// withoutFields clears the fields of a later level, so that an older build can read the value.
func withoutFields(v reflect.Value, fields []string) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			withoutFields(v.Elem(), fields)
		}
	case reflect.Slice:
		for i := range v.Len() {
			withoutFields(v.Index(i), fields)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			switch {
			case isField(fields, v.Type(), i):
				v.Field(i).SetZero()
			case v.Type().Field(i).IsExported():
				withoutFields(v.Field(i), fields)
			}
		}
	}
}

// filler sets every nested field to a distinct value.
type filler int

func (f *filler) fill(v reflect.Value) {
	*f++
	if v.Type() == reflect.TypeFor[flight.Key]() {
		v.Set(reflect.ValueOf(stepKey))
		return
	}
	if v.Type() == reflect.TypeFor[flight.RaiseLevel]() { // Decode rejects higher levels
		v.Set(reflect.ValueOf(flight.RaiseLevel{Level: flight.LevelDocuments}))
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
			if isField(level5Fields, v.Type(), i) || isField(level6Fields, v.Type(), i) { // the values of the older fields stay as they are
				later := filler(50 + i)
				later.fill(v.Field(i))
			} else {
				f.fill(v.Field(i))
			}
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

// goldenNames label the lines of commands_v1.golden, in the order of everyCommand.
const goldenNames = `Submit Open Report Abandon EndSession ReportFinding Suspend WakeUp Cancel Resolve DecideApproval Retry FreeKey SealKey BeginUndo Expire
	Bootstrap RaiseEpoch Tick Redact Import CountDuplicates WithdrawSession RecordGuard RaiseLevel
	PutDocument PromoteDocument DeleteDocument CloseSession Restore FinishRestore PassPivot`

// everyCommandOfV1 has every command with all fields that it had in version 1 of the codec.
func everyCommandOfV1() []flight.Command {
	all := everyCommand()
	for _, c := range all {
		n := filler(0)
		n.fill(reflect.ValueOf(c).Elem())
		withoutFields(reflect.ValueOf(c), slices.Concat(level5Fields, level6Fields))
		if c, ok := c.(*flight.Submit); ok {
			c.Queue = nil
		}
	}
	return all
}

// TestCodec_Golden checks that version 1 of the codec still writes the same bytes: logs with these bytes must stay
// readable. If this test fails, the format was changed by accident. An intended change is a new field with a new number;
// then run -update.
func TestCodec_Golden(t *testing.T) {
	var now strings.Builder
	for i, c := range everyCommandOfV1() {
		b, err := flight.Encode(c)
		require.NoError(t, err)
		fmt.Fprintf(&now, "%s %s\n", strings.Fields(goldenNames)[i], hex.EncodeToString(b))
	}
	golden(t, "testdata/commands_v1.golden", now.String())

	now.Reset()
	whole, header := filled(new(flight.Flight)), filled(new(flight.Header))
	submit := filled(new(flight.Submit))
	flight6, err13 := flight.EncodeRecord(whole)
	var level6 strings.Builder
	for _, c := range []flight.Command{submit, filled(new(flight.Open))} {
		b, err := flight.Encode(c)
		require.NoError(t, err)
		fmt.Fprintf(&level6, "%s %x\n", strings.TrimPrefix(fmt.Sprintf("%T", c), "*flight."), b)
	}
	withoutFields(reflect.ValueOf(whole), level6Fields)
	withoutFields(reflect.ValueOf(submit), level6Fields)
	flight5, err12 := flight.EncodeRecord(whole)
	var level5 strings.Builder
	for _, c := range []flight.Command{submit, filled(new(flight.Suspend)), filled(new(flight.Cancel)), filled(new(flight.SealKey)), filled(new(flight.PassPivot))} {
		b, err := flight.Encode(c)
		require.NoError(t, err)
		fmt.Fprintf(&level5, "%s %x\n", strings.TrimPrefix(fmt.Sprintf("%T", c), "*flight."), b)
	}
	withoutFields(reflect.ValueOf(whole), level5Fields)
	withoutFields(reflect.ValueOf(submit), level5Fields)
	flight4, err10 := flight.EncodeRecord(whole)
	submit4, err11 := flight.Encode(submit)
	whole.Place = nil // as level 3 writes it
	flight3, err8 := flight.EncodeRecord(whole)
	header3, err9 := flight.EncodeRecord(header)
	whole.Steps, header.Steps, header.Reconciling, header.RestoredFrom = 0, 0, false, 0 // as level 2 writes them
	f, err1 := flight.EncodeRecord(whole)
	level2, err5 := flight.EncodeRecord(header)
	header.Level = 0 // as level 1 writes it
	h, err2 := flight.EncodeRecord(header)
	e, err3 := flight.EncodeRecord(filled(new(flight.Event)))
	a, err4 := flight.EncodeRecord(filled(new(flight.DuplicateStats)))
	d, err6 := flight.EncodeRecord(filled(new(flight.Document)))
	line := filled(new(flight.AuditEntry))
	audit, err7 := flight.EncodeRecord(line)
	require.NoError(t, errors.Join(err1, err2, err3, err4, err5, err6, err7, err8, err9, err10, err11, err12, err13))
	fmt.Fprintf(&now, "Flight %x\nHeader %x\nEvent %x\nDuplicateStats %x\n", f, h, e, a)
	golden(t, "testdata/records_v1.golden", now.String())
	golden(t, "testdata/records_level2.golden", fmt.Sprintf("Header %x\nDocument %x\nAuditEntry %x\n", level2, d, audit))
	golden(t, "testdata/records_level3.golden", fmt.Sprintf("Flight %x\nHeader %x\n", flight3, header3))
	golden(t, "testdata/level4.golden", fmt.Sprintf("Flight %x\nSubmit %x\n", flight4, submit4))
	golden(t, "testdata/level5.golden", fmt.Sprintf("Flight %x\n%s", flight5, level5.String()))
	golden(t, "testdata/level6.golden", fmt.Sprintf("Flight %x\n%s", flight6, level6.String()))
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

// TestCodec_GoldenIsStillRead decodes the golden bytes with the present code.
func TestCodec_GoldenIsStillRead(t *testing.T) {
	text, err := os.ReadFile("testdata/commands_v1.golden")
	require.NoError(t, err)
	all := everyCommandOfV1()
	for i, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		name, digits, _ := strings.Cut(line, " ")
		b, err := hex.DecodeString(digits)
		require.NoError(t, err)
		got, err := flight.Decode(b)
		require.NoError(t, err, "%s reads as %+v: %v", name, got, err)
		require.Equal(t, all[i], got, "%s reads as %+v: %v", name, got, err)
	}
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
