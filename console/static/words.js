// Words for what the API says: times, ages, states and events. The texts of events are those of flightd why.

export const plural = (n, one, many) => `${n.toLocaleString("en-US")} ${n === 1 ? one : many || one + "s"}`;

// age is a duration in its greatest unit: "41 s", "3 min", "5 h", "12 d".
export function age(ms) {
  const s = Math.max(0, Math.round(ms / 1000));
  if (s < 120) return s + " s";
  if (s < 7200) return Math.floor(s / 60) + " min";
  return s < 172800 ? Math.floor(s / 3600) + " h" : Math.floor(s / 86400) + " d";
}

const pad = (n) => String(n).padStart(2, "0");

// moment is a time as text, of this machine or in UTC; without the day if it is today, unless full.
export function moment(iso, utc, full) {
  const d = new Date(iso), now = new Date();
  const [day, today] = utc ? [d.toISOString().slice(0, 10), now.toISOString().slice(0, 10)] : [localDay(d), localDay(now)];
  const clock = utc ? iso.slice(11, 19) : `${pad(d.getHours())}:${pad(d.getMinutes())}:${pad(d.getSeconds())}`;
  return (full || day !== today ? day + " " : "") + clock + (utc ? "Z" : "");
}
const localDay = (d) => `${d.getFullYear()}-${pad(d.getMonth() + 1)}-${pad(d.getDate())}`;

// both is a time of this machine and in UTC.
export const both = (iso) => `${moment(iso, false, true)} local, ${moment(iso, true, true)}`;

export const stateWords = (state) => state.replaceAll("_", " ");

// keyParts splits NAMESPACE/ACTION/ID.
export function keyParts(key) {
  const [namespace, action, ...id] = (key || "").split("/");
  return { namespace, action: action || "", id: id.join("/") };
}

// flightLink is the address of a flight; notifications use the same.
export const flightLink = (f) => f.key ? "#/flight?" + new URLSearchParams({ namespace: keyParts(f.key).namespace, key: f.key }) : "#/flight?" + new URLSearchParams({ id: f.id });

// command is the shell command that shows a flight and the possible decisions about it.
export const command = (f) => `flightd ${{ in_doubt: "doubt show", awaiting_approval: "approvals show" }[f.state] || "why"} ${/^[\w/.:%#,+=-]+$/.test(f.key) ? f.key : `'${f.key.replaceAll("'", `'\\''`)}'`}`;

// doubtSince is when the last attempt of a flight in doubt ended.
export const doubtSince = (f) => f.last_attempt && f.last_attempt.closed_at || f.created_at;

// doubtCause is what is known of a doubt. The cause of recovery hold is left out: it is the same for every flight.
export function doubtCause(f) {
  const error = f.last_attempt && f.last_attempt.error;
  return !error ? f.cause || "" : f.recovery === "hold" ? error : `${error}; ${f.cause}`;
}

// callers are the last callers, the newest first, with equal neighbours counted: [{actor, at, n}].
export function callers(list) {
  const out = [];
  for (const c of list.slice().reverse()) {
    if (out.length && out.at(-1).actor === c.actor) out.at(-1).n++;
    else out.push({ ...c, n: 1 });
  }
  return out;
}

// oneLine is the beginning of a text without line breaks.
export function oneLine(text, most) {
  const words = text.split(/\s+/).join(" ").trim();
  return words.length > most ? words.slice(0, most - 1) + "…" : words;
}

// indent lays out JSON without touching a number or a string: an amount of 19 digits stays what it is. Other text is returned as it is.
// The indentation is bounded: a receipt of a hundred thousand brackets must not become gigabytes.
export function indent(text) {
  try {
    JSON.parse(text);
  } catch {
    return text;
  }
  let out = "", depth = 0;
  const line = (d) => "\n" + "  ".repeat(Math.min(depth += d, 40));
  const tokens = text.match(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g) || [];
  tokens.forEach((t, i) => {
    const next = tokens[i + 1];
    if (t === "{" || t === "[") out += next === "}" || next === "]" ? t : t + line(1);
    else if (t === "}" || t === "]") out += tokens[i - 1] === "{" || tokens[i - 1] === "[" ? t : line(-1) + t, depth = Math.max(depth, 0);
    else out += t === "," ? t + line(0) : t === ":" ? ": " : t;
  });
  return out;
}

export const bytes = (n) => n < 2048 ? plural(n, "byte") : `${(n / 1024).toFixed(1)} KiB`;

const results = { happened: "it happened", not_happened: "it did not happen", fail: "it did not happen and must not run", approved: "approved", rejected: "rejected" };
export const resultText = (result) => results[result] || result;

