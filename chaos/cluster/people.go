package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
)

// The actions of jobs that await approval, of calls whose provider calls back, and of flightd exec. All of them hold.
const (
	actionApproved = "approved"
	actionCallback = "callback"
	actionExec     = "exec"
)

// ApprovalEnd is what became of a job that had to be approved.
type ApprovalEnd struct {
	Key      string
	Answers  [2]string // to the two persons who decided at once: approved, rejected, or the code of an error
	Decided  time.Time // when the first of them was answered
	State    string    // in the end
	Approved bool      // by the flight's own record
	Body     string
	Err      string
}

// approvalTime is the time for an approval that most of the jobs have. Persons then decide when it is nearly over, or just over.
const approvalTime = 2 * time.Second

// runApprovals submits jobs that await approval. Two persons at two nodes decide about each at the same time, mostly alike.
func (c *callers) runApprovals(o *order) {
	var jobs sync.WaitGroup
	for i := range o.Count {
		jobs.Go(func() {
			time.Sleep(rand.N(o.Every * time.Duration(o.Count)))
			end := &ApprovalEnd{Key: fmt.Sprintf("default/%s/%s-%d", actionApproved, o.Name, i)}
			c.runApproval(end, i)
			c.say(&event{ApprovalEnd: end})
		})
	}
	jobs.Wait()
}

func (c *callers) runApproval(end *ApprovalEnd, i int) {
	key := flight.MustKey(end.Key)
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	until := func(f func() error) {
		for end.Err = "not tried"; end.Err != "" && ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
			end.Err = ""
			if err := f(); err != nil {
				end.Err = err.Error()
			}
		}
	}
	within, thinking := time.Duration(0), rand.N(2*time.Second)
	if i%3 > 0 {
		within, thinking = approvalTime, approvalTime-50*time.Millisecond+rand.N(200*time.Millisecond)
	}
	until(func() error {
		_, err := c.only[c.cfg.Nodes[i%len(c.cfg.Nodes)]].Submit(ctx, client.Key(key.Name(), key.BusinessID()), effectRequest{Key: end.Key, LastsMS: 20}, client.Approval(within))
		return err
	})
	time.Sleep(thinking)
	var persons sync.WaitGroup
	for person := range end.Answers {
		persons.Go(func() {
			by, approves := c.only[c.cfg.Nodes[(i+person)%len(c.cfg.Nodes)]], rand.IntN(10) < 6
			for ctx.Err() == nil && end.Answers[person] == "" {
				f, err := by.Flight(ctx, key.FlightID())
				if err == nil {
					word, decide := "rejected", by.Reject
					if approves {
						word, decide = "approved", by.Approve
					}
					if _, err = decide(ctx, key.FlightID(), f.Version, client.ApprovalDecision{Reason: "chaos", Actor: fmt.Sprint("person-", person)}); err == nil {
						end.Answers[person] = word
					} else if code := client.CodeOf(err); code != "" && !isAway(code) && (code != wire.PreconditionFailed || f.State != "awaiting_approval") {
						end.Answers[person] = string(code)
					}
				}
				time.Sleep(rand.N(200 * time.Millisecond))
			}
		})
	}
	persons.Wait()
	end.Decided = time.Now()
	by := c.mixed[i%len(c.mixed)]
	until(func() error {
		f, err := by.Flight(ctx, key.FlightID())
		if err != nil {
			return err
		}
		if end.State = f.State; f.State == "in_doubt" {
			return errors.Join(errors.New("it is in doubt"), c.decideDoubt(ctx, by, key, f.Version))
		}
		if f.State != "succeeded" && f.State != "cancelled" {
			return fmt.Errorf("it is %s", f.State)
		}
		if f.State == "succeeded" {
			result, err := by.WaitResult(ctx, key)
			end.Body = compact(string(result.Answer.Body))
			return err
		}
		return nil
	})
}

