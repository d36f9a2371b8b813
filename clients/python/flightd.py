"""flightd for Python: a side effect runs once per key, and every duplicate gets its receipt.

One file on the standard library alone (Python 3.9 or later); copy it into your project.

    import flightd

    with flightd.once("charge", order.id, {"cents": 4200}) as f:
        with f.effect():
            f.result = provider.charge(order, idempotency_key=f.idempotency_key)
    print(f.result)      # the same for the caller who ran it and for every duplicate

Where the effect has happened already, ``effect()`` leaves the ``once`` block, and ``f.result`` is the stored receipt:
code that prepares the effect stands above ``effect()``, code that uses its result stands below the ``once`` block.

What an error means is told by where it was raised:

    above effect()                    nothing was sent: ``not_done``, the key is free again
    Refused, anywhere                 the provider's no: it is the receipt, and every repeat gets ``Declined``
    NotDone, anywhere                 it surely did not happen this time: the key is free again
    any other one, once in effect()   it may have happened: ``unknown``, and the recovery policy decides

NotDone raised in one ``effect()`` says nothing of another one of the block, and what a flight inside the block was left
with says nothing of the one around it: then it is any other one, too. After an ``effect()`` of unknown outcome the block
starts no further one, except under ``resend``.

The policy is ``hold`` unless you name another: then nobody acts again before a person has said what happened
(``InDoubt``). ``resend`` suits providers that honour ``f.idempotency_key``; ``verify`` those that can be asked, by
``look_up``.

Each flight has a session of its own, which a thread renews while the block runs and which ends with the report. The
right to start is counted from the moment a request was *sent*: when it is over, ``effect()`` raises ``LeaseLost`` and
nothing starts. An open whose caller gives up is abandoned, so that the ledger knows that nothing was sent. A report that
no server takes is fsynced to ``$XDG_STATE_HOME/flightd/reports``, in the format of all flightd's clients, and delivered by
whichever of them comes next.

Servers come from ``FLIGHTD_ADDR`` (several of one deployment, separated by commas, are tried in turn), the namespace from
``FLIGHTD_NAMESPACE``. All calls block and may come from many threads; from asyncio, use ``asyncio.to_thread``. A fork
of a process in a block neither acts for it nor ends it.
"""

from __future__ import annotations

import base64
import collections
import contextlib
import functools
import hashlib
import http.client
import io
import json
import logging
import os
import random
import re
import secrets
import select
import socket
import struct
import tempfile
import threading
import time
import urllib.parse
import weakref
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Callable, Deque, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple, Type, Union, cast

_fcntl: Any = None
with contextlib.suppress(ImportError):  # not every system has it
    import fcntl as _fcntl

__all__ = [
    "once", "Client", "Flight", "Receipt", "Happened", "NotHappened", "raise_for_status",
    "Error", "Refused", "NotDone", "InDoubt", "Conflict", "Busy", "Unapproved", "Expired", "Fenced", "Failed",
    "Declined", "Unavailable", "Unrecorded", "Unsettled", "LeaseLost", "ReceiptTruncated", "NOT_DONE_STATUSES",
]

_log = logging.getLogger("flightd")

DEFAULT_SERVER = "http://127.0.0.1:7420"
_MAX_RECEIPT = 64 << 10  # bytes of a receipt's body that the ledger keeps
_MAX_TEXT = 1024  # bytes of an error or an external id
_MIN_WAIT = 0.1  # seconds that a request waits at the server at least, where its caller waits
_TRY = 10.0  # seconds that one try may take beside waiting
_FIRST_REPORT = 2.0  # seconds after which a report that is not answered goes to disk
_INSIST = 5  # times that a report is written again where somebody interrupts the program meanwhile
_REPORT_TRY = 15.0  # seconds that one of its later tries may take: the next server may be well
_OPEN_LIFE_MS = 30_000  # of ledger time, after which an open opens nothing any more
_ABANDON_FIRST = 2.0  # for which an abandon is waited for before the key is opened anew
_PURSUIT = 600.0  # seconds for which an abandon is sent again where no server answers
_PURSUED = 1000  # of them at most; where there are more, the oldest attempts are left to the end of their sessions
_LOOK = 30.0  # seconds that a look-up may take where the flight has no time-out
_HUNG = 15.0  # seconds beyond that, after which its session is not renewed any more
_IDLE = 20.0  # seconds after which an idle connection is not used again
_LEFTOVER = 3600.0  # seconds after which a half-written file in the spool is removed
_NAMESPACE = re.compile("[A-Za-z0-9._-]{1,255}")


# --- errors ----------------------------------------------------------------------------------------------------------


class Error(Exception):
    """Whatever flightd says no with. ``code`` is stable and made for programs; ``problem`` is the whole document."""

    code = ""
    _unsure = False  # a request may still be carried out

    def __init__(self, message: str = "", *, code: str = "", problem: Optional[Dict[str, Any]] = None) -> None:
        super().__init__(message)
        self.code = code or type(self).code
        self.problem: Dict[str, Any] = problem or {}
        self.key: str = self.problem.get("key", "")
        self.flight_id: str = self.problem.get("flight_id", "")


class Refused(Error):
    """Raise it when the provider said no: the effect did not happen and never will. It ends the flight."""

    code = "refused"
    _left_at = 0.0  # when it left the block of a flight: to one around that it is an error like any other
    _about = ""  # "one" request that may have changed something, or a "safe" one, which was answered so; "": all that was sent

    def _answers(self, about: str) -> "Refused":
        self._about = about
        return self


class NotDone(Error):
    """Raise it when the effect surely did not happen this time. The key is free again."""

    code = "not_done"
    _left_at = 0.0
    _about = ""

    def _answers(self, about: str) -> "NotDone":
        self._about = about
        return self


class InDoubt(Error):
    """The effect may have happened; nobody may act before a person has said so. ``version`` is what was seen."""

    code = "in_doubt"

    @property
    def version(self) -> str:
        return str(self.problem.get("version", ""))


class Conflict(Error):
    """The key belongs to another input. Nothing was run; a repeat fails alike. ``fields`` are JSON pointers."""

    code = "idempotency_conflict"

    @property
    def fields(self) -> List[str]:
        pointers = [e.get("pointer", "") for e in self.problem.get("errors") or []]
        return [p[len("/input"):] if p.startswith("/input") else p for p in pointers]


class Busy(Error):
    """Somebody else is at it and the wait is over. Asking again is safe."""

    code = "idempotency_in_flight"

    @property
    def retry_after(self) -> float:
        """Seconds after which it is worth asking again."""
        return float(self.problem.get("retry_after_ms", 0)) / 1000


class Unapproved(Error):
    """A person must approve the flight first."""

    code = "approval_pending"


class Expired(Error):
    """It was carried out before, and its receipt is no longer kept. It is not run again."""

    code = "expired"


class Fenced(Error):
    """This attempt's right is over: a newer one or a decision took its place. Its report is kept as evidence."""

    code = "fenced"


class LeaseLost(Error):
    """The right to start the effect is over: it must not start."""

    code = "lease_lost"


class Failed(Error):
    """The flight ended without a receipt: cancelled, or its retries are spent. A person may let it run again."""

    code = "flight_failed"


class Declined(Error):
    """The flight is over and the provider's answer was no. Every repeat gets the same ``receipt``."""

    code = "flight_failed"
    receipt: "Receipt"


class ReceiptTruncated(Error):
    """It happened, and its result is not stored as a whole: ``receipt.value`` is its beginning, as bytes or text, or None after a
    redaction. ``receipt`` has the size and the digest of the whole, and the external id."""

    code = "receipt_truncated"
    receipt: "Receipt"


class Unavailable(Error):
    """flightd cannot decide now. No effect was started; asking again is safe."""

    code = "unreachable"


class Unrecorded(Error):
    """The block has ended as ``outcome`` says, and no server has taken that yet: the report waits on disk, or its text says
    where. ``result`` is what you set."""

    code = "unrecorded"
    outcome: str = ""
    result: Any = None


class Unsettled(Error):
    """The attempt ended without ending the flight; calling again opens the next one. ``outcome`` is how it ended."""

    code = "unsettled"
    outcome: str = ""


_BY_CODE: Dict[str, Type[Error]] = {
    c.code: c for c in (InDoubt, Conflict, Busy, Unapproved, Expired, Fenced, LeaseLost, Failed)
}
_BY_CODE.update({c: Unavailable for c in (
    "unreachable", "no_leader", "lease_unavailable", "draining", "report_pending", "rate_limited", "too_many_open",
    "open_expired")})


class _Skip(BaseException):
    """Leaves the block of a flight that is over. Not an Exception, so that no handler of the caller takes it."""

    def __init__(self, flight: "Flight") -> None:
        self.flight = flight


