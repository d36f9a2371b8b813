"""flightd for Python: a side effect runs once per key, and every duplicate gets its receipt.

One file on the standard library alone (Python 3.9 or later); copy it into your project.

    import flightd

    with flightd.once("charge", order.id, {"cents": 4200}) as f:
        with f.effect():
            f.result = provider.charge(order, idempotency_key=f.idempotency_key)
    print(f.result)      # what the block has set; every duplicate gets it as JSON holds it

If the effect has happened already, ``effect()`` leaves the ``once`` block, and ``f.result`` is the stored result. Put
code that prepares the effect above ``effect()``, and code that uses its result below the ``once`` block.

The place where an error is raised decides the outcome of the attempt:

    above effect()                       nothing was sent: ``not_done``, and the key is free again
    Refused, anywhere                    the provider declined: the refusal is the receipt, and every repeat gets ``Declined``
    NotDone, anywhere                    the effect surely did not happen this time: the key is free again
    any other error, once in effect()    the effect may have happened: ``unknown``, and the recovery policy decides

NotDone from one ``effect()`` covers that effect alone. If another effect of the block may have happened, or if the
NotDone belongs to another flight inside the block, it counts as any other error. After an ``effect()`` of unknown outcome
the block starts no further effect, except under ``resend``.

Workers perform jobs that others have submitted; the same key is the same job, however often it is submitted:

    @client.worker("charge", recovery="resend", window="24h", retry=8, timeout=30)
    def charge(job, order):                            # the whole handler is the effect; async def works, too
        return requests.post(URL, json=order, headers=job.headers)

    client.submit("charge", order.id, order)           # or submit_all
    receipt = charge.wait(order.id, timeout=60)
    client.run(concurrency=16)                         # `python -m flightd worker app:client` does the same

The default policy is ``hold``: after an unknown outcome nobody acts until a person has decided (``InDoubt``). Use
``resend`` for providers that honour ``f.idempotency_key``, and ``verify`` for providers that can be asked (``look_up``).

A client has one session for all its flights, which one thread renews. A client that acts less than once a minute has none:
the server makes one for each of its attempts. The right to start the effect counts from the moment a request was *sent*;
after it has expired, ``effect()`` raises ``LeaseLost`` and nothing starts. An open whose caller gives up is abandoned, so
that the ledger records that nothing was sent. A report that no server accepts is fsynced to
``$XDG_STATE_HOME/flightd/reports``, in the format shared by all flightd clients, and the next client delivers it.

``FLIGHTD_ADDR`` names the servers (several servers of one deployment are separated by commas; the leader is preferred),
``FLIGHTD_NAMESPACE`` the namespace, and ``FLIGHTD_DEPLOYMENT`` the only deployment that may answer. ``FLIGHTD_TOKEN`` is
the token, or ``FLIGHTD_TOKEN_FILE`` names its file, and ``FLIGHTD_CA_FILE`` the authorities that an https server is
checked against. A token of one namespace ends with the namespace, which is then the default. All calls block, and may
come from many threads; in asyncio, use ``asyncio.to_thread``. A process that is forked has sessions of its own. If it is
forked inside a block, it can neither act for the flight nor end it.
"""

from __future__ import annotations

import atexit
import base64
import collections
import collections.abc
import concurrent.futures
import contextlib
import contextvars
import dataclasses
import datetime
import decimal
import email.utils
import enum
import functools
import hashlib
import http.client
import inspect
import io
import ipaddress
import itertools
import json
import logging
import math
import os
import random
import re
import secrets
import select
import signal
import socket
import ssl
import struct
import sys
import tempfile
import threading
import time
import urllib.parse
import uuid
import weakref
from dataclasses import dataclass, field
from types import TracebackType
from typing import (
    Any, Callable, Deque, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple, Type, Union, cast, get_type_hints,
)

_fcntl: Any = None
with contextlib.suppress(ImportError):  # not available on every system
    import fcntl as _fcntl

__all__ = [
    "once", "Client", "Flight", "Receipt", "Happened", "NotHappened", "ok", "raise_for_status", "http_status", "Handler", "Submitted",
    "Error", "Refused", "NotDone", "InDoubt", "Conflict", "Busy", "Unapproved", "Expired", "Fenced", "Failed",
    "Declined", "Unavailable", "Unrecorded", "Unsettled", "LeaseLost", "PolicyDiffers", "ReceiptTruncated", "NOT_DONE_STATUSES",
]

_log = logging.getLogger("flightd")

DEFAULT_SERVER = "http://127.0.0.1:7420"
_MAX_RECEIPT = 64 << 10  # bytes of a receipt's body that the ledger stores
_MAX_TEXT = 1024  # bytes of an error text or an external id that the ledger stores
_MIN_WAIT = 0.1  # seconds that an open may wait at the server, at least, if its caller waits
_TRY_TIMEOUT = 10.0  # seconds for one try of a request, besides the time that it waits at the server
_FIRST_REPORT_TIMEOUT = 2.0  # seconds until a report that is not answered is spooled
_SPOOL_TRIES = 5  # times that a report is written again after an interrupt (Ctrl-C) of the write
_REPORT_TRY_TIMEOUT = 15.0  # seconds for one later try of a report, so that the next server is tried soon
_MAX_NONCE_WAIT = 15.0  # seconds that an open waits for other callers under one nonce
_MAX_FAILED_OPENS = 6  # of a call in a row
_MIN_OPEN_MARGIN_MS = 2_000  # of ledger time, after the wait of an open, until it can no longer open anything
_MAX_OPEN_MARGIN_MS = 30_000  # the same, after answers open_expired
_ABANDON_WAIT = 2.0  # seconds to wait for the first try of an abandon before the key is opened again
_ABANDON_TIMEOUT = 600.0  # seconds for which an abandon is retried while no server answers
_MAX_ABANDONS = 1000  # pending abandons; the oldest is dropped, until a renewal lists its attempt
_MAX_LEFT = 1000  # opens whose abandon is sent later; the oldest is dropped
_MAX_NONCES = 4000  # that a session remembers; one with more is replaced. A server lets it hold about as many attempts
_IDLE_SESSION_TIMEOUT = 60.0  # seconds until a session that nothing needs is closed
_REPORT_HOLD = 600.0  # seconds for which a session is renewed for a report on disk, so that no other caller acts
_CLOSE_TIMEOUT = 2.0  # seconds for the request that closes a session
_CLAIM_WAIT = 15.0  # seconds that a claim waits for jobs at the server
_MIN_CLAIM_PAUSE = 0.1  # seconds after a claim that failed, or was answered without jobs at once
_MAX_SLOTS = 1000  # jobs that one claim may ask for
_MAX_BATCH_LINES, _MAX_BATCH_BYTES = 1000, 1 << 20  # of a request of submit_all
_LEFT_INTERVAL = 1.0  # seconds between two abandons of one key that are sent later
_LEFT_GRACE = 0.1  # seconds after not_after until such an abandon is sent, if the ledger's time was estimated too late
_LAST_ABANDONS_TIMEOUT = 2.0  # seconds for these abandons at the end of the program
_LOOK_UP_TIMEOUT = 30.0  # seconds for a look-up if the flight has no time-out
_IDLE_TIMEOUT = 20.0  # seconds until an idle connection is no longer reused
_MIN_PROBE_PAUSE = 1.0  # seconds between two probes for the leader; doubled with each probe that fails
_MAX_PROBE_PAUSE = 90.0  # longer than a try takes, so that one probe at a time is in flight
_TOKEN_FILE_INTERVAL = 1.0  # seconds between two reads of a token file
_MAX_TEMP_AGE = 3600.0  # seconds until a half-written file in the spool is removed
_MAX_POLICY_MS = 366 * 86_400_000  # of a duration of a policy
_MAX_PAUSE = 86_400.0  # seconds; a longer pause that a provider asks for is shortened to it
_OVERRAN = "time-out: the handler took longer than its attempt may"  # begins the error text of such a report
_NAMESPACE = re.compile("[A-Za-z0-9._-]{1,255}")
_DECIMAL = re.compile("[0-9]{1,19}")
_HTTP_DATE = re.compile(r"[A-Z][a-z]+, \d\d[ -][A-Z][a-z]{2}[ -]\d{2,4} \d\d:\d\d:\d\d GMT|([A-Z][a-z]{2} ){2}[ \d]\d \d\d:\d\d:\d\d \d{4}")


# --- errors ----------------------------------------------------------------------------------------------------------


class Error(Exception):
    """The base of all errors of flightd. Programs test ``code``, which is stable; ``problem`` is the whole document."""

    code = ""
    _may_have_arrived = False  # the server may still execute the request

    def __init__(self, message: str = "", *, code: str = "", problem: Optional[Dict[str, Any]] = None) -> None:
        super().__init__(message)
        self.code = code or type(self).code
        self.problem: Dict[str, Any] = problem or {}
        self.key: str = self.problem.get("key", "")
        self.flight_id: str = self.problem.get("flight_id", "")


class Refused(Error):
    """Raise it when the provider declined: the effect did not happen and never will. It ends the flight."""

    code = "refused"
    _left_at = 0.0  # when it left the block of a flight; an outer flight treats it as any other error
    _scope = ""  # proof by one answer: to a "request" that can change something, or a "safe" one; "": all that was sent

    def _with_scope(self, scope: str) -> "Refused":
        self._scope = scope
        return self


class NotDone(Error):
    """Raise it when the effect surely did not happen this time. The key is free again."""

    code = "not_done"
    retry_after = 0.0  #: seconds for which the provider asked to wait
    _left_at = 0.0
    _scope = ""

    def _with_scope(self, scope: str, retry_after: float) -> "NotDone":
        self._scope, self.retry_after = scope, retry_after
        return self


class InDoubt(Error):
    """The effect may have happened; nobody may act until a person has decided. ``version`` is the flight's version."""

    code = "in_doubt"

    @property
    def version(self) -> str:
        return str(self.problem.get("version", ""))


class Conflict(Error):
    """The key belongs to another input. Nothing ran, and a repeat fails again. ``fields`` are JSON pointers."""

    code = "idempotency_conflict"

    @property
    def fields(self) -> List[str]:
        pointers = [e.get("pointer", "") for e in self.problem.get("errors") or []]
        return [p[len("/input"):] if p.startswith("/input") else p for p in pointers]


class Busy(Error):
    """Another caller holds the key, and the wait is over. You can safely ask again."""

    code = "idempotency_in_flight"

    @property
    def retry_after(self) -> float:
        """Seconds to wait before the next request."""
        return float(self.problem.get("retry_after_ms", 0)) / 1000


class Unapproved(Error):
    """A person must approve the flight first."""

    code = "approval_pending"


class Expired(Error):
    """The effect was decided before, and its receipt is no longer stored. It is not run again."""

    code = "expired"


class Fenced(Error):
    """This attempt has lost its right: a newer attempt or a decision replaced it. Its report does not count."""

    code = "fenced"


class LeaseLost(Error):
    """The right to start the effect has expired: the effect must not start."""

    code = "lease_lost"


class Failed(Error):
    """The flight ended without a receipt: it was cancelled, or its retries are exhausted. A person may reopen it."""

    code = "flight_failed"


class Declined(Error):
    """The flight has ended, and the provider declined. Every repeat gets the same ``receipt``."""

    code = "flight_failed"
    receipt: "Receipt"


class ReceiptTruncated(Error):
    """The effect happened, but its result is not stored completely: ``receipt.value`` is the beginning, as bytes or
    text, or JSON in which texts take the places of what JSON cannot hold, or None after a redaction, or if a person resolved the doubt without a body (size 0). ``receipt`` has the size and
    the digest of the full result, and the external id."""

    code = "receipt_truncated"
    receipt: "Receipt"


class Unavailable(Error):
    """flightd cannot decide now. No effect was started; you can safely ask again."""

    code = "unreachable"


class Unrecorded(Error):
    """The block ended with ``outcome``, and no server has recorded it yet. The text says where the report waits.
    ``result`` is the result that the block set."""

    code = "unrecorded"
    outcome: str = ""
    result: Any = None


class Unsettled(Error):
    """The attempt ended, but not the flight: call again to open the next attempt. ``outcome`` is the attempt's."""

    code = "unsettled"
    outcome: str = ""


class PolicyDiffers(Error):
    """The policy of a worker differs from the document of its action in recovery, window, verification or lane. No job was
    claimed. ``differences`` has the fields."""

    code = "policy_differs"
    differences: List[Dict[str, Any]] = []


_BY_CODE: Dict[str, Type[Error]] = {
    c.code: c for c in (InDoubt, Conflict, Busy, Unapproved, Expired, Fenced, LeaseLost, Failed)
}
_BY_CODE.update({c: Unavailable for c in (
    "unreachable", "no_leader", "leader_lost", "ledger_behind", "lease_unavailable", "draining", "report_pending", "reconciling",
    "rate_limited", "too_many_open", "quota_exceeded", "open_expired")})


class _LeaveBlock(BaseException):
    """Leaves the block of a decided flight. It is not an Exception, so ``except Exception`` in the block cannot catch it."""

    def __init__(self, flight: "Flight") -> None:
        self.flight = flight


# These codes reject the caller or the server, not the request: another server may answer the same request.
_NEXT_SERVER_CODES = ("internal", "unauthenticated", "forbidden", "wrong_deployment")
# After these codes another server may answer at once.
_ONE_SERVER_CODES = _NEXT_SERVER_CODES + ("unreachable", "no_leader", "leader_lost", "ledger_behind", "draining")
# The report route rejects a report for good only with these codes; ``fenced`` accepts it as evidence.
_REPORT_REJECTED_CODES = ("idempotency_key_invalid", "input_invalid", "not_found", "payload_too_large")
_NO_SERVER_HINT = "start a server with `flightd dev`, or set FLIGHTD_ADDR to the address of a running one"


def _error_from(status: int, retry_after: str, data: bytes, address: str, own: bool) -> Error:
    """Returns the error for an answer. own says that it repeats the Flightd-Echo of its request.

    An answer that is not a problem document of flightd comes from other software, a proxy perhaps, which cannot know
    whether the request was executed; only its 3xx or 4xx (but 304 and 408) says that no server received the request. The
    answer to another request proves nothing, either.
    """
    problem: Any = None
    with contextlib.suppress(ValueError):
        problem = json.loads(data)
    # Other problem documents may have a code, too, but no field "retryable".
    ours = isinstance(problem, dict) and isinstance(problem.get("code"), str) and isinstance(problem.get("retryable"), bool)
    if not ours or not own:
        outcome_unknown = ours or not 300 <= status < 500 or status in (304, 408)
        detail = (f"the answer is that to another request: {problem['code']}: {problem.get('detail', '')}" if ours
                  else f"answer {status} is not from flightd: {data[:200]!r}")
        problem = {"code": "unreachable" if outcome_unknown else "internal", "retryable": True, "detail": detail,
                   "hint": f"check that FLIGHTD_ADDR names a flightd server; the request was sent to {address}"}
    code = problem["code"]
    problem["status"] = status
    if not problem.get("retry_after_ms") and retry_after.isdecimal():
        problem["retry_after_ms"] = 1000 * int(retry_after)
    text = ": ".join(str(p) for p in (code, problem.get("key"), problem.get("detail")) if p)
    for e in problem.get("errors") or []:
        if e.get("detail", "") not in text:
            text += f"; {e.get('pointer') or e.get('header') or e.get('parameter') or ''}: {e['detail']}"
    if problem.get("hint"):
        text += f" ({problem['hint']})"
    return _BY_CODE.get(code, Error)(text, code=code, problem=problem)


def _is_final(e: Error, only: bool) -> bool:
    """Reports whether an error leaves nothing open under the nonce, now or later.

    only says that every other request with the nonce was answered without a proposal. See docs/protocol.md, rule 6.
    """
    if e.code in ("idempotency_conflict", "expired", "open_expired"):
        return True
    if e.code in ("in_doubt", "idempotency_in_flight"):
        return e.code == "in_doubt" and e.problem.get("proposed") is True
    status = e.problem.get("status", 0)
    unprocessed = 300 <= status < 500 and status not in (408, 409, 410, 429)  # rejected before it was executed
    return only and (unprocessed or e.code == "unreachable")  # no server was reached


def _is_unproposed(e: Error) -> bool:
    """Reports whether a node has answered an open from its own view, and has not proposed it. Nothing is open under the
    nonce, but a copy that the network made may reach a node later, and open an attempt until not_after."""
    return e.code in ("in_doubt", "idempotency_in_flight") and e.problem.get("proposed") is False


def _listed_action_for(state: str, listed_before: bool) -> str:
    """Returns the action for an attempt that a renewal lists as open, given the state of its nonce. An attempt that may
    have started is never abandoned. The answer may be older than the state, so a report is sent only if the renewal before
    has listed the attempt, too. See docs/protocol.md, rule 8."""
    if state == "given up":
        return "abandon"
    return "nothing" if state in ("awaited", "held", "spooled") or not listed_before else "report"


def _unreadable(why: str) -> Unavailable:
    """Returns the error for an answer of flightd that has lost a part, or that an older client cannot read."""
    e = Unavailable("the server's answer cannot be read: " + why)
    e._may_have_arrived = True
    return e


def _read_json(data: bytes) -> Any:
    try:
        return json.loads(data, parse_float=_number)
    except ValueError as e:
        raise _unreadable(str(e)) from e


def _digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


# An attempt ends as not_done, which claims that nothing happened, only by:
#   one of these statuses, or 3xx to a safe method, if no redirect of an unsafe method was followed    raise_for_status
#   NotDone, raised by the caller about all that was sent                                              Flight._classify
#   an error before the first effect() has begun, such as LeaseLost of an effect() that did not begin  Flight._classify
# A connection error is never proof, even before a byte was sent: the caller raises NotDone if it knows better.
NOT_DONE_STATUSES = frozenset((401, 403, 404, 407, 421, 425, 426, 429, 431))
_REFUSED_STATUSES = frozenset((400, 402, 405, 406, 410, 413, 415, 422))
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS", "TRACE")


def raise_for_status(answer: Any, text: str = "", *, method: str = "",
                     redirects: Union[bool, Sequence[int], None] = None) -> None:
    """Raises the error for the HTTP answer of a provider: Refused, NotDone, or a plain Error for an unknown outcome.

    answer     the answer of requests, httpx, aiohttp or urllib, the error that they raise for its status, or its status
    method     of the request, by default that of the answer, else POST. A provider that has acted may redirect any
               method but GET, HEAD, OPTIONS and TRACE
    redirects  the statuses of the followed redirects, by default those of the answer; True if you only know that there
               were some. 307 and 308 repeat the method; the other redirects turn it into GET
    """
    status, own_method, own_redirects = (answer, "POST", ()) if isinstance(answer, int) else _read_answer(answer)
    method, redirects = method or own_method, own_redirects if redirects is None else redirects
    safe = method.upper() in _SAFE_METHODS
    repeated = not redirects or not isinstance(redirects, bool) and set(redirects) <= {307, 308}
    if 200 <= status < 300 and (safe or repeated):
        return
    message = f"the provider answered {status}: {text}"
    if safe or not redirects:
        scope = "safe" if safe else "request"
        if status in _REFUSED_STATUSES:
            raise Refused(message)._with_scope(scope)
        if status in NOT_DONE_STATUSES or safe and 300 <= status < 400:
            raise NotDone(message)._with_scope(scope, _retry_after(answer))
    raise Error(message, code="unknown")


