package auth_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/auth"
)

// store is a ledger that has documents only.
type store struct {
	header    flight.Header
	documents flight.Documents
}

func (s *store) Documents(kind string) []*flight.Document { return s.documents.List(kind) }
func (s *store) DocumentsVersion() flight.Version         { return s.header.Version }

func (s *store) put(t testing.TB, id flight.DocumentID, body []byte) {
	t.Helper()
	var seen flight.Version
	if old := s.documents.Get(id); old != nil {
		seen = old.Version
	}
	s.header.Version.Index++
	require.Equal(t, flight.DecisionAccepted, s.documents.Apply(&s.header, flight.NewDue(), &flight.PutDocument{ID: id, Expect: seen, Body: body}).Decision)
}

// issue stores a token and returns its new secret.
func (s *store) issue(t testing.TB, namespace, name string, verbs auth.Verbs, now, expires flight.Time, keepOld time.Duration) string {
	t.Helper()
	token := &auth.Token{}
	if old := s.documents.Get(auth.TokenID(namespace, name)); old != nil {
		var err error
		token, err = auth.DecodeToken(old.Body)
		require.NoError(t, err)
	}
	token.Verbs = verbs
	secret, err := token.Issue(namespace, now, expires, keepOld)
	require.NoError(t, err)
	s.put(t, auth.TokenID(namespace, name), token.Encode())
	return secret
}

func TestNewSecret(t *testing.T) {
	secret := auth.NewSecret("*")
	require.Regexp(t, `^fltd_[A-Za-z0-9_-]{43}$`, secret)
	require.NotEqual(t, secret, auth.NewSecret("*"))
}

func TestVerbs_ParseAndNames(t *testing.T) {
	v, err := auth.ParseVerbs([]string{"work", "submit"})
	require.NoError(t, err)
	require.Equal(t, []string{"submit", "work"}, v.Names())
	require.True(t, auth.AllVerbs.HasAll(v))
	require.False(t, v.HasAll(auth.AllVerbs))
	require.False(t, v.HasAny(auth.Admin|auth.Read))
	_, err = auth.ParseVerbs([]string{"Submit"})
	require.ErrorContains(t, err, "allowed: submit, work, read, operate, admin")
}

// A check knows the documents as they are, from the next call on: a new token, a rotation, a revocation, an expiry.
func TestDirectory_FollowsTheDocuments(t *testing.T) {
	s := &store{}
	d := auth.NewDirectory(s, nil)
	check := func(secret string, now flight.Time) error {
		_, err := d.Check("Bearer "+secret, now)
		return err
	}
	first := s.issue(t, "billing", "ci", auth.Submit|auth.Read, 10, 0, 0)
	c, err := d.Check("bearer "+first, 10)
	require.NoError(t, err)
	require.Equal(t, auth.Credential{Namespace: "billing", Name: "ci", Verbs: auth.Submit | auth.Read}, *c)
	require.True(t, c.Covers("billing"))
	require.False(t, c.Covers("shipping"))
	require.False(t, c.Covers("*"))

	second := s.issue(t, "billing", "ci", auth.Submit, 100, 5000, time.Second)
	require.NoError(t, check(first, 1099), "the older secret is kept for a second")
	require.ErrorIs(t, check(first, 1100), auth.ErrExpired)
	require.NoError(t, check(second, 4999))
	require.ErrorIs(t, check(second, 5000), auth.ErrExpired)

	third := s.issue(t, "billing", "ci", auth.Submit, 200, 0, 0)
	require.ErrorIs(t, check(second, 200), auth.ErrUnknown, "a rotation without keep_old ends the older secrets at once")
	require.NoError(t, check(third, 200))

	s.header.Version.Index++
	id := auth.TokenID("billing", "ci")
	s.documents.Apply(&s.header, flight.NewDue(), &flight.DeleteDocument{ID: id, Expect: s.documents.Get(id).Version})
	require.ErrorIs(t, check(third, 200), auth.ErrUnknown)
}

// A body that cannot be read, or that has a field of a later version, permits nothing and is logged. Other tokens work.
func TestDirectory_UnreadableDocumentsPermitNothing(t *testing.T) {
	for _, damage := range []func([]byte) []byte{
		func(b []byte) []byte { return b[:len(b)-1] },
		func(b []byte) []byte { return bytes.Replace(b, []byte(`{"verbs"`), []byte(`{"later":1,"verbs"`), 1) },
		func(b []byte) []byte { return bytes.Replace(b, []byte(`"submit"`), []byte(`"unknown"`), 1) },
		func(b []byte) []byte { return bytes.Replace(b, []byte(`"submit"`), nil, 1) },
	} {
		s, log := &store{}, &bytes.Buffer{}
		d := auth.NewDirectory(s, slog.New(slog.NewTextHandler(log, nil)))
		secret, other := s.issue(t, "billing", "ci", auth.Submit, 1, 0, 0), s.issue(t, "billing", "other", auth.Submit, 1, 0, 0)
		_, err := d.Check("Bearer "+secret, 1)
		require.NoError(t, err)
		id := auth.TokenID("billing", "ci")
		s.put(t, id, damage(bytes.Clone(s.documents.Get(id).Body)))
		_, err = d.Check("Bearer "+secret, 1)
		require.ErrorIs(t, err, auth.ErrUnknown)
		require.Contains(t, log.String(), "billing/token/ci")
		require.NotContains(t, log.String(), secret)
		_, err = d.Check("Bearer "+other, 1)
		require.NoError(t, err)
	}
}

