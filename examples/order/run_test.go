package order

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/internal/proctest"
)

// The script prints the books: each order has all of its effects, or none that was not undone, and each effect once.
func TestOrder(t *testing.T) {
	dir := t.TempDir()
	built, err := exec.Command("go", "build", "-o", filepath.Join(dir, "flightd"), "../../cmd/flightd").CombinedOutput()
	require.NoError(t, err, "%s", built)
	cmd := exec.Command("sh", "run.sh")
	cmd.Env = append(os.Environ(), "FLIGHTD_ADDR=", "FLIGHTD_CONFIG=", "HOME="+filepath.Join(dir, "home"), "TMPDIR="+dir, "PATH="+dir+":"+os.Getenv("PATH"))
	cmd.SysProcAttr = proctest.KillWithParent()
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	text := string(out)
	require.Contains(t, text, "default/order/o-1  order@1, done after ")
	require.Contains(t, text, "default/order/o-2  order@1, undone after ")
	require.Contains(t, text, "default/order/o-3  order@1, done after ")
	require.Equal(t, `o-1: reserved {"item":"lamp"}
o-1: charged {"card":"valid"}
o-1: sent {"item":"lamp","reservation":"r-o-1"}
o-2: reserved {"item":"chair"}
o-2: released {"reservation":"r-o-2"}
o-3: reserved {"item":"sofa"}
o-3: charged {"card":"valid"}
o-3: sent {"item":"sofa","reservation":"r-o-3"}
`, text[strings.Index(text, "o-1: reserved"):])
}
