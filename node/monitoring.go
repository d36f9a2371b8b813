package node

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/flightd/flightd/httpapi"
)

// monitoringConnections is the largest number of open connections of Config.ListenMetrics.
const monitoringConnections = 128

// serveMonitoring serves metrics and health on Config.ListenMetrics, if set. The address answers during the start and
// the stop of the node, too. Requests need no token there, so the answers name no key and no caller.
func (n *node) serveMonitoring() error {
	if n.cfg.ListenMetrics == "" {
		return nil
	}
	listener, err := n.cfg.listen("listen_metrics", n.cfg.ListenMetrics)
	if err != nil {
		return err
	}
	n.metricsURL = "http://" + listener.Addr().String()
	routes := map[string]http.Handler{}
	for _, path := range [...]string{"GET /metrics", "GET /metrics/etcd", "GET /metrics/raft"} {
		routes[path] = n.metrics.Handler()
	}
	for _, path := range [...]string{"GET /livez", "GET /readyz", "GET /version", "GET /problems/{code}"} {
		routes[path] = n.server
	}
	server := httpapi.Server(n.cfg.ListenMetrics, httpapi.NewMonitoring(routes, n.cfg.NoCredentials, n.cfg.Logger))
	server.ErrorLog, server.ReadTimeout, server.WriteTimeout = httpErrors(n.cfg.Logger), 15*time.Second, time.Minute
	connections := newConnections(listener, min(monitoringConnections, n.cfg.tuning.connections), nil)
	connections.watch(server)
	n.parts.start("metrics", func(ctx context.Context) error {
		served := make(chan error, 1) // the part waits for it in every case
		go func() { served <- server.Serve(connections) }()
		select {
		case err := <-served:
			return err
		case <-ctx.Done():
		}
		err := server.Close()
		if end := <-served; !errors.Is(end, http.ErrServerClosed) {
			err = errors.Join(err, end)
		}
		return err
	})
	return nil
}
