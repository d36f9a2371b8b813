// Package driver drives sagas on, at the node that leads the ledger. It performs no effect: steps and undos are jobs, which workers
// perform.
//
// One drive reads a saga and its steps, asks saga.Decide, and proposes what it says as one entry of the log: an Open of the saga, the
// commands, and a Suspend, or the Report that ends the saga. The ledger accepts them only under the token of the saga's open attempt, which is known
// beforehand: the number after the greatest that the saga has seen. So if the Open is rejected, nothing else is accepted.
//
//	if the process dies …                what is true
//	before the entry is committed        nothing has changed; the saga is still due at the next leader
//	after the Open of a takeover         the saga has an open attempt that nobody has: it is due, and the next Open ends that attempt
//	after the entry                      the saga sleeps until one of the steps that it waits for is over, or its time has come
//
// A drive that finds an open attempt takes the saga over: it proposes its Open alone, and reads the steps behind it.
//
// A leader that has lost its term commits nothing more (raft). A drive of an earlier term of this node may still be on its way when the next
// one begins. Its entry is proposed once, and its commands count only if the attempt with their number is open: that of its own Open. An
// attempt of another drive that has the same number has ended in the entry that opened it, and a takeover's number is greater.
package driver

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
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
	// ProposeTogether proposes commands as one entry of the ledger's log: all are applied, in their order and with nothing between
	// them, or none is. It proposes them once.
	ProposeTogether(ctx context.Context, commands []flight.Command) ([]flight.Reply, error)
}

// Config has the ports of a Driver. Only Events, Ended and Logger may be zero.
type Config struct {
	Ledger Ledger
	Jobs   Jobs
	Events executor.Events
	Ended  func(flight.Outcome) // called when a saga was ended; nil: not called
	Owner  string               // of the sagas' attempts, for people
	Logger *slog.Logger
}

// Driver drives the sagas of a ledger. Run must be called.
type Driver struct {
	cfg  Config
	wake chan struct{}

	mu      sync.Mutex // guards the fields below
	driving map[flight.ID]bool
	failed  map[flight.ID]time.Time // not driven again before
	defs    map[flight.DocumentID]definition
}

const (
	// maxDrives is how many sagas are driven at once.
	maxDrives = 64
	// lookInterval is how often Run looks for sagas that it was not woken for: those whose last drive has failed.
	lookInterval = time.Second
	// driveTimeout bounds one drive.
	driveTimeout = 10 * time.Second
)

// New returns a driver.
func New(cfg Config) *Driver {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	d := &Driver{cfg: cfg, wake: make(chan struct{}, 1), driving: make(map[flight.ID]bool), failed: make(map[flight.ID]time.Time),
		defs: make(map[flight.DocumentID]definition)}
	cfg.Jobs.OnSagaDue(d.signal) // here, because drivers are made one after the other: the Run of an earlier term could begin late
	return d
}

// Run drives all sagas that are due, until ctx ends. The ledger must have applied the entries of earlier leaders.
func (d *Driver) Run(ctx context.Context) {
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
	if d.cfg.Ledger.Header().Reconciling {
		return nil // the ledger opens no saga before the restore is finished; Run calls due again
	}
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
	open := &flight.Open{Key: f.Key, Submission: flight.Submission{Fingerprint: f.Fingerprint, Policy: f.Policy}, NotAfter: d.cfg.Ledger.Now().Add(driveTimeout),
		Owner: d.cfg.Owner, StoreEpoch: header.StoreEpoch}
	_, _ = rand.Read(open.Nonce[:])
	token, commands := flight.Token{StoreEpoch: header.StoreEpoch, Number: f.Fence.Number + 1}, []flight.Command{open}
	if f.OpenAttempt() != nil { // commands of that drive may be on their way: all that it has done is seen only after the Open of this one
		if err := d.propose(ctx, commands); err != nil {
			return err
		}
		if f, err = d.cfg.Ledger.Flight(id); err != nil || f == nil || f.OpenAttempt() == nil || header.TokenOf(f.OpenAttempt()) != token {
			return cmp.Or(err, errOtherDrive)
		}
		commands = nil
	}
	v, err := d.view(def, f)
	if err != nil {
		return err
	}
	return d.propose(ctx, append(commands, d.commands(def, f, token, v)...))
}

