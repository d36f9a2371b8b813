package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/lease"
)

// Routes of the port between nodes. Every other path is a request of a caller, passed on.
const (
	foundingPath = "/-/founding"
	statusPath   = "/-/status"
	sessionsPath = "/-/sessions"
	appliedPath  = "/-/applied"
	defragPath   = "/-/defragment" // gives the turn; repeating it is harmless

	askedPath  = statusPath + "?asked=" // and the number of keys that the asking node has of the other's askedKeys
	leaderPart = "&leader"              // of a node that acts: it takes the counts of duplicates
)

// status is what a node says of itself to the others, twice a second.
type status struct {
	Node     string    `json:"node"`
	Instance string    `json:"instance"`
	Version  string    `json:"version"`
	Leader   string    `json:"leader,omitempty"` // the node that leads the ledger, as this node knows it
	Acting   bool      `json:"acting"`           // this node leads, and serves callers
	Term     uint64    `json:"term"`             // of the last applied entry
	Applied  uint64    `json:"applied"`          // index of the last applied entry
	Wall     time.Time `json:"wall"`
	Reads    uint32    `json:"reads"` // highest feature level that this build reads
	EtcdOK   bool      `json:"etcd_ok"`
	DiskOK   bool      `json:"disk_ok"`           // its disk has space for new work
	Damaged  bool      `json:"damaged,omitempty"` // a block on its disk was found damaged since its start
	Members  members   `json:"members"`
	Joins    string    `json:"joins,omitempty"` // certificate of a node that waits until it replaces the one before

	BackedUp  wire.Time `json:"backed_up,omitzero"`   // when the last backup ended that its process has sent, by its wall clock
	DefragDue bool      `json:"defrag_due,omitempty"` // its etcd member waits for its turn to be defragmented
	EtcdFull  bool      `json:"etcd_full,omitempty"`  // that member rejects claims until then

	Duplicates [][]byte `json:"duplicates,omitempty"` // to a node that acts: counts that it shall propose, each an encoded CountDuplicates
	Asked      []string `json:"asked,omitempty"`      // the next of its askedKeys
}

// view is the newest status of another node.
type view struct {
	status status
	sent   time.Time     // when the request was sent whose answer this is; zero: none was answered
	wall   time.Duration // how far the node's wall clock is ahead of this one's
	err    error         // of the newest request
	own    uint64        // last entry that this node had applied when it sent the request
	asked  int           // how many of the node's askedKeys this one has copied since the node answers
}

const (
	pollEvery   = 500 * time.Millisecond
	pollTimeout = 450 * time.Millisecond
)

// poller keeps what a node of a cluster knows of the other nodes up to date, and hands leadership over if this one is not fit.
type poller struct {
	*node
	fit fitness
}

// run asks all other nodes for their status every pollEvery, until ctx ends.
func (p *poller) run(ctx context.Context) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		p.once(ctx)
		p.leaveToFitNode(ctx)
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

func (p *poller) once(ctx context.Context) {
	c := p.cluster
	bounded, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	var asked sync.WaitGroup
	for _, name := range c.others() {
		asked.Go(func() {
			v := &view{sent: time.Now(), own: p.store.LastApplied().Index}
			if old := c.viewOf(name); old != nil && old.err == nil {
				v.asked = old.asked
			}
			path := askedPath + strconv.Itoa(v.asked)
			if p.act.Load() != nil {
				path += leaderPart
			}
			v.err = c.ask(bounded, name, path, &v.status)
			v.asked += p.asked.Load().copy(v.status.Asked)
			v.status.Asked = nil
			took := time.Since(v.sent)
			addDuplicates(p.store, v.status.Duplicates)
			v.status.Duplicates = nil
			v.wall = v.status.Wall.Sub(v.sent.Add(p.cfg.Process.WallOffset + took/2)).Round(time.Millisecond)
			c.setView(name, v)
		})
	}
	asked.Go(func() {
		err := p.etcd.answers(bounded)
		p.etcdAnswers.Store(err == nil)
		if away := p.etcdOutage.note(time.Now(), err == nil); away > 0 {
			p.cfg.Logger.Info("etcd answers this node again; while this node leads, sessions that have ended keep their attempts for a time, so that living owners report first",
				"away", away.Round(time.Millisecond), "for", lease.DefaultTTL)
		}
	})
	asked.Go(func() { p.askApplied(bounded) })
	asked.Wait()
	if err := p.updateMembers(); err != nil {
		p.cfg.Logger.Warn("storing the members of the cluster failed; it is retried", "error", err)
	}
	p.store.SetPeerClocks(c.walls(time.Now(), p.cfg.Process.WallOffset))
	c.changed.Broadcast()
}

// setView stores the answer of a node, or the error of asking it.
func (c *cluster) setView(name string, v *view) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.views[name]
	switch answered := old != nil && old.err == nil; {
	case v.err != nil && (answered || old == nil):
		c.log.Warn("a node of the cluster does not answer", "node", name, "error", v.err)
	case v.err == nil && !answered:
		c.log.Info("a node of the cluster answers", "node", name)
	}
	if v.err != nil && old != nil {
		kept := *old
		kept.err = v.err
		v = &kept
	} else if v.err != nil {
		v.sent = time.Time{}
	}
	c.views[name] = v
}

// viewOf returns the newest status of another node; nil: it has not answered since this node started.
func (c *cluster) viewOf(name string) *view {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v := c.views[name]; v != nil && !v.sent.IsZero() {
		return v
	}
	return nil
}

