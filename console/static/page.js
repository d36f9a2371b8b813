// What the pages Sagas, Queues, Live and Cluster share.
import { html, useState, useGone, Age, Dialog, Problem, toast, refreshAll } from "./ui.js";
import { session, setActor } from "./api.js";
import { age } from "./words.js";

// span is a duration with tenths below a minute: "45 ms", "1.3 s", "4 min".
export const span = (ms) => ms < 1000 ? `${Math.max(0, Math.round(ms))} ms` : ms < 60000 ? `${(ms / 1000).toFixed(1)} s` : age(ms);

// timed adds to data when it was read.
export const timed = (load) => async () => ({ ...await load(), at: new Date().toISOString() });

// Heading is the title of a page. While requests fail, as during a change of leader, it says so in the same line, and the data stays.
export function Heading({ title, data, problem, children }) {
  return html`<div class="heading"><h1>${title}</h1>${children}
      <span class="stale" role="status">${problem && data && html`${problem.title || "The page has a fault"} <code>${problem.code || problem.name}</code>: shown is the answer of <${Age} at=${data.at} suffix=" ago" />`}</span></div>
    ${problem && !data && html`<${Problem} problem=${problem} />`}`;
}

// Ask is the dialog of a decision with a reason. does says what it will do; submit(reason) does it, and returns what is said then.
export function Ask({ title, does, act, danger, submit, onClose, children }) {
  const [form, setForm] = useState({ reason: "", actor: session.actor }), [state, setState] = useState({ busy: false, problem: null }), gone = useGone();
  const set = (field) => (e) => setForm({ ...form, [field]: e.target.value });
  const decide = async (e) => {
    e.preventDefault();
    if (!form.reason.trim() || state.busy) return;
    setActor(form.actor);
    setState({ busy: true, problem: null });
    try {
      toast(await submit(form.reason.trim()));
      refreshAll();
      if (!gone.current) onClose();
    } catch (problem) {
      refreshAll();
      gone.current ? toast(`${title} ${problem.message}`, true) : setState({ busy: false, problem });
    }
  };
  return html`<${Dialog} title=${title} onClose=${onClose}><form onSubmit=${decide}>
    <p class=${danger ? "does danger" : "does"}>${does}</p>${children}
    <label>Reason<input name="reason" autocomplete="off" autofocus value=${form.reason} onInput=${set("reason")} /></label>
    <label>Your name, as the history shows it<input name="actor" autocomplete="off" value=${form.actor} onInput=${set("actor")} placeholder="may be empty" /></label>
    <${Problem} problem=${state.problem} />
    <div class="buttons"><span class="dim">${form.reason.trim() ? "" : "Write why."}</span><button type="button" class="quiet" onClick=${onClose}>Close</button>
      <button type="submit" class=${danger ? "act danger" : "act"} disabled=${!form.reason.trim() || state.busy}>${state.busy ? "Asking…" : act}</button></div>
  </form></${Dialog}>`;
}
