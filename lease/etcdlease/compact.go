package etcdlease

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/flightd/flightd/internal/clock"
)

// Compactor compacts and defragments an embedded etcd. Every claim adds to etcd's history, which only the watch for
// ended sessions reads: without compaction a million claims cost 0.6 GB of memory. Of a remote etcd, which belongs to its
// operator, it only reports the state.
//
// Run uses the fields without a lock: they must not change while it runs.
type Compactor struct {
	Client *clientv3.Client // of the embedded member, or of a remote etcd
	Member Member           // the embedded member; nil: a remote etcd
	// Turn is called when the member should be defragmented, which pauses it, and reports whether it may pause now; nil: it
	// always may.
	Turn     func(full bool) bool
	Quota    int64 // of the member's database in bytes; 0: as the server reports
	Settings CompactorSettings
	Events   CompactorEvents

	lastCompaction revisionAt // newest compaction
	previous       revisionAt // at least one Interval ago
	lastDefrag     time.Time  // newest defragmentation
	nearQuota      bool       // last value of NearQuota
	fullSince      time.Time  // start of the NOSPACE alarm; zero: no alarm
}

// Member is the server of an embedded member. Defragment through an in-process client panics in etcd with a nil
// pointer.
type Member interface{ Defragment() error }

// revisionAt is a revision and a time at which it was current.
type revisionAt struct {
	revision int64
	at       time.Time
}

// CompactorSettings configures a Compactor. A zero field means the default that its comment ends with.
type CompactorSettings struct {
	Interval         time.Duration // period of the checks; history younger than that is not compacted; 1 s
	CompactEvery     time.Duration // time between compactions; 5 s
	CompactRevisions int64         // compact earlier after this many revisions; 100,000
	DefragMinSize    int64         // smallest file to defragment, in bytes; a quarter of the quota
	DefragPause      time.Duration // pause after a defragmentation, which blocks the member; 10 min
}

// CompactorEvents has a function for each event. Each function may be nil, is called by Run and must not block.
type CompactorEvents struct {
	// SizeRead: the member's file has size bytes, of which inUse are not free pages; above quota etcd rejects writes.
	SizeRead     func(size, inUse, quota int64)
	Compacted    func(revision int64, took time.Duration)
	Defragmented func(before, after int64, took time.Duration)
	// NearQuota: the used part of the quota has risen above 60 %, or fallen below.
	NearQuota func(near bool, used, quota int64)
	// NoSpace: etcd rejects writes, or accepts them again.
	NoSpace func(full bool)
	// Failed: a check failed. The next one repeats it.
	Failed func(err error)
}

func (s *CompactorSettings) defaults() {
	s.Interval = cmp.Or(s.Interval, time.Second)
	if s.CompactEvery == 0 {
		s.CompactEvery = 5 * time.Second
	}
	s.CompactRevisions = cmp.Or(s.CompactRevisions, 100_000)
	if s.DefragPause == 0 {
		s.DefragPause = 10 * time.Minute
	}
}

// Run checks the member every Interval until ctx ends, in the goroutine of the caller.
func (c *Compactor) Run(ctx context.Context) {
	c.Settings.defaults()
	for clock.Sleep(ctx, c.Settings.Interval) {
		if err := c.runOnce(ctx); err != nil && ctx.Err() == nil && c.Events.Failed != nil {
			c.Events.Failed(err)
		}
	}
}

func (c *Compactor) runOnce(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	status, err := firstStatus(bounded, c.Client)
	if err != nil {
		return err
	}
	if c.Events.SizeRead != nil {
		c.Events.SizeRead(status.DbSize, status.DbSizeInUse, c.quota(status))
	}
	c.reportQuota(status)
	if c.Member == nil {
		c.reportSpace(status)
		return nil
	}
	now := revisionAt{status.Header.Revision, time.Now()}
	if c.lastCompaction.at.IsZero() {
		c.lastCompaction, c.previous = revisionAt{at: now.at}, now
		return nil
	}
	// Only the leader compacts: a compaction applies to the whole cluster.
	if status.Leader == status.Header.MemberId && dueCompaction(c.Settings, c.lastCompaction, c.previous, now) {
		if err := c.compact(bounded, c.previous.revision); err != nil {
			return err
		}
		c.lastCompaction = revisionAt{c.previous.revision, now.at}
	}
	c.previous = now
	if err := c.maybeDefrag(ctx, status); err != nil {
		return err
	}
	return c.updateAlarm(ctx, status)
}

