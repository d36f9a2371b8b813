/**
 * flightd for TypeScript: a side effect runs once per key, and every duplicate gets its receipt.
 *
 * One file without dependencies (Node 20.3 or later); copy it into your project. Its types are erasable: any tool that
 * strips types can run it.
 *
 *     import { once } from "./flightd.js";
 *
 *     const charge = await once("charge", order.id, { cents: 4200 }, (f) =>
 *       f.effect(() => provider.charge(order, { idempotencyKey: f.idempotencyKey })));
 *     console.log(charge.value);      // what the callback has returned; every duplicate gets it as JSON holds it
 *
 * The callback runs only if the effect must happen now. The place where an error is thrown decides the outcome of the
 * attempt:
 *
 *     before effect()                      nothing was sent: `not_done`, and the key is free again
 *     Refused, anywhere                    the provider declined: the refusal is the receipt, and every repeat gets Declined
 *     NotDone, anywhere                    the effect surely did not happen this time: the key is free again
 *     any other error, once in effect()    the effect may have happened: `unknown`, and the recovery policy decides
 *
 * NotDone from one effect() covers that effect alone. If another effect of the callback may have happened, or if the
 * NotDone belongs to another flight inside the callback, it counts as any other error. After an effect() of unknown
 * outcome the callback starts no further effect, except under `resend`.
 *
 * Workers perform jobs that others have submitted; the same key is the same job, however often it is submitted:
 *
 *     const worker = client.worker({ concurrency: 16 });
 *     worker.on("charge", { recovery: "resend", window: "24h", retry: 8 }, async (order: Order, job) =>
 *       job.json(await fetch(URL, job.request({ body: order })))); // the whole handler is the effect
 *     await client.submit("charge", order.id, order);              // or submitAll
 *     await worker.run();                                          // until SIGTERM or Ctrl-C
 *
 * The default policy is `hold`: after an unknown outcome nobody acts until a person has decided (InDoubt). Use `resend`
 * for providers that honour `f.idempotencyKey`, and `verify` for providers that can be asked (`lookUp`).
 *
 * A client has one session for all its flights, which one timer renews; a callback that blocks the event loop for longer
 * than the session's time to live loses the session. A client that acts less than once a minute has none: the server makes
 * one for each of its attempts. The right to start the effect counts from the moment a request was *sent*; after it has
 * expired, `effect()` throws LeaseLost and nothing starts. An open whose caller gives up is abandoned, so that the ledger
 * records that nothing was sent. A report that no server accepts is fsynced to `$XDG_STATE_HOME/flightd/reports`, in the
 * format shared by all flightd clients, and the next client delivers it.
 *
 * `FLIGHTD_ADDR` names the servers (several servers of one deployment are separated by commas; the leader is preferred), and
 * `FLIGHTD_NAMESPACE` the namespace. `FLIGHTD_TOKEN` is the token, or `FLIGHTD_TOKEN_FILE` names its file, and
 * `FLIGHTD_CA_FILE` the authorities that an https server is checked against. `FLIGHTD_DEPLOYMENT` is the only deployment
 * that may answer.
 *
 * @module
 */

import { createHash, randomBytes, X509Certificate } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import * as fs from "node:fs/promises";
import * as http from "node:http";
import * as https from "node:https";
import * as os from "node:os";
import * as path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { createSecureContext } from "node:tls";

const DEFAULT_SERVER = "http://127.0.0.1:7420";
const MAX_RECEIPT = 64 << 10; // bytes of a receipt's body that the ledger stores
const MAX_TEXT = 1024; // bytes of an error text or an external id that the ledger stores
const DEFAULT_WAIT_MS = 20_000; // to wait for another caller's attempt
const MIN_WAIT_MS = 100; // that an open may wait at the server, at least, if its caller waits
const TRY_TIMEOUT_MS = 10_000; // for one try of a request, besides the time that it waits at the server
const FIRST_REPORT_TIMEOUT_MS = 2_000; // until a report that is not answered is spooled
const MAX_POLICY_MS = 366 * 86_400_000; // of a duration of a policy
const MAX_PAUSE_MS = 86_400_000; // a longer pause that a provider asks for is shortened to it
const HTTP_DATE = /^([A-Z][a-z]+, \d\d[ -][A-Z][a-z]{2}[ -]\d{2,4} \d\d:\d\d:\d\d GMT|([A-Z][a-z]{2} ){2}[ \d]\d \d\d:\d\d:\d\d \d{4})$/;
const OVERRAN = "time-out: the handler took longer than its attempt may"; // begins the error text of such a report
const MAX_TIMER_MS = 2 ** 31 - 1; // of setTimeout, which takes a longer time for 1 ms
const LOOK_UP_TIMEOUT_MS = 30_000; // for a look-up if the flight has no time-out
const LOOK_UP_GRACE_MS = 15_000; // after the end of that time, until a hanging look-up counts as without a finding
const MAX_NONCE_WAIT_MS = 15_000; // that an open waits for other callers under one nonce
const MAX_FAILED_OPENS = 6; // of a call in a row
const MIN_OPEN_MARGIN_MS = 2_000; // of ledger time, after the wait of an open, until it can no longer open anything
const MAX_OPEN_MARGIN_MS = 30_000; // the same, after answers open_expired
const ABANDON_WAIT_MS = 2000; // for the first try of an abandon; a new open would otherwise meet this caller's own doubt
const ABANDON_TIMEOUT_MS = 600_000; // for which an abandon is retried while no server answers
const MAX_ABANDONS = 1000; // pending abandons; the oldest is dropped, until a renewal lists its attempt
const MAX_LEFT = 1000; // opens whose abandon is sent later; the oldest is dropped
const MAX_NONCES = 4000; // that a session remembers; one with more is replaced. A server lets it hold about as many attempts
const IDLE_SESSION_TIMEOUT_MS = 60_000; // until a session that nothing needs is closed
const REPORT_HOLD_MS = 600_000; // for which a session is renewed for a report on disk, so that no other caller acts
const CLOSE_TIMEOUT_MS = 2_000; // for the request that closes a session
const CLAIM_WAIT_MS = 15_000; // that a claim waits for jobs at the server
const MIN_CLAIM_PAUSE_MS = 100; // after a claim that failed, or was answered without jobs at once
const MAX_SLOTS = 1000; // jobs that one claim may ask for
const MAX_BATCH_LINES = 1000; // of a request of submitAll
const MAX_BATCH_BYTES = 1 << 20;
const LEFT_INTERVAL_MS = 1_000; // between two abandons of one key that are sent later
const LEFT_GRACE_MS = 100; // after not_after, until such an abandon is sent, if the ledger's time was estimated too late
const LAST_ABANDONS_TIMEOUT_MS = 2_000; // for these abandons at the end of the program
const REPORT_TRY_TIMEOUT_MS = 15_000; // for one later try of a report, so that the next server is tried soon
const IDLE_TIMEOUT_MS = 4_000; // until an idle connection is no longer reused
const CONNECT_TIMEOUT_MS = 3_000; // for a new connection, so that a machine that is off does not cost a whole try
const MIN_PROBE_PAUSE_MS = 1_000; // between two probes for the leader; doubled with each probe that fails
const MAX_PROBE_PAUSE_MS = 90_000; // longer than a try takes, so that one probe at a time is in flight
const TOKEN_FILE_INTERVAL_MS = 1_000; // between two reads of a token file
const MAX_TEMP_AGE_MS = 3_600_000; // until a half-written file in the spool is removed

type Json = Record<string, any>;

// --- errors -----------------------------------------------------------------------------------------------------------

/** The base of all errors of flightd. Programs test `code`, which is stable; `problem` is the whole document. */
export class FlightdError extends Error {
  readonly code: string;
  readonly problem: Json;
  /** @internal the server may still execute the request */
  mayHaveArrived = false;

  constructor(message: string, code: string, problem: Json = {}, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = new.target.name;
    this.code = code;
    this.problem = problem;
  }

  get key(): string { return this.problem["key"] ?? ""; }
  get flightId(): string { return this.problem["flight_id"] ?? ""; }
}

/** Throw it when the provider declined: the effect did not happen and never will. It ends the flight. */
export class Refused extends FlightdError {
  /** @internal when it left the callback of a flight; an outer flight treats it as any other error */
  leftAt = 0;
  /** @internal proof by one answer: to a request that can change something, or a safe one; "": about all that was sent */
  scope: "" | "request" | "safe" = "";

  constructor(message: string, cause?: unknown) { super(message, "refused", {}, cause); }

  /** @internal */
  withScope(scope: "request" | "safe"): this { this.scope = scope; return this; }
}

/** Throw it when the effect surely did not happen this time. The key is free again. */
export class NotDone extends FlightdError {
  /** the pause that the provider asked for */
  retryAfterMs = 0;
  /** @internal */
  leftAt = 0;
  /** @internal */
  scope: "" | "request" | "safe" = "";

  constructor(message: string, cause?: unknown) { super(message, "not_done", {}, cause); }

  /** @internal */
  withScope(scope: "request" | "safe", retryAfterMs: number): this {
    this.scope = scope;
    this.retryAfterMs = retryAfterMs;
    return this;
  }
}

/** The effect may have happened; nobody may act until a person has decided. `version` is the flight's version. */
export class InDoubt extends FlightdError {
  get version(): string { return this.problem["version"] ?? ""; }
}

/** The key belongs to another input. Nothing ran, and a repeat fails again. `fields` are JSON pointers into the input. */
export class Conflict extends FlightdError {
  get fields(): string[] {
    return (this.problem["errors"] ?? []).map((e: Json) => String(e["pointer"] ?? "").replace(/^\/input/, ""));
  }
}

/** Another caller holds the key, and the wait is over. You can safely ask again. */
export class Busy extends FlightdError {
  get retryAfterMs(): number { return this.problem["retry_after_ms"] ?? 0; }
}

/** A person must approve the flight first. */
export class Unapproved extends FlightdError {}

/** The effect was decided before, and its receipt is no longer stored. It is not run again. */
export class Expired extends FlightdError {}

/** This attempt has lost its right: a newer attempt or a decision replaced it. Its report does not count. */
export class Fenced extends FlightdError {}

/** The right to start the effect has expired: the effect must not start. */
export class LeaseLost extends FlightdError {}

/** The flight ended without a receipt: it was cancelled, or its retries are exhausted. A person may reopen it. */
export class Failed extends FlightdError {}

/** The flight has ended, and the provider declined. Every repeat gets the same `receipt`. */
export class Declined extends FlightdError {
  readonly receipt: Receipt;

  constructor(message: string, receipt: Receipt, problem: Json, cause?: unknown) {
    super(message, "flight_failed", problem, cause);
    this.receipt = receipt;
  }
}

/**
 * The effect happened, but its result is not stored completely: `receipt.value` is the beginning, as bytes or text, or JSON in
 * which texts take the places of what JSON cannot hold, or undefined after a redaction, or if a person resolved the doubt without a body (size 0). `receipt` has the size and the
 * digest of the full result, and the external id.
 */
export class ReceiptTruncated extends FlightdError {
  readonly receipt: Receipt;

  constructor(message: string, receipt: Receipt, problem: Json, cause?: unknown) {
    super(message, "receipt_truncated", problem, cause);
    this.receipt = receipt;
  }
}

/** flightd cannot decide now. No effect was started; you can safely ask again. */
export class Unavailable extends FlightdError {}

/** The callback ended with `outcome`, and no server has recorded it yet. The text says where the report waits. */
export class Unrecorded extends FlightdError {
  readonly outcome: string;
  readonly value: unknown;

  constructor(message: string, key: string, outcome: string, value: unknown, cause: unknown) {
    super(message, "unrecorded", { key }, cause);
    this.outcome = outcome;
    this.value = value;
  }
}

/** The attempt ended, but not the flight: call again to open the next attempt. `outcome` is the attempt's. */
export class Unsettled extends FlightdError {
  readonly outcome: string;

  constructor(message: string, key: string, outcome: string, cause: unknown) {
    super(message, "unsettled", { key }, cause);
    this.outcome = outcome;
  }
}

/**
 * The policy of a worker differs from the document of its action in recovery, window, verification or lane. No job was claimed.
 * `differences` has the fields.
 */
export class PolicyDiffers extends FlightdError {
  get differences(): Json[] { return this.problem["differences"] ?? []; }
}

type ErrorClass = new (message: string, code: string, problem: Json, cause?: unknown) => FlightdError;

const BY_CODE: Record<string, ErrorClass> = {
  in_doubt: InDoubt, idempotency_conflict: Conflict, idempotency_in_flight: Busy, approval_pending: Unapproved,
  expired: Expired, fenced: Fenced, lease_lost: LeaseLost, flight_failed: Failed, no_leader: Unavailable, leader_lost: Unavailable,
  ledger_behind: Unavailable, unreachable: Unavailable, lease_unavailable: Unavailable, draining: Unavailable, report_pending: Unavailable,
  reconciling: Unavailable, rate_limited: Unavailable, too_many_open: Unavailable, quota_exceeded: Unavailable, open_expired: Unavailable,
};

/** These codes reject the caller or the server, not the request: another server may answer the same request. */
const NEXT_SERVER_CODES = ["internal", "unauthenticated", "forbidden", "wrong_deployment"];

/** After these codes another server may answer at once. */
const ONE_SERVER_CODES = [...NEXT_SERVER_CODES, "unreachable", "no_leader", "leader_lost", "ledger_behind", "draining"];

/** The report route rejects a report for good only with these codes; `fenced` accepts it as evidence. */
const REPORT_REJECTED_CODES = ["idempotency_key_invalid", "input_invalid", "not_found", "payload_too_large"];

const NO_SERVER_HINT = "start a server with `flightd dev`, or set FLIGHTD_ADDR to the address of a running one";

/**
 * Returns the error for an answer; own: it repeats the Flightd-Echo of its request. An answer that is not a problem document of
 * flightd comes from other software, a proxy perhaps, which cannot know whether the request was executed; only its 3xx or 4xx
 * (but 304 and 408) says that no server received the request. The answer to another request proves nothing, either.
 */
function errorFrom(status: number, retryAfter: string, text: string, server: string, own: boolean): FlightdError {
  let problem: Json = {};
  try {
    const read = JSON.parse(text);
    if (read && typeof read === "object") problem = read;
  } catch { /* not JSON */ }
  // Other problem documents may have a code, too, but no field "retryable".
  const ours = typeof problem["code"] === "string" && typeof problem["retryable"] === "boolean";
  if (!ours || !own) {
    const detail = ours ? `the answer is that to another request: ${problem["code"]}: ${problem["detail"] ?? ""}`
      : `answer ${status} is not from flightd: ${text.slice(0, 200)}`;
    const hint = `check that FLIGHTD_ADDR names a flightd server; the request was sent to ${server}`;
    const outcomeUnknown = ours || status < 300 || status >= 500 || status === 304 || status === 408;
    problem = { code: outcomeUnknown ? "unreachable" : "internal", retryable: true, detail, hint };
  }
  problem["status"] = status;
  if (!problem["retry_after_ms"] && /^\d+$/.test(retryAfter)) problem["retry_after_ms"] = 1000 * Number(retryAfter);
  const code: string = problem["code"];
  let message = [code, problem["key"], problem["detail"]].filter(Boolean).join(": ");
  for (const e of problem["errors"] ?? []) {
    if (!message.includes(e.detail)) message += `; ${e.pointer ?? e.header ?? e.parameter ?? ""}: ${e.detail}`;
  }
  if (problem["hint"]) message += ` (${problem["hint"]})`;
  return new (BY_CODE[code] ?? FlightdError)(message, code, problem);
}

/**
 * Reports whether an error leaves nothing open under the nonce, now or later. only says that every other request with the
 * nonce was answered without a proposal. See docs/protocol.md, rule 6.
 * @internal
 */
export function isFinal(e: FlightdError, only: boolean): boolean {
  if (["idempotency_conflict", "expired", "open_expired"].includes(e.code)) return true;
  if (e.code === "in_doubt" || e.code === "idempotency_in_flight") return e.code === "in_doubt" && e.problem["proposed"] === true;
  const status: number = e.problem["status"] ?? 0;
  const unprocessed = status >= 300 && status < 500 && ![408, 409, 410, 429].includes(status); // rejected before it was executed
  return only && (unprocessed || e.code === "unreachable"); // no server was reached
}

/**
 * Reports whether a node has answered an open from its own view, and has not proposed it. Nothing is open under the nonce,
 * but a copy that the network made may reach a node later, and open an attempt until not_after.
 * @internal
 */
export function isUnproposed(e: FlightdError): boolean {
  return ["in_doubt", "idempotency_in_flight"].includes(e.code) && e.problem["proposed"] === false;
}

/**
 * Returns the action for an attempt that a renewal lists as open, given the state of its nonce. An attempt that may have
 * started is never abandoned. The answer may be older than the state, so a report is sent only if the renewal before has
 * listed the attempt, too. See docs/protocol.md, rule 8.
 * @internal
 */
export function listedActionFor(state: string, listedBefore: boolean): "nothing" | "abandon" | "report" {
  if (state === "given up") return "abandon";
  return ["awaited", "held", "spooled"].includes(state) || !listedBefore ? "nothing" : "report";
}

/** Returns the error for an answer of flightd that has lost a part, or that an older client cannot read. */
function unreadable(why: string): Unavailable {
  return Object.assign(new Unavailable(`the server's answer cannot be read: ${why}`, "unreachable"), { mayHaveArrived: true });
}

function readJson(text: string): any {
  try {
    return parseJson(text);
  } catch (e) {
    throw unreadable(textOf(e));
  }
}

function digestOf(data: Uint8Array): string { return "sha256:" + createHash("sha256").update(data).digest("hex"); }

// An attempt ends as not_done, which claims that nothing happened, only by:
//   one of these statuses, or 3xx to a safe method, if no redirect of an unsafe method was followed    throwForStatus
//   NotDone, thrown by the caller about all that was sent                                              Flight.outcomeOf
//   an error before the first effect() has begun, such as LeaseLost of an effect() that did not begin  Flight.outcomeOf
// A connection error is never proof, even before a byte was sent: the caller throws NotDone if it knows better.
export const NOT_DONE_STATUSES: ReadonlySet<number> = new Set([401, 403, 404, 407, 421, 425, 426, 429, 431]);
const REFUSED_STATUSES: ReadonlySet<number> = new Set([400, 402, 405, 406, 410, 413, 415, 422]);
const SAFE_METHODS = ["GET", "HEAD", "OPTIONS", "TRACE"];

/** How the answer of a provider was obtained. */
export interface Exchange {
  /** of the request; default POST. A provider that has acted may redirect any method but GET, HEAD, OPTIONS and TRACE */
  method?: string;
  /**
   * the statuses of the followed redirects; or true, like `redirected` of fetch, if you only know that there were some.
   * 307 and 308 repeat the method; the other redirects turn it into GET
   */
  redirects?: readonly number[] | boolean;
}

/** The answer of fetch, or of another client with the same fields. */
export interface ProviderAnswer {
  readonly status: number;
  readonly ok: boolean;
  readonly redirected?: boolean;
  readonly headers?: { get(name: string): string | null };
}

