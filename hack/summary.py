#!/usr/bin/env python3
"""Reads the output of `go test -json` and prints a table of packages, whatever
failed in full, and the counts. Fails when a test failed, was skipped or never
ended (its process died), or when none ran."""
import collections
import json
import sys

counts = collections.defaultdict(collections.Counter)
took = {}
output = collections.defaultdict(list)
bad = []
running = {}
for line in sys.stdin:
    try:
        event = json.loads(line)
    except ValueError:
        print(line, end="")  # a build error comes as plain text
        continue
    pkg, test, action = event.get("Package", event.get("ImportPath", "")), event.get("Test"), event["Action"]
    if action in ("output", "build-output"):
        output[pkg, test].append(event["Output"])
    elif action in ("pass", "fail", "skip"):
        if test:
            counts[pkg][action] += 1
            if action != "pass":
                bad.append((action, pkg, test))
        else:
            took[pkg] = event.get("Elapsed", 0)
            if action == "fail":
                bad.append((action, pkg, None))
    elif action == "build-fail":
        bad.append(("build failed", pkg, None))
    if action == "run":
        running[pkg, test] = True
    elif test and action in ("pass", "fail", "skip"):
        running.pop((pkg, test), None)
for pkg, test in running:
    counts[pkg]["fail"] += 1
    bad.append(("never ended", pkg, test))

width = max([len(pkg) for pkg in took] + [7])
print(f"{'package':<{width}}  {'pass':>5} {'fail':>5} {'skip':>5} {'seconds':>8}")
for pkg in sorted(took):
    c = counts[pkg]
    if c:
        print(f"{pkg:<{width}}  {c['pass']:>5} {c['fail']:>5} {c['skip']:>5} {took[pkg]:>8.1f}")
for action, pkg, test in bad:
    print(f"\n--- {action}: {pkg} {test or ''}")
    print("".join(output[pkg, test])[-8000:])
total = sum(counts.values(), collections.Counter())
print(f"\n{total['pass']} passed, {total['fail'] + sum(1 for b in bad if b[2] is None and not counts[b[1]]['fail'])} failed, {total['skip']} skipped")
sys.exit(1 if bad or not total["pass"] else 0)