// isAway reports whether a code says that no node could decide.
func isAway(code wire.Code) bool {
	return slices.Contains([]wire.Code{wire.NoLeader, wire.LeaderLost, wire.LeaseUnavailable}, code)
}

// checkApprovals judges jobs that had to be approved by the provider's books.
func checkApprovals(ends []ApprovalEnd, effects []Effect) (found []Violation) {
	books := byKey(effects)
	for i := range ends {
		end := &ends[i]
		say := func(format string, args ...any) {
			found = append(found, Violation{ruleApproval, end.Key, fmt.Sprintf(format, args...)})
		}
		approved, rejected := slices.Contains(end.Answers[:], "approved"), slices.Contains(end.Answers[:], "rejected")
		did := books[end.Key]
		switch {
		case end.Err != "":
			say("it was not over in the end: %s", end.Err)
		case approved && rejected:
			say("one person was told that it is approved, and the other one that it is rejected")
		case len(did) > 1:
			say("the provider acted %d times", len(did))
		case rejected && (len(did) > 0 || end.State != "cancelled"):
			say("it was rejected, and is %s; the provider acted %d times", end.State, len(did))
		case approved && (len(did) != 1 || end.State != "succeeded" || compact(did[0].Body) != end.Body):
			say("it was approved, and is %s with %q; the provider acted %d times", end.State, end.Body, len(did))
		case !approved && !rejected && len(did) > 0 && end.State != "succeeded":
			say("the provider acted, and it is %s", end.State)
		}
	}
	return found
}

// runCallbacks calls keys whose provider answers at once and calls back when the effect is over.
func (c *callers) runCallbacks(o *order, stop <-chan struct{}) {
	var group sync.WaitGroup
	c.every(o.Every, stop, func(i int) {
		group.Go(func() {
			c.callUntilEnd(c.mixed[i%len(c.mixed)], fmt.Sprint(o.Name, i), fmt.Sprintf("%s/%s-%d", actionCallback, o.Name, i), time.Duration(rand.IntN(1500))*time.Millisecond)
		})
	})
	group.Wait()
}

// callBack tells flightd what has happened, until it is told that this is known.
func callBack(by *http.Client, url, body string) {
	for until := time.Now().Add(2 * time.Minute); time.Now().Before(until); time.Sleep(200 * time.Millisecond) {
		answer, err := by.Post(url+"?outcome=succeeded", wire.TypeJSON, strings.NewReader(body))
		if err != nil {
			continue
		}
		_ = answer.Body.Close()
		if answer.StatusCode < 500 {
			return
		}
	}
}

// checkExecs judges runs of flightd exec, whose command prints the provider's answer.
func checkExecs(execs []Exec, effects []Effect) (found []Violation) {
	books, printed := byKey(effects), make(map[string]string)
	for _, x := range execs {
		say := func(format string, args ...any) {
			found = append(found, Violation{ruleExec, x.Key, fmt.Sprintf(format, args...)})
		}
		did := books[x.Key]
		if len(did) > 1 {
			say("the provider acted %d times", len(did))
		}
		if x.Err != "" {
			continue // in doubt, or no node: it says so
		}
		if len(did) == 0 || strings.TrimSpace(x.Output) != did[0].Body {
			say("it printed %q, and the provider's books have %v", x.Output, did)
		}
		if before, known := printed[x.Key]; known && before != x.Output {
			say("it printed %q, and before %q", x.Output, before)
		}
		printed[x.Key] = x.Output
	}
	return found
}

// runAct is the command of flightd exec: it asks the provider to act, and prints the answer.
func runAct(provider, key string) error {
	body, err := json.Marshal(effectRequest{Key: key})
	if err != nil {
		return err
	}
	answer, err := http.Post(provider+"/effects", wire.TypeJSON, strings.NewReader(string(body)))
	got, err := effect.FromHTTP(answer, err)
	if err != nil {
		return err
	}
	fmt.Println(string(got.Body))
	return nil
}
