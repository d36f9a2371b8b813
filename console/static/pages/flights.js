// The search for flights: by key, id, text, action, state and age, in pages.
import { html, useState, useEffect, useRef, usePoll, useKeys, Problem, Empty, Table, Key, State, Time, Age } from "../ui.js";
import { list, session } from "../api.js";
import { stateWords, oneLine, doubtCause } from "../words.js";
import { go } from "../main.js";

const states = ["scheduled", "ready", "awaiting_approval", "running", "waiting", "in_doubt", "succeeded", "failed", "cancelled"];
const ages = [["", "of any age"], ["1h", "of the last hour"], ["24h", "of the last day"], ["7d", "of the last week"], ["30d", "of the last month"]];
const perPage = 100, requests = 20;

// load reads a page. The server examines a bounded number of flights for each answer, so a page can be short or empty without being the
// last: up to 20 answers are gathered, and next is where the search goes on.
async function load({ state, action, contains, external_id, since, cursor }) {
  const out = { flights: [], next: cursor };
  for (let i = 0; i < requests; i++) {
    const page = await list("/v1/flights", { state, action, contains, external_id, since, limit: perPage - out.flights.length, cursor: out.next });
    out.flights.push(...page.flights);
    out.next = page.next;
    if (!page.next || out.flights.length >= perPage) break;
  }
  return out;
}

const columns = [
  { name: "Flight", class: "wide", cell: (f) => html`<${Key} of=${f} />` },
  { name: "State", cell: (f) => html`<${State} state=${f.state} />${f.overlap && html` <span class="state in_doubt">overlap</span>`}` },
  { name: "Attempts", class: "right num", cell: (f) => f.attempts || 0 },
  { name: "Created", cell: (f) => html`<${Time} at=${f.created_at} />` },
  { name: "Age", class: "right", cell: (f) => html`<${Age} at=${f.created_at} />` },
  { name: "Outcome", class: "wide", cell: (f) => html`<span class="dim">${oneLine(f.receipt && (f.receipt.external_id || f.receipt.outcome) || doubtCause(f), 80)}</span>` },
];

export default function Flights({ params }) {
  const [typed, setTyped] = useState(params.contains || ""), [action, setAction] = useState(params.action || ""), [at, setAt] = useState(-1);
  const { data, problem } = usePoll(() => load(params), params.contains || params.external_id ? 60000 : 5000, [session.namespace, params]);
  const chosen = (params.state || "").split(",").filter(Boolean), table = useRef(null);
  const set = (change) => {
    setAt(-1);
    go("flights", { ...params, cursor: "", ...change });
  };
  const search = (e) => {
    e.preventDefault();
    const text = typed.trim();
    e.target.querySelector("input").blur(); // j and k move in the list from here on
    if (/^fl_/.test(text)) go("flight", { id: text });
    else set({ contains: text, external_id: "", action: action.trim() });
  };
  useEffect(() => {
    setTyped(params.contains || ""); // the way back leads to another search
    setAction(params.action || "");
  }, [params.contains, params.action]);
  useEffect(() => {
    const row = table.current && table.current.querySelector("tr.selected");
    if (row) row.scrollIntoView({ block: "nearest" });
  }, [at]);
  const flights = data ? data.flights : [];
  useKeys([["j", "the next flight", () => setAt(Math.min(flights.length - 1, at + 1))], ["k", "the flight before", () => setAt(Math.max(0, at - 1))],
    ["Enter", "open it", () => flights[at] && go("flight", { id: flights[at].id })], ["n", "the next page", () => data && data.next && go("flights", { ...params, cursor: data.next })], ["p", "the page before", () => params.cursor && history.back()]]);
  const filtered = params.state || params.action || params.contains || params.external_id || params.since;
  return html`<h1>Flights</h1>
    <form class="filters" role="search" onSubmit=${search}>
      <input type="search" class="grow" aria-label="Key, id, or a part of the key" placeholder="key, id, or a part of the key" value=${typed} onInput=${(e) => setTyped(e.target.value)} />
      <input aria-label="Action" placeholder="action" autocomplete="off" value=${action} onInput=${(e) => setAction(e.target.value)} />
      <select aria-label="Age" value=${params.since || ""} onChange=${(e) => set({ since: e.target.value })}>${ages.map(([value, text]) => html`<option value=${value}>${text}</option>`)}</select>
      <button>Search</button>${filtered && html`<button type="button" class="quiet" onClick=${() => {
        setTyped("");
        setAction("");
        go("flights");
      }}>Clear</button>`}
    </form>
    <fieldset class="chips"><legend class="hidden">States</legend>${states.map((s) => html`<label key=${s} class=${chosen.includes(s) ? "chosen" : ""}><input type="checkbox" checked=${chosen.includes(s)}
      onChange=${(e) => set({ state: states.filter((x) => x === s ? e.target.checked : chosen.includes(x)).join(",") })} />${stateWords(s)}</label>`)}</fieldset>
    <${Problem} problem=${problem} stale=${data !== null} />
    ${params.contains && params.contains.split("/").length > 2 && html`<p class="hint">A flight whose retention is over is in no list: <a href=${"#/flight?" + new URLSearchParams({ key: params.contains })}>open the key ${params.contains}</a></p>`}
    ${params.contains && html`<p class="hint">These are the flights whose key has this text. <a href=${"#/flights?" + new URLSearchParams({ external_id: params.contains })}>Search receipts with the external id ${params.contains}</a></p>`}
    ${params.external_id && html`<p class="hint">These are the flights whose receipt, or evidence, has the external id <code>${params.external_id}</code>.</p>`}
    <div ref=${table} aria-busy=${data === null && !problem ? "true" : null} class="stable">${flights.length > 0 && html`<${Table} label="Flights" columns=${columns} rows=${flights} id=${(f) => f.id} selected=${at} />`}
    ${data && flights.length === 0 && html`<${Empty} title=${data.next ? "Nothing yet: the search examined a part of the flights" : "No flight matches"} />`}</div>
    <p class="pager">${params.cursor && html`<a href="#" onClick=${(e) => {
      e.preventDefault();
      history.back();
    }}>Page before</a>`} ${data && data.next && html`<a href=${"#/flights?" + new URLSearchParams({ ...params, cursor: data.next })}>${flights.length < perPage ? "Search on" : "Next page"}</a>`}</p>`;
}
