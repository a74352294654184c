"""Evaluates on a cluster and on an object store, and wants the report of one machine and one folder, byte for byte.

    python cluster.py path/to/baton [generated spans]        # a build with the feature `cluster`

On loopback: a scheduler, two executors, an object store (objects.py), and before it a proxy with faults (faults.py). Two stores, recorded
runs and generated ones, each in a folder and on the object store. Also: what keeps a store in order, labels, and SQL over the
wire, on the object store; an executor killed in the middle; no cluster at all.
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import faults
import objects

ROOT = pathlib.Path(__file__).resolve().parents[2]
BATON = pathlib.Path(sys.argv[1]).resolve()
SPANS = int(sys.argv[2]) if len(sys.argv) > 2 else 20_000
WRONG: list[str] = []


def said(line: str) -> None:
    print(line, flush=True)


def wrong(line: str) -> None:
    WRONG.append(line)
    said(f"WRONG: {line}")


def baton(*args: object, env: dict | None = None, ends: int = 0) -> str:
    done = subprocess.run([BATON, *map(str, args)], cwd=ROOT, env={**os.environ, **(env or {})}, capture_output=True, text=True)
    if done.returncode != ends:
        raise AssertionError(f"{args} ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout if ends == 0 else done.stderr


class Process:
    """One that runs until it is stopped; it says on standard error when it listens."""

    def __init__(self, log: pathlib.Path, *args: object, env: dict):
        self.log = log
        with log.open("w") as out:
            command = [BATON, *map(str, args)]
            self.process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **env}, stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    def wait_for(self, words: str, seconds: float = 60) -> None:
        until = time.monotonic() + seconds
        while words not in self.log.read_text():
            if self.process.poll() is not None or time.monotonic() > until:
                raise AssertionError(f"{self.process.args}: {self.log.read_text()[-2000:]}")
            time.sleep(0.05)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(20)
        self.kill()


def port() -> int:
    s = socket.socket()
    s.bind(("127.0.0.1", 0))
    number = s.getsockname()[1]
    s.close()
    return number


class Cluster:
    def __init__(self, folder: pathlib.Path, env: dict):
        self.folder, self.env, self.number = folder, env, 0
        self.port = port()
        self.scheduler = Process(folder / "scheduler.log", "cluster", "scheduler", "--listen", f"127.0.0.1:{self.port}", env=env)
        self.scheduler.wait_for("listening")
        self.executors: list[Process] = []

    @property
    def engine(self) -> str:
        return f"ballista://127.0.0.1:{self.port}"

    def executor(self) -> Process:
        self.number += 1
        scratch = self.folder / f"scratch-{self.number}"
        args = ["cluster", "executor", "--scheduler", f"127.0.0.1:{self.port}", "--listen", f"127.0.0.1:{port()}"]
        log = self.folder / f"executor-{self.number}.log"
        e = Process(log, "--verbose", *args, "--slots", 1, "--memory", "256MiB", "--scratch", scratch, env=self.env)
        e.wait_for("listening")
        self.executors.append(e)
        return e

    def stop(self) -> None:
        for p in [*self.executors, self.scheduler]:
            p.stop()


def forget(store: object, bucket: objects.Bucket) -> None:
    """The assembled tables of a store, so that the next evaluation makes them."""
    if isinstance(store, pathlib.Path):
        shutil.rmtree(store / "tables", ignore_errors=True)
        return
    prefix = str(store).removeprefix(f"s3://{objects.BUCKET}/")
    for key in bucket.list(f"{prefix}/tables/"):
        bucket.delete(key)


def report(store: object, env: dict, *args: object) -> tuple[str, float]:
    began = time.monotonic()
    text = baton("eval", "--store", store, "--format", "json", *args, env=env)
    return text, time.monotonic() - began


def send(bucket: objects.Bucket, folder: pathlib.Path, prefix: str) -> str:
    """Puts a store folder on the object store."""
    for file in [folder / "key", *sorted((folder / "spans").rglob("*.parquet"))]:
        bucket.put(f"{prefix}/{file.relative_to(folder).as_posix()}", file.read_bytes())
    return f"s3://{objects.BUCKET}/{prefix}"


def stores(folder: pathlib.Path, bucket: objects.Bucket) -> dict[str, tuple[pathlib.Path, str]]:
    recorded, generated = folder / "recorded", folder / "generated"
    baton("import", "sample-traces", "tests/cases/faults", "--store", recorded)
    # In several files, and with tasks that stand in more than one: conversations go on in the next seed's time.
    for seed in range(4):
        baton("generate", "--spans", SPANS // 4, "--seed", seed + 1, "--store", generated)
    return {
        "recorded runs": (recorded, send(bucket, recorded, "recorded")),
        "generated runs": (generated, send(bucket, generated, "generated")),
    }


def same(what: str, want: str, got: str) -> None:
    if want != got:
        a, b = json.loads(want), json.loads(got)
        differ = [k for k in a if a[k] != b.get(k)] or ["only in how it is written"]
        wrong(f"{what}: the report differs in {differ}")


def equal_reports(cluster: Cluster, all_stores: dict, bucket: objects.Bucket, env: dict) -> dict[str, str]:
    wanted = {}
    for name, (folder, url) in all_stores.items():
        want, seconds = report(folder, env)
        wanted[name] = want
        said(f"{name}: {len(json.loads(want)['handoffs'])} transfers, {len(want)} bytes of report; alone {seconds:.1f} s")
        for where, store, engine in [
            ("object store, one process", url, None),
            ("object store, cluster", url, cluster.engine),
            ("folder, cluster", folder, cluster.engine),
        ]:
            forget(store, bucket)
            got, seconds = report(store, env, *(["--engine", engine] if engine else []))
            same(f"{name}, {where}", want, got)
            again, soon = report(store, env)
            same(f"{name}, {where}, with its tables", want, again)
            said(f"  {where}: {seconds:.1f} s, again {soon:.1f} s")
    return wanted


def both_worked(cluster: Cluster) -> None:
    for e in cluster.executors:
        if not re.search(r"tasks of .* is done", e.log.read_text()):
            wrong(f"{e.log.name}: this executor assembled nothing")
    # Each part is done once: nobody was killed so far.
    done = [line for e in cluster.executors for line in re.findall(r"part of (.*) is done", e.log.read_text())]
    if len(done) != len(set(done)):
        wrong(f"{len(done)} parts were done, of {len(set(done))}")


def refreshes(cluster: Cluster, store: tuple[pathlib.Path, str], bucket: objects.Bucket, env: dict) -> str:
    """New spans come, which also go on with old tasks; the tables of before are kept where nothing changed."""
    folder, url = store
    report(url, env, "--engine", cluster.engine)
    for place in store:
        baton("import", "sample-traces", "--store", place, env=env)
        baton("generate", "--spans", SPANS // 20, "--seed", 9, "--store", place, env=env)
    forget(folder, bucket)
    want, _ = report(folder, env)
    got, seconds = report(url, env, "--engine", cluster.engine)
    same("after new spans", want, got)
    said(f"after new spans, on the cluster: {seconds:.1f} s")
    return want


def kept_in_order(url: str, want: str, bucket: objects.Bucket, env: dict) -> None:
    before = len([k for k in bucket.list("generated/spans/") if k.endswith(".parquet")])
    text = baton("compact", "--store", url, "--all", env=env)
    after = len([k for k in bucket.list("generated/spans/") if k.endswith(".parquet")])
    got, _ = report(url, env)
    same("after merging files", want, got)
    checked = baton("check", "--store", url, env=env)
    if "merged" not in text or after <= before or "replaced" not in checked:
        wrong(f"merging: {before} files, then {after}; {text}; {checked}")
    said(f"merging: {before} files and then {after}, the replaced ones included; {checked.splitlines()[-1]}")
    again = baton("compact", "--store", url, "--all", env=env)
    if not again.startswith("0 merged"):
        wrong(f"merging again does something: {again}")
    text = baton("retain", "--store", url, "--keep", "36500d", env=env)
    if not text.startswith("0 files"):
        wrong(f"nothing is a hundred years old, and yet: {text}")
    if bucket.list("generated/compact.lock"):
        wrong("the lock of a run that ended is still there")


def labels_and_sql(url: str, env: dict, folder: pathlib.Path) -> None:
    sample = folder / "sample.jsonl"
    lines = baton("sample", "--store", url, "--n", 5, "--format", "jsonl", env=env).splitlines()
    answers = []
    for line in lines:
        row = json.loads(line)
        row["labels"] = dict.fromkeys(row["labels"], False)
        answers.append(json.dumps({**row, "reviewer": "someone"}))
    sample.write_text("\n".join(answers) + "\n")
    baton("label", sample, "--store", url, env=env)
    n = json.loads(baton("sql", "SELECT count(*) AS n FROM labels", "--store", url, "--format", "json", env=env))
    if n != [{"n": len(lines)}]:
        wrong(f"{len(lines)} labels were kept, and there are {n}")
    listen = f"127.0.0.1:{port()}"
    server = Process(folder / "serve.log", "serve", "--store", url, "--listen", listen, env=env)
    try:
        server.wait_for("listening")
        if shutil.which("psql"):
            psql = ["psql", f"postgresql://baton@{listen}/baton", "-Atc", "SELECT count(*) FROM handoffs"]
            told = subprocess.run(psql, capture_output=True, text=True, check=True).stdout.strip()
            own = json.loads(baton("sql", "SELECT count(*) AS n FROM handoffs", "--store", url, "--format", "json", env=env))
            if int(told) != own[0]["n"] or int(told) == 0:
                wrong(f"over the wire {told} transfers, else {own}")
            said(f"SQL over the wire from the object store: {told} transfers")
    finally:
        server.stop()


def with_faults(server: objects.Objects, wanted: str, recorded: pathlib.Path, url: str, folder: pathlib.Path) -> None:
    """Through a proxy with faults, alone and on a cluster: the same report, or a clear error."""
    kinds = {
        "slow": {"slow": 30},
        "unavailable": {"unavailable": {"*": 0.1}},
        "cut": {"cut": {"GET": 0.1, "PUT": 0.1}},
        # Longer than an evaluation takes, so that nothing that it makes is listed when it is asked.
        "lagging": {"lagging": 10},
    }
    with faults.faults(server.endpoint) as proxy:
        env = server.environment(proxy.endpoint)
        (folder / "faults").mkdir()
        cluster = Cluster(folder / "faults", env)
        try:
            for _ in range(2):
                cluster.executor()
            for name, told in kinds.items():
                for engine in ["local", cluster.engine]:
                    # A place of its own each time: of what was there before, no listing lags.
                    url = send(server.bucket, recorded, f"{name}-{engine.split(':')[0]}")
                    proxy.clear()
                    proxy.tell(seed=7, **told)
                    try:
                        got, seconds = report(url, env, "--engine", engine)
                    except AssertionError as e:
                        wrong(f"{name}, {engine}: {e}")
                        continue
                    same(f"{name}, {engine}", wanted, got)
                    if seconds < told.get("lagging", 0):
                        wrong(f"{name}, {engine}: the listing cannot have lagged")
                    said(f"{name}, {engine.split(':')[0]}: the same report after {seconds:.1f} s")
        finally:
            cluster.stop()
        proxy.clear()
        # Nothing answers at all: an error that says so, soon.
        proxy.tell(unavailable={"*": 1.0})
        began = time.monotonic()
        text = baton("sql", "SELECT 1", "--store", url, env=env, ends=1)
        if "s3://" not in text:
            wrong(f"the object store is away: {text}")
        said(f"the object store is away: told after {time.monotonic() - began:.1f} s: {text.strip()[:160]}")


def killed(cluster: Cluster, store: tuple[pathlib.Path, str], want: str, bucket: objects.Bucket, env: dict) -> None:
    """An executor is killed while it works: the job completes. All are: an error that says so, and a clean second run."""
    _, url = store
    forget(url, bucket)
    victim = cluster.executor()
    command = [BATON, "eval", "--store", url, "--format", "json", "--engine", cluster.engine]
    began = time.monotonic()
    run = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **env}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until = began + 60
    while "tasks of" not in victim.log.read_text() and time.monotonic() < until and run.poll() is None:
        time.sleep(0.01)
    victim.kill()
    midst = run.poll() is None
    out, err = run.communicate(timeout=180)
    if run.returncode != 0:
        wrong(f"an executor was killed, and the evaluation ended with {run.returncode}: {err[-1000:]}")
    else:
        same("an executor was killed", want, out)
    if not midst:
        wrong("the executor was killed too late to tell anything")
    said(f"an executor was killed in the middle: the same report after {time.monotonic() - began:.1f} s")


def alone(cluster: Cluster, url: str, want: str, bucket: objects.Bucket, env: dict) -> None:
    """Without executors, and without a scheduler."""
    forget(url, bucket)
    for e in cluster.executors:
        e.stop()
    cluster.executors.clear()
    cluster.scheduler.stop()
    text = baton("eval", "--store", url, "--engine", cluster.engine, env=env, ends=1)
    if "cannot be reached" not in text:
        wrong(f"no scheduler: {text}")
    got, _ = report(url, env)
    same("a clean run after that", want, got)
    said(f"no scheduler: {text.strip()[:160]}")


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        with objects.objects(folder / "objects") as server:
            env, bucket = server.environment(), server.bucket
            all_stores = stores(folder, bucket)
            cluster = Cluster(folder, env)
            try:
                for _ in range(2):
                    cluster.executor()
                wanted = equal_reports(cluster, all_stores, bucket, env)
                both_worked(cluster)
                want = refreshes(cluster, all_stores["generated runs"], bucket, env)
                killed(cluster, all_stores["generated runs"], want, bucket, env)
                kept_in_order(all_stores["generated runs"][1], want, bucket, env)
                labels_and_sql(all_stores["recorded runs"][1], env, folder)
                alone(cluster, all_stores["generated runs"][1], want, bucket, env)
            finally:
                cluster.stop()
            with_faults(server, wanted["recorded runs"], *all_stores["recorded runs"], folder)
    said(f"{len(WRONG)} wrong")
    sys.exit(1 if WRONG else 0)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    main()
