package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/flightd/flightd/client"
	"github.com/flightd/flightd/effect"
	"github.com/flightd/flightd/node"
)

// flightd is a node in this process, and an HTTP client of it.
type flightd struct {
	local  effect.Doer
	url    string
	remote *client.Client
	single *client.Client // sends no batches
	stop   context.CancelFunc
	done   chan error
}

// access is what a node demands of its callers.
type access struct {
	token bool // requests need a token
	tls   bool // with a certificate for 127.0.0.1
}

// openFlightd starts a node on a data directory, which is created if it does not exist.
func openFlightd(ctx context.Context, data string, need access) (*flightd, error) {
	ctx, stop := context.WithCancel(ctx)
	f := &flightd{stop: stop, done: make(chan error, 1)}
	ready := make(chan node.Ready, 1)
	cfg := node.Config{Data: data, NoCredentials: !need.token, Ready: func(r node.Ready) { ready <- r }, Listen: node.Listen{Address: "127.0.0.1:0"}}
	opts := []client.Option{client.WithNamespace("bench")}
	cfg.FirstToken.Print = func(secret string) { opts = append(opts, client.WithToken(secret)) } // before Ready
	var err error
	if need.tls {
		var trust *tls.Config
		trust, err = writeCertificate(data, &cfg.Listen.TLS)
		opts = append(opts, client.WithTLSConfig(trust))
	}
	if err == nil && need.token {
		_, err = node.Init(ctx, cfg)
	}
	if err != nil {
		stop()
		return nil, err
	}
	go func() { f.done <- node.Run(ctx, cfg) }() // close waits for it
	select {
	case r := <-ready:
		f.local, f.url = r.Executor, r.URL
		if f.remote, err = client.Connect(ctx, r.URL, opts...); err == nil {
			f.single, err = client.Connect(ctx, r.URL, append(opts, client.WithoutBatches())...)
		}
		if err != nil {
			return nil, errors.Join(err, f.close())
		}
		return f, nil
	case err := <-f.done:
		stop()
		return nil, errors.Join(errors.New("the node did not start"), err)
	}
}

// writeCertificate writes a certificate for 127.0.0.1 and its key to files whose names begin with path, and returns the settings of a
// client that trusts it.
func writeCertificate(path string, files *node.TLSFiles) (*tls.Config, error) {
	server := httptest.NewTLSServer(http.NotFoundHandler()) // it has such a certificate
	server.Close()
	pair := server.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		return nil, err
	}
	files.Cert, files.Key = path+".crt", path+".key"
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	return &tls.Config{RootCAs: roots}, errors.Join(
		os.WriteFile(files.Cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]}), 0o600),
		os.WriteFile(files.Key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600))
}

func (f *flightd) close() error {
	for _, c := range [...]*client.Client{f.remote, f.single} {
		if c != nil {
			_ = c.Close(context.Background()) // it has no attempt
		}
	}
	f.stop()
	return <-f.done
}
