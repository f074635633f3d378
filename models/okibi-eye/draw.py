"""Scenes and their pictures: shapes, words and numbers on plain or patterned backgrounds.

A scene is a background and up to nine objects, each in a cell of a 3 x 3 grid. This file knows what
can be seen and how it looks; questions about it are in questions.py.

    python3 draw.py OUT.png --width 512 --height 286 --seed 7
"""
import argparse
import glob
import math
import os
import random

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

COLOURS = {
    "red": (214, 32, 32), "orange": (246, 140, 24), "yellow": (246, 226, 44),
    "green": (40, 156, 60), "cyan": (60, 210, 224), "blue": (36, 66, 208),
    "purple": (128, 50, 172), "pink": (246, 148, 192), "brown": (118, 72, 38),
    "black": (20, 20, 20), "white": (246, 246, 246), "gray": (130, 130, 130)}
COLOUR_NAMES = list(COLOURS)
SHAPES = ["circle", "square", "triangle", "star", "cross", "ring", "diamond", "heart", "moon",
          "arrow"]
SIZES = ["small", "medium", "large"]
CELLS = ["top left", "top", "top right", "left", "center", "right", "bottom left", "bottom",
         "bottom right"]
WORDS = ("stop go open closed exit sale cat dog bus car tea milk fish bird tree rain snow wind "
         "fire ice yes no hot cold push pull start end key map book door ship train gold salt "
         "rice corn apple lemon bread soup north south east west day night king queen lion wolf "
         "bear duck rose lamp bell coin hand foot ear eye").split()
NUMBERS = [str(i) for i in range(100)]
# Pairs that a jittered, noisy picture could confuse when one lies on the other.
TOO_CLOSE = {frozenset(p) for p in [("black", "brown"), ("white", "yellow"), ("red", "orange"),
                                    ("white", "cyan"), ("gray", "brown"), ("orange", "yellow"),
                                    ("blue", "purple"), ("red", "brown"), ("pink", "white")]}
DIAMETER = {"small": (0.27, 0.36), "medium": (0.48, 0.58), "large": (0.78, 0.92)}


def find_fonts():
    """DejaVu faces: beside this file, in matplotlib, or of the system."""
    wanted = ["DejaVuSans.ttf", "DejaVuSans-Bold.ttf", "DejaVuSerif.ttf", "DejaVuSerif-Bold.ttf",
              "DejaVuSansMono.ttf", "DejaVuSansMono-Bold.ttf"]
    places = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "fonts"),
              "/usr/share/fonts/truetype/dejavu"]
    try:
        import matplotlib
        places.append(os.path.join(matplotlib.get_data_path(), "fonts", "ttf"))
    except ImportError:
        pass
    for place in places:
        found = [os.path.join(place, name) for name in wanted]
        found = [path for path in found if os.path.exists(path)]
        if len(found) == len(wanted):
            return found
    raise SystemExit(f"the six DejaVu fonts are in none of {places}")


def sample_scene(rng, coarse=False, kind=None):
    """A random scene. coarse: nothing small and no text, for pictures of few pixels."""
    background = rng.choice(COLOUR_NAMES)
    colours = [c for c in COLOUR_NAMES
               if c != background and frozenset((c, background)) not in TOO_CLOSE]
    if kind is None:
        kind = rng.choices(["shapes", "mixed", "text"], [5, 3, 2])[0]
    if coarse:
        kind = "shapes"
    # Few colours and shapes in one scene make counting and telling apart worth asking for.
    palette = rng.sample(colours, rng.randint(1, min(6, len(colours))))
    shapes = rng.sample(SHAPES, rng.randint(1, 6))
    sizes = SIZES[1:] if coarse else SIZES
    objects = []
    if kind == "text":
        rows = sorted(rng.sample(range(3), rng.choices([1, 2, 3], [5, 3, 2])[0]))
        for row in rows:
            objects.append(_text(rng, rng.choice(colours), 3 * row + 1, wide=True))
    else:
        n = rng.choices(range(10), [2, 10, 10, 10, 10, 9, 8, 4, 3, 2])[0]
        cells = rng.sample(range(9), n)
        n_text = 1 if kind == "mixed" and n > 0 else 0
        for i, cell in enumerate(cells):
            if i < n_text:
                objects.append(_text(rng, rng.choice(colours), cell, wide=False))
            else:
                objects.append({"kind": rng.choice(shapes), "colour": rng.choice(palette),
                                "size": rng.choice(sizes), "cell": cell, "text": None})
    objects.sort(key=lambda o: o["cell"])
    return {"background": background, "objects": objects, "kind": kind}


