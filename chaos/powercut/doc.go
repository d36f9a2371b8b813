// Command powercut repeatedly cuts the power of a virtual machine with a flightd under load, and checks the ledger.
//
// After SIGKILL the kernel still has everything that the process wrote. After a power cut only synced data is left. So
// flightd runs in a virtual machine, under its systemd unit, with its own disk and file system. Powercut kills qemu
// while callers are running, which loses all data that the machine's kernel had not written. The callers are goroutines
// of this process, act through the Go client, and retry when the machine is up again, as a program on another host
// would. Their effects and receipts are then compared with flightd's answers:
//
//   - an acknowledged receipt is returned again, byte for byte;
//   - no effect happened twice, because the recovery is hold;
//   - flightd starts by itself every time.
//
// With -first the data directory is new in every round, and the power is cut during flightd's first start on it.
//
// Powercut needs root, qemu-system-x86_64, mmdebstrap and mke2fs. It builds its disk image from Debian packages once.
// A round takes a minute without hardware virtualisation. The printed seed determines the moments of the cuts, but not
// the work that they interrupt.
package main
