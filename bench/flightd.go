package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/node"
)

// replayKeys is the number of keys from which replays are drawn.
const replayKeys = 100_000

// flightd is a node in this process, and an HTTP client of it.
type flightd struct {
	local  effect.Doer
	remote *client.Client
	stop   context.CancelFunc
	done   chan error
	stored []flight.Key
}

// access is what a node demands of its callers.
type access struct {
	token bool // requests need a token
	tls   bool // with a certificate for 127.0.0.1
}

func openFlightd(ctx context.Context, dir string, need access) (*flightd, error) {
	ctx, stop := context.WithCancel(ctx)
	f := &flightd{stop: stop, done: make(chan error, 1)}
	ready := make(chan node.Ready, 1)
	cfg := node.Config{Data: filepath.Join(dir, "flightd"), Listen: "127.0.0.1:0", NoCredentials: !need.token, Ready: func(r node.Ready) { ready <- r }}
	opts := []client.Option{client.WithNamespace("bench")}
	cfg.FirstToken = func(secret string) { opts = append(opts, client.WithToken(secret)) } // before Ready
	if need.tls {
		config, err := makeCertificate(dir, &cfg.TLS)
		if err != nil {
			stop()
			return nil, err
		}
		opts = append(opts, client.WithTLSConfig(config))
	}
	if need.token {
		if _, err := node.Init(ctx, cfg); err != nil {
			stop()
			return nil, err
		}
	}
	go func() { f.done <- node.Run(ctx, cfg) }() // close waits for it
	select {
	case r := <-ready:
		f.local = r.Executor
		var err error
		if f.remote, err = client.Connect(ctx, r.URL, opts...); err != nil {
			f.close()
			return nil, err
		}
		return f, nil
	case err := <-f.done:
		stop()
		return nil, errors.Join(errors.New("the node did not start"), err)
	}
}

