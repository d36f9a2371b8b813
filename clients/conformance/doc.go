// Package conformance is the test suite that the clients of all languages must pass.
//
// A test starts a real flightd, a fault proxy in front of it, and a provider that counts the effects that really
// happened and can be blocked. It talks to a small driver program per language (driver.py, driver.mts, godriver) over
// standard input and output, one JSON object per line. The first line configures a client. Each further line is a call
// of once, answered by one line per caller; the submission of a job, answered when the job has ended; that of a batch of jobs; or the end
// of the client. A driver whose first line has "work" performs jobs, too.
//
// TestSoak runs callers of all languages with the same keys while requests and answers are lost, delayed, duplicated,
// exchanged and replaced, and while flightd and callers are killed or frozen. One of the two callers in Python pauses its
// threads at random places (pauses.py). It prints its seeds. FLIGHTD_SOAKS is the number of seeds. A soak that fails leaves
// bin/soak/SEED-TIME, or that below FLIGHTD_SOAK_OUTPUT: its messages, every request with its fault and its answer, the logs
// and ledgers of all nodes, and the spool.
//
// With FLIGHTD_CLIENTS_SECURE=1 every server has TLS and demands a token, and so has the proxy in front of it. Drivers,
// curl and the command flightd get both by the environment.
//
// With FLIGHTD_CLIENTS_NODES=3 the server is a cluster of three nodes, and a proxy gives every request to another node. Scenarios that
// kill their server, lose its data or demand a token start a lone one of their own. TestSoak kills and freezes nodes in turn.
// TestSoakOfALaggingNode has two nodes in memory, one of which lags. make clients has three nodes, TLS and tokens; TestPerLanguage,
// TestFirstScreen and TestDocs_GoWorkers have plain HTTP in every mode.
//
// Nobody sees time go back: proxies compare the index that a caller was told with that of its answer; a call that begins after its key
// was final does not find it open; and readers check the versions of flights, and the order of the feed.
//
// TestOddValues puts a table of odd values (odd.py, odd.mts, godriver/odd.go) through every entrance of the clients, of HTTP and of
// the command, and prints for each cell whether the value was kept or for which reason it was rejected.
//
// TestFirstScreen, TestReadmes and TestDocs run what README and docs/ print, in bash and in zsh.
//
// load.py and load.mts are callers of chaos/cluster.
//
// The tests have the build tag clients, because they need python3, node with the packages that `npm ci` installs, zsh and
// further tools. `make clients` runs them; plain `go test ./...` does not. If a selected language lacks a tool, the tests
// fail with a hint. The Makefile's variable CLIENTS selects the languages.
package conformance
