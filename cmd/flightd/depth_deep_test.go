//go:build deep

package main

// damages is the number of damaged ledgers that a test starts.
const damages = 1000

// shortenedLogs is the number of logs without their last entries that a test starts, ten times each.
const shortenedLogs = 100

// clusterRestoreCycles is the number of times that a test restores the backup of a cluster.
const clusterRestoreCycles = 10

// foundings is the number of clusters that a test founds.
const foundings = 70

// leaderChanges is how often a test of notifications kills the node that leads.
const leaderChanges = 50
