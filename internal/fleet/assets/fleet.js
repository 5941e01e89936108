// The page about all nodes: polls while it is visible, and routes by the fragment: #NODES, #PROBLEMS, #/node/NAME, or
// #/service/NAMESPACE/NAME.
import {$, el, fill, table, micros, age, state} from "./dom.js";

const pause = 1000, shownMax = 200;
let round = 0, model = null, timer = 0, asking = null;

async function get(path) {
  const answer = await fetch(`api/${path}`, {cache: "no-store"}), body = await answer.json();
  if (!answer.ok) throw new Error(body.error);
  return body;
}

async function poll(now) {
  clearTimeout(timer);
  if (document.hidden) return;
  try {
    const s = await get(`status?since=${round}${now === true ? "&now" : ""}`);
    round = s.round;
    model = s.overview ?? model;
    const progress = s.running || asking ? `asking: ${s.done} of ${s.all} nodes answered` : "";
    $("fresh").textContent = s.error ? `cannot ask the nodes (${s.error}); retrying` : progress || (model ? `asked ${age(model.at, new Date().toISOString())} ago` : "");
    $("fresh").className = s.error ? "stale" : "";
    if (s.overview) draw();
  } catch (error) {
    $("fresh").textContent = `kubectl sluice ui does not answer (${error.message}); start it again`;
    $("fresh").className = "stale";
  }
  timer = setTimeout(poll, pause);
}

const troubled = (n) => !n.healthy || n.quarantined > 0 || n.findings.length > 0;
const toNode = (name) => el("a", {href: `#/node/${encodeURIComponent(name)}`}, name);
const toService = (key) => el("a", {href: `#/service/${key.split("/").map(encodeURIComponent).join("/")}`}, key);
const note = (kind, ...parts) => el("div", {class: `note ${kind}`}, ...parts);
const commands = (...lines) => el("pre", {}, lines.join("\n"));

function draw() {
  const bad = model.nodes.filter(troubled).length, missing = model.unanswered.length, answered = model.total - missing;
  const tile = (id, n, text, kind) => el("div", {class: "tile", id}, el("b", {class: n ? kind : null}, n), text);
  fill($("tiles"), tile("answered", answered, `of ${model.total} nodes answered`), tile("missing", missing, "did not answer", "bad"),
    tile("bad", bad, "with problems", "bad"), tile("differing", model.differing.length, "with another configuration than most", "wait"));
  fill($("counts"), ...[["versions", model.versions], ["modes", model.modes], ["configurations", model.configurations]].map(([name, all]) =>
    el("div", {class: "dim"}, `${name}: `, Object.entries(all).map(([text, n]) => `${text} (${n})`).join(", ") || "none")), el("div", {class: "wait"}, model.note));
  $("health").textContent = missing ? "partial answer" : bad ? `${bad} with problems` : "healthy";
  $("health").className = `badge ${missing ? "bad" : bad ? "wait" : "good"}`;
  $("problem-count").textContent = bad || "";
  $("problem-count").className = "wait";
  document.title = `${bad ? `(${bad}) ` : ""}all nodes · Sluice`;
  drawNodes();
  drawProblems();
  drawNode();
}

function drawNodes() {
  const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const found = model.nodes.filter((n) => (!$("only").checked || troubled(n)) &&
    words.every((w) => [n.node, n.zone, n.mode, n.version, n.configurationHash, ...n.findings].join(" ").toLowerCase().includes(w)));
  $("matches").textContent = `${found.length} of ${model.nodes.length}`;
  fill($("table"), table(["Node", "Mode", "Version", "Configuration", "Services", "Pending", "Held", "Lag p99", "Findings"],
    found.slice(0, shownMax).map((n) => [toNode(n.node), n.mode, n.version,
      el("span", {class: model.differing.includes(n.node) ? "mono wait" : "mono"}, n.configurationHash || "unknown"), n.services,
      n.pending, el("span", {class: n.quarantined ? "bad" : null}, n.quarantined), n.lagP99Micros ? micros(n.lagP99Micros) : "–",
      el("span", {class: n.healthy ? "wait" : "bad"}, n.findings.join(", ") || (n.healthy ? "" : "unhealthy"))])),
  found.length > shownMax ? el("p", {class: "dim"}, `and ${found.length - shownMax} more; filter to see them`) : null);
  fill($("silent"), ...silent(model.unanswered, model.total));
}

function silent(missing, total) {
  if (!missing.length) return [];
  return [el("h2", {class: "bad"}, `${missing.length} of ${total} nodes did not answer`),
    table(["Node", "Reason"], missing.slice(0, shownMax).map((m) => [m.node, el("td", {class: "wide"}, m.reason)])),
    missing.length > shownMax ? el("p", {class: "dim"}, `and ${missing.length - shownMax} more`) : null];
}

const finding = (f, at) => note(f.unhealthy ? "" : "degraded", el("b", {class: f.unhealthy ? "bad" : "wait"}, f.kind),
  f.about ? ` ${f.about}` : "", f.since ? `, since ${age(f.since, at)}` : "", el("div", {}, f.problem), el("div", {class: "dim"}, f.advice));
const partial = () => model.unanswered.length ? note("", `This is a partial answer: ${model.unanswered.length} of ${model.total} nodes did not answer.`) : null;

