#!/usr/bin/env python3
"""Learns the merges that synthetic vocabularies begin with, src/model/synth/english_merges.inc.

    make_english_merges.py        needs the Python package `tokenizers`

From our own documents and the questions of okibi-eye: so a prompt takes about as many tokens as
with a trained vocabulary, and speeds measured on synthetic files are those of real prompts.
"""

import json
import pathlib
import subprocess

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

ROOT = pathlib.Path(__file__).resolve().parents[1]
N_MERGES = 4000


def quoted(text):
    """A C++ literal; octal escapes, since hexadecimal ones would swallow letters behind them."""
    out = ""
    for byte in text.encode():
        plain = 32 <= byte < 127 and byte not in b'"\\?'
        out += chr(byte) if plain else f"\\{byte:03o}"
    return f'"{out}"'


def main():
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True,
                             check=True).stdout.split()
    code = ("src/decide/prompt.cpp", "models/okibi-eye/questions.py")
    files = [str(ROOT / f) for f in tracked if f.endswith(".md") or f in code]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(r"\d", "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    trainer = trainers.BpeTrainer(vocab_size=256 + N_MERGES + 100, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train(files, trainer)
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    merges = [m.split(" ") if isinstance(m, str) else m for m in merges]
    # Long runs of blanks and dashes go, and what is made of them.
    made = set(pre_tokenizers.ByteLevel.alphabet())
    kept = []
    for left, right in merges:
        if left in made and right in made and len(quoted(f"{left} {right}")) < 90:
            made.add(left + right)
            kept.append((left, right))
    out = ROOT / "src/model/synth/english_merges.inc"
    with open(out, "w", encoding="utf-8") as f:
        f.write("// Made by tools/make_english_merges.py. Included by vocabulary.cpp only.\n")
        line = ""
        for left, right in kept[:N_MERGES]:
            text = quoted(f"{left} {right}")
            if len(line) + len(text) > 94:
                f.write(line.rstrip() + "\n")
                line = ""
            line += text + ", "
        f.write(line.rstrip() + "\n")
    print(f"{len(kept[:N_MERGES])} merges into {out}")


if __name__ == "__main__":
    main()
