// Package arch holds the architecture of the house as a table, and the test that keeps it: imports go downwards only,
// packages on one floor do not see each other, and each fenced library stays in its room.
package arch
