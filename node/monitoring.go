package node

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/flightd/flightd/httpapi"
)

// serveMonitoring serves metrics and health on Config.ListenMetrics, if set. The address answers during the start and
// the stop of the node, too.
func (n *node) serveMonitoring() error {
	if n.cfg.ListenMetrics == "" {
		return nil
	}
	listener, err := listen("listen_metrics", n.cfg.ListenMetrics)
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
	server := &http.Server{
		Handler: httpapi.NewMonitoring(routes, n.cfg.Logger), ReadHeaderTimeout: 5 * time.Second, WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 32 << 10,
	}
	n.parts.start("metrics", func(ctx context.Context) error {
		served := make(chan error, 1) // the part waits for it in every case
		go func() { served <- server.Serve(listener) }()
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
