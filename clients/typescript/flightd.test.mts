/** Tests of the TypeScript client against the server at FLIGHTD_ADDR. Run with node --test. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createHash, randomUUID } from "node:crypto";
import { mkdir, mkdtemp, open, readFile, readdir, rm, utimes, writeFile } from "node:fs/promises";
import { createServer, request, type Server } from "node:http";
import { createServer as createSecureServer } from "node:https";
import { syncBuiltinESMExports } from "node:module";
import type { AddressInfo } from "node:net";
import os, { tmpdir } from "node:os";
import path from "node:path";
import { after, before, beforeEach, test, type TestContext } from "node:test";
import { inspect } from "node:util";
import {
  Busy, Client, Conflict, Declined, Expired, Failed, Fenced, FlightdError, InDoubt, LeaseLost, NOT_DONE_STATUSES, NotDone, Picker, PolicyDiffers, ReceiptTruncated, Refused,
  Unapproved, Unavailable, Unrecorded, Unsettled, httpStatus, listedActionFor, isFinal, isUnproposed, ok, once, reportResultOf, throwForStatus, tryOrder, type ClientOptions, type Exchange, type Flight,
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

test("the executor keeps its result, and duplicates get its JSON", async () => {
  const rows: [unknown, unknown][] = [
    [{ a: [1, 2.5], u: undefined, d: new Date(0) }, { a: [1, 2.5], d: "1970-01-01T00:00:00.000Z" }],
    ["é\u2028", "é\u2028"], [0, 0], [null, null], [undefined, undefined], [new Uint8Array([0, 255]), new Uint8Array([0, 255])], [new Uint8Array(), new Uint8Array()],
    [new Map([["a", 1n], ["b", 2n ** 63n]]), { a: 1, b: 2n ** 63n }], [new Set([1, "x"]), [1, "x"]], [2n ** 53n + 1n, 2n ** 53n + 1n],
    ["e\u0301", "e\u0301"], ["\ufeff", "\ufeff"], [-0, -0], [{ status: 201, headers: {}, config: {}, data: { id: "ch_1" }, request: {} }, { id: "ch_1" }],
  ];
  for (const [value, want] of rows) {
    id = randomUUID();
    const first = await run(value);
    const again = await run("something else");
    assert.deepEqual([first.source, again.source], ["executed", "replayed"]);
    if (typeof value === "object" && value && "config" in value) assert.deepEqual(first.value, want);
    else assert.equal(first.value, value);
    assert.deepEqual(again.value, want);
    assert.deepEqual(await first.body(), await again.body());
  }
});

test("an unwritable result does not fail the effect", async () => {
  const circular: { self?: unknown } = {};
  circular.self = circular;
  const rows: [unknown, string][] = [
    [circular, "/self: it contains itself"], [Symbol("s"), "symbol"], ["\ud800", "surrogate"], [NaN, "NaN"],
    [{ a: [Infinity] }, "/a/0: JSON cannot hold Infinity"], [{ at: new Date(NaN) }, "/at: JSON cannot hold a Date"], [[undefined], "/0: JSON cannot hold undefined"],
    [new Map([[1, 2]]), "a key of the Map"], [new Error("x"), "a Error"], [{ b: Buffer.from("x").buffer }, "/b: JSON cannot hold a ArrayBuffer"],
    [{ b: new Uint8Array([1]) }, "/b: JSON cannot hold a Uint8Array"], [{ toJSON: () => { throw new Error("no"); } }, "no"],
  ];
  const log: string[] = [];
  const logged = new Client(undefined, { spool, log: (m) => log.push(m) });
  for (const [value, why] of rows) {
    id = randomUUID();
    const first = await logged.once("test", id, undefined, (f) => f.effect(() => { f.externalId = "ch_1"; return value; }));
    assert.equal(first.value, value);
    assert.equal(first.source, "executed");
    assert.ok(log.at(-1)?.includes(why), `${log.at(-1)} has ${why}`);
    await assert.rejects(run(1), (e) => e instanceof ReceiptTruncated && e.receipt.externalId === "ch_1" && String(e.receipt.value).includes(why));
  }
  logged.close();
});

test("inputs are sent unchanged or rejected with their place", async () => {
  const sent = await client.once("test", id, new Map<string, unknown>([["n", 5n], ["at", new Date(0)]]), (f) => f.effect(() => f.input));
  assert.deepEqual(sent.value, { n: 5, at: "1970-01-01T00:00:00.000Z" });
  const rows: [unknown, RegExp][] = [
    [{ a: [NaN] }, /^input\/a\/0: JSON cannot hold NaN$/], [() => 1, /^input: JSON cannot hold function$/], [{ b: new Uint8Array(1) }, /^input\/b: JSON cannot hold a Uint8Array$/],
    [{ at: new Date(NaN) }, /^input\/at: JSON cannot hold a Date$/], ["\ud800", /^input: the text has half of a surrogate pair$/],
  ];
  for (const [value, why] of rows) {
    const want = { name: "TypeError", message: why };
    await assert.rejects(client.once("test", id, value, () => assert.fail("it runs")), want);
    await assert.rejects(client.submit("test", id, value), want);
    await assert.rejects(client.submitAll("test", [[id, value]]), want);
  }
  await assert.rejects(client.once("test", randomUUID(), { n: 2n ** 53n + 1n }, () => assert.fail("it runs")), /\/input.*9007199254740993|number/);
});

test("names, numbers and durations are checked at every entrance", async () => {
  const entrances: ((name: any, id: any) => Promise<unknown>)[] = [
    (name, id) => client.once(name, id, 1, () => assert.fail("it runs")), (name, id) => client.get(name, id), (name, id) => client.submit(name, id),
    (name, id) => client.wait(name, id), (name, id) => client.submitAll(name, [[id, 1]]),
  ];
  for (const call of entrances) {
    for (const odd of ["", undefined, null, 0, 42, true, "\ud800", {}]) {
      await assert.rejects(call("test", odd), /^TypeError: id: /);
      await assert.rejects(call(odd, "1"), /^TypeError: action: /);
    }
  }
  for (const odd of [NaN, Infinity, -Infinity, -1, 0.3, "0.1ms", "x"] as any[]) {
    for (const name of ["delay", "window", "settle", "timeout"]) await assert.rejects(client.submit("test", id, 1, { [name]: odd }), new RegExp(`^TypeError: ${name}: `));
    for (const name of ["attemptTimeoutMs", "settleMs", "providerWindowMs"]) {
      await assert.rejects(client.once("test", id, 1, () => assert.fail("it runs"), { [name]: odd }), new RegExp(`^TypeError: ${name}: `));
    }
  }
  for (const odd of [NaN, Infinity, 1.5, "1"] as any[]) {
    for (const name of ["laneLimit", "priority", "retry"]) await assert.rejects(client.submit("test", id, 1, { [name]: odd }), new RegExp(`^TypeError: ${name}: `));
    await assert.rejects(client.once("test", id, 1, () => assert.fail("it runs"), { retries: odd }), /^TypeError: retries: /);
  }
  await assert.rejects(client.once("test", id, 1, () => assert.fail("it runs"), { retries: -1 }), /^TypeError: retries: -1 is negative/);
  for (const lane of ["", 0, null] as any[]) await assert.rejects(client.submit("test", id, 1, { lane }), /^TypeError: lane: /);
  await assert.rejects(client.wait("test", id, NaN), TypeError);
});

test("the bytes of the provider are the body", async (t) => {
  const rows: [string, Buffer, unknown][] = [
    ["application/json", Buffer.from('{"id": 7615917337495251231,  "price": 19.10}'), { id: 7615917337495251231n, price: 19.1 }],
    ["application/json", Buffer.from("\ufeff[1]"), [1]], ["application/json; charset=iso-8859-1", Buffer.from('{"a": "é"}', "latin1"), { a: "é" }],
    ["application/json", Buffer.from("[1e400, -5, \"1234567890123456789\", 0.12345678901234567]"), ["1e400", -5, "1234567890123456789", 0.12345678901234567]],
    ["application/json", Buffer.from('{"a": NaN}'), new Uint8Array(Buffer.from('{"a": NaN}'))],
    ["text/plain; charset=odd", Buffer.from("x"), new Uint8Array(Buffer.from("x"))], ["application/pdf", Buffer.from([0, 255]), new Uint8Array([0, 255])],
  ];
  let row = rows[0]!;
  const url = await listen(t, createServer((_, response) => { response.writeHead(200, { "Content-Type": row[0] }).end(row[1]); }));
  for (row of rows) {
    for (const act of [() => fetch(url), async () => ok(await fetch(url, { method: "POST" }))]) {
      id = randomUUID();
      const first = await client.once<any>("test", id, undefined, (f) => f.effect(act));
      assert.deepEqual([Buffer.from(await first.body()), first.receipt.contentType], [row[1], row[0]]);
      assert.deepEqual(first.value, row[2]);
      assert.deepEqual((await run(1)).value, row[2]);
    }
  }
  row = ["text/plain; charset=latin1", Buffer.from("é", "latin1"), "é"];
  id = randomUUID();
  assert.equal((await client.once<unknown>("test", id, undefined, (f) => f.effect(async () => ok(await fetch(url))))).value, "é");
  assert.equal((await run(1)).value, "é");
  row = rows[0]!;
  id = randomUUID();
  await client.once("test", id, undefined, (f) => f.effect(async () => Object.assign(await ok<Record<string, unknown>>(await fetch(url)), { price: 2 })));
  assert.deepEqual((await run(1)).value, { id: 7615917337495251231n, price: 2 });
});

test("a long result is complete for the executor and truncated for duplicates", async () => {
  for (const [value, size, kept] of [["x".repeat(100_000), 100_002, '"' + "x".repeat(65_535)],
    [Buffer.alloc(100_000, "é"), 100_000, "é".repeat(32_768)]] as const) {
    id = randomUUID();
    const first = await client.once("test", id, undefined, (f) => f.effect(() => { f.externalId = "ch_1"; return value; }));
    assert.equal(first.value.length, 100_000);
    await assert.rejects(run(1), (e) => {
      assert.ok(e instanceof ReceiptTruncated);
      assert.deepEqual([e.code, e.receipt.value], ["receipt_truncated", new Uint8Array(Buffer.from(kept))]);
      assert.deepEqual([e.receipt.size, e.receipt.externalId, e.receipt.digest], [size, "ch_1", first.receipt.digest]);
      return true;
    });
  }
});

test("work that has not run is never a success", async () => {
  const ran: number[] = [];
  function* lazily(): Generator<number> { ran.push(1); yield 1; }
  async function* lazilyToo(): AsyncGenerator<number> { ran.push(1); yield 1; }
  const makes: (() => unknown)[] = [lazily, lazilyToo, () => lazily, () => [lazily()], () => ({ a: lazily() }), () => ({ charge: Promise.resolve(1) }),
    () => [Promise.resolve(1)], () => [lazily], () => ({ a: { b: Promise.resolve(1) } }), () => [[lazily()]], () => new Map([["a", new Set([lazilyToo()])]])];
  for (const make of makes) {
    id = randomUUID();
    await assert.rejects(run(1).then(() => client.once("test", id + "-x", 1, (f) => f.effect(() => make()))),
      (e) => e instanceof InDoubt && /may not have run/.test(String(e.cause)), String(make));
  }
  id = randomUUID();
  await assert.rejects(client.once("test", id, 1, async (f) => { await f.effect(lazily); }), InDoubt);
  id = randomUUID();
  const thenable = { then: (wake: (n: number) => void) => wake(7) };
  assert.equal((await client.once("test", id, 1, (f) => f.effect(() => thenable as PromiseLike<number> as Promise<number>))).value, 7);
  assert.deepEqual(ran, []);
  const worker = client.worker();
  const action = `act-${randomUUID()}`;
  worker.on(action, {}, () => lazily());
  await client.submit(action, "1", 5);
  const running = worker.run();
  await assert.rejects(client.wait(action, "1", 30_000), InDoubt);
  worker.stop();
  await running;
});

test("a swallowed error of an effect is no success", async () => {
  const swallow = (name: string, errors: unknown[], value?: unknown, options?: OnceOptions) => client.once("test", `${id}-${name}`, 1, async (f) => {
    for (const error of errors) await f.effect(() => { if (error) throw error; }).catch(() => undefined);
    return value;
  }, options);
  const lost = new Error("lost");
  await assert.rejects(swallow("unknown", [lost]), (e) => e instanceof InDoubt && e.cause === lost);
  await assert.rejects(swallow("null", [lost], null), InDoubt);
  const closed = new NotDone("closed");
  await assert.rejects(swallow("not-done", [closed]), closed);
  await assert.rejects(swallow("refused", [new Refused("no")]), Declined);
  assert.equal((await swallow("result", [lost], 5)).value, 5);
  assert.equal((await swallow("second", [new NotDone("closed"), undefined])).source, "executed");
  assert.equal((await swallow("resent", [lost, undefined], undefined, { recovery: "resend" })).source, "executed");
  await assert.rejects(swallow("resent-in-vain", [undefined, lost], undefined, { recovery: "resend" }), Unsettled);
});

test("a bug in a look-up", async () => {
  const lines: string[] = [];
  const own = new Client(undefined, { spool: "", log: (line) => lines.push(line) });
  const options = { recovery: "verify", settleMs: 10, waitMs: 3000 } as const;
  const lost = (f: Flight) => f.effect(() => { throw new Error("lost"); });
  const bugs: [() => any, string][] = [[() => { throw new ReferenceError("nosuchname is not defined"); }, "ReferenceError: nosuchname is not defined"],
    [() => true, "TypeError: lookUp returned another value"]];
  for (const [lookUp, text] of bugs) {
    id = randomUUID();
    lines.length = 0;
    for (let i = 0; i < 2; i++) {
      await assert.rejects(own.once("test", id, 1, lost, { ...options, lookUp }),
        (e) => e instanceof InDoubt && e.message.includes("the look-up failed: " + text), text);
    }
    assert.equal(lines.filter((line) => line.includes("the look-up failed: " + text)).length, 1, lines.join("\n"));
  }
  const found = await own.once("test", id, 1, lost, { ...options, waitMs: 30_000, lookUp: async () => ({ happened: true, value: 5 }) });
  assert.equal(found.value, 5);
  lines.length = 0;
  const action = `act-${randomUUID()}`;
  let looks = 0;
  const worker = own.worker().on(action, { recovery: "verify", settle: 10, lookUp: () => { looks++; throw new ReferenceError("nosuchname"); } },
    () => { throw new Error("lost"); });
  await own.submit(action, "1");
  const running = worker.run();
  while (looks < 3) await new Promise((wake) => setTimeout(wake, 20));
  worker.stop();
  await running;
  own.close();
  assert.equal(lines.filter((line) => line.includes("the look-up failed: ReferenceError")).length, 1, lines.join("\n"));
  assert.ok(!lines.some((line) => line.includes("another caller")), lines.join("\n"));
});

test("a refused connection ends within the wait", async () => {
  const unused = createServer();
  await new Promise<void>((wake) => unused.listen(0, "127.0.0.1", wake));
  const address = `http://127.0.0.1:${(unused.address() as AddressInfo).port}`;
  await new Promise((wake) => unused.close(wake));
  const away = new Client(`${address},${address}/2`, { spool: "", retryTimeoutMs: 100_000 });
  for (const waitMs of [0, 500]) { // it would take 100 s otherwise
    await assert.rejects(away.once("test", id, 1, () => assert.fail("it runs"), { waitMs }), Unavailable);
    await assert.rejects(away.wait("test", id, waitMs), Unavailable);
  }
  const leaves = new AbortController();
  const long = away.once("test", id, 1, () => assert.fail("it runs"), { waitMs: 100_000, signal: leaves.signal }).catch((e: unknown) => e);
  await assert.rejects(away.once("test", id, 1, () => assert.fail("it runs"), { waitMs: 0 }), Unavailable); // and does not wait with the other call
  leaves.abort(new Error("it left"));
  assert.match(String(await long), /it left/);
  away.close();
});

test("a wait without limit lasts through an outage", async (t) => {
  const proxy = createServer((from, to) => {
    const on = request(process.env["FLIGHTD_ADDR"] + (from.url ?? ""), { method: from.method ?? "GET", headers: from.headers }, (answer) => {
      to.writeHead(answer.statusCode ?? 500, answer.headers);
      answer.pipe(to);
    });
    on.on("error", () => to.destroy());
    from.pipe(on);
  });
  await new Promise<void>((wake) => proxy.listen(0, "127.0.0.1", wake));
  const { port } = proxy.address() as AddressInfo;
  await new Promise((wake) => proxy.close(wake));
  await run(5);
  const away = new Client(`http://127.0.0.1:${port}`, { spool: "", retryTimeoutMs: 100 });
  const both = Promise.all([away.once("test", id, undefined, () => assert.fail("it runs"), { waitMs: Infinity }), away.wait("test", id)]);
  both.catch(() => undefined);
  await new Promise((wake) => setTimeout(wake, 1000));
  proxy.listen(port, "127.0.0.1");
  t.after(() => { proxy.close(); proxy.closeAllConnections(); });
  assert.deepEqual((await both).map((result) => result.value), [5, 5]);
  away.close();
});

test("invalid texts do not block a report", async () => {
  const done = await client.once("test", id, 1, (f) => f.effect(() => { f.externalId = "id \ud800" + "y".repeat(3000); }));
  assert.equal(done.source, "executed");
  id += "-error";
  await assert.rejects(client.once("test", id, 1, (f) => f.effect(() => { throw new Error("\ud800".repeat(5000)); })), InDoubt);
  assert.equal(await client.spooled(), 0);
});

test("odd external ids and thrown values do not block a report", async () => {
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

test("a report is retried without a time limit", async () => {
  const endless = new Client(undefined, { spool, reportWaitMs: Infinity, retryTimeoutMs: Infinity });
  const ask = endless.ask.bind(endless);
  const tries: number[] = [];
  endless.ask = async (method, route, body, options) => {
    if (route.endsWith("/report")) {
      tries.push(options?.timeoutMs ?? 0);
      if (tries.length < 2) throw new Unavailable("away", "unreachable");
    }
    return ask(method, route, body, options);
  };
  const done = await Promise.race([endless.once("test", id, 1, (f) => f.effect(() => 1)),
    new Promise<undefined>((wake) => setTimeout(() => wake(undefined), 60_000).unref())]);
  endless.close();
  assert.equal(done?.source, "executed");
  assert.ok(Math.max(...tries) <= 15_000);
});

test("the place of an error decides the outcome", async () => {
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

test("a callback without effect is an error", async () => {
  await assert.rejects(client.once("test", id, 1, () => 1), (e) => e instanceof InDoubt && /effect\(\)/.test(String(e.cause)));
  await assert.rejects(client.once("test", id, 1, () => assert.fail("it runs")), InDoubt);
});

test("with keyDecides the first input is used", async () => {
  const options = { keyDecides: true };
  await assert.rejects(client.once("test", id, { text: "first" }, () => { throw new NotDone("later"); }, options), NotDone);
  const result = await client.once("test", id, { text: "second" }, (f) => f.effect(() => f.input.text), options); // typed
  assert.equal(result.value, "first");
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
    await fetch(url + "/cancel", { method: "POST", headers, body: JSON.stringify({ reason: "test", actor: "test" }) });
    await new Promise((wake) => f.signal.addEventListener("abort", wake));
    throw new NotDone("cancelled");
  };
  await assert.rejects(short.once("test", id, 1, act), Failed);
});

test("the caller's signal ends the wait for others without a doubt", async () => {
  const act = (f: Flight) => f.effect(async () => {
    await assert.rejects(run(2, { signal: AbortSignal.timeout(50) }), { name: "TimeoutError" });
    await assert.rejects(run(2, { waitMs: 50 }), Busy);
    return 1;
  });
  assert.equal((await client.once("test", id, undefined, act)).value, 1);
});

test("invalid arguments are rejected before any request", async () => {
  assert.throws(() => new Client("ftp://x"), TypeError);
  assert.throws(() => new Client(" , "), TypeError);
  assert.throws(() => new Client(undefined, { retryTimeoutMs: 0 }), RangeError);
  assert.throws(() => new Client("localhost:x"), TypeError);
  for (const namespace of ["a b", "é"]) assert.throws(() => new Client(undefined, { namespace }), TypeError);
  await assert.rejects(run(1, { waitMs: NaN }), TypeError);
  await assert.rejects(run(1, { recovery: "verify" }), TypeError);
  await assert.rejects(run(1, { retention: 0 as unknown as string }), (e) => e instanceof FlightdError && e.code === "input_invalid");
  const astray = new Client(`${process.env["FLIGHTD_ADDR"] ?? ""}/v1`, { spool: "" }); // no route is there, and so no word about the key
  await assert.rejects(astray.get("test", id), (e) => e instanceof FlightdError && e.code === "not_found");
  astray.close();
  await assert.rejects(client.once("test", id, { big: () => 1 }, () => assert.fail("it runs")), TypeError);
  await assert.rejects(client.once("test", "a b", 1, () => 1), (e) => e instanceof FlightdError && e.code === "idempotency_key_invalid");
});

test("damaged reports are quarantined", async () => {
  const folder = await mkdtemp(path.join(spool, "damaged-"));
  await writeFile(path.join(folder, "x.report"), "FDC1 and more");
  const said: string[] = [];
  const other = new Client(undefined, { spool: folder, log: (m) => said.push(m) });
  await other.once("test", id, 1, (f) => f.effect(() => 1));
  while (said.length === 0) await new Promise((wake) => setImmediate(wake));
  assert.deepEqual(await readdir(folder), ["x.report.damaged"]);
});

test("an unreadable report stays and is logged once", async () => {
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

test("a look-up has a time limit and starts nothing", async () => {
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

test("NotDone of one effect is no proof for another", async () => {
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
  const below = async (f: Flight) => { await f.effect(() => 1); later(); }; // it covers all that was sent
  await assert.rejects(client.once("test", id, undefined, below), NotDone);
  assert.equal((await run(1)).source, "executed");
});

test("an effect that is not awaited is unknown", async () => {
  const forgets = (f: Flight) => {
    void f.effect(() => new Promise((_, reject) => f.signal.addEventListener("abort", () => reject(new Error("stopped")))));
  };
  await assert.rejects(client.once("test", id, undefined, forgets), (e) => e instanceof InDoubt && /await/.test(String(e.cause)));
  await assert.rejects(run(1), InDoubt);
});

test("the signal stops an effect that outlives its callback", async () => {
  let signal: AbortSignal | undefined;
  const racing = (f: Flight) => {
    signal = f.signal;
    const slow = f.effect(() => new Promise((_, reject) => f.signal.addEventListener("abort", () => reject(f.signal.reason))));
    return Promise.race([slow, Promise.reject(new Error("too slow"))]);
  };
  await assert.rejects(client.once("test", id, 1, racing), (e) => e instanceof InDoubt && /too slow/.test(String(e.cause)));
  assert.equal(signal?.aborted, true);
  id += "-well";
  await client.once("test", id, 1, (f) => { signal = f.signal; return f.effect(() => 1); });
  assert.equal(signal?.aborted, false);
});

/** Starts a server, whose answers repeat the request's Flightd-Echo, and returns its address. */
async function listen(t: TestContext, server: Server): Promise<string> {
  server.prependListener("request", (request, response) => {
    if (request.headers["flightd-echo"]) response.setHeader("Flightd-Echo", request.headers["flightd-echo"]);
  });
  await new Promise<void>((wake) => server.listen(0, "127.0.0.1", wake));
  t.after(() => new Promise((wake) => { server.close(wake); server.closeAllConnections(); }));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

test("an aborted open is abandoned whatever the reason", async () => {
  for (const reason of [new LeaseLost("the lease of the flight around it is lost", "lease_lost"), new Unavailable("away", "unreachable")]) {
    const controller = new AbortController();
    const client = new Scripted().gets(() => { controller.abort(reason); return reason; });
    await assert.rejects(client.run({ signal: controller.signal }, () => assert.fail("it runs")), reason);
    assert.equal((await client.abandoned()).length, 1);
  }
});

test("a wait that ends before the approval names it", async () => {
  const r = await fetch(`${process.env["FLIGHTD_ADDR"] ?? "http://127.0.0.1:7420"}/v1/flights:submit`, { method: "POST",
    headers: { "Content-Type": "application/json" }, body: JSON.stringify({ action: "test", id, approval: {} }) });
  assert.equal(r.status, 201);
  await assert.rejects(client.wait("test", id, 300), (e) => e instanceof Unapproved && /flightd approvals show default\/test/.test(String(e.message)));
});

test("the caller's signal ends the wait for a server", async (t) => {
  const silent = createServer(() => undefined);
  const other = new Client(await listen(t, silent), { spool: "", retryTimeoutMs: 100 });
  const controller = new AbortController();
  const waits = other.once("test", id, 1, () => assert.fail("it runs"), { signal: controller.signal });
  controller.abort(new Error("enough"));
  await assert.rejects(waits, /enough/);
});

/** Returns a client whose reports fail with the error. */
function withoutReports(options: ClientOptions, error: FlightdError): Client {
  const other = new Client(undefined, { reportWaitMs: 50, log: () => undefined, ...options });
  const ask = other.ask.bind(other);
  other.ask = async (method, route, body, o) => {
    if (route.endsWith("/report")) {
      if (error.flightId === "its own") error.problem["flight_id"] = route.split("/")[3];
      throw error;
    }
    return ask(method, route, body, o);
  };
  return other;
}

test("a report rejected for good is quarantined", async () => {
  const folder = await mkdtemp(path.join(spool, "refused-"));
  const other = withoutReports({ spool: folder }, new FlightdError("no", "input_invalid", { retryable: false, flight_id: "its own" }));
  await assert.rejects(other.once("test", id, 1, (f) => f.effect(() => 1)), /a person must inspect.*\.rejected/);
  assert.deepEqual((await readdir(folder)).map((n) => n.slice(33)), ["report.rejected"]);
});

test("no effect starts after the machine slept", async (t) => {
  const uptime = os.uptime();
  let asleep = 0; // while the monotonic clock stood still and the wall clock was set back
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

test("a failing log does not block a report", async (t) => {
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

test("close sends unspooled reports", async () => {
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

test("a relative spool folder survives chdir", async () => {
  const here = process.cwd();
  const [named, wrongDeployment] = [await mkdtemp(path.join(spool, "named-")), await mkdtemp(path.join(spool, "wrongDeployment-"))];
  process.chdir(named);
  const other = withoutReports({ spool: "reports" }, new Unavailable("away", "unreachable"));
  process.chdir(wrongDeployment);
  try {
    await assert.rejects(other.once("test", id, 1, (f) => f.effect(() => 1)), Unrecorded);
  } finally {
    process.chdir(here);
    other.close();
  }
  assert.deepEqual(await readdir(wrongDeployment), []);
  assert.equal((await readdir(path.join(named, "reports"))).length, 1);
});

test("an intact report of another form stays and is logged once", async (t) => {
  const folder = await mkdtemp(path.join(spool, "odd-"));
  const entry = { deployment: "d", key: "default/test/1", at: "", report: "e30=" };
  const forms = [null, [1], { ...entry, sealed: true }, { ...entry, key: 1 }, { ...entry, key: "1" }, { ...entry, report: "AAAA" },
    { ...entry, deployment: undefined }, entry];
  for (const [name, form] of forms.entries()) {
    const data = Buffer.from(JSON.stringify(form));
    let crc = ~0;
    for (const byte of data) {
      crc ^= byte;
      for (let i = 0; i < 8; i++) crc = (crc >>> 1) ^ (crc & 1 ? 0x82f63b78 : 0);
    }
    const head = Buffer.from("FDC1\0\0\0\0");
    head.writeUInt32BE(~crc >>> 0, 4);
    await writeFile(path.join(folder, `${name}.report`), Buffer.concat([head, data]));
  }
  const sent: string[] = [];
  const server = createServer((request, response) => {
    if (request.url === "/version") return void response.end('{"version":"1","deployment":"d"}');
    sent.push(request.url ?? "");
    response.end(JSON.stringify({ id: request.url?.split("/")[3], state: "succeeded" }));
  });
  const said: string[] = [];
  const other = new Client(await listen(t, server), { spool: folder, log: (m) => said.push(m) });
  await other.connect();
  while (sent.length === 0) await new Promise((wake) => setImmediate(wake)); // its name comes last
  await (other as unknown as { spoolRound(): Promise<void> }).spoolRound();
  other.close();
  assert.deepEqual((await readdir(folder)).sort(), forms.slice(1).map((_, name) => `${name}.report`));
  assert.deepEqual([said.length, said.filter((m) => m.includes("a later version")).length], [7, 7]);
  assert.equal(sent.length, 1, "the one of this form");
});

test("only a code of the report route rejects a report", () => {
  const final: Record<string, string> = { fenced: "accepted", idempotency_key_invalid: "rejected", input_invalid: "rejected",
    payload_too_large: "rejected", not_found: "rejected" };
  const others = ["lease_lost", "expired", "in_doubt", "idempotency_in_flight", "idempotency_conflict", "flight_failed", "wrong_deployment",
    "forbidden", "unauthenticated", "method_not_allowed", "open_expired", "approval_pending", "session_in_use", "precondition_failed",
    "internal", "no_leader", "unreachable", "of a later version"];
  for (const code of [...Object.keys(final), ...others]) {
    for (const flightId of ["fl_1", ""]) {
      const want = flightId ? final[code] ?? "later" : "later";
      assert.equal(reportResultOf(refused(code, 410, { flight_id: flightId, retryable: false })), want, `${code} ${flightId}`);
    }
  }
  assert.equal(reportResultOf(new TypeError("no JSON")), "later");
});

test("old temporary files in the spool are removed", async () => {
  const folder = await mkdtemp(path.join(spool, "left-"));
  for (const name of ["new-old", "new-young", "1.report", "other"]) {
    await writeFile(path.join(folder, name), "");
    const at = Date.now() / 1000 - (name === "new-young" ? 1800 : 7200);
    await utimes(path.join(folder, name), at, at);
  }
  await mkdir(path.join(folder, "new-folder"));
  await utimes(path.join(folder, "new-folder"), 0, 0);
  new Client(undefined, { spool: folder });
  new Client(undefined, { spool: path.join(folder, "not there") });
  for (let i = 0; (await readdir(folder)).includes("new-old") && i < 1000; i++) await nextTick();
  assert.deepEqual((await readdir(folder)).sort(), ["1.report", "new-folder", "new-young", "other"]);
});

test("a pinned client talks to its deployment only", async (t) => {
  const asked: unknown[] = [];
  const address = await listen(t, createServer((request, response) => {
    const [status, body]: [number, Body] = request.url === "/version" ? [200, { version: "1", deployment: "second", ledger_time: 10_000_000 }]
      : [421, { code: "wrong_deployment", retryable: false, detail: "this is second, and not first" }];
    if (status === 421) asked.push(request.headers["flightd-deployment"]);
    response.writeHead(status, { "Flightd-Ledger-Time": 10_000_000 }).end(JSON.stringify(body));
  }));
  for (const [options, variable] of [[{ deployment: "first" }, "second"], [{}, "first"]] as const) {
    await t.test(`FLIGHTD_DEPLOYMENT is ${variable}`, async (t) => {
      environment(t, { FLIGHTD_DEPLOYMENT: variable });
      const made = new Client(address, { spool: "", retryTimeoutMs: 50, ...options });
      await assert.rejects(made.ask("GET", "/v1/flights/fl_1"),
        (e) => e instanceof FlightdError && e.code === "wrong_deployment");
      assert.ok(made.ledgerMs() < 1_000_000, "the time of another ledger is ignored");
    });
  }
  assert.deepEqual(asked, ["first", "first"]);
});

/** Returns a client whose server decides verify, and accepts verifications and renewals. */
function verifyingClient(): { client: Client; asked: [string, unknown][] } {
  const asked: [string, unknown][] = [];
  const looks = new Client(undefined, { spool: "", log: () => undefined });
  looks.ask = async (_, route, body) => {
    asked.push([route, body]);
    const sentAt = { mono: performance.now(), wall: Date.now() };
    if (route.endsWith("/verification")) throw new InDoubt("held", "in_doubt");
    if (route.endsWith("/sessions")) return { json: { session: "own", trust_ms: 9000, renew_every_ms: 600_000 }, sentAt };
    return { json: { decision: "verify", flight_id: "fl_1", session: "s", verification: "p", trust_ms: 9000, renew_every_ms: 1000, version: "1" }, sentAt };
  };
  return { client: looks, asked };
}

const nextTick = (): Promise<void> => new Promise((wake) => setImmediate(wake));

test("a hanging look-up has no finding after a while", async (t) => {
  for (const [attemptTimeoutMs, bound] of [[5000, 5], [undefined, 30]] as const) {
    t.mock.timers.enable({ apis: ["setTimeout"] });
    const { client: looks, asked } = verifyingClient();
    const count = (end: string) => asked.filter(([route]) => route.endsWith(end)).length;
    const ended = looks.once("test", id, 1, () => assert.fail("it runs"),
      { recovery: "verify", lookUp: () => new Promise(() => undefined), ...(attemptTimeoutMs ? { attemptTimeoutMs } : {}) })
      .catch((e: unknown) => e);
    while (count(":open") === 0) await nextTick();
    await nextTick();
    for (let second = 0; second < bound + 14; second++) {
      t.mock.timers.tick(1000);
      await nextTick();
    }
    assert.deepEqual([count("/renew"), count("/verification")], [bound + 14, 0]);
    t.mock.timers.tick(1000);
    assert.ok(await ended instanceof InDoubt);
    assert.equal(count("/verification"), 1);
    assert.equal((asked.find(([route]) => route.endsWith("/verification"))?.[1] as { result: string }).result, "unknown");
    t.mock.timers.reset();
  }
});

test("a look-up with a time-out longer than a timer", async () => {
  const { client: looks, asked } = verifyingClient();
  const lookUp = async (): Promise<{ happened: true }> => {
    await new Promise((wake) => setTimeout(wake, 20)); // a timer that overflows would end after a millisecond
    return { happened: true };
  };
  await assert.rejects(looks.once("test", id, 1, () => assert.fail("it runs"),
    { recovery: "verify", lookUp, attemptTimeoutMs: 30 * 24 * 3_600_000 }), InDoubt);
  assert.equal((asked.find(([route]) => route.endsWith("/verification"))?.[1] as { result: string }).result, "happened");
});

test("errors have hints", async (t) => {
  const act = () => assert.fail("it runs");
  const page = createServer((_, response) => response.writeHead(404).end("<html/>"));
  const address = await listen(t, page);
  const nobody = new Client("http://127.0.0.1:2, http://127.0.0.1:3", { spool: "", retryTimeoutMs: 10 });
  await assert.rejects(nobody.once("test", id, 1, act), (e) => e instanceof Unavailable &&
    /http:\/\/127.0.0.1:[23].*flightd dev.*FLIGHTD_ADDR/.test(e.message));
  await assert.rejects(new Client(address, { spool: "", retryTimeoutMs: 10 }).once("test", id, 1, act),
    (e) => e instanceof FlightdError && e.code === "internal" && new RegExp(`not from flightd.*FLIGHTD_ADDR.*${address}`).test(e.message));
});

// Tests of the requests and of the handling of answers, without a server.

type Body = Record<string, any>;
type Given = Body | Error | (() => Body | Error);

type Left = Parameters<Client["leave"]>[0];

/** A client whose opens and verifications get scripted answers; every other request is accepted. */
class Scripted extends Client {
  answers: Given[] = [];
  asked: [string, Body][] = [];
  pendingAbandons: Left[] = [];
  ledger0 = 1_000_000;
  renewals: Given[] = []; // the answers of the next renewals
  renewed = ""; // the route of the newest renewal
  renewEveryMs = 600_000; // of sessions that the client makes
  trustMs = 9000; // the same
  verifying = false; // the flight's state after a report

  constructor() { super(undefined, { spool: "", log: () => undefined }); }

  leftOpens: Left[] = [];
  override leave(left: Left): void { this.leftOpens.push(left); }

  override async abandonInBackground(nonce: Left): Promise<void> { this.pendingAbandons.push(nonce); }

  override async ask(_method: string, route: string, body: Body | string | undefined) {
    const verb = route.split(/[/:]/).at(-1) ?? "";
    const sentAt = { mono: performance.now(), wall: Date.now() };
    this.asked.push([verb, body as Body]);
    assert.ok(this.bodies("sessions").length < 10, "sessions are made again and again");
    if (verb === "renew") this.renewed = route;
    if (verb === "version") return { json: { version: "1", deployment: "d", ledger_time: this.ledger0 }, sentAt };
    if (verb === "report") {
      if (this.verifying) return { json: { id: "fl_1", state: "running", verifying: true }, sentAt };
      const state = { succeeded: "succeeded", not_done: "ready" }[String((body as Body)["outcome"])] ?? "in_doubt";
      return { json: { id: "fl_1", key: "default/test/1", state, receipt: { outcome: "succeeded", body: 1 } }, sentAt };
    }
    if (verb === "renew" && this.renewals.length === 0) return { json: { session: route.split("/")[3], trust_ms: 9000 }, sentAt };
    let answer: Given = verb === "renew" ? this.renewals.shift() ?? {} : ["open", "verification"].includes(verb) ? this.answers.shift() ?? new Error("no answer is left") :
      { session: "own", trust_ms: this.trustMs, renew_every_ms: this.renewEveryMs };
    if (typeof answer === "function") answer = (answer as () => Body | Error)();
    if (answer instanceof Error) throw answer;
    return { json: answer as Body, sentAt };
  }

  bodies(verb: string): Body[] { return this.asked.filter(([v]) => v === verb).map(([, body]) => body); }

  /** Runs the pending abandons, and returns the bodies of all abandons. */
  async abandoned(): Promise<Body[]> {
    for (const nonce of this.pendingAbandons) assert.equal(await nonce.call.abandon(nonce), true);
    return this.bodies("abandon");
  }

  /** Sets the answers of the next opens. */
  gets(...answers: Given[]): this {
    this.answers = answers;
    this.asked = [];
    this.pendingAbandons = [];
    this.leftOpens = [];
    return this;
  }

  run(options?: OnceOptions, act = (f: Flight): unknown => f.effect(() => 1)): Promise<Result<unknown>> {
    return this.once("test", "1", 1, act, options);
  }
}

const proceed = (more?: Body): Body => ({ decision: "proceed", flight_id: "fl_1", key: "default/test/1", attempt: 7, fencing_token: "t",
  session: "s", trust_ms: 9000, renew_every_ms: 600_000, ...more });
const verify: Body = { decision: "verify", flight_id: "fl_1", session: "s", verification: "p", trust_ms: 9000, renew_every_ms: 600_000 };

/** Returns a function that moves all clocks, os.uptime included. */
function clocks(t: TestContext): (ms: number) => void {
  let moved = 0;
  const [mono, wall, boot] = [performance.now.bind(performance), Date.now, os.uptime];
  t.mock.method(performance, "now", () => mono() + moved);
  t.mock.method(Date, "now", () => wall() + moved);
  t.mock.method(os, "uptime", () => boot() + moved / 1000);
  syncBuiltinESMExports();
  t.after(() => { t.mock.restoreAll(); syncBuiltinESMExports(); });
  return (ms) => { moved += ms; };
}

const CLASSES: Record<string, new (message: string, code: string, problem?: Body) => FlightdError> = {
  idempotency_in_flight: Busy, in_doubt: InDoubt, idempotency_conflict: Conflict, expired: Expired, fenced: Fenced, lease_lost: LeaseLost,
  approval_pending: Unapproved, no_leader: Unavailable, lease_unavailable: Unavailable, open_expired: Unavailable, too_many_open: Unavailable,
};

function refused(code: string, status = 409, more: Body = {}, mayHaveArrived = false): FlightdError {
  return Object.assign(new (CLASSES[code] ?? FlightdError)(code, code, { status, flight_id: "fl_1", nonce: "n", ...more }), { mayHaveArrived });
}

const nobodyThere = new Unavailable("nobody is there", "unreachable");

test("final answers to an open", () => {
  const final: Record<string, number> = { idempotency_conflict: 422, expired: 410, open_expired: 409 };
  const unprocessed: Record<string, number> = { input_invalid: 400, forbidden: 403, payload_too_large: 413, internal: 302 };
  const others = [["fenced", 409], ["approval_pending", 409], ["lease_lost", 410], ["too_many_open", 429], ["no_leader", 503],
    ["lease_unavailable", 503], ["internal", 500]] as const;
  for (const alone of [true, false]) {
    for (const [code, status] of [...Object.entries(final), ...Object.entries(unprocessed), ...others]) {
      const want = final[code] === status || (unprocessed[code] === status && alone);
      assert.equal(isFinal(refused(code, status), alone), want, `${code} ${status} ${alone}`);
    }
    for (const [code, proposed, want] of [
      ["in_doubt", true, true], ["in_doubt", false, false], ["in_doubt", undefined, false], ["idempotency_in_flight", true, false],
      ["idempotency_in_flight", false, false], ["idempotency_in_flight", undefined, false],
    ] as const) {
      const e = refused(code, 409, { proposed });
      assert.deepEqual([isFinal(e, alone), isUnproposed(e)], [want, proposed === false], `${code} ${proposed} ${alone}`);
    }
    assert.equal(isFinal(nobodyThere, alone), alone);
  }
});

test("the span of the attempt is passed on", async () => {
  const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  for (const more of [{ traceparent }, {}] as { traceparent?: string }[]) {
    const seen: unknown[] = [];
    await new Scripted().gets(proceed(more)).run({}, (f) => f.effect(() => seen.push(f.traceparent, f.headers["Traceparent"])));
    assert.deepEqual(seen, [more.traceparent ?? "", more.traceparent]);
  }
});

test("action for a listed attempt", () => {
  const due: Record<string, string> = { awaited: "nothing", held: "nothing", spooled: "nothing", "given up": "abandon" };
  for (const state of [...Object.keys(due), "final", "reported", "unknown", "", "of a later version"]) {
    for (const before of [true, false]) {
      assert.equal(listedActionFor(state, before), due[state] ?? (before ? "report" : "nothing"), `${state} ${before}`);
    }
  }
});

test("repeats of an open share nonce and not_after", async (t) => {
  const move = clocks(t);
  const busy = () => { move(2000); return refused("idempotency_in_flight", 409, { proposed: true }); };
  const client = new Scripted().gets(busy, busy, proceed());
  await client.run();
  const opens = client.bodies("open");
  assert.equal(new Set(opens.map((o) => `${o["nonce"]} ${o["not_after"]}`)).size, 1);
  assert.equal(opens.length, 3);
  assert.ok(Math.abs(opens[0]?.["not_after"] - client.ledger0 - 17_000) < 1000); // the wait, and 2 s
  assert.equal(client.bodies("report")[0]?.["key"], "default/test/1");
  assert.deepEqual([client.bodies("abandon"), client.pendingAbandons], [[], []]);
});

test("a final answer is followed by a new nonce", async (t) => {
  const move = clocks(t);
  const client = new Scripted().gets(() => { move(4000); return refused("open_expired"); },
    () => { move(3000); return refused("open_expired"); }, proceed());
  await client.run({ waitMs: 60_000 });
  const opens = client.bodies("open");
  assert.equal(new Set(opens.map((o) => o["nonce"])).size, 3);
  const want = [17_000, 23_000, 30_000]; // by the local clock, and more after each answer that the ledger's time was past it
  opens.forEach((o, i) => assert.ok(Math.abs(o["not_after"] - client.ledger0 - (want[i] ?? 0)) < 1500, `${i}`));
  assert.deepEqual([client.bodies("abandon"), client.pendingAbandons, client.leftOpens], [[], [], []]);
});

test("an open that is answered without a proposal is left", async (t) => {
  const move = clocks(t);
  const busy = (ms: number) => () => { move(ms); return refused("idempotency_in_flight", 409, { proposed: false }); };
  const client = new Scripted().gets(busy(2000), busy(14_000), proceed());
  await client.run({ waitMs: 60_000 });
  const opens = client.bodies("open");
  assert.deepEqual(opens.map((o) => o["nonce"] === opens[0]?.["nonce"]), [true, true, false]); // until its time is over
  [15_000, 13_000, 15_000].forEach((ms, i) => assert.ok(Math.abs(opens[i]?.["wait_ms"] - ms) < 1000, `${i}`));
  assert.deepEqual([client.pendingAbandons, client.leftOpens.map((l) => l.call.key)], [[], ["default/test/1"]]);
  const left = client.leftOpens[0] ?? assert.fail();
  assert.equal(await left.call.abandon(left), true);
  assert.equal(client.bodies("abandon")[0]?.["nonce"], opens[0]?.["nonce"]);
});

test("left opens of one key are abandoned one per second", async (t) => {
  const { validity } = await (async () => { // the type of its clock is not exported
    const client = new Scripted().gets(refused("idempotency_in_flight", 409, { proposed: false }));
    await assert.rejects(client.run({ waitMs: 0 }), Busy);
    return client.leftOpens[0] ?? assert.fail();
  })();
  const move = clocks(t);
  move(10_000); // its not_after is over
  t.mock.timers.enable({ apis: ["setTimeout"] });
  t.after(() => { t.mock.timers.reset(); syncBuiltinESMExports(); });
  const client = new Client(undefined, { spool: "" });
  const sent: string[] = [];
  const left = (key: string) => ({ call: { key, abandon: async () => { sent.push(key); return true; } }, validity }) as unknown as Left;
  for (const key of ["a", "a", "b", "a"]) client.leave(left(key));
  for (const want of ["", "ab", "aba", "abaa", "abaa"]) {
    assert.equal(sent.join(""), want);
    t.mock.timers.tick(1000);
    for (let i = 0; i < 3; i++) await nextTick();
  }
  for (const key of ["a", "a", "b"]) client.leave(left(key));
  client.close(); // it sends one per key at once
  for (let i = 0; i < 9; i++) await nextTick();
  assert.equal(sent.join(""), "abaaab");
});

test("an open that always expires is an error", async () => {
  const client = new Scripted().gets(...Array.from({ length: 9 }, () => refused("open_expired")));
  await assert.rejects(client.run({ waitMs: 0 }), { code: "open_expired" });
  assert.deepEqual([client.answers.length, client.pendingAbandons], [5, []]);
});

test("an unused open is abandoned", async () => {
  const busy = (proposed: boolean, mayHaveArrived = false) => refused("idempotency_in_flight", 409, { proposed }, mayHaveArrived);
  for (const [last, abandoned] of [
    [new Error("given up"), true], [refused("of_a_later_version"), true], [{ decision: "perhaps" }, true], [refused("no_leader", 503), true],
    [busy(true), true], [busy(false), "left"], [busy(false, true), true], [refused("in_doubt", 409, { proposed: false }), "left"],
    [refused("in_doubt", 409, { proposed: true }), false], [refused("in_doubt", 409, { proposed: false }, true), true],
    [refused("input_invalid", 400), false], [refused("input_invalid", 400, {}, true), true], [nobodyThere, false],
    [verify, true], // and no lookUp
  ] as const) {
    const client = new Scripted().gets(last);
    await assert.rejects(client.run({ waitMs: 0 }, () => assert.fail("it runs")));
    assert.deepEqual([client.pendingAbandons.length, client.leftOpens.length], [Number(abandoned === true), Number(abandoned === "left")], String(last));
    if (!abandoned) continue;
    client.pendingAbandons.push(...client.leftOpens);
    const [opened, abandon] = [client.bodies("open")[0], (await client.abandoned())[0]];
    for (const name of ["action", "id", "nonce", "not_after"]) assert.equal(abandon?.[name], opened?.[name]);
  }
});

test("the answer to one of several requests is not final", async () => {
  const client = new Scripted().gets(refused("idempotency_in_flight", 409, { proposed: true }), refused("in_doubt", 409, { proposed: false }));
  await assert.rejects(client.run(), InDoubt);
  assert.deepEqual([new Set(client.bodies("open").map((o) => o["nonce"])).size, (await client.abandoned()).length], [1, 1]);
});

test("a retry after a 5xx counts as several requests", async (t) => {
  for (const [status, several] of [[503, true], [429, true], [undefined, false]] as const) {
    let first = status;
    const server = createServer((request, response) => {
      if (request.url === "/version") return void response.end('{"version":"1"}');
      response.writeHead(first ?? 409).end(JSON.stringify({ code: first ? "draining" : "idempotency_in_flight", retryable: true }));
      first = undefined;
    });
    const asks = new Client(await listen(t, server), { spool: "" });
    await assert.rejects(asks.ask("POST", "/v1/flights:open", {}), (e) => e instanceof Busy && e.mayHaveArrived === several);
  }
});

test("a started attempt is not abandoned with a later open", async () => {
  const client = new Scripted().gets(proceed(), refused("no_leader", 503));
  client.verifying = true;
  const act = (f: Flight) => f.effect(() => { throw new Error("time-out"); });
  await assert.rejects(client.run({ recovery: "verify", lookUp: () => undefined }, act), Unavailable);
  assert.deepEqual((await client.abandoned()).map((a) => a["nonce"]), [client.bodies("open")[1]?.["nonce"]]);
});

test("an open that was not sent is not abandoned", async () => {
  const client = new Scripted().gets(refused("idempotency_in_flight", 409, { proposed: false, retry_after_ms: 5000 }));
  await assert.rejects(client.run({ signal: AbortSignal.abort() }), { name: "AbortError" });
  const controller = new AbortController();
  const waits = client.run({ signal: controller.signal });
  while (client.bodies("open").length === 0) await nextTick();
  await nextTick(); // the client has its answer, and pauses
  controller.abort();
  await assert.rejects(waits, { name: "AbortError" });
  assert.deepEqual(client.pendingAbandons, []);
});

test("an unusable attempt is abandoned and opened again", async (t) => {
  const move = clocks(t);
  for (const [first, options] of [[refused("lease_lost", 410), {}], [refused("fenced"), {}],
    [() => { move(11_000); return proceed(); }, {}],
    [() => { move(7_000); return proceed(); }, { attemptTimeoutMs: 5000 }]] as const) {
    const client = new Scripted();
    const ask = client.ask.bind(client);
    client.ask = async (...args) => { // its time counts from the request
      const sentAt = { mono: performance.now(), wall: Date.now() };
      return { ...await ask(...args), sentAt };
    };
    client.gets(first, proceed());
    await client.run(options);
    const [[one, other], [abandon]] = [client.bodies("open"), await client.abandoned()];
    assert.deepEqual([abandon?.["nonce"], abandon?.["not_after"]], [one?.["nonce"], one?.["not_after"]]);
    assert.notEqual(other?.["nonce"], one?.["nonce"]);
  }
});

test("the time-out counts from the first request", async (t) => {
  const move = clocks(t);
  const busy = () => { move(5000); return refused("idempotency_in_flight", 409, { proposed: true }); };
  const client = new Scripted().gets(busy, () => { move(5000); return proceed({ trust_ms: 90_000 }); });
  await client.run({ attemptTimeoutMs: 25_000 }, async (f) => {
    await f.effect(() => 1);
    move(18_000);
    await assert.rejects(f.effect(() => assert.fail("it starts")), /time-out/);
  });
  const late = () => { move(15_000); return refused("idempotency_in_flight", 409, { proposed: true }); };
  await client.gets(late, proceed({ trust_ms: 90_000 })).run({ attemptTimeoutMs: 25_000 }, async (f) => {
    move(20_000); // after a wait of half its time, the new open has all of it
    await f.effect(() => 1);
  });
  const [[waited, opened], [abandon]] = [client.bodies("open"), await client.abandoned()];
  assert.ok(Math.abs(waited?.["wait_ms"] - 12_500) < 1000);
  assert.deepEqual([abandon?.["nonce"], opened?.["nonce"] === waited?.["nonce"]], [waited?.["nonce"], false]);
});

test("a redacted result is an error", async () => {
  const receipt = { outcome: "succeeded", external_id: "ch_1", truncated: true, size: 9, digest: "sha256:x" };
  const client = new Scripted().gets({ decision: "replay", flight: { id: "fl_1", state: "succeeded", source: "replayed", receipt } });
  await assert.rejects(client.run(), (e) => e instanceof ReceiptTruncated && e.receipt.value === undefined && e.receipt.size === 9);
});

test("a resend starts only inside the provider window", async (t) => {
  const move = clocks(t);
  const options: OnceOptions = { recovery: "resend", providerWindowMs: 60_000 };
  const client = new Scripted().gets(proceed({ resend_ms: 9000 }));
  await client.run(options, (f) => { move(5000); return f.effect(() => 1); });
  await assert.rejects(client.gets(proceed({ resend_ms: 5000 })).run(options, (f) => {
    move(7000);
    return f.effect(() => assert.fail("it starts"));
  }), (e) => e instanceof LeaseLost && /forgotten/.test(e.message));
  assert.deepEqual(client.bodies("report").map((r) => r["outcome"]), ["not_done"]);
  for (const first of [() => { move(7000); return proceed({ resend_ms: 5000 }); }, proceed({ resend_ms: -1000 })]) {
    client.gets(first, refused("in_doubt", 409, { proposed: true }));
    await assert.rejects(client.run(options), InDoubt); // the late attempt is abandoned
    assert.deepEqual([client.bodies("report"), (await client.abandoned()).length], [[], 1]);
  }
  await client.gets(proceed({ trust_ms: 9_000_000 })).run(options, (f) => { move(3_600_000); return f.effect(() => 1); });
});

test("no effect starts after one of unknown outcome", async (t) => {
  const move = clocks(t);
  const twice = async (f: Flight): Promise<unknown> => {
    await assert.rejects(f.effect(() => { throw new RangeError("no answer"); }), RangeError);
    move(5000);
    return f.effect(() => 1);
  };
  const client = new Scripted();
  const outcomes = (): unknown[] => client.bodies("report").map((r) => r["outcome"]);
  for (const options of [{ recovery: "hold" }, { recovery: "verify", lookUp: () => undefined }] as const) {
    for (const act of [twice, (f: Flight) => twice(f).catch(() => 1)]) { // also if the callback catches the error
      await assert.rejects(client.gets(proceed()).run(options, act), (e) => e instanceof InDoubt && e.cause instanceof LeaseLost);
      assert.deepEqual(outcomes(), ["unknown"]);
    }
  }
  await client.gets(proceed({ policy_differs: true, policy: { recovery: "resend" } })).run({}, twice); // the first caller's policy is used
  assert.deepEqual(outcomes(), ["succeeded"]);
  await assert.rejects(client.gets(proceed()).run({ recovery: "resend", providerWindowMs: 3000 }, twice), InDoubt); // the provider may have forgotten the key
  await client.gets(proceed()).run({}, async (f) => { // an effect may follow one that surely did not happen
    await assert.rejects(f.effect(() => { throw new NotDone("connection refused"); }), NotDone);
    return f.effect(() => 1);
  });
  assert.deepEqual(outcomes(), ["succeeded"]);
});

test("a status is proof for its own request only", async () => {
  const no = () => new NotDone("429"), refused = () => new Refused("422"), lost = () => new RangeError("no answer");
  const effect = (f: Flight, error?: Error) => f.effect(() => { if (error) throw error; });
  const firstOf = (...errors: Error[]) => async (f: Flight): Promise<void> => {
    for (const error of errors) await effect(f, error).catch(() => undefined);
    throw errors[0];
  };
  const whileOneRuns = (error: Error) => async (f: Flight): Promise<void> => {
    void f.effect(() => new Promise((ended) => { setTimeout(ended, 20); }));
    await effect(f, error);
  };
  const statusAfter = (errors: (Error | undefined)[], status: number, how?: Exchange) => async (f: Flight): Promise<void> => {
    for (const error of errors) await effect(f, error).catch(() => undefined);
    throwForStatus(status, "", how);
  };
  for (const [want, callback] of [
    ["not_done", firstOf(no(), no())], ["refused", firstOf(refused(), no())],
    ["unknown", firstOf(no(), lost())], ["unknown", firstOf(refused(), lost())],
    ["not_done", statusAfter([undefined], 404)], ["refused", statusAfter([undefined], 422)],
    ["unknown", statusAfter([undefined, undefined], 404)], ["unknown", statusAfter([undefined, undefined], 422)],
    ["unknown", statusAfter([lost()], 404, { method: "GET" })], ["unknown", statusAfter([lost()], 410, { method: "GET" })],
    ["not_done", statusAfter([no()], 404, { method: "GET" })],
    ["unknown", whileOneRuns(no())], ["unknown", whileOneRuns(refused())],
  ] as const) {
    const client = new Scripted();
    await client.gets(proceed()).run({}, callback).catch(() => undefined);
    assert.deepEqual(client.bodies("report").map((r) => r["outcome"]), [want]);
  }
});

test("a redirect of an unsafe method proves nothing", () => {
  const outcome = (status: number, how?: Exchange): string => {
    try {
      throwForStatus(status, "", how);
      return "succeeded";
    } catch (e) {
      return (e as FlightdError).code;
    }
  };
  assert.deepEqual([201, 303, 404, 410, 500].map((status) => outcome(status)), ["succeeded", "unknown", "not_done", "refused", "unknown"]);
  for (const method of ["GET", "HEAD", "OPTIONS", "TRACE", "get"]) {
    for (const redirects of [[], [303], true, false]) {
      for (const [status, want] of [[200, "succeeded"], [302, "not_done"], [404, "not_done"], [410, "refused"], [500, "unknown"]] as const) {
        assert.equal(outcome(status, { method, redirects }), want, `${method} ${status}`);
      }
    }
  }
  for (const method of ["POST", "PUT", "DELETE", "PATCH", "of a later version"]) {
    for (const status of [300, 301, 302, 303, 304, 307, 308]) assert.equal(outcome(status, { method }), "unknown", `${method} ${status}`);
    for (const redirects of [[301], [302], [303], [307], [308], [307, 303], true]) {
      for (const status of [302, 401, 404, 410, 429, 500]) assert.equal(outcome(status, { method, redirects }), "unknown", `${status} ${redirects}`);
      const want = ["307", "308"].includes(String(redirects)) ? "succeeded" : "unknown";
      assert.equal(outcome(201, { method, redirects }), want, String(redirects));
    }
  }
});

test("an answer of fetch is read", async (t) => {
  const server = createServer((request, response) => {
    const status = Number(request.url?.slice(1));
    response.writeHead(status, status === 303 ? { Location: "/404" } : {}).end("{}");
  });
  const url = await listen(t, server);
  const outcome = async (status: number, method = "POST", exchange?: Exchange): Promise<string> => {
    try {
      throwForStatus(await fetch(`${url}/${status}`, { method }), "", exchange);
      return "succeeded";
    } catch (e) {
      return (e as FlightdError).code;
    }
  };
  for (const [status, want] of [[201, "succeeded"], [402, "refused"], [429, "not_done"], [503, "unknown"], [303, "unknown"]] as const) {
    assert.equal(await outcome(status), want, String(status)); // the page of the redirect answers 404
  }
  assert.deepEqual([await outcome(303, "GET"), await outcome(303, "GET", { method: "GET" })], ["unknown", "not_done"]);
  for (const [status, want] of [[201, "succeeded"], [402, "unknown"], [503, "unknown"]] as const) { // an answer is no proof by itself
    const client = new Scripted().gets(proceed());
    await client.run({}, (f) => f.effect(() => fetch(`${url}/${status}`, { method: "POST" }))).catch(() => undefined);
    assert.deepEqual(client.bodies("report").map((r) => r["outcome"]), [want], String(status));
  }
});

test("a pause is reported in whole milliseconds, and is a day at most", async () => {
  for (const [asked, want] of [[570.1, 571], [1e15, 86_400_000], [Infinity, 86_400_000]] as const) {
    const client = new Scripted().gets(proceed());
    const refusal = new NotDone("busy");
    refusal.retryAfterMs = asked;
    await client.run({}, (f) => f.effect(() => { throw refusal; })).catch(() => undefined);
    assert.equal(client.bodies("report")[0]?.["retry_after_ms"], want);
  }
});

test("a Retry-After is seconds or a date", (t) => {
  t.mock.method(Date, "now", () => Date.UTC(2026, 0, 2, 3, 4, 5));
  for (const [asked, retryAfterMs] of [["60", 60_000], ["99999999", 86_400_000], ["99999999999999999999", 86_400_000], ["-1", 0], ["1.5", 0], ["soon", 0], ["1", 1000],
    ["Fri, 31 Dec 9999 23:59:59 GMT", 86_400_000], ["Fri, 31 Dec 99999 23:59:59 GMT", 0], ["Fri, 99 Jan 2026 03:04:00 GMT", 0], ["Fri, 02 Jan 2026 03:05:05 GMT", 60_000],
    ["Friday, 02-Jan-26 03:05:05 GMT", 60_000], ["Fri Jan  2 03:05:05 2026", 60_000], ["Fri, 02 Jan 2026 03:04:00 GMT", 0]] as const) {
    const answer = new Response("later", { status: 429, headers: { "Retry-After": asked } });
    assert.throws(() => throwForStatus(answer, "later"), { retryAfterMs }, asked);
  }
});

test("no effect starts after the time-out, even if the event loop was blocked", async (t) => {
  const real = performance.now();
  let moved = 0;
  t.mock.method(performance, "now", () => real + moved);
  await assert.rejects(new Scripted().gets(proceed()).run({ attemptTimeoutMs: 2000 }, (f) => {
    moved += 4000; // and no timer has fired
    return f.effect(() => assert.fail("it runs"));
  }), LeaseLost);
});

test("a report names a time-out that has passed", async (t) => {
  const real = performance.now();
  let moved = 0;
  t.mock.method(performance, "now", () => real + moved);
  for (const [error, outcome, want] of [[undefined, "succeeded", "time-out: the handler took longer than its attempt may"],
    [new TypeError("x"), "unknown", "time-out: the handler took longer than its attempt may: TypeError: x"]] as const) {
    const client = new Scripted().gets(proceed());
    await client.run({ attemptTimeoutMs: 2000 }, (f) => f.effect(() => {
      moved += 4000;
      if (error) throw error;
      return 1;
    })).catch(() => undefined);
    const [report] = client.bodies("report");
    assert.deepEqual([report?.["outcome"], report?.["error"]], [outcome, want]);
  }
  const client = new Scripted().gets(proceed());
  await client.run({ attemptTimeoutMs: 5000 }, (f) => f.effect(() => { moved += 2000; return 1; }));
  assert.equal(client.bodies("report")[0]?.["error"], undefined);
});

test("odd waits are rejected with their field", async () => {
  for (const odd of [NaN, "soon", "10", null, [1]] as any[]) {
    await assert.rejects(client.wait("test", id, odd), /^TypeError: timeoutMs: .* is not a number/);
    if (odd !== null) { // the default
      await assert.rejects(client.once("test", id, 1, () => 1, { waitMs: odd }), /^TypeError: waitMs: .* is not a number/);
      assert.throws(() => client.worker({ drainMs: odd }), /^TypeError: drainMs: /);
      assert.throws(() => new Client(undefined, { spool, retryTimeoutMs: odd }), /^TypeError: retryTimeoutMs: /);
      assert.throws(() => new Client(undefined, { spool, reportWaitMs: odd }), /^TypeError: reportWaitMs: /);
    }
    assert.throws(() => new Client(undefined, { spool, ttlSeconds: odd }), /^TypeError: ttlSeconds: /);
  }
  for (const runAt of ["2026-01-01", new Date(NaN), 7] as any[]) await assert.rejects(client.submit("test", id, 1, { runAt }), /^RangeError: runAt: .* is not a time/);
  const patient = new Client(undefined, { spool, retryTimeoutMs: Infinity, reportWaitMs: Infinity });
  assert.equal((await patient.once("test", id, 1, (f) => f.effect(() => 7), { waitMs: Infinity })).value, 7);
  for (const ms of [Infinity, 1e300, 0, -1]) assert.equal((await patient.wait("test", id, ms)).value, 7);
  const worker = patient.worker({ drainMs: Infinity }).on(`act-${id}`, {}, async (input) => { worker.stop(); await new Promise((wake) => setTimeout(wake, 50)); return input; });
  await patient.submit(`act-${id}`, "1", 8);
  await worker.run();
  assert.equal((await patient.wait(`act-${id}`, "1", 30_000)).value, 8); // Infinity is no drain of 1 ms
  patient.close();
});

test("ok returns the body of an answer", async (t) => {
  const server = createServer((request, response) => {
    const status = Number(request.url?.slice(1));
    response.writeHead(status, { "Content-Type": "application/json", "Retry-After": "7" }).end('{"id":"ch_1"}');
  });
  const url = await listen(t, server);
  const answer = (status: number) => fetch(`${url}/${status}`, { method: "POST" });
  for (const [status, want] of [[201, "succeeded"], [402, "refused"], [429, "not_done"], [503, "unknown"]] as const) {
    const client = new Scripted().gets(proceed());
    await client.run({}, (f) => f.effect(async () => ok(await answer(status)))).catch(() => undefined);
    const [report] = client.bodies("report");
    assert.deepEqual([report?.["outcome"], report?.["retry_after_ms"]], [want, want === "not_done" ? 7000 : undefined]);
    const receipt = report?.["body_base64"] && Buffer.from(report["body_base64"], "base64").toString();
    if (want === "succeeded") assert.deepEqual(JSON.parse(receipt), { id: "ch_1" });
    if (want === "refused") assert.match(receipt, /answered 402: {"id"/);
  }
  const client = new Scripted().gets(proceed());
  await client.run({}, (f) => f.effect(() => answer(200)));
  assert.deepEqual(JSON.parse(Buffer.from(client.bodies("report")[0]?.["body_base64"], "base64").toString()), { id: "ch_1" });
});

test("retries", async () => {
  const client = new Scripted().gets(proceed(), proceed(), proceed());
  let left = 2;
  const act = (f: Flight) => f.effect(() => { if (left-- > 0) throw new NotDone("429"); return 1; });
  await client.run({ retries: 2 }, act);
  assert.equal(client.bodies("open").length, 3);
  client.gets(proceed(), proceed());
  left = 2;
  await assert.rejects(client.run({ retries: 1 }, act), NotDone);
  await assert.rejects(client.gets(proceed()).run({ retries: 5 }, (f) => f.effect(() => { throw new Error("reset"); })), InDoubt);
});

test("the status for a webhook", () => {
  for (const code of ["in_doubt", "idempotency_in_flight", "no_leader", "fenced"]) assert.equal(httpStatus(refused(code)), 503, code);
  assert.deepEqual([undefined, refused("expired"), refused("idempotency_conflict"), new NotDone("429"), new Error("reset")].map(httpStatus), [200, 200, 422, 503, 503]);
});

test("get", async () => {
  const client = new Client(undefined, { spool: "" });
  assert.equal(await client.get("test", id), undefined);
  await run(1);
  assert.equal((await client.get("test", id))?.["state"], "succeeded");
});

test("the documents list the not done statuses", async () => {
  const text = await readFile(new URL("../../../../docs/guarantees.md", import.meta.url), "utf8");
  const rows = text.split("\n").filter((line) => line.startsWith("|") && line.trimEnd().endsWith("| `not_done` |"));
  assert.equal(rows.length, 1);
  assert.deepEqual(new Set((rows[0]?.match(/\b[1-5]\d\d\b/g) ?? []).map(Number)), NOT_DONE_STATUSES);
});

test("a verification has its own nonce", async () => {
  const client = new Scripted().gets(verify, refused("idempotency_in_flight", 409, { proposed: true }), proceed());
  await client.run({ recovery: "verify", lookUp: () => ({ happened: false }) });
  const [[looked, opened], [verification]] = [client.bodies("open"), client.bodies("verification")];
  assert.notEqual(verification?.["nonce"], looked?.["nonce"]);
  assert.deepEqual([opened?.["nonce"], opened?.["not_after"]], [verification?.["nonce"], verification?.["not_after"]]);
  assert.deepEqual((await client.abandoned()).map((a) => a["nonce"]), [looked?.["nonce"]]); // its session is not needed for ever
});

const nonceId = (open: Body | undefined): string => createHash("sha256").update(open?.["nonce"]).digest("hex").slice(0, 32);
const digestOf = (...open: string[]): string =>
  createHash("sha256").update(open.map((n) => `${n} 7\n`).sort().join("")).digest("hex").slice(0, 32);
const listed = (nonce: string, attempt = 7): Body =>
  ({ key: "default/test/1", flight_id: "fl_s5o2pgooztnzq6vesjqje74fau", nonce, attempt, fencing_token: "t" });

/** Waits until the client has handled the answers to its next renewals. */
async function renewals(client: Scripted, ...answers: Given[]): Promise<void> {
  client.renewals = [...answers];
  while (client.renewals.length > 0) await nextTick();
  for (let i = 0; i < 5; i++) await nextTick();
}

test("a renewal does not end a started attempt", async () => {
  const client = new Scripted().gets(proceed({ session: "another", renew_every_ms: 50 }));
  await client.run({}, (f) => f.effect(async () => {
    const nonce = nonceId(client.bodies("open")[0]);
    const renewal = { session: "another", trust_ms: 9000, open_digest: "e" };
    const late = [renewal, { ...renewal, open: [] }, { ...renewal, open: [listed(nonce)] }];
    await renewals(client, ...late, ...late);
    assert.deepEqual([client.bodies("abandon"), client.bodies("report"), client.pendingAbandons], [[], [], []]);
    assert.deepEqual([client.renewed, client.bodies("renew")[0]], ["/v1/sessions/another/renew", { open_digest: digestOf(nonce) }]);
    const other = { ...renewal, open: [listed("other", 8)] };
    await renewals(client, other, renewal, other, { ...renewal, open: [{}] });
    assert.deepEqual(client.bodies("report"), []); // not twice in a row
    await renewals(client, other, other);
    assert.deepEqual(client.bodies("report").map((r) => r["outcome"]), ["unknown"]); // its outcome is unknown
    return f.externalId;
  }));
  assert.deepEqual(client.bodies("report").map((r) => r["outcome"]), ["unknown", "succeeded"]);
});

test("the attempts of a client share a session", async () => {
  const client = new Scripted().gets(proceed({ session: "first", renew_every_ms: 600_000 }));
  client.renewEveryMs = 50;
  const own = proceed({ session: "own" });
  await client.run({}, (f) => f.effect(async () => {
    client.answers = [own, own, own];
    const inside: (() => void)[] = [];
    const flights = ["2", "3"].map((i) => client.once("test", i, 1, (g) => g.effect(() => new Promise<void>((wake) => inside.push(wake)))));
    while (inside.length < 2) await nextTick();
    const [, two, three] = client.bodies("open");
    assert.deepEqual(client.bodies("open").map((o) => o["session"]), [undefined, "own", "own"]);
    assert.equal(client.bodies("sessions").length, 1);
    await assert.rejects(client.run({}, (g) => g.effect(() => { throw new NotDone("nothing happened"); })), NotDone);
    const reported = nonceId(client.bodies("open")[3]);
    const renewal = { session: "own", trust_ms: 9000 };
    const pages = [{ ...renewal, open: [{ ...listed("x"), flight_id: "fl_x" }], more: true }, renewal];
    await renewals(client, ...pages);
    const open_digest = digestOf(nonceId(two), nonceId(three));
    const renewed = client.bodies("renew");
    const second = renewed.findIndex((r) => r["after"] === "fl_x"); // another renewal may have come since
    assert.deepEqual(renewed.slice(second - 1, second + 1), [{ open_digest }, { open_digest, after: "fl_x" }]);
    const old = { ...renewal, open: [listed(reported)] }; // older than the report
    await renewals(client, old, old);
    assert.deepEqual(client.bodies("report").map((r) => r["outcome"]), ["not_done", "not_done"]); // no doubt
    await renewals(client, renewal);
    assert.equal(client.bodies("close").length, 0);
    for (const wake of inside) wake();
    await Promise.all(flights);
    while (client.bodies("close").length === 0) await nextTick(); // it has listed an attempt again, so it ends
  }));
});

test("a lost session is replaced, and an idle one is closed", async (t) => {
  const client = new Scripted().gets(proceed({ session: "first" }));
  client.renewEveryMs = 50;
  await client.run();
  client.gets(refused("idempotency_in_flight", 409, { proposed: false }));
  await assert.rejects(client.run({ waitMs: 0 }), Busy);
  assert.deepEqual(client.leftOpens, []); // a renewal would list it
  const own = proceed({ session: "own" });
  client.answers = [own];
  await assert.rejects(client.run({}, async (f) => {
    await renewals(client, refused("lease_lost", 410, { session: "own" }));
    return f.effect(() => assert.fail("it starts"));
  }), LeaseLost);
  assert.equal(client.leftOpens.length, 1); // no renewal lists it any more
  client.answers = [own];
  await client.run();
  assert.equal(client.bodies("sessions").length, 2);
  const move = clocks(t);
  const renewal = { session: "own", trust_ms: 900_000 };
  await renewals(client, renewal);
  move(61_000);
  while (client.bodies("close").length === 0) await nextTick();
  client.gets(own);
  await client.run();
  assert.equal(client.bodies("open")[0]?.["session"], undefined); // a client that acts seldom has no session
});

test("a session that is closed while an effect may begin is renewed until it has ended", async () => {
  const client = new Scripted().gets(proceed({ session: "first" }));
  client.renewEveryMs = 50;
  await client.run();
  client.gets(() => {
    for (const session of client.sessions) void session.close(); // as at the stop of a worker
    return proceed({ session: "own" });
  });
  await client.run({}, (f) => f.effect(async () => {
    assert.deepEqual(client.bodies("close"), []);
    await renewals(client, { session: "own", trust_ms: 9000 });
  }));
  while (client.bodies("close").length === 0) await nextTick();
});

test("a session that is answered too late is not waited for again", async () => {
  const client = new Scripted().gets(proceed({ session: "first" }));
  await client.run();
  client.trustMs = 0;
  client.gets(proceed({ session: "its own" }));
  await client.run();
  assert.deepEqual([client.bodies("sessions").length, client.bodies("open")[0]?.["session"]], [1, undefined]);
});

test("what an unanswered claim has opened is abandoned when it is given up", async () => {
  const client = new Scripted();
  client.renewEveryMs = 50;
  const ask = client.ask.bind(client);
  const claims: { nonce: string; give: (answer: Body) => void; fail: (e: Error) => void }[] = [];
  client.ask = ((method: string, route: string, body: Body, { signal }: { signal?: AbortSignal }) => {
    if (!route.endsWith(":claim")) return ask(method, route, body);
    return new Promise((wake, fail) => {
      signal?.addEventListener("abort", () => fail(signal.reason));
      const sentAt = { mono: performance.now(), wall: Date.now() };
      claims.push({ nonce: body["nonce"], fail, give: (json) => wake({ json, sentAt }) });
    });
  }) as typeof client.ask;
  const flightId = listed("")["flight_id"];
  const ran: unknown[] = [];
  const worker = client.worker().on("test", {}, (input, job) => { ran.push([input, job.key]); return 1; });
  const running = worker.run();
  const claimed = async (n: number) => { while (claims.length < n) await nextTick(); return claims[n - 1] ?? assert.fail(); };
  const list = (claim: string): Body => ({ session: "own", trust_ms: 9000,
    open: [listed(createHash("sha256").update(`${claim}.${flightId}`).digest("hex").slice(0, 32))] });
  const first = await claimed(1);
  await renewals(client, list(first.nonce), list(first.nonce), list(first.nonce));
  assert.deepEqual([client.pendingAbandons, client.bodies("report")], [[], []]); // its answer may bring the job
  first.fail(nobodyThere);
  const second = await claimed(2);
  await renewals(client, list(first.nonce));
  assert.deepEqual((await client.abandoned()).map((a) => [a["action"], a["id"], a["nonce"]]), [["test", "1", `${first.nonce}.${flightId}`]]);
  const job = proceed({ session: "own", flight_id: flightId, input: 5, nonce: `${second.nonce}.${flightId}`, policy: {} });
  const others = ["flight_id", "key", "decision"].map((field) => ({ ...job, [field]: "other" }));
  second.give({ nonce: second.nonce, jobs: [...others, job] });
  while (client.bodies("report").length === 0) await nextTick();
  assert.deepEqual([ran, client.bodies("report")[0]?.["outcome"]], [[[5, "default/test/1"]], "succeeded"]);
  const third = await claimed(3);
  worker.stop();
  const again = await claimed(4);
  again.give({ nonce: third.nonce, jobs: [{ ...job, nonce: `${third.nonce}.${flightId}` }] });
  await running;
  assert.deepEqual([again.nonce, client.bodies("close").length, ran.length], [third.nonce, 1, 1]);
  assert.equal((await client.abandoned()).at(-1)?.["nonce"], `${third.nonce}.${flightId}`); // what was handed out meanwhile is given back
  await assert.rejects(client.worker().run(), TypeError);
});

test("a job that the client cannot read is not done", async () => {
  for (const [bad, text] of [
    [{ policy: null }, "policy: "], [{ policy: { recovery: "retry" } }, "policy: "], [{ age_ms: "x" }, "age_ms: x"],
    [{ policy: { settle_ms: -1 } }, "settle_ms: -1"], [{ policy: { attempt_timeout_ms: true } }, "attempt_timeout_ms: true"],
    [{ input_base64: "*" }, "input_base64: "], [{ input_base64: 7 }, "input_base64: "], [{ input_content_type: 7 }, "input_content_type: "],
  ] as [Body, string][]) {
    const client = new Scripted();
    const ask = client.ask.bind(client);
    let claims = 0;
    client.ask = (async (method: string, route: string, body: Body, options: { signal?: AbortSignal }) => {
      if (!route.endsWith(":claim")) return ask(method, route, body);
      const { signal } = options;
      if (claims++ > 0 && signal) return new Promise((_, fail) => signal.addEventListener("abort", () => fail(signal.reason)));
      const flightId = listed("")["flight_id"];
      const job = proceed({ session: "own", flight_id: flightId, nonce: `${body["nonce"]}.${flightId}`, policy: {}, ...bad });
      return { json: { nonce: body["nonce"], jobs: claims > 1 ? [] : [job] }, sentAt: { mono: performance.now(), wall: Date.now() } };
    }) as typeof client.ask;
    const worker = client.worker().on("test", {}, () => assert.fail("it runs"));
    const running = worker.run();
    while (client.bodies("report").length === 0) await nextTick();
    worker.stop();
    await running;
    const report = client.bodies("report")[0];
    assert.equal(report?.["outcome"], "not_done");
    assert.ok(String(report?.["error"]).includes(`this client cannot read the job: ${text}`), JSON.stringify(report));
  }
});

test("jobs", async () => {
  const client = new Client(undefined, { spool: "", ttlSeconds: 10, log: () => undefined });
  const action = `act-${randomUUID()}`;
  const worker = client.worker({ concurrency: 4 });
  worker.on<{ cents: number }>(action, { recovery: "resend", window: "24h", retry: 2 }, (order) => {
    if (order.cents === 7) throw new Refused("declined");
    return { cents: order.cents + 1 };
  });
  const first = await client.submit(action, "1", { cents: 5 });
  assert.deepEqual([first.status, /no worker/.test(first.warning)], ["queued", true]);
  assert.equal((await client.submit(action, "1", { cents: 5 })).status, "duplicate");
  await assert.rejects(client.submit(action, "1", { cents: 6 }), Conflict);
  await assert.rejects(client.wait(action, "1", 200), Busy);
  const many = Array.from({ length: 1100 }, (_, i): [string, unknown] => [`n-${i}`, { cents: i + 10 }]);
  assert.deepEqual(await client.submitAll(action, many), { queued: 1100, duplicate: 0, conflict: 0 });
  assert.deepEqual(await client.submitAll(action, [["1", { cents: 5 }], ["1", 1], ["bad id", 2], ["7", { cents: 7 }]], { priority: 5 }),
    { queued: 1, duplicate: 1, conflict: 1, idempotency_key_invalid: 1 });
  const running = worker.run();
  assert.deepEqual((await client.wait(action, "1")).value, { cents: 6 });
  await assert.rejects(client.wait(action, "7", 30_000), Declined);
  assert.deepEqual((await client.wait(action, "n-1099")).value, { cents: 1110 });
  worker.stop();
  await running;
  assert.throws(() => worker.on(action, { window: "24 hours" }, () => 1), TypeError);
  const { json } = await client.ask("GET", `/v1/actions/${action}`);
  assert.deepEqual([json["recovery"], json["provider_window_ms"], json["retry"].attempts], ["resend", 86_400_000, 2]); // declared
});

test("the document of the action counts", async () => {
  const lines: string[] = [];
  const client = new Client(undefined, { spool: "", ttlSeconds: 10, log: (line) => lines.push(line) });
  const action = `act-${randomUUID()}`;
  await client.ask("PUT", `/v1/actions/${action}`, { recovery: "resend", retry: { attempts: 2 }, reason: "a test" });
  const wrong = new Client(undefined, { spool: "", ttlSeconds: 10, log: () => undefined });
  const refused = wrong.worker().on(action, { recovery: "hold" }, () => assert.fail("it runs"));
  assert.equal((await wrong.submit(action, "1", 5)).status, "queued");
  await assert.rejects(refused.run(), (e: unknown) => e instanceof PolicyDiffers && e.differences.length === 1 &&
    /recovery is hold here, and resend in the document.*flightd actions apply/.test(e.message));
  const worker = client.worker().on(action, { recovery: "resend", retry: 5 }, (input: number) => input);
  const running = worker.run();
  assert.equal((await client.wait(action, "1")).value, 5); // submitted with the document's policy, although its process brought hold
  assert.equal((await client.get(action, "1"))?.["recovery"], "resend");
  worker.stop();
  await running;
  assert.equal(lines.filter((line) => line.includes("retry.attempts is 5 here, and 2 in the document")).length, 1);
});

test("steps of a saga", async () => {
  const client = new Client(undefined, { spool: "", ttlSeconds: 10, log: () => undefined });
  const saga = `act-${randomUUID()}`;
  const calls: unknown[] = [];
  const steps = [{ name: "hotel", action: `${saga}.book`, undo: { action: `${saga}.cancel` } }, { name: "pay", needs: ["hotel"], no_undo: true }];
  await client.ask("PUT", `/v1/sagas/${saga}/versions/1`, { saga, steps });
  await client.ask("POST", "/v1/sagas:start", { saga, id: "b-1", input: { cents: 5 } });
  const worker = client.worker();
  worker.on(`${saga}.book`, {}, (_, job) => { calls.push(["book", job.key]); return { id: "room_17" }; });
  worker.on<any>(`${saga}.pay`, {}, (input) => { calls.push(["pay", input.steps.hotel.body]); throw new Refused("declined"); });
  worker.on<any>(`${saga}.cancel`, {}, (input) => { calls.push(["cancel", input.input]); });
  const running = worker.run();
  await assert.rejects(client.wait(saga, "b-1", 30_000), Declined);
  worker.stop();
  await running;
  assert.deepEqual(calls, [["book", `default/${saga}/b-1#hotel`], ["pay", { id: "room_17" }], ["cancel", { cents: 5 }]]);
});

test("only an exact time sets the ledger clock back", async (t) => {
  const told = ["5000", "7000", "6000", "", "later", "5500"]; // the last one by an answer open_expired
  const server = createServer((request, response) => {
    if (request.url === "/version") {
      response.setHeader("Flightd-Ledger-Time", "99999").end('{"version":"1"}');
      return;
    }
    const time = told.shift();
    if (time) response.setHeader("Flightd-Ledger-Time", time);
    if (told.length > 0) response.end('{"state":"running","id":"fl_1"}');
    else response.writeHead(409).end('{"code":"open_expired","retryable":false}');
  });
  const asks = new Client(await listen(t, server), { spool: "" });
  for (const want of [5000, 7000, 7000, 7000, 7000, 5500]) {
    await asks.ask("GET", "/v1/flights/fl_1").catch(() => undefined);
    const known = asks.ledgerMs();
    assert.ok(known >= want && known < want + 900, `${known} is not ${want}`);
  }
});

test("the order of servers", () => {
  const rows: [number, string, string, number, number[]][] = [
    [1, "- - -", "", -1, [1, 2, 0]], [0, "a b c", "c", -1, [2, 0, 1]], [1, "a b c", "d", -1, [1, 2, 0]], [1, "a - c", "c", -1, [2, 0, 1]],
    [1, "a - c", "", -1, [2, 0, 1]], [0, "a - -", "c", 1, [1, 0, 2]], [2, "a c c", "c", -1, [2, 1, 0]], [2, "- - -", "c", -1, [2, 0, 1]],
    [0, "a b -", "c", 2, [2, 0, 1]],
  ];
  for (const [preferred, nodes, leader, probe, want] of rows) {
    assert.deepEqual(tryOrder(preferred, nodes.split(" ").map((n) => n === "-" ? "" : n), leader, probe), want, nodes);
  }
});

test("the leader is found by one probe a second", (t) => {
  let at = 1000;
  t.mock.method(performance, "now", () => at);
  const picker = new Picker(3);
  const pick = (want: number, probes: boolean): void => {
    const { order, probe } = picker.pick(true);
    assert.deepEqual([order[0], probe === order[0]], [want, probes]);
  };
  pick(0, false);
  picker.answered(0, -1, "a", "c");
  assert.deepEqual(picker.pick(false), { order: [0, 1, 2], probe: -1 }); // this request must not probe
  pick(1, true);
  at += 60_000;
  pick(0, false); // the probe is in flight
  picker.answered(1, 1, "b", "c");
  pick(0, false);
  at += 1000;
  pick(2, true);
  picker.answered(2, 2, "c", "c");
  pick(2, false);
  picker.answered(2, -1, "c", "b"); // b leads now
  pick(1, false);
  picker.failed(1, -1); // b is away, and c still names it
  pick(2, false);
  for (const ms of [1000, 1000, 2000]) { // the pause doubles
    at += ms / 2;
    pick(2, false);
    at += ms / 2;
    pick(1, true);
    picker.failed(1, 1);
  }
  at += 4000;
  pick(1, true);
  picker.answered(1, 1, "b", "b");
  pick(1, false);
});

test("lone servers are preferred in turn", () => {
  const picker = new Picker(2);
  for (let i = 0; i < 5; i++) {
    assert.deepEqual(picker.pick(true), { order: [i % 2, 1 - i % 2], probe: -1 });
    picker.answered(i % 2, -1, "", "");
    assert.equal(picker.pick(true).order[0], i % 2);
    picker.failed(i % 2, -1);
    picker.failed(i % 2, -1); // another request at the same server
  }
});

const CANARY = "fltd_canary-4f1c";

/** Serves the version, and other answers by path, and notes path and Authorization of each request. */
async function serveAccess(t: TestContext, server = createServer()): Promise<{ address: string; asked: [string, string | undefined][]; answers: Record<string, [number, Record<string, string>, unknown]> }> {
  const asked: [string, string | undefined][] = [];
  const answers: Record<string, [number, Record<string, string>, unknown]> = {};
  server.on("request", (request, response) => {
    asked.push([request.url ?? "", request.headers.authorization]);
    const [status, headers, body] = answers[request.url ?? ""] ?? [200, {}, { version: "1", deployment: "d" }];
    request.resume().on("end", () => response.writeHead(status, headers).end(JSON.stringify(body)));
  });
  return { address: await listen(t, server), asked, answers };
}

/** Sets variables of the environment for a test. */
function environment(t: TestContext, variables: Record<string, string>): void {
  const before = { ...process.env };
  t.after(() => { for (const name of Object.keys(variables)) if (before[name] === undefined) delete process.env[name]; else process.env[name] = before[name]; });
  Object.assign(process.env, variables);
}

const version = (asks: Client): Promise<{ json: Body }> => asks.ask("GET", "/version");

test("the token of a request", async (t) => {
  const { address, asked } = await serveAccess(t);
  const file = path.join(await mkdtemp(path.join(spool, "token-")), "token");
  await writeFile(file, "of-the-file\r\n");
  for (const [options, variables, want] of [
    [{}, {}, undefined],
    [{}, { FLIGHTD_TOKEN: "of-the-environment", FLIGHTD_TOKEN_FILE: file }, "Bearer of-the-environment"],
    [{}, { FLIGHTD_TOKEN: "of-the-environment\r\n" }, "Bearer of-the-environment"],
    [{}, { FLIGHTD_TOKEN: "", FLIGHTD_TOKEN_FILE: file }, "Bearer of-the-file"],
    [{ token: "given", tokenFile: file }, { FLIGHTD_TOKEN: "x" }, "Bearer given"],
    [{ tokenFile: file }, { FLIGHTD_TOKEN: "x" }, "Bearer of-the-file"],
  ] as [ClientOptions, Record<string, string>, string | undefined][]) {
    environment(t, { FLIGHTD_TOKEN: "", FLIGHTD_TOKEN_FILE: "", ...variables });
    await version(new Client(address, { spool: "", ...options }));
    assert.deepEqual(asked.at(-1), ["/version", want]);
  }
  environment(t, { FLIGHTD_TOKEN: "", FLIGHTD_TOKEN_FILE: "" });
  const user = address.replace("://", "://u:p%20@");
  await version(new Client(user, { spool: "" }));
  assert.equal(asked.at(-1)?.[1], "Basic dTpwIA==");
  await version(new Client(user, { spool: "", token: "given" }));
  assert.equal(asked.at(-1)?.[1], "Bearer given");
});

test("a token that cannot be sent is rejected and not shown", async (t) => {
  const folder = await mkdtemp(path.join(spool, "token-"));
  const [lines, empty, none] = ["lines", "empty", "none"].map((name) => path.join(folder, name)) as [string, string, string];
  await writeFile(lines, `${CANARY}\n${CANARY}\n`);
  await writeFile(empty, "\n");
  const hidden = (e: unknown): boolean => e instanceof Error && !inspect(e).includes(CANARY);
  for (const options of [{ token: CANARY + " x" }, { token: CANARY + "\n" }, { token: CANARY + "\x01" }, { token: CANARY + "é" },
    { tokenFile: lines }, { tokenFile: empty }, { tokenFile: none }]) {
    assert.throws(() => new Client("http://127.0.0.1:1", { spool: "", ...options }), hidden);
  }
  assert.throws(() => new Client(`http://user:${CANARY}@127.0.0.1:1?x=y`, { spool: "" }), hidden);
  const scheme = path.join(folder, "scheme");
  await writeFile(scheme, "bearer " + CANARY);
  for (const options of [{ token: "Bearer " + CANARY }, { tokenFile: scheme }]) {
    assert.throws(() => new Client("http://127.0.0.1:1", { spool: "", ...options }),
      (e) => hidden(e) && /begins with "Bearer ": leave that word out/.test((e as Error).message));
  }
  environment(t, { FLIGHTD_TOKEN: "", FLIGHTD_TOKEN_FILE: none });
  assert.throws(() => new Client("http://127.0.0.1:1", { spool: "" }), (e) => e instanceof TypeError && e.message.startsWith(`FLIGHTD_TOKEN_FILE cannot be read: ${none}: `));
  environment(t, { FLIGHTD_TOKEN_FILE: "", FLIGHTD_CA_FILE: none });
  assert.throws(() => new Client("https://127.0.0.1:1", { spool: "" }), (e) => e instanceof TypeError && e.message.startsWith(`FLIGHTD_CA_FILE cannot be read: ${none}: `));
});

test("a token over plain HTTP", (t) => {
  const given = { token: CANARY };
  const fromEnv = { FLIGHTD_TOKEN: CANARY };
  for (const [address, options, variables, host] of [
    ["http://user:pw@flightd.example.com:7420/x", given, {}, "http://flightd.example.com:7420"],
    ["10.0.0.1:7420", given, {}, "http://10.0.0.1:7420"],
    ["https://a,http://b", {}, fromEnv, "http://b"],
    ["http://localhost.example.com", {}, fromEnv, "http://localhost.example.com"],
    ["http://b", {}, { ...fromEnv, FLIGHTD_ALLOW_PLAIN_HTTP: "false" }, "http://b"],
    ["https://flightd.example.com", given, {}, ""],
    ["LOCALHOST:1,http://127.9.9.9:1,http://[::1]:1", given, {}, ""],
    ["http://flightd.example.com", {}, {}, ""],
    ["http://b", { ...given, allowPlainHttp: true }, {}, ""],
    ["http://b", {}, { ...fromEnv, FLIGHTD_ALLOW_PLAIN_HTTP: "true" }, ""],
  ] as [string, ClientOptions, Record<string, string>, string][]) {
    environment(t, { FLIGHTD_TOKEN: "", FLIGHTD_TOKEN_FILE: "", FLIGHTD_ALLOW_PLAIN_HTTP: "", ...variables });
    const connect = (): Client => new Client(address, { spool: "", ...options });
    if (!host) {
      connect();
      continue;
    }
    assert.throws(connect, (e) => e instanceof TypeError && e.message.includes(`the token would travel in clear text to ${host}; write https://`) &&
      e.message.includes("FLIGHTD_ALLOW_PLAIN_HTTP=true") && !e.message.includes("pw") && !e.message.includes(CANARY));
  }
});

test("a replaced token is used", async (t) => {
  const { address, asked } = await serveAccess(t);
  const file = path.join(await mkdtemp(path.join(spool, "token-")), "token");
  await writeFile(file, "first\n");
  const said: string[] = [];
  const move = clocks(t);
  const asks = new Client(address, { spool: "", tokenFile: file, log: (m) => said.push(m) });
  for (const [text, later, want] of [["second", 0, "first"], ["second", 1000, "second"], ["", 1000, "second"], ["not one word", 1000, "second"],
    [undefined, 1000, "second"], ["third", 1000, "third"]] as const) {
    if (text === undefined) await rm(file);
    else await writeFile(file, text);
    move(later);
    await version(asks);
    assert.equal(asked.at(-1)?.[1], `Bearer ${want}`, text);
  }
  assert.equal(said.filter((m) => m.includes("the token file cannot be used")).length, 3);
  assert.doesNotMatch(said.join(), /not one word/);
});

test("the token is never shown", async (t) => {
  const { address, asked, answers } = await serveAccess(t);
  const flight = { flight_id: "fl_1", key: "default/test/1" };
  answers["/v1/flights:open"] = [201, {}, { ...flight, decision: "proceed", attempt: 1, fencing_token: "t", session: "s", trust_ms: 10_000, idempotency_key: "i" }];
  answers["/v1/flights/fl_1/report"] = [401, {}, { code: "unauthenticated", retryable: false }];
  const folder = await mkdtemp(path.join(spool, "shown-"));
  const shown: string[] = [];
  const asks = new Client(address, { spool: folder, token: CANARY, reportWaitMs: 100, log: (m) => shown.push(m) });
  const show = (what: unknown): number => shown.push(String(what), inspect(what, { depth: 20, showHidden: true }));
  await assert.rejects(asks.once("test", "1", 1, (f) => { show(f); return f.effect(() => 1); }), (e) => { show(e); return e instanceof Unrecorded; });
  show(asks);
  const names = await readdir(folder);
  assert.equal(names.filter((n) => n.endsWith(".report")).length, 1, "a rejected token does not reject the report");
  for (const name of names) shown.push(await readFile(path.join(folder, name), "latin1"));
  asks.close();
  assert.ok(!shown.join("\n").includes(CANARY));
  assert.ok(asked.length > 3 && asked.every(([, token]) => token === `Bearer ${CANARY}`));
});

test("the answer to another request counts as lost", async (t) => {
  const problem = JSON.stringify({ code: "in_doubt", retryable: false, detail: "it may", flight_id: "fl_1", proposed: true });
  const others: [number, string][] = []; // the next answers to other requests
  const echoes: unknown[] = [];
  const asks = new Client(await listen(t, createServer((request, response) => {
    if (request.url === "/version") return void response.end('{"version":"1","deployment":"d"}');
    echoes.push(request.headers["flightd-echo"]);
    const other = others.shift();
    if (other) response.setHeader("Flightd-Echo", "other");
    response.writeHead(other?.[0] ?? 409).end(other?.[1] ?? problem);
  })), { spool: "" });
  for (const [status, body, text] of [[409, problem, "is that to another request: in_doubt: it may"], [503, problem, "another request"],
    [200, "{}", "not from flightd"], [304, "", "not from flightd"], [502, "<html/>", "not from flightd"], [408, "", "not from flightd"],
    [404, "<html/>", ""], [302, "", ""]] as const) {
    for (const tries of [1, 2]) {
      others.splice(0, 2, [status, body]);
      const want = text === "" ? ["internal", false] : [tries === 1 ? "unreachable" : "in_doubt", true];
      await assert.rejects(asks.ask("POST", "/v1/flights:open", {}, { tries }), (e) => e instanceof FlightdError &&
        e.code === want[0] && e.mayHaveArrived === want[1] && e.message.includes(tries === 1 ? text : ""), `${status} ${tries}`);
    }
  }
  assert.deepEqual([echoes.length, new Set(echoes).size], [22, 22]); // each try has a value of its own
});

test("a redirect is not followed", async (t) => {
  const [target, server] = [await serveAccess(t), await serveAccess(t)];
  server.answers["/version"] = [307, { Location: target.address + "/elsewhere" }, {}];
  await assert.rejects(version(new Client(server.address, { spool: "", token: CANARY, retryTimeoutMs: 10 })), FlightdError);
  assert.deepEqual([server.asked.length, target.asked.length], [1, 0]);
});

test("an open over a quota is repeated", async (t) => {
  const { address, asked, answers } = await serveAccess(t);
  const asks = new Client(address, { spool: "", retryTimeoutMs: 3500 });
  answers["/version"] = [429, { "Retry-After": "1" }, { code: "quota_exceeded", retryable: true }];
  const began = performance.now();
  await assert.rejects(version(asks), (e) => e instanceof Unavailable && e.code === "quota_exceeded");
  const took = performance.now() - began;
  assert.ok(asked.length >= 2 && asked.length <= 1 + took / 990, `${asked.length} requests in ${took} ms: each after the second that the server named`);
});

test("TLS", async (t) => {
  const folder = await mkdtemp(path.join(spool, "tls-"));
  const file = (name: string): string => path.join(folder, name);
  const issue = (name: string, ca: string, ...more: string[]): void => {
    const signed = ca ? ["-CA", file(ca), "-CAkey", file(ca + ".key"), "-addext", "basicConstraints=critical,CA:FALSE"] : [];
    execFileSync("openssl", ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1", "-subj", `/CN=${name}`,
      "-keyout", file(name + ".key"), "-out", file(name), ...more, ...signed], { stdio: "ignore" });
  };
  issue("ca", "");
  issue("other-ca", "");
  issue("server", "ca", "-addext", "subjectAltName=IP:127.0.0.1");
  issue("server-2", "other-ca", "-addext", "subjectAltName=IP:127.0.0.1");
  issue("elsewhere", "ca", "-addext", "subjectAltName=DNS:elsewhere");
  issue("me", "ca");
  const serve = async (name: string, options = {}): Promise<string> => {
    const server = createSecureServer({ cert: await readFile(file(name)), key: await readFile(file(name + ".key")), ...options });
    return (await serveAccess(t, server as unknown as Server)).address.replace("http:", "https:");
  };
  const of = (address: string, options: ClientOptions = {}): Client => new Client(address, { spool: "", retryTimeoutMs: 600_000, ...options });
  const untrusted = (hint: boolean) => (e: unknown): boolean => e instanceof Unavailable && !e.mayHaveArrived &&
    /certificate of https:\/\/127.*not trusted/.test(e.message) && /set FLIGHTD_CA_FILE/.test(e.message) === hint;
  environment(t, { FLIGHTD_CA_FILE: "", FLIGHTD_CLIENT_CERT: "", FLIGHTD_CLIENT_KEY: "", NODE_TLS_REJECT_UNAUTHORIZED: "0" });
  const address = await serve("server");
  assert.equal((await version(of(address, { caFile: file("ca") }))).json["version"], "1");
  await assert.rejects(version(of(address)), untrusted(true)); // it is not retried for ten minutes
  await assert.rejects(version(of(address, { caFile: file("other-ca") })), untrusted(true));
  await assert.rejects(version(of(await serve("elsewhere"), { caFile: file("ca") })), untrusted(false));
  await version(of(`${await serve("server-2")},${address}`, { caFile: file("ca") })); // by the next server

  const strict = await serve("server", { requestCert: true, ca: await readFile(file("ca")) });
  const pair = { clientCert: file("me"), clientKey: file("me.key") };
  for (const maxVersion of ["TLSv1.2", "TLSv1.3"]) {
    const demanding = await serve("server", { requestCert: true, ca: await readFile(file("ca")), maxVersion });
    await assert.rejects(version(of(demanding, { caFile: file("ca") })), (e) => e instanceof Unavailable && // a reset may come before the alert
      /set FLIGHTD_CLIENT_CERT and FLIGHTD_CLIENT_KEY/.test(e.message));
  }
  await version(of(strict, { caFile: file("ca"), ...pair }));
  environment(t, { FLIGHTD_CA_FILE: file("ca"), FLIGHTD_CLIENT_CERT: pair.clientCert, FLIGHTD_CLIENT_KEY: pair.clientKey });
  const asks = of(strict);
  await version(asks);
  assert.doesNotMatch(inspect(asks, { depth: 20, showHidden: true }), /PRIVATE KEY/);
  for (const wrong of [{ caFile: file("none") }, { caFile: file("me.key") }, { clientCert: file("me") }, { ...pair, clientKey: file("ca.key") }]) {
    assert.throws(() => of(strict, wrong), Error);
  }
});

test("configuration by the environment", async () => {
  process.env["FLIGHTD_NAMESPACE"] = "billing";
  process.env["XDG_STATE_HOME"] = spool;
  assert.equal((await once("test", id, 1, (f) => f.effect(() => f.key))).value, `billing/test/${id}`);
});
