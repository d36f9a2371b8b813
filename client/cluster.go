package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/flightd/flightd/httpapi/wire"
)

// Answers about a cluster.
type (
	Cluster     = wire.Cluster
	ClusterNode = wire.ClusterNode
	ReplaceNode = wire.ReplaceNode
)

// Cluster describes the nodes of the server's cluster. A lone node describes itself.
func (c *Client) Cluster(ctx context.Context) (*Cluster, error) {
	return decode[Cluster](c.ask(ctx, request{method: http.MethodGet, path: "/v1/cluster"}))
}

// ReplaceNode makes the bearer of a certificate the successor of a node of the cluster. A repeat changes nothing.
func (c *Client) ReplaceNode(ctx context.Context, name string, r ReplaceNode) (*Cluster, error) {
	ask := adminRequest(http.MethodPost, "/v1/cluster/nodes/"+url.PathEscape(name)+"/replace", &r)
	return decode[Cluster](c.ask(ctx, ask))
}
