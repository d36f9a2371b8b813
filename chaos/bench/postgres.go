package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// postgres is a hand-written ledger: a row with a unique key is inserted as pending before the effect and updated to
// done after it, in two transactions, with fsync on.
type postgres struct{ pool *pgxpool.Pool }

func openPostgres(ctx context.Context, dsn string) (*postgres, error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	const connections = 64 // more connections would only wait for the same disk
	cfg.MaxConns = connections
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	var fsync, commit string
	err = errors.Join(
		pool.QueryRow(ctx, "show fsync").Scan(&fsync),
		pool.QueryRow(ctx, "show synchronous_commit").Scan(&commit))
	if err == nil && (fsync != "on" || commit != "on") {
		err = fmt.Errorf("fsync is %s and synchronous_commit is %s: both must be on", fsync, commit)
	}
	if err == nil {
		_, err = pool.Exec(ctx, `drop table if exists flightd_bench; create table flightd_bench (
			workflow text not null, key text not null, fingerprint text not null, status text not null, result jsonb,
			created_at timestamptz not null default now(), done_at timestamptz, primary key (workflow, key))`, pgx.QueryExecModeSimpleProtocol)
	}
	if err != nil {
		pool.Close()
		return nil, fmt.Errorf("postgres: %w", err)
	}
	return &postgres{pool}, nil
}

func (p *postgres) close() {
	_, _ = p.pool.Exec(context.Background(), "drop table if exists flightd_bench")
	p.pool.Close()
}

func (p *postgres) once(ctx context.Context, n uint64) error {
	key := fmt.Sprintf("order-%d", n)
	claimed, err := p.pool.Exec(ctx, `insert into flightd_bench (workflow, key, fingerprint, status) values ('charge', $1, $2, 'pending')
		on conflict do nothing`, key, "sha256:0")
	if err != nil {
		return err
	}
	if claimed.RowsAffected() != 1 {
		return fmt.Errorf("%s: the key was used before", key)
	}
	_, err = p.pool.Exec(ctx, `update flightd_bench set status = 'done', result = $2, done_at = now() where workflow = 'charge' and key = $1`,
		key, `{"ok":true}`)
	return err
}
