#!/usr/bin/env python3
"""Starts `okibi serve`, with a text model and with the bundled picture model (eye_clients.py), and
drives unmodified official clients against it.

    clients_test.py OKIBI MODEL.gguf

Runs itself in the virtual environment of `make clients` (build/clients); exits 77 when that or the
model is missing, which CTest counts as skipped.
"""

import asyncio
import math
import os
import pathlib
import subprocess
import sys
import traceback

import eye_clients
from eye_clients import expect
from server_process import KEY, ROOT, Server, eye_server, metric, post

VENV = ROOT / "build" / "clients"
STATE = "Kiln 2 tripped at 03:10. Panel shows 1,340 C against a 1,280 C limit. Fan B is silent."
PIXEL = ("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YA"
         "AAAASUVORK5CYII=")


def check_systemone_answers(answers):
    cause, severity, fan = answers["cause"], answers["severity"], answers["fan"]
    assert list(cause.probabilities) == ["overheat", "power_loss", "operator"]
    assert abs(sum(cause.probabilities.values()) - 1) < 1e-6
    assert cause.choice == max(cause.probabilities, key=cause.probabilities.get)
    expected = sum(int(i) * p for i, p in severity.probabilities.items())
    assert math.isclose(severity.score, expected, abs_tol=1e-9)
    assert severity.legend[1] == {"level": "check"}, severity.legend
    assert 0 <= fan.noul <= 1


def test_typesafe_sync(url):
    from typesafe_sdk import Choice, Image, Noul, Score, TypeSafeClient
    import typesafe_sdk
    questions = {
        "cause": Choice(instructions="What tripped the kiln?",
                        criteria={"overheat": "Too hot", "power_loss": None, "operator": None}),
        "severity": Score(instructions="How serious?",
                          criteria=["note it", {"level": "check"}, "stop"]),
        "fan": Noul(instructions="Has a fan stopped?"),
    }
    with TypeSafeClient(base_url=url, api_key=KEY, timeout=120) as client:
        first = client.system_one(state=STATE, questions=questions)
        again = client.system_one(state=STATE, questions=questions)
        check_systemone_answers(first.answers)
        assert first.answers["fan"].noul == again.answers["fan"].noul
        assert first.model == "tiny" and first.usage.input_tokens > 0
        one = client.system_one(state="", questions={"o": Choice(criteria={"only": None})})
        assert one.answers["o"].probabilities == {"only": 1.0}
        large = client.system_one(state=STATE * 20, questions=questions)  # travels as zstd
        check_systemone_answers(large.answers)
        assert {m.name for m in client.models.list().models} >= {"tiny", "jev-latest"}
        with_picture = Image(__import__("base64").b64decode(PIXEL))
        expect(typesafe_sdk.TypeSafeUnprocessableEntityError,
               lambda: client.system_one(state={"frame": with_picture}, questions=questions))
        expect(typesafe_sdk.TypeSafeUnprocessableEntityError,
               lambda: client.system_one(state=4, questions=questions))
        expect(typesafe_sdk.TypeSafeBadRequestError,
               lambda: client.system_one(state="x", questions=questions, model="other"))
    with TypeSafeClient(base_url=url, api_key="another-key", timeout=120) as client:
        expect(typesafe_sdk.TypeSafeAuthenticationError,
               lambda: client.system_one(state=STATE, questions=questions))


def test_typesafe_async(url):
    from typesafe_sdk import AsyncTypeSafeClient, Noul

    async def go():
        async with AsyncTypeSafeClient(base_url=url, api_key=KEY, timeout=120) as client:
            return await asyncio.gather(*[
                client.system_one(state=f"{STATE} {i % 3}",
                                 questions={"fan": Noul(instructions="Has a fan stopped?")})
                for i in range(9)])

    values = [r.answers["fan"].noul for r in asyncio.run(go())]
    assert values[:3] == values[3:6] == values[6:], values  # beside others or not: the same


