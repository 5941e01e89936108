// What the page knows: all Services by key, kept up to date by differences from the server.

const api = "api/v1alpha1";

export const model = {
  services: new Map(), // "namespace/name" → row
  status: null,
  epoch: "",
  revision: 0,
};

const patience = 25000, updatePatience = 10000;

// question queries the server. An error contains the server's message. A server that hangs is an error.
export async function question(path, timeout = patience) {
  const answer = await fetch(`${api}/${path}`, {cache: "no-store", signal: AbortSignal.timeout(timeout)});
  const text = await answer.text();
  let made;
  try { made = JSON.parse(text); } catch { made = {error: text.trim()}; }
  if (!answer.ok) {
    const failure = new Error(made.error || `${answer.status} ${answer.statusText}`);
    failure.status = answer.status;
    throw failure;
  }
  return made;
}

// measured asks for traffic. If this mode does not count it, the result is a note; after another error, it is the
// earlier answer.
export async function measured(path, before) {
  try { return await question(path); }
  catch (error) { return before && error.status !== 404 ? before : {note: error.message}; }
}

// states are the states in a search, the most common first. The last one is about endpoints.
export const states = {
  applied: {text: "applied", kind: "good"}, pending: {text: "pending", kind: "wait"}, shadowed: {text: "shadowed", kind: "wait"},
  held: {text: "held", kind: "bad"}, "no-endpoints": {text: "without endpoints", kind: "wait"},
};

// statesOf returns the states of a row, as a search names them. The endpoints of a pending Service are unknown.
export function statesOf(row) {
  const [state] = row.state.split(" ("); // the reason follows
  return row.endpoints || state === "pending" ? [state] : [state, "no-endpoints"];
}

export const keyOf = (s) => `${s.namespace}/${s.name}`;

// update asks for changes. It returns the keys of changed Services, and whether everything is new.
export async function update() {
  const since = new URLSearchParams({epoch: model.epoch, since: model.revision});
  const answer = await question(`changes?${since}`, updatePatience);
  const changed = new Set();
  if (answer.full) {
    for (const key of model.services.keys()) changed.add(key);
    model.services.clear();
  }
  for (const row of answer.items) {
    const key = keyOf(row);
    row.key = key;
    row.text = `${key} ${(row.clusterIPs ?? []).join(" ")} ${(row.ports ?? []).map((p) => `${p.port} ${p.nodePort || ""}`).join(" ")}`.toLowerCase();
    model.services.set(key, row);
    changed.add(key);
  }
  for (const key of answer.gone ?? []) {
    model.services.delete(key);
    changed.add(key);
  }
  model.epoch = answer.epoch;
  model.revision = answer.revision;
  model.status = answer.status;
  return {changed, full: answer.full};
}

// parse reads a search. Words with ns:, port: or state: are filters; the others are parts of names, addresses and
// numbers of ports.
export function parse(text) {
  const q = {words: [], ns: [], port: [], state: []};
  for (const word of text.toLowerCase().split(/\s+/).filter(Boolean)) {
    const [, kind, value] = /^(ns|port|state):(.*)$/.exec(word) ?? [];
    if (!kind) q.words.push(word);
    else if (value) q[kind].push(value);
  }
  return q;
}

// matches reports whether a row has every word, and one value of each filter. The start of a state suffices.
const matches = (row, q) => (!q.ns.length || q.ns.includes(row.namespace)) &&
  (!q.port.length || (row.ports ?? []).some((p) => q.port.some((v) => v === String(p.port) || v === String(p.nodePort) || v === p.name))) &&
  (!q.state.length || statesOf(row).some((s) => q.state.some((v) => s.startsWith(v)))) &&
  q.words.every((w) => row.text.includes(w));

// select returns the rows that a parsed search finds, sorted.
export function select(q, sort) {
  const found = [];
  for (const row of model.services.values()) if (matches(row, q)) found.push(row);
  const by = orders[sort.by], sign = sort.down ? -1 : 1;
  // Keys are compared by their code units, which is fast and the server's order.
  return found.sort((a, b) => sign * by(a, b) || (a.key < b.key ? -1 : 1));
}

const gravity = ["held", "shadowed", "pending", "applied"];
const number = (of) => (a, b) => of(a) - of(b);
const orders = {
  key: (a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0),
  address: (a, b) => (a.clusterIPs?.[0] ?? "").localeCompare(b.clusterIPs?.[0] ?? "", "en", {numeric: true}),
  ports: number((r) => r.ports?.[0]?.port ?? 0),
  endpoints: number((r) => r.endpoints),
  state: number((r) => gravity.indexOf(r.state.split(" (")[0])),
  changes: number((r) => r.changes),
  latency: number((r) => r.lastMicros ?? -1),
  changed: number((r) => -Date.parse(r.lastChange ?? 0)),
};
