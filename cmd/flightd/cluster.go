package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/flightd/flightd/clusterstore/peer"
	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/auth"
	"github.com/flightd/flightd/internal/durable"
	"github.com/flightd/flightd/node"
)

func newClusterCommand(a *cli.App) *cobra.Command {
	return cli.CommandGroup("cluster", "Found a cluster of nodes that hold one ledger together, show its nodes, and replace one", newClusterFoundCommand(a), newClusterReplaceCommand(a), newClusterStatusCommand(a), newClusterRaiseLeaseEpochCommand(a))
}

func newClusterFoundCommand(a *cli.App) *cobra.Command {
	var nodes []string
	var out, from string
	c := &cobra.Command{
		Use:   "found",
		Short: "Make the directories with which the nodes of a new cluster start",
		Long: `Makes one directory for each node of a new cluster, and starts nothing. Copy OUT/NAME to the host of node NAME, as it is, and start
each node with flightd serve --cluster. A directory has the certificate and the key of its node, and the names and addresses of
all nodes.

--node names a node, and the address under which the other nodes reach it; etcd uses the port after it as well, unless the nodes
are started with --etcd. 3, 5 or 7 nodes: with three, one can be away. Nodes trust only certificates of the CA in OUT. Its key, OUT/ca.key, belongs to no node: keep it
apart, because a certificate that it signs can be a node of the cluster.

The first token, with all rights, is valid as soon as the cluster has started. It is printed to standard error, or written to
--first-token-file; the directories have only its hash. If the ledger has a token already, this one is not made.

--from names the data directory of a lone node that is stopped: its ledger becomes that of the first node, and the others get it when
they start. It keeps its deployment, its receipts and its tokens. The first node starts with DATA in its place, and from now on DATA
starts with --cluster alone. Sessions end: a key whose effect may be under way is not opened again before its hold is over.`,
		Example: `  flightd cluster found --node a=10.0.0.1:7430 --node b=10.0.0.2:7430 --node c=10.0.0.3:7430 --out cluster
  flightd cluster found --from /var/lib/flightd --node a=10.0.0.1:7430 --node b=10.0.0.2:7430 --node c=10.0.0.3:7430 --out cluster
  flightd serve --cluster cluster/a                    # at the host of node a, after the copy`,
		Args: cli.ExactArgs(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if out == "" {
				return cli.UsageError("--out is missing: name a new directory")
			}
			named, err := parseNodes(nodes)
			if err != nil {
				return err
			}
			var prepare func() (string, error)
			if from != "" {
				if from, err = filepath.Abs(from); err != nil {
					return err
				}
				prepare = func() (string, error) { return moveIntoCluster(cmd.Context(), a, from, named[0].Name) }
			}
			return foundCluster(a, out, named, a.Setting("first_token_file").Value, from, prepare)
		},
	}
	flags := c.Flags()
	flags.StringArrayVar(&nodes, "node", nil, "NAME=HOST:PORT of a node, once for each node")
	flags.StringVar(&from, "from", "", "data directory of a lone node, for the first node; the node is stopped")
	flags.StringVar(&out, "out", "", "new directory for the directories of the nodes")
	cli.AddSettings(flags, "first_token_file")
	return c
}

// parseNodes reads the values of --node.
func parseNodes(texts []string) ([]peer.Node, error) {
	var nodes []peer.Node
	for _, text := range texts {
		name, address, found := strings.Cut(text, "=")
		if !found {
			return nil, cli.UsageError("--node %s: want NAME=HOST:PORT, as in --node a=10.0.0.1:7430", text)
		}
		nodes = append(nodes, peer.Node{Name: name, Address: address})
	}
	return nodes, nil
}

