package wire

// Queue is the state of the jobs of one action in one namespace, and of their workers, as the node that leads the ledger sees it.
// A job that is not over is counted once, in one of the first six numbers.
type Queue struct {
	Namespace      string       `json:"namespace"`
	Action         string       `json:"action"`
	Ready          int          `json:"ready"`     // are handed out when a worker asks, unless the action is paused
	Running        int          `json:"running"`   // a worker's session holds them
	Scheduled      int          `json:"scheduled"` // wait for their time, a retry, or a look-up
	Waiting        int          `json:"waiting"`   // wait for the callback of their provider
	InDoubt        int          `json:"in_doubt"`  // need a person
	Held           int          `json:"held"`      // their lane does not let them open
	OldestReadyMS  int64        `json:"oldest_ready_ms,omitzero"`
	Workers        int          `json:"workers"`          // sessions that have asked for jobs within a minute
	EndedPerSecond float64      `json:"ended_per_second"` // measured at the node that leads, since it does; a mean over about half a minute
	Paused         *Attribution `json:"paused,omitzero"`  // by whom, why and since when no job is handed out
	StuckLanes     []StuckLane  `json:"stuck_lanes,omitempty"`
	Failing        int          `json:"failing,omitzero"`       // keep failing: their last attempts had no effect; the other numbers count them, too
	FailingJobs    []FailingJob `json:"failing_jobs,omitempty"` // the first of them
}

// FailingJob is a job that keeps failing.
type FailingJob struct {
	Key   string `json:"key"`
	Cause string `json:"cause"` // of the last attempt
}

// StuckLane is a lane whose first jobs are all in doubt, so that those behind them wait for a person.
type StuckLane struct {
	Lane    string `json:"lane"`
	Blocker string `json:"blocker"` // the key of the first job
	Behind  int    `json:"behind"`  // how many jobs wait
}

// QueueList is the answer of GET /v1/queues.
type QueueList struct {
	Queues []Queue `json:"queues"`
	Next   string  `json:"next,omitzero"` // the cursor of the next page; empty on the last page
}

// Lane is the answer of GET /v1/lanes: the first jobs of a lane, in their order.
type Lane struct {
	Namespace string    `json:"namespace"`
	Action    string    `json:"action"`
	Lane      string    `json:"lane"`
	Jobs      []LaneJob `json:"jobs"`
	Total     int       `json:"total"`               // jobs of the lane that are not over
	BlockedBy string    `json:"blocked_by,omitzero"` // why none of its jobs runs, in one line
}

// LaneJob is a job of a lane.
type LaneJob struct {
	Key      string `json:"key"`
	FlightID string `json:"flight_id"`
	State    string `json:"state"`
	MayOpen  bool   `json:"may_open"` // its lane lets it open
}

// The reasons of a Block.
const (
	BlockedByRestore   = "reconciling"
	BlockedByLane      = "lane"
	BlockedByPause     = "paused"
	BlockedByApproval  = "approval"
	BlockedByDoubt     = "in_doubt"
	BlockedByCallback  = "callback"
	BlockedByTime      = "time"
	BlockedByNoWorkers = "no_worker"
	BlockedByGivenBack = "given_back"
)

// Block is one thing that a flight waits for.
type Block struct {
	Reason string `json:"reason"` // reconciling, lane, paused, approval, in_doubt, callback, time, no_worker or given_back
	Detail string `json:"detail"` // for people, in one line
	Key    string `json:"key,omitzero"`
	Until  Time   `json:"until,omitzero"`
}
