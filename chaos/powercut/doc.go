// Command powercut takes the power away from a flightd under load, again and again, and counts what is left.
//
// SIGKILL ends a process and leaves everything that it wrote with the kernel. A machine that loses its power keeps only
// what was synced. So flightd runs in a virtual machine of its own, under its systemd unit, with a real disk and a real
// file system; qemu is killed while callers are at work, and what the kernel of the machine had not written is gone. The
// callers stay: they are this process, act through the Go client, and come back when the machine is up again, as a program
// on another host would. What they did and were told is compared with what flightd says then:
//
//   - a receipt that was acknowledged is there, byte for byte;
//   - no effect happened twice: recovery is hold;
//   - flightd starts again by itself, every time.
//
// With -first the data directory is new in every round, and the power goes while flightd starts on it for the first time.
//
// It needs root, qemu-system-x86_64, mmdebstrap and mke2fs, and makes its disk of Debian packages once. Without hardware
// virtualisation a round takes a minute. It prints its seed; the moments of the cuts follow from it, what they meet does not.
package main
