//go:build linux

package cluster

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/flightd/flightd/chaos/ledgerlog"
)

// collector keeps what followers have applied during a run: a node keeps more entries than are written in a few rounds, but not all.
type collector struct {
	log ledgerlog.Collected
	at  time.Time // of the newest copy
}

// collect adds what a follower has written since the last time. The follower stands still while it is copied, so that the copy is of one moment.
func (c *collector) collect(b *bed) {
	if time.Since(c.at) < 15*time.Second {
		return
	}
	c.at = time.Now()
	name, copied := b.others(b.leaderNow())[0], b.path("copied")
	defer os.RemoveAll(copied)
	thaw, err := b.freeze(b.nodes[name])
	if err == nil {
		err = os.CopyFS(filepath.Join(copied, "ledger"), os.DirFS(filepath.Join(b.data(name), "ledger")))
		_, _, thawErr := thaw()
		err = errors.Join(err, thawErr)
	}
	if err = errors.Join(err, c.log.Add(copied)); err != nil { // a fault may have damaged it
		b.t.Logf("the log of node %s was not collected: %v", name, err)
	}
}
