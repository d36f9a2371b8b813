// Package linear makes clients of the HTTP API that do everything to a few hundred keys (Run), and checks what they were told (Check).
//
// Check knows nothing of the ledger. A history is right if some order of a key's operations, each between its start and its end, explains
// every answer. An operation without an answer may have been carried out at any time after its start, or never.
//
// A long poll, a list and the answer to a change are the leader's, and linearizable (docs/decisions/0028-one-node-acts.md). A plain read of a
// receipt, and a replay, may be another node's and old: they count only for their reader, whose view never goes back, and for the record that
// they show. The positions of events are one order for all streams.
package linear

import (
	"cmp"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/flightd/flightd/flight"
)

// Op is one operation of a client on one key. Processes write it as a line of JSON.
type Op struct {
	Client, Key, Kind   string
	Generation, Attempt uint32  // report: of the attempt; decision: of the flight that the person saw
	Version             string  // decision: that the person saw; event: its id
	Word                string  // report: the outcome; resolve: the result
	Digest              string  // of the receipt that a report or a resolve brings
	Answer              *Record // nil: the operation was refused, or has no answer
	Code                string  // of the refusal
	Stale               bool    // a node that does not lead may have answered: the record was true once
	Unknown             bool    // it may still be carried out after End
	Start, End          int64   // nanoseconds, by a clock that all callers share
}

// The kinds of operations. Free and retry begin the next generation of a key. List is one flight of a page. Event is one event of a
// stream, whose Client is the prefix of keys that it selects; Gap is the stream's statement that events are missing.
const (
	Read, List, Event, Gap                             = "read", "list", "event", "gap"
	Open, Report, Resolve, Cancel, Free, Retry, Redact = "open", "report", "resolve", "cancel", "free", "retry", "redact"
)

// Record is the flight in an answer.
type Record struct {
	State, Version      string // without a version the key was never used, or the answer is that an effect may begin
	Generation, Attempt uint32 // number of the generation's newest attempt
	Outcome, Digest     string // of the receipt
	Bytes, Redacted     bool   // the bytes of the receipt were shown, were erased
}

// Violation is a rule that a history breaks.
type Violation struct {
	Rule, Key string
	Ops       []Op // that show it, in the order of their ends
}

func (v Violation) String() string {
	text := v.Rule + ": " + v.Key
	for _, o := range v.Ops {
		line, _ := json.Marshal(o) // never fails: it has numbers and texts only
		text += "\n  " + string(line)
	}
	return text
}

// The rules about pairs of answers and about streams; those about the order of a key's operations are in model.go.
const (
	VersionFell     = "versions fell for one reader"
	OwnWriteMissing = "an acknowledged write is not seen by its client"
	TwoRecords      = "one version shows two records"
	StreamWentBack  = "a stream of events went back"
	StreamMissed    = "a stream missed an event"
	TooLong         = "the history of the key was not checked within its time"
)

// keyLimit bounds the check of one key.
const keyLimit = 20 * time.Second

// Check returns the rules that a history breaks. Of the rules about the order of a key's operations, it names the first in time.
func Check(ops []Op) []Violation {
	byKey := make(map[string][]Op)
	for _, o := range ops {
		byKey[o.Key] = append(byKey[o.Key], o)
	}
	found := checkStreams(ops)
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		of := slices.DeleteFunc(byKey[key], func(o Op) bool { return o.Kind == Event || o.Kind == Gap })
		found = slices.Concat(found, checkPairs(of), checkOrder(of))
	}
	return found
}

func versionOf(text string) flight.Version {
	v, _ := flight.ParseVersion(text) // the zero Version is before all others
	return v
}

// checkPairs compares answers about one key. Records of one version are equal: it is the log position of the command that made them. A client
// sends the position that it has seen, so a later request gets no older record.
func checkPairs(ops []Op) (found []Violation) {
	for _, o := range ops {
		if o.Answer == nil || o.Answer.Version == "" && o.Answer.State != absent {
			continue
		}
		for _, early := range ops {
			if early.Answer == nil || early.Answer.Version == "" {
				continue
			}
			a, b := *early.Answer, *o.Answer
			a.Bytes, b.Bytes = false, false // lists have none
			switch {
			case a.Version == b.Version && a != b && (a.State != absent || b.State != absent): // a problem says no more of a freed key
				found = append(found, Violation{TwoRecords, o.Key, []Op{early, o}})
			case early.Client != o.Client || early.End >= o.Start || !versionOf(a.Version).After(versionOf(b.Version)):
				continue
			case early.Kind == Read || early.Kind == List:
				found = append(found, Violation{VersionFell, o.Key, []Op{early, o}})
			default:
				found = append(found, Violation{OwnWriteMissing, o.Key, []Op{early, o}})
			}
			return found // one is enough
		}
	}
	return found
}

