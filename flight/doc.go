// Package flight is the ground floor.
package flight
