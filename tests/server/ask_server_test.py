#!/usr/bin/env python3
"""`okibi ask --url --image` against a running server shows what `okibi ask --image` shows.

    ask_server_test.py OKIBI
"""

import json
import subprocess
import sys
import tempfile

from server_process import BOARD, EYE, SHOP, eye_server, said


def ask(okibi, *arguments, code=0):
    done = subprocess.run([okibi, "ask", *arguments], capture_output=True, text=True, timeout=300)
    assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
    return done


def main():
    okibi = sys.argv[1]
    with eye_server(okibi) as server, tempfile.NamedTemporaryFile("w", suffix=".key") as key:
        key.write(server.key + "\n")
        key.flush()
        remote = ["--url", server.url + "/", "--key", key.name]
        local = ["-m", str(EYE / "okibi-eye.gguf"), "--mmproj",
                 str(EYE / "mmproj-okibi-eye.gguf"), "--threads", "2"]
        for name, right in (SHOP, BOARD):
            about = ["--image", str(EYE / "examples" / (name + ".png")),
                     "--questions", str(EYE / "examples" / (name + ".json"))]
            table = ask(okibi, *remote, *about, "--repeat", "2")
            assert table.stdout == ask(okibi, *local, *about).stdout, table.stdout
            first, second = table.stderr.splitlines()
            assert first.endswith("pictures sent") and "total;dur=" in first, table.stderr
            assert second.endswith("pictures known by their digests"), table.stderr
            body = ask(okibi, *remote, *about, "--json")
            assert body.stderr.strip().endswith("known by their digests"), body.stderr
            answers = json.loads(body.stdout)["answers"]
            assert {k: said(a) for k, a in answers.items()} == right, answers
        missing = ask(okibi, *remote, "--image", "/nowhere.png", *about[2:], code=1)
        assert "/nowhere.png" in missing.stderr, missing.stderr
        broken = ask(okibi, *remote, "--image", about[3], *about[2:], code=1)
        assert "images.0" in broken.stderr, broken.stderr
    print("passed")


if __name__ == "__main__":
    main()