// foundCluster makes the directories, and the first token. The token's file is written first: no founding has the hash of a
// token that nobody knows. After an error there is no token file. from prepares the ledger in data; it is nil without one.
func foundCluster(a *cli.App, out string, nodes []peer.Node, tokenFile, data string, from func() (string, error)) error {
	secret, sum := auth.NewSecret(flight.AllNamespaces), ""
	switch {
	case from != nil && tokenFile != "":
		return cli.UsageError("--first-token-file is not taken with --from: the ledger keeps its tokens")
	case from == nil:
		hash := sha256.Sum256([]byte(secret))
		sum = hex.EncodeToString(hash[:])
	}
	if tokenFile != "" {
		err := durable.Create(tokenFile, []byte(secret+"\n"), 0o600)
		if errors.Is(err, fs.ErrExist) {
			return cli.UsageError("--first-token-file %s exists: name a new file", tokenFile)
		}
		if err != nil {
			return &cli.Error{Code: cli.ExitConfig, Err: fmt.Errorf("--first-token-file %s: %w", tokenFile, err)}
		}
	}
	err := peer.Found(out, nodes, peer.FoundOptions{TokenSHA256: sum, From: from})
	var made *madeCluster
	if err == nil {
		made, err = describeCluster(out, nodes)
	}
	if err == nil && data != "" {
		made.Nodes[0].Start += " --data " + data
	}
	if err != nil {
		if tokenFile != "" {
			err = errors.Join(err, os.Remove(tokenFile))
		}
		if exit, ok := errors.AsType[*cli.Error](err); ok { // of --from
			return exit
		}
		if errors.As(err, new(*fs.PathError)) {
			return &cli.Error{Code: cli.ExitConfig, Err: err}
		}
		return cli.UsageError("%w", err)
	}
	switch {
	case from != nil:
		a.Say("the ledger keeps its tokens; node %s starts with its data directory", nodes[0].Name)
	case tokenFile != "":
		a.Say("the token admin, with all rights in all namespaces, is in %s", tokenFile)
	default:
		printFirstToken(a, secret)
	}
	a.Say("copy each directory to its node, then remove it here; keep %s apart from the nodes: a certificate that it signs can be a node of the cluster", made.CAKey)
	return printCluster(a, made)
}

// moveIntoCluster prepares the ledger of a lone node for node name of a cluster.
func moveIntoCluster(ctx context.Context, a *cli.App, data, name string) (clusterID string, err error) {
	cfg := node.Dev(data, "127.0.0.1:0")
	cfg.Operator.RaiseLeaseEpoch = "the ledger becomes that of a cluster"
	if err := completeConfig(a, &cfg); err != nil {
		return "", err
	}
	if clusterID, err = node.MoveIntoCluster(ctx, cfg, name); err != nil {
		err = startError(err, &cfg)
	}
	return clusterID, err
}

// madeCluster describes a cluster that was founded.
type madeCluster struct {
	ClusterID string     `json:"cluster_id"`
	CA        string     `json:"ca,omitempty"`
	CAKey     string     `json:"ca_key,omitempty"`
	Nodes     []madeNode `json:"nodes"`
}

// madeNode describes a node's founding directory.
type madeNode struct {
	Name      string `json:"name"`
	Address   string `json:"address"`
	Etcd      string `json:"etcd"`
	Directory string `json:"directory"`
	Start     string `json:"start"`
}

// describeCluster reads the directories as the nodes will.
func describeCluster(out string, nodes []peer.Node) (*madeCluster, error) {
	made := &madeCluster{CA: filepath.Join(out, "ca.crt"), CAKey: filepath.Join(out, "ca.key")}
	for _, n := range nodes {
		f, err := peer.Load(filepath.Join(out, n.Name))
		if err != nil {
			return nil, err
		}
		made.ClusterID = f.ClusterID
		made.Nodes = append(made.Nodes, describeNode(f))
	}
	return made, nil
}

func describeNode(f *peer.Founding) madeNode {
	return madeNode{Name: f.Self.Name, Address: f.Self.Address, Etcd: f.Self.Etcd, Directory: f.Dir, Start: "flightd serve --cluster " + f.Dir}
}

func printCluster(a *cli.App, made *madeCluster) error {
	var rows [][]string
	for _, n := range made.Nodes {
		rows = append(rows, []string{n.Name, n.Address, n.Etcd, n.Directory, n.Start})
	}
	return a.PrintList([]string{"NODE", "ADDRESS", "ETCD", "COPY TO THE NODE", "START IT WITH"}, rows, []string{made.ClusterID}, made)
}
