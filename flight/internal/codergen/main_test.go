package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCoders_AreCurrent fails if a tag of package flight was changed without go generate ./flight.
func TestCoders_AreCurrent(t *testing.T) {
	want, err := generate("../..")
	require.NoError(t, err)
	got, err := os.ReadFile(filepath.Join("../..", output))
	require.NoError(t, err)
	require.True(t, string(want) == string(got), "flight/%s is out of date: run go generate ./flight", output)
}

// TestGenerate_Rejects checks that a struct is rejected with a field that the coder would leave out or cannot write, and no other.
func TestGenerate_Rejects(t *testing.T) {
	for name, fields := range map[string]string{
		"a good field":                 "A int `cbor:\"1,keyasint\"`",
		"a field without a tag":        "A int `cbor:\"1,keyasint\"`\nB int",
		"a tag without a number":       "A int `cbor:\"a,omitempty\"`",
		"two fields of one number":     "A int `cbor:\"1,keyasint\"`\nB int `cbor:\"1,keyasint\"`",
		"two fields with one tag":      "A, B int `cbor:\"1,keyasint\"`",
		"a tag of another package":     "A int `cbor:\"1,keyasint\"`\nB int `json:\"b\"`",
		"an unknown option":            "A int `cbor:\"1,keyasint,omitted\"`",
		"bytes that are always there":  "A []byte `cbor:\"1,keyasint\"`",
		"a struct with omitempty":      "A B `cbor:\"1,keyasint,omitempty\"`\n}\ntype B struct {\nA int `cbor:\"1,keyasint\"`",
		"a type of another package":    "A url.URL `cbor:\"1,keyasint\"`",
		"a type that the coder has no": "A float64 `cbor:\"1,keyasint\"`",
	} {
		dir := t.TempDir()
		source := "package flight\ntype kind uint8\nconst kindT kind = 1\ntype T struct {\n" + fields + "\n}\n"
		require.NoError(t, os.WriteFile(filepath.Join(dir, "a.go"), []byte(source), 0o600))
		code, err := generate(dir)
		require.Equal(t, name == "a good field", err == nil, "%s: %s", name, code)
	}
}
