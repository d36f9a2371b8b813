// The only module that speaks HTTP. It has no rules of its own: what a person may do, the server says.
//
//   get(path, params)           the answer of GET, decoded; throws a Problem
//   list(path, params)          the same in the namespace that the person has chosen
//   all(path, params, rows, n)  the rows of all pages, n at most: {rows, more}
//   text(path)                  a body as it is stored: {text, type, size}; text is null if it is not text
//   post(path, body, version)   a decision; version is the one that the person saw, and is sent in If-Match; namespace is that of an action
//   stream(path, params, each, signal, {after, opened})   the messages of an event stream, until the signal; after is the id of the last one.
//                               One without data only says how far the stream is
//   session                     who is signed in; watch(f) is called after each change
//
// A decision is repeated while no node leads the ledger: it is bound to a version, so a repeat gets the answer of the first.

// Problem is an error as the API describes it. An answer that is no problem document, or none at all, becomes one, too.
export class Problem extends Error {
  constructor(fields) {
    super(fields.detail || fields.title || fields.code);
    Object.assign(this, { hint: "", status: 0, retryable: false }, fields);
  }
}

const unreachable = () => new Problem({ code: "unreachable", title: "The server does not answer", retryable: true,
  hint: "The page asks again by itself. Look whether flightd runs, and whether this machine reaches it." });

// session is what the person has chosen. needsToken: the server asks for one. tried: one was rejected, and problem says why. who is the answer of /v1/whoami, version that of /version.
export const session = {
  token: sessionStorage.getItem("token") || "", actor: sessionStorage.getItem("actor") || "", namespace: sessionStorage.getItem("namespace") || "*",
  needsToken: false, who: null, version: null, problem: null, tried: false, index: "", node: "",
};

const watchers = new Set();
export function watch(f) {
  watchers.add(f);
  return () => watchers.delete(f);
}
const changed = () => watchers.forEach((f) => f());

// start asks the server who this is: without a token for the first time, because flightd dev needs none.
export async function start() {
  session.problem = null;
  try {
    session.who = await get("/v1/whoami");
    session.version = await get("/version");
    session.needsToken = session.who.name !== "";
    if (session.who.namespace !== "*") session.namespace = session.who.namespace;
  } catch (problem) {
    session.problem = problem;
    if (problem.code === "unauthenticated" || problem.code === "forbidden") session.needsToken = true;
  }
  changed();
  return session.problem === null;
}

// signIn tries a token. It is kept in memory, and with keep for this tab, which a reload survives and the end of the tab does not.
export async function signIn(token, actor, keep) {
  Object.assign(session, { token: token.trim(), tried: true, who: null, version: null, index: "" });
  const valid = await start();
  if (valid) setActor(actor);
  if (valid) keep ? sessionStorage.setItem("token", session.token) : sessionStorage.removeItem("token"); // one that was kept before
  return valid;
}

export function signOut(problem) {
  sessionStorage.removeItem("token");
  Object.assign(session, { token: "", who: null, version: null, index: "", problem: problem || null, tried: Boolean(problem) });
  changed();
}

export function setActor(name) {
  session.actor = name.trim();
  sessionStorage.setItem("actor", session.actor);
}

export function setNamespace(name) {
  session.namespace = name.trim() || "*";
  sessionStorage.setItem("namespace", session.namespace);
  changed();
}

// may reports whether the token has a verb. It only chooses which buttons are shown: the server decides.
export const may = (verb) => session.who !== null && session.who.verbs.includes(verb);

// decoded is the JSON of an answer. One that is cut off, or that is a proxy's, is asked for again.
const decoded = (r) => r.json().catch(() => {
  throw new Problem({ code: "unreadable", title: "The answer is cut off, or is none of flightd's", retryable: true, hint: "Look whether a proxy answers in place of the server." });
});
export const get = (path, params) => request("GET", path, { params }).then(decoded);
export const list = (path, params) => request("GET", path, { params, headers: { "Flightd-Namespace": session.namespace } }).then(decoded);