// checkStreams finds events out of order, and changes without an event between two events of a stream, which may repeat events.
func checkStreams(ops []Op) (found []Violation) {
	type place struct{ key, version string }
	streams, gaps, changes := make(map[place][]Op), make(map[string]int), make(map[place]Op)
	for _, o := range ops {
		switch part := (place{o.Client, strconv.Itoa(gaps[o.Client])}); {
		case o.Kind == Gap:
			gaps[o.Client]++ // what follows is a stream of its own
		case o.Kind == Event:
			streams[part] = append(streams[part], o)
		case o.Answer != nil && o.Answer.Version != "" && !isKeptShortly(o.Key): // the events of an expired flight are gone, and a tombstone has no key to select it by
			changes[place{o.Key, o.Answer.Version}] = o
		}
	}
	for part, events := range streams {
		first, last, seen := events[0], events[0], make(map[place]bool)
		for _, o := range events {
			at := place{o.Key, o.Version}
			if back := versionOf(last.Version).After(versionOf(o.Version)); !back {
				last = o
			} else if !seen[at] {
				found = append(found, Violation{StreamWentBack, o.Key, []Op{last, o}})
			}
			seen[at] = true
		}
		for at, o := range changes {
			if v := versionOf(at.version); strings.HasPrefix(at.key, part.key) && !seen[at] && v.After(versionOf(first.Version)) && versionOf(last.Version).After(v) {
				after := slices.IndexFunc(events, func(e Op) bool { return versionOf(e.Version).After(v) })
				found = append(found, Violation{StreamMissed, at.key, []Op{o, events[after-1], events[after]}})
			}
		}
	}
	return found
}

// isKeptShortly reports whether the receipt of a key expires soon.
func isKeptShortly(key string) bool {
	number, err := strconv.Atoi(key[strings.LastIndexByte(key, '-')+1:])
	return err == nil && number%5 == 0
}

// checkOrder looks for an order that explains the answers about one key. If there is none, it finds the first end of an operation by which
// there is none, and then the rule without which there would be one.
func checkOrder(ops []Op) []Violation {
	ops = slices.DeleteFunc(slices.Clone(ops), func(o Op) bool { return o.Stale })
	for i := range ops {
		if ops[i].Unknown {
			ops[i].End = math.MaxInt64
		}
	}
	slices.SortFunc(ops, func(a, b Op) int { return cmp.Compare(a.End, b.End) })
	switch checkUntil(ops, len(ops), "") {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return []Violation{{TooLong, ops[0].Key, nil}}
	}
	n := 1 + sort.Search(len(ops)-1, func(i int) bool { return checkUntil(ops, i+1, "") != porcupine.Ok })
	rule := NoOrder
	if i := slices.IndexFunc(orderRules, func(r string) bool { return checkUntil(ops, n, r) == porcupine.Ok }); i >= 0 {
		rule = orderRules[i]
	}
	return []Violation{{rule, ops[n-1].Key, ops[max(0, n-12):n]}}
}

// checkUntil checks the history as it was known at the n-th end of an operation, by the model without one rule.
func checkUntil(ops []Op, n int, waived string) porcupine.CheckResult {
	var history []porcupine.Operation
	for i, o := range ops {
		if i >= n {
			if o.Start > ops[n-1].End || o.Kind == Read || o.Kind == List {
				continue
			}
			o.Unknown, o.Answer, o.Code, o.End = true, nil, "", math.MaxInt64
		}
		history = append(history, porcupine.Operation{Input: &o, Call: o.Start, Return: o.End})
		if o.Answer != nil && o.Answer.Version != "" && o.Kind != Read && o.Kind != List { // a repeat gets the flight as it is then
			history = append(history, porcupine.Operation{Input: &Op{Kind: Read, Answer: o.Answer}, Call: o.Start, Return: o.End})
		}
	}
	return porcupine.CheckOperationsTimeout(model(waived), history, keyLimit)
}
