#!/bin/sh
# Performs one job, as a worker, and stands for the provider, too: it acts once per idempotency key, and writes what it does into "books".
# The exit code says what has happened: 0 done, 3 refused, 75 not done; a worker that is killed leaves the outcome unknown.
input=$(cat)
order=${FLIGHTD_KEY##*/} step=${FLIGHTD_KEY##*#}
order=${order%%#*}

act() { # once per key
	grep -qs "^$IDEMPOTENCY_KEY\$" keys || { echo "$IDEMPOTENCY_KEY" >>keys; echo "$order: $1 $input" >>books; }
}

case $step in
stock)
	act 'reserved'
	if [ "$order" = o-3 ] && [ "$FLIGHTD_ATTEMPT" = 1 ]; then kill -9 $$; fi # the stock is reserved, and nobody hears of it
	echo "{\"reservation\": \"r-$order\"}" ;;
stock.undo)
	act 'released'
	echo '{}' ;;
payment)
	case $input in *expired*) echo '"the card has expired"'; exit 3 ;; esac
	act 'charged'
	echo '{}' ;;
shipment)
	if [ "$FLIGHTD_ATTEMPT" = 1 ]; then echo 'the courier is at lunch' >&2; exit 75; fi
	act 'sent'
	echo '{}' ;;
esac
