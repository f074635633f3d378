"""Figures of the exported files on held-out pictures, and the temperatures.

    python3 evaluate.py FOLDER [--pictures 2000] [--shard 0/1]   answers into FOLDER/answers-*.jsonl
    python3 evaluate.py FOLDER --report                          figures.json, calibration.json

Runs okibi-eye.gguf and mmproj-okibi-eye.gguf of the folder in float32 with dequantised weights and
the exact resampling. A run that was cut short goes on where it stopped.
"""
import argparse
import json
import os
import random
from collections import defaultdict

import numpy as np
import torch

import draw
import export
import prompt
import questions
import train
import views

TYPES = ["noul", "choice", "score"]
SEEDS = {"held out": 2_000_000_000, "calibration": 3_000_000_000, "new wording": 4_000_000_000}


def picture(painter, split, i):
    """(scene, pixels, questions) of the i-th picture of a split; never one of training."""
    rng = random.Random(SEEDS[split] + i)
    r = rng.random()
    if r < .05:
        w, h = rng.choice(train.TILED)
    elif r < .13:
        w, h = rng.randint(100, 260), rng.randint(100, 260)
    else:
        w, h = train.source_size(rng, *rng.choice(train.SINGLE))
    scene = draw.sample_scene(rng, coarse=min(w, h) < 130)
    rgb = painter.paint(rng, scene, w, h)
    asker = questions.Asker(rng, scene, unseen=split == "new wording")
    asked = []
    for type_ in TYPES:
        q = asker.ask(type_)
        state = q.get("state")
        asked.append((q, questions.distractor(rng) if state is None else state))
    return scene, rgb, asked


def prepare(maker, split, i):
    _, rgb, asked = picture(maker.painter, split, i)
    grid, seen = views.views(rgb)
    suffixes, meta = [], []
    forms = 2 if split == "held out" else 1
    for q, state in asked:
        for form in (q, questions.swapped(q))[:forms]:
            suffixes.append((prompt.state_text(state) + prompt.question_text(form),
                             chr(65 + form["answer"]), form["kind"]))
        meta.append((q["type"], q["kind"], q["answer"], len(q["options"])))
    seen = [np.ascontiguousarray(s) for s in seen]
    tiles, thumbnails = (seen, []) if grid is None else (seen[:-1], seen[-1:])
    batch = maker.pack(suffixes, tiles, thumbnails, [np.zeros((3, 1), np.int64)], grid, "",
                       len(suffixes))
    return {"meta": meta, "forms": forms, "seen": seen,
            "tiled": grid is not None, "n_prefix": batch["n_prefix"],
            **{n: batch[n].numpy() for n in ("ids", "segment", "place", "offset", "at")}}


@torch.no_grad()
def letter_logits(net, item, device, letters):
    """Logits of the 26 letters at the end of each suffix, (suffixes, 26)."""
    rows = torch.cat([net.vision(torch.from_numpy(s).to(device)[None])[0]
                      for s in item["seen"]])[None]
    t = {n: torch.from_numpy(item[n]).to(device) for n in
         ("ids", "segment", "place", "offset", "at")}
    h = net.decode(net.embed(t["ids"], rows), t["segment"], t["place"], t["offset"],
                   item["n_prefix"])
    return net.logits(h.flatten(0, 1)[t["at"]])[:, letters].cpu().numpy()


def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()


def fit_temperature(cases):
    """The temperature with the least negative log likelihood; cases: [(logits, answer)].

    Not below 1: a model that hardly ever errs on the few cases here has not earned more certainty.
    """
    def cost(t):
        return -np.mean([np.log(softmax(x / t)[a] + 1e-30) for x, a in cases])
    grid = np.linspace(1, 4, 301)
    return float(grid[int(np.argmin([cost(t) for t in grid]))])


def calibration_error(cases, temperature, bins=15):
    p = [softmax(x / temperature) for x, _ in cases]
    sure = np.array([q.max() for q in p])
    right = np.array([float(q.argmax() == a) for q, (_, a) in zip(p, cases)])
    slot = np.minimum((sure * bins).astype(int), bins - 1)
    return float(sum(abs(sure[slot == b].mean() - right[slot == b].mean()) * (slot == b).mean()
                     for b in range(bins) if (slot == b).any()))


