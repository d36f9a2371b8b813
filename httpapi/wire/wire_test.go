package wire

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/strictjson"
)

func testTime(n int64) Time { return Time{time.UnixMilli(1_700_000_000_000 + n).UTC()} }

func fullFlight() *Flight {
	return &Flight{
		ID: "fl_x", Key: "a/b/c", State: "succeeded", Source: "joined", Version: "8.1", Generation: 2, Attempts: 3, Recovery: "hold",
		Fingerprint: "none", Cause: "\"why\"\n\x01é", Tainted: true, Verifying: true, Overlap: true, CreatedAt: testTime(1), NotBefore: testTime(2), HeldUntil: testTime(13),
		FinishedAt: testTime(3), ExpiresAt: testTime(4), CancelRequested: &Attribution{Actor: "me", Reason: "so", At: testTime(5)},
		Resolution:  &Resolution{Result: "fail", Attribution: Attribution{Actor: "you", At: testTime(6)}},
		LastAttempt: &Attempt{Attempt: 3, Outcome: "unknown", Error: "e", Owner: "o", Lost: true, OpenedAt: testTime(7), ClosedAt: testTime(8)},
		Receipt: &Receipt{Outcome: "succeeded", ExternalID: "x", ContentType: "application/json", Body: json.RawMessage(`{"a":[1,{"b":null}]}`),
			Size: 20, Digest: "sha256:00", Attempt: 3, From: "report", At: testTime(9)},
		Evidence:            []Evidence{{Generation: 1, Attempt: 2, Outcome: "succeeded", ExternalID: "i", Digest: "d", Error: "e", At: testTime(10)}, {Outcome: "refused", At: testTime(11)}},
		EvidenceMore:        4,
		PreviousGenerations: []PreviousGeneration{{Generation: 1, State: "failed", Actor: "w", Reason: "y", At: testTime(12), ExternalID: "j", Digest: "d"}},
	}
}

