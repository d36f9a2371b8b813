// Command flightd is the server and the command line in one: parse, run, exit once. A file per command.
//
// Data goes to standard output, talk to standard error; settings.go is the one table of what may be set where. An app is one invocation; it holds what all commands share,
// and tests run it without a process.
//
// # exec
//
// The command runs in a process group of its own, which dies with exec: by the parent-death signal on Linux, and
// everywhere by a small process at the other end of a pipe, which takes the command's own children, too. An orphan would
// act beside its successor. For the same reason nothing of the group is left when a command was cut short by its time-out
// or by a signal; what it leaves running when it ends by itself goes on.
//
//	exec dies                              then
//	before the open was answered           nothing was started; what was opened is lost, and the recovery policy decides
//	between Sending and the command's end  the command dies with it; the recovery policy decides
//	after its end, before its report was   the same: nobody else knows how it ended
//	answered or written to the spool
//	after that                             the receipt stands, or is brought by the next command that reaches a server
//
// What it leaves is a body of type application/vnd.flightd.exec+json:
//
//	{"exit_code": 0,
//	 "stdout": "text", or "stdout_base64": where it is not UTF-8 or shorter so,
//	 "stderr": "text", or "stderr_base64",
//	 "truncated": true, with stdout_bytes, stdout_sha256, stderr_bytes and stderr_sha256 of the whole streams}
//
// Empty streams are left out. Its input holds the program's name and a digest over the command line, never the
// arguments, since these may be secrets, and what --input named.
package main