# Refusals that are not about what was asked, but about the server that was: another one may answer.
_ANOTHER_SERVER = ("internal", "unauthenticated", "forbidden", "wrong_deployment")
# With these, and with fenced, the route of reports answers a report for good.
_REPORT_REFUSED = ("idempotency_key_invalid", "input_invalid", "not_found", "payload_too_large")
_NOBODY = "is flightd running there? `flightd dev` starts one; FLIGHTD_ADDR says where another one is"


def _refusal(status: int, retry_after: str, data: bytes, address: str, asked: str = "") -> Error:
    """The error that a problem document stands for. What is none comes from something in between, a proxy perhaps, which
    cannot say what became of the request: where it says that there is no server, there is none. Nor can one about another
    flight than the one that was asked for: something in between has mixed it up."""
    problem: Any = None
    with contextlib.suppress(ValueError):
        problem = json.loads(data)
    # Others have codes, too, but none of them says retryable.
    ours = isinstance(problem, dict) and isinstance(problem.get("code"), str) and isinstance(problem.get("retryable"), bool)
    mixed_up = ours and asked != "" and _about(problem) not in ("", asked)
    if not ours or mixed_up:
        detail = f"answer {status} {'about another flight' if mixed_up else 'of something that is not flightd'}: {data[:200]!r}"
        passed_on = mixed_up or not 300 <= status < 500 or status == 408
        problem = {"code": "unreachable" if passed_on else "internal", "retryable": True, "detail": detail,
                   "hint": f"it was asked at {address}; FLIGHTD_ADDR says where flightd is"}
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


_NEEDS = {  # what an answer to an open has, by its decision
    "replay": {"flight"}, "proceed": {"flight_id", "fencing_token", "session", "trust_ms"},
    "verify": {"flight_id", "probe", "session"},
}


def _has(data: bytes, name: str, path: str, about: str = "", nonce: str = "") -> bool:
    """Whether this is an answer of flightd: what is asked of one flight or session is answered by that one. Whoever believed
    one about another flight, which something between has mixed up, would act without an attempt; and of two callers of one
    flight both would, by one answer. Older servers do not say whose it is."""
    if name.startswith("sha256:"):  # the digest of a receipt's bytes: nothing but these has it
        return _digest(data) == name
    with contextlib.suppress(ValueError):
        answer = json.loads(data)
        if name == "{}":  # to an abandon; no other request is answered so
            return bool(answer == {})
        if not isinstance(answer, dict) or name not in answer:
            return False
        if name == "state":
            return bool(answer.get("id") == path.split("/")[3])
        if name == "trust_ms":  # an open is answered with them, too
            return bool(answer.get("session") == urllib.parse.unquote(path.split("/")[3])) and "decision" not in answer
        return name != "decision" or (_NEEDS.get(str(answer[name]), set()) <= answer.keys()
                                      and about in ("", _about(answer)) and (answer.get("nonce") or nonce) == nonce)
    return False


def _is_final(e: Error, alone: bool) -> bool:
    """Whether an answer to an open, which is an error, leaves nothing to do: nothing was opened under its nonce and nothing will
    be. alone: it answers the only request that carried the nonce. See docs/protocol.md, rule 6."""
    names = _about(e.problem) != ""  # the flight that was asked for: see _refusal
    if e.code in ("idempotency_conflict", "expired", "open_expired"):
        return names
    if e.code in ("in_doubt", "idempotency_in_flight"):
        proposed = e.problem.get("proposed")
        return names and (proposed is False and alone or proposed is True and e.code == "in_doubt")
    status = e.problem.get("status", 0)
    turned_away = 300 <= status < 500 and status not in (408, 409, 410, 429)  # as it was: it has changed nothing
    return alone and (turned_away or e.code == "unreachable")  # nobody was there


def _due(state: str) -> str:
    """What a caller does about an attempt that a renewal lists as open, by what it knows of the nonce. It never abandons what
    may have started. See docs/protocol.md, rule 8."""
    if state in ("awaited", "held", "spooled"):
        return "nothing"
    return "abandon" if state == "given up" else "report"


def _digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def _about(answer: Dict[str, Any]) -> str:
    """The id of the flight that an answer to an open, or a refusal, is about."""
    flight = answer.get("flight")
    return str((flight.get("id") if isinstance(flight, dict) else answer.get("flight_id")) or "")


def _asked(path: str, about: str) -> str:
    """The id of the flight that a request is about; "" where it is about none."""
    return about or (path.split("/")[3] if path.startswith("/v1/flights/") else "")


# Everything that ends an attempt as not_done, which says that surely nothing happened:
#   one of these statuses, or 3xx to a safe method, where no redirect of an unsafe method was followed   raise_for_status
#   NotDone, raised by the caller about all that was sent                                               Flight._classify
#   an error before the first effect() has begun; LeaseLost of an effect() that did not begin is one    Flight._classify
# An error of a connection is none of them, also before a byte was sent: the caller raises NotDone where it knows that.
NOT_DONE_STATUSES = frozenset((401, 403, 404, 407, 421, 425, 426, 429, 431))
_REFUSED_STATUSES = frozenset((400, 402, 405, 406, 410, 413, 415, 422))
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS", "TRACE")


def raise_for_status(status: int, text: str = "", *, method: str = "POST", redirects: Union[bool, Sequence[int]] = ()) -> None:
    """Raises what an HTTP answer of a provider means: Refused, NotDone, or a plain Error for an unknown outcome.

    method     of the request. A provider may answer any but GET, HEAD, OPTIONS and TRACE with a redirect after it has acted
    redirects  the statuses of the redirects that were followed: ``[r.status_code for r in response.history]``; True where
               only that is known. 307 and 308 repeat the method, and the others turn it into GET
    """
    safe = method.upper() in _SAFE_METHODS
    repeated = not redirects or not isinstance(redirects, bool) and set(redirects) <= {307, 308}
    if 200 <= status < 300 and (safe or repeated):
        return
    message = f"the provider answered {status}: {text}"
    if safe or not redirects:
        about = "safe" if safe else "one"
        if status in _REFUSED_STATUSES:
            raise Refused(message)._answers(about)
        if status in NOT_DONE_STATUSES or safe and 300 <= status < 400:
            raise NotDone(message)._answers(about)
    raise Error(message, code="unknown")


# --- what callers and providers say ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Receipt:
    """The stored first outcome of a flight. It never changes."""

    outcome: str  #: succeeded or refused
    external_id: str
    content_type: str
    digest: str  #: sha256 over the whole body
    size: int  #: full length of the body in bytes
    truncated: bool  #: only its beginning is kept
    attempt: int
    at: str  #: when it was stored, RFC 3339
    value: Any = field(repr=False)  #: the body: JSON as Python has it, text as str, anything else as bytes


@dataclass(frozen=True)
class Happened:
    """What ``look_up`` returns when the provider shows the effect."""

    result: Any = None
    external_id: str = ""


@dataclass(frozen=True)
class NotHappened:
    """What ``look_up`` returns when the provider is sure that there is no such effect."""


class _Sent(NamedTuple):
    """When a request was sent, by the clock that never goes back, by the one on the wall, and by one that goes on while the
    machine sleeps; the last is 0 where there is none."""

    mono: float
    wall: float
    boot: float = 0.0


def _now() -> _Sent:
    asleep = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))  # macOS counts sleep in the second one
    return _Sent(time.monotonic(), time.time(), 0.0 if asleep is None else time.clock_gettime(asleep))


class _Trust:
    """Time that counts from the sending of a request: how long a session is trusted, an attempt may take, or the provider
    surely remembers a key.

    The monotonic clock stands still while a machine sleeps and the wall clock may jump; whichever clock says that it is
    over is believed.
    """

    def __init__(self, sent: _Sent = _Sent(0.0, 0.0), ms: int = 0) -> None:
        self._until = _Sent(*(at + ms / 1000 for at in sent))
        self._lost = False

    def extend(self, sent: _Sent, ms: int) -> None:
        if sent.mono + ms / 1000 > self._until.mono:
            self._until = _Sent(*(at + ms / 1000 for at in sent))

    def lose(self) -> None:
        self._lost = True

    def left(self) -> float:
        if self._lost:
            return 0.0
        return min(until - now for until, now in zip(self._until, _now()))


class _Nonce:
    """Identifies one open. Its caller remembers it from before the first request on: it is "awaited", "held" by a block,
    "given up" before its effect started, or "final" where nothing was opened under it and nothing will be."""

    def __init__(self, ledger_ms: int) -> None:
        self.text, self.not_after = secrets.token_urlsafe(16), ledger_ms + _OPEN_LIFE_MS
        self.id = hashlib.sha256(self.text.encode()).hexdigest()[:32]  # as a renewal lists it
        self.made, self.state = _now(), "awaited"
        self.alone = True  # at most one request has carried it


