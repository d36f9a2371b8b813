/** What is TypeScript's own about the client, against the server that FLIGHTD_ADDR names. Run with node --test. */

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { mkdir, mkdtemp, open, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import { syncBuiltinESMExports } from "node:module";
import type { AddressInfo } from "node:net";
import os, { tmpdir } from "node:os";
import path from "node:path";
import { after, before, beforeEach, test, type TestContext } from "node:test";
import {
  Busy, Client, Failed, FlightdError, InDoubt, LeaseLost, NotDone, Unavailable, Unrecorded, once, type ClientOptions, type Flight,
  type OnceOptions, type Result,
} from "./flightd.js";

let spool: string;
let id: string;
let client: Client;

before(async () => {
  spool = await mkdtemp(path.join(tmpdir(), "flightd-"));
  client = new Client(undefined, { spool });
});
beforeEach(() => { id = randomUUID(); });
after(async () => {
  client.close();
  await rm(spool, { recursive: true });
});

const run = (value: unknown, options?: OnceOptions): Promise<Result<unknown>> =>
  client.once("test", id, undefined, (f) => f.effect(() => value), options);

test("results come back as everybody gets them", async () => {
  const rows: [unknown, unknown][] = [
    [{ a: [1, 2.5], u: undefined, d: new Date(0) }, { a: [1, 2.5], d: "1970-01-01T00:00:00.000Z" }],
    ["é\u2028", "é\u2028"], [0, 0], [null, null], [undefined, undefined], [new Uint8Array([0, 255]), new Uint8Array([0, 255])],
  ];
  for (const [value, want] of rows) {
    id = randomUUID();
    const first = await run(value);
    const again = await run("something else");
    assert.deepEqual([first.source, again.source], ["executed", "replayed"]);
    assert.deepEqual(first.value, want);
    assert.deepEqual(again.value, want);
    assert.deepEqual(await first.body(), await again.body());
  }
});

test("an effect that happened is no error because of its result", async () => {
  const circular: { self?: unknown } = {};
  circular.self = circular;
  for (const value of [circular, 1n, () => 1, Symbol("s"), "\ud800"]) {
    id = randomUUID();
    assert.equal((await run(value)).source, "executed");
    assert.equal((await run(1)).receipt.outcome, "succeeded");
  }
});

test("a long result is whole for whoever executed it", async () => {
  const first = await run("x".repeat(100_000));
  const again = await run(1);
  assert.equal((first.value as string).length, 100_000);
  assert.equal(again.receipt.truncated, true);
  assert.equal(again.receipt.size, 100_002);
  assert.equal((again.value as Uint8Array).length, 64 << 10);
  assert.equal(first.receipt.digest, again.receipt.digest);
});

test("texts that cannot travel never keep a report away", async () => {
  const done = await client.once("test", id, 1, (f) => f.effect(() => { f.externalId = "id \ud800" + "y".repeat(3000); }));
  assert.equal(done.source, "executed");
  id += "-error";
  await assert.rejects(client.once("test", id, 1, (f) => f.effect(() => { throw new Error("\ud800".repeat(5000)); })), InDoubt);
  assert.equal(await client.spooled(), 0);
});

test("what a provider calls an id, and what is thrown, never keep a report away", async () => {
  for (const odd of [42, null, { id: 1 }, Symbol("s"), Object.create(null)]) {
    id = randomUUID();
    const done = await client.once("test", id, 1, (f) => f.effect(() => { f.externalId = odd as string; return 1; }));
    assert.equal(done.source, "executed");
    if (odd === 42) assert.equal(done.receipt.externalId, "42");
  }
  for (const odd of [Object.create(null), Symbol("s"), undefined, Object.assign(new Error("x"), { name: Symbol("n") })]) {
    id = randomUUID();
    await assert.rejects(client.once("test", id, 1, (f) => f.effect(() => { throw odd; })), InDoubt);
  }
});

test("a number that JSON cannot hold is refused, not made null", async () => {
  for (const cents of [NaN, Infinity, -Infinity]) {
    await assert.rejects(client.once("test", id, { cents }, () => assert.fail("it runs")), TypeError);
  }
});

test("a report waits as long as it is told", async () => {
  const patient = new Client(undefined, { spool, reportWaitMs: Infinity, patienceMs: Infinity });
  const ask = patient.ask.bind(patient);
  const tries: number[] = [];
  patient.ask = async (method, route, body, options) => {
    if (route.endsWith("/report")) {
      tries.push(options.timeoutMs ?? 0);
      if (tries.length < 2) throw new Unavailable("away", "unreachable");
    }
    return ask(method, route, body, options);
  };
  const done = await Promise.race([patient.once("test", id, 1, (f) => f.effect(() => 1)),
    new Promise<undefined>((wake) => setTimeout(() => wake(undefined), 10_000).unref())]);
  patient.close();
  assert.equal(done?.source, "executed");
  assert.ok(Math.max(...tries) <= 15_000);
});

test("errors mean what their place says", async () => {
  const own = new RangeError("own");
  await assert.rejects(client.once("test", id, 1, () => { throw own; }), own);
  const refused = new NotDone("connection refused");
  await assert.rejects(client.once("test", id, 1, (f) => f.effect(() => { throw refused; })), refused);
  await assert.rejects(client.once("test", id, 1, (f) => f.effect(() => { throw own; })), (e) => {
    assert.ok(e instanceof InDoubt);
    assert.equal(e.code, "in_doubt");
    assert.equal(e.cause, own);
    return true;
  });
});

test("a callback without effect is a mistake that is told", async () => {
  await assert.rejects(client.once("test", id, 1, () => 1), (e) => e instanceof InDoubt && /effect\(\)/.test(String(e.cause)));
  await assert.rejects(client.once("test", id, 1, () => assert.fail("it runs")), InDoubt);
});

test("a look-up that finds nothing lets the callback run again", async () => {
  let ran = 0;
  const act = (f: Flight) => f.effect(() => {
    if (++ran === 1) throw new Error("time-out");
    return f.attempt;
  });
  const result = await client.once("test", id, 1, act,
    { recovery: "verify", lookUp: () => ({ happened: false }), settleMs: 50, attemptTimeoutMs: 5000 });
  assert.equal(ran, 2);
  assert.equal(result.value, 2);
});

test("the first input stands where the key decides", async () => {
  const options = { keyDecides: true };
  await assert.rejects(client.once("test", id, { text: "first" }, () => { throw new NotDone("later"); }, options), NotDone);
  const result = await client.once("test", id, { text: "second" }, (f) => f.effect(() => f.input), options);
  assert.deepEqual(result.value, { text: "first" });
});

test("the signal ends by the attempt's time-out", async () => {
  const act = (f: Flight) => new Promise<never>((_, reject) => {
    f.signal.addEventListener("abort", () => reject(new NotDone(String(f.signal.reason))));
  });
  await assert.rejects(client.once("test", id, 1, act, { attemptTimeoutMs: 50 }), /time-out/);
});

test("the signal ends by a cancellation", async () => {
  const short = new Client(undefined, { spool, ttlSeconds: 2 });
  const act = async (f: Flight) => {
    const url = `${process.env["FLIGHTD_ADDR"]}/v1/flights/${f.flightId}`;
    const etag = (await fetch(url)).headers.get("ETag") ?? "";
    const headers = { "Content-Type": "application/json", "If-Match": etag };
    await fetch(url + "/cancel", { method: "POST", headers, body: JSON.stringify({ reason: "test", as: "test" }) });
    await new Promise((wake) => f.signal.addEventListener("abort", wake));
    throw new NotDone("cancelled");
  };
  await assert.rejects(short.once("test", id, 1, act), Failed);
});

test("the caller's signal ends its wait, and leaves no doubt", async () => {
  const act = (f: Flight) => f.effect(async () => {
    await assert.rejects(run(2, { signal: AbortSignal.timeout(50) }), { name: "TimeoutError" });
    await assert.rejects(run(2, { waitMs: 50 }), Busy);
    return 1;
  });
  assert.equal((await client.once("test", id, undefined, act)).value, 1);
});

test("what cannot be is refused before anything is sent", async () => {
  assert.throws(() => new Client("ftp://x"), TypeError);
  assert.throws(() => new Client(" , "), TypeError);
  assert.throws(() => new Client(undefined, { patienceMs: 0 }), RangeError);
  assert.throws(() => new Client("localhost:x"), TypeError);
  for (const namespace of ["a b", "é"]) assert.throws(() => new Client(undefined, { namespace }), TypeError);
  await assert.rejects(run(1, { waitMs: NaN }), TypeError);
  await assert.rejects(run(1, { recovery: "verify" }), TypeError);
  await assert.rejects(client.once("test", id, { big: 1n }, () => assert.fail("it runs")), TypeError);
  await assert.rejects(client.once("test", "a b", 1, () => 1), (e) => e instanceof FlightdError && e.code === "idempotency_key_invalid");
});

test("damaged reports are put aside", async () => {
  const folder = await mkdtemp(path.join(spool, "damaged-"));
  await writeFile(path.join(folder, "x.report"), "FDC1 and more");
  const said: string[] = [];
  const other = new Client(undefined, { spool: folder, log: (m) => said.push(m) });
  await other.once("test", id, 1, (f) => f.effect(() => 1));
  while (said.length === 0) await new Promise((wake) => setImmediate(wake));
  assert.deepEqual(await readdir(folder), ["x.report.damaged"]);
});

test("what cannot be read stays and is told of once", async () => {
  const folder = await mkdtemp(path.join(spool, "later-"));
  await writeFile(path.join(folder, "x.report"), "FDC2 and more");
  const said: string[] = [];
  const other = new Client(undefined, { spool: folder, log: (m) => said.push(m) });
  await other.once("test", id, 1, (f) => f.effect(() => 1));
  while (said.length === 0) await new Promise((wake) => setImmediate(wake));
  other.close();
  assert.match(said.join(), /a later version.*/);
  assert.deepEqual(await readdir(folder), ["x.report"]);
});

test("a look-up is told when its time is over, and starts nothing", async () => {
  let acted: unknown;
  const lookUp = async (f: Flight): Promise<{ happened: true; value: number }> => {
    acted = await f.effect(() => 1).catch((e: unknown) => e);
    await new Promise((wake) => f.signal.addEventListener("abort", wake));
    return { happened: true, value: 1 };
  };
  const act = (f: Flight) => f.effect(() => { throw new Error("time-out"); });
  const result = await client.once<unknown>("test", id, 1, act, { recovery: "verify", lookUp, settleMs: 50, attemptTimeoutMs: 200 });
  assert.equal(result.value, 1);
  assert.ok(acted instanceof LeaseLost);
});

test("the word of one flight is not that of the one around it", async () => {
  const inner = () => client.once("test", id + "-inner", 1, (f) => f.effect(() => { throw new NotDone("later"); }));
  await assert.rejects(client.once("test", id, 1, (f) => f.effect(inner)), InDoubt); // what was not done is the inner effect
  id += "-again";
  const own = new NotDone("one object, thrown by one flight after the other");
  for (let i = 0; i < 2; i++) await assert.rejects(client.once("test", id, undefined, (f) => f.effect(() => { throw own; })), own);
  assert.equal((await run(1)).source, "executed");
});

test("one effect that was not done says nothing of another", async () => {
  const later = () => { throw new NotDone("later"); };
  await assert.rejects(client.once("test", id, undefined, async (f) => { await f.effect(() => 1); await f.effect(later); }), InDoubt);
  id += "-beside";
  let end = (): void => undefined;
  const other = new Promise<void>((wake) => { end = wake; });
  await assert.rejects(client.once("test", id, undefined, (f) => Promise.all([f.effect(() => other), f.effect(later)])), InDoubt);
  end();
  id += "-tried-again";
  const twice = async (f: Flight) => { await f.effect(later).catch(() => undefined); await f.effect(later); };
  await assert.rejects(client.once("test", id, undefined, twice), NotDone);
  const below = async (f: Flight) => { await f.effect(() => 1); later(); }; // it is about all that was sent
  await assert.rejects(client.once("test", id, undefined, below), NotDone);
  assert.equal((await run(1)).source, "executed");
});

test("an effect that nobody waits for is of unknown outcome, and that is told", async () => {
  const forgets = (f: Flight) => {
    void f.effect(() => new Promise((_, reject) => f.signal.addEventListener("abort", () => reject(new Error("stopped")))));
  };
  await assert.rejects(client.once("test", id, undefined, forgets), (e) => e instanceof InDoubt && /await/.test(String(e.cause)));
  await assert.rejects(run(1), InDoubt);
});

test("what a callback leaves running is told to stop", async () => {
  let signal: AbortSignal | undefined;
  const impatient = (f: Flight) => {
    signal = f.signal;
    const slow = f.effect(() => new Promise((_, reject) => f.signal.addEventListener("abort", () => reject(f.signal.reason))));
    return Promise.race([slow, Promise.reject(new Error("too slow"))]);
  };
  await assert.rejects(client.once("test", id, 1, impatient), (e) => e instanceof InDoubt && /too slow/.test(String(e.cause)));
  assert.equal(signal?.aborted, true);
  id += "-well";
  await client.once("test", id, 1, (f) => { signal = f.signal; return f.effect(() => 1); });
  assert.equal(signal?.aborted, false);
});

test("an attempt whose time is over starts nothing, also where the event loop was blocked", async () => {
  const act = (f: Flight) => {
    for (const until = performance.now() + 60; performance.now() < until;);
    return f.effect(() => assert.fail("it runs"));
  };
  await assert.rejects(client.once("test", id, undefined, act, { attemptTimeoutMs: 20 }), LeaseLost);
  assert.equal((await run(1)).source, "executed");
});

test("nothing is given back where nothing was asked", async () => {
  const other = new Client(undefined, { spool: "" });
  const asked: string[] = [];
  other.ask = async (_, route) => {
    asked.push(route);
    if (route === "/version") return { json: { version: "1" }, sent: { mono: 0, wall: 0 } };
    throw new Busy("somebody is at it", "idempotency_in_flight", { retry_after_ms: 5000 });
  };
  const act = () => assert.fail("it runs");
  await assert.rejects(other.once("test", id, 1, act, { signal: AbortSignal.abort() }), { name: "AbortError" });
  const controller = new AbortController();
  const waits = other.once("test", id, 1, act, { signal: controller.signal });
  while (!asked.includes("/v1/flights:open")) await new Promise((wake) => setImmediate(wake));
  await new Promise((wake) => setImmediate(wake)); // it has its answer, and rests
  controller.abort();
  await assert.rejects(waits, { name: "AbortError" });
  assert.deepEqual(asked, ["/version", "/v1/flights:open"]);
});

/** Starts a server of the test's own and gives its address. */
async function listen(t: TestContext, server: Server): Promise<string> {
  await new Promise<void>((wake) => server.listen(0, "127.0.0.1", wake));
  t.after(() => new Promise((wake) => { server.close(wake); server.closeAllConnections(); }));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

test("an open that was given up is settled, whatever becomes of it", async () => {
  for (const [decision, settled] of [["proceed", "/v1/flights/fl_1/report"], ["verify", "/v1/sessions/s_1/close"]] as const) {
    const other = new Client(undefined, { spool: "" });
    let opens = 0;
    const givenBack = new Promise<void>((wake) => {
      other.ask = async (_, route, body) => {
        const sent = { mono: 0, wall: 0 };
        if (route === settled) wake();
        if (route !== "/v1/flights:open") return { json: { version: "1", state: "queued" }, sent };
        if (++opens === 1) throw new Error("given up");
        // The server is still at the first one, and others are, too.
        if (typeof body !== "object" || !body["wait_ms"] || opens === 2) throw new Busy("it is not known yet", "idempotency_in_flight");
        return { json: { decision, flight_id: "fl_1", fencing_token: "t", session: "s_1", probe: "p" }, sent };
      };
    });
    await assert.rejects(other.once("test", id, 1, () => assert.fail("it runs")), /given up/);
    await givenBack;
  }
});

test("the reason of a signal is no answer to what was on its way", async () => {
  const other = new Client(undefined, { spool: "" });
  const controller = new AbortController();
  const asked: string[] = [];
  const reason = new LeaseLost("the lease of the flight around it is lost", "lease_lost"); // as f.signal has it there
  const settled = new Promise<void>((wake) => {
    other.ask = async (_, route) => {
      asked.push(route);
      if (route.endsWith("/report")) wake();
      if (asked.filter((r) => r === "/v1/flights:open").length === 1) {
        controller.abort(reason);
        throw reason;
      }
      return { json: { version: "1", state: "queued", decision: "proceed", flight_id: "fl_1", session: "s" }, sent: { mono: 0, wall: 0 } };
    };
  });
  await assert.rejects(other.once("test", id, 1, () => assert.fail("it runs"), { signal: controller.signal }), reason);
  await Promise.race([settled, new Promise((_, reject) => setTimeout(() => reject(new Error(asked.join())), 10_000).unref())]);
});

test("the caller's signal ends its wait for a server, too", async (t) => {
  const silent = createServer(() => undefined);
  const other = new Client(await listen(t, silent), { spool: "", patienceMs: 100 });
  const controller = new AbortController();
  const waits = other.once("test", id, 1, () => assert.fail("it runs"), { signal: controller.signal });
  controller.abort(new Error("enough"));
  await assert.rejects(waits, /enough/);
});

/** A client whose reports go wrong. */
function withoutReports(options: ClientOptions, error: FlightdError): Client {
  const other = new Client(undefined, { reportWaitMs: 50, log: () => undefined, ...options });
  const ask = other.ask.bind(other);
  other.ask = async (method, route, body, o) => {
    if (route.endsWith("/report")) throw error;
    return ask(method, route, body, o);
  };
  return other;
}

test("a report that is not on disk is told of, and leaves nothing half-written", async (t) => {
  const away = new Unavailable("away", "unreachable");
  for (const where of ["", path.join(spool, "full")]) {
    id = randomUUID();
    if (where) {
      await mkdir(where);
      const file = await open(path.join(spool, "any"), "w");
      t.mock.method(Object.getPrototypeOf(file), "sync", () => Promise.reject(new Error("ENOSPC: no space left on device")));
      await file.close();
    }
    const other = withoutReports({ spool: where }, away);
    t.after(() => other.close());
    await assert.rejects(other.once("test", id, 1, (f) => f.effect(() => 1)), (e) => e instanceof Unrecorded && /not on disk/.test(e.message));
    if (where) assert.deepEqual(await readdir(where), []);
  }
});

test("a report that is refused for ever does not wait", async () => {
  const folder = await mkdtemp(path.join(spool, "refused-"));
  const other = withoutReports({ spool: folder }, new FlightdError("no", "input_invalid", { retryable: false }));
  await assert.rejects(other.once("test", id, 1, (f) => f.effect(() => 1)), /a person must look.*\.refused/);
  assert.deepEqual((await readdir(folder)).map((n) => n.slice(33)), ["report.refused"]);
});

test("a machine that was asleep starts nothing", async (t) => {
  const uptime = os.uptime();
  let asleep = 0; // the monotonic clock has stood still meanwhile, and the wall clock was set back
  const clock = t.mock.method(os, "uptime", () => uptime + asleep);
  syncBuiltinESMExports();
  try {
    await assert.rejects(client.once("test", id, undefined, (f) => {
      asleep = 3600;
      return f.effect(() => assert.fail("it runs"));
    }), LeaseLost);
    assert.equal((await run(1)).source, "executed");
  } finally {
    clock.mock.restore();
    syncBuiltinESMExports();
  }
});

test("a log that fails keeps no report away", async (t) => {
  for (const log of [() => { throw new Error("the log is full"); }, async () => { throw new Error("the log is full"); }]) {
    id = randomUUID();
    const file = await open(path.join(spool, "any"), "w");
    const full = t.mock.method(Object.getPrototypeOf(file), "sync", () => Promise.reject(new Error("ENOSPC: no space left on device")));
    await file.close();
    const other = withoutReports({ spool: await mkdtemp(path.join(spool, "log-")), log }, new Unavailable("away", "unreachable"));
    await assert.rejects(other.once("test", id, 1, (f) => f.effect(() => 1)), (e) => e instanceof Unrecorded && /not on disk/.test(e.message));
    full.mock.restore();
    other.close();
  }
});

test("what is on no disk is brought by close", async () => {
  let away = true;
  const other = new Client(undefined, { spool: "", reportWaitMs: 50, log: () => undefined });
  const ask = other.ask.bind(other);
  other.ask = async (method, route, body, o) => {
    if (away && route.endsWith("/report")) throw new Unavailable("away", "unreachable");
    return ask(method, route, body, o);
  };
  await assert.rejects(other.once("test", id, undefined, (f) => f.effect(() => 1)), Unrecorded);
  away = false;
  other.close();
  assert.equal((await run(2)).value, 1);
});

test("the spool stays where it was named", async () => {
  const here = process.cwd();
  const [named, elsewhere] = [await mkdtemp(path.join(spool, "named-")), await mkdtemp(path.join(spool, "elsewhere-"))];
  process.chdir(named);
  const other = withoutReports({ spool: "reports" }, new Unavailable("away", "unreachable"));
  process.chdir(elsewhere);
  try {
    await assert.rejects(other.once("test", id, 1, (f) => f.effect(() => 1)), Unrecorded);
  } finally {
    process.chdir(here);
    other.close();
  }
  assert.deepEqual(await readdir(elsewhere), []);
  assert.equal((await readdir(path.join(named, "reports"))).length, 1);
});

test("a file that is none of ours keeps no report waiting", async () => {
  const folder = await mkdtemp(path.join(spool, "odd-"));
  for (const [name, text] of [["0", "null"], ["1", '{"deployment":"d","key":1,"report":"e30="}'], ["2", '{"deployment":"d"}']] as const) {
    const data = Buffer.from(text);
    let crc = ~0;
    for (const byte of data) {
      crc ^= byte;
      for (let i = 0; i < 8; i++) crc = (crc >>> 1) ^ (crc & 1 ? 0x82f63b78 : 0);
    }
    const head = Buffer.from("FDC1\0\0\0\0");
    head.writeUInt32BE(~crc >>> 0, 4);
    await writeFile(path.join(folder, `${name}.report`), Buffer.concat([head, data]));
  }
  const said: string[] = [];
  const other = new Client(undefined, { spool: folder, log: (m) => said.push(m) });
  await other.once("test", id, 1, (f) => f.effect(() => 1));
  while (said.length < 3) await new Promise((wake) => setImmediate(wake));
  other.close();
  assert.deepEqual(await readdir(folder), ["0.report.damaged", "1.report.damaged", "2.report.damaged"]);
});

test("a report is its deployment's", async () => {
  const folder = await mkdtemp(path.join(spool, "moved-"));
  const other = withoutReports({ spool: folder }, new FlightdError("no", "input_invalid", { retryable: false }));
  const ask = other.ask.bind(other);
  let now = "old";
  other.ask = async (method, route, body, o) => {
    if (route === "/version") return { json: { version: "1", deployment: now }, sent: { mono: 0, wall: 0 } };
    const answer = await ask(method, route, body, o);
    if (route.endsWith(":open")) answer.json["deployment"] = now;
    return answer;
  };
  await other.connect();
  now = "new";
  await assert.rejects(other.once("test", id, 1, (f) => f.effect(() => { now = "newest"; })), Unrecorded);
  other.close();
  const names = await readdir(folder);
  assert.deepEqual(names.map((n) => n.slice(33)), ["report"]); // who has refused it is another one
  const text = (await readFile(path.join(folder, names[0] ?? ""))).subarray(8).toString();
  assert.equal(JSON.parse(text).deployment, "new"); // that let it act
  id += "-2";
  await assert.rejects(other.once("test", id, 1, (f) => f.effect(() => 1)), /a person must look/);
});

test("a refusal about another flight is none", async (t) => {
  const other = "fl_aaaaaaaaaaaaaaaaaaaaaaaaaa";
  for (const problem of [{ code: "fenced", flight_id: other }, { code: "in_doubt", flight_id: other },
    { code: "flight_failed", flight: { id: other, state: "failed" } }]) {
    const server = createServer((request, response) => {
      if (request.url === "/version") response.end('{"version":"1"}');
      else response.writeHead(409).end(JSON.stringify({ ...problem, retryable: false }));
    });
    const asks = new Client(await listen(t, server), { spool: "" });
    for (const [route, about] of [["/v1/flights/fl_own/report", undefined], ["/v1/flights:open", "fl_own"]] as const) {
      const o = { has: "state", tries: 1, ...(about ? { about } : {}) };
      await assert.rejects(asks.ask("POST", route, {}, o), (e) => e instanceof Unavailable && e.unsure && /another flight/.test(e.message));
    }
  }
});

/** A client whose server sends to look, and takes verdicts and renewals. */
function looking(): { client: Client; asked: [string, unknown][] } {
  const asked: [string, unknown][] = [];
  const looks = new Client(undefined, { spool: "", log: () => undefined });
  looks.ask = async (_, route, body) => {
    asked.push([route, body]);
    const sent = { mono: performance.now(), wall: Date.now() };
    if (route.endsWith("/verdict")) throw new InDoubt("held", "in_doubt");
    return { json: { decision: "verify", flight_id: "fl_1", session: "s", probe: "p", trust_ms: 9000, renew_every_ms: 1000, version: "1" }, sent };
  };
  return { client: looks, asked };
}

const turn = (): Promise<void> => new Promise((wake) => setImmediate(wake));

test("a look-up is renewed for its time and a little longer", async (t) => {
  for (const [attemptTimeoutMs, bound] of [[5000, 5], [undefined, 30]] as const) {
    t.mock.timers.enable({ apis: ["setTimeout"] });
    const { client: looks, asked } = looking();
    const count = (end: string) => asked.filter(([route]) => route.endsWith(end)).length;
    const ended = looks.once("test", id, 1, () => assert.fail("it runs"),
      { recovery: "verify", lookUp: () => new Promise(() => undefined), ...(attemptTimeoutMs ? { attemptTimeoutMs } : {}) })
      .catch((e: unknown) => e);
    while (count(":open") === 0) await turn();
    await turn();
    for (let second = 0; second < bound + 14; second++) {
      t.mock.timers.tick(1000);
      await turn();
    }
    assert.deepEqual([count("/renew"), count("/verdict")], [bound + 14, 0]);
    t.mock.timers.tick(1000);
    assert.ok(await ended instanceof InDoubt);
    const renewed = count("/renew");
    for (let second = 0; second < 10; second++) {
      t.mock.timers.tick(1000);
      await turn();
    }
    assert.deepEqual([count("/renew"), count("/verdict")], [renewed, 1]);
    assert.equal((asked.find(([route]) => route.endsWith("/verdict"))?.[1] as { result: string }).result, "unknown");
    t.mock.timers.reset();
  }
});

test("a look-up with more time than a timer can wait for is not given up at once", async () => {
  const { client: looks, asked } = looking();
  const lookUp = async (): Promise<{ happened: true }> => {
    await new Promise((wake) => setTimeout(wake, 20)); // one that is over after a millisecond comes before it
    return { happened: true };
  };
  await assert.rejects(looks.once("test", id, 1, () => assert.fail("it runs"),
    { recovery: "verify", lookUp, attemptTimeoutMs: 30 * 24 * 3_600_000 }), InDoubt);
  assert.equal((asked.find(([route]) => route.endsWith("/verdict"))?.[1] as { result: string }).result, "happened");
});

test("errors say what to do", async (t) => {
  const act = () => assert.fail("it runs");
  const page = createServer((_, response) => response.writeHead(404).end("<html/>"));
  const address = await listen(t, page);
  const nobody = new Client("http://127.0.0.1:2, http://127.0.0.1:3", { spool: "", patienceMs: 10 });
  await assert.rejects(nobody.once("test", id, 1, act), (e) => e instanceof Unavailable &&
    /http:\/\/127.0.0.1:[23].*flightd dev.*FLIGHTD_ADDR/.test(e.message));
  await assert.rejects(new Client(address, { spool: "", patienceMs: 10 }).once("test", id, 1, act),
    (e) => e instanceof FlightdError && e.code === "internal" && new RegExp(`not flightd.*${address}.*FLIGHTD_ADDR`).test(e.message));
});

test("the environment says where", async () => {
  process.env["FLIGHTD_NAMESPACE"] = "billing";
  process.env["XDG_STATE_HOME"] = spool;
  assert.equal((await once("test", id, 1, (f) => f.effect(() => f.key))).value, `billing/test/${id}`);
});
