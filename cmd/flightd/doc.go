// Command flightd is the server and the command line in one binary. Each command has a file with a function newXCommand, which
// parses, calls and prints. A new command is one new file, and its line in sections() of root.go.
//
// Data goes to standard output, messages go to standard error. Package cli has all that the commands share: a cli.App is one
// invocation of the program, which tests run without starting a process. Packages exec and doctor have the two commands that
// are more than requests.
package main
