// The data of the page Live: the events of the last hour, counted in slots of two seconds. Its memory is bounded: old slots
// are dropped, and so are attempts that have been open for too long to be measured.
import { stream, get } from "./api.js";

export const mostSeconds = 3600, slotSeconds = 2;
const past = 1000, mostOpen = 20000, mostTimes = 500, mostTold = 40;
const kinds = "opened,reported,abandoned,lost,duplicates,in_doubt,resolved,cancelled,failed,overlap,approved,rejected,retried,freed";
const ended = { succeeded: 1, refused: 2, not_done: 3, unknown: 4 }; // the place of an outcome in a point of rates

export function newModel() {
  const slots = new Map(), open = new Map(), told = [];
  let position = "", begun = 0, backlog = 0, from = 0, gap = null; // backlog: the events of before the stream began
  const slot = (at) => {
    const t = Math.floor(at / 1000 / slotSeconds) * slotSeconds;
    if (!slots.has(t)) slots.set(t, { ended: [0, 0, 0, 0, 0], replays: 0, doubts: 0, times: [], sorted: [] });
    return slots.get(t);
  };
  return {
    told, get position() { return position; }, get gap() { return gap; },
    clear() {
      slots.clear();
      open.clear();
      told.length = 0;
      position = "", begun = 0, backlog = 0, from = 0, gap = null;
    },
    // begin says when the first stream has begun.
    begin(at) {
      begun ||= at;
    },
    // add counts one message of the stream.
    add({ event, id, data: e }) {
      if (id) position = id;
      if (!e) return;
      if (event === "gap" || e.until && !e.kind) {
        gap = e;
        position = e.until;
        return;
      }
      const at = Date.parse(e.at);
      from ||= at;
      if (at < begun) backlog++;
      const s = slot(at), attempt = `${e.flight_id}.${e.generation || 1}.${e.attempt}`;
      if (e.kind === "opened") {
        open.set(attempt, at);
        if (open.size > mostOpen) open.delete(open.keys().next().value);
        return;
      }
      if (e.kind === "reported") {
        s.ended[ended[e.outcome] || 0]++;
        const opened = open.get(attempt);
        if (opened !== undefined && s.times.length < mostTimes) s.times.push(at - opened);
      }
      if (e.kind === "lost") s.ended[ended.unknown]++;
      if (["reported", "lost", "abandoned"].includes(e.kind)) open.delete(attempt);
      if (e.kind === "duplicates") s.replays += e.count || 1;
      if (e.kind === "in_doubt") s.doubts++;
      told.unshift(e);
      if (told.length > mostTold) told.pop();
    },
    // points are those of the charts until a time: rates per second, times in milliseconds, new doubts. A slot before the first event of a
    // busy feed, of which only the newest past events were asked for, is unknown: null.
    points(until, windowSeconds = 300) {
      const last = Math.floor(until / 1000 / slotSeconds) * slotSeconds, first = last - windowSeconds, out = { rates: [], replays: [], times: [], doubts: [] };
      for (const t of slots.keys()) if (t < last - mostSeconds) slots.delete(t);
      for (let t = first; t < last; t += slotSeconds) {
        const s = slots.get(t), unknown = backlog > .9 * past && t * 1000 < from;
        if (s && s.sorted.length !== s.times.length) s.sorted = s.times.toSorted((a, b) => a - b);
        const sorted = s ? s.sorted : [];
        const at = (q) => sorted.length ? sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] : null;
        out.rates.push([t, ...[1, 2, 3, 4].map((i) => unknown ? null : s ? s.ended[i] / slotSeconds : 0)]);
        out.replays.push([t, unknown ? null : s ? s.replays / slotSeconds : 0]);
        out.times.push([t, at(.5), at(.95)]);
        out.doubts.push([t, unknown ? null : s ? s.doubts : 0]);
      }
      return out;
    },
  };
}

// follow reads the feed into the model until the signal, and connects again whenever the stream ends: after the last event that it has, so
// none is missed. say gets the problem while there is no stream, and null when there is one; skew how far the ledger's time is ahead.
export async function follow(model, signal, say, skew) {
  for (let pause = 250; !signal.aborted;) {
    try {
      const ahead = (await get("/version")).ledger_time - Date.now();
      skew(ahead);
      const params = model.position ? { kind: kinds } : { kind: kinds, last: String(past), since: mostSeconds + "s" };
      await stream("/v1/events", params, (m) => model.add(m), signal, { after: model.position, opened: () => {
        pause = 250;
        model.begin(Date.now() + ahead);
        say(null);
      } });
    } catch (problem) {
      if (signal.aborted) return;
      say(problem);
      if (problem.code === "expired") model.clear();
    }
    await new Promise((done) => setTimeout(done, pause));
    pause = Math.min(4000, pause * 2);
  }
}