// walls returns the wall clocks of the other nodes that have just answered.
func (c *cluster) walls(now time.Time, own time.Duration) (walls []time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, v := range c.views {
		if v.err == nil && now.Sub(v.sent) < 2*pollEvery {
			walls = append(walls, now.Add(own+v.wall))
		}
	}
	return walls
}

// updateMembers stores the members of raft's newest configuration, or newer ones that another member has told.
func (p *poller) updateMembers() error {
	var err error
	for _, name := range p.cluster.others() {
		if v := p.cluster.viewOf(name); v != nil {
			err = errors.Join(err, p.cluster.storeMembers(v.status.Members))
		}
	}
	newest := members{Instances: make(map[string]string)}
	replaced, changed, readErr := replacements(p.store.Documents(flight.KindReplacement))
	voters, index, votersErr := p.store.Voters() // read later: a node with a document has the voters before it
	if err := errors.Join(err, readErr, votersErr); err != nil || index == 0 {
		return err
	}
	newest.Index, newest.Replaced, newest.Changed = index, replaced, changed
	for _, v := range voters {
		if v.Address == v.ID {
			return nil // a lone ledger whose leader has not given its name yet
		}
		newest.Instances[v.Address] = v.ID
	}
	return p.cluster.storeMembers(newest)
}

// peerAPI answers the other nodes of a cluster, as far as this node has started.
type peerAPI struct{ *node }

// status describes this node.
func (p peerAPI) status() status {
	s := status{Node: p.cluster.name(), Instance: p.cluster.instance, Version: p.cfg.Process.Version, Wall: p.wall(), Reads: flight.MaxLevel, Members: p.cluster.foundingAnswer().Members}
	s.Joins = p.cluster.joins()
	store := p.openStore.Load()
	if store == nil {
		return s
	}
	last := store.LastApplied()
	s.Term, s.Applied, s.Leader, s.Acting = last.Term, last.Index, store.Leader(), p.act.Load() != nil
	s.EtcdOK, s.DiskOK, s.Damaged = p.etcdAnswers.Load(), store.CheckDiskSpace() == nil, store.IsDamaged()
	s.DefragDue, s.EtcdFull = p.defrag.wants()
	s.BackedUp = p.lastBackup()
	return s
}

// awaitApplied waits until every other node that answers has applied what this one has, at most a second. It returns the names
// of the others.
func (a *actor) awaitApplied(ctx context.Context) (notYet []string) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	own := a.store.LastApplied().Index
	var mu sync.Mutex // guards notYet
	var asked sync.WaitGroup
	for _, name := range a.cluster.others() {
		asked.Go(func() {
			for {
				var s status
				if err := a.cluster.ask(ctx, name, statusPath, &s); err == nil && s.Applied >= own {
					return
				}
				select {
				case <-time.After(20 * time.Millisecond):
				case <-ctx.Done():
					mu.Lock()
					defer mu.Unlock()
					notYet = append(notYet, name)
					return
				}
			}
		})
	}
	asked.Wait()
	slices.Sort(notYet)
	return notYet
}

// levels returns the feature levels that the other nodes read, by instance.
func (c *cluster) levels() map[string]uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	levels := make(map[string]uint32)
	for _, v := range c.views {
		if !v.sent.IsZero() {
			levels[v.status.Instance] = v.status.Reads
		}
	}
	return levels
}

// handler serves the requests of other nodes: their own, and those of callers, which name the caller.
func (p peerAPI) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+foundingPath, func(w http.ResponseWriter, _ *http.Request) { writeAnswer(w, p.cluster.foundingAnswer()) })
	mux.HandleFunc("GET "+statusPath, func(w http.ResponseWriter, r *http.Request) {
		s := p.status()
		if store := p.openStore.Load(); store != nil && r.URL.Query().Has("leader") {
			s.Duplicates = takeDuplicates(store)
		}
		if asked := p.asked.Load(); asked != nil && p.store.Header().Reconciling {
			n, _ := strconv.Atoi(r.URL.Query().Get("asked"))
			s.Asked = asked.since(max(n, 0))
		}
		writeAnswer(w, s)
	})
	mux.HandleFunc("GET "+sessionsPath, func(w http.ResponseWriter, _ *http.Request) { writeAnswer(w, p.program.sessionsInUse()) })
	mux.HandleFunc("GET "+appliedPath, p.serveApplied)
	mux.HandleFunc("POST "+defragPath, func(w http.ResponseWriter, _ *http.Request) {
		p.defrag.give()
		writeAnswer(w, struct{}{})
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header[headerCaller] != nil { // whatever its path
			p.serveForwarded(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func writeAnswer(w http.ResponseWriter, answer any) {
	text, err := json.Marshal(answer)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write(text) // the other node repeats its request
}

// ask requests a path of another node and decodes the answer.
func (c *cluster) ask(ctx context.Context, name, path string, answer any) error {
	return c.request(ctx, http.MethodGet, name, path, answer)
}

func (c *cluster) request(ctx context.Context, method, name, path string, answer any) error {
	r, err := http.NewRequestWithContext(ctx, method, "https://"+name+path, http.NoBody)
	if err != nil {
		return err
	}
	got, err := c.port.Client(name).RoundTrip(r)
	if err != nil {
		return err
	}
	defer got.Body.Close()
	text, err := io.ReadAll(io.LimitReader(got.Body, 1<<20))
	if err != nil {
		return err
	}
	if got.StatusCode != http.StatusOK {
		return fmt.Errorf("node %s answers %s", name, got.Status)
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return errors.Join(fmt.Errorf("node %s gives an answer that cannot be read", name), err)
	}
	return nil
}
