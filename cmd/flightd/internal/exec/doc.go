// Package exec runs a command once per key, and replays its output to every later call.
//
// The command runs in a process group of its own, which is killed when exec dies: by the parent-death signal on Linux,
// and on every system by a small shell process that reads a pipe from exec. The shell process also kills the command's
// own children. An orphan would act at the same time as the next attempt. For the same reason, exec ends the whole
// group when a command is cut short by its time-out or by a signal. Processes that outlive a command which ended by
// itself are left running.
//
//	exec dies                                then
//	before the open is answered              nothing was started; an attempt that was opened is lost, and the recovery
//	                                         policy decides
//	between Sending and the command's end    the command is killed; the recovery policy decides
//	after the command's end, before its      the same: only exec knew how the command ended
//	report is acknowledged or spooled
//	after that                               the receipt is stored, or the next command that reaches a server sends it
//
// The receipt of a command is a body of type application/vnd.flightd.exec+json:
//
//	{"exit_code": 0,
//	 "stdout": "text", or "stdout_base64" if it is not UTF-8 or is shorter in base64,
//	 "stderr": "text", or "stderr_base64",
//	 "truncated": true, with stdout_bytes, stdout_sha256, stderr_bytes and stderr_sha256 of the whole streams}
//
// Empty streams are omitted. The input of the flight holds the program's name, the command line, its digest and the
// content of --input. With --secret-args it does not hold the command line. The fingerprint covers only the digest, so a
// call has the same fingerprint with and without --secret-args.
package exec
