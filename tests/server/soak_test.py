#!/usr/bin/env python3
"""Many requests at once, then many pictures one after the other, against `okibi serve`.

    soak_test.py OKIBI [N_PICTURES]

A hundred requests at once on three pictures get the answers that they get alone; a full queue
says 429 with Retry-After and nothing else goes wrong. Then N_PICTURES different pictures (2,000)
pass through caches of a few MiB: resident memory stays flat once these are full, which is before a
tenth of them.
"""

import concurrent.futures
import json
import struct
import sys
import time
import urllib.request
import zlib

from server_process import (BOARD, SHOP, data_url, eye_server, metric, picture_bytes, post,
                            questions_of)

MOST_GROWTH_KIB = 16 << 10
CACHES = ["--vision-cache", "8", "--state-cache", "8", "--answer-cache", "1"]
COLOURS = {"red": (222, 40, 40), "green": (40, 160, 60), "blue": (40, 60, 210)}
COLOUR = {"colour": {"type": "choice", "instructions": "What colour is the square?",
                     "criteria": dict.fromkeys(COLOURS)}}


def png(width, height, pixel):
    """pixel(x, y) is a triple."""
    rows = b"".join(b"\0" + bytes(v for x in range(width) for v in pixel(x, y))
                    for y in range(height))
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(
            ">I", zlib.crc32(kind + data))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header)
            + chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b""))


def square(number, size=64):
    """A coloured square on white whose place and size say the number, with the number in its last
    row, so that no two pictures have equal pixels."""
    name = list(COLOURS)[number % 3]
    side, left, top = 24 + number // 3 % 8, 4 + number // 24 % 16, 4 + number // 384 % 16
    code = number.to_bytes(3, "big")

    def pixel(x, y):
        if y == size - 1 and x == 0:
            return code
        inside = left <= x < left + side and top <= y < top + side
        return COLOURS[name] if inside else (245, 245, 245)

    return name, png(size, size, pixel)


def ask_until_taken(url, body, deadline):
    """Answers, and how often the queue was full before."""
    n_full = 0
    while True:
        status, reply, headers = post(url, body)
        if status == 200:
            return reply["answers"], n_full
        assert status == 429 and int(headers["Retry-After"]) >= 1, (status, reply)
        assert reply["code"] == "QUEUE_FULL", reply
        assert time.monotonic() < deadline, "no turn within the time"
        n_full += 1
        time.sleep(int(headers["Retry-After"]))


def crowd(okibi):
    """100 at once; at most 2 run and 6 wait."""
    bodies = [{"state": "", "images": [data_url(picture_bytes(name))],
               "questions": questions_of(name)} for name, _ in (SHOP, BOARD)]
    bodies.append({"state": "", "images": [data_url(square(0)[1])], "questions": COLOUR})
    with eye_server(okibi, "--workers", "2", "--queue", "6", *CACHES) as server:
        alone = [post(server.url, body)[1]["answers"] for body in bodies]
        assert alone[2]["colour"]["choice"] == "red", alone[2]

        # Half of them ask a new question too, so that there is work; other bits stay the same.
        def body(i):
            new = {"new": {"type": "noul", "instructions": f"Is there a number {i}?"}}
            questions = bodies[i % 3]["questions"]
            return dict(bodies[i % 3], questions={**new, **questions} if i % 2 else questions)

        deadline = time.monotonic() + 600
        with concurrent.futures.ThreadPoolExecutor(100) as pool:
            asked = [pool.submit(ask_until_taken, server.url, body(i), deadline)
                     for i in range(100)]
            results = [one.result() for one in asked]
        for i, (answers, _) in enumerate(results):
            answers.pop("new", None)
            assert answers == alone[i % 3], (i, answers, alone[i % 3])
        n_full = sum(n for _, n in results)
        refused = metric(server.url, 'okibi_requests_total{route="/v1/systemone",status="429"}')
        assert refused == n_full, (refused, n_full)
        status, health = get(server.url, "/health")
        assert status == 200 and health["running"] == 0 and health["waiting"] == 0, health
        print(f"100 at once on 3 pictures: all as alone; {n_full} times 429, then taken",
              flush=True)


def get(url, path):
    with urllib.request.urlopen(url + path, timeout=60) as reply:
        return reply.status, json.load(reply)


def stream(okibi, n_pictures):
    """Distinct pictures, two clients; resident memory at a tenth, four, seven and ten tenths."""
    with eye_server(okibi, "--workers", "2", *CACHES) as server:
        def one(number):
            name, picture = square(number)
            status, reply, _ = post(server.url, {"state": "", "images": [data_url(picture)],
                                                 "questions": COLOUR})
            assert status == 200, reply
            return reply["answers"]["colour"]["choice"] == name

        resident, n_right, start = {}, 0, time.monotonic()
        stops = [n_pictures * tenths // 10 for tenths in (1, 4, 7, 10)]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            begin = 0
            for stop in stops:
                n_right += sum(pool.map(one, range(begin, stop)))
                resident[stop] = server.resident_kib()
                print(f"{stop} pictures: {resident[stop] / 1024:.1f} MiB resident, "
                      f"{time.monotonic() - start:.0f} s", flush=True)
                begin = stop
        assert n_right >= 0.97 * n_pictures, f"{n_right} of {n_pictures} colours are right"
        views = 'okibi_reuse_total{level="views",result="miss"}'
        assert metric(server.url, views) == n_pictures, "pictures were not distinct"
        growth = resident[stops[-1]] - resident[stops[0]]
        print(f"{n_right} of {n_pictures} colours right; growth after the first tenth "
              f"{growth / 1024:.1f} MiB")
        assert growth < MOST_GROWTH_KIB, f"resident memory grew by {growth} KiB"


def main():
    okibi = sys.argv[1]
    n_pictures = int(sys.argv[2]) if len(sys.argv) > 2 else 2000
    crowd(okibi)
    stream(okibi, n_pictures)


if __name__ == "__main__":
    main()
