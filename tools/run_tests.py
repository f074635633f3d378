#!/usr/bin/env python3
"""Runs CTest for the named presets and ends with its closing lines.

    run_tests.py [--label LABEL] PRESET[:LABEL]...

Adds what CTest does not show: how many cases ran, which were skipped and why, and that a suite
which ran no case at all is a failure. Exit code 0 only when every preset passed.
"""

import argparse
import collections
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
CLOSING = re.compile(r"^(\d+% tests passed|Total Test time|The following tests F|No tests were)")


def build_dir(preset):
    return ROOT / "build" if preset == "release" else ROOT / "build" / preset


def run_ctest(preset, label, results):
    command = ["ctest", "--test-dir", str(build_dir(preset)), "--output-on-failure",
               "--no-tests=error", "--parallel", "2"]
    if label:
        command += ["-L", f"^{label}$"]
    # ThreadSanitizer wants the address layout it knows; newer kernels randomise more bits.
    if preset == "tsan" and shutil.which("setarch"):
        command = ["setarch", platform.machine(), "-R"] + command
    shutil.rmtree(results, ignore_errors=True)
    results.mkdir(parents=True)
    env = dict(os.environ, GTEST_OUTPUT=f"xml:{results}/")
    closing = []
    print(f"== {preset}: {' '.join(command)}", flush=True)
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=env, text=True,
                          errors="replace") as process:
        for line in process.stdout:
            print(line, end="", flush=True)
            if CLOSING.match(line):
                closing.append(line.rstrip())
    return process.returncode == 0, closing


def summarise(results):
    """Prints case counts and skips; returns the programs that ran no case."""
    cases = collections.Counter()
    skips = collections.Counter()
    for path in sorted(results.glob("*.xml")):
        try:
            suites = ElementTree.parse(path).getroot()
        except ElementTree.ParseError:
            continue  # the program died; CTest has reported it
        program = re.sub(r"_\d+$", "", path.stem)
        cases[program] += 0
        for case in suites.iter("testcase"):
            skipped = case.find("skipped")
            if skipped is not None:
                reason = (skipped.get("message") or "no reason given").strip().splitlines()[-1]
                skips[f"{program}: {case.get('classname')}: {reason}"] += 1
            elif case.get("status") == "run":
                cases[program] += 1
    print(f"cases that ran: {sum(cases.values())} ("
          + ", ".join(f"{name} {count}" for name, count in cases.items()) + ")")
    print(f"cases skipped: {sum(skips.values())}")
    for what, count in skips.items():
        print(f"  {count} x {what}")
    return [name for name, count in cases.items() if count == 0]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--label", default="")
    parser.add_argument("presets", nargs="+")
    args = parser.parse_args()

    failed = False
    closings = []
    for item in args.presets:
        preset, _, label = item.partition(":")
        results = build_dir(preset) / "test-results"
        passed, closing = run_ctest(preset, label or args.label, results)
        empty = summarise(results)
        for program in empty:
            print(f"{preset}: {program} ran no case at all")
        failed = failed or not passed or bool(empty)
        closings.append((preset, closing))
    print()
    for preset, closing in closings:
        print(f"== {preset}")
        # The line people look for stands last.
        for line in sorted(closing, key=lambda text: "tests passed" in text):
            print(line)
    sys.stdout.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