def collect(a):
    """Answers the questions of one shard and appends them to its file."""
    shard, shards = map(int, a.shard.split("/"))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    net = export.from_files(os.path.join(a.folder, "okibi-eye.gguf"),
                            os.path.join(a.folder, "mmproj-okibi-eye.gguf")).to(device)
    letters, maker = prompt.Vocabulary().letters, train.BatchMaker()
    jobs = sorted((i / n, split, i) for split, n in
                  (("held out", a.pictures), ("calibration", a.pictures * 3 // 10),
                   ("new wording", a.pictures // 10)) for i in range(n))
    path = os.path.join(a.folder, f"answers-{shard}.jsonl")
    done = set()
    if os.path.exists(path):
        done = {(r["split"], r["picture"]) for r in map(json.loads, open(path))}
    with open(path, "a") as out:
        for _, split, i in jobs:
            if i % shards != shard or (split, i) in done:
                continue
            item = prepare(maker, split, i)
            logits = letter_logits(net, item, device, letters)
            record = {"split": split, "picture": i, "tiled": item["tiled"], "answers": []}
            for j, (type_, kind, right, n) in enumerate(item["meta"]):
                rows = logits[item["forms"] * j:item["forms"] * (j + 1), :n]
                record["answers"].append({
                    "type": type_, "kind": kind, "right": right,
                    "logits": [[round(float(v), 5) for v in row] for row in rows]})
            out.write(json.dumps(record) + "\n")
            out.flush()


def report(a):
    cases, kinds = defaultdict(list), defaultdict(lambda: [0, 0])
    agree, tiled, seen = defaultdict(list), defaultdict(list), set()
    for name in sorted(os.listdir(a.folder)):
        if not name.startswith("answers-"):
            continue
        for line in open(os.path.join(a.folder, name)):
            record = json.loads(line)
            if (record["split"], record["picture"]) in seen:
                continue
            seen.add((record["split"], record["picture"]))
            for q in record["answers"]:
                x, type_ = np.array(q["logits"][0]), q["type"]
                cases[record["split"], type_].append((x, q["right"]))
                if record["split"] != "held out":
                    continue
                agree[type_].append(x.argmax() == np.array(q["logits"][1])[::-1].argmax())
                tiled[type_, record["tiled"]].append(x.argmax() == q["right"])
                kinds[q["kind"]][0] += int(x.argmax() == q["right"])
                kinds[q["kind"]][1] += 1
    result, temperatures = {"types": {}, "kinds": {}}, {}
    for type_ in TYPES:
        fitted = cases["calibration", type_]
        t = temperatures[type_] = round(fit_temperature(fitted), 4)
        held, new = cases["held out", type_], cases["new wording", type_]
        result["types"][type_] = {
            "held-out questions": len(held),
            "accuracy": share([x.argmax() == y for x, y in held]),
            "tiled questions": len(tiled[type_, True]),
            "accuracy, tiled": share(tiled[type_, True]),
            "order agreement": share(agree[type_]),
            "new-wording questions": len(new),
            "accuracy, new wording": share([x.argmax() == y for x, y in new]),
            "calibration questions": len(fitted), "temperature": t,
            "ece": round(calibration_error(held, 1.0), 5),
            "ece calibrated": round(calibration_error(held, t), 5)}
    for kind, (right, n) in sorted(kinds.items()):
        result["kinds"][kind] = {"accuracy": round(right / n, 4), "questions": n}
    for name, value in (("figures.json", result), ("calibration.json", {
            "temperatures": temperatures, "model": "okibi-eye"})):
        with open(os.path.join(a.folder, name), "w") as f:
            json.dump(value, f, indent=1)
            f.write("\n")
    print(json.dumps(result, indent=1))


def share(values):
    return round(float(np.mean(values)), 4) if values else None


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("folder")
    p.add_argument("--pictures", type=int, default=2000)
    p.add_argument("--shard", default="0/1")
    p.add_argument("--report", action="store_true")
    a = p.parse_args()
    torch.set_float32_matmul_precision("highest")
    report(a) if a.report else collect(a)


if __name__ == "__main__":
    main()
