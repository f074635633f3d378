"""Trains the vocabulary: byte-level BPE on the prompts and on English text.

    python3 tokens.py ENGLISH_TEXT... (files, for instance the project's documentation)
"""
import os
import random
import sys

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

import draw
import prompt
import questions

SIZE = 2560
REPEAT = 400  # how often whole names are shown, so that each is a single token


def texts(n):
    for i in range(n):
        rng = random.Random(10_000_000 + i)
        scene = draw.sample_scene(rng)
        asker = questions.Asker(rng, scene, unseen=i % 9 == 0)
        yield "Describe the picture." + questions.caption(scene)
        for kind in ("noul", "choice", "score"):
            q = asker.ask(kind)
            yield prompt.state_text(questions.distractor(rng)) + prompt.question_text(q)
    for name in draw.WORDS + draw.NUMBERS + draw.COLOUR_NAMES + draw.SHAPES + draw.SIZES:
        for _ in range(REPEAT):
            yield f" {name}"
            yield f"{name}"
    for _ in range(REPEAT):
        yield "user\nassistant\nsystem\n"


def english(paths):
    for path in paths:
        with open(path, encoding="utf-8") as f:
            yield from f.read().split("\n\n")


def main():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(prompt.SPLIT), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    # Special tokens last: their ids follow the ordinary ones.
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE - len(prompt.SPECIALS), show_progress=False, special_tokens=[],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    def all_texts():
        yield from texts(12000)
        yield from english(sys.argv[1:])

    tokenizer.train_from_iterator(all_texts(), trainer)
    tokenizer.add_special_tokens(prompt.SPECIALS)
    here = os.path.dirname(os.path.abspath(__file__))
    tokenizer.save(os.path.join(here, "tokenizer.json"))
    print(tokenizer.get_vocab_size(), "tokens")


if __name__ == "__main__":
    main()
