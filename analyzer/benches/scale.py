"""Speed, memory and correctness of an evaluation at scale.

    python3 analyzer/benches/scale.py target/release/baton 1000000 10000000

Makes a store of each size, evaluates it without any tables (`first`), once more with them (`again`), compares each
measure that the generator counts with its truth, adds one part in a hundred (`more`) and evaluates that (`refresh`).
Prints one line per run: seconds, seconds per million spans, and the most memory held. Standard library only; memory is that of the operating system's accounting (Linux).
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time


def run(*args):
    """The command's seconds, processor seconds and peak memory in MiB, and what it printed."""
    with tempfile.TemporaryFile() as out:
        began = time.monotonic()
        child = subprocess.Popen([str(a) for a in args], stdout=out)
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.monotonic() - began
        if status != 0:
            raise SystemExit(f"{args}: ended with {status}")
        out.seek(0)
        return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, out.read()


def differences(truth, report):
    """Measures in which report and truth differ."""
    stated = {m["name"]: m for m in report["measures"]}
    for want in truth["measures"]:
        got = stated[want["name"]]
        scale = 1e6 if want["name"].endswith("_ms") else 1
        numerator = round((got["numerator"] or 0) * scale)
        if (numerator, got["denominator"] or 0) != (want["numerator"], want["denominator"]):
            yield f"{want['name']}: truth {want['numerator']} / {want['denominator']}, report {numerator} / {got['denominator']}"


def main():
    baton, sizes = pathlib.Path(sys.argv[1]).resolve(), [int(n) for n in sys.argv[2:]] or [1_000_000]
    wrong = []
    print(f"{'spans':>10} {'step':>9} {'seconds':>8} {'cpu s':>7} {'s per million':>14} {'peak MiB':>9}")
    for n in sizes:
        with tempfile.TemporaryDirectory() as folder:
            store, truth = pathlib.Path(folder) / "store", pathlib.Path(folder) / "truth.json"

            def step(name, *args):
                seconds, cpu, peak, out = run(baton, *args)
                print(f"{n:>10} {name:>9} {seconds:>8.2f} {cpu:>7.2f} {seconds / n * 1e6:>14.3f} {peak:>9.0f}", flush=True)
                return out

            step("generate", "generate", "--spans", n, "--store", store, "--truth", truth)
            size = sum(f.stat().st_size for f in (store / "spans").rglob("*.parquet"))
            print(f"{n:>10} {'store':>9} {size / 2**20:.0f} MiB, {size / n:.0f} bytes a span")
            step("first", "eval", "--store", store)
            step("again", "eval", "--store", store)
            wrong += differences(json.loads(truth.read_text()), json.loads(step("json", "eval", "--store", store, "--format", "json")))
            step("more", "generate", "--spans", n // 100, "--seed", 2, "--store", store)
            step("refresh", "eval", "--store", store)
    for w in wrong:
        print(w)
    raise SystemExit(1 if wrong else 0)


main()