var errOtherDrive = errors.New("another drive has opened the saga meanwhile")

// propose proposes the commands of a drive. An Open among them must be accepted: else no other one is.
func (d *Driver) propose(ctx context.Context, commands []flight.Command) error {
	replies, err := d.cfg.Jobs.ProposeTogether(ctx, commands)
	if err != nil {
		return err
	}
	for i := range replies {
		if _, opens := commands[i].(*flight.Open); opens && replies[i].Decision != flight.DecisionProceed {
			return errors.New("the ledger does not let it be driven now: " + replies[i].Decision.String())
		}
		d.cfg.Events.Publish(commands[i].Target(), replies[i].Events)
	}
	last := len(commands) - 1
	if report, ends := commands[last].(*flight.Report); ends && replies[last].Changed && d.cfg.Ended != nil {
		d.cfg.Ended(report.Outcome)
	}
	return nil
}

// commands returns what the decision about a saga says, in its order.
func (d *Driver) commands(def *saga.Definition, f *flight.Flight, token flight.Token, v *saga.View) (all []flight.Command) {
	next := saga.Decide(def, v)
	if next.Mark != "" {
		all = append(all, &flight.Cancel{Key: f.Key, Generation: f.Generation, Actor: "saga", Reason: next.Mark})
	}
	if next.PassPivot {
		all = append(all, &flight.PassPivot{Key: f.Key, Generation: f.Generation, Token: token})
	}
	for _, step := range next.Cancel {
		all = append(all, &flight.Cancel{Key: v.Steps[step].Key, Generation: v.Steps[step].Generation, Driver: token, Actor: "saga", Reason: "its saga was cancelled"})
	}
	if next.BeginUndo {
		all = append(all, &flight.BeginUndo{Key: f.Key, Generation: f.Generation, Token: token})
	}
	for _, step := range next.Seal {
		all = append(all, &flight.SealKey{Key: keyOf(def, f, step, false), Driver: token})
	}
	for _, step := range next.Submit {
		all = append(all, submit(def, f, token, step, false))
	}
	if next.Undo >= 0 {
		all = append(all, submit(def, f, token, next.Undo, true))
	}
	if end := next.End; end != nil {
		return append(all, &flight.Report{Key: f.Key, Generation: f.Generation, Token: token, Outcome: end.Outcome,
			Body: flight.NewBlob("application/json", end.Body, flight.MaxReceiptBody)})
	}
	return append(all, &flight.Suspend{Key: f.Key, Generation: f.Generation, Token: token,
		Wake: flight.Wake{At: next.WakeAt, Live: uint8(next.Live), Marked: next.Marked}})
}

// keyOf returns the key of a step, or of its undo, of a definition that saga.Lint has accepted.
func keyOf(def *saga.Definition, f *flight.Flight, step int, undo bool) flight.Key {
	key, err := def.KeyOf(f.Key, step, undo)
	if err != nil {
		panic(err) // Lint has checked the name
	}
	return key
}

// submit returns the command that makes a step, or its undo, a job. Its input is not stored: StepInput makes it when the job is handed out.
func submit(def *saga.Definition, f *flight.Flight, token flight.Token, step int, undo bool) flight.Command {
	policy := def.PolicyOf(step, undo)
	policy.Retention = f.Policy.Retention
	requester := ""
	if policy.Approval {
		requester = f.Requester // who decides asks for whom
	}
	return &flight.Submit{Key: keyOf(def, f, step, undo), Queue: &flight.Queue{Action: def.ActionOf(step, undo)},
		Submission: flight.Submission{Fingerprint: flight.FingerprintBytes([]byte(def.ID())), Policy: policy, Driver: token, Requester: requester}}
}
