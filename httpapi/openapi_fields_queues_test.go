package httpapi_test

import "github.com/flightd/flightd/httpapi/wire"

// queueDocs documents the types and fields of queues and lanes.
func queueDocs() map[string]fieldDoc {
	return map[string]fieldDoc{
		"QueueList":              {about: "A page of the queues, sorted by namespace and action."},
		"Queue":                  {about: "The jobs and the workers of an action in a namespace. A job that is not over is counted once: as ready, running, scheduled, waiting, in doubt or held."},
		"StuckLane":              {about: "A lane whose first jobs are all in doubt, so that the jobs behind them wait for a person."},
		"Lane":                   {about: "The first jobs of a lane, in their order."},
		"LaneJob":                {about: "A job of a lane."},
		"Block":                  {about: "One thing that a flight waits for."},
		"queues":                 {about: "the queues"},
		"Queue.action":           {about: "the kind of effect"},
		"Queue.ready":            {about: "jobs that are handed out when a worker asks, unless the action is paused"},
		"Queue.running":          {about: "jobs that a worker's session holds"},
		"Queue.scheduled":        {about: "jobs that wait for their time, for a retry or for a look-up"},
		"Queue.waiting":          {about: "jobs that wait for the callback of their provider"},
		"Queue.in_doubt":         {about: "jobs that need a person"},
		"Queue.held":             {about: "jobs that their lane does not let open"},
		"Queue.oldest_ready_ms":  {about: "since when the oldest ready job has been due"},
		"Queue.workers":          {about: "sessions that have asked this node for jobs of the action within a minute"},
		"Queue.ended_per_second": {about: "jobs that have ended, per second: a mean over about half a minute, measured at the node that leads the ledger, since it leads"},
		"Queue.paused":           {about: "who has paused the action, the newest reason, and since when it is paused; absent: it is not paused"},
		"stuck_lanes":            {about: "those with the most jobs behind, at most 5"},
		"FailingJob":             {about: "A job that keeps failing: its last three attempts that count had no effect, or workers have given it back unread ten times in a row."},
		"failing":                {about: "jobs that keep failing. The other numbers count them, too"},
		"failing_jobs":           {about: "the first 5 of them"},
		"FailingJob.key":         {about: "the key of the job"},
		"FailingJob.cause":       {about: "why its last attempt had no effect"},
		"StuckLane.lane":         {about: "the name of the lane"},
		"StuckLane.blocker":      {about: "the key of its first job"},
		"StuckLane.behind":       {about: "how many jobs wait behind those in doubt"},
		"Lane.action":            {about: "the action of its jobs"},
		"Lane.lane":              {about: "the name of the lane"},
		"Lane.jobs":              {about: "its first jobs that are not over, at most 100"},
		"Lane.total":             {about: "how many of its jobs are not over"},
		"Lane.blocked_by":        {about: "why none of its jobs runs, in one line; absent: one runs, or may, or the lane is empty"},
		"may_open":               {about: "the lane lets the job open"},
		"Flight.blocked_by":      {about: "what the flight waits for, when you get it alone; absent: it runs, or has ended, or the next caller may open it. It may change without the version"},
		"Block.reason": {about: "the kind of obstacle", enum: []string{wire.BlockedByRestore, wire.BlockedByLane, wire.BlockedByPause, wire.BlockedByApproval, wire.BlockedByDoubt,
			wire.BlockedByCallback, wire.BlockedByTime, wire.BlockedByNoWorkers, wire.BlockedByGivenBack}},
		"Block.detail": {about: "the obstacle in one line, for people"},
		"Block.key":    {about: "with `lane`: the first job of the lane"},
		"Block.until":  {about: "with `callback` and `time`: when it ends"},
	}
}
