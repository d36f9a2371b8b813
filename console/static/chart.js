// Charts of fixed height, drawn by uPlot in the colours of the style sheet.
import { html, useEffect, useRef, utc } from "./ui.js";
import { moment } from "./words.js";
import uPlot from "./vendor/uplot.js";

if (!document.querySelector("link[href='vendor/uplot.css']")) document.head.append(Object.assign(document.createElement("link"), { rel: "stylesheet", href: "vendor/uplot.css" }));

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const short = (v) => v == null ? "-" : v >= 1e6 ? (v / 1e6).toFixed(1) + "M" : v >= 1e4 ? (v / 1e3).toFixed(0) + "k" : String(+v.toFixed(v < 10 ? 2 : 0));

// Chart draws points [[second, value, …], …] as lines [[name, colour, dashed], …]. range is the shown time [from, to] in seconds; none: that
// of the points. A null is a gap. The numbers of the last point, or of the one under the pointer, stand beside the names.
export function Chart({ title, points, series, height, range, unit = "", bars, dots }) {
  const box = useRef(null), plot = useRef(null), given = useRef(null);
  given.current = { range, points };
  useEffect(() => {
    const scheme = matchMedia("(prefers-color-scheme: dark)"), make = () => {
      if (plot.current) plot.current.destroy();
      const axis = { stroke: color("--dim"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
      plot.current = new uPlot({
        width: box.current.clientWidth, height, padding: [6, 8, 0, 0], cursor: { y: false, drag: { x: false, y: false } }, legend: { live: true, markers: { width: 2 } },
        scales: { x: { time: true, range: () => given.current.range || bounds(given.current.points) }, y: { range: (u, min, max) => [0, Math.max(1, (max || 0) * 1.1)] } },
        axes: [{ ...axis, size: 24, space: 70, values: (u, at) => at.map((t) => moment(new Date(t * 1000).toISOString(), utc.get()).slice(-9).trim()) }, { ...axis, size: 42, space: 28, values: (u, at) => at.map(short) }],
        series: [{ label: "at", value: (u, t) => (t ??= u.data[0].at(-1)) == null ? "" : moment(new Date(t * 1000).toISOString(), utc.get()) }, ...series.map(([label, stroke, dashed]) => ({ label, stroke: color(stroke), width: 1.5, dash: dashed ? [4, 3] : undefined, points: { show: Boolean(dots), size: 4 },
          fill: bars ? color(stroke) + "22" : undefined, value: (u, v, i, at) => (v = at == null ? u.data[i].at(-1) : v) == null ? "-" : short(v) + unit }))],
      }, columns(given.current.points, series.length), box.current);
    };
    make();
    const sized = new ResizeObserver(() => box.current && plot.current.setSize({ width: box.current.clientWidth, height }));
    sized.observe(box.current);
    scheme.addEventListener("change", make);
    return () => {
      sized.disconnect();
      scheme.removeEventListener("change", make);
      plot.current.destroy();
      plot.current = null;
    };
  }, []);
  useEffect(() => {
    if (plot.current) plot.current.setData(columns(points, series.length));
  });
  return html`<figure class="chart"><figcaption>${title}</figcaption><div ref=${box} class=${series.length > 2 ? "plot many" : "plot"} style=${{ height: height + 32 + "px" }} data-points=${points.length}></div></figure>`;
}

const bounds = (points) => points.length ? [Math.min(points[0][0], points.at(-1)[0] - 60), points.at(-1)[0]] : [Date.now() / 1000 - 60, Date.now() / 1000];
const columns = (points, n) => Array.from({ length: n + 1 }, (_, i) => points.map((p) => p[i]));
