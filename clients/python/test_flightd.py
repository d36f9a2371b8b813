"""Tests of the Python client. TestOnce needs the server at FLIGHTD_ADDR; the others need none."""

import asyncio
import base64
import collections
import concurrent.futures
import contextlib
import dataclasses
import datetime
import decimal
import enum
import functools
import hashlib
import http.server
import io
import json
import logging
import multiprocessing
import os
import pickle
import re
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
import types
import unittest
import urllib.error
import urllib.request
import uuid
from unittest import mock

import flightd


class Colour(str, enum.Enum):
    RED = "red"


@dataclasses.dataclass(frozen=True)
class Paid:
    id: str
    at: datetime.datetime


@dataclasses.dataclass(frozen=True)
class Purchase:
    colour: Colour
    at: datetime.datetime
    on: datetime.date
    price: decimal.Decimal
    id: uuid.UUID


def echoing(request, answer):
    """Returns the bytes of an answer that repeats the Flightd-Echo of the request."""
    line, _, rest = answer.partition(b"\r\n")
    return rest and line + b"\r\n" + b"".join(re.findall(rb"Flightd-Echo: .*\r\n", request)) + rest


@contextlib.contextmanager
def forwarding(port, address):
    """Forwards requests from a port to the server at the address."""
    class Forward(http.server.BaseHTTPRequestHandler):
        def do(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)) or None
            request = urllib.request.Request(address + self.path, body, dict(self.headers), method=self.command)
            try:
                answer = urllib.request.urlopen(request)
            except urllib.error.HTTPError as e:
                answer = e
            with answer:
                data = answer.read()
                self.send_response_only(answer.status)
                for name, value in answer.headers.items():
                    if name.lower() not in ("content-length", "connection", "transfer-encoding"):
                        self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        do_GET = do_POST = do

        def log_message(self, *_):
            pass
    with http.server.ThreadingHTTPServer(("127.0.0.1", port), Forward) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield
        server.shutdown()


