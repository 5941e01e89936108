#!/usr/bin/env python3
"""Reads what hack/test-kernels has left, prints whatever failed, and a table of kernels and
backends. Fails when something failed, was skipped, or did not run."""
import collections
import json
import pathlib
import re
import sys

out, kernels = pathlib.Path(sys.argv[1]), sys.argv[2:]
BACKENDS = ("nftables", "iptables-nft", "iptables-legacy", "ipvs")
# What is chosen without a module, and said (hack/kernels/choices).
CHOICE = "choice"
rows, bad, chosen = [], [], []


def backends(package, test):
    """The backends that a test is about. Those of iptables name a variant, or are about both."""
    for backend in ("nftables", "ipvs"):
        if f"({backend})" in package:
            return [backend]
    named = re.findall(r"\b(nft|legacy)\b", test)
    return ["iptables-" + named[0]] if named else ["iptables-nft", "iptables-legacy"]


def version(text):
    found = re.search(r"v(\d[\d.]*)", text)
    return found.group(1) if found else "missing"


for kernel in kernels:
    folder = out / kernel
    counts, took = collections.defaultdict(collections.Counter), collections.Counter()
    events, said = [], collections.defaultdict(list)
    if (folder / "all.json").exists():
        events = [json.loads(line) for line in (folder / "all.json").read_text().splitlines()]
    parents = {(e["Package"], e["Test"].rpartition("/")[0]) for e in events if "Test" in e}
    for e in events:
        package, test, action = e["Package"], e.get("Test"), e["Action"]
        said[package, test].append(e.get("Output", ""))
        if action not in ("pass", "fail", "skip"):
            continue
        if test is None:
            if action == "fail" and not any(name for p, name in said if p == package):
                bad.append((kernel, package, "did not run", said[package, None]))
                counts[backends(package, "")[0]]["fail"] += 1
            continue
        if action != "pass":
            bad.append((kernel, package, f"{action}: {test}", said[package, test]))
        if (package, test) in parents:
            continue  # its parts are counted
        for backend in backends(package, test):
            counts[backend][action] += 1
            took[backend] += e.get("Elapsed", 0)
    for backend in BACKENDS + (CHOICE,) * (folder / f"{CHOICE}.json").exists():
        played = folder / f"{backend}.json"
        for line in played.read_text().splitlines() if played.exists() else ["no scenario was played"]:
            try:
                r = json.loads(line)
            except ValueError:
                if "passed" not in line:
                    bad.append((kernel, backend, line, []))
                    counts[backend]["fail"] += 1
                continue
            action = {"passed": "pass", "FAILED": "fail"}.get(r["outcome"], "skip")
            counts[backend][action] += 1
            took[backend] += r["seconds"]
            if "line" in r:
                chosen.append(f'{kernel}, {r["id"]}, {r["title"]}: {r["line"]}')
            if action != "pass":
                bad.append((kernel, backend, f'{action}: {r["id"]} {r["title"]}', [r.get("reason", "")]))
    versions = (folder / "versions").read_text().splitlines() if (folder / "versions").exists() else []
    release, nft, iptables, _, ipset = (versions + ["missing"] * 5)[:5]
    programs = {"nftables": f"nft {version(nft)}", "ipvs": f"ipset {version(ipset)}"}
    for backend in BACKENDS + (CHOICE,) * (CHOICE in counts):
        c = counts[backend]
        rows.append((release, programs.get(backend, f"iptables {version(iptables)}"), backend,
                     c["pass"], c["fail"], c["skip"], f"{took[backend]:.0f}"))
        if not c["pass"]:
            bad.append((kernel, backend, "nothing has passed", []))

for kernel, package, what, lines in bad:
    print(f"\n{kernel}: {package}: {what}\n" + "".join(lines), end="")
head = ("kernel", "programs", "backend", "passed", "failed", "skipped", "seconds")
table = [head] + [tuple(map(str, row)) for row in rows]
widths = [max(len(row[i]) for row in table) for i in range(len(head))]
print()
for row in table:
    print("  ".join(cell.ljust(w) if i < 3 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths))))
print(*chosen, sep="\n")
sys.exit(1 if bad else 0)
