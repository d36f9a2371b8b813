// Package wire has what the HTTP interface and its Go client share: the shapes of requests and answers, the names of
// headers, and the one table of error codes. It imports only packages flight and effect, so a client that imports it
// pulls in neither etcd nor raft nor Pebble.
//
// Requests are read strictly: an unknown field, a duplicate field, a wrong type or trailing data is rejected with a code,
// a JSON pointer to the place and a hint, before anything was changed. Answers are read leniently, since later versions
// may add fields. Bodies of receipts and inputs are carried byte for byte: nothing here decodes and encodes them again.
package wire
