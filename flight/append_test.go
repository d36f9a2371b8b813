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
	"pgregory.net/rapid"

	"github.com/flightd/flightd/flight"
)

// tags writes by reflection what the struct tags promise. It is what the encoders written by hand are held to.
func tags(t testing.TB) cbor.EncMode {
	t.Helper()
	mode, err := cbor.CoreDetEncOptions().EncMode()
	if err != nil {
		t.Fatal(err)
	}
	return mode
}

// handWritten is one of each type that is written by hand, new and zero, with the writer that users call.
func handWritten() map[string]func() (v any, write func() ([]byte, error)) {
	return map[string]func() (any, func() ([]byte, error)){
		"Open": func() (any, func() ([]byte, error)) {
			c := new(flight.Open)
			return c, func() ([]byte, error) { return flight.Encode(c) }
		},
		"Report": func() (any, func() ([]byte, error)) {
			c := new(flight.Report)
			return c, func() ([]byte, error) { return flight.Encode(c) }
		},
		"Import": func() (any, func() ([]byte, error)) {
			c := new(flight.Import)
			return c, func() ([]byte, error) { return flight.Encode(c) }
		},
		"Flight": func() (any, func() ([]byte, error)) {
			f := new(flight.Flight)
			return f, func() ([]byte, error) { return flight.EncodeRecord(f) }
		},
		"Event": func() (any, func() ([]byte, error)) {
			e := new(flight.Event)
			return e, func() ([]byte, error) { return flight.EncodeRecord(e) }
		},
	}
}

// difference compares what is written by hand with what the tags promise, and says where they part, or nothing.
func difference(t testing.TB, mode cbor.EncMode, v any, write func() ([]byte, error)) string {
	t.Helper()
	head := []byte{flight.CodecVersion}
	switch v.(type) {
	case *flight.Open:
		head = append(head, 2)
	case *flight.Report:
		head = append(head, 3)
	case *flight.Import:
		head = append(head, 21)
	}
	tagged, err1 := mode.Marshal(v)
	got, err2 := write()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	want := append(head, tagged...)
	if bytes.Equal(got, want) {
		return ""
	}
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	const show = 40
	return fmt.Sprintf("at byte %d of %d it says %x, and the tags %x", at, len(want),
		got[at:min(at+show, len(got))], want[at:min(at+show, len(want))])
}

// walk visits v, which is zero, once for every field under it with that one field set and nothing else but the way to
// it: nil and empty slices and pointers are different things to omitempty and omitzero.
func (n *filler) walk(v reflect.Value, path string, visit func(path string)) {
	visit(path)
	switch {
	case v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[flight.Key]():
		for i := range v.NumField() {
			n.walk(v.Field(i), path+"."+v.Type().Field(i).Name, visit)
		}
		return
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		n.walk(v.Elem(), path, visit)
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 0, 0))
		visit(path + "[empty]")
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		n.walk(v.Index(0), path+"[0]", visit)
	default:
		n.fill(v)
		visit(path)
	}
	v.SetZero()
}

// without visits v, which is full, once for every field under it with that one field zero.
func without(v reflect.Value, path string, visit func(path string)) {
	was := reflect.New(v.Type()).Elem()
	was.Set(v)
	v.SetZero()
	visit(path)
	v.Set(was)
	switch {
	case v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[flight.Key]():
		for i := range v.NumField() {
			without(v.Field(i), path+"."+v.Type().Field(i).Name, visit)
		}
	case v.Kind() == reflect.Pointer:
		without(v.Elem(), path, visit)
	case v.Kind() == reflect.Slice:
		without(v.Index(0), path+"[0]", visit)
	}
}

// TestAppend_KnowsEveryField fails when a field is added to one of the types written by hand, or to what they are made
// of, and is not written, or is written other than its tag says.
func TestAppend_KnowsEveryField(t *testing.T) {
	mode := tags(t)
	for name, zero := range handWritten() {
		v, write := zero()
		visits := 0
		visit := func(path string) {
			visits++
			if d := difference(t, mode, v, write); d != "" {
				t.Errorf("%s: %s", path, d)
			}
		}
		n, root := filler(0), reflect.ValueOf(v).Elem()
		n.walk(root, name+" of nothing but its ", visit)
		for i := range root.NumField() { // so that the map has every length once
			n.fill(root.Field(i))
			visit(name + " up to " + root.Type().Field(i).Name)
		}
		without(root, name+" without its ", visit)
		if visits < 2*root.NumField() {
			t.Errorf("%s: only %d visits", name, visits)
		}
	}
}

// TestProperty_AppendWritesWhatTheTagsSay compares the encoders written by hand with reflection over the tags.
func TestProperty_AppendWritesWhatTheTagsSay(t *testing.T) {
	mode := tags(t)
	for name, zero := range handWritten() {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				v, write := zero()
				draw(rt, reflect.ValueOf(v).Elem())
				if d := difference(t, mode, v, write); d != "" {
					rt.Fatal(d)
				}
			})
		})
	}
}

// edges are where the head of a number or a length grows.
var edges = []uint64{0, 1, 23, 24, 255, 256, 65535, 65536, math.MaxUint32, math.MaxUint32 + 1, math.MaxInt64, math.MaxUint64}

// draw sets v to anything, often to nothing, and to the edges more often than chance would.
func draw(t *rapid.T, v reflect.Value) {
	if rapid.IntRange(0, 3).Draw(t, "zero") == 0 {
		return
	}
	if v.Type() == reflect.TypeFor[flight.Key]() {
		long := strings.Repeat("k", flight.MaxKeyPart)
		v.Set(reflect.ValueOf(rapid.SampledFrom([]flight.Key{soloKey, stepKey, undoKey, flight.MustKey("a/b/c"),
			flight.MustKey("test/charge/" + long), flight.MustKey(long + "/" + long + "/" + long)}).Draw(t, "key")))
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
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		v.SetUint(drawNumber(t) & (math.MaxUint64 >> (64 - v.Type().Bits())))
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(drawNumber(t)))
		if rapid.Bool().Draw(t, "minus") {
			v.SetInt(-v.Int())
		}
	default:
		t.Fatalf("no value for %s", v.Type())
	}
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

// TestAppend_TakesOnePieceOfMemory holds the guesses of the length to what is usual, with small bodies and large ones.
func TestAppend_TakesOnePieceOfMemory(t *testing.T) {
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
		if b, _ := write(); n != 1 || cap(b) > len(b)+len(b)/4+192 {
			t.Errorf("%s: %v pieces of memory, %d bytes of room for %d", name, n, cap(b), len(b))
		}
	}
}
