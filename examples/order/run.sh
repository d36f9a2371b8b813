#!/bin/sh
# Places three orders, of which one is declined, one loses a worker, and all meet a courier at lunch. Then it prints the books.
#
#     make build && PATH="$PWD/bin:$PATH" sh examples/order/run.sh
#
# It runs a flightd dev of its own; set FLIGHTD_ADDR to use yours. There the same orders are the same runs: a second time nothing happens.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d)
cd "$folder"
processes=
end() {
	for process in $processes; do kill "$process" && wait "$process" || true; done
	rm -r "$folder"
}
trap end EXIT

if [ -z "${FLIGHTD_ADDR:-}" ]; then
	flightd dev --data data --listen 127.0.0.1:0 >address 2>dev.log &
	processes=$!
	until grep -qs http address; do sleep 0.1; done
	FLIGHTD_ADDR=$(head -n 1 address)
	export FLIGHTD_ADDR
fi
flightd sagas apply "$here/order.yaml"
flightd work stock.reserve stock.release payment.charge shipment.send --failure refused --not-done-exit 75 -- sh "$here/shop.sh" 2>work.log &
processes="$! $processes"

touch books
order() {
	flightd sagas start order --id "$1" --input "$2" --wait forever || echo "exit code $?"
	echo
}
order o-1 '{"item": "lamp", "card": "valid"}'
order o-2 '{"item": "chair", "card": "expired"}'
order o-3 '{"item": "sofa", "card": "valid"}'
cat books
