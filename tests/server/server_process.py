"""`okibi serve` for tests: started on a free port, asked, drained at the end."""

import base64
import json
import pathlib
import signal
import subprocess
import tempfile
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
EYE = ROOT / "models" / "okibi-eye"
KEY = "test-key-1"

# The bundled pictures' questions and what is to be seen on them (score: the level's index).
SHOP = ("shop-512x286", {"star_colour": "blue", "word": "open", "heart_right": True, "circles": 2})
BOARD = ("board-1024x1024", {"ring_place": "bottom left", "number": "third", "white_circle": False,
                             "star_size": 0})


class Server:
    """okibi on a free port, until the end of the `with`."""

    def __init__(self, okibi, model, *flags, name="tiny"):
        self.key = KEY
        self.keys = tempfile.NamedTemporaryFile("w", suffix=".keys")
        self.keys.write(KEY + " tester\n")
        self.keys.flush()
        self.process = subprocess.Popen(
            [okibi, "serve", "-m", model, "--port", "0", "--threads", "2", "--name", name,
             "--api-keys", self.keys.name, "--quiet", *flags],
            stdout=subprocess.PIPE, text=True)

    def __enter__(self):
        line = self.process.stdout.readline()
        assert "listens on http://" in line, line
        self.url = line.split()[-1]
        return self

    def __exit__(self, kind, *_):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(60)
        self.keys.close()
        assert kind is not None or code == 0, f"the server ended with {code}, not drained"

    def resident_kib(self):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as lines:
            return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def eye_server(okibi, *flags):
    """The bundled picture model."""
    return Server(okibi, str(EYE / "okibi-eye.gguf"), "--mmproj",
                  str(EYE / "mmproj-okibi-eye.gguf"), "--ctx", "4096", *flags, name="eye")


def picture_bytes(name):
    return (EYE / "examples" / (name + ".png")).read_bytes()


def questions_of(name):
    return json.loads((EYE / "examples" / (name + ".json")).read_text())["questions"]


def data_url(png):
    return "data:image/png;base64," + base64.b64encode(png).decode()


def post(url, body, path="/v1/systemone", headers=()):
    """Status, JSON body and headers."""
    request = urllib.request.Request(
        url + path, json.dumps(body).encode(),
        {"Content-Type": "application/json", "Authorization": "Bearer " + KEY, **dict(headers)})
    try:
        with urllib.request.urlopen(request, timeout=120) as reply:
            return reply.status, json.load(reply), reply.headers
    except urllib.error.HTTPError as error:
        return error.code, json.load(error), error.headers


def metric(url, line_start):
    """A value of /metrics; 0 when it is not there yet."""
    request = urllib.request.Request(url + "/metrics", headers={"Authorization": "Bearer " + KEY})
    with urllib.request.urlopen(request, timeout=60) as reply:
        for line in reply.read().decode().splitlines():
            if line.startswith(line_start):
                return float(line.split()[-1])
    return 0.0


def said(answer):
    """What an answer of System One (JSON) says: an option, a boolean or the nearest level."""
    if answer["type"] == "noul":
        return answer["noul"] > 0.5
    return answer["choice"] if answer["type"] == "choice" else round(answer["score"])
