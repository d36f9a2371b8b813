package flight_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

func TestCanonicalJSON(t *testing.T) {
	for in, want := range map[string]string{
		` { "b" : 1 , "a" : [ true , null , "x" ] } `:                                 `{"a":[true,null,"x"],"b":1}`,
		`{"\u20ac":1,"\r":2,"1":3,"\ud83d\ude00":4,"\ufb33":5,"\u0080":6,"\u00f6":7}`: "{\"\\r\":2,\"1\":3,\"\u0080\":6,\"ö\":7,\"€\":1,\"😀\":4,\"\ufb33\":5}",
		`"\u0041\/\"\\\b\f\n\r\t\u001f"`:                                              `"A/\"\\\b\f\n\r\t\u001f"`,
		`[1.0,1e0,1,10e-1,0.1e1]`:                                                     `[1,1,1,1,1]`,
		`[0.1,1e21,1e-7,123.456,1E+2]`:                                                `[0.1,1e+21,1e-7,123.456,100]`,
		`[-0,0,-0.0,0e5,-0e-999999999999999999999]`:                                   `[0,0,0,0,0]`,
		`[9007199254740992,-9007199254740992]`:                                        `[9007199254740992,-9007199254740992]`,
		`5e-324`:                                                                      `5e-324`,
		`1.7976931348623157e308`:                                                      `1.7976931348623157e+308`,
		`{}`:                                                                          `{}`,
		"[]\r\n\t ":                                                                   `[]`,
		`""`:                                                                          `""`,
	} {
		got, err := flight.CanonicalJSON([]byte(in))
		require.NoError(t, err, "%s\n is %s,\nwant %s: %v", in, got, want, err)
		require.Equal(t, want, string(got), "%s\n is %s,\nwant %s: %v", in, got, want, err)
	}
}

// Documents outside RFC 7493 are rejected, and numbers that the canonical form would make equal to other numbers.
func TestCanonicalJSON_RejectsAmbiguousDocuments(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for _, in := range []string{
		``, ` `, `{`, `[1,`, `[1 2]`, `{"a"}`, `{"a":}`, `{"a":1,}`, `[1,]`, `{a:1}`, `{'a':1}`, `{1:2}`, `tru`, `nul`, `True`, `NaN`, `Infinity`, `-`, `+1`,
		`01`, `-01`, `1.`, `.5`, `1e`, `1e+`, `0x1`, `1_000`, `1 x`, `{} {}`, `[]]`, "\ufeff{}", "\v1", `// x`, "[1]\x00",
		`{"a":1,"a":1}`, `{"a":1,"\u0061":2}`, `[{"b":{"x":1,"x":2}}]`,
		`"\ud800"`, `"\udc00"`, `"\ud800\ud800"`, `"\ud800x"`, `"\udc00\ud800"`, `{"\ud800":1}`, `"\ufffe"`, `"\uffff"`, `"\ufdd0"`, `"\ud83f\udfff"`, "\"\uffff\"",
		"\"\xff\"", "\"\xc0\x80\"", "\"\xed\xa0\x80\"", "\"\xf5\x80\x80\x80\"", "{\"\xff\":1}", "\"\x01\"", "\"\n\"", `"\x41"`, `"\u12"`, `"\u12g4"`, `"\u+123"`, `"a`, `"\`, `"\u`,
		`9007199254740993`, `-9007199254740993`, `9007199254740994`, `12345678901234567890`, `[1,{"id":100000000000000000000}]`,
		`9007199254740993.0`, `1e16`, `-1e20`, `1000000000000000E1`, `1.00000000000000001`, `0.1000000000000000055511151231257827`, `1e400`, `-1e400`, `1e-400`, `1e99999999999999999999`, `1e-99999999999999999999`, `2.5e-324`,
		deep(129), strings.Repeat("[", 100_000), strings.Repeat(`{"a":`, 129) + "1" + strings.Repeat("}", 129),
	} {
		got, err := flight.CanonicalJSON([]byte(in))
		var invalid *flight.InvalidError
		require.ErrorAs(t, err, &invalid, "%.60q is %s: %v", in, got, err)
		require.Equal(t, "input", invalid.Field, "%.60q is %s: %v", in, got, err)
		require.NotEmpty(t, invalid.Detail, "%.60q is %s: %v", in, got, err)
		require.Nil(t, got, "%.60q is %s: %v", in, got, err)
		_, err = flight.FingerprintJSON([]byte(in), []string{"/a", "/b"})
		require.Error(t, err, "%.60q has a fingerprint", in)
	}
	_, err := flight.CanonicalJSON([]byte(deep(128)))
	require.NoError(t, err, "a depth of 128: %v", err)
}

