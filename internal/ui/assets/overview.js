// The first view: how many Services there are in each state, what the proxy did in the last 15 minutes, and
// the traffic of the node.
import {$, el, fill, age, many, micros, table} from "./dom.js";
import {model, measured, states} from "./model.js";
import {amount, chart, short, trafficCharts} from "./charts.js";
import {queued} from "./views.js";

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

function changes({counts, stepSeconds, ...r}) {
  // The last step is not over.
  const points = counts.slice(0, -1).map((n, i) => [(counts.length - 1 - i) * stepSeconds, n / stepSeconds]);
  return card("changes", "Changes", chart("Applied per second", points, {current: r.perSecond}),
    line("From receipt to kernel: ", el("b", {}, both(r))));
}

function queue(s) {
  const sum = (field) => (s.domains ?? []).reduce((n, d) => n + d[field], 0);
  const oldest = (s.domains ?? []).map((d) => d.oldestPending).filter(Boolean).sort()[0];
  return card("queue", "Queue", chart("Waiting", queued(), {minutes: 2}),
    line(`${sum("queue")} in the queue, ${many(sum("dirty"), "object")} to write`, oldest ? `, the oldest for ${age(oldest, s.now)}` : ""));
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
    failing.length ? line(el("b", {class: "bad"}, `${failing.map((r) => r.name).join(", ")}: failing since ${age(failing[0].failingSince, s.now)}`))
      : line(el("span", {class: "dim"}, heard ? `Last message ${age(heard, s.now)} ago.` : "")));
}

function node(s) {
  const table = s.conntrack;
  return card("node", "Node", line(el("b", {}, s.node), s.zone ? `, zone ${s.zone}` : ""),
    line(`${s.mode} mode: ${s.modeReason}`), line(`Version ${s.version}, up ${age(s.started, s.now)}`),
    table ? line(`Connection table: ${short(table.entries)}${table.limit ? ` of ${short(table.limit)}` : ""} entries`) : null,
    s.otherChains?.length ? line(el("span", {class: "dim"}, `Other programs' chains: ${s.otherChains.map((c) => c.text).join("; ")}`)) : null);
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
  fill($("activity"), changes(s.activity.changes), queue(s), api(s), repair(s), node(s));
  loadTraffic();
}
