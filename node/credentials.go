package node

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/auth"
)

// ensureAdminToken creates the token "admin", which has all verbs in all namespaces, if the ledger has no token at all. If
// the operator has given a reason in Config.NewAdminToken, ensureAdminToken replaces that token.
//
// Crash safety: the secret is written or printed before the ledger has it. If the process dies between the two, the next
// start finds no token: it prints another secret, or registers the one in FirstTokenFile.
func (n *node) ensureAdminToken(ctx context.Context) error {
	id := auth.TokenID(flight.AllNamespaces, auth.AdminName)
	old := n.store.Document(id)
	put := &flight.PutDocument{ID: id, Actor: n.cfg.Actor, Reason: n.cfg.NewAdminToken}
	switch {
	case n.cfg.NoCredentials:
		return nil
	case n.cfg.NewAdminToken != "" && old != nil:
		put.Expect = old.Version
	case n.cfg.NewAdminToken == "" && len(n.store.Documents(flight.KindToken)) > 0:
		if _, err := os.Stat(n.cfg.FirstTokenFile); n.cfg.FirstTokenFile != "" && err != nil {
			n.cfg.Logger.Info("first_token_file is unused: this ledger has tokens already", "file", n.cfg.FirstTokenFile)
		}
		return nil
	case n.cfg.NewAdminToken == "":
		put.Reason = "the first token of this ledger"
	}
	secret := auth.NewSecret(flight.AllNamespaces)
	switch {
	case n.cfg.FirstTokenFile != "":
		var err error
		if secret, err = storeSecret(n.cfg.FirstTokenFile, secret, n.cfg.NewAdminToken != ""); err != nil {
			return err
		}
	case n.cfg.FirstToken != nil:
		n.cfg.FirstToken(secret)
	default:
		return &flight.InvalidError{Field: "first_token_file", Detail: "missing: the first token would be lost; name a file for it"}
	}
	token := &auth.Token{Verbs: auth.AllVerbs, Secrets: []auth.Secret{{SHA256: sha256.Sum256([]byte(secret)), CreatedAt: n.store.Now()}}}
	put.Body = token.Encode()
	reply, err := n.store.Propose(ctx, put)
	if err == nil && reply.Decision != flight.DecisionAccepted {
		err = fmt.Errorf("the ledger answered %s", reply.Decision)
	}
	if err != nil {
		return fmt.Errorf("create the token %s: %w", auth.AdminName, err)
	}
	if n.cfg.FirstTokenFile != "" {
		n.cfg.Logger.Info("the token admin, with all rights in all namespaces, is in first_token_file", "file", n.cfg.FirstTokenFile)
	}
	return nil
}

// storeSecret writes a secret to a file that only its owner can read, and returns it. If the file exists and is not to be
// replaced, storeSecret returns the secret in the file: an earlier start has written it and died, or the operator has put
// it there. The error is *flight.InvalidError for a file that cannot be read or written, or whose content is not a secret.
func storeSecret(path, secret string, replace bool) (string, error) {
	invalid := func(detail string) error { return &flight.InvalidError{Field: "first_token_file", Detail: detail} }
	text, err := os.ReadFile(path)
	switch {
	case replace:
	case err == nil:
		if secret = strings.TrimSpace(string(text)); !auth.WellFormed(secret) {
			return "", invalid(path + " exists, and its content is not a token; remove the file, or name another one")
		}
		return secret, nil
	case !errors.Is(err, fs.ErrNotExist):
		return "", invalid(err.Error())
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".flightd-token-") // its mode is 0600
	if err != nil {
		return "", invalid(err.Error())
	}
	_, err = f.WriteString(secret + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return "", errors.Join(invalid(err.Error()), os.Remove(f.Name()))
	}
	if err := syncDir(filepath.Dir(path)); err != nil { // the ledger must not have a token whose file a power cut removes
		return "", invalid(err.Error())
	}
	return secret, nil
}
