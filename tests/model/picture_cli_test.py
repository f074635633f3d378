#!/usr/bin/env python3
"""Black-box test of the commands about pictures: bench decisions, and inspect with a model.

  picture_cli_test.py PROGRAM SOURCE_DIR

Only the standard library is used.
"""

import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.dom.minidom

PROGRAM = ""
SOURCE = pathlib.Path()
TIMEOUT = 300


def okibi(*args):
    return subprocess.run([PROGRAM, *map(str, args)], capture_output=True, text=True,
                          timeout=TIMEOUT)


def eye():
    folder = SOURCE / "models/okibi-eye"
    return ["-m", folder / "okibi-eye.gguf", "--mmproj", folder / "mmproj-okibi-eye.gguf"]


def tiny():
    folder = SOURCE / "tests/golden/lfm2vl-tiny"
    return ["-m", folder / "lfm2vl-tiny-f32.gguf", "--mmproj",
            folder / "mmproj-lfm2vl-tiny-f32.gguf"]


def bundled():
    folder = SOURCE / "bench/decisions"
    return ["--image", folder / "rings-512x286.png", "--questions", folder / "questions.json"]


def sha256(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


class PictureCommands(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def fail_with(self, phrase, *args):
        done = okibi(*args)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertTrue(done.stderr.splitlines()[-1].startswith("okibi: "), done.stderr)
        self.assertIn(phrase, done.stderr)

    def bench(self, *args):
        out = pathlib.Path(self.folder.name) / "out"
        done = okibi("bench", "decisions", *args, "--repeat", 1, "--threads", 2, "--out", out)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done, out, json.loads((out / "decisions.json").read_text())

    # bench decisions

    def test_reuse_changes_no_answer_and_saves_what_it_says(self):
        done, out, got = self.bench(*eye(), *bundled())
        self.assertEqual(got["choices"], {"moon_colour": "red", "word": "apple", "rings": "two",
                                          "cyan_arrow": "left"})
        agreement = got["agreement"]
        # Four answers of: the second warm-up, 4 x 2 requests of blocks, 4 cases.
        self.assertEqual(agreement["answers"], 4 * (1 + 8 + 4))
        self.assertEqual((agreement["other_choices"], agreement["other_bits"],
                          agreement["largest_probability_difference"]), (0, 0, 0))
        self.assertEqual([b["reuse"] for b in got["blocks"]], ["off", "on", "on", "off"])
        self.check_levels(got)
        cases = {name: case["median_ms"] for name, case in got["cases"].items()}
        self.assertGreater(cases["no reuse"]["total"], cases["new questions"]["total"])
        self.assertGreater(cases["new questions"]["total"], cases["identical"]["total"])
        self.assertEqual(cases["new questions"]["encode"], 0)
        for times in cases.values():
            self.assertAlmostEqual(sum(times.values()), 2 * times["total"], places=6)
        self.check_files(got["files"])
        self.assertIn("0 other choices, 0 with other bits", done.stdout)
        self.assertEqual(len((out / "decisions.csv").read_text().splitlines()), 1 + 4 + 4)
        xml.dom.minidom.parse(str(out / "decisions.svg"))

    def check_levels(self, got):
        def levels(requests):
            return [tuple((at["hits"], at["misses"]) for at in r["levels"].values())
                    for r in requests]
        cold, warm = ((0, 1), (0, 1), (0, 1)), ((1, 0), (1, 0), (0, 0))
        for block in got["blocks"]:
            first, repeat = levels(block["requests"])
            if block["reuse"] == "off":
                self.assertEqual(first, (*cold, (0, 0)))
                self.assertEqual(repeat, (*cold, (0, 0)))
            else:
                self.assertEqual(first, (*cold, (0, 4)))
                self.assertEqual(repeat, (*warm, (4, 0)))
        self.assertEqual({name: levels(case["requests"])[0] for name, case in got["cases"].items()},
                         {"no reuse": ((0, 4), (0, 4), (0, 4), (0, 0)),
                          "new image": (*cold, (0, 4)),
                          "new questions": ((1, 0), (1, 0), (1, 0), (0, 4)),
                          "identical": (*warm, (4, 0))})

    def check_files(self, files):
        folder = SOURCE / "models/okibi-eye"
        self.assertEqual(files["image"]["sha256"],
                         sha256(SOURCE / "bench/decisions/rings-512x286.png"))
        self.assertEqual(files["model"]["sha256"], sha256(folder / "okibi-eye.gguf"))
        self.assertEqual(files["projector"]["sha256"], sha256(folder / "mmproj-okibi-eye.gguf"))
        self.assertEqual(files["binary"]["sha256"], sha256(PROGRAM))

    def test_other_types_of_questions_and_pictures_of_several_views(self):
        examples = SOURCE / "models/okibi-eye/examples"
        _, _, got = self.bench(*eye(), "--image", examples / "board-1024x1024.png", "--questions",
                               examples / "board-1024x1024.json")
        self.assertEqual(got["picture"]["views"], 5)
        self.assertEqual(got["agreement"]["other_bits"], 0)

    def test_what_cannot_be_measured_is_refused_in_words(self):
        self.fail_with("--mmproj", "bench", "decisions", *eye()[:2], *bundled())
        self.fail_with("above 0", "bench", "decisions", *eye(), *bundled(), "--answer-cache", 0)
        self.fail_with("/nonexistent.png", "bench", "decisions", *eye(), "--image",
                       "/nonexistent.png", *bundled()[2:])
        self.fail_with("nothing to measure", "bench")

    # inspect

    def inspect(self, *args):
        done = okibi("inspect", *args, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_inspect_shows_what_a_model_sees(self):
        picture = SOURCE / "tests/golden/lfm2vl-tiny/images/img4_1600x500.png"
        default = self.inspect(picture)
        seen = self.inspect(picture, *tiny())
        self.assertIn("no model given", default["model"]["name"])
        self.assertNotIn("no model given", seen["model"]["name"])
        self.assertEqual(seen["plan"], default["plan"])  # the tiny model cuts as LFM2.5-VL does

    def test_inspect_takes_the_parameters_of_the_files(self):
        shape = pathlib.Path(self.folder.name) / "vl.gguf"
        made = okibi("synth", "lfm2.5-vl-450m", shape, "--no-data")
        self.assertEqual(made.returncode, 0, made.stderr)
        projector = shape.with_name("mmproj-vl.gguf")
        picture = SOURCE / "bench/decisions/rings-512x286.png"
        seen = self.inspect(picture, "-m", shape, "--mmproj", projector)
        self.assertEqual(seen["plan"]["image_tokens"], 144)
        # With patches of 32 px the wide picture is 25 x 8 tokens: one view instead of tiles.
        changed = pathlib.Path(self.folder.name) / "mmproj-coarse.gguf"
        self.write_with_patch(projector, changed, 32)
        wide = SOURCE / "tests/golden/lfm2vl-tiny/images/img4_1600x500.png"
        fine = self.inspect(wide, "-m", shape, "--mmproj", projector)
        coarse = self.inspect(wide, "-m", shape, "--mmproj", changed)
        self.assertEqual(coarse["model"]["parameters"]["patch"], 32)
        self.assertEqual((fine["plan"]["tiled"], fine["views"][0]["tokens"]), (True, 256))
        self.assertEqual((coarse["plan"]["tiled"], coarse["views"][0]["tokens"]), (False, 200))

    def write_with_patch(self, source, target, n):
        """A copy of a vision file whose key of the patch size has the value n."""
        data = bytearray(source.read_bytes())
        key = b"clip.vision.patch_size"
        at = data.index(key) + len(key) + 4  # past the type of the value
        data[at:at + 4] = n.to_bytes(4, "little")
        target.write_bytes(data)

    def test_inspect_wants_both_files_or_none(self):
        picture = SOURCE / "bench/decisions/rings-512x286.png"
        self.fail_with("found only --mmproj", "inspect", picture, *eye()[2:])
        self.fail_with("found only -m", "inspect", picture, *eye()[:2])
        self.fail_with("do not belong together", "inspect", picture, *eye()[:2], *tiny()[2:])
        self.fail_with("general.architecture", "inspect", picture, *eye()[:2], "--mmproj",
                       eye()[1])


if __name__ == "__main__":
    PROGRAM, SOURCE = sys.argv[1], pathlib.Path(sys.argv[2])
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