function isProviderAnswer(value: unknown): value is ProviderAnswer {
  return typeof value === "object" && value !== null && "status" in value && typeof value.status === "number" &&
    "ok" in value && typeof value.ok === "boolean" && "headers" in value;
}

function isAxiosAnswer(value: unknown): boolean {
  return typeof value === "object" && value !== null && ["status", "headers", "config", "data"].every((name) => name in value) &&
    typeof (value as Json)["status"] === "number";
}

/**
 * Throws the error for the HTTP answer of a provider, or for its status: Refused, NotDone, or a plain error for an unknown
 * outcome. The answer of fetch tells whether it was redirected, and not the method of its request.
 */
export function throwForStatus(answer: number | ProviderAnswer, text = "", exchange: Exchange = {}): void {
  const status = typeof answer === "number" ? answer : answer.status;
  const { method = "POST", redirects = typeof answer !== "number" && answer.redirected === true } = exchange;
  const safe = SAFE_METHODS.includes(method.toUpperCase());
  const followed = typeof redirects === "boolean" ? redirects : redirects.length > 0;
  const repeated = typeof redirects === "boolean" ? !followed : redirects.every((r) => r === 307 || r === 308);
  if (status >= 200 && status < 300 && (safe || repeated)) return;
  const message = `the provider answered ${status}: ${text}`;
  if (safe || !followed) {
    const scope = safe ? "safe" : "request";
    if (REFUSED_STATUSES.has(status)) throw new Refused(message).withScope(scope);
    if (NOT_DONE_STATUSES.has(status) || (safe && status >= 300 && status < 400)) {
      throw new NotDone(message).withScope(scope, pauseOf((typeof answer === "number" ? undefined : answer.headers?.get("retry-after")) ?? ""));
    }
  }
  throw new FlightdError(message, "unknown");
}

/** Returns the pause of a Retry-After, seconds or a date, in milliseconds, a day at most; 0 if it cannot be read. */
function pauseOf(asked: string): number {
  const ms = /^\d+$/.test(asked) ? 1000 * Number(asked) : HTTP_DATE.test(asked) ? Date.parse(asked.endsWith("GMT") ? asked : `${asked} GMT`) - Date.now() : 0;
  return Math.max(0, Math.min(ms || 0, MAX_PAUSE_MS));
}

/**
 * Returns the body of a provider's answer of 2xx, for the receipt: decoded JSON, text as a string, anything else as Uint8Array.
 * A whole number that a double cannot hold is a BigInt, and the receipt keeps the bytes of the answer.
 * For every other answer it throws the error of throwForStatus, with the body as its text. Call it inside effect() with the
 * answer of fetch to the request that acts.
 */
export async function ok<T = unknown>(answer: Response, exchange: Exchange = {}): Promise<T> {
  const body = Buffer.from(await answer.arrayBuffer());
  throwForStatus(answer, body.subarray(0, MAX_TEXT / 2).toString(), exchange);
  const contentType = answer.headers.get("content-type") ?? "";
  const value = decode(contentType, body);
  if (typeof value === "object" && value !== null) sentBodies.set(value, { contentType, body, form: jsonOf(value).text });
  return value as T;
}

/** The bytes of the values that ok() has returned: they are the receipt as long as the value is not changed. */
const sentBodies = new WeakMap<object, { contentType: string; body: Buffer; form: string }>();

/**
 * Returns the status with which a webhook handler answers after a call that threw this error, or undefined: 200 if another
 * delivery changes nothing, 422 for another input, and 503 if the sender should deliver it again.
 */
export function httpStatus(e?: unknown): 200 | 422 | 503 {
  if (e === undefined || [Declined, Failed, Expired, ReceiptTruncated].some((final) => e instanceof final)) return 200;
  return e instanceof Conflict ? 422 : 503;
}

// --- receipts, options, clocks and bodies -----------------------------------------------------------------------------

/** The stored first outcome of a flight. It never changes. */
export interface Receipt {
  readonly outcome: "succeeded" | "refused";
  readonly externalId: string;
  readonly contentType: string;
  /** sha256 of the whole body */
  readonly digest: string;
  /** length of the whole body in bytes */
  readonly size: number;
  /** only the beginning of the body is stored, or a person resolved the doubt without a body */
  readonly truncated: boolean;
  readonly attempt: number;
  /** when it was stored, RFC 3339 */
  readonly at: string;
  /** the body: decoded JSON, text as a string, anything else as Uint8Array */
  readonly value: unknown;
}

/** The result of a flight that succeeded. */
export interface Result<T> {
  readonly value: T;
  /** executed: this call ran the effect; joined: it waited for a running one; replayed: the result was stored */
  readonly source: "executed" | "joined" | "replayed";
  readonly key: string;
  readonly flightId: string;
  readonly receipt: Receipt;
  /** Returns the receipt's body as it was reported, byte for byte. */
  body(): Promise<Uint8Array>;
}

/** The finding of a look-up; undefined if it cannot tell. */
export type Found = { happened: true; value?: unknown; externalId?: string } | { happened: false } | undefined;

/** The options of a flight. The first caller's policy is used. */
export interface OnceOptions<I = unknown> {
  /** the policy after an unknown outcome; default hold */
  recovery?: "hold" | "resend" | "verify";
  /** for verify: asks the provider whether the effect happened; `signal` ends after attemptTimeoutMs, or after 30 s */
  lookUp?: (f: Flight<I>) => Promise<Found> | Found;
  /** time that an attempt may take, counted from its first request; then `Flight.signal` ends, and nothing starts */
  attemptTimeoutMs?: number;
  /** for verify: the time after which the provider surely shows an effect */
  settleMs?: number;
  /** for resend: the time for which the provider remembers the idempotency key */
  providerWindowMs?: number;
  /** how long the receipt is stored: "30d", "12h" */
  retention?: string;
  /** time to wait for another caller's attempt before Busy; Infinity waits without limit. The default is 20 s */
  waitMs?: number;
  /** the key alone identifies the intent: the first input is used, and another input is no Conflict */
  keyDecides?: boolean;
  /** how often the callback is run again after a NotDone, after the provider's pause or one that doubles from 0.1 s; default 0 */
  retries?: number;
  /** ends the wait for others; it does not affect an effect that has started */
  signal?: AbortSignal;
}

/** A moment by three clocks: monotonic, wall, and a coarse clock that counts while the machine sleeps. */
interface Instant { mono: number; wall: number; boot?: number }

const COARSE_MS = 1000;

const now = (): Required<Instant> => ({ mono: performance.now(), wall: Date.now(), boot: 1000 * os.uptime() });

/**
 * A span of time that starts when a request is sent: the trust of a session, the time-out of an attempt, or the time for
 * which the provider surely remembers a key. The monotonic clock may stop while the machine sleeps, and the wall clock may
 * jump. The window is over as soon as one clock says so.
 */
class TimeWindow {
  private until: Required<Instant> = { mono: -Infinity, wall: 0, boot: 0 };
  private lost = false;

  constructor(sentAt: Instant, ms: number) { this.set(sentAt, ms); }

  /** Extends a window that is not over. */
  extend(sentAt: Instant, ms: number): void {
    if (this.remaining() > 0 && sentAt.mono + ms > this.until.mono) this.set(sentAt, ms);
  }

  private set(sentAt: Instant, ms: number): void {
    this.until = { mono: sentAt.mono + ms, wall: sentAt.wall + ms, boot: (sentAt.boot ?? now().boot) + ms + COARSE_MS };
  }

  markLost(): void { this.lost = true; }

  remaining(): number {
    const at = now();
    return this.lost ? 0 : Math.min(this.until.mono - at.mono, this.until.wall - at.wall, this.until.boot - at.boot);
  }
}

/**
 * Identifies one open of a call. The caller records it before the first request. Its state is one of:
 *
 *     awaited   its open has no final answer yet, or its look-up is running
 *     held      by a callback: the effect may have started
 *     spooled   the callback has ended, and its report is on disk
 *     reported  the ledger has stored a report of not_done
 *     given up  before the effect started
 *     final     nothing is open under it, and nothing will be
 */
class Nonce {
  readonly text: string;
  readonly id: string; // the form in which a renewal lists it
  madeAt: Instant = now();
  readonly call: Call<any, any>;
  readonly notAfter: number;
  validity: TimeWindow; // until notAfter
  state: "awaited" | "held" | "spooled" | "reported" | "given up" | "final" = "awaited";
  mayHaveArrived = false; // a request whose answer is not known, or says that it was proposed
  session: Session | undefined; // has it in its table
  attempt: Attempt | undefined; // its attempt, or its look-up
  number = 0; // of its attempt
  report: Json | undefined; // of its attempt
  spooledAt = 0; // of that report
  file = "";
  abandoning = false; // its abandon is not accepted yet
  settled = false; // given up, and nothing is open under it

  constructor(call: Call<any, any>, ledgerMs: number, validityMs: number, text = randomBytes(16).toString("base64url")) {
    this.text = text;
    this.id = nonceId(text);
    this.call = call;
    this.notAfter = ledgerMs + validityMs;
    this.validity = new TimeWindow(this.madeAt, validityMs);
  }

  become(state: Nonce["state"]): void {
    this.state = state;
    this.session?.noteState(this);
  }

  /**
   * Notes whether the ledger has the report of the attempt. A report of not_done is kept: if an old renewal lists the attempt
   * once more, it is repeated, because an unknown outcome would put the flight in doubt.
   */
  endReport(accepted: boolean): void {
    if (accepted) return this.become(this.report?.["outcome"] === "not_done" ? "reported" : "final");
    if (this.state !== "held") return;
    this.spooledAt = performance.now();
    this.become("spooled");
    this.session?.retire(); // it ends if the report stays on disk
  }

  hasSpooledReport(): boolean { return this.state === "spooled" && this.call.client.hasSpooled(this.file); }

  /**
   * Reports whether the session has to be renewed for this nonce. If it was given up after answers without a proposal, a copy
   * of its open may open an attempt until notAfter, and a renewal that is sent later lists it.
   */
  get needsSession(): boolean {
    const longerMs = this.mayHaveArrived ? 0 : REPORT_HOLD_MS; // if no renewal is answered for so long, the session has ended
    if (this.state === "given up") return this.abandoning || (!this.settled && this.validity.remaining() > -longerMs);
    return this.state === "awaited" || this.state === "held" ||
      (this.hasSpooledReport() && performance.now() - this.spooledAt < REPORT_HOLD_MS);
  }
}

/** Returns the form in which a renewal lists a nonce. */
function nonceId(text: string): string { return createHash("sha256").update(text).digest("hex").slice(0, 32); }

/** A request for jobs. The nonces of the attempts that it opens are its own, a dot and the flight's id. */
class Claim {
  readonly text = randomBytes(16).toString("base64url");
  readonly notAfter: number;
  readonly validity: TimeWindow;
  session: Session | undefined;
  ended = false; // it was answered, or given up; what it has opened otherwise is abandoned
  lost = false; // it has ended without an answer
  settledAt: number; // a renewal that is sent later lists all that it has opened
  handed = new Set<string>(); // flights of its answer

  constructor(ledgerMs: number, validityMs: number) {
    this.notAfter = ledgerMs + validityMs;
    this.validity = new TimeWindow(now(), validityMs);
    this.settledAt = performance.now() + validityMs;
  }
}

/**
 * A session at the server, and the nonces that were sent under it. One timer renews it until it is lost, or takes no new opens
 * and no nonce needs it. The timer keeps the program alive while an open is awaited or an effect may run.
 */
class Session {
  readonly id: string;
  readonly trust: TimeWindow;
  readonly oneShot: boolean; // made by the server for one open; it ends with the attempt
  private readonly client: Client;
  private readonly route: string;
  private readonly intervalMs: number;
  private readonly nonces = new Map<string, Nonce>(); // by id
  private claims: Claim[] = []; // of which a copy may still open attempts
  private retired: boolean; // no new opens
  private usedAt = performance.now();
  private listedAt = 0; // when the last renewal was sent whose list was read
  private listedBefore = new Set<string>(); // nonces that the previous renewal listed unexpectedly
  private timer: NodeJS.Timeout | undefined;
  private stopped = false;

  constructor(client: Client, { json, sentAt }: Answer, only?: Nonce) {
    this.client = client;
    this.id = json["session"];
    this.trust = new TimeWindow(sentAt, json["trust_ms"] ?? 0);
    this.intervalMs = Math.max(json["renew_every_ms"] || 1000, 50);
    this.route = `/v1/sessions/${encodeURIComponent(this.id)}/`;
    this.oneShot = this.retired = only !== undefined;
    client.sessions.add(this);
    this.schedule(this.intervalMs);
    if (only) this.track(only);
  }

  /** Adds a nonce, or a claim, before it is first sent. Returns false if the session takes no new opens. */
  add(nonce: Nonce | Claim): boolean {
    if (this.retired) return false;
    if (nonce instanceof Claim) {
      nonce.session = this;
      this.claims = [...this.claims.filter((c) => this.awaits(c) || c.validity.remaining() > -2 * this.intervalMs), nonce];
      return true;
    }
    this.track(nonce);
    if (this.nonces.size > MAX_NONCES) this.retire();
    return true;
  }

  private track(nonce: Nonce): void {
    nonce.session = this;
    this.usedAt = performance.now();
    this.nonces.set(nonce.id, nonce);
    this.noteState(nonce);
  }

  /** Reports whether the claim may have opened something that nobody knows: until its answer, or the list of a renewal. */
  private awaits(claim: Claim): boolean {
    return !claim.ended || (claim.lost && this.listedAt <= claim.settledAt &&
      performance.now() < claim.settledAt + REPORT_HOLD_MS); // then the session has ended
  }

  /** Ends a claim, and adds the jobs of its answer; lost: there is none. Returns false if it has ended before. */
  endClaim(claim: Claim, jobs: Call<any, any>[], lost = false): boolean {
    if (claim.ended) return false;
    [claim.ended, claim.lost, claim.settledAt] = [true, lost, Math.max(claim.settledAt, performance.now())];
    claim.handed = new Set(jobs.map((job) => job.id));
    for (const job of jobs) this.track(job.nonce);
    if (this.nonces.size > MAX_NONCES) this.retire();
    return true;
  }

  /**
   * Returns the nonce of a listed attempt that a claim has opened, and whose job no answer has brought: while the claim is not
   * answered, its answer may bring it; then nobody knows it.
   */
  private nonceOfClaim(attempt: Json): Nonce | undefined {
    const flightId: string = attempt["flight_id"];
    const claim = this.claims.find((c) => nonceId(`${c.text}.${flightId}`) === attempt["nonce"] && !c.handed.has(flightId));
    if (!claim) return undefined;
    const { nonce } = this.client.newJob(claim, attempt["key"], {});
    if (claim.ended) {
      nonce.state = "given up";
      this.track(nonce);
    }
    return nonce;
  }

  remove(nonce: Nonce): void {
    this.nonces.delete(nonce.id);
    this.holdProgram();
  }

  noteState(nonce: Nonce): void {
    if (nonce.state === "final") this.remove(nonce);
    else this.holdProgram();
  }

  private all(): Nonce[] { return [...this.nonces.values()]; }

  private holdProgram(): void {
    if (this.all().some((n) => n.state === "awaited" || n.state === "held")) this.timer?.ref();
    else this.timer?.unref();
  }

  /** Ends new opens under the session. */
  retire(): void {
    this.retired = true;
    this.client.forgetSession(this);
  }

  /**
   * Ends the right to start effects under the session. No renewal lists its attempts any more, so the opens that were left are
   * abandoned later.
   */
  markLost(): void {
    this.trust.markLost();
    this.retire();
    for (const nonce of this.takeLeft()) this.client.leave(nonce);
    for (const nonce of this.nonces.values()) nonce.attempt?.watchTrust();
  }

  /** Returns the given-up nonces under which an attempt may be open, each once. */
  private takeLeft(): Nonce[] {
    const left = this.all().filter((n) => n.state === "given up" && !n.abandoning && !n.settled);
    for (const nonce of left) nonce.settled = true;
    return left;
  }

  private schedule(ms: number): void {
    if (this.stopped) return;
    this.timer = setTimeout(() => void this.renewOrClose(), ms);
    this.holdProgram();
  }

  private async renewOrClose(): Promise<void> {
    let pause = this.intervalMs;
    if (this.isOver()) return this.close();
    try {
      await this.renew();
    } catch (e) { // an answer that cannot be decoded must not end the renewals
      if (e instanceof LeaseLost) {
        this.markLost();
        return this.close(true);
      }
      pause = Math.min(pause, 1000);
    }
    this.schedule(pause);
  }

  /** Reports whether nothing needs the session. An idle one is retired, and the next open does without a session. */
  private isOver(): boolean {
    const needed = this.all().some((n) => n.needsSession) || this.claims.some((c) => this.awaits(c));
    if (needed) this.usedAt = performance.now();
    else if (!this.retired && performance.now() - this.usedAt > IDLE_SESSION_TIMEOUT_MS) {
      this.retire();
      this.client.performed = false;
    }
    return this.retired && !needed;
  }

  /** Renews the session once, and handles the attempts that the answer lists as open. */
  private async renew(): Promise<void> {
    const [nonces, askedAt] = [this.all(), performance.now()];
    const lines = nonces.filter((n) => n.state === "held" || n.state === "spooled").map((n) => `${n.id} ${n.number}\n`).sort();
    // The digest of the attempts that this client knows to be open under the session.
    let request: Json = { open_digest: createHash("sha256").update(lines.join("")).digest("hex").slice(0, 32) };
    const past = nonces.filter((n) => n.state === "given up" && !n.mayHaveArrived && n.validity.remaining() <= 0);
    const listed: Json[] = [];
    for (let more = true; more;) {
      const { json, sentAt } = await this.client.ask("POST", `${this.route}renew`, request,
        { timeoutMs: Math.max(this.intervalMs / 2, 1000), tries: 1 });
      this.trust.extend(sentAt, json["trust_ms"]);
      for (const nonce of nonces) {
        if (nonce.attempt && (json["cancel_requested"] ?? []).includes(nonce.attempt.flight.flightId)) nonce.attempt.cancel();
      }
      const page: Json[] = json["open"] ?? [];
      listed.push(...page);
      const after = page.at(-1)?.["flight_id"];
      more = Boolean(json["more"]) && after !== undefined && after !== request["after"];
      request = { ...request, after };
    }
    await this.handleListed(listed);
    this.listedAt = askedAt;
    for (const nonce of past) nonce.settled = true;
  }

