package flight_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/flightd/flightd/flight"
)

// encByTags and decByTags encode and decode by reflection over the struct tags, with the rules of the codec. The coder must write the same
// bytes, and read the same values.
var encByTags, decByTags = modesByTags()

func modesByTags() (cbor.EncMode, cbor.DecMode) {
	options := cbor.CoreDetEncOptions()
	options.TextMarshaler = cbor.TextMarshalerTextString // of a key
	enc, err1 := options.EncMode()
	dec, err2 := cbor.DecOptions{DupMapKey: cbor.DupMapKeyEnforcedAPF, IndefLength: cbor.IndefLengthForbidden,
		ExtraReturnErrors: cbor.ExtraDecErrorUnknownField, TextUnmarshaler: cbor.TextUnmarshalerTextString}.DecMode()
	if err := errors.Join(err1, err2); err != nil {
		panic(err)
	}
	return enc, dec
}

// everyType returns a zero value of each type that is stored by itself.
func everyType() (all []any) {
	for _, c := range flight.NewCommands() {
		all = append(all, c)
	}
	return append(all, new(flight.Flight), new(flight.Header), new(flight.Event), new(flight.DuplicateStats), new(flight.Document),
		new(flight.AuditEntry))
}

// encode returns the head and the rest of an encoded command or record.
func encode(v any) (head, rest []byte, err error) {
	var b []byte
	n := 1
	switch v := v.(type) {
	case flight.Command:
		b, err = flight.Encode(v)
		n = 2
	case *flight.Flight:
		b, err = flight.EncodeRecord(v)
	case *flight.Header:
		b, err = flight.EncodeRecord(v)
	case *flight.Event:
		b, err = flight.EncodeRecord(v)
	case *flight.DuplicateStats:
		b, err = flight.EncodeRecord(v)
	case *flight.Document:
		b, err = flight.EncodeRecord(v)
	case *flight.AuditEntry:
		b, err = flight.EncodeRecord(v)
	}
	if err != nil {
		return nil, nil, err
	}
	return b[:n], b[n:], nil
}

// difference compares the encoding of v with the encoding by its tags. It returns the first difference, or "".
func difference(t testing.TB, v any) string {
	t.Helper()
	want, err := encByTags.Marshal(v)
	require.NoError(t, err)
	head, got, err := encode(v)
	var invalid *flight.InvalidError
	switch {
	case errors.As(err, &invalid) && invalid.Field != "command": // a rule for documents, and not the coder, has rejected the command
		return ""
	case err != nil: // only an undecodable value may be rejected
		if decByTags.Unmarshal(want, reflect.New(reflect.TypeOf(v).Elem()).Interface()) == nil {
			return fmt.Sprintf("rejected although it can be decoded: %v", err)
		}
		return ""
	case bytes.Equal(got, want):
		return misread(v, head, got)
	}
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	const show = 40
	return fmt.Sprintf("at byte %d of %d: %x by the coder, %x by the tags", at, len(want),
		got[at:min(at+show, len(got))], want[at:min(at+show, len(want))])
}

// misread decodes bytes of the type of v with the coder and by its tags. It returns the difference between the two results, or "".
func misread(v any, head, rest []byte) string {
	byCoder, byTags := reflect.New(reflect.TypeOf(v).Elem()), reflect.New(reflect.TypeOf(v).Elem())
	err1 := decByTags.Unmarshal(rest, byTags.Interface())
	err2 := decode(append(head, rest...), byCoder)
	switch {
	case err2 != nil && strings.Contains(err2.Error(), "the key is missing"): // a rule after the coder
	case (err1 == nil) != (err2 == nil):
		return fmt.Sprintf("%x reads by its tags with %v, and by the coder with %v", rest, err1, err2)
	case err1 == nil && !reflect.DeepEqual(byTags.Interface(), byCoder.Interface()):
		return fmt.Sprintf("%x reads by its tags as %+v, and by the coder as %+v", rest, byTags, byCoder)
	}
	return ""
}

