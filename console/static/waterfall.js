// A saga as a waterfall: a line for each step and each undo on one axis of time, in words what each waits for, and what moves it on.
import { html, State } from "./ui.js";
import { attempts, doubtSince, flightLink, oneLine, person, resultText, age } from "./words.js";
import { span } from "./page.js";

export const over = (s) => ["done", "undone", "cancelled"].includes(s.state);

// summary is what the receipt of a saga says of its steps, by their names: {outcome, why, undo}.
export function summary(s) {
  const r = s.receipt;
  try {
    return (r && (r.body || JSON.parse(atob(r.body_base64)))).steps || {};
  } catch {
    return {};
  }
}

// idle describes a step that has no flight.
function idle(s, step, outcome) {
  if (outcome === "skipped") return "skipped: its condition is false";
  if (outcome === "succeeded") return "over";
  if (over(s) || s.cancel && s.state !== "committed") return "never started";
  const open = s.steps.filter((o) => (step.needs || []).includes(o.step) && !(o.flight && o.flight.state === "succeeded")).map((o) => o.step);
  return open.length ? "waits for " + open.join(", ") : "waits";
}

// told describes the flight of a step or an undo, as flightd sagas get does.
function told(f, action, now) {
  const last = f.last_attempt || {}, note = (w) => w ? ": " + oneLine(w, 160) : "";
  const why = !last.error || (f.cause || "").includes(last.error) ? f.cause : f.cause ? `${f.cause}; ${last.error}` : last.error;
  const more = (f.attempts > 1 ? `, attempt ${f.attempts}` : "") + (f.resolution ? `; ${person(f.resolution.actor)} decided: ${resultText(f.resolution.result)}${note(f.resolution.reason)}` : "");
  const left = f.not_before ? Date.parse(f.not_before) - now : 0;
  switch (f.state) {
    case "succeeded": return `in ${span(Date.parse(f.finished_at) - Date.parse(f.created_at))}${f.receipt && f.receipt.external_id ? ", " + f.receipt.external_id : ""}${more}`;
    case "failed": return `${f.receipt ? "refused" : "without a receipt"}${note(why)}${more}`;
    case "cancelled": return f.attempts ? "after " + f.attempts + (f.attempts > 1 ? " attempts" : " attempt") : "never started";
    case "running": return (f.verifying ? "the provider is being asked whether it happened" : `for ${span(now - Date.parse(last.opened_at))}, by ${last.owner || "an unnamed worker"}`) + more;
    case "in_doubt": return `for ${age(now - Date.parse(doubtSince(f)))}${note(why)}${more}`;
    case "waiting": return "for the callback of its provider" + more;
    case "awaiting_approval": return "somebody must approve or reject it";
  }
  return (left > 0 ? `next attempt in ${span(left)}` : `waits for a worker${action ? " of " + action : ""}`) + note(why) + more;
}

// approvals are the waits of a flight for its approvals: [[from, to], …].
function approvals(events, f, now) {
  const out = [];
  let asked = Date.parse(f.created_at);
  for (const e of events) {
    if (["submitted", "retried"].includes(e.kind)) asked = Date.parse(e.at);
    if (["approved", "rejected"].includes(e.kind)) out.push([asked, Date.parse(e.at)]);
  }
  return f.state === "awaiting_approval" ? [...out, [asked, now]] : out;
}

// ticks are round times of the axis, in milliseconds since its start: five to ten, and half of them on a phone.
function ticks(length) {
  const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 3e4, 6e4, 12e4, 3e5, 6e5, 12e5, 18e5, 36e5, 72e5, 144e5, 288e5, 864e5, 1728e5, 6048e5, 2592e6, 31536e6];
  const step = steps.find((s) => length / s <= 6) || length;
  return Array.from({ length: Math.floor(length * .96 / step) + 1 }, (_, i) => i * step);
}
const tickText = (ms) => ms === 0 ? "start" : ms < 1000 ? `+${ms} ms` : ms < 120000 ? `+${ms / 1000} s` : "+" + age(ms);

