// The console: a client of flightd's HTTP API in the browser. It has no build step: these files are what the browser runs.
//
// How to write a page:
//   1. A page is one module, pages/NAME.js. Its default export is a component; it gets {params}, the query of its address as an object,
//      and is loaded when #/NAME is opened for the first time. Below, `nav` lists the pages that the bar shows.
//   2. Ask the API with get, list, all and post of api.js. List what the person may see with list: it names the namespace of the bar.
//   3. Load with usePoll of ui.js, and show its problem beside its data. Never write markup as text: html`…` escapes, and nothing else is used.
//   4. What a page shows is in its address: go(name, params) changes it, and a reload or a link shows the same.
//   5. A decision of a person is an entry of verbs.js, or a Dialog of ui.js with what it will do, a reason, and the button.
//   6. Shortcuts: useKeys([["j", "the next flight", f]]). Two keys are written "g d".
//   7. The style sheet has what most pages need (rows, facts, buttons, state, problem, empty, timeline); its head lists the colours.
//      The security policy forbids inline scripts and style attributes; element.style by script works.
//   8. vendor/uplot.js draws charts: import uPlot from "../vendor/uplot.js", and add its style sheet with the link that pages/live.js makes.
import { html, render, useState, useEffect, useErrorBoundary, useKeys, usePoll, shortcuts, Toasts, Problem, Dialog, Left, utc, setUTC } from "./ui.js";
import { session, start, watch, signOut, setNamespace, list, may } from "./api.js";
import { SignIn } from "./pages/signin.js";

const nav = [["live", "Live", "g l"], ["doubts", "Doubts", "g d"], ["approvals", "Approvals", "g a"], ["flights", "Flights", "g f"],
  ["sagas", "Sagas", "g s"], ["queues", "Queues", "g q"], ["cluster", "Cluster", "g c"], ["admin", "Admin", "g m"]];
const shown = () => nav.filter(([name]) => name !== "admin" || may("operate") || may("admin"));
const pages = [...nav.map(([name]) => name), "flight", "saga"];