def _text(rng, colour, cell, wide):
    is_word = rng.random() < 0.55
    return {"kind": "word" if is_word else "number", "colour": colour, "size": "text", "cell": cell,
            "text": rng.choice(WORDS) if is_word else rng.choice(NUMBERS), "wide": wide}


def _regular(n, r, turn):
    return [(r * math.sin(turn + 2 * math.pi * i / n), -r * math.cos(turn + 2 * math.pi * i / n))
            for i in range(n)]


def _turned(points, angle):
    c, s = math.cos(angle), math.sin(angle)
    return [(x * c - y * s, x * s + y * c) for x, y in points]


def outline(kind, angle, direction=0.0):
    """Corners of a shape within the unit circle, or None for circle and ring."""
    if kind in ("circle", "ring"):
        return None
    if kind == "square":
        p = [(-.78, -.78), (.78, -.78), (.78, .78), (-.78, .78)]
    elif kind == "triangle":
        p = [(0, -.95), (.9, .72), (-.9, .72)]
    elif kind == "diamond":
        p = [(0, -1), (.62, 0), (0, 1), (-.62, 0)]
    elif kind == "star":
        outer, inner = _regular(5, 1.0, 0), _regular(5, 0.42, math.pi / 5)
        p = [q for pair in zip(outer, inner) for q in pair]
    elif kind == "cross":
        t = .3
        p = [(-t, -.95), (t, -.95), (t, -t), (.95, -t), (.95, t), (t, t), (t, .95), (-t, .95),
             (-t, t), (-.95, t), (-.95, -t), (-t, -t)]
    elif kind == "heart":
        p = []
        for i in range(28):
            a = 2 * math.pi * i / 28
            p.append((16 * math.sin(a) ** 3 / 17, -(13 * math.cos(a) - 5 * math.cos(2 * a) -
                      2 * math.cos(3 * a) - math.cos(4 * a) + 2.5) / 17))
    elif kind == "moon":
        p = [(math.cos(a), math.sin(a)) for a in np.linspace(0.33 * math.pi, 1.67 * math.pi, 24)]
        p += [(0.42 + 0.87 * math.cos(a), 0.87 * math.sin(a))
              for a in np.linspace(1.57 * math.pi, 0.43 * math.pi, 18)]
    elif kind == "arrow":
        p = _turned([(-.95, -.26), (.1, -.26), (.1, -.72), (.98, 0), (.1, .72), (.1, .26),
                     (-.95, .26)], direction)
    else:
        raise ValueError(kind)
    return _turned(p, angle)


