// One Service: its state, its traffic, its endpoints with the rule that decided, and its timeline.
import {$, el, fill, table, state, many, micros, age, ports} from "./dom.js";
import {question, measured, model} from "./model.js";
import {amount, bar, short, trafficCharts} from "./charts.js";

let shown = "", asked = 0;
const trafficPause = 15000, flowsMax = 20, clientsMax = 10;
let known = {}, traffic = {}; // the last answers about the Service in view
const explained = {key: "", answer: null, from: "", to: ""};

export const current = () => shown;

// show opens a Service, or closes the panel without a key.
export async function show(key) {
  if (shown !== key) {
    $("detail").replaceChildren();
    traffic = {key, at: 0};
  }
  shown = key;
  $("detail").hidden = !key;
  if (key) await load();
}

// load asks about the Service in view. A late answer to an earlier question is ignored.
export async function load() {
  const key = shown, turn = ++asked;
  if (!key) return;
  const [namespace, name] = key.split("/").map(encodeURIComponent);
  const [service, endpoints] = await Promise.all([`services/${namespace}/${name}`, `services/${namespace}/${name}/endpoints`]
    .map((path) => question(path).catch((error) => ({error: error.message, status: error.status}))));
  if (turn !== asked || key !== shown) return;
  known = {service, endpoints};
  draw(key);
  if (!service.error && Date.now() - traffic.at > trafficPause) loadTraffic(key, namespace, name); // nothing waits for it
}

// loadTraffic asks for the traffic of the Service in view, one question at a time.
async function loadTraffic(key, namespace, name) {
  const of = `namespace=${namespace}&name=${name}`, mine = traffic;
  mine.at = Date.now();
  for (const [part, path] of Object.entries({
    endpoints: `top/endpoints?${of}&since=15m&limit=1000`, history: `history?${of}`,
    clients: `top/clients?${of}&since=15m&limit=${clientsMax}&by=open`, flows: `connections?${of}&limit=${flowsMax}`,
  })) {
    mine[part] = await measured(path, mine[part]);
    if (key !== shown) return;
  }
  draw(key);
}

// busy reports whether a text of the panel is marked, to be copied.
function busy() {
  const marked = getSelection();
  return Boolean(marked && !marked.isCollapsed && $("detail").contains(marked.anchorNode));
}

// draw draws everything but the form, which stays as it is while it is filled in.
function draw(key) {
  if (busy()) return;
  const {service: s, endpoints} = known, panel = $("detail");
  const before = [el("header", {}, el("h2", {}, key), s.state ? el("span", {class: "badge"}, state(s.state)) : null,
    el("button", {title: "Close (esc)", id: "detail-close"}, "✕"))];
  if (s.error) {
    before.push(el("p", {class: "note"}, model.services.has(key) ? s.error : `The Service was removed: ${s.error}`));
    panel.replaceChildren(el("div", {}, ...before));
    return;
  }
  before.push(...facts(s), ...domains(s), ...frontends(s), ...history(), ...choice(endpoints), ...clients(), ...flows(s), ...timeline(s));
  if (panel.children.length !== 3) panel.replaceChildren(el("div"), el("div", {}, ...explain(key, s)), el("div"));
  const open = new Set([...panel.querySelectorAll("details[open]")].map((d) => d.dataset.name));
  fill(panel.firstChild, ...before);
  fill(panel.lastChild, ...objects(s));
  for (const d of panel.querySelectorAll("details")) d.open = open.has(d.dataset.name);
}

const note = (text) => el("p", {class: "dim"}, text);

function history() {
  const h = traffic.history;
  if (!h) return [];
  return [el("h3", {}, "Traffic"), el("div", {class: "cards"}, ...trafficCharts(h))];
}

// shares returns what to say about the traffic of an endpoint, and the heading; null if nothing is counted.
function shares(endpoints) {
  const {counted, items} = traffic.endpoints ?? {};
  if (!counted) return null;
  const [field, heading] = counted.connections ? ["connections", "Share of connections"] : ["open", "Share of open connections"];
  const of = new Map((items ?? []).map((i) => [i.endpoint, i[field]]));
  const sum = endpoints.reduce((n, e) => n + (of.get(e.address) ?? 0), 0);
  return {heading, of: (e) => (sum ? el("span", {}, bar((of.get(e.address) ?? 0) / sum), ` ${short(of.get(e.address) ?? 0)}`) : "–")};
}

function clients() {
  const c = traffic.clients;
  if (!c) return [];
  const made = [el("h3", {}, "Top clients")];
  if (c.note || !c.items.length) return [...made, note(c.note || "No client has an open connection.")];
  return [...made, table(["Client", "Open", ...(c.counted.bytes ? ["Bytes in", "Bytes out"] : [])], c.items.map((i) =>
    [el("td", {class: "mono"}, i.client), short(i.open), ...(c.counted.bytes ? [amount(i, i.bytesIn), amount(i, i.bytesOut)] : [])])),
  c.omitted ? note(`and ${c.omitted} more`) : null].filter(Boolean);
}

