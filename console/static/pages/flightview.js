// Everything that is known of one flight: what it waits for, who decided, its attempts, its bytes and its history.
import { html, useState, useRef, usePoll, useKeys, Problem, State, Time, Left, Copy, Code, Facts, Section, Age, Missing } from "../ui.js";
import { get, text, may } from "../api.js";
import { attempts, callers, eventText, stateText, stateWords, resultText, plural, age, bytes, keyParts, flightLink, person, command } from "../words.js";
import { Decide, verbsOf } from "../verbs.js";

// find reads a flight by its id, or by its key. A link may name the key with or without its namespace. The record of an expired flight
// does not have its key.
async function find({ id, namespace, key }) {
  if (id) return get("/v1/flights/" + encodeURIComponent(id));
  try {
    return { key, ...await get("/v1/flights", { key }) };
  } catch (problem) {
    if (!namespace || !key || key.startsWith(namespace + "/")) throw problem;
    return { key: `${namespace}/${key}`, ...await get("/v1/flights", { key: `${namespace}/${key}` }) };
  }
}

// stored reads a body; null: it is not stored.
export const stored = (path) => text(path).catch((problem) => {
  if (["not_found", "expired"].includes(problem.code)) return null;
  throw problem;
});

// readHistory reads all pages of a flight's events.
export async function readHistory(id) {
  const path = `/v1/flights/${encodeURIComponent(id)}/events`, events = [];
  for (let page = await get(path); ; page = await get(path, { after: page.next })) {
    events.push(...page.events);
    if (!page.next) return { ...page, events };
  }
}

export function FlightView({ of, heading = "h1" }) {
  const kept = useRef({}), [open, setOpen] = useState(null);
  const { data, problem } = usePoll(async () => {
    const f = await find(of);
    const history = await readHistory(f.id);
    if (kept.current.version !== f.version) {
      const [input, receipt] = await Promise.all([stored(`/v1/flights/${f.id}/input`), f.receipt ? stored(`/v1/flights/${f.id}/receipt`) : null]);
      kept.current = { version: f.version, input, receipt };
    }
    return { f, history, ...kept.current };
  }, 3000, [of.id, of.namespace, of.key]);
  const f = data && data.f;
  const offered = f && may("operate") ? verbsOf(f) : [];
  useKeys(offered.filter(([, v]) => v.key).map(([name, v]) => [v.key, v.label.replace("…", "").toLowerCase() + " this flight", () => setOpen({ name, flights: [f] })]));
  if (!f) return problem ? problem.code === "not_found" ? html`<${Missing} what="flight" of=${of} problem=${problem} />` : html`<${Problem} problem=${problem} />` : html`<p class="dim" aria-busy="true">Reading…</p>`;
  const { history, input, receipt } = data, r = f.receipt, tries = attempts(history.events);
  return html`<article class="flight" data-id=${f.id}>
    <${Problem} problem=${problem} stale />
    <${heading} class="key">${f.key || f.id} <${Copy} text=${f.key || f.id} label="key" /></${heading}>
    <p class="says"><${State} state=${f.state} /> ${stateText(f)}</p>
    ${f.overlap && html`<p class="problem"><strong>Overlap:</strong> the evidence below names a second effect.</p>`}
    ${f.cancel_requested && html`<p class="hint">${person(f.cancel_requested.actor)} requested its cancellation: ${f.cancel_requested.reason}</p>`}
    ${f.blocked_by && f.state !== "in_doubt" && html`<ul class="blocks">${f.blocked_by.map((b) => html`<li><strong>${stateWords(b.reason)}</strong> ${b.detail}${b.key && html` <a href=${flightLink({ key: b.key })}>look at it</a>`}</li>`)}</ul>`}
    ${f.key && f.key.includes("#") && html`<p class="hint">A step of the saga <a href=${flightLink({ key: f.key.split("#")[0] })}>${f.key.split("#")[0]}</a>.</p>`}
    <div class="verbs">${offered.map(([name, v]) => html`<button key=${name} class=${["resolve", "approve"].includes(name) ? "act" : v.danger ? "danger" : ""} data-verb=${name} onClick=${() => setOpen({ name, flights: [f] })}>${v.label}</button>`)}
      ${!may("operate") && verbsOf(f).length > 0 && html`<span class="dim">To decide, sign in with a token that has the verb operate.</span>`}</div>
    <div class="columns"><div>
      <${Section} title="Input" extra=${input && html`${bytes(input.size)}, ${input.type} ${input.text && html`<${Copy} text=${input.text} label="input" />`}`}>${input && input.text === null ? html`<p class="dim">The input is no text.</p>` : html`<${Code} text=${input && input.text} empty=${f.redacted ? "It was erased." : "There is none."} />`}</${Section}>
      ${r && html`<${Section} title="Receipt" extra=${html`${r.outcome}, from a ${r.from || "record"} ${receipt && receipt.text && html`<${Copy} text=${receipt.text} label="receipt" />`}`}>
        ${receipt && receipt.text !== null ? html`<${Code} text=${receipt.text} empty="It has no body." />` : html`<p class="dim">${f.redacted ? "Its bytes were erased." : receipt ? "The body is no text." : "Its body is not stored."}</p>`}
        <${Facts} rows=${[["external id", r.external_id], ["recorded", r.at && html`<${Time} at=${r.at} full />`], ["body", r.size ? `${bytes(r.size)} of ${r.content_type || "unknown type"}${r.truncated ? ", of which the beginning is stored" : ""}` : ""], ["digest", r.digest]]} /></${Section}>`}
      ${f.evidence && html`<${Section} title="Evidence" extra="reports that came too late"><ul class="plain">${f.evidence.map((e) => html`<li>attempt ${e.attempt} reported <b>${e.outcome}</b> <${Time} at=${e.at} /> ${e.external_id && html`external id <code>${e.external_id}</code>`} ${e.error || ""}</li>`)}</ul>${f.evidence_more > 0 && html`<p class="dim">and ${plural(f.evidence_more, "more", "more")}</p>`}</${Section}>`}
      ${tries.length > 0 && html`<${Section} title="Attempts"><ul class="plain">${tries.map((a) => html`<li key=${a.generation + "." + a.attempt}><b class="num">${a.attempt}</b> ${a.closed ? html`<span class="state ${a.outcome}">${stateWords(a.outcome)}</span>` : html`<span class="state running">open</span>`} of ${a.owner || "an unnamed caller"}, <${Time} at=${a.opened} />${a.closed && html`, <span class="num">${age(Date.parse(a.closed) - Date.parse(a.opened))}</span>`} ${a.error && html`<span class="dim">${a.error}</span>`}</li>`)}</ul></${Section}>`}
    </div><div>
      ${history.duplicates && html`<${Section} title="Callers" extra=${`${plural(history.duplicates.count, "call")} answered without another effect`}>
        <p>The first <${Time} at=${history.duplicates.first_at} />, the last <${Age} at=${history.duplicates.last_at} suffix=" ago" />.</p>
        <ul class="plain">${callers(history.duplicates.callers).map((c, i) => html`<li key=${i}><${Time} at=${c.at} /> ${c.actor || "an unnamed caller"}${c.n > 1 && html` <span class="dim">${c.n} times</span>`}</li>`)}</ul>
        ${history.duplicates.count > history.duplicates.callers.length && html`<p class="dim">and ${(history.duplicates.count - history.duplicates.callers.length).toLocaleString("en-US")} earlier</p>`}</${Section}>`}
      <${Section} title="History"><ol class="timeline">${history.events.map((e, i) => html`
        ${i > 0 && e.generation > history.events[i - 1].generation && html`<li class="generation">generation ${e.generation}</li>`}
        <li key=${e.id + i} class=${`${e.kind} ${e.outcome || ""}`}><${Time} at=${e.at} /> ${eventText(e)}</li>`)}</ol></${Section}>
      <${Section} title="Facts"><${Facts} rows=${facts(f)} /></${Section}>
    </div></div>
    ${open && html`<${Decide} ...${open} onClose=${() => setOpen(null)} />`}
  </article>`;
}