// Waterfall: histories are the events of flights by their id, marks the moments of the saga [[time, name, class], …]; onUndoLate and
// onResolve are called with a step or a flight, and are absent if the person may not decide.
export function Waterfall({ saga, histories, marks, now, onResolve, onUndoLate }) {
  const from = Date.parse(saga.created_at), sum = summary(saga);
  // The axis ends now, or with the last event. A wait that is longer than all before it is cut off: torn.
  const last = Math.max(from, ...Object.values(histories).flat().map((e) => Date.parse(e.at))), torn = !over(saga) && last > from && now - last > 2 * (last - from);
  const to = Math.max(from + 1, over(saga) ? last : torn ? last + (last - from) / 2 : now);
  const x = (t) => Math.min(100, Math.max(0, 100 * (t - from) / (to - from))), bar = (a, b) => ({ left: x(a) + "%", width: x(b) - x(a) + "%" });
  const axis = ticks(to - from);
  const grid = html`${axis.map((t) => html`<i class="tick" style=${{ left: x(from + t) + "%" }}></i>`)}${marks.map(([at, , kind]) => html`<i class="mark ${kind}" style=${{ left: x(Date.parse(at)) + "%" }}></i>`)}`;
  const track = (f) => {
    if (!f) return grid;
    const end = f.finished_at ? Date.parse(f.finished_at) : to, created = Date.parse(f.created_at);
    const tries = histories[f.id] ? attempts(histories[f.id]) : f.last_attempt ? [{ ...f.last_attempt, opened: f.last_attempt.opened_at, closed: f.last_attempt.closed_at }] : [];
    return html`${grid}${approvals(histories[f.id] || [], f, to).map(([a, b]) => html`<i class="approval" title="waits for an approval" style=${bar(a, b)}></i>`)}${f.attempts > 0 || !f.finished_at ? html`<i class="wait ${f.state}" style=${bar(created, end)}></i>` : ""}
      ${tries.map((a) => html`<i class="try ${a.closed ? a.outcome : "open"}" title=${`attempt ${a.attempt}: ${a.closed ? a.outcome : "open"}`} style=${bar(Date.parse(a.opened), a.closed ? Date.parse(a.closed) : to)}></i>`)}`;
  };
  const line = (name, f, text, more = {}) => html`<div key=${name} class=${"line " + (more.class || "")} data-step=${name}>
    <div class="what">${f ? html`<a href=${flightLink(f)}>${more.label || name}</a>` : more.label || name}${more.pivot && html` <span class="state pivot" title="From the success of this step on the saga is only completed, never undone">pivot</span>`}${more.needs}</div>
    <div class="track" aria-hidden="true">${track(f)}</div>
    <div class="text">${f && html`<${State} state=${f.state} /> `}<span>${text}</span>${more.button}</div></div>`;
  const resolve = (f) => f && f.state === "in_doubt" && onResolve && html` <button onClick=${() => onResolve(f)}>Resolve…</button>`;
  const lines = saga.steps.flatMap((step) => {
    const out = [line(step.step, step.flight, step.flight ? told(step.flight, step.action, now) : idle(saga, step, (sum[step.step] || {}).outcome), {
      pivot: step.pivot, needs: step.needs && html`<span class="needs">after ${step.needs.join(", ")}</span>`, button: resolve(step.flight) })];
    if ((sum[step.step] || {}).undo === "kept") out.push(line(step.step + ".undo", null, "kept: it has no undo", { label: "undo", class: "undo" }));
    if (step.undo) out.push(line(step.step + ".undo", step.undo, told(step.undo, "", now), { label: "undo", class: "undo", button: resolve(step.undo) }));
    if (step.late_undo) out.push(line(step.step + ".late", step.late_undo, told(step.late_undo, "", now), { label: "late undo", class: "undo" }));
    else if (step.late) out.push(line(step.step + ".late", null, "It has happened after the saga had taken it for not done.", { label: "too late", class: "undo", button: onUndoLate && html` <button onClick=${() => onUndoLate(step)}>Undo it…</button>` }));
    return out;
  });
  return html`<div class=${torn ? "waterfall torn" : "waterfall"}><div class="line axis" aria-hidden="true"><div></div><div class="track">${axis.map((t, i) => html`<span class=${i % 2 ? "odd" : ""} style=${{ left: x(from + t) + "%" }}>${tickText(t)}</span>`)}</div><div>${torn && html`… until now, ${span(now - from)} after the start`}</div></div>${lines}</div>`;
}
