"""Draws the example pictures and records what the reference answers about small pictures.

    python3 record.py examples        examples/*.png and their question files
    python3 record.py golden FOLDER   pictures, prompt ids and label logits; the folder is
                                      ../../tests/golden/okibi-eye

The reference is torch in float32 on the dequantised weights of the two files here.
"""
import hashlib
import json
import os
import random
import sys

import numpy as np
import torch
from PIL import Image

import draw
import evaluate
import export
import prompt
import questions
import views

HERE = os.path.dirname(os.path.abspath(__file__))
SIZES = [(72, 96), (120, 160), (256, 256), (300, 200), (512, 286), (286, 512), (512, 512),
         (640, 480), (720, 720), (1000, 560), (560, 1024), (1024, 1024), (1024, 680)]


def shape(kind, colour, size, cell):
    return {"kind": kind, "colour": colour, "size": size, "cell": draw.CELLS.index(cell),
            "text": None}


def text(kind, colour, value, cell):
    return {"kind": kind, "colour": colour, "size": "text", "cell": draw.CELLS.index(cell),
            "text": value, "wide": False}


EXAMPLES = {
    "shop-512x286": ((512, 286, 5), {"background": "white", "kind": "mixed", "objects": [
        shape("star", "blue", "medium", "top left"), shape("circle", "red", "large", "left"),
        text("word", "black", "open", "center"), shape("heart", "green", "medium", "top right"),
        shape("circle", "purple", "small", "bottom right")]}, {
            "star_colour": {"type": "choice", "instructions": "What colour is the star?",
                            "criteria": {"red": None, "green": None, "blue": None,
                                         "purple": None}},
            "word": {"type": "choice", "instructions": "Which word is written?",
                     "criteria": {"closed": None, "open": None, "exit": None}},
            "heart_right": {"type": "noul",
                            "instructions": "Is the heart to the right of the star?"},
            "circles": {"type": "score", "instructions": "How many circles are there?",
                        "criteria": ["none", "one", "two", "three or more"]}}),
    "board-1024x1024": ((1024, 1024, 4), {"background": "blue", "kind": "mixed", "objects": [
        shape("triangle", "yellow", "large", "top left"), shape("moon", "white", "small", "top"),
        shape("square", "orange", "medium", "top right"),
        text("number", "white", "47", "left"), shape("star", "yellow", "small", "right"),
        shape("ring", "pink", "large", "bottom left"),
        shape("cross", "red", "medium", "bottom right")]}, {
            "ring_place": {"type": "choice", "instructions": "Where is the ring?",
                           "criteria": {"top left": None, "center": None, "bottom left": None,
                                        "bottom right": None}},
            "number": {"type": "choice", "instructions": "Which number is written?",
                       "criteria": {"first": "17", "second": "41", "third": "47",
                                    "fourth": "74"}},
            "white_circle": {"type": "noul",
                             "instructions": "Is there a white circle in the picture?"},
            "star_size": {"type": "score", "instructions": "How large is the star?",
                          "criteria": ["small", "medium", "large"]}})}


def examples():
    folder = os.path.join(HERE, "examples")
    os.makedirs(folder, exist_ok=True)
    for name, ((w, h, seed), scene, asked) in EXAMPLES.items():
        scene["objects"].sort(key=lambda o: o["cell"])
        rgb = draw.Painter().paint(random.Random(seed), scene, w, h)
        Image.fromarray(rgb).save(os.path.join(folder, name + ".png"), optimize=True)
        with open(os.path.join(folder, name + ".json"), "w") as f:
            json.dump({"state": "", "questions": asked}, f, indent=2)
            f.write("\n")


def as_question(id_, q):
    """From the form of the API to that of prompt.question_text."""
    criteria = q.get("criteria")
    if q["type"] == "noul":
        criteria = criteria or {}
        options = [(k, criteria.get(k) or "", 0) for k in ("true", "false")]
    elif q["type"] == "choice":
        options = [(k, d or "", 0) for k, d in criteria.items()]
    else:
        options = [("", d, i) for i, d in enumerate(criteria)]
    return {"type": q["type"], "id": id_, "instructions": q.get("instructions", ""),
            "options": options}


def as_api(q):
    """The reverse; None for an order of options that the API cannot say."""
    out = {"type": q["type"], "instructions": q["instructions"]}
    if q["type"] == "noul":
        if q["options"][0][0] != "true":
            return None
        if q["options"][0][1]:
            out["criteria"] = {k: d for k, d, _ in q["options"]}
    elif q["type"] == "choice":
        out["criteria"] = {k: d or None for k, d, _ in q["options"]}
    else:
        if [n for _, _, n in q["options"]] != list(range(len(q["options"]))):
            return None
        out["criteria"] = [d for _, d, _ in q["options"]]
    return out


