package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/clusterstore/peer"
	"github.com/flightd/flightd/cmd/flightd/internal/cli"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi/wire"
	"github.com/flightd/flightd/internal/auth"
	"github.com/flightd/flightd/internal/clock"
	"github.com/flightd/flightd/internal/durable"
	"github.com/flightd/flightd/node"
)

func newClusterCommand(a *cli.App) *cobra.Command {
	return cli.CommandGroup("cluster", "Found a cluster of nodes that hold one ledger together, show its nodes, and replace one", newClusterFoundCommand(a), newClusterReplaceCommand(a), newClusterStatusCommand(a),
		a.Decision(&cobra.Command{
			Use:   "raise-lease-epoch --reason WHY",
			Short: "Accept an etcd that has lost data, in a cluster that runs",
			Long: `Accepts an etcd that knows less than the ledger, for example after it was restored from a snapshot. Until then nothing opens.

All sessions end. Attempts that were open are not taken over before their holders must have ended: that takes the longest session,
time-out and settle delay together. No receipt is lost. If etcd has lost nothing, this changes nothing.`,
			Example: `  flightd cluster raise-lease-epoch --reason 'etcd was restored from its snapshot of noon'`,
		}, func(_ []string) error {
			return a.Confirm(true, "If etcd has lost data, all sessions end now. Raise the lease epoch?")
		}, func(ctx context.Context, c *client.Client, _ []string, reason string) error {
			state, err := c.RaiseLeaseEpoch(ctx, reason)
			if err != nil {
				return err
			}
			a.Say("the lease epoch is %d; attempts of older epochs keep their keys for %v more", state.Epoch, (time.Duration(state.HoldMS) * time.Millisecond).Round(time.Second))
			return a.PrintUnlessTable(fmt.Sprint(state.Epoch), state)
		}))
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

func newClusterReplaceCommand(a *cli.App) *cobra.Command {
	var ca, out string
	request := client.ReplaceNode{}
	c := &cobra.Command{
		Use:   "replace NODE --ca DIR --out NEW --reason WHY",
		Short: "Replace a node that lost its disk by a new one",
		Long: `Makes a new directory for node NODE, as flightd cluster found does, and tells the cluster that the node with this certificate takes
the place of the one before. --ca is the directory with ca.crt and ca.key that flightd cluster found has made.

Then copy NEW to the host, and start the node with it and with an empty data directory: it gets the ledger from the others and votes
when it has it. flightd cluster status shows a problem of the node until then. From the command on, the certificate and the data
directory of the node before are refused for ever. A repeat with the same --out changes nothing.

The others must be a majority. Nodes that vote are replaced one after the other. The node keeps its name and its address; give the name in the
address to the new host if the node moves.`,
		Example: `  flightd cluster replace c --ca cluster --out cluster/c-2 --reason 'the disk of c died' --yes
  flightd serve --cluster cluster/c-2 --data /var/lib/flightd      # at the host of node c, after the copy`,
		Args: cli.ExactArgs(1, "a node"),
	}
	c.Flags().StringVar(&ca, "ca", "", "directory with ca.crt and ca.key")
	c.Flags().StringVar(&out, "out", "", "new directory for the directory of the node")
	c.Flags().BoolVar(&request.WhileRunning, "while-running", false, "also if the node runs; it is cut off at once")
	return a.Decision(c, func(args []string) error {
		if ca == "" || out == "" {
			return cli.UsageError("--ca and --out are needed: the directory that flightd cluster found has made, and a new one")
		}
		return a.Confirm(true, "From now on the data directory of node %s is refused for ever. Replace the node?", args[0])
	}, func(ctx context.Context, c *client.Client, args []string, reason string) error {
		request.Reason = reason
		return replaceNode(ctx, a, c, args[0], ca, out, request)
	})
}

// replaceNode makes the directory first: the cluster never waits for a certificate that nobody has. If the process dies in
// between, a repeat takes the directory that is there. After a rejection a directory that this call has
// made is removed.
func replaceNode(ctx context.Context, a *cli.App, c *client.Client, name, ca, out string, request client.ReplaceNode) error {
	state, err := c.Cluster(ctx)
	if err != nil {
		return err
	}
	nodes := make([]peer.Node, 0, len(state.Nodes))
	for _, n := range state.Nodes {
		nodes = append(nodes, peer.Node{Name: n.Name, Address: n.Address, Etcd: n.Etcd})
	}
	_, statErr := os.Stat(out)
	made, err := peer.Replace(ca, out, state.ID, name, nodes)
	if errors.As(err, new(*fs.PathError)) {
		return &cli.Error{Code: cli.ExitConfig, Err: err}
	}
	if err != nil {
		return cli.UsageError("%w", err)
	}
	request.Certificate = made.Certificate()
	if _, err := c.ReplaceNode(ctx, name, request); err != nil {
		if problem, ok := errors.AsType[*client.Error](err); ok && problem.Problem.Status < 500 && errors.Is(statErr, fs.ErrNotExist) {
			err = errors.Join(err, os.RemoveAll(out))
		}
		return err
	}
	a.Say("node %s is being replaced: copy the directory to its host, remove it here, and start the node with an empty data directory", name)
	return printCluster(a, &madeCluster{ClusterID: made.ClusterID, Nodes: []madeNode{describeNode(made)}})
}

func newClusterStatusCommand(a *cli.App) *cobra.Command {
	var wait time.Duration
	c := &cobra.Command{
		Use:   "status",
		Short: "Show the nodes of the cluster: who leads, who is behind, whose clock is off, whose disk is damaged",
		Long: `Shows the nodes as the leader of the ledger sees them, at most a second old. Any node of the cluster can be asked.

A cluster of three serves callers while two of them answer. BEHIND is how many entries of the ledger a node lacks; CLOCK is how
far its wall clock is ahead of the leader's.

The exit code is 0 if the cluster is whole: a node leads, and every node answers, votes, reaches its etcd and has the ledger. With
--wait, each node must have what the ledger had when the command began; without it, a node may be 1,000 entries behind.`,
		Example: `  flightd cluster status
  flightd cluster status --wait 60s      # until the cluster is whole
  flightd cluster status -o json`,
		RunE: a.Run(func(ctx context.Context, c *client.Client, _ []string) error { return clusterStatus(ctx, a, c, wait) }),
	}
	cli.DurationVar(c.Flags(), &wait, "wait", 0, "wait until the cluster is whole, at most so long; 0: ask once")
	return c
}

// maxBehind is the number of entries that a node may lack in a whole cluster, as in the alert FlightdNodeLags.
const maxBehind = 1000

// clusterStatus prints the nodes as soon as the cluster is whole, or when the wait ends. Its error then names the nodes that are not whole.
func clusterStatus(ctx context.Context, a *cli.App, c *client.Client, wait time.Duration) error {
	deadline, applied := time.Now().Add(wait), uint64(1) // applied is the index that each node must reach
	for first := true; ; first = false {
		state, err := c.Cluster(ctx)
		var broken []string
		if err == nil {
			if first && wait > 0 {
				for _, n := range state.Nodes {
					applied = max(applied, n.Applied+n.Behind)
				}
			}
			broken = markProblems(state, applied)
		}
		if time.Until(deadline) > 0 && (err != nil || broken != nil) {
			if !clock.Sleep(ctx, 200*time.Millisecond) {
				return ctx.Err()
			}
			continue
		}
		if err != nil {
			return err
		}
		var rows [][]string
		for _, n := range state.Nodes {
			clock := (time.Duration(n.ClockMS) * time.Millisecond).String()
			etcd := "no answer"
			if n.EtcdOK {
				etcd = "ok"
			}
			rows = append(rows, []string{n.Name, n.Role, fmt.Sprint(n.Applied), fmt.Sprint(n.Behind), clock, etcd, n.Version, cmp.Or(n.Problem, "-")})
		}
		err = a.PrintList([]string{"NODE", "ROLE", "APPLIED", "BEHIND", "CLOCK", "ETCD", "VERSION", "PROBLEM"}, rows, []string{state.Leader}, state)
		if err == nil && broken != nil {
			err = &cli.Error{Code: cli.ExitFailed, Err: fmt.Errorf("the cluster is not whole: %s", strings.Join(broken, "; ")), Hint: "flightd doctor compares the nodes, and --wait 60s waits for them"}
		}
		return err
	}
}

// markProblems sets the problem of each node that is not whole, and returns all problems of the cluster.
func markProblems(state *client.Cluster, applied uint64) (broken []string) {
	if state.Leader == "" {
		broken = append(broken, "no node leads")
	}
	for i := range state.Nodes {
		n := &state.Nodes[i]
		switch {
		case n.Problem != "":
		case n.Role == wire.RoleUnreachable:
			n.Problem = "does not answer"
		case n.Behind > 0 && n.Applied < applied, n.Behind > maxBehind:
			n.Problem = "lacks " + cli.Pluralize(int(n.Behind), "entry", "entries") + " of the ledger"
		case !n.EtcdOK:
			n.Problem = "its etcd does not answer"
		}
		if n.Problem != "" {
			broken = append(broken, n.Name+": "+n.Problem)
		}
	}
	return broken
}
