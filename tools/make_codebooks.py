#!/usr/bin/env python3
"""Writes src/tensor/codebooks.inc from tools/codebooks.json.

Usage: tools/make_codebooks.py [--check]
Owns the constant tables of the quantised formats as numbers; how they are used is in
src/tensor/dequantize.cpp. With --check nothing is written and a stale file is an error.
"""
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE = ROOT / "tools" / "codebooks.json"
TARGET = ROOT / "src" / "tensor" / "codebooks.inc"

# table -> (C++ name, element type), in the order of codebooks.h
TABLES = {
    "ksigns": ("kKSigns", "uint8_t"),
    "iq2xxs_grid": ("kIq2XxsGrid", "uint8_t"),
    "iq2xs_grid": ("kIq2XsGrid", "uint8_t"),
    "iq2s_grid": ("kIq2SGrid", "uint8_t"),
    "iq3xxs_grid": ("kIq3XxsGrid", "uint8_t"),
    "iq3s_grid": ("kIq3SGrid", "uint8_t"),
    "iq1_grid": ("kIq1Grid", "int8_t"),
    "iq4nl_values": ("kIq4NlValues", "int8_t"),
    "fp4_values_x2": ("kFp4ValuesX2", "int8_t"),
    "pow3": ("kPow3", "uint8_t"),
}


def rows_text(items):
    """Comma-separated items, packed into lines of at most 100 columns."""
    lines, line = [], "   "
    for item in items:
        piece = " " + item + ","
        if len(line) + len(piece) > 100:
            lines.append(line)
            line = "   "
        line += piece
    lines.append(line)
    return "\n".join(lines)


def table_text(table):
    name, element = TABLES[table["name"]]
    shape, data = table["shape"], table["data"]
    dims = "".join(f"[{n}]" for n in shape)
    if len(shape) == 1:
        items = [str(v) for v in data]
    else:
        width = shape[1]
        items = [
            "{" + ", ".join(str(v) for v in data[i : i + width]) + "}"
            for i in range(0, len(data), width)
        ]
    count = 1
    for n in shape:
        count *= n
    assert count == len(data), table["name"]
    return f"alignas(64) extern const {element} {name}{dims} = {{\n{rows_text(items)}\n}};\n"


def main():
    tables = {t["name"]: t for t in json.loads(SOURCE.read_text())["tables"]}
    assert set(tables) == set(TABLES), sorted(tables)
    text = "// Made by tools/make_codebooks.py from tools/codebooks.json; do not edit.\n"
    text += "// clang-format off\n"
    text += "\n".join(table_text(tables[name]) for name in TABLES)
    text += "// clang-format on\n"
    if "--check" in sys.argv[1:]:
        if TARGET.read_text() != text:
            sys.exit(f"{TARGET} is stale: run tools/make_codebooks.py")
        return
    TARGET.write_text(text)


if __name__ == "__main__":
    main()