@torch.no_grad()
def answer(net, vocabulary, rgb, state, id_, q):
    """(prompt ids, logits of the labels, image rows) for one question alone."""
    grid, seen = views.views(rgb)
    ids = vocabulary.opening + vocabulary.image_block(grid, seen[-1].shape[0] *
                                                      seen[-1].shape[1] // 1024)
    n_prefix = len(ids)
    form = as_question(id_, q)
    ids = ids + vocabulary.encode(prompt.state_text(state) + prompt.question_text(form)) + \
        vocabulary.reply
    rows = torch.cat([net.vision(torch.from_numpy(np.array(s))[None])[0] for s in seen])[None]
    n = torch.arange(len(ids))[None]
    h = net.decode(net.embed(torch.tensor([ids]), rows), (n >= n_prefix).int(), n,
                   (n - n_prefix).clamp(min=0), n_prefix)
    logits = net.logits(h[0, -1])[vocabulary.letters[:len(form["options"])]]
    return ids, logits.numpy(), rows[0].numpy()


def run_lengths(ids):
    """[id, count, id, count, ...]: image tokens come in long runs."""
    out = []
    for i in ids:
        if out and out[-2] == i:
            out[-1] += 1
        else:
            out += [i, 1]
    return out


def floats(values):
    return [float(f"{v:.7g}") for v in values]


def golden(folder):
    os.makedirs(os.path.join(folder, "images"), exist_ok=True)
    net = export.from_files(os.path.join(HERE, "okibi-eye.gguf"),
                            os.path.join(HERE, "mmproj-okibi-eye.gguf"))
    vocabulary, painter, cases = prompt.Vocabulary(), draw.Painter(), []
    for i, (w, h) in enumerate(SIZES):
        seed, best = 0, None
        while seed < 40:  # the scene that makes the smallest file: no noise in it
            rng = random.Random(5_000_000_000 + 100 * i + seed)
            seed += 1
            scene = draw.sample_scene(rng, coarse=min(w, h) < 130)
            if not 3 <= len(scene["objects"]) <= 6:
                continue
            rgb = painter.paint(rng, scene, w, h)
            name = f"{i:02d}_{w}x{h}.png"
            path = os.path.join(folder, "images", "try.png")
            Image.fromarray(rgb).save(path, optimize=True)
            if best is None or os.path.getsize(path) < best[0]:
                best = os.path.getsize(path), scene, rgb, rng, name
                os.replace(path, os.path.join(folder, "images", name))
        _, scene, rgb, rng, name = best
        asker, asked, state = questions.Asker(rng, scene), {}, questions.distractor(rng)
        for type_ in evaluate.TYPES:
            q = None
            while q is None or as_api(q) is None or "state" in q:
                q = asker.ask(type_)
            asked[q["id"] + "_" + type_] = (as_api(q), q["answer"])
        case = {"image": "images/" + name, "width": w, "height": h, "grid": views.plan(w, h)[0],
                "rgb_sha256": hashlib.sha256(rgb.tobytes()).hexdigest(), "state": state,
                "caption": questions.caption(scene), "questions": {}}
        for id_, (q, right) in asked.items():
            ids, logits, rows = answer(net, vocabulary, rgb, state, id_, q)
            case["first_row"], case["last_row"] = floats(rows[0][:8]), floats(rows[-1][:8])
            case["questions"][id_] = {"question": q, "right": right, "ids": run_lengths(ids),
                                      "label_logits": floats(logits)}
            print(name, id_, int(logits.argmax()) == right)
        cases.append(case)
    for name in os.listdir(os.path.join(folder, "images")):
        if name == "try.png":
            os.remove(os.path.join(folder, "images", name))
    sums = {}
    for name in ("okibi-eye.gguf", "mmproj-okibi-eye.gguf"):
        with open(os.path.join(HERE, name), "rb") as f:
            sums[name] = hashlib.sha256(f.read()).hexdigest()
    lines = ",\n  ".join(json.dumps(c, ensure_ascii=False) for c in cases)
    with open(os.path.join(folder, "golden.json"), "w") as f:
        f.write(f'{{"models": {json.dumps(sums)},\n "cases": [\n  {lines}\n]}}\n')


if __name__ == "__main__":
    if sys.argv[1] == "examples":
        examples()
    else:
        golden(sys.argv[2])