def ok(answer: Any, *, method: str = "", redirects: Union[bool, Sequence[int], None] = None) -> Any:
    """Returns the body of a provider's answer of 2xx, for the receipt: decoded JSON, text as str, anything else as bytes.
    For every other answer it raises the error of ``raise_for_status``, with the body as its text. ``f.result`` may be the
    answer itself: the end of the block calls ``ok``."""
    content = getattr(_answer_of(answer), "content", None)  # requests and httpx
    if not isinstance(content, bytes):
        content = answer.read() if callable(getattr(answer, "read", None)) else b""  # urllib
    if not isinstance(content, bytes):
        raise TypeError(f"the body of a {type(answer).__name__} cannot be read here; pass it to raise_for_status, and return its body")
    raise_for_status(answer, content[:_MAX_TEXT // 2].decode("utf-8", "replace"), method=method, redirects=redirects)
    kind = answer.headers.get("Content-Type") or ""
    value = _decode(kind, content)
    if type(value) in _SENT:
        value = _SENT[type(value)](value)
        value._sent = kind, content
    return value


def http_status(e: Optional[BaseException]) -> int:
    """Returns the status with which a webhook handler answers after a call that raised this error, or None: 200 if another
    delivery changes nothing, 422 for another input, and 503 if the sender should deliver it again."""
    final = e is None or isinstance(e, (Declined, Failed, Expired, ReceiptTruncated))
    return 200 if final else 422 if isinstance(e, Conflict) else 503


def _recognised(e: BaseException) -> Optional[Error]:
    """Returns the error that a raised answer of an HTTP library means, if it is the proof of one request that could change
    something. An error about a GET says nothing about the effect."""
    answer = _answer_of(e)
    if isinstance(e, Error) or _status_of(answer) is None or _read_answer(answer)[1].upper() in _SAFE_METHODS:
        return None
    try:
        raise_for_status(answer, _to_text(e))
    except (Refused, NotDone) as known:
        return known
    except Error:
        pass
    return None


def _retry_after(answer: Any) -> float:
    """Returns the pause of the header Retry-After, seconds or a date, in seconds, a day at most; 0 if it has none, or none that
    can be read."""
    headers = getattr(_answer_of(answer), "headers", None)
    asked = str((headers.get("Retry-After") if headers else "") or "")
    if re.fullmatch("[0-9]+", asked):
        return min(float(asked), _MAX_PAUSE)
    with contextlib.suppress(TypeError, ValueError):
        if _HTTP_DATE.fullmatch(asked):
            at = email.utils.parsedate_to_datetime(asked).replace(tzinfo=datetime.timezone.utc)
            return max(0.0, min(at.timestamp() - time.time(), _MAX_PAUSE))
    return 0.0


def _pause_of(e: Optional[BaseException]) -> float:
    """Returns the pause that an error asks for, a day at most; 0 if it has none. No report is lost for a pause that is no number."""
    asked = getattr(e, "retry_after", 0.0)
    return float(min(asked, _MAX_PAUSE)) if isinstance(asked, (int, float)) and asked > 0 else 0.0


def _read_answer(answer: Any) -> Tuple[int, str, Union[bool, Sequence[int]]]:
    """Returns status, first method and followed redirects of an answer, or of the error that was raised for it.

    urllib does not tell whether it has followed a redirect. It follows those of a POST with a GET, so the method of an
    answer that nobody has named tells: any other method than GET and HEAD was not redirected."""
    answer = _answer_of(answer)
    status = _status_of(answer)
    if status is None:
        raise TypeError(f"raise_for_status takes an HTTP answer or its status, not {type(answer).__name__}")
    history = getattr(answer, "history", None)
    if history is not None:  # requests, httpx, aiohttp
        first = history[0] if history else answer
        request = getattr(first, "request_info", None) or getattr(first, "request", first)
        return status, getattr(request, "method", None) or "POST", [_status_of(r) or 0 for r in history]
    method = getattr(getattr(answer, "fp", None), "_method", None) or getattr(answer, "_method", None)
    return status, "POST", method in (None, "GET", "HEAD")


def _answer_of(e: Any) -> Any:
    """Returns the answer that an error of requests or httpx has, or the value itself."""
    answer = getattr(e, "response", None)
    return e if answer is None else answer  # an answer of requests with an error status is false


def _status_of(answer: Any) -> Optional[int]:
    """Returns the status of an HTTP answer; None if the value is none."""
    status = getattr(answer, "status_code", None)  # requests and httpx
    if status is None and (hasattr(answer, "headers") or hasattr(answer, "history")):
        status = getattr(answer, "status", None)  # aiohttp and urllib
    return status if isinstance(status, int) else None


# --- receipts, clocks and bodies -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Receipt:
    """The stored first outcome of a flight. It never changes."""

    outcome: str  #: succeeded or refused
    external_id: str
    content_type: str
    digest: str  #: sha256 of the whole body
    size: int  #: length of the whole body in bytes
    truncated: bool  #: only the beginning of the body is stored, or a person resolved the doubt without a body
    attempt: int
    at: str  #: when it was stored, RFC 3339
    value: Any = field(repr=False)  #: the body: decoded JSON, text as str, anything else as bytes


@dataclass(frozen=True)
class Happened:
    """The result of ``look_up`` if the provider shows the effect."""

    result: Any = None
    external_id: str = ""


@dataclass(frozen=True)
class NotHappened:
    """The result of ``look_up`` if the provider is sure that the effect did not happen."""


class _Instant(NamedTuple):
    """A moment by three clocks, in seconds: monotonic, wall, and a clock that counts while the machine sleeps (0 if the
    system has none)."""

    mono: float
    wall: float
    boot: float = 0.0


def _now() -> _Instant:
    asleep = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))  # macOS counts sleep in CLOCK_MONOTONIC
    return _Instant(time.monotonic(), time.time(), 0.0 if asleep is None else time.clock_gettime(asleep))


class _TimeWindow:
    """A span of time that starts when a request is sent: the trust of a session, the time-out of an attempt, or the time
    for which the provider surely remembers a key.

    The monotonic clock may stop while the machine sleeps, and the wall clock may jump. The window is over as soon as one
    clock says so.
    """

    def __init__(self, sent_at: _Instant = _Instant(0.0, 0.0), ms: int = 0) -> None:
        self._until = _Instant(*(at + ms / 1000 for at in sent_at))
        self._lost = False

    def extend(self, sent_at: _Instant, ms: int) -> None:
        """Extends a window that is not over."""
        if self.remaining() > 0 and sent_at.mono + ms / 1000 > self._until.mono:
            self._until = _Instant(*(at + ms / 1000 for at in sent_at))

    def mark_lost(self) -> None:
        self._lost = True

    def remaining(self) -> float:
        if self._lost:
            return 0.0
        return min(until - now for until, now in zip(self._until, _now()))


class _Nonce:
    """Identifies one open of a flight. The caller records it before the first request. Its state is one of:

    awaited   its open has no final answer yet, or its look-up is running
    held      by a block: the effect may have started
    spooled   the block has ended, and its report is on disk
    reported  the ledger has stored a report of not_done
    given up  before the effect started
    final     nothing is open under it, and nothing will be
    """

    def __init__(self, flight: "Flight", ledger_ms: int, validity_ms: int, text: str = "") -> None:
        self.text, self.not_after = text or secrets.token_urlsafe(16), ledger_ms + validity_ms
        self.id = _nonce_id(self.text)
        self.made_at, self.state, self.flight = _now(), "awaited", flight
        self.validity = _TimeWindow(self.made_at, validity_ms)  # until not_after
        self.may_have_arrived = False  # a request whose answer is not known, or says that it was proposed
        self.session: Optional[_Session] = None  # has it in its table
        self.attempt = 0  # number of its attempt
        self.report: Optional[Dict[str, Any]] = None  # of its attempt
        self.spooled_at, self.file = 0.0, ""  # of that report
        self.abandoning = False  # its abandon is not accepted yet
        self.settled = False  # given up, and nothing is open under it

    def finish(self) -> None:
        self.state = "final"
        if self.session is not None:
            self.session.remove(self)

    def end_report(self, accepted: bool) -> None:
        """Notes whether the ledger has the report of the attempt. A report of not_done is kept: if an old renewal lists the
        attempt once more, it is repeated, because an unknown outcome would put the flight in doubt."""
        if accepted and (self.report or {}).get("outcome") != "not_done":
            self.finish()
        elif accepted:
            self.state = "reported"
        elif self.state == "held":  # the session ends if its report stays on disk
            self.spooled_at, self.state = time.monotonic(), "spooled"
            cast(_Session, self.session).retire()

    def has_spooled_report(self) -> bool:
        return self.state == "spooled" and self.flight._client._spool.has(self.file)

    def needs_session(self) -> bool:
        """Reports whether the session has to be renewed for this nonce. If it was given up after answers without a proposal,
        a copy of its open may open an attempt until not_after, and a renewal that is sent later lists it."""
        if self.state == "given up":
            longer = 0.0 if self.may_have_arrived else _REPORT_HOLD  # if no renewal is answered for so long, the session has ended
            return self.abandoning or not self.settled and self.validity.remaining() > -longer
        return self.state in ("awaited", "held") or (
            self.has_spooled_report() and time.monotonic() - self.spooled_at < _REPORT_HOLD)


def _call_in_thread(f: Callable[..., Any], *args: Any) -> Any:
    """Calls f in a thread of its own: the executor of asyncio has few, which opens that wait would take from reports. The thread goes on
    when the future is cancelled, or its loop has ended."""
    import asyncio
    loop = asyncio.get_running_loop()
    future, context = loop.create_future(), contextvars.copy_context()

    def call() -> None:
        result: Any = None
        error: Optional[BaseException] = None
        try:
            result = context.run(f, *args)
        except BaseException as e:
            error = e

        def settle() -> None:
            if future.cancelled():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(settle)
    threading.Thread(target=call, name="flightd-async").start()
    return future


def _nonce_id(text: str) -> str:
    """Returns the form in which a renewal lists a nonce."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


class _Claim:
    """A request for jobs. The nonces of the attempts that it opens are its own, a dot and the flight's id."""

    def __init__(self, ledger_ms: int, validity_ms: int) -> None:
        self.text, self.not_after = secrets.token_urlsafe(16), ledger_ms + validity_ms
        self.validity = _TimeWindow(_now(), validity_ms)
        self.session: Optional[_Session] = None
        self.ended = False  # it was answered, or given up; what it has opened otherwise is abandoned. client._lock guards it
        self.lost = False  # it has ended without an answer
        self.settled_at = time.monotonic() + validity_ms / 1000  # a renewal that is sent later lists all that it has opened
        self.handed: Set[str] = set()  # flights of its answer


class _Session:
    """A session at the server, and the nonces that were sent under it. One thread renews it until the session is lost, or
    takes no new opens and no nonce needs it."""

    def __init__(self, client: "Client", answer: Dict[str, Any], sent_at: _Instant, only: Optional[_Nonce] = None) -> None:
        self.id, self.trust = str(answer["session"]), _TimeWindow(sent_at, answer.get("trust_ms") or 0)
        self._client, self._interval = client, max((answer.get("renew_every_ms") or 1000) / 1000, 0.05)
        self._path, self._stop = f"/v1/sessions/{urllib.parse.quote(self.id, safe='')}/", threading.Event()
        self.one_shot = only is not None  # made by the server for one open; it ends with the attempt
        self._retired = self.one_shot  # no new opens. client._lock guards it, and the next three fields
        self._nonces: Dict[str, _Nonce] = {}  # by id
        self._claims: List[_Claim] = []  # of which a copy may still open attempts
        self._used_at = time.monotonic()
        self._listed_at = 0.0  # when the last renewal was sent whose list was read
        self._listed_before: Set[str] = set()  # nonces that the previous renewal listed unexpectedly
        if only is not None:
            only.session, self._nonces[only.id] = self, only
        client._sessions.add(self)
        threading.Thread(target=self._renew_loop, name="flightd-renew", daemon=True).start()

    def add(self, nonce: _Nonce) -> bool:
        """Adds a nonce before its first open is sent. Returns False if the session takes no new opens."""
        with self._client._lock:
            if self._retired:
                return False
            nonce.session, self._nonces[nonce.id], self._used_at = self, nonce, time.monotonic()
            full = len(self._nonces) > _MAX_NONCES
        if full:
            self.retire()
        return True

    def add_claim(self, claim: _Claim) -> bool:
        """Adds a claim before it is sent. Returns False if the session takes no new opens."""
        with self._client._lock:
            self._claims = [c for c in self._claims if self._awaits(c) or c.validity.remaining() > -2 * self._interval]
            if not self._retired:
                self._claims.append(claim)
                claim.session, self._used_at = self, time.monotonic()
            return not self._retired

    def _awaits(self, claim: _Claim) -> bool:
        """Reports whether the claim may have opened something that nobody knows: until its answer, or the list of a renewal."""
        return not claim.ended or (claim.lost and self._listed_at <= claim.settled_at and
                                   time.monotonic() < claim.settled_at + _REPORT_HOLD)  # then the session has ended

    def end_claim(self, claim: _Claim, jobs: List["Flight"], lost: bool = False) -> bool:
        """Ends a claim, and adds the jobs of its answer; lost: there is none. Returns False if it has ended before."""
        with self._client._lock:
            if claim.ended:
                return False
            claim.ended, claim.lost, claim.handed = True, lost, {f.flight_id for f in jobs}
            claim.settled_at = max(claim.settled_at, time.monotonic())
            for f in jobs:
                f._nonce.session, self._nonces[f._nonce.id] = self, f._nonce
            full = len(self._nonces) > _MAX_NONCES
        if full:
            self.retire()
        return True

    def _nonce_of_claim(self, attempt: Dict[str, Any]) -> Optional[_Nonce]:
        """Returns the nonce of a listed attempt that a claim has opened, and whose job no answer has brought: while the claim
        is not answered, its answer may bring it; then nobody knows it."""
        for claim in list(self._claims):
            if _nonce_id(f"{claim.text}.{attempt['flight_id']}") != attempt["nonce"]:
                continue
            nonce = self._client._new_job(claim, attempt["key"], {})._nonce
            with self._client._lock:  # from here on the claim's answer cannot bring the job meanwhile
                if attempt["flight_id"] in claim.handed:
                    return self._nonces.get(nonce.id)
                if claim.ended:
                    nonce.state, nonce.session, self._nonces[nonce.id] = "given up", self, nonce
            return nonce
        return None

    def remove(self, nonce: _Nonce) -> None:
        with self._client._lock:
            self._nonces.pop(nonce.id, None)

    def nonces(self) -> List[_Nonce]:
        with self._client._lock:
            return list(self._nonces.values())

    def retire(self) -> None:
        """Ends new opens under the session."""
        with self._client._lock:
            self._retired = True
            if self._client._session is self:
                self._client._session = None

    def mark_lost(self) -> None:
        """Ends the right to start effects under the session. No renewal lists its attempts any more, so the opens that were
        left are abandoned later."""
        self.trust.mark_lost()
        self.retire()
        for nonce in self._take_left():
            self._client._leave(nonce)

    def _take_left(self) -> List[_Nonce]:
        """Returns the given-up nonces under which an attempt may be open, each once."""
        left = [n for n in self.nonces() if n.state == "given up" and not n.abandoning and not n.settled]
        for nonce in left:
            nonce.settled = True
        return left

    def _renew_loop(self) -> None:
        """Runs in a daemon thread. Nobody waits for it."""
        pause = self._interval
        while not self._stop.wait(pause) and not self._is_over():
            pause = self._interval
            try:
                self.renew()
            except Exception as e:  # an answer that cannot be decoded must not end the renewals
                if isinstance(e, LeaseLost):
                    self.mark_lost()
                    return self.close(lost=True)
                pause = min(self._interval, 1.0)
        if not self._stop.is_set():
            self.close()

    def _is_over(self) -> bool:
        """Reports whether nothing needs the session. An idle one is retired, and the next open does without a session."""
        with self._client._lock:  # a claim that ends meanwhile has added its jobs
            needed = any(n.needs_session() for n in self._nonces.values()) or any(self._awaits(c) for c in self._claims)
            if needed:
                self._used_at = time.monotonic()
            elif not self._retired and time.monotonic() - self._used_at > _IDLE_SESSION_TIMEOUT:
                self._retired, self._client._performed = True, False
                if self._client._session is self:
                    self._client._session = None
            return self._retired and not needed

    def renew(self) -> None:
        """Renews the session once, and handles the attempts that the answer lists as open."""
        nonces, asked_at = self.nonces(), time.monotonic()
        lines = sorted(f"{n.id} {n.attempt}\n" for n in nonces if n.state in ("held", "spooled"))
        # The digest of the attempts that this client knows to be open under the session.
        request = {"open_digest": hashlib.sha256("".join(lines).encode()).hexdigest()[:32]}
        past = [n for n in nonces if n.state == "given up" and not n.may_have_arrived and n.validity.remaining() <= 0]
        listed: List[Dict[str, Any]] = []
        while True:
            answer, sent_at = self._client._ask("POST", self._path + "renew", request, timeout=max(self._interval / 2, 1.0),
                                                tries=1)
            self.trust.extend(sent_at, answer["trust_ms"])
            for nonce in nonces:
                if nonce.flight.flight_id in (answer.get("cancel_requested") or []):
                    nonce.flight.cancel_requested = True
            page = answer.get("open") or []
            listed += page
            if not answer.get("more") or not page or page[-1]["flight_id"] == request.get("after"):
                break
            request["after"] = page[-1]["flight_id"]
        self._handle_listed(listed)
        self._listed_at = asked_at
        for nonce in past:
            nonce.settled = True

    def _handle_listed(self, listed: List[Dict[str, Any]]) -> None:
        """Handles the attempts that a renewal lists as open. What takes too long is handled after the next renewal."""
        until, before, self._listed_before = time.monotonic() + self._interval / 2, self._listed_before, set()
        for attempt in listed:
            flight_id = attempt["flight_id"]
            nonce = self._nonces.get(attempt["nonce"]) or self._nonce_of_claim(attempt)
            state = nonce.state if nonce else "unknown"
            if nonce and state == "spooled" and not nonce.has_spooled_report():
                state = "unknown"
            if state not in ("awaited", "held", "spooled"):
                self._listed_before.add(attempt["nonce"])
            action = _listed_action_for(state, attempt["nonce"] in before)
            if action == "abandon" and nonce and not nonce.abandoning:
                self._client._abandon_in_background(nonce)
            if action == "report" and time.monotonic() < until:
                self.retire()  # if the report does not end the attempt, the end of the session does
                report = nonce.report if nonce and nonce.report else {
                    "fencing_token": attempt["fencing_token"], "key": attempt["key"], "outcome": "unknown",
                    "error": "the holder of the session has no record of the attempt"}
                with contextlib.suppress(Error):
                    self._client._ask("POST", f"/v1/flights/{flight_id}/report", report, timeout=1.0, tries=1)

    def close(self, lost: bool = False) -> None:
        """Closes the session at the server. While an effect runs under it, or may begin, it is renewed, and closed afterwards; with
        a report on disk it ends by its time to live, and until then no other caller acts. lost says that the server has ended it."""
        self.retire()
        with self._client._lock:
            needed = any(n.state in ("awaited", "held") for n in self._nonces.values()) or any(not c.ended for c in self._claims)
        if needed and not lost:
            return
        self._stop.set()
        self._client._sessions.discard(self)
        if self.one_shot or lost or any(n.state == "spooled" and n.needs_session() for n in self.nonces()):
            return
        for last in (False, True):
            try:
                self._client._ask("POST", self._path + "close", {}, timeout=_CLOSE_TIMEOUT, tries=1)
                return
            except Error as e:
                if e.code != "session_in_use" or last:
                    return
            with contextlib.suppress(Exception):
                self.renew()  # lists what claims have opened
            for nonce in [n for n in self.nonces() if n.state == "given up" and not n.settled]:
                nonce.flight._abandon(nonce, _CLOSE_TIMEOUT)


