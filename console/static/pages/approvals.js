// The approvals: flights that do nothing before a person has approved them.
import { html, Left } from "../ui.js";
import { Inbox } from "./inbox.js";

export default function Approvals({ params }) {
  return html`<${Inbox} page="approvals" params=${params} title="Approvals" query=${["/v1/approvals", {}]} since=${(f) => f.created_at} verbs=${["approve", "reject"]} waits="flights await approval"
    empty=${["Nothing awaits approval", "A flight that is submitted with an approval waits here, and does nothing before somebody approves it."]}
    line=${(f) => html`asked by ${f.approval && f.approval.requested_by || "an unnamed caller"}${f.approval && f.approval.expires_at && html` · <${Left} at=${f.approval.expires_at} />`}`} />`;
}
