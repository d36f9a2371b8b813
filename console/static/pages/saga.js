// One saga, by #/saga?id=ID or #/saga?key=KEY, as a waterfall with the decisions that move it on.
import { html, useState, useRef, useKeys, usePoll, State, Time, Copy, Code, Facts, Section, Missing } from "../ui.js";
import { get, post, may } from "../api.js";
import { stateWords, eventText, person } from "../words.js";
import { stored, readHistory } from "./flightview.js";
import { Heading, Ask, span, timed } from "../page.js";
import { Waterfall, summary, over } from "../waterfall.js";
import { Decide } from "../verbs.js";

// load reads a saga and the events of its flights; those of a flight are read again only if its version is another one.
async function load({ id, key }, kept) {
  if (!id) id = (await get("/v1/flights", { key })).id;
  const saga = await get(`/v1/flights/${encodeURIComponent(id)}/saga`), flights = [saga, ...(saga.steps || []).flatMap((s) => [s.flight, s.undo, s.late_undo]).filter(Boolean)];
  await Promise.all(flights.filter((f) => !kept[f.id] || kept[f.id].version !== f.version).map(async (f) => {
    kept[f.id] = { version: f.version, events: (await readHistory(f.id)).events };
  }));
  if (kept.input === undefined) kept.input = await stored(`/v1/flights/${encodeURIComponent(id)}/input`);
  return { saga, input: kept.input, histories: Object.fromEntries(flights.map((f) => [f.id, kept[f.id].events])) };
}

const meaning = {
  running: "It goes forward. A failure or a cancel undoes what has happened.", committed: "Its pivot has succeeded: from here on it is only completed.",
  undoing: "What has happened is undone, the last first.", in_doubt: "A step or an undo waits for a person.", done: "Everything has happened.",
  undone: "Everything that had happened is undone.", cancelled: "Nothing was begun.",
};

// what a cancel does: which steps it undoes, and which must end first. It changes while the dialog is open: each step that ends changes the saga.
function cancelText(s) {
  const named = (states) => s.steps.filter((x) => x.flight && states.includes(x.flight.state)).map((x) => x.step);
  const happened = named(["succeeded"]).reverse(), open = named(["running", "waiting", "in_doubt", "awaiting_approval"]);
  return `No further step starts. ${open.length ? `First ends what runs or may have happened: ${open.join(", ")}. ` : ""}${happened.length ? `Then what has happened is undone, the last first: ${happened.join(", ")}.` : open.length ? "Then it is undone if it has happened." : "Nothing has happened yet, so nothing is undone."}`;
}

export default function SagaPage({ params }) {
  return html`<${Saga} key=${JSON.stringify(params)} params=${params} />`;
}

function Saga({ params }) {
  const kept = useRef({}), [open, setOpen] = useState(null);
  const { data, problem } = usePoll(timed(() => load(params, kept.current)), 2000, [params]);
  const s = data && data.saga, cancellable = s && may("operate") && !over(s) && !s.cancel && s.state !== "committed";
  useKeys(cancellable ? [["c", "cancel this saga", () => setOpen({ cancel: true })]] : []);
  if (!s && problem && problem.code === "not_found") return html`<${Missing} what="saga" of=${params} problem=${problem} />`;
  if (!s) return html`<${Heading} title="Saga" data=${data} problem=${problem} />`;
  const events = data.histories[s.id], steps = s.steps || [], mark = (kind, text, color) => events.filter((e) => e.kind === kind).slice(-1).map((e) => [e.at, text, color]);
  const marks = [...mark("pivot_passed", "the pivot has succeeded", "good"), ...mark("cancel_requested", "no further step starts", "warn"), ...mark("undo_begun", "the undoing begins", "bad")];
  const receiptOnly = steps.length === 0 ? Object.entries(summary(s)) : [];
  return html`<${Heading} title=${html`<span class="key">${s.key} <${Copy} text=${s.key} label="key" /></span>`} data=${data} problem=${problem} />
    <p class="says"><${State} state=${s.state} /> <span>${meaning[s.state] || stateWords(s.state)}${s.cancel && html` <span class="dim">${s.state === "done" || s.state === "committed" ? "Too late to be undone: " : "Why: "}${s.cancel.reason || "cancelled"}${s.cancel.actor !== "saga" ? ` (cancelled by ${person(s.cancel.actor)})` : ""}</span>`}</span></p>
    <div class="verbs">${cancellable && html`<button class="danger" data-verb="cancel" onClick=${() => setOpen({ cancel: true })}>Cancel…</button>`}<a href=${"#/flight?" + new URLSearchParams({ id: s.id })}>its flight</a></div>
    ${steps.length > 0 && html`<${Waterfall} saga=${s} histories=${data.histories} marks=${marks} now=${Date.parse(data.at)} onResolve=${may("operate") && ((f) => setOpen({ doubt: f }))} onUndoLate=${may("operate") && ((step) => setOpen({ late: step }))} />`}
    ${receiptOnly.length > 0 && html`<${Section} title="Steps" extra="by the receipt: the definition was deleted"><${Facts} rows=${receiptOnly.map(([name, x]) => [name, `${stateWords(x.outcome)}${x.why ? ": " + x.why : ""}${x.undo ? `; undo ${x.undo}` : ""}`])} /></${Section}>`}
    <div class="columns"><div><${Section} title="Input" extra=${data.input && data.input.text && html`<${Copy} text=${data.input.text} label="input" />`}><${Code} text=${data.input && data.input.text} empty=${data.input ? "The input is no text." : "There is none."} /></${Section}>
      <${Section} title="Facts"><${Facts} rows=${[["definition", s.definition], ["requested by", s.requested_by], ["started", html`<${Time} at=${s.created_at} full />`],
      ["ended", s.finished_at && html`<${Time} at=${s.finished_at} full />, after ${span(Date.parse(s.finished_at) - Date.parse(s.created_at))}`], ["cause", s.cause]]} /></${Section}></div>
      <div><${Section} title="Moments"><ol class="timeline">${events.filter((e) => !["opened", "suspended", "woken"].includes(e.kind)).map((e) => html`<li key=${e.id} class=${e.kind}><${Time} at=${e.at} /> ${e.kind === "cancelled" ? "it was cancelled" : eventText(e)}</li>`)}</ol></${Section}></div></div>
    ${open && open.doubt && html`<${Decide} name="resolve" flights=${[open.doubt]} onClose=${() => setOpen(null)} />`}
    ${open && open.cancel && html`<${Ask} title="Cancel this saga?" danger act="Cancel the saga" does=${cancelText(s)} onClose=${() => setOpen(null)} submit=${(reason) =>
      post(`/v1/flights/${s.id}/cancel`, { key: s.key, reason }, s.version).then(() => `${s.key}: it is cancelled`)} />`}
    ${open && open.late && html`<${Ask} title=${`Undo ${open.late.step}?`} act="Undo it" does="A job undoes the step that has happened after its saga had taken it for not done. The saga does not change." onClose=${() => setOpen(null)} submit=${(reason) =>
      post(`/v1/flights/${s.id}/undo-late`, { step: open.late.step, reason }).then(() => `${open.late.step}: its undo is submitted`)} />`}`;
}
