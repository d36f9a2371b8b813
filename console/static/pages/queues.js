// The queues: jobs, workers and pauses of each action; for one of them what its workers hold, and what its lanes wait for.
import { html, useState, useRef, useKeys, usePoll, Empty, Table, Time, Age, State, Section, Facts, Key, Name } from "../ui.js";
import { all, get, list, post, may, session } from "../api.js";
import { age, plural, person, flightLink, keyParts } from "../words.js";
import { Heading, Ask, timed } from "../page.js";
import { Chart } from "../chart.js";
import { go } from "../main.js";

const nameOf = (q) => session.namespace === q.namespace ? q.action : `${q.namespace}/${q.action}`;
const link = (q) => "#/queues?" + new URLSearchParams({ namespace: q.namespace, action: q.action });
const number = (n) => n ? n.toLocaleString("en-US") : html`<span class="dim">0</span>`;
const columns = [
  { name: "Action", class: "wide", cell: (q) => html`<a class="key" href=${link(q)}>${nameOf(q)}</a>${q.paused && html` <span class="state in_doubt">paused</span>`}${q.stuck_lanes && html` <span class="state in_doubt">${plural(q.stuck_lanes.length, "lane")} stuck</span>`}${q.failing && html` <span class="state in_doubt">${q.failing} failing</span>`}` },
  { name: "Ready", class: "right num", cell: (q) => number(q.ready) },
  { name: "Oldest", class: "right num", cell: (q) => q.ready ? age(q.oldest_ready_ms || 0) : html`<span class="dim">-</span>` },
  { name: "Running", class: "right num", cell: (q) => number(q.running) },
  { name: "Ended/s", class: "right num", cell: (q) => q.ended_per_second.toFixed(1) },
  { name: "Workers", class: "right num", cell: (q) => q.ready && !q.workers && !q.paused ? html`<span class="soon">none</span>` : number(q.workers) },
  { name: "Scheduled", class: "right num", cell: (q) => number(q.scheduled) },
  { name: "Waiting", class: "right num", cell: (q) => number(q.waiting) },
  { name: "Held", class: "right num", cell: (q) => number(q.held) },
  { name: "Doubts", class: "right num", cell: (q) => q.in_doubt ? html`<a class="soon" href="#/doubts">${number(q.in_doubt)}</a>` : number(0) },
];
const most = 2000; // queues that are listed
const held = 500; // running flights that are read to say what the workers hold

// trail keeps the numbers of a queue while the page is open: five minutes at two seconds.
const trail = 150;

async function load({ namespace, action }, kept) {
  const { rows: queues, more } = await all("/v1/queues", {}, "queues", most), at = Date.now() / 1000;
  for (const q of queues) {
    const points = kept[q.namespace + "/" + q.action] ||= [];
    points.push([at, q.ready, q.running]);
    if (points.length > trail) points.shift();
  }
  const queue = queues.find((q) => q.action === action && q.namespace === namespace);
  if (!queue) return { queues, more };
  const [running, lanes] = await Promise.all([
    queue.running ? list("/v1/flights", { state: "running", limit: held }).then((page) => page.flights.filter((f) => f.key.startsWith(namespace + "/") && (f.action || keyParts(f.key).action) === action)) : [],
    Promise.all((queue.stuck_lanes || []).map((l) => get("/v1/lanes", { key: l.blocker }).catch(() => null))), // a job that is over meanwhile stands in no lane
  ]);
  return { queues, more, queue, running, lanes: lanes.filter(Boolean) };
}

