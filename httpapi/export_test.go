package httpapi

import "github.com/flightd/flightd/internal/auth"

// RouteAccess is the access of a route, for tests.
type RouteAccess struct {
	Public bool
	Verbs  auth.Verbs
}

// Routes returns all routes of the API by their patterns.
func Routes() map[string]RouteAccess {
	all := map[string]RouteAccess{}
	for pattern, route := range routePatterns() {
		all[pattern] = RouteAccess{route.access.public, route.access.verbs}
	}
	return all
}

// routePatterns returns all routes, of a server that can serve none of them.
func routePatterns() map[string]route {
	cfg := &Config{}
	return routes(cfg, newRouter(cfg).responder, nil)
}

// MaxPage is the largest number of elements on a page.
const MaxPage = maxPage

// SetBodyMemory sets the bytes of request bodies that the server holds at most.
func (c *Config) SetBodyMemory(bytes int) { c.Callers.bodyMemory = bytes }
