package node

import (
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOneProcessPerDataDirectory(t *testing.T) {
	dir := t.TempDir()
	first, err := lockData(dir)
	require.NoError(t, err)
	_, err = lockData(dir)
	var locked *LockedError
	require.ErrorAs(t, err, &locked, "the second one got %v", err)
	require.Equal(t, strconv.Itoa(os.Getpid()), locked.Holder, "the second one got %v", err)
	require.Contains(t, err.Error(), locked.Holder, "the second one got %v", err)
	require.NoError(t, first.Close())
	again, err := lockData(dir)
	require.NoError(t, err, "lock after the first holder closed: %v", err)
	_ = again.Close()
}