// duration of a policy in milliseconds.
const ms = (n) => n ? age(n) : "";

function facts(f) {
  const time = (at) => at && html`<${Time} at=${at} full />`, by = (m) => m && html`${person(m.actor)} <span class="dim">${m.reason}</span> <${Time} at=${m.at} full />`;
  const a = f.approval, p = a && a.policy, s = f.resolution;
  return [
    ["namespace", f.key && keyParts(f.key).namespace], ["action", f.key && keyParts(f.key).action], ["requested by", a && a.requested_by],
    ["decide until", a && a.expires_at && html`<${Time} at=${a.expires_at} full /> <${Left} at=${a.expires_at} />`],
    ["recovery", f.recovery], ["policy", p && [["time-out", ms(p.attempt_timeout_ms)], ["provider window", ms(p.provider_window_ms)], ["settle delay", ms(p.settle_ms)], ["retention", p.retention]].filter(([, v]) => v).map(([n, v]) => `${n} ${v}`).join(", ")],
    ["retry", a && a.retry && `${plural(a.retry.attempts, "attempt")}, pauses ${ms(a.retry.first_ms)} to ${ms(a.retry.max_ms)}`],
    ["attempts", f.attempts], ["generation", f.generation > 1 && f.generation], ["created", time(f.created_at)], ["first due", time(f.not_before)], ["finished", time(f.finished_at)],
    ["receipt kept until", time(f.expires_at)], ["callback until", time(f.callback_until)], ["held until", time(f.held_until)],
    [s && ["approved", "rejected"].includes(s.result) ? s.result : "resolved", s && html`${resultText(s.result)}, by ${by(s)}`], ["erased", by(f.redacted)],
    ["earlier", f.previous_generations && html`<ul class="plain">${f.previous_generations.map((g) => html`<li>generation ${g.generation}: ${stateWords(g.state)}${g.actor && `, ended by ${g.actor}: ${g.reason}`}${g.external_id && html`, external id <code>${g.external_id}</code>`}</li>`)}</ul>`],
    ["fingerprint", f.fingerprint && html`<code>${f.fingerprint}</code>`], ["id", html`<code>${f.id}</code> <${Copy} text=${f.id} label="id" />`], ["version", f.version],
    ["command", f.key && html`<code>${command(f)}</code> <${Copy} text=${command(f)} label="command" />`],
  ];
}
