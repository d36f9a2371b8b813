// Who decided what, which tokens exist, and where notifications go. Nothing is changed here: flightd token and flightd notify do that.
import { html, usePoll, Section, Table, Time, Left } from "../ui.js";
import { get, may, session } from "../api.js";
import { Heading, timed } from "../page.js";
import { keyParts, flightLink } from "../words.js";

const perPage = 50;

const load = async (before) => {
  const [audit, tokens, notify] = await Promise.all([get("/v1/audit", { before, limit: perPage }), may("admin") ? get("/v1/tokens") : null, may("admin") ? get("/v1/notify") : null]);
  return { audit, tokens, notify };
};

const namespaceOf = (name) => name === "*" ? "all" : name;

// subject links to a flight. A document has a kind and a name, and no page.
const subject = (e) => keyParts(e.subject).id ? html`<a class="key" href=${flightLink({ key: e.subject })}>${e.subject}</a>` : html`<span class="key">${e.subject || ""}</span>`;

const auditColumns = [
  { name: "At", cell: (e) => html`<${Time} at=${e.at} />` },
  { name: "Verb", cell: (e) => html`<b>${e.verb}</b>` },
  { name: "Namespace", cell: (e) => namespaceOf(e.namespace) },
  { name: "Subject", class: "wide", cell: subject },
  { name: "By", cell: (e) => e.actor || "" },
  { name: "Reason", class: "wide", cell: (e) => html`<span class="dim">${e.reason || ""}</span>` },
];

const tokenColumns = [
  { name: "Token", cell: (t) => html`<b>${t.name}</b>` },
  { name: "Namespace", cell: (t) => namespaceOf(t.namespace) },
  { name: "Verbs", class: "wide", cell: (t) => t.verbs.join(", ") || html`<span class="soon">its document cannot be read</span>` },
  { name: "Secrets", class: "right num", cell: (t) => t.secrets },
  { name: "Created", cell: (t) => html`<${Time} at=${t.created_at} />` },
  { name: "Expires", cell: (t) => t.expires_at ? html`<${Left} at=${t.expires_at} />` : "never" },
];

const targetColumns = [
  { name: "Target", cell: (n) => html`<b>${n.name}</b>` },
  { name: "Address", cell: (n) => html`<span class="key">${n.url}</span>` },
  { name: "Events", class: "wide", cell: (n) => (n.events || ["all"]).join(", ") },
  { name: "Namespaces", cell: (n) => (n.namespaces || ["all"]).map(namespaceOf).join(", ") },
  { name: "State", class: "wide", cell: (n) => n.failing ? html`<span class="soon">fails since <${Time} at=${n.failing.since} />: ${n.failing.error}</span>` : "ok" },
];

const List = ({ title, none, ...table }) => html`<${Section} title=${title}>${table.rows.length ? html`<div class="scroll"><${Table} label=${title} ...${table} /></div>` : html`<p class="dim">${none}</p>`}</${Section}>`;

export default function Admin({ params }) {
  const { data, problem } = usePoll(timed(() => load(params.before)), 5000, [session.namespace, params.before]);
  return html`<${Heading} title="Admin" data=${data} problem=${problem} />
    ${data && data.notify && html`<${List} title="Targets of notifications" none="Nobody is notified: flightd notify put" columns=${targetColumns} rows=${data.notify.targets} id=${(n) => n.name} />`}
    ${data && data.tokens && html`<${List} title="Tokens" none="There are no tokens." columns=${tokenColumns} rows=${data.tokens.tokens} id=${(t) => t.namespace + "/" + t.name} />`}
    ${data && html`<${List} title="Audit log" none="No decision is recorded on this page." columns=${auditColumns} rows=${data.audit.entries} id=${(e) => e.version + e.subject} />
    <p class="pager">${params.before && html`<a href="#/admin">The newest</a>`} ${data.audit.next && html`<a href=${"#/admin?" + new URLSearchParams({ before: data.audit.next })}>Older</a>`}</p>`}`;
}
