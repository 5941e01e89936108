// The views of the whole proxy: the pipeline with its queues, and current problems.
import {$, el, age, table} from "./dom.js";
import {model} from "./model.js";

const samplesMax = 120;
const queues = new Map(); // domain → the last sizes of its queue

// sample remembers the sizes of the queues. It runs at each update, whatever is in view.
export function sample() {
  for (const d of model.status.domains ?? []) {
    const all = queues.get(d.name) ?? [];
    all.push(d.queue + d.dirty);
    if (all.length > samplesMax) all.shift();
    queues.set(d.name, all);
  }
}

// spark draws the last sizes of a queue.
function spark(sizes) {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg"), line = document.createElementNS(space, "polyline");
  svg.setAttribute("class", "spark");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `pending changes in the last ${sizes.length} updates, at most ${Math.max(0, ...sizes)}`);
  svg.setAttribute("viewBox", `0 0 ${samplesMax} 28`);
  svg.setAttribute("preserveAspectRatio", "none");
  const most = Math.max(1, ...sizes), from = samplesMax - sizes.length;
  line.setAttribute("points", sizes.map((n, i) => `${from + i},${26 - (24 * n) / most}`).join(" "));
  svg.append(line);
  return svg;
}

const fact = (value, name, kind) => el("span", {class: "fact"}, el("b", {class: kind}, value), ` ${name}`);

function domain(d, now) {
  let state = el("span", {class: "badge good"}, "in step");
  if (d.nodeAtFault) state = el("span", {class: "badge bad"}, "rejects node-wide rules");
  else if (!d.open) state = el("span", {class: "badge wait"}, `waits for ${d.missing ?? 0} Services`);
  else if (d.failures) state = el("span", {class: "badge bad"}, `${d.failures} failed writes`);
  else if (d.pending) state = el("span", {class: "badge wait"}, "writing");
  return el("div", {class: "card", "data-domain": d.name},
    el("div", {class: "facts"}, el("b", {class: "mono"}, d.name), state, spark(queues.get(d.name) ?? [])),
    el("div", {class: "facts"},
      fact(d.queue, "in the queue", d.queue ? "wait" : null), fact(d.dirty, "objects to write", d.dirty ? "wait" : null),
      fact(d.pending, "pending", d.pending ? "wait" : null), fact(d.applied, "applied"),
      fact(d.quarantined, "in quarantine", d.quarantined ? "bad" : null), fact(d.objects, "objects"),
      fact(d.batches, "batches"), el("span", {}, "last write ", el("b", {}, d.lastWrite ? `${age(d.lastWrite, now)} ago` : "never"))),
    d.oldestPending ? el("div", {class: "wait"}, `The oldest change is pending for ${age(d.oldestPending, now)}.`) : null,
    d.lastError ? el("div", {class: "note"}, d.lastError) : null);
}

export function drawPipeline() {
  const s = model.status;
  $("domains").replaceChildren(...(s.domains ?? []).map((d) => domain(d, s.now)));
  $("feed").replaceChildren(el("p", {}, "From ", el("span", {class: "mono"}, s.feed?.from ?? "–"),
    s.feed?.synced ? `, complete since ${age(s.feed.synced, s.now)}` : ", not complete yet"),
  s.feed?.resources?.length ? table(["Resource", "Heard", "State"], s.feed.resources.map((r) => [r.name,
    r.heard ? `${age(r.heard, s.now)} ago` : "–",
    r.failingSince ? el("span", {class: "bad"}, `fails since ${age(r.failingSince, s.now)}: ${r.error ?? ""}`) : r.absent ? "absent" : "followed"])) : "");
  $("actors").replaceChildren(el("p", {class: "facts"}, fact(s.actors.running, "running "), " · ",
    fact(s.actors.restarting, "restarting", s.actors.restarting ? "wait" : null), " · ",
    fact(s.actors.parked, "parked", s.actors.parked ? "bad" : null), " · ",
    fact(s.actors.abandoned, "abandoned", s.actors.abandoned ? "bad" : null)));
}

const link = (key) => el("a", {href: `#/${key}`}, key);

export function drawProblems() {
  const s = model.status, held = (s.domains ?? []).flatMap((d) => (d.quarantine ?? []).map((q) => ({...q, domain: d.name})));
  const more = (s.domains ?? []).reduce((n, d) => n + d.quarantined, 0) - held.length;
  $("quarantine").replaceChildren(held.length ? table(["Service", "Domain", "Since", "Reason"], held.map((q) =>
    [link(`${q.namespace}/${q.name}`), q.domain, age(q.since, s.now), el("td", {class: "wide"}, q.reason)]))
    : el("p", {class: "dim"}, "Nothing is in quarantine."),
  more > 0 ? el("p", {class: "dim"}, `and ${more} more`) : "");
  $("findings").replaceChildren(...(s.findings ?? []).map((f) => el("div", {class: "note"},
    el("b", {class: f.unhealthy ? "bad" : "wait"}, f.kind), f.about ? ` ${f.about}` : "", f.since ? `, since ${age(f.since, s.now)}` : "",
    el("div", {}, f.problem), el("div", {class: "dim"}, f.advice),
    f.services?.length ? el("div", {}, ...f.services.flatMap((k) => [link(k), " "]), f.more ? `and ${f.more} more` : "") : null)),
  s.findings?.length ? "" : el("p", {class: "dim"}, "Health finds nothing wrong."));
}

// problems counts what the tab announces.
export const problems = () => (model.status.findings ?? []).filter((f) => f.kind !== "quarantined").length +
  (model.status.domains ?? []).reduce((n, d) => n + d.quarantined, 0);
