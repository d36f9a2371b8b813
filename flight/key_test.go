package flight_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
)

func TestKey_Parts(t *testing.T) {
	k := flight.MustKey("billing/book-trip/cases/order-42#hotel.undo")
	saga := flight.MustKey("billing/book-trip/cases/order-42")
	for _, c := range []struct{ part, got, want string }{
		{"namespace", k.Namespace(), "billing"}, {"name", k.Name(), "book-trip"}, {"id", k.BusinessID(), "cases/order-42"},
		{"step", k.StepName(), "hotel.undo"}, {"saga", k.Saga().String(), saga.String()}, {"full key", k.String(), "billing/book-trip/cases/order-42#hotel.undo"},
		{"id of a saga", saga.BusinessID(), "cases/order-42"}, {"step of a saga", saga.StepName(), ""},
	} {
		require.Equal(t, c.want, c.got, "%s is %q, want %q", c.part, c.got, c.want)
	}
	require.True(t, k.IsStep(), "a step, an undo and a saga are not distinguished")
	require.True(t, k.IsUndo(), "a step, an undo and a saga are not distinguished")
	require.False(t, saga.IsStep(), "a step, an undo and a saga are not distinguished")
	require.False(t, saga.IsUndo(), "a step, an undo and a saga are not distinguished")
	require.Equal(t, saga, k.Saga(), "a step, an undo and a saga are not distinguished")
	require.True(t, saga.Saga().IsZero(), "a step, an undo and a saga are not distinguished")
	var none flight.Key
	require.Empty(t, none.Namespace()+none.Name()+none.BusinessID()+none.String(), "the zero key has a part")
	require.True(t, none.IsZero(), "the zero key has a part")
	_, err := k.Step("more")
	require.Error(t, err, "a step of a step was accepted")
}

func TestKey_InvalidNamesItsField(t *testing.T) {
	long := strings.Repeat("a", 256)
	for text, field := range map[string]string{
		"": "key", "a": "key", "a/b": "key", "/b/c": "namespace", "a//c": "name", "a/b/": "id",
		"a b/c/d": "namespace", "a/b%20/c": "name", "a/./c": "name", "../b/c": "namespace", "ä/b/c": "namespace",
		"a/b/c//d": "id", "a/b/./c": "id", "a/b/c/..": "id", "a/b/c d": "id", "a/b/ä": "id", "a/b/\x00": "id", "a/b/c\n": "id", "a/b/\x7f": "id",
		"a/b/%": "id", "a/b/%2": "id", "a/b/%zz": "id", "a/b/%c3": "id", "a/b/%41": "id", "a/b/%2F": "id",
		"a/b/c#": "step", "a/b/c#d#e": "step", "a/b/c#d/e": "step", "a/b/c#..": "step",
		long + "/b/c": "namespace", "a/" + long + "/c": "name", "a/b/" + long: "id", "a/b/c#" + long: "step",
	} {
		_, err := flight.ParseKey(text)
		var invalid *flight.InvalidError
		require.ErrorAs(t, err, &invalid, "%q: %v, want the field %s", text, err, field)
		require.Equal(t, field, invalid.Field, "%q: %v, want the field %s", text, err, field)
	}
	for _, text := range []string{"a/b/c", "A.b_c-9/x/y/z", "a/b/%23", "a/b/%25", "a/b/%20%C3%A4", "a/b/~!$&'()*+,;=:@", "a/b/..c",
		strings.Repeat("a", 255) + "/" + strings.Repeat("b", 255) + "/" + strings.Repeat("c", 255) + "#" + strings.Repeat("d", 255)} {
		k, err := flight.ParseKey(text)
		require.NoError(t, err, "%q: %v", text, err)
		require.Equal(t, text, k.String(), "%q: %v", text, err)
	}
}

// TestKey_InvalidNamesTheWholeCharacter checks that a character of several bytes is reported as one character, with the
// escape to write in its place.
func TestKey_InvalidNamesTheWholeCharacter(t *testing.T) {
	for key, want := range map[[3]string]string{
		{"a", "b", "über"}:     "character 1 is 'ü'; write %C3%BC",
		{"a", "b", "zu €"}:     "character 3 is ' '; write %20",
		{"a", "b", "c/€5"}:     "character 3 is '€'; write %E2%82%AC",
		{"a", "b", "c\xff"}:    "byte 2 is not valid UTF-8; write %FF",
		{"a", "b", "c\n"}:      `character 2 is '\n'; write %0A`,
		{"a", "größe", "c"}:    "character 3 is 'ö'; allowed are letters, digits, '.', '_' and '-'",
		{"a b", "c", "d"}:      "character 2 is ' '; allowed are letters, digits, '.', '_' and '-'",
		{"a", "b\xc3", "c"}:    "byte 2 is not valid UTF-8; allowed are letters, digits, '.', '_' and '-'",
		{"a", "b", "c\uFFFDd"}: "character 2 is '\uFFFD'; write %EF%BF%BD",
	} {
		_, err := flight.NewKey(key[0], key[1], key[2])
		var invalid *flight.InvalidError
		require.ErrorAs(t, err, &invalid, "%q: %v, want %s", key, err, want)
		require.Equal(t, want, invalid.Detail, "%q: %v, want %s", key, err, want)
	}
}

