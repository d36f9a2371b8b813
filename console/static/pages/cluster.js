// The nodes as the leader sees them, and what the node that answers says of itself.
import { html, usePoll, Table, Time, Left, Facts, Section } from "../ui.js";
import { get, session } from "../api.js";
import { age, plural, bytes } from "../words.js";
import { Heading, timed } from "../page.js";

const size = (n) => n < 1 << 20 ? bytes(n) : n < 1 << 30 ? (n / (1 << 20)).toFixed(1) + " MiB" : (n / (1 << 30)).toFixed(1) + " GiB";
const clockLimit = 250; // milliseconds; a clock that is farther off is marked

// optional: a part that the token may not see, or that the node does not have, is not shown. A node that is not ready says so in a problem.
const optional = (path, params) => get(path, params).catch((problem) => {
  if (problem.checks) return problem;
  if (problem.status >= 500 || problem.code === "unreachable") throw problem;
  return null;
});

const load = async () => {
  const [cluster, ready, restore, version] = await Promise.all([get("/v1/cluster"), optional("/readyz", { verbose: "true" }), optional("/v1/restore"), get("/version")]);
  return { cluster, ready, restore, version, read: Date.now() };
};

const columns = [
  { name: "Node", cell: (n) => html`<b>${n.name}</b>` },
  { name: "Role", cell: (n) => html`<span class="state ${n.role === "leader" ? "running" : n.role === "unreachable" ? "failed" : "done"}">${n.role}</span>` },
  { name: "Behind", class: "right num", cell: (n) => n.role === "unreachable" ? "-" : n.behind.toLocaleString("en-US") },
  { name: "Applied", class: "right num", cell: (n) => (n.applied || 0).toLocaleString("en-US") },
  { name: "Clock", class: "right num", cell: (n) => n.role === "unreachable" ? "-" : html`<span class=${Math.abs(n.clock_ms) > clockLimit ? "soon" : ""}>${n.clock_ms > 0 ? "+" : ""}${n.clock_ms} ms</span>` },
  { name: "etcd", class: "num", cell: (n) => n.etcd_ok ? "ok" : html`<span class="soon">no answer</span>` },
  { name: "Seen", class: "right num", cell: (n) => n.seen_before_ms < 2000 ? "now" : age(n.seen_before_ms) + " ago" },
  { name: "Version", class: "num", cell: (n) => n.version || "" },
  { name: "Address", cell: (n) => html`<span class="dim">${n.address || ""}</span>` },
  { name: "Problem", class: "wide", cell: (n) => n.problem ? html`<span class="soon">${n.problem}</span>` : "" },
];

// state says in a sentence what the nodes can bear.
function state({ leader, nodes }) {
  const reachable = nodes.filter((n) => n.role !== "unreachable").length, majority = Math.floor(nodes.length / 2) + 1, spare = reachable - majority;
  const damaged = nodes.filter((n) => n.disk_damaged).map((n) => n.name).join(", "), advice = damaged && ` The disk of ${damaged} is damaged: flightd doctor says what to do.`;
  if (nodes.length === 1) return [damaged ? "in_doubt" : "lone", "a lone node", "While it is down, nobody is served; its disk is the only copy of the ledger." + advice];
  if (!leader) return ["in_doubt", "no leader", "The nodes elect one. Until then opens and decisions wait, and receipts are answered."];
  return [spare > 0 && !damaged ? "done" : "in_doubt", `${reachable} of ${nodes.length} nodes`, (spare > 0 ? `${leader} leads. Callers are served also if ${plural(spare, "more node")} is lost.` : `${leader} leads. If one more node is lost, nobody is served: bring a node back.`) + advice];
}

// backup says when a node has last sent a backup. Nodes forget that when they end.
function backup(nodes) {
  const last = nodes.filter((n) => n.backed_up_at).sort((a, b) => Date.parse(b.backed_up_at) - Date.parse(a.backed_up_at))[0];
  return last ? html`<${Time} at=${last.backed_up_at} full /> <span class="dim">by ${last.name}</span>` : "none since the nodes started";
}

function About({ data }) {
  const { ready, version } = data, node = ready && ready.node, etcd = node && node.etcd, ledger = ready && ready.ledger;
  return html`<${Section} title="The node that answers" extra=${session.node}><${Facts} rows=${[
    ["parts", ready && ready.checks && html`<ul class="plain">${ready.checks.map((c) => html`<li key=${c.name}><span class="state ${c.ok ? "done" : "failed"}">${c.ok ? "ok" : "not ready"}</span> ${c.name} <span class="dim">${c.error || ""}</span></li>`)}</ul>`],
    ["version", `${version.version}, feature level ${version.feature_level || 0}`], ["clock", node && html`<${Time} at=${node.time} full />${node.ledger_time && html` <span class="dim">the ledger's is ${Date.parse(node.ledger_time) - Date.parse(node.time)} ms ahead</span>`}`],
    ["this browser", node && Math.abs(data.read - Date.parse(node.time)) > 2000 && `its clock is ${age(Math.abs(data.read - Date.parse(node.time)))} ${data.read > Date.parse(node.time) ? "ahead" : "behind"}: ages on these pages are off`],
    ["data", node && node.data], ["disk", node && node.disk_free && `${size(node.disk_free)} free; the ledger has ${size(node.ledger_bytes || 0)}`],
    ["certificate", node && node.certificate_expires_at && html`ends <${Time} at=${node.certificate_expires_at} full /> <${Left} at=${node.certificate_expires_at} />`],
    ["spooled reports", node && node.spool && `${node.spool.waiting} wait for the ledger${node.spool.quarantined ? `, ${node.spool.quarantined} cannot be read: a person must check them` : ""}`],
    ["etcd", etcd && `${etcd.version}, ${size(etcd.in_use)} in use${etcd.quota ? ` of ${size(etcd.quota)}` : ""}${etcd.problem ? "; " + etcd.problem : ""}`],
    ["flights", ledger && ledger.flights && `${ledger.flights.toLocaleString("en-US")}, ${ledger.in_doubt || 0} in doubt`], ["newest flight", ledger && ledger.newest && html`<${Time} at=${ledger.newest} full />`]]} /></${Section}>`;
}

export default function Cluster() {
  const { data, problem } = usePoll(timed(load), 2000, []);
  if (!data) return html`<${Heading} title="Cluster" problem=${problem} />`;
  const [kind, words, text] = state(data.cluster), restore = data.restore;
  return html`<${Heading} title="Cluster" data=${data} problem=${problem} />
    <p class="says"><span class="state ${kind}">${words}</span><span>${text}</span></p>
    ${restore && restore.reconciling && html`<p class="problem"><strong>Restored from a backup:</strong> nothing opens before the restore is finished; ${plural(restore.asked, "key was", "keys were")} asked for since.</p>`}
    <div class="scroll"><${Table} label="Nodes" columns=${columns} rows=${data.cluster.nodes} id=${(n) => n.name} /></div>
    <div class="columns"><div><${About} data=${data} /></div><div><${Section} title="Ledger"><${Facts} rows=${[["deployment", data.version.deployment], ["cluster", data.cluster.cluster_id], ["leader", data.cluster.leader],
      ["last backup", backup(data.cluster.nodes)], ["restores", restore && restore.store_epoch > 1 && restore.store_epoch - 1]]} /></${Section}></div></div>`;
}
