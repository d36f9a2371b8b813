package strictjson_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/internal/strictjson"
)

type request struct {
	Name  string          `json:"name"`
	Count int64           `json:"count,omitzero"`
	Wait  *int64          `json:"wait,omitzero"`
	Yes   bool            `json:"yes,omitzero"`
	Bytes []byte          `json:"bytes,omitzero"`
	Words []string        `json:"words,omitempty"`
	Raw   json.RawMessage `json:"raw,omitzero"`
	inner
}

type inner struct {
	Inside string `json:"inside,omitzero"`
}

func TestDecodeRequest_ReportsPlaceAndReason(t *testing.T) {
	for in, want := range map[string]string{
		`{"name":"a","name":"b"}`:               "/name: duplicate field",
		`{"name":"a","\u006eame":"b"}`:          "/name: duplicate field",
		`{"raw":{"a":1,"a":2},"name":1}`:        "/name: unexpected type: a string is expected, not a number",
		`{"raw":{"a":1,"a":2},"raw":1}`:         "/raw: duplicate field",
		`{"raw":{"a":1,"a":2},"new":1}`:         "/new: unknown field",
		`{"new/field":1}`:                       "/new~1field: unknown field",
		`{"Name":"a"}`:                          "/Name: unknown field",
		`{"name":[1]}`:                          "/name: unexpected type: a string is expected, not an array",
		`{"count":"1"}`:                         "/count: unexpected type: a whole number is expected, not a string",
		`{"count":1.5}`:                         "/count: 1.5 is not a whole number of 64 bits",
		`{"count":1e3}`:                         "/count: 1e3 is not a whole number of 64 bits",
		`{"wait":9223372036854775808}`:          "/wait: 9223372036854775808 is not a whole number of 64 bits",
		`{"yes":1}`:                             "/yes: unexpected type: true or false is expected, not a number",
		`{"bytes":"***"}`:                       "/bytes: it is not base64 in the standard alphabet with padding: illegal base64 data at input byte 0",
		`{"words":{}}`:                          "/words: unexpected type: an array is expected, not an object",
		`[]`:                                    "unexpected type: an object is expected, not an array",
		`{"name":"a"} {}`:                       "trailing data after the JSON document, at byte 14",
		`{"name":"a"`:                           "invalid JSON: unexpected end at byte 12",
		`{"raw":{"a":[1,tru]}}`:                 "/raw/a/1: invalid JSON at byte 19: invalid character ']' in literal true (expecting 'e')",
		`{"name":"\ud800"}`:                     "/name: invalid JSON at byte 10: invalid surrogate pair `\\ud800\"}` in string",
		"{\"raw\":[\"\xff\"]}":                  "/raw/0: invalid JSON at byte 10: invalid UTF-8",
		``:                                      "invalid JSON: unexpected end at byte 1",
		strings.Repeat(`{"raw":`, 20_000) + `1`: "invalid JSON at byte 69994: exceeded max depth",
	} {
		var r request
		err := strictjson.DecodeRequest([]byte(in), &r)
		var e *strictjson.Error
		require.ErrorAs(t, err, &e, "%.60s", in)
		if strings.Contains(in, strings.Repeat(`{"raw":`, 9)) {
			require.Contains(t, e.Detail, "max depth") // its pointer is as long as the document
			continue
		}
		require.Equal(t, want, err.Error(), in)
	}
}

func TestDecodeRequest_NullCountsAsMissing(t *testing.T) {
	var r request
	require.NoError(t, strictjson.DecodeRequest([]byte(`{"name":null,"count":null,"wait":null,"yes":null,"bytes":null,"words":null,"inside":null}`), &r))
	require.Equal(t, request{}, r)
}

// Raw values are carried byte for byte, in both directions: white space, escapes, repeated names and numbers.
func TestRawValues_AreCarriedByteForByte(t *testing.T) {
	for _, raw := range []string{`null`, `1.0`, `-0`, `"\u00e9\/"`, `{"a": 1,  "a":[ ]}`, "[\n1 , 2]", `{"b":1,"a":1E400}`} {
		in := `{"name":"a","raw":` + raw + `,"inside":"b"}`
		var r request
		require.NoError(t, strictjson.DecodeRequest([]byte(in), &r))
		require.Equal(t, raw, string(r.Raw))
		require.Equal(t, "at "+in, string(strictjson.Append([]byte("at "), &r)))
	}
	require.Equal(t, `{"name":"a�<>&"}`, string(strictjson.Append(nil, request{Name: "a\xff<>&"})), "invalid UTF-8 is replaced, nothing is escaped for HTML")
}

func TestDecodeRequest_AcceptsLineBreaksInBase64(t *testing.T) {
	var r request
	require.NoError(t, strictjson.DecodeRequest([]byte(`{"bytes":"AP\r\n8="}`), &r))
	require.Equal(t, []byte{0, 255}, r.Bytes)
}

func TestDecodeAnswer_AcceptsUnknownFields(t *testing.T) {
	var r request
	require.NoError(t, strictjson.DecodeAnswer([]byte(` {"new":{"a":[1,"}"]},"name":"x","name":"y"} `), &r))
	require.Equal(t, "y", r.Name)
	for _, bad := range []string{``, `[]`, `{"name":1}`, `{"name":"x"`, `{} {}`, "{\"name\":\"\xff\"}"} {
		require.Error(t, strictjson.DecodeAnswer([]byte(bad), &r), bad)
	}
}

func TestDepth(t *testing.T) {
	for in, want := range map[string]int{`1`: 0, `"[[\"[["`: 0, `[]`: 1, `{"a":[1,[2]],"b":{}}`: 3, `["\\",[1]]`: 2} {
		require.Equal(t, want, strictjson.Depth([]byte(in)), in)
	}
	require.True(t, strictjson.Valid([]byte(`{"a":1,"a":[2]}`), 2))
	for _, bad := range []string{``, ` 1`, `1 `, `{"a":[[2]]}`, `01`, "\"\xff\"", `"\ud800"`, `1 2`} {
		require.False(t, strictjson.Valid([]byte(bad), 2), bad)
	}
}
