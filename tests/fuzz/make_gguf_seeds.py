#!/usr/bin/env python3
"""Writes the seed files of fuzz_gguf into tests/fuzz/corpus/gguf.

Small well-formed files that together hold every value type, every tensor type and every special key,
so that the fuzzer starts from bytes that get past the first checks.
"""
import pathlib
import struct

FOLDER = pathlib.Path(__file__).resolve().parent / "corpus" / "gguf"

# number: (values, bytes) per block
TYPES = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34),
    9: (32, 36), 10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210),
    15: (256, 292), 16: (256, 66), 17: (256, 74), 18: (256, 98), 19: (256, 50), 20: (32, 18),
    21: (256, 110), 22: (256, 82), 23: (256, 136), 24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8),
    28: (1, 8), 29: (256, 56), 30: (1, 2), 34: (256, 54), 35: (256, 66), 39: (32, 17),
    40: (64, 36), 41: (128, 18), 42: (64, 18),
}


def text(s):
    return struct.pack("<Q", len(s)) + s.encode()


def key(name, number, value):
    return text(name) + struct.pack("<I", number) + value


def array(name, number, count, elements):
    return key(name, 9, struct.pack("<IQ", number, count) + elements)


def gguf(keys, tensors=(), version=3, alignment=32):
    """tensors: (name, ne, type number)"""
    infos, data = b"", b""
    for name, ne, number in tensors:
        values, size = TYPES[number]
        count = 1
        for n in ne:
            count *= n
        infos += text(name) + struct.pack(f"<I{len(ne)}Q", len(ne), *ne)
        infos += struct.pack("<IQ", number, len(data))
        n_bytes = count // values * size
        data += bytes((7 * i + 1) % 251 for i in range(n_bytes))
        data += bytes(-len(data) % alignment)
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys)) + b"".join(keys) + infos
    return head + bytes(-len(head) % alignment) + data


ARCH = key("general.architecture", 8, text("llama"))

SEEDS = {
    "smallest": gguf([ARCH], [("a", [2], 0)]),
    "version2": gguf([ARCH], [("a", [2], 0)], version=2),
    "no_tensors": gguf([ARCH]),
    "scalars": gguf([ARCH] + [
        key("u8", 0, b"\1"), key("i8", 1, b"\xff"), key("u16", 2, b"\1\2"), key("i16", 3, b"\1\2"),
        key("u32", 4, struct.pack("<I", 5)), key("i32", 5, struct.pack("<i", -5)),
        key("f32", 6, struct.pack("<f", 1.5)), key("bool", 7, b"\1"), key("text", 8, text("abc")),
        key("u64", 10, struct.pack("<Q", 9)), key("i64", 11, struct.pack("<q", -9)),
        key("f64", 12, struct.pack("<d", 0.25))]),
    "arrays": gguf([ARCH] + [
        array("texts", 8, 3, text("a") + text("") + text("ccc")),
        array("ints", 5, 3, struct.pack("<3i", 1, -2, 3)),
        array("floats", 6, 2, struct.pack("<2f", 0.5, -2.0)),
        array("bools", 7, 2, b"\0\1"), array("bytes", 0, 4, b"abcd"),
        array("doubles", 12, 1, struct.pack("<d", 3.0)), array("longs", 10, 1, bytes(8))]),
    "alignment": gguf([ARCH, key("general.alignment", 4, struct.pack("<I", 8))],
                      [("a", [3], 0), ("b", [5], 1)], alignment=8),
    "shapes": gguf([ARCH], [("scalar", [], 0), ("m", [2, 3], 0), ("cube", [2, 1, 3], 26),
                            ("four", [2, 2, 2, 2], 24), ("none", [0, 4], 0)]),
    "shard": gguf([ARCH, key("split.no", 2, b"\0\0"), key("split.count", 2, b"\2\0"),
                   key("split.tensors.count", 5, struct.pack("<i", 2))], [("a", [2], 0)]),
    "labelled": gguf([ARCH, key("general.file_type", 4, struct.pack("<I", 15)),
                      key("general.quantization_version", 4, struct.pack("<I", 2))],
                     [("token_embd.weight", [256, 2], 12), ("output_norm.weight", [256], 0)]),
}
for group in range(4):
    numbers = sorted(TYPES)[group::4]
    SEEDS[f"types{group}"] = gguf(
        [ARCH], [(f"t{n}.weight", [TYPES[n][0]], n) for n in numbers])


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, data in SEEDS.items():
        (FOLDER / name).write_bytes(data)


if __name__ == "__main__":
    main()