export async function all(path, params, rows, most) {
  const out = [];
  for (let cursor; ;) {
    const page = await list(path, { ...params, limit: 500, cursor });
    out.push(...page[rows]);
    cursor = page.next;
    if (!cursor || out.length >= most) return { rows: out.slice(0, most), more: Boolean(cursor) || out.length > most };
  }
}

export async function text(path) {
  const r = await request("GET", path, { headers: { Accept: "*/*" } });
  const bytes = await r.arrayBuffer();
  const out = { type: r.headers.get("Content-Type") || "", size: bytes.byteLength, text: null };
  try {
    out.text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch { /* it is not text */ }
  return out;
}

export async function post(path, body, version, namespace) {
  const headers = { "Content-Type": "application/json" };
  if (namespace) headers["Flightd-Namespace"] = namespace;
  if (version) headers["If-Match"] = `"${version}"`;
  if (session.actor) body = { ...body, actor: session.actor };
  for (let tries = 1; ; tries++) {
    try {
      return await request("POST", path, { headers, body: JSON.stringify(body) }).then(decoded);
    } catch (problem) {
      if (!problem.retryable || problem.status === 429 || tries === 8) throw problem;
      await new Promise((done) => setTimeout(done, problem.retry_after_ms || 1000));
    }
  }
}

export async function stream(path, params, each, signal, { after, opened } = {}) {
  const headers = { Accept: "text/event-stream", "Flightd-Namespace": session.namespace };
  if (after) headers["Last-Event-ID"] = after;
  const r = await request("GET", path, { params, signal, headers });
  if (opened) opened();
  const reader = r.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ;) {
    const silent = setTimeout(() => reader.cancel(), silence), { value, done } = await reader.read().finally(() => clearTimeout(silent));
    if (done) return;
    const messages = (rest + value).split("\n\n");
    rest = messages.pop();
    for (const message of messages) {
      const fields = {};
      for (const line of message.split("\n")) {
        const [, name, content] = /^([a-z]+): ?(.*)$/.exec(line) || [];
        if (name) fields[name] = name === "data" && fields.data ? fields.data + "\n" + content : content;
      }
      if (fields.data || fields.id) each({ ...fields, data: fields.data ? JSON.parse(fields.data) : null });
    }
  }
}

// A request is given up after answerTime, and a stream after silence: three heartbeats are missing. A page must not show an old answer as the
// newest because a node has stopped in the middle.
const answerTime = 20000, silence = 50000;

// position orders two values of Flightd-Index, "epoch-entry".
const position = (index) => index.split("-").map(Number);

async function request(method, path, { params, headers, body, signal } = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params || {})) if (value) query.set(name, value);
  const sent = { ...headers }, { token } = session;
  if (token) sent.Authorization = "Bearer " + token;
  if (session.version && session.version.deployment) sent["Flightd-Deployment"] = session.version.deployment;
  if (session.index && session.version) sent["Flightd-Index"] = session.index;
  let r;
  try {
    r = await fetch(query.size ? path + "?" + query : path, { method, headers: sent, body, signal: signal || AbortSignal.timeout(answerTime), cache: "no-store", credentials: "omit" });
  } catch (error) {
    throw error.name === "AbortError" ? error : unreachable();
  }
  const index = r.headers.get("Flightd-Index");
  if (index) {
    const [epoch, entry] = position(index), [e, n] = position(session.index || "0-0");
    if (epoch > e || epoch === e && entry > n) session.index = index;
  }
  session.node = r.headers.get("Flightd-Node") || session.node;
  if (r.ok) return r;
  let problem;
  try {
    problem = new Problem(await r.json());
  } catch {
    problem = new Problem({ status: r.status, code: "http_" + r.status, title: "Unexpected answer " + r.status, retryable: r.status >= 500 });
  }
  if (problem.code === "unauthenticated" && session.who && token === session.token) signOut(problem); // an answer to an earlier token says nothing of this one
  throw problem;
}