def test_openai(url):
    import openai
    client = openai.OpenAI(base_url=url + "/v1", api_key=KEY)
    reply = client.decisions.create(
        model="tiny",
        input=[{"role": "developer", "content": "Answer about kilns."},
               {"role": "user", "content": [
                   {"type": "input_text", "text": STATE,
                    "prompt_cache_breakpoint": {"mode": "explicit"}},
                   {"type": "input_json", "data": {"fan": "B"}}]}],
        questions=[{"type": "predicate", "name": "fan", "instructions": "A fan has stopped."},
                   {"type": "choice", "instructions": "Which fan?",
                    "choices": [{"value": "B"}, {"value": True}]},
                   {"type": "score", "name": "s", "instructions": "How serious?",
                    "levels": [{"label": "low"}, {"label": "high", "description": "stop"}]}],
        prompt_cache_key="tenant", prompt_cache_options={"mode": "explicit", "ttl": "30m"})
    predicate, choice, score = reply.answers
    assert predicate.name == "fan" and 0 <= predicate.probability <= 1
    assert choice.name is None and choice.choice in ("B", True)
    assert [p.label for p in score.probabilities] == ["low", "high"]
    assert reply.usage.total_tokens == reply.usage.input_tokens > 0
    assert [m.id for m in client.models.list().data] == ["tiny"]
    expect(openai.BadRequestError, lambda: client.decisions.create(
        model="other", input="x", questions=[{"type": "predicate", "instructions": "?"}]))
    expect(openai.UnprocessableEntityError, lambda: client.decisions.create(
        model="tiny", input="x", questions=[]))


def test_decision_circuits(url):
    from decision_circuits import Circuit, Q
    from decision_circuits.backends import SystemOne
    circuit = Circuit()
    circuit.noul("angry", "Is the writer angry?")
    circuit.choice("team", "Which team?", {"billing": "Money", "technical": None})
    circuit.score("urgency", "How urgent?", ["can wait", "today"])
    circuit.gate("human", Q("angry") >= 0.6)
    result = circuit.run(SystemOne(url + "/v1/systemone", api_key=KEY),
                         {"ticket": "Charged twice at the caf\u00e9"})
    assert result is not None


def test_jev_local_shape(url):
    """A top-level `images` list: understood, and refused in words by a model without eyes."""
    status, body, _ = post(url, {"state": "x", "images": ["data:image/png;base64," + PIXEL],
                              "questions": {"q": {"type": "noul", "instructions": "Is it red?"}}})
    assert status == 422 and "pictures" in body["error"], body


def test_schemathesis(url):
    command = [str(VENV / "bin" / "schemathesis"), "run", url + "/openapi.json", "--url", url,
               "--checks", "not_a_server_error", "--max-examples", "40", "--seed", "1",
               "--header", "Authorization: Bearer " + KEY, "--request-timeout", "60"]
    before = {line: metric(url, line) for line in (
        f'okibi_request_seconds_count{{route="{route}"}}'
        for route in ("/v1/systemone", "/v1/decisions"))}
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    for route, n in before.items():
        assert metric(url, route) > n + 20, f"hardly a request was made: {route}"


def run_all(tests, *arguments):
    failed = 0
    for name, test in tests:
        try:
            test(*arguments)
            print("passed", name, flush=True)
        except Exception as error:  # noqa: BLE001: every client fails in its own way
            failed += 1
            line = traceback.extract_tb(error.__traceback__)[-1]
            print("FAILED", name, type(error).__name__, str(error)[:3000],
                  f"({line.filename}:{line.lineno})", flush=True)
    return failed


def main():
    okibi, model = sys.argv[1:3]
    python = VENV / "bin" / "python"
    if not python.exists() or not os.path.exists(model):
        print("skipped: run `make clients models` first")
        return 77
    if pathlib.Path(sys.prefix).resolve() != VENV.resolve():
        os.execv(python, [str(python), *sys.argv])
    text = [(n, t) for n, t in sorted(globals().items()) if n.startswith("test_")]
    eye = [(n, t) for n, t in sorted(vars(eye_clients).items()) if n.startswith("eye_")]
    on_eye = [(n, t) for n, t in eye if n not in ("eye_full_queue", "eye_server")]
    with Server(okibi, model, "--ctx", "2048") as server:
        failed = run_all(text, server.url)
    with eye_server(okibi) as server:
        failed += run_all(on_eye + [("test_schemathesis", test_schemathesis)], server.url)
    failed += run_all([("eye_full_queue", eye_clients.eye_full_queue)], okibi)
    print(f"{failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