// firstStatus returns the status of an endpoint of the client that answers.
func firstStatus(ctx context.Context, client *clientv3.Client) (*clientv3.StatusResponse, error) {
	var errs []error
	for _, e := range Endpoints(ctx, client) {
		if e.Status != nil {
			return e.Status, nil
		}
		errs = append(errs, e.Err)
	}
	return nil, errors.Join(errs...)
}

// dueCompaction reports whether to compact up to previous: enough time has passed since the last compaction, or enough
// revisions have been added.
func dueCompaction(s CompactorSettings, last, previous, now revisionAt) bool {
	return previous.revision > last.revision &&
		(now.at.Sub(last.at) >= s.CompactEvery || now.revision-last.revision >= s.CompactRevisions)
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

func (c *Compactor) reportQuota(status *clientv3.StatusResponse) {
	quota := c.quota(status)
	near := quota > 0 && status.DbSizeInUse > quota*6/10
	if near != c.nearQuota && c.Events.NearQuota != nil {
		c.Events.NearQuota(near, status.DbSizeInUse, quota)
	}
	c.nearQuota = near
}

// dueDefrag reports whether more than half of the file are free pages and the file has at least worth bytes.
func dueDefrag(size, inUse, worth int64) bool {
	return size >= worth && size-inUse > size/2
}

// dueDefragWhenFull reports whether to defragment a full member. The member rejects claims anyway, so blocking it costs
// nothing.
//
// It is due if it frees a tenth of the quota and less than 80 % remain in use. Etcd counts inUse at writes only, and a
// full member has none, so the value may be too high. So it is also due once after two compactions, and every
// DefragPause.
func (c *Compactor) dueDefragWhenFull(size, inUse, quota int64) bool {
	if c.fullSince.IsZero() {
		return false
	}
	return size-inUse > quota/10 && inUse < quota*8/10 ||
		c.lastDefrag.Before(c.fullSince) && time.Since(c.fullSince) >= 2*c.Settings.CompactEvery || time.Since(c.lastDefrag) >= c.Settings.DefragPause
}

func (c *Compactor) maybeDefrag(ctx context.Context, status *clientv3.StatusResponse) error {
	worth := c.Settings.DefragMinSize
	if worth == 0 {
		worth = max(c.quota(status)/4, 64<<20)
	}
	due := dueDefrag(status.DbSize, status.DbSizeInUse, worth) && time.Since(c.lastDefrag) >= c.Settings.DefragPause
	full := c.dueDefragWhenFull(status.DbSize, status.DbSizeInUse, c.quota(status))
	if !due && !full || c.Turn != nil && !c.Turn(full) {
		return nil
	}
	c.lastDefrag = time.Now()
	if err := c.Member.Defragment(); err != nil {
		return err
	}
	after, err := c.Client.Status(ctx, "")
	if err == nil && c.Events.Defragmented != nil {
		c.Events.Defragmented(status.DbSize, after.DbSize, time.Since(c.lastDefrag))
	}
	return err
}

// updateAlarm reports the NOSPACE alarm, and disarms it when the file is smaller than 90 % of the quota.
func (c *Compactor) updateAlarm(ctx context.Context, status *clientv3.StatusResponse) error {
	full := c.reportSpace(status)
	if quota := c.quota(status); full && quota > 0 && status.DbSize < quota*9/10 {
		_, err := c.Client.AlarmDisarm(ctx, &clientv3.AlarmMember{MemberID: status.Header.MemberId, Alarm: pb.AlarmType_NOSPACE})
		return err
	}
	return nil
}

// reportSpace reports a change of the NOSPACE alarm, and returns whether there is one.
func (c *Compactor) reportSpace(status *clientv3.StatusResponse) (full bool) {
	for _, e := range status.Errors {
		full = full || strings.Contains(e, pb.AlarmType_NOSPACE.String())
	}
	if was := !c.fullSince.IsZero(); full != was {
		c.fullSince = time.Time{}
		if full {
			c.fullSince = time.Now()
		}
		if c.Events.NoSpace != nil {
			c.Events.NoSpace(full)
		}
	}
	return full
}