  /** Handles the attempts that a renewal lists as open. What takes too long is handled after the next renewal. */
  private async handleListed(listed: Json[]): Promise<void> {
    const until = performance.now() + this.intervalMs / 2;
    const before = this.listedBefore;
    this.listedBefore = new Set();
    for (const attempt of listed) {
      const nonce = this.nonces.get(attempt["nonce"]) ?? this.nonceOfClaim(attempt);
      const state = !nonce || (nonce.state === "spooled" && !nonce.hasSpooledReport()) ? "unknown" : nonce.state;
      if (!["awaited", "held", "spooled"].includes(state)) this.listedBefore.add(attempt["nonce"]);
      const action = listedActionFor(state, before.has(attempt["nonce"]));
      if (action === "abandon" && nonce && !nonce.abandoning) void this.client.abandonInBackground(nonce);
      if (action !== "report" || performance.now() >= until) continue;
      this.retire(); // if the report does not end the attempt, the end of the session does
      const report = nonce?.report ?? { fencing_token: attempt["fencing_token"], key: attempt["key"], outcome: "unknown",
        error: "the holder of the session has no record of the attempt" };
      await this.client.ask("POST", `/v1/flights/${attempt["flight_id"]}/report`, report, { timeoutMs: 1000, tries: 1 })
        .catch(() => undefined);
    }
  }

  /**
   * Closes the session at the server. While an effect runs under it, or may begin, it is renewed, and closed afterwards; with a
   * report on disk it ends by its time to live, and until then no other caller acts. lost says that the server has ended it.
   */
  async close(lost = false): Promise<void> {
    this.retire();
    if (!lost && (this.all().some((n) => n.state === "awaited" || n.state === "held") || this.claims.some((c) => !c.ended))) return;
    this.stopped = true;
    clearTimeout(this.timer);
    this.client.forgetClosed(this);
    if (this.oneShot || lost || this.all().some((n) => n.needsSession && n.state === "spooled")) return;
    for (const last of [false, true]) {
      try {
        await this.client.ask("POST", `${this.route}close`, {}, { timeoutMs: CLOSE_TIMEOUT_MS, tries: 1 });
        return;
      } catch (e) {
        if (last || !(e instanceof FlightdError) || e.code !== "session_in_use") return;
      }
      await this.renew().catch(() => undefined); // lists what claims have opened
      for (const n of this.all()) if (n.state === "given up" && !n.settled) await n.call.abandon(n, CLOSE_TIMEOUT_MS);
    }
  }
}

/** The type of a receipt that does not hold the whole result. */
const INCOMPLETE = "text/plain; charset=utf-8; flightd=incomplete";

/**
 * Returns content type and body of a receipt, and why the body does not hold the whole value, or "". A value that JSON cannot hold
 * does not fail the effect: it happened.
 */
function encode(value: unknown): { contentType: string; body: Buffer; why: string } {
  if (value === undefined) return { contentType: "", body: Buffer.alloc(0), why: "" };
  const { text, problems } = jsonOf(value);
  const sent = typeof value === "object" && value !== null ? sentBodies.get(value) : undefined;
  if (value instanceof Uint8Array) {
    return { contentType: (sent?.body.equals(value) && sent.contentType) || "application/octet-stream", body: Buffer.from(value), why: "" };
  }
  if (sent?.form === text) return { ...sent, why: "" };
  const [why = ""] = problems;
  return { contentType: why ? INCOMPLETE : "application/json", body: Buffer.from(text), why };
}

function plainText(text: string): { contentType: string; body: Buffer } {
  return { contentType: "text/plain; charset=utf-8", body: Buffer.from(text) };
}

const MAX_DEPTH = 500; // of a value as JSON
const HALF = /\p{Surrogate}/u; // half of a surrogate pair without the other half
const EXACT = randomBytes(9).toString("hex"); // marks a number that JSON.parse would change

/**
 * Returns a value as JSON. It differs from JSON.stringify where that changes a value: a BigInt is a number, a Map an object and a Set
 * an array. The text about a part that JSON cannot hold, with its JSON pointer, takes the place of the part, and is one of problems.
 */
function jsonOf(root: unknown): { text: string; problems: string[] } {
  const problems: string[] = [];
  const outer: unknown[] = [];
  const write = (given: any, where: string, name: string): string => {
    let why = "";
    try {
      const value = typeof given?.toJSON === "function" && !Number.isNaN(given.valueOf()) ? given.toJSON(name) : given;
      if (Object.is(value, -0)) return "-0"; // JSON.stringify makes it 0
      if (value === null || typeof value === "boolean" || (typeof value === "string" && !HALF.test(value)) || Number.isFinite(value)) return JSON.stringify(value);
      if (typeof value === "bigint") return String(value);
      why = typeof value === "string" ? "the text has half of a surrogate pair" : `JSON cannot hold ${kindOf(value)}`;
      if (typeof value === "object" && (outer.includes(value) || outer.length > MAX_DEPTH)) why = "it contains itself, or is nested too deep";
      else if (typeof value === "object" && isPlain(value)) {
        outer.push(value);
        try {
          if (Array.isArray(value) || value instanceof Set) return `[${Array.from(value, (v, i) => write(v, `${where}/${i}`, String(i))).join()}]`;
          const parts = value instanceof Map ? [...value] : Object.entries(value).filter(([, v]) => v !== undefined);
          const odd = parts.find(([k]) => typeof k !== "string");
          if (!odd) return `{${parts.map(([k, v]) => `${write(k, where, "")}:${write(v, `${where}/${k}`, k)}`).join()}}`;
          why = "a key of the Map is not a string";
        } finally {
          outer.pop();
        }
      }
    } catch (e) {
      why = `it cannot be written as JSON: ${textOf(e)}`;
    }
    problems.push(where ? `${where}: ${why}` : why);
    return JSON.stringify(problems.at(-1));
  };
  return { text: write(root, "", ""), problems };
}

/** Reports whether the fields of an object are all that it has: an Error or a Uint8Array, for example, has more. */
function isPlain(value: object): boolean {
  const proto = Object.getPrototypeOf(value);
  return proto === null || proto === Object.prototype || Array.isArray(value) || value instanceof Map || value instanceof Set ||
    (Object.keys(value).length > 0 && !ArrayBuffer.isView(value) && !(value instanceof Error) && !(value instanceof String));
}

function kindOf(value: unknown): string {
  return typeof value === "object" ? `a ${value?.constructor?.name}` : typeof value === "number" ? String(value) : typeof value;
}

/** Returns a value as JSON, or throws a TypeError that has the place of a part that JSON cannot hold. */
function jsonText(value: unknown, what: string): string {
  const { text, problems } = jsonOf(value);
  if (problems.length > 0) throw new TypeError(`${what}${problems[0]?.startsWith("/") ? "" : ": "}${problems[0]}`);
  return text;
}

/** Reads JSON. A whole number that a double cannot hold becomes a BigInt, and any other such number its text. */
function parseJson(text: string): any {
  if (!/\d{16}|[eE]\+?\d{3}/.test(text)) return JSON.parse(text);
  const exact: unknown[] = [];
  const marked = text.replace(/"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g, (token) => {
    const whole = /^-?\d+$/.test(token);
    if (token.startsWith('"') || (whole ? Number.isSafeInteger(Number(token)) : Number.isFinite(Number(token)))) return token;
    exact.push(whole ? BigInt(token) : token);
    return `{"${EXACT}":${exact.length - 1}}`;
  });
  return JSON.parse(marked, (_, v) => typeof v?.[EXACT] === "number" ? exact[v[EXACT]] : v);
}

/** Returns the value of a body: Uint8Array if its type is neither JSON nor text, and if it is not what its type promises. */
function decode(contentType: string, body: Buffer, truncated = false): unknown {
  const kind = (contentType.split(";")[0] ?? "").trim().toLowerCase();
  const [, charset = "utf-8"] = /;\s*charset\s*=\s*"?([^\s;"]+)/i.exec(contentType) ?? [];
  const isJson = kind === "application/json" || /^application\/.*\+json$/.test(kind);
  if (body.length === 0 && (isJson || kind === "")) return undefined;
  try {
    if (isJson && !truncated) {
      return parseJson(new TextDecoder(charset, { fatal: true }).decode(body));
    }
    if (kind.startsWith("text/")) return new TextDecoder(charset, { fatal: !truncated, ignoreBOM: true }).decode(body);
  } catch { /* returned as bytes */ }
  return new Uint8Array(body);
}

/** Returns the fields of a report for a body. Base64 keeps the bytes exact; a long body is truncated. */
function bodyFields(externalId: unknown, contentType: string, body: Buffer): Json {
  const fields: Json = {};
  if (externalId !== "" && externalId != null) fields["external_id"] = truncate(textOf(externalId));
  if (contentType) fields["content_type"] = /^[ -~]{1,255}$/.test(contentType) ? contentType : "application/octet-stream";
  if (body.length > 0) fields["body_base64"] = body.subarray(0, MAX_RECEIPT).toString("base64");
  if (body.length > MAX_RECEIPT) {
    Object.assign(fields, { truncated: true, size: body.length, digest: digestOf(body) });
  }
  return fields;
}

function isIterator(v: any): boolean {
  return typeof v?.next === "function" && (Symbol.iterator in v || Symbol.asyncIterator in v);
}

/** Returns the values in a list, a Map, a Set or a plain object, and none of one that cannot be read. */
function partsOf(v: any): Iterable<unknown> {
  try {
    if (Array.isArray(v) || v instanceof Set) return v;
    if (v instanceof Map) return v.values();
    return typeof v === "object" && v !== null && [Object.prototype, null].includes(Object.getPrototypeOf(v)) ? Object.values(v) : [];
  } catch {
    return [];
  }
}

/** Throws a TypeError for a result that is, or contains, work that may not have run: a generator, a promise, or a function. */
function checkRan(value: unknown): void {
  const all = new Set<any>([value]); // grows while it is read
  const ofList = Array.isArray(value) ? value : [];
  let lazy: any;
  for (const v of all) {
    if (isIterator(v) || typeof v?.then === "function" || (typeof v === "function" && (v === value || ofList.includes(v)))) { lazy = v; break; }
    for (const part of partsOf(v)) all.add(part);
  }
  if (lazy === undefined) return;
  const kind = isIterator(lazy) ? "a generator" : typeof lazy === "function" ? "a function" : "a promise";
  throw new TypeError(`the result is or has ${kind}, whose work may not have run: call or await it inside effect()`);
}

/** Truncates a text to the length that the ledger stores. */
function truncate(text: string): string {
  return Buffer.from(text).subarray(0, MAX_TEXT).toString().replace(/\uFFFD$/, "");
}

/** Returns the value as text. It never throws: a report must not be lost because its text cannot be written. */
function textOf(e: unknown): string {
  try {
    return e instanceof Error ? `${e.name}: ${e.message}` : String(e);
  } catch {
    return `a ${typeof e} without a text`;
  }
}

// --- one flight -------------------------------------------------------------------------------------------------------

/** An attempt, as the callback sees it. I is the type of the input. */
export class Flight<I = unknown> {
  readonly key: string;
  readonly flightId: string;
  readonly attempt: number;
  /** the same for every attempt; pass it to the provider */
  readonly idempotencyKey: string;
  /** sorts by age; a store that remembers the greatest token can reject every older attempt */
  readonly fencingToken: string;
  /** the W3C traceparent of the attempt's span, for the provider; "": the node exports none */
  readonly traceparent: string;
  /** the input as *first* submitted, after JSON: send this one, not your own */
  readonly input: I;
  /** the attempt before, if there was one */
  readonly previous: Json | undefined;
  /**
   * ends at the attempt's time-out, by a requested cancellation, by the loss of the lease under verify, and when the callback
   * ends while effect() still runs; pass it to your call
   */
  readonly signal: AbortSignal;
  /** the id of the object at the provider, if it has one; set it for the receipt */
  externalId = "";

  /** @internal */ effectStarted = false;
  /** @internal */ callbackEnded = false;
  /** @internal */ readonly trust: TimeWindow;
  private readonly abort: AbortController;
  private readonly policy: Json;
  /** @internal end of the attempt's time-out; its timer is late if the event loop is blocked */ deadline: TimeWindow | undefined;
  private resendWindow: TimeWindow | undefined; // the provider surely remembers the key until then
  private hasUnknownEffect = false; // an effect has ended with an unknown outcome
  /** @internal the error of an effect that was not allowed after it */ rejectedEffect: LeaseLost | undefined;
  /** @internal of the last effect, unless a later one has succeeded in its place */ effectError: { error: unknown } | undefined;
  /** @internal */ runningEffects = 0;
  private possibleEffects = 0; // ended effects without proof that they did not happen
  private readonly effectErrors: unknown[] = []; // NotDone and Refused of this flight, thrown in an effect
  private readonly startedAt = performance.now();

  /** @internal */
  constructor({ json: answer, sentAt }: Answer, policy: Json, trust: TimeWindow, abort: AbortController) {
    this.policy = policy;
    if (answer["resend_ms"] !== undefined) this.resendWindow = new TimeWindow(sentAt, answer["resend_ms"]);
    this.key = answer["key"] ?? "";
    this.flightId = answer["flight_id"];
    this.attempt = answer["attempt"] ?? 0;
    this.idempotencyKey = answer["idempotency_key"] ?? "";
    this.fencingToken = answer["fencing_token"] ?? "";
    this.traceparent = answer["traceparent"] ?? "";
    this.previous = answer["previous"];
    this.input = answer["input_base64"] === undefined ? answer["input"]
      : decode(answer["input_content_type"] ?? "", Buffer.from(answer["input_base64"], "base64")) as I;
    this.trust = trust;
    this.abort = abort;
    this.signal = abort.signal;
  }

  /**
   * Runs the call that must happen once. Once it has begun, a plain error is an unknown outcome. It throws LeaseLost, and
   * starts nothing, if the right to start is over: the lease is lost, `signal` has ended, or the callback has ended. Under
   * `resend` the right also ends when the provider may have forgotten the key (`providerWindowMs`); under the other
   * policies it ends with an effect() of unknown outcome.
   */
  effect<T>(call: (f: Flight<I>) => Promise<T> | T): Promise<T> {
    const result = this.run(call);
    result.catch(() => undefined); // an effect that nobody awaits must not end the process; once reports it
    return result;
  }

  private async run<T>(call: (f: Flight<I>) => Promise<T> | T): Promise<T> {
    const resends = this.policy["recovery"] === "resend";
    const afterUnknown = this.hasUnknownEffect && !resends;
    const reason = this.callbackEnded ? "the callback has ended" : this.signal.aborted ? textOf(this.signal.reason)
      : afterUnknown ? "an earlier effect has an unknown outcome" : this.expiryReason();
    if (reason) {
      const lost = new LeaseLost(`${this.key}: ${reason}: the effect must not start`, "lease_lost", {}, this.signal.reason);
      if (afterUnknown) this.rejectedEffect = lost;
      throw lost;
    }
    this.effectStarted = true;
    this.runningEffects++;
    const started = now();
    let happened = true;
    try {
      const value = await call(this);
      if (isIterator(value)) checkRan(value);
      if (resends || !this.hasUnknownEffect) this.effectError = undefined;
      return value;
    } catch (e) {
      this.effectError = { error: e };
      happened = !this.isOwnError(e);
      if (!happened) this.effectErrors.push(e);
      this.hasUnknownEffect ||= happened;
      const window: number = this.policy["provider_window_ms"] ?? 0;
      if (happened && resends && window > 0) { // 5 % in case the local clock is slow, and the time that the resend may take
        this.resendWindow ??= new TimeWindow(started, window * 0.95 - (this.policy["attempt_timeout_ms"] ?? 0));
      }
      throw e;
    } finally {
      this.runningEffects--;
      if (happened) this.possibleEffects++;
    }
  }

  /** @internal Returns the reason why no effect may start, by the clocks; "" if an effect may start. */
  expiryReason(): string {
    const bounds = [[this.trust, "the lease is lost"], [this.deadline, "the attempt's time-out is over"],
      [this.resendWindow, "the provider may have forgotten the idempotency key"]] as const;
    return bounds.find(([bound]) => bound && bound.remaining() <= 0)?.[1] ?? "";
  }

  /** Reports whether e is about this flight, and not about another flight inside its callback. */
  private isOwnError(e: unknown): e is NotDone | Refused {
    return (e instanceof NotDone || e instanceof Refused) && e.leftAt <= this.startedAt;
  }

  /** @internal Ends the callback's part: no effect starts any more, and a running effect is told to stop. */
  endCallback(): void {
    this.callbackEnded = true;
    if (this.runningEffects > 0) this.abort.abort(new Error("the callback has ended"));
  }

  /** @internal Ends the callback's part, and returns the outcome for its error. */
  outcomeOf(e: unknown): "refused" | "not_done" | "unknown" {
    const own = this.isOwnError(e);
    this.endCallback();
    if (e instanceof NotDone || e instanceof Refused) e.leftAt = performance.now();
    // An error thrown in one effect, or by one answer, proves nothing for another effect.
    const ofOneRequest = this.effectErrors.includes(e) ||
      (own && (e.scope === "safe" || (e.scope === "request" && (this.possibleEffects > 1 || this.hasUnknownEffect))));
    const others = this.runningEffects > 0 || (this.possibleEffects > 0 && ofOneRequest);
    if (own && e instanceof Refused && !others) return "refused";
    return !this.effectStarted || (own && !others) ? "not_done" : "unknown";
  }

  /** True if nothing may start any more. A started effect may finish, except under verify. */
  get leaseLost(): boolean { return this.trust.remaining() <= 0; }

  /** Returns what fetch needs for the provider's request: JSON, by POST, with `headers` and `signal`. */
  request(init: Omit<RequestInit, "body"> & { body?: unknown } = {}): RequestInit {
    const { body, ...others } = init;
    return { method: "POST", signal: this.signal, ...others, ...(body === undefined ? {} : { body: jsonText(body, "body") }),
      headers: { "Content-Type": "application/json", ...this.headers, ...Object.fromEntries(new Headers(init.headers)) } };
  }

  /** Returns the body of the provider's answer, as `ok` does. */
  json<T = unknown>(answer: Response): Promise<T> { return ok<T>(answer); }

  /** Headers for the provider's HTTP request. Use an HTTP client that does not retry by itself. */
  get headers(): Record<string, string> {
    return { "Idempotency-Key": this.idempotencyKey, "Flightd-Fencing-Token": this.fencingToken, ...(this.traceparent === "" ? {} : { Traceparent: this.traceparent }) };
  }
}

interface Answer { json: Json; sentAt: Instant }

/** An open attempt of this client, or a look-up. */
class Attempt {
  readonly flight: Flight<any>;
  private readonly verify: boolean;
  private readonly abort = new AbortController();
  private readonly trust: TimeWindow;
  private readonly timers = new Set<NodeJS.Timeout>();
  private ended = false;

  /** The time-out counts from since. */
  constructor(nonce: Nonce, answer: Answer, policy: Json, since: Instant) {
    this.trust = nonce.call.client.adopt(nonce, answer).trust;
    nonce.attempt = this;
    nonce.number = answer.json["attempt"] ?? 0;
    this.verify = policy["recovery"] === "verify";
    this.flight = new Flight(answer, policy, this.trust, this.abort);
    const timeout: number = policy["attempt_timeout_ms"] ?? 0;
    if (timeout > 0) {
      const deadline = (this.flight.deadline = new TimeWindow(since, timeout));
      this.schedule(deadline.remaining(), () => this.abort.abort(new Error("the attempt's time-out is over")));
    }
    this.watchTrust();
  }

  private schedule(ms: number, then: () => void): void {
    if (this.ended) return;
    const timer = setTimeout(() => { this.timers.delete(timer); then(); }, Math.min(ms, MAX_TIMER_MS));
    this.timers.add(timer);
  }

