package crashpoint

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNilAndEmptyNeverKill(t *testing.T) {
	var none *Set
	for _, p := range All() {
		none.At(p)
	}
	s, err := Parse("")
	require.Nil(t, s, "Parse(\"\") = %v, %v", s, err)
	require.NoError(t, err, "Parse(\"\") = %v, %v", s, err)
}

func TestAt_KillsAtTheNamedPassOnly(t *testing.T) {
	s, err := Parse("after-open@2, before-report")
	require.NoError(t, err)
	kills := 0
	s.kill = func() { kills++ }
	for _, step := range []struct {
		at   Point
		want int
	}{{DuringOpen, 0}, {AfterOpen, 0}, {AfterOpen, 1}, {AfterOpen, 1}, {BeforeReport, 2}, {BeforeReport, 2}} {
		if s.At(step.at); kills != step.want {
			t.Fatalf("after passing %s: killed %d times, want %d", step.at, kills, step.want)
		}
	}
}

func TestParse_RejectsUnknownPoints(t *testing.T) {
	for _, bad := range []string{"x", "after-open@0", "after-open@x", "after-open,", "after-open@"} {
		_, err := Parse(bad)
		require.Error(t, err, "Parse(%q) was accepted", bad)
	}
}
