// The views of the whole proxy: the pipeline with its queues, and current problems.
import {$, el, fill, age, many, table} from "./dom.js";
import {model, statesOf} from "./model.js";
import {chart} from "./charts.js";

const samplesMax = 120;
const queues = new Map(); // domain → the last sizes of its queue, with their times

// sample remembers the sizes of the queues. It runs at each update, whatever is in view.
export function sample() {
  for (const d of model.status.domains ?? []) {
    const all = queues.get(d.name) ?? [];
    all.push([Date.now(), d.queue + d.dirty]);
    if (all.length > samplesMax) all.shift();
    queues.set(d.name, all);
  }
}

const kept = (samples) => samples.map(([at, n]) => [(Date.now() - at) / 1000, n]).filter(([ago]) => ago <= samplesMax);

// queued returns the last sizes of the queues together, as points of a chart.
export function queued() {
  const [first = [], ...others] = queues.values();
  return kept(first.map(([at, n], i) => [at, others.reduce((sum, o) => sum + (o[i]?.[1] ?? 0), n)]));
}

const fact = (value, name, kind) => el("span", {class: "fact"}, el("b", {class: kind}, value), ` ${name}`);

function domain(d, now) {
  let state = el("span", {class: "badge good"}, "applied");
  if (d.nodeAtFault) state = el("span", {class: "badge bad"}, "rejects node-wide rules");
  else if (!d.open) state = el("span", {class: "badge wait"}, `waits for ${many(d.missing ?? 0, "Service")}`);
  else if (d.failures) state = el("span", {class: "badge bad"}, many(d.failures, "failed write"));
  else if (d.pending) state = el("span", {class: "badge wait"}, "pending");
  return el("div", {class: "card", "data-domain": d.name},
    el("div", {class: "facts"}, el("b", {class: "mono"}, d.name), state, chart("Waiting", kept(queues.get(d.name) ?? []), {minutes: 2})),
    el("div", {class: "facts"},
      fact(d.queue, "in the queue", d.queue ? "wait" : null), fact(d.dirty, "objects to write", d.dirty ? "wait" : null),
      fact(d.pending, "pending", d.pending ? "wait" : null), fact(d.applied, "applied"),
      fact(d.shadowed ?? "–", "shadowed", d.shadowed ? "wait" : null), fact(d.quarantined, "held", d.quarantined ? "bad" : null), fact(d.objects, "objects"),
      fact(d.batches, "batches"), el("span", {}, "last write ", el("b", {}, d.lastWrite ? `${age(d.lastWrite, now)} ago` : "never")),
      el("span", {}, "last audit ", el("b", {}, d.lastAudit ? `${age(d.lastAudit, now)} ago` : "never"))),
    // Each write takes a moment: only an old change is worth a line.
    Date.parse(now) - Date.parse(d.oldestPending) >= 2000 ? el("div", {class: "wait"}, `The oldest change is pending for ${age(d.oldestPending, now)}.`) : null,
    d.lastError ? el("div", {class: "note"}, d.lastError) : null);
}

export function drawPipeline() {
  const s = model.status;
  fill($("domains"), ...(s.domains ?? []).map((d) => domain(d, s.now)));
  const all = s.feed?.resources ?? [], failing = all.filter((r) => r.failingSince), followed = all.filter((r) => !r.failingSince);
  fill($("feed"), el("p", {}, "From ", el("span", {class: "mono"}, s.feed?.from ?? "–"),
    !s.feed?.synced ? ", not complete yet" : s.findings?.some((f) => f.kind === "manifest-rejected") ? `, read ${age(s.feed.synced, s.now)} ago, but not all of it is valid`
      : `, complete since ${age(s.feed.synced, s.now)}`),
  followed.length ? el("p", {class: "dim"}, followed.map((r) => `${r.name} (${r.absent ? "absent" : `${age(r.heard, s.now)} ago`})`).join(", ")) : null,
  failing.length ? table(["Resource", "Last message", "Error"], failing.map((r) => [r.name, r.heard ? `${age(r.heard, s.now)} ago` : "–",
    el("span", {class: "bad"}, `failing since ${age(r.failingSince, s.now)}: ${r.error ?? ""}`)])) : null);
  fill($("actors"), el("p", {class: "facts"}, fact(s.actors.running, "running "), " · ",
    fact(s.actors.restarting, "restarting", s.actors.restarting ? "wait" : null), " · ",
    fact(s.actors.parked, "parked", s.actors.parked ? "bad" : null), " · ",
    fact(s.actors.abandoned, "abandoned", s.actors.abandoned ? "bad" : null)));
}

