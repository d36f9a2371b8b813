// The sign-in: a token, and the name that the history will show.
import { html, useState, Problem } from "../ui.js";
import { session, signIn } from "../api.js";

// rejected takes the place of words about headers, for a person who pasted a token.
const rejected = { title: "The token is not accepted", hint: "Paste the whole token, which begins with fltd_. An administrator makes one with flightd token create." };

export function SignIn() {
  const [form, setForm] = useState({ token: "", actor: session.actor, keep: false });
  const [busy, setBusy] = useState(false);
  const submit = async (e) => {
    e.preventDefault();
    setBusy(true);
    if (!await signIn(form.token, form.actor, form.keep)) setBusy(false);
  };
  return html`<main class="center"><form class="signin" onSubmit=${submit}>
    <h1>flightd</h1>
    <label>Token<input type="password" name="token" autocomplete="off" spellcheck=${false} autofocus required value=${form.token} onInput=${(e) => setForm({ ...form, token: e.target.value })} /></label>
    <label>Your name, as the history shows it<input name="actor" autocomplete="name" value=${form.actor} onInput=${(e) => setForm({ ...form, actor: e.target.value })} /></label>
    <label class="check"><input type="checkbox" name="keep" checked=${form.keep} onChange=${(e) => setForm({ ...form, keep: e.target.checked })} /> Keep the token for this tab</label>
    <p class="dim">${form.keep ? "The token stays in this tab until it is closed." : "The token stays in memory: a reload asks again."} It is sent to this server only. A token with the verb read sees, one with operate acts.</p>
    <div class="buttons"><button class="act" disabled=${busy || !form.token.trim()}>${busy ? "Asking…" : "Sign in"}</button></div>
    ${session.tried && html`<${Problem} problem=${session.problem && session.problem.code === "unauthenticated" ? { ...session.problem, ...rejected } : session.problem} />`}
  </form></main>`;
}
