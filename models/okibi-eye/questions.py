"""Typed questions about a scene: noul, choice and score, in many wordings, with the right answer.

A question is a dict: type, id, instructions, options [(key, description, number)], answer (index of
the right option), kind (which generator made it), and state where the question needs one. The last
wording of each list is never used in training: it measures how much hangs on the words.
"""
from draw import CELLS, COLOUR_NAMES, NUMBERS, SHAPES, SIZES, WORDS

PLURAL = {s: s + "s" for s in SHAPES} | {"cross": "crosses"}
COUNT_WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
IN_CELL = {c: f"at the {c}" for c in CELLS} | {"center": "in the center", "left": "on the left",
                                               "right": "on the right"}


def caption(scene):
    parts = []
    for o in scene["objects"]:
        place = IN_CELL[CELLS[o["cell"]]]
        if o["text"] is not None:
            parts.append(f"the {o['kind']} {o['text']} in {o['colour']} {place}")
        else:
            parts.append(f"a {o['size']} {o['colour']} {o['kind']} {place}")
    seen = "; ".join(parts) if parts else "nothing"
    return f"Background: {scene['background']}. Objects: {seen}."


class Asker:
    """Makes questions about one scene. unseen: only wordings kept out of training; easy: few
    options in their plainest form, for the beginning."""

    def __init__(self, rng, scene, unseen=False, easy=False):
        self.rng, self.scene, self.unseen, self.easy = rng, scene, unseen, easy
        self.objects = scene["objects"]
        self.shapes = [o for o in self.objects if o["text"] is None]
        self.texts = [o for o in self.objects if o["text"] is not None]

    # ---- words -----------------------------------------------------------------------------
    def say(self, wordings, **kw):
        pick = wordings[-1] if self.unseen else self.rng.choice(wordings[:-1])
        return pick.format(**kw)

    def name_forms(self, o):
        """Descriptions that fit this object alone."""
        forms = []
        same = [p for p in self.shapes if p["kind"] == o["kind"]]
        if len(same) == 1:
            forms.append(o["kind"])
        if len([p for p in same if p["colour"] == o["colour"]]) == 1:
            forms += [f"{o['colour']} {o['kind']}"] * 2
        if len([p for p in same if p["size"] == o["size"]]) == 1:
            forms.append(f"{o['size']} {o['kind']}")
        return forms

    def named(self, colour_free=False, size_free=False, place_free=False):
        """(object, a name that says nothing of what is asked), or None."""
        found = []
        for o in self.shapes:
            for form in self.name_forms(o):
                if colour_free and o["colour"] in form or size_free and o["size"] in form:
                    continue
                found.append((o, form))
            if not place_free:
                found.append((o, f"{self.rng.choice(['shape', 'object'])} "
                                 f"{IN_CELL[CELLS[o['cell']]]}"))
        return self.rng.choice(found) if found else None

    # ---- assembling ------------------------------------------------------------------------
    def choice(self, kind, instructions, right, wrong, most=8, describe=None):
        rng = self.rng
        wrong = [w for w in dict.fromkeys(wrong) if w != right]
        rng.shuffle(wrong)
        n = min(len(wrong), rng.choices(range(1, most), [7, 9, 12, 8, 5, 4, 4][:most - 1])[0])
        if n < 1:
            return None
        if self.easy:
            n = min(n, 3)
        values = wrong[:n] + [right]
        rng.shuffle(values)
        style = 0 if self.easy else rng.random()
        if style < .62:
            options = [(v, "", 0) for v in values]
        elif style < .8:
            frame = rng.choice(describe or ["{}", "it is {}", "the answer is {}"])
            options = [(v, frame.format(v), 0) for v in values]
        else:
            # Keys that say nothing: the description is all there is.
            prefix = rng.choice(["option", "answer", "k", "class", "x", "label"])
            numbers = rng.sample(range(1, 30), len(values))
            options = [(f"{prefix}{rng.choice(['', '_'])}{m}", v, 0)
                       for m, v in zip(numbers, values)]
        return {"type": "choice", "id": kind, "kind": "choice." + kind,
                "instructions": instructions, "options": options, "answer": values.index(right)}

    def noul(self, kind, instructions, truth, yes="", no="", state=None):
        options = [("true", "", 0), ("false", "", 0)]
        r = 1 if self.easy else self.rng.random()
        if yes and r < .25:
            options = [("true", yes, 0), ("false", no, 0)]
            if r < .08 and not self.unseen:
                instructions = ""
        q = {"type": "noul", "id": kind, "kind": "noul." + kind, "instructions": instructions,
             "options": options, "answer": 0 if truth else 1}
        if not self.easy and self.rng.random() < .3:
            q = swapped(q)
        if state is not None:
            q["state"] = state
        return q

    def score(self, kind, instructions, levels, answer):
        options = [("", level, i) for i, level in enumerate(levels)]
        q = {"type": "score", "id": kind, "kind": "score." + kind, "instructions": instructions,
             "options": options, "answer": answer}
        r = 1 if self.easy else self.rng.random()
        if r < .2:
            q = swapped(q)
        elif r < .3:
            q = rotated(q, self.rng.randrange(len(levels)))
        if q["options"][0][2] != 0 and self.rng.random() < .4:
            q["options"] = [(k, d, i) for i, (k, d, _) in enumerate(q["options"])]
        return q

    # ---- what may be asked -----------------------------------------------------------------
    def ask(self, type_):
        """One question of the type; the generators that do not fit the scene are passed over."""
        makers = {"noul": NOULS, "choice": CHOICES, "score": SCORES}[type_]
        names = [m for m, weight in makers for _ in range(weight)]
        for _ in range(60):
            q = getattr(self, self.rng.choice(names))()
            if q is not None:
                return q
        return self.noul_background()

    # choice
    def choice_colour(self):
        got = self.named(colour_free=True)
        if got is None:
            return None
        o, name = got
        return self.choice("colour", self.say([
            "What colour is the {n}?", "Which colour does the {n} have?", "Colour of the {n}?",
            "Name the colour of the {n}.", "Pick the colour of the {n}.",
            "The {n} is painted in which colour?"], n=name), o["colour"], COLOUR_NAMES,
            describe=["{}", "the {n} is {{}}".format(n=name), "it is {}"])

    def choice_text_colour(self):
        if len(self.texts) != 1:
            return None
        t = self.texts[0]
        return self.choice("text_colour", self.say([
            "What colour is the {k}?", "In which colour is the {k} written?",
            "Colour of the {k}?", "Which colour do the letters of the {k} have?"],
            k=self.rng.choice([t["kind"], "text"])), t["colour"], COLOUR_NAMES)

    def choice_shape(self):
        found = []
        for o in self.shapes:
            if len([p for p in self.shapes if p["colour"] == o["colour"]]) == 1:
                found.append((o, f"the {o['colour']} object"))
                found.append((o, f"the {o['colour']} shape"))
            if len([p for p in self.shapes if p["size"] == o["size"]]) == 1:
                found.append((o, f"the {o['size']} object"))
            found.append((o, f"the object {IN_CELL[CELLS[o['cell']]]}"))
        if not found:
            return None
        o, name = self.rng.choice(found)
        return self.choice("shape", self.say([
            "What shape is {n}?", "Which shape does {n} have?", "What is {n}?",
            "Name the shape of {n}.", "{n} has which form?"], n=name), o["kind"], SHAPES)

    def choice_place(self):
        got = self.named(place_free=True)
        if self.texts and (got is None or self.rng.random() < .25):
            if len(self.texts) != 1:
                return None
            o, name = self.texts[0], self.rng.choice([self.texts[0]["kind"], "text"])
        elif got is None:
            return None
        else:
            o, name = got
        return self.choice("place", self.say([
            "Where is the {n}?", "In which part of the picture is the {n}?",
            "What is the position of the {n}?", "Locate the {n}.", "The {n} can be found where?"],
            n=name), CELLS[o["cell"]], CELLS)

    def choice_at(self):
        cell = self.rng.randrange(9)
        if self.objects and self.rng.random() < .8:
            cell = self.rng.choice(self.objects)["cell"]
        here = [o for o in self.objects if o["cell"] == cell]
        if here and here[0]["text"] is not None:
            return None
        right = f"{here[0]['colour']} {here[0]['kind']}" if here else "nothing"
        wrong = [self.random_pair(near=here[0] if here else None) for _ in range(8)] + ["nothing"]
        return self.choice("at", self.say([
            "What is {p}?", "What can be seen {p}?", "Which object is {p}?",
            "{p}, there is what?"], p=IN_CELL[CELLS[cell]]), right, wrong)

    def random_pair(self, near=None):
        colour, kind = self.rng.choice(COLOUR_NAMES), self.rng.choice(SHAPES)
        if near is not None:
            r = self.rng.random()
            colour = near["colour"] if r < .35 else colour
            kind = near["kind"] if .35 <= r < .7 else kind
        return f"{colour} {kind}"

    def choice_which(self):
        if not self.shapes:
            return None
        present = {f"{o['colour']} {o['kind']}" for o in self.shapes}
        o = self.rng.choice(self.shapes)
        wrong = [p for p in (self.random_pair(near=o) for _ in range(12)) if p not in present]
        return self.choice("which", self.say([
            "Which of these is in the picture?", "Which object does the picture show?",
            "Pick the object that is there.", "Only one of these objects is present. Which?"]),
            f"{o['colour']} {o['kind']}", wrong)

    def what_to_count(self):
        """(name in the plural, name in the singular, how many)."""
        r = self.rng.random()
        o = self.rng.choice(self.shapes) if self.shapes and self.rng.random() < .8 else {
            "kind": self.rng.choice(SHAPES), "colour": self.rng.choice(COLOUR_NAMES)}
        if r < .3 and not self.texts:
            return "objects", "object", len(self.shapes)
        if r < .62:
            n = len([p for p in self.shapes if p["kind"] == o["kind"]])
            return PLURAL[o["kind"]], o["kind"], n
        if r < .85:
            n = len([p for p in self.shapes if p["colour"] == o["colour"]])
            noun = self.rng.choice(["shape", "object"])
            if noun == "object" and any(t["colour"] == o["colour"] for t in self.texts):
                noun = "shape"
            return f"{o['colour']} {noun}s", f"{o['colour']} {noun}", n
        n = len([p for p in self.shapes if p["kind"] == o["kind"] and p["colour"] == o["colour"]])
        return f"{o['colour']} {PLURAL[o['kind']]}", f"{o['colour']} {o['kind']}", n

    COUNTS = ["How many {n} are there?", "Count the {n}.", "Number of {n}?",
              "How many {n} does the picture show?", "What is the number of {n} in the picture?",
              "Tell how many {n} you see."]

    def choice_count(self):
        many, _, n = self.what_to_count()
        names = COUNT_WORDS if self.rng.random() < .4 else [str(i) for i in range(10)]
        near = [names[i] for i in range(10) if abs(i - n) <= 4]
        return self.choice("count", self.say(self.COUNTS, n=many), names[n], near)

    def choice_background(self):
        return self.choice("background", self.say([
            "What colour is the background?", "Background colour?",
            "Which colour is behind the objects?", "Name the colour of the background.",
            "The background has which colour?"]), self.scene["background"], COLOUR_NAMES)

    def choice_read(self):
        if len(self.texts) != 1:
            rows = [t for t in self.texts]
            if not rows:
                return None
            t = self.rng.choice(rows)
            where = " " + IN_CELL[CELLS[t["cell"]]]
        else:
            t = self.texts[0]
            where = "" if self.rng.random() < .7 else " " + IN_CELL[CELLS[t["cell"]]]
        others = {p["text"] for p in self.texts}
        pool = WORDS if t["kind"] == "word" else NUMBERS
        if t["kind"] == "number" and self.rng.random() < .5:
            v = t["text"]
            pool = [x for x in NUMBERS if len(x) == len(v) and (x[0] == v[0] or x[-1] == v[-1])]
        wrong = [x for x in pool if x not in others]
        return self.choice("read", self.say([
            "Which {k} is written{w}?", "What {k} is shown{w}?", "Read the {k}{w}.",
            "Which {k} can be read{w}?", "What does the {k}{w} say?",
            "The {k}{w} reads how?"], k=t["kind"], w=where), t["text"], wrong)

    def choice_size(self):
        got = self.named(size_free=True)
        if got is None:
            return None
        o, name = got
        return self.choice("size", self.say([
            "How large is the {n}?", "What size is the {n}?", "Size of the {n}?",
            "Which size has the {n}?"], n=name), o["size"], SIZES, most=3)

    # noul
    def noul_present(self):
        if not self.shapes and self.rng.random() < .8:
            return None
        truth = bool(self.shapes) and self.rng.random() < .55
        present = {f"{o['colour']} {o['kind']}" for o in self.shapes}
        if truth:
            o = self.rng.choice(self.shapes)
            name = self.rng.choice([f"{o['colour']} {o['kind']}", o["kind"],
                                    f"{o['colour']} shape"])
        else:
            near = self.rng.choice(self.shapes) if self.shapes else None
            name = self.random_pair(near)
            kinds = {o["kind"] for o in self.shapes}
            colours = {o["colour"] for o in self.shapes}
            r = self.rng.random()
            if r < .25:
                name = self.rng.choice([s for s in SHAPES if s not in kinds])
            elif r < .45:
                name = self.rng.choice([c for c in COLOUR_NAMES if c not in colours]) + " shape"
            elif name in present:
                return None
        article = "an" if name[0] in "aeo" else "a"
        if self.rng.random() < .12:
            state = self.rng.choice([f"The target is: {name}", f'{{"target": "{name}"}}',
                                     f"Look for {article} {name}."])
            return self.noul("target", self.say([
                "Is the target in the picture?", "Does the picture show the object named above?",
                "The object of the state is in the picture.", "Can the target be seen here?"]),
                truth, state=state)
        return self.noul("present", self.say([
            "Is there {a} {n} in the picture?", "There is {a} {n}.", "Is {a} {n} there?",
            "Does the picture show {a} {n}?", "The picture shows {a} {n}.",
            "Can you see {a} {n} anywhere?"], a=article, n=name), truth,
            f"there is {article} {name}", f"there is no {name}")

    def other(self, values, value):
        return self.rng.choice([v for v in values if v != value])

    def noul_colour(self):
        got = self.named(colour_free=True)
        if got is None:
            return None
        o, name = got
        truth = self.rng.random() < .5
        colour = o["colour"] if truth else self.other(COLOUR_NAMES, o["colour"])
        return self.noul("colour", self.say([
            "Is the {n} {c}?", "The {n} is {c}.", "Does the {n} have the colour {c}?",
            "Is {c} the colour of the {n}?"], n=name, c=colour), truth,
            f"the {name} is {colour}", f"the {name} is not {colour}")

    def noul_place(self):
        got = self.named(place_free=True)
        if got is None:
            return None
        o, name = got
        truth = self.rng.random() < .5
        cell = CELLS[o["cell"]] if truth else self.other(CELLS, CELLS[o["cell"]])
        return self.noul("place", self.say([
            "Is the {n} {p}?", "The {n} is {p}.", "Can the {n} be found {p}?",
            "Is it true that the {n} stands {p}?"], n=name, p=IN_CELL[cell]), truth,
            f"the {name} is {IN_CELL[cell]}", "it is elsewhere")

    def noul_count(self):
        many, _, n = self.what_to_count()
        r = self.rng.random()
        truth = self.rng.random() < .5
        name = COUNT_WORDS if self.rng.random() < .5 else [str(i) for i in range(10)]
        if r < .5:
            m = n if truth else self.rng.choice([i for i in range(10)
                                                 if i != n and abs(i - n) <= 3])
            text = self.say(["Are there exactly {m} {n}?", "The number of {n} is {m}.",
                             "Does the picture show exactly {m} {n}?",
                             "Is {m} the number of {n}?"], m=name[m], n=many)
        elif r < .75:
            m = self.rng.randint(0, n - 1) if truth and n > 0 else \
                self.rng.randint(n, min(9, n + 3))
            truth = n > m
            text = self.say(["Are there more than {m} {n}?", "There are more than {m} {n}.",
                             "Does one see more than {m} {n}?"], m=name[m], n=many)
        else:
            m = self.rng.randint(n + 1, min(9, n + 3)) if truth and n < 9 else \
                self.rng.randint(max(1, n - 3), max(1, n))
            truth = n < m
            text = self.say(["Are there fewer than {m} {n}?", "There are fewer than {m} {n}.",
                             "Does one see fewer than {m} {n}?"], m=name[m], n=many)
        return self.noul("count", text, truth)

    def noul_background(self):
        truth = self.rng.random() < .5
        right = self.scene["background"]
        colour = right if truth else self.other(COLOUR_NAMES, right)
        return self.noul("background", self.say([
            "Is the background {c}?", "The background is {c}.",
            "Is {c} the colour of the background?", "Are the objects on a {c} ground?"], c=colour),
            truth, f"the background is {colour}", "it has another colour")

    def noul_read(self):
        if not self.texts:
            return None
        t = self.rng.choice(self.texts)
        truth = self.rng.random() < .5
        others = {p["text"] for p in self.texts}
        text = t["text"]
        if not truth:
            pool = WORDS if t["kind"] == "word" else NUMBERS
            text = self.rng.choice([x for x in pool if x not in others])
        return self.noul("read", self.say([
            "Does the picture show the {k} {t}?", "Is the {k} \"{t}\" written there?",
            "The {k} {t} can be read.", "Is the {k} {t} in the picture?",
            "Someone wrote the {k} {t}."], k=t["kind"], t=text), truth)

    def noul_text(self):
        truth = bool(self.texts)
        if truth and self.rng.random() < .5:
            return None
        return self.noul("text", self.say([
            "Is there any text in the picture?", "The picture contains a word or a number.",
            "Is something written in the picture?", "Can one read something here?"]), truth)

    def two_named(self):
        """Two objects and names that say nothing of place or size."""
        found = []
        for o in self.shapes:
            forms = [f for f in self.name_forms(o) if o["size"] not in f]
            if forms:
                found.append((o, self.rng.choice(forms)))
        return self.rng.sample(found, 2) if len(found) > 1 else None

    def noul_beside(self):
        got = self.two_named()
        if got is None:
            return None
        (a, an), (b, bn) = got
        (ar, ac), (br, bc) = divmod(a["cell"], 3), divmod(b["cell"], 3)
        ways = []
        if ac != bc:
            ways += [("to the left of", ac < bc), ("to the right of", ac > bc)]
        if ar != br:
            ways += [("above", ar < br), ("below", ar > br)]
        way, truth = self.rng.choice(ways)
        return self.noul("beside", self.say([
            "Is the {a} {w} the {b}?", "The {a} is {w} the {b}.",
            "Does the {a} lie {w} the {b}?", "Would you say the {a} is {w} the {b}?"],
            a=an, b=bn, w=way), truth)

    def noul_larger(self):
        got = self.two_named()
        if got is None:
            return None
        (a, an), (b, bn) = got
        sa, sb = SIZES.index(a["size"]), SIZES.index(b["size"])
        if sa == sb:
            return None
        way, truth = self.rng.choice([("larger", sa > sb), ("smaller", sa < sb)])
        return self.noul("larger", self.say([
            "Is the {a} {w} than the {b}?", "The {a} is {w} than the {b}.",
            "Compared with the {b}, is the {a} {w}?"], a=an, b=bn, w=way), truth)

    # score
    def score_count(self):
        many, one, n = self.what_to_count()
        top = self.rng.randint(2, 6)
        style = self.rng.random()
        if style < .35:
            levels = [str(i) for i in range(top)] + [f"{top} or more"]
        elif style < .7:
            levels = ["none"] + COUNT_WORDS[1:top] + [f"{COUNT_WORDS[top]} or more"]
        else:
            levels = [f"no {many}", f"one {one}"] + [f"{COUNT_WORDS[i]} {many}"
                                                     for i in range(2, top)]
            levels.append(f"{COUNT_WORDS[top]} or more {many}")
        return self.score("count", self.say(self.COUNTS, n=many), levels, min(n, top))

    def score_size(self):
        got = self.named(size_free=True)
        if got is None:
            return None
        o, name = got
        frame = self.rng.choice(["{}", "it is {}", "the {n} is {{}}".format(n=name)])
        return self.score("size", self.say([
            "How large is the {n}?", "Rate the size of the {n}.", "Size of the {n}?",
            "What is the extent of the {n}?"], n=name), [frame.format(s) for s in SIZES],
            SIZES.index(o["size"]))

    def score_height(self):
        got = self.named(place_free=True)
        if got is None:
            return None
        o, name = got
        row, col = divmod(o["cell"], 3)
        if self.rng.random() < .5:
            levels = self.rng.choice([["bottom", "middle", "top"], ["low", "middle", "high"],
                                      ["in the lower third", "in the middle",
                                       "in the upper third"]])
            return self.score("height", self.say([
                "How high up is the {n}?", "How high in the picture is the {n}?",
                "Rate the height of the {n} in the picture.", "At which height is the {n}?"],
                n=name), levels, 2 - row)
        levels = self.rng.choice([["left", "middle", "right"], ["left", "center", "right"],
                                  ["in the left third", "in the middle", "in the right third"]])
        return self.score("across", self.say([
            "How far to the right is the {n}?", "How far right is the {n} in the picture?",
            "Rate how far right the {n} is.", "Horizontally, where is the {n}?"], n=name),
            levels, col)

    def score_number(self):
        numbers = [t for t in self.texts if t["kind"] == "number"]
        if len(numbers) != 1:
            return None
        n = int(numbers[0]["text"])
        edges = self.rng.choice([[50], [10], [30, 60], [10, 50], [20, 40, 60, 80], [25, 50, 75]])
        bounds = [0] + edges + [100]
        style = self.rng.random()
        if style < .6:
            frame = self.rng.choice(["{} to {}", "{}-{}", "from {} to {}"])
            levels = [frame.format(a, b - 1) for a, b in zip(bounds, bounds[1:])]
        else:
            levels = [f"below {edges[0]}"] + [f"{a} to {b - 1}" for a, b in zip(edges, edges[1:])]
            levels.append(f"{edges[-1]} or more")
        return self.score("number", self.say([
            "How large is the number shown?", "In which range is the number?",
            "How high is the number in the picture?", "Rate the number that is written."]),
            levels, sum(n >= e for e in edges))

    def score_crowd(self):
        if self.texts:
            return None
        n = len(self.shapes)
        levels, at = self.rng.choice([
            (["empty", "one object", "two or three objects", "four or more objects"],
             [0, 1, 2, 2, 3, 3, 3, 3, 3, 3]),
            (["no object", "1 to 2 objects", "3 to 5 objects", "6 or more objects"],
             [0, 1, 1, 2, 2, 2, 3, 3, 3, 3]),
            (["fewer than 3 objects", "3 to 5 objects", "more than 5 objects"],
             [0, 0, 0, 1, 1, 1, 2, 2, 2, 2])])
        return self.score("crowd", self.say([
            "How full is the picture?", "How crowded is the picture?",
            "Rate how many objects there are.", "How busy does the picture look?"]), levels, at[n])


