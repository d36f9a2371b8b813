// The decisions of people, and the dialog in which they are made. Each says what it will do before it does it. It is about the
// version that the person saw: if the flight has changed since, the server rejects it, and nothing happens.
import { html, useState, useEffect, useRef, useGone, Dialog, Problem, Name, toast, refreshAll } from "./ui.js";
import { post, text, session, setActor } from "./api.js";
import { plural, oneLine, resultText, stateWords, bytes } from "./words.js";

// A verb: path of the route, states in which it is offered, choices if the person chooses, and for one or many flights what it will do.
const verbs = {
  resolve: { label: "Resolve…", path: "resolve", states: ["in_doubt"], key: "r", title: "What happened?", choices: [
    { value: "happened", label: "It happened", act: "Record that it happened", receipt: true,
      does: "The flight succeeds with the receipt below. Every caller, those that wait and later ones, gets that receipt, and nothing is run again. A receipt is never changed." },
    { value: "not_happened", label: "It did not happen", act: "Let it run again", does: "The next caller or worker performs the effect. If it did happen after all, it happens twice." },
    { value: "fail", label: "It must not run", act: "End it as failed", does: "The effect did not happen, and is not tried again. Callers are told that the flight has failed. For the undo of a saga: it is let pass." },
  ] },
  approve: { label: "Approve…", path: "approve", states: ["awaiting_approval"], key: "a", title: "Approve it?", act: "Approve", done: "approved", optional: true,
    does: "The next caller or worker performs the effect with the input shown. The first decision counts." },
  reject: { label: "Reject…", path: "reject", states: ["awaiting_approval"], key: "n", title: "Reject it?", act: "Reject", done: "rejected",
    does: "The flight is cancelled, and its effect does not happen. Callers are told. A retry asks for another approval." },
  cancel: { label: "Cancel…", path: "cancel", states: ["ready", "scheduled", "running", "waiting", "awaiting_approval"], title: "Cancel it?", act: "Request the cancellation", done: "the cancellation is requested",
    does: "If no attempt is open, the flight is cancelled, and nothing happens. A running attempt learns it at its next renewal, and its report decides." },
  retry: { label: "Retry…", path: "retry", states: ["failed", "cancelled"], title: "Let it run again?", act: "Let it run again", done: "it may run again",
    does: "The flight is open again, with the same key and input: the next caller or worker performs the effect." },
  free: { label: "Free the key…", path: "free", states: ["failed", "cancelled", "succeeded", "expired"], danger: true, title: "Free the key?", act: "Free the key", done: "the key is free",
    does: "The receipt no longer guards the key. The next call with it acts, with any input: if the effect has happened, it happens again." },
  redact: { label: "Erase…", path: "redact", states: ["failed", "cancelled", "succeeded"], danger: true, title: "Erase input and receipt?", act: "Erase the bytes", done: "its bytes are erased",
    does: "The bytes of the input and the receipt are erased for ever. Outcome, history and digests stay, and the key stays guarded." },
};

// verbsOf are the verbs that make sense in the state of a flight: [[name, verb], …]. The server judges.
export const verbsOf = (f) => Object.entries(verbs).filter(([, v]) => v.states.includes(f.state) && !(f.receipt && f.receipt.outcome === "refused" && v.path === "retry"));
export const verb = (name) => verbs[name];

// decideAll makes one decision about each flight, six at a time, until it is stopped. A flight that has changed since it was listed is skipped.
// decided are the ids of those about which it was made, also by an earlier try: it is not made about them again.
async function decideAll(flights, path, body, decided, progress, stopped) {
  const sum = { skipped: 0, problem: null };
  const rest = flights.filter((f) => !decided.has(f.id));
  await Promise.all(Array.from({ length: 6 }, async () => {
    for (let f; !sum.problem && !stopped.current && (f = rest.shift());) {
      try {
        await post(`/v1/flights/${encodeURIComponent(f.id)}/${path}`, path === "resolve" || path === "approve" || path === "reject" ? body : { ...body, key: f.key }, f.version);
        decided.add(f.id);
      } catch (problem) {
        if (flights.length > 1 && (problem.code === "precondition_failed" || problem.code === "not_found")) sum.skipped++;
        else sum.problem = problem;
      }
      progress(decided.size + sum.skipped);
    }
  }));
  const left = flights.length - decided.size - sum.skipped;
  sum.text = `${plural(decided.size, "flight")} decided${sum.skipped ? `, ${sum.skipped} skipped because they had changed` : ""}${left ? `, ${left} left` : ""}`;
  return sum;
}

// draft is what was typed into a dialog when its token ended: the same dialog has it again after the next sign-in.
let draft = {};

// Samples shows three of many flights with the beginnings of their inputs.
function Samples({ flights }) {
  const [inputs, setInputs] = useState({});
  useEffect(() => {
    for (const f of flights.slice(0, 3)) text(`/v1/flights/${f.id}/input`).then((b) => setInputs((all) => ({ ...all, [f.id]: b.text === null ? bytes(b.size) : oneLine(b.text, 120) })), () => {});
  }, []);
  return html`<ul class="samples">${flights.slice(0, 3).map((f) => html`<li><${Name} of=${f} /> <code>${inputs[f.id] || ""}</code></li>`)}${flights.length > 3 && html`<li class="dim">and ${plural(flights.length - 3, "more", "more")}</li>`}</ul>`;
}