// decode decodes a command or a record into v, a pointer, with the exported functions.
func decode(b []byte, v reflect.Value) error {
	switch v := v.Interface().(type) {
	case *flight.Flight:
		return flight.DecodeRecord(b, v)
	case *flight.Header:
		return flight.DecodeRecord(b, v)
	case *flight.Event:
		return flight.DecodeRecord(b, v)
	case *flight.DuplicateStats:
		return flight.DecodeRecord(b, v)
	case *flight.Document:
		return flight.DecodeRecord(b, v)
	case *flight.AuditEntry:
		return flight.DecodeRecord(b, v)
	}
	c, err := flight.Decode(b)
	if err == nil && reflect.TypeOf(c) != v.Type() {
		return errors.New("another command")
	}
	if err == nil {
		v.Elem().Set(reflect.ValueOf(c).Elem())
	}
	return err
}

// walk visits v, which is zero, once for every nested field, with only that field and its parents set. It visits nil and
// empty slices and pointers separately, because omitempty and omitzero treat them differently.
func (f *filler) walk(v reflect.Value, path string, visit func(path string)) {
	visit(path)
	switch {
	case v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[flight.Key]():
		for i := range v.NumField() {
			f.walk(v.Field(i), path+"."+v.Type().Field(i).Name, visit)
		}
		return
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.walk(v.Elem(), path, visit)
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 0, 0))
		visit(path + "[empty]")
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		f.walk(v.Index(0), path+"[0]", visit)
	default:
		f.fill(v)
		visit(path)
	}
	v.SetZero()
}

// visitWithoutEach visits v, which is full, once for every nested field, with only that field zero.
func visitWithoutEach(v reflect.Value, path string, visit func(path string)) {
	was := reflect.New(v.Type()).Elem()
	was.Set(v)
	v.SetZero()
	visit(path)
	v.Set(was)
	switch {
	case v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[flight.Key]():
		for i := range v.NumField() {
			visitWithoutEach(v.Field(i), path+"."+v.Type().Field(i).Name, visit)
		}
	case v.Kind() == reflect.Pointer:
		visitWithoutEach(v.Elem(), path, visit)
	case v.Kind() == reflect.Slice:
		visitWithoutEach(v.Index(0), path+"[0]", visit)
	}
}

// TestCoder_KnowsEveryField fails if the coder leaves out a field of a type, or encodes it differently from its tag.
func TestCoder_KnowsEveryField(t *testing.T) {
	for _, v := range everyType() {
		visit := func(path string) {
			if d := difference(t, v); d != "" {
				t.Errorf("%s: %s", path, d)
			}
		}
		n, root, name := filler(0), reflect.ValueOf(v).Elem(), fmt.Sprintf("%T", v)
		n.walk(root, name+" with only ", visit)
		for i := range root.NumField() { // gives the map every length once
			n.fill(root.Field(i))
			visit(name + " up to " + root.Type().Field(i).Name)
		}
		visitWithoutEach(root, name+" without its ", visit)
	}
}

// FuzzCoder checks that bytes that the coder decodes read the same by the tags, and that their value is encoded by the tags.
func FuzzCoder(f *testing.F) {
	for _, v := range everyType() {
		n := filler(0)
		n.fill(reflect.ValueOf(v).Elem())
		head, rest, err := encode(v)
		require.NoError(f, err)
		f.Add(append(head, rest...))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, v := range everyType() {
			n := 1
			if _, command := v.(flight.Command); command {
				n = 2
			}
			if len(b) < n || decode(b, reflect.ValueOf(v)) != nil {
				continue
			}
			d := misread(v, b[:n:n], b[n:])
			require.Empty(t, d, d)
			d = difference(t, v)
			require.Empty(t, d, d)
		}
	})
}

