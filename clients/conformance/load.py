"""Callers of chaos/cluster in Python: the order "load" of callers.go, whose settings, orders and events it shares. With
FLIGHTD_CHAOS_WORKER set to a name it is a worker, as workers.go has it."""

import datetime
import http.client
import json
import os
import random
import sys
import threading
import time
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
import flightd  # noqa: E402
import pauses  # noqa: E402

RECOVERIES = ("hold", "resend", "verify")
settings = json.loads(os.environ["FLIGHTD_CHAOS_CALLERS"])
print_lock = threading.Lock()


def say(event):
    with print_lock:
        print(json.dumps(event), flush=True)


def clock():
    return datetime.datetime.now(datetime.timezone.utc).isoformat()


def ask_provider(method, path, body=None, headers=None):
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(settings["Provider"]).netloc, timeout=120)
    try:
        connection.request(method, path, body, {"User-Agent": "python", **(headers or {})})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def look_up(f):
    status, body = ask_provider("GET", "/effects?key=" + urllib.parse.quote(f.key, safe=""))
    if status == 404:
        return flightd.NotHappened()
    flightd.raise_for_status(status, method="GET")
    return flightd.Happened(body)


def act(f, lasts_ms):
    status, body = ask_provider("POST", "/effects", json.dumps({"key": f.key, "lasts_ms": lasts_ms}), f.headers)
    flightd.raise_for_status(status, method="POST")
    f.content_type = "application/json"
    return body


def call(client, recovery, name, key, lasts_ms, told):
    """Performs the effect of a key at most once, and adds to told what flightd answered."""
    policy = {"resend": {"provider_window": settings["WindowMS"] / 1000},
              "verify": {"settle": settings["SettleMS"] / 1000, "look_up": look_up}}.get(recovery, {})
    with client.once(recovery, name, {"key": key, "lasts_ms": 0}, recovery=recovery, **policy) as f:
        with f.effect():
            body = f.result = act(f, lasts_ms)
    body = body if f.source == "executed" else f.body()
    told.update(Source=f.source, Attempt=f.attempt, Body=body.decode(), Digest=f.receipt.digest)


def result_of(e):
    if isinstance(e, flightd.InDoubt):
        return "in_doubt"
    if isinstance(e, flightd.Unrecorded):
        return "unrecorded"
    if isinstance(e, flightd.Fenced):
        return "fenced"
    if isinstance(e, flightd.Unsettled) and e.outcome != "not_done":
        return "unsettled"
    safe = (flightd.Busy, flightd.Unavailable, flightd.LeaseLost)
    return "unavailable" if isinstance(e, safe) or getattr(e, "outcome", "") == "not_done" else "other"


def call_until_end(client, caller, recovery, name, lasts_ms):
    """Calls a key until there is an answer that another call would not change."""
    key, until = f"default/{recovery}/{name}", time.monotonic() + 180
    while True:
        told = {"Key": key, "Caller": caller, "Lasts": lasts_ms * 1_000_000, "Began": clock(), "Result": "succeeded"}
        try:
            call(client, recovery, name, key, lasts_ms, told)
        except Exception as e:
            told.update(Result=result_of(e), Err=f"{type(e).__name__}: {e}")
        told["Ended"] = clock()
        say({"Call": told})
        if told["Result"] not in ("unavailable", "unrecorded", "unsettled", "fenced") or time.monotonic() > until:
            return
        time.sleep(0.1)


def load(order, client, caller, stop):
    dice = random.Random(f"{settings['Seed']} {caller}")
    for step in range(order["MaxKeys"]):
        recovery, name = dice.choice(RECOVERIES), f"{order['Name']}-{caller}-{step}"
        if step % 4 == 3:
            recovery, name = RECOVERIES[step // 4 % 3], f"{order['Name']}-shared-{caller // 4}-{step}"
        lasts_ms = dice.randrange(20)
        if order["LongOneIn"] and dice.randrange(order["LongOneIn"]) == 0:
            lasts_ms = order["Lasts"] // 1_000_000
        call_until_end(client, f"{order['Name']}{caller}", recovery, name, lasts_ms)
        if stop.wait(dice.uniform(0.5, 1.5) * order["Every"] / 1e9):
            return


def close(clients):
    """Closes clients that share one folder, which has no report afterwards."""
    until = time.monotonic() + 20
    while clients[0].spooled() and time.monotonic() < until:
        time.sleep(0.1)
    for client in clients:
        client.close()


def carry_out(order, clients, stop):
    if order["Do"] == "load":
        mine = range(settings["Part"], order["Callers"], settings["Parts"])
        threads = [threading.Thread(target=load, args=(order, clients[i % len(clients)], i, stop)) for i in mine]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if order["Do"] == "close":
        close(clients)
    say({"Done": order["Name"]})


def work(name):
    """Performs jobs until SIGTERM."""
    client = flightd.Client(",".join(settings["URLs"]), token=settings["Token"], owner=name, spool=f"{settings['Spool']}/{name}",
                            ttl=settings["SessionMS"] // 1000)
    for recovery in RECOVERIES:
        client.worker(recovery, look_up=look_up if recovery == "verify" else None)(lambda job, order: act(job, order["lasts_ms"]))
    print("ready", flush=True)
    client.run(concurrency=8)
    close([client])


def main():
    clients = [flightd.Client(addresses, token=settings["Token"], owner=f"python-{i}", spool=settings["Spool"] + "/python")
               for i, addresses in enumerate(settings["Addresses"])]
    say({"Done": "connected"})
    stops = {}
    for text in sys.stdin:
        order = json.loads(text)
        stop = stops.setdefault(order["Name"], threading.Event())
        if order["Do"] == "stop":
            stop.set()
        else:
            threading.Thread(target=carry_out, args=(order, clients, stop), daemon=True).start()


pauses.start(flightd.__file__)
if os.environ.get("FLIGHTD_CHAOS_WORKER"):
    work(os.environ["FLIGHTD_CHAOS_WORKER"])
else:
    main()
