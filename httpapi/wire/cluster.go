package wire

import (
	"crypto/sha256"
	"encoding/hex"
)

// Cluster is the answer of GET /v1/cluster: the nodes as the one that answers sees them.
type Cluster struct {
	ID     string        `json:"cluster_id,omitempty"` // "": a lone node
	Leader string        `json:"leader,omitempty"`     // name of the node that leads the ledger; "": none is known
	Nodes  []ClusterNode `json:"nodes"`
}

// ClusterNode is a node of a cluster.
type ClusterNode struct {
	Name        string `json:"name"`
	Role        string `json:"role"`                   // leader, follower, or unreachable
	Instance    string `json:"instance"`               // id of the node's data directory
	Address     string `json:"address,omitempty"`      // HOST:PORT of the port between nodes
	Etcd        string `json:"etcd_address,omitempty"` // HOST:PORT of the peer port of its etcd member
	Version     string `json:"version,omitempty"`
	Applied     uint64 `json:"applied,omitempty"`             // index of the last entry of the ledger that the node has applied
	Behind      uint64 `json:"behind"`                        // how many entries the node is behind the leader
	ClockMS     int64  `json:"clock_ms"`                      // how far its wall clock is ahead of that of the node that answers
	EtcdOK      bool   `json:"etcd_ok"`                       // etcd answers that node
	SeenBefore  int64  `json:"seen_before_ms"`                // age of this description; 0: as of now
	Problem     string `json:"problem,omitempty"`             // why the node is unreachable or no voter, or that its disk is damaged
	DiskDamaged bool   `json:"disk_damaged,omitzero"`         // a block on its disk was found damaged since its start
	BackedUp    Time   `json:"backed_up_at,omitzero"`         // when the last whole backup ended that the node has sent; absent: none since its start
	Reads       uint32 `json:"reads_feature_level,omitempty"` // highest feature level that its build reads
}

// The roles of a node.
const (
	RoleLeader      = "leader"
	RoleFollower    = "follower"
	RoleUnreachable = "unreachable"
)

// LeaseEpoch is the answer of POST /v1/lease-epoch:raise.
type LeaseEpoch struct {
	Epoch     uint32 `json:"lease_epoch"`
	HoldUntil Time   `json:"hold_until,omitzero"` // until then, attempts of older epochs are not ended
	HoldMS    int64  `json:"hold_ms,omitzero"`    // how long the hold still lasts
}

// Revoked is the answer of DELETE /v1/tokens/{namespace}/{name}.
type Revoked struct {
	NotYet []string `json:"not_yet,omitzero"` // nodes of the cluster that did not answer
}

// ReplaceNode is the body of POST /v1/cluster/nodes/{name}/replace.
type ReplaceNode struct {
	Certificate  string `json:"certificate" limit:"word"` // of the new node: SHA-256 in hex
	WhileRunning bool   `json:"while_running,omitzero"`   // also if the node runs
	Reason       string `json:"reason" limit:"text"`
	Actor        string `json:"actor,omitzero" limit:"word"`
}

// normalize rejects an invalid fingerprint.
func (r *ReplaceNode) normalize() *Invalid {
	if sum, err := hex.DecodeString(r.Certificate); err != nil || len(sum) != sha256.Size {
		return BadField("/certificate", "want the SHA-256 of a certificate: 64 hex digits")
	}
	return nil
}