// TestCoder_RejectsForeignEncoding checks that a record with one part in another than the canonical encoding is rejected.
func TestCoder_RejectsForeignEncoding(t *testing.T) {
	const id = "\x01\x50\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	err := flight.DecodeRecord([]byte("\x01\xa2"+id+"\x04\x02"), new(flight.Flight))
	require.NoError(t, err)
	for name, b := range map[string]string{
		"nothing":                 "",
		"not a map":               "\x80",
		"truncated in a map":      "\xa2" + id,
		"truncated in a head":     "\xa2" + id + "\x04\x19\x01",
		"list longer than input":  "\xa2" + id + "\x0a\x9b\x00\x00\x00\xff\x00\x00\x00\x00",
		"trailing data":           "\xa1" + id + "\x00",
		"another order":           "\xa2\x04\x02" + id,
		"duplicate field":         "\xa3" + id + "\x04\x02\x04\x02",
		"unknown field":           "\xa2" + id + "\x18\x40\x01",
		"a number too large":      "\xa2" + id + "\x04\x19\x01\x00",
		"a number below zero":     "\xa2" + id + "\x04\x20",
		"a time out of range":     "\xa2" + id + "\x0e\x3b\xff\xff\xff\xff\xff\xff\xff\xff",
		"invalid UTF-8":           "\xa2" + id + "\x18\x1f\x61\xff",
		"bytes for a text":        "\xa2" + id + "\x18\x1f\x41x",
		"a short id":              "\xa1\x01\x44abcd",
		"null":                    "\xa2" + id + "\x13\xf6",
		"a flag that is a number": "\xa2" + id + "\x18\x18\x01",
		"indefinite length":       "\xbf" + id + "\xff",
		"a reserved head":         "\xa2" + id + "\x04\x1c",
		"a bad key":               "\xa2" + id + "\x02\x63a/b",
	} {
		require.Error(t, flight.DecodeRecord([]byte("\x01"+b), new(flight.Flight)), "%s was decoded", name)
	}
}

// TestCodec_RejectsInvalidUTF8 checks that a text with invalid UTF-8 is rejected in every field of every command, with an
// InvalidError for its sender. In the log it would stop every node.
func TestCodec_RejectsInvalidUTF8(t *testing.T) {
	for _, c := range flight.NewCommands() {
		n, texts := filler(0), 0
		n.fill(reflect.ValueOf(c).Elem())
		var visit func(v reflect.Value, path string)
		visit = func(v reflect.Value, path string) {
			switch {
			case v.Type() == reflect.TypeFor[flight.Key]():
			case v.Kind() == reflect.Struct:
				for i := range v.NumField() {
					visit(v.Field(i), path+"."+v.Type().Field(i).Name)
				}
			case v.Kind() == reflect.Pointer:
				visit(v.Elem(), path)
			case v.Kind() == reflect.Slice && v.Type().Elem().Kind() != reflect.Uint8:
				visit(v.Index(0), path+"[0]")
			case v.Kind() == reflect.String:
				texts++
				was := v.String()
				v.SetString("Jos\xe9")
				_, err := flight.Encode(c)
				var invalid *flight.InvalidError
				if !errors.As(err, &invalid) {
					t.Errorf("%T%s: %v", c, path, err)
				}
				v.SetString(was)
			}
		}
		visit(reflect.ValueOf(c).Elem(), "")
		t.Logf("%T: %d texts", c, texts)
	}
}

func TestSanitize(t *testing.T) {
	long := strings.Repeat("x", flight.MaxText-1)
	for in, want := range map[string]string{
		"": "", "José": "José", "Jos\xe9": "Jos", long + "é": long, long + "xy": long + "x",
	} {
		got := flight.Sanitize(in)
		require.Equal(t, want, got, "%.20q is stored as %.20q", in, got)
	}
}

// TestProperty_CoderMatchesTags compares the coder with reflection over the tags, in both directions.
func TestProperty_CoderMatchesTags(t *testing.T) {
	for _, v := range everyType() {
		t.Run(reflect.TypeOf(v).Elem().Name(), func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				root := reflect.ValueOf(v).Elem()
				root.SetZero()
				draw(rt, root)
				if d := difference(t, v); d != "" {
					rt.Fatal(d)
				}
			})
		})
	}
}

// edges are the values at which the head of a number or a length grows.
var edges = []uint64{0, 1, 23, 24, 255, 256, 65535, 65536, math.MaxUint32, math.MaxUint32 + 1, math.MaxInt64, math.MaxUint64}