def _encode(value: Any, content_type: str) -> Tuple[str, bytes]:
    """The body of a receipt. A value that JSON cannot hold is no reason to call the effect failed: it happened."""
    if value is None:
        return content_type, b""
    if isinstance(value, (bytes, bytearray)):
        return _text(content_type or "application/octet-stream"), bytes(value)
    try:
        return "application/json", json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except Exception as e:
        return "text/plain; charset=utf-8", f"the result cannot be written as JSON: {_text(e)}".encode("utf-8", "replace")


def _decode(content_type: str, body: bytes, truncated: bool = False) -> Any:
    kind = content_type.split(";")[0].strip().lower()
    if not body:
        return None
    if not truncated and (kind == "application/json" or kind.startswith("application/") and kind.endswith("+json")):
        with contextlib.suppress(ValueError):
            return json.loads(body)
    return body.decode("utf-8", "replace") if kind.startswith("text/") else body


def _body_fields(external_id: Any, content_type: str, body: bytes) -> Dict[str, Any]:
    """A body as reports carry it: as base64, so that what is stored is these bytes; a long one shortened."""
    fields: Dict[str, Any] = {}
    if external_id not in (None, ""):
        fields["external_id"] = _cut(_text(external_id))
    if content_type:
        sendable = len(content_type) < 256 and all(" " <= c <= "~" for c in content_type)
        fields["content_type"] = content_type if sendable else "application/octet-stream"
    if body:
        fields["body_base64"] = base64.b64encode(body[:_MAX_RECEIPT]).decode()
    if len(body) > _MAX_RECEIPT:
        fields.update(truncated=True, size=len(body), digest=_digest(body))
    return fields


def _text(value: Any) -> str:
    """A text of whatever a caller has: one that cannot be written must not keep a report away."""
    try:
        return value.decode("utf-8", "replace") if isinstance(value, (bytes, bytearray)) else str(value)
    except Exception:
        return f"a {type(value).__name__} that has no text"


def _cut(text: str) -> str:
    """Bounds a text to what the ledger keeps of it."""
    return text.encode("utf-8", "replace")[:_MAX_TEXT].decode("utf-8", "ignore")


# --- one flight ------------------------------------------------------------------------------------------------------