class TestOnce(unittest.TestCase):
    def setUp(self):
        self.id = uuid.uuid4().hex
        self.spool = tempfile.TemporaryDirectory()
        self.addCleanup(self.spool.cleanup)
        self.client = flightd.Client(spool=self.spool.name)
        self.addCleanup(self.client.close)

    def run_once(self, result, **options):
        with self.client.once("test", self.id, **options) as f:
            with f.effect():
                f.result = result
        return f

    def test_the_executor_keeps_its_result_and_duplicates_get_its_json(self):
        for value, want in [
            ({"a": (1, 2.5), 3: None}, {"a": [1, 2.5], "3": None}), ("é\u2028", "é\u2028"), (0, 0), (None, None),
            (b"\x00\xff", b"\x00\xff"), (b"", b""), ([], []), (Colour.RED, "red"), (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
            (decimal.Decimal("19.10"), "19.10"), ({"on": datetime.date(2026, 1, 2)}, {"on": "2026-01-02"}),
            (Paid("ch_1", datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc)), {"id": "ch_1", "at": "2026-01-02T00:00:00+00:00"}),
            (2 ** 53 + 1, 2 ** 53 + 1), ("e\u0301", "e\u0301"), ("\ufeff", "\ufeff"),
        ]:
            with self.subTest(value=value):
                self.id = uuid.uuid4().hex
                first, again = self.run_once(value), self.run_once("something else")
                self.assertEqual((first.source, again.source), ("executed", "replayed"))
                self.assertIs(first.result, value)
                self.assertEqual(again.result, want)
                self.assertEqual(first.body(), again.body())

    def test_an_unwritable_result_does_not_fail_the_effect(self):
        recursive = []
        recursive.append(recursive)
        for value, why in [(object(), "object"), ({"a": [float("nan")]}, "/a/0: JSON cannot hold nan"), (recursive, "/0: it contains itself"),
                           ("\ud800", "surrogate"), ({1: "a", "1": "b"}, "repeats"), ({"b": b"x"}, "/b: JSON cannot hold a bytes"),
                           ({"at": datetime.datetime(2026, 1, 2)}, "/at: the datetime has no time zone"), ({True: 1}, "True"),
                           (decimal.Decimal("Infinity"), "Infinity"), ({1, 2}, "set")]:
            with self.subTest(value=repr(value)):
                self.id = uuid.uuid4().hex
                with self.assertLogs("flightd", "WARNING") as log, self.client.once("test", self.id) as f, f.effect():
                    f.result, f.external_id = value, Colour.RED
                self.assertIs(f.result, value)
                self.assertIn(why, log.output[0])
                self.assertEqual((f.source, f.external_id, f.attempt), ("executed", "red", 1))
                with self.assertRaises(flightd.ReceiptTruncated) as caught:
                    self.run_once(None)
                self.assertEqual(caught.exception.receipt.external_id, "red")
                self.assertIn(why, caught.exception.receipt.value)

    def test_inputs_are_sent_unchanged_or_rejected_with_their_place(self):
        for value, want in [({"c": Colour.RED}, {"c": "red"}), (Paid("1", datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc)),
                                                               {"id": "1", "at": "2026-01-02T00:00:00+00:00"}), ((1, 1.5), [1, 1.5])]:
            with self.client.once("test", uuid.uuid4().hex, value) as f, f.effect():
                f.result = f.input
            self.assertEqual(f.result, want)
            self.client.submit("test-input", f.key.split("/")[2] + "-job", value)
            job = self.client.get("test-input", f.key.split("/")[2] + "-job")["id"]
            self.assertEqual(json.loads(self.client._ask_raw("GET", f"/v1/flights/{job}/input", None, 10.0, None, 0, False)[0]), want)
        for value, why in [({"a": [float("inf")]}, "input: /a/0: JSON cannot hold inf"), ({"b": b"x"}, "input: /b: "), (b"x", "input: JSON cannot hold a bytes"),
                           ({"at": datetime.datetime(2026, 1, 2)}, "input: /at: the datetime has no time zone"), ("\ud800", "input: the text has")]:
            for send in (self.client.once, self.client.submit, lambda *a: self.client.submit_all(a[0], [a[1:]])):
                with self.assertRaisesRegex(ValueError, "^" + why):
                    send("test", "1", value)

    def test_names_are_checked_at_every_entrance(self):
        entrances = [self.client.once, self.client.get, self.client.submit, self.client.wait, lambda n, i: self.client.submit_all(n, [(i, None)])]
        for call in entrances:
            for odd in ("", None, 0, 42, b"x", True):
                with self.assertRaisesRegex(TypeError, "^id: "):
                    call("test", odd)
                with self.assertRaisesRegex(TypeError, "^action: "):
                    call(odd, "1")
            with self.assertRaisesRegex(ValueError, "^id: the text has half"):
                call("test", "\ud800")
        self.assertRaises(TypeError, self.client.worker, None)
        self.assertRaises(TypeError, self.client.submit, "test", "1", lane=0)
        for option in ({"lane_limit": 1.5}, {"priority": float("nan")}, {"retry": True}):
            self.assertRaises(TypeError, self.client.submit, "test", "1", **option)
        self.assertEqual(self.client.submit_all(self.id, [("a", None), (uuid.UUID(int=1), None), (Colour.RED, None)])["queued"], 3)
        with self.client.once(Colour.RED, self.id) as f, f.effect():
            f.result = 1
        self.assertEqual((f.key, f.attempt), (f"default/red/{self.id}", 1))
        self.assertEqual(self.client.get(Colour.RED, self.id)["key"], f.key)
        self.assertEqual(flightd.Client(namespace=Colour.RED).namespace, "red")

    def test_durations_that_are_none_are_rejected(self):
        for odd in (float("nan"), float("inf"), -1, 0.0001, "0.1ms", "x"):
            for option in ("attempt_timeout", "settle", "provider_window"):
                self.assertRaises(ValueError, self.client.once, "test", "1", **{option: odd})
            for option in ("delay", "window", "settle", "timeout"):
                self.assertRaises(ValueError, self.client.submit, "test", "1", **{option: odd})
            self.assertRaises(ValueError, self.client.worker, "test", timeout=odd)
        with self.assertRaisesRegex(ValueError, "run_at: .* with a time zone"):
            self.client.submit("test", "1", run_at=datetime.datetime(2036, 1, 2))
        self.assertEqual((flightd._ms("x", 1.001), flightd._ms("x", "90s"), flightd._ms("x", 0)), (1001, 90_000, 0))

    def test_a_worker_gets_the_dataclass_that_was_submitted(self):
        sent = Purchase(Colour.RED, datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc), datetime.date(2026, 1, 2), decimal.Decimal("19.10"), uuid.UUID(int=1))

        def act(job, order: Purchase):
            pass
        handler = flightd.Handler(self.client, "test", act, None, {})
        self.assertEqual(handler._read(flightd._input(sent)), sent)
        self.assertEqual(handler._read({**flightd._input(sent), "at": "2026-01-02T00:00:00Z"}), sent)
        self.assertRaises(ValueError, handler._read, {**flightd._input(sent), "colour": "blue"})

    def test_the_bytes_of_the_provider_are_the_body(self):
        for kind, body, want in [
            ("application/json", b'{"id": 7615917337495251231,  "price": 19.10}', {"id": 7615917337495251231, "price": 19.1}),
            ("application/json", b"\xef\xbb\xbf[1]", [1]), ("application/json; charset=iso-8859-1", '{"a": "é"}'.encode("latin-1"), {"a": "é"}),
            ("text/plain; charset=latin-1", "é".encode("latin-1"), "é"), ("text/plain; charset=odd", b"x", b"x"), ("text/plain", b"\xff", b"\xff"),
            ("application/json", b'{"a": NaN}', b'{"a": NaN}'), ("application/json", b"[1e400]", [decimal.Decimal("1e400")]),
            ("application/json", b"[" * 20_000 + b"]" * 20_000, None), ("application/json", b'"\\ud800"', "\ud800"), ("application/pdf", b"x", b"x"),
        ]:
            with self.subTest(kind=kind, body=body[:50]):
                self.id = uuid.uuid4().hex
                answer = mock.Mock(spec=["content", "headers", "status_code", "history", "request"], content=body, headers={"Content-Type": kind},
                                   status_code=200, history=[])
                answer.request.method = "POST"
                for value in (answer, flightd.ok(answer)):
                    self.id = uuid.uuid4().hex
                    first = self.run_once(value)
                    self.assertEqual((first.body(), first.receipt.content_type), (body, kind))
                    if want is not None:
                        self.assertEqual(first.result, want)
                        self.assertEqual(self.run_once(None).result, want)
        changed = flightd.ok(answer)
        self.assertIs(type(pickle.loads(pickle.dumps(changed))), bytes)
        answer.content, answer.headers = b'{"id": 1}', {"Content-Type": "application/json"}
        changed, self.id = flightd.ok(answer), uuid.uuid4().hex
        for id in (2, True, 1.0):
            changed["id"], self.id = id, uuid.uuid4().hex
            self.run_once(changed)
            self.assertEqual(repr(self.run_once(None).result), repr({"id": id}))

    def test_a_long_result_is_complete_for_the_executor_and_truncated_for_duplicates(self):
        for content_type, value, kept in (("", "x" * 100_000, b'"' + b"x" * 65_535),
                                          ("text/plain", b"\xc3\xa9" * 50_000, "\u00e9" * 32_768)):
            self.id = uuid.uuid4().hex
            with self.assertLogs("flightd", "WARNING") as log, self.client.once("test", self.id) as first, first.effect():
                first.result, first.content_type, first.external_id = value, content_type, "ch_1"
            self.assertIn("65536 are stored", log.output[0])
            self.assertIs(first.result, value)
            with self.assertRaises(flightd.ReceiptTruncated) as caught:
                self.run_once("")
            receipt = caught.exception.receipt
            self.assertEqual((caught.exception.code, receipt.value, receipt.external_id), ("receipt_truncated", kept, "ch_1"))
            self.assertEqual((receipt.size, receipt.digest), (100_002 if content_type == "" else 100_000, first.receipt.digest))

    def test_work_that_has_not_run_is_never_a_success(self):
        ran = []

        async def act(f):
            ran.append(1)
            return 7

        def lazily(f):
            yield 7

        async def lazily_too(f):
            yield 7
        self.assertEqual(self.client.call("test", self.id, {}, act), 7)
        self.id += "-partial"
        self.assertEqual(self.client.call("test", self.id, {}, functools.partial(act)), 7)
        self.assertEqual(len(ran), 2)
        for wrong in (lazily, lazily_too):
            with self.assertRaisesRegex(TypeError, "is a generator"):
                self.client.call("test", self.id + "-new", {}, wrong)

        async def in_a_loop():
            with self.assertRaisesRegex(TypeError, "asyncio.to_thread"):
                self.client.call("test", self.id + "-new", {}, act)
            with self.assertRaises(flightd.InDoubt):  # the function itself may have sent something
                self.client.call("test", self.id + "-loop", {}, lambda f: act(f))
        asyncio.run(in_a_loop())
        self.assertIsNone(self.client.get("test", self.id + "-new"))
        cyclic = []
        cyclic.append(cyclic)
        for i, make in enumerate((lambda: act(None), lambda: lazily(None), lambda: lazily_too(None), lambda: act, lambda: [lazily(None)],
                                  lambda: {"a": {"b": act(None)}}, lambda: Paid("1", act(None)), lambda: collections.deque([[lazily(None)]]),
                                  lambda: [cyclic, act(None)], concurrent.futures.Future)):
            with self.subTest(i):
                with self.assertRaises(flightd.InDoubt) as caught:
                    with self.client.once("test", f"{self.id}-{i}") as f, f.effect():
                        f.result = make()
                self.assertRegex(str(caught.exception.__cause__), "may not have run")
        self.assertEqual(len(ran), 2)

    def test_a_result_that_the_function_has_set_is_kept(self):
        def act(f):
            f.result = {"id": "ch_1"}
        for _ in ("executed", "replayed"):
            self.assertEqual(self.client.call("test", self.id, {}, act), {"id": "ch_1"})
        self.assertEqual(self.client.call("test", self.id + "-returned", {}, lambda f: act(f) or 5), 5)

    def test_a_swallowed_error_of_an_effect_is_no_success(self):
        def once(name, *errors, result=None, **options):
            with self.client.once("test", f"{self.id}-{name}", **options) as f:
                for error in errors:
                    with contextlib.suppress(Exception), f.effect():
                        if error:
                            raise error
                f.result = result
            return f
        with self.assertRaises(flightd.InDoubt) as caught:
            once("unknown", ConnectionError("lost"))
        self.assertIsInstance(caught.exception.__cause__, ConnectionError)
        with self.assertRaisesRegex(flightd.NotDone, "closed"):
            once("not-done", flightd.NotDone("closed"))
        with self.assertRaises(flightd.Declined):
            once("refused", flightd.Refused("no"))
        self.assertEqual(once("result", ConnectionError("lost"), result=5).result, 5)
        self.assertEqual(once("second", flightd.NotDone("closed"), None).source, "executed")
        self.assertEqual(once("resent", ConnectionError("lost"), None, recovery="resend").source, "executed")
        with self.assertRaises(flightd.Unsettled):
            once("resent-in-vain", None, ConnectionError("lost"), recovery="resend")

    def test_a_bug_in_a_look_up(self):
        def look_up(f):
            return nosuchname  # noqa: F821
        for wrong, text in ((look_up, "NameError: name 'nosuchname' is not defined"), (lambda f: flightd.NotHappened, "TypeError: look_up returned a type"),
                            (lambda f: True, "TypeError: look_up returned a bool")):
            self.id += "-next"
            options = dict(recovery="verify", look_up=wrong, settle=0.01, wait=3)
            with self.assertLogs("flightd", "ERROR") as logged:
                with self.assertRaises(flightd.Error), self.client.once("test", self.id, **options) as f, f.effect():
                    raise ConnectionError("lost")
                with self.assertRaisesRegex(flightd.InDoubt, "the look-up failed: " + text):
                    with self.client.once("test", self.id, **options) as f:
                        self.fail("the block runs")
            self.assertEqual(sum("the look-up failed: " + text in line for line in logged.output), 1, logged.output)

        async def look_up_later(f):
            return flightd.Happened({"id": "ch_1"})
        options["look_up"], options["wait"] = look_up_later, 20
        with self.client.once("test", self.id, **options) as f, f.effect():
            self.fail("the effect runs")
        self.assertEqual(f.result, {"id": "ch_1"})

    def test_a_refused_connection_ends_within_the_wait(self):
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            address = f"http://127.0.0.1:{unused.getsockname()[1]}"
            client = flightd.Client(f"{address},{address}/2", spool="", retry_timeout=100)
            self.addCleanup(client.close)
            for wait in (0, 0.5):
                with self.assertRaises(flightd.Unavailable):
                    with client.once("test", self.id, wait=wait):
                        self.fail("the block runs")
                with self.assertRaises(flightd.Unavailable):
                    client.wait("test", self.id, timeout=wait)
        # It would take 100 s each otherwise.

    def test_a_wait_without_limit_lasts_through_an_outage(self):
        self.run_once(5)
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            port = unused.getsockname()[1]
        client = flightd.Client(f"http://127.0.0.1:{port}", spool="", retry_timeout=0.1)
        self.addCleanup(client.close)
        ended = []

        def wait(f):
            with contextlib.suppress(Exception):
                ended.append(f())

        def once():
            with client.once("test", self.id, wait=None) as f, f.effect():
                self.fail("the effect runs")
            return f.result
        threads = [threading.Thread(target=wait, args=(f,), daemon=True)
                   for f in (once, lambda: client.wait("test", self.id))]
        for thread in threads:
            thread.start()
        time.sleep(1)
        with forwarding(port, os.environ["FLIGHTD_ADDR"]):
            for thread in threads:
                thread.join(60)
        self.assertEqual(ended, [5, 5])

    def test_invalid_texts_do_not_block_a_report(self):
        with self.client.once("test", self.id) as f:
            with f.effect():
                f.result, f.external_id, f.content_type = b"x", "id \ud800" + "y" * 3000, "é/\n"
        self.assertEqual(f.source, "executed")
        self.assertEqual(self.client.spooled(), 0)
        self.id += "-error"
        with self.assertRaises(flightd.InDoubt):
            with self.client.once("test", self.id) as f:
                with f.effect():
                    raise RuntimeError("\ud800" * 5000)

    def test_odd_external_ids_do_not_block_a_report(self):
        class Odd(Exception):
            def __str__(self):
                raise ValueError("no text")
        for external_id, content_type in [(42, None), (None, 7), (b"ch_1", ""), (uuid.UUID(int=1), "text/plain")]:
            with self.subTest(external_id=external_id):
                self.id = uuid.uuid4().hex
                with self.client.once("test", self.id) as f:
                    with f.effect():
                        f.result, f.external_id, f.content_type = b"x", external_id, content_type
                self.assertEqual(f.source, "executed")
                self.assertEqual(f.external_id, "42" if external_id == 42 else f.external_id)
        self.id = uuid.uuid4().hex
        with self.assertRaises(flightd.InDoubt):
            with self.client.once("test", self.id) as f:
                with f.effect():
                    raise Odd

    def test_a_report_survives_an_interrupt_while_it_is_sent(self):
        class Interrupted(flightd.Client):
            def _ask(self, method, path, *args, **more):
                if path.endswith("/report") and not interrupted:
                    interrupted.append(path)
                    raise SystemExit
                return super()._ask(method, path, *args, **more)
        interrupted, client = [], Interrupted(spool=self.spool.name)
        self.addCleanup(client.close)
        with self.assertRaises(SystemExit):
            with client.once("test", self.id) as f:
                with f.effect():
                    f.result = 1
        self.assertEqual(client.spooled(), 1)
        end = time.monotonic() + 60
        while client.spooled() and time.monotonic() < end:
            time.sleep(0.05)
        self.assertEqual(self.run_once(2).result, 1)

    def away(self, **more):
        """Returns a client whose reports fail while its list `lets` is empty."""
        class Away(flightd.Client):
            lets = []

            def _ask(self, method, path, *args, **options):
                if path.endswith("/report") and not self.lets:
                    raise flightd.Unavailable("away", code="unreachable")
                return super()._ask(method, path, *args, **options)
        client = Away(**{"spool": self.spool.name, "report_wait": 0.05, **more})
        self.addCleanup(client.close)
        return client

    def test_a_report_survives_an_interrupt_while_it_is_spooled(self):
        for interrupts in (1, 100):
            self.id, client = uuid.uuid4().hex, self.away()
            calls = [KeyboardInterrupt] * interrupts + [None] * 2
            with mock.patch("os.fsync", side_effect=calls), self.assertRaises(KeyboardInterrupt):
                with client.once("test", self.id) as f:
                    with f.effect():
                        f.result = 1
            self.assertEqual(len(client._spool.names()), 1, "on disk or in memory")
            self.assertEqual(client.spooled(), 1 if interrupts < 5 else 0)
            self.assertEqual(client._spool._claimed & set(client._spool.names()), set(), "the report can be sent")
            client.lets.append(1)
            end = time.monotonic() + 60
            while client._spool.names() and time.monotonic() < end:
                time.sleep(0.05)
            self.assertEqual(self.run_once(2).result, 1)

    def test_an_interrupt_is_raised_if_the_disk_fails(self):
        client = self.away()
        with mock.patch("os.fsync", side_effect=[KeyboardInterrupt, OSError(28, "full")]), self.assertLogs("flightd"):
            with self.assertRaises(KeyboardInterrupt), client.once("test", self.id) as f:
                with f.effect():
                    f.result = 1
        self.assertEqual(len(client._spool.names()), 1)

    def test_close_sends_unspooled_reports(self):
        client = self.away(spool="")
        with self.assertRaises(flightd.Unrecorded), client.once("test", self.id) as f:
            with f.effect():
                f.result = 1
        client.lets.append(1)
        client.close()
        self.assertEqual(client._spool.names(), [])
        self.assertEqual(self.run_once(2).result, 1)

    def test_a_relative_spool_folder_survives_chdir(self):
        self.addCleanup(os.chdir, os.getcwd())
        with tempfile.TemporaryDirectory() as wrong_deployment:
            os.chdir(self.spool.name)
            client = flightd.Client(spool="reports")
            self.addCleanup(client.close)
            os.chdir(wrong_deployment)
            name = client._spool.store("d", "default/test/1", b"{}")
            self.assertEqual(os.listdir(wrong_deployment), [])
            os.chdir(self.spool.name)
        self.assertEqual(os.listdir(os.path.join(self.spool.name, "reports")), [name])

    def test_a_spooled_report_is_synced_to_the_disk(self):
        asked = []

        def fcntl(fd, what):
            asked.append(what)
            if len(asked) > 2:
                raise OSError(25, "not here")
        system = types.SimpleNamespace(F_FULLFSYNC=51, fcntl=fcntl)
        with mock.patch.object(flightd, "_fcntl", system, create=True), mock.patch("os.fsync") as fsync:
            self.client._spool.store("d", "default/test/1", b"{}")
            self.assertEqual((asked, fsync.call_count), ([51, 51], 0), "the file and its name")
            self.client._spool.store("d", "default/test/2", b"{}")
            self.assertEqual(fsync.call_count, 2)

    def test_an_unreadable_answer_does_not_delay_other_reports(self):
        names = [self.client._spool.store("d", f"default/test/{n}", b"{}") for n in "12"]
        client, asked = flightd.Client(spool=self.spool.name), []
        self.addCleanup(client.close)
        client._deployment = "d"

        def ask(method, path, *args, **more):
            asked.append(path)
            if len(asked) == 1:
                raise AttributeError("a list has no attribute get")
            return {"state": "succeeded"}, flightd._Instant(0, 0)
        client._ask = ask
        self.assertFalse(client._send_spooled(sorted(names)))
        self.assertEqual(client._spool.names(), sorted(names)[:1])
        self.assertTrue(client._send_spooled(client._spool.names()), "the unreadable answer's report is retried")
        self.assertEqual((client._spool.names(), len(asked)), ([], 3))

    def test_a_pinned_client_talks_to_its_deployment_only(self):
        def answer(status, **body):
            text = json.dumps(body).encode()
            return b"HTTP/1.1 %d X\r\nFlightd-Ledger-Time: 200\r\nContent-Length: %d\r\n\r\n%s" % (status, len(text), text)
        version = answer(200, version="1", deployment="second", ledger_time=200)
        wrong = answer(421, code="wrong_deployment", retryable=False, detail="this is second, and not first")
        for options, env in (({"deployment": "first"}, "second"), ({}, "first")):
            address, asked = self.serve([version, wrong])
            with mock.patch.dict(os.environ, {"FLIGHTD_DEPLOYMENT": env}):
                client = flightd.Client(address, spool="", retry_timeout=0.05, **options)
            self.addCleanup(client.close)
            with self.assertRaisesRegex(flightd.Error, "second, and not first") as caught:
                client._ask("GET", "/v1/flights/fl_1")
            self.assertEqual((caught.exception.code, client._deployment), ("wrong_deployment", "first"))
            self.assertIn(b"\r\nFlightd-Deployment: first\r\n", asked[1])
            self.assertEqual(client._ledger_clock[0], 0, "the time of another ledger is ignored")

    def test_no_deployment_is_sent_to_older_servers(self):
        address, asked = self.serve([b'HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{"version":"1"}', b""])
        client = flightd.Client(address, spool="", retry_timeout=0.01)
        self.addCleanup(client.close)
        with self.assertRaises(flightd.Unavailable):
            client._ask("GET", "/v1/flights/fl_1")
        self.assertNotIn(b"Flightd-Deployment", b"".join(asked))

    def test_only_a_code_of_the_report_route_rejects_a_report(self):
        final = {"fenced": "accepted", "idempotency_key_invalid": "rejected", "input_invalid": "rejected",
                 "payload_too_large": "rejected", "not_found": "rejected"}
        others = ["lease_lost", "expired", "in_doubt", "idempotency_in_flight", "idempotency_conflict", "flight_failed",
                  "wrong_deployment", "forbidden", "unauthenticated", "method_not_allowed", "open_expired", "approval_pending",
                  "session_in_use", "precondition_failed", "internal", "no_leader", "unreachable", "of a later version"]
        for code in [*final, *others]:
            for flight_id in ("fl_1", ""):
                problem = {"code": code, "retryable": False, "flight_id": flight_id}
                e = flightd._error_from(410, "", json.dumps(problem).encode(), "", own=True)
                self.assertEqual(flightd._report_result_of(e), final.get(code, "later") if flight_id else "later", (code, flight_id))
        self.assertEqual(flightd._report_result_of(TypeError("no JSON")), "later")

    def test_old_temporary_files_in_the_spool_are_removed(self):
        names = ["new-old", "new-young", "1.report", "other"]
        for name in names:
            path = os.path.join(self.spool.name, name)
            open(path, "wb").close()
            age = 1800 if name == "new-young" else 7200
            os.utime(path, (time.time() - age,) * 2)
        os.mkdir(os.path.join(self.spool.name, "new-folder"))
        os.utime(os.path.join(self.spool.name, "new-folder"), (0, 0))
        self.addCleanup(flightd.Client(spool=self.spool.name).close)
        self.assertEqual(sorted(os.listdir(self.spool.name)), sorted([*names[1:], "new-folder"]))
        self.addCleanup(flightd.Client(spool=os.path.join(self.spool.name, "not there")).close)

    def test_a_flight_can_be_entered_only_once(self):
        flight = self.client.once("test", self.id)
        with self.assertRaises(flightd.NotDone):
            with flight as f:
                with f.effect():
                    raise flightd.NotDone("later")
        with self.assertRaisesRegex(RuntimeError, "once"):
            with flight:
                self.fail("it runs without a session")
        self.assertEqual(self.run_once(2).source, "executed")

    def test_a_report_is_retried_without_a_time_limit(self):
        client = flightd.Client(spool=self.spool.name, report_wait=float("inf"), retry_timeout=float("inf"))
        self.addCleanup(client.close)
        client._spool.store = lambda *args: ""
        ask, tries = client._ask_raw, []

        def away_at_first(method, path, body, timeout, *more, **others):
            if path.endswith("/report"):
                tries.append(timeout)
                if len(tries) < 2:
                    raise flightd.Unavailable("away")
            return ask(method, path, body, timeout, *more, **others)
        client._ask_raw = away_at_first
        with client.once("test", self.id) as f:
            with f.effect():
                f.result = 1
        self.assertEqual(f.source, "executed")
        self.assertLessEqual(max(tries), 15)

    def test_a_fork_replaces_the_locks_of_its_parent(self):
        self.run_once(1)
        client = flightd.Client(spool=self.spool.name)
        with client._lock, client._spool._lock:
            pid = os.fork()
            if pid == 0:
                with contextlib.suppress(BaseException):
                    signal.alarm(10)
                    with client.once("test", self.id) as f:
                        with f.effect():
                            pass
                    client._spool.release(client._spool.store("-", "key", b"{}"))
                    os._exit(0 if f.replayed else 1)
                os._exit(2)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)

    def test_no_effect_starts_after_the_machine_slept(self):
        ask = time.clock_gettime
        for asleep in (0, 3600):  # while the monotonic clock stood still and the wall clock was set back
            self.id = uuid.uuid4().hex
            left = self.assertRaises(flightd.LeaseLost) if asleep else contextlib.nullcontext()
            with left, self.client.once("test", self.id) as f:
                with mock.patch("time.clock_gettime", lambda clock: ask(clock) + asleep), f.effect():
                    f.result = asleep
        self.assertEqual(self.run_once(1).source, "executed")

    def test_effect_leaves_the_block_of_a_decided_flight(self):
        self.run_once(1)
        seen = []
        with self.client.once("test", self.id) as f:
            seen.append("before")
            try:
                with f.effect():
                    seen.append("inside")
            except Exception:  # does not catch _LeaveBlock
                seen.append("caught")
            seen.append("after")
        self.assertEqual((seen, f.result, f.replayed), (["before"], 1, True))

    def test_nested_blocks(self):
        self.run_once(1)
        with self.assertRaises(LookupError):  # leaving the outer block does not end the inner flight
            with self.client.once("test", self.id) as outer:
                with self.client.once("test", self.id + "-inner") as inner:
                    with outer.effect():
                        self.fail("it runs")
                self.fail("it goes on")
            raise LookupError("after the inner block")
        with self.client.once("test", self.id + "-inner") as inner:
            self.assertFalse(inner.replayed)
            self.assertEqual(inner.previous["outcome"], "not_done")
            with inner.effect():
                pass

    def test_the_callers_own_errors_are_raised_unchanged(self):
        with self.assertRaises(KeyError):
            with self.client.once("test", self.id):
                {}["nothing"]
        with self.assertRaises(flightd.NotDone):
            with self.client.once("test", self.id) as f:
                with f.effect():
                    raise flightd.NotDone("connection refused")
        with self.assertRaises(flightd.InDoubt) as caught:
            with self.client.once("test", self.id) as f:
                with f.effect():
                    {}["nothing"]
        self.assertIsInstance(caught.exception.__cause__, KeyError)
        self.assertEqual(caught.exception.code, "in_doubt")

    def test_an_interrupt_is_reported_and_raised(self):
        with self.assertRaises(KeyboardInterrupt):
            with self.client.once("test", self.id) as f:
                with f.effect():
                    raise KeyboardInterrupt
        with self.assertRaises(flightd.InDoubt):
            self.run_once(1)

    def test_a_block_without_effect_is_an_error(self):
        with self.assertRaisesRegex(RuntimeError, "effect"):
            with self.client.once("test", self.id):
                pass
        with self.assertRaises(flightd.InDoubt):
            self.run_once(1)

    def test_after_a_look_up_without_effect_the_caller_calls_again(self):
        options = dict(recovery="verify", look_up=lambda f: flightd.NotHappened(), settle=0.05, attempt_timeout=5)
        with self.assertRaises(flightd.Unsettled) as caught:
            with self.client.once("test", self.id, 1, **options) as f:
                self.assertLessEqual(f.time_left(), 5)
                with f.effect():
                    raise TimeoutError
        self.assertEqual(caught.exception.outcome, "not_done")
        with self.client.once("test", self.id, 1, **options) as f:
            with f.effect():
                f.result = f.attempt
        self.assertGreater(f.result, 1)

    def test_with_key_decides_the_first_input_is_used(self):
        with self.assertRaises(flightd.NotDone):
            with self.client.once("test", self.id, {"text": "first"}, key_decides=True) as f:
                raise flightd.NotDone("later")
        with self.client.once("test", self.id, {"text": "second"}, key_decides=True) as f:
            with f.effect():
                f.result = f.input
        self.assertEqual(f.result, {"text": "first"})

    def test_a_cancellation_is_visible_in_the_block(self):
        client = flightd.Client(spool="", ttl=2)
        self.addCleanup(client.close)
        with self.assertRaises(flightd.Failed):
            with client.once("test", self.id) as f:
                address = os.environ["FLIGHTD_ADDR"] + "/v1/flights/" + f.flight_id
                with urllib.request.urlopen(address) as answer:
                    etag = answer.headers["ETag"]
                headers = {"Content-Type": "application/json", "If-Match": etag}
                body = json.dumps({"reason": "test", "actor": "test"}).encode()
                urllib.request.urlopen(urllib.request.Request(address + "/cancel", body, headers)).close()
                while not f.cancel_requested:
                    time.sleep(0.02)
                raise flightd.NotDone("cancelled")

    def test_invalid_arguments_are_rejected_before_any_request(self):
        for make in (lambda: flightd.Client("ftp://x"), lambda: flightd.Client(" , "), lambda: flightd.Client(retry_timeout=0),
                     lambda: flightd.Client("localhost:x"), lambda: flightd.Client("http://h:99999"),
                     lambda: flightd.Client(namespace="a b"), lambda: flightd.Client(namespace="é"),
                     lambda: self.client.once("test", "1", wait=float("nan")),
                     lambda: self.client.once("test", "1", float("nan")),
                     lambda: self.client.once("test", "1", recovery="verify")):
            self.assertRaises(ValueError, make)
        self.assertRaises(ValueError, lambda: self.client.once("test", "1", object()))
        with self.assertRaises(flightd.Error) as caught:
            self.client.once("test", "a b").__enter__()
        self.assertEqual(caught.exception.code, "idempotency_key_invalid")

    def test_an_input_that_is_too_large(self):
        with self.assertRaises(flightd.Error) as caught:  # the server answers before it has read the body, and closes
            self.client.once("test", self.id, "x" * 8_000_000).__enter__()
        self.assertEqual(caught.exception.code, "payload_too_large")

    def test_damaged_reports_are_quarantined(self):
        self.run_once(1)
        path = os.path.join(self.spool.name, "x.report")
        with open(path, "wb") as file:
            file.write(b"FDC1 and more")
        with self.assertLogs("flightd", "ERROR"):
            flightd.Client(spool=self.spool.name)._spool.claim("x.report")
        self.assertTrue(os.path.exists(path + ".damaged"))

    def test_an_unreadable_report_stays_and_is_logged_once(self):
        spool = flightd.Client(spool=self.spool.name)._spool
        for name, make in (("later.report", lambda path: open(path, "wb")), ("away.report", os.mkdir)):
            path = os.path.join(self.spool.name, name)
            made = make(path)
            if made:
                with made:
                    made.write(b"FDC2 and more")
            with self.assertLogs("flightd", "ERROR") as logged:
                self.assertIsNone(spool.claim(name))
                self.assertIsNone(spool.claim(name))
            self.assertEqual(len(logged.output), 1)
            self.assertTrue(os.path.exists(path))
        os.rmdir(path)
        name = spool.store("d", "default/test/1", b"{}")
        spool.release(name)
        os.rename(os.path.join(self.spool.name, name), path)
        self.assertEqual((spool.claim("away.report") or {}).get("key"), "default/test/1", "it can be read again")

    def test_time_left_in_a_look_up(self):
        for timeout, bound in ((5, 5), (None, 30)):
            self.id, left = uuid.uuid4().hex, []

            def look_up(f):
                left.append(f.time_left())
                with self.assertRaises(flightd.LeaseLost), f.effect():
                    self.fail("a look-up must not start an effect")
                return flightd.Happened(1)
            with self.client.once("test", self.id, recovery="verify", look_up=look_up, settle=0.05, attempt_timeout=timeout) as f:
                with f.effect():
                    raise TimeoutError
            self.assertEqual(f.result, 1)
            self.assertTrue(bound - 2 < left[0] <= bound, left)

    def serve(self, *answers):
        """Starts a server that takes one connection per list, sends one answer per request, and then ends. Returns its
        address and the list of requests."""
        listener, asked = socket.create_server(("127.0.0.1", 0)), []

        def serve_connections():
            for connection_answers in answers:
                connection, _ = listener.accept()
                with connection, contextlib.suppress(BrokenPipeError):
                    for answer in connection_answers:
                        asked.append(connection.recv(65536))
                        connection.sendall(echoing(asked[-1], answer))
                    if connection_answers is answers[-1]:
                        listener.close()
        threading.Thread(target=serve_connections, daemon=True).start()
        self.addCleanup(listener.close)
        return "http://127.0.0.1:%d" % listener.getsockname()[1], asked

    def test_an_informational_response_is_not_the_next_answer(self):
        early = b"HTTP/1.1 103 Early Hints\r\n\r\n"
        proper = b'HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s'
        first, second = b'{"version":"1"}', b'{"version":"2"}'
        address, _ = self.serve([early, proper % (15, first)], [proper % (15, second)])
        client = flightd.Client(address, spool="")
        self.addCleanup(client.close)
        with contextlib.suppress(flightd.Error):
            client._ask("GET", "/version", tries=1)
        self.assertEqual(client._ask("GET", "/version", tries=1)[0]["version"], "2")

    def test_a_repeated_response_is_not_the_next_answer(self):
        proper = b'HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{"version":"%d"}'
        again, sent = threading.Event(), threading.Event()
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)

        def serve_connections():
            for version in (1, 2):
                connection, _ = listener.accept()
                answer = echoing(connection.recv(65536), proper % version)
                connection.sendall(answer)
                again.wait(60)
                with contextlib.suppress(OSError), connection:
                    connection.sendall(answer)
                    sent.set()
                    if version == 1:
                        connection.recv(65536)
        threading.Thread(target=serve_connections, daemon=True).start()
        client = flightd.Client("http://127.0.0.1:%d" % listener.getsockname()[1], spool="")
        self.addCleanup(client.close)
        for version in ("1", "2"):
            self.assertEqual(client._ask("GET", "/version", tries=1)[0]["version"], version)
            again.set()
            sent.wait(60)

    def test_the_time_out_bounds_a_slow_response_as_a_whole(self):
        listener, now = socket.create_server(("127.0.0.1", 0)), [0.0]
        self.addCleanup(listener.close)

        def serve_connections():
            connection, _ = listener.accept()
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\n")
            now[0] = 100.0
            with contextlib.suppress(OSError), connection:
                long = b"x" * 20_000  # longer than one read
                connection.sendall(b'X: %s\r\nContent-Length: 15\r\n\r\n{"version":"1"}' % long)
        threading.Thread(target=serve_connections, daemon=True).start()
        client = flightd.Client("http://127.0.0.1:%d" % listener.getsockname()[1], spool="")
        self.addCleanup(client.close)
        clock = types.SimpleNamespace(monotonic=lambda: now[0], time=time.time, sleep=time.sleep)
        with mock.patch.object(flightd, "time", clock), self.assertRaisesRegex(flightd.Unavailable, "timed out"):
            client._ask("GET", "/version", tries=1)

    def test_a_lost_connection_may_have_carried_the_request(self):
        version = b'HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{"version":"1"}'
        address, asked = self.serve([version, b""])
        client = flightd.Client(address, spool="", retry_timeout=0.05)
        self.addCleanup(client.close)
        client._connect("")
        with self.assertRaises(flightd.Unavailable) as caught:
            client._ask("POST", "/v1/flights:open", {})
        self.assertEqual(len(asked), 2)
        self.assertTrue(caught.exception._may_have_arrived, "it may have been executed")
        with self.assertRaises(flightd.Unavailable) as caught:
            client._ask("POST", "/v1/flights:open", {})
        self.assertFalse(caught.exception._may_have_arrived, "no server was reached")

    def test_a_lost_connection_followed_by_another_answer(self):
        version = b'HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{"version":"1"}'
        problem = b'{"code":"no_leader","retryable":true}'
        no_leader = b"HTTP/1.1 503 x\r\nContent-Length: %d\r\n\r\n%s" % (len(problem), problem)
        address, asked = self.serve([version, b""], [no_leader])
        client = flightd.Client(address, spool="", retry_timeout=0.01)
        self.addCleanup(client.close)
        client._connect("")
        with self.assertRaises(flightd.Unavailable) as caught:
            client._ask("POST", "/v1/flights:open", {})
        self.assertEqual((caught.exception.code, len(asked)), ("no_leader", 3))
        self.assertTrue(caught.exception._may_have_arrived, "the first send may have been executed")

    def test_a_retry_after_a_5xx_counts_as_several_requests(self):
        def problem(status, **more):
            body = json.dumps({"retryable": True, **more}).encode()
            return b"HTTP/1.1 %d x\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)
        version = b'HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{"version":"1"}'
        busy = problem(409, code="idempotency_in_flight", proposed=False)
        for first, several in ((problem(503, code="lease_unavailable"), True), (problem(429, code="too_many_open"), True),
                               (busy, False)):
            address, _ = self.serve([version, first], [busy])
            client = flightd.Client(address, spool="")
            self.addCleanup(client.close)
            with self.assertRaises(flightd.Busy) as caught:
                client._ask("POST", "/v1/flights:open", {})
            self.assertEqual(caught.exception._may_have_arrived, several)

    def test_a_lost_connection_followed_by_a_name_error(self):
        version = b'HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{"version":"1"}'
        address, _ = self.serve([version, b""])
        client = flightd.Client(address, spool="", retry_timeout=0.01)
        self.addCleanup(client.close)
        client._connect("")
        with mock.patch("socket.getaddrinfo", side_effect=socket.gaierror(-2, "unknown")):
            with self.assertRaises(flightd.Unavailable) as caught:
                client._ask("POST", "/v1/flights:open", {})
        self.assertTrue(caught.exception._may_have_arrived, "it may have been executed")

    def test_a_fork_opens_its_own_connections(self):
        self.run_once(1)
        with tempfile.TemporaryFile() as said:
            pid = os.fork()
            if pid == 0:
                said.write(self.run_once(2).source.encode())
                said.flush()
                os._exit(0)
            os.waitpid(pid, 0)
            said.seek(0)
            self.assertEqual(said.read(), b"replayed")
        self.assertEqual(self.run_once(3).source, "replayed")

    def test_get(self):
        self.assertIsNone(self.client.get("test", self.id))
        self.run_once(1)
        self.assertEqual((self.client.get("test", self.id) or {})["receipt"]["body"], 1)
        address = os.environ["FLIGHTD_ADDR"].rstrip("/") + "/v1"  # no route is there, and so no word about the key
        with contextlib.closing(flightd.Client(address, spool=self.spool.name)) as client, self.assertRaises(flightd.Error) as caught:
            client.get("test", self.id)
        self.assertEqual(caught.exception.code, "not_found")

    def test_a_fork_opens_its_own_session(self):
        def act(client, name):
            """Runs three flights, the last two at once, and returns the session of these."""
            with client.once("test", f"{self.id}-{name}-0") as f, f.effect():
                pass
            with client.once("test", f"{self.id}-{name}-1") as f, f.effect():
                with client.once("test", f"{self.id}-{name}-2") as g, g.effect():
                    session = f._nonce.session
                    self.assertIs(g._nonce.session, session)
                    listed = client._ask("POST", session._path + "renew", {"open_digest": 32 * "0"})[0]["open"]
                    self.assertEqual({a["key"] for a in listed}, {f.key, g.key})
            self.assertEqual([s for s in client._sessions if not s.one_shot], [session])
            return session.id
        with self.client.once("test", self.id + "-first") as first, first.effect():
            parent = act(self.client, "parent")
            for start in (os.fork, None):  # by itself, and by multiprocessing
                said, tell = multiprocessing.Pipe(duplex=False)

                def child():
                    tell.send(act(self.client, str(os.getpid())))
                if start:
                    pid = start()
                    if pid == 0:
                        with contextlib.suppress(BaseException):
                            signal.alarm(20)
                            child()
                        os._exit(0)
                    os.waitpid(pid, 0)
                else:
                    process = multiprocessing.get_context("fork").Process(target=child)
                    process.start()
                    process.join()
                self.assertTrue(said.poll(0), "the child failed")
                self.assertNotEqual(said.recv(), parent)
            self.assertEqual(act(self.client, "again"), parent)

    def test_notdone_of_one_effect_is_no_proof_for_another(self):
        with self.assertRaises(flightd.InDoubt):
            with self.client.once("test", self.id) as f:
                with f.effect():
                    pass
                with f.effect():
                    raise flightd.NotDone("later")
        self.id += "-tried-again"
        with self.assertRaises(flightd.NotDone):
            with self.client.once("test", self.id) as f:
                with contextlib.suppress(flightd.NotDone):
                    with f.effect():
                        raise flightd.NotDone("refused")
                with f.effect():
                    raise flightd.NotDone("refused again")
        with self.assertRaises(flightd.NotDone):  # below effect() it covers all that was sent
            with self.client.once("test", self.id) as f:
                with f.effect():
                    pass
                raise flightd.NotDone("the provider's answer is proof")
        self.assertEqual(self.run_once(1).source, "executed")

    def test_an_effect_still_running_at_the_end_of_the_block_is_unknown(self):
        def acting(f, inside, leave):
            with contextlib.suppress(flightd.LeaseLost), f.effect():
                inside.set()
                leave.wait(60)
        for end, error in ((None, RuntimeError), (flightd.NotDone("later"), flightd.InDoubt)):
            self.id = uuid.uuid4().hex
            inside, leave = threading.Event(), threading.Event()
            with self.assertRaises(error), self.client.once("test", self.id) as f:
                thread = threading.Thread(target=acting, args=(f, inside, leave))
                thread.start()
                inside.wait(60)
                if end:
                    raise end
            leave.set()
            thread.join()
            with self.assertRaises(flightd.InDoubt):
                self.run_once(1)

    def test_an_interrupt_of_a_fenced_attempt(self):
        for interrupt in (KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError):
            self.id = uuid.uuid4().hex
            with self.assertRaises(interrupt):
                with self.client.once("test", self.id) as f:
                    with f.effect():
                        report = {"fencing_token": f.fencing_token, "key": f.key, "outcome": "succeeded"}
                        self.client._ask("POST", f"/v1/flights/{f.flight_id}/report", report)
                        raise interrupt

    def test_renewals_end_with_the_block(self):
        class Interrupting(Exception):
            def __str__(self):
                raise KeyboardInterrupt
        with self.assertRaises(KeyboardInterrupt):
            with self.client.once("test", self.id) as f:
                with f.effect():
                    raise Interrupting
        self.assertFalse(f._nonce.needs_session())

    def test_a_fork_neither_acts_nor_ends_the_flight_of_its_parent(self):
        parent, pid = os.getpid(), 0
        try:
            with self.client.once("test", self.id) as f:
                pid = os.fork()
                if pid == 0:
                    signal.alarm(10)
                    with f.effect():
                        os._exit(3)
                self.assertEqual(os.waitpid(pid, 0)[1], 0)
                other = self.client._ask("GET", f"/v1/flights/{f.flight_id}")[0]
                with f.effect():
                    f.result = other["state"]
        except BaseException as e:
            if os.getpid() != parent:
                os._exit(0 if isinstance(e, flightd.LeaseLost) else 4)
            raise
        self.assertEqual((f.source, f.result), ("executed", "running"))

    def test_a_fork_of_a_look_up_does_not_abandon_its_parents_open(self):
        parent, children, (listen, tell) = os.getpid(), [], os.pipe()
        self.addCleanup(os.close, listen)
        self.addCleanup(os.close, tell)
        options = dict(recovery="verify", settle=0.05, attempt_timeout=20)

        def look_up(f):
            children.append(os.fork())
            if children[-1] == 0:
                signal.alarm(20)
                os.read(listen, 1)
                raise SystemExit
            return flightd.NotHappened()
        with self.assertRaises(flightd.Error), self.client.once("test", self.id, wait=0.2, look_up=lambda f: None, **options) as f:
            with f.effect():
                raise TimeoutError  # the next caller looks it up
        try:
            with self.client.once("test", self.id, look_up=look_up, **options) as f:
                with f.effect():
                    os.write(tell, b"x")
                    self.assertEqual(os.waitpid(children[0], 0)[1], 0)
                    f.result = self.client._ask("GET", f"/v1/flights/{f.flight_id}")[0]["state"]
        except BaseException:
            if os.getpid() != parent:
                for thread in threading.enumerate():
                    if thread.name == "flightd-abandon":
                        thread.join()
                os._exit(0)
            raise
        self.assertEqual((f.source, f.result, len(children)), ("executed", "running", 1))

    def test_a_report_rejected_for_good_is_quarantined(self):
        class Refusing(flightd.Client):
            def _ask(self, method, path, *args, **more):
                if path.endswith("/report"):
                    problem = {"retryable": False, "flight_id": path.split("/")[3]}
                    raise flightd.Error("no", code="input_invalid", problem=problem)
                return super()._ask(method, path, *args, **more)
        client = Refusing(spool=self.spool.name)
        self.addCleanup(client.close)
        with self.assertRaisesRegex(flightd.Unrecorded, r"a person must inspect.*\.rejected"), self.assertLogs("flightd"):
            with client.once("test", self.id) as f:
                with f.effect():
                    f.result = 1
        self.assertEqual([n.split(".", 1)[1] for n in os.listdir(self.spool.name)], ["report.rejected"])

    def test_an_open_that_was_not_sent_is_not_abandoned(self):
        abandons = []
        with mock.patch.object(flightd.Client, "_abandon_in_background", lambda self, nonce, *_: abandons.append(nonce)):
            address, _ = self.serve([b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 7\r\n\r\n<html/>"])
            away = flightd.Client(address, spool="", retry_timeout=0.01)
            self.addCleanup(away.close)
            with self.assertRaises(flightd.Unavailable):
                away.once("test", self.id).__enter__()
        self.assertEqual(abandons, [])

    def test_a_waiting_connect_does_not_block_another(self):
        client, both = flightd.Client(spool=""), threading.Barrier(2, timeout=60)
        self.addCleanup(client.close)
        ask = client._ask

        def together(method, path, *args, **more):
            if path == "/version":
                both.wait()
            return ask(method, path, *args, **more)
        client._ask = together
        threads = [threading.Thread(target=client._connect, args=("",)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertFalse(both.broken)

    def test_errors_have_hints(self):
        nobody = flightd.Client("http://127.0.0.1:1, http://127.0.0.1:2", spool="", retry_timeout=0.01)
        self.addCleanup(nobody.close)
        with self.assertRaisesRegex(flightd.Unavailable, r"http://127.0.0.1:[12].*flightd dev.*FLIGHTD_ADDR"):
            nobody.once("test", self.id).__enter__()
        page = b"HTTP/1.1 404 Not Found\r\nContent-Length: 7\r\n\r\n<html/>"
        address, _ = self.serve([page])
        other = flightd.Client(address, spool="", retry_timeout=0.01)
        self.addCleanup(other.close)
        with self.assertRaisesRegex(flightd.Error, "not from flightd.*FLIGHTD_ADDR.*" + address) as caught:
            other.once("test", self.id).__enter__()
        self.assertEqual(caught.exception.code, "internal")

    def test_an_unknown_decision_is_an_error(self):
        answers = {"/version": {"version": "9", "deployment": "d"}, "/v1/flights:open": {"decision": "perhaps"}}
        client = flightd.Client(spool="")
        self.addCleanup(client.close)
        client._ask_raw = lambda method, path, *more, **others: (json.dumps(answers[path]).encode(), flightd._Instant(0, 0))
        with self.assertRaises(flightd.Error) as caught:
            client.once("test", self.id).__enter__()
        self.assertEqual(caught.exception.code, "internal")

    def test_configuration_by_the_environment(self):
        program = "import flightd\nwith flightd.once('test', '%s') as f:\n    with f.effect(): f.result = f.key\nprint(f.result)"
        said = subprocess.run([sys.executable, "-c", program % self.id], capture_output=True, text=True, check=True,
                              env={**os.environ, "FLIGHTD_NAMESPACE": "billing", "XDG_STATE_HOME": self.spool.name,
                                   "PYTHONPATH": os.path.dirname(flightd.__file__)})
        self.assertEqual(said.stdout, f"billing/test/{self.id}\n")


@dataclasses.dataclass
class Order:
    cents: int
    note: str = ""


class Awaitable:
    def __init__(self, f):
        self.f = f

    def __await__(self):
        return self.f().__await__()


class TestJobs(unittest.TestCase):
    """Jobs and workers, with a server."""

    def setUp(self):
        self.client, self.action = flightd.Client(spool="", ttl=10), "act-" + uuid.uuid4().hex
        self.addCleanup(self.client.close)

    @contextlib.contextmanager
    def working(self, **options):
        thread = threading.Thread(target=self.client.run, kwargs=options)
        thread.start()
        try:
            yield
        finally:
            self.client.stop()
            thread.join(30)
            self.assertFalse(thread.is_alive())

    def test_a_wait_that_ends_before_the_approval_names_it(self):
        id = uuid.uuid4().hex
        self.client._ask("POST", "/v1/flights:submit", {"action": "test", "id": id, "approval": {}})
        with self.assertRaisesRegex(flightd.Unapproved, "flightd approvals show default/test/"):
            self.client.wait("test", id, timeout=0.3)

    def test_waits_without_a_bound(self):
        client = flightd.Client(spool="", retry_timeout=float("inf"), report_wait=float("inf"))
        self.addCleanup(client.close)
        with client.once(self.action, "1", wait=float("inf")) as f, f.effect():
            f.result = 1
        self.assertEqual([client.wait(self.action, "1", timeout=t) for t in (float("inf"), 1e300, 0, -1)], [1] * 4)
        self.client.worker(self.action)(lambda job, input: input)
        with self.working(drain=float("inf")):
            self.client.submit(self.action, "2", 2)
            self.assertEqual(client.wait(self.action, "2", timeout=float("inf")), 2)

    def test_jobs(self):
        calls = []

        @self.client.worker(self.action, recovery="resend", window="24h", retry=2, timeout=30)
        def act(job, order: Order):
            calls.append((job.idempotency_key, order))
            if order.note == "no":
                raise flightd.Refused("declined")
            return Order(order.cents + 1)

        @self.client.worker(self.action + "-async")
        async def later(job, input):
            await asyncio.sleep(0)
            return input
        with self.assertLogs("flightd", "WARNING") as logged:
            self.assertEqual(act.submit("1", Order(5)).status, "queued")
        self.assertIn("no worker", logged.output[0])
        self.assertEqual(self.client.submit(self.action, "1", {"cents": 5, "note": ""}).status, "duplicate")
        with self.assertRaises(flightd.Conflict):
            act.submit("1", Order(6))
        with self.assertRaises(flightd.Busy):
            act.wait("1", timeout=0.2)
        self.assertEqual(self.client.submit_all(self.action + "-async", ((str(i), i) for i in range(1100))), {"queued": 1100, "duplicate": 0, "conflict": 0})
        again = [("1", 1), ("2", 0), ("bad id", 2), ("new", 3)]
        self.assertEqual(self.client.submit_all(self.action + "-async", again, priority=5),
                         {"queued": 1, "duplicate": 1, "conflict": 1, "idempotency_key_invalid": 1})
        with self.working():
            self.assertEqual(act.wait("1", timeout=30), {"cents": 6, "note": ""})
            act.submit("2", Order(7, "no"))
            with self.assertRaises(flightd.Declined):
                act.wait("2", timeout=30)
            self.assertEqual(later.wait("1099", timeout=60), 1099)
            self.assertEqual([s for s in self.client._sessions if not s.one_shot], [self.client._session], "of all jobs")
        self.assertEqual([order for _, order in calls], [Order(5), Order(7, "no")])
        until = time.monotonic() + 60  # a claim may have begun when the worker was stopped
        while self.client._sessions and time.monotonic() < until:
            time.sleep(0.01)
        self.assertEqual(self.client._sessions, set(), "it is closed")
        policy = self.client._job_request(self.action, "9", None, {"lane": "a", "delay": "10m"})
        self.assertEqual(policy, {"action": self.action, "id": "9", "lane": "a", "delay_ms": 600_000}, "the document has the policy")
        document, _ = self.client._ask("GET", "/v1/actions/" + self.action)
        self.assertEqual([document[k] for k in ("recovery", "provider_window_ms", "attempt_timeout_ms")], ["resend", 86_400_000, 30_000])
        self.assertEqual(document["retry"]["attempts"], 2)

    def test_the_document_of_the_action_counts(self):
        self.client._ask("PUT", "/v1/actions/" + self.action, {"recovery": "resend", "retry": {"attempts": 2}, "reason": "a test"})
        other = flightd.Client(spool="", ttl=10)
        self.addCleanup(other.close)

        @other.worker(self.action, recovery="hold", retry=2)
        def act(job, input):
            self.fail("it runs")
        self.assertEqual(act.submit("1", 5).status, "queued")
        with self.assertRaisesRegex(flightd.PolicyDiffers, "recovery is hold here, and resend in the document.*flightd actions apply"):
            other.run()
        self.assertEqual(self.client.get(self.action, "1")["recovery"], "resend", "the document's")

        @self.client.worker(self.action, recovery="resend", retry=5)
        def right(job, input):
            return input
        with self.assertLogs("flightd", "WARNING") as logged, self.working():
            self.assertEqual(right.wait("1", timeout=30), 5)
        self.assertEqual(len(logged.output), 1, "once")
        self.assertIn("retry.attempts is 5 here, and 2 in the document", logged.output[0])

    def test_steps_of_a_saga(self):
        saga, calls = self.action, []
        definition = {"saga": saga, "steps": [{"name": "hotel", "action": saga + ".book", "undo": {"action": saga + ".cancel"}}, {"name": "pay", "needs": ["hotel"], "no_undo": True}]}
        self.client._ask("PUT", f"/v1/sagas/{saga}/versions/1", definition)

        @self.client.worker(saga + ".book")
        def book(job, input):
            calls.append(("book", job.key))
            return {"id": "room_17"}

        @self.client.worker(saga + ".pay")
        def pay(job, input):
            calls.append(("pay", input["steps"]["hotel"]["body"]))
            raise flightd.Refused("declined")

        @self.client.worker(saga + ".cancel")
        def cancel(job, input):
            calls.append(("cancel", input["input"]))
        self.client._ask("POST", "/v1/sagas:start", {"saga": saga, "id": "b-1", "input": {"cents": 5}})
        with self.working():
            with self.assertRaises(flightd.Declined):
                self.client.wait(saga, "b-1", timeout=30)
        self.assertEqual(calls, [("book", f"default/{saga}/b-1#hotel"), ("pay", {"id": "room_17"}), ("cancel", {"cents": 5})])

    def test_invalid_inputs_do_not_stop_the_action(self):
        @self.client.worker(self.action, retry=1)
        def act(job, order: Order):
            return order.cents
        inputs = [{"cents": "5"}, {"dollars": 5}, 5, None, [], {"cents": None}]
        for i, input in enumerate(inputs):
            act.submit(str(i), input)
        with self.assertLogs("flightd", "WARNING") as logged, self.working(concurrency=1):
            for i in range(len(inputs)):
                with self.assertRaisesRegex(flightd.Failed, "."):
                    act.wait(str(i), timeout=30)
            act.submit("good", {"cents": 7})
            self.assertEqual(act.wait("good", timeout=30), 7)
        self.assertIn("the input is not a Order: cents is not int: '5'", " ".join(logged.output))

    def test_handlers_whose_work_has_not_run(self):
        def lazily(job, input):
            yield input
        with self.assertRaisesRegex(TypeError, "lazily is a generator"):
            self.client.worker(self.action)(lazily)
        pool = concurrent.futures.ThreadPoolExecutor(1)
        self.addCleanup(pool.shutdown)
        ran = []

        async def later():
            await asyncio.sleep(0)
            ran.append(1)
            return "ran"
        results = {"future": lambda: pool.submit(lambda: ran.append(1) or "ran"), "coroutine": later,
                   "awaitable": lambda: Awaitable(later), "generator": lambda: lazily(1, 1),
                   "map": lambda: map(ran.append, [1]), "function": lambda: later, "partial": lambda: functools.partial(ran.append, 1),
                   "list": lambda: [lazily(1, 1)], "dict": lambda: {"a": later()}, "nested": lambda: {"a": [later()]}}

        @self.client.worker(self.action)
        def act(job, input):
            return results[input]()
        with self.assertLogs("flightd", "WARNING"), self.working():
            for name in results:
                with self.subTest(name):
                    act.submit(name, name)
                    if name in ("future", "coroutine", "awaitable"):
                        self.assertEqual(act.wait(name, timeout=30), "ran")
                    else:
                        with self.assertRaises(flightd.InDoubt):
                            act.wait(name, timeout=30)
        self.assertEqual(len(ran), 3)

    def test_a_bug_in_a_look_up_of_a_worker_is_logged_once(self):
        looks = []

        def look_up(f):
            looks.append(1)
            return nosuchname  # noqa: F821

        @self.client.worker(self.action, recovery="verify", settle=0.01, look_up=look_up)
        def act(job, input):
            raise ConnectionError("lost")
        with self.assertLogs("flightd", "WARNING") as logged, self.working():
            act.submit("1")
            until = time.monotonic() + 60
            while len(looks) < 3:
                self.assertLess(time.monotonic(), until)
                time.sleep(0.02)
        self.assertEqual(sum("the look-up failed: NameError: name 'nosuchname'" in line for line in logged.output), 1, logged.output)
        self.assertNotIn("Busy", " ".join(logged.output))

    def test_wrong_options(self):
        for wrong in (lambda: self.client.worker("a", windw=5), lambda: self.client.submit("a", "b", windw=5)):
            with self.assertRaisesRegex(TypeError, "windw"):
                wrong()
        for wrong in (lambda: self.client.worker("a", window="24 hours"), self.client.run):
            with self.assertRaises(ValueError):
                wrong()
        nan = float("nan")
        deep = functools.reduce(lambda inner, _: [inner], range(5000), [])
        for wrong, text in (
            (lambda: flightd.Client(retry_timeout=nan), "retry_timeout: nan"), (lambda: flightd.Client(report_wait=nan), "report_wait: nan"),
            (lambda: self.client.once("a", "b", wait="3"), "wait"), (lambda: self.client.once("a", "b", wait=nan), "wait"),
            (lambda: self.client.call("a", "b", {}, lambda f: 1, retries=-1), "retries: -1 is negative"), (lambda: self.client.submit("a", "b", run_at="2027-01-31"), "run_at"),
            (lambda: self.client.submit("a", "b", run_at=datetime.date(2027, 1, 31)), "run_at"), (lambda: self.client.submit("a", "b", deep), "nested too deep"),
        ):
            with self.subTest(text), self.assertRaisesRegex(ValueError, text):
                wrong()
        with self.assertRaisesRegex(flightd.Error, "/retention"), self.client.once("a", "b", retention=0) as f, f.effect():
            pass

    def test_the_command_drains(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "app.py"), "w") as app:
                app.write(f"""import flightd, sys
client = flightd.Client(spool="", ttl=60)
@client.worker({self.action!r})
def act(job, input):
    print("begun", flush=True)
    sys.stdin.readline()
    return input
""")
            program = subprocess.Popen([sys.executable, "-B", "-m", "flightd", "worker", "app:client"], cwd=folder, text=True,
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                       env={**os.environ, "PYTHONPATH": os.path.dirname(os.path.abspath(flightd.__file__))})
            with program:
                self.client.submit(self.action, "1", 5)
                self.assertEqual(program.stdout.readline(), "begun\n")
                program.send_signal(signal.SIGTERM)
                time.sleep(0.5)  # until the program has handled the signal, which nothing shows
                self.client.submit(self.action, "2", 6)
                program.stdin.write("go on\n")
                program.stdin.flush()
                self.assertEqual(self.client.wait(self.action, "1", 30), 5)
                self.assertEqual(program.wait(30), 0)
                self.assertEqual(program.stdout.read(), "", "the second job is not begun")
            until = time.monotonic() + 60
            while self.client.get(self.action, "2")["state"] != "ready":
                self.assertLess(time.monotonic(), until, "it was not given back")
                time.sleep(0.02)


class TestProtocol(unittest.TestCase):
    """Tests of the requests and of the handling of answers, without a server."""

    def setUp(self):
        self.at, self.ledger = 100.0, 1_000_000  # local clocks in seconds; the ledger's in milliseconds
        clock = mock.patch.object(flightd, "_now", lambda: flightd._Instant(self.at, self.at, self.at))
        clock.start()
        self.addCleanup(clock.stop)
        self.client, self.asked, self.abandons = flightd.Client(spool=""), [], []
        self.addCleanup(self.client.close)
        self.client._ask, self.client._abandon_in_background = self.ask, lambda nonce, *_: self.abandons.append(nonce)
        self.left = []
        self.client._leave = self.left.append

    def ask(self, method, path, body=None, **more):
        """Answers opens and verifications from self.answers, and accepts every other request."""
        verb = path.rpartition("/")[2].rpartition(":")[2]
        self.asked.append((verb, body))
        if verb == "version":
            return {"version": "1", "deployment": "d", "ledger_time": self.ledger}, flightd._now()
        if verb == "report":
            state = {"succeeded": "succeeded", "not_done": "ready"}.get(body["outcome"], "in_doubt")
            return {"id": "fl_1", "state": state, "receipt": {"outcome": "succeeded", "body": 1}}, flightd._now()
        sent_at = flightd._now()
        answer = self.answers.pop(0) if verb in ("open", "verification") else {
            "trust_ms": 9000, "session": "own", "renew_every_ms": 600_000}
        if callable(answer):
            answer = answer()
        if isinstance(answer, BaseException):
            raise answer
        return answer, sent_at

    def bodies(self, verb):
        return [body for asked, body in self.asked if asked == verb]

    def abandoned(self):
        """Runs the pending abandons, and returns the bodies of all abandons."""
        while self.abandons:
            nonce = self.abandons.pop(0)
            self.assertTrue(nonce.flight._abandon(nonce))
        return self.bodies("abandon")

    def once(self, *answers, **options):
        self.answers = list(answers)
        return self.client.once("test", "1", **options)

    def proceed(self, **more):
        return {"decision": "proceed", "flight_id": "fl_1", "key": "default/test/1", "attempt": 7, "fencing_token": "t",
                "session": "s", "trust_ms": 9000, "renew_every_ms": 600_000, **more}

    def later(self, seconds, answer):
        def give():
            self.at += seconds
            return answer
        return give

    @staticmethod
    def error(code, status=409, may_have_arrived=False, **problem):
        problem = {"code": code, "retryable": False, "flight_id": flightd._flight_id_for_key("default/test/1"), "nonce": "n", **problem}
        e = flightd._error_from(status, "", json.dumps(problem).encode(), "", own=True)
        e._may_have_arrived = may_have_arrived
        return e

    def test_final_answers_to_an_open(self):
        final = {"idempotency_conflict": 422, "expired": 410, "open_expired": 409}
        unprocessed = {"input_invalid": 400, "forbidden": 403, "payload_too_large": 413, "internal": 302}
        others = {"fenced": 409, "approval_pending": 409, "lease_lost": 410, "too_many_open": 429, "no_leader": 503,
                  "lease_unavailable": 503, "internal": 500}
        for alone in (True, False):
            for code, status in [*final.items(), *unprocessed.items(), *others.items()]:
                want = final.get(code) == status or unprocessed.get(code) == status and alone
                self.assertEqual(flightd._is_final(self.error(code, status), alone), want, (code, status, alone))
            for code, proposed, want in [
                ("in_doubt", True, True), ("in_doubt", False, False), ("in_doubt", None, False),
                ("idempotency_in_flight", True, False), ("idempotency_in_flight", False, False),
                ("idempotency_in_flight", None, False),
            ]:
                e = self.error(code, proposed=proposed)
                self.assertEqual((flightd._is_final(e, alone), flightd._is_unproposed(e)), (want, proposed is False), (code, proposed, alone))
            self.assertEqual(flightd._is_final(flightd.Unavailable("nobody is there"), alone), alone)

    def test_action_for_a_listed_attempt(self):
        due = {"awaited": "nothing", "held": "nothing", "spooled": "nothing", "given up": "abandon"}
        for state in (*due, "final", "reported", "unknown", "", "of a later version"):
            for before, other in ((True, "report"), (False, "nothing")):
                self.assertEqual(flightd._listed_action_for(state, before), due.get(state, other), (state, before))

    def test_the_span_of_the_attempt_is_passed_on(self):
        span = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        for more in ({"traceparent": span}, {}):
            with self.once(self.proceed(**more)) as f:
                with f.effect():
                    self.assertEqual((f.traceparent, f.headers.get("Traceparent")), (more.get("traceparent", ""), more.get("traceparent")))

    def test_repeats_of_an_open_share_nonce_and_not_after(self):
        busy = self.error("idempotency_in_flight", proposed=True)
        with self.once(self.later(2, busy), self.later(3, busy), self.proceed()) as f:
            with f.effect():
                pass
        opens = self.bodies("open")
        self.assertEqual(len({(o["nonce"], o["not_after"]) for o in opens}), 1)
        self.assertEqual((len(opens), opens[0]["not_after"]), (3, self.ledger + 15_000 + 2_000), "the wait, and 2 s")
        self.assertEqual(self.bodies("report")[0]["key"], "default/test/1")
        self.assertEqual((self.bodies("abandon"), self.abandons), ([], []))

    def test_a_final_answer_is_followed_by_a_new_nonce(self):
        expired = self.error("open_expired")
        with self.once(self.later(2, expired), self.later(3, expired), self.proceed()) as f:
            with f.effect():
                pass
        opens = self.bodies("open")
        self.assertEqual(len({o["nonce"] for o in opens}), 3)
        self.assertEqual([o["not_after"] - self.ledger for o in opens], [17_000, 21_000, 28_000],
                         "by the local clock, and more after each answer that the ledger's time was past it")
        self.assertEqual((self.bodies("abandon"), self.abandons, self.left), ([], [], []))
        self.asked = []
        with self.once(self.later(1, self.proceed())) as f, f.effect():
            pass
        self.assertEqual(self.bodies("open")[0]["not_after"] - self.ledger, 22_000, "5 s later")

    def test_an_open_answered_without_a_proposal_is_left(self):
        busy = self.error("idempotency_in_flight", proposed=False)
        with self.once(self.later(2, busy), self.later(14, busy), self.proceed()) as f, f.effect():
            pass
        opens = self.bodies("open")
        self.assertEqual([o["nonce"] == opens[0]["nonce"] for o in opens], [True, True, False], "until its time is over")
        self.assertEqual([o["wait_ms"] for o in opens], [15_000, 13_000, 15_000])
        (left,) = self.left
        self.assertEqual((self.abandons, left.flight.key), ([], "default/test/1"))
        self.assertAlmostEqual(left.validity.remaining(), 1)
        self.assertTrue(left.flight._abandon(left))
        self.assertEqual(self.bodies("abandon")[0]["nonce"], opens[0]["nonce"])

    def test_left_opens_of_one_key_are_abandoned_one_per_second(self):
        client, sent = flightd.Client(spool=""), []
        self.addCleanup(client.close)
        def left(key, ms, accepted=True):
            abandon = lambda nonce, timeout: sent.append((key, ms)) or accepted  # noqa: E731
            return flightd._Nonce(types.SimpleNamespace(key=key, _abandon=abandon), 0, ms)
        waits = iter([False] * 4 + [True])
        client._closed = mock.Mock(wait=lambda seconds: next(waits, True), set=lambda: None)
        client._left.extend([left("a", 100), left("a", 200), left("b", 500), left("a", 300), left("c", 9000)])
        self.at += 1
        client._left_loop()
        self.assertEqual([s for s in sent if s[0] == "a"], [("a", 100), ("a", 200), ("a", 300)])
        self.assertEqual([n.flight.key for n in client._left], ["c"], "its not_after has not passed")
        client._left.extend([left("a", 100, accepted=False), left("b", 100)])
        sent.clear()
        client.close()
        self.assertEqual(len(sent), len({key for key, _ in sent}), "one per key at the end")
        client._left.clear()

    def test_an_open_that_always_expires_is_an_error(self):
        with self.assertRaises(flightd.Unavailable) as caught:
            self.once(*9 * [self.error("open_expired")], wait=0).__enter__()
        self.assertEqual((caught.exception.code, len(self.answers), self.abandons), ("open_expired", 5, []))
        self.assertEqual([o["not_after"] - self.ledger for o in self.bodies("open")], [2_000, 4_000, 8_000, 16_000])

    def test_an_unused_open_is_abandoned(self):
        busy = functools.partial(self.error, "idempotency_in_flight")
        for last, abandoned in [
            (KeyboardInterrupt(), True), (flightd.Error("of a later version"), True), ({"decision": "perhaps"}, True),
            (self.error("no_leader", 503), True), (busy(proposed=True), True), (busy(proposed=False), "left"),
            (self.error("in_doubt", proposed=False), "left"),
            (busy(proposed=False, may_have_arrived=True), True), (self.error("in_doubt", proposed=True), False),
            (self.error("in_doubt", proposed=False, may_have_arrived=True), True), (self.error("input_invalid", 400), False),
            (self.error("input_invalid", 400, may_have_arrived=True), True), (flightd.Unavailable("nobody is there"), False),
            ({"decision": "verify", "flight_id": "fl_1", "session": "s", "verification": "p"}, True),  # and no look_up
        ]:
            self.asked, self.abandons[:], self.left[:] = [], [], []
            with self.assertRaises((flightd.Error, KeyboardInterrupt)):
                self.once(last, wait=0).__enter__()
            self.assertEqual((len(self.abandons), len(self.left)), (abandoned is True, abandoned == "left"), last)
            if abandoned:
                self.abandons += self.left
                (opened,), (abandon,) = self.bodies("open"), self.abandoned()
                for name in ("action", "id", "nonce", "not_after"):
                    self.assertEqual(abandon[name], opened[name])

    def test_the_answer_to_one_of_several_requests_is_not_final(self):
        with self.assertRaises(flightd.InDoubt):
            self.once(self.error("idempotency_in_flight", proposed=True), self.error("in_doubt", proposed=False)).__enter__()
        self.assertEqual((len({o["nonce"] for o in self.bodies("open")}), len(self.abandoned())), (1, 1))

    def test_a_started_attempt_is_not_abandoned_with_a_later_open(self):
        verifying = {"id": "fl_1", "state": "running", "verifying": True}
        for after, error in ((self.error("no_leader", 503), flightd.Unavailable), (self.proceed(), flightd.Unsettled)):
            self.asked = []
            with mock.patch.object(self.client, "_record_report", lambda *args: verifying), self.assertRaises(error):
                with self.once(self.proceed(), after, recovery="verify", look_up=lambda f: None) as f, f.effect():
                    raise TimeoutError
            self.assertEqual([a["nonce"] for a in self.abandoned()], [self.bodies("open")[1]["nonce"]])

    def test_an_unusable_attempt_is_abandoned_and_opened_again(self):
        for first, timeout in ((self.error("lease_lost", 410), None), (self.error("fenced"), None),
                               (self.later(10, self.proceed()), None), (self.later(6, self.proceed()), 5)):
            self.asked = []
            with self.once(first, self.proceed(), attempt_timeout=timeout) as f:
                with f.effect():
                    pass
            (one, other), (abandon,) = self.bodies("open"), self.abandoned()
            self.assertEqual((abandon["nonce"], abandon["not_after"]), (one["nonce"], one["not_after"]))
            self.assertNotEqual(other["nonce"], one["nonce"])

    def test_the_time_out_counts_from_the_first_request(self):
        busy = self.error("idempotency_in_flight", proposed=True)
        with self.once(self.later(1, busy), self.later(1, self.proceed()), attempt_timeout=5) as f:
            self.assertAlmostEqual(f.time_left(), 3)
            with f.effect():
                pass
            self.at += 3
            with self.assertRaisesRegex(flightd.LeaseLost, "time-out"), f.effect():
                self.fail("it starts")
        self.asked = []
        with self.once(self.later(3, busy), self.proceed(), attempt_timeout=5) as f:
            self.assertAlmostEqual(f.time_left(), 5, msg="after a wait of half its time, the new open has all of it")
            with f.effect():
                pass
        (waited, opened), (abandon,) = self.bodies("open"), self.abandoned()
        self.assertEqual(waited["wait_ms"], 2500)
        self.assertEqual((abandon["nonce"], opened["nonce"] == waited["nonce"]), (waited["nonce"], False))

    def test_a_redacted_result_is_an_error(self):
        receipt = {"outcome": "succeeded", "external_id": "ch_1", "truncated": True, "size": 9, "digest": "sha256:x"}
        replay = {"decision": "replay", "flight": {"id": "fl_1", "state": "succeeded", "source": "replayed", "receipt": receipt}}
        with self.assertRaises(flightd.ReceiptTruncated) as caught:
            self.once(replay).__enter__()
        self.assertEqual((caught.exception.receipt.value, caught.exception.receipt.size, self.abandons), (None, 9, []))

    def test_a_resend_starts_only_inside_the_provider_window(self):
        options = dict(recovery="resend", provider_window=60)
        with self.once(self.later(2, self.proceed(resend_ms=3000)), **options) as f:
            self.at += 0.9
            with f.effect():
                pass
        self.asked = []
        with self.assertRaisesRegex(flightd.LeaseLost, "forgotten"), self.once(self.proceed(resend_ms=3000), **options) as f:
            self.at += 3
            with f.effect():
                self.fail("it starts")
        self.assertEqual([r["outcome"] for r in self.bodies("report")], ["not_done"])
        self.asked = []
        for first in (self.later(4, self.proceed(resend_ms=3000)), self.proceed(resend_ms=0)):
            with self.assertRaises(flightd.InDoubt):  # the late attempt is abandoned
                self.once(first, self.error("in_doubt", proposed=True), **options).__enter__()
        self.assertEqual((self.bodies("report"), len(self.abandoned())), ([], 2))
        with self.once(self.proceed(trust_ms=9_000_000), **options) as f:
            self.at += 3600
            with f.effect():
                pass

    def test_no_effect_starts_after_one_of_unknown_outcome(self):
        def twice(f, pause=0):
            with contextlib.suppress(TimeoutError), f.effect():
                raise TimeoutError
            self.at += pause
            with f.effect():
                f.result = 1
        for recovery in ("hold", "verify"):
            options = dict(recovery=recovery, look_up=(lambda f: None) if recovery == "verify" else None)
            for swallow in (False, True):
                self.asked = []
                with self.assertRaises(flightd.InDoubt) as caught, self.once(self.proceed(), **options) as f:
                    with contextlib.suppress(flightd.LeaseLost if swallow else ()):
                        twice(f)
                self.assertIsInstance(caught.exception.__cause__, flightd.LeaseLost)
                self.assertEqual([r["outcome"] for r in self.bodies("report")], ["unknown"])
        self.asked = []
        with self.once(self.proceed(policy_differs=True, policy={"recovery": "resend"})) as f:  # the first caller's policy is used
            twice(f, 5)
        self.assertEqual([r["outcome"] for r in self.bodies("report")], ["succeeded"])
        with self.assertRaises(flightd.InDoubt), self.once(self.proceed(), recovery="resend", provider_window=4) as f:
            twice(f, 5)  # the provider may have forgotten the key
        self.asked = []
        with self.once(self.proceed()) as f:  # an effect may follow one that surely did not happen
            with contextlib.suppress(flightd.NotDone), f.effect():
                raise flightd.NotDone("connection refused")
            with f.effect():
                pass
        self.assertEqual([r["outcome"] for r in self.bodies("report")], ["succeeded"])

    def test_a_status_is_proof_for_its_own_request_only(self):
        def effect(f, error=None):
            with f.effect():
                if error:
                    raise error

        def first_of_two(f, first, second):
            errors = []
            for error in (first, second):
                try:
                    effect(f, error)
                except Exception as e:
                    errors.append(e)
            raise errors[0]

        def status_after(f, errors, *answer, **how):
            for error in errors:
                with contextlib.suppress(Exception):
                    effect(f, error)
            flightd.raise_for_status(*answer, **how)
        no, refused, lost = (lambda: flightd.NotDone("429")), (lambda: flightd.Refused("422")), (lambda: TimeoutError("no answer"))
        for want, block in (
                ("not_done", lambda f: first_of_two(f, no(), no())), ("refused", lambda f: first_of_two(f, refused(), no())),
                ("unknown", lambda f: first_of_two(f, no(), lost())), ("unknown", lambda f: first_of_two(f, refused(), lost())),
                ("not_done", lambda f: status_after(f, [None], 404)), ("refused", lambda f: status_after(f, [None], 422)),
                ("unknown", lambda f: status_after(f, [None, None], 404)), ("unknown", lambda f: status_after(f, [None, None], 422)),
                ("unknown", lambda f: status_after(f, [lost()], 404, method="GET")), ("unknown", lambda f: status_after(f, [lost()], 410, method="GET")),
                ("not_done", lambda f: status_after(f, [no()], 404, method="GET"))):
            self.asked = []
            with contextlib.suppress(flightd.Error, TimeoutError), self.once(self.proceed()) as f:
                block(f)
            self.assertEqual([r["outcome"] for r in self.bodies("report")], [want])

    def test_a_redirect_of_an_unsafe_method_proves_nothing(self):
        def outcome(*args, **more):
            try:
                flightd.raise_for_status(*args, **more)
            except flightd.Error as e:
                return e.code
            return "succeeded"
        self.assertEqual([outcome(status) for status in (201, 303, 404, 410, 500)],
                         ["succeeded", "unknown", "not_done", "refused", "unknown"])
        for method in ("GET", "HEAD", "OPTIONS", "TRACE", "get"):
            for redirects in ((), (303,), True):
                for status, want in ((200, "succeeded"), (302, "not_done"), (404, "not_done"), (410, "refused"), (500, "unknown")):
                    self.assertEqual(outcome(status, method=method, redirects=redirects), want, (method, status))
        for method in ("POST", "PUT", "DELETE", "PATCH", "of a later version"):
            for status in (300, 301, 302, 303, 304, 307, 308):
                self.assertEqual(outcome(status, method=method), "unknown", (method, status))
            for redirects in ([301], [302], [303], [307], [308], [307, 303], True):
                for status in (302, 401, 404, 410, 429, 500):
                    self.assertEqual(outcome(status, method=method, redirects=redirects), "unknown", (status, redirects))
                want = "succeeded" if redirects in ([307], [308]) else "unknown"
                self.assertEqual(outcome(201, method=method, redirects=redirects), want, redirects)

    def test_an_answer_of_an_http_client_is_read(self):
        class Provider(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"] or 0))
                status = int(self.path.rpartition("/")[2])
                self.send_response(status)
                if status == 303:
                    self.send_header("Location", "/404")
                self.send_header("Content-Length", "0")
                self.end_headers()
            do_GET = do_POST

            def log_message(self, *args):
                pass
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Provider)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}/"

        def outcome(answer, **more):
            try:
                flightd.raise_for_status(answer, **more)
            except flightd.Error as e:
                return e.code
            return "succeeded"

        def by_urllib(status, method="POST"):
            with contextlib.closing(self.urlopen(urllib.request.Request(url + str(status), data=b"{}" if method == "POST" else None))) as answer:
                return answer
        for status, want in ((201, "succeeded"), (402, "refused"), (429, "not_done"), (503, "unknown"),
                             (303, "unknown")):  # its page answers 404
            self.assertEqual(outcome(by_urllib(status)), want, status)
        self.assertEqual(outcome(by_urllib(404, "GET")), "unknown", "it may have been redirected from a POST")
        self.assertEqual(outcome(by_urllib(404, "GET"), method="GET"), "not_done")

        def by_requests(status, *history, method="POST"):  # the fields of requests and httpx
            answer = types.SimpleNamespace(status_code=status, headers={}, request=types.SimpleNamespace(method="GET" if history else method), history=[])
            answer.history = [types.SimpleNamespace(status_code=s, headers={}, request=types.SimpleNamespace(method=method)) for s in history]
            return answer
        for answer, want in ((by_requests(201), "succeeded"), (by_requests(402), "refused"), (by_requests(503), "unknown"),
                             (by_requests(404, 303), "unknown"), (by_requests(404, 302, method="GET"), "not_done")):
            error = OSError("for url")
            error.response = answer
            self.assertEqual([outcome(answer), outcome(error)], [want, want])
        aiohttp = types.SimpleNamespace(status=402, history=(), request_info=types.SimpleNamespace(method="POST"))
        self.assertEqual(outcome(aiohttp), "refused")
        for no_answer in ("402", None, OSError("reset"), types.SimpleNamespace(status=402)):
            with self.assertRaises(TypeError):
                flightd.raise_for_status(no_answer)

    def provider(self):
        """Starts a provider that answers the status in the path, and returns its address."""
        class Provider(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                status = int(self.path[1:])
                body = b'{"id": "ch_1"}' if status < 300 else b"no"
                self.send_response(status)
                for name, value in (("Content-Type", "application/json" if status < 300 else "text/plain"),
                                    ("Retry-After", "7"), ("Content-Length", str(len(body)))):
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)
            do_GET = do_POST

            def log_message(self, *args):
                pass
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Provider)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_address[1]}/"

    def http_libraries(self):
        """Returns functions that send a request: by urllib, and by requests and httpx if they are installed."""
        def by_urllib(method, url):
            try:
                return urllib.request.urlopen(urllib.request.Request(url, data=b"{}" if method == "POST" else None), timeout=10)
            except urllib.error.HTTPError as e:
                e.read()  # closes the connection
                raise
        yield "urllib", by_urllib
        for name in ("requests", "httpx"):
            with contextlib.suppress(ImportError):
                library = __import__(name)

                def send(method, url, raises=True, library=library):
                    answer = library.request(method, url)
                    if raises:
                        answer.raise_for_status()
                    return answer
                yield name, send
                yield name + " returned", functools.partial(send, raises=False)

    def test_answers_of_http_libraries_are_recognised(self):
        url = self.provider()
        for name, send in self.http_libraries():
            for status, want in ((201, "succeeded"), (402, "refused"), (429, "not_done"), (503, "unknown"), (404, "not_done")):
                self.asked = []
                with contextlib.suppress(flightd.Error, OSError), self.once(self.proceed()) as f, f.effect():
                    f.result = send("POST", url + str(status))
                (report,) = self.bodies("report")
                self.assertEqual((report["outcome"], report.get("retry_after_ms")), (want, 7000 if want == "not_done" else None), (name, status))
                if want == "succeeded":
                    self.assertEqual(json.loads(base64.b64decode(report["body_base64"])), {"id": "ch_1"})
                if want == "refused":
                    self.assertIn("the provider answered 402: ", base64.b64decode(report["body_base64"]).decode())
            for first, then in (("POST", "GET"), (None, "GET")):
                self.asked = []
                with contextlib.suppress(Exception), self.once(self.proceed()) as f, f.effect():
                    if first:
                        f.result = send(first, url + "201").read() if name == "urllib" else send(first, url + "201")
                    answer = send(then, url + "404")
                    f.result = answer
                self.assertEqual([r["outcome"] for r in self.bodies("report")], ["unknown"], "an error about a GET is no proof")
            for error in (ConnectionResetError("reset"), TimeoutError("no answer")):
                self.asked = []
                with contextlib.suppress(flightd.Error), self.once(self.proceed()) as f, f.effect():
                    raise error
                self.assertEqual([r["outcome"] for r in self.bodies("report")], ["unknown"])
        with urllib.request.urlopen(urllib.request.Request(url + "200", data=b"{}"), timeout=10) as answer:
            self.assertEqual(flightd.ok(answer), {"id": "ch_1"})

    def test_retries(self):
        pauses, results = [], ["429", "429", "done"]

        def act(f):
            if results[0] != "done":
                error = flightd.NotDone(results.pop(0))
                error.retry_after = len(results)
                raise error
            return results[0]
        with mock.patch("time.sleep", pauses.append):
            self.answers = [self.proceed(), self.proceed(), self.proceed()]
            self.client.call("test", "1", None, act, retries=2)
            self.assertEqual(pauses, [2, 1])
            results[:0] = ["429", "429"]
            self.answers = [self.proceed(), self.proceed()]
            with self.assertRaises(flightd.NotDone):
                self.client.call("test", "1", None, act, retries=1)
            self.answers = [self.proceed()]
            with self.assertRaises(flightd.InDoubt):
                self.client.call("test", "1", None, lambda f: 1 / 0, retries=5)

    def test_a_report_names_a_time_out_that_has_passed(self):
        for outcome, error, want in (("succeeded", None, flightd._OVERRAN), ("unknown", KeyError("x"), flightd._OVERRAN + ": KeyError: 'x'"),
                                     ("refused", flightd.Refused("no"), flightd._OVERRAN + ": Refused: no")):
            self.asked = []
            with contextlib.suppress(flightd.Error, KeyError), self.once(self.proceed(), attempt_timeout=2) as f, f.effect():
                self.at += 4
                if error:
                    raise error
                f.result = 1
            (report,) = self.bodies("report")
            self.assertEqual((report["outcome"], report["error"]), (outcome, want))
            if outcome == "refused":
                self.assertEqual(base64.b64decode(report["body_base64"]), b"no")
        self.asked = []
        with self.once(self.proceed(), attempt_timeout=5) as f, f.effect():
            self.at += 4
        self.assertNotIn("error", self.bodies("report")[0])

    def test_odd_waits(self):
        odd = [float("nan"), "soon", "10", [1], True, 10 ** 400]
        for wait in odd:
            for name, take in (("wait", lambda: self.client.once("test", "1", wait=wait)), ("timeout", lambda: self.client.wait("test", "1", timeout=wait)),
                               ("drain", lambda: self.client.run(drain=wait)), ("retry_timeout", lambda: flightd.Client(retry_timeout=wait)),
                               ("report_wait", lambda: flightd.Client(report_wait=wait)), ("ttl", lambda: flightd.Client(ttl=wait))):
                with self.subTest(name=name, wait=str(wait)[:9]), self.assertRaisesRegex(ValueError, f"^{name}: "):
                    self.client.worker("test")(lambda job, input: None)
                    take()
        for delay in [*odd[:4], float("inf"), -1, 1e-5, 1e306, 10 ** 400]:
            with self.subTest(delay=str(delay)[:9]), self.assertRaisesRegex(ValueError, "^delay: .* is not a duration"):
                self.client.submit("test", "1", delay=delay)
        with self.assertRaisesRegex(ValueError, "^ttl: inf is not a duration"):
            flightd.Client(ttl=float("inf"))
        for at in ("2026-01-01", datetime.date(2026, 1, 1), datetime.datetime(2026, 1, 1), 7,
                   datetime.datetime.max.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=-1)))):
            with self.subTest(at=at), self.assertRaisesRegex(ValueError, "^run_at: "):
                self.client.submit("test", "1", run_at=at)

    def test_a_pause_is_a_day_at_most(self):
        for asked, want in (("99999999", 86_400.0), ("99999999999999999999", 86_400.0), ("60", 60.0), ("-1", 0.0), ("1.5", 0.0), ("soon", 0.0),
                            ("Fri, 31 Dec 9999 23:59:59 GMT", 86_400.0), ("Fri, 31 Dec 99999 23:59:59 GMT", 0.0), ("Fri, 99 Jan 2026 03:04:00 GMT", 0.0),
                            ("Fri, 02 Jan 2026 03:05:05 GMT", 60.0), ("Friday, 02-Jan-26 03:05:05 GMT", 60.0), ("Fri Jan  2 03:05:05 2026", 60.0),
                            ("Fri, 02 Jan 2026 03:04:00 GMT", 0.0)):
            answer = types.SimpleNamespace(status_code=429, headers={"Retry-After": asked})
            with mock.patch("flightd.time.time", lambda: 1767323045.0):  # 2026-01-02 03:04:05
                self.assertEqual(flightd._retry_after(answer), want, asked)
        for asked in (float("nan"), -1, "10", None):  # no report is lost for it
            self.asked = []
            refusal = flightd.NotDone("busy")
            refusal.retry_after = asked
            with contextlib.suppress(flightd.Error), self.once(self.proceed()) as f, f.effect():
                raise refusal
            self.assertEqual([(r["outcome"], "retry_after_ms" in r) for r in self.bodies("report")], [("not_done", False)])
        for asked in (1e12, float("inf"), 10 ** 400):
            self.asked = []
            refusal = flightd.NotDone("busy")
            refusal.retry_after = asked
            with contextlib.suppress(flightd.Error), self.once(self.proceed()) as f, f.effect():
                raise refusal
            self.assertEqual([r["retry_after_ms"] for r in self.bodies("report")], [86_400_000])

    def test_the_status_for_a_webhook(self):
        truncated, declined = flightd.ReceiptTruncated(), flightd.Declined()
        for e, want in ((None, 200), (truncated, 200), (declined, 200), (flightd.Failed(), 200), (flightd.Expired(), 200), (flightd.Conflict(), 422),
                        (flightd.Busy(), 503), (flightd.InDoubt(), 503), (flightd.NotDone(), 503), (OSError(), 503), (flightd.Unavailable(), 503)):
            self.assertEqual(flightd.http_status(e), want, e)

    def test_async_with(self):
        async def act():
            async with self.once(self.proceed()) as f:
                with f.effect():
                    await asyncio.sleep(0)
                    f.result = 1
            return f.source
        self.assertEqual(asyncio.run(act()), "executed")
        entered, go = threading.Event(), threading.Event()

        def late():
            entered.set()
            go.wait(60)
            return self.proceed()

        async def cancelled():
            self.asked = []
            task = asyncio.ensure_future(act_on(self.once(late)))
            await asyncio.to_thread(entered.wait, 10)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            go.set()
            while not self.bodies("report"):
                await asyncio.sleep(0.01)

        async def act_on(flight):
            async with flight as f, contextlib.AsyncExitStack():
                with f.effect():
                    self.fail("it starts")
        asyncio.run(cancelled())
        self.assertEqual([r["outcome"] for r in self.bodies("report")], ["not_done"])

    @staticmethod
    def urlopen(request):
        try:
            return urllib.request.urlopen(request, timeout=10)
        except urllib.error.HTTPError as e:
            return e

    def test_the_documents_list_the_not_done_statuses(self):
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "guarantees.md")) as text:
            (row,) = [line for line in text if line.startswith("|") and line.rstrip().endswith("| `not_done` |")]
        self.assertEqual({int(status) for status in re.findall(r"\b[1-5]\d\d\b", row)}, flightd.NOT_DONE_STATUSES)

    def test_a_verification_has_its_own_nonce(self):
        verify = {"decision": "verify", "flight_id": "fl_1", "session": "s", "verification": "p", "renew_every_ms": 600_000}
        busy = self.error("idempotency_in_flight", proposed=True)
        with self.once(verify, self.later(4, busy), self.proceed(), recovery="verify",
                       look_up=lambda f: flightd.NotHappened()) as f:
            with f.effect():
                pass
        (looked, opened), (verification,) = self.bodies("open"), self.bodies("verification")
        self.assertNotEqual(verification["nonce"], looked["nonce"])
        self.assertEqual((opened["nonce"], opened["not_after"]), (verification["nonce"], verification["not_after"]))
        self.assertEqual([a["nonce"] for a in self.abandoned()], [looked["nonce"]], "its session is not needed for ever")

    def renewed(self, session, *answers):
        """Renews a session once for each answer, and returns the requests."""
        answers, asked = list(answers), []

        def ask(method, path, body=None, **more):
            if not path.endswith("/renew"):
                return self.ask(method, path, body, **more)
            asked.append(dict(body))
            answer = answers.pop(0)
            if isinstance(answer, BaseException):
                raise answer
            return answer, flightd._now()
        with mock.patch.object(self.client, "_ask", ask), mock.patch.object(session, "_stop") as stop:
            stop.wait.side_effect = lambda pause: not answers
            session._renew_loop()
        return asked

    @staticmethod
    def listed(nonce, attempt=7, id="1"):
        key = f"default/test/{id}"
        return {"key": key, "flight_id": flightd._flight_id_for_key(key), "nonce": nonce, "attempt": attempt, "fencing_token": "t"}

    def test_a_renewal_does_not_end_a_started_attempt(self):
        renewal = {"session": "s", "trust_ms": 9000, "open_digest": "e"}
        with self.once(self.proceed()) as f:
            session = f._nonce.session
            with f.effect():
                late = [renewal, {**renewal, "open": []}, {**renewal, "open": [self.listed(f._nonce.id)]}]
                self.renewed(session, *late, *late)
                self.assertEqual((self.bodies("abandon"), self.bodies("report"), self.abandons), ([], [], []))
                other = {**renewal, "open": [self.listed("other", 8)]}
                self.renewed(session, other, renewal, other, {**renewal, "open": [{}]})
                self.assertEqual(self.bodies("report"), [], "not twice in a row")
                self.renewed(session, other, other)
                self.assertEqual([r["outcome"] for r in self.bodies("report")], ["unknown"], "its outcome is unknown")
                given_up = flightd._Nonce(f, 0, 0)
                given_up.state = "given up"
                session._nonces[given_up.id] = given_up
                self.renewed(session, {**renewal, "open": [self.listed(given_up.id, 6)]})
                self.assertEqual(len(self.abandons), 1)
        self.renewed(session, {**renewal, "open": [self.listed(f._nonce.id)]}, renewal)
        self.assertEqual([r["outcome"] for r in self.bodies("report")], ["unknown", "succeeded"])

    def test_an_old_renewal_does_not_put_a_reported_attempt_in_doubt(self):
        with self.assertRaises(flightd.NotDone), self.once(self.proceed()) as f, f.effect():
            raise flightd.NotDone("nothing happened")
        old = {"session": "s", "trust_ms": 9000, "open": [self.listed(f._nonce.id)]}
        session = f._nonce.session
        session._retired = False  # like a session that other attempts use
        self.renewed(session, old, old)
        self.assertEqual([r["outcome"] for r in self.bodies("report")], ["not_done", "not_done"])
        self.assertTrue(session._retired, "if the report does not end it, the end of the session does")

    def test_a_renewal_carries_the_digest_of_open_attempts(self):
        def digest(*nonces):
            return hashlib.sha256("".join(sorted(f"{n.id} 7\n" for n in nonces)).encode()).hexdigest()[:32]
        flights, renewal = [], {"session": "own", "trust_ms": 9000}
        with self.once(self.proceed(session="first")) as f, f.effect():
            for id in ("2", "3"):
                self.answers = [self.proceed(session="own", flight_id=f"fl_{id}")]
                flights.append(self.client.once("test", id).__enter__())
            one, two = (g._nonce for g in flights)
            session = one.session
            self.assertIs(two.session, session)
            self.assertEqual([r["open_digest"] for r in self.renewed(session, renewal)], [digest(one, two)])
            pages = [{**renewal, "open": [self.listed("a", id="4")], "more": True}, {**renewal, "open": [self.listed("b", id="5")]}]
            asked = self.renewed(session, *pages)
            self.assertEqual([r.get("after") for r in asked], [None, flightd._flight_id_for_key("default/test/4")])
            for g in flights:
                with g.effect():
                    pass
                g.__exit__(None, None, None)
            self.assertEqual(self.renewed(session, renewal)[0]["open_digest"], digest())
        self.assertEqual([v for v, _ in self.asked].count("sessions"), 1)
        self.assertEqual([o.get("session") for o in self.bodies("open")], [None, "own", "own"])

    def test_what_an_unanswered_claim_has_opened_is_abandoned_when_it_is_given_up(self):
        self.client._connect("")
        claims = [flightd._Claim(self.ledger, 17_000) for _ in range(3)]
        for claim in claims:
            self.client._choose_session(claim)
        waiting, given_up, answered = claims
        waiting.session._used_at -= 100
        waiting.session._is_over()
        self.assertFalse(waiting.session._retired, "a claim needs its session")
        session, key = waiting.session, "default/test/1"
        id = flightd._flight_id_for_key(key)

        def job(claim):
            return {**self.proceed(session=session.id, flight_id=id), "nonce": f"{claim.text}.{id}", "policy": {"recovery": "resend"}}

        def listed(claim):
            return {"session": session.id, "trust_ms": 9000, "open": [self.listed(flightd._nonce_id(f"{claim.text}.{id}"))]}
        worker = flightd._Worker(self.client, 1)
        session.end_claim(given_up, [])
        others = [{**job(answered), name: "other"} for name in ("flight_id", "key", "decision")]
        others += [None, {**job(answered), "key": 7}, {**job(answered), "decision": "verify", "age_ms": "x"}]  # one bad job does not spoil the answer
        (taken,) = worker._take(answered, {"jobs": [*others, job(answered)], "served_ms": 3000, "age_ms": 1000}, flightd._now())
        self.assertEqual(taken._policy["recovery"], "resend")
        self.assertEqual(taken._nonce.made_at.mono, self.at + 3, "the time-out counts from when the attempt was opened")
        for claim, want in ((waiting, 0), (answered, 0), (given_up, 1)):
            self.renewed(session, *(1 if want else 3) * [listed(claim)])
            self.assertEqual((len(self.abandons), self.bodies("report")), (want, []), "and never reported")
        (abandoned,) = self.abandoned()
        self.assertEqual((abandoned["action"], abandoned["id"], abandoned["nonce"], abandoned["not_after"]),
                         ("test", "1", f"{given_up.text}.{id}", given_up.not_after))
        session.end_claim(waiting, [])
        self.assertEqual(worker._take(waiting, {"jobs": [job(waiting)]}, flightd._now()), [], "it is late")
        self.assertEqual(len(self.abandoned()), 2)
        with self.assertRaises(flightd.InDoubt), taken:
            raise flightd.InDoubt("its own error")
        self.assertEqual([r["outcome"] for r in self.bodies("report")], ["not_done"])

    def test_a_job_that_the_client_cannot_read_is_not_done(self):
        self.client._connect("")
        key = "default/test/1"
        id = flightd._flight_id_for_key(key)
        handler = self.client.worker("test")(lambda job, input: self.fail("it runs"))
        for bad, text in (({"policy": None}, "policy: "), ({"policy": {"recovery": "retry"}}, "policy: "), ({"age_ms": "x"}, "age_ms: 'x'"),
                          ({"policy": {"settle_ms": -1}}, "policy/settle_ms: -1"), ({"policy": {"attempt_timeout_ms": True}}, "policy/attempt_timeout_ms: True"),
                          ({"input_base64": "*"}, "input_base64: "), ({"input_base64": 7}, "input_base64: "), ({"input_content_type": 7}, "input_content_type: ")):
            with self.subTest(bad):
                self.asked = []
                claim = flightd._Claim(self.ledger, 17_000)
                self.client._choose_session(claim)
                given = {**self.proceed(session=claim.session.id, flight_id=id), "nonce": f"{claim.text}.{id}", "policy": {"recovery": "resend"}, **bad}
                (job,) = flightd._Worker(self.client, 1)._take(claim, {"jobs": [given], "served_ms": 1}, flightd._now())
                with self.assertRaisesRegex(flightd.NotDone, "this client cannot read the job: " + text):
                    handler.perform(job)
                self.assertEqual([r["outcome"] for r in self.bodies("report")], ["not_done"])
                self.assertIn("this client cannot read the job: " + text, self.bodies("report")[0]["error"])

    def test_a_claim_is_answered_while_a_renewal_is_handled_that_lists_its_job(self):
        self.client._connect("")
        claim = flightd._Claim(self.ledger, 17_000)
        self.client._choose_session(claim)
        session, key = claim.session, "default/test/1"
        id = flightd._flight_id_for_key(key)
        nonce, worker, make, taken = f"{claim.text}.{id}", flightd._Worker(self.client, 1), self.client._new_job, []
        job = {**self.proceed(session=session.id, flight_id=id), "nonce": nonce, "policy": {"recovery": "resend"}}

        def answered(*args):
            self.client._new_job = make
            taken.extend(worker._take(claim, {"jobs": [job]}, flightd._now()))
            return make(*args)
        self.client._new_job = answered
        self.renewed(session, {"session": session.id, "trust_ms": 9000, "open": [self.listed(flightd._nonce_id(nonce))]})
        self.assertEqual(self.abandons, [], "its handler may have begun")
        self.assertIs(session._nonces[taken[0]._nonce.id], taken[0]._nonce)
        with self.assertRaises(flightd.InDoubt), taken[0]:
            raise flightd.InDoubt("its own error")

    def test_a_session_stays_while_a_job_of_its_claim_may_begin(self):
        self.client._connect("")
        self.client.worker("test")(lambda job, input: None)
        worker, claim = flightd._Worker(self.client, 1), flightd._Claim(self.ledger, 17_000)
        self.client._choose_session(claim)
        session, id = claim.session, flightd._flight_id_for_key("default/test/1")
        job = {**self.proceed(session=session.id, flight_id=id), "nonce": f"{claim.text}.{id}", "policy": {"recovery": "resend"}}
        session.close()
        self.assertFalse(session._stop.is_set(), "its answer is awaited")
        (taken,) = worker._take(claim, {"jobs": [job]}, flightd._now())
        locked, needs = [], taken._nonce.needs_session
        taken._nonce.needs_session = lambda: locked.append(self.client._lock.locked()) or needs()
        self.at += 3600
        session.close()
        self.at -= 3600
        self.assertFalse(session._is_over())
        self.assertEqual(locked, [True], "no claim ends between the looks at the nonces and at the claims")
        self.assertFalse(session._stop.is_set(), "it is renewed")
        worker._stop.set()
        session._retired, self.client._session = False, session
        self.assertEqual(worker._ask_for_jobs(1), [], "the worker stops")
        self.assertTrue(worker._claim.ended)
        self.assertNotIn("claim", [verb for verb, _ in self.asked])
        with self.assertRaises(flightd.InDoubt), taken:
            raise flightd.InDoubt("its own error")

    def test_a_session_stays_until_a_renewal_lists_what_a_lost_claim_has_opened(self):
        self.client._connect("")
        claim = flightd._Claim(self.ledger, 0)
        self.client._choose_session(claim)
        session = claim.session
        session.end_claim(claim, [], lost=True)
        session.retire()
        self.assertFalse(session._is_over())
        session.renew()
        self.assertTrue(session._is_over())

    def test_a_closed_client_leaves_abandons_to_its_sessions(self):
        nonce = mock.Mock(abandoning=True)
        self.client._keep_abandon(time.monotonic() + 100, nonce)
        self.client._closed.set()
        self.client._abandon_loop()
        self.assertFalse(nonce.abandoning, "a renewal abandons it again")
        self.assertEqual(len(self.client._abandons), 0)

    def test_a_session_that_is_answered_too_late_is_not_waited_for_again(self):
        ask = self.client._ask
        self.client._performed = True

        def late(method, path, *more, **options):
            self.assertLess(len(self.bodies("sessions")), 5, "it is made again and again")
            answer, sent_at = ask(method, path, *more, **options)
            return ({**answer, "trust_ms": 0} if path == "/v1/sessions" else answer), sent_at
        self.client._ask = late
        with contextlib.suppress(flightd.Error), self.once(self.proceed()) as f, f.effect():
            f.result = 1
        self.assertEqual((len(self.bodies("sessions")), self.bodies("open")[0].get("session")), (1, None))

    def test_a_refusal_proves_nothing_for_an_effect_that_runs(self):
        for report, error in (("unknown", flightd.Refused("no")), ("unknown", flightd.NotDone("no"))):
            self.asked = []
            with contextlib.suppress(flightd.Error), self.once(self.proceed()) as f:
                other = f.effect()
                other.__enter__()
                with f.effect():
                    raise error
            other.__exit__(None, None, None)
            self.assertEqual([r["outcome"] for r in self.bodies("report")], [report])

    def test_tasks_do_not_share_a_few_threads(self):
        all_run = threading.Barrier(40)

        async def tasks():
            await asyncio.gather(*(flightd._call_in_thread(all_run.wait, 20) for _ in range(all_run.parties)))
            with self.assertRaisesRegex(ValueError, "wrong"):
                await flightd._call_in_thread(mock.Mock(side_effect=ValueError("wrong")))
        asyncio.run(tasks())

    def test_a_lost_session_is_replaced(self):
        def lose_by_time(session):
            self.at += 10
            self.renewed(session, {"session": "own", "trust_ms": 900_000})
        gone = self.error("lease_lost", 410, session="own")
        for lose, left in ((lambda session: self.renewed(session, gone), 1), (lose_by_time, 0)):
            self.client._forget_sessions()
            self.client._performed = True
            self.asked, self.left[:] = [], []
            busy = self.error("idempotency_in_flight", proposed=False)
            with self.assertRaises(flightd.Busy):
                self.once(busy, wait=0).__enter__()
            self.assertEqual(self.left, [], "a renewal would list it")
            with self.assertRaisesRegex(flightd.LeaseLost, "lease is lost"), self.once(self.proceed(session="own")) as f:
                session = f._nonce.session
                lose(session)
                with f.effect():
                    self.fail("it starts")
            with self.once(self.proceed(session="own")) as f, f.effect():
                self.assertIsNot(f._nonce.session, session)
            self.assertEqual([v for v, _ in self.asked].count("sessions"), 2)
            self.assertEqual(len(self.left), left, "it is abandoned later, unless it was not listed after its not_after")

    def test_an_idle_session_is_closed(self):
        with self.once(self.proceed()) as f, f.effect():
            pass
        self.answers = [self.proceed(session="own")]
        renewal = {"session": "own", "trust_ms": 9000}
        with self.client.once("test", "2") as g:
            session = g._nonce.session
            session._used_at -= 100
            self.assertEqual(len(self.renewed(session, renewal)), 1, "an effect may run")
            with g.effect():
                pass
        self.assertEqual(len(self.renewed(session, renewal)), 1)
        session._used_at -= 100
        self.assertEqual(self.renewed(session), [])
        self.assertTrue(session._is_over())
        session.close()
        self.assertEqual([v for v, _ in self.asked].count("close"), 1)
        with self.once(self.proceed()) as f, f.effect():
            pass
        self.assertNotIn("session", self.bodies("open")[-1], "a client that acts seldom has no session")

    def test_only_an_exact_time_sets_the_ledger_clock_back(self):
        client = flightd.Client(spool="")
        self.addCleanup(client.close)
        for told, want in [("5000", 5000), (7000, 7000), ("6000", 7000), (None, 7000), ("later", 7000), (True, 7000), ("9" * 20, 7000)]:
            client._note_ledger_ms(told)
            self.assertEqual(client._ledger_ms(), want)
        self.at += 1.5
        self.assertEqual(client._ledger_ms(), 8500)
        client._note_ledger_ms(8400)
        self.assertEqual(client._ledger_ms(), 8500)
        client._note_ledger_ms(6000, exact=True)
        self.assertEqual(client._ledger_ms(), 6000)