// The two keys spell the same text: decomposed (NFD) and composed (NFC).
const (
	decomposed = "a/b/cafe%CC%81"
	composed   = "a/b/caf%C3%A9"
)

// TestKey_RejectsDecomposedText checks that one text has one key: only its NFC spelling is accepted from outside.
func TestKey_RejectsDecomposedText(t *testing.T) {
	for _, text := range []string{composed, composed + "#hotel", "a/b/%FF", "a/b/%E2%82%AC", "a/b/%CC%81"} {
		k, err := flight.ParseKey(text)
		require.NoError(t, err, text)
		require.Equal(t, text, k.String())
	}
	for _, text := range []string{decomposed, decomposed + "#hotel", "a/b/x/%E1%84%80%E1%85%A1", "a/b/%E2%84%AB", "a/b/cafe\u0301"} {
		k, err := flight.ParseKey(text)
		var invalid *flight.InvalidError
		require.ErrorAs(t, err, &invalid, text)
		require.Equal(t, "id", invalid.Field, text)
		require.Contains(t, invalid.Detail, "is not in Unicode normalization form C (NFC)", text)
		require.True(t, k.IsZero(), text)
	}
	_, err := flight.NewKey("a", "b", "cafe%CC%81")
	require.ErrorContains(t, err, "(NFC)")
}

// TestKey_DecomposedTextInTheLogIsDecoded checks that a log, a record or a claim with a decomposed key is still read.
func TestKey_DecomposedTextInTheLogIsDecoded(t *testing.T) {
	k, err := flight.ParseStoredKey(decomposed)
	require.NoError(t, err)
	require.Equal(t, decomposed, k.String())
	for _, c := range []flight.Command{&flight.Open{Key: k}, &flight.Report{Key: k}, &flight.Submit{Key: k}} {
		b, err := flight.Encode(c)
		require.NoError(t, err)
		read, err := flight.Decode(b)
		require.NoError(t, err)
		require.Equal(t, k, read.Target())
		target, err := flight.Target(b)
		require.NoError(t, err)
		require.Equal(t, k, target)
	}
	b, err := flight.EncodeRecord(&flight.Flight{ID: k.FlightID(), Key: k})
	require.NoError(t, err)
	var f flight.Flight
	require.NoError(t, flight.DecodeRecord(b, &f))
	require.Equal(t, k, f.Key)
	step, err := f.Key.Step("hotel")
	require.NoError(t, err)
	require.Equal(t, decomposed+"#hotel", step.String())
}

func FuzzParseKey(f *testing.F) {
	for _, s := range []string{"a/b/c", "billing/book-trip/order-42#hotel.undo", "a/b/%23/x", "a/b/c#", "", "//", "a/b/%", "ä/ö/ü",
		composed, decomposed, "a/b/%FF%CC%81"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		k, err := flight.ParseKey(s)
		stored, storedErr := flight.ParseStoredKey(s)
		if err != nil {
			require.True(t, k.IsZero(), "%q was rejected, and is %v", s, k)
			require.False(t, storedErr == nil && stored.String() != s, "%q was stored as %q", s, stored)
			return
		}
		require.NoError(t, storedErr, "%q parses as the stored key %v: %v", s, stored, storedErr)
		require.Equal(t, k, stored, "%q parses as the stored key %v: %v", s, stored, storedErr)
		require.Equal(t, s, k.String(), "%q parses as %q", s, k)
		again, err := flight.NewKey(k.Namespace(), k.Name(), k.BusinessID())
		if err == nil && k.IsStep() {
			again, err = again.Step(k.StepName())
		}
		require.NoError(t, err, "%q differs from its joined parts: %v, %v", s, again, err)
		require.Equal(t, k, again, "%q differs from its joined parts: %v, %v", s, again, err)
		id, err := flight.ParseID(k.FlightID().String())
		require.NoError(t, err, "the id of %q reads as %v: %v", s, id, err)
		require.Equal(t, k.FlightID(), id, "the id of %q reads as %v: %v", s, id, err)
	})
}

func FuzzParseID(f *testing.F) {
	id := soloKey.FlightID().String()
	for _, s := range []string{id, strings.ToUpper(id), id[:len(id)-1], id[:len(id)-1] + "7", id[:10] + "\n" + id[10:], "fl_", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := flight.ParseID(s)
		require.False(t, err == nil && id.String() != s, "%q and %q are one id", s, id)
	})
}

func FuzzParseVersion(f *testing.F) {
	for _, s := range []string{"8123.4", "0.0", "1", "1.", ".1", "01.2", "+1.2", "18446744073709551615.4294967295", "1.4294967296", "1.2.3"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v, err := flight.ParseVersion(s)
		require.False(t, err == nil && v.String() != s, "%q and %q are one version", s, v)
	})
}

