// What the page knows: all Services by key, kept up to date by differences from the server.

const api = "api/v1alpha1";

export const model = {
  services: new Map(), // "namespace/name" → row
  status: null,
  epoch: "",
  revision: 0,
};

// question asks the server. An error says what it said.
export async function question(path) {
  const answer = await fetch(`${api}/${path}`, {cache: "no-store"});
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

export const keyOf = (s) => `${s.namespace}/${s.name}`;

// update asks for what has changed. It returns the keys that did, and whether everything is new.
export async function update() {
  const since = new URLSearchParams({epoch: model.epoch, since: model.revision});
  const answer = await question(`changes?${since}`);
  const changed = new Set();
  if (answer.full) {
    for (const key of model.services.keys()) changed.add(key);
    model.services.clear();
  }
  for (const row of answer.items) {
    const key = keyOf(row);
    row.key = key;
    row.text = `${key} ${(row.clusterIPs ?? []).join(" ")} ${(row.ports ?? []).map((p) =>
      `${p.port} ${p.nodePort ?? ""} ${p.protocol} ${p.name ?? ""}`).join(" ")}`.toLowerCase();
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

// select returns the rows that have every word and the state, sorted.
export function select(words, wanted, sort) {
  const found = [];
  for (const row of model.services.values()) {
    if (wanted && row.state !== wanted) continue;
    if (words.every((w) => row.text.includes(w))) found.push(row);
  }
  const by = orders[sort.by], sign = sort.down ? -1 : 1;
  // Keys are compared by their code units, which is fast and the server's order.
  return found.sort((a, b) => sign * by(a, b) || (a.key < b.key ? -1 : 1));
}

const gravity = ["too large", "parked", "restarting", "quarantined", "shadowed", "pending", "applied"];
const number = (of) => (a, b) => of(a) - of(b);
const orders = {
  key: (a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0),
  address: (a, b) => (a.clusterIPs?.[0] ?? "").localeCompare(b.clusterIPs?.[0] ?? "", "en", {numeric: true}),
  ports: number((r) => r.ports?.[0]?.port ?? 0),
  endpoints: number((r) => r.endpoints),
  state: number((r) => gravity.indexOf(r.state)),
  changes: number((r) => r.changes),
  latency: number((r) => r.lastMicros ?? -1),
  changed: number((r) => -Date.parse(r.lastChange ?? 0)),
};
