// Package netbed builds small networks on this machine: hosts with an address of their own, joined by a switch. Tests run
// processes on the hosts, whose traffic leaves the machine nowhere, and cut hosts off, or impair single links between two of
// them: by loss or delays. A healed fault tells how many packets it harmed.
//
// Each host is a network namespace with one veth interface. The other end of the pair is attached to a bridge in a
// namespace of its own, so the machine's own interfaces, routes and firewall are not touched. Namespaces have no names:
// they end when the Bed is closed, or with the process.
//
// It needs Linux and the right to create network namespaces (CAP_SYS_ADMIN and CAP_NET_ADMIN); New returns ErrPermission
// without it. BecomeRoot gives a program without root this right, in a user namespace of its own, where the system permits that. Faults of links need nf_tables in the kernel, delays also NFQUEUE and nft_compat; no program is needed.
package netbed
