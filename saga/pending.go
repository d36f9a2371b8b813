package saga

import "github.com/flightd/flightd/flight"

const phaseCommitted = flight.Phase(3)

func endedOf(f *flight.Flight) flight.Version { return f.Version }
