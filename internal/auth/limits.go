package auth

import (
	"cmp"
	"fmt"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/strictjson"
)

// Limits is the body of a document of kind flight.KindNamespace, and of the settings document DefaultSettings. A field
// that is 0 is not set.
type Limits struct {
	OpensPerSecond int64 `json:"opens_per_second,omitzero"` // opens and new sessions at one node
	Burst          int64 `json:"burst,omitzero"`            // how many of them may come at once
	MaxOpen        int64 `json:"max_open,omitzero"`         // attempts without a report
	MaxFlights     int64 `json:"max_flights,omitzero"`      // stored flights, without tombstones
	MaxWaits       int64 `json:"max_waits,omitzero"`        // requests at one node that wait for a change
	MaxStreams     int64 `json:"max_streams,omitzero"`      // open event streams at one node
}

// defaultLimits are the limits of a deployment that has declared none. One namespace gets a quarter of the bounds of a
// node, so that it cannot stop the others.
func defaultLimits() Limits {
	return Limits{OpensPerSecond: 1_000_000, Burst: 1_000_000, MaxOpen: 4096, MaxFlights: 1_000_000_000, MaxWaits: 2048, MaxStreams: 256}
}

// or returns l with the values of otherwise for the fields that are not set.
func (l Limits) or(otherwise Limits) Limits {
	if l.OpensPerSecond != 0 && l.Burst == 0 {
		l.Burst = l.OpensPerSecond // the burst of another rate would hide a lower rate
	}
	return Limits{
		OpensPerSecond: cmp.Or(l.OpensPerSecond, otherwise.OpensPerSecond), Burst: cmp.Or(l.Burst, otherwise.Burst),
		MaxOpen: cmp.Or(l.MaxOpen, otherwise.MaxOpen), MaxFlights: cmp.Or(l.MaxFlights, otherwise.MaxFlights),
		MaxWaits: cmp.Or(l.MaxWaits, otherwise.MaxWaits), MaxStreams: cmp.Or(l.MaxStreams, otherwise.MaxStreams),
	}
}

// LimitsID returns the id of the document with the limits of a namespace; with flight.AllNamespaces, that of the limits
// of namespaces without a document.
func LimitsID(namespace string) flight.DocumentID {
	if namespace == flight.AllNamespaces {
		return flight.DocumentID{Namespace: flight.AllNamespaces, Kind: flight.KindSettings, Name: DefaultSettings}
	}
	return flight.DocumentID{Namespace: namespace, Kind: flight.KindNamespace, Name: namespace}
}

// DecodeLimits reads the body of a document.
func DecodeLimits(body []byte) (l Limits, err error) {
	if err := strictjson.DecodeRequest(body, &l); err != nil {
		return Limits{}, fmt.Errorf("auth: read limits: %w", err)
	}
	return l, nil
}

// Encode returns the body of the document of the limits.
func (l Limits) Encode() []byte { return strictjson.Append(nil, l) }
