package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/strictjson"
)

// A zero that has a meaning is written: no time is left for a resend, which differs from no bound; nothing was proposed.
func TestAnswersWriteZeros(t *testing.T) {
	answer, problem := &OpenAnswer{ResendMS: new(int64)}, &Problem{Proposed: new(bool)}
	require.Contains(t, string(strictjson.Append(nil, &answer)), `"resend_ms":0`)
	require.Contains(t, string(strictjson.Append(nil, &problem)), `"proposed":false`)
}

// The digest is part of the protocol: clients in every language compute it, in any order of the attempts.
func TestOpenDigest(t *testing.T) {
	one, two := OpenAttempt{Nonce: NonceHex("n1"), Attempt: 1}, OpenAttempt{Nonce: NonceHex("n2"), Attempt: 12}
	require.Equal(t, "676b8bb84ce7267dd520deca4811c8f1", one.Nonce)
	require.Equal(t, "e3b0c44298fc1c149afbf4c8996fb924", OpenDigest(nil), "of no lines")
	require.Equal(t, "49ec49fe2ad166ef0b18ff7d94291ca8", OpenDigest([]OpenAttempt{one, two}), "as sha256sum of two sorted lines gives it")
	require.Equal(t, OpenDigest([]OpenAttempt{one, two}), OpenDigest([]OpenAttempt{two, one}))
	require.NotEqual(t, OpenDigest([]OpenAttempt{one}), OpenDigest([]OpenAttempt{one, two}))
	two.Attempt = 13
	require.NotEqual(t, OpenDigest([]OpenAttempt{one, {Nonce: two.Nonce, Attempt: 12}}), OpenDigest([]OpenAttempt{one, two}))
}

// A request and the history use the same word for a finding.
func TestFindingWord_IsTheVerbOfTheHistory(t *testing.T) {
	for verb, word := range map[flight.Finding]string{flight.FindingHappened: ResultHappened, flight.FindingNotHappened: ResultNotHappened, flight.FindingFail: ResultFail} {
		require.Equal(t, word, verb.String())
		require.Equal(t, word, FindingWord(verb))
	}
}

// Answers of later versions, with additional fields, are accepted. Invalid answers are rejected.
func TestAnswersAreReadLeniently(t *testing.T) {
	var f Flight
	require.NoError(t, DecodeAnswer([]byte(` {"new":{"a":[1,"}"]},"id":"x","more":null,"receipt":null,"previous_generations":[],"created_at":"2026-01-02T03:04:05+01:00"} `), &f))
	require.Equal(t, "x", f.ID)
	require.Nil(t, f.Receipt)
	require.Equal(t, "2026-01-02T02:04:05Z", f.CreatedAt.UTC().Format(time.RFC3339))
	for _, bad := range []string{``, `[]`, `{"id":1}`, `{"id":"x"`, `{} {}`, `{"created_at":"yesterday"}`, `{"previous_generations":{}}`} {
		require.Error(t, DecodeAnswer([]byte(bad), &f), bad)
	}
}

// The body of a receipt arrives with the same bytes, digest and length.
func TestBodies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := rapid.OneOf(
			rapid.SliceOfN(rapid.Byte(), 0, 300),
			rapid.Custom(func(t *rapid.T) []byte {
				return []byte(` {"a": 1}` + rapid.SampledFrom([]string{"", "\n"}).Draw(t, "end"))
			}),
			rapid.Just([]byte(`{"a": [1,  "é\u00e9"]}`)),
			rapid.Custom(func(t *rapid.T) []byte {
				return bytes.Repeat([]byte("x"), flight.MaxReceiptBody+rapid.IntRange(-1, 1).Draw(t, "size"))
			}),
		).Draw(t, "data")
		kind := rapid.SampledFrom([]string{"", "application/json", "application/problem+json", "application/json; charset=utf-8", "text/plain"}).Draw(t, "kind")
		want := flight.NewBlob(kind, data, flight.MaxReceiptBody)
		sent := ReportRequest{FencingToken: "t", Outcome: "succeeded", Body: BodyOf("id", kind, data)}
		read, bad := Decode[ReportRequest](strictjson.Append(nil, &sent))
		if bad != nil {
			t.Fatal(bad)
		}
		got, bad := read.Blob()
		if bad != nil {
			t.Fatal(bad)
		}
		if got.Digest != want.Digest || got.Size != want.Size || got.StoredSize != want.StoredSize || !bytes.Equal(got.Data, want.Data) || got.ContentType != kind {
			t.Fatalf("%+v is not %+v", got, want)
		}
	})
}

// ValidJSON accepts the same documents as package encoding/json, except those that hasOddity describes.
func FuzzValidJSON(f *testing.F) {
	for _, seed := range []string{`{}`, `[1,2.5e-3,-0,"\u00e9\ud83d\ude00\n",{"a":null}]`, `01`, `1.`, `"\ud800"`, `"\x"`, `{"a":1,}`, `tru`, "\"\xff\"", ` 1`, `-`, `[`, `"`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		accepted, valid := ValidJSON(data), json.Valid(data)
		require.False(t, accepted && !valid, "%q is not JSON", data)
		require.False(t, !accepted && valid && !hasOddity(data), "%q is JSON", data)
	})
}

