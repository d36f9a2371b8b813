package clusterstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/hashicorp/raft"

	"github.com/flightd/flightd/clusterstore/pebblelog"
	"github.com/flightd/flightd/flight"
)

// Inspection is what the directory of a stopped ledger holds, for a program that checks it.
type Inspection struct {
	Node    string     // its instance
	Entries []LogEntry // the whole log, in order. It may begin after entry 1, and have a hole where a snapshot was received
	Images  []Image    // of the state, and of the newest snapshot if there is one
}

// LogEntry is one entry of a raft log.
type LogEntry struct {
	EntryID
	Type raft.LogType
	Data []byte
}

// Image is the ledger as of one entry. The zero Image is that of an empty ledger.
type Image struct {
	Applied   EntryID
	Header    flight.Header
	Flights   map[flight.ID][]byte // as flight.EncodeRecord returns them, without the bytes of bodies and without duplicate statistics
	Ended     []flight.EndedSession
	Documents []*flight.Document        // in the order of their ids
	Touched   map[flight.Version]string // by EndSession: the ids of the flights with an event of it, one after the other
}

// Decode returns the ledger's time and the wall clock that the leader has stamped, and the commands; nil for an entry of raft's own.
func (e *LogEntry) Decode() (now, wall flight.Time, commands []flight.Command, err error) {
	if e.Type != raft.LogCommand {
		return 0, 0, nil, nil
	}
	at, commands, err := decodeEntry(e.Data, flight.MaxLevel)
	return at.now, at.wall, commands, err
}

// Inspect reads the ledger in a directory that no process uses: the whole of it if since is 0, and otherwise only the entries from since up to
// that of the stored state, without images. It takes Pebble's file locks and writes nothing. It returns an error if a process has the
// ledger open, or if a part of it cannot be read.
func Inspect(dir string, since uint64) (_ *Inspection, err error) {
	defer func() { err = storageError("inspect "+dir, err) }()
	cfg, err := Config{Dir: dir}.withDefaults()
	if err != nil {
		return nil, err
	}
	current, err := readFile(cfg.FS, cfg.FS.PathJoin(dir, currentFile)) // first: where it exists, identify creates nothing
	if err != nil {
		return nil, err
	}
	id, err := identify(&cfg)
	if err != nil {
		return nil, err
	}
	options := func() *pebble.Options {
		return &pebble.Options{FS: cfg.FS, ReadOnly: true, Logger: pebbleLog{log: cfg.Logger, kill: cfg.Limits.Kill}}
	}
	stateOpts := func() *pebble.Options { return stateOptions(options()) }
	in := &Inspection{Node: id.Node}
	log, err := pebblelog.Open(cfg.FS.PathJoin(dir, logDir), pebblelog.Options(options()))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	index, err := log.NextIndex(since)
	for ; index > 0 && err == nil; index, err = log.NextIndex(index + 1) {
		var e raft.Log
		if err := log.GetLog(index, &e); err != nil {
			return nil, err
		}
		in.Entries = append(in.Entries, LogEntry{EntryID{e.Index, e.Term}, e.Type, e.Data})
	}
	if err != nil {
		return nil, err
	}

	db, err := pebblelog.OpenDB(cfg.FS.PathJoin(dir, strings.TrimSpace(string(current))), stateOpts())
	if err != nil {
		return nil, err
	}
	im := Image{Flights: make(map[flight.ID][]byte), Touched: make(map[flight.Version]string)}
	last := []byte{0xff}
	if since > 0 {
		last = []byte{metaRow + 1}
	}
	err = (&state{db: db}).scan([]byte{0}, last, func(key, value []byte) (bool, error) { return true, im.add(key, value) })
	if err = errors.Join(err, db.Close()); err != nil {
		return nil, err
	}
	if since > 0 {
		in.Entries = slices.DeleteFunc(in.Entries, func(e LogEntry) bool { return e.Index > im.Applied.Index })
		return in, nil
	}
	in.Images = []Image{im}
	snaps := &snapshots{cfg: &cfg, cluster: id.Cluster, options: stateOpts, dir: cfg.FS.PathJoin(dir, snapshotDir), pinned: make(map[string]int), open: make(map[string]*openCheckpoint)}
	list, err := snaps.List()
	if err != nil || len(list) == 0 {
		return in, err
	}
	_, stream, err := snaps.Open(list[0].ID)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stream.Close()) }()
	r, _, err := newRowReader(stream)
	im = Image{Flights: make(map[flight.ID][]byte), Touched: make(map[flight.Version]string)}
	for err == nil {
		var key, value []byte
		if key, value, err = r.next(); err == nil {
			err = im.add(key, value)
		}
	}
	if !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("snapshot %s: %w", list[0].ID, err)
	}
	in.Images = append(in.Images, im)
	return in, nil
}

// add adds a row of a state. It does not retain the row.
func (im *Image) add(key, value []byte) (err error) {
	switch {
	case key[0] == metaRow:
		var m meta
		err = decodeMeta(value, flight.MaxLevel, &m)
		im.Applied = EntryID{m.Applied, m.Term}
	case key[0] == headerRow:
		err = flight.DecodeRecord(value, &im.Header)
	case key[0] == endedRow && len(value) == 8:
		im.Ended = append(im.Ended, flight.EndedSession{ID: flight.SessionID(key[1:]), Until: flight.Time(binary.BigEndian.Uint64(value))})
	case key[0] == touchedRow && len(key) == len(touchedKey(nil, flight.Version{})):
		im.Touched[flight.Version{Index: binary.BigEndian.Uint64(key[1:]), Pos: binary.BigEndian.Uint32(key[9:])}] = string(value)
	case key[0] == documentRow:
		doc := new(flight.Document)
		err = flight.DecodeRecord(value, doc)
		im.Documents = append(im.Documents, doc)
	case key[0] == flightRows && len(key) > kindOffset && key[kindOffset] == recordRow:
		var r *record
		if r, err = decodeRecord(value); err == nil {
			im.Flights[r.flight.ID], err = flight.EncodeRecord(r.flight)
		}
	}
	return err
}