class Flight:
    """One call of ``once``: what may be done, and what came of it.

    Attributes: ``key``, ``flight_id``, ``attempt``, ``idempotency_key`` (the same for every attempt; pass it to the
    provider), ``fencing_token`` (sorts by age), ``input`` (as *first* submitted: send this, not your own),
    ``previous`` (the attempt before, if there was one), ``replayed`` (True when nothing is to be done any more),
    ``source`` (executed, joined or replayed), ``receipt``. Set ``result``, and ``external_id`` where the provider has
    one; ``content_type`` says what a ``bytes`` result is.
    """

    def __init__(self, client: "Client", request: Dict[str, Any], wait: Optional[float],
                 look_up: Optional[Callable[["Flight"], Any]], key: str) -> None:
        self._client, self._request, self._look_up = client, request, look_up
        self._until = None if wait is None else time.monotonic() + wait
        self._trust, self._stop = _Trust(), threading.Event()
        self._entered = self._over = self._sent = self._left = False
        self._gate = threading.Lock()  # between an effect that starts and the end of the block
        self._running = self._standing = 0  # effects: that run; of which nothing says that they did not happen
        self._words: List[BaseException] = []  # about this flight, that effects were left with
        self._process, self._since = os.getpid(), time.monotonic()
        self._deadline: Optional[_Trust] = None  # of the attempt
        self._resend: Optional[_Trust] = None  # for which the provider surely knows the key of what was sent before
        self._unknown = False  # an effect has ended, and nobody knows how
        self._again: Optional[LeaseLost] = None  # that another one was refused with
        self._looks_until: Optional[float] = None
        self._nonces: Dict[str, _Nonce] = {}  # by id
        self._nonce = _Nonce(0)  # the newest one
        self._policy = request
        self.key, self.flight_id, self.source, self.replayed = key, "", "", False
        self._id = _flight_id(key)
        self.attempt, self.idempotency_key, self.fencing_token = 0, "", ""
        self.input: Any = None
        self.previous: Optional[Dict[str, Any]] = None
        self.result: Any = None
        self.external_id, self.content_type = "", ""
        self.receipt: Optional[Receipt] = None
        self.cancel_requested = False  #: somebody wants the flight cancelled; what has started is yours to stop

    # What the block may use.

    @contextlib.contextmanager
    def effect(self) -> Iterator["Flight"]:
        """Stands around the call that must happen once. From its beginning on, a plain error is of unknown outcome.

        It leaves the ``once`` block when the flight is over already, and raises LeaseLost when the right to start is: the
        lease is lost, ``attempt_timeout`` is over, a cancellation is wanted, the block was left (by a thread that it
        started, say), or this is a fork of the process that may act. Under ``resend`` the right ends, too, when the provider
        may have forgotten the key (``provider_window``), and otherwise with an ``effect()`` of unknown outcome.
        """
        if self._over and not self._left:
            raise _Skip(self)
        self._refuse_fork()
        with self._gate:
            resends = self._policy.get("recovery") == "resend"
            again = self._unknown and not resends
            over = ("the block was left" if self._left else "a cancellation is wanted" if self.cancel_requested
                    else "an effect before it has an unknown outcome" if again else self._late())
            if over:
                lost = LeaseLost(f"{self.key}: {over}: the effect must not be started")
                if again:
                    self._again = lost
                raise lost
            self._sent = True
            self._running += 1
        happened, unknown, started = True, True, _now()
        try:
            yield self
            unknown = False
        except BaseException as e:
            unknown = happened = not self._is_own(e)
            if not happened:
                self._words.append(e)
            raise
        finally:
            with self._gate:
                self._running, self._standing = self._running - 1, self._standing + happened
                self._unknown = self._unknown or unknown
                window = self._policy.get("provider_window_ms")
                if unknown and resends and window and self._resend is None:
                    # a twentieth for clocks that run slow, and the time that the repeat may take
                    self._resend = _Trust(started, window * 0.95 - (self._policy.get("attempt_timeout_ms") or 0))

    def _late(self) -> str:
        """Why no effect may start any more, by the clocks; "" where one may."""
        bounds = ((self._trust, "the lease is lost"), (self._deadline, "its time-out is over"),
                  (self._resend, "the provider may have forgotten its key"))
        return next((why for bound, why in bounds if bound is not None and bound.left() <= 0), "")

    def _is_own(self, e: Optional[BaseException]) -> bool:
        """A word about this flight, and not one that another flight, within the block of this one, was left with."""
        return isinstance(e, (NotDone, Refused)) and e._left_at <= self._since

    @property
    def lease_lost(self) -> bool:
        """Nothing may start any more. An effect that has started is left to finish, except under ``verify``."""
        return self._trust.left() <= 0

    @property
    def headers(self) -> Dict[str, str]:
        """What travels with the effect over HTTP. Give it to a client that does not repeat requests by itself."""
        return {"Idempotency-Key": self.idempotency_key, "Flightd-Fencing-Token": self.fencing_token}

    def time_left(self) -> Optional[float]:
        """Seconds that the effect may still take, for a time-out; None when nothing bounds it.

        It is bounded by ``attempt_timeout``, and under ``verify`` by the lease: a look-up needs to know when the
        effect can no longer happen. In a ``look_up`` it is what that may take: ``attempt_timeout``, or 30 s without one.
        """
        if self._looks_until is not None:
            return max(0.0, self._looks_until - time.monotonic())
        ends = [] if self._deadline is None else [self._deadline.left()]
        if self._policy.get("recovery") == "verify":
            ends.append(self._trust.left())
        return max(0.0, min(ends)) if ends else None

    def body(self) -> bytes:
        """The receipt's body, byte for byte as it was reported, or as much of it as is kept."""
        digest = "" if self.receipt is None or self.receipt.truncated else self.receipt.digest
        return self._client._receipt_body(self.flight_id, digest)

    # Opening.

    def __enter__(self) -> "Flight":
        if self._entered:
            raise RuntimeError(f"{self.key}: a flight is entered once; call once() again")
        self._entered, self._process, self._since = True, os.getpid(), time.monotonic()
        try:
            answer = self._open()
            if answer["decision"] == "replay":
                self._settle(answer["flight"])
                self.replayed = True
            else:
                self._keep(answer, self._trust, self._stop)
                self._nonce.state = "held"
        except BaseException:  # the block will not run
            self._stop.set()
            self._give_up()
            raise
        return self

    def _refuse_fork(self) -> None:
        """A fork neither renews nor reports what its parent has opened, and opens nothing beside it: the parent may act."""
        if self._process != os.getpid():
            raise LeaseLost(f"{self.key}: this process is a fork of the one that may act: the effect must not be started")

    def _waited(self) -> bool:
        return self._until is not None and self._until - time.monotonic() < 0.001

    def _window(self) -> float:
        """Seconds for which others are waited for under one nonce. Half of the time in which its effect may start, and of that
        in which its open may be proposed, is left for what comes then."""
        return min(self._request.get("attempt_timeout_ms") or _OPEN_LIFE_MS, _OPEN_LIFE_MS) / 2000

    def _wait_ms(self) -> int:
        left = float("inf") if self._until is None else self._until - time.monotonic()
        return int(1000 * max(0.0, min(left, max(self._window(), _MIN_WAIT))))

    def _new_nonce(self) -> None:
        self._refuse_fork()
        self._nonce = _Nonce(self._client._ledger_ms())
        self._nonces[self._nonce.id] = self._nonce

    def _open(self) -> Dict[str, Any]:
        """Asks until the block may run, the flight is over, or the wait is."""
        self._client._connect("")
        self._new_nonce()
        lost = 0  # so many opens in a row came to nothing
        while True:
            self._refuse_fork()
            wait, asked = self._wait_ms() / 1000, time.monotonic()
            try:
                answer, sent = self._ask_open("/v1/flights:open", self._request)
                if answer["decision"] == "verify":
                    answer, sent = self._look(answer)
                if answer["decision"] == "replay":
                    return answer
                if answer["decision"] != "proceed":
                    raise Error(f"the server decided {answer['decision']!r}, which this client does not know: "
                                "nothing was run; take a newer client", code="internal")
                self._adopt(answer, sent)
                late = self._late()
                if not late:
                    return answer
                raise LeaseLost(f"{self.key}: {late}: the effect was not started")
            except (Busy, LeaseLost, Fenced, Unavailable) as e:
                lost = 0 if isinstance(e, Busy) else lost + 1
                expired = e.code == "open_expired" and lost <= 3  # ledger time was estimated wrongly; now it is known
                if not expired and (isinstance(e, Unavailable) or self._waited()):
                    raise
                if not isinstance(e, Busy) or _now().mono - self._nonce.made.mono >= self._window():
                    self._give_up(_ABANDON_FIRST)
                pause = 0.02 * lost
                if isinstance(e, Busy):  # a server that did not wait knows that it cannot be yet: it is not asked at once
                    pause = min(max(e.retry_after, 0.02), wait - (time.monotonic() - asked))
                time.sleep(max(0.0, min(pause, 1.0)))
                if self._nonce.state != "awaited":
                    self._new_nonce()

    def _ask_open(self, path: str, request: Dict[str, Any]) -> Tuple[Dict[str, Any], _Sent]:
        """Sends an open, or a verdict, which is answered like one, and notes where the answer is final."""
        nonce, wait = self._nonce, self._wait_ms()
        request = dict(request, nonce=nonce.text, not_after=nonce.not_after, owner=self._client._owner(), wait_ms=wait)
        try:
            answer, sent = self._client._ask("POST", path, request, has="decision", about=self._id, nonce=nonce.text,
                                             timeout=wait / 1000 + _TRY)
        except Error as e:
            alone, nonce.alone = nonce.alone and not e._unsure, False
            if _is_final(e, alone):
                nonce.state = "final"
            if not isinstance(e, Failed) or not e.problem.get("flight") or _about(e.problem) != self._id:
                raise
            answer, sent = {"decision": "replay", "flight": e.problem["flight"]}, nonce.made  # it ended badly
        if answer["decision"] == "replay":
            nonce.state = "final"
        return answer, sent

    def _give_up(self, wait: float = 0.0) -> None:
        """Abandons what was asked for and will not be used: nobody else would ever say that nothing was sent. It waits so
        long for the first try: who opens the key anew would meet a doubt of its own."""
        until = time.monotonic() + wait
        for nonce in list(self._nonces.values()):
            if nonce.state == "awaited" and self._process == os.getpid():  # what a fork leaves is its parent's
                nonce.state = "given up"
                self._client._pursue(functools.partial(self._abandon, nonce), until)

    def _abandon(self, nonce: _Nonce) -> bool:
        """Says that nothing was sent under a nonce, and that nothing will be. False: no server has taken it yet."""
        abandon = {"action": self._request["action"], "id": self._request["id"], "nonce": nonce.text,
                   "not_after": nonce.not_after, "reason": "its caller gave up before the effect"}
        try:
            self._client._ask("POST", "/v1/flights:abandon", abandon, has="{}", timeout=5.0, patience=5.0)
        except Exception as e:  # also an answer that nobody can read
            return _taking(e, self._id) == "refused"
        return True

    def _look(self, answer: Dict[str, Any]) -> Tuple[Dict[str, Any], _Sent]:
        """Asks the provider what happened and brings the verdict, which is answered like an open, under a new nonce."""
        self._describe(answer)
        if self._look_up is None:
            raise InDoubt(f"{self.key}: an effect of unknown outcome must be looked up at the provider; pass look_up",
                          problem=answer)
        looked, stop = self._nonce, threading.Event()
        bound = (self._policy.get("attempt_timeout_ms") or 1000 * _LOOK) / 1000
        self._looks_until = time.monotonic() + bound
        self._keep(answer, _Trust(), stop, self._looks_until + _HUNG)
        try:
            verdict = self._verdict(answer, self._find_out())
            self._new_nonce()
            answer, sent = self._ask_open(f"/v1/flights/{self.flight_id}/verdict", verdict)
            looked.state = "final"
            return answer, sent
        finally:
            stop.set()

    def _find_out(self) -> Union[Happened, NotHappened, None]:
        try:
            return cast(Callable[[Flight], Any], self._look_up)(self)
        except Exception:
            _log.exception("flightd: the look-up of %s failed", self.key)
            return None
        finally:
            self._looks_until = None

    def _verdict(self, answer: Dict[str, Any], found: Union[Happened, NotHappened, None]) -> Dict[str, Any]:
        verdict = {"probe": answer["probe"], "result": "unknown"}
        if "ttl_ms" in self._request:
            verdict["ttl_ms"] = self._request["ttl_ms"]
        if isinstance(found, Happened):
            verdict.update(_body_fields(found.external_id, *_encode(found.result, "")), result="happened")
        elif isinstance(found, NotHappened):
            verdict["result"] = "not_happened"
        return verdict

    def _describe(self, answer: Dict[str, Any]) -> None:
        self.flight_id, self.key = answer["flight_id"], answer.get("key") or self.key
        self.idempotency_key, self.previous = answer.get("idempotency_key", ""), answer.get("previous")
        self.attempt = answer.get("attempt") or 0
        self.input = answer.get("input")
        if "input_base64" in answer:
            self.input = _decode(answer.get("input_content_type", ""), base64.b64decode(answer["input_base64"]))
        if answer.get("policy_differs"):
            self._policy = answer.get("policy") or {}  # the first caller's stands

    def _adopt(self, answer: Dict[str, Any], sent: _Sent) -> None:
        self.flight_id, self.fencing_token = answer["flight_id"], answer["fencing_token"]
        self._describe(answer)
        self._trust = _Trust(sent, answer["trust_ms"])
        timeout, resend = self._policy.get("attempt_timeout_ms"), answer.get("resend_ms")
        self._deadline = _Trust(self._nonce.made, timeout) if timeout else None
        self._resend = None if resend is None else _Trust(sent, resend)

    def _keep(self, answer: Dict[str, Any], trust: _Trust, stop: threading.Event, until: float = float("inf")) -> None:
        """Begins to renew the session of an answer: while the block runs and its report is on the way, or for as long as a
        look-up may take, and no longer: who hangs must not keep others from looking."""
        every = max((answer.get("renew_every_ms") or 1000) / 1000, 0.05)
        attempts = f"{self._nonce.id} {answer.get('attempt')}\n" if answer["decision"] == "proceed" else ""
        digest = hashlib.sha256(attempts.encode()).hexdigest()[:32]  # of what is open under the session, as far as is known
        args = (answer["session"], digest, every, trust, stop, until)
        threading.Thread(target=self._renew, args=args, name="flightd-renew", daemon=True).start()

    def _renew(self, session: str, digest: str, every: float, trust: _Trust, stop: threading.Event, until: float) -> None:
        pause, path = every, f"/v1/sessions/{urllib.parse.quote(session, safe='')}/renew"
        while not stop.wait(pause) and time.monotonic() < until:
            pause = every
            try:
                answer, sent = self._client._ask("POST", path, {"open_digest": digest}, has="trust_ms",
                                                 timeout=max(every / 2, 1.0), tries=1)
                trust.extend(sent, answer["trust_ms"])
                if self.flight_id in (answer.get("cancel_requested") or []):
                    self.cancel_requested = True
                for attempt in answer.get("open") or []:
                    self._answer_for(attempt)
            except LeaseLost:
                trust.lose()
                return
            except Exception:  # an answer that nobody can read must not end what is renewed
                pause = min(every, 1.0)

    def _answer_for(self, attempt: Dict[str, Any]) -> None:
        """Does what is due for an attempt that a renewal lists as open."""
        nonce = self._nonces.get(attempt["nonce"])
        due = _due(nonce.state if nonce else "unknown")
        if due == "abandon" and nonce:
            self._client._pursue(functools.partial(self._abandon, nonce))
        if due == "report":
            report = {"fencing_token": attempt["fencing_token"], "key": attempt["key"], "outcome": "unknown",
                      "error": "its caller knows nothing of it any more"}
            self._client._ask("POST", f"/v1/flights/{attempt['flight_id']}/report", report, has="state", timeout=1.0, tries=1)

    # Landing.

    def __exit__(self, kind: Optional[Type[BaseException]], exc: Optional[BaseException],
                 trace: Optional[TracebackType]) -> bool:
        own = self._is_own(exc)
        if isinstance(exc, (NotDone, Refused)):
            exc._left_at = time.monotonic()
        if self._over:
            self._left = True
            return isinstance(exc, _Skip) and exc.flight is self
        if self._process != os.getpid():
            return False  # a fork does not end the flight of its parent
        interrupted = exc is not None and not isinstance(exc, Exception)
        if exc is None:
            exc = self._again  # also where the block took it, the outcome of the effect before stays unknown
        try:
            with self._gate:
                self._left = True
            outcome, text = self._classify(exc, own)
            flight = self._record(outcome, text)
        except (Fenced, Unrecorded) as e:
            if interrupted:
                return False
            if isinstance(e, Fenced):
                return self._after_fence(e, exc)
            raise e from (exc or e.__cause__)
        finally:
            self._stop.set()
        if interrupted:
            return False  # whoever interrupts the program gets what it asked for
        return self._land(flight, outcome, exc)

    def _classify(self, exc: Optional[BaseException], own: bool) -> Tuple[str, str]:
        text = "" if exc is None else f"{type(exc).__name__}: {_text(exc)}"
        if exc is None:
            if not self._sent:
                return "unknown", "the block ended without effect(): nobody can tell whether anything was sent"
            if self._running:
                return "unknown", "the block ended while effect() was running: nobody can tell how that ends"
            return "succeeded", ""
        # What was raised in one effect, or made of one answer, says nothing of another effect; else it is about what was sent.
        about = getattr(exc, "_about", "")
        of_one = any(exc is word for word in self._words) or about == "safe" or about == "one" and (
            self._standing > 1 or self._unknown)
        others = self._running or self._standing and of_one
        if isinstance(exc, Refused) and own and not (self._standing and of_one):
            return "refused", text
        if not self._sent or isinstance(exc, NotDone) and own and not others:
            return "not_done", text
        return "unknown", text

    def _record(self, outcome: str, text: str) -> Dict[str, Any]:
        report: Dict[str, Any] = {"fencing_token": self.fencing_token, "key": self.key, "outcome": outcome}
        if text:
            report["error"] = _cut(text)
        if outcome in ("succeeded", "refused"):
            content_type, body = _encode(self.result, self.content_type)
            if outcome == "refused" and not body:
                content_type, body = "text/plain; charset=utf-8", text.partition(": ")[2].encode("utf-8", "replace")
            report.update(_body_fields(self.external_id, content_type, body))
            if content_type and body:
                self.result = _decode(content_type, body)  # as every duplicate will see it
        return self._client._record(self.key, self.flight_id, report, self.result)

    def _land(self, flight: Dict[str, Any], outcome: str, exc: Optional[BaseException]) -> bool:
        if flight["state"] in _SETTLED:
            try:
                flight["source"] = "executed"
                self._settle(flight)
            except Error as e:
                if outcome == "unknown" and exc is None:
                    advice = ("wait for the threads that are in f.effect() before the block ends" if self._sent else
                              "put f.effect() around the call that must happen once, or raise NotDone to leave without it")
                    raise RuntimeError(f"{self.key}: {advice}; the flight is in doubt") from e
                raise e from exc
            return True
        if outcome == "unknown" and flight.get("looking") and self._look_up is not None:
            return self._after_look(exc)
        if outcome == "not_done":
            return False
        unsettled = Unsettled(f"{self.key}: {outcome}: {_text(exc)}; call again to open the next attempt")
        unsettled.outcome = outcome
        raise unsettled from exc

    def _after_look(self, exc: Optional[BaseException]) -> bool:
        """Learns what happened. The block cannot run twice: where nothing happened, the caller must call again."""
        try:
            answer = self._open()
            if answer["decision"] == "replay":
                self._settle(answer["flight"])
                return True
        finally:
            self._give_up()
        unsettled = Unsettled(f"{self.key}: not_done: {_text(exc)}; the provider shows no effect, call again")
        unsettled.outcome = "not_done"
        raise unsettled from exc

    def _after_fence(self, fenced: Fenced, exc: Optional[BaseException]) -> bool:
        """Gives what was decided without this attempt, where that is final, else that it was fenced."""
        try:
            flight, _ = self._client._ask("GET", f"/v1/flights/{self.flight_id}", has="state")
        except Error:
            raise fenced from exc
        if flight["state"] not in _SETTLED:
            raise fenced from exc
        flight["source"] = "replayed"
        self._settle(flight)
        return True

    def _settle(self, flight: Dict[str, Any]) -> None:
        """Takes what a flight that nobody is about to fly gives its callers: a receipt, or an error."""
        self._over = True
        self.flight_id, self.key = flight["id"], flight.get("key") or self.key
        self.source = flight.get("source") or "replayed"
        state, cause, about = flight["state"], flight.get("cause", ""), {
            "key": self.key, "flight_id": self.flight_id, "version": flight.get("version", ""), "flight": flight}
        if state == "in_doubt":
            raise InDoubt(f"{self.key} is in doubt: {cause}; settle it with `flightd doubt resolve {self.key} --reason WHY "
                          "--happened --receipt @FILE | --did-not-happen | --fail`", problem=about)
        if state == "awaiting_approval":
            raise Unapproved(f"{self.key} waits for an approval", problem=about)
        if state == "expired":
            raise Expired(f"{self.key}: its receipt is no longer kept", problem=about)
        if not flight.get("receipt"):
            raise Failed(f"{self.key} is {state}: {cause}", problem=about)
        self.receipt = _receipt(flight["receipt"])
        self.external_id = self.receipt.external_id
        self.attempt = self.receipt.attempt
        if self.receipt.outcome == "refused":
            declined = Declined(f"{self.key} was refused by the provider: {self.receipt.value}", problem=about)
            declined.receipt = self.receipt
            raise declined
        if not self.receipt.truncated:
            self.result = self.receipt.value
        elif self.source != "executed":  # whoever executed it has the whole result
            truncated = ReceiptTruncated(f"{self.key} has succeeded, and its result of {self.receipt.size} bytes is not stored "
                                         "as a whole", problem=about)
            truncated.receipt = self.receipt
            raise truncated