// draw sets v to a random value; zero and the edges are drawn more often.
func draw(t *rapid.T, v reflect.Value) {
	if rapid.IntRange(0, 3).Draw(t, "zero") == 0 {
		return
	}
	if v.Type() == reflect.TypeFor[flight.Key]() {
		long := strings.Repeat("k", flight.MaxKeyPart)
		v.Set(reflect.ValueOf(rapid.SampledFrom([]flight.Key{soloKey, stepKey, undoKey, flight.MustKey("a/b/c"),
			flight.MustKey("test/charge/" + long), flight.MustKey(long + "/" + long + "/" + long), storedKey(decomposed)}).Draw(t, "key")))
		return
	}
	if v.Type() == reflect.TypeFor[flight.DocumentID]() {
		v.Set(reflect.ValueOf(flight.DocumentID{Namespace: "billing", Kind: flight.KindToken, Name: "one"}))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		draw(t, v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			draw(t, v.Field(i))
		}
	case reflect.Slice:
		drawSlice(t, v)
	case reflect.Array:
		v.Index(rapid.IntRange(0, v.Len()-1).Draw(t, "at")).SetUint(rapid.Uint64Range(0, 255).Draw(t, "byte"))
	case reflect.String:
		n := rapid.SampledFrom([]int{0, 1, 22, 23, 24, 255, 256, 65535, 65536}).Draw(t, "length")
		v.SetString(strings.Repeat(rapid.SampledFrom([]string{"x", "\xff", "é"}).Draw(t, "letter"), n))
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, "bool"))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(drawNumber(t) & (math.MaxUint64 >> (64 - v.Type().Bits())))
	case reflect.Int16, reflect.Int, reflect.Int64:
		v.SetInt(int64(drawNumber(t)) << (64 - v.Type().Bits()) >> (64 - v.Type().Bits()))
		if rapid.Bool().Draw(t, "minus") {
			v.SetInt(-v.Int())
		}
	default:
		t.Fatalf("no value for %s", v.Type())
	}
}

// storedKey is ParseStoredKey for keys in test code.
func storedKey(text string) flight.Key {
	k, err := flight.ParseStoredKey(text)
	if err != nil {
		panic(err)
	}
	return k
}

func drawNumber(t *rapid.T) uint64 {
	return rapid.OneOf(rapid.SampledFrom(edges), rapid.Uint64()).Draw(t, "number")
}

func drawSlice(t *rapid.T, v reflect.Value) {
	if v.Type().Elem().Kind() == reflect.Uint8 {
		n := rapid.SampledFrom([]int{0, 1, 23, 24, 255, 256, 65536}).Draw(t, "length")
		v.SetBytes(bytes.Repeat([]byte{0xfe}, n))
		return
	}
	n := rapid.SampledFrom([]int{0, 1, 2, 24}).Draw(t, "length")
	v.Set(reflect.MakeSlice(v.Type(), n, n))
	for i := range min(n, 3) {
		draw(t, v.Index(i))
	}
}

// TestCoder_AllocatesOnce checks the estimates of sizes: one allocation and little unused capacity, with small and large bodies.
func TestCoder_AllocatesOnce(t *testing.T) {
	open, report := benchCommands()
	v, _ := flight.Apply(flight.View{Header: testHeader}, open)
	v, reply := flight.Apply(v, report)
	large, largeReport := benchCommands()
	large.Submission.Input = flight.NewBlob("application/json", make([]byte, flight.MaxInput), flight.MaxInput)
	largeReport.Body = flight.NewBlob("application/json", make([]byte, flight.MaxReceiptBody), flight.MaxReceiptBody)
	for name, write := range map[string]func() ([]byte, error){
		"open":         func() ([]byte, error) { return flight.Encode(open) },
		"report":       func() ([]byte, error) { return flight.Encode(report) },
		"large open":   func() ([]byte, error) { return flight.Encode(large) },
		"large report": func() ([]byte, error) { return flight.Encode(largeReport) },
		"record":       func() ([]byte, error) { return flight.EncodeRecord(v.Flight) },
		"event":        func() ([]byte, error) { return flight.EncodeRecord(&reply.Events[0]) },
	} {
		n := testing.AllocsPerRun(20, func() {
			if _, err := write(); err != nil {
				t.Fatal(err)
			}
		})
		b, _ := write()
		require.EqualValues(t, 1, n, "%s: %v allocations, capacity %d for %d bytes", name, n, cap(b), len(b))
		require.LessOrEqual(t, cap(b), len(b)+len(b)/4+192, "%s: %v allocations, capacity %d for %d bytes", name, n, cap(b), len(b))
	}
}
