"""The conformance driver of the Python client: it reads calls from stdin and prints the answers. See doc.go."""

import base64
import json
import os
import signal
import sys
import threading
import urllib.error
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
import flightd  # noqa: E402
import odd  # noqa: E402
import pauses  # noqa: E402

print_lock = threading.Lock()


class CallerError(Exception):
    """An error of the caller's own code."""


def print_line(line):
    with print_lock:
        print(json.dumps(line), flush=True)


def http(url, body=None, headers=None):
    request = urllib.request.Request(url, data=body, headers=headers or {})
    method = request.get_method()
    try:
        answer = urllib.request.urlopen(request, timeout=120)
    except urllib.error.HTTPError as e:
        answer = e
    with answer:
        text = answer.read().decode()
        flightd.raise_for_status(answer.status, text, method=method, redirects=answer.geturl() != url)
        return json.loads(text or "null")


def look_up_at(url):
    def look_up(f):
        found = http(url)
        if found["happened"]:
            return flightd.Happened(found["value"], found["value"]["id"])
        return flightd.NotHappened()
    return look_up if url else None


def seconds(call, name):
    return None if call.get(name) is None else call[name] / 1000


def perform(client, f, call):
    if call.get("unrun"):
        f.result = (http(url) for url in [call["effect"]])
        return
    f.result = http(call["effect"], json.dumps(f.input).encode(), f.headers)
    f.external_id = f.result["id"]
    if call.get("inner"):
        with client.once(call["name"], call["inner"]) as g:
            with g.effect():
                raise flightd.NotDone("the inner flight")


def act_after_block(client, f, call):
    """Tries the effect after the block has ended, in a thread that the block started."""
    http(call["before"])
    try:
        with f.effect():
            perform(client, f, call)
    finally:
        http(call["leave_behind"])


def work(client, effect, look):
    """Performs the jobs of the action charge."""
    @client.worker("charge", look_up=look_up_at(look))
    def charge(job, order):
        charged = http(effect, json.dumps(order).encode(), job.headers)
        job.external_id = charged["id"]
        return charged

    def run():
        try:
            client.run(concurrency=8)
        except flightd.Error as e:
            print(f"the worker has ended: {code_of(e)}: {e}", file=sys.stderr, flush=True)
    threading.Thread(target=run, daemon=True).start()
    signal.signal(signal.SIGTERM, lambda *_: client.stop())  # run does that by itself in the main thread


def submit(client, call):
    """Submits a job several times, and waits for its end."""
    policy = {"recovery": call.get("recovery") or "hold"}
    if call.get("provider_window_ms"):
        policy["window"] = seconds(call, "provider_window_ms")
    if call.get("settle_ms"):
        policy["settle"] = seconds(call, "settle_ms")
    said = [client.submit(call["name"], call["id"], call.get("input"), **policy).status for _ in range(call["submit"])]
    return {"source": " ".join(said), "value": client.wait(call["name"], call["id"])}


def submit_all(client, call):
    """Submits jobs in a batch, and tells how many are queued."""
    jobs = ((f"{call['id']}-{i}", call.get("input")) for i in range(call["submit_all"]))
    return {"source": f"queued {client.submit_all(call['name'], jobs)['queued']}"}


def once(client, call):
    if call.get("entrance"):
        return odd.answer(client, call)
    if call.get("close"):
        client.close()
        return {"source": "closed"}
    if call.get("submit_all"):
        return submit_all(client, call)
    if call.get("submit"):
        return submit(client, call)
    flight = client.once(
        call["name"], call["id"], call.get("input"), recovery=call.get("recovery") or "hold",
        look_up=look_up_at(call.get("look")), wait=seconds(call, "wait_ms"), settle=seconds(call, "settle_ms"),
        attempt_timeout=seconds(call, "attempt_timeout_ms"), provider_window=seconds(call, "provider_window_ms"))
    with flight as f:
        if call.get("leave_behind"):
            threading.Thread(target=act_after_block, args=(client, f, call), daemon=True).start()
            raise CallerError("before the effect")
        if not f.replayed and call.get("before"):
            http(call["before"])
        if not f.replayed and call.get("throw_before"):
            raise CallerError("before the effect")
        try:
            with f.effect():
                perform(client, f, call)
        except Exception:
            if call.get("swallow"):
                return {"source": "swallowed"}
            if not call.get("again"):
                raise
            with f.effect():
                perform(client, f, call)
        if call.get("twice"):
            with f.effect():
                perform(client, f, call)
    return {"source": f.source, "value": f.result, "external_id": f.external_id, "attempt": f.attempt,
            "body": base64.b64encode(f.body()).decode()}


def code_of(e):
    if isinstance(e, flightd.Declined):
        return "declined"
    if isinstance(e, flightd.Unsettled):
        return e.outcome
    if isinstance(e, flightd.Unavailable):
        return "unavailable"
    return e.code if isinstance(e, flightd.Error) else "not_done" if isinstance(e, CallerError) else type(e).__name__


def run(client, call, caller):
    line = {"call": call["call"], "caller": caller}
    try:
        line.update(once(client, call))
    except Exception as e:
        line.update(error=code_of(e), detail=str(e))
        if isinstance(e, flightd.Declined):
            line["value"] = e.receipt.value
        if isinstance(e, flightd.Conflict):
            line["value"] = e.fields
    print_line(line)


def main():
    setup = json.loads(sys.stdin.readline())
    client = flightd.Client(setup["address"], ttl=setup.get("ttl_s"), spool=setup["spool"],
                            retry_timeout=setup["retry_timeout_ms"] / 1000,
                            report_wait=setup["report_wait_ms"] / 1000)
    if setup.get("work"):
        work(client, setup["work"], setup.get("look"))
    for text in sys.stdin:
        call = json.loads(text)
        for caller in range(call["callers"]):
            threading.Thread(target=run, args=(client, call, caller), daemon=True).start()
    client.close()


pauses.start(flightd.__file__)
main()
