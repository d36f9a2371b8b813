// Package clock reads the clock that the standard library does not, the one that goes on while a machine is asleep, and gives
// moments on all clocks. It waits, too, for as long as a context lives.
package clock
