"""What is Python's own about the client, against the server that FLIGHTD_ADDR names."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request
import uuid

import flightd


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

    def test_results_come_back_as_everybody_gets_them(self):
        for value, want in [
            ({"a": (1, 2.5), 3: None}, {"a": [1, 2.5], "3": None}), ("é\u2028", "é\u2028"), (0, 0), (None, None),
            (b"\x00\xff", b"\x00\xff"), ([], []),
        ]:
            with self.subTest(value=value):
                self.id = uuid.uuid4().hex
                first, again = self.run_once(value), self.run_once("something else")
                self.assertEqual((first.source, again.source), ("executed", "replayed"))
                self.assertEqual(first.result, want)
                self.assertEqual(again.result, want)
                self.assertEqual(first.body(), again.body())

    def test_an_effect_that_happened_is_no_error_because_of_its_result(self):
        recursive = []
        recursive.append(recursive)
        for value in [object(), float("nan"), recursive, "\ud800", {1: "a", "1": "b"}]:
            with self.subTest(value=repr(value)):
                self.id = uuid.uuid4().hex
                self.assertEqual(self.run_once(value).source, "executed")
                self.assertEqual(self.run_once(None).receipt.outcome, "succeeded")

    def test_a_long_result_is_whole_for_whoever_executed_it(self):
        first, again = self.run_once("x" * 100_000), self.run_once("")
        self.assertEqual(first.result, "x" * 100_000)
        self.assertTrue(again.receipt.truncated)
        self.assertEqual(again.receipt.size, 100_002)
        self.assertEqual(len(again.result), 64 << 10)
        self.assertEqual(first.receipt.digest, again.receipt.digest)

    def test_texts_that_cannot_travel_never_keep_a_report_away(self):
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

    def test_what_a_provider_calls_an_id_never_keeps_a_report_away(self):
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

    def test_an_interrupt_in_mid_report_keeps_it(self):
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
        end = time.monotonic() + 20
        while client.spooled() and time.monotonic() < end:
            time.sleep(0.05)
        self.assertEqual(self.run_once(2).result, 1)

    def test_a_flight_is_entered_once(self):
        flight = self.client.once("test", self.id)
        with self.assertRaises(flightd.NotDone):
            with flight as f:
                with f.effect():
                    raise flightd.NotDone("later")
        with self.assertRaisesRegex(RuntimeError, "once"):
            with flight:
                self.fail("it runs, and nobody renews it")
        self.assertEqual(self.run_once(2).source, "executed")

    def test_a_report_waits_as_long_as_it_is_told(self):
        client = flightd.Client(spool=self.spool.name, report_wait=float("inf"), patience=float("inf"))
        self.addCleanup(client.close)
        client._spool.keep = lambda *args: ""
        ask, tries = client._ask_raw, []

        def away_at_first(method, path, body, timeout, *more):
            if path.endswith("/report"):
                tries.append(timeout)
                if len(tries) < 2:
                    raise flightd.Unavailable("away")
            return ask(method, path, body, timeout, *more)
        client._ask_raw = away_at_first
        with client.once("test", self.id) as f:
            with f.effect():
                f.result = 1
        self.assertEqual(f.source, "executed")
        self.assertLessEqual(max(tries), 15)

    def test_a_fork_does_not_wait_for_its_parents_threads(self):
        self.run_once(1)
        client = flightd.Client(spool=self.spool.name)
        with client._connecting, client._lock, client._spool._lock:
            pid = os.fork()
            if pid == 0:
                with contextlib.suppress(BaseException):
                    signal.alarm(10)
                    with client.once("test", self.id) as f:
                        with f.effect():
                            pass
                    client._spool.release(client._spool.keep("-", "key", b"{}"))
                    os._exit(0 if f.replayed else 1)
                os._exit(2)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)

    def test_the_block_is_left_at_effect_when_it_is_over(self):
        self.run_once(1)
        seen = []
        with self.client.once("test", self.id) as f:
            seen.append("before")
            try:
                with f.effect():
                    seen.append("inside")
            except Exception:  # it does not take what leaves the block
                seen.append("caught")
            seen.append("after")
        self.assertEqual((seen, f.result, f.replayed), (["before"], 1, True))

    def test_one_block_inside_another(self):
        self.run_once(1)
        with self.assertRaises(LookupError):  # leaving the outer one is no end of the inner one
            with self.client.once("test", self.id) as outer:
                with self.client.once("test", self.id + "-inner") as inner:
                    with outer.effect():
                        self.fail("it runs")
                self.fail("it goes on")
            raise LookupError("behind the outer one")
        with self.client.once("test", self.id + "-inner") as inner:
            self.assertFalse(inner.replayed)
            self.assertEqual(inner.previous["outcome"], "not_done")
            with inner.effect():
                pass

    def test_an_error_of_the_callers_own_comes_out_as_it_is(self):
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

    def test_an_interrupt_stays_one_and_is_reported(self):
        with self.assertRaises(KeyboardInterrupt):
            with self.client.once("test", self.id) as f:
                with f.effect():
                    raise KeyboardInterrupt
        with self.assertRaises(flightd.InDoubt):
            self.run_once(1)

    def test_a_block_without_effect_is_a_mistake_that_is_told(self):
        with self.assertRaisesRegex(RuntimeError, "effect"):
            with self.client.once("test", self.id):
                pass
        with self.assertRaises(flightd.InDoubt):
            self.run_once(1)

    def test_a_look_up_that_finds_nothing_asks_for_another_call(self):
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

    def test_the_first_input_stands_where_the_key_decides(self):
        with self.assertRaises(flightd.NotDone):
            with self.client.once("test", self.id, {"text": "first"}, key_decides=True) as f:
                raise flightd.NotDone("later")
        with self.client.once("test", self.id, {"text": "second"}, key_decides=True) as f:
            with f.effect():
                f.result = f.input
        self.assertEqual(f.result, {"text": "first"})

    def test_a_cancellation_is_seen(self):
        client = flightd.Client(spool="", ttl=2)
        self.addCleanup(client.close)
        with self.assertRaises(flightd.Failed):
            with client.once("test", self.id) as f:
                address = os.environ["FLIGHTD_ADDR"] + "/v1/flights/" + f.flight_id
                with urllib.request.urlopen(address) as answer:
                    etag = answer.headers["ETag"]
                headers = {"Content-Type": "application/json", "If-Match": etag}
                body = json.dumps({"reason": "test", "as": "test"}).encode()
                urllib.request.urlopen(urllib.request.Request(address + "/cancel", body, headers)).close()
                while not f.cancel_requested:
                    time.sleep(0.02)
                raise flightd.NotDone("cancelled")

    def test_what_cannot_be_is_refused_before_anything_is_sent(self):
        for make in (lambda: flightd.Client("ftp://x"), lambda: flightd.Client(" , "), lambda: flightd.Client(patience=0),
                     lambda: self.client.once("test", "1", float("nan")),
                     lambda: self.client.once("test", "1", recovery="verify")):
            self.assertRaises(ValueError, make)
        self.assertRaises(TypeError, lambda: self.client.once("test", "1", object()))
        with self.assertRaises(flightd.Error) as caught:
            self.client.once("test", "a b").__enter__()
        self.assertEqual(caught.exception.code, "idempotency_key_invalid")

    def test_damaged_reports_are_put_aside(self):
        self.run_once(1)
        path = os.path.join(self.spool.name, "x.report")
        with open(path, "wb") as file:
            file.write(b"FDC1 and more")
        with self.assertLogs("flightd", "ERROR"):
            flightd.Client(spool=self.spool.name)._spool.claim("x.report")
        self.assertTrue(os.path.exists(path + ".damaged"))

    def serve(self, *answers):
        """A server that takes one connection per list of answers, one answer a request, and then closes and is gone.
        Gives its address, and the list of what is asked."""
        listener, asked = socket.create_server(("127.0.0.1", 0)), []

        def lives():
            for connection_answers in answers:
                connection, _ = listener.accept()
                for answer in connection_answers:
                    asked.append(connection.recv(65536))
                    connection.sendall(answer)
                if connection_answers is answers[-1]:
                    listener.close()
                connection.close()
        threading.Thread(target=lives, daemon=True).start()
        self.addCleanup(listener.close)
        return "http://127.0.0.1:%d" % listener.getsockname()[1], asked

    def test_an_answer_before_the_answer_is_no_answer_to_the_next_request(self):
        early = b"HTTP/1.1 103 Early Hints\r\n\r\n"
        proper = b'HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s'
        first, second = b'{"version":"1"}', b'{"version":"2"}'
        address, _ = self.serve([early, proper % (15, first)], [proper % (15, second)])
        client = flightd.Client(address, spool="")
        self.addCleanup(client.close)
        with contextlib.suppress(flightd.Error):
            client._ask("GET", "/version", has="version", tries=1)
        self.assertEqual(client._ask("GET", "/version", has="version", tries=1)[0]["version"], "2")

    def test_a_lost_connection_is_told_from_one_that_never_was(self):
        version = b'HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{"version":"1"}'
        address, asked = self.serve([version, b""])
        client = flightd.Client(address, spool="", patience=0.05)
        self.addCleanup(client.close)
        client._connect("")
        with self.assertRaises(flightd.Unavailable) as caught:
            client._ask("POST", "/v1/flights:open", {}, has="decision")
        self.assertEqual(len(asked), 2)
        self.assertTrue(caught.exception._unsure, "it may have been carried out")
        with self.assertRaises(flightd.Unavailable) as caught:
            client._ask("POST", "/v1/flights:open", {}, has="decision")
        self.assertFalse(caught.exception._unsure, "nobody was there")

    def test_a_fork_has_connections_of_its_own(self):
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

    def test_the_environment_says_where(self):
        program = "import flightd\nwith flightd.once('test', '%s') as f:\n    with f.effect(): f.result = f.key\nprint(f.result)"
        said = subprocess.run([sys.executable, "-c", program % self.id], capture_output=True, text=True, check=True,
                              env={**os.environ, "FLIGHTD_NAMESPACE": "billing", "XDG_STATE_HOME": self.spool.name,
                                   "PYTHONPATH": os.path.dirname(flightd.__file__)})
        self.assertEqual(said.stdout, f"billing/test/{self.id}\n")


if __name__ == "__main__":
    unittest.main()