const note = (e) => e.note ? ` (${e.note})` : "";
// person is the name of the person who decided. The server records a decision without a name as unknown.
export const person = (name) => name && name !== "unknown" ? name : "an unnamed person";
const who = (e) => person(e.actor);
const reports = {
  succeeded: (e) => `attempt ${e.attempt} reported success; the receipt is stored${note(e)}`,
  refused: (e) => `attempt ${e.attempt} was finally refused; the receipt is stored${note(e)}`,
  not_done: (e) => `attempt ${e.attempt} reported that nothing was done${note(e)}`,
  unknown: (e) => `attempt ${e.attempt} reported an unknown outcome${note(e)}`,
};
const texts = {
  submitted: (e) => `the flight was submitted${e.actor ? " by " + e.actor : ""}${note(e)}`,
  opened: (e) => `attempt ${e.attempt} was opened by ${e.actor || "an unnamed caller"}: the effect may happen from now on`,
  reported: (e) => (reports[e.outcome] || reports.unknown)(e),
  abandoned: (e) => `attempt ${e.attempt} was abandoned before anything was sent${note(e)}`,
  lost: (e) => `attempt ${e.attempt} was declared lost${note(e)}: the effect may have happened`,
  report_fenced: (e) => `attempt ${e.attempt} reported ${e.outcome || "an outcome"} after it was superseded; the report is stored as evidence${note(e)}`,
  overlap: (e) => `OVERLAP: attempt ${e.attempt} reports another effect than the receipt${note(e)}`,
  verifying: () => "the provider will be asked whether the effect happened",
  verification_reported: (e) => `the look-up found: ${e.note || "nothing certain"}`,
  in_doubt: (e) => `the flight is in doubt and waits for a person${note(e)}`,
  scheduled: () => "another attempt is scheduled",
  duplicates: (e) => `${plural(e.count || 1, "duplicate call")} answered without another effect, the last one of ${e.actor || "an unnamed caller"}`,
  resolved: (e) => {
    const [result, ...why] = (e.note || "").split(": ");
    return `${who(e)} resolved it (${resultText(result)}${why.length ? ": " + why.join(": ") : ""})`;
  },
  cancel_requested: (e) => `${who(e)} requested its cancellation${note(e)}`,
  cancelled: (e) => `the flight was cancelled${note(e)}`,
  failed: (e) => `the flight ended without a receipt${note(e)}`,
  approved: (e) => `${who(e)} approved it${note(e)}`,
  rejected: (e) => e.actor ? `${who(e)} rejected it${note(e)}` : `its approval expired: nobody decided in time${note(e)}`,
  retried: (e) => `${who(e)} let it run again${note(e)}`,
  freed: (e) => `${who(e)} freed the key${note(e)}`,
  redacted: (e) => `${who(e)} erased its input and receipt${note(e)}`,
  imported: (e) => `${who(e)} imported its receipt: the effect had happened before the import${note(e)}`,
  suspended: () => "the attempt was handed over: it waits for the callback of its provider",
  undo_begun: (e) => `the saga undoes what has happened${note(e)}`,
  pivot_passed: () => "the pivot of the saga has succeeded: it is only completed from here on",
  expired: () => "the retention of its receipt ended; a tombstone guards the key",
};
export const eventText = (e) => (texts[e.kind] || ((x) => stateWords(x.kind) + note(x)))(e);

// stateText says in a sentence what a state means for the next caller.
export function stateText(f) {
  const cause = f.cause ? ` (${f.cause})` : "";
  switch (f.state) {
    case "succeeded": return f.redacted ? "Every later call gets the receipt without its erased body, and nothing is run again." : "Every later call gets the receipt, and nothing is run again.";
    case "failed": case "cancelled":
      if ((f.key || "").includes("#")) return `Its saga decides what follows${cause}.`;
      return f.receipt ? `Every later call gets this answer${cause}; a new id is another try.` : `It ended without a receipt${cause}. A retry lets it run again.`;
    case "in_doubt": return `The effect may or may not have happened${f.recovery === "hold" ? "" : cause}. Nobody acts before a person has looked and decided.`;
    case "running": return f.verifying ? "The provider is being asked whether the effect happened." : `An attempt is open${f.last_attempt && f.last_attempt.owner ? ", of " + f.last_attempt.owner : ""}. The effect may happen now.`;
    case "waiting": return "The effect was started, and the flight waits for the callback of its provider.";
    case "awaiting_approval": return "Nothing happens before a person has approved it.";
    case "scheduled": return "It waits for its time.";
    case "ready": return f.blocked_by ? "No attempt is open." : "No attempt is open; the next caller or worker runs it.";
    case "absent": return "The key is free: the next call with it acts.";
    case "expired": return "The receipt is no longer stored, and the effect is not run again.";
  }
  return "";
}

// attempts gathers the attempts of all generations from the events: [{generation, attempt, owner, opened, closed, outcome, error}].
export function attempts(events) {
  const all = new Map();
  for (const e of events) {
    if (!e.attempt) continue;
    const id = (e.generation || 1) + "." + e.attempt;
    if (e.kind === "opened") all.set(id, { generation: e.generation || 1, attempt: e.attempt, owner: e.actor, opened: e.at });
    const a = all.get(id);
    if (a && !a.closed && ["reported", "lost", "abandoned"].includes(e.kind))
      Object.assign(a, { closed: e.at, outcome: e.kind === "reported" ? e.outcome : e.kind, error: e.note });
  }
  return [...all.values()];
}
