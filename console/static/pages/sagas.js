// The list of sagas: by state and name, newest first, in pages.
import { html, useState, useKeys, usePoll, Empty, Table, State, Time, Age, Name } from "../ui.js";
import { list, session } from "../api.js";
import { stateWords, oneLine } from "../words.js";
import { Heading, span, timed } from "../page.js";
import { go } from "../main.js";

const states = ["running", "committed", "undoing", "in_doubt", "done", "undone", "cancelled"];
const perPage = 50, requests = 6;

// load reads a page. An answer can be short or empty without being the last: up to six are gathered.
async function load({ state, name, cursor }) {
  const out = { sagas: [], next: cursor };
  for (let i = 0; i < requests; i++) {
    const page = await list("/v1/sagas", { state, name, limit: perPage - out.sagas.length, cursor: out.next });
    out.sagas.push(...page.sagas);
    out.next = page.next;
    if (!page.next || out.sagas.length >= perPage) break;
  }
  return out;
}

export const sagaLink = (s) => "#/saga?" + new URLSearchParams({ id: s.id });

const columns = [
  { name: "Saga", class: "wide", cell: (s) => html`<a href=${sagaLink(s)}><${Name} of=${s} /></a>` },
  { name: "State", cell: (s) => html`<${State} state=${s.state} />` },
  { name: "Definition", cell: (s) => html`<span class="dim">${s.definition}</span>` },
  { name: "Started", cell: (s) => html`<${Time} at=${s.created_at} />` },
  { name: "Took", class: "right num", cell: (s) => s.finished_at ? span(Date.parse(s.finished_at) - Date.parse(s.created_at)) : html`<${Age} at=${s.created_at} suffix=" so far" />` },
  { name: "Why", class: "wide", cell: (s) => html`<span class="dim">${oneLine(s.cause || s.cancel && s.cancel.reason || "", 90)}</span>` },
];

export default function Sagas({ params }) {
  const [name, setName] = useState(params.name || ""), [at, setAt] = useState(-1);
  const { data, problem } = usePoll(timed(() => load(params)), 3000, [session.namespace, params]);
  const sagas = data ? data.sagas : [], chosen = (params.state || "").split(",").filter(Boolean);
  const set = (change) => {
    setAt(-1);
    go("sagas", { ...params, cursor: "", ...change });
  };
  useKeys([["j", "the next saga", () => setAt(Math.min(sagas.length - 1, at + 1))], ["k", "the saga before", () => setAt(Math.max(0, at - 1))],
    ["Enter", "open it", () => sagas[at] && go("saga", { id: sagas[at].id })]]);
  return html`<${Heading} title="Sagas" data=${data} problem=${problem} />
    <form class="filters" role="search" onSubmit=${(e) => {
      e.preventDefault();
      const text = name.trim();
      if (/^fl_/.test(text)) go("saga", { id: text });
      else if (text.split("/").length > 2) go("saga", { key: text });
      else set({ name: text });
    }}><input type="search" class="grow" aria-label="Name, key or id of the saga" placeholder="name, key or id of the saga, as in trip" value=${name} onInput=${(e) => setName(e.target.value)} /><button>Search</button></form>
    <fieldset class="chips"><legend class="hidden">States</legend>${states.map((s) => html`<label key=${s} class=${chosen.includes(s) ? "chosen" : ""}><input type="checkbox" checked=${chosen.includes(s)}
      onChange=${(e) => set({ state: states.filter((x) => x === s ? e.target.checked : chosen.includes(x)).join(",") })} />${stateWords(s)}</label>`)}</fieldset>
    <div class="stable" aria-busy=${data === null && !problem ? "true" : null}>${sagas.length > 0 && html`<${Table} label="Sagas" columns=${columns} rows=${sagas} id=${(s) => s.id} selected=${at} />`}
    ${data && sagas.length === 0 && (data.next ? html`<${Empty} title="Nothing yet: the search examined a part of the sagas" />`
      : params.state || params.name ? html`<${Empty} title="No saga matches"><p>${params.name && html`<a href=${"#/flights?" + new URLSearchParams({ contains: params.name })}>Look for keys with ${params.name}</a>`}</p></${Empty}>` : html`<${Empty} title="There are no sagas"><p class="dim">A saga is a list of steps that all happen, or are undone: flightd sagas start</p></${Empty}>`)}</div>
    <p class="pager">${params.cursor && html`<a href="#/sagas" onClick=${(e) => {
      e.preventDefault();
      history.back();
    }}>Page before</a>`} ${data && data.next && html`<a href=${"#/sagas?" + new URLSearchParams({ ...params, cursor: data.next })}>${sagas.length < perPage ? "Search on" : "Next page"}</a>`}</p>`;
}
