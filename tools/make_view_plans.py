#!/usr/bin/env python3
"""Writes tests/golden/view_plans: what the reference image processor of LFM2-VL plans for random
sizes. Run when the planner's contract changes; the tests read only the files.

    python3 -m venv /tmp/ref && /tmp/ref/bin/pip install transformers==5.17.0
    /tmp/ref/bin/python tools/make_view_plans.py tests/golden/view_plans

The processor's own size functions are called, picked out of its installed source file: the module
as a whole imports torch and torchvision, which they do not use.

plans.bin: for each plan ten bytes, little-endian: width u16, height u16, columns u8, rows u8,
view width / 32 u16, view height / 32 u16 (the single view, or the thumbnail). The parameter sets of
manifest.json follow one another.
"""

import argparse
import ast
import functools
import hashlib
import importlib.metadata
import importlib.util
import json
import math
import random
import struct
import sys
from pathlib import Path

FUNCTIONS = {"round_by_factor", "find_closest_aspect_ratio"}
METHODS = {"_target_ratios", "_get_grid_layout", "smart_resize", "_is_image_too_large"}
DEFAULTS = dict(min_image_tokens=64, max_image_tokens=256, encoder_patch_size=16,
                downsample_factor=2, tile_size=512, min_tiles=2, max_tiles=10,
                max_pixels_tolerance=2.0)
SETS = [
    ("LFM2.5-VL-450M and -1.6B", {}, 10000),
    ("LFM2-VL-1.6B", {"max_pixels_tolerance": 1.5}, 2000),
    ("LFM2.5-VL-3B", {"min_tiles": 1}, 2000),
    ("small", {"min_image_tokens": 16, "max_image_tokens": 64, "tile_size": 256, "max_tiles": 6},
     2000),
]
MAX_SIDE, MAX_PIXELS, MAX_ASPECT = 30000, 64 << 20, 200


def load_processor():
    """An object with the size methods of the installed package, its version and the file's hash."""
    spec = importlib.util.find_spec("transformers")
    path = Path(spec.origin).parent / "models/lfm2_vl/image_processing_lfm2_vl.py"
    tree = ast.parse(path.read_text())
    kept = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name in FUNCTIONS:
            kept.append(node)
        if isinstance(node, ast.ClassDef) and node.name == "Lfm2VlImageProcessor":
            node.bases, node.decorator_list = [], []
            node.body = [n for n in node.body
                         if isinstance(n, ast.FunctionDef) and n.name in METHODS]
            kept.append(node)
    module = {"math": math, "lru_cache": functools.lru_cache}
    exec(compile(ast.Module(kept, []), str(path), "exec"), module)
    return (module["Lfm2VlImageProcessor"](), importlib.metadata.version("transformers"),
            hashlib.sha256(path.read_bytes()).hexdigest())


def reference_plan(processor, width, height, params):
    sizes = {k: params[k] for k in ("max_image_tokens", "encoder_patch_size", "downsample_factor")}
    view_width, view_height = processor.smart_resize(
        height=height, width=width, min_image_tokens=params["min_image_tokens"], **sizes)
    columns = rows = 1
    splits = not params["min_tiles"] == params["max_tiles"] == 1
    if splits and processor._is_image_too_large(
            height=height, width=width, **sizes,
            max_pixels_tolerance=params["max_pixels_tolerance"]):
        columns, rows, *_ = processor._get_grid_layout(
            height, width, min_tiles=params["min_tiles"], max_tiles=params["max_tiles"],
            tile_size=params["tile_size"])
    return columns, rows, view_width, view_height


def random_size(rng):
    """Sides spread over the octaves; half of the sizes near a decision: few pixels more or less
    than a multiple of 16, equal or simple ratios, areas about the tiling threshold."""
    kind = rng.randrange(4)
    width, height = (round(2 ** rng.uniform(0, 14.8)) for _ in range(2))
    if kind == 1:
        width, height = (max(1, 16 * rng.randrange(1, 200) + rng.randrange(-1, 2))
                         for _ in range(2))
    elif kind == 2:
        columns, rows = rng.randrange(1, 11), rng.randrange(1, 11)
        unit = rng.randrange(1, 900)
        width, height = columns * unit, rows * unit
    elif kind == 3:
        ratio = 2 ** rng.uniform(-3, 3)
        area = 524288 * 2 ** rng.uniform(-0.2, 0.2)
        width, height = round((area * ratio) ** 0.5), round((area / ratio) ** 0.5)
    return width, height


def allowed(width, height):
    return (max(width, height) <= MAX_SIDE and width * height <= MAX_PIXELS and
            max(width, height) <= MAX_ASPECT * min(width, height))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    processor, version, source_hash = load_processor()
    rng = random.Random(20261130)
    data, sets, n_thin = bytearray(), [], 0
    for name, changes, count in SETS:
        params = DEFAULTS | changes
        plans = set()
        while len(plans) < count:
            width, height = random_size(rng)
            if not allowed(width, height):
                continue
            columns, rows, view_width, view_height = reference_plan(
                processor, width, height, params)
            patches = view_width * view_height // params["encoder_patch_size"] ** 2
            if patches > max(params["max_image_tokens"] * params["downsample_factor"] ** 2,
                             (params["tile_size"] // params["encoder_patch_size"]) ** 2):
                n_thin += 1  # the reference exceeds its own encoder here; ours gives way
                continue
            plans.add((width, height, columns, rows, view_width // 32, view_height // 32))
        for plan in sorted(plans):
            data += struct.pack("<HHBBHH", *plan)
        sets.append({"name": name, "parameters": params, "plans": count,
                     "tiled": sum(1 for p in plans if p[2] * p[3] > 1)})
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "plans.bin").write_bytes(data)
    manifest = {"source": f"transformers {version}, models/lfm2_vl/image_processing_lfm2_vl.py",
                "source_sha256": source_hash, "command": "tools/make_view_plans.py FOLDER",
                "date": "2026-11-30", "plans_sha256": hashlib.sha256(data).hexdigest(),
                "sizes_left_out_over_the_encoders_patches": n_thin, "sets": sets}
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    print(json.dumps(manifest, indent=1), file=sys.stderr)


if __name__ == "__main__":
    main()
