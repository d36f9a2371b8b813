package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/internal/durable"
)

// NoLedgerError is returned when the data directory has no ledger and Run must not create one: in a directory that was
// named by mistake, an empty ledger would let every effect happen again.
type NoLedgerError struct {
	Dir    string
	Absent bool     // there is no such directory
	Found  []string // names in the directory
}

func (e *NoLedgerError) Error() string {
	switch {
	case e.Absent:
		return "the data directory " + e.Dir + " does not exist"
	case len(e.Found) == 0:
		return "the data directory " + e.Dir + " is empty"
	}
	return fmt.Sprintf("the data directory %s has no ledger, but %s", e.Dir, someOf(e.Found))
}

// NotEmptyError is returned by Init when something is in the data directory.
type NotEmptyError struct {
	Dir   string
	Found []string
}

func (e *NotEmptyError) Error() string {
	return fmt.Sprintf("the data directory %s is not empty: it has %s", e.Dir, someOf(e.Found))
}

func someOf(names []string) string {
	const most = 5
	if len(names) > most {
		names = append(slices.Clone(names[:most]), "more")
	}
	return strings.Join(names, ", ")
}

// WrongDeploymentError is returned when the ledger is not that of Config.Deployment.
type WrongDeploymentError struct {
	Dir, Deployment string // the ledger's
	Want            string // Config.Deployment
}

func (e *WrongDeploymentError) Error() string {
	return fmt.Sprintf("the ledger in %s belongs to deployment %s, not to %s", e.Dir, e.Deployment, e.Want)
}

// Init creates the ledger of a new deployment and its token "admin", and returns the id of the deployment. It serves
// nobody, and uses neither addresses nor certificates of cfg. Errors: *NotEmptyError, *LockedError, *flight.InvalidError, or
// those of the file system.
//
// If the process dies before Init has returned, the directory either has a ledger, and Run continues with the step that is
// missing, or it has none, and Init accepts it again.
func Init(ctx context.Context, cfg Config) (deployment string, err error) {
	cfg.Listen = Listen{}
	n, err := newNode(cfg)
	if err != nil {
		return "", err
	}
	if n.cfg.Deployment != "" {
		return "", &flight.InvalidError{Field: "deployment", Detail: "a new ledger is a new deployment, and cannot be " + n.cfg.Deployment}
	}
	if deployment, err = n.create(ctx); err != nil {
		deployment = ""
	}
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	return deployment, errors.Join(err, n.parts.wait(canceled))
}

func (n *node) create(ctx context.Context) (deployment string, err error) {
	hasLedger, found, err := n.cfg.inspectData()
	switch {
	case err != nil:
		return "", err
	case hasLedger || len(found) > 0:
		return "", &NotEmptyError{Dir: n.cfg.Data, Found: found}
	}
	if err := n.cfg.checkFirstTokenFile(); err != nil {
		return "", err
	}
	if err := n.lock(); err != nil {
		return "", err
	}
	if err := n.openStores(ctx); err != nil {
		return "", err
	}
	return n.store.Header().Deployment, ensureAdminToken(ctx, &n.cfg, n.store)
}

// checkFirstTokenFile returns *flight.InvalidError if the first token cannot be stored, before there is a ledger without it.
func (c *Config) checkFirstTokenFile() error {
	path := c.FirstToken.File
	if path == "" {
		return nil
	}
	_, err := readOwnFile(path)
	if err == nil {
		return checkTokenUser(path, "none yet")
	}
	if errors.Is(err, fs.ErrNotExist) {
		if _, err = os.Stat(filepath.Dir(path)); errors.Is(err, fs.ErrNotExist) {
			var dir string
			if dir, err = filepath.Abs(filepath.Dir(path)); dir != c.Data { // which is created
				err = fmt.Errorf("the directory %s does not exist", dir)
			}
		}
	}
	if err != nil {
		err = &flight.InvalidError{Field: "first_token_file", Detail: err.Error()}
	}
	return err
}

// checkLedgerExists returns *NoLedgerError if the data directory has no ledger, unless a developer's node may create it.
// It changes nothing.
func (c *Config) checkLedgerExists() error {
	hasLedger, found, err := c.inspectData()
	if err != nil || hasLedger || c.NoCredentials && c.Deployment == "" || c.Cluster != "" { // the nodes of a cluster found their ledger together
		return err
	}
	_, err = os.Stat(c.Data)
	return &NoLedgerError{Dir: c.Data, Absent: errors.Is(err, fs.ErrNotExist), Found: found}
}

// inspectData makes Config.Data absolute, and reports whether the directory has a ledger, and the names in it. It omits the
// first token, and the files that a start leaves if it ends before there is a ledger. A directory that cannot be read
// counts as one with a ledger: opening it returns the error.
func (c *Config) inspectData() (has bool, found []string, err error) {
	if c.Data, err = filepath.Abs(c.Data); err != nil {
		return false, nil, err
	}
	has, err = hasLedger(c.Data)
	has = has || err != nil
	_, etcdErr := os.Stat(filepath.Join(c.etcdDir(), startingName))
	all, err := os.ReadDir(c.Data)
	for _, f := range all {
		switch name := f.Name(); {
		case name == lockName, strings.HasPrefix(name, durable.TempPrefix):
		case name == "lost+found": // is in every new ext4 volume
		case name == "ledger" && !has, name == "etcd" && etcdErr == nil:
		case c.isInData(name, c.FirstToken.File), c.isInData(name, deploymentFile(c.FirstToken.File)):
		default:
			found = append(found, name)
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return has, found, err
}

// isInData reports whether a path leads to the file of that name in the data directory.
func (c *Config) isInData(name, path string) bool {
	here, err := os.Stat(filepath.Join(c.Data, name))
	there, otherErr := os.Stat(path)
	return err == nil && otherErr == nil && os.SameFile(here, there)
}

// checkDeployment returns *WrongDeploymentError if the ledger is not that of Config.Deployment.
func (n *node) checkDeployment() error {
	have := n.store.Header().Deployment
	if n.cfg.Deployment == "" || n.cfg.Deployment == have {
		return nil
	}
	return &WrongDeploymentError{Dir: n.cfg.Data, Deployment: have, Want: n.cfg.Deployment}
}
