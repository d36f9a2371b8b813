// Package conformance is the one list that the clients of all languages pass.
//
// A test starts a real flightd, a fault proxy in front of it, and a provider of side effects that counts what really
// happened and can be asked to wait. Then it talks to a small driver program per language (driver.py, driver.mts,
// godriver) over its standard input and output, one JSON object per line: the first line sets up a client, each further
// one is a call of once, answered by one line per caller.
//
// Beside the list there is a soak: callers of all languages at the same keys, in a world where requests and answers are lost, late,
// doubled, exchanged and answered by strangers, and where flightd and callers are killed or frozen, by a seed that it prints. FLIGHTD_SOAKS says
// how many worlds.
//
// The tests have the build tag clients, because they need python3, node and what `npm ci` brings: `make clients` runs
// them, and plain `go test ./...` does not. Where a language is wanted and its tools are missing, they fail and say what
// to install; the Makefile's variable CLIENTS says which languages are wanted.
package conformance
