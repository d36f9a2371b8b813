// Package wire is shared by the HTTP interface and its Go client: the types of requests and answers, the names of
// headers, and the table of error codes. It imports only packages flight and strictjson, so a client that imports it
// depends neither on etcd nor on raft nor on Pebble.
//
// Requests are read strictly: an unknown field, a duplicate field, an unexpected type or trailing data is rejected
// with a code, a JSON pointer to the place and a hint, before anything was changed. The tag `limit` of a field names
// its bounds. Answers are read leniently, since later versions may add fields. Inputs and the bodies of receipts are
// carried byte for byte.
package wire
