/**
 * flightd for TypeScript: a side effect runs once per key, and every duplicate gets its receipt.
 *
 * One file without dependencies (Node 20.3 or later); copy it into your project. Its syntax is erasable: whatever strips
 * types can run it.
 *
 *     import { once } from "./flightd.js";
 *
 *     const charge = await once("charge", order.id, { cents: 4200 }, (f) =>
 *       f.effect(() => provider.charge(order, { idempotencyKey: f.idempotencyKey })));
 *     console.log(charge.value);      // the same for the caller who ran it and for every duplicate
 *
 * The callback runs only where the effect must happen now. What an error means is told by where it was thrown:
 *
 *     before effect()                   nothing was sent: `not_done`, the key is free again
 *     Refused, anywhere                 the provider's no: it is the receipt, and every repeat gets Declined
 *     NotDone, anywhere                 it surely did not happen this time: the key is free again
 *     any other one, once in effect()   it may have happened: `unknown`, and the recovery policy decides
 *
 * NotDone thrown in one effect() says nothing of another one of the callback, and what a flight inside the callback was
 * left with says nothing of the one around it: then it is any other one, too. After an effect() of unknown outcome the
 * callback starts no further one, except under `resend`.
 *
 * The policy is `hold` unless you name another: then nobody acts again before a person has said what happened (InDoubt).
 * `resend` suits providers that honour `f.idempotencyKey`; `verify` those that can be asked, by `lookUp`.
 *
 * Each flight has a session of its own, which is renewed while the callback runs and ends with the report; a callback
 * that blocks the event loop for longer than the session's life loses it. The right to start is counted from the moment
 * a request was *sent*: when it is over, `effect()` throws LeaseLost and nothing starts. An open whose caller gives up is
 * abandoned, so that the ledger knows that nothing was sent. A report that no server takes is fsynced to
 * `$XDG_STATE_HOME/flightd/reports`, in the format of all flightd's clients, and delivered by whichever of them comes next.
 *
 * Servers come from `FLIGHTD_ADDR` (several of one deployment, separated by commas, are tried in turn), the namespace
 * from `FLIGHTD_NAMESPACE`.
 *
 * @module
 */

import { createHash, randomBytes } from "node:crypto";
import * as fs from "node:fs/promises";
import * as os from "node:os";
import * as path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

const DEFAULT_SERVER = "http://127.0.0.1:7420";
const MAX_RECEIPT = 64 << 10; // bytes of a receipt's body that the ledger keeps
const MAX_TEXT = 1024; // bytes of an error or an external id
const WAIT_MS = 20_000; // for somebody else's attempt
const MIN_WAIT_MS = 100; // that a request waits at the server at least, where its caller waits
const TRY_MS = 10_000; // that one try may take beside waiting
const FIRST_REPORT_MS = 2_000; // after which a report that is not answered goes to disk
const LOOK_MS = 30_000; // that a look-up may take where the flight has no time-out
const HUNG_MS = 15_000; // beyond that, after which it is believed to return no more
const OPEN_LIFE_MS = 30_000; // of ledger time, after which an open opens nothing any more
const ABANDON_FIRST_MS = 2000; // for which an abandon is waited for before the key is opened anew: else a caller meets its own doubt
const PURSUIT_MS = 600_000; // for which an abandon is sent again where no server answers
const PURSUED = 1000; // of them at most; where there are more, the oldest attempts are left to the end of their sessions
const REPORT_TRY_MS = 15_000; // that one of its later tries may take: the next server may be well
const LEFTOVER_MS = 3_600_000; // after which a half-written file in the spool is removed

type Json = Record<string, any>;

// --- errors -----------------------------------------------------------------------------------------------------------

/** Whatever flightd says no with. `code` is stable and made for programs; `problem` is the whole document. */
export class FlightdError extends Error {
  readonly code: string;
  readonly problem: Json;
  /** @internal a request may still be carried out */
  unsure = false;

  constructor(message: string, code: string, problem: Json = {}, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = new.target.name;
    this.code = code;
    this.problem = problem;
  }

  get key(): string { return this.problem["key"] ?? ""; }
  get flightId(): string { return this.problem["flight_id"] ?? ""; }
}

/** Throw it when the provider said no: the effect did not happen and never will. It ends the flight. */
export class Refused extends FlightdError {
  /** @internal when it left the callback of a flight: to one around that it is an error like any other */
  leftAt = 0;
  /** @internal one request that may have changed something, or a safe one, was answered so; "": it is about all that was sent */
  about: "" | "one" | "safe" = "";

  constructor(message: string, cause?: unknown) { super(message, "refused", {}, cause); }

  /** @internal */
  answers(about: "one" | "safe"): this { this.about = about; return this; }
}

/** Throw it when the effect surely did not happen this time. The key is free again. */
export class NotDone extends FlightdError {
  /** @internal */
  leftAt = 0;
  /** @internal */
  about: "" | "one" | "safe" = "";

  constructor(message: string, cause?: unknown) { super(message, "not_done", {}, cause); }

  /** @internal */
  answers(about: "one" | "safe"): this { this.about = about; return this; }
}

/** The effect may have happened; nobody may act before a person has said so. `version` is what was seen. */
export class InDoubt extends FlightdError {
  get version(): string { return this.problem["version"] ?? ""; }
}

/** The key belongs to another input. Nothing was run; a repeat fails alike. `fields` are JSON pointers into the input. */
export class Conflict extends FlightdError {
  get fields(): string[] {
    return (this.problem["errors"] ?? []).map((e: Json) => String(e["pointer"] ?? "").replace(/^\/input/, ""));
  }
}

/** Somebody else is at it and the wait is over. Asking again is safe. */
export class Busy extends FlightdError {
  get retryAfterMs(): number { return this.problem["retry_after_ms"] ?? 0; }
}

/** A person must approve the flight first. */
export class Unapproved extends FlightdError {}

/** It was carried out before, and its receipt is no longer kept. It is not run again. */
export class Expired extends FlightdError {}

/** This attempt's right is over: a newer one or a decision took its place. Its report is kept as evidence. */
export class Fenced extends FlightdError {}

/** The right to start the effect is over: it must not start. */
export class LeaseLost extends FlightdError {}

/** The flight ended without a receipt: cancelled, or its retries are spent. A person may let it run again. */
export class Failed extends FlightdError {}

/** The flight is over and the provider's answer was no. Every repeat gets the same `receipt`. */
export class Declined extends FlightdError {
  readonly receipt: Receipt;

  constructor(message: string, receipt: Receipt, problem: Json, cause?: unknown) {
    super(message, "flight_failed", problem, cause);
    this.receipt = receipt;
  }
}

/**
 * It happened, and its result is not stored as a whole: `receipt.value` is its beginning, as bytes or text, or undefined after a
 * redaction. `receipt` has the size and the digest of the whole, and the external id.
 */
export class ReceiptTruncated extends FlightdError {
  readonly receipt: Receipt;

  constructor(message: string, receipt: Receipt, problem: Json, cause?: unknown) {
    super(message, "receipt_truncated", problem, cause);
    this.receipt = receipt;
  }
}

/** flightd cannot decide now. No effect was started; asking again is safe. */
export class Unavailable extends FlightdError {}

/** The callback has ended as `outcome` says, and no server has taken that yet: the report waits on disk, or its text says where. */
export class Unrecorded extends FlightdError {
  readonly outcome: string;
  readonly value: unknown;

  constructor(message: string, key: string, outcome: string, value: unknown, cause: unknown) {
    super(message, "unrecorded", { key }, cause);
    this.outcome = outcome;
    this.value = value;
  }
}

/** The attempt ended without ending the flight; calling again opens the next one. `outcome` is how it ended. */
export class Unsettled extends FlightdError {
  readonly outcome: string;

  constructor(message: string, key: string, outcome: string, cause: unknown) {
    super(message, "unsettled", { key }, cause);
    this.outcome = outcome;
  }
}

type ErrorClass = new (message: string, code: string, problem: Json, cause?: unknown) => FlightdError;

const BY_CODE: Record<string, ErrorClass> = {
  in_doubt: InDoubt, idempotency_conflict: Conflict, idempotency_in_flight: Busy, approval_pending: Unapproved,
  expired: Expired, fenced: Fenced, lease_lost: LeaseLost, flight_failed: Failed, no_leader: Unavailable,
  unreachable: Unavailable, lease_unavailable: Unavailable, draining: Unavailable, report_pending: Unavailable, rate_limited: Unavailable,
  too_many_open: Unavailable, open_expired: Unavailable,
};

/** Refusals that are not about what was asked, but about the server that was: another one may answer. */
const ANOTHER_SERVER = ["internal", "unauthenticated", "forbidden", "wrong_deployment"];