const link = (key) => el("a", {href: `#/${key}`}, key);

// folded joins findings that differ only in what they are about.
function folded(findings) {
  const byText = Map.groupBy(findings, (f) => `${f.kind}\n${f.problem}\n${f.advice}`);
  return [...byText.values()].map((all) => ({...all[0], about: all.map((f) => f.about).filter(Boolean).join(", "),
    unhealthy: all.some((f) => f.unhealthy), services: [...new Set(all.flatMap((f) => f.services ?? []))]}));
}

// searches are those that find the Services of a finding; others is a link to them.
const searches = {shadowed: "state:shadowed", quarantined: "state:held", parked: "state:held", "too-large": "state:held"};
const others = (n, search) => (search ? el("a", {href: `#?${search}`}, `and ${n} more`) : `and ${n} more`);

function finding(f, now) {
  return el("div", {class: `note ${f.unhealthy ? "" : "degraded"}`},
    el("b", {class: f.unhealthy ? "bad" : "wait"}, f.kind), f.about ? ` ${f.about}` : "", f.since ? `, since ${age(f.since, now)}` : "",
    el("div", {}, f.problem), el("div", {class: "dim"}, f.advice),
    f.services.length ? el("div", {}, ...f.services.flatMap((k) => [link(k), " "]), f.more ? others(f.more, searches[f.kind]) : "") : null);
}

const namedMax = 20, heldMax = 100;

export function drawProblems() {
  const s = model.status, held = (s.domains ?? []).flatMap((d) => (d.quarantine ?? []).map((q) => ({...q, domain: d.name})));
  const listed = new Set(held.map((q) => `${q.namespace}/${q.name}`)); // the others are too large, or their actors fail
  const unlisted = [...model.services.values()].filter((row) => row.state.startsWith("held") && !listed.has(row.key)).sort((a, b) => (a.key < b.key ? -1 : 1));
  held.push(...unlisted.slice(0, heldMax).map((row) => ({...row, domain: "all", reason: /\((.*)\)/.exec(row.state)?.[1] ?? row.state})));
  const more = unlisted.length - heldMax;
  fill($("findings"), ...folded(s.findings ?? []).map((f) => finding(f, s.now)),
    s.findings?.length ? null : el("p", {class: "dim"}, "No findings."));
  fill($("quarantine"), held.length ? table(["Service", "Domain", "Since", "Reason"], held.map((q) =>
    [link(`${q.namespace}/${q.name}`), q.domain, q.since ? age(q.since, s.now) : "–", el("td", {class: "wide"}, q.reason)]))
    : el("p", {class: "dim"}, "No Service is held."),
  more > 0 ? el("p", {}, others(more, "state:held")) : null);
  const idle = [...model.services.values()].filter((row) => statesOf(row).includes("no-endpoints"))
    .sort((a, b) => (a.key < b.key ? -1 : 1));
  fill($("idle"), idle.length ? el("p", {}, ...idle.slice(0, namedMax).flatMap((row) => [link(row.key), " "]),
    idle.length > namedMax ? others(idle.length - namedMax, "state:no-endpoints") : null)
    : el("p", {class: "dim"}, "Every Service has endpoints."));
}

// problems counts what the tab announces: held Services, and findings about something else.
export const problems = () => (model.status.findings ?? []).filter((f) => searches[f.kind] !== "state:held").length + (model.status.states?.held ?? 0);