class Painter:
    """Draws scenes. One per process: it keeps fonts and noise."""

    def __init__(self):
        self.fonts = find_fonts()
        self.cache = {}
        noise = np.random.default_rng(5).standard_normal((1400, 1400, 3)) * 16
        self.noise = np.clip(noise, -127, 127).astype(np.int8)

    def font(self, path, size):
        key = (path, size)
        if key not in self.cache:
            self.cache[key] = ImageFont.truetype(path, size)
        return self.cache[key]

    def colour(self, rng, name):
        j = 9 if name in ("black", "white", "gray", "brown") else 14
        return tuple(min(255, max(0, v + rng.randint(-j, j))) for v in COLOURS[name])

    def background(self, rng, name, w, h):
        base = self.colour(rng, name)
        other = tuple(min(255, max(0, v + rng.choice((-1, 1)) * rng.randint(6, 16))) for v in base)
        image = Image.new("RGB", (w, h), base)
        style = rng.choice(["plain", "plain", "gradient", "stripes", "checks", "blots"])
        d = ImageDraw.Draw(image)
        if style == "gradient":
            ramp = np.linspace(0, 1, h if rng.random() < .5 else w)[:, None]
            line = np.array(base) * (1 - ramp) + np.array(other) * ramp
            along = line[:, None] if len(line) == h else line[None]
            image = Image.fromarray(np.broadcast_to(along, (h, w, 3)).astype(np.uint8).copy())
        elif style == "stripes":
            step, slope = rng.randint(max(4, w // 40), max(8, w // 8)), rng.randint(-h, h)
            for x in range(-h - step, w + h + step, 2 * step):
                d.polygon([(x, 0), (x + step, 0), (x + step + slope, h), (x + slope, h)], other)
        elif style == "checks":
            step = rng.randint(max(6, w // 24), max(10, w // 5))
            for y in range(0, h, step):
                for x in range(step * (y // step % 2), w, 2 * step):
                    d.rectangle((x, y, x + step - 1, y + step - 1), other)
        elif style == "blots":
            for _ in range(rng.randint(4, 14)):
                x, y, r = rng.randint(0, w), rng.randint(0, h), rng.randint(w // 30, w // 7 + 1)
                d.ellipse((x - r, y - r, x + r, y + r), other)
        return image

    def shape(self, rng, d, o, w, h):
        cw, ch = w / 3, h / 3
        lo, hi = DIAMETER[o["size"]]
        r = min(cw, ch) * rng.uniform(lo, hi) / 2
        row, col = divmod(o["cell"], 3)
        x = cw * (col + .5) + rng.uniform(-1, 1) * max(0, cw / 2 * .9 - r)
        y = ch * (row + .5) + rng.uniform(-1, 1) * max(0, ch / 2 * .9 - r)
        o["box"] = ((x - r) / w, (y - r) / h, (x + r) / w, (y + r) / h)
        fill = self.colour(rng, o["colour"])
        points = outline(o["kind"], rng.uniform(-.2, .2), rng.choice((0, .5, 1, 1.5)) * math.pi)
        if points is not None:
            d.polygon([(x + r * px, y + r * py) for px, py in points], fill)
            return
        box = (x - r, y - r, x + r, y + r)
        if o["kind"] == "ring":
            d.ellipse(box, outline=fill, width=max(1, round(r * rng.uniform(.28, .38))))
        else:
            d.ellipse(box, fill)

    def text(self, rng, d, o, w, h):
        cw, ch = (w if o["wide"] else w / 3), h / 3
        row, col = divmod(o["cell"], 3)
        text = rng.choice([str.lower, str.upper, str.capitalize])(o["text"])
        path = rng.choice(self.fonts)
        n = max(2, len(text))
        biggest = min(ch * .72, cw * .92 / n / .74)
        size = max(8, int(biggest * (rng.uniform(.5, 1) if o["wide"] else rng.uniform(.85, 1))))
        font = self.font(path, size)
        x0, y0, x1, y1 = d.textbbox((0, 0), text, font=font)
        tw, th = x1 - x0, y1 - y0
        cx = w / 2 if o["wide"] else cw * (col + .5)
        x = cx + rng.uniform(-1, 1) * max(0, (cw - tw) / 2 * (.5 if o["wide"] else .8))
        y = ch * (row + .5) + rng.uniform(-1, 1) * max(0, (ch - th) / 2 * .7)
        left, top = x - tw / 2, y - th / 2
        o["box"] = (left / w, top / h, (left + tw) / w, (top + th) / h)
        d.text((left - x0, top - y0), text, self.colour(rng, o["colour"]), font=font)

    def paint(self, rng, scene, w, h):
        """uint8 (h, w, 3). Notes the box of each object in the scene."""
        s = 2 if w * h <= 300_000 else 1
        image = self.background(rng, scene["background"], w * s, h * s)
        d = ImageDraw.Draw(image)
        for o in scene["objects"]:
            draw = self.text if o["text"] is not None else self.shape
            draw(rng, d, o, w * s, h * s)
        if s == 2:
            image = image.reduce(2)
        if rng.random() < .12 and min(w, h) >= 200:
            image = image.filter(ImageFilter.GaussianBlur(rng.uniform(.3, 1.0)))
        rgb = np.asarray(image)
        if rng.random() < .6:
            sigma = rng.choice((2, 4, 6, 8, 10))
            dy, dx = rng.randint(0, 1400 - min(h, 1400)), rng.randint(0, 1400 - min(w, 1400))
            noise = self.noise[dy:dy + h, dx:dx + w].astype(np.int16)
            rgb = np.clip(rgb + noise * sigma // 16, 0, 255).astype(np.uint8)
        return np.array(rgb)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("out")
    p.add_argument("--width", type=int, default=512)
    p.add_argument("--height", type=int, default=512)
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    rng = random.Random(a.seed)
    scene = sample_scene(rng)
    Image.fromarray(Painter().paint(rng, scene, a.width, a.height)).save(a.out)
    from questions import caption
    print(caption(scene))


if __name__ == "__main__":
    main()
