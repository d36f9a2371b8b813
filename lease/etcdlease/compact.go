package etcdlease

import (
	"context"
	"errors"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Compactor keeps the history of an embedded etcd short. Nobody reads it but the watch for ended sessions, and every
// claim adds to it: left alone, a million claims cost 0.6 GB of memory.
type Compactor struct {
	Client   *clientv3.Client // of the member in this process
	Member   Member           // the member itself
	Quota    int64            // its quota in bytes; 0: as the server says
	Settings CompactorSettings
	Events   CompactorEvents

	last   mark // the newest compaction
	seen   mark // a moment at least one Look ago
	defrag time.Time
	near   bool
	full   time.Time // since when etcd refuses to write; zero: it writes
}

// Member is the server of the member. A client in the same process cannot ask it for this: the call ends in a nil
// pointer of etcd's own.
type Member interface{ Defragment() error }

// mark is a revision and when it was current.
type mark struct {
	revision int64
	at       time.Time
}

// CompactorSettings; zero values are the defaults named.
type CompactorSettings struct {
	Look       time.Duration // how often to look; 1 s. History younger than that is kept
	Every      time.Duration // time between compactions; 5 s
	Revisions  int64         // compact sooner after so many; 100,000
	DefragSize int64         // smallest file worth defragmenting, in bytes; a quarter of the quota
	DefragRest time.Duration // pause after a defragmentation, which blocks the member; 10 min
}

// CompactorEvents are optional.
type CompactorEvents struct {
	// Looked: the member's file has size bytes, of which inUse are not free pages; quota is where it stops to take writes.
	Looked       func(size, inUse, quota int64)
	Compacted    func(revision int64, took time.Duration)
	Defragmented func(before, after int64, took time.Duration)
	// NearQuota: more than 60 % of the quota is in use, or no longer.
	NearQuota func(near bool, used, quota int64)
	// NoSpace: etcd refuses to write, or writes again.
	NoSpace func(full bool)
	Failed  func(err error)
}

func (s *CompactorSettings) defaults() {
	if s.Look == 0 {
		s.Look = time.Second
	}
	if s.Every == 0 {
		s.Every = 5 * time.Second
	}
	if s.Revisions == 0 {
		s.Revisions = 100_000
	}
	if s.DefragRest == 0 {
		s.DefragRest = 10 * time.Minute
	}
}

// Run looks after the history until ctx ends.
func (c *Compactor) Run(ctx context.Context) {
	c.Settings.defaults()
	tick := time.NewTicker(c.Settings.Look)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := c.look(ctx); err != nil && ctx.Err() == nil && c.Events.Failed != nil {
			c.Events.Failed(err)
		}
	}
}

func (c *Compactor) look(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	status, err := c.Client.Status(bounded, "")
	if err != nil {
		return err
	}
	if c.Events.Looked != nil {
		c.Events.Looked(status.DbSize, status.DbSizeInUse, c.quota(status))
	}
	now := mark{status.Header.Revision, time.Now()}
	if c.last.at.IsZero() {
		c.last, c.seen = mark{at: now.at}, now
		return nil
	}
	// One member is enough: a compaction is the whole cluster's.
	if status.Leader == status.Header.MemberId && dueCompaction(c.Settings, c.last, c.seen, now) {
		if err := c.compact(bounded, c.seen.revision); err != nil {
			return err
		}
		c.last = mark{c.seen.revision, now.at}
	}
	c.seen = now
	c.watchQuota(status)
	if err := c.maybeDefrag(ctx, status); err != nil {
		return err
	}
	return c.watchAlarm(ctx, status)
}

// dueCompaction decides: up to seen, because of the time since the last one, or of what has gathered.
func dueCompaction(s CompactorSettings, last, seen, now mark) bool {
	return seen.revision > last.revision &&
		(now.at.Sub(last.at) >= s.Every || now.revision-last.revision >= s.Revisions)
}

func (c *Compactor) compact(ctx context.Context, revision int64) error {
	began := time.Now()
	_, err := c.Client.Compact(ctx, revision)
	if errors.Is(err, rpctypes.ErrCompacted) {
		return nil
	}
	if err == nil && c.Events.Compacted != nil {
		c.Events.Compacted(revision, time.Since(began))
	}
	return err
}

func (c *Compactor) quota(status *clientv3.StatusResponse) int64 {
	if c.Quota > 0 {
		return c.Quota
	}
	return status.DbSizeQuota
}

func (c *Compactor) watchQuota(status *clientv3.StatusResponse) {
	quota := c.quota(status)
	near := quota > 0 && status.DbSizeInUse > quota*6/10
	if near != c.near && c.Events.NearQuota != nil {
		c.Events.NearQuota(near, status.DbSizeInUse, quota)
	}
	c.near = near
}

// dueDefrag: more than half of a file that is worth it is free pages.
func dueDefrag(size, inUse, worth int64) bool {
	return size >= worth && size-inUse > size/2
}

// dueRescue: a member that is full takes no claims, so its pause costs nothing. It is worth it where a tenth of the quota
// can be had back and room is left then. What is in use was counted at the last write, and there may be none any more: so
// once it is defragmented on trust, when its history had time to go.
func (c *Compactor) dueRescue(size, inUse, quota int64) bool {
	if c.full.IsZero() {
		return false
	}
	return size-inUse > quota/10 && inUse < quota*8/10 ||
		c.defrag.Before(c.full) && time.Since(c.full) >= 2*c.Settings.Every || time.Since(c.defrag) >= c.Settings.DefragRest
}

func (c *Compactor) maybeDefrag(ctx context.Context, status *clientv3.StatusResponse) error {
	worth := c.Settings.DefragSize
	if worth == 0 {
		worth = max(c.quota(status)/4, 64<<20)
	}
	due := dueDefrag(status.DbSize, status.DbSizeInUse, worth) && time.Since(c.defrag) >= c.Settings.DefragRest
	if !due && !c.dueRescue(status.DbSize, status.DbSizeInUse, c.quota(status)) {
		return nil
	}
	c.defrag = time.Now()
	if err := c.Member.Defragment(); err != nil {
		return err
	}
	after, err := c.Client.Status(ctx, "")
	if err == nil && c.Events.Defragmented != nil {
		c.Events.Defragmented(status.DbSize, after.DbSize, time.Since(c.defrag))
	}
	return err
}

// watchAlarm tells of NOSPACE, and takes the alarm back once there is room again.
func (c *Compactor) watchAlarm(ctx context.Context, status *clientv3.StatusResponse) error {
	full := false
	for _, e := range status.Errors {
		full = full || strings.Contains(e, pb.AlarmType_NOSPACE.String())
	}
	if was := !c.full.IsZero(); full != was {
		c.full = time.Time{}
		if full {
			c.full = time.Now()
		}
		if c.Events.NoSpace != nil {
			c.Events.NoSpace(full)
		}
	}
	if quota := c.quota(status); full && quota > 0 && status.DbSize < quota*9/10 {
		_, err := c.Client.AlarmDisarm(ctx, &clientv3.AlarmMember{MemberID: status.Header.MemberId, Alarm: pb.AlarmType_NOSPACE})
		return err
	}
	return nil
}
