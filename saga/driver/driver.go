// Package driver drives sagas on, at the node that leads the ledger. It performs no effect: steps and undos are jobs, which workers
// perform.
//
// One drive reads a saga and its steps, asks saga.Decide, and proposes what it says in one batch: an Open of the saga, commands for its
// steps, and a Suspend, or the Report that ends the saga. The ledger accepts a command only under the token of the saga's open attempt.
//
//	if the process dies …                what is true
//	before the batch is committed        nothing has changed; the saga is still due at the next leader
//	when a part of it is committed       the saga has an open attempt that nobody has: it is due, and the next Open ends that attempt
//	after the Suspend                    the saga sleeps until one of the steps that it waits for is over, or its time has come
//
// A leader that has lost its term commits nothing more (raft), so two drivers never act on one saga; the token also fences the commands of
// an earlier drive of the same leader.
package driver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"time"

	"github.com/flightd/flightd/executor"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/saga"
)

// Ledger is the part of this node's ledger that a driver reads.
type Ledger interface {
	Header() flight.Header
	Now() flight.Time
	// Flight returns nil if the key was never used.
	Flight(id flight.ID) (*flight.Flight, error)
	Input(f *flight.Flight) ([]byte, error)
	ReceiptBody(f *flight.Flight) ([]byte, error)
	// Document returns nil if there is no such document. The document must not be changed.
	Document(id flight.DocumentID) *flight.Document
}

// Jobs is this node's table of sagas that are due.
type Jobs interface {
	// DueSagas iterates over the sagas that have to be driven on. The loop's body must not wait and must not read the ledger.
	DueSagas() iter.Seq[flight.ID]
	// OnSagaDue sets the function that is called when a saga becomes due. It must not wait and must not read the ledger.
	OnSagaDue(func())
	// ProposeAll proposes commands in their order. A reply of DecisionNone: the result of its command is unknown.
	ProposeAll(ctx context.Context, commands []flight.Command) ([]flight.Reply, error)
}

// Config has the ports of a Driver. Only Events and Logger may be zero.
type Config struct {
	Ledger Ledger
	Jobs   Jobs
	Events executor.Events
	Owner  string // of the sagas' attempts, for people
	Logger *slog.Logger
}

// Driver drives the sagas of a ledger. Run must be called.
type Driver struct {
	cfg  Config
	wake chan struct{}

	mu      sync.Mutex // guards the fields below
	driving map[flight.ID]bool
	failed  map[flight.ID]time.Time // not driven again before
	defs    map[flight.DocumentID]*saga.Definition
}

const (
	// maxDrives is how many sagas are driven at once.
	maxDrives = 64
	// lookInterval is how often Run looks for sagas that it was not woken for: those whose last drive has failed.
	lookInterval = time.Second
	// driveTimeout bounds one drive.
	driveTimeout = 10 * time.Second
	// maxRounds is how often one drive reads and decides, before the saga is suspended and due at once.
	maxRounds = 8
)

// New returns a driver.
func New(cfg Config) *Driver {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	return &Driver{cfg: cfg, wake: make(chan struct{}, 1), driving: make(map[flight.ID]bool), failed: make(map[flight.ID]time.Time),
		defs: make(map[flight.DocumentID]*saga.Definition)}
}

// Run drives all sagas that are due, until ctx ends. The ledger must have applied the entries of earlier leaders.
func (d *Driver) Run(ctx context.Context) {
	d.cfg.Jobs.OnSagaDue(d.signal)
	var drives sync.WaitGroup
	defer drives.Wait()
	slots := make(chan struct{}, maxDrives)
	look := time.NewTicker(lookInterval)
	defer look.Stop()
	for {
		for _, id := range d.due() {
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return
			}
			drives.Go(func() {
				err := d.drive(ctx, id)
				d.driven(id, err)
				<-slots
				d.signal() // it may be due again
				if err != nil && ctx.Err() == nil {
					d.cfg.Logger.Warn("a saga could not be driven on; it is retried", "flight", id.String(), "error", err)
				}
			})
		}
		select {
		case <-d.wake:
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}

func (d *Driver) signal() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// due returns the sagas to drive, and marks them as being driven.
func (d *Driver) due() (ids []flight.ID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	for id := range d.cfg.Jobs.DueSagas() {
		if !d.driving[id] && !now.Before(d.failed[id]) {
			if ids = append(ids, id); len(ids) == 4*maxDrives {
				break
			}
		}
	}
	for _, id := range ids {
		d.driving[id] = true
	}
	return ids
}

func (d *Driver) driven(id flight.ID, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.driving, id)
	delete(d.failed, id)
	if err != nil {
		d.failed[id] = time.Now().Add(lookInterval)
	}
}

