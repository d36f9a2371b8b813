package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/flightd/flightd/client"
)

// The workloads that are the base of ratios.
const (
	rawBatched     = "raw path, batched"
	rawUnbatched   = "raw path, unbatched"
	postgresByHand = "Postgres ledger by hand"
)

// The numbers of keys from which replays are drawn.
const (
	replayKeys  = 100_000
	processKeys = 20_000 // of a process, which is called over HTTP
)

// workloads returns the selected workloads in the table's order, and a function that closes them.
func workloads(ctx context.Context, o *options) (all []workload, closeAll func(), err error) {
	var closers []func()
	closeAll = func() {
		for _, c := range slices.Backward(closers) {
			c()
		}
	}
	later := func(c func()) { closers = append(closers, c) }
	switch {
	case o.url != "":
		all, err = remoteWorkloads(ctx, o.url, later)
	case o.binary != "":
		all, err = processWorkloads(ctx, o.binary, o.dir, later)
	default:
		all, err = localWorkloads(ctx, o, later)
	}
	if err != nil {
		closeAll()
		return nil, nil, err
	}
	words := strings.Split(o.only, "|")
	return slices.DeleteFunc(all, func(w workload) bool {
		return !slices.ContainsFunc(words, func(word string) bool { return strings.Contains(w.name, word) })
	}), closeAll, nil
}

// localWorkloads returns the workloads of this process. It passes functions that close them to later.
func localWorkloads(ctx context.Context, o *options, later func(func())) ([]workload, error) {
	raw, err := openRaw(ctx, filepath.Join(o.dir, "raw"))
	if err != nil {
		return nil, err
	}
	later(raw.close)
	var nodes [3]*flightd
	for i, need := range []access{{}, {token: true}, {token: true, tls: true}} {
		if nodes[i], err = openFlightd(ctx, filepath.Join(o.dir, fmt.Sprint("node-", i)), need); err != nil {
			return nil, err
		}
		later(func() { _ = nodes[i].close() })
	}
	layers, err := openLayers(ctx, filepath.Join(o.dir, "parts"), raw)
	if err != nil {
		return nil, err
	}
	later(layers.close)
	noop, err := openEmptyServer()
	if err != nil {
		return nil, err
	}
	later(noop.close)
	fd := nodes[0]
	queue, queued, err := openFlightdQueue(ctx, fd)
	if err != nil {
		return nil, err
	}
	later(queue.close)
	sagas, run, err := openFlightdSagas(ctx, fd)
	if err != nil {
		return nil, err
	}
	later(sagas.close)
	all := []workload{
		{name: rawUnbatched, once: raw.unbatched, cleanUp: raw.cleanUp},
		{name: rawBatched, once: raw.batched, cleanUp: raw.cleanUp},
		{name: "claims alone", once: layers.claimOnly, cleanUp: raw.cleanUp},
		{name: "open and report alone", once: layers.openAndReport},
		{name: "claim beside open, and report, nothing else", newKeys: true, once: layers.claimOpenReport, cleanUp: raw.cleanUp},
		{name: "two empty requests over HTTP", once: noop.twoRequests},
		{name: "executor.Do, new keys", newKeys: true, once: newKeys(fd.local, smallOrder)},
		{name: "caller-run over HTTP, new keys", newKeys: true, once: newKeys(fd.single, smallOrder)},
		{name: "caller-run over HTTP, in batches, new keys", newKeys: true, once: newKeys(fd.remote, smallOrder)},
		{name: "caller-run over HTTP with a token, new keys", newKeys: true, once: newKeys(nodes[1].remote, smallOrder)},
		{name: "caller-run over TLS with a token, new keys", newKeys: true, once: newKeys(nodes[2].remote, smallOrder)},
		{name: "queued jobs over HTTP", byHand: "queued jobs in Postgres by hand", once: queued},
		smallReplays("replays, in process", fd.local, fd.local, replayKeys),
		smallReplays("replays over HTTP", fd.remote, fd.local, replayKeys),
	}
	all = append(all, sagaWorkloads("over HTTP", run)...)
	if o.postgres != "" {
		pg, err := openPostgres(ctx, o.postgres)
		if err != nil {
			return nil, err
		}
		later(pg.close)
		queue, queued, err := openPostgresQueue(ctx, pg)
		if err != nil {
			return nil, err
		}
		later(queue.close)
		all = append(all, workload{name: postgresByHand, once: pg.once}, workload{name: "queued jobs in Postgres by hand", once: queued})
		sagas, run, err := openPostgresSagas(ctx, pg)
		if err != nil {
			return nil, err
		}
		later(sagas.close)
		all = append(all, sagaWorkloads("in Postgres by hand", run)...)
	}
	return all, nil
}

// remoteWorkloads returns the workload for a flightd at url.
func remoteWorkloads(ctx context.Context, url string, later func(func())) ([]workload, error) {
	remote, err := client.Connect(ctx, url, client.WithNamespace("bench"))
	if err != nil {
		return nil, err
	}
	later(func() { _ = remote.Close(context.Background()) })
	return []workload{{name: "caller-run over HTTP, new keys", newKeys: true, once: newKeys(remote, smallOrder)}}, nil
}

// processWorkloads compares one process with three that are one cluster.
func processWorkloads(ctx context.Context, binary, dir string, later func(func())) ([]workload, error) {
	lone, err := startProcess(ctx, binary, filepath.Join(dir, "lone"), 1, "--listen", "127.0.0.1:7520")
	if err != nil {
		return nil, err
	}
	later(func() { _ = lone.close() })
	three, err := startProcess(ctx, binary, filepath.Join(dir, "three"), 3, "--nodes", "3", "--listen", "127.0.0.1:7530")
	if err != nil {
		return nil, err
	}
	later(func() { _ = three.close() })
	leader, follower, err := three.leaderAndFollower(ctx)
	if err != nil {
		return nil, err
	}
	return []workload{
		{name: "one process, new keys", newKeys: true, once: newKeys(lone.clients[0], smallOrder)},
		{name: "three processes, new keys", newKeys: true, once: newKeys(three.clients[0], smallOrder)},
		{name: "three processes, new keys at the leader", newKeys: true, once: newKeys(leader, smallOrder)},
		{name: "three processes, new keys at a follower", newKeys: true, once: newKeys(follower, smallOrder)},
		smallReplays("one process, replays", lone.clients[0], lone.clients[0], processKeys),
		smallReplays("three processes, replays at a follower", follower, three.clients[0], processKeys),
	}, nil
}
