// The list of Services. Only the rows in sight are in the document, however many there are, and
// they are used again while the list scrolls.
import {$, el, fill, age, many, micros, ports} from "./dom.js";
import {model, parse, select} from "./model.js";

let height = 28; // of a row, as the style sheet has it
const spare = 6;
const columns = [
  ["key", "Service"], ["address", "Cluster IP"], ["ports", "Ports"], ["endpoints", "Endpoints (local)"],
  ["state", "State"], ["changes", "Changes"], ["latency", "Latency"], ["changed", "Changed"],
];

export const list = {rows: [], picked: -1, sort: {by: "key", down: false}, open: () => {}};
const pool = []; // the elements in use
let flash = new Set(), words = [];

export function prepare() {
  for (const [by, title] of columns) {
    const button = el("button", {"data-by": by, title: `Sort by ${title.toLowerCase()}`}, title);
    button.addEventListener("click", () => {
      list.sort = {by, down: list.sort.by === by && !list.sort.down};
      refresh();
    });
    $("columns").append(el("span", {class: numeric(by)}, button));
  }
  $("list").addEventListener("scroll", () => requestAnimationFrame(draw), {passive: true});
  new ResizeObserver(() => {
    height = parseInt(getComputedStyle($("list")).getPropertyValue("--row"), 10) || 28;
    $("rows").style.height = `${list.rows.length * height}px`;
    // The headings are as wide as the rows, beside which there may be a scroll bar.
    $("columns").style.setProperty("--bar", `${$("list").offsetWidth - $("list").clientWidth}px`);
    if (list.picked >= 0) pick(list.picked); // the panel of a Service makes rows higher, and must not push its row out of sight
    else draw();
  }).observe($("list"));
  $("search").addEventListener("input", () => refresh(true));
  $("rows").addEventListener("click", (e) => {
    const row = e.target.closest(".row");
    if (row) { pick(Number(row.dataset.at)); list.open(list.rows[list.picked].key); }
  });
}

const numeric = (by) => (["endpoints", "changes", "latency", "changed"].includes(by) ? "number" : null);

// refresh selects and sorts again. The picked Service stays picked.
export function refresh(anew = false, changed = new Set()) {
  const picked = list.rows[list.picked]?.key;
  const q = parse($("search").value);
  words = q.words;
  list.rows = select(q, list.sort);
  list.picked = anew ? (list.rows.length ? 0 : -1) : list.rows.findIndex((r) => r.key === picked);
  if (list.picked < 0 && list.rows.length) list.picked = 0;
  if (anew) $("list").scrollTop = 0;
  for (const button of $("columns").querySelectorAll("button")) {
    const on = button.dataset.by === list.sort.by;
    if (on) button.setAttribute("aria-sort", list.sort.down ? "descending" : "ascending");
    else button.removeAttribute("aria-sort");
  }
  const all = model.services.size;
  $("matches").textContent = $("search").value.trim() ? `${list.rows.length} of ${all}` : "";
  $("count").textContent = all || "";
  $("empty").hidden = list.rows.length > 0;
  $("empty").textContent = all ? "No Service matches." : "No Services yet.";
  $("rows").style.height = `${list.rows.length * height}px`;
  flash = changed;
  draw();
  flash = new Set();
}

// draw puts the rows in sight into the document.
function draw() {
  const box = $("list");
  const first = Math.max(0, Math.floor(box.scrollTop / height) - spare);
  const last = Math.min(list.rows.length, Math.ceil((box.scrollTop + box.clientHeight) / height) + spare);
  while (pool.length < last - first) {
    const row = el("div", {class: "row", role: "option"},
      el("span", {}, el("span", {class: "namespace"}), el("span", {})), el("span", {class: "mono"}), el("span", {class: "mono"}),
      el("span", {class: "number"}), el("span", {}), ...[1, 2, 3].map(() => el("span", {class: "number"})));
    pool.push(row);
    $("rows").append(row);
  }
  while (pool.length > last - first) pool.pop().remove();
  // An element keeps its row while that is in sight.
  for (let at = first; at < last; at++) show(pool[at % pool.length], at);
  const picked = list.picked >= first && list.picked < last ? `row-${list.picked}` : "";
  $("list").setAttribute("aria-activedescendant", picked);
}

function set(node, text) { if (node.textContent !== text) node.textContent = text; }

// found sets a text in which the words of the search are marked.
function found(node, text, words) {
  if (!words.length) {
    if (node.childElementCount) node.replaceChildren();
    set(node, text);
    return;
  }
  const lower = text.toLowerCase(), parts = [];
  let at = 0;
  for (;;) {
    const [start, end] = words.map((w) => [lower.indexOf(w, at), w.length]).filter(([i]) => i >= 0)
      .reduce((a, [i, n]) => (i < a[0] || i === a[0] && i + n > a[1] ? [i, i + n] : a), [text.length, text.length]);
    if (start > at) parts.push(text.slice(at, start));
    if (start === text.length) break;
    parts.push(el("mark", {}, text.slice(start, end)));
    at = end;
  }
  fill(node, ...parts);
}

function show(element, at) {
  const row = list.rows[at], cells = element.children;
  element.id = `row-${at}`;
  element.dataset.at = at;
  element.dataset.key = row.key;
  element.style.top = `${at * height}px`;
  element.setAttribute("aria-selected", at === list.picked);
  element.setAttribute("aria-posinset", at + 1);
  element.setAttribute("aria-setsize", list.rows.length);
  if (flash.has(row.key)) {
    element.classList.remove("changed");
    void element.offsetWidth; // starts the animation again
    element.classList.add("changed");
  } else if (element.dataset.shown !== row.key) element.classList.remove("changed");
  element.dataset.shown = row.key;
  cells[0].title = row.key;
  found(cells[0].children[0], `${row.namespace}/`, words);
  found(cells[0].children[1], row.name, words);
  found(cells[1], (row.clusterIPs ?? []).join(" "), words);
  found(cells[2], ports(row), words.filter((w) => !/\D/.test(w)));
  set(cells[3], row.localEndpoints ? `${row.endpoints} (${row.localEndpoints})` : `${row.endpoints}`);
  cells[3].title = `${many(row.endpoints, "endpoint")}, ${row.localEndpoints} of them on this node`;
  set(cells[4], row.state);
  cells[4].className = {applied: "good", pending: "wait", shadowed: "wait"}[row.state] ?? "bad";
  set(cells[5], `${row.changes}`);
  set(cells[6], micros(row.lastMicros));
  set(cells[7], age(row.lastChange, model.status?.now));
}

// pick picks a row and brings it into sight.
export function pick(at) {
  if (!list.rows.length) return;
  list.picked = Math.max(0, Math.min(list.rows.length - 1, at));
  const box = $("list"), top = list.picked * height;
  if (top < box.scrollTop) box.scrollTop = top;
  else if (top + height > box.scrollTop + box.clientHeight) box.scrollTop = top + height - box.clientHeight;
  draw();
}
