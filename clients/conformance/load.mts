/**
 * Callers of chaos/cluster in TypeScript: the order "load" of callers.go, whose settings, orders and events it shares. With
 * FLIGHTD_CHAOS_WORKER set to a name it is a worker, as workers.go has it.
 */

import { createHash } from "node:crypto";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import {
  Busy, Client, Fenced, InDoubt, LeaseLost, Unavailable, Unrecorded, Unsettled, throwForStatus, type Flight, type Found,
  type OnceOptions,
} from "../typescript/flightd.js";

interface Order { Do: string; Name: string; Callers: number; MaxKeys: number; Lasts: number; LongOneIn: number; Every: number }

type Recovery = NonNullable<OnceOptions["recovery"]>;
const RECOVERIES = ["hold", "resend", "verify"] as const;
const settings: {
  URLs: string[]; Addresses: string[]; Provider: string; Token: string; Spool: string; Seed: number; Part: number; Parts: number;
  WindowMS: number; SettleMS: number; SessionMS: number;
} = JSON.parse(process.env["FLIGHTD_CHAOS_CALLERS"] ?? "");

const stopped = new Set<string>(); // names of orders
const say = (event: object): void => { process.stdout.write(JSON.stringify(event) + "\n"); };

async function lookUp(key: string): Promise<Found> {
  const answer = await fetch(`${settings.Provider}/effects?key=${encodeURIComponent(key)}`);
  const body = new Uint8Array(await answer.arrayBuffer());
  if (answer.status === 404) return { happened: false };
  throwForStatus(answer, "", { method: "GET" });
  return { happened: true, value: body };
}

async function act(f: Flight<unknown>, lastsMs: number): Promise<Uint8Array> {
  const request = { method: "POST", headers: f.headers, body: JSON.stringify({ key: f.key, lasts_ms: lastsMs }) };
  const answer = await fetch(`${settings.Provider}/effects`, request);
  throwForStatus(answer);
  return new Uint8Array(await answer.arrayBuffer());
}

/** Performs the effect of a key at most once, and returns what flightd answered. */
async function call(client: Client, recovery: Recovery, name: string, key: string, lastsMs: number): Promise<object> {
  const options: OnceOptions = { recovery };
  if (recovery === "resend") options.providerWindowMs = settings.WindowMS;
  if (recovery === "verify") Object.assign(options, { settleMs: settings.SettleMS, lookUp: () => lookUp(key) });
  let body: Uint8Array | undefined;
  const result = await client.once(recovery, name, { key, lasts_ms: 0 }, (f) => f.effect(async () => body = await act(f, lastsMs)), options);
  if (body === undefined || result.source !== "executed") body = await result.body();
  const { attempt, digest } = result.receipt;
  return { Source: result.source, Attempt: attempt, Body: Buffer.from(body).toString(), Digest: digest };
}

function resultOf(e: unknown): string {
  if (e instanceof InDoubt) return "in_doubt";
  if (e instanceof Unrecorded) return "unrecorded";
  if (e instanceof Fenced) return "fenced";
  if (e instanceof Busy || e instanceof Unavailable || e instanceof LeaseLost) return "unavailable";
  if (e instanceof Unsettled) return e.outcome === "not_done" ? "unavailable" : "unsettled";
  return "other";
}

/** Calls a key until there is an answer that another call would not change. */
async function callUntilEnd(client: Client, caller: string, recovery: Recovery, name: string, lastsMs: number): Promise<void> {
  const key = `default/${recovery}/${name}`;
  for (const until = Date.now() + 180_000; ; await sleep(100)) {
    const began = new Date();
    const told = { Key: key, Caller: caller, Lasts: lastsMs * 1e6, Began: began, Ended: began, Result: "succeeded", Err: "" };
    try {
      Object.assign(told, await call(client, recovery, name, key, lastsMs));
    } catch (e) {
      told.Result = resultOf(e);
      told.Err = String(e);
    }
    told.Ended = new Date();
    say({ Call: told });
    if (!["unavailable", "unrecorded", "unsettled", "fenced"].includes(told.Result) || Date.now() > until) return;
  }
}

async function load(order: Order, client: Client, caller: number): Promise<void> {
  for (let step = 0; step < order.MaxKeys && !stopped.has(order.Name); step++) {
    const dice = createHash("sha256").update(`${settings.Seed} ${caller} ${step}`).digest();
    const shared = step % 4 === 3;
    const recovery = RECOVERIES[(shared ? (step - 3) / 4 : dice.readUInt16LE(0)) % 3] ?? "hold";
    const name = shared ? `${order.Name}-shared-${Math.floor(caller / 4)}-${step}` : `${order.Name}-${caller}-${step}`;
    const long = order.LongOneIn > 0 && dice.readUInt16LE(2) % order.LongOneIn === 0;
    const lastsMs = long ? order.Lasts / 1e6 : dice.readUInt16LE(4) % 20;
    await callUntilEnd(client, order.Name + caller, recovery, name, lastsMs);
    await sleep((0.5 + dice.readUInt8(6) / 255) * order.Every / 1e6);
  }
}

/** Closes clients that share one folder, which has no report afterwards. */
async function close(clients: Client[]): Promise<void> {
  for (const until = Date.now() + 20_000; await clients[0]!.spooled() > 0 && Date.now() < until;) await sleep(100);
  for (const client of clients) client.close();
}

/** Performs jobs until SIGTERM. */
async function work(name: string): Promise<void> {
  const { URLs, Token: token, Spool, SessionMS } = settings;
  const client = new Client(URLs.join(","), { token, owner: name, spool: `${Spool}/${name}`, ttlSeconds: SessionMS / 1000 });
  const worker = client.worker({ concurrency: 8 });
  for (const recovery of RECOVERIES) {
    const options = recovery === "verify" ? { lookUp: (f: Flight<unknown>) => lookUp(f.key) } : {};
    worker.on(recovery, options, (order: { lasts_ms: number }, job) => act(job, order.lasts_ms));
  }
  console.log("ready");
  await worker.run();
  await close([client]);
  process.exit(0);
}

async function carryOut(order: Order, clients: Client[]): Promise<void> {
  if (order.Do === "load") {
    const running: Promise<void>[] = [];
    for (let i = settings.Part; i < order.Callers; i += settings.Parts) running.push(load(order, clients[i % clients.length]!, i));
    await Promise.all(running);
  }
  if (order.Do === "close") await close(clients);
  say({ Done: order.Name });
}

const worker = process.env["FLIGHTD_CHAOS_WORKER"];
if (worker) await work(worker);
const spool = `${settings.Spool}/typescript`;
const { Token: token, Addresses } = settings;
const clients = Addresses.map((addresses, i) => new Client(addresses, { token, owner: `typescript-${i}`, spool }));
say({ Done: "connected" });
for await (const text of createInterface({ input: process.stdin })) {
  const order: Order = JSON.parse(text);
  if (order.Do === "stop") stopped.add(order.Name);
  else void carryOut(order, clients);
}
process.exit(0); // the test that reads has gone
