//go:build linux

package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/chaos/disk"
)

const (
	// diskSize is the size of the disk of each node.
	diskSize = 1 << 30
	// refusalLimit is how long a node may take to see at its start that it must not go on.
	refusalLimit = 20 * time.Second
	// wholeLimit is how long the nodes may take until all of them take part again.
	wholeLimit = 90 * time.Second
)

// data returns the data directory of a node, which is on a disk of its own.
func (b *bed) data(name string) string { return b.path(filepath.Join("data-"+name, "data")) }

// tryDisk tries whether this machine can have disks of their own for nodes, with loop devices and ext4.
func tryDisk(dir string) error {
	d, err := disk.New(dir, 64<<20)
	if err != nil {
		return err
	}
	return d.Close()
}

// addDisks gives each node a disk of its own.
func (b *bed) addDisks() error {
	for _, name := range b.names {
		create := disk.New
		if b.inMemory {
			create = disk.NewInMemory
		}
		d, err := create(b.path("data-"+name), diskSize)
		if err != nil {
			return err
		}
		b.disks[name] = d
		b.t.Cleanup(func() { require.NoError(b.t, d.Close()) })
		if err := os.Mkdir(b.data(name), 0o700); err != nil {
			return err
		}
	}
	return nil
}

// diskFaults returns the faults of disks. A node whose data is damaged must refuse to start, and is replaced by one with an empty
// directory; for that the others must be a majority, so no other fault happens meanwhile.
func diskFaults() []fault {
	full := func(name string, free int64) fault {
		return fault{name, needsProcess, leaderOrNode, 0, func(b *bed, victim string, _ time.Duration) (healFunc, error) {
			bite, err := b.disks[victim].Fill(free)
			return func() (int, string, error) {
				err := b.disks[victim].Empty()
				return 1, bite + b.startIfEnded(victim), err
			}, err
		}}
	}
	damage := func(name string, harm func(b *bed, victim string) (string, error)) fault {
		return fault{name, needsAll, leaderOrNode, 2 * time.Second, func(b *bed, victim string, _ time.Duration) (healFunc, error) {
			if before := b.damaged; before != "" && before != victim { // one damaged copy of three may be there, not two
				b.nodes[before].Kill()
				if err := b.replace(before); err != nil {
					return nil, err
				}
				b.whole(wholeLimit)
			}
			b.damaged = victim
			b.nodes[victim].Kill()
			did, err := harm(b, victim)
			return func() (int, string, error) {
				said, err := b.startDamaged(victim)
				return 1, did + said, err
			}, err
		}}
	}
	flip := func(kind disk.Kind) func(b *bed, victim string) (string, error) {
		return func(b *bed, victim string) (string, error) { return disk.FlipBit(b.data(victim), kind, b.random) }
	}
	powerCut := func(b *bed, name string) (string, error) { return b.disks[name].PowerCut(b.nodes[name].Kill) }
	return []fault{
		full("disk full to the last byte", 0), full("disk nearly full", 400<<10),
		{"disk stalls", needsProcess, leaderOrNode, 0, func(b *bed, victim string, _ time.Duration) (healFunc, error) {
			bite, err := b.disks[victim].Stall()
			return func() (int, string, error) {
				err := b.disks[victim].Resume()
				time.Sleep(200 * time.Millisecond) // a node that wants to end does so now
				return 1, bite + b.startIfEnded(victim), err
			}, err
		}},
		{"power cut at a node: unsynced writes are lost", needsProcess, leaderOrNode, 0, func(b *bed, victim string, _ time.Duration) (healFunc, error) {
			bite, err := powerCut(b, victim)
			return func() (int, string, error) { b.launch(victim); return 1, bite, nil }, err
		}},
		{"power cut at all nodes at once", needsAll, leaderOrNode, 3 * time.Second, func(b *bed, _ string, _ time.Duration) (healFunc, error) {
			var cuts sync.WaitGroup
			errs, bites := make([]error, len(b.names)), make([]string, len(b.names))
			for i, name := range b.names {
				cuts.Go(func() { bites[i], errs[i] = powerCut(b, name) })
			}
			cuts.Wait()
			return func() (int, string, error) {
				for _, name := range b.names {
					b.launch(name)
				}
				return len(b.names), fmt.Sprint(bites), nil
			}, errors.Join(errs...)
		}},
		damage("the end of the log is torn off", func(b *bed, victim string) (string, error) {
			return disk.TearTail(b.data(victim), disk.RaftLog, 4000, b.random)
		}),
		damage("a bit of the log is flipped", flip(disk.RaftLog)),
		damage("a bit of a table is flipped", flip(disk.Table)),
		damage("a bit of etcd's log is flipped", flip(disk.EtcdLog)),
		damage("the directory is emptied", func(b *bed, victim string) (string, error) { return disk.Wipe(b.data(victim)) }),
		{"the disk is rolled back", needsAll, leaderOrNode, 4 * time.Second, func(b *bed, victim string, _ time.Duration) (healFunc, error) {
			copied := b.path("copy-" + victim)
			err := b.disks[victim].Copy(copied)
			return func() (int, string, error) {
				b.nodes[victim].Kill()
				if err := errors.Join(b.disks[victim].Restore(copied), os.Remove(copied)); err != nil {
					return 0, "", err
				}
				said, err := b.startDamaged(victim)
				return 1, "it was put back to a copy of some seconds before" + said, err
			}, err
		}},
	}
}

// startIfEnded starts a node that a fault of its disk has ended.
func (b *bed) startIfEnded(name string) string {
	select {
	case <-b.nodes[name].Ended():
		b.launch(name)
		return "; the node had ended"
	default:
		return "; the node went on"
	}
}

// startDamaged starts a node whose data was damaged while it was down. It must serve, or end with an error; then it is replaced by one
// with an empty directory. What it serves, and whether it has forgotten anything, the checkers see.
func (b *bed) startDamaged(name string) (said string, err error) {
	b.launch(name)
	for until := time.Now().Add(refusalLimit); time.Now().Before(until); time.Sleep(100 * time.Millisecond) {
		select {
		case <-b.nodes[name].Ended():
			return "; its start was refused: " + b.nodes[name].LogTail(1), b.replace(name)
		default:
		}
		if state, err := b.statusAt(name); err == nil && state.Leader != "" {
			return "; it serves", nil
		}
	}
	return "; it neither serves nor ends", nil
}

// replace replaces a node that is down by one with an empty directory.
func (b *bed) replace(name string) error {
	b.replaced++
	bundle := b.path(fmt.Sprintf("founding/%s-%d", name, b.replaced))
	var err error
	for until := time.Now().Add(time.Minute); time.Now().Before(until); time.Sleep(500 * time.Millisecond) {
		if _, err = b.run("cluster", "replace", name, "--ca", b.path("founding"), "--out", bundle, "--reason", "its disk was damaged", "--yes"); err == nil {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("replace node %s: %w", name, err)
	}
	if _, err := disk.Wipe(b.data(name)); err != nil {
		return err
	}
	b.bundle[name] = bundle
	if b.damaged == name {
		b.damaged = ""
	}
	b.launch(name)
	return nil
}
