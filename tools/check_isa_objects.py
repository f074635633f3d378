#!/usr/bin/env python3
"""Fails when an object file of one instruction-set level defines a weak symbol.

    check_isa_objects.py BUILD_DIR           check the objects of a build
    check_isa_objects.py --self-test CXX     compile one object that must be found and one that not

The linker keeps one copy of a weak function; if it keeps the one compiled for AVX-512, every caller
of that function faults on a lesser machine. So kernel files must define none (docs/kernels.md).
"""

import pathlib
import subprocess
import sys
import tempfile

LEVELS = ("avx2", "avx512", "amx")
# Of the symbols that nm lists, W is a weak function, V weak data, and u a unique global (a static
# of an inline function). Undefined ones have no address and so only two fields.
WEAK = ("W", "V", "u")


def objects_of(build, level):
    # The folder of this build only: build/ also holds build/asan and others.
    return sorted(build.glob(f"src/CMakeFiles/okibi_kernels_{level}.dir/**/*.o"))


def check(build):
    """Problems as lines of text, and the number of objects seen."""
    problems, seen = [], 0
    for level in LEVELS:
        objects = objects_of(build, level)
        if not objects:
            problems.append(f"no object files of level {level} under {build}")
        for path in objects:
            seen += 1
            listing = subprocess.run(["nm", "--demangle", str(path)], check=True,
                                     capture_output=True, text=True).stdout
            for line in listing.splitlines():
                fields = line.split(maxsplit=2)
                if len(fields) == 3 and fields[1] in WEAK:
                    problems.append(
                        f"{path.relative_to(build)}: weak symbol ({fields[1]}) {fields[2]}")
    return problems, seen


def self_test(compiler):
    def problems_with(text):
        with tempfile.TemporaryDirectory() as name:
            build = pathlib.Path(name)
            (build / "a.cpp").write_text(text)
            for level in LEVELS:
                path = build / f"src/CMakeFiles/okibi_kernels_{level}.dir/a.o"
                path.parent.mkdir(parents=True)
                subprocess.run([compiler, "-O2", "-c", str(build / "a.cpp"), "-o", str(path)],
                               check=True)
            return check(build)[0]

    clean = problems_with("static int f(int x) { return x; }\nint g(int x) { return f(x); }\n")
    weak = problems_with("inline __attribute__((noinline)) int f(int x) { return x; }\n"
                         "int g(int x) { return f(x); }\n")
    missing = check(pathlib.Path("/nonexistent"))[0]
    ok = not clean and len(weak) == len(LEVELS) and len(missing) == len(LEVELS)
    print(f"clean: {clean}\nplanted: {weak}\nno objects: {missing}")
    return 0 if ok else 1


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "--self-test":
        return self_test(sys.argv[2])
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    problems, seen = check(pathlib.Path(sys.argv[1]))
    for line in problems:
        print(line)
    print(f"{seen} object files, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
