"""The odd values of the Python client: see values_test.go."""

import collections
import dataclasses
import datetime
import decimal
import enum
import threading
import uuid

import flightd


class Colour(str, enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


@dataclasses.dataclass
class Card:
    number: str
    until: datetime.date


CYCLE = []
CYCLE.append(CYCLE)
UTC = datetime.timezone.utc
VALUES = {
    "NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf"), "2^53+1": 2 ** 53 + 1, "2^64": 2 ** 64, "1.0": 1.0, "0.1+0.2": 0.1 + 0.2,
    "empty text": "", "empty list": [], "empty object": {}, "null": None, "null in a list": [None],
    "enum": Colour.RED, "enum of numbers": Level.HIGH, "dataclass": Card("4242", datetime.date(2026, 1, 2)), "named tuple": collections.namedtuple("P", "x y")(1, 2),
    "date with zone": datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "date without zone": datetime.datetime(2026, 1, 2, 3, 4, 5), "day": datetime.date(2026, 1, 2),
    "uuid": uuid.UUID(int=1), "decimal": decimal.Decimal("19.10"), "decimal NaN": decimal.Decimal("NaN"), "bytes": b"\x00\xff",
    "byte order mark": "\ufeffx", "NFC": "\u00e9", "NFD": "e\u0301", "half a surrogate": "\ud800x", "map with numbers": {1: "a"}, "map of mixed keys": {1: "a", "1": "b"},
    "set": {1}, "cycle": CYCLE, "function": len,
}
NAMES = {
    "empty": "", "null": None, "zero": 0, "number": 42, "enum": Colour.RED, "uuid": uuid.UUID(int=1), "byte order mark": "\ufeffx", "NFC": "\u00e9", "NFD": "e\u0301",
    "half a surrogate": "\ud800", "long": "x" * 256, "space": "a b", "bytes": b"x",
}
DURATIONS = {"NaN": float("nan"), "Infinity": float("inf"), "negative": -1, "a tenth of a millisecond": 0.0001, "millisecond": 0.001, "400 days": "400d", "1e300": 1e300,
             "text": "soon", "zero": 0, "null": None}


def answer(client, call):
    odd, action, id = call.get("odd"), call["name"], call["id"]
    if call["entrance"] == "work":
        @client.worker(action)
        def act(job, input):
            return {"v": VALUES[input["odd"]]}
        threading.Thread(target=client.run, daemon=True).start()
    elif call["entrance"] == "call":
        with client.once(action, id, {"v": VALUES[odd]}) as f, f.effect():
            f.result = 1
    elif call["entrance"] == "submit":
        client.submit(action, id, {"v": VALUES[odd]})
    elif call["entrance"] == "result":
        own = {"v": VALUES[odd]}
        with client.once(action, id) as f, f.effect():
            f.result, f.external_id = own, "ch_1"
        kept = "kept" if f.result is own else "lost"
        try:
            with client.once(action, id) as f, f.effect():
                raise AssertionError("a second effect")
            return {"source": kept + " replayed"}
        except flightd.Error as e:
            return {"source": f"{kept} {e.code}"}
    elif call["entrance"] == "provider":
        import urllib.request
        with client.once(action, id) as f, f.effect():
            f.result = flightd.ok(urllib.request.urlopen(urllib.request.Request(call["effect"], data=b"{}"), timeout=60))
    elif call["entrance"] in ("action", "id", "lane"):
        names = {"action": action, "id": id}
        if call["entrance"] == "lane":
            return {"source": client.submit(action, id, lane=NAMES[odd]).key}
        return {"source": client.submit(*{**names, call["entrance"]: NAMES[odd]}.values()).key}
    else:
        client.submit(action, id, **{call["entrance"]: DURATIONS[odd]}, **({"recovery": "resend"} if call["entrance"] == "window" else {}))
    return {"source": "accepted"}
