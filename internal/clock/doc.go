// Package clock reads the clock that the standard library does not: the one that goes on while a machine is asleep.
package clock
