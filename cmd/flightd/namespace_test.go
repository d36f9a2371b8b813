package main

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/flightd/flightd/flight"
	"github.com/flightd/flightd/httpapi"
	"github.com/flightd/flightd/httpapi/httpapitest"
)

// TestListsAreOfTheNamespace: what the settings say of the namespace counts for lists as for keys, and -A is about all.
func TestListsAreOfTheNamespace(t *testing.T) {
	world := httpapitest.New(t)
	for _, key := range []string{"default/charge/1", "billing/charge/2"} {
		world.Apply(t, &flight.Submit{Key: flight.MustKey(key)})
	}
	server := httptest.NewServer(httpapi.New(world.Config()))
	defer server.Close()
	for _, test := range []struct{ flags, here, notHere string }{
		{"", "default/charge/1", "billing/charge/2"},
		{"-n default", "default/charge/1", "billing/charge/2"},
		{"-n billing", "billing/charge/2", "default/charge/1"},
		{"-A", "billing/charge/2", ""},
		{"--all-namespaces -n billing", "default/charge/1", ""},
	} {
		for _, command := range []string{"flights ls", "tail --no-follow", "tail --no-follow --after 0.0"} {
			env := map[string]string{"FLIGHTD_ADDR": server.URL, "XDG_STATE_HOME": t.TempDir()}
			r := cli(env, strings.Fields(command+" "+test.flags)...)
			if r.code != 0 || !strings.Contains(r.out, test.here) || test.notHere != "" && strings.Contains(r.out, test.notHere) {
				t.Errorf("%s %s: %v", command, test.flags, r)
			}
		}
	}
	env := map[string]string{"FLIGHTD_ADDR": server.URL, "XDG_STATE_HOME": t.TempDir()}
	if r := cli(env, "__complete", "why", "bil"); !strings.Contains(r.out, "billing/charge/2") {
		t.Errorf("a full key is completed wherever it is: %v", r)
	}
	for _, command := range []string{"flights ls", "tail"} {
		if r := cli(env, strings.Fields(command+" --prefix billing/")...); r.code != exitUsage || !strings.Contains(r.err, "-A") {
			t.Errorf("%s of a prefix of another namespace: %v", command, r)
		}
	}
}

// TestAnEmptyListSaysSo: a heading alone leaves a person to guess whether something went wrong, or was looked for in
// the wrong place. What programs read stays as it is.
func TestAnEmptyListSaysSo(t *testing.T) {
	world := httpapitest.New(t)
	world.Apply(t, &flight.Submit{Key: flight.MustKey("billing/charge/2")})
	server := httptest.NewServer(httpapi.New(world.Config()))
	defer server.Close()
	env := map[string]string{"FLIGHTD_ADDR": server.URL, "XDG_STATE_HOME": t.TempDir()}
	for command, says := range map[string]string{
		"flights ls":           "no flights in namespace default; -A looks in all",
		"doubt ls":             "no doubts in namespace default; -A looks in all",
		"doubt ls -A":          "no doubts",
		"tail --no-follow":     "no events in namespace default; -A looks in all",
		"flights ls -o json":   "",
		"doubt ls -o id":       "",
		"tail --no-follow -A":  "",
		"flights ls -n nobody": "namespace nobody",
	} {
		r := cli(env, strings.Fields(command)...)
		if r.code != 0 || !strings.Contains(r.err, says) || says == "" && r.err != "" || says == "no doubts" && strings.Contains(r.err, "-A") {
			t.Errorf("%s: %v", command, r)
		}
	}
}
