// Package caller is how the executor and the client deal with those who call them, both in the same way: it runs the
// handlers and look-ups that callers bring, whatever goes wrong in there, gives each of several callers a result of its own
// where they share one, and refuses a call that would wait for itself.
package caller
