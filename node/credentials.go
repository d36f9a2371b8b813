package node

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/flightd/flightd/clusterstore"
	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/auth"
	"github.com/flightd/flightd/internal/durable"
)

// ensureAdminToken creates the token "admin", which has all verbs in all namespaces, if the ledger has no token at all. If
// the operator has given a reason in Config.Operator.NewAdminToken, ensureAdminToken replaces that token.
//
// Crash safety: the secret is written or printed before the ledger has it. If the process dies between the two, the next
// start finds no token: it prints another secret, or registers the one in FirstTokenFile.
func ensureAdminToken(ctx context.Context, cfg *Config, store *clusterstore.Store) error {
	id := auth.TokenID(flight.AllNamespaces, auth.AdminName)
	old := store.Document(id)
	put := &flight.PutDocument{ID: id, Actor: cfg.Operator.Actor, Reason: cfg.Operator.NewAdminToken}
	switch {
	case cfg.NoCredentials:
		return nil
	case cfg.Operator.NewAdminToken != "" && old != nil:
		put.Expect = old.Version
	case cfg.Operator.NewAdminToken == "" && len(store.Documents(flight.KindToken)) > 0:
		if _, err := os.Stat(cfg.FirstToken.File); cfg.FirstToken.File != "" && err != nil {
			cfg.Logger.Info("first_token_file is unused: this ledger has tokens already", "file", cfg.FirstToken.File)
		}
		return nil
	case cfg.Operator.NewAdminToken == "":
		put.Reason = "the first token of this ledger"
	}
	secret := auth.NewSecret(flight.AllNamespaces)
	switch {
	case cfg.FirstToken.File != "":
		var err error
		if secret, err = storeSecret(cfg.FirstToken.File, secret, store.Header().Deployment, cfg.Operator.NewAdminToken != ""); err != nil {
			return err
		}
	case cfg.FirstToken.Print != nil:
		cfg.FirstToken.Print(secret)
	default:
		return &flight.InvalidError{Field: "first_token_file", Detail: "missing: the first token would be lost; name a file for it"}
	}
	token := &auth.Token{Verbs: auth.AllVerbs, Secrets: []auth.Secret{{SHA256: sha256.Sum256([]byte(secret)), CreatedAt: store.Now()}}}
	put.Body = token.Encode()
	reply, err := store.Propose(ctx, put)
	if err == nil && reply.Decision != flight.DecisionAccepted {
		err = fmt.Errorf("the ledger answered %s", reply.Decision)
	}
	if err != nil {
		return fmt.Errorf("create the token %s: %w", auth.AdminName, err)
	}
	if cfg.FirstToken.File != "" {
		cfg.Logger.Info("the token admin, with all rights in all namespaces, is in first_token_file", "file", cfg.FirstToken.File)
	}
	return nil
}

// deploymentFile is the file that names the deployment of the token in a first-token file.
func deploymentFile(tokenFile string) string { return tokenFile + ".deployment" }

// storeSecret writes a secret to a file that only its owner can read, and returns it. If the file exists and is not to be
// replaced, storeSecret returns the secret in the file: an earlier start has written it and died, or the operator has put
// it there. The error is *flight.InvalidError for a file that cannot be read or written, that others could have written or
// read, whose content is not a secret for all namespaces, or whose secret another deployment uses: its callers would act
// again on this ledger, which does not know their effects.
//
// The deployment is written first, so no crash leaves a used secret without its deployment.
func storeSecret(path, secret, deployment string, replace bool) (string, error) {
	invalid := func(detail string) error { return &flight.InvalidError{Field: "first_token_file", Detail: detail} }
	exists := false
	if !replace {
		text, err := readOwnFile(path)
		switch exists = err == nil; {
		case !exists && !errors.Is(err, fs.ErrNotExist):
			return "", invalid(err.Error())
		case exists:
			secret = strings.TrimSpace(string(text))
			if !auth.WellFormed(secret) || strings.Contains(secret, ".") { // a dot precedes the namespace
				return "", invalid(path + " exists, and its content is not a token for all namespaces; remove the file, or name another one")
			}
			if err := checkTokenUser(path, deployment); err != nil {
				return "", err
			}
		}
	}
	err := writeOwnFile(deploymentFile(path), deployment)
	if err == nil && !exists {
		err = writeOwnFile(path, secret)
	}
	if err != nil {
		return "", err
	}
	return secret, nil
}

// checkTokenUser returns *flight.InvalidError if another deployment than this one uses the token in a first-token file.
func checkTokenUser(path, deployment string) error {
	user, err := os.ReadFile(deploymentFile(path))
	if of := strings.TrimSpace(string(user)); err == nil && of != deployment {
		return &flight.InvalidError{Field: "first_token_file", Detail: fmt.Sprintf("%s has the token of deployment %.40q, and this ledger is another one: open the ledger of that deployment, or remove the file", path, of)}
	}
	return nil
}

// writeOwnFile replaces a file by one that only its owner can read. It returns after the file is durable: the ledger must
// not have a token whose file a power cut removes. The error is *flight.InvalidError.
func writeOwnFile(path, text string) error {
	if err := durable.Replace(path, []byte(text+"\n"), 0o600); err != nil {
		return &flight.InvalidError{Field: "first_token_file", Detail: err.Error()}
	}
	return nil
}

// readOwnFile reads a small file that nobody but this user and root can have written or can read. It checks the file that
// it has opened, so the file cannot be replaced in between.
func readOwnFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0) // a FIFO must not block the start
	if errors.Is(err, syscall.ELOOP) {
		return nil, fmt.Errorf("%s is a symbolic link, as in a mounted Kubernetes secret: copy its target to a file of this user with mode 0600, and name that file", path)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file; remove it, or name another file", path)
	case !ok || stat.Uid != 0 && int64(stat.Uid) != int64(os.Geteuid()):
		return nil, fmt.Errorf("%s belongs to another user, who may know its token: remove it, or name another file", path)
	case info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("%s has mode %04o, so other users may know or have written its token: if you trust its content, run chmod 600 %s; else remove it", path, info.Mode().Perm(), path)
	}
	return io.ReadAll(io.LimitReader(f, 4<<10))
}

// ensureFoundingToken creates the token "admin" of a cluster, whose secret was printed when the cluster was founded, if the
// ledger has no token at all.
func (a *actor) ensureFoundingToken(ctx context.Context) error {
	digest := a.cluster.founding.TokenSHA256
	if a.cfg.NoCredentials || digest == "" || len(a.store.Documents(flight.KindToken)) > 0 {
		return nil
	}
	token := &auth.Token{Verbs: auth.AllVerbs, Secrets: []auth.Secret{{CreatedAt: a.store.Now()}}}
	if n, err := hex.Decode(token.Secrets[0].SHA256[:], []byte(digest)); err != nil || n != sha256.Size {
		return &flight.InvalidError{Field: "cluster", Detail: "founding.json has no SHA-256 of a token"}
	}
	put := &flight.PutDocument{ID: auth.TokenID(flight.AllNamespaces, auth.AdminName), Actor: "founding", Reason: "the first token of this ledger", Body: token.Encode()}
	reply, err := a.store.Propose(ctx, put)
	if err == nil && reply.Decision != flight.DecisionAccepted {
		err = fmt.Errorf("the ledger answered %s", reply.Decision)
	}
	if err != nil {
		return fmt.Errorf("create the token %s: %w", auth.AdminName, err)
	}
	return nil
}
