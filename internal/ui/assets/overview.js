// The first view: how many Services there are in each state, what the proxy did in the last 15 minutes, the
// traffic of the node, and the state of each domain.
import {$, el, fill, age, many, micros, table} from "./dom.js";
import {model, measured, states} from "./model.js";
import {amount, chart, short, trafficCharts} from "./charts.js";

// count returns the number of Services by state, as the server counts them; the empty state has all.
function count() {
  const {withoutEndpoints, ...n} = model.status?.states ?? {};
  return {"": model.services.size, ...n, "no-endpoints": withoutEndpoints};
}

// tiles are links to the Services of each state.
function tiles() {
  const n = count();
  return ["", ...Object.keys(states)].map((name) => tile(name, n[name] ?? "–")); // an older proxy does not count
}

function tile(name, n) {
  const kind = !n || !name ? null : states[name].kind;
  return el("a", {class: "tile", href: name ? `#?state:${name}` : "#?", "data-state": name || "all"},
    el("b", {class: kind}, n), name ? states[name].text : "Services");
}

const card = (name, title, ...parts) => el("div", {class: "card", "data-card": name}, el("h3", {}, title), ...parts);
const line = (...parts) => el("p", {}, ...parts);
const both = (r) => r.p50Micros ? `p50 ${micros(r.p50Micros)}, p99 ${micros(r.p99Micros)}` : "none in 15 minutes";

function changes(s) {
  const {counts, stepSeconds, ...r} = s.activity.changes, sum = (field) => (s.domains ?? []).reduce((n, d) => n + d[field], 0);
  const oldest = (s.domains ?? []).map((d) => d.oldestPending).filter(Boolean).sort()[0], a = s.actors;
  // The last step is still in progress.
  const points = counts.slice(0, -1).map((n, i) => [(counts.length - 1 - i) * stepSeconds, n / stepSeconds]);
  return card("changes", "Changes", chart("Applied per second", points, {current: r.perSecond}),
    line("From receipt to kernel: ", el("b", {}, both(r))),
    line(`${sum("queue")} in the queue, ${many(sum("dirty"), "object")} to write`, oldest ? `, the oldest for ${age(oldest, s.now)}` : ""),
    line(el("span", {class: "dim"}, `${many(a.running, "actor")}: ${a.restarting} restarting, ${a.parked} parked, ${a.abandoned} abandoned`)));
}

function repair(s) {
  const r = s.activity.lastRepair, read = (s.domains ?? []).map((d) => d.lastAudit).filter(Boolean).sort()[0];
  return card("repair", "Repairs", r ? line(el("b", {class: "wait"}, `${age(r.at, s.now)} ago`), ` in ${r.domain}: `,
    `${many(r.objects, "object")}${r.services ? ` of ${many(r.services, "Service")}` : ""}, changed by `, el("b", {}, r.by || "an unknown process"))
    : line("No other process changed the rules since startup."),
  r ? line(el("span", {class: "mono dim"}, (r.examples ?? []).join("; "))) : null,
  read ? line(el("span", {class: "dim"}, `Every domain was audited in the last ${age(read, s.now)}.`)) : null);
}

function api(s) {
  const all = s.feed?.resources ?? [], failing = all.filter((r) => r.failingSince);
  const heard = all.map((r) => r.heard).filter(Boolean).sort().at(-1);
  return card("api", "API", line(el("span", {class: "mono"}, s.feed?.from ?? "–")),
    line("Lag of endpoint changes: ", el("b", {}, both(s.activity.lag))),
    s.feed?.synced ? null : line("Not complete yet."),
    ...failing.map((r) => line(el("b", {class: "bad"}, `${r.name}: failing since ${age(r.failingSince, s.now)}`), ` ${r.error ?? ""}`)),
    line(el("span", {class: "dim"}, heard && !failing.length ? `Last message ${age(heard, s.now)} ago.` : "")));
}

function node(s) {
  const table = s.conntrack;
  return card("node", "Node", line(el("b", {}, s.node), s.zone ? `, zone ${s.zone}` : ""),
    line(`${s.mode} mode: ${s.modeReason}`), line(`Version ${s.version}, up ${age(s.started, s.now)}`),
    table ? line(`Connection table: ${short(table.entries)}${table.limit ? ` of ${short(table.limit)}` : ""} entries`) : null,
    s.otherChains?.length ? line(el("span", {class: "dim"}, `Other programs' chains: ${s.otherChains.map((c) => c.text).join("; ")}`)) : null);
}

const fact = (value, name, kind) => el("span", {class: "fact"}, el("b", {class: kind}, value), ` ${name}`);

function domain(d, now) {
  let state = el("span", {class: "badge good"}, "applied");
  if (d.nodeAtFault) state = el("span", {class: "badge bad"}, "rejects node-wide rules");
  else if (!d.open) state = el("span", {class: "badge wait"}, `waits for ${many(d.missing ?? 0, "Service")}`);
  else if (d.failures) state = el("span", {class: "badge bad"}, many(d.failures, "failed write"));
  else if (d.pending) state = el("span", {class: "badge wait"}, "pending");
  return el("div", {class: "card", "data-domain": d.name},
    el("div", {class: "facts"}, el("b", {class: "mono"}, d.name), state),
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

const traffic = {at: 0, history: null, top: null, refused: null};
const pause = 15000;

// loadTraffic asks for the traffic of the node, one question at a time.
async function loadTraffic() {
  if (Date.now() - traffic.at < pause) return;
  traffic.at = Date.now();
  traffic.history = await measured("history", traffic.history);
  const c = traffic.history.counted ?? {}, by = c.connections ? "connections" : c.bytes ? "bytes" : "open";
  traffic.top = await measured(`top/services?since=15m&limit=8&by=${by}`, traffic.top);
  if (traffic.history.steps?.some((s) => s.refused)) {
    traffic.refused = await measured("top/services?since=15m&limit=8&by=refused", traffic.refused);
  }
  drawTraffic();
}

const link = (i) => el("a", {href: `#/${i.namespace}/${i.name}`}, `${i.namespace}/${i.name}`);

function drawTraffic() {
  const {history, top, refused} = traffic;
  if (!history) return;
  const columns = (c) => [c?.connections && ["Connections", (i) => short(i.connections)], c?.open && ["Open", (i) => short(i.open)],
    c?.bytes && ["Bytes", (i) => amount(i, i.bytesIn + i.bytesOut)], c?.refused && ["Refused", (i) => short(i.refused)]].filter(Boolean);
  const busiest = (title, list, of = columns(list?.counted)) => list?.items?.length ? card("top", title,
    table(["Service", ...of.map(([name]) => name)], list.items.map((i) => [link(i), ...of.map(([, value]) => value(i))]))) : null;
  fill($("traffic"), ...[...trafficCharts(history).map((c) => el("div", {class: "card"}, c)),
    busiest("Busiest Services", top), busiest("Most refusals", {...refused, items: refused?.items?.filter((i) => i.refused)})].filter(Boolean));
}

export function drawOverview() {
  const s = model.status;
  fill($("tiles"), ...tiles());
  fill($("activity"), changes(s), api(s), repair(s), node(s));
  fill($("domains"), ...(s.domains ?? []).map((d) => domain(d, s.now)));
  loadTraffic();
}
