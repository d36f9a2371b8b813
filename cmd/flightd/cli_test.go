package main

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/flightd/flightd/cmd/flightd/internal/cli"
)

// flightd runs the program inside the test process, without a server.
func flightd(env map[string]string, args ...string) result {
	var out, errOut bytes.Buffer
	ctx, cancel := context.WithTimeout(context.Background(), 2*limit) // a node that starts by mistake ends
	defer cancel()
	code := run(ctx, cli.Terminal{
		In: strings.NewReader(""), Out: &out, Err: &errOut, Env: func(k string) string { return env[k] },
	}, args)
	return result{args: args, out: out.String(), err: errOut.String(), code: code}
}

func TestCLI_MistakesAreUsageAndSayWhatWasMeant(t *testing.T) {
	for _, test := range []struct {
		args string
		want string
	}{
		{"exce", "did you mean flightd exec?"},
		{"exce --key pay-7 -- true", "did you mean flightd exec?"},
		{"get", "did you mean flightd flights get or flightd sagas get?"},
		{"help ls", "did you mean flightd actions ls or flightd approvals ls or flightd audit ls or flightd doubt ls or flightd flights ls or flightd namespace ls or flightd notify ls or flightd sagas ls or flightd token ls?"},
		{"cert renew", "did you mean flightd cert init DIRECTORY?"},
		{"token rotate billing", "did you mean flightd token create NAME --rotate?"},
		{"flights why", "did you mean flightd why?"},
		{"nonsense --key pay-7", "no command \"nonsense\""},
		{"flights rettry --reason x", "did you mean flightd flights retry?"},
		{"flights lss", "did you mean flightd flights ls?"},
		{"exec --kye pay-7 -- true", "did you mean --key"},
		{"exec --key pay-7 true", "after --"},
		{"exec --key pay-7 --", "after --"},
		{"exec -- true", "--key is required"},
		{"exec --key default/exec/pay-7 -- true", "-n default --key exec/pay-7"},
		{"exec --key billing/exec/pay-7 -- true", "set the namespace with -n: -n billing --key exec/pay-7; in an id write %2F for /"},
		{"exec --key report/2026/03/01 -- true", "in an id write %2F for /"},
		{"exec --key a#b -- true", "--key a#b"},
		{"exec --key a --ttl 1500ms -- true", "whole seconds"},
		{"exec --key a --ttl 1s -- true", "whole seconds from 2s"},
		{"exec -k a --ttl 1s -- true", "whole seconds from 2s"},
		{"--doctor", "did you mean flightd doctor?"},
		{"exec --key a --wait soon -- true", "forever"},
		{"exec --key a --capture 1TB -- true", "48KiB"},
		{"exec --key a --capture 1MiB -- true", "at most 64 KiB"},
		{"exec --key a --recovery verify -- true", "hold, resend"},
		{"exec --key a --failure maybe -- true", "unknown, not_done, refused"},
		{"exec --key a --input /does/not/exist -- true", "/does/not/exist"},
		{"version extra", "no arguments"},
		{"flights get", "a key or an id"},
		{"flights ls --limit 0", "--limit"},
		{"doubt resolve x", "choose one of"},
		{"doubt resolve x --happened --fail", "choose one of"},
		{"doubt resolve x --fail --receipt y", "need --happened"},
		{"doubt resolve x --fail", "--reason is missing"},
		{"doubt resolve x --happened --reason looked --yes", "--no-receipt"},
		{"doubt resolve x --happened --receipt= --reason looked --yes", "--no-receipt"},
		{"doubt resolve x --happened --receipt @/dev/null --reason looked --yes", "--no-receipt"},
		{"doubt resolve x --happened --external-id ch_1 --no-receipt --reason looked --yes", "--no-receipt"},
		{"doubt resolve x --fail --no-receipt --reason looked --yes", "need --happened"},
		{"flights free x", "--reason is missing"},
		{"dev --log-level loud", "debug, info, warn and error"},
		{"dev --log-format xml", "text and json"},
		{"version -o xml", "table, json, yaml and id"},
		{"version -o yml", "did you mean yaml?"},
		{"version -o JSON", "table, json, yaml and id"},
		{"version --outputt json", "did you mean --output?"},
		{"version -n a/b", "--namespace a/b"},
		{"version --server ,", "no server is named"},
		{"exec --key a --recovery hols -- true", "did you mean hold?"},
		{"doctr", "did you mean flightd doctor?"},
		{"config shwo", "did you mean flightd config show?"},
		{"completion bahs", "did you mean flightd completion bash?"},
		{"help doctr", "did you mean flightd doctor?"},
		{"redact --help", "no command \"redact\""},
		{"flights shw -h", "no command \"shw\""},
		{"exec --key a --ttl 5 -- true", "--ttl 5: a duration, such as 20s"},
		{"flights ls --limit many", "--limit many: a whole number"},
		{"exec --key a --recovery verify -- true", "--recovery verify: \"verify\" is not one of"},
		{"why", "see flightd why --help"},
	} {
		r := flightd(map[string]string{"FLIGHTD_ADDR": "127.0.0.1:1"}, strings.Fields(test.args)...).want(t, cli.ExitUsage, "", test.want)
		require.Empty(t, r.out, "%s: %v", test.args, r)
	}
}

func TestCLI_Version(t *testing.T) {
	r := flightd(nil, "version")
	require.Equal(t, 0, r.code, "version: %v", r)
	require.NotEmpty(t, strings.TrimSpace(r.out), "version: %v", r)
	require.Equal(t, r.out, flightd(nil, "--version").out)
	r = flightd(nil, "--version", "-o", "json")
	require.Equal(t, r.out, flightd(nil, "version", "-o", "json").out)
	r = flightd(nil, "version", "-o", "json")
	require.Contains(t, r.out, `"version": `, "version -o json: %v", r)
	r = flightd(nil, "version", "-o", "yaml")
	require.Contains(t, r.out, "version: ", "version -o yaml: %v", r)
	require.NotContains(t, r.out, "{", "version -o yaml: %v", r)
}