def value_of(q, i):
    """What option i says, in words."""
    key, description, _ = q["options"][i]
    return {"noul": key, "choice": description or key, "score": description}[q["type"]]


def naming(rng):
    """(question, state): the state names an option; nothing is to be seen. For training only."""
    pool = list(rng.choice([COLOUR_NAMES, SHAPES, CELLS, WORDS, NUMBERS, COUNT_WORDS]))
    rng.shuffle(pool)
    values = pool[:rng.choice([2, 2, 3, 3, 4, 5, 6, 8])]
    answer = rng.randrange(len(values))
    if rng.random() < .7:
        options = [(v, "", 0) for v in values]
    else:
        options = [(f"option{m}", v, 0) for m, v in zip(rng.sample(range(1, 30), len(values)),
                                                       values)]
    state = rng.choice(["{}", "The answer is {}.", "It is {}.", '{{"value": "{}"}}'])
    return {"type": "choice", "id": "naming", "kind": "naming", "options": options,
            "answer": answer, "instructions": rng.choice([
                "Which option does the state name?", "Pick the option of the state.",
                "What does the state say?"])}, state.format(values[answer])


def swapped(q):
    """The same question with its options in reverse order."""
    n = len(q["options"])
    return dict(q, options=q["options"][::-1], answer=n - 1 - q["answer"])


