package httpapi

import (
	"cmp"
	"fmt"
	"net/http"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

// blocksOf returns what a flight waits for before its next attempt may open or its outcome is known, the first obstacle first. It is
// nil for a flight that has ended, and for one that is being performed. The answer changes without the flight's version.
func (fw *flightWriter) blocksOf(r *http.Request, f *flight.Flight) (blocks []wire.Block) {
	add := func(reason, format string, args ...any) *wire.Block {
		blocks = append(blocks, wire.Block{Reason: reason, Detail: fmt.Sprintf(format, args...)})
		return &blocks[len(blocks)-1]
	}
	h, now := fw.ledger.Header(), fw.ledger.Now()
	until := func(format string, at flight.Time) {
		text := at.AsTime().Format(wire.TimeFormat)
		add(wire.BlockedByTime, format, text).Until = wire.Time{Time: at.AsTime()}
	}
	if last := givenBack(f); last != nil {
		add(wire.BlockedByGivenBack, "its last %d attempts were given back by their workers, which had not begun them; the last one was %s, and its log has the reason", minGivenBack, cmp.Or(last.Owner, "unnamed"))
	}
	switch {
	case f.State.Terminal(), f.State == flight.StateAbsent:
		return nil
	case f.Holder() != nil:
		return blocks
	case f.State == flight.StateInDoubt:
		add(wire.BlockedByDoubt, "whether its effect happened is not known, and a person must resolve it")
		return blocks
	case f.State == flight.StateWaiting:
		if at := wire.CallbackUntil(f, h); !at.IsZero() {
			add(wire.BlockedByCallback, "it waits for the callback of its provider until %s", at.Format(wire.TimeFormat)).Until = at
		}
		return blocks
	case f.State == flight.StateAwaitingApproval:
		add(wire.BlockedByApproval, "it waits for a person to approve it")
	}
	if h.Reconciling {
		add(wire.BlockedByRestore, "the ledger was restored, and opens nothing until an operator has finished the restore")
	}
	job, action := f.Place != nil && fw.queues != nil, f.Key.Name()
	if job {
		action = cmp.Or(f.Place.Queue.Action, action) // a step of a saga is claimed by the workers of another action than that of its key
		if first, blocked := fw.queues.LaneBlocker(f.ID); blocked {
			text := "another job stands before it in the lane " + f.Place.Queue.Lane
			key := ""
			if before, err := fw.flightOf(r, first, flight.Key{}); err == nil && before != nil {
				key = before.Key.String()
				text = fmt.Sprintf("%s stands before it in the lane %s, and is %s", key, f.Place.Queue.Lane, stateWords(before))
			}
			add(wire.BlockedByLane, "%s", text).Key = key
		}
		if doc := fw.pauseOf(f.Key.Namespace(), action); doc != nil {
			add(wire.BlockedByPause, "the action %s is paused since %s by %s: %s", action, doc.CreatedAt.AsTime().Format(wire.TimeFormat),
				cmp.Or(doc.Changed.Actor, wire.UnknownActor), doc.Changed.Reason)
		}
	}
	switch {
	case f.Verifying():
		if at := f.HolderTime(&h, f.Verification.NotBefore); at > now {
			until("its effect is looked up at the provider, at %s or later", at)
		}
	case f.NotBefore > now && f.AttemptCount > 0:
		until("it waits for its next retry until %s", f.NotBefore)
	case f.NotBefore > now:
		until("its first attempt is due at %s", f.NotBefore)
	}
	switch {
	case !job, f.Policy.Approval && f.Key.IsStep(): // no worker performs an approval step
	case fw.queues.Workers(f.Key.Namespace(), action) == 0:
		add(wire.BlockedByNoWorkers, "no worker has asked for jobs of the action %s within a minute", action)
	case f.Verifying() && !fw.queues.LooksUp(f.Key.Namespace(), action):
		add(wire.BlockedByNoWorkers, "its outcome has to be looked up, and no worker of the action %s that has asked within a minute has a look-up", action)
	}
	return blocks
}

// minGivenBack is the number of consecutive attempts that workers must give back before a flight shows it.
const minGivenBack = 10

// givenBack returns the newest ended attempt of a job if its last minGivenBack attempts were given back by their workers, and nil
// otherwise. The retry policy does not count these attempts.
func givenBack(f *flight.Flight) *flight.Attempt {
	ended := f.Attempts
	if f.OpenAttempt() != nil {
		ended = ended[:len(ended)-1]
	}
	if f.Place == nil || f.State.Terminal() || len(ended) < minGivenBack || f.AttemptCount-f.CountedAttempts < minGivenBack {
		return nil
	}
	for _, a := range ended[len(ended)-minGivenBack:] {
		if a.Outcome != flight.OutcomeNotDone || a.Lost {
			return nil
		}
	}
	return &ended[len(ended)-1]
}

// stateWords describes the state of a flight in a sentence about another one.
func stateWords(f *flight.Flight) string {
	switch {
	case f.State == flight.StateInDoubt:
		return "in doubt"
	case f.State == flight.StateWaiting:
		return "waiting for its callback"
	case f.Verifying():
		return "being looked up"
	case f.State == flight.StateScheduled && f.AttemptCount > 0:
		return "waiting for its retry"
	}
	return f.State.String()
}

// pauseOf returns the document that pauses an action; nil: it is not paused.
func (fw *flightWriter) pauseOf(namespace, action string) *flight.Document {
	if fw.documents == nil {
		return nil
	}
	if doc := fw.documents.Document(flight.QueueID(namespace, action)); doc != nil {
		return doc
	}
	return nil
}
