"""Trains okibi-eye from nothing on pictures drawn while it runs.

    python3 train.py --out DIR --seconds 540 --total 1080 [--resume DIR/last.pt] [--tiny]

Processor cores draw pictures and write questions; the GPU trains. Progress is measured in seconds
of training, of which --total are planned over all calls: the learning rate follows that.
"""
import argparse
import os
import queue
import random
import threading
import time
from collections import defaultdict

import numpy as np
import torch
import torch.multiprocessing as mp
import torch.nn.functional as F

import draw
import prompt
import questions
import views
from model import SHAPE, TINY, Eye

SINGLE = [(256, 256)] * 6 + [(320, 224), (224, 320), (288, 256), (384, 192), (192, 384), (352, 256),
                             (512, 288), (512, 288), (288, 512), (384, 384), (320, 320), (448, 320),
                             (512, 512), (512, 416), (544, 480)]
TILED = [(1024, 1024)] * 4 + [(900, 900), (1024, 768), (1024, 560), (560, 1024), (1024, 680)]
KIND_CLASSES = 1 + len(draw.SHAPES) + 2
TEXT_CLASSES = 1 + len(draw.WORDS) + len(draw.NUMBERS)
TEXT_ID = {t: i + 1 for i, t in enumerate(draw.WORDS + draw.NUMBERS)}


def token_labels(scene, gw, gh):
    """What each 32 x 32 square of the picture shows: kind, colour and text, 0 for background."""
    out = np.zeros((3, gh, gw), np.int64)
    for o in scene["objects"]:
        x0, y0, x1, y1 = o["box"]
        c0, c1 = int(x0 * gw + .35), int(np.ceil(x1 * gw - .35))
        r0, r1 = int(y0 * gh + .35), int(np.ceil(y1 * gh - .35))
        c0, r0 = min(max(c0, 0), gw - 1), min(max(r0, 0), gh - 1)
        at = (slice(r0, max(r1, r0 + 1)), slice(c0, max(c1, c0 + 1)))
        kind = (draw.SHAPES + ["word", "number"]).index(o["kind"]) + 1
        out[(0, *at)], out[(1, *at)] = kind, draw.COLOUR_NAMES.index(o["colour"]) + 1
        if o["text"] is not None:
            out[(2, *at)] = TEXT_ID[o["text"]]
    return out.reshape(3, -1)


def fast_resize(rgb, w, h):
    if rgb.shape[:2] == (h, w):
        return rgb
    return np.asarray(draw.Image.fromarray(rgb).resize((w, h), draw.Image.BILINEAR))


def source_size(rng, w, h):
    """A picture size that the planner maps to the view w x h, often smaller or larger."""
    for _ in range(12):
        if rng.random() < .45:
            return w, h
        s = rng.uniform(.4, 1) if w * h <= 80_000 else rng.uniform(.95, 1.35) if \
            w * h > 240_000 else 1
        sw, sh = round(w * s) + rng.randint(-14, 14), round(h * s) + rng.randint(-14, 14)
        if not views.is_tiled(sw, sh) and views.smart_size(sw, sh) == (w, h):
            return sw, sh
    return w, h


