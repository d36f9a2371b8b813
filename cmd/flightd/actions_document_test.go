package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/httpapi/wire"
)

// fillPolicy sets every field of a policy, at any depth, to a value that differs from the default. An unknown kind of field fails the test.
func fillPolicy(t *testing.T, v reflect.Value, path string, visit func(path string, leaf reflect.Value)) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			inner := path
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); !f.Anonymous {
				require.NotEmpty(t, name, "%s has no name in JSON", f.Name)
				inner += "/" + name
			}
			fillPolicy(t, v.Field(i), inner, visit)
		}
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		fillPolicy(t, v.Elem(), path, visit)
	default:
		visit(path, v)
	}
}

// fullPolicy returns a valid policy with every field, and the number of its fields.
func fullPolicy(t *testing.T) (p wire.ActionPolicy, leaves []string) {
	texts := map[string]string{"/recovery": "verify", "/retention": "90d", "/lane/by": "/customer"}
	fillPolicy(t, reflect.ValueOf(&p).Elem(), "", func(path string, leaf reflect.Value) {
		leaves = append(leaves, path)
		switch leaf.Kind() {
		case reflect.String:
			require.Contains(t, texts, path, "give the new field a valid value")
			leaf.SetString(texts[path])
		case reflect.Bool:
			leaf.SetBool(true)
		case reflect.Int64:
			leaf.SetInt(int64(900 + len(leaves)))
		default:
			require.Fail(t, "unknown kind", "%s is a %s", path, leaf.Kind())
		}
	})
	p.ProviderWindowMS = 0 // only with the recovery resend
	return p, leaves
}

// Every field of a policy is in its document, in the output of show, in the input of apply, and in the differences. The test walks the
// fields of the type, so it also covers new fields.
func TestActions_EveryFieldOfAPolicy(t *testing.T) {
	s, _ := startFake(t)
	c, err := client.Connect(t.Context(), s.url(), client.WithSpool(t.TempDir()))
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close(context.Background())) }()
	full, leaves := fullPolicy(t)
	resend := wire.ActionPolicy{Policy: wire.Policy{Recovery: "resend", ProviderWindowMS: 1234, Approval: &wire.Approval{}}}
	for name, p := range map[string]wire.ActionPolicy{"full": full, "resend": resend, "0123": {}} {
		require.Nil(t, p.Check(), name)
		_, err := c.PutAction(t.Context(), name, client.ActionRequest{ActionPolicy: p, Reason: "r"})
		require.NoError(t, err)
		before, err := c.Action(t.Context(), name)
		require.NoError(t, err)
		want := p
		want.Complete()
		require.Equal(t, want, before.ActionPolicy)

		shown := s.flightd("actions", "show", name)
		require.Zero(t, shown.code, "%v", shown)
		file := filepath.Join(t.TempDir(), "shown.yaml")
		require.NoError(t, os.WriteFile(file, []byte(shown.out), 0o600))
		r := s.flightd("actions", "apply", file)
		require.Equal(t, name+": unchanged\n", r.out, "%s\n%v", shown.out, r)
		after, err := c.Action(t.Context(), name)
		require.NoError(t, err)
		require.Equal(t, before, after)
	}
	stored := full
	stored.Complete()
	for _, leaf := range leaves {
		changed, _ := fullPolicy(t)
		fillPolicy(t, reflect.ValueOf(&changed).Elem(), "", func(path string, v reflect.Value) {
			switch {
			case path != leaf:
			case v.Kind() == reflect.Int64:
				v.SetInt(77)
			case v.Kind() == reflect.String:
				v.SetString("7d")
			default:
				v.SetBool(false)
			}
		})
		differences := changed.Differences(&stored, false)
		require.Len(t, differences, 1, "%s is not compared", leaf)
		require.Equal(t, strings.TrimSuffix(strings.Split(leaf, "/")[1], "_ms") == "approval", differences[0].Field == "approval")
	}
	without := full
	without.Approval = nil
	require.Equal(t, []wire.PolicyDifference{{Field: "approval", Document: "expires " + wire.SpanText(full.Approval.ExpiresMS), Refuses: true}}, without.Differences(&stored, false))
	require.Equal(t, "expires never", resend.Differences(&wire.ActionPolicy{Policy: wire.Policy{Recovery: "resend", ProviderWindowMS: 1234}}, false)[0].Own)
}

