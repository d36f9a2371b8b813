/** The conformance driver of the TypeScript client: it reads calls from stdin and prints the answers. See doc.go. */

import { createInterface } from "node:readline";
import {
  Client, Conflict, Declined, FlightdError, NotDone, Unavailable, Unsettled, throwForStatus, type Flight, type OnceOptions,
} from "../typescript/flightd.js";
import { answerOdd } from "./odd.mjs";

interface Call {
  call: number; callers: number; name: string; id: string; input?: unknown; recovery?: OnceOptions["recovery"];
  wait_ms?: number; settle_ms?: number; attempt_timeout_ms?: number; provider_window_ms?: number;
  before?: string; effect: string; look?: string; throw_before?: boolean; leave_behind?: string; inner?: string;
  twice?: boolean; again?: boolean; swallow?: boolean; unrun?: boolean; submit?: number; submit_all?: number; close?: boolean; odd?: string; entrance?: string;
}

interface Charge { id: string }

/** An error of the caller's own code. */
class CallerError extends Error {}

async function http(url: string, body?: unknown, headers: Record<string, string> = {}): Promise<any> {
  const answer = await fetch(url, body === undefined ? {} : { method: "POST", body: JSON.stringify(body), headers });
  const text = await answer.text();
  throwForStatus(answer.status, text, { method: body === undefined ? "GET" : "POST", redirects: answer.redirected });
  return text === "" ? undefined : JSON.parse(text);
}

function lookUpAt(look: string | undefined): Pick<OnceOptions, "lookUp"> {
  if (!look) return {};
  return { lookUp: async () => {
    const found = await http(look);
    return found.happened ? { happened: true, value: found.value, externalId: found.value.id } : { happened: false };
  } };
}

function optionsOf(call: Call): OnceOptions {
  const o: OnceOptions = { recovery: call.recovery ?? "hold", waitMs: call.wait_ms ?? Infinity, ...lookUpAt(call.look) };
  if (call.settle_ms !== undefined) o.settleMs = call.settle_ms;
  if (call.attempt_timeout_ms !== undefined) o.attemptTimeoutMs = call.attempt_timeout_ms;
  if (call.provider_window_ms !== undefined) o.providerWindowMs = call.provider_window_ms;
  return o;
}

async function perform(client: Client, f: Flight, call: Call): Promise<Charge> {
  if (call.unrun) return f.effect(async () => (() => http(call.effect, f.input)) as unknown as Charge);
  return f.effect(async () => {
    const charge: Charge = await http(call.effect, f.input ?? null, f.headers);
    f.externalId = charge.id;
    if (call.inner) await client.once(call.name, call.inner, undefined, (g) => g.effect(() => { throw new NotDone("the inner flight"); }));
    return charge;
  });
}

/** Tries the effect after the callback has ended. */
async function actAfterCallback(client: Client, f: Flight, call: Call, after: string): Promise<void> {
  await http(call.before ?? "");
  await perform(client, f, call).catch(() => undefined);
  await http(after);
}

/** Performs the jobs of the action charge. */
function work(client: Client, effect: string, look: string | undefined): void {
  const worker = client.worker({ concurrency: 8 });
  worker.on("charge", lookUpAt(look), async (order, job) => {
    const charge: Charge = await http(effect, order, job.headers);
    job.externalId = charge.id;
    return charge;
  });
  worker.run().catch((e) => process.stderr.write(`the worker has ended: ${codeOf(e)}: ${e.message}\n`));
}

/** Submits a job several times, and waits for its end. */
async function submit(client: Client, call: Call, times: number): Promise<object> {
  const said: string[] = [];
  const policy = { recovery: call.recovery ?? "hold", ...(call.provider_window_ms ? { window: call.provider_window_ms } : {}),
    ...(call.settle_ms ? { settle: call.settle_ms } : {}) };
  for (let i = 0; i < times; i++) said.push((await client.submit(call.name, call.id, call.input, policy)).status);
  return { source: said.join(" "), value: (await client.wait(call.name, call.id)).value };
}

/** Submits jobs in a batch, and tells how many are queued. */
async function submitAll(client: Client, call: Call, count: number): Promise<object> {
  const jobs = Array.from({ length: count }, (_, i): [string, unknown] => [`${call.id}-${i}`, call.input]);
  return { source: `queued ${(await client.submitAll(call.name, jobs))["queued"]}` };
}

async function once(client: Client, call: Call): Promise<object> {
  if (call.entrance) return answerOdd(client, { odd: "", entrance: call.entrance, ...call });
  if (call.close) {
    client.close();
    return { source: "closed" };
  }
  if (call.submit_all) return submitAll(client, call, call.submit_all);
  if (call.submit) return submit(client, call, call.submit);
  const result = await client.once<Charge>(call.name, call.id, call.input, async (f: Flight) => {
    if (call.leave_behind) {
      void actAfterCallback(client, f, call, call.leave_behind);
      throw new CallerError("before the effect");
    }
    if (call.before) await http(call.before);
    if (call.throw_before) throw new CallerError("before the effect");
    const charge = await perform(client, f, call).catch((e) => {
      if (call.swallow) return undefined as unknown as Charge;
      if (!call.again) throw e;
      return perform(client, f, call);
    });
    return call.twice ? perform(client, f, call) : charge;
  }, optionsOf(call));
  return {
    source: result.source, value: result.value, external_id: result.receipt.externalId, attempt: result.receipt.attempt,
    body: Buffer.from(await result.body()).toString("base64"),
  };
}

function codeOf(e: unknown): string {
  if (e instanceof Declined) return "declined";
  if (e instanceof Unsettled) return e.outcome;
  if (e instanceof Unavailable) return "unavailable";
  if (e instanceof FlightdError) return e.code;
  return e instanceof CallerError ? "not_done" : String((e as Error).name);
}

async function run(client: Client, call: Call, caller: number): Promise<void> {
  let line: Record<string, unknown> = { call: call.call, caller };
  try {
    line = { ...line, ...(await once(client, call)) };
  } catch (e) {
    line = { ...line, error: codeOf(e), detail: String((e as Error).message) };
    if (e instanceof Declined) line["value"] = e.receipt.value;
    if (e instanceof Conflict) line["value"] = e.fields;
  }
  process.stdout.write(JSON.stringify(line) + "\n");
}

let client: Client | undefined;
for await (const text of createInterface({ input: process.stdin })) {
  const line = JSON.parse(text);
  if (!client) {
    client = new Client(line.address, {
      spool: line.spool, retryTimeoutMs: line.retry_timeout_ms, reportWaitMs: line.report_wait_ms,
      ...(line.ttl_s ? { ttlSeconds: line.ttl_s } : {}),
    });
    if (line.work) work(client, line.work, line.look);
    continue;
  }
  for (let caller = 0; caller < line.callers; caller++) void run(client, line, caller);
}
client?.close();
setTimeout(() => process.exit(0), 2000).unref(); // calls that still run are not waited for
