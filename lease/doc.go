// Package lease keeps sessions and claims in etcd. It is what lets a node know that it may still act, and what keeps a
// crowd of callers away from the ledger. It decides nothing: the right to perform an effect is the open attempt in the
// ledger, whose holder is a session.
//
// A session is an etcd lease and a marker key attached to it. While the marker exists the session's holder may act; when a
// read does not find it, the session has ended, and the ledger may end its attempts. A claim is the etcd key of one
// business key, attached to the session's etcd lease. Its value names lease epoch, nonce and session. A claim proves
// nothing: anybody may delete it at any time.
//
// The package guarantees:
//
//   - Trust in a session ends before its marker can be missing. It counts from the moment when a renewal was sent, ends a
//     margin before the etcd lease does, and is judged by the clock that says that most time has passed. Two things end a
//     marker earlier: the owner's Close, which ends trust first, and EndSession at another process, which is a decision.
//   - Living never misses a session that was made before the read, and returns no answer from an etcd that belongs to
//     another deployment, is of another lease epoch, or whose guard counter is below the ledger's record.
//   - A session under which this process has leases that are not released stays in etcd as long as this process can renew
//     it, also after trust has ended. Nothing starts under it any more, and it is revoked when the leases are released.
//   - Release deletes the claim of its own lease only: it compares the value, which no two leases share.
//   - Nothing is claimed, and no session made, in an etcd that is refused.
//
// # The parts
//
// A Lessor is the service. A grant is one etcd lease with its marker as this process sees it: a session in the ledger's
// words. A Session of this package has one grant when a remote caller owns it. A kept session renews its grants itself
// (keeper.go), takes a new one when one is lost, and several when there are very many attempts. A reservation is the Lease
// of one attempt under one grant.
//
// A grant that lost trust never gets it back. A remote caller's session may be renewed through another node without this
// process noticing: Session then finds it again by its marker, as a new grant of the same id.
//
// The rules are here and know no etcd: they use a Store, of which there are two, lease/etcdlease and the fake in
// lease/leasetest; one conformance suite tests both. Pure are trust.go (the window), judge in guard.go (may this etcd be
// used?) and the pauses in keeper.go.
//
// # How a claim is written
//
// Claims and releases that gather while a batch is on its way go out together, in one transaction that also compares the
// guard key (batch.go, commit.go). Operations of one key go out one at a time and in order, so that a release never
// overtakes the claim before it. When the answer to a claim is lost, the claim is asked again: a key that already has this
// lease's value counts as claimed. Claims that were written for callers who left are deleted by Release, or removed by
// RemoveClaims, or end with their session.
//
// # The guard
//
// The guard key names deployment and lease epoch; every write compares it. A counter beside it is raised by the ledger's
// leader every 10 s and then recorded in the ledger. An etcd whose counter is below the record was restored from a backup
// and has forgotten sessions: a missing marker proves nothing there. It is refused until an operator raises the lease
// epoch. A backup younger than 10 s is not noticed.
//
// # What is true if the process dies
//
//	where                                    in etcd                             what follows
//	etcd lease granted, marker not written   an empty etcd lease                 it expires
//	marker written, answer not seen          a session that nobody knows         it expires
//	session made, Open not proposed          a session without attempts          it expires; a kept one is ended by the node's next life
//	claim sent, answer not seen              perhaps a claim                     it ends with its session; callers wait on the ledger meanwhile
//	claim written, Open not committed        a claim without an attempt          the same
//	claim replaced, effect running           the marker of a dead holder         it expires; then its end is proved, and the attempt ends as unknown
//	released, deletion not sent              a claim without an attempt          it ends with its session, or is removed
//	trust lost, leases not released          a marker that was renewed           it expires
//	EndSession, revocation not sent          the session                         it expires, unless its owner renews it
//	guard key read, not written              the old guard key                   the next life reads it again
//	counter raised, not recorded             a counter above the record          nothing: only a counter below the record is refused
//
// A later life of the same node (Config.Node) ends the sessions that earlier lives kept when it starts, and never uses one
// of them. Sessions of remote callers live on.
//
// # Bounds
//
// Etcd ends a lease late rather than early: it checks every 0.5 s, and after each change of its leader every lease starts
// anew with its full TTL. The end of a dead holder's session can therefore be proved after TTL + 0.5 s, and for each change
// of leader within that time another TTL + election later. Etcd revokes 1,000 leases a second when very many end at once,
// and is slow to end one with very many keys: a grant carries at most 2,000 leases of attempts.
package lease