// drive drives one saga on, as far as it goes without its workers.
func (d *Driver) drive(ctx context.Context, id flight.ID) error {
	ctx, cancel := context.WithTimeout(ctx, driveTimeout)
	defer cancel()
	f, err := d.cfg.Ledger.Flight(id)
	if err != nil || f == nil || !f.Policy.Saga || f.State.Terminal() || f.State == flight.StateAbsent {
		return err
	}
	def, err := d.Definition(f)
	if err != nil {
		return err
	}
	header := d.cfg.Ledger.Header()
	token := flight.Token{StoreEpoch: header.StoreEpoch, Number: f.Fence.Number + 1}
	open := &flight.Open{Key: f.Key, Submission: flight.Submission{Fingerprint: f.Fingerprint, Policy: f.Policy}, NotAfter: d.cfg.Ledger.Now().Add(driveTimeout),
		Owner: d.cfg.Owner, StoreEpoch: header.StoreEpoch}
	_, _ = rand.Read(open.Nonce[:])
	commands := []flight.Command{open}
	for round := 1; ; round++ {
		v, err := d.view(def, f)
		if err != nil {
			return err
		}
		next := saga.Decide(def, v)
		goesOn := next.Mark != "" || next.PassPivot || next.BeginUndo
		if goesOn && round == maxRounds {
			return fmt.Errorf("saga %s: no end of decisions after %d rounds", f.Key, round)
		}
		commands = append(commands, d.commands(def, f, token, &next)...)
		if !goesOn && next.End == nil {
			commands = append(commands, &flight.Suspend{Key: f.Key, Generation: f.Generation, Token: token,
				Wake: flight.Wake{At: next.WakeAt, Live: uint8(next.Live), Marked: f.Cancel != nil}})
		}
		replies, err := d.cfg.Jobs.ProposeAll(ctx, commands)
		if err != nil {
			return err
		}
		for i := range replies {
			if replies[i].Decision == flight.DecisionNone {
				return errors.New("the result of a command is unknown")
			}
			d.cfg.Events.Publish(commands[i].Target(), replies[i].Events)
		}
		if round == 1 && replies[0].Decision != flight.DecisionProceed { // somebody has decided about it meanwhile
			return nil
		}
		if !goesOn {
			return nil
		}
		if f, err = d.cfg.Ledger.Flight(id); err != nil || f == nil || f.State.Terminal() {
			return err
		}
		commands = nil
	}
}

// commands returns the commands of a decision. All but the saga's own cancel carry the driver's token.
func (d *Driver) commands(def *saga.Definition, f *flight.Flight, token flight.Token, next *saga.Next) (all []flight.Command) {
	if next.Mark != "" {
		return append(all, &flight.Cancel{Key: f.Key, Generation: f.Generation, Actor: "saga", Reason: next.Mark})
	}
	for _, step := range next.Cancel {
		all = append(all, &flight.Cancel{Key: def.StepKey(f.Key, step), Generation: 1, Driver: token, Actor: "saga", Reason: "the saga is being undone"})
	}
	for _, step := range next.Seal {
		all = append(all, &flight.SealKey{Key: def.StepKey(f.Key, step), Driver: token})
	}
	switch {
	case next.PassPivot:
		return append(all, &flight.PassPivot{Key: f.Key, Generation: f.Generation, Token: token})
	case next.BeginUndo:
		return append(all, &flight.BeginUndo{Key: f.Key, Generation: f.Generation, Token: token})
	}
	for _, step := range next.Submit {
		all = append(all, d.submit(def, def.StepKey(f.Key, step), def.StepPolicy(step), def.StepAction(step), token))
	}
	if next.Undo >= 0 {
		all = append(all, d.submit(def, def.UndoKey(f.Key, next.Undo), def.UndoPolicy(next.Undo), def.UndoAction(next.Undo), token))
	}
	if end := next.End; end != nil {
		all = append(all, &flight.Report{Key: f.Key, Generation: f.Generation, Token: token, Outcome: end.Outcome,
			Body: flight.NewBlob("application/json", end.Body, flight.MaxReceiptBody), Error: end.Cause})
	}
	return all
}

// submit returns the command that makes a step or an undo a job. Its input is not stored: StepInput makes it when the job is handed out.
func (d *Driver) submit(def *saga.Definition, key flight.Key, policy flight.Policy, action string, token flight.Token) flight.Command {
	return &flight.Submit{Key: key, Queue: &flight.Queue{Action: action},
		Submission: flight.Submission{Fingerprint: flight.FingerprintBytes([]byte(def.ID())), Policy: policy, Driver: token}}
}