// Answers are the same JSON as package encoding/json writes, and both packages read them.
func TestAnswersAreJSON(t *testing.T) {
	policy := Policy{AttemptTimeoutMS: 1, SettleMS: 2, ProviderWindowMS: 3, Recovery: "resend", Lookup: true, VerifyAttempts: 4, Retention: "30d"}
	answer := &OpenAnswer{Decision: "proceed", FlightID: "fl_x", Key: "a/b/c", Generation: 1, Attempt: 2, FencingToken: "t", IdempotencyKey: "i",
		Verification: "p", Input: json.RawMessage(`[1,2]`), InputContentType: "x", Session: "s", TrustMS: 5, RenewEveryMS: 6, PolicyDiffers: true,
		Policy: &policy, Previous: &Attempt{Attempt: 1, OpenedAt: testTime(1)}, Flight: fullFlight()}
	answer.ResendMS = new(int64) // 0 left, which differs from no bound
	written := strictjson.Append(nil, &answer)
	byJSON, err := json.Marshal(answer)
	require.NoError(t, err)
	require.JSONEq(t, string(byJSON), string(written))
	var read OpenAnswer
	require.NoError(t, DecodeAnswer(written, &read))
	require.Equal(t, answer, &read)
	read = OpenAnswer{}
	require.NoError(t, json.Unmarshal(byJSON, &read))
	require.Equal(t, answer, &read)

	page := FlightPage{Flights: []Flight{*fullFlight(), {ID: "y"}}, Next: "n"}
	byJSON, err = json.Marshal(page)
	require.NoError(t, err)
	require.JSONEq(t, string(byJSON), string(strictjson.Append(nil, &page)))
	require.JSONEq(t, `{"flights":[]}`, string(strictjson.Append(nil, &FlightPage{})))

	p := &Problem{Type: "t", Title: "T", Status: 409, Detail: "d", Code: InDoubt, Retryable: true, Hint: "h", FlightID: "f", Key: "k", State: "s",
		Version: "1.2", RetryAfterMS: 3, Errors: []FieldError{{Pointer: "/a", Detail: "x"}, {Header: "H", Detail: "y"}, {Parameter: "p", Detail: "z"}},
		RequestID: "r", TraceID: "i", Outcome: "o", Digest: "g", Decision: "replay", Flight: fullFlight()}
	byJSON, err = json.Marshal(p)
	require.NoError(t, err)
	require.JSONEq(t, string(byJSON), string(strictjson.Append(nil, &p)))
	no := false
	p = &Problem{Code: OpenExpired, Proposed: &no, LedgerTime: 4}
	byJSON, err = json.Marshal(p)
	require.NoError(t, err)
	require.JSONEq(t, string(byJSON), string(strictjson.Append(nil, &p)))
	require.Contains(t, string(byJSON), `"proposed":false`)

	open := []OpenAttempt{{Key: "a/b/c", FlightID: "fl_x", Nonce: "n", Attempt: 3, FencingToken: "t"}, {Key: "a/b/d"}}
	for _, s := range []*SessionAnswer{{}, {Session: "s", TrustMS: 1, RenewEveryMS: 2, CancelRequested: []string{"a", "b"}, OpenDigest: "d", Open: open, More: true}} {
		byJSON, err = json.Marshal(s)
		require.NoError(t, err)
		require.JSONEq(t, string(byJSON), string(strictjson.Append(nil, &s)))
	}
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

// Requests of the Go client are accepted by the strict reader, with their inputs and bodies byte for byte.
func TestRequestsRoundTrip(t *testing.T) {
	wait := int64(5)
	open := OpenRequest{Action: "a", ID: "b", Input: json.RawMessage(`{"x": 1}`), Fingerprint: "none", Nonce: "n", NotAfter: MaxLedgerTime, Session: "s", Owner: "o",
		TTLMS: 15000, WaitMS: &wait, Policy: Policy{AttemptTimeoutMS: 1, SettleMS: 2, ProviderWindowMS: 3, Recovery: "verify", Lookup: true, VerifyAttempts: 5, Retention: "1d"}}
	read, bad := DecodeOpen(strictjson.Append(nil, &open))
	require.Nil(t, bad)
	require.Equal(t, open, read)
	body := Body{ExternalID: "e", Base64: []byte{0, 255}, ContentType: "t", Truncated: true, Size: 9, Digest: "d"}
	abandon := AbandonRequest{Action: "a", ID: "b", Nonce: "n", NotAfter: 1, Reason: "gave up"}
	readAbandon, bad := Decode[AbandonRequest](strictjson.Append(nil, &abandon))
	require.Nil(t, bad)
	require.Equal(t, abandon, readAbandon)
	report := ReportRequest{FencingToken: "t", Key: "default/a/b", Outcome: "unknown", Error: "e", Body: body}
	readReport, bad := Decode[ReportRequest](strictjson.Append(nil, &report))
	require.Nil(t, bad)
	require.Equal(t, report, readReport)
	verification := VerificationRequest{Verification: "p", Result: "unknown", Session: "s", Nonce: "n", NotAfter: 3, Owner: "o", TTLMS: 1, WaitMS: &wait, Body: Body{JSON: json.RawMessage(`null`)}}
	readVerification, bad := Decode[VerificationRequest](strictjson.Append(nil, &verification))
	require.Nil(t, bad)
	require.Equal(t, verification, readVerification)
	resolve := ResolveRequest{Result: "fail", Reason: "r", Actor: "me", Body: body}
	readResolve, bad := Decode[ResolveRequest](strictjson.Append(nil, &resolve))
	require.Nil(t, bad)
	require.Equal(t, resolve, readResolve)
	renew := RenewRequest{OpenDigest: OpenDigest(nil), After: flight.MustKey("a/b/c").FlightID().String()}
	byJSON, err := json.Marshal(renew)
	require.NoError(t, err)
	readRenew, bad := DecodeRenew(byJSON)
	require.Nil(t, bad)
	require.Equal(t, renew, readRenew)
	operator := OperatorRequest{Key: "k", Reason: "r", Actor: "me"}
	readOperator, bad := Decode[OperatorRequest](strictjson.Append(nil, &operator))
	require.Nil(t, bad)
	require.Equal(t, operator, readOperator)
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
		_, _ = DecodeRenew(data)
		_, _ = Decode[AbandonRequest](data)
		var a OpenAnswer
		_ = DecodeAnswer(data, &a)
		decoded, bad := DecodeOpen(data)
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

func TestRetention(t *testing.T) {
	for text, want := range map[string]time.Duration{"30d": 30 * 24 * time.Hour, "12h": 12 * time.Hour, "1d12h": 36 * time.Hour, "1s": time.Second, "90m": 90 * time.Minute} {
		d, err := ParseRetention(text)
		require.NoError(t, err, text)
		require.Equal(t, want, d)
		again, err := ParseRetention(FormatRetention(d))
		require.NoError(t, err, FormatRetention(d))
		require.Equal(t, d, again)
	}
	for _, text := range []string{"", "d", "30", "-1d", "0d", "1ms", "99999999999999999999d", "4000d", "1.5d", "1d-2h", "1w", "d12h"} {
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
