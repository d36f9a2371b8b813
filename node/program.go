package node

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/httpapi"
)

// openProgram starts the executor for the program that embeds this node of a cluster: a client whose requests the gate takes in
// this process, as it takes those of callers. The program is trusted as the node is, and needs no token.
//
// Its reports wait in the data directory while no node leads the ledger, and the next start sends those that are left. Its stop
// waits for running effects and their reports at most for Config.StopTimeout, while this node passes requests on.
func (n *node) openProgram(ctx context.Context, gate http.Handler) error {
	name := n.cluster.name()
	asNode := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.RemoteAddr = "node/" + name
		gate.ServeHTTP(w, r.WithContext(httpapi.AsNode(r.Context(), name)))
	})
	program, err := client.Connect(ctx, name, client.WithHandler(asNode), client.WithDeployment(n.store.Header().Deployment),
		client.WithOwner("node/"+name), client.WithSpool(filepath.Join(n.cfg.Data, "reports")), client.WithLogger(n.cfg.Logger))
	if err != nil {
		return fmt.Errorf("open the executor: %w", err)
	}
	n.program = program
	n.parts.start("executor", func(ctx context.Context) error {
		<-ctx.Done()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), n.cfg.StopTimeout)
		defer cancel()
		return program.Close(ctx)
	})
	return nil
}
