#!/usr/bin/env python3
"""Prints what a test run cost and what it left out.

usage: ctest_summary.py BUILD_FOLDER JUNIT_FILE

The ten slowest tests, the sum of seconds per budget label, and the tests with the label `shared` that did not run.
Exit status 1 if a listed test of the run says it skipped itself: a test here either runs or is left out by name.
"""
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

BUDGETS = ["slice", "launcher", "trainer", "daily", "speed"]


def labels_by_test(build_folder):
    text = subprocess.run(["ctest", "--test-dir", build_folder, "--show-only=json-v1"],
                          check=True, stdout=subprocess.PIPE).stdout
    return {test["name"]: next((p["value"] for p in test.get("properties", []) if p["name"] == "LABELS"), [])
            for test in json.loads(text)["tests"]}


def summary(labels, seconds):
    """labels: test -> its labels, all tests. seconds: test -> time, those that ran. Returns lines."""
    lines = ["ten slowest tests:"]
    for name in sorted(seconds, key=seconds.get, reverse=True)[:10]:
        lines.append(f"  {seconds[name]:8.2f} s  {name}")
    lines.append("seconds per budget:")
    for budget in BUDGETS:
        members = [name for name in seconds if budget in labels.get(name, [])]
        if members:
            lines.append(f"  {sum(seconds[name] for name in members):8.2f} s  {budget} ({len(members)} tests)")
    unlabelled = [name for name in seconds if not set(BUDGETS) & set(labels.get(name, []))]
    if unlabelled:
        lines.append(f"  {sum(seconds[name] for name in unlabelled):8.2f} s  no budget ({len(unlabelled)} tests)")
    return lines


def not_run_without_shared(labels, seconds):
    missed = sorted(name for name in labels if "shared" in labels[name] and name not in seconds)
    if not missed:
        return []
    return [f"not run, because LOCKSTEP_SHARED (a folder with data that must not be copied) is not set: {len(missed)}",
            *(f"  {name}" for name in missed)]


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    build_folder, junit_file = sys.argv[1:]
    labels = labels_by_test(build_folder)
    cases = list(ElementTree.parse(junit_file).getroot().iter("testcase"))
    seconds = {case.get("name"): float(case.get("time", 0)) for case in cases}
    lines = summary(labels, seconds)
    if not os.environ.get("LOCKSTEP_SHARED"):
        lines += not_run_without_shared(labels, seconds)
    print("\n".join(lines))
    skipped = [case.get("name") for case in cases if case.find("skipped") is not None]
    if skipped:
        print("tests that skipped themselves (they must run or be left out by name):")
        print("\n".join(f"  {name}" for name in skipped))
        sys.exit(1)


if __name__ == "__main__":
    main()
