// The page: asks for changes while it is visible, routes by the fragment, and handles keys.
import {$, age} from "./dom.js";
import {model, update} from "./model.js";
import {list, prepare, refresh, pick} from "./list.js";
import {drawOverview} from "./overview.js";
import {drawProblems, problems} from "./problems.js";
import {show, load, current} from "./detail.js";

const pause = 1000, pauseMax = 10000;
let failures = 0, timer = 0, ticks = 0;

function view(name) {
  for (const tab of document.querySelectorAll("[role=tab]")) {
    const on = tab.dataset.view === name;
    tab.setAttribute("aria-selected", on);
    $(tab.dataset.view).hidden = !on;
  }
  drawViews();
}

function drawViews() {
  if (!model.status) return;
  if (!$("overview").hidden) drawOverview();
  if (!$("problems").hidden) drawProblems();
}

// verdict returns the text of the badge, its color, and what is wrong.
function verdict(s) {
  const found = s.findings ?? [], worst = found.find((f) => f.unhealthy) ?? found[0];
  const why = found.map((f) => `${f.kind}: ${f.problem}`).join("\n");
  if (found.some((f) => f.kind === "api-stale")) return ["cannot read the API", "bad", why];
  const more = found.length > 1 ? ` and ${found.length - 1} more` : "";
  const kind = {healthy: "good", unhealthy: "bad"}[s.health] ?? "wait";
  return [`${s.health}${worst ? `: ${worst.kind}${more}` : ""}`, kind, why];
}

function drawStatus() {
  const s = model.status;
  $("node").textContent = $("node").title = s.node;
  $("where").textContent = `${s.mode} · ${s.version} · up ${age(s.started, s.now)}`;
  const [text, kind, why] = verdict(s);
  $("health").textContent = text;
  $("health").className = `badge ${kind}`;
  $("health").title = why;
  const n = problems();
  $("problem-count").textContent = n || "";
  $("problem-count").className = kind;
  document.title = `${n ? `(${n}) ` : ""}${s.node} · Sluice`;
}

async function tick() {
  clearTimeout(timer);
  if (document.hidden) return;
  try {
    const before = model.services.size, {changed, full} = await update();
    failures = 0;
    $("fresh").textContent = "";
    $("fresh").className = "";
    document.documentElement.classList.remove("old");
    drawStatus();
    refresh(false, full && !before ? new Set() : changed);
    drawViews();
    // What the row does not show may change as well.
    if (current() && (changed.has(current()) || ++ticks % 5 === 0)) await load();
  } catch (error) {
    failures++;
    $("fresh").textContent = `cannot reach the proxy (${error.message}); retrying`;
    $("fresh").className = "stale";
    $("health").textContent = "no answer";
    $("health").className = "badge dim";
    $("health").title = "";
    document.documentElement.classList.add("old");
  }
  document.documentElement.dataset.revision = model.revision;
  clearTimeout(timer);
  timer = setTimeout(tick, Math.min(pauseMax, pause * 2 ** Math.max(0, failures - 1)));
}

// The fragment is #?SEARCH, or #/NAMESPACE/NAME for an open Service.
function route() {
  const query = /^#\?(.*)$/.exec(location.hash);
  if (query) {
    $("search").value = decodeURIComponent(query[1]);
    refresh(true);
    view("services");
  }
  const key = query ? "" : decodeURIComponent(location.hash.replace(/^#\/?/, ""));
  if (key && $("services").hidden) view("services");
  const at = list.rows.findIndex((r) => r.key === key);
  if (at >= 0) pick(at);
  show(key);
}

// searched puts the search into the fragment, unless a Service is open.
function searched() {
  const text = $("search").value.trim();
  if (!current()) history.replaceState(null, "", text ? `#?${encodeURIComponent(text)}` : "#");
}

const open = (key) => { location.hash = `#/${key.split("/").map(encodeURIComponent).join("/")}`; };
const themes = ["", "light", "dark"];

function theme(next) {
  try {
    if (next !== undefined) localStorage.setItem("theme", next);
    document.documentElement.dataset.theme = localStorage.getItem("theme") ?? "";
  } catch { document.documentElement.dataset.theme = next ?? ""; }
}
const nextTheme = () => theme(themes[(themes.indexOf(document.documentElement.dataset.theme ?? "") + 1) % themes.length]);

// go picks a row of the list, which it shows.
function go(at) {
  view("services");
  pick(at);
}

const keys = {
  "/": () => { view("services"); $("search").focus(); $("search").select(); },
  j: () => go(list.picked + 1), k: () => go(list.picked - 1), g: () => go(0), G: () => go(list.rows.length - 1),
  "?": () => $("help").showModal(),
  1: () => view("overview"), 2: () => view("services"), 3: () => view("problems"),
  t: nextTheme,
};
// listKeys have another meaning in the other views.
const listKeys = {
  ArrowDown: () => pick(list.picked + 1), ArrowUp: () => pick(list.picked - 1),
  PageDown: () => pick(list.picked + 20), PageUp: () => pick(list.picked - 20),
  Enter: () => { if (list.rows[list.picked]) open(list.rows[list.picked].key); },
};

// close closes the open Service.
function close() {
  show("");
  searched();
}

function escape() {
  if (document.activeElement?.closest("input, select")) { document.activeElement.blur(); $("list").focus(); return; }
  if (current()) { close(); return; }
  $("search").value = "";
  searched();
  refresh();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || $("help").open) return;
  if (event.key === "Escape") { event.preventDefault(); escape(); return; }
  const typing = event.target.closest("input, select"), searching = event.target === $("search");
  if (typing && !(searching && ["Enter", "ArrowDown", "ArrowUp"].includes(event.key))) return;
  if (event.key === "Enter" && event.target.closest("button, a, summary")) return;
  const act = keys[event.key] ?? ($("services").hidden ? null : listKeys[event.key]);
  if (!act) return;
  event.preventDefault();
  if (searching) $("list").focus();
  act();
});

prepare();
list.open = open;
theme();
$("theme").addEventListener("click", nextTheme);
$("help-button").addEventListener("click", () => $("help").showModal());
$("help-close").addEventListener("click", () => $("help").close());
for (const tab of document.querySelectorAll("[role=tab]")) tab.addEventListener("click", () => view(tab.dataset.view));
$("search").addEventListener("input", searched);
$("detail").addEventListener("click", (event) => { if (event.target.id === "detail-close") close(); });
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href^='#']");
  if (link?.hash && link.hash === location.hash) route(); // the fragment does not change
});
window.addEventListener("hashchange", route);
document.addEventListener("visibilitychange", tick);
tick().then(route);