// flows lists open connections.
function flows(s) {
  const f = traffic.flows;
  if (!f) return [];
  const made = [el("h3", {}, "Open connections")];
  if (f.note || !f.items.length) return [...made, note(f.note || "No connection is open.")];
  const known = (c) => !c.tracked || c.tracked.accounted, counted = f.items.some(known);
  return [...made, table(["Client", "Frontend", "Endpoint", "State", "Age", ...(counted ? ["Bytes"] : [])], f.items.map((c) => [
    ...[c.client, c.frontend, c.endpoint].map((at) => el("td", {class: "mono"}, at)),
    c.tracked?.offloaded ? "offloaded" : c.tracked?.state || c.protocol, age(c.began, s.now),
    ...(counted ? [known(c) ? short(c.toEndpoint + c.toClient) : "–"] : [])])),
  f.continue ? note(`The first ${f.items.length} are shown.`) : null].filter(Boolean);
}

function facts(s) {
  const made = [el("p", {}, (s.clusterIPs ?? []).join(" "), " · ", ports(s), " · internal ", s.internalTrafficPolicy,
    s.externalTrafficPolicy ? ` · external ${s.externalTrafficPolicy}` : "",
    s.balancing && s.balancing !== "random" ? ` · balancing ${s.balancing}` : "",
    s.affinitySeconds ? ` · affinity timeout ${s.affinitySeconds} s` : "")];
  if (s.actor?.lastFailure) {
    made.push(el("p", {class: "note"}, `The actor is ${s.actor.state}; it failed ${many(s.actor.failures, "time")}, last: ${s.actor.lastFailure}`));
  }
  return made;
}

function domains(s) {
  const made = [];
  for (const d of s.domains ?? []) {
    if (d.quarantine) made.push(el("p", {class: "note"}, el("b", {class: "bad"}, `${d.name} is held `),
      `since ${age(d.quarantine.since, s.now)}: `, d.quarantine.reason));
    else if (d.error) made.push(el("p", {class: "note"}, `${d.name}: ${d.error}`));
  }
  made.push(el("p", {}, ...(s.domains ?? []).flatMap((d) => [el("span", {class: "badge"}, `${d.name}: `, state(d.state)), " "])));
  return made;
}

function frontends(s) {
  return [el("h3", {}, "Frontends"), table(["Kind", "Address", "Policy", "Endpoints"], (s.frontends ?? []).map((f) => [f.kind,
    el("td", {class: "mono"}, `${f.address ? f.address + " " : `${f.family} `}${f.port}/${f.protocol}`), f.policy,
    f.servedBy ? el("span", {class: "wait"}, `served by ${f.servedBy}`) : f.endpoints]))];
}

// steps shows where the time of a change went.
function steps(c) {
  const ends = [c.seenMicros, c.renderedMicros, c.batch ? c.batchedMicros : c.doneMicros, c.doneMicros];
  const written = c.batch ? `in batch ${c.batch} after ${micros(ends[2])}` : "nothing to write";
  const bar = el("div", {class: "steps", title: `seen after ${micros(ends[0])}, rendered after ${micros(ends[1])}, ${written}, done after ${micros(ends[3])}`});
  let before = 0;
  for (const end of ends) {
    const part = el("i");
    part.style.width = `${c.doneMicros > 0 ? (100 * Math.max(0, end - before)) / c.doneMicros : 25}%`;
    before = Math.max(before, end);
    bar.append(part);
  }
  return bar;
}

function timeline(s) {
  const made = [el("h3", {}, "Timeline")];
  if (!s.timeline?.length) return [...made, el("p", {class: "dim"}, "No change yet.")];
  made.push(el("div", {class: "legend"}, ...["waits for the actor", "rendering", "waits for a batch", "writing"].map((t) => el("span", {}, el("i"), t))));
  made.push(table(["Ago", "Domain", "Cause", "Endpoints", "Took", "", "Batch"], s.timeline.map((c) => [
    age(c.received, s.now), c.domain, (c.causes ?? []).join(" "), c.endpoints,
    el("span", {class: c.outcome === "applied" ? null : "bad"}, c.outcome === "applied" ? micros(c.doneMicros) : c.outcome),
    el("td", {class: "whole"}, steps(c)), c.batch || "–"])));
  return made;
}

