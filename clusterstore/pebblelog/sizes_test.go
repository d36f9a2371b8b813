package pebblelog

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The newest entries that sizes returns have at least the requested bytes, and at most two steps more.
func TestSizes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var z sizes
		bytes := map[uint64]uint64{}
		first, last := uint64(1), uint64(0)
		for range rapid.IntRange(1, 200).Draw(t, "operations") {
			switch {
			case last >= first && rapid.IntRange(0, 9).Draw(t, "cut") == 0:
				if first = rapid.Uint64Range(first, last+1).Draw(t, "first"); first > last {
					z.cut(0, 0)
				} else {
					z.cut(first, last)
				}
			default:
				n, size := rapid.Uint64Range(1, 5).Draw(t, "entries"), rapid.Uint64Range(1, sizeStep/3).Draw(t, "size")
				z.add(last+1, last+n, n*size)
				for range n {
					last++
					bytes[last] = size
				}
			}
		}
		keep := rapid.Uint64Range(0, 40*sizeStep).Draw(t, "keep")
		n := z.newest(keep, last)
		var have uint64
		for index := last; index >= first && index > last-n; index-- {
			have += bytes[index]
		}
		if n < last-first+1 {
			require.GreaterOrEqual(t, have+2*sizeStep, keep)
		}
		require.LessOrEqual(t, have, keep+4*sizeStep)
	})
}

func TestSizes_CutSuffix(t *testing.T) {
	var z sizes
	for index := uint64(1); index <= 10; index++ {
		z.add(index, index, sizeStep)
	}
	z.cut(1, 7)
	z.add(8, 8, sizeStep)
	require.Equal(t, uint64(0), z.newest(0, 8))
	require.Equal(t, uint64(8), z.newest(100*sizeStep, 8))
	for i := 1; i < len(z.marks); i++ {
		require.Greater(t, z.marks[i].index, z.marks[i-1].index)
	}
}
