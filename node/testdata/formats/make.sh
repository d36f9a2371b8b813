#!/usr/bin/env bash
# Records a data directory as one build of flightd writes it, and what that build says of its flights:
#
#   node/testdata/formats/make.sh bin/flightd level-2
#
# A new feature level gets a new pair of files, once; older pairs are never written again. Level 1 was recorded with the
# commit before documents. It needs curl, python3 and the port 17420.
set -euo pipefail
flightd=$(realpath "$1") name=$2 out=$(dirname "$(realpath "$0")") dir=$(mktemp -d)
export HOME=$dir XDG_STATE_HOME=$dir/state FLIGHTD_ADDR=127.0.0.1:17420 api=http://127.0.0.1:17420
[[ "$name" > level-5 ]] && export OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:9 # attempts store their traces; nobody receives the spans
start() {
	"$flightd" dev --data "$dir/data" --listen 127.0.0.1:17420 >"$dir/out" 2>"$dir/err" &
	server=$!
	until curl -sf $api/readyz >/dev/null; do sleep 0.1; done
}
trap 'kill -9 $server 2>/dev/null || true; rm -rf "$dir"' EXIT
start
run() { "$flightd" "$@" >>"$dir/log" 2>&1 || echo "exit $?: $*" >>"$dir/log"; }
post() { curl -s -H 'Content-Type: application/json' "$api$1" -d "$2"; }
field() { python3 -c 'import json,sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$dir/$1" "$2"; }
yes="--actor ada --yes --reason"

run exec --key pay/order-1 -- sh -c 'echo paid'
run exec --key pay/order-1 -- sh -c 'echo paid' # a duplicate
run -n other exec --key pay/order-1 -- sh -c 'echo other'
run exec --key pay/big -- sh -c 'head -c 6000 /dev/zero | tr "\0" x'
run exec --key pay/doubt -- sh -c 'exit 3'
run exec --key pay/freed -- true
run flights free pay/freed $yes mistake
run exec --key pay/again -- sh -c 'echo first'
run flights free pay/again $yes again
run exec --key pay/again -- sh -c 'echo first'
run exec --key pay/redacted -- sh -c 'echo secret-bytes'
run flights redact pay/redacted $yes gdpr
run exec --key pay/resolved -- sh -c 'exit 4'
run doubt resolve pay/resolved --did-not-happen $yes looked
run exec --key pay/refused --failure refused -- sh -c 'exit 5'
run exec --key 'pay/caf%C3%A9' -- true
echo '{"key":"default/pay/imported","outcome":"succeeded","external_id":"ch_1"}' | run import - --actor ada
if [[ "$name" > level-4 ]]; then # approvals
	for id in waiting approved rejected late; do
		[ $id = late ] && expiry='"expires_ms":1' || expiry=
		post /v1/flights:submit '{"action":"refund","id":"'$id'","input":{"cents":42},"recovery":"resend","approval":{'$expiry'}}' >>"$dir/log"
	done
	run approvals approve refund/approved $yes checked
	run approvals reject refund/rejected $yes unknown
fi
if [ "$name" != level-1 ] && [ "$name" != level-2 ]; then # the start steps the clock
	kill -9 $server
	wait $server || true
	start
fi
if [ "$name" = level-6 ]; then # a target of notifications that does not answer: port 9 discards
	run notify put oncall --url http://127.0.0.1:9/ --redact 'pay=/amount' --reason golden --actor ada
fi
post /v1/sessions '{"ttl_ms":600000,"owner":"golden"}' >"$dir/session"
post /v1/flights:open '{"action":"pay","id":"open","input":{"amount":3},"nonce":"golden-nonce-000001","session":"'"$(field session session)"'"}' >"$dir/open"
post /v1/flights:open '{"action":"pay","id":"expired","retention":"1s"}' >"$dir/expired"
post "/v1/flights/$(field expired flight_id)/report" '{"fencing_token":"'"$(field expired fencing_token)"'","outcome":"succeeded"}' >>"$dir/log"
if [ "$name" != level-1 ]; then
	run token create worker --namespace billing --verbs submit,read --reason golden --actor ada
	run token create gone --namespace billing --reason golden --actor ada
	run token revoke gone --namespace billing --reason golden --actor ada --yes
	run namespace set billing --max-open 100 --reason golden --actor ada
fi
until curl -s "$api/v1/flights/$(field expired flight_id)" | grep -q '"state":"expired"'; do sleep 1; done

python3 - "$dir" "$out/$name.json" <<'E2'
import json, os, sys, urllib.request
dir, out = sys.argv[1:]
def get(path):
    return json.load(urllib.request.urlopen(urllib.request.Request(os.environ["api"] + path, headers={"Flightd-Namespace": "*"})))
def read(name):
    return json.load(open(dir + "/" + name))
ids = [f["id"] for f in get("/v1/flights?limit=500")["flights"]] + [read("expired")["flight_id"]]
said = {"flights": {i: {"flight": get("/v1/flights/" + i), "history": get("/v1/flights/%s/events" % i)} for i in ids}}
if not out.endswith("level-1.json"):
    said["documents"] = {path: get(path) for path in (("/v1/tokens", "/v1/audit", "/v1/notify") if out.endswith("level-6.json") else ("/v1/tokens", "/v1/audit"))}
for target in said.get("documents", {}).get("/v1/notify", {}).get("targets", []):
    target.pop("failing", None) # another start fails at another time
said["open"] = {k: read("open")[k] for k in ("flight_id", "fencing_token")}
json.dump(said, open(out, "w"), indent=1, sort_keys=True)
E2
run exec --key pay/last -- sh -c 'echo last' # killed before it is in the state
kill -9 $server
tar czf "$out/$name.tar.gz" -C "$dir/data" .
cat "$dir/log"
