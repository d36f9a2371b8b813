package node

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A leader that etcd does not answer, or whose disk is full, leaves to a node that is fit, after unfitTimeout, and not again at once.
func TestFitness(t *testing.T) {
	began := time.Unix(1_800_000_000, 0)
	at := func(d time.Duration) time.Time { return began.Add(d) }
	candidates := func(now time.Time) map[string]*view {
		return map[string]*view{
			"behind": {status: status{EtcdOK: true, DiskOK: true, Applied: 10}, sent: now},
			"fit":    {status: status{EtcdOK: true, DiskOK: true, Applied: 5000}, sent: now},
			"blind":  {status: status{DiskOK: true, Applied: 6000}, sent: now},
			"full":   {status: status{EtcdOK: true, Applied: 6000}, sent: now},
			"old":    {status: status{EtcdOK: true, DiskOK: true, Applied: 6000}, sent: now.Add(-time.Minute)},
			"silent": {status: status{EtcdOK: true, DiskOK: true, Applied: 6000}, sent: now, err: errors.New("no answer")},
		}
	}
	w := new(fitness)
	ask := func(d time.Duration, answers, leads bool) string {
		return w.successor(at(d), &status{EtcdOK: answers, DiskOK: true, Applied: 5500}, leads, candidates(at(d)))
	}
	require.Empty(t, ask(0, true, true))
	require.Empty(t, ask(2*time.Second, false, true), "the time-out has not passed")
	require.Empty(t, ask(4*time.Second, false, false), "a follower leaves nothing")
	require.Equal(t, "fit", ask(4*time.Second, false, true))
	require.Empty(t, ask(10*time.Second, false, true), "it was handed over a moment ago")
	require.Equal(t, "fit", ask(40*time.Second, false, true))
	require.Empty(t, ask(80*time.Second, true, true), "it is fit again")
	require.Empty(t, w.successor(at(90*time.Second), &status{DiskOK: true, Applied: 5500}, true, nil), "nobody is better off")
}

// A leader with a damaged disk leaves to a node whose disk is whole. One that cannot take new work leaves also to a node with a damaged
// disk, if no other is fit.
func TestFitness_DamagedDisk(t *testing.T) {
	began := time.Unix(1_800_000_000, 0)
	whole, damaged := status{EtcdOK: true, DiskOK: true, Applied: 5000}, status{EtcdOK: true, DiskOK: true, Damaged: true, Applied: 5500}
	full, fullAndDamaged := status{EtcdOK: true, Applied: 5500}, status{EtcdOK: true, Damaged: true, Applied: 5500}
	for name, test := range map[string]struct {
		own  status
		b, c status
		want string
	}{
		"damaged, one is whole":     {damaged, damaged, whole, "c"},
		"damaged, none is whole":    {damaged, damaged, damaged, ""},
		"full, one is whole":        {full, damaged, whole, "c"},
		"full, none is whole":       {full, damaged, full, "b"},
		"full and damaged, as both": {fullAndDamaged, damaged, fullAndDamaged, "b"},
	} {
		f, now := fitness{lastFit: began}, began.Add(unfitTimeout)
		require.Equal(t, test.want, f.successor(now, &test.own, true, map[string]*view{"b": {status: test.b, sent: now}, "c": {status: test.c, sent: now}}), name)
	}
}
