// Package peer is the port between the nodes of a cluster: one TLS listener for raft and for HTTP/2 requests, which only nodes
// of the same cluster can use.
//
// Found makes one founding directory for each node: its certificate, its key, and founding.json, which names the cluster and all
// its nodes. Load reads the directory of this node, and Open opens the port.
//
// # What a connection proves
//
// The TLS handshake proves that the other end has the key of a certificate of the node CA. Directly after the handshake the
// dialler sends a hello, and the other end answers with its own hello or with a refusal:
//
//	dialler   {"cluster":"…","node":"b","instance":"…","to":"a"}
//	accepter  {"cluster":"…","node":"a","instance":"…","to":"b"}   or   {"node":"a","error":"…","code":"…"}
//
// Each hello is JSON behind its length in two bytes, big-endian. Either end ends the connection if the cluster is another one,
// if the hello is for another node, if the certificate is not that of the node in the hello, or if Config.Admit rejects the
// node or its instance. The protocol of TLS (ALPN) says what follows the hellos: flightd-raft or h2.
//
// # Crash safety
//
//	the process dies in        what is true afterwards
//	Found                      the directory is incomplete: Load rejects a node's directory without founding.json, which is
//	                           written last, and Found rejects the target, because it is not empty
//	any function of Port       nothing is stored; connections end
package peer