function Detail({ data, points, onDecide }) {
  const { queue: q, running, lanes } = data, owners = new Map();
  for (const f of running) {
    const owner = f.last_attempt && f.last_attempt.owner || "an unnamed worker";
    owners.set(owner, [...owners.get(owner) || [], f]);
  }
  return html`<div class="detail"><h2 class="key">${nameOf(q)}</h2>
    ${q.paused ? html`<p class="says"><span class="state in_doubt">paused</span><span>by ${person(q.paused.actor)} <${Time} at=${q.paused.at} />: ${q.paused.reason}. No job is handed out.</span></p>`
      : html`<p class="says"><span class="state running">open</span><span>${q.ready && !q.workers ? "Jobs are ready, and no worker has asked for them within a minute." : "Jobs are handed out when workers ask."}</span></p>`}
    <div class="verbs">${may("operate") && html`<button class=${q.paused ? "act" : ""} data-verb=${q.paused ? "resume" : "pause"} onClick=${onDecide}>${q.paused ? "Resume…" : "Pause…"}</button>`}
      <a href=${"#/flights?" + new URLSearchParams({ action: q.action })}>its flights</a></div>
    <${Chart} title="Jobs, while this page is open" points=${points} series=${[["ready", "--accent"], ["running", "--good"]]} height=${110} />
    <${Section} title="Workers" extra=${`${plural(q.workers, "session")} asked within a minute, ${plural(q.running, "job")} held`}>
      ${[...owners].map(([owner, flights]) => html`<div key=${owner} class="worker"><b>${owner}</b> <span class="dim">${plural(flights.length, "job")}</span><ul class="plain">${flights.slice(0, 10).map((f) => html`<li key=${f.id}><${Key} of=${f} /> <span class="dim">for <${Age} at=${f.last_attempt && f.last_attempt.opened_at} /></span></li>`)}</ul>
        ${flights.length > 10 && html`<p class="dim">and ${flights.length - 10} more</p>`}</div>`)}
      ${q.running > running.length && html`<p class="dim">${running.length} of ${plural(q.running, "running job is", "running jobs are")} shown: those among the ${held} newest running flights.</p>`}
      ${q.running === 0 && html`<p class="dim">No worker holds a job.</p>`}</${Section}>
    ${q.stuck_lanes && html`<${Section} title="Stuck lanes" extra="their first jobs are in doubt">${q.stuck_lanes.map((l) => {
      const lane = lanes.find((x) => x.lane === l.lane);
      return html`<div key=${l.lane} class="lane"><b class="key">${l.lane}</b> ${plural(l.behind, "job waits", "jobs wait")} for <a href=${flightLink({ key: l.blocker })}><${Name} of=${{ key: l.blocker }} /></a>
        ${lane && html`<ol>${lane.jobs.slice(0, 8).map((j) => html`<li key=${j.key}><a href=${flightLink(j)}><${Name} of=${j} /></a> <${State} state=${j.state === "ready" && !j.may_open ? "held" : j.state} /></li>`)}</ol>${lane.total > 8 && html`<p class="dim">and ${lane.total - 8} more</p>`}`}</div>`;
    })}</${Section}>`}
    ${q.failing_jobs && html`<${Section} title="Failing jobs" extra="their last attempts had no effect"><ul class="plain">${q.failing_jobs.map((f) => html`<li key=${f.key}><a href=${flightLink(f)}><${Name} of=${f} /></a>: ${f.cause}</li>`)}</ul>
      ${q.failing > q.failing_jobs.length && html`<p class="dim">and ${q.failing - q.failing_jobs.length} more</p>`}</${Section}>`}
    <${Section} title="Counts"><${Facts} rows=${[["ready", q.ready], ["oldest ready", q.ready ? age(q.oldest_ready_ms || 0) : ""], ["running", q.running], ["ended", q.ended_per_second.toFixed(2) + " per second, a mean over half a minute"],
      ["scheduled", q.scheduled && `${q.scheduled}, for their time, a retry or a look-up`], ["waiting", q.waiting && `${q.waiting}, for a callback`], ["held", q.held && `${q.held}, by their lane`], ["in doubt", q.in_doubt && `${q.in_doubt}, for a person`]]} /></${Section}></div>`;
}

export default function Queues({ params }) {
  const kept = useRef({}), [open, setOpen] = useState(null);
  const { data, problem } = usePoll(timed(() => load(params, kept.current)), 2000, [session.namespace, params]);
  const last = useRef(null); // another queue is opened: the list stays until the answer is there
  if (data) last.current = data;
  const shown = data || last.current, queues = shown ? shown.queues : [], at = queues.findIndex((q) => q.action === params.action && q.namespace === params.namespace);
  const move = (to) => queues[to] && go("queues", { namespace: queues[to].namespace, action: queues[to].action }, at >= 0);
  const q = data && data.queue;
  useKeys([["j", "the next queue", () => move(at + 1)], ["k", "the queue before", () => move(at - 1)], ...q && may("operate") ? [["p", q.paused ? "resume this queue" : "pause this queue", () => setOpen(q)]] : []]);
  return html`<${Heading} title="Queues" data=${shown} problem=${problem} />
    <div class=${q ? "queues open" : "queues"}><div class="scroll stable" aria-busy=${shown || problem ? null : "true"}>${queues.length > 0 && html`<${Table} label="Queues" columns=${columns} rows=${queues} id=${(x) => x.namespace + "/" + x.action} selected=${at} />`}
    ${shown && queues.length === 0 && html`<${Empty} title="There are no queues"><p class="dim">An action has a queue while it has jobs or workers, or is paused: flightd work ACTION -- COMMAND</p></${Empty}>`}${shown && shown.more && html`<p class="dim">There are more queues: flightd queues lists them all.</p>`}</div>
    ${q && html`<${Detail} data=${data} points=${kept.current[q.namespace + "/" + q.action]} onDecide=${() => setOpen(q)} />`}</div>
    ${open && html`<${Ask} title=${`${open.paused ? "Resume" : "Pause"} ${nameOf(open)}?`} act=${open.paused ? "Hand out its jobs" : "Pause it"} onClose=${() => setOpen(null)}
      does=${open.paused ? `The workers that wait get jobs at once; ${plural(open.ready, "is", "are")} ready.` : `No job of the action is handed out until somebody resumes it, also after a restart. ${open.running ? plural(open.running, "job that a worker has goes", "jobs that workers have go") + " on. " : ""}Jobs are submitted as before, and wait.`}
      submit=${(reason) => post(`/v1/queues/${encodeURIComponent(open.action)}/${open.paused ? "resume" : "pause"}`, { reason }, "", open.namespace).then((now) => now.paused ? `${now.action} is paused; ${plural(now.running, "job is", "jobs are")} still running` : `The jobs of ${now.action} are handed out`)} />`}`;
}