_SETTLED = ("succeeded", "failed", "cancelled", "expired", "in_doubt", "awaiting_approval")


def _receipt(r: Dict[str, Any]) -> Receipt:
    kind, truncated = r.get("content_type", ""), bool(r.get("truncated"))
    value = r["body"] if "body" in r else _decode(kind, base64.b64decode(r.get("body_base64", "")), truncated)
    return Receipt(outcome=r["outcome"], external_id=r.get("external_id", ""), content_type=kind,
                   digest=r.get("digest", ""), size=r.get("size", 0), truncated=truncated,
                   attempt=r.get("attempt", 0), at=r.get("at", ""), value=value)


# --- the client ------------------------------------------------------------------------------------------------------


class Client:
    """Speaks to flightd servers. Its methods may be called from many threads.

    address     one server or several of one deployment, separated by commas, tried in turn; ``FLIGHTD_ADDR``, else
                http://127.0.0.1:7420. The client stays with the deployment that answers it first
    namespace   of keys; ``FLIGHTD_NAMESPACE``, else default
    ttl         whole seconds from 2 to 600 that an attempt outlives this process; the server's default is 15
    spool       folder of reports that no server took yet; "" keeps none: an outcome may then die with the process
    patience    seconds for which a request is tried again while no server answers
    report_wait seconds to wait for an outcome to be recorded before ``Unrecorded``; the report is tried on afterwards
    owner       who holds attempts, for people; host:pid
    """

    def __init__(self, address: Optional[str] = None, *, namespace: Optional[str] = None, ttl: Optional[int] = None,
                 spool: Optional[str] = None, patience: float = 10.0, report_wait: float = 10.0,
                 owner: str = "") -> None:
        self.namespace = namespace or os.environ.get("FLIGHTD_NAMESPACE") or "default"
        if not _NAMESPACE.fullmatch(self.namespace):
            raise ValueError(f"{self.namespace!r} is no namespace: letters, digits, '.', '_' and '-' make one")
        self._wires = [_Wire(a) for a in _addresses(address or os.environ.get("FLIGHTD_ADDR") or DEFAULT_SERVER)]
        if patience <= 0 or report_wait <= 0:
            raise ValueError("patience and report_wait must be more than nothing")
        self._ttl, self._patience, self._report_wait, self._name = ttl, patience, report_wait, owner
        self._spool = _Spool(_default_spool() if spool is None else spool)
        self._best, self._deployment = 0, ""
        self._ledger = 0, _now()  # its time in ms, and when that was said
        self._lock = threading.Lock()
        self._abandons: Deque[Tuple[float, Callable[[], bool]]] = collections.deque(maxlen=_PURSUED)
        self._pursuing = False  # in a thread
        self._drainer: Optional[threading.Thread] = None
        self._closed = threading.Event()
        _clients.add(self)

    def _forked(self) -> None:
        """This process is a fork: threads that held locks are its parent's, and so are the connections."""
        self._lock, closed = threading.Lock(), self._closed.is_set()
        self._closed = threading.Event()
        self._abandons.clear()
        self._pursuing = False
        if closed:
            self._closed.set()
        self._spool.forked()
        for wire in self._wires:
            wire.forked()

    def once(self, name: str, id: str, input: Any = None, *, recovery: str = "hold",
             look_up: Optional[Callable[[Flight], Union[Happened, NotHappened, None]]] = None,
             attempt_timeout: Optional[float] = None, settle: Optional[float] = None,
             provider_window: Optional[float] = None, retention: str = "", wait: Optional[float] = 20.0,
             key_decides: bool = False) -> Flight:
        """Makes the flight of a key; use it in a ``with`` statement, which asks the server.

        name, id        the business intent: the kind of effect and the business identifier, such as an order's
        input           any JSON: the same key with another input is a Conflict; unless key_decides is set: then the
                        first input stands
        recovery        what happens about an unknown outcome: hold, resend or verify. The first caller's policy stands
        look_up         asks the provider what happened, for verify: gives Happened, NotHappened, or None if unsure; see
                        ``Flight.time_left`` for how long it may take
        attempt_timeout seconds that an attempt may take, from the first request for it; see ``Flight.time_left``
        settle          seconds after which the provider surely shows an effect, for verify
        provider_window seconds for which the provider remembers our idempotency key, for resend
        retention       how long the receipt is kept: "30d", "12h"
        wait            seconds to wait for somebody else's attempt before ``Busy``; None waits as long as it takes

        The with statement raises InDoubt, Conflict, Busy, Declined, Failed, Unapproved, Expired or Unavailable where
        nothing may be done, and Unrecorded, Unsettled or Fenced at its end.
        """
        request: Dict[str, Any] = {"action": name, "id": id, "recovery": recovery}
        if input is not None:
            request["input"] = json.loads(json.dumps(input, allow_nan=False))  # refuses now what cannot travel
        if key_decides:
            request["fingerprint"] = "none"
        if recovery == "verify" and look_up is None:
            raise ValueError("recovery verify needs a look_up")
        if wait != wait:
            raise ValueError("wait is no number of seconds")
        for field_name, seconds in (("attempt_timeout_ms", attempt_timeout), ("settle_ms", settle),
                                    ("provider_window_ms", provider_window), ("ttl_ms", self._ttl)):
            if seconds is not None:
                request[field_name] = int(seconds * 1000)
        if retention:
            request["retention"] = retention
        if look_up is not None and recovery != "verify":
            request["lookup"] = True
        return Flight(self, request, wait, look_up, f"{self.namespace}/{name}/{id}")

    def spooled(self) -> int:
        """How many reports wait on disk."""
        return len(self._spool.on_disk())

    def close(self) -> None:
        """Ends work in the background. Reports that wait stay on disk for the next client; those that no disk took are
        brought once more."""
        self._closed.set()
        drainer = self._drainer
        if drainer is not None:
            drainer.join(5.0)
        self._drain(self._spool.in_memory())
        for wire in self._wires:
            wire.close()

    def _owner(self) -> str:
        name = self._name or f"{socket.gethostname()}:{os.getpid()}"
        return "".join(c if " " <= c <= "~" else "?" for c in name)

    # Requests.

    def _ask(self, method: str, path: str, body: Union[Dict[str, Any], bytes, None] = None, *, has: str, about: str = "",
             nonce: str = "", timeout: float = _TRY, patience: Optional[float] = None, tries: int = 0,
             once: bool = False) -> Tuple[Dict[str, Any], _Sent]:
        """Sends a request until a server answers it. Each route is guarded against repeats: by a nonce, a token, or by
        changing nothing. Raises the error of a problem document; Unavailable when nobody answers within patience, or
        something that is not flightd, whose answers do not have what ours has."""
        data, sent = self._ask_raw(method, path, body, timeout, patience, tries, once, has, about, nonce)
        return json.loads(data), sent

    def _ask_raw(self, method: str, path: str, body: Union[Dict[str, Any], bytes, None], timeout: float,
                 patience: Optional[float], tries: int, once: bool, has: str = "", about: str = "",
                 nonce: str = "") -> Tuple[bytes, _Sent]:
        self._connect(path)
        payload = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"User-Agent": "flightd-python"}
        if payload is not None:
            headers["Content-Type"] = "application/json"
        if self.namespace != "default":
            headers["Flightd-Namespace"] = self.namespace
        if self._deployment not in ("", "-"):
            headers["Flightd-Deployment"] = self._deployment
        elsewhere: Optional[Error] = None  # the answer of a server of another deployment
        deadline: Optional[float] = None  # patience begins with the first failure: a good answer may take its time
        pause, unsure, count, turns = 0.02, False, 0, 0  # turns: times in a row that it was turned away
        while True:
            count += 1
            server = self._best % len(self._wires)
            hint = 0.0
            failure: Error
            try:
                status, fields, data, sent, stale = self._wires[server].exchange(method, path, payload, headers, timeout, once)
                unsure = unsure or stale
                if status != 421:  # of another deployment, whose ledger has another time
                    self._note_ledger_ms(fields.get("Flightd-Ledger-Time"))
                if status < 300 and (not has or _has(data, has, path, about, nonce)):
                    return data, sent
                failure = _refusal(status, fields.get("Retry-After") or "", data, self._wires[server].address,
                                   _asked(path, about))
                if 300 <= status < 500 and status != 429 and failure.code != "unreachable":
                    # What is there is not our flightd, or does not know who asks: the next server may do it.
                    turns = turns + 1 if failure.code in _ANOTHER_SERVER else 0
                    elsewhere = failure if failure.code == "wrong_deployment" else elsewhere
                    if turns in (0, len(self._wires)):
                        failure._unsure = unsure
                        raise failure
                else:
                    turns, unsure = 0, True
                hint = min(failure.problem.get("retry_after_ms", 0) / 1000, 5.0)
            except (OSError, http.client.HTTPException) as e:
                turns = 0
                nobody = isinstance(e, (ConnectionRefusedError, socket.gaierror))
                unsure = unsure or not nobody
                failure = Unavailable(f"no server answers at {self._wires[server].address}: {type(e).__name__}: {e}"
                                      + (f" ({_NOBODY})" if nobody else ""))
                failure.__cause__ = e
            self._best = (server + 1) % len(self._wires)
            if deadline is None:
                deadline = time.monotonic() + (self._patience if patience is None else patience)
            wait = hint or pause * random.uniform(0.5, 1.5)
            pause = min(2 * pause, 1.0)
            if count < len(self._wires):
                wait = 0.0  # the next server may know better
            if count == tries or time.monotonic() + wait > deadline:
                failure = elsewhere or failure  # the one that a person must mend
                failure._unsure = unsure
                raise failure
            time.sleep(wait)

    def _connect(self, path: str) -> None:
        """Learns at first which deployment answers, and delivers its reports that wait on disk. It is the client's for good:
        another one knows nothing of what this one has let it do."""
        if self._deployment or path == "/version":
            return
        version, _ = self._ask("GET", "/version", has="version")
        with self._lock:
            if self._deployment:
                return
            self._deployment = str(version.get("deployment") or "-")  # older servers do not say it
        self._note_ledger_ms(version.get("ledger_time"))
        if self._spool.names():
            self._drain_soon(now=True)

    def _note_ledger_ms(self, ms: Any) -> None:
        """Takes note of the ledger's time, which every answer of flightd has. The newest answer counts, also where time goes
        back with it."""
        if str(ms).isdecimal():
            self._ledger = int(ms), _now()

    def _ledger_ms(self) -> int:
        """Estimates the ledger's time. A wrong estimate costs one more request, since an open that comes too late opens
        nothing."""
        (ms, then), now = self._ledger, _now()
        return ms + int(1000 * max(now.mono - then.mono, now.boot - then.boot))

    def _pursue(self, abandon: Callable[[], bool], wait_until: float = 0.0) -> None:
        """Sends an abandon until it is answered, for as long as this process and client live: with its session the attempt
        would end in doubt. It waits for the first try until then; the end of the program waits for the first try alone."""
        def begin() -> None:
            if abandon():
                return
            with self._lock:
                self._abandons.append((time.monotonic() + _PURSUIT, abandon))
                if self._pursuing:
                    return
                self._pursuing = True
            with contextlib.suppress(RuntimeError):
                threading.Thread(target=self._pursue_all, name="flightd-pursuit", daemon=True).start()
        with contextlib.suppress(RuntimeError):  # the interpreter ends: the attempt ends with its session
            first = threading.Thread(target=begin, name="flightd-abandon")
            first.start()
            first.join(max(0.0, wait_until - time.monotonic()))

    def _pursue_all(self) -> None:
        pause = 0.1
        while True:
            if self._closed.wait(pause):
                return
            with self._lock:
                if not self._abandons:
                    self._pursuing = False
                    return
                until, abandon = self._abandons.popleft()
            taken = abandon()
            pause = 0.0 if taken else min(2 * pause + 0.1, 2.0)
            if not taken and time.monotonic() < until:
                with self._lock:
                    self._abandons.append((until, abandon))

    def _receipt_body(self, flight_id: str, digest: str) -> bytes:
        """Without a digest of what is kept, nothing tells whether these are the bytes."""
        return self._ask_raw("GET", f"/v1/flights/{flight_id}/receipt", None, _TRY, None, 0, False, has=digest)[0]

    # Reports.

    def _record(self, key: str, flight_id: str, report: Dict[str, Any], result: Any) -> Dict[str, Any]:
        """Brings the outcome of an attempt. From the first try that fails the report is on disk, until it is taken."""
        path, started = f"/v1/flights/{flight_id}/report", time.monotonic()
        try:
            return self._ask("POST", path, report, has="state", timeout=min(_FIRST_REPORT, self._report_wait), tries=1,
                             once=True)[0]
        except BaseException as e:
            if _taking(e, flight_id) == "taken":
                raise
            failure = e
        # If the process dies from here on, the next client reports it.
        try:
            name = self._spool.keep(self._deployment, key, json.dumps(report).encode())
        except BaseException:  # it interrupts the program, and the report is kept all the same
            self._drain_soon(now=False)
            raise
        try:
            if not isinstance(failure, Error):
                raise failure
            if _taking(failure, flight_id) == "later":
                left = max(0.01, self._report_wait - (time.monotonic() - started))
                flight = self._ask("POST", path, report, has="state", timeout=min(max(1.0, left), _REPORT_TRY),
                                   patience=left)[0]
                self._spool.drop(name)
                return flight
        except Error as e:
            if _taking(e, flight_id) == "taken":
                self._spool.drop(name)
                raise
            failure = e
        except BaseException:  # whoever interrupts the program gets what it asked for, and the outcome stays
            self._spool.release(name)
            self._drain_soon(now=False)
            raise
        if _taking(failure, flight_id) == "refused":
            where = "a person must look at it: " + self._spool.put_aside(name, failure)
        else:
            where = self._spool.place(name)
            self._spool.release(name)
            self._drain_soon(now=False)
            _log.warning("flightd: the outcome of %s is not recorded yet; %s: %s", key, where, failure)
        unrecorded = Unrecorded(f"{key} ended as {report['outcome']}, which is not recorded yet; {where}: {failure}")
        unrecorded.outcome, unrecorded.result, unrecorded.key = report["outcome"], result, key
        raise unrecorded from failure

    def _drain_soon(self, now: bool) -> None:
        """Reports what is in the spool until nothing is left. The first round may delay the end of the program, so that
        one that is short still does its share."""
        def rounds() -> None:
            pause = 2.0
            while not self._closed.wait(pause):
                with self._lock:
                    names = self._spool.names()
                    if not names:
                        self._drainer = None
                        return
                pause = 2.0 if self._drain(names) else 8.0
        with self._lock, contextlib.suppress(RuntimeError):  # no thread any more: the next client does it
            if now:
                threading.Thread(target=self._drain, args=(self._spool.names(),), name="flightd-spool").start()
            if self._drainer is None or not self._drainer.is_alive():
                self._drainer = threading.Thread(target=rounds, name="flightd-spool", daemon=True)
                self._drainer.start()

    def _drain(self, names: List[str]) -> bool:
        """Reports what the files hold, and answers False when no server takes reports now. One that a server cannot take
        now keeps no other one waiting."""
        went = True
        for name in names:
            entry = self._spool.claim(name)
            if entry is None:
                continue
            if entry["deployment"] != self._deployment:
                self._spool.release(name)  # of another server: a client that is connected to that one reports it
                continue
            try:
                report = base64.b64decode(entry["report"])
                json.loads(report)
            except (ValueError, RecursionError) as e:  # it has its checksum and is none of ours all the same
                self._spool.put_aside(name, e)
                continue
            flight_id = _flight_id(entry["key"])
            try:
                # It goes out as it is: another language has written it, and read and written here it may be another receipt.
                self._ask("POST", f"/v1/flights/{flight_id}/report", report, has="state", timeout=5.0, tries=1)
            except Exception as e:
                taking = _taking(e, flight_id)
                if taking == "refused":
                    self._spool.put_aside(name, e)
                    continue
                if taking != "taken":
                    self._spool.release(name)
                    if getattr(e, "code", "") == "unreachable":
                        return False
                    went = False
                    continue
            _log.info("flightd: an outcome that waited on disk is recorded: %s", entry["key"])
            self._spool.drop(name)
        return went


