#!/usr/bin/env python3
"""Black-box test of the commands run, logits and perplexity on the tiny lfm2 model, and of what
rewrites the n-gram table of the tiny qwen4exp model.

  cli_test.py PROGRAM GOLDEN_DIR

Only the standard library is used: the .npy files are read by hand.
"""

import array
import json
import math
import os
import pathlib
import re
import signal
import struct
import subprocess
import sys
import tempfile
import unittest

PROGRAM = ""
GOLDEN = pathlib.Path()
TIMEOUT = 300


def model():
    return str(GOLDEN / "lfm2vl-tiny/lfm2vl-tiny-f32.gguf")


def okibi(*args, stdin=""):
    return subprocess.run([PROGRAM, *args], input=stdin, capture_output=True, text=True,
                          timeout=TIMEOUT)


def read_npy(path):
    data = pathlib.Path(path).read_bytes()
    assert data[:8] == b"\x93NUMPY\x01\x00", data[:8]
    (n_header,) = struct.unpack("<H", data[8:10])
    header = data[10:10 + n_header].decode()
    assert "'<f4'" in header and "False" in header, header
    rows, cols = map(int, re.search(r"\((\d+), (\d+)\)", header).groups())
    values = array.array("f", data[10 + n_header:])
    assert len(values) == rows * cols
    return rows, cols, values


def golden_tensor(name):
    data = (GOLDEN / "lfm2vl-tiny/golden.safetensors").read_bytes()
    (n_header,) = struct.unpack("<Q", data[:8])
    begin, end = json.loads(data[8:8 + n_header])[name]["data_offsets"]
    return array.array("f", data[8 + n_header + begin:8 + n_header + end])


def golden_logits(index):
    """The reference's logits of text case `index`, and its tokens."""
    golden = json.loads((GOLDEN / "lfm2vl-tiny/golden.json").read_text())
    return golden["text"]["cases"][index]["tokens"], golden_tensor(f"text{index}.logits")