  /** Aborts the signal when the lease is lost, under verify: a look-up must know when the effect can no longer happen. */
  watchTrust(): void {
    if (!this.verify) return;
    const left = this.trust.remaining();
    if (left <= 0) this.abort.abort(new LeaseLost("the lease is lost", "lease_lost"));
    else this.schedule(left, () => this.watchTrust());
  }

  cancel(): void { this.abort.abort(new Error("cancellation was requested")); }

  /** Resolves after the time, unless the attempt has ended. */
  timeout(ms: number): Promise<undefined> { return new Promise((wake) => this.schedule(ms, () => wake(undefined))); }

  end(): void {
    this.ended = true;
    for (const timer of this.timers) clearTimeout(timer);
  }
}

const DECIDED_STATES = ["succeeded", "failed", "cancelled", "expired", "in_doubt", "awaiting_approval"];

function receiptOf(r: Json): Receipt {
  const kind: string = r["content_type"] ?? "";
  const truncated = Boolean(r["truncated"]) || kind === INCOMPLETE;
  const value = "body" in r ? r["body"] : decode(kind, Buffer.from(r["body_base64"] ?? "", "base64"), truncated);
  return {
    outcome: r["outcome"], externalId: r["external_id"] ?? "", contentType: kind, digest: r["digest"] ?? "",
    size: r["size"] ?? 0, truncated, attempt: r["attempt"] ?? 0, at: r["at"] ?? "", value,
  };
}

/** Returns the result of p, or throws the signal's reason if the signal ends first. */
async function untilAborted<T>(signal: AbortSignal | undefined, p: Promise<T>): Promise<T> {
  if (!signal) return p;
  let stop = (): void => undefined;
  const aborted = new Promise<never>((_, reject) => { stop = () => reject(signal.reason); });
  p.catch(() => undefined); // p may fail after the signal has ended
  if (signal.aborted) stop();
  signal.addEventListener("abort", stop);
  try {
    return await Promise.race([aborted, p]);
  } finally {
    signal.removeEventListener("abort", stop);
  }
}

/** One call of once, with as many attempts as it needs. */
class Call<T, I> {
  readonly client: Client;
  nonce: Nonce; // the newest one
  job: Answer | undefined; // the answer of a claim that has handed it out
  /** @internal why this client cannot read the job */ unread = "";
  lookUpError: { error: unknown } | undefined; // of the last look-up
  private readonly nonces: Nonce[] = [];
  private readonly request: Json;
  private policy: Json; // in force, as far as an answer has told: that of the flight's first caller
  private readonly options: OnceOptions<I>;
  private readonly until: number;
  readonly id: string; // of the flight
  key: string;

  constructor(client: Client, key: string, request: Json, options: OnceOptions<I>) {
    this.client = client;
    this.nonce = new Nonce(this, 0, 0);
    this.key = key;
    this.id = flightIdForKey(key);
    this.request = request;
    this.policy = request;
    this.options = options;
    this.until = performance.now() + (options.waitMs ?? DEFAULT_WAIT_MS);
  }

  private get action(): string { return String(this.request["action"]); }

  private get waitIsOver(): boolean { return this.until - performance.now() < 1; }

  /** The time to wait for others under one nonce. Half of the attempt's time-out is left for the effect. */
  private get nonceWindowMs(): number {
    return Math.min((this.policy["attempt_timeout_ms"] || Infinity) / 2, MAX_NONCE_WAIT_MS);
  }

  /** The time since the newest nonce was made. */
  private get waitedMs(): number { return now().mono - this.nonce.madeAt.mono; }

  /** The wait of the next open with a nonce under which others were waited for that long. */
  private waitMs(waited: number): number {
    return Math.trunc(Math.max(0, Math.min(this.until - performance.now(), Math.max(this.nonceWindowMs - waited, MIN_WAIT_MS))));
  }

  async run(act: (f: Flight<I>) => Promise<T> | T): Promise<Result<T>> {
    try {
      for (;;) {
        const opened = await this.open();
        if (!(opened instanceof Attempt)) return this.resultOf(opened);
        const { nonce } = this;
        nonce.become("held");
        try {
          const result = await this.runAttempt(opened.flight, act);
          if (result) return result;
        } finally {
          nonce.endReport(false); // unless it was accepted
          opened.end();
        }
      }
    } catch (e) {
      void this.abandonUnused();
      throw e;
    }
  }

  private async newNonce(): Promise<void> {
    this.nonce = new Nonce(this, this.client.ledgerMs(), this.waitMs(0) + this.client.openMarginMs);
    this.nonces.push(this.nonce);
    await this.client.chooseSession(this.nonce, this.options.signal);
  }

  /** Opens until the callback may run, the wait is over, or the flight is decided; then it returns the flight. */
  private async open(): Promise<Attempt | Json> {
    try {
      return await this.openUntilAnswered();
    } catch (e) {
      if (!(e instanceof Busy && this.lookUpError)) throw e;
      const { error } = this.lookUpError;
      throw new InDoubt(`${this.key}: the look-up failed: ${textOf(error)}; the outcome of an earlier effect is unknown until a ` +
        "look-up succeeds (correct lookUp, and call again)", "in_doubt", e.problem, error);
    }
  }

  private async openUntilAnswered(): Promise<Attempt | Json> {
    if (this.job) return this.openJob(this.job);
    await this.client.connect(this.options.signal, this.until);
    await this.newNonce();
    for (let failures = 0; ;) { // opens in a row without a result
      const wait = this.waitMs(this.waitedMs);
      const asked = performance.now();
      try {
        let answer = await this.sendOpen("/v1/flights:open", this.request);
        this.policy = answer.json["policy_differs"] === true ? answer.json["policy"] ?? {} : this.request; // the answer to a finding does not name it
        while (answer.json["decision"] === "verify") answer = await this.verify(answer);
        if (answer.json["decision"] === "replay") return answer.json["flight"];
        if (answer.json["decision"] !== "proceed") {
          throw new FlightdError(`the server decided ${answer.json["decision"]}, which this client does not know: nothing ran; ` +
            "upgrade the client", "internal");
        }
        const attempt = new Attempt(this.nonce, answer, this.policy, this.nonce.madeAt);
        const reason = attempt.flight.expiryReason();
        if (!reason) return attempt;
        attempt.end();
        throw new LeaseLost(`${this.key}: ${reason}: the effect did not start`, "lease_lost");
      } catch (e) {
        if (!(e instanceof Busy || e instanceof LeaseLost || e instanceof Fenced || e instanceof Unavailable)) throw e;
        this.options.signal?.throwIfAborted();
        if (e instanceof LeaseLost && e.problem["status"]) this.nonce.session?.markLost();
        failures = e instanceof Busy ? 0 : failures + 1;
        // The estimate of ledger time was wrong; the answer has corrected it.
        const expired = e.code === "open_expired" && failures <= 3;
        if (!expired && (e instanceof Unavailable || (e instanceof Busy && this.waitIsOver) || failures >= MAX_FAILED_OPENS)) throw e;
        if (!(e instanceof Busy) || this.waitedMs >= this.nonceWindowMs) {
          await Promise.race([this.abandonUnused(), sleep(ABANDON_WAIT_MS, undefined, { ref: false })]);
        }
        // A server that answers early knows that the key stays busy: wait before the next open.
        const pause = e instanceof Busy ? Math.min(Math.max(e.retryAfterMs, 20), wait - (performance.now() - asked))
          : 20 * 2 ** failures;
        if (pause > 0) await untilAborted(this.options.signal, sleep(Math.min(pause, 1000), undefined, { signal: this.options.signal }));
        if (this.nonce.state !== "awaited") await this.newNonce();
      }
    }
  }

  /** Takes the attempt, or the look-up, that a claim was answered with. After its end the job is handed out again. */
  private async openJob(job: Answer): Promise<Attempt | Json> {
    if (this.nonce.state !== "awaited") {
      throw new Unsettled(`${this.key}: the attempt has ended, and the job is handed out again`, this.key, "not_done", undefined);
    }
    let answer = job;
    while (answer.json["decision"] === "verify") answer = await this.verify(answer);
    if (answer.json["decision"] === "replay") return answer.json["flight"];
    const attempt = new Attempt(this.nonce, answer, this.request, this.nonce.madeAt);
    const reason = attempt.flight.expiryReason();
    if (!reason) return attempt;
    attempt.end();
    throw new LeaseLost(`${this.key}: ${reason}: the effect did not start`, "lease_lost");
  }

  /** Gives a job back that was handed out and has not begun. */
  async giveBack(): Promise<void> {
    this.nonce.become("given up");
    await this.client.abandonInBackground(this.nonce);
  }

  /** Sends an open, or a verification, which gets the same kind of answer, and marks the nonce if it is final. */
  private async sendOpen(route: string, request: Json): Promise<Answer> {
    const { nonce } = this;
    const wait = this.waitMs(this.waitedMs);
    const { mayHaveArrived } = nonce;
    nonce.mayHaveArrived = true;
    const session = nonce.session?.oneShot === false ? { session: nonce.session.id } : this.client.ttl;
    const body = { ...request, ...session, nonce: nonce.text, not_after: nonce.notAfter, owner: this.client.owner(), wait_ms: wait };
    let answer: Answer;
    try {
      answer = await this.client.ask("POST", route, body,
        { timeoutMs: wait + TRY_TIMEOUT_MS, signal: this.options.signal, ...(this.job ? {} : { until: this.until }) });
      this.client.adaptOpenMargin(false);
    } catch (e) {
      if (!(e instanceof FlightdError) || e === this.options.signal?.reason) throw e; // no server has answered
      const only = !mayHaveArrived && !e.mayHaveArrived;
      if (isFinal(e, only)) nonce.become("final");
      else if (only && isUnproposed(e)) nonce.mayHaveArrived = false;
      this.client.adaptOpenMargin(e.code === "open_expired");
      if (!(e instanceof Failed) || !e.problem["flight"]) throw e;
      answer = { json: { decision: "replay", flight: e.problem["flight"] }, sentAt: nonce.madeAt }; // it failed
    }
    if (answer.json["decision"] === "replay") nonce.become("final");
    return answer;
  }

  /**
   * Abandons the opens that will not be used: no other caller can state that nothing was sent. An open whose answers all
   * came without a proposal is abandoned later, for a copy that the network may have made: when a renewal lists it, or without
   * a session after its notAfter.
   */
  private async abandonUnused(): Promise<void> {
    const all = new Set([...this.nonces, ...(this.job ? [this.nonce] : [])]); // before newNonce there is no nonce to abandon
    await Promise.all([...all].filter((nonce) => nonce.state === "awaited").map((nonce) => {
      nonce.become("given up");
      if (nonce.mayHaveArrived) return this.client.abandonInBackground(nonce);
      return nonce.session ? undefined : this.client.leave(nonce);
    }));
  }

  /** States that nothing was and will be sent under a nonce. Returns false while no server has accepted that. */
  async abandon(nonce: Nonce, timeoutMs = 5000): Promise<boolean> {
    const { action, id } = this.request;
    const body = { action, id, nonce: nonce.text, not_after: nonce.notAfter, reason: "its caller gave up before the effect" };
    try {
      await this.client.ask("POST", "/v1/flights:abandon", body, { timeoutMs, retryTimeoutMs: timeoutMs });
    } catch (e) { // also an answer that cannot be decoded
      if (reportResultOf(e) !== "rejected") return false;
    }
    nonce.abandoning = false;
    nonce.settled = true;
    return true;
  }

  /** Calls lookUp and reports its finding under a new nonce. Returns the answer, which is that of an open. */
  private async verify(answer: Answer): Promise<Answer> {
    const lookUp = this.options.lookUp;
    if (!lookUp) {
      throw new InDoubt(`${this.key}: an earlier effect has an unknown outcome and must be looked up; pass lookUp`,
        "in_doubt", answer.json);
    }
    const looked = this.nonce;
    const bound: number = this.policy["attempt_timeout_ms"] || LOOK_UP_TIMEOUT_MS;
    const named = { ...answer, json: { key: this.key, ...answer.json } };
    const attempt = new Attempt(looked, named, { attempt_timeout_ms: bound }, now());
    attempt.flight.endCallback(); // a look-up starts nothing
    const hung = attempt.timeout(bound + LOOK_UP_GRACE_MS);
    try {
      const found = await Promise.race([this.callLookUp(lookUp, attempt.flight), hung]);
      const send = (): Promise<Answer> => this.sendOpen(`/v1/flights/${this.id}/verification`, this.verificationOf(answer, found));
      const opened = await this.newNonce().then(send).catch((e: unknown) => {
        looked.become("given up");
        void this.client.abandonInBackground(looked);
        throw e;
      });
      looked.become("final");
      return opened;
    } finally {
      attempt.end();
    }
  }

  private async callLookUp(lookUp: (f: Flight<I>) => Promise<Found> | Found, f: Flight<I>): Promise<Found> {
    try {
      const found: any = await lookUp(f);
      if (found != null && typeof found.happened !== "boolean") {
        throw new TypeError("lookUp returned another value than { happened: true, ... }, { happened: false } or undefined");
      }
      this.lookUpError = undefined;
      this.client.noteLookUp(this.action, this.key, "");
      return found;
    } catch (error) {
      this.lookUpError = { error };
      this.client.noteLookUp(this.action, this.key, textOf(error));
      return undefined;
    }
  }

  private verificationOf(answer: Answer, found: Found): Json {
    const verification: Json = { verification: answer.json["verification"], result: "unknown" };
    if (found?.happened === true) {
      const { contentType, body } = this.encoded(found.value, found.externalId);
      Object.assign(verification, bodyFields(found.externalId ?? "", contentType, body), { result: "happened" });
    } else if (found?.happened === false) {
      verification["result"] = "not_happened";
    }
    return verification;
  }

  /** Runs the callback and reports its outcome. Returns undefined if the flight may be opened again. */
  private async runAttempt(f: Flight<I>, act: (f: Flight<I>) => Promise<T> | T): Promise<Result<T> | undefined> {
    let value: T | undefined;
    let error: unknown;
    let outcome = "succeeded";
    try {
      value = await act(f);
      if (value instanceof Response && value.ok && !f.callbackEnded) value = await ok<T>(value);
      if (value == null && f.effectError && f.runningEffects === 0 && !f.rejectedEffect) throw f.effectError.error; // the callback caught it
      if (f.effectStarted) checkRan(isAxiosAnswer(value) ? (value as { data?: unknown }).data : value);
      f.endCallback();
      const axios: any = isAxiosAnswer(value) ? value : undefined;
      const status = isProviderAnswer(value) && !value.ok ? value.status : axios && !(axios.status >= 200 && axios.status < 300) ? axios.status : undefined;
      if (axios && status === undefined) value = axios.data as T;
      if (!f.effectStarted || f.runningEffects > 0 || f.rejectedEffect || status !== undefined) {
        error = f.rejectedEffect ?? new Error(status !== undefined && f.runningEffects === 0
          ? `the result is an HTTP answer of status ${status}; pass it to ok() or throwForStatus() in f.effect()` : f.effectStarted
          ? "return or await the promise of f.effect(): the callback ended before it"
          : "put f.effect() around the call that must happen once, or throw NotDone to leave without it");
        outcome = "unknown"; // it is not known whether anything was sent, or how it ends
      }
    } catch (e) {
      outcome = f.outcomeOf(e);
      error = e;
    }
    const report = this.reportOf(f, outcome, value, error);
    let flight: Json;
    try {
      flight = await this.client.recordReport(this.nonce, f, report, value);
    } catch (e) {
      if (e instanceof Fenced) return this.afterFence(f, e, error);
      throw e;
    }
    if (DECIDED_STATES.includes(flight["state"])) return this.resultOf({ ...flight, source: "executed" }, error, outcome === "succeeded" ? { value: value as T, attempt: f.attempt } : undefined);
    if (outcome === "unknown" && flight["verifying"] && this.options.lookUp) return undefined;
    if (outcome === "not_done") throw error;
    throw new Unsettled(`${f.key}: ${outcome}: ${textOf(error)}; call again to open the next attempt`, f.key, outcome, error);
  }

  private reportOf(f: Flight<I>, outcome: string, value: unknown, error: unknown): Json {
    const report: Json = { fencing_token: f.fencingToken, key: f.key, outcome };
    const overran = f.effectStarted && f.deadline !== undefined && f.deadline.remaining() <= 0; // the history shows it, whatever the outcome is
    if (overran || error !== undefined) report["error"] = truncate([...(overran ? [OVERRAN] : []), ...(error === undefined ? [] : [textOf(error)])].join(": "));
    if (outcome === "not_done" && error instanceof NotDone && error.retryAfterMs > 0) report["retry_after_ms"] = Math.ceil(Math.min(error.retryAfterMs, MAX_PAUSE_MS));
    if (outcome === "succeeded" || outcome === "refused") {
      const { contentType, body } = outcome === "succeeded" ? this.encoded(value, f.externalId) : plainText((error as Error).message);
      Object.assign(report, bodyFields(f.externalId, contentType, body));
    }
    return report;
  }

  /** Returns content type and body of a receipt, and logs what the receipt does not keep: duplicates cannot get it. */
  private encoded(value: unknown, externalId: unknown): { contentType: string; body: Buffer } {
    const { why, ...encoded } = encode(value);
    const lost = why || (encoded.body.length > MAX_RECEIPT ? `it has ${encoded.body.length} bytes, and ${MAX_RECEIPT} are stored` : "");
    if (lost) {
      this.client.log(`the receipt of ${this.key} does not hold the whole result, so duplicates get ReceiptTruncated: ${lost}; ` +
        "store the result elsewhere, and return its id");
    }
    if (truncate(textOf(externalId ?? "")) !== textOf(externalId ?? "")) {
      this.client.log(`the external id of ${this.key} is longer than ${MAX_TEXT} bytes or no valid text, and is not kept as it is; put it into the result`);
    }
    return encoded;
  }

  /** Returns the decision of another attempt or a person, if it is final; else throws Fenced. */
  private async afterFence(f: Flight<I>, fenced: Fenced, error: unknown): Promise<Result<T>> {
    let flight: Json;
    try {
      flight = (await this.client.ask("GET", `/v1/flights/${f.flightId}`)).json;
    } catch {
      throw fenced;
    }
    if (!DECIDED_STATES.includes(flight["state"])) throw fenced;
    return this.resultOf({ ...flight, source: "replayed" }, error);
  }