function choice(list) {
  const made = [el("h3", {}, "Endpoints")];
  if (list.error) return [...made, el("p", {class: "note"}, list.error)];
  const decision = (d) => d ? el("td", {class: "wide", title: d.why}, el("span", {class: d.chosen ? "good" : "dim"}, d.chosen ? "✓ " : "– "), d.rule, d.share ? `, ${(100 * d.share).toFixed(1)} %` : "") : "–";
  for (const p of list.ports ?? []) {
    made.push(el("p", {class: "dim"}, `${p.family} ${p.port}/${p.protocol}${p.name ? " " + p.name : ""}. `,
      p.internal ? `Inside: ${p.internal.rule} (${p.internal.chosen}). ` : "", p.external ? `Outside: ${p.external.rule} (${p.external.chosen}).` : ""));
    const share = shares(p.endpoints ?? []);
    made.push(table(["Address", ...(share ? [share.heading] : []), "Node", "State", "Inside", "Outside"], (p.endpoints ?? []).map((e) => [
      el("td", {class: "mono"}, e.address), ...(share ? [share.of(e)] : []), `${e.node ?? "–"}${e.local ? " (here)" : ""}${e.zone ? ` · ${e.zone}` : ""}`,
      [e.ready && "ready", e.serving && !e.ready && "serving", e.terminating && "terminating", !e.serving && "not serving"].filter(Boolean).join(" "),
      decision(e.internal), decision(e.external)])));
    if (traffic.endpoints?.note) made.push(note(traffic.endpoints.note));
    if (p.omitted) made.push(el("p", {class: "dim"}, `and ${p.omitted} more`));
  }
  return made;
}

// explain asks how a connection is handled.
function explain(key, s) {
  if (explained.key !== key) Object.assign(explained, {key, answer: null, from: "", to: ""});
  const first = (s.frontends ?? []).find((f) => f.address);
  const to = explained.to || (first ? `${first.address.includes(":") ? `[${first.address}]` : first.address}:${first.port}/${first.protocol.toLowerCase()}` : "");
  const from = el("input", {name: "from", "aria-label": "from", placeholder: "from: 10.244.1.7", value: explained.from, required: true});
  const goal = el("input", {name: "to", "aria-label": "to", placeholder: "to: 10.96.0.10:53/udp", value: to, required: true});
  const form = el("form", {class: "explain"}, from, goal, el("button", {}, "Explain"));
  const said = el("div", {id: "explained"}, ...(explained.answer ? becomes(explained.answer) : []));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    Object.assign(explained, {from: from.value.trim(), to: goal.value.trim()});
    explained.answer = await question(`explain?${new URLSearchParams({from: explained.from, to: explained.to})}`)
      .catch((error) => ({error: error.message}));
    said.replaceChildren(...becomes(explained.answer));
  });
  return [el("h3", {}, "Explain a connection"), form, said];
}

// becomes shows how a connection is handled: the verdict, why, every outcome, and the rules.
function becomes(a) {
  if (a.error) return [el("p", {class: "note"}, a.error)];
  const made = [el("p", {}, el("b", {}, a.verdict), a.source ? `, and the receiver sees the address of ${a.source}` : "",
    ...(a.frontends ?? []).slice(0, 1).map((f) => ` · ${f.service} ${f.port ?? ""} (${f.kind}, ${f.policy})`))];
  for (const p of a.pending ?? []) made.push(el("p", {class: "note"}, `${p.service} is ${p.state}: ${p.reason ?? ""}`));
  made.push(el("ul", {}, ...[...(a.reasons ?? []), ...(a.assumed ?? []).map((t) => `Assumed: ${t}`)].map((t) => el("li", {}, t))));
  made.push(table(["To", "Chance", "Node", "Masquerade"], (a.outcomes ?? []).slice(0, 50).map((o) => [el("td", {class: "mono"}, o.to),
    o.probability ? `${(100 * o.probability).toFixed(1)} %` : "–", o.node ?? "–", o.masqueraded ? "yes" : "no"])));
  const held = a.connections?.items ?? [];
  if (held.length) {
    made.push(el("p", {class: "dim"}, "Existing connections (tracked by the kernel; rules no longer apply to them):"),
      table(["From", "To", "State"], held.slice(0, 20).map((c) => [c.from, c.to, c.state ?? ""])));
  }
  const steps = (a.outcomes?.[0]?.steps ?? []).filter((step) => !step.base);
  if (steps.length) {
    made.push(el("details", {"data-name": "steps"}, el("summary", {}, `${many(steps.length, "rule")} on the way to ${a.outcomes[0].to}`),
      table(["Hook", "Chain", "Rule"], steps.map((step) => [`${step.hook} ${step.table}`, step.rule ? `${step.chain} #${step.rule}` : step.chain,
        el("td", {class: "mono wide"}, step.text, step.element ? ` @${step.set} ${step.element}` : "")]))));
  }
  return made;
}

function objects(s) {
  return (s.domains ?? []).filter((d) => d.objects?.length).map((d) => el("details", {"data-name": d.name},
    el("summary", {}, `${many(d.objects.length + (d.omitted ?? 0), "object")} in ${d.name}`),
    table(["Container", "Object", "State"], d.objects.map((o) => [o.container, el("td", {class: "mono wide"}, o.name), state(o.state)]))));
}
