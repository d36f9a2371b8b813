// One flight, by #/flight?namespace=NS&key=KEY, as notifications name it, or by #/flight?id=ID.
import { html } from "../ui.js";
import { FlightView } from "./flightview.js";

export default function Flight({ params }) {
  return html`<${FlightView} key=${JSON.stringify(params)} of=${params} />`;
}