class Commands(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return str(pathlib.Path(self.folder.name) / name)

    def write(self, name, text):
        pathlib.Path(self.path(name)).write_text(text, encoding="utf-8")
        return self.path(name)

    def succeed(self, *args, stdin=""):
        done = okibi(*args, stdin=stdin)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def fail_with(self, phrase, *args, stdin=""):
        done = okibi(*args, stdin=stdin)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertTrue(done.stderr.startswith("okibi: "), done.stderr)
        self.assertIn(phrase, done.stderr)

    # logits

    def test_logits_are_those_of_the_reference(self):
        tokens, golden = golden_logits(2)
        ids = self.write("ids", " ".join(map(str, tokens)) + "\n")
        out = self.path("out.npy")
        self.succeed("logits", "-m", model(), "--tokens", ids, "--kv", "f32", "--out", out)
        rows, cols, values = read_npy(out)
        self.assertEqual((rows, cols), (len(tokens), 900))
        self.assertLess(max(abs(a - b) for a, b in zip(values, golden)), 2e-3)

    def test_chunks_and_threads_change_no_bit(self):
        tokens, _ = golden_logits(3)
        ids = self.write("ids", "\n".join(map(str, tokens)))
        seen = set()
        for chunk, threads in ((0, 1), (1, 2), (7, 1), (64, 2)):
            out = self.path("out.npy")
            done = self.succeed("logits", "-m", model(), "--tokens", ids, "--chunk", str(chunk),
                                "--threads", str(threads), "--out", out)
            seen.add((pathlib.Path(out).read_bytes(), done.stderr.rsplit("|", 1)[1]))
        self.assertEqual(len(seen), 1)

    def picture_flags(self, *files):
        folder = GOLDEN / "lfm2vl-tiny"
        flags = ["--mmproj", str(folder / "mmproj-lfm2vl-tiny-f32.gguf")]
        for file in files:
            flags += ["--image", str(folder / file)]
        return flags

    def test_pictures_take_the_image_tokens_of_a_prompt(self):
        case = json.loads((GOLDEN / "lfm2vl-tiny/golden.json").read_text())["multi"][0]
        golden = golden_tensor("multi0.last_logits")
        ids, out = self.write("ids", " ".join(map(str, case["tokens"]))), self.path("multi.npy")
        done = self.succeed("logits", "-m", model(), *self.picture_flags(*case["files"]), "--tokens",
                            ids, "--kv", "f32", "--out", out)
        self.assertIn("144 image tokens", done.stderr)
        rows, cols, values = read_npy(out)
        self.assertEqual((rows, cols), (len(case["tokens"]), len(golden)))
        last = values[-cols:]
        self.assertLess(max(abs(a - b) for a, b in zip(last, golden)), 1e-3)

    def test_pictures_that_do_not_fit_the_prompt_are_refused_in_words(self):
        ids, out = self.write("ids", "1 2 3"), self.path("none.npy")
        done = okibi("logits", "-m", model(), *self.picture_flags("images/img2_64x64.png"), "--tokens",
                     ids, "--out", out)
        self.assertEqual(done.returncode, 1)
        self.assertIn("the prompt has 0 image tokens, the 1 pictures have 64 rows", done.stderr)
        self.fail_with("no known picture format", "logits", "-m", model(),
                       *self.picture_flags("config.json"), "--tokens", ids, "--out", out)
        self.fail_with("without a vision file", "logits", "-m", model(), "--image",
                       str(GOLDEN / "lfm2vl-tiny/images/img2_64x64.png"), "--tokens", ids, "--out",
                       out)
        self.fail_with("general.architecture", "logits", "-m", model(), "--mmproj", model(),
                       "--tokens", ids, "--out", out)
        self.fail_with("expected 0 (off) to 4096", "logits", "-m", model(), "--vision-cache", "5000",
                       "--tokens", ids, "--out", out)

    def test_bad_token_files_are_refused_by_entry_and_leave_no_file(self):
        out = self.path("out.npy")
        for text, phrase in (("1 2 x3", 'entry 2 is "x3"'), ("1 900", 'entry 1 is "900"'),
                             ("-1", 'entry 0 is "-1"'), (" \n", "no token ids"),
                             ("99999999999999999999", "entry 0")):
            self.fail_with(phrase, "logits", "-m", model(), "--tokens", self.write("ids", text),
                           "--out", out)
            self.assertFalse(pathlib.Path(out).exists())
        self.fail_with("/nonexistent", "logits", "-m", model(), "-p", "hello", "--out",
                       "/nonexistent/out.npy")

    # run

    def test_run_writes_the_reply_to_stdout_and_timings_to_stderr(self):
        args = ("run", "-m", model(), "-p", "What stays?", "--max-tokens", "12")
        first, second = self.succeed(*args), self.succeed(*args, "--threads", "1")
        self.assertEqual(first.stdout, second.stdout)
        self.assertTrue(first.stdout.endswith("\n"))
        self.assertRegex(first.stderr, r"prompt \d+ tokens.*generated \d+ tokens.*logits [0-9a-f]{16}")
        hashes = {re.search("logits ([0-9a-f]{16})", d.stderr)[1] for d in (first, second)}
        self.assertEqual(len(hashes), 1)

    def test_a_seed_decides_what_is_sampled(self):
        def sample(seed):
            return self.succeed("run", "-m", model(), "-p", "a", "--raw", "--temp", "1.5",
                                "--seed", str(seed), "--max-tokens", "30").stdout
        self.assertEqual(sample(1), sample(1))
        self.assertGreater(len({sample(seed) for seed in range(1, 5)}), 1)

    def test_a_prompt_may_come_from_a_file_or_standard_input(self):
        text = "What stays? \u6b8b\u308b"
        tail = ("--max-tokens", "8")
        given = self.succeed("run", "-m", model(), "-p", text, *tail).stdout
        self.assertEqual(
            given, self.succeed("run", "-m", model(), "-f", self.write("p", text), *tail).stdout)
        self.assertEqual(given, self.succeed("run", "-m", model(), "-f", "-", *tail, stdin=text).stdout)
        system = self.succeed("run", "-m", model(), "-p", text, "--system", "Be brief.", *tail)
        n_tokens = [int(re.search(r"prompt (\d+)", d)[1]) for d in (
            system.stderr, self.succeed("run", "-m", model(), "-p", text, *tail).stderr)]
        self.assertGreater(n_tokens[0], n_tokens[1])

    def test_a_stop_string_ends_the_reply_before_it(self):
        args = ("run", "-m", model(), "-p", "What stays?", "--max-tokens", "40")
        whole = self.succeed(*args).stdout.rstrip("\n")
        self.assertGreater(len(whole), 8)
        stop = whole[4:7]
        done = self.succeed(*args, "--stop", "never there", "--stop", stop)
        self.assertEqual(done.stdout.rstrip("\n"), whole[:whole.index(stop)].rstrip("\n"))
        self.assertIn("stop string", done.stderr)

    def test_chat_answers_every_line_and_keeps_what_it_has_read(self):
        done = self.succeed("run", "-m", model(), "chat", "--max-tokens", "6",
                            stdin="What stays?\n\nAnd then?\n")
        timings = re.findall(r"prompt (\d+) tokens(?: \((\d+) kept)?", done.stderr)
        self.assertEqual(len(timings), 2, done.stderr)
        self.assertEqual(timings[0][1], "")
        self.assertGreaterEqual(int(timings[1][1]), int(timings[0][0]))
        alone = self.succeed("run", "-m", model(), "-p", "What stays?", "--max-tokens", "6")
        self.assertTrue(done.stdout.startswith(alone.stdout))

    def test_ctrl_c_stops_cleanly_and_says_what_was_done(self):
        process = subprocess.Popen(
            [PROGRAM, "run", "-m", model(), "-p", "a", "--raw", "--max-tokens", "1000000",
             "--temp", "2"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            self.assertTrue(process.stdout.read(1))  # it is generating
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=TIMEOUT)
        finally:
            process.kill()
        self.assertEqual(process.returncode, 130, errors)
        self.assertRegex(errors.decode(), r"generated \d+ tokens.*stopped")

    def test_a_profile_is_a_chrome_trace(self):
        trace = self.path("trace.json")
        self.succeed("run", "-m", model(), "-p", "a", "--max-tokens", "3", "--profile", trace)
        events = json.loads(pathlib.Path(trace).read_text())
        self.assertTrue(events["traceEvents"] if isinstance(events, dict) else events)

    def test_what_cannot_be_run_is_refused_in_words(self):
        self.fail_with("/nonexistent.gguf", "run", "-m", "/nonexistent.gguf", "-p", "a")
        self.fail_with("temperature", "run", "-m", model(), "-p", "a", "--temp", "-1")
        self.fail_with("nonsense", "run", "-m", model(), "-p", "a", "--chat-layout", "nonsense")
        self.fail_with("/nonexistent.txt", "run", "-m", model(), "-f", "/nonexistent.txt")
        both = okibi("run", "-m", model(), "-p", "a", "chat")
        self.assertNotIn(both.returncode, (0, -11, -6))

    # inspect --split-ple

    def flash_next(self):
        return str(GOLDEN / "qwen4exp-tiny/qwen4exp-tiny-f32.gguf")

    def directory(self, path):
        return json.loads(self.succeed("inspect", path, "--json").stdout)

    def logits_hash(self, path, ids, *flags):
        done = self.succeed("logits", "-m", path, "--tokens", ids, *flags, "--out",
                            self.path("out.npy"))
        return (done.stderr.rsplit("|", 1)[1], pathlib.Path(self.path("out.npy")).read_bytes())

    def test_a_split_table_has_the_same_rows_and_gives_the_same_logits(self):
        out = self.path("split.gguf")
        done = self.succeed("inspect", "--split-ple", self.flash_next(), out)
        self.assertRegex(done.stdout, r"table as 8 of them; 8 padding rows left out")
        before, after = self.directory(self.flash_next()), self.directory(out)
        self.assertEqual(before["metadata"], after["metadata"])
        tables = [{t["name"]: t for t in d["tensors"]} for d in (before, after)]
        joined = tables[0].pop("per_layer_token_embd.weight")
        whole = pathlib.Path(self.flash_next()).read_bytes()
        new = pathlib.Path(out).read_bytes()
        at = joined["offset"]
        for head, size in enumerate([503, 509, 521, 523, 541, 547, 557, 563]):
            part = tables[1].pop(f"ple_ngram_embd.{head}.weight")
            self.assertEqual((part["shape"], part["type"]), ([8, size], joined["type"]))
            n = part["bytes"]
            self.assertEqual(new[part["offset"]:part["offset"] + n], whole[at:at + n])
            at += n
        self.assertEqual(before["n_parameters"] - after["n_parameters"], 8 * 8)
        self.assertEqual(tables[0].keys(), tables[1].keys())
        for name, tensor in tables[0].items():
            other = tables[1][name]
            self.assertEqual((tensor["shape"], tensor["type"]), (other["shape"], other["type"]))
            begin, other_begin, n = tensor["offset"], other["offset"], tensor["bytes"]
            self.assertEqual(whole[begin:begin + n], new[other_begin:other_begin + n], name)
        ids = self.write("ids", " ".join(str(7 * i % 631) for i in range(60)))
        for flags in (("--threads", "1"), ("--chunk", "7")):
            self.assertEqual(self.logits_hash(self.flash_next(), ids, *flags),
                             self.logits_hash(out, ids, *flags))

    def test_what_has_no_joined_table_is_refused_and_leaves_no_file(self):
        split, none = self.path("split.gguf"), self.path("none.gguf")
        self.succeed("inspect", "--split-ple", self.flash_next(), split)
        self.fail_with("already is one tensor per head", "inspect", "--split-ple", split, none)
        self.fail_with('general.architecture is "lfm2"', "inspect", "--split-ple", model(), none)
        self.fail_with("is the input file", "inspect", "--split-ple", self.flash_next(),
                       self.flash_next())
        self.fail_with("needs a file to write", "inspect", "--split-ple", self.flash_next())
        self.fail_with("is for --split-ple", "inspect", self.flash_next(), none)
        self.fail_with("cannot create", "inspect", "--split-ple", self.flash_next(),
                       "/nonexistent/out.gguf")
        cut = self.path("cut.gguf")
        pathlib.Path(cut).write_bytes(pathlib.Path(self.flash_next()).read_bytes()[:-100])
        self.fail_with("cut.gguf", "inspect", "--split-ple", cut, none)
        self.assertEqual(sorted(p.name for p in pathlib.Path(self.folder.name).iterdir()),
                         ["cut.gguf", "split.gguf"])

    def test_a_full_size_file_without_data_is_planned_and_refused_without_reading_it(self):
        full = self.path("full.gguf")
        done = self.succeed("synth", "flash-next", full, "--type", "Q4_K", "--no-data")
        self.assertIn("1224 tensors, 176943899520 parameters", done.stdout)
        self.assertLess(pathlib.Path(full).stat().st_blocks * 512, 64 << 20)  # keys and holes
        found = self.directory(full)
        self.assertEqual(len(found["tensors"]), 1224)
        self.assertEqual(found["n_parameters"], 176943899520)
        # The table of 26.8 GiB stays in the file; all else is packed.
        table = next(t for t in found["tensors"] if t["name"] == "per_layer_token_embd.weight")
        packed = found["memory"]["rows"]["weights, packed"]
        stored = found["tensor_bytes"] - table["bytes"]
        self.assertGreaterEqual(packed, stored)
        self.assertLess(packed, stored * 1.001)
        self.assertGreater(found["memory"]["needed_bytes"], packed)
        if found["memory"]["fits"]:
            self.skipTest("this machine has memory for the whole model")
        for command in (("run", "-m", full, "-p", "a"), ("bench", "-m", full)):
            process = subprocess.Popen([PROGRAM, *command], stdout=subprocess.DEVNULL,
                                       stderr=subprocess.PIPE, text=True)
            errors = process.stderr.read()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            self.assertEqual(process.returncode, 1, errors)
            self.assertIn("does not fit into memory", errors)
            for row in ("weights, packed", "K/V cache", "recurrent state", "needed", "available"):
                self.assertIn(row, errors)
            self.assertLess(usage.ru_maxrss, 400 << 10)  # KiB
            process.stderr.close()

    # perplexity

    def test_perplexity_is_the_mean_over_second_halves_of_windows(self):
        tokens, golden = golden_logits(3)
        text = self.write("text", "The same words, read again. " * 30)
        done = self.succeed("perplexity", "-m", model(), "-f", text, "--ctx", "32")
        found = re.search(r"perplexity ([0-9.]+) \+- .*log-likelihood ([0-9.]+) over (\d+)",
                          done.stdout)
        self.assertAlmostEqual(math.log(float(found[1])), float(found[2]), places=3)
        n_windows = int(re.search(r"(\d+) windows of 32", done.stderr)[1])
        self.assertEqual(int(found[3]), n_windows * 15)

    def test_perplexity_of_a_short_text_is_that_of_its_logits(self):
        entry = json.loads((GOLDEN / "lfm2vl-tiny/tokenizer_golden.json").read_text())[0]
        bos, _ = golden_logits(0)
        ids = [bos[0], *entry["ids"]]
        out = self.path("out.npy")
        self.succeed("logits", "-m", model(), "--tokens",
                     self.write("ids", " ".join(map(str, ids))), "--out", out)
        _, cols, values = read_npy(out)
        nll = 0
        for i, target in enumerate(ids[1:]):
            row = values[i * cols:(i + 1) * cols]
            nll += math.log(sum(math.exp(x - max(row)) for x in row)) + max(row) - row[target]
        done = self.succeed("perplexity", "-m", model(), "-f", self.write("text", entry["text"]))
        found = re.search(r"log-likelihood ([0-9.]+) over (\d+) tokens", done.stdout)
        self.assertEqual(int(found[2]), len(ids) - 1)
        self.assertAlmostEqual(float(found[1]), nll / (len(ids) - 1), places=5)

    def test_a_model_differs_from_itself_by_nothing(self):
        text = self.write("text", "One question keeps its own state. " * 20)
        done = self.succeed("perplexity", "-m", model(), "-f", text, "--ctx", "48", "--against",
                            model())
        self.assertIn("mean 0.000000, maximum 0.000000", done.stdout)
        self.assertIn("100.00 %", done.stdout)

    def test_a_quantised_file_differs_from_its_source_by_a_little(self):
        text = self.write("text", "One question keeps its own state. " * 20)
        smaller = self.path("q8_0.gguf")
        self.succeed("quantize", model(), smaller, "Q8_0")
        done = self.succeed("perplexity", "-m", smaller, "-f", text, "--ctx", "48", "--against",
                            model())
        mean, largest, same = map(float, re.search(
            r"mean ([0-9.]+), maximum ([0-9.]+) \| same top token ([0-9.]+) %", done.stdout).groups())
        self.assertGreater(mean, 1e-4)
        self.assertGreaterEqual(largest, mean)
        self.assertLess(mean, 1)
        self.assertGreater(same, 20)

    def test_a_text_that_is_too_short_is_refused(self):
        self.fail_with("at least 2", "perplexity", "-m", model(), "-f", self.write("empty", ""))


if __name__ == "__main__":
    PROGRAM, GOLDEN = sys.argv[1], pathlib.Path(sys.argv[2])
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
