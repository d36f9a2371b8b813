// A list of flights that wait for a person, the oldest first, with the chosen one beside it; doubts and approvals are inboxes.
import { html, useState, usePoll, useKeys, useEffect, useRef, Problem, Empty, Name, Age } from "../ui.js";
import { all, session, may } from "../api.js";
import { keyParts, plural, age } from "../words.js";
import { Decide, verb } from "../verbs.js";
import { FlightView } from "./flightview.js";
import { go } from "../main.js";

const most = 2000, shownAtOnce = 200;

// Inbox: page is the name of the page, query its path and parameters, since(f) the begin of a flight's age, verbs the decisions about
// many, line(f) the second line of a flight.
export function Inbox({ page, params, title, query, since, verbs, line, empty, waits }) {
  const [path, filter] = query;
  const { data, problem } = usePoll(async () => {
    const { rows, more } = await all(path, filter, "flights", most);
    return { rows: rows.sort((a, b) => Date.parse(since(a)) - Date.parse(since(b))), more };
  }, 5000, [session.namespace]);
  const [selected, setSelected] = useState(new Map()), [open, setOpen] = useState(null), [whole, setWhole] = useState(false);
  const list = useRef(null);
  const rows = data ? data.rows.filter((f) => (!params.action || keyParts(f.key).action === params.action) && (!params.text || f.key.includes(params.text))) : [];
  const actions = [...new Set([...data ? data.rows.map((f) => keyParts(f.key).action) : [], ...params.action ? [params.action] : []])].sort(), filtered = params.text || params.action;
  const wide = useWide(), chosen = params.id || wide && rows[0] && rows[0].id, at = rows.findIndex((f) => f.id === chosen);
  const show = (id) => go(page, { ...params, id }, true);
  const move = (by) => rows.length && show(rows[Math.min(rows.length - 1, Math.max(0, at + by))].id);
  const marked = rows.filter((f) => selected.has(f.id));
  const mark = (f, on) => {
    const next = new Map(selected);
    on ? next.set(f.id, true) : next.delete(f.id);
    setSelected(next);
  };
  const markAll = (on) => setSelected(on ? new Map(rows.map((f) => [f.id, true])) : new Map());
  useKeys([["j", "the next flight", () => move(1)], ["k", "the flight before", () => move(-1)], ["x", "select it", () => rows[at] && mark(rows[at], !selected.has(chosen))],
    ["*", "select all, or none", () => markAll(marked.length < rows.length)], ["Enter", "open it", () => chosen && go("flight", { id: chosen })],
    ...verbs.map((name) => [verb(name).key.toUpperCase(), `${verb(name).label.replace("…", "").toLowerCase()} those selected`, () => marked.length && may("operate") && setOpen({ name, flights: marked })])]);
  useEffect(() => {
    if (chosen && !params.id) show(chosen); // it stays when the list changes, and so does a dialog about it
  });
  useEffect(() => {
    const row = list.current && list.current.querySelector(".item.selected");
    if (row) row.scrollIntoView({ block: "nearest" });
  }, [chosen]);
  const oldest = rows.length > 0 && age(Date.now() - Date.parse(since(rows[0])));
  return html`<div class=${params.id ? "inbox open" : "inbox"}>
    <div class="list" ref=${list}>
      <h1>${title} ${data && html`<span class="dim">${rows.length}${data.more ? "+" : ""}${oldest && `, the oldest for ${oldest}`}</span>`}</h1>
      <div class="filters">
        <input type="search" aria-label="Filter by text of the key" placeholder="part of the key" value=${params.text || ""} onInput=${(e) => go(page, { ...params, text: e.target.value, id: "" }, true)} />
        <select aria-label="Action" value=${params.action || ""} onChange=${(e) => go(page, { ...params, action: e.target.value, id: "" }, true)}><option value="">all actions</option>${actions.map((a) => html`<option value=${a}>${a}</option>`)}</select>
      </div>
      <${Problem} problem=${problem} stale=${data !== null} />
      ${rows.length > 0 && html`<div class="bulk"><label class="check"><input type="checkbox" checked=${marked.length === rows.length} onChange=${(e) => markAll(e.target.checked)} /> ${marked.length ? `${marked.length} selected` : `select all ${rows.length}`}</label>
        ${may("operate") && verbs.map((name) => html`<button key=${name} disabled=${marked.length === 0} data-bulk=${name} onClick=${() => setOpen({ name, flights: marked })}>${verb(name).label}</button>`)}</div>`}
      <ul class="items">${(whole ? rows : rows.slice(0, shownAtOnce)).map((f) => html`<li key=${f.id} class=${f.id === chosen ? "item selected" : "item"}>
        <input type="checkbox" aria-label=${"Select " + f.key} checked=${selected.has(f.id)} onChange=${(e) => mark(f, e.target.checked)} />
        <a href=${`#/${page}?${new URLSearchParams({ ...params, id: f.id })}`} aria-current=${f.id === chosen ? "true" : null}><span class="top"><${Name} of=${f} /><${Age} at=${since(f)} /></span><span class="under">${line(f)}</span></a></li>`)}</ul>
      ${!whole && rows.length > shownAtOnce && html`<button class="quiet" onClick=${() => setWhole(true)}>Show the other ${rows.length - shownAtOnce}</button>`}
      ${data && data.more && html`<p class="hint">More than ${most} ${waits}; perhaps the oldest are not among these. Choose a namespace, or decide about these first.</p>`}
      ${data && rows.length === 0 && html`<${Empty} title=${filtered ? `${empty[0]} with ${params.text ? "this text in its key" : `the action ${params.action}`}` : empty[0]}><p class="dim">${filtered && data.rows.length ? html`<a href=${"#/" + page}>Show the other ${data.rows.length}</a>` : empty[1]}</p></${Empty}>`}
    </div>
    <div class="detail">${chosen ? html`<p class="back"><a href=${"#/" + page}>All ${title.toLowerCase()}</a></p><${FlightView} key=${chosen} of=${{ id: chosen }} heading="h2" />` : null}</div>
    ${open && html`<${Decide} ...${open} onClose=${(done) => {
      setOpen(null);
      if (done) setSelected(new Map());
    }} />`}
  </div>`;
}

const width = matchMedia("(min-width: 1000px)");
function useWide() {
  const [wide, setWide] = useState(width.matches);
  useEffect(() => {
    const change = () => setWide(width.matches);
    width.addEventListener("change", change);
    return () => width.removeEventListener("change", change);
  }, []);
  return wide;
}