def _taking(e: BaseException, flight_id: str) -> str:
    """What a server made of a report of a flight: taken, as the outcome or as evidence; later; or refused for good. An answer
    that is not about this flight, or that no report gets, belongs to another request."""
    if not isinstance(e, Error) or e.flight_id != flight_id:
        return "later"
    return "taken" if isinstance(e, Fenced) else "refused" if e.code in _REPORT_REFUSED else "later"


def _flight_id(key: str) -> str:
    """The id that a key has everywhere and for ever."""
    digest = hashlib.sha256(key.encode("utf-8", "replace")).digest()[:16]
    return "fl_" + base64.b32encode(digest).decode().rstrip("=").lower()


def _addresses(listed: str) -> List[urllib.parse.SplitResult]:
    servers = []
    for part in listed.replace(",", " ").split():
        try:
            url = urllib.parse.urlsplit(part if "://" in part else "http://" + part)
            good = url.scheme in ("http", "https") and url.hostname and url.port != 0 and not (url.query or url.fragment)
        except ValueError:  # of the port, or of an IPv6 address
            good = False
        if not good:
            raise ValueError(f"{part!r} is no address of a server like {DEFAULT_SERVER}")
        servers.append(url)
    if not servers:
        raise ValueError("no server is named")
    return servers


def _quiet(connection: http.client.HTTPConnection) -> bool:
    """Whether an idle connection has nothing to say. One that has was closed, or has an answer that nobody waits for, and that
    would be taken for that of the next request."""
    try:
        if not hasattr(select, "poll"):
            return not select.select([connection.sock], [], [], 0)[0]
        poll = select.poll()
        poll.register(cast(socket.socket, connection.sock), select.POLLIN)
        return not poll.poll(0)
    except (OSError, TypeError, ValueError):
        return False


