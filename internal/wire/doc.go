// Package wire is what the HTTP door and its Go client agree on: the shapes of requests and answers, the names of
// headers, and the one table of error codes. It stands just above packages flight and effect, so that a client that
// imports it pulls in neither etcd nor raft nor Pebble.
//
// Requests are read strictly: an unknown field, a name that stands twice, a wrong type or anything behind the document
// is refused with a code, a JSON pointer to the place and a hint, before anything was changed. Answers are read
// leniently, since later versions may add fields. Bodies of receipts and inputs are carried byte for byte: nothing here
// decodes and encodes them again.
package wire