func TestCanonicalJSON_ErrorHasThePointer(t *testing.T) {
	_, err := flight.CanonicalJSON([]byte(`{"order":{"li/nes":[{"id":1},{"id":9007199254740993}]}}`))
	require.Error(t, err, "the error has no pointer: %v", err)
	require.Contains(t, err.Error(), "at /order/li~1nes/1/id: ", "the error has no pointer: %v", err)
}

func TestFingerprintJSON_IgnoresFields(t *testing.T) {
	sum := func(in string, ignore ...string) flight.Fingerprint {
		t.Helper()
		fp, err := flight.FingerprintJSON([]byte(in), ignore)
		if err != nil {
			t.Fatalf("%s without %q: %v", in, ignore, err)
		}
		return fp
	}
	same := [][2]flight.Fingerprint{
		{sum(`{"a":1,"b":2}`), sum(` {"b":2.0,"a":1} `)},
		{sum(`{"a":1,"t":"x"}`, "/t"), sum(`{"t":"y","a":1}`, "/t")},
		{sum(`{"a":1,"t":"x"}`, "/t"), sum(`{"a":1}`)},
		{sum(`{"a":{"t":1,"u":2}}`, "/a/t"), sum(`{"a":{"u":2}}`, "/none", "/a/none", "/a/u/x")},
		{sum(`{"a":[{"t":1},{"t":2}]}`, "/a/1"), sum(`{"a":[{"t":1}]}`)},
		{sum(`{"a":[0,1,2]}`, "/a/0", "/a/2"), sum(`{"a":[1]}`)},
		{sum(`{"a/b":1,"c~d":2,"":3,"e":4}`, "/a~1b", "/c~0d", "/"), sum(`{"e":4}`)},
		{sum(`{"a":{"t":1}}`, "/a", "/a/t"), sum(`{}`)},
		{sum(`{"\u0061":1,"b":2}`, "/a"), sum(`{"b":2}`)},
	}
	for i, pair := range same {
		require.Equal(t, pair[1], pair[0], "pair %d differs", i)
	}
	require.NotEqual(t, sum(`{"a":2}`), sum(`{"a":1}`), "different documents have the same fingerprint")
	require.NotEqual(t, sum(`{}`), sum(`[]`), "different documents have the same fingerprint")
	require.NotEqual(t, sum(`{"a":[0]}`), sum(`{"a":[0,1]}`, "/a/01"), "different documents have the same fingerprint")
	require.NotEqual(t, sum(`1`), sum(`"1"`), "different documents have the same fingerprint")
	require.Equal(t, flight.FingerprintBytes([]byte(`{"a":1,"b":2}`)), sum(`{"b":2, "a":1}`), "the fingerprint is not that of the canonical form")
	require.NotEqual(t, flight.NoFingerprint, sum(`{}`), "the fingerprint is not that of the canonical form")
	for _, pointer := range []string{"", "a", "#/a", "/a~", "/a~2b", "/~"} {
		_, err := flight.FingerprintJSON([]byte(`{"a":1}`), []string{pointer})
		require.Error(t, err, "the pointer %q was accepted", pointer)
	}
}

