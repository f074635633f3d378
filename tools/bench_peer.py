#!/usr/bin/env python3
"""Compares okibi with llama.cpp on the same files, alternating A-B-B-A in one run.

A is `okibi bench`, B is the peer's `llama-bench` (built outside this repository). Each block is one
process of its own, so both load the file each time; only the timed part counts. Prints a table and
writes one CSV row per file and test: medians over all samples, their spread, and the ratio.

usage: bench_peer.py --okibi build/okibi --peer /path/to/llama-bench [--rounds 2] [--threads 2]
                     [--prefill 512] [--decode 64] [--csv OUT] MODEL...
"""
import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile


def run_okibi(args, model):
    """(samples of prefill tok/s, samples of decode tok/s, roofs and identity)"""
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        subprocess.run([args.okibi, "bench", "-m", model, "--threads", str(args.threads),
                        "--prefill", str(args.prefill), "--decode", str(args.decode),
                        "--rounds", "1", "--samples", "1", "--json", out.name],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        result = json.load(open(out.name))
    samples = {row["test"]: [row["tokens"] / s for s in row["seconds"]] for row in result["rows"]}
    rows = {row["test"]: row for row in result["rows"]}
    return samples, rows, result


def run_peer(args, model):
    out = subprocess.run([args.peer, "-m", model, "-t", str(args.threads), "-p", str(args.prefill),
                          "-n", str(args.decode), "-r", "4", "-o", "json"],
                         check=True, capture_output=True, text=True).stdout
    samples = {}
    for row in json.loads(out):
        test = "prefill" if row["n_prompt"] > 0 else "decode"
        samples[test] = row["samples_ts"]
    return samples


def compare(args, model):
    ours, theirs, shares, roofs = {}, {}, {}, {}
    for who in "ABBA" * args.rounds:
        if who == "A":
            samples, rows, result = run_okibi(args, model)
            for test, values in samples.items():
                ours.setdefault(test, []).extend(values)
                shares.setdefault(test, []).append(
                    (rows[test]["share_of_bandwidth"], rows[test]["share_of_int8_peak"]))
            roofs = {**result["sets"][0], "identity": result["rows"][0]["identity"],
                     "machine": result["machine"], "commit": result["commit"],
                     "peak_resident_bytes": result["peak_resident_bytes"]}
        else:
            for test, values in run_peer(args, model).items():
                theirs.setdefault(test, []).extend(values)
    for test in ours:
        a, b = statistics.median(ours[test]), statistics.median(theirs[test])
        yield {
            "commit": roofs["commit"], "machine": roofs["machine"], "threads": args.threads,
            "model": os.path.basename(model), "identity": roofs["identity"], "test": test,
            "tokens": args.prefill if test == "prefill" else args.decode,
            "okibi_tok_s": round(a, 2), "okibi_min": round(min(ours[test]), 2),
            "okibi_max": round(max(ours[test]), 2), "peer_tok_s": round(b, 2),
            "peer_min": round(min(theirs[test]), 2), "peer_max": round(max(theirs[test]), 2),
            "ratio": round(a / b, 2),
            "share_of_bandwidth": round(statistics.median(s[0] for s in shares[test]), 3),
            "share_of_int8_peak": round(statistics.median(s[1] for s in shares[test]), 3),
            "read_GB_s": round(roofs["read_bytes_per_s"] / 1e9, 1),
            "int8_TOPS": round(roofs["int8_ops_per_s"] / 1e12, 2),
            "int8_instruction": roofs["int8_instruction"],
            "peak_resident_MiB": round(roofs["peak_resident_bytes"] / 2**20, 1),
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--okibi", default="build/okibi")
    parser.add_argument("--peer", required=True, help="the peer's llama-bench")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--prefill", type=int, default=512)
    parser.add_argument("--decode", type=int, default=64)
    parser.add_argument("--csv")
    parser.add_argument("models", nargs="+")
    args = parser.parse_args()
    rows = []
    for model in args.models:
        for row in compare(args, model):
            rows.append(row)
            print(f"{row['model']:<40} {row['test']:<8} okibi {row['okibi_tok_s']:>9} "
                  f"({row['okibi_min']}..{row['okibi_max']})  peer {row['peer_tok_s']:>8} "
                  f"({row['peer_min']}..{row['peer_max']})  x{row['ratio']:<6} "
                  f"bandwidth {row['share_of_bandwidth']:.1%} int8 {row['share_of_int8_peak']:.1%}",
                  flush=True)
    if args.csv:
        with open(args.csv, "w", newline="") as out:
            writer = csv.DictWriter(out, fieldnames=list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