// route is the page and its parameters: #/flights?state=failed.
function route() {
  const [name, query] = location.hash.replace(/^#\/?/, "").split("?");
  return { name: pages.includes(name) ? name : "doubts", params: Object.fromEntries(new URLSearchParams(query || "")) };
}

// go opens a page. Parameters without a value are left out. replace: the address takes the place of the present one.
export function go(name, params, replace) {
  const query = new URLSearchParams(Object.entries(params || {}).filter(([, value]) => value));
  const hash = `#/${name}${query.size ? "?" + query : ""}`;
  if (!replace) location.hash = hash;
  else {
    history.replaceState(null, "", hash);
    dispatchEvent(new HashChangeEvent("hashchange"));
  }
}

const loaded = {};

function Page({ name, params }) {
  const [state, setState] = useState(loaded[name] ? { name, page: loaded[name] } : {});
  const [fault] = useErrorBoundary((error) => console.error(error));
  useEffect(() => {
    document.getElementById("main").focus({ preventScroll: true });
    scrollTo(0, 0);
    let left = false;
    import(`./pages/${name}.js`).then((module) => {
      loaded[name] = module.default;
      if (!left) setState({ name, page: module.default });
    }, (error) => left || setState({ name, error }));
    return () => {
      left = true;
    };
  }, [name]);
  if (fault || state.error) return html`<${Problem} problem=${Object.assign(fault || state.error, { hint: "Reload the page." })} />`;
  return state.name === name && state.page ? html`<${state.page} params=${params} />` : null;
}

function Help({ onClose }) {
  return html`<${Dialog} title="Keys" onClose=${onClose}>
    <table class="keys"><tbody>${shortcuts().map(([key, what]) => html`<tr><th scope="row">${key.split(" ").map((k) => html`<kbd>${k}</kbd> `)}</th><td>${what}</td></tr>`)}
    <tr><th scope="row"><kbd>Esc</kbd></th><td>close a dialog</td></tr></tbody></table>
    <div class="buttons"><button class="act" autofocus onClick=${onClose}>Close</button></div></${Dialog}>`;
}

function Shell() {
  const [at, setAt] = useState(route());
  const [help, setHelp] = useState(false);
  const inUTC = utc.use();
  useEffect(() => {
    const moved = () => setAt(route());
    addEventListener("hashchange", moved);
    return () => removeEventListener("hashchange", moved);
  }, []);
  const counts = usePoll(async () => {
    if (!may("read")) return {};
    const page = await list("/v1/flights", { state: "in_doubt,awaiting_approval", limit: 500 });
    const doubts = page.flights.filter((f) => f.state === "in_doubt").length;
    return { doubts, approvals: page.flights.length - doubts, more: page.next ? "+" : "" };
  }, 5000, [session.namespace]);
  useKeys([["?", "show the keys", () => setHelp(true)], ["u", "times local or in UTC", () => setUTC(!utc.get())],
    ...shown().map(([name, label, key]) => [key, label, () => go(name)]), ["/", "search", () => {
      const box = document.querySelector("main input[type=search]");
      box ? box.focus() : go("flights");
    }]]);
  const label = (nav.find(([name]) => name === at.name) || [0, at.params.key || at.name])[1], doubts = counts.data && counts.data.doubts;
  useEffect(() => {
    document.title = `${doubts ? `(${doubts}) ` : ""}${label} - flightd`;
  });
  const { who } = session;
  return html`
    <a class="skip" href="#main" onClick=${(e) => {
      e.preventDefault();
      document.getElementById("main").focus();
    }}>To the page</a>
    <div class="top-bar"><header class="bar">
      <a class="brand" href="#/doubts">flightd</a>
      <nav aria-label="Pages">${shown().map(([name, text]) => {
        const n = counts.data && counts.data[name];
        return html`<a key=${name} href=${"#/" + name} aria-current=${at.name === name ? "page" : null}>${text}${n ? html` <span class="count">${n}${counts.data.more}</span>` : ""}</a>`;
      })}</nav>
      <div class="tools">
        ${who.namespace === "*" ? html`<input aria-label="Namespace" title="The namespace that is shown" placeholder="all namespaces" autocomplete="off" spellcheck=${false}
          value=${session.namespace === "*" ? "" : session.namespace} onChange=${(e) => {
            setNamespace(e.target.value);
            if (nav.some(([name]) => name === at.name)) go(at.name, { ...at.params, id: "" }, true);
          }} />` : html`<span class="dim">${who.namespace}</span>`}
        <button class="quiet" title="Times local or in UTC (u)" onClick=${() => setUTC(!inUTC)}>${inUTC ? "UTC" : "local"}</button>
        <button class="quiet" title="Keys (?)" aria-label="Show the keys" onClick=${() => setHelp(true)}>?</button>
        ${session.needsToken && html`<button class="quiet" title=${"Signed in as " + who.name} onClick=${() => signOut()}>Sign out</button>`}
      </div>
    </header>
      <div class=${counts.problem ? "offline on" : "offline"} role="status">${counts.problem && html`${counts.problem.title} <code>${counts.problem.code}</code> ${counts.problem.hint}`}</div></div>
    <main id="main" tabindex="-1">
      <${Page} key=${session.namespace} name=${at.name} params=${at.params} />
    </main>
    <footer class="dim">${who.name ? html`${who.name}, ${who.verbs.join(", ")}${who.expires_at && html`; the token has <${Left} at=${who.expires_at} />`}` : "no credentials"}
      ${session.version && html` · flightd ${session.version.version}, deployment ${session.version.deployment}`}${session.node && ` · at ${session.node}`}</footer>
    ${help && html`<${Help} onClose=${() => setHelp(false)} />`}<${Toasts} />`;
}

function App() {
  const [, redraw] = useState(0);
  useEffect(() => {
    const stop = watch(() => redraw((n) => n + 1));
    start(); // not before the answer can be seen
    return stop;
  }, []);
  if (session.who) return html`<${Shell} />`;
  if (session.needsToken) return html`<${SignIn} />`;
  return html`<main class="center">${session.problem ? html`<${Problem} problem=${session.problem} /><button class="act" onClick=${start}>Ask again</button>` : html`<p class="dim">Asking the server…</p>`}</main>`;
}

render(html`<${App} />`, document.getElementById("app"));