// Decide is the dialog of a verb about one flight or many.
export function Decide({ name, flights, choice: first, onClose }) {
  const v = verbs[name], many = flights.length > 1;
  const about = [name, ...flights.map((f) => f.id)].join(), kept = draft.about === about ? draft : {};
  const [choice, setChoice] = useState(first || kept.choice || null);
  const [form, setForm] = useState({ reason: "", receipt: "", external: "", none: many, typed: "", ...kept.form, actor: session.actor });
  const [state, setState] = useState({ busy: false, done: 0, problem: null, text: "" });
  const gone = useGone(), typed = useRef(null), made = useRef({});
  typed.current = { about, choice, form };
  useEffect(() => () => {
    draft = session.who ? {} : typed.current;
  }, []);
  const chosen = v.choices ? v.choices.find((c) => c.value === choice) : v;
  const set = (field) => (e) => setForm({ ...form, [field]: e.target.type === "checkbox" ? e.target.checked : e.target.value });
  const invalidJSON = form.receipt.trim().startsWith("{") && !isJSON(form.receipt);
  const hasReceipt = form.receipt.trim() !== "" || form.external.trim() !== "";
  const missing = !chosen ? "Choose what you found." : !v.optional && !form.reason.trim() ? "Write how you know it." : chosen.receipt && !hasReceipt && !form.none ? "Give the receipt or the external id, or say that there is neither."
    : chosen.receipt && hasReceipt && form.none ? "There is a receipt or there is none." : invalidJSON ? "The receipt begins like JSON and is none." : many && form.typed.trim() !== String(flights.length) ? `Type ${flights.length} to confirm the number.` : "";

  const submit = async (e) => {
    e.preventDefault();
    if (missing || state.busy) return;
    setActor(form.actor);
    const body = { reason: form.reason.trim() };
    if (v.optional && !body.reason) delete body.reason;
    if (choice) body.result = choice;
    if (chosen.receipt && form.none) body.no_receipt = true;
    else if (chosen.receipt) {
      if (form.external.trim()) body.external_id = form.external.trim();
      if (form.receipt.trim()) Object.assign(body, { body_base64: base64(form.receipt), content_type: isJSON(form.receipt) ? "application/json" : "text/plain; charset=utf-8" });
    }
    const decision = JSON.stringify(body);
    if (made.current.decision !== decision) made.current = { decision, about: new Set() };
    setState({ busy: true, done: made.current.about.size, problem: null, text: "" });
    const sum = await decideAll(flights, v.path, body, made.current.about, (done) => setState((s) => ({ ...s, done })), gone), { problem } = sum;
    refreshAll();
    if (problem && !gone.current) return setState({ busy: false, done: 0, problem, text: many ? sum.text : "" });
    toast(many ? sum.text + (problem ? `: ${problem.message}` : "") : `${flights[0].key || flights[0].id}: ${problem ? problem.message : choice ? resultText(choice) : v.done}`, problem);
    if (!gone.current) onClose(true);
  };
  return html`<${Dialog} title=${many ? `${plural(flights.length, "flight")}: ${v.title}` : v.title} onClose=${onClose}>
    <form onSubmit=${submit}>
      ${many ? html`<${Samples} flights=${flights} />` : html`<p><${Name} of=${flights[0]} /> <span class="dim">${stateWords(flights[0].state)}, version ${flights[0].version}</span></p>`}
      ${v.choices && html`<fieldset class="choices"><legend class="hidden">${v.title}</legend>${v.choices.map((c) => html`<label class=${choice === c.value ? "chosen" : ""}>
        <input type="radio" name="choice" value=${c.value} checked=${choice === c.value} autofocus=${choice ? choice === c.value : c === v.choices[0]} onChange=${() => setChoice(c.value)} /> ${c.label}</label>`)}</fieldset>`}
      ${chosen && html`<p class=${v.danger ? "does danger" : "does"}>${chosen.does}</p>`}
      ${chosen && chosen.receipt && html`
        ${!many && html`<label>Receipt: the answer of the provider, as text or JSON<textarea name="receipt" rows="3" spellcheck=${false} value=${form.receipt} onInput=${set("receipt")}></textarea></label>
        <label>External id: the provider's name of the effect<input name="external" autocomplete="off" value=${form.external} onInput=${set("external")} /></label>`}
        <label class="check"><input type="checkbox" name="none" checked=${form.none} disabled=${many} onChange=${set("none")} /> There is neither: callers learn that it happened, and get no result</label>`}
      <label>${v.optional ? "Reason (may be empty)" : "Reason: how do you know?"}<input name="reason" autocomplete="off" autofocus=${!v.choices} value=${form.reason} onInput=${set("reason")} /></label>
      <label>Your name, as the history shows it<input name="actor" autocomplete="off" value=${form.actor} onInput=${set("actor")} placeholder="may be empty" /></label>
      ${many && html`<label>Type <b>${flights.length}</b> to decide about ${plural(flights.length, "flight")}<input name="typed" inputmode="numeric" autocomplete="off" value=${form.typed} onInput=${set("typed")} /></label>`}
      <${Problem} problem=${state.problem} />
      <div class="buttons"><span class="dim" aria-live="polite">${state.busy && many ? `${state.done} of ${flights.length}` : missing || state.text}</span>
        <button type="button" class="quiet" onClick=${() => onClose(false)}>Close</button>
        <button type="submit" class=${v.danger ? "act danger" : "act"} disabled=${Boolean(missing) || state.busy}>${state.busy ? "Asking…" : chosen ? chosen.act : "Decide"}</button></div>
    </form></${Dialog}>`;
}

function isJSON(t) {
  try {
    JSON.parse(t);
    return true;
  } catch {
    return false;
  }
}

const base64 = (t) => btoa(Array.from(new TextEncoder().encode(t), (b) => String.fromCharCode(b)).join(""));