class PickerTest(unittest.TestCase):
    """The order of servers, and the search for the leader."""

    def test_order(self):
        for preferred, nodes, leader, probe, want in [
                (1, "- - -", "", -1, [1, 2, 0]), (0, "a b c", "c", -1, [2, 0, 1]), (1, "a b c", "d", -1, [1, 2, 0]),
                (1, "a - c", "c", -1, [2, 0, 1]), (1, "a - c", "", -1, [2, 0, 1]), (0, "a - -", "c", 1, [1, 0, 2]),
                (2, "a c c", "c", -1, [2, 1, 0]), (2, "- - -", "c", -1, [2, 0, 1]), (0, "a b -", "c", 2, [2, 0, 1])]:
            named = ["" if n == "-" else n for n in nodes.split()]
            self.assertEqual(flightd._try_order(preferred, named, leader, probe), want, (preferred, nodes, leader, probe))

    def test_the_leader_is_found_by_one_probe_a_second(self):
        at = 1000.0
        with mock.patch.object(flightd.time, "monotonic", lambda: at):
            picker = flightd._Picker(3)

            def pick(want, probes):
                order, probe = picker.pick(True)
                self.assertEqual((order[0], probe == order[0]), (want, probes))
            pick(0, False)
            picker.answered(0, -1, "a", "c")
            self.assertEqual(picker.pick(False), ([0, 1, 2], -1), "this request must not probe")
            pick(1, True)
            at += 60
            pick(0, False)  # the probe is in flight
            picker.answered(1, 1, "b", "c")
            pick(0, False)
            at += 1
            pick(2, True)
            picker.answered(2, 2, "c", "c")
            pick(2, False)
            picker.answered(2, -1, "c", "b")  # b leads now
            pick(1, False)
            picker.failed(1, -1)  # b is away, and c still names it
            pick(2, False)
            for seconds in (1, 1, 2):  # the pause doubles
                at += seconds / 2
                pick(2, False)
                at += seconds / 2
                pick(1, True)
                picker.failed(1, 1)
            at += 4
            pick(1, True)
            picker.answered(1, 1, "b", "b")
            pick(1, False)

    def test_lone_servers_are_preferred_in_turn(self):
        picker = flightd._Picker(2)
        for i in range(5):
            self.assertEqual(picker.pick(True), ([i % 2, 1 - i % 2], -1))
            picker.answered(i % 2, -1, "", "")
            self.assertEqual(picker.pick(True)[0][0], i % 2)
            picker.failed(i % 2, -1)
            picker.failed(i % 2, -1)  # another request at the same server