def rotated(q, k):
    n = len(q["options"])
    return dict(q, options=q["options"][k:] + q["options"][:k], answer=(q["answer"] - k) % n)


CHOICES = [("choice_colour", 4), ("choice_text_colour", 2), ("choice_shape", 4),
           ("choice_place", 4), ("choice_at", 3), ("choice_which", 3), ("choice_count", 4),
           ("choice_background", 2), ("choice_read", 6), ("choice_size", 2)]
NOULS = [("noul_present", 6), ("noul_colour", 4), ("noul_place", 4), ("noul_count", 4),
         ("noul_background", 2), ("noul_read", 4), ("noul_text", 1), ("noul_beside", 4),
         ("noul_larger", 3)]
SCORES = [("score_count", 7), ("score_size", 4), ("score_height", 5), ("score_number", 3),
          ("score_crowd", 2)]

DISTRACTORS = [
    "A picture from the archive.", "Camera {n}, frame {m}.", '{{"source": "camera {n}"}}',
    "The picture was taken on day {n}.", "Yesterday the sign was {c}.",
    "Somebody expected a {c} {s} here.", '{{"id": {n}, "note": "checked"}}', "No. {m}",
    "Inspection of item {n}. Answer from the picture alone.", "The last picture showed {n} {s}.",
    "Notes: the order is {m}, the customer likes {c}.", '{{"page": {n}, "of": {m}}}']


def distractor(rng):
    """A state that has no bearing on the picture; often nothing at all."""
    if rng.random() < .5:
        return ""
    return rng.choice(DISTRACTORS).format(n=rng.randint(1, 99), m=rng.randint(100, 999),
                                          c=rng.choice(COLOUR_NAMES), s=rng.choice(SHAPES))