class _Bounded(io.RawIOBase):
    """What a socket says until a moment is over. Its own time-out bounds each piece of an answer, and not all of them: a server
    that says one byte now and then would hold a caller for as long as it likes."""

    def __init__(self, sock: socket.socket, until: float) -> None:
        self._sock, self._pieces, self._until = sock, sock.makefile("rb", buffering=0), until

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> Optional[int]:
        self._sock.settimeout(_left(self._until))
        return self._pieces.readinto(buffer)

    def close(self) -> None:
        self._pieces.close()
        super().close()


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise socket.timeout("it took too long")
    return left


class _Wire:
    """Connections to one server. A proxy of the environment is not used."""

    def __init__(self, url: urllib.parse.SplitResult) -> None:
        self._url, self._lock, self._closed = url, threading.Lock(), False
        self.address = f"{url.scheme}://{url.netloc.rpartition('@')[2]}{url.path.rstrip('/')}"
        self._idle: List[Tuple[http.client.HTTPConnection, float]] = []

    def exchange(self, method: str, path: str, body: Optional[bytes], headers: Dict[str, str], timeout: float,
                 once: bool) -> Tuple[int, http.client.HTTPMessage, bytes, _Sent, bool]:
        """Sends one request and reads its answer whole. A connection that was good before may have been closed by the
        server in the meantime: then it is tried on a new one, unless the request must go out once. The last that it gives is
        whether it was: the first sending may be carried out, too."""
        connection, stale = self._get(), False
        if connection is not None:
            try:
                return (*self._send(connection, method, path, body, headers, timeout), False)
            except (OSError, http.client.HTTPException) as e:
                self.drop()  # the others are as dead as this one was
                if once or isinstance(e, socket.timeout):
                    raise
                stale = True
        kind = http.client.HTTPSConnection if self._url.scheme == "https" else http.client.HTTPConnection
        try:
            connection = kind(self._url.hostname or "", self._url.port, timeout=min(timeout, 3.0))
            return (*self._send(connection, method, path, body, headers, timeout), stale)
        except (ConnectionRefusedError, socket.gaierror) as e:
            if stale:  # that nobody is there now does not say that nobody was
                raise ConnectionError(f"the connection was lost, and then: {e}") from e
            raise

    def _send(self, connection: http.client.HTTPConnection, method: str, path: str, body: Optional[bytes],
              headers: Dict[str, str], timeout: float) -> Tuple[int, http.client.HTTPMessage, bytes, _Sent]:
        until = time.monotonic() + timeout
        try:
            if connection.sock is None:
                connection.connect()
            cast(socket.socket, connection.sock).settimeout(_left(until))
            connection.response_class = lambda sock, *args, **more: http.client.HTTPResponse(  # type: ignore
                cast(Any, _Bounded(sock, until)), *args, **more)
            sent = _now()
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it may have said why before it had read all
                connection.request(method, self._url.path.rstrip("/") + path, body, headers)
            answer = connection.getresponse()
            if answer.status < 200:  # the answer proper would follow, and be taken for that of the next request
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
        return answer.status, answer.headers, data, sent

    def _get(self) -> Optional[http.client.HTTPConnection]:
        with self._lock:
            while self._idle:
                connection, since = self._idle.pop()
                if time.monotonic() - since < _IDLE and _quiet(connection):
                    return connection
                connection.close()
        return None

    def forked(self) -> None:
        self._lock = threading.Lock()
        self.drop()

    def close(self) -> None:
        self._closed = True
        self.drop()

    def drop(self) -> None:
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
    """Keeps reports that no server has taken: one file each, readable by its owner alone, fsynced. A report is all that
    is known of an effect that happened, so it must not depend on a process.

    A file is the magic, the CRC-32C of the rest in four bytes, and JSON: deployment, key, at, and the body of the
    request in base64. All clients of flightd share folder and format; a report that two of them send is taken once.
    """

    MAGIC, SUFFIX = b"FDC1", ".report"

    def __init__(self, folder: str) -> None:
        self.folder = os.path.abspath(folder) if folder else ""  # also where the process moves to another directory
        self._lock = threading.Lock()
        self._busy: Set[str] = set()
        self._told: Set[str] = set()  # files of which a person was told that they cannot be read
        self._memory: Dict[str, Dict[str, str]] = {}  # what the disk did not take
        self._remove_leftovers()

    def _remove_leftovers(self) -> None:
        """Removes what processes have left that were killed while they wrote a report."""
        with contextlib.suppress(OSError):
            for name in os.listdir(self.folder) if self.folder else []:
                path = os.path.join(self.folder, name)
                with contextlib.suppress(OSError):
                    if name.startswith("new-") and time.time() - os.lstat(path).st_mtime > _LEFTOVER:
                        os.remove(path)

    def forked(self) -> None:
        self._lock, self._busy = threading.Lock(), set()

    def names(self) -> List[str]:
        return self.in_memory() + self.on_disk()

    def in_memory(self) -> List[str]:
        return list(self._memory)

    def on_disk(self) -> List[str]:
        try:
            return sorted(n for n in os.listdir(self.folder) if n.endswith(self.SUFFIX)) if self.folder else []
        except OSError:
            return []

    def keep(self, deployment: str, key: str, report: bytes) -> str:
        """Writes a report, which outlives the process then. Where the disk does not take it, it lives with the process.
        Whoever interrupts the program meanwhile is heard when that is done."""
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        entry = {"deployment": deployment, "key": key, "at": at, "report": base64.b64encode(report).decode()}
        data = json.dumps(entry).encode()
        name = hashlib.sha256(f"{deployment} {key} ".encode() + report).hexdigest()[:32] + self.SUFFIX
        with self._lock:
            self._busy.add(name)
        self._memory[name] = entry  # until the disk has it
        try:
            if self.folder:
                self._insist(name, key, data)
        except BaseException:
            self.release(name)
            raise
        return name

    def _insist(self, name: str, key: str, data: bytes) -> None:
        interrupt: Optional[BaseException] = None
        for _ in range(_INSIST):
            try:
                self._write(name, data)
                self._memory.pop(name, None)
                break
            except Exception as e:
                _log.error("flightd: the report of %s could not be kept on disk: %s", key, e)
                break
            except BaseException as e:
                interrupt = e
        if interrupt is not None:
            raise interrupt

    def _write(self, name: str, data: bytes) -> None:
        """Makes the file appear whole or not at all."""
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
            _sync(folder)  # makes the name durable
        finally:
            os.close(folder)

    def claim(self, name: str) -> Optional[Dict[str, str]]:
        """Reads a report, unless another thread deals with it. What is damaged is put aside; what cannot be read now, or not
        by this version, stays as it is."""
        with self._lock:
            if name in self._busy:
                return None
            self._busy.add(name)
        if name in self._memory:
            return self._memory[name]
        try:
            with open(os.path.join(self.folder, name), "rb") as f:
                data = f.read()
            if data[:3] == self.MAGIC[:3] and self.MAGIC[3:] < data[3:4] <= b"9":
                raise OSError("a later version of flightd has written it; who has that one delivers it")
            if data[:4] != self.MAGIC or data[4:8] != struct.pack(">I", _crc32c(data[8:])):
                raise ValueError("a report in the spool does not have its checksum")
            entry = json.loads(data[8:])
            return {k: str(entry[k]) for k in ("deployment", "key", "report")}
        except FileNotFoundError:  # another process was faster
            self.release(name)
        except OSError as e:
            if name not in self._told:
                self._told.add(name)
                _log.error("flightd: a report cannot be read now, and stays where it is: %s: %s",
                           os.path.join(self.folder, name), e)
            self.release(name)
        except (ValueError, KeyError, TypeError) as e:
            self._rename(name, ".damaged", e)
        return None

    def release(self, name: str) -> None:
        with self._lock:
            self._busy.discard(name)

    def drop(self, name: str) -> None:
        """Removes a report that was taken. If the process dies before it, it is sent once more, which is harmless."""
        if self._memory.pop(name, None) is None:
            with contextlib.suppress(OSError):
                os.remove(os.path.join(self.folder, name))
        self.release(name)

    def place(self, name: str) -> str:
        """Says where a report waits."""
        if name in self._memory:
            return "its report is not on disk, and is lost with this process"
        return f"its report waits in {self.folder} and is sent on"

    def put_aside(self, name: str, why: Exception) -> str:
        """Keeps a report that no server will ever take, for a person to look at, and says where."""
        lost = self._memory.pop(name, None)
        if lost is None:
            return self._rename(name, ".refused", why)
        _log.error("flightd: a report was refused, and the disk did not take it: %s: %s", lost["key"], why)
        self.release(name)
        return "its report was refused, and is not on disk"

    def _rename(self, name: str, suffix: str, why: Exception) -> str:
        path = os.path.join(self.folder, name)
        with contextlib.suppress(OSError):
            os.replace(path, path + suffix)
        _log.error("flightd: a report is put aside; a person must look at it: %s: %s", path + suffix, why)
        self.release(name)
        return path + suffix


