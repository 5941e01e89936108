// The view of current problems.
import {$, el, fill, age, table} from "./dom.js";
import {model, statesOf} from "./model.js";

const link = (key) => el("a", {href: `#/${key}`}, key);

// folded joins findings that differ only in what they are about.
function folded(findings) {
  const byText = Map.groupBy(findings, (f) => `${f.kind}\n${f.problem}\n${f.advice}`);
  return [...byText.values()].map((all) => ({...all[0], about: all.map((f) => f.about).filter(Boolean).join(", "),
    unhealthy: all.some((f) => f.unhealthy), services: [...new Set(all.flatMap((f) => f.services ?? []))]}));
}

// searches find the Services of a finding; others is a link to such a search.
const searches = {shadowed: "state:shadowed", quarantined: "state:held", parked: "state:held"};
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
  const listed = new Set(held.map((q) => `${q.namespace}/${q.name}`)); // the actors of the others fail
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