class BatchMaker:
    """Draws whole batches; one per worker process."""

    def __init__(self, scale=1.0):
        self.painter, self.vocabulary, self.scale = draw.Painter(), prompt.Vocabulary(), scale

    def make(self, rng, what, ease=0.0):
        v = self.vocabulary
        if what == "text":
            b, k, size, grid = 144, 7, None, None
        elif what == "tiled":
            size = rng.choice(TILED)
            grid, _ = views.plan(*size)
            b, k = max(2, 40 // (grid[0] * grid[1] + 1)), 14
        else:
            size, grid, k = rng.choice(SINGLE), None, 8
            b = max(20, 144 * 64 * 1024 // (size[0] * size[1]))
        b = max(2, int(b * self.scale))
        suffixes, scenes, pixels, thumbs, labels = [], [], [], [], []
        for _ in range(b):
            scene, rgb = self.picture(rng, size, grid is not None)
            if rgb is not None:
                _, seen = views.views(rgb, fast_resize)
                if grid is not None:
                    pixels += seen[:-1]
                    thumbs.append(seen[-1])
                else:
                    pixels += seen
                h, w = seen[-1].shape[:2]
                labels.append(token_labels(scene, w // 32, h // 32))
            scenes.append(scene)
        for scene in scenes:
            suffixes += self.suffixes(rng, scene, k, what, ease)
        return self.pack(suffixes, pixels, thumbs, labels, grid, what, k)

    def picture(self, rng, size, tiled):
        if size is None:
            return draw.sample_scene(rng), None
        w, h = size if tiled else source_size(rng, *size)
        coarse = min(w, h) < 130
        scene = draw.sample_scene(rng, coarse=coarse)
        return scene, self.painter.paint(rng, scene, w, h)

    def suffixes(self, rng, scene, k, what, ease):
        """k of (text before the reply, text of the reply, kind).

        Beside lettered questions there are exercises that okibi never asks: describing, answering
        in words with and without the options, and finding the option that the state names.
        """
        out = []
        asker = questions.Asker(rng, scene, easy=rng.random() < ease)
        if what != "text":
            state = questions.distractor(rng)
            say = rng.choice(["Describe the picture.", "What does the picture show?"])
            out.append((prompt.state_text(state) + say, questions.caption(scene), "caption"))
        while len(out) < k:
            type_ = rng.choices(["noul", "choice", "score"], [3, 4, 3])[0]
            q = asker.ask(type_)
            state = q.get("state")
            if state is None:
                state = questions.distractor(rng)
            if what == "text":
                extra = q.get("state", "")
                state = questions.caption(scene) + (" " + extra if extra else "")
            if what == "text" and rng.random() < .1 + .4 * ease:
                q, state = questions.naming(rng)
            text, value = prompt.question_text(q), questions.value_of(q, q["answer"])
            reply, kind, r = chr(65 + q["answer"]), q["kind"], rng.random()
            if r < .05 + .2 * ease and q["type"] == "choice":
                text = f"Question: {q['instructions']}\n\nAnswer in words."
                reply, kind = value, "words." + kind
            elif r < .1 + .4 * ease:
                text = text[:text.rindex("\n")] + "\nAnswer with the option itself."
                reply, kind = value, "option." + kind
            out.append((prompt.state_text(state) + text, reply, kind))
        return out

    def pack(self, suffixes, pixels, thumbs, labels, grid, what, k):
        """One row for each picture: the prefix, then its k suffixes."""
        v = self.vocabulary
        before = v.encode_batch([s[0] for s in suffixes])
        after = v.encode_batch([s[1] for s in suffixes])
        prefix = list(v.opening)
        batch = {"what": what}
        if pixels:
            last = (thumbs or pixels)[0]
            prefix += v.image_block(grid, last.shape[0] * last.shape[1] // 1024)
            batch["pixels"] = torch.from_numpy(np.stack(pixels))
            if thumbs:
                batch["thumbs"] = torch.from_numpy(np.stack(thumbs))
            batch["labels"] = torch.from_numpy(np.stack(labels).transpose(1, 0, 2).copy())
        p, b = len(prefix), len(suffixes) // k
        sums = [p + sum(len(before[i]) + len(v.reply) + len(after[i])
                        for i in range(j * k, (j + 1) * k)) for j in range(b)]
        n = -(-max(sums) // 32) * 32
        ids, place, offset = (np.zeros((b, n), np.int32) for _ in range(3))
        segment, goal = np.full((b, n), -1, np.int32), np.full((b, n), -100, np.int64)
        ids[:, :p], segment[:, :p], place[:, :p] = prefix, 0, np.arange(p)
        which = np.zeros((b, n), np.int32)
        for j in range(b):
            at = p
            for i in range(j * k, (j + 1) * k):
                a, r = before[i] + v.reply, after[i]
                if len(r) > 1 or suffixes[i][2][:5] in ("capti", "words", "optio"):
                    r = r + [v.id[prompt.IM_END]]
                m = len(a) + len(r) - 1
                ids[j, at:at + m] = a + r[:-1]
                goal[j, at + len(a) - 1:at + m] = r
                segment[j, at:at + m], which[j, at:at + m] = i - j * k + 1, i
                place[j, at:at + m], offset[j, at:at + m] = np.arange(p, p + m), np.arange(m)
                at += m
        at = np.flatnonzero(goal.ravel() != -100)
        batch["rows"] = which.ravel()[at].tolist()
        batch["kinds"] = [s[2] for s in suffixes]
        batch["n_prefix"] = p
        caption = np.array([s[2].split(".")[0] in ("caption", "words", "option")
                            for s in suffixes])[which.ravel()[at]]
        batch["is_caption"] = caption.tolist()
        for name, value in [("ids", ids), ("segment", segment), ("place", place),
                            ("offset", offset), ("at", at), ("target", goal.ravel()[at]),
                            ("caption", caption)]:
            batch[name] = torch.from_numpy(value)
        return batch


def worker(seed, queue, scale, share, ease):
    torch.set_num_threads(1)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    rng, maker = random.Random(seed), BatchMaker(scale)
    while True:
        early = share.value  # share of text-only batches
        what = rng.choices(["single", "text", "tiled"], [1 - early - .06, early, .06])[0]
        queue.put(maker.make(rng, what, ease.value))


class Muon(torch.optim.Optimizer):
    """Momentum whose update is orthogonalised, over all matrices of one shape at once."""

    def __init__(self, params, lr=1e-3, momentum=.95, decay=.02):
        super().__init__(params, {"lr": lr, "momentum": momentum, "decay": decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            by_shape = defaultdict(list)
            for p in group["params"]:
                if p.grad is not None:
                    by_shape[p.shape].append(p)
            for shape, ps in by_shape.items():
                for p in ps:
                    if "m" not in self.state[p]:
                        self.state[p]["m"] = torch.zeros_like(p)
                ms, gs = [self.state[p]["m"] for p in ps], [p.grad for p in ps]
                torch._foreach_lerp_(ms, gs, 1 - group["momentum"])
                x = torch.stack(torch._foreach_lerp(gs, ms, group["momentum"])).bfloat16()
                tall = shape[0] > shape[1]
                x = x.mT if tall else x
                x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
                for _ in range(5):
                    a = x @ x.mT
                    x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
                x = (x.mT if tall else x).to(ps[0].dtype)
                torch._foreach_mul_(ps, 1 - group["lr"] * group["decay"])
                torch._foreach_add_(ps, list(x.unbind()),
                                    alpha=-group["lr"] * .2 * max(shape) ** .5)


class Feeder(threading.Thread):
    """Moves batches to the device ahead of their use."""

    def __init__(self, source, device):
        super().__init__(daemon=True)
        self.source, self.device, self.ready = source, device, queue.Queue(4)
        self.start()

    def moved(self, batch):
        return {n: t.to(self.device) if isinstance(t, torch.Tensor) else t
                for n, t in batch.items()}

    def run(self):
        if self.device == "cpu":
            while True:
                self.ready.put(self.source.get())
        main = torch.cuda.default_stream()
        side = torch.cuda.Stream()
        while True:
            batch = self.source.get()
            with torch.cuda.stream(side):
                batch = self.moved(batch)
            side.synchronize()
            for t in batch.values():
                if isinstance(t, torch.Tensor):
                    t.record_stream(main)
            self.ready.put(batch)


class Trainer:
    def __init__(self, a):
        self.a = a
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.dtype = torch.bfloat16
        torch.manual_seed(3)
        self.net = Eye(TINY if a.tiny else SHAPE).to(self.device)
        v = prompt.Vocabulary()
        self.net.image_id = v.id[prompt.IMAGE]
        d = self.net.c["d"]
        self.aux = torch.nn.ModuleList(
            torch.nn.Linear(d, n) for n in (KIND_CLASSES, 1 + len(draw.COLOUR_NAMES),
                                            TEXT_CLASSES)).to(self.device)
        matrices, others = [], list(self.aux.parameters())
        for name, p in self.net.named_parameters():
            plain = p.dim() == 2 and not any(s in name for s in (
                "token_embd", "position", "conv.weight", "patch_embd"))
            (matrices if plain else others).append(p)
        self.matrices = matrices
        self.optimizers = [Muon(matrices), torch.optim.AdamW(
            others, lr=1e-3, betas=(.9, .98), weight_decay=0.0, fused=self.device == "cuda")]
        self.seconds, self.steps = 0.0, 0
        if a.resume:
            self.load(a.resume)
        self.first_step = self.steps if a.restart else 0
        if a.compile:
            for layer in list(self.net.text.blk) + list(self.net.vision.v.blk):
                layer.compile(dynamic=True)

    def load(self, path):
        state = torch.load(path, map_location=self.device)
        self.net.load_state_dict({k: v.float() for k, v in state["net"].items()})
        self.aux.load_state_dict(state["aux"])
        for o, s in zip(self.optimizers, state.get("optimizers", [])):
            o.load_state_dict(s)
        self.seconds, self.steps = state["seconds"], state["steps"]
        if self.a.restart:
            self.seconds = 0.0

    def save(self, folder):
        """The whole state, and the weights alone as 16-bit floats (small enough to carry)."""
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, "last.pt")
        torch.save({"net": {k: v.half() for k, v in self.net.state_dict().items()},
                    "aux": self.aux.state_dict(), "seconds": self.seconds, "steps": self.steps},
                   os.path.join(folder, "weights.pt"))
        torch.save({"net": self.net.state_dict(), "aux": self.aux.state_dict(),
                    "optimizers": [o.state_dict() for o in self.optimizers],
                    "seconds": self.seconds, "steps": self.steps}, path + ".part")
        os.replace(path + ".part", path)

    def rate(self):
        """Learning rate: a short start, a plateau, a long way down."""
        t = self.seconds / self.a.total
        start = min(1.0, (self.steps + 1 - self.first_step) / 300)
        return start * min(1.0, max(0.0, (1 - t) / self.a.decay) * .98 + .02)

    def loss(self, batch):
        net, dev, to = self.net, self.device, batch
        rows, aux = None, torch.zeros((), device=dev)
        with torch.autocast(dev, dtype=self.dtype):
            if "pixels" in to:
                rows = last = net.vision(to["pixels"], self.dtype)
                if "thumbs" in to:
                    last = net.vision(to["thumbs"], self.dtype)
                    b = last.shape[0]
                    rows = torch.cat((rows.reshape(b, -1, rows.shape[-1]), last), 1)
                for head, label in zip(self.aux, to["labels"]):
                    aux = aux + F.cross_entropy(head(last).float().flatten(0, 1), label.flatten())
            x = net.embed(to["ids"], rows, self.dtype)
            h = net.decode(x, to["segment"], to["place"], to["offset"], batch["n_prefix"],
                           self.dtype).flatten(0, 1)[to["at"]]
            logits = net.logits(h).float()
        each = F.cross_entropy(logits, to["target"], reduction="none")
        caption = to["caption"].float()
        n_caption, n = caption.sum(), caption.numel()
        answers = (each * (1 - caption)).sum() / (n - n_caption)
        captions = (each * caption).sum() / n_caption.clamp(min=1)
        correct = (logits.argmax(-1) == to["target"])
        t = self.seconds / self.a.total
        total = answers + .4 * captions + (.1 if self.a.restart else
                                           max(.03, .6 * (1 - 1.6 * t))) * aux
        return total, torch.stack([answers, captions, aux]).detach(), correct

    def run(self):
        a = self.a
        context = mp.get_context("spawn")
        source = context.Queue(a.workers + 8)
        begins = self.steps < 5000
        share = context.Value("d", .35 if begins else .06)
        ease = context.Value("d", .8 if begins else 0.0)
        base = 1_000_000 + self.steps * 1000
        workers = [context.Process(target=worker, args=(base + i, source, a.scale, share, ease),
                                   daemon=True) for i in range(a.workers)]
        for w in workers:
            w.start()
        feed = Feeder(source, self.device).ready
        batch = feed.get()
        began = last_report = last_save = time.time()
        planned = self.seconds
        stats, kinds, pending, waited = [], defaultdict(lambda: [0, 0]), [], 0.0
        n_pictures = 0
        while time.time() - began < a.seconds:
            self.seconds = planned + time.time() - began
            lr = self.rate() * a.lr
            self.optimizers[0].param_groups[0]["lr"] = lr
            self.optimizers[1].param_groups[0]["lr"] = lr * 1.0
            total, parts, correct = self.loss(batch)
            total.backward()
            torch.nn.utils.clip_grad_norm_(self.net.parameters(), 1.0, foreach=True)
            for o in self.optimizers:
                o.step()
                o.zero_grad(set_to_none=True)
            self.steps += 1
            pending.append((batch["what"], batch["kinds"], batch["rows"], batch["is_caption"],
                            parts, correct))
            if "pixels" in batch:
                n_pictures += len(batch["ids"])
            t = time.time()
            batch = feed.get()
            waited += time.time() - t
            if time.time() - last_save > 240:
                self.save(a.out)
                last_save = time.time()
            if time.time() - last_report > a.report:
                self.report(pending, stats, kinds)
                took = time.time() - last_report
                print(f"{self.seconds:6.0f} s step {self.steps} lr {lr:.5f} "
                      f"{n_pictures / took:.0f} pictures/s waiting {waited / took:.2f} "
                      + " ".join(f"{w} {np.mean([s[1] for s in stats if s[0] == w], 0).round(3)}"
                                 for w in ("single", "text", "tiled")
                                 if any(s[0] == w for s in stats)), flush=True)
                print("   " + " ".join(f"{name} {right / n:.3f}" for name, (right, n) in
                                       sorted(kinds.items())), flush=True)
                text = np.mean([s[1][0] for s in stats if s[0] == "text"] or [1])
                share.value = .06 if text < .1 else .2 if text < .4 else .35
                ease.value = 0.0 if text < .15 or self.seconds > .5 * a.total else \
                    .3 if text < .5 else .8
                stats.clear()
                kinds.clear()
                pending.clear()
                n_pictures, waited, last_report = 0, 0.0, time.time()
        for w in workers:
            w.terminate()

    @staticmethod
    def report(pending, stats, kinds):
        for what, names, rows, caption, parts, correct in pending:
            stats.append((what, parts.cpu().numpy()))
            for row, is_caption, ok in zip(rows, caption, correct.cpu().tolist()):
                name = names[row]
                if what == "text" or is_caption:
                    name = ("text:" if what == "text" else "") + name.split(".")[0]
                kinds[name][0] += ok
                kinds[name][1] += 1


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--out", required=True)
    p.add_argument("--seconds", type=float, default=540)
    p.add_argument("--total", type=float, default=1080)
    p.add_argument("--resume")
    p.add_argument("--restart", action="store_true", help="a new schedule from these weights")
    p.add_argument("--decay", type=float, default=.45, help="share of the time with falling rate")
    p.add_argument("--workers", type=int, default=14)
    p.add_argument("--report", type=float, default=30)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--scale", type=float, default=1.0)
    p.add_argument("--tiny", action="store_true")
    p.add_argument("--compile", action="store_true")
    a = p.parse_args()
    torch.set_float32_matmul_precision("high")
    trainer = Trainer(a)
    print(sum(q.numel() for q in trainer.net.parameters()), "parameters", flush=True)
    trainer.run()
    trainer.save(a.out)
    os._exit(0)  # the workers and the feeding thread end with the process


if __name__ == "__main__":
    mp.set_sharing_strategy("file_system")
    main()
