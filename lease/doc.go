// Package lease gives out the right to run attempts for a key. It keeps the crowd away and protects nothing outside: a
// holder that was frozen wakes up and believes, and only the ledger can tell it that it is too late. What this room
// promises is modest and exact:
//
//   - Of two claims on one key the later one has the greater (epoch, revision), and it was made after the earlier one was
//     gone from etcd.
//   - A holder stops to believe before its claim can go to another: trust counts from the moment when a renewal was
//     sent, ends a margin before the lease does, and is judged by the clock that says that most time has passed.
//   - A claim whose holder is gone ends within TTL + 0.5 s + one election of etcd (see below), whoever asks.
//   - Nothing is claimed in an etcd that knows less than the ledger, or that belongs to somebody else.
//
// # Who is who
//
// A Desk is the service; a session is one party that holds claims; a term is the life of one etcd lease under a
// session; a hold is one claim. A kept session renews itself (keeper.go) and goes on under a new term when one is lost.
// A remote caller's session has one term, lives as long as somebody calls Renew at any node, and is found again by its
// id after a restart. A term that ended never comes back, and nothing more is sent for it but one revocation. The lease of
// a kept session is not used again either; that of a remote caller's may be renewed through another node, which this one
// does not see: it is then found under a new term, and what was claimed in the old one is let go by its name.
//
// The rules are here and know no etcd: they speak to a Registry, of which there are two, lease/etcdlease and the fake in
// lease/leasetest; one suite examines both. Pure are trust.go (the window), judge in guard.go (may we claim here?) and
// the pauses in keeper.go.
//
// # How a claim is made
//
// Callers in one process take turns for a key (slot.go), so that a process never races against itself. Claims and
// releases that gather while a batch is on its way go out together (batch.go), each with its own comparison. If the
// answer is lost, reading settles it: a claim is ours exactly if its value carries our nonce (resolve.go). What reading
// cannot settle is remembered as a stray: should it land later, it is removed.
//
// # What is true if the process dies
//
//	where                                  in etcd                          what follows
//	before a batch is sent                 nothing                          nothing happened
//	batch sent, answer not seen            perhaps claims nobody owns       they end with the etcd lease, at most a TTL later
//	claim made, before the caller has it   a claim nobody owns              the same
//	while the lease is held                a claim of a dead holder         the same; the ledger's open attempt is recovered by a newer claim
//	released, release not yet sent         a claim nobody owns              the same; the key is locked that long, nothing worse
//	session granted, before its marker     an empty lease                   it expires
//	while the guard key is written         the old one or the new one       the next life looks at it again
//
// A later life of the same node (Config.Node) ends the sessions that earlier lives kept, at its start, and never takes
// one up. Sessions of remote callers live on.
//
// # Bounds
//
// Etcd ends a lease late rather than early: its checks run every 0.5 s, and after each change of its leader every
// lease starts anew with its full TTL and an election. A dead holder's key is therefore free after TTL + 0.5 s, and for
// each change of leader within that time another TTL + election later. If etcd's leaders flap without end the key never
// frees by itself: Remover takes the claim away, by hand. When very many leases end at once etcd revokes 1,000 a second;
// a term carries at most 2,000 claims for the same reason.
package lease
