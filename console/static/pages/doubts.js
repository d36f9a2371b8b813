// The doubts: flights whose effect may or may not have happened, and that only a person can decide.
import { html, Age } from "../ui.js";
import { doubtSince, doubtCause, plural } from "../words.js";
import { Inbox } from "./inbox.js";

export default function Doubts({ params }) {
  return html`<${Inbox} page="doubts" params=${params} title="Doubts" query=${["/v1/flights", { state: "in_doubt" }]} since=${doubtSince} verbs=${["resolve"]} waits="flights are in doubt"
    empty=${["Nothing is in doubt", "When a crash leaves open whether an effect happened, the flight waits here for your decision."]}
    line=${(f) => html`${f.duplicates && html`<b>${plural(f.duplicates.count, "call")}</b> since, the last <${Age} at=${f.duplicates.last_at} suffix=" ago" /> · `}${f.attempts > 1 && `${f.attempts} attempts · `}${doubtCause(f)}`} />`;
}
