// What pages are built from. Text reaches the page through html only, which never makes markup of it.
//
//   usePoll(load, ms, deps)   {data, problem, reload}: load() now, every ms while the page is seen, and after each decision; data is null until the
//                             first answer for these deps
//   useKeys(list)             shortcuts of a page: [[key, what it does, f], …]; the keys are shown by "?"
//   Table, Dialog, Problem, State, Time, Age, Key, Code, Facts, Section, Empty, toast, refreshAll
import { html, render, useState, useEffect, useLayoutEffect, useRef, useCallback, useErrorBoundary } from "./vendor/preact-htm.js";
import { session } from "./api.js";
import { age, moment, both, keyParts, flightLink, stateWords, indent } from "./words.js";

export { html, render, useState, useEffect, useRef, useCallback, useErrorBoundary };

// A store is a value that components share.
function store(value) {
  const watchers = new Set();
  return {
    get: () => value,
    set: (next) => {
      value = next;
      watchers.forEach((f) => f(next));
    },
    use: () => {
      const [seen, see] = useState(value);
      useEffect(() => {
        see(value);
        watchers.add(see);
        return () => watchers.delete(see);
      }, []);
      return seen;
    },
  };
}

// utc: times are shown in UTC.
export const utc = store(sessionStorage.getItem("utc") === "1");
export function setUTC(on) {
  sessionStorage.setItem("utc", on ? "1" : "0");
  utc.set(on);
}

const now = store(Date.now());
setInterval(() => document.hidden || now.set(Date.now()), 1000);

const refreshed = store(0);
export const refreshAll = () => refreshed.set(refreshed.get() + 1);

// usePoll keeps the last answer when a request fails, and says so in problem: a page does not become empty while a node restarts.
export function usePoll(load, ms, deps = []) {
  const key = JSON.stringify(deps);
  const [state, setState] = useState({ key, data: null, problem: null });
  const round = useRef(0), latest = useRef(null), count = refreshed.use();
  latest.current = { key, load };
  const run = useCallback(async () => {
    const mine = ++round.current, { key, load } = latest.current;
    try {
      const data = await load();
      if (mine === round.current) setState({ key, data, problem: null });
    } catch (problem) {
      if (problem.name !== "AbortError" && mine === round.current) setState((s) => ({ key, data: s.key === key ? s.data : null, problem }));
    }
  }, []);
  useEffect(() => {
    let timer;
    const tick = async () => {
      if (!document.hidden) await run();
      timer = setTimeout(tick, ms);
    };
    tick();
    const seen = () => document.hidden || run();
    document.addEventListener("visibilitychange", seen);
    return () => {
      round.current++;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", seen);
    };
  }, [key, count]);
  return state.key === key ? { ...state, reload: run } : { data: null, problem: null, reload: run };
}

// Shortcuts. The last list that has a key counts, so a page comes before the shell.
const lists = new Set();
export const shortcuts = () => [...lists].flatMap((l) => l.current).filter(([key]) => key);
let pending = "";
document.addEventListener("keydown", (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || e.target.closest("input, textarea, select, dialog[open]")) return;
  const pressed = pending + e.key;
  pending = e.key === "g" && !pending ? "g " : "";
  const found = shortcuts().reverse().find(([key]) => key === pressed);
  if (found && !(e.key === "Enter" && e.target.closest("a, button, summary"))) {
    e.preventDefault();
    found[2]();
  }
});
export function useKeys(list) {
  const ref = useRef(list);
  ref.current = list;
  useEffect(() => {
    lists.add(ref);
    return () => lists.delete(ref);
  }, []);
}

// useGone returns a ref whose value is true when the component is no longer shown.
export function useGone() {
  const gone = useRef(false);
  useEffect(() => () => {
    gone.current = true;
  }, []);
  return gone;
}

// Toasts say what became of a decision, also to a screen reader.
const toasts = store([]);
export function toast(text, bad) {
  const t = { text, bad, id: Math.random() };
  toasts.set([...toasts.get(), t]);
  setTimeout(() => toasts.set(toasts.get().filter((x) => x !== t)), bad ? 12000 : 6000);
}
export const Toasts = () => html`<div class="toasts" role="status" aria-live="polite">${toasts.use().map((t) => html`<p key=${t.id} class=${t.bad ? "bad" : ""}>${t.text}</p>`)}</div>`;

// Problem shows an error with its code and what to do. stale: what is shown below is the last answer.
export function Problem({ problem, stale }) {
  if (!problem) return null;
  return html`<div class="problem" role="alert">
    <p><strong>${problem.title || "The page has a fault"}</strong> <code>${problem.code || problem.name}</code>${stale && html` <span class="dim">the last answer is shown</span>`}</p>
    ${problem.detail && html`<p>${problem.detail}</p>`}
    ${!problem.code && html`<p>${problem.message}</p>`}
    ${(problem.errors || []).filter((e) => !(problem.detail || "").includes(e.detail)).map((e) => html`<p><code>${e.pointer || e.header || e.parameter || "request"}</code> ${e.detail}</p>`)}
    ${problem.hint && html`<p class="hint">${problem.hint}</p>`}
    ${problem.request_id && html`<p class="dim">request ${problem.request_id}</p>`}
  </div>`;
}

