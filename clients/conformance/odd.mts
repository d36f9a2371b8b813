/** The odd values of the TypeScript client: see values_test.go. */

import { FlightdError, ok, type Client } from "../typescript/flightd.js";

const cycle: unknown[] = [];
cycle.push(cycle);
class Card { number = "4242"; until = new Date(Date.UTC(2026, 0, 2)); }

const VALUES: Record<string, unknown> = {
  "NaN": NaN, "Infinity": Infinity, "-Infinity": -Infinity, "2^53+1": 2n ** 53n + 1n, "2^64": 2n ** 64n, "1.0": 1.0, "0.1+0.2": 0.1 + 0.2,
  "empty text": "", "empty list": [], "empty object": {}, "null": null, "null in a list": [null],
  "dataclass": new Card(), "date with zone": new Date(Date.UTC(2026, 0, 2, 3, 4, 5)), "date without zone": new Date(NaN),
  "bytes": new Uint8Array([0, 255]), "byte order mark": "\ufeffx", "NFC": "\u00e9", "NFD": "e\u0301", "half a surrogate": "\ud800x",
  "map": new Map([["a", 1n]]), "map with numbers": new Map([[1, "a"]]), "set": new Set([1]), "cycle": cycle, "function": () => 1, "undefined in a list": [undefined], "error": new Error("x"),
};
const NAMES: Record<string, any> = {
  "empty": "", "null": null, "undefined": undefined, "zero": 0, "number": 42, "byte order mark": "\ufeffx", "NFC": "\u00e9", "NFD": "e\u0301",
  "half a surrogate": "\ud800", "long": "x".repeat(256), "space": "a b", "bytes": new Uint8Array([120]),
};
const DURATIONS: Record<string, any> = {
  "NaN": NaN, "Infinity": Infinity, "negative": -1, "a tenth of a millisecond": 0.1, "millisecond": 1, "400 days": "400d", "1e300": 1e300, "text": "soon", "zero": 0,
};

export interface OddCall { name: string; id: string; effect: string; odd: string; entrance: string }

export async function answerOdd(client: Client, { name, id, odd, entrance, effect }: OddCall): Promise<object> {
  switch (entrance) {
    case "work": {
      const worker = client.worker();
      worker.on<{ odd: string }>(name, {}, (input) => ({ v: VALUES[input.odd] }));
      void worker.run();
      break;
    }
    case "call":
      await client.once(name, id, { v: VALUES[odd] }, (f) => f.effect(() => 1));
      break;
    case "submit":
      await client.submit(name, id, { v: VALUES[odd] });
      break;
    case "result": {
      const own = { v: VALUES[odd] };
      const first = await client.once(name, id, undefined, (f) => f.effect(() => { f.externalId = "ch_1"; return own; }));
      const kept = first.value === own ? "kept" : "lost";
      try {
        await client.once(name, id, undefined, () => { throw new Error("a second effect"); });
        return { source: `${kept} replayed` };
      } catch (e) {
        return { source: `${kept} ${e instanceof FlightdError ? e.code : e}` };
      }
    }
    case "provider":
      await client.once(name, id, undefined, (f) => f.effect(async () => ok(await fetch(effect, { method: "POST", body: "{}" }))));
      break;
    case "action":
      return { source: (await client.submit(NAMES[odd], id)).key };
    case "id":
      return { source: (await client.submit(name, NAMES[odd])).key };
    case "lane":
      return { source: (await client.submit(name, id, undefined, { lane: NAMES[odd] })).key };
    default:
      await client.submit(name, id, undefined, { [entrance]: DURATIONS[odd], ...(entrance === "window" ? { recovery: "resend" } : {}) });
  }
  return { source: "accepted" };
}