  /** Returns the result of a decided flight, or throws the error for its state. */
  resultOf(flight: Json, cause?: unknown, own?: { value: T; attempt: number }): Result<T> {
    const flightId: string = flight["id"];
    const key = (this.key = flight["key"] ?? this.key);
    const problem = { key, flight_id: flightId, version: flight["version"], flight };
    const state: string = flight["state"];
    switch (state) {
      case "in_doubt":
        throw new InDoubt(`${key} is in doubt: ${flight["cause"] ?? ""}; resolve it with \`flightd doubt resolve ${key} --reason WHY ` +
          "--happened --receipt @FILE | --did-not-happen | --fail`", "in_doubt", problem, cause);
      case "awaiting_approval":
        throw new Unapproved(`${key} waits for an approval`, "approval_pending", problem, cause);
      case "expired":
        throw new Expired(`${key}: its receipt is no longer stored`, "expired", problem, cause);
    }
    if (!flight["receipt"]) throw new Failed(`${key} is ${state}: ${flight["cause"] ?? ""}`, "flight_failed", problem, cause);
    const receipt = receiptOf(flight["receipt"]);
    if (receipt.outcome === "refused") {
      throw new Declined(`${key} was refused by the provider: ${String(receipt.value)}`, receipt, problem, cause);
    }
    const whole = own?.attempt === receipt.attempt; // the executing caller has the complete result
    if (receipt.truncated && !whole) {
      const why = receipt.contentType === INCOMPLETE ? "could not be written as JSON by the caller that acted" : receipt.size > 0 ? `of ${receipt.size} bytes is not stored completely` : "is not known: a person resolved it";
      throw new ReceiptTruncated(`${key} succeeded, but its result ${why}`, receipt, problem, cause);
    }
    return {
      value: own && whole ? own.value : (receipt.value as T), source: flight["source"] ?? "replayed", key, flightId, receipt,
      body: () => this.client.receiptBody(flightId, receipt),
    };
  }
}

// --- the client -------------------------------------------------------------------------------------------------------

export interface ClientOptions {
  /** of keys; default FLIGHTD_NAMESPACE, else "default" */
  namespace?: string;
  /** whole seconds from 2 to 600 for which an attempt outlives this process; the server's default is 15 */
  ttlSeconds?: number;
  /** folder for reports that no server has accepted yet; with "" an outcome is lost if the process dies */
  spool?: string;
  /** time for which a request is retried while no server answers; default 10 s */
  retryTimeoutMs?: number;
  /** time to wait until an outcome is recorded; then Unrecorded, and the report is retried. Default 10 s */
  reportWaitMs?: number;
  /** name of the holder of attempts, for people; default host:pid */
  owner?: string;
  /** receives messages for a person; default console.warn */
  log?: (message: string) => void;
  /** sent with every request, in place of a user in the address; default FLIGHTD_TOKEN, else tokenFile */
  token?: string;
  /** file that has the token, read again at most once a second; default FLIGHTD_TOKEN_FILE */
  tokenFile?: string;
  /** PEM file of the authorities that https servers are checked against; default FLIGHTD_CA_FILE, else Node's */
  caFile?: string;
  /** PEM file of the client's certificate; default FLIGHTD_CLIENT_CERT */
  clientCert?: string;
  /** PEM file of its key; default FLIGHTD_CLIENT_KEY */
  clientKey?: string;
  /**
   * sends a token over http:// to another machine, too: every machine on the way can then read it. It is for a proxy on a
   * trusted network; default FLIGHTD_ALLOW_PLAIN_HTTP
   */
  allowPlainHttp?: boolean;
  /** the only deployment that the client talks to; default FLIGHTD_DEPLOYMENT, else the first that answers */
  deployment?: string;
}

interface AskOptions {
  headers?: Record<string, string>;
  timeoutMs?: number;
  /** time for retries; the client's by default */
  retryTimeoutMs?: number;
  /** most tries; not limited by default */
  tries?: number;
  /**
   * the end of the caller's wait, by performance.now(): while every server refuses connections, the tries end by then, or never
   * if it is Infinity and nothing was sent
   */
  until?: number;
  signal?: AbortSignal | undefined;
}

const ending = new Set<Client>(); // clients that have requests to send before the program ends
process.on("beforeExit", () => { for (const client of ending) void client.sendLastRequests(); });

/** A client of flightd servers. */
export class Client {
  readonly namespace: string;
  private readonly servers: string[];
  private readonly options: Omit<ClientOptions, "token">;
  // No dump shows what is private to the language: the token, the users of addresses, and the key of the certificate.
  readonly #token: () => string;
  readonly #basic: (string | undefined)[];
  readonly #agents: Agents;
  private readonly retryTimeoutMs: number;
  private readonly reportWaitMs: number;
  private readonly spool: Spool;
  private readonly picker: Picker;
  private deployment = "";
  private connecting: { end: number; done: Promise<void> } | undefined; // the end of the wait while servers refuse connections
  private spoolTimer: NodeJS.Timeout | undefined;
  /** @internal */ closed = false;
  private ledgerClock = { ms: 0, at: now() }; // the ledger's time, 0 if no answer has named it, and when one did
  private ledgerIndex: [epoch: number, entry: number] = [0, 0]; // the greatest one that an answer named; each request sends it
  /** @internal that are renewed */ readonly sessions = new Set<Session>();
  private session: Session | undefined; // for new opens
  private makingSession: Promise<void> | undefined;
  /** @internal an attempt was opened in the last minute: opens use a session */ performed = false;
  private sessionless: Nonce | undefined; // the newest open without a session
  private readonly abandons: { until: number; nonce: Nonce }[] = [];
  private abandonLoopRuns = false;
  private left: Nonce[] = []; // opens whose abandon is sent later
  private leftTimer: NodeJS.Timeout | undefined;
  /** @internal how much longer than its wait a new open may open an attempt */ openMarginMs = MIN_OPEN_MARGIN_MS;

