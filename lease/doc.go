// Package lease keeps sessions and claims in etcd. Sessions let a node know that it may still act. Claims keep
// concurrent callers of one key away from the ledger. The package decides nothing: the right to perform an effect is
// the open attempt in the ledger, whose holder is a session.
//
// A session is an etcd lease and a session key attached to it. While the session key exists the holder of the session may
// act; when a read does not find it, the session has ended, and the ledger may end its attempts. A local session is
// renewed by this process (Spec.AutoRenew), a remote session by a remote caller.
//
// A claim is the etcd key of one business key, attached to the session's etcd lease. Its value names lease epoch, nonce
// and session. A claim proves nothing: any node may delete it at any time.
//
// The package guarantees:
//
//   - Trust in a session ends before its session key can be missing. It counts from the moment when a renewal was sent, ends
//     a margin before the etcd lease does, and is measured by the clock on which most time has passed. A session key is
//     deleted earlier in two cases: Close by the owner, which ends trust first, and EndSession at another process.
//   - Living never misses a session that was created before the read. It returns an error for an etcd of another
//     deployment or lease epoch, or whose guard counter is below the ledger's record.
//   - A local session with unreleased leases stays in etcd as long as this process can renew it, also after trust has
//     ended. No new lease starts under it after that, and it is revoked when the leases are released.
//   - Release deletes only the claim of its own lease: it compares the value, and no two leases have the same value.
//   - In a rejected etcd no claim is written and no session created.
//
// # The parts
//
// A Lessor is the service. A grant is one etcd lease with its session key as this process sees it; the ledger calls it a
// session. A remote Session has one grant. A local Session renews its grants (keeper.go), requests a new grant when one
// is lost, and has several when there are very many attempts. A reservation is the Lease of one attempt under one
// grant.
//
// A grant that lost trust never regains it. A remote session may be renewed through another node, which this process
// does not notice: Session then finds it again by its session key, as a new grant with the same id.
//
// This package has the rules and does not import etcd. The rules use a Store, which has two implementations,
// lease/etcdlease and the fake in lease/leasetest; both pass one conformance suite. Pure functions are trust.go (the
// window), judge in guard.go (may this etcd be used?) and the pauses in keeper.go.
//
// # How a claim is written
//
// Claims and releases that are queued while a batch is in flight are sent together, in one transaction that also
// compares the guard key (batch.go, commit.go). Operations of one key are sent one at a time and in order, so that a
// release never overtakes the claim before it. When the answer to a claim is lost, the claim is sent again: a key that
// already has this lease's value counts as claimed. Claims of callers that gave up are deleted by Release or
// RemoveClaims, or end with their session.
//
// # The guard
//
// The guard key names deployment and lease epoch; every write compares it. The ledger's leader raises a counter next to
// it every 10 s and then records the counter in the ledger. An etcd whose counter is below the record was restored from
// a backup and has lost sessions, so a missing session key proves nothing. It is rejected until an operator raises the lease
// epoch. A restore from a backup that is younger than 10 s is not detected.
//
// # What is true if the process dies
//
//	where                                    in etcd                             what follows
//	etcd lease granted, key not written      an empty etcd lease                 it expires
//	session key written, answer not seen     a session without an owner          it expires
//	session created, Open not proposed       a session without attempts          it expires, or the next start revokes it
//	claim sent, answer not seen              perhaps a claim                     it ends with its session; callers wait
//	claim written, Open not committed        a claim without an attempt          the same
//	claim replaced, effect running           the session key of a dead holder    it expires; the attempt's outcome is unknown
//	released, deletion not sent              a claim without an attempt          it ends with its session, or is removed
//	trust lost, leases not released          a session key that was renewed      it expires
//	EndSession, revocation not sent          the session                         it expires, unless its owner renews it
//	guard key read, not written              the old guard key                   the next start reads it again
//	counter raised, not recorded             a counter above the record          nothing: only a lower counter is rejected
//
// A restarted node (Config.Node) revokes the local sessions of its earlier incarnations and never uses one of them.
// Remote sessions are not revoked.
//
// # Bounds
//
// Etcd ends a lease late rather than early: it checks every 0.5 s, and after each change of its leader every lease
// starts again with its full TTL. So the end of a dead holder's session is proved after TTL + 0.5 s, and for each
// change of leader within that time another TTL + election later. Etcd revokes 1,000 leases a second when very many end
// at once, and is slow to end a lease with very many keys: a grant has at most 2,000 leases of attempts.
package lease