// hasOddity reports whether package encoding/json may accept data although ValidJSON rejects it: for white space
// around it, surrogates, invalid UTF-8, or deep nesting.
func hasOddity(data []byte) bool {
	text := string(data)
	return strings.TrimSpace(text) != text || strings.Contains(strings.ToLower(text), `\ud`) || strings.ToValidUTF8(text, "") != text ||
		strings.Count(text, "[")+strings.Count(text, "{") > flight.MaxJSONDepth
}

// No input makes a decoder panic, and an accepted open is read as package encoding/json reads it.
func FuzzDecodeOpen(f *testing.F) {
	for _, seed := range []string{`{"action":"a","id":"b","input":{"x":1},"wait_ms":5,"retention":"30d","not_after":1700000000000}`, `{"id":null}`, `{"a":1,"a":2}`, `{`, `{"input":1e999}`, `{"wait_ms":-0}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _ = Decode[ReportRequest](data)
		_, _ = Decode[VerificationRequest](data)
		_, _ = Decode[RenewRequest](data)
		_, _ = Decode[AbandonRequest](data)
		var a OpenAnswer
		_ = DecodeAnswer(data, &a)
		decoded, bad := Decode[OpenRequest](data)
		if bad != nil {
			return
		}
		var unmarshalled OpenRequest
		err := json.Unmarshal(data, &unmarshalled)
		require.NoError(t, err, "%q was accepted, but %v", data, err)
		require.Equal(t, unmarshalled.Action, decoded.Action, "%q was read as %+v, not %+v", data, decoded, unmarshalled)
		require.Equal(t, unmarshalled.ID, decoded.ID, "%q was read as %+v, not %+v", data, decoded, unmarshalled)
		require.Equal(t, unmarshalled.Nonce, decoded.Nonce, "%q was read as %+v, not %+v", data, decoded, unmarshalled)
		require.Equal(t, unmarshalled.NotAfter, decoded.NotAfter, "%q was read as %+v, not %+v", data, decoded, unmarshalled)
		_, _ = decoded.Parse("default")
	})
}

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{"0": 0, "500ms": 500 * time.Millisecond, "1m30s": 90 * time.Second, "-1h": -time.Hour,
		"0d": 0, "2d": 48 * time.Hour, "1d12h": 36 * time.Hour, "65535d": 65535 * 24 * time.Hour} {
		d, err := ParseDuration(text)
		require.NoError(t, err)
		require.Equal(t, want, d, text)
	}
	for _, text := range []string{"", "d", "30", "-1d", "+1d", "1.5d", "1d-2h", "1d2d", "2h1d", "1w", "d12h", "soon", "65536d",
		"65535d2000000h"} {
		_, err := ParseDuration(text)
		require.ErrorIs(t, err, ErrNotDuration, text)
		require.EqualError(t, err, fmt.Sprintf("%q is not a duration such as 30s, 24h or 7d", text))
	}
}

func TestRetention(t *testing.T) {
	for text, want := range map[string]time.Duration{"30d": 30 * 24 * time.Hour, "12h": 12 * time.Hour, "1d12h": 36 * time.Hour, "1s": time.Second, "90m": 90 * time.Minute} {
		d, err := ParseRetention(text)
		require.NoError(t, err, text)
		require.Equal(t, want, d)
		again, err := ParseRetention(FormatRetention(d))
		require.NoError(t, err, FormatRetention(d))
		require.Equal(t, d, again)
	}
	for _, text := range []string{"", "-1d", "0d", "1ms", "3660d1s", "soon"} {
		_, err := ParseRetention(text)
		require.Error(t, err, text)
	}
}

func TestTable(t *testing.T) {
	seen := map[Code]bool{}
	for _, c := range Classes() {
		require.False(t, seen[c.Code])
		seen[c.Code] = true
		require.NotEmpty(t, c.Title)
		require.NotEmpty(t, c.Hint)
		require.NotEmpty(t, c.Description)
		require.True(t, c.Status >= 400 && c.Status < 600)
		again, ok := c.Code.Class()
		require.True(t, ok)
		require.Equal(t, c, again)
	}
	_, ok := Code("none").Class()
	require.False(t, ok)
}

// An input that is null is no input: its fingerprint is the one of a call without input.
func TestDecode_NullInputIsAbsent(t *testing.T) {
	open, bad := Decode[OpenRequest]([]byte(`{"action":"a","id":"1","input":null}`))
	require.Nil(t, bad)
	require.Nil(t, open.Input)
	submit, bad := Decode[SubmitRequest]([]byte(`{"action":"a","id":"1","input":null}`))
	require.Nil(t, bad)
	require.Nil(t, submit.Input)
	start, bad := Decode[StartSagaRequest]([]byte(`{"saga":"a","id":"1","input":null}`))
	require.Nil(t, bad)
	require.Nil(t, start.Input)
	line, bad := DecodeImport([]byte(`{"key":"a/1","input":null}`))
	require.Nil(t, bad)
	require.Nil(t, line.Input)
}

// The rules of a type are kept where it is embedded in another one, as in the request of an endpoint.
func TestDecodeInto_KeepsTheRulesOfAnEmbeddedType(t *testing.T) {
	var renewal struct {
		Session string `json:"-"`
		RenewRequest
	}
	bad := DecodeInto([]byte(`{"open_digest":"no digest"}`), &renewal)
	require.NotNil(t, bad)
	require.Equal(t, "/open_digest", bad.Pointer)
}