func TestToken_SealSortsByAgeAndBindsFlight(t *testing.T) {
	secret, id := []byte("secret"), soloKey.FlightID()
	tokens := []flight.Token{{StoreEpoch: 1, Number: 1}, {StoreEpoch: 1, Number: 2}, {StoreEpoch: 1, Number: 256},
		{StoreEpoch: 1, Number: 1 << 31}, {StoreEpoch: 2, Number: 1}, {StoreEpoch: 1 << 30, Number: 1000}}
	var sealed []string
	for _, token := range tokens {
		s := token.Seal(secret, id, 3, "A")
		got, generation, err := flight.Unseal(s, secret, id)
		require.NoError(t, err, "%v opens as %v of generation %d: %v", token, got, generation, err)
		require.Equal(t, token, got, "%v opens as %v of generation %d: %v", token, got, generation, err)
		require.EqualValues(t, 3, generation, "%v opens as %v of generation %d: %v", token, got, generation, err)
		sealed = append(sealed, s)
		_, _, err = flight.Unseal(s, []byte("other"), id)
		require.Error(t, err, "a token of another deployment was taken")
		_, _, err = flight.Unseal(s, secret, stepKey.FlightID())
		require.Error(t, err, "a token of another flight was taken")
		for i := range s {
			forged := []byte(s)
			forged[i] ^= 1
			_, _, err := flight.Unseal(string(forged), secret, id)
			require.Error(t, err, "a token changed at %d was taken", i)
		}
	}
	require.True(t, slices.IsSorted(sealed), "sealed tokens do not sort by age: %q", sealed)
	a, b := tokens[0].Seal(secret, id, 1, "A"), tokens[0].Seal(secret, id, 1, "B")
	require.NotEqual(t, b, a, "tokens of two sessions are the same")
}

func FuzzUnseal(f *testing.F) {
	secret, id := []byte("secret"), soloKey.FlightID()
	good := flight.Token{StoreEpoch: 1, Number: 3}.Seal(secret, id, 1, "A")
	for _, s := range []string{good, strings.ToUpper(good), good[1:], good + "0", strings.Replace(good, ".", ":", 1), ".", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		_, _, err := flight.Unseal(s, secret, id)
		require.False(t, err == nil && s != good && strings.EqualFold(s, good), "%q is a second spelling of %q", s, good)
	})
}

func TestOutcomeOfHTTP(t *testing.T) {
	want := map[flight.Outcome][]int{
		flight.OutcomeSucceeded: {200, 201, 204, 299},
		flight.OutcomeRefused:   {400, 402, 405, 406, 410, 413, 415, 422},
		flight.OutcomeNotDone:   {401, 403, 404, 407, 421, 425, 426, 429, 431},
		flight.OutcomeUnknown:   {0, 100, 199, 300, 301, 302, 303, 304, 307, 308, 399, 408, 409, 411, 412, 418, 423, 424, 451, 500, 502, 503, 504, 599, 600},
	}
	for outcome, statuses := range want {
		for _, status := range statuses {
			ofSafe := outcome
			if status >= 300 && status < 400 {
				ofSafe = flight.OutcomeNotDone
			}
			for safe, want := range map[bool]flight.Outcome{false: outcome, true: ofSafe} {
				got := flight.HTTPOutcome(status, safe)
				require.Equal(t, want, got, "%d is %v, want %v; safe: %v", status, got, want, safe)
			}
		}
	}
}

func TestWords_RoundTripAndReject(t *testing.T) {
	for o := flight.OutcomeSucceeded; o <= flight.OutcomeUnknown; o++ {
		got, err := flight.ParseOutcome(o.String())
		require.NoError(t, err, "%v reads as %v: %v", o, got, err)
		require.Equal(t, o, got, "%v reads as %v: %v", o, got, err)
	}
	for s := flight.StateScheduled; s <= flight.StateExpired; s++ {
		got, err := flight.ParseState(s.String())
		require.NoError(t, err, "%v reads as %v: %v", s, got, err)
		require.Equal(t, s, got, "%v reads as %v: %v", s, got, err)
	}
	for r := flight.RecoveryHold; r <= flight.RecoveryVerify; r++ {
		got, err := flight.ParseRecovery(r.String())
		require.NoError(t, err, "%v reads as %v: %v", r, got, err)
		require.Equal(t, r, got, "%v reads as %v: %v", r, got, err)
	}
	_, err1 := flight.ParseOutcome("")
	_, err2 := flight.ParseState("absent")
	_, err3 := flight.ParseRecovery("retry")
	require.Error(t, err1, "words that are none: %v, %v, %v", err1, err2, err3)
	require.Error(t, err2, "words that are none: %v, %v, %v", err1, err2, err3)
	require.Error(t, err3, "words that are none: %v, %v, %v", err1, err2, err3)
}
