#!/usr/bin/env node
// Runs the flightd of this platform, which is in an optional dependency, in place of itself: arguments, streams, signals and the
// exit code pass through. Ctrl-C and a hang-up of a terminal reach flightd by themselves, and are not sent a second time.
"use strict";
const { spawn } = require("node:child_process");
const { isatty } = require("node:tty");

const name = `@flightd/flightd-${process.platform}-${process.arch}`;
let program;
try {
  program = require.resolve(`${name}/bin/flightd`);
} catch {
  console.error(`flightd: the package ${name} is not installed: there is none for this platform, or npm omitted optional dependencies
  install without --omit=optional, or take an archive of the release`);
  process.exit(78);
}
const parent = process.ppid; // read before flightd can be seen to run, and so before anybody ends the parent for that
const child = spawn(program, process.argv.slice(2), { stdio: "inherit" });
const terminal = [0, 1, 2].some(isatty);
for (const signal of ["SIGTERM", "SIGUSR2", "SIGINT", "SIGQUIT", "SIGHUP"]) {
  process.on(signal, () => (terminal && /INT|QUIT|HUP/.test(signal)) || child.kill(signal));
}
// npx starts this script in a shell that dies of SIGTERM without passing it on. flightd must not outlive npx, because it would keep its
// port.
if (process.env.npm_lifecycle_event) {
  const watch = setInterval(() => {
    if (process.ppid === parent) return;
    clearInterval(watch);
    child.kill("SIGTERM");
  }, 250);
}
child.on("error", (error) => {
  console.error(`flightd: start ${program}: ${error.message}`);
  process.exit(71);
});
child.on("exit", (code, signal) => {
  if (signal === null) process.exit(code);
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
});