def _sync(fd: int) -> None:
    """Waits until the disk has what was written. fsync alone stops at the disk's own cache on macOS."""
    full = getattr(_fcntl, "F_FULLFSYNC", None)
    if full is not None:
        with contextlib.suppress(OSError):  # not every file system can
            _fcntl.fcntl(fd, full)
            return
    os.fsync(fd)


def _crc32c(data: bytes) -> int:
    """CRC-32 with Castagnoli's polynomial, which zlib does not have."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def _crc_row(n: int) -> int:
    for _ in range(8):
        n = (n >> 1) ^ (0x82F63B78 if n & 1 else 0)
    return n


_CRC = [_crc_row(n) for n in range(256)]


# --- the short way ---------------------------------------------------------------------------------------------------

_default: Optional[Client] = None
_default_lock = threading.Lock()
_clients: "weakref.WeakSet[Client]" = weakref.WeakSet()


def _forked() -> None:
    global _default_lock
    _default_lock = threading.Lock()
    for client in list(_clients):
        client._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


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
    """``Client.once`` with a client that the environment sets up, made at the first call."""
    return _default_client().once(
        name, id, input, recovery=recovery, look_up=look_up, attempt_timeout=attempt_timeout, settle=settle,
        provider_window=provider_window, retention=retention, wait=wait, key_decides=key_decides)