func TestDirectory_MalformedHeaders(t *testing.T) {
	s := &store{}
	d := auth.NewDirectory(s, nil)
	secret := s.issue(t, "*", "admin", auth.AllVerbs, 1, 0, 0)
	for _, header := range []string{secret, "Bearer", "Bearer ", "Bearer  " + secret, " Bearer " + secret, "Bearer " + secret + " ", "Basic " + secret,
		"Bearer\t" + secret, "Bearer " + secret[:47], "Bearer " + secret + "A", "Bearer FLTD_" + secret[5:], "Bearer " + secret + ",Bearer " + secret,
		"Bearer " + secret[:47] + "=", "Bearer " + secret[:47] + "\x00", "Bearer " + secret[5:]} {
		_, err := d.Check(header, 1)
		require.ErrorIs(t, err, auth.ErrMalformed, "%q", header)
		require.NotContains(t, err.Error(), secret)
	}
	_, err := d.Check("", 1)
	require.ErrorIs(t, err, auth.ErrMissing)
	for at := len(auth.Prefix); at < len(secret); at++ { // another character at any place is another secret
		forged := []byte(secret)
		if forged[at]++; forged[at] == '{' || forged[at] == '[' || forged[at] == ':' || forged[at] == '`' || forged[at] == '.' {
			forged[at] = 'a'
		}
		_, err := d.Check("Bearer "+string(forged), 1)
		require.ErrorIs(t, err, auth.ErrUnknown, "%q", forged)
	}
}

func TestToken_HasAtMostFourValidSecrets(t *testing.T) {
	token := &auth.Token{Verbs: auth.Read}
	for range auth.MaxSecrets {
		_, err := token.Issue("*", 1, 0, time.Hour)
		require.NoError(t, err)
	}
	_, err := token.Issue("*", 1, 0, time.Hour)
	require.ErrorIs(t, err, auth.ErrTooManySecrets)
	n, ends := token.Valid(1)
	require.Equal(t, auth.MaxSecrets, n)
	require.Zero(t, ends, "the newest does not expire")
	hour := flight.Time(time.Hour.Milliseconds())
	_, err = token.Issue("*", 1+hour, 0, time.Hour)
	require.NoError(t, err, "expired secrets are removed")
	n, _ = token.Valid(1 + hour)
	require.Equal(t, 2, n)
}

// A list shows when the last secret ended, and not that the token never expires.
func TestToken_EndOfExpiredSecrets(t *testing.T) {
	token := &auth.Token{Verbs: auth.Read}
	_, err := token.Issue("*", 1, 7, 0)
	require.NoError(t, err)
	for now, valid := range map[flight.Time]int{6: 1, 7: 0, 9: 0} {
		n, ends := token.Valid(now)
		require.Equal(t, valid, n)
		require.Equal(t, flight.Time(7), ends)
	}
}

func TestDirectory_Limits(t *testing.T) {
	s := &store{}
	d := auth.NewDirectory(s, nil)
	builtIn := d.Limits("billing")
	require.Positive(t, builtIn.OpensPerSecond)
	s.put(t, auth.LimitsID("*"), auth.Limits{OpensPerSecond: 100, MaxOpen: 7}.Encode())
	s.put(t, auth.LimitsID("billing"), auth.Limits{MaxOpen: 3}.Encode())
	require.Equal(t, auth.Limits{OpensPerSecond: 100, Burst: 100, MaxOpen: 3, MaxFlights: builtIn.MaxFlights, MaxWaits: builtIn.MaxWaits, MaxStreams: builtIn.MaxStreams},
		d.Limits("billing"))
	require.EqualValues(t, 7, d.Limits("shipping").MaxOpen)
	s.put(t, auth.LimitsID("billing"), []byte("{"))
	require.EqualValues(t, 7, d.Limits("billing").MaxOpen, "a document that cannot be read")
}

func TestRedact(t *testing.T) {
	secret := auth.NewSecret("*")
	for text, want := range map[string]string{
		"nothing here, fltd_ is a prefix":          "nothing here, fltd_ is a prefix",
		"a " + secret + " b":                       "a fltd_(hidden) b",
		"cut: " + secret[:20]:                      "cut: fltd_(hidden)",
		secret + "," + secret:                      "fltd_(hidden),fltd_(hidden)",
		"fltd_short fltd_" + secret:                "fltd_short fltd_(hidden)",
		fmt.Sprintf("%q", errors.New("x "+secret)): `"x fltd_(hidden)"`,
	} {
		if strings.HasPrefix(want, `"`) {
			text = fmt.Sprintf("%q", "x "+secret)
		}
		require.Equal(t, want, auth.Redact(text))
	}
	out := &bytes.Buffer{}
	log := slog.New(auth.RedactingHandler(slog.NewJSONHandler(out, nil))).With("with", secret).WithGroup("g")
	log.Info("message "+secret, "text", secret, "error", errors.New("wrapped "+secret), slog.Group("inner", "text", secret), "number", 7)
	require.NotContains(t, out.String(), secret[:20])
	require.Contains(t, out.String(), `"number":7`)
	require.Equal(t, 5, strings.Count(out.String(), "fltd_(hidden)"))
}
