// Charts of the last minutes.
import {el} from "./dom.js";

// short formats a number in at most five characters.
export function short(n) {
  if (n < 10) return String(Math.round(n * 10) / 10);
  const unit = Math.min(4, Math.floor(Math.log10(n) / 3)), value = n / 1000 ** unit;
  return `${value < 100 && unit ? value.toFixed(1) : Math.round(value)}${["", "k", "M", "G", "T"][unit]}`;
}

// amount formats the bytes of an item of a list. Bytes of connections that lived only between two readings are unknown.
export const amount = (i, n) => (i.bytesIn + i.bytesOut || !(i.connections + i.open) ? short(n) : "–");

function shape(name, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

// chart draws points of [seconds ago, value], the oldest first. The last value is the current one, unless
// that is given. The scale begins at 0; its end is the largest value.
export function chart(title, points, {unit = "", minutes = 15, current = points.at(-1)?.[1] ?? 0, kind} = {}) {
  const most = Math.max(0, ...points.map((p) => p[1])), width = 60 * minutes, tall = 36;
  const text = `now ${short(current)}${unit}, at most ${short(most)}${unit} in ${minutes} minutes`;
  const line = points.map(([ago, value]) => `${width - ago},${tall - (most ? (tall - 2) * value / most : 0)}`);
  const svg = shape("svg", {viewBox: `0 0 ${width} ${tall}`, preserveAspectRatio: "none", role: "img", "aria-label": `${title}: ${text}`});
  if (line.length) {
    svg.append(shape("polygon", {points: `${width - points[0][0]},${tall} ${line.join(" ")} ${width - points.at(-1)[0]},${tall}`}),
      shape("polyline", {points: line.join(" ")}));
  }
  return el("figure", {class: `chart ${kind ?? ""}`},
    el("figcaption", {}, el("span", {}, title), el("b", {}, `${short(current)}${unit}`), el("span", {class: "dim"}, `max. ${short(most)}${unit}`)),
    svg, el("div", {class: "axis"}, el("span", {}, `${minutes} min ago`), el("span", {}, "now")));
}

// rates are the points of a field of a history, per second.
export const rates = (history, ...fields) => history.steps.map((s) => [(Date.parse(history.now) - Date.parse(s.to)) / 1000,
  fields.reduce((sum, field) => sum + s[field], 0) * 1000 / Math.max(1, Date.parse(s.to) - Date.parse(s.from))]);

// bar shows a share from 0 to 1.
export function bar(share) {
  const made = el("span", {class: "share", title: `${(100 * share).toFixed(1)} %`}, el("b", {}, `${Math.round(100 * share)} %`), el("i"));
  made.lastChild.style.width = `${3 * share}em`;
  return made;
}

// trafficCharts are the charts of a history, of what is counted, or a note.
export function trafficCharts(history) {
  if (history.note) return [el("p", {class: "dim"}, history.note)];
  const {connections, refused, bytes} = history.counted;
  if (!connections && !refused && !bytes) return [el("p", {class: "dim"}, "This mode counts open connections only.")];
  return [connections && chart("New connections per second", rates(history, "connections")),
    refused && chart("Refused packets per second", rates(history, "refused"), {kind: history.steps.some((s) => s.refused) ? "bad" : ""}),
    bytes && chart("Bytes per second", rates(history, "bytesIn", "bytesOut"), {unit: "B"})].filter(Boolean);
}