// makeCertificate writes a certificate for 127.0.0.1 and its key into dir, and returns the settings of a client that
// trusts it.
func makeCertificate(dir string, files *node.TLSFiles) (*tls.Config, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	subject := &x509.Certificate{SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, subject, subject, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	files.Cert, files.Key = filepath.Join(dir, "server.crt"), filepath.Join(dir, "server.key")
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(cert)
	return &tls.Config{RootCAs: roots}, errors.Join(os.WriteFile(files.Cert, cert, 0o600),
		os.WriteFile(files.Key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
}

func (f *flightd) close() {
	if f.remote != nil {
		_ = f.remote.Close(context.Background())
	}
	f.stop()
	<-f.done
}

var fixedAnswer = effect.Answer{ExternalID: "ext-1", ContentType: "application/json", Body: []byte(`{"ok":true}`)}

func noEffect(context.Context, *effect.Attempt) (effect.Answer, error) { return fixedAnswer, nil }

// call returns a call for the key with a small input.
func call(key flight.Key) effect.Call {
	input := []byte(`{"amount":4200,"currency":"EUR"}`)
	return effect.Call{Key: key, Submission: flight.Submission{
		Fingerprint: flight.FingerprintBytes(input),
		Input:       flight.NewBlob("application/json", input, flight.MaxInput),
	}}
}

// newKeys returns a function that executes a flight with a new key.
func (f *flightd) newKeys(doer effect.Doer) func(context.Context, uint64) error {
	return func(ctx context.Context, n uint64) error {
		_, err := doer.Do(ctx, call(flight.MustKey(fmt.Sprintf("bench/charge/order-%d", n))), noEffect)
		return err
	}
}

// replay returns a function that replays a random stored flight. Its first call stores the flights.
func (f *flightd) replay(doer effect.Doer) func(context.Context, uint64) error {
	var once sync.Once
	var failed error
	return func(ctx context.Context, _ uint64) error {
		once.Do(func() { failed = f.storeReplayKeys(ctx) })
		if failed != nil {
			return failed
		}
		result, err := doer.Do(ctx, call(f.stored[mathrand.IntN(len(f.stored))]), noEffect)
		if err == nil && result.Source != effect.SourceReplayed {
			return fmt.Errorf("replay: the source is %s", result.Source)
		}
		return err
	}
}

// storeReplayKeys executes the flights that replays are drawn from.
func (f *flightd) storeReplayKeys(ctx context.Context) error {
	if f.stored != nil {
		return nil
	}
	var err error
	f.stored, err = storeKeys(ctx, f.local, replayKeys)
	return err
}

// storeKeys executes n flights and returns their keys.
func storeKeys(ctx context.Context, doer effect.Doer, n int) ([]flight.Key, error) {
	keys := make([]flight.Key, n)
	var wg sync.WaitGroup
	const writers = 256
	errs := make([]error, writers)
	for w := range writers {
		wg.Go(func() {
			for i := w; i < n && errs[w] == nil; i += writers {
				keys[i] = flight.MustKey(fmt.Sprintf("bench/stored/order-%d", i))
				_, errs[w] = doer.Do(ctx, call(keys[i]), noEffect)
			}
		})
	}
	wg.Wait()
	return keys, errors.Join(errs...)
}

// workloads returns the selected workloads in the table's order, and a function that closes them.
func workloads(ctx context.Context, o options, dir string) (all []workload, closeAll func(), err error) {
	var closers []func()
	closeAll = func() {
		for _, c := range closers {
			c()
		}
	}
	switch {
	case o.url != "":
		return remoteWorkloads(ctx, o.url)
	case o.binary != "":
		return processWorkloads(ctx, o.binary, dir)
	}
	raw, err := openRaw(ctx, filepath.Join(dir, "raw"))
	if err != nil {
		return nil, nil, err
	}
	closers = append(closers, raw.close)
	var nodes [3]*flightd
	for i, need := range []access{{}, {token: true}, {token: true, tls: true}} {
		own := filepath.Join(dir, fmt.Sprint("node-", i))
		if err := os.Mkdir(own, 0o700); err != nil {
			closeAll()
			return nil, nil, err
		}
		if nodes[i], err = openFlightd(ctx, own, need); err != nil {
			closeAll()
			return nil, nil, err
		}
		closers = append(closers, nodes[i].close)
	}
	fd := nodes[0]
	layers, err := openLayers(ctx, filepath.Join(dir, "parts"), raw)
	if err != nil {
		closeAll()
		return nil, nil, err
	}
	closers = append([]func(){layers.close}, closers...)
	noop, err := openEmptyServer()
	if err != nil {
		closeAll()
		return nil, nil, err
	}
	closers = append(closers, noop.close)
	all = []workload{
		{name: rawUnbatched, once: raw.unbatched, cleanUp: raw.cleanUp},
		{name: rawBatched, once: raw.batched, cleanUp: raw.cleanUp},
		{name: "claims alone", once: layers.claimOnly, cleanUp: raw.cleanUp},
		{name: "open and report alone", once: layers.openAndReport},
		{name: "claim beside open, and report, nothing else", note: "new", once: layers.claimOpenReport, cleanUp: raw.cleanUp},
		{name: "two empty requests over HTTP", once: noop.twoRequests},
		{name: "executor.Do, new keys", note: "new", once: fd.newKeys(fd.local)},
		{name: "caller-run over HTTP, new keys", note: "new", once: fd.newKeys(fd.remote)},
		{name: "caller-run over HTTP with a token, new keys", note: "new", once: nodes[1].newKeys(nodes[1].remote)},
		{name: "caller-run over TLS with a token, new keys", note: "new", once: nodes[2].newKeys(nodes[2].remote)},
		{name: "replays, in process", once: fd.replay(fd.local)},
		{name: "replays over HTTP", once: fd.replay(fd.remote)},
	}
	if o.postgres != "" {
		pg, err := openPostgres(ctx, o.postgres)
		if err != nil {
			closeAll()
			return nil, nil, err
		}
		closers = append(closers, pg.close)
		all = append(all, workload{name: postgresByHand, once: pg.once})
	}
	var chosen []workload
	for _, c := range all {
		if strings.Contains(c.name, o.only) {
			chosen = append(chosen, c)
		}
	}
	return chosen, closeAll, nil
}

// remoteWorkloads returns the workload for a flightd at url.
func remoteWorkloads(ctx context.Context, url string) ([]workload, func(), error) {
	remote, err := client.Connect(ctx, url)
	if err != nil {
		return nil, nil, err
	}
	f := &flightd{remote: remote}
	run := mathrand.Uint64() // makes the keys of this run new
	once := func(ctx context.Context, n uint64) error {
		_, err := f.remote.Do(ctx, call(flight.MustKey(fmt.Sprintf("bench/charge/run-%d/order-%d", run, n))), noEffect)
		return err
	}
	return []workload{{name: "caller-run over HTTP, new keys", note: "new", once: once}},
		func() { _ = remote.Close(context.Background()) }, nil
}
