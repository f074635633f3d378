#!/usr/bin/env python3
"""Fails when an object file of one instruction-set level defines a weak text symbol.

The linker keeps one copy of a weak function; if it keeps the one compiled for AVX-512, every caller
of that function faults on a lesser machine. So kernel files must define none (docs/kernels.md).
Usage: check_isa_objects.py BUILD_DIR
"""
import pathlib
import subprocess
import sys

LEVELS = ("avx2", "avx512", "amx")


def weak_symbols(path):
    listing = subprocess.run(["nm", "--demangle", str(path)], check=True, capture_output=True,
                             text=True).stdout
    for line in listing.splitlines():
        # Undefined symbols have no address; of the defined ones W is a weak function, V weak data,
        # and u a unique global (a static of an inline function).
        fields = line.split(maxsplit=2)
        if len(fields) == 3 and fields[1] in ("W", "V", "u"):
            yield fields[1], fields[2]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    build = pathlib.Path(sys.argv[1])
    problems, seen = 0, 0
    for level in LEVELS:
        objects = sorted(build.glob(f"**/okibi_kernels_{level}.dir/**/*.o"))
        if not objects:
            print(f"no object files of level {level} under {build}")
            problems += 1
        for path in objects:
            seen += 1
            for kind, name in weak_symbols(path):
                print(f"{path.relative_to(build)}: weak symbol ({kind}) {name}")
                problems += 1
    print(f"{seen} object files, {problems} problems")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