func TestDifferingFields(t *testing.T) {
	for _, c := range []struct {
		a, b   string
		ignore []string
		want   []string
	}{
		{`{"a":1,"b":{"c":[1,2],"d":"x"}}`, `{"b":{"d":"y","c":[1,3]},"a":1.0}`, nil, []string{"/b/c/1", "/b/d"}},
		{`{"a":1}`, `{"b":1}`, nil, []string{"/a", "/b"}},
		{`{"a":[1,2,3]}`, `{"a":[1]}`, nil, []string{"/a/1"}},
		{`{"a":{}}`, `{"a":[]}`, nil, []string{"/a"}},
		{`1`, `2`, nil, []string{""}},
		{`{"a/b":{"c~d":1}}`, `{"a/b":{"c~d":2}}`, nil, []string{"/a~1b/c~0d"}},
		{`{"t":1,"a":1}`, `{"t":2,"a":1}`, []string{"/t"}, nil},
		{`{"t":1,"a":1}`, `{"t":2,"a":2}`, []string{"/t"}, []string{"/a"}},
		{`{"a":1}`, `{"a":`, nil, nil},
		{`{"a":1}`, `{"a":2}`, []string{"bad"}, nil},
	} {
		got := flight.DifferingFields([]byte(c.a), []byte(c.b), c.ignore)
		require.True(t, slices.Equal(got, c.want), "%s and %s without %q differ at %q, want %q", c.a, c.b, c.ignore, got, c.want)
	}
	many := func(n string) []byte { return []byte("[" + strings.Repeat(n+",", 99) + n + "]") }
	got := flight.DifferingFields(many("1"), many("2"), nil)
	require.Len(t, got, 16, "a hundred differences: %q", got)
	require.Equal(t, "/15", got[15], "a hundred differences: %q", got)
}

func FuzzCanonicalJSON(f *testing.F) {
	for _, s := range []string{`{"b":[1,2.5e3,{"c":null}],"a":"\u20ac\ud83d\ude00"}`, `{"a":1,"a":2}`, `"\ud800"`, `9007199254740993`, `-0`, `1e-7`,
		`1.00000000000000001`, "[\"\xff\"]", `[[[]]]`, `{"":{"~":1,"/":2}}`, `0.000001`, `123456789012345680000.5`, ` true `} {
		f.Add([]byte(s), "/a")
	}
	f.Fuzz(func(t *testing.T, in []byte, pointer string) {
		canonical, err := flight.CanonicalJSON(in)
		if err != nil {
			return
		}
		require.True(t, json.Valid(in), "%q is invalid JSON and was accepted", in)
		again, err := flight.CanonicalJSON(canonical)
		require.NoError(t, err, "the canonical form %q is not stable: %q, %v", canonical, again, err)
		require.True(t, bytes.Equal(canonical, again), "the canonical form %q is not stable: %q, %v", canonical, again, err)
		require.True(t, sameValue(t, in, canonical), "%q changed its meaning to %q", in, canonical)
		d := flight.DifferingFields(in, canonical, nil)
		require.LessOrEqual(t, len(d), 0, "%q differs from its canonical form at %q", in, d)
		one, err1 := flight.FingerprintJSON(in, []string{pointer})
		two, err2 := flight.FingerprintJSON(canonical, []string{pointer})
		require.Equal(t, two, one, "%q without %q: %v and %v, %v and %v", in, pointer, one, two, err1, err2)
		require.Equal(t, (err2 == nil), (err1 == nil), "%q without %q: %v and %v, %v and %v", in, pointer, one, two, err1, err2)
	})
}

// sameValue compares two documents as package encoding/json reads them.
func sameValue(t *testing.T, a, b []byte) bool {
	var x, y any
	err := errors.Join(json.Unmarshal(a, &x), json.Unmarshal(b, &y))
	require.NoError(t, err)
	return reflect.DeepEqual(x, y)
}
