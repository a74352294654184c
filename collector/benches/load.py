#!/usr/bin/env python3
"""The live collector under load, from outside.

    python3 collector/benches/load.py target/release/baton [SPANS]

Starts `baton collect`, sends generated spans with `baton generate --to`, and prints a table: spans and bytes acknowledged per second,
what that cost the collector in processor time (storing included), times to answer at half of that load, peak memory, and the
bytes of a stored span. Rates per core are spans through processor time: sender and collector share the machine, so time on the clock says
what both can do together and not what the collector can.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time

BATON = os.path.abspath(sys.argv[1])
SPANS = int(sys.argv[2]) if len(sys.argv) > 2 else 300_000
TICKS = os.sysconf("SC_CLK_TCK")


def cpu(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def peak(pid):
    return int(re.search(r"VmHWM:\s+(\d+)", open(f"/proc/{pid}/status").read())[1]) / 1024


def folder_bytes(path):
    return sum(os.path.getsize(os.path.join(d, f)) for d, _, fs in os.walk(path) for f in fs if f.endswith(".parquet"))


def generate(url, profile, packing, spans, rate=None):
    args = [BATON, "generate", "--spans", str(spans), "--to", url, "--profile", profile, "--compression", packing]
    if rate:
        args += ["--rate", str(rate)]
    out = subprocess.run(args, capture_output=True, text=True, check=True).stdout
    first, second = out.splitlines()[:2]
    number = lambda pattern, text: float(re.search(pattern, text)[1])
    return {
        "spans": number(r"^(\d+) spans", first),
        "rate": number(r": (\d+) spans/s", first),
        "mb": number(r", ([\d.]+) MB/s", first),
        "p50": number(r"p50 ([\d.]+) ms", second),
        "p99": number(r"p99 ([\d.]+) ms", second),
        "bytes": number(r"(\d+) bytes a span", second),
    }


class Collector:
    def __init__(self, folder):
        self.store = os.path.join(folder, "store")
        args = [BATON, "collect", "--store", self.store, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"]
        self.process = subprocess.Popen(args, stderr=subprocess.PIPE, text=True, cwd=folder)
        said = self.process.stderr.readline()
        self.grpc, self.http = re.search(r"gRPC on (\S+), OTLP/HTTP on (\S+);", said).groups()
        self.pid = self.process.pid

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def zstd_bytes(folder, profile):
    """Bytes of a span as OTLP packed with zstd, in a file of 100,000 spans or 10,000 with content."""
    n = 10_000 if profile == "content" else 100_000
    path = os.path.join(folder, "raw")
    subprocess.run([BATON, "generate", "--spans", str(n), "--profile", profile, "--output", path], check=True, capture_output=True)
    subprocess.run(["zstd", "-q", "-3", "-f", path], check=True)
    return os.path.getsize(path + ".zst") / n


def main():
    print("| load | spans/s | MB/s | per core: spans/s | MB/s | half load: p50 ms | p99 ms | peak MiB | bytes a span: OTLP | zstd | Parquet |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for profile, packing, protocol in [
        ("lean", "none", "http"), ("lean", "gzip", "http"), ("lean", "zstd", "http"), ("lean", "none", "grpc"), ("lean", "gzip", "grpc"),
        ("content", "none", "http"), ("content", "gzip", "http"), ("content", "none", "grpc"),
    ]:
        spans = SPANS // 10 if profile == "content" else SPANS
        with tempfile.TemporaryDirectory() as folder:
            c = Collector(folder)
            url = f"{protocol}://{c.http if protocol == 'http' else c.grpc}"
            full = generate(url, profile, packing, spans)
            time.sleep(7)  # until all of it is stored
            took, stored = cpu(c.pid), folder_bytes(c.store) / full["spans"]
            half = generate(url, profile, packing, int(full["rate"] * 4), max(1, int(full["rate"] / 2)))
            memory = peak(c.pid)
            c.end()
            per_core = full["spans"] / took
            print(
                f"| {profile}, {packing}, {protocol} | {full['rate']:,.0f} | {full['mb']:.0f} | {per_core:,.0f} | {per_core * full['bytes'] / 1e6:.0f} "
                f"| {half['p50']:.1f} | {half['p99']:.1f} | {memory:.0f} | {full['bytes']:.0f} | {zstd_bytes(folder, profile):.0f} | {stored:.0f} |",
                flush=True,
            )


main()
