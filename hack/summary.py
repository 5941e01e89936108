#!/usr/bin/env python3
"""Reads the output of `go test -json` and prints a table of packages, the output of
tests that failed, the counts, and last the messages of each failure once more. Fails
when a test failed, was skipped or never ended (its process died), or when none ran.

Tests that failed and passed when hack/gotest ran them again are flaky: they are
printed and counted, and do not fail the run. --failed prints what hack/gotest runs
again: a line for each package, with the names of its tests that failed."""
import collections
import json
import re
import sys

AGAIN = " (again)"
counts = collections.defaultdict(collections.Counter)
passes = collections.Counter()
took = {}
output = collections.defaultdict(list)
bad = []
running = {}
for line in sys.stdin:
    try:
        event = json.loads(line)
    except ValueError:
        if "--failed" not in sys.argv:
            print(line, end="")  # a build error comes as plain text
        continue
    pkg, test, action = event.get("Package", event.get("ImportPath", "")), event.get("Test"), event["Action"]
    if action in ("output", "build-output"):
        output[pkg, test].append(event["Output"])
    elif action in ("pass", "fail", "skip"):
        if test:
            counts[pkg][action] += 1
            passes[pkg, test] += action == "pass"
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


def failed(pkg):
    """The names of the tests of a package that failed, or none if running them again is
    not enough: after a panic or a timeout some did not run, and a data race is one in any case."""
    of = [(action, test) for action, at, test in bad if at == pkg]
    died = any(re.search(r"^(panic: |fatal error: |WARNING: DATA RACE)", text) for (at, _), lines in output.items() if at == pkg for text in lines)
    if died or any(action in ("skip", "never ended", "build failed") for action, _ in of):
        return set()
    return {test.split("/")[0] for _, test in of if test}


if "--failed" in sys.argv:
    for pkg in sorted({pkg for _, pkg, _ in bad}):
        if tests := failed(pkg):
            print(pkg, "|".join(sorted(tests)))
    sys.exit(0)



def passed_again(pkg, test):
    """Whether a test passed twice for each time that it failed, and never failed again."""
    return passes[pkg + AGAIN, test] >= 2 * bad.count(("fail", pkg, test))


flaky = [b for b in bad if failed(b[1]) and all(passed_again(b[1], test) for test in failed(b[1]))
         and not any(pkg == b[1] + AGAIN for _, pkg, _ in bad)]
bad = [b for b in bad if b not in flaky]

width = max([len(pkg) for pkg in took] + [7])
print(f"{'package':<{width}}  {'pass':>5} {'fail':>5} {'skip':>5} {'seconds':>8}")
for pkg in sorted(took):
    c = counts[pkg]
    if c:
        print(f"{pkg:<{width}}  {c['pass']:>5} {c['fail']:>5} {c['skip']:>5} {took[pkg]:>8.1f}")
for action, pkg, test in flaky + bad:
    print(f"\n--- {'flaky' if (action, pkg, test) in flaky else action}: {pkg} {test or ''}")
    print("".join(output[pkg, test])[-8000:])
total = sum(counts.values(), collections.Counter())
fails = sum(1 for action, _, test in bad if test and action != "skip") + sum(1 for b in bad if b[2] is None and not counts[b[1]]["fail"])
print(f"\n{total['pass']} passed, {fails} failed, {total['skip']} skipped" +
      (f", {sum(1 for b in flaky if b[2])} flaky (failed once, passed twice alone)" if flaky else ""))
for action, pkg, test in flaky + bad:
    lines = output[pkg, test]
    at = [i for i, line in enumerate(lines) if re.match(r"\s+\w+_test\.go:\d+: ", line)]
    if at:  # the last message is what failed, and its further lines
        print(f"  {test}:", "".join(line for line in lines[at[-1]:at[-1] + 12] if "--- " not in line).strip()[:1000])
sys.exit(1 if bad or not total["pass"] else 0)