function drawProblems() {
  const some = model.quarantine.slice(0, shownMax), all = Object.entries(model.findings);
  fill($("quarantine"), partial(), some.length ? table(["Service", "Nodes", "Reason"], some.map((q) => [toService(q.service),
    el("td", {}, `on ${q.count} node${q.count === 1 ? "" : "s"}: `, ...q.nodes.flatMap((n) => [toNode(n), " "]), q.count > q.nodes.length ? `and ${q.count - q.nodes.length} more` : ""),
    el("td", {class: "wide whole"}, q.reasons.join("; "))])) : el("p", {class: "dim"}, "No Service is held on the nodes that answered."));
  fill($("findings"), ...all.slice(0, shownMax).map(([node, list]) => el("div", {class: "card", "data-node": node}, toNode(node), ...list.map((f) => finding(f, model.at)))),
    all.length > shownMax ? el("p", {class: "dim"}, `and ${all.length - shownMax} more nodes`) : all.length ? null : el("p", {class: "dim"}, "No findings."));
}

function drawNode() {
  const name = /^#\/node\/(.+)$/.exec(location.hash)?.[1], node = name && decodeURIComponent(name), box = $("detail");
  box.hidden = !node || !model;
  if (box.hidden) return;
  const n = model.nodes.find((other) => other.node === node), missing = model.unanswered.find((m) => m.node === node);
  const other = model.nodes.find((o) => o.node !== node && !troubled(o))?.node ?? "NODE", pod = n?.pod ?? "POD";
  fill(box, el("header", {}, el("h2", {}, node), el("a", {href: "#nodes", id: "close"}, "Close")),
    missing ? note("", missing.reason) : n ? el("p", {}, `${n.mode} mode, version ${n.version}, up ${age(n.started, model.at)}${n.zone ? `, zone ${n.zone}` : ""}`) : note("", "This node is not known."),
    ...(model.findings[node] ?? []).map((f) => finding(f, model.at)),
    ...model.quarantine.filter((q) => q.nodes.includes(node)).map((q) => note("", toService(q.service), ` is held: ${q.reasons.join("; ")}`)),
    el("h3", {}, "Commands"), commands(`kubectl sluice diff ${node} ${other}`, `kubectl sluice observe --node ${node}`,
      `kubectl -n ${model.namespace} exec ${pod} -- sluice status`, `kubectl -n ${model.namespace} logs ${pod}`));
}

async function ask(key) {
  const [namespace, name, ...more] = key.split("/"), box = $("answer");
  $("ask").elements.service.value = key;
  if (!namespace || !name || more.length) { fill(box, note("", `"${key}" must be NAMESPACE/NAME.`)); return; }
  asking = key;
  fill(box, el("p", {class: "dim"}, `Asking all nodes about ${key} …`));
  try {
    const r = await get(`where/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`);
    if (asking !== key) return;
    const wrong = r.nodes.filter((n) => n.state !== "applied");
    fill(box, el("p", {}, el("b", {class: r.applied === r.total ? "good" : "bad"}, `${key} is applied on ${r.applied} of ${r.total} nodes`)),
      r.note ? el("p", {class: "wait"}, r.note) : null,
      wrong.length ? table(["Node", "State", "For", "Endpoints", "Reason"], wrong.slice(0, shownMax).map((n) => [toNode(n.node), state(n.state), n.seconds ? micros(n.seconds * 1e6) : "–",
        n.endpoints, el("td", {class: "wide"}, n.reason ?? "")])) : null,
      wrong.length > shownMax ? el("p", {class: "dim"}, `and ${wrong.length - shownMax} more`) : null, ...silent(r.unanswered, r.total),
      el("h3", {}, "Commands"), commands(`kubectl sluice where svc/${name} -n ${namespace}`, `kubectl sluice wait svc/${name} -n ${namespace}`, `kubectl sluice observe svc/${name} -n ${namespace}`));
  } catch (error) { if (asking === key) fill(box, note("", error.message)); }
  if (asking === key) asking = null;
}

// route shows what the fragment names. A node opens in addition to the view.
function route() {
  const service = /^#\/service\/(.+)$/.exec(location.hash)?.[1], named = location.hash.slice(1);
  if (model) drawNode();
  if (location.hash.startsWith("#/node/")) return;
  const view = service ? "service" : ["problems", "service"].includes(named) ? named : "nodes";
  for (const tab of document.querySelectorAll("[role=tab]")) {
    tab.setAttribute("aria-selected", tab.dataset.view === view);
    $(tab.dataset.view).hidden = tab.dataset.view !== view;
  }
  if (service) ask(decodeURIComponent(service));
}

const themes = ["", "light", "dark"], root = document.documentElement;
$("theme").addEventListener("click", () => { root.dataset.theme = themes[(themes.indexOf(root.dataset.theme ?? "") + 1) % themes.length]; });
for (const tab of document.querySelectorAll("[role=tab]")) tab.addEventListener("click", () => { location.hash = tab.dataset.view; });
for (const name of ["search", "only"]) $(name).addEventListener("input", () => model && drawNodes());
$("now").addEventListener("click", () => poll(true));
$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  const key = $("ask").elements.service.value.trim(), to = `#/service/${key}`;
  if (location.hash === to) ask(key); else location.hash = to;
});
window.addEventListener("hashchange", route);
document.addEventListener("visibilitychange", poll);
poll();
route();
