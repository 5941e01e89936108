#!/usr/bin/env python3
"""Prints a Markdown table of the tests in several files with the output of `go test -json`: a row
for each test, a column for each file. A cell counts the subtests, or the test without subtests, that
passed; those with another outcome are counted as well."""
import collections
import json
import os
import sys

results = collections.defaultdict(lambda: collections.defaultdict(lambda: collections.defaultdict(collections.Counter)))
for name in sys.argv[1:]:
    for line in open(name):
        try:
            event = json.loads(line)
        except ValueError:
            continue  # a build error
        if event.get("Test") and event["Action"] in ("run", "pass", "fail", "skip"):
            test, _, sub = event["Test"].partition("/")
            results[test][name][sub][event["Action"]] += 1


def outcome(seen):
    if seen["fail"]:
        return "FAILED"
    if seen["pass"] + seen["skip"] < seen["run"]:
        return "NOT ENDED"
    return "skipped" if seen["skip"] else "passed"


def cell(of):
    leaves = [sub for sub in of if not any(other != sub and other.startswith(sub + "/" if sub else "") for other in of)]
    counts = collections.Counter(outcome(of[leaf]) for leaf in leaves)
    return ", ".join(f"{count} {word}" for word, count in sorted(counts.items())) or "NOT RUN"


print("| Test | " + " | ".join(os.path.basename(name) for name in sys.argv[1:]) + " |")
print("| --- |" + " --- |" * len(sys.argv[1:]))
for test in sorted(results):
    print(f"| `{test}` | " + " | ".join(cell(results[test][name]) for name in sys.argv[1:]) + " |")
sys.exit(0 if results else 1)
