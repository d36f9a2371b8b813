//go:build !deep

package main

import "time"

// damages is the number of damaged ledgers that a test starts.
const damages = 12

// shortenedLogs is the number of logs without their last entries that a test starts, ten times each.
const shortenedLogs = 2

// restoreCycles is the number of restores that a test makes.
const restoreCycles = 6

// clusterRestoreCycles is the number of times that a test restores the backup of a cluster.
const clusterRestoreCycles = 1

// foundings is the number of clusters that a test founds.
const foundings = 2

// sessionRounds is the number of sessions that a test opens, renews and reports at different nodes.
const sessionRounds = 100

// leaderChanges is how often a test of notifications kills the node that leads.
const leaderChanges = 3

// The floods of a test: how long they last, jobs, actions, and attempts of one key.
const (
	floodTime    = 4 * time.Second
	floodJobs    = 2_000
	floodActions = 5_000
	floodHistory = 50
)