CANARY = "fltd_canary-4f1c"
PROBLEM = "application/problem+json"


class TestAccess(unittest.TestCase):
    """Tests of token and TLS, against a server of their own."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        clean = {k: v for k, v in os.environ.items() if not k.startswith("FLIGHTD_")}
        patch = mock.patch.dict(os.environ, clean, clear=True)
        patch.start()
        self.addCleanup(patch.stop)
        self.asked = []  # path and Authorization of each request
        self.answers = {}  # by path: status, headers and body; otherwise the version

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path(name)

    def serve(self, context=None):
        test = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                test.asked.append((self.path, self.headers.get("Authorization")))
                answer = test.answers.get(self.path, (200, {}, b'{"version":"1","deployment":"d"}'))
                status, headers, body = answer(self) if callable(answer) else answer
                self.send_response(status)
                for name, value in {"Flightd-Echo": self.headers["Flightd-Echo"], **headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_GET

            def log_message(self, *args):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *args):
                pass  # a rejected handshake

        server = Server(("127.0.0.1", 0), Handler)
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        self.addCleanup(server.server_close)
        self.addCleanup(thread.join)
        self.addCleanup(server.shutdown)
        return f"http{'s' if context else ''}://127.0.0.1:{server.server_address[1]}"

    def client(self, address, **options):
        client = flightd.Client(address, **{"spool": "", "retry_timeout": 2.0, **options})
        self.addCleanup(client.close)
        return client

    def version(self, client):
        return client._ask("GET", "/version", tries=1)[0]["version"]

    def test_the_token_of_a_request(self):
        address = self.serve()
        file = self.write("token", "of-the-file\r\n")
        for options, environment, want in (
            ({}, {}, None),
            ({}, {"FLIGHTD_TOKEN": "of-the-environment", "FLIGHTD_TOKEN_FILE": file}, "Bearer of-the-environment"),
            ({}, {"FLIGHTD_TOKEN": "of-the-environment\r\n"}, "Bearer of-the-environment"),
            ({}, {"FLIGHTD_TOKEN": "", "FLIGHTD_TOKEN_FILE": file}, "Bearer of-the-file"),
            ({"token": "given", "token_file": file}, {"FLIGHTD_TOKEN": "x"}, "Bearer given"),
            ({"token_file": file}, {"FLIGHTD_TOKEN": "x"}, "Bearer of-the-file"),
        ):
            with self.subTest(options=options), mock.patch.dict(os.environ, environment):
                self.version(self.client(address, **options))
                self.assertEqual(self.asked[-1], ("/version", want))
        user = address.replace("://", "://u:p%20@")
        self.version(self.client(user))
        self.assertEqual(self.asked[-1][1], "Basic dTpwIA==")
        self.version(self.client(user, token="given"))
        self.assertEqual(self.asked[-1][1], "Bearer given")

    def test_a_token_that_cannot_be_sent_is_rejected_and_not_shown(self):
        for options in ({"token": CANARY + " x"}, {"token": CANARY + "\n"}, {"token": CANARY + "\x01"}, {"token": CANARY + "é"},
                        {"token_file": self.write("lines", CANARY + "\n" + CANARY + "\n")}, {"token_file": self.write("empty", "\n")},
                        {"token_file": self.path("none")}):
            with self.subTest(options=options), self.assertRaises(ValueError) as caught:
                flightd.Client("http://127.0.0.1:1", spool="", **options)
            self.assertNotIn(CANARY, str(caught.exception))
        with self.assertRaises(ValueError) as caught:
            flightd.Client(f"http://user:{CANARY}@127.0.0.1:1?x=y", spool="")
        self.assertNotIn(CANARY, str(caught.exception))

        for options in ({"token": "Bearer " + CANARY}, {"token_file": self.write("scheme", "bearer " + CANARY)}):
            with self.assertRaisesRegex(ValueError, 'begins with "Bearer ": leave that word out') as caught:
                flightd.Client("http://127.0.0.1:1", spool="", **options)
            self.assertNotIn(CANARY, str(caught.exception))
        os.environ["FLIGHTD_TOKEN_FILE"] = self.path("none")
        with self.assertRaisesRegex(ValueError, "FLIGHTD_TOKEN_FILE cannot be read: " + re.escape(self.path("none"))):
            flightd.Client("http://127.0.0.1:1", spool="")
        os.environ.update(FLIGHTD_TOKEN_FILE="", FLIGHTD_CA_FILE=self.path("none"))
        with self.assertRaisesRegex(ValueError, "FLIGHTD_CA_FILE cannot be used: " + re.escape(self.path("none"))):
            flightd.Client("https://127.0.0.1:1", spool="")

    def test_a_token_over_plain_http(self):
        for address, options, env, host in (
                ("http://user:pw@flightd.example.com:7420/x", {"token": CANARY}, {}, "http://flightd.example.com:7420"),
                ("10.0.0.1:7420", {"token": CANARY}, {}, "http://10.0.0.1:7420"),
                ("https://a,http://b", {}, {"FLIGHTD_TOKEN": CANARY}, "http://b"),
                ("http://localhost.example.com", {}, {"FLIGHTD_TOKEN": CANARY}, "http://localhost.example.com"),
                ("http://b", {}, {"FLIGHTD_TOKEN": CANARY, "FLIGHTD_ALLOW_PLAIN_HTTP": "false"}, "http://b"),
                ("https://flightd.example.com", {"token": CANARY}, {}, ""),
                ("LOCALHOST:1,http://127.9.9.9:1,http://[::1]:1", {"token": CANARY}, {}, ""),
                ("http://flightd.example.com", {}, {}, ""),
                ("http://b", {"token": CANARY, "allow_plain_http": True}, {}, ""),
                ("http://b", {}, {"FLIGHTD_TOKEN": CANARY, "FLIGHTD_ALLOW_PLAIN_HTTP": "true"}, "")):
            with self.subTest(address=address, env=env), mock.patch.dict(os.environ, env):
                if not host:
                    self.client(address, **options)
                    continue
                with self.assertRaisesRegex(ValueError, f"the token would travel in clear text to {re.escape(host)}; write https://.*"
                                                        "FLIGHTD_ALLOW_PLAIN_HTTP=true") as caught:
                    self.client(address, **options)
                self.assertNotRegex(str(caught.exception), "pw|" + CANARY)

    def test_a_replaced_token_is_used(self):
        self.write("token", "first\n")
        client, now = self.client(self.serve(), token_file=self.path("token")), [time.monotonic()]
        for text, later, want in (("second", 0, "first"), ("second", 1, "second"), ("", 1, "second"), ("not one word", 1, "second"),
                                  (None, 1, "second"), ("third", 1, "third")):
            if text is None:
                os.remove(self.path("token"))
            else:
                self.write("token", text)
            now[0] += later
            logged = self.assertLogs("flightd", "ERROR") if want == "second" and text != "second" else contextlib.nullcontext()
            with logged as log, mock.patch.object(flightd.time, "monotonic", lambda: now[0]):
                self.assertEqual(client._token(), want)
            if log is not None:
                self.assertNotIn("not one word", "".join(log.output))

    def test_the_token_is_never_shown(self):
        flight_id, problem = flightd._flight_id_for_key("default/test/1"), b'{"code":"%s","retryable":false}'
        proceed = {"decision": "proceed", "flight_id": flight_id, "key": "default/test/1", "attempt": 1, "fencing_token": "t",
                   "session": "s", "trust_ms": 10000, "idempotency_key": "i"}
        self.answers = {"/v1/flights:open": (201, {}, json.dumps(proceed).encode()),
                        f"/v1/flights/{flight_id}/report": (401, {"Content-Type": PROBLEM}, problem % b"unauthenticated")}
        log = io.StringIO()
        handler = logging.StreamHandler(log)
        logging.getLogger("flightd").addHandler(handler)
        self.addCleanup(logging.getLogger("flightd").removeHandler, handler)
        client = self.client(self.serve(), token=CANARY, spool=self.path("spool"), report_wait=0.2)
        shown = [repr(client), str(client), repr(vars(client))]
        with self.assertRaises(flightd.Unrecorded) as caught, client.once("test", "1") as f:
            shown.append(repr(vars(f)))
            with f.effect():
                f.result = 1
        shown += [str(caught.exception), repr(caught.exception), repr(vars(caught.exception)), log.getvalue()]
        names = os.listdir(self.path("spool"))
        self.assertEqual([n[-7:] for n in names], [".report"], "a rejected token does not reject the report")
        for name in names:
            with open(os.path.join(self.path("spool"), name), "rb") as file:
                shown.append(repr(file.read()))
        self.assertNotIn(CANARY, "".join(shown))
        self.assertEqual({token for _, token in self.asked}, {"Bearer " + CANARY})

    def test_the_answer_to_another_request_counts_as_lost(self):
        client, echoes, other = self.client(self.serve()), [], {"Flightd-Echo": "other"}
        client._connect("")
        problem = b'{"code":"in_doubt","retryable":false,"detail":"it may","flight_id":"fl_1","proposed":true}'
        for status, body, text in ((409, problem, "is that to another request: in_doubt: it may"), (503, problem, "another request"),
                                   (200, b"{}", "not from flightd"), (304, b"", "not from flightd"), (502, b"<html/>", "not from flightd"),
                                   (408, b"", "not from flightd"), (404, b"<html/>", ""), (302, b"", "")):
            answers = [(status, other, body)] * 2 + [(409, {}, problem)]
            self.answers["/v1/flights:open"] = lambda request: echoes.append(request.headers["Flightd-Echo"]) or answers.pop(0)
            for tries, code in ((1, "unreachable"), (2, "in_doubt")):
                with self.subTest(status=status, tries=tries), self.assertRaises(flightd.Error) as caught:
                    client._ask("POST", "/v1/flights:open", {}, tries=tries)
                self.assertEqual((caught.exception.code, caught.exception._may_have_arrived), (code, True) if text else ("internal", False))
                self.assertIn(text if tries == 1 else "", str(caught.exception))
        self.assertEqual((len(echoes), len(set(echoes))), (22, 22), "each try has a value of its own")

    def test_a_redirect_is_not_followed(self):
        target = self.serve()
        self.answers["/version"] = (307, {"Location": target + "/elsewhere"}, b"")
        with self.assertRaises(flightd.Error):
            self.version(self.client(self.serve(), token=CANARY))
        self.assertEqual([path for path, _ in self.asked], ["/version"])

    def test_an_open_over_a_quota_is_repeated(self):
        tries = []

        def answer(_):
            tries.append(time.monotonic())
            if len(tries) < 3:
                return 429, {"Content-Type": PROBLEM, "Retry-After": "1"}, b'{"code":"quota_exceeded","retryable":true}'
            return 200, {}, b'{"version":"1","deployment":"d"}'
        self.answers["/version"] = answer
        with mock.patch.object(flightd.time, "sleep") as sleep:
            client = self.client(self.serve())
            self.assertEqual(client._ask("GET", "/version")[0]["version"], "1")
        self.assertEqual([call.args[0] for call in sleep.call_args_list], [1.0, 1.0])
        self.answers["/version"] = (429, {"Retry-After": "60"}, b'{"code":"quota_exceeded","retryable":true}')
        with self.assertRaises(flightd.Unavailable) as caught:
            client._ask("GET", "/version")
        self.assertEqual(caught.exception.code, "quota_exceeded")

    def test_a_report_of_another_form_stays(self):
        spool = flightd.Client("http://127.0.0.1:1", spool=self.path("spool"))._spool
        name = spool.store("d", "default/test/1", b"{}")
        spool.release(name)
        with open(os.path.join(self.path("spool"), name), "rb") as file:
            entry = json.loads(file.read()[8:])
        self.assertEqual(spool.claim(name), {k: entry[k] for k in ("deployment", "key", "report")})
        for change in ({"sealed": "yes"}, {"key": {"of": "another form"}}, {"key": "1"}, {"report": "AAAA"}, {"report": None},
                       {"deployment": 1}, [1]):
            text = json.dumps({**entry, **change} if isinstance(change, dict) else change).encode()
            path = os.path.join(self.path("spool"), "x.report")
            with open(path, "wb") as file:
                file.write(b"FDC1" + struct.pack(">I", flightd._crc32c(text)) + text)
            spool._reported_unreadable.clear()
            with self.subTest(change=change), self.assertLogs("flightd", "ERROR") as logged:
                self.assertIsNone(spool.claim("x.report"))
                self.assertIsNone(spool.claim("x.report"))
            self.assertEqual(len(logged.output), 1)
            self.assertIn("a later version", logged.output[0])
            self.assertEqual(sorted(os.listdir(self.path("spool"))), sorted([name, "x.report"]))

    def issue(self, name, *more, ca=None):
        """Makes a certificate and its key, signed by ca or by itself."""
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1",
                   "-subj", "/CN=" + name, "-keyout", self.path(name + ".key"), "-out", self.path(name), *more]
        if ca:
            command += ["-CA", self.path(ca), "-CAkey", self.path(ca + ".key"), "-addext", "basicConstraints=critical,CA:FALSE"]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)

    def test_tls(self):
        self.issue("ca")
        self.issue("other-ca")
        self.issue("server", "-addext", "subjectAltName=IP:127.0.0.1", ca="ca")
        self.issue("elsewhere", "-addext", "subjectAltName=DNS:elsewhere", ca="ca")
        self.issue("me", ca="ca")

        def server(name, **verify):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.path(name), self.path(name + ".key"))
            if verify:
                context.verify_mode = ssl.CERT_REQUIRED
                context.load_verify_locations(**verify)
            return self.serve(context)
        address = server("server")
        self.assertEqual(self.version(self.client(address, ca_file=self.path("ca"))), "1")
        for ca in ("", self.path("other-ca")):
            client = self.client(address, ca_file=ca, retry_timeout=600.0)
            with self.assertRaisesRegex(flightd.Unavailable, "certificate of https://127.*not trusted.*set FLIGHTD_CA_FILE"):
                client._ask("GET", "/version")
        with self.assertRaisesRegex(flightd.Unavailable, "not trusted.*127.0.0.1") as caught:
            self.version(self.client(server("elsewhere"), ca_file=self.path("ca")))
        self.assertNotIn("FLIGHTD_CA_FILE", str(caught.exception))
        self.issue("server-2", "-addext", "subjectAltName=IP:127.0.0.1", ca="other-ca")
        both = self.client(server("server-2") + "," + address, ca_file=self.path("ca"))
        self.assertEqual(both._ask("GET", "/version")[0]["version"], "1", "by the next server")

        address = server("server", cafile=self.path("ca"))
        self.issue("other", ca="other-ca")
        for cert in (None, (self.path("other"), self.path("other.key"))):
            client = self.client(address, ca_file=self.path("ca"), client_cert=cert, retry_timeout=600.0)
            with self.assertRaisesRegex(flightd.Unavailable, "set FLIGHTD_CLIENT_CERT and FLIGHTD_CLIENT_KEY"):
                client._ask("GET", "/version")
        alert = ssl.SSLError(1, "[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] tlsv13 alert certificate required (_ssl.c:1)")
        with mock.patch.object(flightd._Server, "_send", side_effect=alert), self.assertRaises(flightd.Unavailable) as caught:
            self.version(self.client(address))
        self.assertFalse(caught.exception._may_have_arrived, "the server has discarded the request")
        pair = self.path("me"), self.path("me.key")
        self.assertEqual(self.version(self.client(address, ca_file=self.path("ca"), client_cert=pair)), "1")
        os.environ.update(FLIGHTD_CA_FILE=self.path("ca"), FLIGHTD_CLIENT_CERT=pair[0], FLIGHTD_CLIENT_KEY=pair[1])
        self.assertEqual(self.version(self.client(address)), "1")
        for wrong in ({"ca_file": self.path("none")}, {"ca_file": pair[1]}, {"client_cert": (pair[0], "")},
                      {"client_cert": (pair[0], self.path("none"))}, {"client_cert": (pair[0], self.path("ca.key"))}):
            with self.subTest(wrong=wrong), self.assertRaises(ValueError):
                self.client(address, **wrong)


if __name__ == "__main__":
    unittest.main()
