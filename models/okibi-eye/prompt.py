"""The text of a typed question exactly as okibi writes it, and the token ids of a whole prompt.

Mirrors src/decide/prompt.cpp and the LFM2 chat layout. Pictures come first in the user turn, before
the state.
"""
import json
import os

BOS, IM_START, IM_END = "<|startoftext|>", "<|im_start|>", "<|im_end|>"
IMAGE, IMAGE_START, IMAGE_END = "<image>", "<|image_start|>", "<|image_end|>"
THUMBNAIL = "<|img_thumbnail|>"
LABELS = [f"<|img_row_{r}_col_{c}|>" for r in range(1, 11) for c in range(1, 11) if r * c <= 10]
SPECIALS = ["<|pad|>", BOS, "<|endoftext|>", IM_START, IM_END, IMAGE, IMAGE_START, IMAGE_END,
            THUMBNAIL] + LABELS
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
         r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def quote(text):
    return json.dumps(text, ensure_ascii=False)


def question_text(q):
    """q: type, instructions, options [(key, description, number)]; number: a level's index."""
    lines = []
    for i, (key, description, number) in enumerate(q["options"]):
        line = f"{chr(65 + i)}: "
        line += {"noul": key, "choice": quote(key), "score": str(number)}[q["type"]]
        if description:
            line += " - " + quote(description)
        lines.append(line + "\n")
    letters = [chr(65 + i) for i in range(len(lines))]
    listed = ", ".join(letters[:-1]) + " or " + letters[-1]
    instructions = q["instructions"] or {
        "noul": "Decide whether {} is true or false.",
        "choice": "Choose the option that fits best for {}.",
        "score": "Choose the level that fits best for {}."}[q["type"]].format(quote(q["id"]))
    return (f"Question: {instructions}\n\nOptions:\n" + "".join(lines) +
            f"\nAnswer with exactly one letter: {listed}.")


def state_text(state):
    return f"State:\n{state}\n\n"


class Vocabulary:
    """The tokenizer with the ids that prompts are built from."""

    def __init__(self, path=None):
        from tokenizers import Tokenizer
        path = path or os.path.join(os.path.dirname(os.path.abspath(__file__)), "tokenizer.json")
        self.tokenizer = Tokenizer.from_file(path)
        self.id = {t: self.tokenizer.token_to_id(t) for t in SPECIALS}
        self.letters = [self.tokenizer.token_to_id(chr(65 + i)) for i in range(26)]
        self.size = self.tokenizer.get_vocab_size()
        self.opening = [self.id[BOS], self.id[IM_START]] + self.encode("user\n")
        self.reply = ([self.id[IM_END]] + self.encode("\n") + [self.id[IM_START]] +
                      self.encode("assistant\n"))

    def encode(self, text):
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def encode_batch(self, texts):
        return [e.ids for e in self.tokenizer.encode_batch(texts, add_special_tokens=False)]

    def image_block(self, grid, n_last):
        """Ids of one picture; n_last: tokens of its single view or thumbnail."""
        image = self.id[IMAGE]
        out = [self.id[IMAGE_START]]
        if grid is not None:
            c, r = grid
            for y in range(1, r + 1):
                for x in range(1, c + 1):
                    out += [self.id[f"<|img_row_{y}_col_{x}|>"]] + [image] * 256
            out.append(self.id[THUMBNAIL])
        return out + [image] * n_last + [self.id[IMAGE_END]]