_MAX_DEPTH = 500  # levels of a value in JSON
_INCOMPLETE = "text/plain; charset=utf-8; flightd=incomplete"  # the content type of a receipt without the whole result

# The values that ok() returns keep the provider's bytes. The bytes are the receipt unless the value is changed.
_SENT: Dict[Any, Any] = {t: type("Sent" + t.__name__, (t,), {"_sent": None, "__reduce__": lambda self, t=t: (t, (t(self),))})
                         for t in (dict, list, str, bytes)}


def _json_form(value: Any, problems: List[str], where: str = "", outer: Tuple[int, ...] = ()) -> Any:
    """Returns the form of a value that JSON can hold. A time is RFC 3339, a UUID or a Decimal is text, and a dataclass is an
    object. The text about a part that JSON cannot hold, with its JSON pointer, takes the place of the part, and is added to
    problems."""
    value = value.value if isinstance(value, enum.Enum) else value
    why = f"JSON cannot hold a {type(value).__name__}"
    items: Optional[Iterable[Tuple[Any, Any]]] = None
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, str):
        with contextlib.suppress(UnicodeEncodeError):
            return value.encode().decode()
        why = "the text has half of a surrogate pair"
    elif isinstance(value, (float, decimal.Decimal)):
        if math.isfinite(value):
            return value if isinstance(value, float) else str(value)
        why = f"JSON cannot hold {value}"
    elif isinstance(value, datetime.datetime) and value.utcoffset() is None:
        why = "the datetime has no time zone"
    elif isinstance(value, (datetime.date, uuid.UUID)):
        return value.isoformat() if isinstance(value, datetime.date) else str(value)
    elif id(value) in outer or len(outer) > _MAX_DEPTH:
        why = "it contains itself, or is nested too deep"
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        items = [(f.name, getattr(value, f.name)) for f in dataclasses.fields(value)]
    elif isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, (list, tuple, collections.deque)):
        return [_json_form(v, problems, f"{where}/{i}", (*outer, id(value))) for i, v in enumerate(value)]
    form: Dict[str, Any] = {}
    for name, part in items or ():
        name = name.value if isinstance(name, enum.Enum) else name
        if isinstance(name, bool) or not isinstance(name, (str, int)) or str(name) in form:
            items, why = None, f"the name {name!r} is neither a text nor a whole number, or it repeats"
            break
        form[_json_form(str(name), problems, where)] = _json_form(part, problems, f"{where}/{name}", (*outer, id(value)))
    if items is not None:
        return form
    problems.append(f"{where}: {why}" if where else why)
    return problems[-1]


def _input(value: Any, what: str = "input") -> Any:
    """Returns an input as it is sent, or raises a ValueError that has the place of a part that JSON cannot hold."""
    problems: List[str] = []
    try:
        form = _json_form(value, problems)
    except RecursionError:
        problems.append("it contains itself, or is nested too deep")
    if problems:
        raise ValueError(f"{what}: {problems[0]}")
    return form


def _name(what: str, value: Any) -> str:
    """Returns a namespace, an action, an id or a lane as the text that its server sees."""
    value = value.value if isinstance(value, enum.Enum) else value
    if isinstance(value, uuid.UUID):
        value = str(value)
    if not isinstance(value, str) or not value:
        raise TypeError(f"{what}: {value!r} is not a text of at least one character")
    return str(_input(value, what))