/** With these, and with fenced, the route of reports answers a report for good. */
const REPORT_REFUSED = ["idempotency_key_invalid", "input_invalid", "not_found", "payload_too_large"];

const NOBODY = "is flightd running there? `flightd dev` starts one; FLIGHTD_ADDR says where another one is";

/**
 * The error that a problem document stands for. What is none comes from something in between, a proxy perhaps, which
 * cannot say what became of the request: where it says that there is no server, there is none. Nor can one about another
 * flight than the one that was asked for: something in between has mixed it up.
 */
function refusal(status: number, retryAfter: string, text: string, server: string, asked?: string): FlightdError {
  let problem: Json = {};
  try {
    const read = JSON.parse(text);
    if (read && typeof read === "object") problem = read;
  } catch { /* it is none */ }
  const ours = typeof problem["code"] === "string" && typeof problem["retryable"] === "boolean"; // others do not say retryable
  const mixedUp = ours && asked !== undefined && (aboutOf(problem) || asked) !== asked;
  if (!ours || mixedUp) {
    const detail = `answer ${status} ${mixedUp ? "about another flight" : "of something that is not flightd"}: ${text.slice(0, 200)}`;
    const hint = `it was asked at ${server}; FLIGHTD_ADDR says where flightd is`;
    const passedOn = mixedUp || status < 300 || status >= 500 || status === 408;
    problem = { code: passedOn ? "unreachable" : "internal", retryable: true, detail, hint };
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

/** What an answer to an open has, by its decision. */
const NEEDS: Record<string, string[]> = {
  replay: ["flight"], proceed: ["flight_id", "fencing_token", "session", "trust_ms"], verify: ["flight_id", "probe", "session"],
};

/**
 * Whether this is an answer of flightd: what is asked of one flight or session is answered by that one. Whoever believed one
 * about another flight, which something between has mixed up, would act without an attempt; and of two callers of one flight
 * both would, by one answer. Older servers do not say whose it is.
 */
function has(data: Buffer, route: string, o: AskOptions): boolean {
  if (o.has.startsWith("sha256:")) return digestOf(data) === o.has; // of a receipt's bytes: nothing but these has it
  try {
    if (o.has === "{}") return data.toString().trim() === "{}"; // to an abandon; no other request is answered so
    const answer = JSON.parse(data.toString());
    if (!answer || typeof answer !== "object" || !(o.has in answer)) return false;
    if (o.has === "state") return answer.id === route.split("/")[3];
    if (o.has === "trust_ms") { // an open is answered with them, too
      return answer.session === decodeURIComponent(route.split("/")[3] ?? "") && !("decision" in answer);
    }
    return o.has !== "decision" || (NEEDS[String(answer.decision)] ?? []).every((field) => field in answer) &&
      (o.about === undefined || o.about === aboutOf(answer)) && (o.nonce === undefined || (answer.nonce || o.nonce) === o.nonce);
  } catch {
    return false;
  }
}

/**
 * Whether an answer to an open, which is an error, leaves nothing to do: nothing was opened under its nonce and nothing will be.
 * alone: it answers the only request that carried the nonce. See docs/protocol.md, rule 6.
 * @internal
 */
export function isFinal(e: FlightdError, alone: boolean): boolean {
  const names = Boolean(aboutOf(e.problem)); // the flight that was asked for: see refusal
  if (["idempotency_conflict", "expired", "open_expired"].includes(e.code)) return names;
  if (e.code === "in_doubt" || e.code === "idempotency_in_flight") {
    const proposed = e.problem["proposed"];
    return names && ((proposed === false && alone) || (proposed === true && e.code === "in_doubt"));
  }
  const status: number = e.problem["status"] ?? 0;
  const turnedAway = status >= 300 && status < 500 && ![408, 409, 410, 429].includes(status); // as it was: it has changed nothing
  return alone && (turnedAway || e.code === "unreachable"); // nobody was there
}

/**
 * What a caller does about an attempt that a renewal lists as open, by what it knows of the nonce. It never abandons what may
 * have started. See docs/protocol.md, rule 8.
 * @internal
 */
export function dueFor(state: string): "nothing" | "abandon" | "report" {
  if (["awaited", "held", "spooled"].includes(state)) return "nothing";
  return state === "given up" ? "abandon" : "report";
}

function digestOf(data: Uint8Array): string { return "sha256:" + createHash("sha256").update(data).digest("hex"); }

/** The id of the flight that an answer to an open, or a refusal, is about. */
function aboutOf(answer: Json): unknown { return answer["flight"] ? answer["flight"].id : answer["flight_id"]; }

/** The id of the flight that a request is about; undefined where it is about none. */
function askedOf(route: string, o: AskOptions): string | undefined {
  return o.about ?? (route.startsWith("/v1/flights/") ? route.split("/")[3] : undefined);
}

// Everything that ends an attempt as not_done, which says that surely nothing happened:
//   one of these statuses, or 3xx to a safe method, where no redirect of an unsafe method was followed   throwForStatus
//   NotDone, thrown by the caller about all that was sent                                               Flight.outcomeOf
//   an error before the first effect() has begun; LeaseLost of an effect() that did not begin is one    Flight.outcomeOf
// An error of a connection is none of them, also before a byte was sent: the caller throws NotDone where it knows that.
export const NOT_DONE_STATUSES: ReadonlySet<number> = new Set([401, 403, 404, 407, 421, 425, 426, 429, 431]);
const REFUSED_STATUSES: ReadonlySet<number> = new Set([400, 402, 405, 406, 410, 413, 415, 422]);
const SAFE_METHODS = ["GET", "HEAD", "OPTIONS", "TRACE"];

/** How an answer of a provider came. */
export interface Exchange {
  /**
   * of the request; the default is POST. A provider may answer any but GET, HEAD, OPTIONS and TRACE with a redirect after it
   * has acted
   */
  method?: string;
  /**
   * the statuses of the redirects that were followed, of which 307 and 308 repeat the method and the others turn it into GET;
   * or whether there were any, where only that is known, as with `redirected` of fetch
   */
  redirects?: readonly number[] | boolean;
}

/** Throws what an HTTP answer of a provider means: Refused, NotDone, or a plain error for an unknown outcome. */
export function throwForStatus(status: number, text = "", { method = "POST", redirects = [] }: Exchange = {}): void {
  const safe = SAFE_METHODS.includes(method.toUpperCase());
  const followed = typeof redirects === "boolean" ? redirects : redirects.length > 0;
  const repeated = typeof redirects === "boolean" ? !followed : redirects.every((r) => r === 307 || r === 308);
  if (status >= 200 && status < 300 && (safe || repeated)) return;
  const message = `the provider answered ${status}: ${text}`;
  if (safe || !followed) {
    const about = safe ? "safe" : "one";
    if (REFUSED_STATUSES.has(status)) throw new Refused(message).answers(about);
    if (NOT_DONE_STATUSES.has(status) || (safe && status >= 300 && status < 400)) throw new NotDone(message).answers(about);
  }
  throw new FlightdError(message, "unknown");
}

// --- what callers and providers say -----------------------------------------------------------------------------------

/** The stored first outcome of a flight. It never changes. */
export interface Receipt {
  readonly outcome: "succeeded" | "refused";
  readonly externalId: string;
  readonly contentType: string;
  /** sha256 over the whole body */
  readonly digest: string;
  /** full length of the body in bytes */
  readonly size: number;
  /** only its beginning is kept */
  readonly truncated: boolean;
  readonly attempt: number;
  /** when it was stored, RFC 3339 */
  readonly at: string;
  /** the body: JSON as JavaScript has it, text as a string, anything else as Uint8Array */
  readonly value: unknown;
}

/** How a flight ended well. */
export interface Result<T> {
  readonly value: T;
  /** executed: this call ran the effect; joined: it waited for one that was running; replayed: it was stored */
  readonly source: "executed" | "joined" | "replayed";
  readonly key: string;
  readonly flightId: string;
  readonly receipt: Receipt;
  /** The receipt's body, byte for byte as it was reported. */
  body(): Promise<Uint8Array>;
}

/** What a look-up found out; undefined when it cannot tell. */
export type Found = { happened: true; value?: unknown; externalId?: string } | { happened: false } | undefined;

/** What holds for a flight; the first caller's policy stands. */
export interface OnceOptions {
  /** what happens about an unknown outcome; the default is hold */
  recovery?: "hold" | "resend" | "verify";
  /** asks the provider what happened, for verify; `signal` ends by attemptTimeoutMs, or after 30 s */
  lookUp?: (f: Flight) => Promise<Found> | Found;
  /** how long an attempt may take, from the first request for it; nothing starts later, and `Flight.signal` ends then */
  attemptTimeoutMs?: number;
  /** after which the provider surely shows an effect, for verify */
  settleMs?: number;
  /** for which the provider remembers our idempotency key, for resend */
  providerWindowMs?: number;
  /** how long the receipt is kept: "30d", "12h" */
  retention?: string;
  /** how long to wait for somebody else's attempt before Busy; Infinity waits as long as it takes. The default is 20 s */
  waitMs?: number;
  /** the key alone decides what the same intent is: the first input stands */
  keyDecides?: boolean;
  /** ends the wait for others; an effect that has started is not bothered */
  signal?: AbortSignal;
}

/**
 * When a request was sent, by the clock that never goes back, by the one on the wall, and by one that goes on while the
 * machine sleeps; it may be coarse.
 */
interface Sent { mono: number; wall: number; boot?: number }

const COARSE_MS = 1000;

const now = (): Required<Sent> => ({ mono: performance.now(), wall: Date.now(), boot: 1000 * os.uptime() });

/**
 * Time that counts from the sending of a request: how long a session is trusted, an attempt may take, or the provider surely
 * remembers a key. The monotonic clock stands still while a machine sleeps and the wall clock may jump; whichever clock says
 * that it is over is believed.
 */
class Trust {
  private until: Required<Sent> = { mono: -Infinity, wall: 0, boot: 0 };
  private lost = false;

  constructor(sent: Sent, ms: number) { this.extend(sent, ms); }

  extend(sent: Sent, ms: number): void {
    if (sent.mono + ms <= this.until.mono) return;
    this.until = { mono: sent.mono + ms, wall: sent.wall + ms, boot: (sent.boot ?? now().boot) + ms + COARSE_MS };
  }

  lose(): void { this.lost = true; }

  left(): number {
    const at = now();
    return this.lost ? 0 : Math.min(this.until.mono - at.mono, this.until.wall - at.wall, this.until.boot - at.boot);
  }
}

/**
 * Identifies one open. Its caller remembers it from before the first request on: it is awaited, held by a callback, given up
 * before its effect started, or final where nothing was opened under it and nothing will be.
 */
class Nonce {
  readonly text = randomBytes(16).toString("base64url");
  readonly id = createHash("sha256").update(this.text).digest("hex").slice(0, 32); // as a renewal lists it
  readonly made = now();
  readonly notAfter: number;
  state: "awaited" | "held" | "given up" | "final" = "awaited";
  alone = true; // at most one request has carried it

  constructor(ledgerMs: number) { this.notAfter = ledgerMs + OPEN_LIFE_MS; }
}

/** The body of a receipt. A value that JSON cannot hold is no reason to call the effect failed: it happened. */
function encode(value: unknown): { contentType: string; body: Buffer } {
  if (value === undefined) return { contentType: "", body: Buffer.alloc(0) };
  if (value instanceof Uint8Array) return { contentType: "application/octet-stream", body: Buffer.from(value) };
  try {
    const text = JSON.stringify(value);
    if (text !== undefined) return { contentType: "application/json", body: Buffer.from(text) };
    return plain(`the result cannot be written as JSON: it is a ${typeof value}`);
  } catch (e) {
    return plain(`the result cannot be written as JSON: ${textOf(e)}`);
  }
}

function plain(text: string): { contentType: string; body: Buffer } {
  return { contentType: "text/plain; charset=utf-8", body: Buffer.from(text) };
}

function decode(contentType: string, body: Buffer, truncated = false): unknown {
  const kind = (contentType.split(";")[0] ?? "").trim().toLowerCase();
  if (body.length === 0) return undefined;
  if (!truncated && (kind === "application/json" || /^application\/.*\+json$/.test(kind))) {
    try { return JSON.parse(body.toString()); } catch { /* as it is, then */ }
  }
  return kind.startsWith("text/") ? body.toString() : new Uint8Array(body);
}

/** A body as reports carry it: as base64, so that what is stored is these bytes; a long one shortened. */
function bodyFields(externalId: unknown, contentType: string, body: Buffer): Json {
  const fields: Json = {};
  if (externalId !== "" && externalId != null) fields["external_id"] = cut(textOf(externalId));
  if (contentType) fields["content_type"] = contentType;
  if (body.length > 0) fields["body_base64"] = body.subarray(0, MAX_RECEIPT).toString("base64");
  if (body.length > MAX_RECEIPT) {
    Object.assign(fields, { truncated: true, size: body.length, digest: digestOf(body) });
  }
  return fields;
}

/** Bounds a text to what the ledger keeps of it. */
function cut(text: string): string {
  return Buffer.from(text).subarray(0, MAX_TEXT).toString().replace(/\uFFFD$/, "");
}

/** A text of whatever a caller has: one that cannot be written must not keep a report away. */
function textOf(e: unknown): string {
  try {
    return e instanceof Error ? `${e.name}: ${e.message}` : String(e);
  } catch {
    return `a ${typeof e} that has no text`;
  }
}

// --- one flight -------------------------------------------------------------------------------------------------------

/** One attempt, as the callback sees it. */
export class Flight {
  readonly key: string;
  readonly flightId: string;
  readonly attempt: number;
  /** the same for every attempt; pass it to the provider */
  readonly idempotencyKey: string;
  /** sorts by age; a store that remembers the greatest one shuts out every attempt that is over */
  readonly fencingToken: string;
  /** as *first* submitted: send this, not your own */
  readonly input: unknown;
  /** the attempt before, if there was one */
  readonly previous: Json | undefined;
  /**
   * ends by the attempt's time-out, a wanted cancellation, loss of the lease under verify, and where the callback ends while
   * effect() runs; give it to your call
   */
  readonly signal: AbortSignal;
  /** the external object's id, where the provider has one; set it for the receipt */
  externalId = "";

  /** @internal */ sent = false;
  /** @internal the callback has ended */ left = false;
  /** @internal */ readonly trust: Trust;
  private readonly abort: AbortController;
  private readonly policy: Json;
  /** @internal of the attempt; timers come late where the event loop is blocked */ deadline: Trust | undefined;
  private resend: Trust | undefined; // for which the provider surely knows the key of what was sent before
  private unknown = false; // an effect has ended, and nobody knows how
  /** @internal that another one was refused with */ again: LeaseLost | undefined;
  /** @internal effects that run */ running = 0;
  private standing = 0; // effects of which nothing says that they did not happen
  private readonly words: unknown[] = []; // about this flight, that effects were left with
  private readonly since = performance.now();

  /** @internal */
  constructor({ json: answer, sent }: Answer, policy: Json, trust: Trust, abort: AbortController) {
    this.policy = policy;
    if (answer["resend_ms"] !== undefined) this.resend = new Trust(sent, answer["resend_ms"]);
    this.key = answer["key"] ?? "";
    this.flightId = answer["flight_id"];
    this.attempt = answer["attempt"] ?? 0;
    this.idempotencyKey = answer["idempotency_key"] ?? "";
    this.fencingToken = answer["fencing_token"] ?? "";
    this.previous = answer["previous"];
    this.input = answer["input_base64"] === undefined ? answer["input"]
      : decode(answer["input_content_type"] ?? "", Buffer.from(answer["input_base64"], "base64"));
    this.trust = trust;
    this.abort = abort;
    this.signal = abort.signal;
  }

  /**
   * Stands around the call that must happen once. From its beginning on, a plain error is of unknown outcome. Throws
   * LeaseLost, and starts nothing, when the right to start is over: the lease is lost, `signal` has ended, or the callback
   * has (and left something running). Under `resend` the right ends, too, when the provider may have forgotten the key
   * (`providerWindowMs`), and otherwise with an effect() of unknown outcome.
   */
  effect<T>(call: (f: Flight) => Promise<T> | T): Promise<T> {
    const made = this.run(call);
    made.catch(() => undefined); // whoever does not wait for it is told by once, and the process goes on
    return made;
  }

  private async run<T>(call: (f: Flight) => Promise<T> | T): Promise<T> {
    const resends = this.policy["recovery"] === "resend";
    const again = this.unknown && !resends;
    const over = this.left ? "the callback has ended" : this.signal.aborted ? textOf(this.signal.reason)
      : again ? "an effect before it has an unknown outcome" : this.late();
    if (over) {
      const lost = new LeaseLost(`${this.key}: ${over}: the effect must not be started`, "lease_lost", {}, this.signal.reason);
      if (again) this.again = lost;
      throw lost;
    }
    this.sent = true;
    this.running++;
    const started = now();
    let happened = true;
    try {
      return await call(this);
    } catch (e) {
      happened = !this.isOwn(e);
      if (!happened) this.words.push(e);
      this.unknown ||= happened;
      const window: number = this.policy["provider_window_ms"] ?? 0;
      if (happened && resends && window > 0) { // a twentieth for clocks that run slow, and the time that the repeat may take
        this.resend ??= new Trust(started, window * 0.95 - (this.policy["attempt_timeout_ms"] ?? 0));
      }
      throw e;
    } finally {
      this.running--;
      if (happened) this.standing++;
    }
  }

  /** @internal Why no effect may start any more, by the clocks; "" where one may. */
  late(): string {
    const bounds = [[this.trust, "the lease is lost"], [this.deadline, "the attempt's time-out is over"],
      [this.resend, "the provider may have forgotten its key"]] as const;
    return bounds.find(([bound]) => bound && bound.left() <= 0)?.[1] ?? "";
  }

  /** Whether e is a word about this flight, and not one that another flight, within this one's callback, was left with. */
  private isOwn(e: unknown): e is NotDone | Refused {
    return (e instanceof NotDone || e instanceof Refused) && e.leftAt <= this.since;
  }

  /** @internal Notes that the callback has ended. What it left running should not go on: somebody may look, or act again. */
  leave(): void {
    this.left = true;
    if (this.running > 0) this.abort.abort(new Error("the callback has ended"));
  }

  /** @internal Notes that the callback has ended, and what its error says of the outcome. */
  outcomeOf(e: unknown): "refused" | "not_done" | "unknown" {
    const own = this.isOwn(e);
    this.leave();
    if (e instanceof NotDone || e instanceof Refused) e.leftAt = performance.now();
    // What was thrown in one effect, or made of one answer, says nothing of another effect; else it is about what was sent.
    const ofOne = this.words.includes(e) ||
      (own && (e.about === "safe" || (e.about === "one" && (this.standing > 1 || this.unknown))));
    if (own && e instanceof Refused && !(this.standing > 0 && ofOne)) return "refused";
    const others = this.running > 0 || (this.standing > 0 && ofOne);
    return !this.sent || (own && !others) ? "not_done" : "unknown";
  }

  /** Nothing may start any more. An effect that has started is left to finish, except under verify. */
  get leaseLost(): boolean { return this.trust.left() <= 0; }

  /** What travels with the effect over HTTP. Give it to a client that does not repeat requests by itself. */
  get headers(): Record<string, string> {
    return { "Idempotency-Key": this.idempotencyKey, "Flightd-Fencing-Token": this.fencingToken };
  }
}

interface Answer { json: Json; sent: Sent }

/** An attempt that is open for this client, or a look-up: its session is renewed until it ends. */
class Attempt {
  readonly flight: Flight;
  private readonly trip: Trip<any>;
  private readonly session: string;
  private readonly digest: string; // of what is open under the session, as far as is known
  private readonly every: number;
  private readonly verify: boolean;
  private readonly abort = new AbortController();
  private readonly trust: Trust;
  private readonly timers = new Set<NodeJS.Timeout>();
  private over = false;

  /** since is when its time-out begins. */
  constructor(trip: Trip<any>, answer: Answer, policy: Json, since: Sent) {
    const { json, sent } = answer;
    this.trip = trip;
    this.session = json["session"];
    const attempts = json["decision"] === "proceed" ? `${trip.nonce.id} ${json["attempt"]}\n` : "";
    this.digest = createHash("sha256").update(attempts).digest("hex").slice(0, 32);
    this.every = Math.max(json["renew_every_ms"] || 1000, 50);
    this.verify = policy["recovery"] === "verify";
    this.trust = new Trust(sent, json["trust_ms"]);
    this.flight = new Flight(answer, policy, this.trust, this.abort);
    const timeout: number = policy["attempt_timeout_ms"] ?? 0;
    if (timeout > 0) {
      const deadline = (this.flight.deadline = new Trust(since, timeout));
      this.after(deadline.left(), () => this.abort.abort(new Error("the attempt's time-out is over")));
    }
    this.watch();
    this.after(this.every, () => void this.renew());
  }

  private after(ms: number, then: () => void): void {
    if (this.over) return;
    const timer = setTimeout(() => { this.timers.delete(timer); then(); }, Math.min(ms, 2 ** 31 - 1));
    this.timers.add(timer);
  }

  /** Ends the attempt's signal when the lease is lost, where a look-up needs to know that the effect is over. */
  private watch(): void {
    if (!this.verify) return;
    const left = this.trust.left();
    if (left <= 0) this.abort.abort(new LeaseLost("the lease is lost", "lease_lost"));
    else this.after(left, () => this.watch());
  }

  /** Keeps the session alive while the callback runs and its report is on the way. */
  private async renew(): Promise<void> {
    let pause = this.every;
    try {
      const route = `/v1/sessions/${encodeURIComponent(this.session)}/renew`;
      const { json, sent } = await this.trip.client.ask("POST", route, { open_digest: this.digest },
        { has: "trust_ms", timeoutMs: Math.max(this.every / 2, 1000), tries: 1 });
      this.trust.extend(sent, json["trust_ms"]);
      if ((json["cancel_requested"] ?? []).includes(this.flight.flightId)) {
        this.abort.abort(new Error("cancellation was requested"));
      }
      for (const attempt of json["open"] ?? []) await this.trip.answerFor(attempt);
    } catch (e) {
      if (e instanceof LeaseLost) {
        this.trust.lose();
        if (this.verify) this.abort.abort(e);
        return;
      }
      pause = Math.min(this.every, 1000);
    }
    this.after(pause, () => void this.renew());
  }

  /** Gives nothing, when so much time has passed and the attempt has not ended. */
  in(ms: number): Promise<undefined> { return new Promise((wake) => this.after(ms, () => wake(undefined))); }

  end(): void {
    this.over = true;
    for (const timer of this.timers) clearTimeout(timer);
  }
}

const SETTLED = ["succeeded", "failed", "cancelled", "expired", "in_doubt", "awaiting_approval"];

function receiptOf(r: Json): Receipt {
  const kind: string = r["content_type"] ?? "";
  const truncated = Boolean(r["truncated"]);
  const value = "body" in r ? r["body"] : decode(kind, Buffer.from(r["body_base64"] ?? "", "base64"), truncated);
  return {
    outcome: r["outcome"], externalId: r["external_id"] ?? "", contentType: kind, digest: r["digest"] ?? "",
    size: r["size"] ?? 0, truncated, attempt: r["attempt"] ?? 0, at: r["at"] ?? "", value,
  };
}

/** What p gives, unless the signal ends first: its reason, then. */
async function until<T>(signal: AbortSignal | undefined, p: Promise<T>): Promise<T> {
  if (!signal) return p;
  let stop = (): void => undefined;
  const aborted = new Promise<never>((_, reject) => { stop = () => reject(signal.reason); });
  p.catch(() => undefined); // it may end when nobody waits for it any more
  if (signal.aborted) stop();
  signal.addEventListener("abort", stop);
  try {
    return await Promise.race([aborted, p]);
  } finally {
    signal.removeEventListener("abort", stop);
  }
}

/** One call of once: as many attempts as the answers say. */
class Trip<T> {
  readonly client: Client;
  nonce: Nonce; // the newest one
  private readonly nonces = new Map<string, Nonce>(); // by id
  private readonly request: Json;
  private readonly options: OnceOptions;
  private readonly until: number;
  private readonly id: string; // of the flight
  private key: string;

  constructor(client: Client, key: string, request: Json, options: OnceOptions) {
    this.client = client;
    this.nonce = new Nonce(0);
    this.key = key;
    this.id = flightIdOf(key);
    this.request = request;
    this.options = options;
    this.until = performance.now() + (options.waitMs ?? WAIT_MS);
  }

  /** The policy that stands: the first caller's. */
  private policyOf(answer: Answer): Json {
    return answer.json["policy_differs"] === true ? answer.json["policy"] ?? {} : this.request;
  }

  private get waited(): boolean { return this.until - performance.now() < 1; }

  /**
   * For which others are waited for under one nonce, in milliseconds. Half of the time in which its effect may start, and of
   * that in which its open may be proposed, is left for what comes then.
   */
  private get window(): number {
    return Math.min(this.request["attempt_timeout_ms"] || OPEN_LIFE_MS, OPEN_LIFE_MS) / 2;
  }

  private waitMs(): number {
    return Math.trunc(Math.max(0, Math.min(this.until - performance.now(), Math.max(this.window, MIN_WAIT_MS))));
  }

  async fly(act: (f: Flight) => Promise<T> | T): Promise<Result<T>> {
    try {
      for (;;) {
        const opened = await this.open();
        if (!(opened instanceof Attempt)) return this.settle(opened);
        this.nonce.state = "held";
        try {
          const result = await this.act(opened.flight, act);
          if (result) return result;
        } finally {
          opened.end();
        }
      }
    } catch (e) {
      void this.giveUp();
      throw e;
    }
  }

  private newNonce(): void {
    this.nonce = new Nonce(this.client.ledgerMs());
    this.nonces.set(this.nonce.id, this.nonce);
  }

  /** Asks until the callback may run, the flight is over (then it gives the flight), or the wait is. */
  private async open(): Promise<Attempt | Json> {
    await this.client.connect(this.options.signal);
    this.newNonce();
    for (let lost = 0; ;) { // so many opens in a row came to nothing
      const wait = this.waitMs();
      const asked = performance.now();
      try {
        let answer = await this.askOpen("/v1/flights:open", this.request);
        if (answer.json["decision"] === "verify") answer = await this.look(answer);
        if (answer.json["decision"] === "replay") return answer.json["flight"];
        if (answer.json["decision"] !== "proceed") {
          throw new FlightdError(`the server decided ${answer.json["decision"]}, which this client does not know: nothing was run; ` +
            "take a newer client", "internal");
        }
        const attempt = new Attempt(this, answer, this.policyOf(answer), this.nonce.made);
        const late = attempt.flight.late();
        if (!late) return attempt;
        attempt.end();
        throw new LeaseLost(`${this.key}: ${late}: the effect was not started`, "lease_lost");
      } catch (e) {
        if (!(e instanceof Busy || e instanceof LeaseLost || e instanceof Fenced || e instanceof Unavailable)) throw e;
        this.options.signal?.throwIfAborted();
        lost = e instanceof Busy ? 0 : lost + 1;
        const expired = e.code === "open_expired" && lost <= 3; // ledger time was estimated wrongly; now it is known
        if (!expired && (e instanceof Unavailable || this.waited)) throw e;
        if (!(e instanceof Busy) || now().mono - this.nonce.made.mono >= this.window) {
          await Promise.race([this.giveUp(), sleep(ABANDON_FIRST_MS, undefined, { ref: false })]);
        }
        // A server that did not wait knows that it cannot be yet: it is not asked at once.
        const pause = e instanceof Busy ? Math.min(Math.max(e.retryAfterMs, 20), wait - (performance.now() - asked)) : 20 * lost;
        if (pause > 0) await until(this.options.signal, sleep(Math.min(pause, 1000), undefined, { signal: this.options.signal }));
        if (this.nonce.state !== "awaited") this.newNonce();
      }
    }
  }

  /** Sends an open, or a verdict, which is answered like one, and notes where the answer is final. */
  private async askOpen(route: string, request: Json): Promise<Answer> {
    const { nonce } = this;
    const wait = this.waitMs();
    const body = { ...request, nonce: nonce.text, not_after: nonce.notAfter, owner: this.client.owner(), wait_ms: wait };
    let answer: Answer;
    try {
      answer = await this.client.ask("POST", route, body,
        { has: "decision", about: this.id, nonce: nonce.text, timeoutMs: wait + TRY_MS, signal: this.options.signal });
    } catch (e) {
      if (!(e instanceof FlightdError) || e === this.options.signal?.reason) throw e; // no server has answered
      const alone = nonce.alone && !e.unsure;
      nonce.alone = false;
      if (isFinal(e, alone)) nonce.state = "final";
      if (!(e instanceof Failed) || e.problem["flight"]?.id !== this.id) throw e;
      answer = { json: { decision: "replay", flight: e.problem["flight"] }, sent: nonce.made }; // it ended badly
    }
    if (answer.json["decision"] === "replay") nonce.state = "final";
    return answer;
  }

  /** Abandons what was asked for and will not be used: nobody else would ever say that nothing was sent. */
  private async giveUp(): Promise<void> {
    await Promise.all([...this.nonces.values()].filter((nonce) => nonce.state === "awaited").map((nonce) => {
      nonce.state = "given up";
      return this.client.pursue(() => this.abandon(nonce));
    }));
  }

  /** Says that nothing was sent under a nonce, and that nothing will be. False: no server has taken it yet. */
  private async abandon(nonce: Nonce): Promise<boolean> {
    const { action, id } = this.request;
    const body = { action, id, nonce: nonce.text, not_after: nonce.notAfter, reason: "its caller gave up before the effect" };
    try {
      await this.client.ask("POST", "/v1/flights:abandon", body, { has: "{}", timeoutMs: 5000, patienceMs: 5000 });
      return true;
    } catch (e) { // also an answer that nobody can read
      return taking(e, this.id) === "refused";
    }
  }

  /** Does what is due for an attempt that a renewal lists as open. */
  async answerFor(attempt: Json): Promise<void> {
    const nonce = this.nonces.get(attempt["nonce"]);
    const due = dueFor(nonce?.state ?? "unknown");
    if (due === "abandon" && nonce) void this.client.pursue(() => this.abandon(nonce));
    if (due !== "report") return;
    const report = { fencing_token: attempt["fencing_token"], key: attempt["key"], outcome: "unknown",
      error: "its caller knows nothing of it any more" };
    await this.client.ask("POST", `/v1/flights/${attempt["flight_id"]}/report`, report, { has: "state", timeoutMs: 1000, tries: 1 });
  }

  /** Asks the provider what happened and brings the verdict, which is answered like an open, under a new nonce. */
  private async look(answer: Answer): Promise<Answer> {
    const lookUp = this.options.lookUp;
    if (!lookUp) {
      throw new InDoubt(`${this.key}: an effect of unknown outcome must be looked up at the provider; pass lookUp`,
        "in_doubt", answer.json);
    }
    const looked = this.nonce;
    const bound: number = this.policyOf(answer)["attempt_timeout_ms"] || LOOK_MS;
    const named = { ...answer, json: { key: this.key, ...answer.json } };
    const attempt = new Attempt(this, named, { attempt_timeout_ms: bound }, now());
    attempt.flight.leave(); // a look-up starts nothing
    const hung = attempt.in(bound + HUNG_MS);
    try {
      const found = await Promise.race([this.findOut(lookUp, attempt.flight), hung]);
      this.newNonce();
      const opened = await this.askOpen(`/v1/flights/${this.id}/verdict`, this.verdictOf(answer, found));
      looked.state = "final";
      return opened;
    } finally {
      attempt.end();
    }
  }

  private async findOut(lookUp: (f: Flight) => Promise<Found> | Found, f: Flight): Promise<Found> {
    try {
      return await lookUp(f);
    } catch (e) {
      this.client.log(`the look-up of ${this.key} failed: ${textOf(e)}`);
      return undefined;
    }
  }

  private verdictOf(answer: Answer, found: Found): Json {
    const verdict: Json = { probe: answer.json["probe"], result: "unknown" };
    if (this.request["ttl_ms"] !== undefined) verdict["ttl_ms"] = this.request["ttl_ms"];
    if (found?.happened === true) {
      const { contentType, body } = encode(found.value);
      Object.assign(verdict, bodyFields(found.externalId ?? "", contentType, body), { result: "happened" });
    } else if (found?.happened === false) {
      verdict["result"] = "not_happened";
    }
    return verdict;
  }

  /** Runs the callback and reports how it ended. undefined: it may be opened again. */
  private async act(f: Flight, act: (f: Flight) => Promise<T> | T): Promise<Result<T> | undefined> {
    let value: T | undefined;
    let error: unknown;
    let outcome = "succeeded";
    try {
      value = await act(f);
      f.leave();
      if (!f.sent || f.running > 0 || f.again) {
        error = f.again ?? new Error(f.sent ? "return or await what f.effect() gives: the callback ended while it was running"
          : "put f.effect() around the call that must happen once, or throw NotDone to leave without it");
        outcome = "unknown"; // nobody can tell whether anything was sent, or how it ends
      }
    } catch (e) {
      outcome = f.outcomeOf(e);
      error = e;
    }
    const report = this.reportOf(f, outcome, value, error);
    let flight: Json;
    try {
      flight = await this.client.record(f, report, value);
    } catch (e) {
      if (e instanceof Fenced) return this.afterFence(f, e, error);
      throw e;
    }
    if (SETTLED.includes(flight["state"])) return this.settle({ ...flight, source: "executed" }, error, value);
    if (outcome === "unknown" && flight["looking"] && this.options.lookUp) return undefined;
    if (outcome === "not_done") throw error;
    throw new Unsettled(`${f.key}: ${outcome}: ${textOf(error)}; call again to open the next attempt`, f.key, outcome, error);
  }

  private reportOf(f: Flight, outcome: string, value: unknown, error: unknown): Json {
    const report: Json = { fencing_token: f.fencingToken, key: f.key, outcome };
    if (error !== undefined) report["error"] = cut(textOf(error));
    if (outcome === "succeeded" || outcome === "refused") {
      const { contentType, body } = outcome === "succeeded" ? encode(value) : plain((error as Error).message);
      Object.assign(report, bodyFields(f.externalId, contentType, body));
    }
    return report;
  }

  /** Gives what was decided without this attempt, where that is final, else that it was fenced. */
  private async afterFence(f: Flight, fenced: Fenced, error: unknown): Promise<Result<T>> {
    let flight: Json;
    try {
      flight = (await this.client.ask("GET", `/v1/flights/${f.flightId}`, undefined, { has: "state" })).json;
    } catch {
      throw fenced;
    }
    if (!SETTLED.includes(flight["state"])) throw fenced;
    return this.settle({ ...flight, source: "replayed" }, error);
  }

  /** What a flight that nobody is about to fly gives its callers: a receipt, or an error. */
  private settle(flight: Json, cause?: unknown, own?: T): Result<T> {
    const flightId: string = flight["id"];
    const key = (this.key = flight["key"] ?? this.key);
    const about = { key, flight_id: flightId, version: flight["version"], flight };
    const state: string = flight["state"];
    switch (state) {
      case "in_doubt":
        throw new InDoubt(`${key} is in doubt: ${flight["cause"] ?? ""}; settle it with \`flightd doubt resolve ${key} --reason WHY ` +
          "--happened --receipt @FILE | --did-not-happen | --fail`", "in_doubt", about, cause);
      case "awaiting_approval":
        throw new Unapproved(`${key} waits for an approval`, "approval_pending", about, cause);
      case "expired":
        throw new Expired(`${key}: its receipt is no longer kept`, "expired", about, cause);
    }
    if (!flight["receipt"]) throw new Failed(`${key} is ${state}: ${flight["cause"] ?? ""}`, "flight_failed", about, cause);
    const receipt = receiptOf(flight["receipt"]);
    if (receipt.outcome === "refused") {
      throw new Declined(`${key} was refused by the provider: ${String(receipt.value)}`, receipt, about, cause);
    }
    const whole = flight["source"] === "executed" && receipt.truncated; // whoever executed it has the whole result
    if (receipt.truncated && !whole) {
      throw new ReceiptTruncated(`${key} has succeeded, and its result of ${receipt.size} bytes is not stored as a whole`,
        receipt, about, cause);
    }
    return {
      value: whole ? (own as T) : (receipt.value as T), source: flight["source"] ?? "replayed", key, flightId, receipt,
      body: () => this.client.receiptBody(flightId, receipt),
    };
  }
}

// --- the client -------------------------------------------------------------------------------------------------------

export interface ClientOptions {
  /** of keys; FLIGHTD_NAMESPACE, else default */
  namespace?: string;
  /** whole seconds from 2 to 600 that an attempt outlives this process; the server's default is 15 */
  ttlSeconds?: number;
  /** folder of reports that no server took yet; "" keeps none: an outcome may then die with the process */
  spool?: string;
  /** for which a request is tried again while no server answers; the default is 10 s */
  patienceMs?: number;
  /** how long to wait for an outcome to be recorded before Unrecorded; the report is tried on afterwards. 10 s */
  reportWaitMs?: number;
  /** who holds attempts, for people; host:pid */
  owner?: string;
  /** takes what a person should know; console.warn */
  log?: (message: string) => void;
}

interface AskOptions {
  /** what a good answer of flightd has, or the digest of its bytes; what does not have it is somebody else's */
  has: string;
  /** id of the flight that it is about, where the route does not say so */
  about?: string;
  /** of an open: an answer to another one is none to this */
  nonce?: string;
  timeoutMs?: number;
  /** with tries that are not answered, or not now; the client's */
  patienceMs?: number;
  /** at most so many; as many as patience allows */
  tries?: number;
  signal?: AbortSignal | undefined;
}

/** Speaks to flightd servers. */
export class Client {
  readonly namespace: string;
  private readonly servers: string[];
  private readonly options: ClientOptions;
  private readonly patience: number;
  private readonly reportWait: number;
  private readonly spool: Spool;
  private best = 0;
  private deployment = "";
  private connecting: Promise<void> | undefined;
  private drainer: NodeJS.Timeout | undefined;
  private closed = false;
  private ledger = { ms: 0, at: now() }; // its time, and when that was said
  private readonly abandons: { until: number; abandon: () => Promise<boolean> }[] = [];
  private pursuing = false;

  /**
   * address: one server or several of one deployment, separated by commas, tried in turn; FLIGHTD_ADDR, else
   * http://127.0.0.1:7420. The client stays with the deployment that answers it first
   */
  constructor(address?: string, options: ClientOptions = {}) {
    this.options = options;
    this.servers = addresses(address || process.env["FLIGHTD_ADDR"] || DEFAULT_SERVER);
    this.namespace = options.namespace || process.env["FLIGHTD_NAMESPACE"] || "default";
    if (!/^[A-Za-z0-9._-]{1,255}$/.test(this.namespace)) {
      throw new TypeError(`${JSON.stringify(this.namespace)} is no namespace: letters, digits, '.', '_' and '-' make one`);
    }
    this.patience = options.patienceMs ?? 10_000;
    this.reportWait = options.reportWaitMs ?? 10_000;
    if (!(this.patience > 0 && this.reportWait > 0)) {
      throw new RangeError("patienceMs and reportWaitMs must be more than nothing");
    }
    this.spool = new Spool(options.spool ?? defaultSpool(), (m) => this.log(m));
  }

  /**
   * Runs act once for the key, or gives the receipt of whoever did. name and id are the business intent: the kind of
   * effect and the business identifier, such as an order's. input is any JSON; the same key with another input is a
   * Conflict. Under verify, act may run again after a look-up that found nothing.
   *
   * Throws InDoubt, Conflict, Busy, Declined, Failed, Unapproved, Expired, Unavailable, Unrecorded, Unsettled or Fenced;
   * what act threw, where nothing was sent.
   */
  async once<T>(name: string, id: string, input: unknown, act: (f: Flight) => Promise<T> | T,
                options: OnceOptions = {}): Promise<Result<T>> {
    const recovery = options.recovery ?? "hold";
    if (recovery === "verify" && !options.lookUp) throw new TypeError("recovery verify needs a lookUp");
    if (Number.isNaN(options.waitMs ?? 0)) throw new TypeError("waitMs is no number");
    const request: Json = { action: name, id, recovery };
    const text = JSON.stringify(input, (_, v: unknown) => { // refuses now what cannot travel; JSON would make it null
      if (typeof v === "number" && !Number.isFinite(v)) throw new TypeError(`the input has ${v}, which JSON cannot hold`);
      return v;
    });
    if (text !== undefined) request["input"] = JSON.parse(text);
    if (options.keyDecides) request["fingerprint"] = "none";
    if (options.attemptTimeoutMs !== undefined) request["attempt_timeout_ms"] = Math.trunc(options.attemptTimeoutMs);
    if (options.settleMs !== undefined) request["settle_ms"] = Math.trunc(options.settleMs);
    if (options.providerWindowMs !== undefined) request["provider_window_ms"] = Math.trunc(options.providerWindowMs);
    if (options.retention) request["retention"] = options.retention;
    if (options.lookUp && recovery !== "verify") request["lookup"] = true;
    if (this.options.ttlSeconds !== undefined) request["ttl_ms"] = 1000 * this.options.ttlSeconds;
    return new Trip<T>(this, `${this.namespace}/${name}/${id}`, request, options).fly(act);
  }

  /** How many reports wait on disk. */
  async spooled(): Promise<number> { return (await this.spool.onDisk()).length; }

  /**
   * Ends work in the background. Reports that wait stay on disk for the next client; those that no disk took are brought once
   * more, for which a program that is not ended by process.exit waits.
   */
  close(): void {
    this.closed = true;
    clearTimeout(this.drainer);
    void this.drain(this.spool.inMemory()).catch(() => undefined);
  }

  /** @internal */
  log(message: string): void {
    void (async () => (this.options.log ?? ((m) => console.warn(m)))(`flightd: ${message}`))() // at once, whatever it does
      .catch(() => undefined); // it must keep no report away
  }

  /** @internal */
  owner(): string {
    return (this.options.owner || `${os.hostname()}:${process.pid}`).replace(/[^ -~]/g, "?");
  }

  /**
   * Sends a request until a server answers it. Each route is guarded against repeats: by a nonce, a token, or by changing
   * nothing. Throws the error of a problem document; Unavailable when nobody answers within patience, or something that
   * is not flightd, whose answers do not have what ours has.
   * @internal
   */
  async ask(method: string, route: string, body: Json | string | undefined, options: AskOptions): Promise<Answer> {
    const { data, sent } = await this.askRaw(method, route, body, options);
    return { json: JSON.parse(data.toString()), sent };
  }

  private async askRaw(method: string, route: string, body: Json | string | undefined,
                       o: AskOptions): Promise<{ data: Buffer; sent: Sent }> {
    if (route !== "/version") await this.connect();
    let deadline = 0; // patience begins with the first failure: a good answer may take its time
    let unsure = false;
    let turns = 0; // times in a row that it was turned away
    let elsewhere: FlightdError | undefined; // the answer of a server of another deployment
    for (let count = 1, pause = 20; ; count++, pause = Math.min(2 * pause, 1000)) {
      const server = this.best;
      let failure: FlightdError;
      try {
        return await this.send(this.servers[server] ?? "", method, route, body, o);
      } catch (e) {
        if (o.signal?.aborted) throw e;
        if (e instanceof FlightdError) {
          const status: number = e.problem["status"];
          if (status >= 300 && status < 500 && status !== 429 && e.code !== "unreachable") {
            // What is there is not our flightd, or does not know who asks: the next server may do it.
            turns = ANOTHER_SERVER.includes(e.code) ? turns + 1 : 0;
            if (e.code === "wrong_deployment") elsewhere = e;
            if (turns === 0 || turns === this.servers.length) {
              e.unsure = unsure;
              throw e;
            }
          } else {
            turns = 0;
            unsure = true;
          }
          failure = e;
        } else {
          turns = 0;
          const cause = (e as { cause?: { code?: string } }).cause;
          const nobody = ["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN"].includes(cause?.code ?? "");
          unsure ||= !nobody;
          const where = `no server answers at ${this.servers[server]}: ${textOf(cause ?? e)}`;
          failure = new Unavailable(nobody ? `${where} (${NOBODY})` : where, "unreachable", {}, e);
        }
      }
      this.best = (server + 1) % this.servers.length;
      deadline ||= performance.now() + (o.patienceMs ?? this.patience);
      const hint = Math.min(failure.problem["retry_after_ms"] ?? 0, 5000);
      // The next server may know better; a pause comes after the last one.
      const wait = count < this.servers.length ? 0 : hint || pause * (0.5 + Math.random());
      if (count === o.tries || performance.now() + wait > deadline) {
        failure = elsewhere ?? failure; // the one that a person must mend
        failure.unsure = unsure;
        throw failure;
      }
      await sleep(wait, undefined, o.signal ? { signal: o.signal } : {});
    }
  }

  /** Sends a request once. */
  private async send(server: string, method: string, route: string, body: Json | string | undefined,
                     o: AskOptions): Promise<{ data: Buffer; sent: Sent }> {
    const headers: Record<string, string> = { "User-Agent": "flightd-typescript" };
    if (body) headers["Content-Type"] = "application/json";
    if (this.namespace !== "default") headers["Flightd-Namespace"] = this.namespace;
    if (!["", "-"].includes(this.deployment)) headers["Flightd-Deployment"] = this.deployment;
    const over = AbortSignal.timeout(Math.ceil(o.timeoutMs ?? TRY_MS));
    const signal = o.signal ? AbortSignal.any([over, o.signal]) : over;
    const sent = now();
    const answer = await fetch(server + route, {
      method, headers, signal, redirect: "manual", ...(body ? { body: typeof body === "string" ? body : JSON.stringify(body) } : {}),
    });
    const data = Buffer.from(await answer.arrayBuffer());
    if (answer.status !== 421) this.noteLedgerMs(answer.headers.get("Flightd-Ledger-Time")); // that is another ledger
    if (answer.status >= 300 || (o.has && !has(data, route, o))) {
      throw refusal(answer.status, answer.headers.get("Retry-After") ?? "", data.toString(), server, askedOf(route, o));
    }
    return { data, sent };
  }

  /**
   * Learns at first which deployment answers, and delivers its reports that wait on disk. It is the client's for good: another
   * one knows nothing of what this one has let it do.
   * @internal
   */
  async connect(signal?: AbortSignal): Promise<void> {
    signal?.throwIfAborted();
    if (this.deployment) return;
    this.connecting ??= (async () => {
      const { json } = await this.ask("GET", "/version", undefined, { has: "version" });
      this.deployment = String(json["deployment"] || "-"); // older servers do not say it
      this.noteLedgerMs(json["ledger_time"]);
      if ((await this.spool.names()).length > 0) void this.drainRounds().catch(() => undefined);
    })().finally(() => { this.connecting = undefined; });
    await until(signal, this.connecting);
  }

  /** Takes note of the ledger's time, which every answer of flightd has. The newest one counts, also where time goes back with it. */
  private noteLedgerMs(ms: unknown): void {
    if (/^\d+$/.test(String(ms))) this.ledger = { ms: Number(ms), at: now() };
  }

  /**
   * Estimates the ledger's time. A wrong estimate costs one more request, since an open that comes too late opens nothing.
   * @internal
   */
  ledgerMs(): number {
    const { ms, at } = this.ledger;
    const { mono, boot } = now();
    return Math.trunc(ms + Math.max(mono - at.mono, boot - at.boot - COARSE_MS));
  }

  /**
   * Sends an abandon until it is answered, for as long as the program and this client live: with its session the attempt
   * would end in doubt. It waits for the first try alone, and so does the end of the program.
   * @internal
   */
  async pursue(abandon: () => Promise<boolean>): Promise<void> {
    if (await abandon()) return;
    this.abandons.push({ until: performance.now() + PURSUIT_MS, abandon });
    if (this.abandons.length > PURSUED) this.abandons.shift();
    if (!this.pursuing) void this.pursueAll();
  }

  private async pursueAll(): Promise<void> {
    this.pursuing = true;
    for (let pause = 100; ;) {
      await sleep(pause, undefined, { ref: false });
      const one = this.closed ? undefined : this.abandons.shift();
      if (!one) break;
      const taken = await one.abandon();
      pause = taken ? 0 : Math.min(2 * pause + 100, 2000);
      if (!taken && performance.now() < one.until) this.abandons.push(one);
    }
    this.pursuing = false;
  }

  /** @internal */
  async receiptBody(flightId: string, receipt: Receipt): Promise<Uint8Array> {
    const o = { has: receipt.truncated ? "" : receipt.digest }; // that of the whole tells nothing about a part
    return new Uint8Array((await this.askRaw("GET", `/v1/flights/${flightId}/receipt`, undefined, o)).data);
  }

  /**
   * Brings the outcome of an attempt. From the first try that fails the report is on disk, until it is taken.
   * @internal
   */
  async record(f: Flight, report: Json, value: unknown): Promise<Json> {
    const route = `/v1/flights/${f.flightId}/report`;
    const started = performance.now();
    let failure: unknown;
    try {
      return (await this.ask("POST", route, report,
        { has: "state", timeoutMs: Math.min(FIRST_REPORT_MS, this.reportWait), tries: 1 })).json;
    } catch (e) {
      if (taking(e, f.flightId) === "taken") throw e;
      failure = e;
    }
    // If the process dies from here on, the next client reports it.
    const name = await this.spool.keep(this.deployment, f.key, JSON.stringify(report));
    if (taking(failure, f.flightId) === "later") {
      const left = Math.max(10, this.reportWait - (performance.now() - started));
      try {
        const { json } = await this.ask("POST", route, report, { has: "state", timeoutMs: Math.min(Math.max(1000, left), REPORT_TRY_MS), patienceMs: left });
        await this.spool.drop(name);
        return json;
      } catch (e) {
        if (taking(e, f.flightId) === "taken") {
          await this.spool.drop(name);
          throw e;
        }
        failure = e;
      }
    }
    let where: string;
    if (taking(failure, f.flightId) === "refused") {
      where = `a person must look at it: ${await this.spool.putAside(name, failure)}`;
    } else {
      where = this.spool.place(name);
      this.spool.release(name);
      this.log(`the outcome of ${f.key} is not recorded yet; ${where}: ${textOf(failure)}`);
      this.drainLater(2000);
    }
    throw new Unrecorded(`${f.key} ended as ${report["outcome"]}, which is not recorded yet; ${where}: ${textOf(failure)}`,
      f.key, report["outcome"], value, failure);
  }

  /** Looks at the spool again later; waiting for that keeps no program alive. */
  private drainLater(ms: number): void {
    clearTimeout(this.drainer);
    if (!this.closed) this.drainer = setTimeout(() => void this.drainRounds().catch(() => undefined), ms).unref();
  }

  private async drainRounds(): Promise<void> {
    const went = await this.drain(await this.spool.names());
    if ((await this.spool.names()).length > 0) this.drainLater(went ? 2000 : 8000);
  }

  /**
   * Reports what the files hold, and answers false when no server takes reports now. One that a server cannot take now
   * keeps no other one waiting.
   */
  private async drain(names: string[]): Promise<boolean> {
    let went = true;
    for (const name of names) {
      const entry = await this.spool.claim(name);
      if (!entry) continue;
      if (entry.deployment !== this.deployment) { // of another server: a client that is connected to that one reports it
        this.spool.release(name);
        continue;
      }
      // It goes out as it is: another language has written it, and read and written here it may be another receipt.
      const report = Buffer.from(entry.report, "base64").toString();
      try {
        JSON.parse(report);
      } catch (e) { // it has its checksum and is none of ours all the same
        await this.spool.putAside(name, e);
        continue;
      }
      const flightId = flightIdOf(entry.key);
      try {
        await this.ask("POST", `/v1/flights/${flightId}/report`, report, { has: "state", timeoutMs: 5000, tries: 1 });
      } catch (e) {
        const made = taking(e, flightId);
        if (made === "refused") {
          await this.spool.putAside(name, e);
          continue;
        }
        if (made !== "taken") {
          this.spool.release(name);
          if (e instanceof Unavailable && e.code === "unreachable") return false;
          went = false;
          continue;
        }
      }
      await this.spool.drop(name);
    }
    return went;
  }
}

/**
 * What a server made of a report of a flight: taken, as the outcome or as evidence; later; or refused for good. An answer that is
 * not about this flight, or that no report gets, belongs to another request.
 * @internal
 */
export function taking(e: unknown, flightId: string): "taken" | "later" | "refused" {
  if (!(e instanceof FlightdError) || e.flightId !== flightId) return "later";
  if (e instanceof Fenced) return "taken";
  return REPORT_REFUSED.includes(e.code) ? "refused" : "later";
}

/** The id that a key has everywhere and for ever. */
function flightIdOf(key: string): string {
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

function addresses(listed: string): string[] {
  const servers = listed.split(/[,\s]+/).filter(Boolean).map((part) => {
    let url: URL | undefined;
    try { url = new URL(part.includes("://") ? part : "http://" + part); } catch { /* it is none */ }
    if (!url || !["http:", "https:"].includes(url.protocol) || url.search || url.hash) {
      throw new TypeError(`${JSON.stringify(part)} is no address of a server like ${DEFAULT_SERVER}`);
    }
    return url.origin + url.pathname.replace(/\/+$/, "");
  });
  if (servers.length === 0) throw new TypeError("no server is named");
  return servers;
}

// --- the spool of reports ---------------------------------------------------------------------------------------------

function defaultSpool(): string {
  const state = process.env["XDG_STATE_HOME"] ?? "";
  return path.join(path.isAbsolute(state) ? state : path.join(os.homedir(), ".local", "state"), "flightd", "reports");
}

interface Spooled { deployment: string; key: string; report: string }

/**
 * Keeps reports that no server has taken: one file each, readable by its owner alone, fsynced. A report is all that is
 * known of an effect that happened, so it must not depend on a process.
 *
 * A file is the magic, the CRC-32C of the rest in four bytes, and JSON: deployment, key, at, and the body of the request
 * in base64. All clients of flightd share folder and format; a report that two of them send is taken once.
 */
class Spool {
  readonly folder: string;
  private readonly log: (message: string) => void;
  private readonly busy = new Set<string>();
  private readonly told = new Set<string>(); // files of which a person was told that they cannot be read
  private readonly memory = new Map<string, Spooled>(); // what the disk did not take

  constructor(folder: string, log: (message: string) => void) {
    this.folder = folder && path.resolve(folder); // also where the process moves to another directory
    this.log = log;
    void this.removeLeftovers().catch(() => undefined);
  }

  /** Removes what processes have left that were killed while they wrote a report. */
  private async removeLeftovers(): Promise<void> {
    for (const name of this.folder ? await fs.readdir(this.folder) : []) {
      const file = path.join(this.folder, name);
      const written = name.startsWith("new-") && await fs.lstat(file).catch(() => undefined); // another process may be faster
      if (written && Date.now() - written.mtimeMs > LEFTOVER_MS) await fs.rm(file).catch(() => undefined);
    }
  }

  async names(): Promise<string[]> { return [...this.inMemory(), ...await this.onDisk()]; }

  inMemory(): string[] { return [...this.memory.keys()]; }

  async onDisk(): Promise<string[]> {
    try {
      return this.folder ? (await fs.readdir(this.folder)).filter((n) => n.endsWith(".report")).sort() : [];
    } catch {
      return [];
    }
  }

  /** Writes a report, which outlives the process then. Where the disk does not take it, it lives with the process. */
  async keep(deployment: string, key: string, report: string): Promise<string> {
    const entry = { deployment, key, at: new Date().toISOString(), report: Buffer.from(report).toString("base64") };
    const data = Buffer.from(JSON.stringify(entry));
    const head = Buffer.from("FDC1\0\0\0\0");
    head.writeUInt32BE(crc32c(data), 4);
    const name = createHash("sha256").update(`${deployment} ${key} ${report}`).digest("hex").slice(0, 32) + ".report";
    this.busy.add(name);
    if (!this.folder) {
      this.memory.set(name, entry);
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
        await fs.rename(temp, path.join(this.folder, name)); // it appears whole or not at all
      } catch (e) {
        await fs.rm(temp, { force: true }).catch(() => undefined);
        throw e;
      }
      const folder = await fs.open(this.folder, "r");
      try {
        await folder.sync(); // makes the name durable
      } finally {
        await folder.close();
      }
    } catch (e) {
      this.memory.set(name, entry);
      this.log(`the report of ${key} could not be kept on disk: ${textOf(e)}`);
    }
    return name;
  }

  /**
   * Reads a report, unless somebody in this process deals with it. What is damaged is put aside; what cannot be read now, or
   * not by this version, stays as it is.
   */
  async claim(name: string): Promise<Spooled | undefined> {
    if (this.busy.has(name)) return undefined;
    this.busy.add(name);
    const kept = this.memory.get(name);
    if (kept) return kept;
    let data: Buffer;
    try {
      data = await fs.readFile(path.join(this.folder, name));
      if (/^FDC[2-9]/.test(data.subarray(0, 4).toString())) {
        throw new Error("a later version of flightd has written it; who has that one delivers it");
      }
    } catch (e) {
      if ((e as { code?: string }).code !== "ENOENT" && !this.told.has(name)) { // else another process was faster
        this.told.add(name);
        this.log(`a report cannot be read now, and stays where it is: ${path.join(this.folder, name)}: ${textOf(e)}`);
      }
      this.release(name);
      return undefined;
    }
    try {
      if (data.subarray(0, 4).toString() !== "FDC1" || data.readUInt32BE(4) !== crc32c(data.subarray(8))) {
        throw new Error("a report in the spool does not have its checksum");
      }
      const entry: Spooled = JSON.parse(data.subarray(8).toString());
      if ([entry.deployment, entry.key, entry.report].some((field) => typeof field !== "string")) {
        throw new Error("a report in the spool does not say what it is of");
      }
      return entry;
    } catch (e) {
      await this.rename(name, ".damaged", e);
      return undefined;
    }
  }

  release(name: string): void { this.busy.delete(name); }

  /** Removes a report that was taken. If the process dies before it, it is sent once more, which is harmless. */
  async drop(name: string): Promise<void> {
    if (!this.memory.delete(name)) {
      await fs.rm(path.join(this.folder, name), { force: true })
        .catch((e) => this.log(`a report that was taken cannot be removed: ${name}: ${textOf(e)}`));
    }
    this.release(name);
  }

  /** Says where a report waits. */
  place(name: string): string {
    return this.memory.has(name) ? "its report is not on disk, and is lost with this process"
      : `its report waits in ${this.folder} and is sent on`;
  }

  /** Keeps a report that no server will ever take, for a person to look at, and says where. */
  async putAside(name: string, why: unknown): Promise<string> {
    const lost = this.memory.get(name);
    if (!lost) return this.rename(name, ".refused", why);
    this.memory.delete(name);
    this.log(`a report was refused, and the disk did not take it: ${lost.key}: ${textOf(why)}`);
    this.release(name);
    return "its report was refused, and is not on disk";
  }

  private async rename(name: string, suffix: string, why: unknown): Promise<string> {
    const file = path.join(this.folder, name);
    await fs.rename(file, file + suffix).catch(() => undefined);
    this.log(`a report is put aside; a person must look at it: ${file + suffix}: ${textOf(why)}`);
    this.release(name);
    return file + suffix;
  }
}

const CRC = Array.from({ length: 256 }, (_, n) => {
  for (let i = 0; i < 8; i++) n = (n >>> 1) ^ (n & 1 ? 0x82f63b78 : 0);
  return n;
});

/** CRC-32 with Castagnoli's polynomial. */
function crc32c(data: Uint8Array): number {
  let crc = ~0;
  for (const byte of data) crc = (CRC[(crc ^ byte) & 0xff] ?? 0) ^ (crc >>> 8);
  return ~crc >>> 0;
}

// --- the short way ----------------------------------------------------------------------------------------------------

let standard: Client | undefined;

/** `Client.once` with a client that the environment sets up, made at the first call. */
export function once<T>(name: string, id: string, input: unknown, act: (f: Flight) => Promise<T> | T,
                        options: OnceOptions = {}): Promise<Result<T>> {
  standard ??= new Client();
  return standard.once(name, id, input, act, options);
}
