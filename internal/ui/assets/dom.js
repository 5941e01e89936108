// Elements and texts. Everything that comes from the server becomes a text node, never markup.

export const $ = (id) => document.getElementById(id);

// el makes an element: el("td", {class: "mono"}, "text", otherElement).
export function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((c) => c !== undefined && c !== null && c !== "").map((c) => (c instanceof Node ? c : String(c))));
  return made;
}

// fill gives an element its children. Elements without a difference stay, so that a click, the focus or a marked text
// in them survives. Their listeners stay as well, so do not fill elements whose listeners depend on their content.
export function fill(box, ...children) {
  const made = [...el("div", {}, ...children).childNodes];
  made.forEach((child, i) => {
    const before = box.childNodes[i];
    if (!before) box.append(child);
    else if (before.isEqualNode(child)) return;
    else if (before instanceof Element && before.cloneNode().isEqualNode(child.cloneNode())) fill(before, ...child.childNodes);
    else before.replaceWith(child);
  });
  while (box.childNodes.length > made.length) box.lastChild.remove();
}

// table makes a table of headings and rows of cells. A cell is a text or an element.
export function table(headings, rows) {
  return el("table", {},
    el("thead", {}, el("tr", {}, ...headings.map((h) => el("th", {scope: "col"}, h)))),
    el("tbody", {}, ...rows.map((cells) => el("tr", {}, ...cells.map((c, i) => {
      const cell = c instanceof HTMLTableCellElement ? c : el("td", {}, c);
      cell.dataset.heading = headings[i]; // for narrow screens, which show no head
      return cell;
    })))));
}

// state shows a state as a colored word.
export function state(name) {
  const kinds = {applied: "good", pending: "wait", shadowed: "wait"};
  return el("span", {class: kinds[name] ?? "bad"}, name);
}

// micros formats a duration in three digits, with a unit that suits it.
export function micros(n) {
  if (n === undefined || n === null) return "–";
  if (n < 1000) return `${n} µs`;
  if (n < 999500) return `${(n / 1e3).toPrecision(3)} ms`;
  return n < 999500000 ? `${(n / 1e6).toPrecision(3)} s` : `${Math.round(n / 6e7)} min`;
}

// many formats a number of things.
export const many = (n, what) => `${n} ${what}${n === 1 ? "" : "s"}`;

// age formats how long ago a moment was, by the server's clock.
export function age(moment, now) {
  if (!moment) return "–";
  const s = Math.max(0, (Date.parse(now) - Date.parse(moment)) / 1000);
  if (s < 60) return `${Math.floor(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86400) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86400)} d`;
}

// ports lists the ports of a Service, with their names.
export const ports = (s) => (s.ports ?? []).map((p) =>
  `${p.port}${p.nodePort ? ":" + p.nodePort : ""}/${p.protocol}${p.name ? ` ${p.name}` : ""}`).join(", ");
