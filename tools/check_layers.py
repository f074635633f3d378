#!/usr/bin/env python3
"""Checks the rules of the source tree that a compiler does not.

    check_layers.py [--root DIR]     check the tree; exit code 1 with one line per violation
    check_layers.py --self-test      plant each kind of violation in a small tree and look for it

Rules: includes follow the edges of tools/layers.txt (transitive ones allowed); outside src/cpu and
apps, cpu/ is named by engine/open_backend.cpp alone; include/okibi knows the standard library and
itself; getenv, printing and exiting happen in apps/ only; ASCII, lines of at most 100 columns;
files of at most 600 lines, unless one of the first 12 says why ("Longer than 600 lines: ...").
Files named .inc are tables and may be of any length.
Printed for information: the five largest files and the functions of more than 60 lines.
"""

import argparse
import pathlib
import re
import sys
import tempfile

MAX_LINES = 600
MAX_COLUMNS = 100
MAX_FUNCTION_LINES = 60
EXEMPTION = "Longer than 600 lines:"
BACKEND_OPENER = "src/engine/open_backend.cpp"
GENERATED = "build_info.h"  # written by the build, for apps/ only
# CHECK prints the values it compares before it aborts; it is the one place of src/ that may.
MAY_PRINT = {"src/base/check.h", "src/base/check.cpp"}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
STRIP = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.S)
GETENV = re.compile(r"\b(secure_)?getenv\b")
PRINTS = re.compile(r"\b(std::cout|std::cerr|stdout|stderr|printf|puts|putchar|exit|quick_exit)\b")
FUNCTION_START = re.compile(r"^[A-Za-z_].*\{\s*$")
NOT_FUNCTION = re.compile(
    r"^(namespace|struct|class|enum|union|extern|constexpr|const|static const)\b")


def read_layers(path):
    """The folders each folder may include: {folder: {direct and transitive folders}}."""
    direct = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        line = line.split("#")[0].strip()
        if not line:
            continue
        folder, colon, rest = line.partition(":")
        if not colon or folder in direct:
            raise SystemExit(f"{path}:{number}: expected 'folder: folder ...', each folder once")
        direct[folder] = rest.split()
    for folder, edges in direct.items():
        for edge in edges:
            if edge not in direct:
                raise SystemExit(f"{path}: {folder} names {edge}, which has no line of its own")

    def reach(folder, trail):
        if folder in trail:
            raise SystemExit(f"{path}: a cycle: {' -> '.join(trail + [folder])}")
        found = set()
        for edge in direct[folder]:
            found |= {edge} | reach(edge, trail + [folder])
        return found

    return {folder: reach(folder, []) for folder in direct}


def folder_of(relative):
    parts = pathlib.PurePosixPath(relative).parts
    if parts[0] == "src":
        return parts[1]
    return "okibi" if parts[0] == "include" else parts[0]


def check_include(relative, layers, quote, target):
    """Why this include is not allowed, or None."""
    folder = folder_of(relative)
    if quote == "<":
        if folder == "okibi" and not re.fullmatch(r"[a-z_0-9]+", target):
            return f"includes <{target}>; the public headers know the standard library only"
        return None
    head = target.split("/")[0]
    if head == "okibi":
        return None
    if folder == "okibi":
        return f'includes "{target}"; the public headers include okibi/ only'
    if head == folder or (folder == "apps" and target == GENERATED):
        return None
    if "/" not in target or head not in layers:
        return f'includes "{target}"; includes are written from src/, with a folder of layers.txt'
    if folder not in layers:
        return f"is in the folder {folder}, which tools/layers.txt does not list"
    if head not in layers[folder]:
        return f'includes "{target}", but tools/layers.txt has no edge from {folder} to {head}'
    if head == "cpu" and folder != "apps" and relative != BACKEND_OPENER:
        return f'includes "{target}"; {BACKEND_OPENER} alone names cpu/'
    return None


def long_functions(relative, lines):
    start = None
    for number, line in enumerate(lines, 1):
        if start is None and FUNCTION_START.match(line) and not NOT_FUNCTION.match(line):
            start = number
        elif start is not None and line.startswith("}"):
            if number - start + 1 > MAX_FUNCTION_LINES:
                yield number - start + 1, f"{relative}:{start}"
            start = None


def check_file(root, path, layers):
    """Violations of one C++ file, as lines of text."""
    relative = path.relative_to(root).as_posix()
    data = path.read_bytes()
    text = data.decode("latin-1")
    lines = text.splitlines()
    layered = relative.split("/")[0] in ("src", "include", "apps")

    for number, line in enumerate(lines, 1):
        if not line.isascii():
            yield f"{relative}:{number}: not ASCII"
        if len(line) > MAX_COLUMNS:
            yield f"{relative}:{number}: {len(line)} columns, expected at most {MAX_COLUMNS}"
        include = INCLUDE.match(line)
        if include and layered:
            reason = check_include(relative, layers, include.group(1), include.group(2))
            if reason:
                yield f"{relative}:{number}: {reason}"
    is_code = path.suffix != ".inc"
    if is_code and len(lines) > MAX_LINES and not any(EXEMPTION in line for line in lines[:12]):
        yield (f"{relative}: {len(lines)} lines, expected at most {MAX_LINES}; split it, or say in "
               f"its head why not ('{EXEMPTION} ...')")
    if relative.startswith(("src/", "include/")):
        code = STRIP.sub(lambda m: "\n" * m.group().count("\n"), text)
        for number, line in enumerate(code.splitlines(), 1):
            if GETENV.search(line):
                yield f"{relative}:{number}: getenv; only apps/ reads the environment"
            found = PRINTS.search(line)
            if found and relative not in MAY_PRINT:
                yield f"{relative}:{number}: {found.group()}; only apps/ prints or exits"


