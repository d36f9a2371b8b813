// What happens now, from the stream of events. While the tab is hidden nothing is read.
import { html, useState, useEffect, useRef, usePoll, Time } from "../ui.js";
import { list, session } from "../api.js";
import { eventText, flightLink, keyParts } from "../words.js";
import { Heading, span, timed } from "../page.js";
import { Chart } from "../chart.js";
import { newModel, follow, slotSeconds } from "../live.js";
import { go } from "../main.js";

const recent = 10; // seconds over which the numbers above the charts are taken
const windows = [5, 15, 60]; // minutes that the charts can show
const keep = 60000; // a tab that was hidden for longer begins anew

// useFeed follows the feed of the chosen namespace and redraws once a second: {points, told, problem, gap, at}.
function useFeed(windowSeconds) {
  const model = useRef(null), state = useRef({ problem: null, connected: false, skew: 0 }), [, redraw] = useState(0);
  model.current ||= newModel();
  useEffect(() => {
    let stop = null, hiddenAt = 0;
    const run = () => {
      if (document.hidden) {
        if (stop) stop.abort();
        stop = null;
        hiddenAt ||= Date.now();
      } else if (!stop) {
        if (hiddenAt && Date.now() - hiddenAt > keep) model.current.clear();
        hiddenAt = 0;
        stop = new AbortController();
        follow(model.current, stop.signal, (problem) => Object.assign(state.current, { problem, connected: !problem, at: problem ? state.current.at : new Date().toISOString() }), (ms) => {
          state.current.skew = ms;
        });
      }
    };
    run();
    const timer = setInterval(() => {
      if (document.hidden) return;
      if (state.current.connected) state.current.at = new Date().toISOString();
      redraw((n) => n + 1);
    }, 1000);
    document.addEventListener("visibilitychange", run);
    return () => {
      if (stop) stop.abort();
      clearInterval(timer);
      document.removeEventListener("visibilitychange", run);
    };
  }, []);
  const until = Date.now() + state.current.skew;
  return { ...state.current, until: Math.floor(until / 1000 / slotSeconds) * slotSeconds, points: model.current.points(until, windowSeconds), told: model.current.told, gap: model.current.gap };
}

const Number = ({ name, value, unit, href, bad }) => html`<div class="number"><span class="dim">${name}</span><b class=${bad ? "soon" : ""}>${href ? html`<a href=${href}>${value}</a>` : value}</b><span class="dim">${unit}</span></div>`;
const rate = (x) => x === null ? "-" : x >= 100 ? Math.round(x).toLocaleString("en-US") : x.toFixed(1);

export default function Live({ params }) {
  const minutes = windows.includes(+params.minutes) ? +params.minutes : windows[0], windowSeconds = 60 * minutes, feed = useFeed(windowSeconds), { rates, replays, times, doubts } = feed.points, range = [feed.until - windowSeconds, feed.until - slotSeconds];
  const doubtful = usePoll(() => list("/v1/flights", { state: "in_doubt", limit: 500 }), 5000, [session.namespace]);
  const mean = (points, of) => {
    const seen = points.slice(-recent / slotSeconds).map(of);
    return seen.includes(null) ? null : seen.reduce((a, b) => a + b, 0) / seen.length;
  };
  const lately = times.slice(-60 / slotSeconds).filter(([, p]) => p !== null), middle = lately.map(([, p]) => p).sort((a, b) => a - b)[Math.floor(lately.length / 2)], slow = Math.max(...lately.map(([, , p]) => p));
  const waiting = doubtful.data && doubtful.data.flights.length;
  return html`<${Heading} title="Live" data=${feed.at ? { at: feed.at } : null} problem=${feed.problem}>
      <span class="dim">${session.namespace === "*" ? "all namespaces" : session.namespace}, the last <select aria-label="Time that is shown" value=${minutes} onChange=${(e) => go("live", { ...params, minutes: e.target.value }, true)}>${windows.map((m) => html`<option value=${m}>${m} minutes</option>`)}</select>${feed.gap && html` · <span class="soon">the log no longer has the events ${feed.gap.after} to ${feed.gap.until}</span>`}</span></${Heading}>
    <div class="numbers"><${Number} name="attempts ended" value=${rate(mean(rates, (p) => p[1] === null ? null : p[1] + p[2] + p[3] + p[4]))} unit="per second" />
      <${Number} name="answered without an effect" value=${rate(mean(replays, (p) => p[1]))} unit="calls per second" />
      <${Number} name="an attempt takes" value=${lately.length ? span(middle) : "-"} unit=${lately.length ? `95 of 100 up to ${span(slow)}` : "none ended in a minute"} />
      <${Number} name="in doubt" value=${waiting === null ? "-" : waiting + (doubtful.data.next ? "+" : "")} unit="wait for a person" href="#/doubts" bad=${waiting > 0} /></div>
    <div class="charts">
      <${Chart} title="Attempts that ended, per second" range=${range} points=${rates} height=${150} series=${[["succeeded", "--good"], ["refused", "--bad"], ["not done", "--calm", true], ["unknown or lost", "--warn", true]]} />
      <${Chart} title="Calls answered without another effect, per second" range=${range} points=${replays} height=${150} series=${[["replays", "--accent"]]} bars />
      <${Chart} title="Time of an attempt, from its opening to its report" range=${range} points=${times} height=${150} unit=" ms" series=${[["median", "--accent"], ["95 of 100", "--calm", true]]} dots />
      <${Chart} title="New doubts, in two seconds" range=${range} points=${doubts} height=${150} series=${[["doubts", "--warn"]]} bars />
    </div>
    <h3>Events</h3><ol class="feed" tabindex="0" aria-label="The newest events">${feed.told.map((e) => html`<li key=${e.id + e.kind} class=${e.kind}><${Time} at=${e.at} /> <a class="key" href=${flightLink({ key: e.key, id: e.flight_id })}>${e.key ? `${keyParts(e.key).action}/${keyParts(e.key).id}` : e.flight_id}</a> <span class="dim">${eventText(e)}</span></li>`)}
      ${feed.told.length === 0 && html`<li class="dim">${feed.connected ? "Nothing has happened in the last hour." : "Connecting…"}</li>`}</ol>`;
}