// Missing is the page for a flight or a saga that does not exist. It shows the requested key or id, and where to look.
export const Missing = ({ what, of, problem }) => html`<h1 class="key">${of.key || of.id}</h1><${Problem} problem=${problem} />
  <p>${of.key && html`<a href=${"#/flights?" + new URLSearchParams({ contains: of.key.split("/").slice(of.key.split("/").length > 2 ? 2 : 1).join("/") })}>Look for keys with this id</a> · `}<a href=${`#/${what}s`}>All ${what}s</a></p>`;

export const State = ({ state }) => html`<span class="state ${state}">${stateWords(state)}</span>`;

// Time is a moment; its title has it in both zones. full: with the day and both zones.
export function Time({ at, full }) {
  const inUTC = utc.use();
  if (!at) return null;
  return html`<time datetime=${at} title=${both(at)} class=${full ? "full" : ""}>${full ? html`<span>${moment(at, inUTC, true)}</span> <span class="dim">${moment(at, !inUTC, true)}${inUTC ? " local" : ""}</span>` : moment(at, inUTC)}</time>`;
}

export function Age({ at, suffix }) {
  const t = now.use();
  if (!at) return null;
  return html`<time datetime=${at} title=${both(at)} class="num">${age(t - Date.parse(at))}${suffix || ""}</time>`;
}

// Left is the time until a deadline.
export function Left({ at }) {
  const t = now.use();
  if (!at) return null;
  const ms = Date.parse(at) - t;
  return html`<time datetime=${at} title=${both(at)} class="num ${ms < 300000 ? "soon" : ""}">${ms > 0 ? age(ms) + " left" : "over"}</time>`;
}

// Name is a key: the namespace is dimmed, and left out where all rows have it.
export function Name({ of: f }) {
  if (!f.key) return html`<span class="key">${f.id}</span>`;
  const { namespace, action, id } = keyParts(f.key);
  return html`<span class="key">${session.namespace !== namespace && html`<span class="dim">${namespace}/</span>`}${action}/<b>${id}</b></span>`;
}
export const Key = ({ of: f }) => html`<a href=${flightLink(f)}><${Name} of=${f} /></a>`;

export function Copy({ text, label }) {
  const copy = () => navigator.clipboard ? navigator.clipboard.writeText(text).then(() => toast("Copied"), () => toast("The browser did not copy it", true)) : toast("The browser copies over HTTPS only", true);
  return html`<button class="quiet" title="Copy ${label}" aria-label="Copy ${label}" onClick=${copy}>copy</button>`;
}

// Code is a stored body: JSON is laid out, all digits are kept, and nothing of it becomes markup.
export const Code = ({ text, empty }) => text ? html`<pre tabindex="0">${indent(text)}</pre>` : html`<p class="dim">${empty}</p>`;

export const Facts = ({ rows }) => html`<dl class="facts">${rows.filter(([, value]) => value || value === 0).map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
export const Section = ({ title, extra, children }) => html`<section><h3>${title}${extra && html` <span class="dim">${extra}</span>`}</h3>${children}</section>`;
export const Empty = ({ title, children }) => html`<div class="empty"><p><strong>${title}</strong></p>${children}</div>`;

// Table: columns are [{name, cell(row), class}]; on a phone a row is a block, in which each cell has its column's name.
export function Table({ columns, rows, id, selected, label }) {
  return html`<table class="rows" aria-label=${label}>
    <thead><tr>${columns.map((c) => html`<th scope="col" class=${c.class || ""}>${c.name}</th>`)}</tr></thead>
    <tbody>${rows.map((row, i) => html`<tr key=${id ? id(row) : i} class=${selected === i ? "selected" : ""} aria-current=${selected === i ? "true" : null}>
      ${columns.map((c) => html`<td class=${c.class || ""} data-name=${c.name}>${c.cell(row)}</td>`)}</tr>`)}</tbody>
  </table>`;
}

// Dialog is modal: the browser keeps the focus inside, and Escape closes it. A key that was held when it opened decides nothing in it.
export function Dialog({ title, onClose, children }) {
  const ref = useRef(null);
  useLayoutEffect(() => {
    const before = document.activeElement, dialog = ref.current;
    dialog.showModal();
    return () => {
      dialog.close();
      if (before && before.isConnected) before.focus();
    };
  }, []);
  return html`<dialog ref=${ref} aria-labelledby="dialog-title" onKeyDown=${(e) => e.repeat && e.key === "Enter" && e.target.tagName !== "TEXTAREA" && e.preventDefault()} onCancel=${(e) => {
    e.preventDefault();
    onClose();
  }}><h2 id="dialog-title">${title}</h2>${children}</dialog>`;
}