// An approval of the API survives show, sed and apply, and its removal is printed.
func TestActions_ApprovalSurvivesTheFile(t *testing.T) {
	s, _ := startFake(t)
	c, err := client.Connect(t.Context(), s.url(), client.WithSpool(t.TempDir()))
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close(context.Background())) }()
	_, err = c.PutAction(t.Context(), "refund", client.ActionRequest{ActionPolicy: wire.ActionPolicy{Policy: wire.Policy{Recovery: "hold", Approval: &wire.Approval{ExpiresMS: 60_000}}}, Reason: "r"})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "refund.yaml")
	shown := s.flightd("actions", "show", "refund").out
	require.Contains(t, shown, "approval:\n  expires: 1m\n")
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(shown, "hold", "resend", 1)), 0o600))
	require.Equal(t, "refund: changed\n  recovery: resend, was hold\n", s.flightd("actions", "apply", file).out)
	require.Contains(t, s.flightd("actions", "ls").out, "1m")
	require.NoError(t, os.WriteFile(file, []byte("action: refund\nrecovery: resend\n"), 0o600))
	require.Equal(t, "refund: changed\n  approval: none, was expires 1m\n", s.flightd("actions", "apply", file).out)
}

// Documents behind an empty one count, and a text field keeps the characters of the file.
func TestActions_ApplyReadsAllOfAFile(t *testing.T) {
	s, _ := startFake(t)
	file := filepath.Join(t.TempDir(), "all.yaml")
	for _, text := range []string{
		"action: a1\n---\n---\naction: a2\n---\n# nothing\n---\naction: a3\n",
		"---\n# head\n---\naction: a1\n---\n\n---\naction: a2\n---\nnull\n---\naction: a3\n...\n",
		"# head\n---\naction: a1\n--- # two\naction: a2\n---\n~\n---\n\n# more\n\naction: a3\n---\n",
	} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		r := s.flightd("actions", "apply", "--dry-run", file)
		require.Equal(t, "a1: would be created\na2: would be created\na3: would be created\n", r.out, "%s\n%v", text, r)
	}
	for text, want := range map[string]string{
		"action: 0123\n": "0123: would be created\n", "action: 1e3\n": "1e3: would be created\n", "action: true\n": "true: would be created\n", "action: 7\n": "7: would be created\n", "action: '0x10'\n": "0x10: would be created\n",
	} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		r := s.flightd("actions", "apply", "--dry-run", file)
		require.Equal(t, want, r.out, "%s\n%v", text, r)
	}
	for text, want := range map[string]string{
		"action: a\nlane: { by: /c, limit: 0100 }\n":            "all.yaml: line 2, column ",
		"action: a\nretry: { attempts: 010 }\n":                 "all.yaml: line 2, column ",
		"action: a\nretry: { attempts: 0o10 }\n":                "all.yaml: line 2, column ",
		"action: a\nretry: { attempts: 0x10 }\n":                "all.yaml: line 2, column ",
		"action: a\nretry: { attempts: 1_0 }\n":                 "all.yaml: line 2, column ",
		"action: a\napproval:\n":                                "all.yaml:2:1: action a: approval: has no value",
		"action: a\nretry: { attempts: 2, within: }\n":          "retry.within: has no value",
		"action: a\n---\n---\naction: b\nsettle_delay: 1s\n":    "all.yaml:5:1: action b: settle_delay: is allowed only",
		"action: a\n---\n---\naction: b\nretryy: {within: 1}\n": `did you mean retry?`,
		"action: a\n---\n---\njust a text\n":                    "all.yaml:4:1",
	} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		r := s.flightd("actions", "apply", file)
		require.Equal(t, cli.ExitUsage, r.code, "%s: %v", text, r)
		require.Contains(t, r.err, want, text)
	}
	require.Empty(t, s.flightd("actions", "ls", "-o", "id").out)
}

// The other documents have no file format: each of their fields has a flag and is shown.
func TestDocuments_EveryFieldHasAFlag(t *testing.T) {
	names := map[string]string{"/namespaces": "only", "/queue_age_ms": "queue-age", "/events": "event", "/expires_in_ms": "expires", "/keep_old_ms": "keep-old-for"}
	elsewhere := []string{"/name", "/namespace", "/actor", "/reason", "/secret"} // arguments, flags of all commands, --secret-file
	for command, body := range map[string]any{"namespace set": &wire.NamespaceRequest{}, "notify put": &wire.NotifyRequest{}, "token create": &wire.TokenRequest{}} {
		help := flightd(nil, append(strings.Fields(command), "--help")...).out
		fillPolicy(t, reflect.ValueOf(body).Elem(), "", func(path string, _ reflect.Value) {
			name, ok := names[path]
			if !ok {
				name = strings.ReplaceAll(strings.TrimPrefix(path, "/"), "_", "-")
			}
			if !slices.Contains(elsewhere, path) {
				require.Contains(t, help, "--"+name, "%s has no flag for %s", command, path)
			}
		})
	}
	s, _ := startFake(t)
	r := s.flightd("namespace", "set", "shop", "--opens-per-second", "101", "--burst", "102", "--max-open", "103", "--max-flights", "104", "--max-waits", "105", "--max-streams", "106")
	require.Zero(t, r.code, "%v", r)
	for n := 101; n <= 100+reflect.TypeFor[wire.NamespaceLimits]().NumField(); n++ {
		require.Contains(t, s.flightd("namespace", "ls").out, fmt.Sprint(n))
	}
}
