"""Speed of an evaluation on a cluster: one executor and two, each on a core of its own, and stores of growing size.

    python3 analyzer/benches/cluster.py target/release/baton 20000000 [folder to keep the store in]

A build with the feature `cluster`, on Linux with two cores or more. Makes a store of twenty days, and takes its first days for smaller ones.
For each size and number of executors, without any tables: seconds, the most memory each executor and the process that asks held, the most bytes
that were set aside in between (rows of tasks of several files or traces: what a shuffle is elsewhere), and the bytes of the
answers that went through Ballista. Standard library only.
"""

import contextlib
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

BATON = pathlib.Path(sys.argv[1]).resolve()
SPANS = int(sys.argv[2]) if len(sys.argv) > 2 else 20_000_000
DAYS = 20
CORES = sorted(os.sched_getaffinity(0))[:2]


def port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def size(folder):
    """Bytes of files below a folder; what goes away meanwhile counts nothing."""
    total = 0
    for path in pathlib.Path(folder).rglob("*"):
        with contextlib.suppress(OSError):
            total += path.stat().st_size if path.is_file() else 0
    return total


def peak(pid):
    """The most memory a process held, in MiB."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return 0.0


class Watch(threading.Thread):
    """The most bytes that lay set aside."""

    def __init__(self, store):
        super().__init__(daemon=True)
        self.store, self.most, self.over = store, 0, threading.Event()

    def run(self):
        while not self.over.wait(0.2):
            aside = sum(size(f) for f in self.store.glob("tables/*/aside"))
            self.most = max(self.most, aside)


def evaluate(store, executors):
    """Seconds, peaks of the executors and of the process that asks in MiB, bytes set aside, bytes of answers."""
    shutil.rmtree(store / "tables", ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as ends:
        folder = pathlib.Path(folder)

        def start(core, *args):
            log = ends.enter_context((folder / f"log-{len(list(folder.iterdir()))}").open("w"))
            p = subprocess.Popen(["taskset", "-c", str(core), BATON, "cluster", *args], stdout=log, stderr=log)
            ends.callback(p.wait)
            ends.callback(p.terminate)
            return p

        scheduler = port()
        start(CORES[0], "scheduler", "--listen", f"127.0.0.1:{scheduler}")
        time.sleep(1)
        running = []
        for core in CORES[:executors]:
            where = ["--scheduler", f"127.0.0.1:{scheduler}", "--listen", f"127.0.0.1:{port()}"]
            scratch = folder / f"scratch-{core}"
            running.append((start(core, "executor", *where, "--slots", "1", "--scratch", str(scratch)), scratch))
        time.sleep(2)
        watch = Watch(store)
        watch.start()
        began = time.monotonic()
        command = [BATON, "eval", "--store", store, "--engine", f"ballista://127.0.0.1:{scheduler}"]
        asks = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(asks.pid, 0)
        seconds = time.monotonic() - began
        if status != 0:
            raise SystemExit(f"{command}: ended with {status}")
        watch.over.set()
        watch.join()
        peaks = [peak(p.pid) for p, _ in running]
        return seconds, peaks, usage.ru_maxrss / 1024, watch.most, sum(size(s) for _, s in running)


def first_days(whole, days, folder):
    """A store of the first days of another one."""
    out = folder / f"days-{days}"
    shutil.copytree(whole, out, copy_function=os.link, ignore=lambda d, names: {"tables"} & set(names))
    for folder in sorted((out / "spans").glob("date=*"))[days:]:
        shutil.rmtree(folder)
    return out


def main():
    keep = pathlib.Path(sys.argv[3]) if len(sys.argv) > 3 else None
    with tempfile.TemporaryDirectory(dir=keep.parent if keep else None) as name:
        folder = pathlib.Path(name)
        whole = keep or folder / "store"
        if not (whole / "spans").is_dir():
            subprocess.run([BATON, "generate", "--spans", str(SPANS), "--days", str(DAYS), "--store", whole], check=True)
        print(f"{size(whole / 'spans') / 2**20:.0f} MiB of spans in {len(list((whole / 'spans').rglob('*.parquet')))} files")
        print(f"{'spans':>10} {'executors':>9} {'seconds':>8} {'s per million':>14} {'peak MiB':>12} {'asks MiB':>9} {'aside MiB':>10} {'answers kB':>11}")
        alone = None
        for days in (1, 5, DAYS):
            store = whole if days == DAYS else first_days(whole, days, folder)
            spans = SPANS * days // DAYS
            for executors in (1, 2):
                seconds, peaks, asks, aside, answers = evaluate(store, executors)
                each = "+".join(f"{p:.0f}" for p in peaks)
                print(
                    f"{spans:>10} {executors:>9} {seconds:>8.1f} {seconds / spans * 1e6:>14.2f} {each:>12} {asks:>9.0f} "
                    f"{aside / 2**20:>10.1f} {answers / 1000:>11.1f}",
                    flush=True,
                )
                alone, was = seconds, alone
            print(f"{spans:>10} speed-up {was / alone:.2f}", flush=True)


main()