  /**
   * address: one server, or several of one deployment, separated by commas; default FLIGHTD_ADDR, else
   * http://127.0.0.1:7420. If one of them is the leader of a cluster, requests go there; after a failure they are tried at
   * the others in turn. The client stays with the first deployment that answers
   */
  constructor(address?: string, options: ClientOptions = {}) {
    const { token, ...others } = options;
    this.options = others;
    this.#token = tokenSource(token, options.tokenFile, (m) => this.log(m));
    const listed = addresses(address || process.env["FLIGHTD_ADDR"] || DEFAULT_SERVER);
    if (this.#token() && !options.allowPlainHttp) checkPlainHttp(listed);
    this.servers = listed.map((url) => url.origin + url.pathname.replace(/\/+$/, ""));
    this.picker = new Picker(listed.length);
    this.#basic = listed.map(basicOf);
    this.#agents = agents(listed.some((url) => url.protocol === "https:"), options);
    this.namespace = options.namespace || process.env["FLIGHTD_NAMESPACE"] || tokenNamespace(this.#token()) || "default";
    if (!/^[A-Za-z0-9._-]{1,255}$/.test(this.namespace)) {
      throw new TypeError(`invalid namespace ${JSON.stringify(this.namespace)}: use letters, digits, '.', '_' and '-'`);
    }
    this.retryTimeoutMs = options.retryTimeoutMs ?? 10_000;
    this.reportWaitMs = options.reportWaitMs ?? 10_000;
    if (!(boundOf("retryTimeoutMs", this.retryTimeoutMs) > 0 && boundOf("reportWaitMs", this.reportWaitMs) > 0)) {
      throw new RangeError("retryTimeoutMs and reportWaitMs must be positive");
    }
    if (options.ttlSeconds !== undefined) wholeOf("ttlSeconds", options.ttlSeconds);
    this.spool = new Spool(options.spool ?? defaultSpool(), (m) => this.log(m));
  }

  /**
   * Runs act once for the key, or returns the stored receipt. name and id are the business intent: the kind of effect and a
   * business identifier, such as an order id. input is any JSON, a Date, a BigInt or a Map of these; the same key with another input is a Conflict. Under verify,
   * act may run again after a look-up that found nothing.
   *
   * It throws InDoubt, Conflict, Busy, Declined, Failed, Unapproved, Expired, Unavailable, Unrecorded, Unsettled or Fenced,
   * and the error of act itself if nothing was sent.
   */
  async once<T, I = unknown>(name: string, id: string, input: I, act: (f: Flight<I>) => Promise<T> | T,
                             options: OnceOptions<I> = {}): Promise<Result<T>> {
    const recovery = options.recovery ?? "hold";
    if (recovery === "verify" && !options.lookUp) throw new TypeError('recovery "verify" needs lookUp');
    boundOf("waitMs", options.waitMs ?? 0);
    if (wholeOf("retries", options.retries ?? 0) < 0) throw new TypeError(`retries: ${options.retries} is negative`);
    const request: Json = { action: nameOf("action", name), id: nameOf("id", id), recovery };
    if (input !== undefined) request["input"] = parseJson(jsonText(input, "input"));
    if (options.keyDecides) request["fingerprint"] = "none";
    if (options.attemptTimeoutMs !== undefined) request["attempt_timeout_ms"] = msOf(options.attemptTimeoutMs, "attemptTimeoutMs");
    if (options.settleMs !== undefined) request["settle_ms"] = msOf(options.settleMs, "settleMs");
    if (options.providerWindowMs !== undefined) request["provider_window_ms"] = msOf(options.providerWindowMs, "providerWindowMs");
    if (options.retention !== undefined && options.retention !== "") request["retention"] = options.retention;
    if (options.lookUp && recovery !== "verify") request["lookup"] = true;
    for (let retries = options.retries ?? 0, pause = 100; ; retries--, pause = Math.min(2 * pause, 10_000)) {
      try {
        return await new Call<T, I>(this, `${this.namespace}/${name}/${id}`, request, options).run(act);
      } catch (e) {
        const again = e instanceof NotDone || (e instanceof Unsettled && e.outcome === "not_done");
        if (!again || retries <= 0) throw e;
        const ms = e instanceof NotDone && e.retryAfterMs > 0 ? e.retryAfterMs : pause * (0.5 + Math.random());
        await untilAborted(options.signal, sleep(Math.min(ms, MAX_PAUSE_MS), undefined, { signal: options.signal }));
      }
    }
  }

  /**
   * Returns the flight of a key as the server stores it, with `state` and, if it has ended, `receipt`; undefined if it was never
   * used.
   */
  async get(name: string, id: string): Promise<Json | undefined> {
    const flightId = flightIdForKey(`${this.namespace}/${nameOf("action", name)}/${nameOf("id", id)}`);
    try {
      return (await this.ask("GET", `/v1/flights/${flightId}`)).json;
    } catch (e) {
      if (e instanceof FlightdError && e.code === "not_found" && e.problem["flight_id"]) return undefined; // else it is about the path
      throw e;
    }
  }

  /**
   * Asks the workers of an action to perform its effect, and does not wait for it. The same key is the same job. It throws
   * Conflict for another input, and Unavailable.
   */
  async submit(name: string, id: string, input?: unknown, options: JobOptions = {}): Promise<Submitted> {
    await this.declare(name);
    const request = this.jobRequest(name, id, input, options);
    const { json } = await this.ask("POST", "/v1/flights:submit", request);
    if (json["warning"]) this.log(`${name}/${id}: ${json["warning"]}`);
    return { status: json["status"], key: json["flight"].key, warning: json["warning"] ?? "" };
  }

  /**
   * Submits jobs in batches. It returns how many were queued, duplicate, or rejected with which code (conflict: another input).
   * All again, from the first, is harmless.
   */
  async submitAll(name: string, jobs: Iterable<[string, unknown]> | AsyncIterable<[string, unknown]>,
                  options: JobOptions = {}): Promise<Record<string, number>> {
    const counts: Record<string, number> = { queued: 0, duplicate: 0, conflict: 0 };
    let lines: string[] = [];
    let bytes = 0;
    const flush = async (): Promise<void> => {
      const { data } = await this.askRaw("POST", "/v1/flights:submit", lines.join("\n"),
        { headers: { "Content-Type": "application/x-ndjson" }, timeoutMs: 60_000 });
      const answers = data.toString().trimEnd().split("\n").map((line): Json => readJson(line));
      if (answers.length !== lines.length || answers.some((a, i) => a["line"] !== i + 1)) {
        throw unreadable(`it does not have the ${lines.length} lines of the request; submit all again`);
      }
      for (const { status } of answers) {
        const word = status === "idempotency_conflict" ? "conflict" : String(status);
        counts[word] = (counts[word] ?? 0) + 1;
      }
      lines = [];
      bytes = 0;
    };
    await this.declare(name);
    for await (const [id, input] of jobs) {
      const line = jsonOf(this.jobRequest(name, id, input, options)).text;
      lines.push(line);
      bytes += line.length;
      if (lines.length === MAX_BATCH_LINES || bytes > MAX_BATCH_BYTES) await flush();
    }
    if (lines.length > 0) await flush();
    return counts;
  }

  private jobRequest(name: string, id: string, input: unknown, o: JobOptions): Json {
    const own = this.policies.get(name);
    const declared = own?.status === "undeclared" ? own.policy : {}; // else the document counts
    const policy = policyOf(o);
    const request: Json = { action: nameOf("action", name), id: nameOf("id", id), ...(Object.keys(policy).some((k) => k !== "retry") ? policy : { ...declared, ...policy }) };
    if (input !== undefined) request["input"] = parseJson(jsonText(input, "input"));
    if (o.runAt && !(o.runAt instanceof Date && !Number.isNaN(o.runAt.getTime()))) throw new RangeError(`runAt: ${textOf(o.runAt)} is not a time`);
    if (o.runAt) request["run_at"] = o.runAt.toISOString();
    if (o.delay !== undefined) request["delay_ms"] = msOf(o.delay, "delay");
    if (o.lane !== undefined) request["lane"] = nameOf("lane", o.lane);
    if (o.laneLimit !== undefined) request["lane_limit"] = wholeOf("laneLimit", o.laneLimit);
    if (o.priority !== undefined) request["priority"] = wholeOf("priority", o.priority);
    return request;
  }

  /**
   * Waits until a job has ended, and returns its result. Anybody may wait, and later. It throws Declined, Failed, InDoubt for a
   * job that needs a person, and when the time-out is over Busy, or Unapproved for a job that awaits an approval.
   */
  async wait<T = unknown>(name: string, id: string, timeoutMs = Infinity): Promise<Result<T>> {
    const key = `${this.namespace}/${nameOf("action", name)}/${nameOf("id", id)}`;
    const until = performance.now() + boundOf("timeoutMs", timeoutMs);
    for (let seen = "", state = ""; ;) {
      const asked = performance.now();
      const seconds = Math.max(0, Math.min(30, Math.trunc((until - asked) / 1000)));
      const { json } = await this.ask("GET", `/v1/flights/${flightIdForKey(key)}`, undefined, { until,
        retryTimeoutMs: Math.max(this.retryTimeoutMs, until - asked), timeoutMs: 1000 * seconds + TRY_TIMEOUT_MS, headers: { "If-None-Match": `"${seen}"`, Prefer: `wait=${seconds}` } });
      if (json && DECIDED_STATES.includes(json["state"]) && json["state"] !== "awaiting_approval") return new Call<T, unknown>(this, key, {}, {}).resultOf(json);
      seen = json?.["version"] ?? seen;
      state = json?.["state"] ?? state;
      const at = performance.now();
      if (at >= until && state === "awaiting_approval") throw new Unapproved(`${key} waits for an approval: flightd approvals show ${key}`, "approval_pending", { key });
      if (at >= until) throw new Busy(`${key} has not ended`, "idempotency_in_flight", { key });
      if (!json && at - asked <= 500 * seconds) await sleep(Math.min(2000, until - at)); // a server without room for a wait has answered at once
      else if (seconds === 0) await sleep(Math.min(100, until - at));
    }
  }

  /** Returns a worker, which performs jobs of the actions that `on` names. */
  worker(options: WorkerOptions = {}): Worker { return new Worker(this, options); }

  /** @internal workers that run */ readonly workers = new Set<Worker>();
  /** @internal policies that workers of this process declare, by action */ readonly policies = new Map<string, DeclaredPolicy>();

  /** @internal Declares the policy of a worker of this process, once. It returns the error of run, if the document differs. */
  async declare(name: string): Promise<PolicyDiffers | undefined> {
    const own = this.policies.get(name);
    if (!own || own.status || Object.keys(own.policy).length === 0) return own?.differs;
    const { json } = await this.ask("POST", `/v1/actions/${encodeURIComponent(name)}/declare`, own.policy);
    const differences = (json["differences"] ?? []) as Json[];
    const textOfOne = (d: Json): string => `${d["field"]} is ${d["own"] || "not set"} here, and ${d["document"] || "not set"} in the document`;
    for (const d of differences) {
      if (!d["refuses"]) this.log(`the worker's policy of ${name} differs from its document, which counts: ${textOfOne(d)}`);
    }
    const refusing = differences.filter((d) => d["refuses"]).map(textOfOne);
    if (refusing.length > 0) {
      own.differs = new PolicyDiffers(`the worker's policy of the action ${name} differs from its document: ${refusing.join("; ")}; ` +
        "change the worker, or the document with flightd actions apply", "policy_differs", { differences });
    }
    if (json["status"] === "undeclared") {
      this.log(`the policy of ${name} is not declared: the token lacks the verb define, and the action has no document`);
    }
    own.status = String(json["status"]);
    return own.differs;
  }

  private readonly failedLookUps = new Map<string, string>(); // the last logged text, by action

  /** @internal Logs the failure of a look-up, and not again while the look-ups of the action fail with the same text. */
  noteLookUp(action: string, key: string, failure: string): void {
    if (failure && this.failedLookUps.get(action) !== failure) this.log(`${key}: the look-up failed: ${failure}`);
    this.failedLookUps.set(action, failure);
  }

  /** @internal Returns a job that a claim has opened. */
  newJob(claim: Claim, key: string, policy: Json, options: OnceOptions<any> = {}): Call<any, any> {
    const [, action = "", id = ""] = /^[^/]+\/([^/]+)\/(.+)$/.exec(key) ?? [];
    const job = new Call<any, any>(this, key, { ...policy, action, id }, { ...options, waitMs: 0 });
    job.nonce = new Nonce(job, claim.notAfter, 0, `${claim.text}.${job.id}`);
    job.nonce.validity = claim.validity;
    job.nonce.mayHaveArrived = true;
    return job;
  }

  /** Returns the number of reports that wait on disk. */
  async spooled(): Promise<number> { return (await this.spool.onDisk()).length; }

  /**
   * Ends the runs of its workers and the work in the background, and closes the session. Reports on disk wait for the next client; reports that could not
   * be spooled are sent once more, and a program that does not call process.exit waits for that.
   */
  close(): void {
    this.closed = true;
    for (const worker of this.workers) worker.stop();
    clearTimeout(this.spoolTimer);
    void this.sendLastRequests();
  }

  /** @internal the field of a request for which the server makes a session */
  get ttl(): Json { return this.options.ttlSeconds === undefined ? {} : { ttl_ms: 1000 * this.options.ttlSeconds }; }

  /**
   * Adds a new nonce to the client's session, and makes the session if needed. A client that has performed no effect opens
   * without a session, one call at a time: a replay needs none. The server then makes a session for the open.
   * @internal
   */
  async chooseSession(nonce: Nonce | Claim, signal?: AbortSignal): Promise<void> {
    for (;;) {
      if (this.session && this.session.trust.remaining() <= 0) this.session.markLost();
      if (this.session?.add(nonce)) return;
      if (nonce instanceof Nonce && !this.performed && this.sessionless?.state !== "awaited") {
        this.sessionless = nonce;
        return;
      }
      this.makingSession ??= this.makeSession().finally(() => { this.makingSession = undefined; });
      await untilAborted(signal, this.makingSession);
      if (!this.session || this.session.trust.remaining() <= 0) return; // it could not be made, or not in time
    }
  }

  private async makeSession(): Promise<void> {
    try {
      const request = { ...this.ttl, owner: this.owner() };
      this.session = new Session(this, await this.ask("POST", "/v1/sessions", request, { tries: this.servers.length }));
      ending.add(this);
    } catch (e) {
      if (!(e instanceof Unavailable)) throw e;
    }
  }

  /**
   * Returns the session that holds an attempt or a look-up, as the answer names it, and moves the nonce to it.
   * @internal
   */
  adopt(nonce: Nonce, answer: Answer): Session {
    this.performed = true;
    const own = nonce.session;
    if (!own || own.id !== answer.json["session"]) {
      own?.remove(nonce);
      return new Session(this, answer, nonce);
    }
    own.trust.extend(answer.sentAt, answer.json["trust_ms"] ?? 0);
    return own;
  }

  /** @internal Ends new opens under a session. */
  forgetSession(session: Session): void { if (this.session === session) this.session = undefined; }

  /** @internal */
  hasSpooled(name: string): boolean { return this.spool.has(name); }

  /** @internal */
  log(message: string): void {
    void (async () => (this.options.log ?? ((m) => console.warn(m)))(`flightd: ${message}`))() // called synchronously
      .catch(() => undefined); // a log that fails must not stop a report
  }

  /** @internal */
  owner(): string {
    return (this.options.owner || `${os.hostname()}:${process.pid}`).replace(/[^ -~]/g, "?");
  }

  /**
   * Sends a request until a server answers it. A repeat is harmless on each route: by the nonce, by the token, or because
   * the request changes nothing. It throws the error of a problem document, or Unavailable if no server answers within
   * retryTimeoutMs. An answer that does not repeat the Flightd-Echo of the request counts as no answer.
   * @internal
   */
  async ask(method: string, route: string, body?: Json | string, options: AskOptions = {}): Promise<Answer> {
    const { data, sentAt } = await this.askRaw(method, route, body, options);
    return { json: readJson(data.toString()), sentAt };
  }

  private async askRaw(method: string, route: string, body: Json | string | undefined,
                       o: AskOptions): Promise<{ data: Buffer; sentAt: Instant }> {
    if (route !== "/version") await this.connect(undefined, o.until ?? (o.retryTimeoutMs === undefined ? undefined : performance.now() + o.retryTimeoutMs));
    let deadline = 0; // starts at the first failure: a server may hold a request for long
    let mayHaveArrived = false;
    let round = { order: [0], probe: -1 }; // a round tries each server once
    let rejected: FlightdError | undefined; // the error of a server of this round that does not admit the caller
    let unusable = 0; // servers of this round with such an error, or without an answer
    let refusing = 0; // servers of this round that refuse connections
    let hint = 0; // the longest pause that a server of this round asked for
    const last = this.servers.length;
    for (let count = 1, pause = 20; ; count++) {
      if ((count - 1) % last === 0) {
        round = this.picker.pick(o.tries === undefined);
        rejected = undefined;
        unusable = refusing = hint = 0;
      }
      const server = round.order[(count - 1) % last] ?? 0;
      let failure: FlightdError;
      try {
        return await this.send(server, round.probe, method, route, body, o);
      } catch (e) {
        // A caller that gave up says nothing about the server.
        if (!(e instanceof FlightdError) && (server === round.probe || !o.signal?.aborted)) this.picker.failed(server, round.probe);
        if (o.signal?.aborted) throw e;
        if (e instanceof FlightdError) {
          const status: number = e.problem["status"];
          if (e.code === "reconciling" || (status >= 300 && status < 500 && ![408, 429].includes(status) && e.code !== "unreachable")) {
            if (!NEXT_SERVER_CODES.includes(e.code)) {
              e.mayHaveArrived = mayHaveArrived;
              throw e;
            }
            // Other software, or a server that rejects the caller: the next server may accept the request.
            rejected = e;
            unusable++;
          } else {
            mayHaveArrived = true;
            if (e.code === "unreachable") unusable++;
          }
          failure = e;
        } else if (e instanceof Rejected) {
          rejected = failure = new Unavailable(e.message, "unreachable", {}, e.cause);
          unusable++;
        } else {
          unusable++;
          const noServer = ["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN"].includes((e as { code?: string }).code ?? "");
          mayHaveArrived ||= !noServer;
          if (noServer) refusing++;
          const where = `no server answers at ${this.servers[server]}: ${textOf(e instanceof AggregateError ? e.errors[0] : e)}`;
          failure = new Unavailable(noServer ? `${where} (${NO_SERVER_HINT})` : where, "unreachable", {}, e);
        }
      }
      if (rejected && unusable === last) { // a person must act
        rejected.mayHaveArrived = mayHaveArrived;
        throw rejected;
      }
      const unlimited = o.until === Infinity && refusing === last && !mayHaveArrived;
      deadline ||= performance.now() + (o.retryTimeoutMs ?? this.retryTimeoutMs);
      if (refusing === last) deadline = Math.min(deadline, o.until ?? Infinity);
      hint = Math.max(hint, Math.min(failure.problem["retry_after_ms"] ?? 0, 5000));
      let wait = 0; // the next server is tried at once
      if (count % last === 0 || (count > last && !ONE_SERVER_CODES.includes(failure.code))) {
        wait = hint || pause * (0.5 + Math.random());
        pause = Math.min(2 * pause, 1000);
      }
      if (count === o.tries || (performance.now() + wait > deadline && !unlimited)) {
        failure.mayHaveArrived = mayHaveArrived;
        throw failure;
      }
      if (unlimited) deadline = 0;
      await sleep(wait, undefined, o.signal ? { signal: o.signal } : {});
    }
  }

  /** Sends a request once. */
  private async send(index: number, probe: number, method: string, route: string, body: Json | string | undefined,
                     o: AskOptions): Promise<{ data: Buffer; sentAt: Instant }> {
    const server = this.servers[index] ?? "";
    const headers: Record<string, string> = { "User-Agent": "flightd-typescript" };
    const token = this.#token();
    const authorization = token ? `Bearer ${token}` : this.#basic[index];
    if (authorization) headers["Authorization"] = authorization;
    if (body) headers["Content-Type"] = "application/json";
    Object.assign(headers, o.headers);
    if (this.namespace !== "default" || tokenNamespace(token)) headers["Flightd-Namespace"] = this.namespace;
    if (!["", "-"].includes(this.deployment)) headers["Flightd-Deployment"] = this.deployment;
    if (this.ledgerIndex[0]) headers["Flightd-Index"] = this.ledgerIndex.join("-");
    const over = AbortSignal.timeout(Math.ceil(o.timeoutMs ?? TRY_TIMEOUT_MS));
    const signal = o.signal ? AbortSignal.any([over, o.signal]) : over;
    const sentAt = now();
    const text = typeof body === "object" ? jsonOf(body).text : body;
    // A proxy may give the answer to another request, and other software does not know the header.
    const echo = headers["Flightd-Echo"] = randomBytes(16).toString("base64url");
    const answer = await exchange(this.#agents, server + route, method, headers, text, signal);
    const own = answer.headers["flightd-echo"] === echo;
    const failure = own && (answer.status < 300 || answer.status === 304) ? undefined
      : errorFrom(answer.status, answer.headers["retry-after"] ?? "", answer.data.toString(), server, own);
    this.noteAnswer(route, index, probe, answer, failure);
    if (failure) throw failure;
    return { data: answer.status === 304 ? Buffer.from("null") : answer.data, sentAt };
  }

  /**
   * Reads the deployment of the first server that answers, and sends the reports that wait on disk for it. The client stays
   * with this deployment, or with the pinned one: another deployment has no record of its flights, and answers
   * wrong_deployment.
   * @internal
   */
  async connect(signal?: AbortSignal, until?: number): Promise<void> {
    signal?.throwIfAborted();
    const end = until ?? performance.now() + this.retryTimeoutMs;
    while (!this.deployment) {
      const other = this.connecting;
      const one = other && other.end <= end ? other : (this.connecting = { end, done: this.readDeployment(until) });
      try {
        await untilAborted(signal, one.done);
      } catch (e) {
        if (one !== other || signal?.aborted || !(e instanceof Unavailable)) throw e; // otherwise the other caller has waited less
      } finally {
        if (this.connecting === one) this.connecting = undefined;
      }
    }
  }

  private async readDeployment(until: number | undefined): Promise<void> {
    const { json } = await this.ask("GET", "/version", undefined, until === undefined ? {} : { until });
    const found = String(json["deployment"] || "-"); // older servers do not name it
    this.deployment = this.options.deployment || process.env["FLIGHTD_DEPLOYMENT"] || found;
    this.noteLedgerMs(this.deployment === found ? json["ledger_time"] : 0);
    if ((await this.spool.names()).length > 0) void this.spoolRound().catch(() => undefined);
  }

  /**
   * Stores what an answer says about its server and about the ledger. An answer of other software, or one that rejects the
   * caller, perhaps of another deployment, says nothing; /version answers callers of every deployment.
   */
  private noteAnswer(route: string, server: number, probe: number, answer: HttpAnswer, failure?: FlightdError): void {
    const code = failure?.code ?? "";
    const named = (name: string): string => String(answer.headers[name] ?? "");
    const ours = code !== "unreachable" && !NEXT_SERVER_CODES.includes(code);
    if (ours && route !== "/version") {
      this.noteLedgerMs(named("flightd-ledger-time") || failure?.problem["ledger_time"], code === "open_expired");
      this.noteLedgerIndex(named("flightd-index"));
    }
    if (ours && (answer.status < 500 || code === "reconciling")) {
      this.picker.answered(server, probe, named("flightd-node"), named("flightd-leader"));
    } else {
      this.picker.failed(server, probe);
    }
  }

  /**
   * Stores the ledger's time from an answer, unless the present estimate is later: the answer of a slow network or of a node
   * that is behind does not set the time back. An exact time, that of an answer open_expired, replaces each estimate: the
   * answer has shown that it is wrong. Without that, a machine whose clock is fast would be ahead of the ledger by more with
   * each day, and at last open nothing.
   */
  private noteLedgerMs(ms: unknown, exact = false): void {
    if (!/^\d{1,15}$/.test(String(ms))) return;
    if (exact || !this.ledgerClock.ms || Number(ms) > this.ledgerMs()) this.ledgerClock = { ms: Number(ms), at: now() };
  }

  /**
   * Stores the position of the ledger that an answer is as new as. Each request sends the greatest one, and a node answers only
   * from a ledger that is as new: callers never see time go back. The client has one deployment, so the position is never that
   * of another ledger.
   */
  private noteLedgerIndex(index: string): void {
    const named = /^(\d{1,15})-(\d{1,15})$/.exec(index); // a greater number is not exact here
    if (!named) return;
    const [epoch, entry] = [Number(named[1]), Number(named[2])];
    const [knownEpoch, knownEntry] = this.ledgerIndex;
    if (epoch > knownEpoch || (epoch === knownEpoch && entry > knownEntry)) this.ledgerIndex = [epoch, entry];
  }

  /**
   * Estimates the ledger's time. A wrong estimate costs one more request: an expired open opens nothing.
   * @internal
   */
  ledgerMs(): number {
    const { ms, at } = this.ledgerClock;
    const { mono, boot } = now();
    return Math.trunc(ms + Math.max(mono - at.mono, boot - at.boot - COARSE_MS));
  }

  /**
   * Sends an abandon until it is answered, while the program and this client live; the attempt would otherwise end in doubt
   * with its session, which is renewed meanwhile. It waits for the first try alone, and so does the end of the program.
   * @internal
   */
  async abandonInBackground(nonce: Nonce): Promise<void> {
    nonce.abandoning = true;
    if (await nonce.call.abandon(nonce)) return;
    this.keepAbandon({ until: performance.now() + ABANDON_TIMEOUT_MS, nonce });
    if (!this.abandonLoopRuns) void this.abandonLoop();
  }

  /** Keeps an abandon that was not accepted yet, instead of the oldest one if there are too many: a renewal lists its attempt. */
  private keepAbandon(one: { until: number; nonce: Nonce }): void {
    this.abandons.push(one);
    const dropped = this.abandons.length > MAX_ABANDONS ? this.abandons.shift() : undefined;
    if (dropped) dropped.nonce.abandoning = false;
  }

  private async abandonLoop(): Promise<void> {
    this.abandonLoopRuns = true;
    for (let pause = 100; ;) {
      await sleep(pause, undefined, { ref: false });
      const one = this.closed ? undefined : this.abandons.shift();
      if (!one) break;
      const accepted = await one.nonce.call.abandon(one.nonce);
      pause = accepted ? 0 : Math.min(2 * pause + 100, 2000);
      one.nonce.abandoning = !accepted && performance.now() < one.until;
      if (one.nonce.abandoning) this.keepAbandon(one);
    }
    for (const { nonce } of this.abandons.splice(0)) nonce.abandoning = false; // the client is closed: closing its sessions abandons them
    this.abandonLoopRuns = false;
  }

  /**
   * Sends an abandon when its not_after has passed, or when the program or this client ends, for a copy of its open that the
   * network may have made. At most one abandon per key and second is sent, so that the callers of one hot key do not load the
   * ledger. An abandon after not_after uses up none of the nonces that the ledger remembers for a key.
   * @internal
   */
  leave(nonce: Nonce): void {
    ending.add(this);
    this.left.push(nonce);
    if (this.left.length > MAX_LEFT) this.left.shift();
    if (!this.closed) this.leftTimer ??= setTimeout(() => void this.leftRound(), LEFT_INTERVAL_MS).unref();
  }

  private get hasLastRequests(): boolean { return this.left.length + this.sessions.size + this.spool.unspooledNames().length > 0; }

  /** @internal Removes a session that is being closed. */
  forgetClosed(session: Session): void {
    this.sessions.delete(session);
    if (this.closed && !this.hasLastRequests) ending.delete(this);
  }

  private async leftRound(): Promise<void> {
    await this.sendLeft(this.left.filter((e) => e.validity.remaining() <= -LEFT_GRACE_MS), 5000);
    this.leftTimer = this.left.length > 0 && !this.closed ? setTimeout(() => void this.leftRound(), LEFT_INTERVAL_MS).unref() : undefined;
    if (!this.hasLastRequests) ending.delete(this);
  }

  /** Sends one abandon per key. It stops when no server answers; what was not answered stays for the next round. */
  private async sendLeft(due: Nonce[], timeoutMs: number): Promise<void> {
    const until = performance.now() + timeoutMs;
    const sent = new Set<string>();
    for (const entry of due) {
      if (sent.has(entry.call.key)) continue;
      sent.add(entry.call.key);
      const answered = await entry.call.abandon(entry, Math.max(10, until - performance.now()));
      if (answered || entry.validity.remaining() < -ABANDON_TIMEOUT_MS) this.left = this.left.filter((e) => e !== entry);
      if (!answered) return;
    }
  }

  /**
   * Sends the reports that are not on disk, and what is left, one abandon per key, and closes the sessions: the client or the
   * program ends.
   * @internal
   */
  async sendLastRequests(): Promise<void> {
    const due = this.left;
    this.left = [];
    clearTimeout(this.leftTimer);
    this.leftTimer = undefined;
    ending.delete(this);
    await this.sendSpooled(this.spool.unspooledNames()).catch(() => undefined);
    await this.sendLeft(due, LAST_ABANDONS_TIMEOUT_MS);
    await Promise.all([...this.sessions].map((session) => session.close()));
    if (this.sessions.size > 0) ending.add(this); // an effect may begin, or runs: its end lets the program end once more
  }

  /** @internal Doubles the margin of not_after after an answer open_expired, for a ledger or a network that takes longer. */
  adaptOpenMargin(expired: boolean): void {
    this.openMarginMs = expired ? Math.min(2 * this.openMarginMs, MAX_OPEN_MARGIN_MS) : MIN_OPEN_MARGIN_MS;
  }

  /** @internal */
  async receiptBody(flightId: string, receipt: Receipt): Promise<Uint8Array> {
    const { data } = await this.askRaw("GET", `/v1/flights/${flightId}/receipt`, undefined, {});
    if (!receipt.truncated && digestOf(data) !== receipt.digest) throw unreadable("it is not the whole receipt");
    return new Uint8Array(data);
  }

  /**
   * Reports the outcome of an attempt. After the first failed try the report is on disk until it is accepted.
   * @internal
   */
  async recordReport(nonce: Nonce, f: Flight, report: Json, value: unknown): Promise<Json> {
    nonce.report = report;
    const route = `/v1/flights/${f.flightId}/report`;
    const started = performance.now();
    let failure: unknown;
    try {
      const { json } = await this.ask("POST", route, report,
        { timeoutMs: Math.min(FIRST_REPORT_TIMEOUT_MS, this.reportWaitMs), tries: 1 });
      nonce.endReport(true);
      return json;
    } catch (e) {
      if (reportResultOf(e) === "accepted") {
        nonce.endReport(true);
        throw e;
      }
      failure = e;
    }
    // Once the report is on disk, the next client sends it if this process dies.
    const name = nonce.file = await this.spool.store(this.deployment, f.key, JSON.stringify(report));
    if (reportResultOf(failure) === "later") {
      const left = Math.max(10, this.reportWaitMs - (performance.now() - started));
      try {
        const timeoutMs = Math.min(Math.max(1000, left), REPORT_TRY_TIMEOUT_MS);
        const { json } = await this.ask("POST", route, report, { timeoutMs, retryTimeoutMs: left });
        await this.spool.remove(name);
        nonce.endReport(true);
        return json;
      } catch (e) {
        if (reportResultOf(e) === "accepted") {
          await this.spool.remove(name);
          nonce.endReport(true);
          throw e;
        }
        failure = e;
      }
    }
    let where: string;
    if (reportResultOf(failure) === "rejected") {
      where = `a person must inspect its report: ${await this.spool.quarantine(name, failure)}`;
    } else {
      where = this.spool.describePlace(name);
      this.spool.release(name);
      this.log(`the outcome of ${f.key} is not recorded yet; ${where}: ${textOf(failure)}`);
      this.scheduleSpoolRound(2000);
      ending.add(this);
    }
    throw new Unrecorded(`${f.key} ended as ${report["outcome"]}, which is not recorded yet; ${where}: ${textOf(failure)}`,
      f.key, report["outcome"], value, failure);
  }

  /** Schedules the next round through the spool. Its timer does not keep the program alive. */
  private scheduleSpoolRound(ms: number): void {
    clearTimeout(this.spoolTimer);
    if (!this.closed) this.spoolTimer = setTimeout(() => void this.spoolRound().catch(() => undefined), ms).unref();
  }

  private async spoolRound(): Promise<void> {
    const reachable = await this.sendSpooled(await this.spool.names());
    if ((await this.spool.names()).length > 0) this.scheduleSpoolRound(reachable ? 2000 : 8000);
  }

  /**
   * Sends spooled reports. Returns false if no server accepts reports now. A report that a server cannot accept now does not
   * delay the others.
   */
  private async sendSpooled(names: string[]): Promise<boolean> {
    let reachable = true;
    for (const name of names) {
      const entry = await this.spool.claim(name);
      if (!entry) continue;
      if (entry.deployment !== this.deployment) { // a client of that deployment sends it
        this.spool.release(name);
        continue;
      }
      // The bytes are sent unchanged: decoding and encoding them again could change the receipt.
      const report = Buffer.from(entry.report, "base64").toString();
      try {
        await this.ask("POST", `/v1/flights/${flightIdForKey(entry.key)}/report`, report, { timeoutMs: 5000, tries: 1 });
      } catch (e) {
        const result = reportResultOf(e);
        if (result === "rejected") {
          await this.spool.quarantine(name, e);
          continue;
        }
        if (result !== "accepted") {
          this.spool.release(name);
          if (e instanceof Unavailable && e.code === "unreachable") return false;
          reachable = false;
          continue;
        }
      }
      await this.spool.remove(name);
    }
    return reachable;
  }
}

/**
 * Returns the fate of a report: accepted, as the outcome or as evidence; later; or rejected for good. The report route rejects
 * with few codes, and names the flight.
 * @internal
 */
export function reportResultOf(e: unknown): "accepted" | "later" | "rejected" {
  if (!(e instanceof FlightdError) || !e.flightId) return "later";
  if (e instanceof Fenced) return "accepted";
  return REPORT_REJECTED_CODES.includes(e.code) ? "rejected" : "later";
}

/** Returns the flight id of a key. It is a hash of the key, so it is the same everywhere. */
function flightIdForKey(key: string): string {
  const letters = "abcdefghijklmnopqrstuvwxyz234567";
  let id = "fl_";
  let bits = 0;
  let held = 0;
  for (const byte of createHash("sha256").update(key).digest().subarray(0, 16)) {
    held = ((held << 8) | byte) & 0xffff;
    for (bits += 8; bits >= 5; bits -= 5) id += letters[(held >> (bits - 5)) & 31];
  }
  return bits > 0 ? id + letters[(held << (5 - bits)) & 31] : id;
}

/**
 * Returns the servers in the order in which a request tries them: the one to probe (-1: none), the one that is the leader,
 * the others whose last answer named their node, and the rest; in each group in turn from the preferred one on. nodes has
 * the node of each server, "" if it is not known.
 * @internal
 */
export function tryOrder(preferred: number, nodes: readonly string[], leader: string, probe: number): number[] {
  const rank = (server: number): number => {
    if (server === probe) return 0;
    return !nodes[server] ? 3 : nodes[server] === leader ? 1 : 2;
  };
  return nodes.map((_, i) => (preferred + i) % nodes.length).sort((a, b) => rank(a) - rank(b));
}

/**
 * Remembers which node answers at which server's address, so that requests go to the leader of the ledger.
 *
 * Any node takes every request, but passes most of them on to the leader. If no known server is the leader, one request a
 * second tries another server first: a probe.
 * @internal
 */
export class Picker {
  private readonly nodes: string[]; // by server: the node that its last answer named; "" after a failure
  private leader = ""; // named by the newest answer; "": none has named it
  private preferred = 0; // the server to try first while the leader is not known
  private lastProbe = 0;
  private probeAfter = 0;
  private probePause = MIN_PROBE_PAUSE_MS;

  constructor(servers: number) { this.nodes = Array<string>(servers).fill(""); }

  /**
   * Returns the order in which a request tries the servers, and the first of them if it is a probe, else -1. A probe counts
   * as in flight until answered or failed is called for its server.
   */
  pick(mayProbe: boolean): { order: number[]; probe: number } {
    let probe = -1;
    if (mayProbe && this.leader && !this.nodes.includes(this.leader) && performance.now() >= this.probeAfter) {
      const turn = this.nodes.map((_, i) => (this.lastProbe + 1 + i) % this.nodes.length);
      probe = turn.find((server) => !this.nodes[server] && server !== this.preferred) ?? -1;
    }
    if (probe >= 0) {
      this.lastProbe = probe;
      this.probeAfter = performance.now() + MAX_PROBE_PAUSE_MS;
    }
    return { order: tryOrder(this.preferred, this.nodes, this.leader, probe), probe };
  }

  /** Notes that flightd has answered at that server. */
  answered(server: number, probe: number, node: string, leader: string): void {
    this.nodes[server] = node;
    this.leader = leader || this.leader;
    if (node && node === leader) this.preferred = server;
    if (server === probe) {
      this.probePause = MIN_PROBE_PAUSE_MS;
      this.probeAfter = performance.now() + MIN_PROBE_PAUSE_MS;
    }
  }

  /** Notes that a try at that server had no answer of a node that can serve requests. */
  failed(server: number, probe: number): void {
    this.nodes[server] = "";
    if (this.preferred === server) this.preferred = (server + 1) % this.nodes.length;
    const after = performance.now() + this.probePause; // the failed server may be the leader: it is not probed at once
    if (server === probe) {
      this.probePause = Math.min(2 * this.probePause, MAX_PROBE_PAUSE_MS);
      this.probeAfter = after;
    } else {
      this.probeAfter = Math.max(this.probeAfter, after);
    }
  }
}

function addresses(listed: string): URL[] {
  const servers = listed.split(/[,\s]+/).filter(Boolean).map((part) => {
    let url: URL | undefined;
    try { url = new URL(part.includes("://") ? part : "http://" + part); } catch { /* url stays undefined */ }
    if (!url || !["http:", "https:"].includes(url.protocol) || url.search || url.hash) {
      const shown = part.replace(/[^/]*@/, ""); // without a password
      throw new TypeError(`invalid server address ${JSON.stringify(shown)}: use the form ${DEFAULT_SERVER}`);
    }
    return url;
  });
  if (servers.length === 0) throw new TypeError("no server address given");
  return servers;
}

/** Returns the Authorization header for the user in an address. */
function basicOf(url: URL): string | undefined {
  if (!url.username && !url.password) return undefined;
  const user = `${decodeURIComponent(url.username)}:${decodeURIComponent(url.password)}`;
  return "Basic " + Buffer.from(user).toString("base64");
}

// --- connections ------------------------------------------------------------------------------------------------------

interface Agents { http: http.Agent; https?: https.Agent }

/** Returns the agents that hold idle connections. Certificates are those of the options, or else of the environment. */
function agents(secured: boolean, options: ClientOptions): Agents {
  const all: Agents = { http: new http.Agent({ keepAlive: true, timeout: IDLE_TIMEOUT_MS }) };
  if (!secured) return all;
  const caFile = options.caFile || process.env["FLIGHTD_CA_FILE"];
  const caName = options.caFile ? "caFile" : "FLIGHTD_CA_FILE";
  let [certFile, keyFile] = [options.clientCert, options.clientKey];
  if (!certFile && !keyFile) [certFile, keyFile] = [process.env["FLIGHTD_CLIENT_CERT"], process.env["FLIGHTD_CLIENT_KEY"]];
  if (Boolean(certFile) !== Boolean(keyFile)) throw new TypeError("a client certificate needs two files: the certificate and its key");
  // Verification stays on, also if NODE_TLS_REJECT_UNAUTHORIZED is 0.
  const secure: https.AgentOptions = { keepAlive: true, timeout: IDLE_TIMEOUT_MS, minVersion: "TLSv1.2", rejectUnauthorized: true };
  if (caFile) {
    const pem = readSetting(caFile, caName).toString("latin1").match(/-----BEGIN CERTIFICATE-----[^]*?-----END CERTIFICATE-----/g);
    if (!pem) throw new TypeError(`${caName}: ${caFile} has no certificate in PEM`);
    pem.forEach((one) => new X509Certificate(one)); // rejects a malformed one now
    secure.ca = pem;
  }
  if (certFile && keyFile) {
    secure.cert = readSetting(certFile, options.clientCert ? "clientCert" : "FLIGHTD_CLIENT_CERT");
    secure.key = readSetting(keyFile, options.clientKey ? "clientKey" : "FLIGHTD_CLIENT_KEY");
    createSecureContext({ cert: secure.cert, key: secure.key }); // rejects them now if they do not belong together
  }
  all.https = new https.Agent(secure);
  return all;
}

/** Reads the file that a setting names. */
function readSetting(file: string, name: string): Buffer {
  try { return readFileSync(file); } catch (e) {
    throw new TypeError(`${name} cannot be read: ${file}: ${textOf(e)}`, { cause: e });
  }
}

/** The client rejected the server's certificate, or the server the client's. Nothing was carried out. */
class Rejected extends Error {}

// The error codes of a rejected certificate: of its authority, which FLIGHTD_CA_FILE may name, and of the certificate itself.
const OF_THE_AUTHORITY = ["DEPTH_ZERO_SELF_SIGNED_CERT", "SELF_SIGNED_CERT_IN_CHAIN", "UNABLE_TO_GET_ISSUER_CERT",
  "UNABLE_TO_GET_ISSUER_CERT_LOCALLY", "UNABLE_TO_VERIFY_LEAF_SIGNATURE", "CERT_SIGNATURE_FAILURE", "CERT_UNTRUSTED", "INVALID_CA"];
const OF_THE_CERTIFICATE = ["ERR_TLS_CERT_ALTNAME_INVALID", "CERT_HAS_EXPIRED", "CERT_NOT_YET_VALID", "CERT_REJECTED", "INVALID_PURPOSE"];

const CERTIFICATE_ALERT = /alert.*(certificate|handshake.failure|unknown.ca|access.denied)/i;

/**
 * Replaces the error of a certificate that was rejected, by the client or by the server, by one that says what to do.
 *
 * In TLS 1.3 the client's handshake ends before the server has read the client's certificate. The server's alert then
 * arrives after the request was written, and the server has discarded that request. On a reused connection an alert proves
 * nothing about the request.
 */
function explainTLS(e: Error, url: string, reused: boolean): Error {
  const code = (e as { code?: string }).code ?? "";
  if (!reused && /SSL|EPROTO/.test(code) && CERTIFICATE_ALERT.test(`${code} ${e.message}`)) {
    const alert = /\w+ alert [a-z ]+/i.exec(e.message)?.[0] ?? e.message.trim(); // without OpenSSL's file and line
    return new Rejected(`${new URL(url).origin} rejected the TLS connection: ${alert} (if it demands a client certificate, set ` +
      "FLIGHTD_CLIENT_CERT and FLIGHTD_CLIENT_KEY to the PEM files of one that it accepts)", { cause: e });
  }
  const ofAuthority = OF_THE_AUTHORITY.includes(code);
  if (!ofAuthority && !OF_THE_CERTIFICATE.includes(code)) return e;
  const text = `the certificate of ${new URL(url).origin} is not trusted: ${e.message}`;
  return new Rejected(ofAuthority ? `${text} (set FLIGHTD_CA_FILE to the PEM file of the authority that issued it)` : text, { cause: e });
}

interface HttpAnswer { status: number; headers: http.IncomingHttpHeaders; data: Buffer }

/** Sends one request and reads the whole answer. A redirect is an answer, and is not followed. */
function exchange(agents: Agents, url: string, method: string, headers: Record<string, string>, body: string | undefined,
                  signal: AbortSignal): Promise<HttpAnswer> {
  return new Promise((resolve, reject) => {
    const secured = url.startsWith("https:");
    const request = (secured ? https : http).request(url, { method, headers, agent: secured ? agents.https : agents.http });
    const abort = (): void => {
      reject(signal.reason);
      request.destroy();
    };
    let answered = false;
    request.on("socket", (socket) => {
      if (!socket.connecting) return;
      const over = setTimeout(() => request.destroy(new Error("the connection timed out")), CONNECT_TIMEOUT_MS);
      for (const event of ["connect", "close"]) socket.once(event, () => clearTimeout(over));
    });
    request.on("close", () => signal.removeEventListener("abort", abort));
    request.on("error", (e) => { if (!answered) reject(explainTLS(e, url, request.reusedSocket)); });
    request.on("response", (answer) => {
      answered = true; // the server may reject a request before it has read all of it
      const pieces: Buffer[] = [];
      answer.on("data", (piece: Buffer) => pieces.push(piece));
      answer.on("error", reject);
      answer.on("close", () => {
        if (!answer.complete) reject(new Error("the connection was lost in the middle of the answer"));
        else resolve({ status: answer.statusCode ?? 0, headers: answer.headers, data: Buffer.concat(pieces) });
      });
    });
    signal.addEventListener("abort", abort, { once: true });
    if (signal.aborted) abort();
    else request.end(body);
  });
}

// --- the token --------------------------------------------------------------------------------------------------------

/** The namespace at the end of a token; "" for a token of all namespaces. */
function tokenNamespace(token: string): string {
  return /^fltd_[^.]*\.(.*)/.exec(token)?.[1] ?? "";
}

/** Returns the function that returns the token for the next request, or "". */
function tokenSource(given = "", givenFile = "", log: (message: string) => void): () => string {
  let [token, file, name, fileName] = [given, givenFile, "token", "tokenFile"];
  if (!token && !file) {
    [token, name] = [(process.env["FLIGHTD_TOKEN"] ?? "").replace(/[\r\n]+$/, ""), "FLIGHTD_TOKEN"];
    [file, fileName] = [process.env["FLIGHTD_TOKEN_FILE"] ?? "", "FLIGHTD_TOKEN_FILE"];
  }
  if (!token && file) return tokenFromFile(file, fileName, log);
  checkToken(token, name);
  return () => token;
}

function checkToken(token: string, name: string): void {
  if (/^bearer /i.test(token)) throw new TypeError(`${name} begins with "Bearer ": leave that word out`);
  if (/[^!-~]/.test(token)) throw new TypeError(`${name} has a space, a control character or one outside ASCII (it is not shown here)`);
}

/** Rejects a server to which a token would travel in clear text, unless the environment allows it. */
function checkPlainHttp(servers: URL[]): void {
  if (/^(true|t|1)$/i.test(process.env["FLIGHTD_ALLOW_PLAIN_HTTP"] ?? "")) return;
  const open = servers.find((url) => url.protocol === "http:" && !/^(localhost|127(\.\d+){3}|\[::1\])$/.test(url.hostname));
  if (!open) return;
  throw new TypeError(`the token would travel in clear text to http://${open.host}; write https://, or set ` +
    "FLIGHTD_ALLOW_PLAIN_HTTP=true if you trust the whole network on the way");
}

/**
 * Returns the function that returns the token in a file that may be replaced at any time. While the file cannot be read, or
 * has no valid token, the last one stays.
 */
function tokenFromFile(file: string, name: string, log: (message: string) => void): () => string {
  const read = (): string => {
    const token = readSetting(file, name).toString("latin1").replace(/[\r\n]+$/, "");
    if (!token) throw new TypeError(`the token file ${file} is empty`);
    checkToken(token, `the token file ${file}`);
    return token;
  };
  let token = read();
  let readAt = performance.now();
  let trouble = "";
  return () => {
    if (performance.now() - readAt >= TOKEN_FILE_INTERVAL_MS) {
      readAt = performance.now();
      try {
        token = read();
        trouble = "";
      } catch (e) {
        if (textOf(e) !== trouble) log(`the token file cannot be used; the previous token stays in use: ${textOf(e)}`);
        trouble = textOf(e);
      }
    }
    return token;
  };
}

// --- the spool of reports ---------------------------------------------------------------------------------------------

function defaultSpool(): string {
  const state = process.env["XDG_STATE_HOME"] ?? "";
  return path.join(path.isAbsolute(state) ? state : path.join(os.homedir(), ".local", "state"), "flightd", "reports");
}

interface SpooledReport { deployment: string; key: string; report: string }

/**
 * Stores reports that no server has accepted: one file each, readable by its owner alone, fsynced. A report is the only
 * record of an effect that happened, so it must survive the process.
 *
 * A file has the magic, the CRC-32C of the rest in four bytes, and JSON: deployment, key, at, and the body of the request
 * in base64. All flightd clients share folder and format. If two clients send a report, it is recorded once.
 */
class Spool {
  readonly folder: string;
  private readonly log: (message: string) => void;
  private readonly claimed = new Set<string>();
  private readonly reportedUnreadable = new Set<string>(); // files whose read error was logged
  private readonly unspooled = new Map<string, SpooledReport>(); // reports that could not be written to disk

  constructor(folder: string, log: (message: string) => void) {
    this.folder = folder && path.resolve(folder); // stays the same if the process changes its directory
    this.log = log;
    void this.removeOldTemps().catch(() => undefined);
  }

  /** Removes half-written files of processes that were killed. */
  private async removeOldTemps(): Promise<void> {
    for (const name of this.folder ? await fs.readdir(this.folder) : []) {
      const file = path.join(this.folder, name);
      const written = name.startsWith("new-") && await fs.lstat(file).catch(() => undefined); // or removed by another process
      if (written && Date.now() - written.mtimeMs > MAX_TEMP_AGE_MS) await fs.rm(file).catch(() => undefined);
    }
  }

  async names(): Promise<string[]> { return [...this.unspooledNames(), ...await this.onDisk()]; }

  unspooledNames(): string[] { return [...this.unspooled.keys()]; }

  async onDisk(): Promise<string[]> {
    try {
      return this.folder ? (await fs.readdir(this.folder)).filter((n) => n.endsWith(".report")).sort() : [];
    } catch {
      return [];
    }
  }

  /** Writes a report to disk; after that it survives the process. If the disk fails, the report lives as long as the process. */
  async store(deployment: string, key: string, report: string): Promise<string> {
    const entry = { deployment, key, at: new Date().toISOString(), report: Buffer.from(report).toString("base64") };
    const data = Buffer.from(JSON.stringify(entry));
    const head = Buffer.from("FDC1\0\0\0\0");
    head.writeUInt32BE(crc32c(data), 4);
    const name = createHash("sha256").update(`${deployment} ${key} ${report}`).digest("hex").slice(0, 32) + ".report";
    this.claimed.add(name);
    if (!this.folder) {
      this.unspooled.set(name, entry);
      return name;
    }
    try {
      await fs.mkdir(this.folder, { recursive: true, mode: 0o700 });
      const temp = path.join(this.folder, `new-${randomBytes(8).toString("hex")}`);
      try {
        const file = await fs.open(temp, "wx", 0o600);
        try {
          await file.writeFile(Buffer.concat([head, data]));
          await file.sync();
        } finally {
          await file.close();
        }
        await fs.rename(temp, path.join(this.folder, name)); // atomic: after a crash the file exists completely or not at all
      } catch (e) {
        await fs.rm(temp, { force: true }).catch(() => undefined);
        throw e;
      }
      const folder = await fs.open(this.folder, "r");
      try {
        await folder.sync(); // makes the file's name durable
      } finally {
        await folder.close();
      }
    } catch (e) {
      this.unspooled.set(name, entry);
      this.log(`store the report of ${key} on disk: ${textOf(e)}`);
    }
    return name;
  }

  /**
   * Reads a report, unless it is claimed in this process. A damaged file is quarantined; a file that cannot be read now, or
   * not completely by this version, stays under its name.
   */
  async claim(name: string): Promise<SpooledReport | undefined> {
    if (this.claimed.has(name)) return undefined;
    this.claimed.add(name);
    const kept = this.unspooled.get(name);
    if (kept) return kept;
    let data: Buffer;
    try {
      data = await fs.readFile(path.join(this.folder, name));
    } catch (e) {
      if ((e as { code?: string }).code === "ENOENT") this.release(name); // another process has sent it
      else this.skip(name, textOf(e));
      return undefined;
    }
    const later = /^FDC[2-9]/.test(data.subarray(0, 4).toString());
    if (!later && (data.length < 8 || data.subarray(0, 4).toString() !== "FDC1" || data.readUInt32BE(4) !== crc32c(data.subarray(8)))) {
      await this.quarantineFile(name, ".damaged", new Error("checksum mismatch"));
      return undefined;
    }
    const entry = later ? undefined : readSpooled(data.subarray(8));
    if (!entry) this.skip(name, "a later version of flightd has written it, and delivers it");
    return entry;
  }

  /** Leaves a file in its place, and logs that once. */
  private skip(name: string, why: string): void {
    if (!this.reportedUnreadable.has(name)) {
      this.reportedUnreadable.add(name);
      this.log(`a spooled report cannot be read now, and stays in its place: ${path.join(this.folder, name)}: ${why}`);
    }
    this.release(name);
  }

  release(name: string): void { this.claimed.delete(name); }

  has(name: string): boolean { return this.unspooled.has(name) || (name !== "" && existsSync(path.join(this.folder, name))); }

  /** Removes an accepted report. If the process dies first, the report is sent again, which is harmless. */
  async remove(name: string): Promise<void> {
    if (!this.unspooled.delete(name)) {
      await fs.rm(path.join(this.folder, name), { force: true })
        .catch((e) => this.log(`remove an accepted report: ${name}: ${textOf(e)}`));
    }
    this.release(name);
  }

  /** Says where a report waits. */
  describePlace(name: string): string {
    return this.unspooled.has(name) ? "its report is not on disk, and is lost with this process"
      : `its report waits in ${this.folder} and is sent later`;
  }

  /** Stores a report that no server will ever accept, for a person to inspect. Returns its place. */
  async quarantine(name: string, why: unknown): Promise<string> {
    const lost = this.unspooled.get(name);
    if (!lost) return this.quarantineFile(name, ".rejected", why);
    this.unspooled.delete(name);
    this.log(`a report was rejected, and is not on disk: ${lost.key}: ${textOf(why)}`);
    this.release(name);
    return "it was rejected, and is not on disk";
  }

  private async quarantineFile(name: string, suffix: string, why: unknown): Promise<string> {
    const file = path.join(this.folder, name);
    await fs.rename(file, file + suffix).catch(() => undefined);
    this.log(`a report is quarantined; inspect it: ${file + suffix}: ${textOf(why)}`);
    this.release(name);
    return file + suffix;
  }
}

/** Reads an intact report. It returns undefined for one of another form, of which a part could be lost. */
function readSpooled(data: Buffer): SpooledReport | undefined {
  try {
    const entry = JSON.parse(data.toString());
    const { deployment, key, at, report, ...others } = entry;
    if (Object.keys(others).length > 0 || [deployment, key, at ?? "", report].some((field) => typeof field !== "string")) return undefined;
    JSON.parse(Buffer.from(report, "base64").toString());
    return /^[^/]+\/[^/]+\/./.test(key) ? { deployment, key, report } : undefined;
  } catch {
    return undefined;
  }
}

const CRC = Array.from({ length: 256 }, (_, n) => {
  for (let i = 0; i < 8; i++) n = (n >>> 1) ^ (n & 1 ? 0x82f63b78 : 0);
  return n;
});

/** Returns the CRC-32C (Castagnoli) of the data. */
function crc32c(data: Uint8Array): number {
  let crc = ~0;
  for (const byte of data) crc = (CRC[(crc ^ byte) & 0xff] ?? 0) ^ (crc >>> 8);
  return ~crc >>> 0;
}

// --- workers ----------------------------------------------------------------------------------------------------------

interface DeclaredPolicy {
  readonly policy: Json;
  status?: string; // of the server's answer
  differs?: PolicyDiffers;
}

/** The policy of an action's jobs. That of a job's submission counts, else that of the action's document. */
export interface JobPolicy {
  /** the policy after an unknown outcome; default hold */
  recovery?: "hold" | "resend" | "verify";
  /** for resend: the time for which the provider remembers the idempotency key: milliseconds, or "24h" */
  window?: number | string;
  /** for verify: the time after which the provider surely shows an effect */
  settle?: number | string;
  /** that an attempt may take */
  timeout?: number | string;
  /** how often an attempt is made, the first included, while nothing happened */
  retry?: number;
  /** how long the receipt is stored: "30d", "12h" */
  retention?: string;
}

/** The options of a submission. Without a policy, that of the action's document counts, else that of this process's worker, else hold. */
export interface JobOptions extends JobPolicy {
  /** the earliest time of the first attempt */
  runAt?: Date;
  /** the same, from now: milliseconds, or "10m" */
  delay?: number | string;
  /** jobs of a lane run one at a time, or as many at once as laneLimit, in the order of submission */
  lane?: string;
  laneLimit?: number;
  /** -1000 to 1000; jobs of a greater one are handed out first */
  priority?: number;
}

/** The answer to a submission. */
export interface Submitted {
  /** duplicate: the key had a flight with the same input before */
  readonly status: "queued" | "duplicate";
  readonly key: string;
  /** for people */
  readonly warning: string;
}

export interface WorkerOptions {
  /** how many jobs run at once; default 16 */
  concurrency?: number;
  /** time to wait for running jobs after the end of run; default 30 s. Then their signals end */
  drainMs?: number;
}

interface JobHandler {
  lookUp?: (f: Flight<any>) => Promise<Found> | Found;
  act: (input: any, job: Flight<any>) => unknown;
}

/** Claims jobs and performs them, under the session of its client. `Client.worker` makes it. */
export class Worker {
  private readonly client: Client;
  private readonly concurrency: number;
  private readonly drainMs: number;
  private readonly handlers = new Map<string, JobHandler>();
  private readonly running = new Map<Call<any, any>, Promise<void>>();
  private ending = new AbortController();
  private drained = false; // no effect starts any more
  private freed = (): void => undefined; // called when a job has ended, and at the stop
  private claim: Claim | undefined; // the newest

  /** @internal */
  constructor(client: Client, options: WorkerOptions) {
    this.client = client;
    this.concurrency = options.concurrency ?? 16;
    this.drainMs = Math.min(boundOf("drainMs", options.drainMs ?? 30_000), MAX_TIMER_MS);
    if (!(this.concurrency >= 1)) throw new RangeError("concurrency must be at least 1");
  }

  /**
   * Declares the handler of an action's jobs. What it returns is the receipt. The whole handler is the effect: what it throws
   * counts as if it were thrown in effect(). lookUp is that of verify.
   *
   * The policy becomes that of the action's document, if it has none and the token has the verb define. A document that is there
   * counts: if its recovery, window, settle or lane is another one, run throws PolicyDiffers.
   */
  on<I = any, T = unknown>(name: string, policy: JobPolicy & { lookUp?: (f: Flight<I>) => Promise<Found> | Found },
                           act: (input: I, job: Flight<I>) => Promise<T> | T): this {
    const { lookUp, ...own } = policy;
    this.client.policies.set(name, { policy: policyOf(own) });
    this.handlers.set(name, { act, ...(lookUp ? { lookUp } : {}) });
    return this;
  }

  /**
   * Performs jobs until stop, SIGTERM or Ctrl-C. Then it claims nothing more, gives back what has not begun, and waits until the
   * running jobs have ended and reported. If the process dies, its jobs end with its session, by their policies. It throws the
   * error of the server that rejects the first claim, such as for a token without the verb work.
   */
  async run(): Promise<void> {
    if (this.handlers.size === 0) throw new TypeError("a worker needs a handler (worker.on)");
    if (this.client.closed) throw new Error("the client is closed");
    this.ending = new AbortController();
    this.drained = false;
    const { signal } = this.ending;
    signal.addEventListener("abort", () => this.freed());
    const stop = (): void => this.stop();
    process.once("SIGTERM", stop).once("SIGINT", stop);
    this.client.workers.add(this);
    try {
      let claimedBefore = false;
      let rejection: FlightdError | undefined;
      for (let pause = MIN_CLAIM_PAUSE_MS; !signal.aborted;) {
        const slots = Math.min(this.concurrency - this.running.size, MAX_SLOTS);
        if (slots <= 0) {
          await new Promise<void>((wake) => { this.freed = wake; }); // no job can have ended since slots was computed
          continue;
        }
        try {
          for (const name of this.handlers.keys()) {
            const differs = await this.client.declare(name);
            if (differs) throw differs;
          }
          const asked = performance.now();
          const jobs = (await this.askForJobs(slots, signal)).filter((job) => !this.leaveUnable(job));
          claimedBefore = true;
          for (const job of jobs) {
            this.running.set(job, this.perform(job, signal).finally(() => {
              this.running.delete(job);
              this.freed();
            }));
          }
          if (jobs.length > 0 || performance.now() - asked > CLAIM_WAIT_MS / 2) pause = MIN_CLAIM_PAUSE_MS;
          else { // a server without room for a wait has answered at once
            pause = Math.min(pause, 1000);
            await sleep(pause * (0.5 + Math.random()), undefined, { signal }).catch(() => undefined);
            pause *= 2;
          }
        } catch (e) {
          if (signal.aborted) break;
          if (e instanceof PolicyDiffers) throw e;
          if (!claimedBefore && e instanceof FlightdError && ["forbidden", "unauthenticated", "input_invalid"].includes(e.code)) { // a person must act
            rejection = e;
            break;
          }
          this.client.log(`no jobs could be claimed; trying again: ${textOf(e)}`);
          await sleep(pause * (0.5 + Math.random()), undefined, { signal }).catch(() => undefined);
          pause = Math.min(2 * pause, 10_000);
        }
      }
      let late: NodeJS.Timeout | undefined;
      await Promise.race([Promise.all(this.running.values()), new Promise((wake) => { late = setTimeout(wake, this.drainMs); })]);
      clearTimeout(late);
      this.drained = true;
      for (const job of this.running.keys()) job.nonce.attempt?.cancel();
      await this.claim?.session?.close(); // so that no late copy of a claim opens anything
      if (rejection) throw rejection;
    } finally {
      this.client.workers.delete(this);
      process.off("SIGTERM", stop).off("SIGINT", stop);
    }
  }

  /** Ends run. */
  stop(): void { this.ending.abort(new Error("the worker stops")); }

  /** Gives back a job that has to be looked up since the server took it, if this worker has no look-up for it. Returns whether it did. */
  private leaveUnable(job: Call<any, any>): boolean {
    const given = job.job?.json ?? {};
    if (given["decision"] !== "verify" || this.handlers.get(actionOf(given))?.lookUp) return false;
    this.client.log(`${job.key} is left to another worker: the outcome of its effect is unknown, and this worker has no lookUp`);
    void job.giveBack();
    return true;
  }

  /** Asks for jobs once. What a claim without an answer has opened is abandoned when a renewal lists it. */
  private async askForJobs(slots: number, signal: AbortSignal): Promise<Call<any, any>[]> {
    const { client } = this;
    await client.connect(signal);
    const claim = new Claim(client.ledgerMs(), CLAIM_WAIT_MS + client.openMarginMs);
    await client.chooseSession(claim, signal);
    const { session } = claim;
    if (!session) throw new Unavailable("no session could be made", "unreachable");
    this.claim = claim;
    const request = { session: session.id, nonce: claim.text, not_after: claim.notAfter, actions: [...this.handlers.keys()], slots,
      without_look_up: [...this.handlers].filter(([, h]) => !h.lookUp).map(([name]) => name),
      wait_ms: CLAIM_WAIT_MS, owner: client.owner() };
    try {
      const answer = await client.ask("POST", "/v1/flights:claim", request, { timeoutMs: CLAIM_WAIT_MS + TRY_TIMEOUT_MS, signal })
        .catch((e: unknown) => { // the worker stops: ask once more, without a wait, for what was handed out meanwhile
          if (!signal.aborted) throw e;
          return client.ask("POST", "/v1/flights:claim", { ...request, wait_ms: 0 }, { timeoutMs: CLOSE_TIMEOUT_MS, tries: 1 });
        });
      client.adaptOpenMargin(false);
      const jobs = (answer.json["jobs"] as Json[]).flatMap((given) => {
        try {
          return this.jobOf(claim, given, answer);
        } catch (e) { // the other jobs are performed
          client.log(`a job cannot be read by this client, and is given back: ${String(given?.["key"])}: ${textOf(e)}`);
          return [];
        }
      });
      session.endClaim(claim, jobs);
      return jobs;
    } catch (e) {
      session.endClaim(claim, [], true);
      if (e instanceof FlightdError) client.adaptOpenMargin(e.code === "open_expired");
      if (e instanceof LeaseLost) session.markLost();
      throw e;
    }
  }

  /** Returns a job of an answer; none for one that this process cannot perform, which is abandoned when a renewal lists it. */
  private jobOf(claim: Claim, given: Json, { json, sentAt }: Answer): Call<any, any>[] {
    if (given["flight_id"] !== flightIdForKey(String(given["key"])) || !["proceed", "verify"].includes(given["decision"])) {
      this.client.log(`a job is given back: this client cannot read it: ${given["key"]}`);
      return [];
    }
    const unread = unreadOf(given);
    if (unread && given["decision"] !== "proceed") {
      this.client.log(`a job is given back: this client cannot read it: ${given["key"]}: ${unread}`);
      return [];
    }
    if (unread) {
      const { decision, flight_id, key, session, fencing_token, action, attempt } = given;
      given = { decision, flight_id, key, session, fencing_token, attempt, ...(action === undefined ? {} : { action }) };
    }
    const lookUp = this.handlers.get(actionOf(given))?.lookUp;
    const job = this.client.newJob(claim, given["key"], given["policy"] ?? {}, lookUp ? { lookUp } : {});
    const since = (json["served_ms"] ?? 0) - (given["age_ms"] ?? 0); // the attempt's time-out runs from then
    job.nonce.madeAt = { mono: sentAt.mono + since, wall: sentAt.wall + since, boot: (sentAt.boot ?? now().boot) + since };
    job.nonce.number = given["attempt"] ?? 0;
    job.job = { json: given, sentAt };
    job.unread = unread;
    return [job];
  }

  private async perform(job: Call<any, any>, signal: AbortSignal): Promise<void> {
    const handler = this.handlers.get(actionOf(job.job?.json ?? {}));
    try {
      if (signal.aborted || !handler) await job.giveBack();
      else {
        await job.run((f) => {
          if (job.unread) throw new NotDone(`this client cannot read the job: ${job.unread}`); // its retries bound how often it is tried
          if (this.drained) throw new NotDone("the worker has ended"); // after a look-up that took long
          return f.effect(() => handler.act(f.input, f));
        });
      }
    } catch (e) {
      const logged = e instanceof InDoubt && job.lookUpError && e.cause === job.lookUpError.error;
      if (!(e instanceof Declined) && !logged) this.client.log(`${job.key} has not succeeded: ${textOf(e)}`);
    }
  }
}

/** Returns the action of a job: that of its key, unless the claim was answered with another one, as for a step of a saga. */
function actionOf(given: Json): string {
  return given["action"] ?? String(given["key"]).split("/")[1] ?? "";
}

/** Returns why this client cannot read the content of a job, or "". The client may be older than the server. */
function unreadOf(job: Json): string {
  const policy = job["policy"];
  if (typeof policy !== "object" || policy === null || ![undefined, "hold", "resend", "verify"].includes(policy.recovery)) return "policy: it has none, or one of another kind";
  const bad = (ms: unknown): boolean => ms !== undefined && !(Number.isSafeInteger(ms) && (ms as number) >= 0 && (ms as number) <= MAX_POLICY_MS);
  const name = bad(job["age_ms"]) ? "age_ms" : ["provider_window_ms", "settle_ms", "attempt_timeout_ms"].find((field) => bad(policy[field]));
  if (name !== undefined) return `${name}: ${textOf(policy[name] ?? job[name])} is not a duration of at most 366 days`;
  const { input_base64: body = "", input_content_type: type = "" } = job;
  if (typeof body !== "string" || body.length % 4 !== 0 || !/^[A-Za-z0-9+/]*={0,2}$/.test(body)) return "input_base64: it is not base64";
  return typeof type === "string" ? "" : "input_content_type: it is not a text";
}

/** Returns the fields of a submission for a policy. */
function policyOf(o: JobPolicy): Json {
  const policy: Json = {};
  if (o.recovery) policy["recovery"] = o.recovery;
  if (o.window !== undefined) policy["provider_window_ms"] = msOf(o.window, "window");
  if (o.settle !== undefined) policy["settle_ms"] = msOf(o.settle, "settle");
  if (o.timeout !== undefined) policy["attempt_timeout_ms"] = msOf(o.timeout, "timeout");
  if (o.retention !== undefined && o.retention !== "") policy["retention"] = o.retention;
  if (o.retry !== undefined) policy["retry"] = { attempts: wholeOf("retry", o.retry) };
  return policy;
}

/**
 * Returns a duration in milliseconds: a number, or a text such as "90s", "10m", "24h" or "7d". One that would be cut to 0, which often
 * means no limit, is rejected.
 */
function msOf(duration: number | string, what: string): number {
  const [, count, unit = ""] = /^(\d+(?:\.\d+)?)(ms|s|m|h|d)$/.exec(String(duration)) ?? [];
  const given = typeof duration === "number" ? duration : Number(count) * ({ ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 }[unit] ?? 0);
  const ms = Math.round(given);
  if (!Number.isFinite(ms) || ms < 0 || (ms === 0 && given > 0)) {
    throw new TypeError(`${what}: invalid duration ${typeof duration === "number" ? duration : JSON.stringify(duration)}: write whole milliseconds, or a text like "90s", "10m", "24h" or "7d"`);
  }
  return ms;
}

/** Returns a longest time to wait. Infinity sets no bound, and a time below 0 has passed. */
function boundOf(what: string, ms: number): number {
  if (typeof ms !== "number" || Number.isNaN(ms)) throw new TypeError(`${what}: ${textOf(ms)} is not a number`);
  return ms;
}

function wholeOf(what: string, value: number): number {
  if (!Number.isSafeInteger(value)) throw new TypeError(`${what}: ${String(value)} is not a whole number`);
  return value;
}

/** Returns an action, an id or a lane, or throws a TypeError if it is none. */
function nameOf(what: string, value: unknown): string {
  if (typeof value !== "string" || value === "" || HALF.test(value)) throw new TypeError(`${what}: ${textOf(value)} is not a text of at least one character`);
  return value;
}

// --- the default client -----------------------------------------------------------------------------------------------

let defaultClient: Client | undefined;

/** Calls `Client.once` of a client that is configured by the environment and created at the first call. */
export function once<T, I = unknown>(name: string, id: string, input: I, act: (f: Flight<I>) => Promise<T> | T,
                                     options: OnceOptions<I> = {}): Promise<Result<T>> {
  defaultClient ??= new Client();
  return defaultClient.once(name, id, input, act, options);
}
