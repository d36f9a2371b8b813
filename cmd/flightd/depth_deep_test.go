//go:build deep

package main

import "time"

// damages is the number of damaged ledgers that a test starts.
const damages = 1000

// shortenedLogs is the number of logs without their last entries that a test starts, ten times each.
const shortenedLogs = 100

// restoreCycles is the number of restores that a test makes.
const restoreCycles = 300

// clusterRestoreCycles is the number of times that a test restores the backup of a cluster.
const clusterRestoreCycles = 10

// foundings is the number of clusters that a test founds.
const foundings = 70

// sessionRounds is the number of sessions that a test opens, renews and reports at different nodes.
const sessionRounds = 1000

// leaderChanges is how often a test of notifications kills the node that leads.
const leaderChanges = 50

// The floods of a test: how long they last, jobs, actions, and attempts of one key.
const (
	floodTime    = 90 * time.Second
	floodJobs    = 80_000
	floodActions = 200_000
	floodHistory = 2_000
)