def sources(root):
    for top in ("include", "src", "apps", "tests", "bench"):
        for path in sorted((root / top).rglob("*")):
            if path.suffix in (".h", ".cpp", ".inc") and path.is_file():
                yield path


def check_tree(root):
    layers = read_layers(root / "tools/layers.txt")
    violations, sizes, functions = [], [], []
    for path in sources(root):
        violations += check_file(root, path, layers)
        lines = path.read_text(encoding="latin-1").splitlines()
        relative = path.relative_to(root).as_posix()
        sizes.append((len(lines), relative))
        if path.suffix != ".inc":
            functions += long_functions(relative, lines)
    for path in sorted((root / "tools").glob("*.py")):
        for number, line in enumerate(path.read_text(encoding="latin-1").splitlines(), 1):
            if not line.isascii() or len(line) > MAX_COLUMNS:
                violations.append(f"tools/{path.name}:{number}: not ASCII, or too long")
    return violations, sorted(sizes, reverse=True), sorted(functions, reverse=True)


LAYERS = """base:
tensor: base
ops: tensor
cpu: ops
model: ops
engine: model cpu
apps: engine cpu
"""

# What is planted, and a piece of the report that must name it.
PLANTED = [
    ("src/base/up.h", '#include "tensor/dtype.h"\n', "no edge from base to tensor"),
    ("src/model/backend.cpp", '#include "cpu/kernel_table.h"\n', "no edge from model to cpu"),
    ("src/engine/engine.cpp", '#include "cpu/kernel_table.h"\n', "open_backend.cpp alone names"),
    ("src/base/bare.h", '#include "status.h"\n', "written from src/"),
    ("src/stray/a.h", '#include "base/a.h"\n', "does not list"),
    ("include/okibi/door.h", '#include "engine/engine.h"\n', "public headers include okibi/ only"),
    ("include/okibi/lib.h", "#include <fmt/format.h>\n", "the standard library only"),
    ("src/base/env.cpp", 'auto* x = std::getenv("HOME");\n', "reads the environment"),
    ("src/base/talk.cpp", 'void f() { std::printf("x"); }\n', "only apps/ prints"),
    ("src/base/leave.cpp", "void f() { std::exit(1); }\n", "only apps/ prints"),
    ("src/base/name.cpp", "// \xe9\n", "not ASCII"),
    ("tests/unit/wide_test.cpp", "// " + "x" * 98 + "\n", "101 columns"),
    ("src/base/long.cpp", "\n" * 601, "601 lines"),
]
ALLOWED = [
    ("src/engine/open_backend.cpp", '#include "cpu/kernel_table.h"\n#include "tensor/dtype.h"\n'),
    ("src/cpu/ops.cpp", '#include "cpu/kernel_table.h"\n#include "okibi/status.h"\n'),
    ("apps/bench.cpp", '#include "cpu/kernel_table.h"\n#include "build_info.h"\n'),
    ("apps/home.cpp", 'auto* x = getenv("HOME");\n'),
    ("src/base/check.cpp", "// getenv in a comment\nvoid f() { std::fputs(stderr); }\n"),
    ("src/base/table.cpp", f"// {EXEMPTION} it is one table.\n" + "\n" * 700),
    ("include/okibi/status.h", '#include <string>\n#include "okibi/text.h"\n'),
]


def self_test():
    def report(files):
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            for relative, text in [("tools/layers.txt", LAYERS)] + files:
                path = root / relative
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(text.encode("latin-1"))
            return check_tree(root)[0]

    failures = [f"allowed, but reported: {line}" for line in report(ALLOWED)]
    for relative, text, expected in PLANTED:
        lines = report(ALLOWED + [(relative, text)])
        if len(lines) != 1 or not lines[0].startswith(relative) or expected not in lines[0]:
            failures.append(f"planted in {relative}: expected one line with '{expected}', "
                            f"found {lines}")
    for line in failures:
        print(line)
    print(f"check_layers: {len(PLANTED)} planted violations, {len(failures)} failures")
    return 1 if failures else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--self-test", action="store_true")
    args = parser.parse_args()
    if args.self_test:
        return self_test()

    violations, sizes, functions = check_tree(args.root)
    print("largest files: " + ", ".join(f"{name} {lines}" for lines, name in sizes[:5]))
    if functions:
        print(f"functions of more than {MAX_FUNCTION_LINES} lines: "
              + ", ".join(f"{name} {lines}" for lines, name in functions))
    for line in violations:
        print(line)
    print(f"check_layers: {len(sizes)} files, {len(violations)} violations")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
