package client

import (
	"context"
	"net/http"

	"github.com/flightd/flightd/internal/wire"
)

// Answers about a cluster.
type (
	Cluster     = wire.Cluster
	ClusterNode = wire.ClusterNode
)

// Cluster describes the nodes of the server's cluster. A lone node describes itself.
func (c *Client) Cluster(ctx context.Context) (*Cluster, error) {
	return decode[Cluster](c.ask(ctx, request{method: http.MethodGet, path: "/v1/cluster", mustContain: `"nodes"`}))
}
