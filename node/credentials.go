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

// ensureAdminToken creates the first token, which has all verbs in all namespaces, if the ledger has no token at all; or
// replaces it, if the operator has given a reason in Config.NewAdminToken.
//
// The secret is handed out before the ledger has it. If the process dies between the two, the next start finds no token,
// and hands out another secret, or registers the one in FirstTokenFile.
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
		return nil
	case n.cfg.NewAdminToken == "":
		put.Reason = "the first token of this ledger"
	}
	secret := auth.NewSecret(flight.AllNamespaces)
	if n.cfg.FirstTokenFile == "" {
		n.cfg.FirstToken(secret)
	} else if err := exchangeSecret(n.cfg.FirstTokenFile, &secret, n.cfg.NewAdminToken != ""); err != nil {
		return err
	}
	token := &auth.Token{Verbs: auth.AllVerbs, Secrets: []auth.Secret{{SHA256: sha256.Sum256([]byte(secret)), CreatedAt: n.store.Now()}}}
	put.Body = token.Encode()
	reply, err := n.store.Propose(ctx, put)
	if err == nil && reply.Decision != flight.DecisionAccepted {
		err = fmt.Errorf("the ledger answered %s", reply.Decision)
	}
	if err != nil {
		return fmt.Errorf("create the first token: %w", err)
	}
	return nil
}

// exchangeSecret writes the secret to a file that only its owner can read. If the file exists and is not to be replaced,
// its secret is used instead: an earlier start has written it and died, or the operator has put it there. The error is
// *flight.InvalidError for a file that cannot be read or written, or whose content is not a secret.
func exchangeSecret(path string, secret *string, replace bool) error {
	text, err := os.ReadFile(path)
	switch {
	case replace:
	case err == nil:
		if *secret = strings.TrimSpace(string(text)); !auth.WellFormed(*secret) {
			return &flight.InvalidError{Field: "first_token_file", Detail: path + " exists and does not hold a token"}
		}
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return &flight.InvalidError{Field: "first_token_file", Detail: err.Error()}
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".flightd-token-") // its mode is 0600
	if err != nil {
		return &flight.InvalidError{Field: "first_token_file", Detail: err.Error()}
	}
	_, err = f.WriteString(*secret + "\n")
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(&flight.InvalidError{Field: "first_token_file", Detail: err.Error()}, os.Remove(f.Name()))
	}
	return nil
}