def _whole(what: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{what}: {value!r} is not a whole number")
    return value


def _ms(what: str, duration: Union[float, int, str]) -> int:
    """Returns a duration in whole milliseconds. One that would be cut to 0, which often means no limit, is rejected."""
    try:
        exact = 1000 * _seconds(duration)
        ms = round(exact)
    except (TypeError, ValueError, OverflowError):  # also of NaN and infinity
        ms, exact = -1, 0.0
    if ms < 0 or ms == 0 < exact:
        raise ValueError(f"{what}: {duration!r} is not a duration of 0 or at least a millisecond: write seconds, or a text like "
                         '"90s", "10m", "24h" or "7d"')
    return ms


def _bound(what: str, seconds: Optional[float]) -> float:
    """Returns the longest time to wait in seconds. None and infinity set no bound, and a time below 0 has passed."""
    with contextlib.suppress(OverflowError):
        if seconds is None or isinstance(seconds, (int, float)) and not isinstance(seconds, bool) and not math.isnan(seconds):
            return float("inf") if seconds is None else float(seconds)
    raise ValueError(f"{what}: {seconds!r} is not a number of seconds")


def _encode(value: Any, content_type: str) -> Tuple[str, bytes, str]:
    """Returns content type and body of a receipt, and why the body does not hold the whole value, or "". A value that JSON
    cannot hold does not fail the effect: it happened."""
    sent, problems = getattr(value, "_sent", None), cast(List[str], [])
    if value is None:
        return content_type, b"", ""
    if sent and repr(_decode(*sent)) == repr(value):  # True is no 1
        return content_type or sent[0], sent[1], ""
    if isinstance(value, (bytes, bytearray)):
        return _to_text(content_type or "application/octet-stream"), bytes(value), ""
    try:
        body = json.dumps(_json_form(value, problems), ensure_ascii=False, allow_nan=False).encode()
    except Exception as e:
        problems.append(f"it cannot be written as JSON: {_to_text(e)}")
        body = problems[-1].encode("utf-8", "replace")
    return _INCOMPLETE if problems else "application/json", body, problems[0] if problems else ""


def _decode(content_type: str, body: bytes, truncated: bool = False) -> Any:
    """Returns the value of a body: bytes if its type is neither JSON nor text, and if it is not what its type promises."""
    kind, charset = content_type.split(";")[0].strip().lower(), re.search(r';\s*charset\s*=\s*"?([^\s;"]+)', content_type, re.I)
    is_json = kind == "application/json" or kind.startswith("application/") and kind.endswith("+json")
    if not body and (is_json or not kind):
        return None
    with contextlib.suppress(ValueError, LookupError, RecursionError):
        if is_json and not truncated:
            text = body.decode(charset[1]).lstrip("\ufeff") if charset else body
            return json.loads(text, parse_float=_number, parse_constant=_reject)
        if kind.startswith("text/"):
            return body.decode(charset[1] if charset else "utf-8", "replace" if truncated else "strict")
    return body


def _number(digits: str) -> Union[float, decimal.Decimal]:
    number = float(digits)
    return number if math.isfinite(number) else decimal.Decimal(digits)


def _reject(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


def _body_fields(external_id: Any, content_type: str, body: bytes) -> Dict[str, Any]:
    """Returns the fields of a report for a body. Base64 keeps the bytes exact; a long body is truncated."""
    fields: Dict[str, Any] = {}
    if external_id not in (None, ""):
        fields["external_id"] = _truncate(_to_text(external_id.value if isinstance(external_id, enum.Enum) else external_id))
    if content_type:
        sendable = len(content_type) < 256 and all(" " <= c <= "~" for c in content_type)
        fields["content_type"] = content_type if sendable else "application/octet-stream"
    if body:
        fields["body_base64"] = base64.b64encode(body[:_MAX_RECEIPT]).decode()
    if len(body) > _MAX_RECEIPT:
        fields.update(truncated=True, size=len(body), digest=_digest(body))
    return fields


def _to_text(value: Any) -> str:
    """Returns the value as text. It never raises: a report must not be lost because its text cannot be written."""
    try:
        return value.decode("utf-8", "replace") if isinstance(value, (bytes, bytearray)) else str(value)
    except Exception:
        return f"a {type(value).__name__} without a text"


def _error_text(e: BaseException) -> str:
    return f"{type(e).__name__}: {_to_text(e)}"


def _check_runs(act: Any) -> None:
    """Rejects a function whose call runs nothing, or, in a running event loop, cannot be awaited."""
    name = getattr(act, "__name__", "the function")
    if inspect.isgeneratorfunction(act) or inspect.isasyncgenfunction(act):
        raise TypeError(f"{name} is a generator: its call runs nothing; remove yield, and return the result")
    if inspect.iscoroutinefunction(act) and _in_event_loop():
        raise TypeError(f"{name} is async, and cannot be awaited here: this thread runs an event loop; use asyncio.to_thread")


def _in_event_loop() -> bool:
    import asyncio
    with contextlib.suppress(RuntimeError):
        return asyncio.get_running_loop() is not None
    return False


def _awaited(value: Any) -> Any:
    """Returns the value of a caller's function after its work has ended: it awaits an awaitable, and waits for a future."""
    if isinstance(value, concurrent.futures.Future):
        return _awaited(value.result())
    if inspect.isawaitable(value) and not _in_event_loop():
        import asyncio

        async def wait() -> Any:
            return await value
        return _awaited(asyncio.run(wait()))
    return value


def _take_result(f: "Flight", value: Any) -> None:
    """Makes the value that a caller's function has returned the result of its flight, after its work has ended. If the function
    has returned None, the result is what it has set. It raises TypeError for a value whose work has not run."""
    value = _awaited(value)
    _check_ran(value)
    if value is not None:
        f.result = value


def _check_ran(value: Any) -> None:
    """Raises TypeError if a result is a function, or if it or a value in it is a coroutine, a generator or a future: work that has not run."""
    rest, seen = [value], {}  # type: List[Any], Dict[int, Any]
    while rest:
        v = rest.pop()
        if id(v) in seen:
            continue
        seen[id(v)] = v
        if isinstance(v, (list, tuple, set, frozenset, collections.deque)):
            rest.extend(v)
        elif isinstance(v, dict):
            rest.extend(v.values())
        elif dataclasses.is_dataclass(v) and not isinstance(v, type):
            rest.extend(getattr(v, part.name, None) for part in dataclasses.fields(v))
        lazy = isinstance(v, (concurrent.futures.Future, collections.abc.Iterator, collections.abc.AsyncIterator))
        if (lazy or v is value and callable(v) or inspect.isawaitable(v)) and _status_of(v) is None:
            if inspect.iscoroutine(v):
                v.close()
            raise TypeError(f"the result is a {type(v).__name__}, whose work may not have run: call or await it inside effect()")


def _truncate(text: str) -> str:
    """Truncates a text to the length that the ledger stores."""
    return text.encode("utf-8", "replace")[:_MAX_TEXT].decode("utf-8", "ignore")


# --- one flight ------------------------------------------------------------------------------------------------------


class Flight:
    """One call of ``once``. Use it in a ``with`` statement.

    Read ``key``, ``flight_id``, ``attempt``, ``idempotency_key`` (the same for every attempt; pass it to the provider),
    ``fencing_token`` (sorts by age), ``input`` (as *first* submitted: send this one, not your own), ``previous`` (the
    attempt before, if there was one), ``replayed`` (True if there is nothing left to do), ``source`` (executed, joined or
    replayed) and ``receipt``. Set ``result``, and ``external_id`` if the provider has one; set ``content_type`` for a
    ``bytes`` result.
    """

    def __init__(self, client: "Client", request: Dict[str, Any], wait: Optional[float],
                 look_up: Optional[Callable[["Flight"], Any]], key: str) -> None:
        self._client, self._request, self._look_up = client, request, look_up
        self._until = None if wait is None else time.monotonic() + wait
        self._trust = _TimeWindow()  # that of the attempt's session
        self._entered = self._decided = self._effect_started = self._block_ended = False
        # Guards the start of an effect against the end of the block, and the counters below.
        self._effect_lock = threading.Lock()
        self._running_effects = 0
        self._possible_effects = 0  # ended effects without proof that they did not happen
        self._effect_errors: List[BaseException] = []  # NotDone and Refused of this flight, raised in an effect
        self._pid, self._entered_at = os.getpid(), time.monotonic()
        self._deadline: Optional[_TimeWindow] = None  # end of the attempt's time-out
        self._resend_window: Optional[_TimeWindow] = None  # the provider surely remembers the key until then
        self._has_unknown_effect = False  # an effect has ended with an unknown outcome
        self._effect_error: Optional[BaseException] = None  # the error of the last effect; None after a later effect has succeeded
        self._rejected_effect: Optional[LeaseLost] = None  # the error of an effect that was not allowed after it
        self._look_up_until: Optional[float] = None
        self._look_up_error: Optional[Exception] = None  # the error of the last look-up
        self._nonces: List[_Nonce] = []
        self._nonce = _Nonce(self, 0, 0)  # the newest one
        self._policy = request
        self._action = str(request.get("action") or "")  # whose worker performs it, if it is a job
        self._unread = ""  # why this client cannot read the job
        self._job: Optional[Tuple[Dict[str, Any], _Instant]] = None  # the answer that has handed it out, and when it was asked for
        self.key, self.flight_id, self.source, self.replayed = key, "", "", False
        self._id = _flight_id_for_key(key)
        self.attempt, self.idempotency_key, self.fencing_token = 0, "", ""
        self.traceparent = ""  # of the attempt's span; "": the node exports none
        self.input: Any = None
        self.previous: Optional[Dict[str, Any]] = None
        self.result: Any = None
        self.external_id, self.content_type = "", ""
        self.receipt: Optional[Receipt] = None
        self._succeeded = False  # the block has succeeded, so its result is kept
        self.cancel_requested = False  #: a cancellation was requested; stop the effect yourself if it has started

    # Used inside the block.

    @contextlib.contextmanager
    def effect(self) -> Iterator["Flight"]:
        """Encloses the call that must happen once. Once it has begun, a plain error is an unknown outcome.

        It leaves the ``once`` block if the flight is decided already. It raises LeaseLost if the right to start is over:
        the lease is lost, ``attempt_timeout`` has passed, a cancellation was requested, the block has ended (the call
        comes from a thread that it started), or this process is a fork. Under ``resend`` the right also ends when the
        provider may have forgotten the key (``provider_window``); under the other policies it ends with an ``effect()``
        of unknown outcome.
        """
        if self._decided and not self._block_ended:
            raise _LeaveBlock(self)
        self._reject_fork()
        with self._effect_lock:
            resends = self._policy.get("recovery") == "resend"
            after_unknown = self._has_unknown_effect and not resends
            reason = ("the block has ended" if self._block_ended
                      else "a cancellation was requested" if self.cancel_requested
                      else "an earlier effect has an unknown outcome" if after_unknown else self._expiry_reason())
            if reason:
                error = LeaseLost(f"{self.key}: {reason}: the effect must not start")
                if after_unknown:
                    self._rejected_effect = error
                raise error
            self._effect_started = True
            self._running_effects += 1
        happened, unknown, started = True, True, _now()
        try:
            yield self
            unknown = False
            if resends or not self._has_unknown_effect:
                self._effect_error = None
        except BaseException as e:
            known = _recognised(e)
            self._effect_error = known or e
            unknown = happened = not self._is_own_error(known or e)
            if not happened:
                self._effect_errors.append(known or e)
            if known is not None:
                raise known from e
            raise
        finally:
            with self._effect_lock:
                self._running_effects, self._possible_effects = self._running_effects - 1, self._possible_effects + happened
                self._has_unknown_effect = self._has_unknown_effect or unknown
                window = self._policy.get("provider_window_ms")
                if unknown and resends and window and self._resend_window is None:
                    # 5 % in case the local clock is slow, and the time that the resend may take
                    self._resend_window = _TimeWindow(started, window * 0.95 - (self._policy.get("attempt_timeout_ms") or 0))

    def _expiry_reason(self) -> str:
        """Returns the reason why no effect may start, by the clocks; "" if an effect may start."""
        bounds = ((self._trust, "the lease is lost"), (self._deadline, "the attempt's time-out is over"),
                  (self._resend_window, "the provider may have forgotten the idempotency key"))
        return next((why for bound, why in bounds if bound is not None and bound.remaining() <= 0), "")

    def _is_own_error(self, e: Optional[BaseException]) -> bool:
        """Reports whether the error is about this flight, and not about another flight inside its block."""
        return isinstance(e, (NotDone, Refused)) and e._left_at <= self._entered_at

    @property
    def lease_lost(self) -> bool:
        """True if nothing may start any more. A started effect may finish, except under ``verify``."""
        return self._trust.remaining() <= 0

    @property
    def headers(self) -> Dict[str, str]:
        """Headers for the provider's HTTP request. Use an HTTP client that does not retry by itself."""
        headers = {"Idempotency-Key": self.idempotency_key, "Flightd-Fencing-Token": self.fencing_token}
        return {**headers, "Traceparent": self.traceparent} if self.traceparent else headers

    def time_left(self) -> Optional[float]:
        """Returns the seconds that the effect may still take, for a time-out; None if nothing bounds it.

        ``attempt_timeout`` bounds it, and under ``verify`` the lease: a look-up must know when the effect can no longer
        happen. In a ``look_up`` it returns the time left for the look-up: ``attempt_timeout``, or 30 s by default.
        """
        if self._look_up_until is not None:
            return max(0.0, self._look_up_until - time.monotonic())
        ends = [] if self._deadline is None else [self._deadline.remaining()]
        if self._policy.get("recovery") == "verify":
            ends.append(self._trust.remaining())
        return max(0.0, min(ends)) if ends else None

    def body(self) -> bytes:
        """Returns the receipt's body as it was reported, byte for byte, as far as it is stored."""
        digest = "" if self.receipt is None or self.receipt.truncated else self.receipt.digest
        return self._client._receipt_body(self.flight_id, digest)

    # Opening.

    def __enter__(self) -> "Flight":
        if self._entered:
            raise RuntimeError(f"{self.key}: a flight can be entered only once; call once() again")
        self._entered, self._pid, self._entered_at = True, os.getpid(), time.monotonic()
        try:
            answer = self._open()
            if answer["decision"] == "replay":
                self._set_result(answer["flight"])
                self.replayed = True
            else:
                self._nonce.state = "held"
        except BaseException:  # the block will not run
            self._abandon_unused()
            raise
        return self

    async def __aenter__(self) -> "Flight":
        """Opens in a thread. If the task is cancelled meanwhile, the attempt ends as not done."""
        import asyncio
        left, lock, entered = False, threading.Lock(), False

        def leave() -> None:
            with contextlib.suppress(Exception):
                self.__exit__(asyncio.CancelledError, asyncio.CancelledError("the task was cancelled"), None)

        def enter() -> "Flight":
            nonlocal entered
            self.__enter__()
            with lock:
                entered = True
            if left:
                leave()
            return self
        try:
            return await asyncio.shield(_call_in_thread(enter))
        except asyncio.CancelledError:
            with lock:
                left = not entered
            if entered and not left:
                threading.Thread(target=leave, name="flightd-async").start()
            raise

    async def __aexit__(self, *error: Any) -> bool:
        """Reports in a thread, which neither the end of the task nor that of the loop interrupts."""
        import asyncio
        return await asyncio.shield(_call_in_thread(self.__exit__, *error))

    def _reject_fork(self) -> None:
        """Raises LeaseLost in a fork: only the parent renews, acts and reports."""
        if self._pid != os.getpid():
            raise LeaseLost(f"{self.key}: this process is a fork of the one that holds the attempt: the effect must not start")

    def _wait_is_over(self) -> bool:
        return self._until is not None and self._until - time.monotonic() < 0.001

    def _ask_until(self) -> Optional[float]:
        """Returns the end of the wait for the requests of an open; None for a job, whose attempt is open already."""
        return None if self._job is not None else float("inf") if self._until is None else self._until

    def _nonce_window(self) -> float:
        """Returns the seconds to wait for others under one nonce. Half of the attempt's time-out is left for the effect."""
        timeout: Optional[int] = self._policy.get("attempt_timeout_ms")
        return min(timeout / 2000, _MAX_NONCE_WAIT) if timeout else _MAX_NONCE_WAIT

    def _waited(self) -> float:
        """Returns the seconds since the newest nonce was made."""
        return _now().mono - self._nonce.made_at.mono

    def _wait_ms(self, waited: float) -> int:
        """Returns the wait of the next open with a nonce under which others were waited for that many seconds."""
        left = float("inf") if self._until is None else self._until - time.monotonic()
        return int(1000 * max(0.0, min(left, max(self._nonce_window() - waited, _MIN_WAIT))))

    def _new_nonce(self) -> None:
        self._reject_fork()
        self._nonce = _Nonce(self, self._client._ledger_ms(), self._wait_ms(0.0) + self._client._open_margin_ms)
        self._client._choose_session(self._nonce)
        self._nonces.append(self._nonce)

    def _open(self) -> Dict[str, Any]:
        """Opens until the block may run, the flight is decided, or the wait is over. Returns the last answer."""
        try:
            return self._open_until_answered()
        except Busy as e:
            if self._look_up_error is None:
                raise
            raise InDoubt(f"{self.key}: the look-up failed: {_error_text(self._look_up_error)}; the outcome of an earlier effect is "
                          "unknown until a look-up succeeds (correct look_up, and call again)", problem=e.problem) from self._look_up_error

    def _open_until_answered(self) -> Dict[str, Any]:
        if self._job is not None:
            return self._open_job(self._job)
        self._client._connect("", self._ask_until())
        self._new_nonce()
        failures = 0  # opens in a row without a result
        while True:
            self._reject_fork()
            wait, asked = self._wait_ms(self._waited()) / 1000, time.monotonic()
            try:
                answer, sent_at = self._send_open("/v1/flights:open", self._request)
                self._policy = self._request  # unless this answer names that of the flight's first caller
                while answer["decision"] == "verify":
                    answer, sent_at = self._verify(answer, sent_at)
                if answer["decision"] == "replay":
                    return answer
                if answer["decision"] != "proceed":
                    raise Error(f"the server decided {answer['decision']!r}, which this client does not know: "
                                "nothing ran; upgrade the client", code="internal")
                self._accept_attempt(answer, sent_at)
                reason = self._expiry_reason()
                if not reason:
                    return answer
                raise LeaseLost(f"{self.key}: {reason}: the effect did not start")
            except (Busy, LeaseLost, Fenced, Unavailable) as e:
                if isinstance(e, LeaseLost) and e.problem.get("status") and self._nonce.session is not None:
                    self._nonce.session.mark_lost()
                failures = 0 if isinstance(e, Busy) else failures + 1
                # The estimate of ledger time was wrong; the answer has corrected it.
                expired = e.code == "open_expired" and failures <= 3
                over = isinstance(e, Unavailable) or isinstance(e, Busy) and self._wait_is_over()
                if not expired and (over or failures >= _MAX_FAILED_OPENS):
                    raise
                if not isinstance(e, Busy) or self._waited() >= self._nonce_window():
                    self._abandon_unused(_ABANDON_WAIT)
                pause = 0.02 * 2 ** failures
                if isinstance(e, Busy):  # a server that answers early knows that the key stays busy
                    pause = min(max(e.retry_after, 0.02), wait - (time.monotonic() - asked))
                time.sleep(max(0.0, min(pause, 1.0)))
                if self._nonce.state != "awaited":
                    self._new_nonce()

    def _open_job(self, job: Tuple[Dict[str, Any], _Instant]) -> Dict[str, Any]:
        """Takes the attempt, or the look-up, that a claim was answered with. After its end the job is handed out again."""
        answer, sent_at = job
        if self._nonce.state != "awaited":
            raise Unsettled(f"{self.key}: the attempt has ended, and the job is handed out again")
        while answer["decision"] == "verify":
            answer, sent_at = self._verify(answer, sent_at)
        if answer["decision"] == "proceed":
            self._accept_attempt(answer, sent_at)
            if self._expiry_reason():
                raise LeaseLost(f"{self.key}: {self._expiry_reason()}: the effect did not start")
        return answer

    def _send_open(self, path: str, request: Dict[str, Any]) -> Tuple[Dict[str, Any], _Instant]:
        """Sends an open, or a verification, which gets the same kind of answer, and marks the nonce if it is final."""
        nonce = self._nonce
        wait, may_have_arrived = self._wait_ms(self._waited()), nonce.may_have_arrived
        nonce.may_have_arrived = True
        request = dict(request, nonce=nonce.text, not_after=nonce.not_after, owner=self._client._owner(), wait_ms=wait)
        if nonce.session is not None and not nonce.session.one_shot:
            request["session"] = nonce.session.id
        elif self._client._ttl is not None:
            request["ttl_ms"] = int(self._client._ttl * 1000)
        try:
            answer, sent_at = self._client._ask("POST", path, request, timeout=wait / 1000 + _TRY_TIMEOUT,
                                                until=self._ask_until())
            self._client._adapt_open_margin(expired=False)
        except Error as e:
            only = not may_have_arrived and not e._may_have_arrived
            if _is_final(e, only):
                nonce.finish()
            elif only and _is_unproposed(e):
                nonce.may_have_arrived = False
            self._client._adapt_open_margin(expired=e.code == "open_expired")
            if not isinstance(e, Failed) or not e.problem.get("flight"):
                raise
            answer, sent_at = {"decision": "replay", "flight": e.problem["flight"]}, nonce.made_at  # it failed
        if answer["decision"] == "replay":
            nonce.finish()
        return answer, sent_at

    def _abandon_unused(self, wait: float = 0.0) -> None:
        """Abandons the opens that will not be used: no other caller can state that nothing was sent. It waits for the first
        try, up to wait seconds; a new open of the key would otherwise meet this caller's own doubt. An open whose answers
        all came without a proposal is abandoned later, for a copy that the network may have made: when a renewal lists it,
        or without a session after its not_after."""
        until = time.monotonic() + wait
        for nonce in self._nonces:
            if nonce.state == "awaited" and self._pid == os.getpid():  # a fork leaves its parent's opens alone
                nonce.state = "given up"
                if nonce.may_have_arrived:
                    self._client._abandon_in_background(nonce, until)
                elif nonce.session is None:
                    self._client._leave(nonce)

    def _abandon(self, nonce: _Nonce, timeout: float = 5.0) -> bool:
        """States that nothing was and will be sent under a nonce. Returns False while no server has accepted that."""
        abandon = {"action": self._request["action"], "id": self._request["id"], "nonce": nonce.text,
                   "not_after": nonce.not_after, "reason": "its caller gave up before the effect"}
        try:
            self._client._ask("POST", "/v1/flights:abandon", abandon, timeout=timeout, retry_timeout=timeout)
        except Exception as e:  # also an answer that cannot be decoded
            if _report_result_of(e) != "rejected":
                return False
        nonce.abandoning, nonce.settled = False, True
        return True

    def _verify(self, answer: Dict[str, Any], sent_at: _Instant) -> Tuple[Dict[str, Any], _Instant]:
        """Calls look_up and reports its finding under a new nonce. Returns the answer, which is that of an open."""
        self._set_details(answer)
        if self._look_up is None:
            raise InDoubt(f"{self.key}: an earlier effect has an unknown outcome and must be looked up; pass look_up",
                          problem=answer)
        looked = self._nonce
        self._client._adopt(looked, answer, sent_at)
        self._look_up_until = time.monotonic() + (self._policy.get("attempt_timeout_ms") or 1000 * _LOOK_UP_TIMEOUT) / 1000
        verification = self._verification_of(answer, self._call_look_up())
        try:
            self._new_nonce()
            answer, sent_at = self._send_open(f"/v1/flights/{self.flight_id}/verification", verification)
        except Error:
            looked.state = "given up"
            self._client._abandon_in_background(looked)
            raise
        looked.finish()
        return answer, sent_at

    def _call_look_up(self) -> Union[Happened, NotHappened, None]:
        try:
            found = _awaited(cast(Callable[[Flight], Any], self._look_up)(self))
            if found is not None and not isinstance(found, (Happened, NotHappened)):
                raise TypeError(f"look_up returned a {type(found).__name__}: return Happened(...), NotHappened() or None")
            self._look_up_error = None
            self._client._note_look_up(self, "")
            return found
        except Exception as e:
            self._look_up_error = e
            self._client._note_look_up(self, _error_text(e))
            return None
        finally:
            self._look_up_until = None

    def _verification_of(self, answer: Dict[str, Any], found: Union[Happened, NotHappened, None]) -> Dict[str, Any]:
        verification = {"verification": answer["verification"], "result": "unknown"}
        if isinstance(found, Happened):
            verification.update(_body_fields(found.external_id, *self._encoded(found.result, found.external_id)), result="happened")
        elif isinstance(found, NotHappened):
            verification["result"] = "not_happened"
        return verification

    def _set_details(self, answer: Dict[str, Any]) -> None:
        self.flight_id, self.key = answer["flight_id"], answer.get("key") or self.key
        self.idempotency_key, self.previous = answer.get("idempotency_key", ""), answer.get("previous")
        self.attempt, self.traceparent = answer.get("attempt") or 0, answer.get("traceparent", "")
        self.input = answer.get("input")
        if "input_base64" in answer:
            self.input = _decode(answer.get("input_content_type", ""), base64.b64decode(answer["input_base64"]))
        if answer.get("policy_differs"):
            self._policy = answer.get("policy") or {}  # the first caller's policy is in force

    def _accept_attempt(self, answer: Dict[str, Any], sent_at: _Instant) -> None:
        self.flight_id, self.fencing_token = answer["flight_id"], answer["fencing_token"]
        self._set_details(answer)
        self._nonce.attempt = self.attempt
        self._trust = self._client._adopt(self._nonce, answer, sent_at).trust
        timeout, resend = self._policy.get("attempt_timeout_ms"), answer.get("resend_ms")
        self._deadline = _TimeWindow(self._nonce.made_at, timeout) if timeout else None
        self._resend_window = None if resend is None else _TimeWindow(sent_at, resend)

    # Reporting.

    def __exit__(self, kind: Optional[Type[BaseException]], exc: Optional[BaseException],
                 trace: Optional[TracebackType]) -> bool:
        if self._decided:
            self._note_left(exc)
            self._block_ended = True
            return isinstance(exc, _LeaveBlock) and exc.flight is self
        if self._pid != os.getpid():
            return False  # a fork must not end the flight of its parent
        interrupted = exc is not None and not isinstance(exc, Exception)
        if exc is None:
            exc = self._rejected_effect  # also if the block caught it: the earlier effect still has an unknown outcome
        caught: Optional[BaseException] = None
        if exc is None and self.result is None and not self._running_effects:
            exc = caught = self._effect_error  # the block caught the error and set no result
        if exc is None and self._effect_started:
            try:
                self.result = self.result if _status_of(self.result) is None else ok(self.result)
                _check_ran(self.result)
            except Exception as e:
                exc = e
        own = self._is_own_error(exc)
        self._note_left(exc)
        try:
            with self._effect_lock:
                self._block_ended = True
                outcome, text = self._classify(exc, own)
            flight = self._report(outcome, text, _pause_of(exc) if own else 0.0)
        except (Fenced, Unrecorded) as e:
            if interrupted:
                return False
            if isinstance(e, Fenced):
                return self._after_fence(e, exc)
            raise e from (exc or e.__cause__)
        finally:
            self._nonce.end_report(accepted=False)  # unless it was
        if interrupted:
            return False  # the interrupt of the program goes on
        finished = self._finish(flight, outcome, exc)
        if caught is not None and not finished:
            raise caught
        return finished

    @staticmethod
    def _note_left(e: Optional[BaseException]) -> None:
        if isinstance(e, (NotDone, Refused)):
            e._left_at = time.monotonic()

    def _classify(self, exc: Optional[BaseException], own: bool) -> Tuple[str, str]:
        text = "" if exc is None else f"{type(exc).__name__}: {_to_text(exc)}"
        if exc is None:
            if not self._effect_started:
                return "unknown", "the block ended without effect(): it is not known whether anything was sent"
            if self._running_effects:
                return "unknown", "the block ended while effect() was running: its outcome is not known"
            return "succeeded", ""
        # An error raised in one effect, or by one answer, proves nothing for another effect.
        scope = getattr(exc, "_scope", "")
        of_one_request = any(exc is e for e in self._effect_errors) or scope == "safe" or scope == "request" and (
            self._possible_effects > 1 or self._has_unknown_effect)
        others = self._running_effects or self._possible_effects and of_one_request
        if isinstance(exc, Refused) and own and not others:
            return "refused", text
        if not self._effect_started or isinstance(exc, NotDone) and own and not others:
            return "not_done", text
        return "unknown", text

    def _report(self, outcome: str, text: str, retry_after: float) -> Dict[str, Any]:
        report: Dict[str, Any] = {"fencing_token": self.fencing_token, "key": self.key, "outcome": outcome}
        overran = self._effect_started and self._deadline is not None and self._deadline.remaining() <= 0
        if text or overran:  # the history shows the time-out, whatever the outcome is
            report["error"] = _truncate(": ".join(filter(None, [_OVERRAN if overran else "", text])))
        if outcome == "not_done" and retry_after > 0:
            report["retry_after_ms"] = int(1000 * retry_after)
        if outcome in ("succeeded", "refused"):
            answered = outcome == "refused" and _status_of(self.result) is not None  # the text of the error has its body
            content_type, body = self._encoded(None if answered else self.result, self.external_id)
            if outcome == "refused" and not body:
                content_type, body = "text/plain; charset=utf-8", text.partition(": ")[2].encode("utf-8", "replace")
            report.update(_body_fields(self.external_id, content_type, body))
        self._nonce.report, self._succeeded = report, outcome == "succeeded"
        return self._client._record_report(self._nonce, self.result)

    def _encoded(self, value: Any, external_id: Any) -> Tuple[str, bytes]:
        """Returns content type and body of a receipt, and logs what the receipt does not keep: duplicates cannot get it."""
        content_type, body, why = _encode(value, self.content_type)
        if not why and len(body) > _MAX_RECEIPT:
            why = f"it has {len(body)} bytes, and {_MAX_RECEIPT} are stored"
        if why:
            _log.warning("flightd: the receipt of %s does not hold the whole result, so duplicates get ReceiptTruncated: %s; "
                         "store the result elsewhere, and return its id", self.key, why)
        if _truncate(_to_text(external_id)) != _to_text(external_id):
            _log.warning("flightd: the external id of %s is longer than %d bytes or no valid text, and is not kept as it is; "
                         "put it into the result", self.key, _MAX_TEXT)
        return content_type, body

    def _finish(self, flight: Dict[str, Any], outcome: str, exc: Optional[BaseException]) -> bool:
        if flight["state"] in _DECIDED_STATES:
            try:
                flight["source"] = "executed"
                self._set_result(flight)
            except Error as e:
                if outcome == "unknown" and exc is None:
                    advice = ("wait for the threads that are in f.effect() before the block ends" if self._effect_started else
                              "put f.effect() around the call that must happen once, or raise NotDone to leave without it")
                    raise RuntimeError(f"{self.key}: the flight is in doubt; {advice}") from e
                raise e from exc
            return True
        if outcome == "unknown" and flight.get("verifying") and self._look_up is not None:
            return self._after_look(exc)
        if outcome == "not_done":
            return False
        unsettled = Unsettled(f"{self.key}: {outcome}: {_to_text(exc)}; call again to open the next attempt")
        unsettled.outcome = outcome
        raise unsettled from exc

    def _after_look(self, exc: Optional[BaseException]) -> bool:
        """Waits for the look-up. The block cannot run twice, so the caller must call again if nothing happened."""
        try:
            answer = self._open()
            if answer["decision"] == "replay":
                self._set_result(answer["flight"])
                return True
        finally:
            self._abandon_unused()
        unsettled = Unsettled(f"{self.key}: not_done: {_to_text(exc)}; the look-up found no effect; call again")
        unsettled.outcome = "not_done"
        raise unsettled from exc

    def _after_fence(self, fenced: Fenced, exc: Optional[BaseException]) -> bool:
        """Returns the decision of another attempt or a person, if it is final; else raises Fenced."""
        try:
            flight, _ = self._client._ask("GET", f"/v1/flights/{self.flight_id}")
        except Error:
            raise fenced from exc
        if flight["state"] not in _DECIDED_STATES:
            raise fenced from exc
        flight["source"] = "replayed"
        self._set_result(flight)
        return True

    def _set_result(self, flight: Dict[str, Any]) -> None:
        """Sets the fields from a decided flight, and raises unless it succeeded with a complete result."""
        self._decided = True
        self.flight_id, self.key = flight["id"], flight.get("key") or self.key
        self.source = flight.get("source") or "replayed"
        state, cause, problem = flight["state"], flight.get("cause", ""), {
            "key": self.key, "flight_id": self.flight_id, "version": flight.get("version", ""), "flight": flight}
        if state == "in_doubt":
            raise InDoubt(f"{self.key} is in doubt: {cause}; resolve it with `flightd doubt resolve {self.key} --reason WHY "
                          "--happened --receipt @FILE | --did-not-happen | --fail`", problem=problem)
        if state == "awaiting_approval":
            raise Unapproved(f"{self.key} waits for an approval", problem=problem)
        if state == "expired":
            raise Expired(f"{self.key}: its receipt is no longer stored", problem=problem)
        if not flight.get("receipt"):
            raise Failed(f"{self.key} is {state}: {cause}", problem=problem)
        self.receipt = _receipt(flight["receipt"])
        own = self._succeeded and self.source == "executed" and self.receipt.attempt == self.attempt
        self.external_id = self.receipt.external_id
        self.attempt = self.receipt.attempt
        if self.receipt.outcome == "refused":
            declined = Declined(f"{self.key} was refused by the provider: {self.receipt.value}", problem=problem)
            declined.receipt = self.receipt
            raise declined
        if own:
            return  # the executing caller has the complete result
        if not self.receipt.truncated:
            self.result = self.receipt.value
        else:
            why = ("could not be written as JSON by the caller that acted" if self.receipt.content_type == _INCOMPLETE else
                   f"of {self.receipt.size} bytes is not stored completely" if self.receipt.size else "is not known: a person resolved it")
            truncated = ReceiptTruncated(f"{self.key} succeeded, but its result {why}", problem=problem)
            truncated.receipt = self.receipt
            raise truncated


_DECIDED_STATES = ("succeeded", "failed", "cancelled", "expired", "in_doubt", "awaiting_approval")


def _receipt(r: Dict[str, Any]) -> Receipt:
    kind = r.get("content_type", "")
    truncated = bool(r.get("truncated")) or kind == _INCOMPLETE
    value = r["body"] if "body" in r else _decode(kind, base64.b64decode(r.get("body_base64", "")), truncated)
    return Receipt(outcome=r["outcome"], external_id=r.get("external_id", ""), content_type=kind,
                   digest=r.get("digest", ""), size=r.get("size", 0), truncated=truncated,
                   attempt=r.get("attempt", 0), at=r.get("at", ""), value=value)


# --- the client ------------------------------------------------------------------------------------------------------


class Client:
    """A client of flightd servers. Its methods may be called from many threads.

    address        one server, or several of one deployment, separated by commas; default ``FLIGHTD_ADDR``, else
                   http://127.0.0.1:7420. If one of them is the leader of a cluster, requests go there; after a failure
                   they are tried at the others in turn. The client stays with the first deployment that answers
    namespace      of keys; default ``FLIGHTD_NAMESPACE``, else that of the token, else "default"
    ttl            whole seconds from 2 to 600 for which an attempt outlives this process; the server's default is 15
    spool          folder for reports that no server has accepted yet; with "" an outcome is lost if the process dies
    retry_timeout  seconds for which a request is retried while no server answers
    report_wait    seconds to wait until an outcome is recorded; then ``Unrecorded``, and the report is retried
    owner          name of the holder of attempts, for people; default host:pid
    token          sent with every request, in place of a user in the address; default ``FLIGHTD_TOKEN``, else token_file
    token_file     file that has the token, read again at most once a second; default ``FLIGHTD_TOKEN_FILE``
    ca_file        PEM file of the authorities that https servers are checked against; default ``FLIGHTD_CA_FILE``, else
                   the system's
    client_cert    PEM files of the client's certificate and of its key; default ``FLIGHTD_CLIENT_CERT`` and
                   ``FLIGHTD_CLIENT_KEY``
    allow_plain_http  sends a token over http:// to another machine, too: every machine on the way can then read it. It is
                   for a proxy on a trusted network; default ``FLIGHTD_ALLOW_PLAIN_HTTP``
    deployment     the only deployment that the client talks to; default ``FLIGHTD_DEPLOYMENT``, else the first that answers
    """

    def __init__(self, address: Optional[str] = None, *, namespace: Optional[str] = None, ttl: Optional[int] = None,
                 spool: Optional[str] = None, retry_timeout: float = 10.0, report_wait: float = 10.0,
                 owner: str = "", token: str = "", token_file: str = "", ca_file: str = "",
                 client_cert: Optional[Tuple[str, str]] = None, allow_plain_http: bool = False,
                 deployment: str = "") -> None:
        self._token = _token_source(token, token_file)
        self.namespace = _name("namespace", namespace or os.environ.get("FLIGHTD_NAMESPACE") or _token_namespace(self._token()) or "default")
        if not _NAMESPACE.fullmatch(self.namespace):
            raise ValueError(f"invalid namespace {self.namespace!r}: use letters, digits, '.', '_' and '-'")
        addresses = _addresses(address or os.environ.get("FLIGHTD_ADDR") or DEFAULT_SERVER)
        if self._token() and not allow_plain_http:
            _check_plain_http(addresses)
        context = _tls_context(ca_file, client_cert) if any(a.scheme == "https" for a in addresses) else None
        self._servers = [_Server(a, context) for a in addresses]
        if _bound("retry_timeout", retry_timeout) <= 0 or _bound("report_wait", report_wait) <= 0:
            raise ValueError("retry_timeout and report_wait must be positive")
        if ttl is not None:
            _ms("ttl", _bound("ttl", ttl))
        self._ttl, self._retry_timeout, self._report_wait, self._owner_name = ttl, retry_timeout, report_wait, owner
        self._spool = _Spool(_default_spool() if spool is None else spool)
        self._picker, self._deployment = _Picker(len(self._servers)), ""
        self._pinned_deployment = deployment or os.environ.get("FLIGHTD_DEPLOYMENT", "")
        # Guards the fields below, _deployment, and the start of the threads.
        self._lock = threading.Lock()
        self._ledger_clock = 0, _now()  # the ledger's time in ms, 0 if no answer has named it, and when one did
        self._ledger_index = (0, 0)  # the greatest position (epoch, entry) that an answer named; each request sends it
        self._abandons: Deque[Tuple[float, _Nonce]] = collections.deque(maxlen=_MAX_ABANDONS)
        self._abandon_loop_runs = False
        self._left: Deque[_Nonce] = collections.deque(maxlen=_MAX_LEFT)  # opens whose abandon is sent later
        self._left_loop_runs = False
        self._forget_sessions()
        self._handlers: Dict[str, Handler] = {}  # by action
        self._failed_look_ups: Dict[str, str] = {}  # the last logged text, by action
        self._stop_worker = threading.Event()
        self._open_margin_ms = _MIN_OPEN_MARGIN_MS
        self._spool_thread: Optional[threading.Thread] = None
        self._closed = threading.Event()
        _clients.add(self)

    def _reset_after_fork(self) -> None:
        """Replaces locks and connections in a fork: the threads that held them exist only in the parent."""
        self._lock, closed = threading.Lock(), self._closed.is_set()
        self._closed = threading.Event()
        self._abandons.clear()
        self._left.clear()
        self._abandon_loop_runs = self._left_loop_runs = False
        self._forget_sessions()
        if closed:
            self._closed.set()
        self._spool.reset_after_fork()
        self._picker.reset_after_fork()
        for server in self._servers:
            server.reset_after_fork()

    def once(self, name: str, id: str, input: Any = None, *, recovery: str = "hold",
             look_up: Optional[Callable[[Flight], Union[Happened, NotHappened, None]]] = None,
             attempt_timeout: Optional[float] = None, settle: Optional[float] = None,
             provider_window: Optional[float] = None, retention: str = "", wait: Optional[float] = 20.0,
             key_decides: bool = False) -> Flight:
        """Returns the flight of a key. Use it in a ``with`` statement, which sends the first request.

        name, id        the business intent: the kind of effect and a business identifier, such as an order id
        input           any JSON; a date, a datetime with a zone, a UUID, a Decimal, an Enum and a dataclass are written as JSON,
                        and anything else is a ValueError. The same key with another input is a Conflict, unless key_decides is set: then the first
                        input is used
        recovery        the policy after an unknown outcome: hold, resend or verify. The first caller's policy is used
        look_up         for verify: asks the provider, and returns Happened, NotHappened, or None if it cannot tell. It
                        may take ``Flight.time_left`` seconds
        attempt_timeout seconds that an attempt may take, counted from its first request; see ``Flight.time_left``
        settle          for verify: seconds after which the provider surely shows an effect
        provider_window for resend: seconds for which the provider remembers the idempotency key
        retention       how long the receipt is stored: "30d", "12h"
        wait            seconds to wait for another caller's attempt before ``Busy``; None waits without limit

        At its start, the with statement raises InDoubt, Conflict, Busy, Declined, Failed, Unapproved, Expired or
        Unavailable if the effect must not run; at its end it may raise Unrecorded, Unsettled or Fenced.
        """
        name, id = _name("action", name), _name("id", id)
        request: Dict[str, Any] = {"action": name, "id": id, "recovery": recovery}
        if input is not None:
            request["input"] = _input(input)
        if key_decides:
            request["fingerprint"] = "none"
        if recovery == "verify" and look_up is None:
            raise ValueError('recovery "verify" needs look_up')
        wait = _bound("wait", wait)
        for field_name, seconds in (("attempt_timeout_ms", attempt_timeout), ("settle_ms", settle),
                                    ("provider_window_ms", provider_window)):
            if seconds is not None:
                request[field_name] = _ms(field_name[:-3], seconds)
        if retention not in ("", None):
            request["retention"] = retention
        if look_up is not None and recovery != "verify":
            request["lookup"] = True
        return Flight(self, request, wait, look_up, f"{self.namespace}/{name}/{id}")

    def call(self, name: str, id: str, input: Any, act: Callable[[Flight], Any], *, retries: int = 0, **options: Any) -> Any:
        """Calls ``act`` once for the key, inside ``effect()``, and returns its result. After a ``NotDone`` it calls again, up
        to ``retries`` times, after the provider's pause or one that doubles from 0.1 s. ``options`` are those of ``once``."""
        _check_runs(act)
        if _whole("retries", retries) < 0:
            raise ValueError(f"retries: {retries} is negative")
        for pause in (0.1 * 2 ** min(n, 7) for n in range(retries + 1)):
            try:
                with self.once(name, id, input, **options) as f, f.effect():
                    _take_result(f, act(f))
                return f.result
            except (NotDone, Unsettled) as e:
                retries -= 1
                if retries < 0 or isinstance(e, Unsettled) and e.outcome != "not_done":
                    raise
                time.sleep(_pause_of(e) or pause * random.uniform(0.5, 1.5))
        raise AssertionError

    def get(self, name: str, id: str) -> Optional[Dict[str, Any]]:
        """Returns the flight of a key as the server stores it, with ``state`` and, if it has ended, ``receipt``; None if the
        key was never used."""
        key = f"{self.namespace}/{_name('action', name)}/{_name('id', id)}"
        try:
            return self._ask("GET", "/v1/flights/" + _flight_id_for_key(key))[0]
        except Error as e:
            if e.code != "not_found" or not e.flight_id:  # without the flight, it is about the path
                raise
            return None

    # Jobs.

    def submit(self, name: str, id: str, input: Any = None, **options: Any) -> "Submitted":
        """Asks the workers of an action to perform its effect, and does not wait for it. The same key is the same job.

        run_at, delay      earliest time of the first attempt: a datetime with a time zone, or seconds or "10m" from now
        lane, lane_limit   jobs of a lane run one at a time, or as many at once as the limit, in the order of submission
        priority           -1000 to 1000; jobs of a greater one are handed out first
        retry              how often an attempt is made, the first included, while nothing happened
        recovery, window, settle, timeout, retention  the policy, as in ``worker``; default that of the action's document,
                           else that of the worker that this process declares, else hold

        It raises Conflict for another input, and Unavailable."""
        request = self._job_request(name, id, input, options)
        name, id = request["action"], request["id"]
        answer, _ = self._ask("POST", "/v1/flights:submit", request)
        if answer.get("warning"):
            _log.warning("flightd: %s/%s: %s", name, id, answer["warning"])
        return Submitted(answer["status"], answer["flight"].get("key", ""), answer.get("warning", ""))

    def submit_all(self, name: str, jobs: Iterable[Tuple[str, Any]], **options: Any) -> Dict[str, int]:
        """Submits (id, input) pairs in batches. It returns how many were queued, duplicate, or rejected with which code
        (conflict: another input). All again, from the first, is harmless. options are those of ``submit``."""
        counts: Dict[str, int] = collections.defaultdict(int, queued=0, duplicate=0, conflict=0)
        lines: List[bytes] = []
        for job in itertools.chain(jobs, [None]):
            if lines and (job is None or len(lines) == _MAX_BATCH_LINES or sum(map(len, lines)) > _MAX_BATCH_BYTES):
                data, _ = self._ask_raw("POST", "/v1/flights:submit", b"\n".join(lines), 60.0, None, 0, False,
                                        extra={"Content-Type": "application/x-ndjson"})
                answers = [_read_json(line) for line in data.splitlines()]
                if [a["line"] for a in answers] != list(range(1, len(lines) + 1)):
                    raise _unreadable(f"it does not have the {len(lines)} lines of the request; submit all again")
                for a in answers:
                    counts["conflict" if a["status"] == Conflict.code else a["status"]] += 1
                lines = []
            if job is not None:
                lines.append(json.dumps(self._job_request(name, *job, options)).encode())
        return dict(counts)

    def _job_request(self, name: str, id: str, input: Any, options: Dict[str, Any]) -> Dict[str, Any]:
        name, id = _name("action", name), _name("id", id)
        if not set(options) & set(_POLICY_FIELDS) and name in self._handlers:
            handler = self._handlers[name]
            self._declare(handler)
            if handler.declared == "undeclared":
                options = {**handler.policy, **options}
        request: Dict[str, Any] = {"action": name, "id": id, **_policy_of(options)}
        if input is not None:
            request["input"] = _input(input)
        if options.get("run_at") is not None:
            at = options["run_at"]
            if not isinstance(at, datetime.datetime) or at.utcoffset() is None:
                raise ValueError(f"run_at: {at!r} is not a datetime with a time zone")
            try:
                request["run_at"] = at.astimezone(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            except OverflowError:
                raise ValueError(f"run_at: {at} is before the year 1 or after 9999 in UTC") from None
        if options.get("delay") is not None:
            request["delay_ms"] = _ms("delay", options["delay"])
        if options.get("lane") is not None:
            request["lane"] = _name("lane", options["lane"])
        request.update({k: _whole(k, options[k]) for k in ("lane_limit", "priority") if options.get(k) is not None})
        unknown = set(options) - set(_POLICY_FIELDS) - {"retry", "run_at", "delay", "lane", "lane_limit", "priority"}
        if unknown:
            raise TypeError(f"unknown option {sorted(unknown)[0]!r}")
        return request

    def wait(self, name: str, id: str, timeout: Optional[float] = None) -> Any:
        """Waits until a job has ended, and returns its result. Anybody may wait, and later. It raises Declined, Failed,
        InDoubt for a job that needs a person, and when the time-out is over Busy, or Unapproved for a job that awaits an approval."""
        name, id = _name("action", name), _name("id", id)
        key = f"{self.namespace}/{name}/{id}"
        flight, path = Flight(self, {"action": name, "id": id}, None, None, key), "/v1/flights/" + _flight_id_for_key(key)
        until, seen, state = time.monotonic() + _bound("timeout", timeout), "", ""
        while True:
            asked = time.monotonic()
            seconds = int(max(0.0, min(until - asked, 30.0)))
            data, _ = self._ask_raw("GET", path, None, seconds + _TRY_TIMEOUT, max(self._retry_timeout, until - asked), 0, False,
                                    until=until, extra={"If-None-Match": f'"{seen}"', "Prefer": f"wait={seconds}"})
            answer = _read_json(data)
            if answer and answer["state"] in _DECIDED_STATES and answer["state"] != "awaiting_approval":
                flight._set_result(answer)
                return flight.result
            seen, state = (answer["version"], answer["state"]) if answer else (seen, state)
            now = time.monotonic()
            if now >= until and state == "awaiting_approval":
                raise Unapproved(f"{key} waits for an approval: flightd approvals show {key}", problem={"key": key})
            if now >= until:
                raise Busy(f"{key} has not ended", problem={"key": key})
            if not answer and now - asked <= seconds / 2:  # a server without room for a wait has answered at once
                time.sleep(min(until - now, 2.0))
            elif seconds == 0:
                time.sleep(min(until - now, 0.1))

    def worker(self, name: str, *, look_up: Optional[Callable[[Flight], Union[Happened, NotHappened, None]]] = None,
               **policy: Any) -> Callable[[Callable[..., Any]], "Handler"]:
        """Declares the decorated function as the handler of an action's jobs, for ``run``. It is called with the job, a
        ``Flight``, and the input; if the input is annotated with a dataclass, it is made from the input, and an input of
        another form is not done. What it returns is the receipt. The whole function is the effect: what it raises counts as
        if it were raised in ``effect()``.

        The policy becomes that of the action's document, if it has none and the token has the verb ``define``. A document that
        is there counts: if its recovery, window, settle or lane is another one, ``run`` raises PolicyDiffers. A job whose
        submission has a policy keeps that.

        recovery   hold, resend or verify (with look_up)
        window     for resend: how long the provider remembers the idempotency key, seconds or "24h"
        settle     for verify: time after which the provider surely shows an effect
        timeout    that an attempt may take
        retry      how often an attempt is made, the first included, while nothing happened
        retention  how long the receipt is stored: "30d", "12h"
        """
        name, _ = _name("action", name), _policy_of(policy)
        _check_runs(look_up)
        if set(policy) - set(_POLICY_FIELDS) - {"retry"}:
            raise TypeError(f"unknown option {sorted(set(policy) - set(_POLICY_FIELDS) - {'retry'})[0]!r}")

        def declare(act: Callable[..., Any]) -> "Handler":
            if inspect.isgeneratorfunction(act) or inspect.isasyncgenfunction(act):
                _check_runs(act)
            handler = self._handlers[name] = Handler(self, name, act, look_up, policy)
            return handler
        return declare

    def run(self, *, concurrency: int = 16, drain: float = 30.0) -> None:
        """Performs jobs of the declared actions, each in a thread, until ``stop``, SIGTERM or Ctrl-C. Then it claims nothing
        more, gives back what has not begun, and waits for ``drain`` seconds until the running jobs have ended and reported.
        If the process dies, its jobs end with its session, by their policies. It raises the error of the server that rejects
        the first claim, such as for a token without the verb work."""
        if not self._handlers or concurrency < 1:
            raise ValueError("a worker needs a handler (client.worker) and a concurrency of at least 1")
        _Worker(self, concurrency).run(min(_bound("drain", drain), threading.TIMEOUT_MAX))

    def _declare(self, handler: "Handler") -> None:
        """Declares the policy of a handler, once. If the action's document counts, handler.declared says so."""
        if not handler.policy or handler.declared:
            return
        answer, _ = self._ask("POST", f"/v1/actions/{handler.name}/declare", _policy_of(handler.policy))
        texts = []
        for d in answer.get("differences") or []:
            text = f"{d['field']} is {d['own'] or 'not set'} here, and {d['document'] or 'not set'} in the document"
            if d.get("refuses"):
                texts.append(text)
            else:
                _log.warning("flightd: the worker's policy of %s differs from its document, which counts: %s", handler.name, text)
        if texts:
            handler.differs = PolicyDiffers(f"the worker's policy of the action {handler.name} differs from its document: {'; '.join(texts)}; "
                                            "change the worker, or the document with flightd actions apply")
            handler.differs.differences = answer["differences"]
        if answer["status"] == "undeclared":
            _log.warning("flightd: the policy of %s is not declared: the token lacks the verb define, and the action has no document",
                         handler.name)
        handler.declared = answer["status"]

    def stop(self) -> None:
        """Ends ``run``."""
        self._stop_worker.set()

    def _note_look_up(self, flight: Flight, failure: str) -> None:
        """Logs the failure of a look-up, and not again while the look-ups of the action fail with the same text."""
        action, seen = flight._action, self._failed_look_ups
        if failure and seen.get(action) != failure:
            _log.error("flightd: %s: the look-up failed: %s", flight.key, failure, exc_info=True)
        seen[action] = failure

    def _new_job(self, claim: _Claim, key: str, policy: Dict[str, Any], action: str = "") -> Flight:
        """Returns a job. The action is that of its key, unless the claim was answered with another one: of a step of a saga."""
        _, name, id = key.split("/", 2)
        handler = self._handlers.get(action or name)
        job = Flight(self, {**policy, "action": name, "id": id}, 0.0, handler.look_up if handler else None, key)
        job.flight_id, job._action = job._id, action or name
        job._nonce = _Nonce(job, claim.not_after, 0, f"{claim.text}.{job._id}")
        job._nonce.validity, job._nonce.may_have_arrived = claim.validity, True
        job._nonces = [job._nonce]
        return job

    def spooled(self) -> int:
        """Returns the number of reports that wait on disk."""
        return len(self._spool.on_disk())

    def close(self) -> None:
        """Ends ``run`` and the work in the background, and closes the session. Reports on disk wait for the next client;
        reports that could not be spooled are sent once more."""
        self._closed.set()
        self.stop()
        thread = self._spool_thread
        if thread is not None:
            thread.join(5.0)
        self._send_last_requests()
        for server in self._servers:
            server.close()

    # Sessions.

    def _forget_sessions(self) -> None:
        self._making_session = threading.Lock()  # held while a session is made, which changes _sessions_made
        self._sessions_made = 0
        self._sessions: Set[_Session] = set()  # that are renewed
        self._session: Optional[_Session] = None  # for new opens
        self._performed = False  # an attempt was opened in the last minute: opens use a session
        self._sessionless: Optional[_Nonce] = None  # the newest open without a session

    def _choose_session(self, nonce: Union[_Nonce, _Claim]) -> None:
        """Adds a new nonce to the client's session, and makes the session if needed. A client that has performed no effect
        opens without a session, one call at a time: a replay needs none. The server then makes a session for the open. A claim
        needs a session; it has none if none could be made."""
        while True:
            with self._lock:
                session, made = self._session, self._sessions_made
                if isinstance(nonce, _Nonce) and session is None and not self._performed and (
                        not self._sessionless or self._sessionless.state != "awaited"):
                    self._sessionless = nonce
                    return
            if session is not None and session.trust.remaining() <= 0:
                session.mark_lost()
            elif session is not None and (session.add(nonce) if isinstance(nonce, _Nonce) else session.add_claim(nonce)):
                return
            with self._making_session:
                if self._session is None and self._sessions_made != made:
                    return  # the session that this call waited for could not be made
                if self._session is None:
                    try:
                        if self._make_session().trust.remaining() <= 0:
                            return  # its answer came too late
                    except Unavailable:
                        return
                    finally:
                        self._sessions_made += 1

    def _make_session(self) -> "_Session":
        request: Dict[str, Any] = {"owner": self._owner()}
        if self._ttl is not None:
            request["ttl_ms"] = int(self._ttl * 1000)
        answer, sent_at = self._ask("POST", "/v1/sessions", request, tries=len(self._servers))
        self._session = session = _Session(self, answer, sent_at)
        return session

    def _adopt(self, nonce: _Nonce, answer: Dict[str, Any], sent_at: _Instant) -> _Session:
        """Returns the session that holds an attempt or a look-up, as the answer names it, and moves the nonce to it."""
        self._performed = True
        if nonce.session is not None and nonce.session.id == answer["session"]:
            nonce.session.trust.extend(sent_at, answer.get("trust_ms") or 0)
            return nonce.session
        if nonce.session is not None:
            nonce.session.remove(nonce)
        return _Session(self, answer, sent_at, nonce)

    def _owner(self) -> str:
        name = self._owner_name or f"{socket.gethostname()}:{os.getpid()}"
        return "".join(c if " " <= c <= "~" else "?" for c in name)

    # Requests.

    def _ask(self, method: str, path: str, body: Union[Dict[str, Any], bytes, None] = None, *,
             timeout: float = _TRY_TIMEOUT, retry_timeout: Optional[float] = None, tries: int = 0,
             once: bool = False, until: Optional[float] = None) -> Tuple[Dict[str, Any], _Instant]:
        """Sends a request until a server answers it. A repeat is harmless on each route: by the nonce, by the token, or
        because the request changes nothing.

        It raises the error of a problem document, or Unavailable if no server answers within retry_timeout. An answer that
        does not repeat the Flightd-Echo of the request counts as no answer. until is the end of the caller's wait: while
        every server refuses connections, the tries end by then, or never if it is infinity and nothing was sent.
        """
        data, sent_at = self._ask_raw(method, path, body, timeout, retry_timeout, tries, once, until=until)
        return _read_json(data), sent_at

    def _ask_raw(self, method: str, path: str, body: Union[Dict[str, Any], bytes, None], timeout: float,
                 retry_timeout: Optional[float], tries: int, once: bool, extra: Optional[Dict[str, str]] = None,
                 until: Optional[float] = None) -> Tuple[bytes, _Instant]:
        self._connect(path, until)
        payload = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"User-Agent": "flightd-python"}
        if payload is not None:
            headers["Content-Type"] = "application/json"
        headers.update(extra or {})
        if self._deployment not in ("", "-"):
            headers["Flightd-Deployment"] = self._deployment
        deadline: Optional[float] = None  # starts at the first failure: a server may hold a request for long
        pause, may_have_arrived, count, last = 0.02, False, 0, len(self._servers)
        order: List[int] = []  # of this round, in which each server is tried once
        probe, hint = -1, 0.0
        rejected: Optional[Error] = None  # the error of a server of this round that does not admit the caller
        unusable = refusing = 0  # servers of this round with such an error or without an answer; servers that refuse connections
        while True:
            if count % last == 0:
                order, probe = self._picker.pick(may_probe=tries == 0)
                rejected, unusable, refusing, hint = None, 0, 0, 0.0
            server = order[count % last]
            count += 1
            failure: Error
            token = self._token()
            if self._ledger_index[0]:
                headers["Flightd-Index"] = "%d-%d" % self._ledger_index
            if self.namespace != "default" or _token_namespace(token):  # else it is the server's default, too
                headers["Flightd-Namespace"] = self.namespace
            authorization = "Bearer " + token if token else self._servers[server].basic
            if authorization:
                headers["Authorization"] = authorization
            else:
                headers.pop("Authorization", None)
            try:
                status, fields, data, sent_at, own, resent = self._servers[server].exchange(
                    method, path, payload, headers, timeout, once)
                may_have_arrived = may_have_arrived or resent
                if own and (status < 300 or status == 304):
                    self._note_answer(path, server, probe, status, fields)
                    return b"null" if status == 304 else data, sent_at
                failure = _error_from(status, fields.get("Retry-After") or "", data, self._servers[server].address, own)
                self._note_answer(path, server, probe, status, fields, failure)
                if failure.code == "reconciling" or (300 <= status < 500 and status not in (408, 429) and failure.code != "unreachable"):
                    if failure.code not in _NEXT_SERVER_CODES:
                        failure._may_have_arrived = may_have_arrived
                        raise failure
                    # Other software, or a server that rejects the caller: the next server may accept the request.
                    rejected, unusable = failure, unusable + 1
                else:
                    may_have_arrived = True
                    unusable += failure.code == "unreachable"
                hint = max(hint, min(failure.problem.get("retry_after_ms", 0) / 1000, 5.0))
            except _Rejected as e:
                self._picker.failed(server, probe)
                failure = Unavailable(str(e))
                failure.__cause__ = e.__cause__
                rejected, unusable = failure, unusable + 1
            except (OSError, http.client.HTTPException) as e:
                self._picker.failed(server, probe)
                unusable += 1
                no_server = isinstance(e, (ConnectionRefusedError, socket.gaierror))
                may_have_arrived, refusing = may_have_arrived or not no_server, refusing + no_server
                failure = Unavailable(f"no server answers at {self._servers[server].address}: {type(e).__name__}: {e}"
                                      + (f" ({_NO_SERVER_HINT})" if no_server else ""))
                failure.__cause__ = e
            if rejected and unusable == last:  # a person must act
                rejected._may_have_arrived = may_have_arrived
                raise rejected
            if deadline is None:
                deadline = time.monotonic() + (self._retry_timeout if retry_timeout is None else retry_timeout)
            if count % last and (count < last or failure.code in _ONE_SERVER_CODES):
                wait = 0.0  # try the next server at once
            else:
                wait = hint or pause * random.uniform(0.5, 1.5)
                pause = min(2 * pause, 1.0)
            unlimited = until == float("inf") and refusing == last and not may_have_arrived
            if until is not None and refusing == last:
                deadline = min(deadline, until)
            if count == tries or time.monotonic() + wait > deadline and not unlimited:
                failure._may_have_arrived = may_have_arrived
                raise failure
            deadline = None if unlimited else deadline
            time.sleep(wait)

    def _connect(self, path: str, until: Optional[float] = None) -> None:
        """Reads the deployment of the first server that answers, and sends the reports that wait on disk for it. The
        client stays with this deployment, or with the pinned one: another deployment has no record of its flights, and
        answers ``wrong_deployment``."""
        if self._deployment or path == "/version":
            return
        version, _ = self._ask("GET", "/version", until=until)
        with self._lock:
            if self._deployment:
                return
            found = str(version.get("deployment") or "-")  # older servers do not name it
            self._deployment = self._pinned_deployment or found
        self._note_ledger_ms(version.get("ledger_time") if self._deployment == found else 0)
        if self._spool.names():
            self._start_spool_loop(now=True)

    def _note_answer(self, path: str, server: int, probe: int, status: int, fields: http.client.HTTPMessage,
                     failure: Optional[Error] = None) -> None:
        """Stores what an answer says about its server and about the ledger. An answer of other software, or one that rejects
        the caller, perhaps of another deployment, says nothing; ``/version`` answers callers of every deployment."""
        code, problem = (failure.code, failure.problem) if failure else ("", {})
        ours = code != "unreachable" and code not in _NEXT_SERVER_CODES
        if ours and path != "/version":
            self._note_ledger_ms(fields.get("Flightd-Ledger-Time") or problem.get("ledger_time"), code == "open_expired")
            self._note_ledger_index(fields.get("Flightd-Index"))
        if ours and (status < 500 or code == "reconciling"):
            self._picker.answered(server, probe, fields.get("Flightd-Node") or "", fields.get("Flightd-Leader") or "")
        else:
            self._picker.failed(server, probe)

    def _note_ledger_ms(self, ms: Any, exact: bool = False) -> None:
        """Stores the ledger's time from an answer, unless the present estimate is later: the answer of a slow network or of
        a node that is behind does not set the time back. An exact time, that of an answer ``open_expired``, replaces each
        estimate: the answer has shown that it is wrong. Without that, a machine whose clock is fast would be ahead of the
        ledger by more with each day, and at last open nothing."""
        if not _DECIMAL.fullmatch(str(ms)):
            return
        with self._lock:
            if exact or not self._ledger_clock[0] or int(ms) > self._ledger_ms():
                self._ledger_clock = int(ms), _now()

    def _note_ledger_index(self, index: Optional[str]) -> None:
        """Stores the position of the ledger that an answer is as new as. Each request sends the greatest one, and a node
        answers only from a ledger that is as new: callers never see time go back. The client has one deployment, so the
        position is never that of another ledger."""
        epoch, _, entry = (index or "").partition("-")
        if _DECIMAL.fullmatch(epoch) and _DECIMAL.fullmatch(entry):
            with self._lock:
                self._ledger_index = max(self._ledger_index, (int(epoch), int(entry)))

    def _ledger_ms(self) -> int:
        """Estimates the ledger's time. A wrong estimate costs one more request: an expired open opens nothing."""
        (ms, then), now = self._ledger_clock, _now()
        return ms + int(1000 * max(now.mono - then.mono, now.boot - then.boot))

    def _abandon_in_background(self, nonce: _Nonce, wait_until: float = 0.0) -> None:
        """Sends an abandon until it is answered, while this process and client live; the attempt would otherwise end in
        doubt with its session, which is renewed meanwhile. It waits for the first try until wait_until. The end of the
        program waits for the first try alone (a non-daemon thread); the daemon thread of _abandon_loop sends the later ones."""
        nonce.abandoning = True

        def first_try() -> None:
            if nonce.flight._abandon(nonce):
                return
            with self._lock:
                self._keep_abandon(time.monotonic() + _ABANDON_TIMEOUT, nonce)
                if self._abandon_loop_runs:
                    return
                self._abandon_loop_runs = True
            with contextlib.suppress(RuntimeError):
                threading.Thread(target=self._abandon_loop, name="flightd-abandon-loop", daemon=True).start()
        first = threading.Thread(target=first_try, name="flightd-abandon")
        try:
            first.start()
        except RuntimeError:  # no thread can be started: the attempt is abandoned when it is listed again, or ends with its session
            nonce.abandoning = False
            return
        first.join(max(0.0, wait_until - time.monotonic()))

    def _keep_abandon(self, until: float, nonce: _Nonce) -> None:
        """Keeps an abandon that was not accepted yet, instead of the oldest one if there are too many. The caller holds _lock."""
        if len(self._abandons) == _MAX_ABANDONS:
            self._abandons[0][1].abandoning = False
        self._abandons.append((until, nonce))

    def _abandon_loop(self) -> None:
        pause = 0.1
        while True:
            closed = self._closed.wait(pause)
            with self._lock:
                if closed:  # a session abandons what its renewals list, and what is left when it is closed
                    for _, nonce in self._abandons:
                        nonce.abandoning = False
                    self._abandons.clear()
                if not self._abandons:
                    self._abandon_loop_runs = False
                    return
                until, nonce = self._abandons.popleft()
            accepted = nonce.flight._abandon(nonce)
            pause = 0.0 if accepted else min(2 * pause + 0.1, 2.0)
            nonce.abandoning = not accepted and time.monotonic() < until
            if nonce.abandoning:
                with self._lock:
                    self._keep_abandon(until, nonce)

    def _leave(self, nonce: _Nonce) -> None:
        """Sends an abandon when its not_after has passed, or when the program or this client ends, for a copy of its open
        that the network may have made. At most one abandon per key and second is sent, so that the callers of one hot key
        do not load the ledger. An abandon after not_after uses up none of the nonces that the ledger remembers for a key."""
        with self._lock, contextlib.suppress(RuntimeError):  # the interpreter shuts down
            self._left.append(nonce)
            if not self._left_loop_runs:
                threading.Thread(target=self._left_loop, name="flightd-left", daemon=True).start()
                self._left_loop_runs = True

    def _left_loop(self) -> None:
        while not self._closed.wait(_LEFT_INTERVAL):
            self._send_left([n for n in list(self._left) if n.validity.remaining() <= -_LEFT_GRACE], 5.0)
            with self._lock:
                if not self._left:
                    self._left_loop_runs = False
                    return

    def _send_left(self, due: List[_Nonce], timeout: float) -> None:
        """Sends one abandon per key. It stops when no server answers; what was not answered stays for the next round."""
        until = time.monotonic() + timeout
        for nonce in {n.flight.key: n for n in reversed(due)}.values():
            answered = nonce.flight._abandon(nonce, max(0.01, until - time.monotonic()))
            if answered or nonce.validity.remaining() < -_ABANDON_TIMEOUT:
                with self._lock, contextlib.suppress(ValueError):
                    self._left.remove(nonce)
            if not answered:
                return

    def _send_last_requests(self) -> None:
        """Sends the reports that are not on disk, and what is left, one abandon per key, and closes the sessions: the client or the
        program ends."""
        self._send_spooled(self._spool.unspooled_names())
        self._send_left(list(self._left), _LAST_ABANDONS_TIMEOUT)
        for session in list(self._sessions):
            session.close()

    def _adapt_open_margin(self, expired: bool) -> None:
        """Doubles the margin of not_after after an answer open_expired, for a ledger or a network that takes longer."""
        self._open_margin_ms = min(2 * self._open_margin_ms, _MAX_OPEN_MARGIN_MS) if expired else _MIN_OPEN_MARGIN_MS

    def _receipt_body(self, flight_id: str, digest: str) -> bytes:
        """Returns the receipt's body. Without a digest the bytes cannot be checked."""
        data, _ = self._ask_raw("GET", f"/v1/flights/{flight_id}/receipt", None, _TRY_TIMEOUT, None, 0, False)
        if digest and _digest(data) != digest:
            raise _unreadable("it is not the whole receipt")
        return data

    # Reports.

    def _record_report(self, nonce: _Nonce, result: Any) -> Dict[str, Any]:
        """Reports the outcome of an attempt. After the first failed try the report is on disk until it is accepted."""
        report, key = cast(Dict[str, Any], nonce.report), nonce.flight.key
        path, started = f"/v1/flights/{nonce.flight.flight_id}/report", time.monotonic()
        try:
            flight = self._ask("POST", path, report, tries=1, once=True, timeout=min(_FIRST_REPORT_TIMEOUT, self._report_wait))[0]
            nonce.end_report(accepted=True)
            return flight
        except BaseException as e:
            if _report_result_of(e) == "accepted":
                nonce.end_report(accepted=True)
                raise
            failure = e
        # Once the report is on disk, the next client sends it if this process dies.
        body = json.dumps(report).encode()
        name = nonce.file = self._spool.name_of(self._deployment, key, body)
        try:
            self._spool.store(self._deployment, key, body)
        except BaseException:  # an interrupt of the program; the report is stored all the same
            self._start_spool_loop(now=False)
            raise
        try:
            if not isinstance(failure, Error):
                raise failure
            if _report_result_of(failure) == "later":
                left = max(0.01, self._report_wait - (time.monotonic() - started))
                flight = self._ask("POST", path, report, retry_timeout=left, timeout=min(max(1.0, left), _REPORT_TRY_TIMEOUT))[0]
                self._spool.remove(name)
                nonce.end_report(accepted=True)
                return flight
        except Error as e:
            if _report_result_of(e) == "accepted":
                self._spool.remove(name)
                nonce.end_report(accepted=True)
                raise
            failure = e
        except BaseException:  # an interrupt of the program; the report stays in the spool
            self._spool.release(name)
            self._start_spool_loop(now=False)
            raise
        if _report_result_of(failure) == "rejected":
            where = "a person must inspect its report: " + self._spool.quarantine(name, failure)
        else:
            where = self._spool.describe_place(name)
            self._spool.release(name)
            self._start_spool_loop(now=False)
            _log.warning("flightd: the outcome of %s is not recorded yet; %s: %s", key, where, failure)
        unrecorded = Unrecorded(f"{key} ended as {report['outcome']}, which is not recorded yet; {where}: {failure}")
        unrecorded.outcome, unrecorded.result, unrecorded.key = report["outcome"], result, key
        raise unrecorded from failure

    def _start_spool_loop(self, now: bool) -> None:
        """Starts the thread that sends spooled reports until none is left. With now, a non-daemon thread sends them once
        immediately, which may delay the end of a short program."""
        def rounds() -> None:
            pause = 2.0
            while not self._closed.wait(pause):
                with self._lock:
                    names = self._spool.names()
                    if not names:
                        self._spool_thread = None
                        return
                pause = 2.0 if self._send_spooled(names) else 8.0
        with self._lock, contextlib.suppress(RuntimeError):  # no new threads at shutdown: the next client sends the reports
            if now:
                threading.Thread(target=self._send_spooled, args=(self._spool.names(),), name="flightd-spool").start()
            if self._spool_thread is None or not self._spool_thread.is_alive():
                self._spool_thread = threading.Thread(target=rounds, name="flightd-spool", daemon=True)
                self._spool_thread.start()

    def _send_spooled(self, names: List[str]) -> bool:
        """Sends spooled reports. Returns False if no server accepts reports now. A report that a server cannot accept now
        does not delay the others."""
        reachable = True
        for name in names:
            entry = self._spool.claim(name)
            if entry is None:
                continue
            if entry["deployment"] != self._deployment:
                self._spool.release(name)  # a client of that deployment sends it
                continue
            report = base64.b64decode(entry["report"])
            try:
                # The bytes are sent unchanged: decoding and encoding them again could change the receipt.
                self._ask("POST", f"/v1/flights/{_flight_id_for_key(entry['key'])}/report", report, timeout=5.0, tries=1)
            except Exception as e:
                result = _report_result_of(e)
                if result == "rejected":
                    self._spool.quarantine(name, e)
                    continue
                if result != "accepted":
                    self._spool.release(name)
                    if getattr(e, "code", "") == "unreachable":
                        return False
                    reachable = False
                    continue
            _log.info("flightd: a spooled outcome is recorded: %s", entry["key"])
            self._spool.remove(name)
        return reachable


def _report_result_of(e: BaseException) -> str:
    """Returns the fate of a report: "accepted", as the outcome or as evidence; "later"; or "rejected" for good. The report
    route rejects with few codes, and names the flight."""
    if not isinstance(e, Error) or not e.flight_id:
        return "later"
    return "accepted" if isinstance(e, Fenced) else "rejected" if e.code in _REPORT_REJECTED_CODES else "later"


def _flight_id_for_key(key: str) -> str:
    """Returns the flight id of a key. It is a hash of the key, so it is the same everywhere."""
    digest = hashlib.sha256(key.encode("utf-8", "replace")).digest()[:16]
    return "fl_" + base64.b32encode(digest).decode().rstrip("=").lower()


def _addresses(listed: str) -> List[urllib.parse.SplitResult]:
    servers = []
    for part in listed.replace(",", " ").split():
        try:
            url = urllib.parse.urlsplit(part if "://" in part else "http://" + part)
            good = url.scheme in ("http", "https") and url.hostname and url.port != 0 and not (url.query or url.fragment)
        except ValueError:  # invalid port or IPv6 address
            good = False
        if not good:
            part = re.sub("[^/]*@", "", part)  # a password is not shown
            raise ValueError(f"invalid server address {part!r}: use the form {DEFAULT_SERVER}")
        servers.append(url)
    if not servers:
        raise ValueError("no server address given")
    return servers


def _token_source(token: str, path: str) -> Callable[[], str]:
    """Returns the function that returns the token for the next request, or "". No dump of a client shows the token."""
    name, file_name = "token", "token_file"
    if not token and not path:
        token, name = os.environ.get("FLIGHTD_TOKEN", "").rstrip("\r\n"), "FLIGHTD_TOKEN"
        path, file_name = os.environ.get("FLIGHTD_TOKEN_FILE", ""), "FLIGHTD_TOKEN_FILE"
    if not token and path:
        return _TokenFile(path, file_name).current
    _check_token(token, name)
    return lambda: token


def _token_namespace(token: str) -> str:
    """The namespace at the end of a token; "" for a token of all namespaces."""
    return token.partition(".")[2] if token.startswith("fltd_") else ""


def _check_token(token: str, name: str) -> None:
    if token.lower().startswith("bearer "):
        raise ValueError(f'{name} begins with "Bearer ": leave that word out')
    if re.search("[^!-~]", token):
        raise ValueError(f"{name} has a space, a control character or one outside ASCII (it is not shown here)")


def _check_plain_http(addresses: List[urllib.parse.SplitResult]) -> None:
    """Rejects a server to which a token would travel in clear text, unless the environment allows it."""
    if os.environ.get("FLIGHTD_ALLOW_PLAIN_HTTP", "").lower() in ("true", "t", "1"):
        return
    for url in addresses:
        if url.scheme == "http" and not _is_loopback(url.hostname or ""):
            raise ValueError(f"the token would travel in clear text to http://{url.netloc.rpartition('@')[2]}; write https://, or set "
                             "FLIGHTD_ALLOW_PLAIN_HTTP=true if you trust the whole network on the way")


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name
        return False


class _TokenFile:
    """A token in a file that may be replaced at any time. While the file cannot be read, or has no valid token, the last
    one stays."""

    def __init__(self, path: str, name: str) -> None:
        self._path, self._name, self._trouble = path, name, ""
        self._token, self._read_at = self._read(), time.monotonic()

    def current(self) -> str:
        if time.monotonic() - self._read_at >= _TOKEN_FILE_INTERVAL:
            self._read_at = time.monotonic()
            try:
                self._token, self._trouble = self._read(), ""
            except ValueError as e:
                if str(e) != self._trouble:
                    self._trouble = str(e)
                    _log.error("flightd: the token file cannot be used; the previous token stays in use: %s", e)
        return self._token

    def _read(self) -> str:
        try:
            with open(self._path, "rb") as f:
                token = f.read().decode("latin-1").rstrip("\r\n")
        except OSError as e:
            raise ValueError(f"{self._name} cannot be read: {self._path}: {e.strerror}") from e
        if not token:
            raise ValueError(f"the token file {self._path} is empty")
        _check_token(token, f"the token file {self._path}")
        return token


def _tls_context(ca_file: str, client_cert: Optional[Tuple[str, str]]) -> ssl.SSLContext:
    """Returns the context for https servers, from the arguments or else from the environment."""
    name = "ca_file"
    if not ca_file:
        ca_file, name = os.environ.get("FLIGHTD_CA_FILE", ""), "FLIGHTD_CA_FILE"
    try:
        context = ssl.create_default_context(cafile=ca_file or None)
    except OSError as e:  # an ssl.SSLError is one
        raise ValueError(f"{name} cannot be used: {ca_file}: {e}") from e
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    cert, key = client_cert or (os.environ.get("FLIGHTD_CLIENT_CERT", ""), os.environ.get("FLIGHTD_CLIENT_KEY", ""))
    if bool(cert) != bool(key):
        raise ValueError("a client certificate needs two files: the certificate and its key")
    if cert:
        try:
            context.load_cert_chain(cert, key, password="")  # without a password, OpenSSL would ask the terminal for one
        except OSError as e:
            raise ValueError(f"the client certificate {cert} with the key {key} cannot be used: {e}") from e
    return context


_CERTIFICATE_ITSELF = (10, 62, 63, 64)  # OpenSSL's codes for: expired, of another host, mail address or IP address


def _untrusted_text(address: str, e: ssl.SSLCertVerificationError) -> str:
    text = f"the certificate of {address} is not trusted: {e.verify_message}"
    if e.verify_code not in _CERTIFICATE_ITSELF:
        text += " (set FLIGHTD_CA_FILE to the PEM file of the authority that issued it)"
    return text


_CERTIFICATE_ALERT = re.compile("alert.*(certificate|handshake.failure|unknown.ca|access.denied)", re.IGNORECASE)


class _Rejected(Exception):
    """The client rejected the server's certificate, or the server the client's. Nothing was carried out."""


def _explain_tls(address: str, e: OSError) -> str:
    """Returns the text of a _Rejected for an error on a new connection, or "".

    In TLS 1.3 the client's handshake ends before the server has read the client's certificate. The server's alert then
    arrives after the request was written, and the server has discarded that request."""
    if isinstance(e, ssl.SSLCertVerificationError):
        return _untrusted_text(address, e)
    if isinstance(e, ssl.SSLError) and _CERTIFICATE_ALERT.search(str(e)):
        return (f"{address} rejected the TLS connection: {e} (if it demands a client certificate, set FLIGHTD_CLIENT_CERT and "
                "FLIGHTD_CLIENT_KEY to the PEM files of one that it accepts)")
    return ""


def _is_reusable(connection: http.client.HTTPConnection) -> bool:
    """Reports whether an idle connection can carry another request. Readable data means that the server closed it, or
    that it holds a late answer, which would be read as the answer to the next request."""
    try:
        if not hasattr(select, "poll"):
            return not select.select([connection.sock], [], [], 0)[0]
        poll = select.poll()
        poll.register(cast(socket.socket, connection.sock), select.POLLIN)
        return not poll.poll(0)
    except (OSError, TypeError, ValueError):
        return False


class _DeadlineReader(io.RawIOBase):
    """Reads from a socket until a deadline. The socket's own time-out bounds each read, so a server that sends a byte now
    and then could hold the caller without limit."""

    def __init__(self, sock: socket.socket, until: float) -> None:
        self._sock, self._pieces, self._until = sock, sock.makefile("rb", buffering=0), until

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> Optional[int]:
        self._sock.settimeout(_remaining(self._until))
        return self._pieces.readinto(buffer)

    def close(self) -> None:
        self._pieces.close()
        super().close()


def _remaining(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise socket.timeout("the request timed out")
    return left


def _try_order(preferred: int, nodes: Sequence[str], leader: str, probe: int) -> List[int]:
    """Returns the servers in the order in which a request tries them: the one to probe (-1: none), the one that is the
    leader, the others whose last answer named their node, and the rest; in each group in turn from the preferred one on.
    nodes has the node of each server, "" if it is not known."""
    def rank(server: int) -> int:
        node = nodes[server]
        return 0 if server == probe else 3 if not node else 1 if node == leader else 2
    return sorted(((preferred + i) % len(nodes) for i in range(len(nodes))), key=rank)


class _Picker:
    """Remembers which node answers at which server's address, so that requests go to the leader of the ledger.

    Any node takes every request, but passes most of them on to the leader. If no known server is the leader, one request a
    second tries another server first: a probe."""

    def __init__(self, servers: int) -> None:
        self._lock = threading.Lock()  # guards all fields
        self._nodes = [""] * servers  # by server: the node that its last answer named; "" after a failure
        self._leader = ""  # named by the newest answer; "": none has named it
        self._preferred = 0  # the server to try first while the leader is not known
        self._last_probe, self._probe_after, self._probe_pause = 0, 0.0, _MIN_PROBE_PAUSE

    def reset_after_fork(self) -> None:
        self._lock = threading.Lock()

    def pick(self, may_probe: bool) -> Tuple[List[int], int]:
        """Returns the order in which a request tries the servers, and the first of them if it is a probe, else -1. A probe
        counts as in flight until answered or failed is called for its server."""
        with self._lock:
            probe, now, n = -1, time.monotonic(), len(self._nodes)
            if may_probe and self._leader and self._leader not in self._nodes and now >= self._probe_after:
                turn = ((self._last_probe + 1 + i) % n for i in range(n))
                probe = next((s for s in turn if not self._nodes[s] and s != self._preferred), -1)
            if probe >= 0:
                self._last_probe, self._probe_after = probe, now + _MAX_PROBE_PAUSE
            return _try_order(self._preferred, self._nodes, self._leader, probe), probe

    def answered(self, server: int, probe: int, node: str, leader: str) -> None:
        """Notes that flightd has answered at that server."""
        with self._lock:
            self._nodes[server] = node
            self._leader = leader or self._leader
            if node and node == leader:
                self._preferred = server
            if server == probe:
                self._probe_pause, self._probe_after = _MIN_PROBE_PAUSE, time.monotonic() + _MIN_PROBE_PAUSE

    def failed(self, server: int, probe: int) -> None:
        """Notes that a try at that server had no answer of a node that can serve requests."""
        with self._lock:
            self._nodes[server] = ""
            if self._preferred == server:
                self._preferred = (server + 1) % len(self._nodes)
            after = time.monotonic() + self._probe_pause  # the failed server may be the leader: it is not probed at once
            if server == probe:
                self._probe_pause, self._probe_after = min(2 * self._probe_pause, _MAX_PROBE_PAUSE), after
            else:
                self._probe_after = max(self._probe_after, after)


class _Server:
    """Connections to one server. Proxy settings of the environment are ignored."""

    def __init__(self, url: urllib.parse.SplitResult, context: Optional[ssl.SSLContext]) -> None:
        self._url, self._context, self._lock, self._closed = url, context, threading.Lock(), False
        self.address = f"{url.scheme}://{url.netloc.rpartition('@')[2]}{url.path.rstrip('/')}"
        self.basic = ""  # the header for the user in the address
        if url.username is not None:
            user = f"{urllib.parse.unquote(url.username)}:{urllib.parse.unquote(url.password or '')}"
            self.basic = "Basic " + base64.b64encode(user.encode()).decode()
        self._idle: List[Tuple[http.client.HTTPConnection, float]] = []

    def exchange(self, method: str, path: str, body: Optional[bytes], headers: Dict[str, str], timeout: float,
                 once: bool) -> Tuple[int, http.client.HTTPMessage, bytes, _Instant, bool, bool]:
        """Sends one request and reads the whole answer: its status, headers and body, when it was sent, and whether it repeats
        the request's Flightd-Echo. A proxy may give the answer to another request, and other software does not know the
        header. The server may have closed an idle connection; the request is then sent again on a new connection, unless it
        must be sent once. The last result says whether that happened: the first send may have been executed, too."""
        connection, resent = self._take_idle(), False
        if connection is not None:
            try:
                return (*self._send(connection, method, path, body, headers, timeout), False)
            except (OSError, http.client.HTTPException) as e:
                self.close_idle()  # the server has probably closed the other idle connections, too
                if once or isinstance(e, socket.timeout):
                    raise
                resent = True
        host, port, time_out = self._url.hostname or "", self._url.port, min(timeout, 3.0)
        if self._url.scheme == "https":
            connection = http.client.HTTPSConnection(host, port, timeout=time_out, context=self._context)
        else:
            connection = http.client.HTTPConnection(host, port, timeout=time_out)
        try:
            return (*self._send(connection, method, path, body, headers, timeout), resent)
        except (ConnectionRefusedError, socket.gaierror, ssl.SSLError) as e:
            if resent:  # no server now does not prove that the first send did not arrive
                raise ConnectionError(f"the connection was lost, and then: {e}") from e
            rejected = _explain_tls(self.address, e)
            if rejected:
                raise _Rejected(rejected) from e
            raise

    def _send(self, connection: http.client.HTTPConnection, method: str, path: str, body: Optional[bytes],
              headers: Dict[str, str], timeout: float) -> Tuple[int, http.client.HTTPMessage, bytes, _Instant, bool]:
        until, echo = time.monotonic() + timeout, secrets.token_urlsafe(16)
        try:
            if connection.sock is None:
                connection.connect()
            cast(socket.socket, connection.sock).settimeout(_remaining(until))
            connection.response_class = lambda sock, *args, **more: http.client.HTTPResponse(  # type: ignore
                cast(Any, _DeadlineReader(sock, until)), *args, **more)
            sent_at = _now()
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the server may reject before it has read all
                connection.request(method, self._url.path.rstrip("/") + path, body, {**headers, "Flightd-Echo": echo})
            answer = connection.getresponse()
            if answer.status < 200:  # the final answer follows, and would be read as the answer to the next request
                raise http.client.HTTPException(f"answer {answer.status}")
            data = answer.read()
        except BaseException:
            connection.close()
            raise
        with self._lock:
            if answer.will_close or self._closed:
                connection.close()
            else:
                self._idle.append((connection, time.monotonic()))
        return answer.status, answer.headers, data, sent_at, answer.headers.get_all("Flightd-Echo") == [echo]

    def _take_idle(self) -> Optional[http.client.HTTPConnection]:
        with self._lock:
            while self._idle:
                connection, since = self._idle.pop()
                if time.monotonic() - since < _IDLE_TIMEOUT and _is_reusable(connection):
                    return connection
                connection.close()
        return None

    def reset_after_fork(self) -> None:
        self._lock = threading.Lock()
        self.close_idle()

    def close(self) -> None:
        self._closed = True
        self.close_idle()

    def close_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection, _ in idle:
            connection.close()


# --- the spool of reports --------------------------------------------------------------------------------------------


def _default_spool() -> str:
    state = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):
        state = os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(state, "flightd", "reports")


class _Spool:
    """Stores reports that no server has accepted: one file each, readable by its owner alone, fsynced. A report is the
    only record of an effect that happened, so it must survive the process.

    A file has the magic, the CRC-32C of the rest in four bytes, and JSON: deployment, key, at, and the body of the
    request in base64. All flightd clients share folder and format. If two clients send a report, it is recorded once.
    """

    MAGIC, SUFFIX = b"FDC1", ".report"

    def __init__(self, folder: str) -> None:
        self.folder = os.path.abspath(folder) if folder else ""  # stays the same if the process changes its directory
        self._lock = threading.Lock()  # guards _claimed
        self._claimed: Set[str] = set()
        self._reported_unreadable: Set[str] = set()  # files whose read error was logged
        self._unspooled: Dict[str, Dict[str, str]] = {}  # reports that could not be written to disk
        self._remove_old_temps()

    def _remove_old_temps(self) -> None:
        """Removes half-written files of processes that were killed."""
        with contextlib.suppress(OSError):
            for name in os.listdir(self.folder) if self.folder else []:
                path = os.path.join(self.folder, name)
                with contextlib.suppress(OSError):
                    if name.startswith("new-") and time.time() - os.lstat(path).st_mtime > _MAX_TEMP_AGE:
                        os.remove(path)

    def reset_after_fork(self) -> None:
        self._lock, self._claimed = threading.Lock(), set()

    def names(self) -> List[str]:
        return self.unspooled_names() + self.on_disk()

    def unspooled_names(self) -> List[str]:
        return list(self._unspooled)

    def on_disk(self) -> List[str]:
        try:
            return sorted(n for n in os.listdir(self.folder) if n.endswith(self.SUFFIX)) if self.folder else []
        except OSError:
            return []

    def name_of(self, deployment: str, key: str, report: bytes) -> str:
        return hashlib.sha256(f"{deployment} {key} ".encode() + report).hexdigest()[:32] + self.SUFFIX

    def has(self, name: str) -> bool:
        return name in self._unspooled or bool(name) and os.path.exists(os.path.join(self.folder, name))

    def store(self, deployment: str, key: str, report: bytes) -> str:
        """Writes a report to disk; after that it survives the process. If the disk fails, the report lives as long as the
        process. An interrupt of the program is raised after the write."""
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        entry = {"deployment": deployment, "key": key, "at": at, "report": base64.b64encode(report).decode()}
        data = json.dumps(entry).encode()
        name = self.name_of(deployment, key, report)
        with self._lock:
            self._claimed.add(name)
        self._unspooled[name] = entry  # until it is on disk
        try:
            if self.folder:
                self._write_despite_interrupts(name, key, data)
        except BaseException:
            self.release(name)
            raise
        return name

    def _write_despite_interrupts(self, name: str, key: str, data: bytes) -> None:
        interrupt: Optional[BaseException] = None
        for _ in range(_SPOOL_TRIES):
            try:
                self._write(name, data)
                self._unspooled.pop(name, None)
                break
            except Exception as e:
                _log.error("flightd: store the report of %s on disk: %s", key, e)
                break
            except BaseException as e:
                interrupt = e
        if interrupt is not None:
            raise interrupt

    def _write(self, name: str, data: bytes) -> None:
        """Writes a file atomically. After a crash the file exists completely or not at all."""
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        handle, temp = tempfile.mkstemp(prefix="new-", dir=self.folder)  # with mode 0600
        try:
            with os.fdopen(handle, "wb") as f:
                f.write(self.MAGIC + struct.pack(">I", _crc32c(data)) + data)
                f.flush()
                _sync(f.fileno())
            os.replace(temp, os.path.join(self.folder, name))
        except BaseException:
            with contextlib.suppress(OSError):
                os.remove(temp)
            raise
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            _sync(folder)  # makes the file's name durable
        finally:
            os.close(folder)

    def claim(self, name: str) -> Optional[Dict[str, str]]:
        """Reads a report, unless another thread has claimed it. A damaged file is quarantined; a file that cannot be
        read now, or not completely by this version, stays under its name."""
        with self._lock:
            if name in self._claimed:
                return None
            self._claimed.add(name)
        if name in self._unspooled:
            return self._unspooled[name]
        try:
            with open(os.path.join(self.folder, name), "rb") as f:
                data = f.read()
            if data[:3] == self.MAGIC[:3] and self.MAGIC[3:] < data[3:4] <= b"9":
                raise _LaterReport()
            if data[:4] != self.MAGIC or data[4:8] != struct.pack(">I", _crc32c(data[8:])):
                raise ValueError("checksum mismatch")
            return _read_spooled(data[8:])
        except FileNotFoundError:  # another process has sent it
            self.release(name)
        except OSError as e:
            if name not in self._reported_unreadable:
                self._reported_unreadable.add(name)
                _log.error("flightd: a spooled report cannot be read now, and stays in its place: %s: %s",
                           os.path.join(self.folder, name), e)
            self.release(name)
        except ValueError as e:
            self._quarantine_file(name, ".damaged", e)
        return None

    def release(self, name: str) -> None:
        with self._lock:
            self._claimed.discard(name)

    def remove(self, name: str) -> None:
        """Removes an accepted report. If the process dies first, the report is sent again, which is harmless."""
        if self._unspooled.pop(name, None) is None:
            with contextlib.suppress(OSError):
                os.remove(os.path.join(self.folder, name))
        self.release(name)

    def describe_place(self, name: str) -> str:
        """Says where a report waits."""
        if name in self._unspooled:
            return "its report is not on disk, and is lost with this process"
        return f"its report waits in {self.folder} and is sent later"

    def quarantine(self, name: str, why: Exception) -> str:
        """Stores a report that no server will ever accept, for a person to inspect. Returns its place."""
        lost = self._unspooled.pop(name, None)
        if lost is None:
            return self._quarantine_file(name, ".rejected", why)
        _log.error("flightd: a report was rejected, and is not on disk: %s: %s", lost["key"], why)
        self.release(name)
        return "it was rejected, and is not on disk"

    def _quarantine_file(self, name: str, suffix: str, why: Exception) -> str:
        path = os.path.join(self.folder, name)
        with contextlib.suppress(OSError):
            os.replace(path, path + suffix)
        _log.error("flightd: a report is quarantined; inspect it: %s: %s", path + suffix, why)
        self.release(name)
        return path + suffix


class _LaterReport(OSError):
    """A spooled report that is intact, and of a version whose reports this one cannot read completely."""

    def __str__(self) -> str:
        return "a later version of flightd has written it, and delivers it"


def _read_spooled(data: bytes) -> Dict[str, str]:
    """Reads an intact report. It raises _LaterReport for one of another form, of which a part could be lost."""
    try:
        entry = json.loads(data)
        if not set(entry) <= {"deployment", "key", "at", "report"} or not all(isinstance(v, str) for v in entry.values()):
            raise _LaterReport()
        json.loads(base64.b64decode(entry["report"], validate=True))
        if "deployment" not in entry or not re.fullmatch("[^/]+/[^/]+/.+", entry["key"]):
            raise _LaterReport()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
        raise _LaterReport() from e
    return {k: entry[k] for k in ("deployment", "key", "report")}


def _sync(fd: int) -> None:
    """Waits until the data is on the disk itself. On macOS, fsync alone leaves it in the disk's cache."""
    full = getattr(_fcntl, "F_FULLFSYNC", None)
    if full is not None:
        with contextlib.suppress(OSError):  # not supported by every file system
            _fcntl.fcntl(fd, full)
            return
    os.fsync(fd)


def _crc32c(data: bytes) -> int:
    """Returns the CRC-32C (Castagnoli) of the data; zlib has only CRC-32."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def _crc_row(n: int) -> int:
    for _ in range(8):
        n = (n >> 1) ^ (0x82F63B78 if n & 1 else 0)
    return n


_CRC = [_crc_row(n) for n in range(256)]


# --- workers ---------------------------------------------------------------------------------------------------------


class Submitted(NamedTuple):
    """The answer to a submission."""

    status: str  #: queued, or duplicate: the key had a flight with the same input before
    key: str
    warning: str  #: for people


class Handler:
    """A function that performs the jobs of an action; ``Client.worker`` makes it."""

    def __init__(self, client: Client, name: str, act: Callable[..., Any], look_up: Optional[Callable[[Flight], Any]],
                 policy: Dict[str, Any]) -> None:
        self.client, self.name, self.act, self.look_up, self.policy = client, name, act, look_up, policy
        self.declared = ""  # what the server has answered to the policy; "": it was not asked
        self.differs: Optional[PolicyDiffers] = None  # from the action's document
        functools.update_wrapper(self, act)
        hints = [h for n, h in _type_hints(act).items() if n != "return" and h is not Flight]
        self._type = next((h for h in hints if dataclasses.is_dataclass(h)), None)

    def __call__(self, *args: Any, **more: Any) -> Any:
        return self.act(*args, **more)

    def submit(self, id: str, input: Any = None, **options: Any) -> Submitted:
        return self.client.submit(self.name, id, input, **options)

    def wait(self, id: str, timeout: Optional[float] = None) -> Any:
        return self.client.wait(self.name, id, timeout)

    def perform(self, job: Flight) -> None:
        with job as f:
            if f._unread:  # its retries bound how often it is tried
                raise NotDone(f"this client cannot read the job: {f._unread}")
            if not f.replayed:
                try:
                    value = self._read(f.input)
                except Exception as e:  # also one of the dataclass itself
                    raise NotDone(f"the input is not a {getattr(self._type, '__name__', '')}: {e}") from e
            with f.effect():
                _take_result(f, self.act(f, value))

    def _read(self, input: Any) -> Any:
        if self._type is None:
            return input
        if not isinstance(input, dict):
            raise TypeError("it is not an object")
        hints = _type_hints(self._type)
        value = self._type(**{name: _read_text(hints.get(name), part) for name, part in input.items()})
        for name, kind in hints.items():
            own = getattr(value, name, None)
            if kind in (str, int, float, bool, list, dict) and not isinstance(own, (int, float) if kind is float else kind):
                raise TypeError(f"{name} is not {kind.__name__}: {own!r}")
        return value


def _read_text(kind: Any, part: Any) -> Any:
    """Returns the field of a dataclass that _json_form has written as text, or as the value of an enum."""
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind(part)
    if kind in (datetime.datetime, datetime.date) and isinstance(part, str):
        return kind.fromisoformat(re.sub("Z$", "+00:00", part))
    return kind(part) if kind in (uuid.UUID, decimal.Decimal) and isinstance(part, str) else part


def _type_hints(of: Any) -> Dict[str, Any]:
    try:
        return get_type_hints(of)
    except (NameError, TypeError):  # an annotation that is not defined at run time
        return {}


_POLICY_FIELDS = {"recovery": "recovery", "window": "provider_window_ms", "settle": "settle_ms", "timeout": "attempt_timeout_ms",
                  "retention": "retention"}


def _policy_of(options: Dict[str, Any]) -> Dict[str, Any]:
    """Returns the fields of a submission for the policy among the options."""
    request: Dict[str, Any] = {}
    for option, name in _POLICY_FIELDS.items():
        if options.get(option) is not None:
            request[name] = _ms(option, options[option]) if name.endswith("_ms") else options[option]
    if options.get("retry") is not None:
        request["retry"] = {"attempts": _whole("retry", options["retry"])}
    return request


def _unread(job: Dict[str, Any]) -> str:
    """Returns why this client cannot read the content of a job, or "". The client may be older than the server."""
    policy, body = job.get("policy"), job.get("input_base64", "")
    if not isinstance(policy, dict) or policy.get("recovery") not in (None, "hold", "resend", "verify"):
        return "policy: it has none, or one of another kind"
    times = {"age_ms": job.get("age_ms"), **{f"policy/{name}": policy.get(name) for name in _POLICY_FIELDS.values() if name.endswith("_ms")}}
    for name, ms in times.items():
        if ms is not None and not (type(ms) is int and 0 <= ms <= _MAX_POLICY_MS):
            return f"{name}: {ms!r} is not a duration of at most 366 days"
    if not isinstance(body, str) or len(body) % 4 or not re.fullmatch("[A-Za-z0-9+/]*={0,2}", body):
        return "input_base64: it is not base64"
    return "" if isinstance(job.get("input_content_type", ""), str) else "input_content_type: it is not a text"


def _seconds(duration: Union[float, int, str]) -> float:
    """Returns a duration in seconds: a number, or a text such as "90s", "10m", "24h" or "7d". _ms has the texts of its errors."""
    if not isinstance(duration, str):
        return float(duration)
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)", duration)
    if not match:
        raise ValueError
    return float(match[1]) * {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}[match[2]]


class _Worker:
    """Claims jobs and performs them, under the session of its client."""

    def __init__(self, client: Client, concurrency: int) -> None:
        self._client, self._concurrency = client, concurrency
        self._stop = client._stop_worker = threading.Event()  # of this run: an old claim may still wait for its answer
        if client._closed.is_set():
            self._stop.set()
        self._freed = threading.Event()  # a job has ended
        self._lock = threading.Lock()
        self._running: Dict[threading.Thread, Flight] = {}  # _lock guards what is added, so that each has been started
        self._claim: Optional[_Claim] = None  # the newest
        self._refused: Optional[Error] = None  # why no job may be claimed

    def run(self, drain: float) -> None:
        previous: Dict[int, Any] = {}

        def interrupt(*_: Any) -> None:
            raise KeyboardInterrupt
        if threading.current_thread() is threading.main_thread():
            previous = {s: signal.signal(s, interrupt) for s in (signal.SIGINT, signal.SIGTERM)}
        try:
            threading.Thread(target=self._claim_loop, name="flightd-claim", daemon=True).start()
            with contextlib.suppress(KeyboardInterrupt):
                self._stop.wait()
            self._stop.set()
            if self._claim is not None:  # its answer is not awaited: the jobs that it brings are given back
                cast(_Session, self._claim.session).end_claim(self._claim, [], lost=True)
            until = time.monotonic() + drain
            with self._lock:
                running = list(self._running)
            for thread in running:
                thread.join(max(0.0, until - time.monotonic()))
            for job in list(self._running.values()):
                job.cancel_requested = True
                _log.warning("flightd: %s still runs after %s s; its session ends by its time to live", job.key, drain)
            if self._claim is not None:
                cast(_Session, self._claim.session).close()  # so that no late copy of a claim opens anything
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
        if self._refused is not None:
            raise self._refused

    def _claim_loop(self) -> None:
        pause, claimed_before = _MIN_CLAIM_PAUSE, False
        while not self._stop.is_set():
            self._freed.clear()
            slots = min(self._concurrency - len(self._running), _MAX_SLOTS)
            if slots <= 0:
                self._freed.wait()
                continue
            try:
                for handler in list(self._client._handlers.values()):
                    self._client._declare(handler)
                    self._refused = self._refused or handler.differs
                if self._refused is not None:
                    self._stop.set()
                    return
                asked = time.monotonic()
                jobs = [job for job in self._ask_for_jobs(slots) if not self._leave_unable(job)]
                claimed_before = True
                if jobs or time.monotonic() - asked > _CLAIM_WAIT / 2:
                    pause = _MIN_CLAIM_PAUSE
                else:  # a server without room for a wait has answered at once
                    pause = min(pause, 1.0)
                    self._stop.wait(pause * random.uniform(0.5, 1.5))
                    pause *= 2
            except Exception as e:
                if not claimed_before and isinstance(e, Error) and e.code in ("forbidden", "unauthenticated", "input_invalid"):
                    self._refused = e  # a person must act
                    self._stop.set()
                    return
                if not self._stop.is_set():
                    _log.warning("flightd: no jobs could be claimed; trying again: %s", e)
                self._stop.wait(pause * random.uniform(0.5, 1.5))
                pause = min(2 * pause, 10.0)
                continue
            for job in jobs:
                thread = threading.Thread(target=self._perform, args=(job,), name=f"flightd-job-{job.key}", daemon=True)
                try:
                    with self._lock:
                        self._running[thread] = job
                        thread.start()
                except RuntimeError as e:  # no more threads can be started
                    self._running.pop(thread)
                    _log.error("flightd: %s is given back: %s", job.key, e)
                    job._abandon_unused(_CLOSE_TIMEOUT)
                    self._stop.wait(1.0)

    def _leave_unable(self, job: Flight) -> bool:
        """Gives back a job that has to be looked up since the server took it, if this worker has no look-up for it, and returns
        whether it did."""
        if job._job is None or job._job[0]["decision"] != "verify" or job._look_up is not None:
            return False
        _log.warning("flightd: %s is left to another worker: the outcome of its effect is unknown, and this worker has no look_up",
                     job.key)
        job._abandon_unused()
        return True

    def _ask_for_jobs(self, slots: int) -> List[Flight]:
        """Asks for jobs once. What a claim without an answer has opened is abandoned when a renewal lists it."""
        client = self._client
        client._connect("")
        actions = list(client._handlers)
        wait = int(1000 * _CLAIM_WAIT)
        claim = _Claim(client._ledger_ms(), wait + client._open_margin_ms)
        client._choose_session(claim)
        session = claim.session
        if session is None:
            raise Unavailable("no session could be made")
        request = {"session": session.id, "nonce": claim.text, "not_after": claim.not_after, "actions": actions,
                   "without_look_up": [name for name in actions if client._handlers[name].look_up is None],
                   "slots": slots, "wait_ms": wait, "owner": client._owner()}
        self._claim = claim
        if self._stop.is_set():  # run() may have ended an older claim, and then left the session open for this one
            session.end_claim(claim, [])
            session.close()
            return []
        try:
            answer, sent_at = client._ask("POST", "/v1/flights:claim", request, timeout=_CLAIM_WAIT + _TRY_TIMEOUT)
            client._adapt_open_margin(expired=False)
            return self._take(claim, answer, sent_at)
        except BaseException as e:
            session.end_claim(claim, [], lost=True)
            client._adapt_open_margin(expired=getattr(e, "code", "") == "open_expired")
            if isinstance(e, LeaseLost):
                session.mark_lost()
            raise

    def _take(self, claim: _Claim, answer: Dict[str, Any], sent_at: _Instant) -> List[Flight]:
        """Returns the jobs of an answer. One that this process cannot perform is abandoned when a renewal lists it."""
        jobs, session = [], cast(_Session, claim.session)
        for given in answer["jobs"]:
            try:
                job = self._job_of(claim, given, answer, sent_at)
            except Exception as e:  # the other jobs are performed
                _log.error("flightd: a job cannot be read by this client, and is given back: %s: %r", given.get("key") if isinstance(given, dict) else "", e)
                continue
            if job is not None:
                jobs.append(job)
        if session.end_claim(claim, jobs):
            return jobs
        for job in jobs:  # it was given up, and this answer is late
            job._nonce.state = "given up"
            self._client._abandon_in_background(job._nonce)
        return []

    def _job_of(self, claim: _Claim, given: Dict[str, Any], answer: Dict[str, Any], sent_at: _Instant) -> Optional[Flight]:
        if given.get("flight_id") != _flight_id_for_key(given.get("key", "")) or given.get("decision") not in ("proceed", "verify"):
            _log.error("flightd: a job is given back: this client cannot read it: %s", given.get("key"))
            return None
        unread = _unread(given)
        if unread and given["decision"] != "proceed":
            _log.error("flightd: a job is given back: this client cannot read it: %s: %s", given["key"], unread)
            return None
        if unread:
            given = {k: given[k] for k in ("decision", "flight_id", "key", "session", "fencing_token", "action", "attempt") if k in given}
        job = self._client._new_job(claim, given["key"], given.get("policy") or {}, given.get("action") or "")
        job._unread = unread
        since = ((answer.get("served_ms") or 0) - (given.get("age_ms") or 0)) / 1000  # the attempt's time-out runs from then
        job._nonce.made_at = _Instant(*(at + since for at in sent_at))
        job._nonce.attempt, job._job = given.get("attempt") or 0, (given, sent_at)
        return job

    def _perform(self, job: Flight) -> None:
        """Runs in a thread of the job."""
        handler = self._client._handlers[job._action]
        try:
            if self._stop.is_set():
                job._abandon_unused(_CLOSE_TIMEOUT)
            else:
                handler.perform(job)
        except Declined:
            pass
        except Exception as e:
            if not (isinstance(e, InDoubt) and e.__cause__ is job._look_up_error):  # else it is logged
                _log.warning("flightd: %s has not succeeded: %s: %s (%s)", job.key, type(e).__name__, e, e.__cause__)
        finally:
            self._running.pop(threading.current_thread(), None)
            self._freed.set()


# --- the default client ----------------------------------------------------------------------------------------------

_default: Optional[Client] = None
_default_lock = threading.Lock()
_clients: "weakref.WeakSet[Client]" = weakref.WeakSet()


def _reset_after_fork() -> None:
    global _default_lock
    _default_lock = threading.Lock()
    for client in list(_clients):
        client._reset_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)


@atexit.register
def _send_last_requests() -> None:
    for client in list(_clients):
        client._send_last_requests()


def _default_client() -> Client:
    global _default
    with _default_lock:
        if _default is None:
            _default = Client()
        return _default


def once(name: str, id: str, input: Any = None, *, recovery: str = "hold",
         look_up: Optional[Callable[[Flight], Union[Happened, NotHappened, None]]] = None,
         attempt_timeout: Optional[float] = None, settle: Optional[float] = None,
         provider_window: Optional[float] = None, retention: str = "", wait: Optional[float] = 20.0,
         key_decides: bool = False) -> Flight:
    """Calls ``Client.once`` of a client that is configured by the environment and created at the first call."""
    return _default_client().once(
        name, id, input, recovery=recovery, look_up=look_up, attempt_timeout=attempt_timeout, settle=settle,
        provider_window=provider_window, retention=retention, wait=wait, key_decides=key_decides)


def _main() -> None:
    """python -m flightd worker app:client [--concurrency N] [--drain SECONDS]: runs the client of a module as a worker."""
    import argparse
    import importlib
    parser = argparse.ArgumentParser(prog="python -m flightd")
    worker = parser.add_subparsers(required=True).add_parser("worker", help="perform jobs until SIGTERM or Ctrl-C")
    worker.add_argument("client", metavar="MODULE:CLIENT")
    worker.add_argument("--concurrency", type=int, default=16)
    worker.add_argument("--drain", type=float, default=30.0)
    args = parser.parse_args()
    sys.path.insert(0, "")
    module, _, name = args.client.partition(":")
    client = getattr(importlib.import_module(module), name or "client")
    client.run(concurrency=args.concurrency, drain=args.drain)
    client.close()


if __name__ == "__main__":
    _main()
