"""Several collectors with one object store, behind nginx as in deploy/nginx/nginx.conf: what they acknowledge is there, once.

    python copies.py path/to/baton

Numbered spans over OTLP/HTTP and OTLP/gRPC, twice: while one of three collectors is killed and comes back, and another one is
ended and started; and while the object store refuses a fifth of the puts and breaks off some more. Needs nginx.
"""

import collections
import concurrent.futures
import contextlib
import http.client
import json
import logging
import os
import pathlib
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator

# Broken connections are wanted here; gRPC tells of them on its own.
os.environ["GRPC_VERBOSITY"] = "NONE"

import duckdb
import faults
import objects
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import IdGenerator, TracerProvider

BATON = pathlib.Path(sys.argv[1]).resolve()
CONFIG = pathlib.Path(__file__).resolve().parents[2] / "deploy/nginx/nginx.conf"
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin") or sys.exit("there is no nginx")
COPIES = 3
# Spans of a request, and of how many requests one is sent again although it was acknowledged, as by a sender that was not told.
SPANS, DOUBLE = 10, 20


class Collector:
    """One of the collectors. It keeps its ports and its journal when it is started again."""

    def __init__(self, folder: pathlib.Path, store: str, environment: dict[str, str]):
        self.folder, self.store, self.environment = folder, store, environment
        self.journal = folder / "journal"
        folder.mkdir(parents=True)
        (folder / "baton.toml").write_text('[collect]\nvisible_after = "1s"\n')
        self.grpc, self.http = "127.0.0.1:0", "127.0.0.1:0"
        self.start()

    def start(self) -> None:
        # Its messages go to a file: nobody has to read a pipe for it to go on.
        log = self.folder / "log"
        with log.open("w") as out:
            command = [BATON, "--config", self.folder / "baton.toml", "collect", "--store", self.store]
            command += ["--journal", self.journal, "--grpc", self.grpc, "--http", self.http]
            self.process = subprocess.Popen(command, stdout=out, stderr=out, env={**os.environ, **self.environment})
        for _ in range(300):
            listening = re.search(r"OTLP/gRPC on (\S+), OTLP/HTTP on ([^\s;]+)", log.read_text())
            if listening:
                self.grpc, self.http = listening.groups()
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        self.kill()
        raise AssertionError(f"the collector does not listen: {log.read_text()}")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=60)
        assert code == 0, f"exit code {code}: {(self.folder / 'log').read_text()}"

    def waiting(self) -> int:
        """Segments that are not in the store."""
        return len(list(self.journal.rglob("*.arrows")))

    def taken(self) -> dict[str, int]:
        """Trace requests that it acknowledged since it was started, by protocol."""
        text = urllib.request.urlopen(f"http://{self.http}/metrics", timeout=10).read().decode()
        found = dict.fromkeys(("http", "grpc"), 0)
        for line in text.splitlines():
            labels = dict(re.findall(r'(\w+)="([^"]*)"', line)) if line.startswith("baton_requests_total{") else {}
            if labels.get("signal") == "traces" and labels.get("code") in ("200", "0"):
                found[labels["protocol"]] += int(line.split()[-1])
        return found


@contextlib.contextmanager
def collectors(folder: pathlib.Path, store: str, environment: dict[str, str]) -> Iterator[list[Collector]]:
    # All at once: each finds no key in the store and wants to make it.
    with concurrent.futures.ThreadPoolExecutor(COPIES) as pool:
        started = [pool.submit(Collector, folder / f"collector-{n}", store, environment) for n in range(COPIES)]
    all_of_them = [s.result() for s in started if not s.exception()]
    try:
        for s in started:
            s.result()
        yield all_of_them
    finally:
        for c in all_of_them:
            c.kill()


class Nginx:
    """nginx with the file that people use; only addresses and paths are others."""

    def __init__(self, folder: pathlib.Path, backends: list[Collector]):
        self.folder = folder
        folder.mkdir()
        self.http, self.grpc = objects.free_ports(2)
        user = pwd.getpwuid(os.geteuid()).pw_name
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        places = "".join(f"    {kind}_temp_path {folder}/{kind};\n" for kind in kinds)
        changes = {
            "worker_processes auto;": f"user {user};\nworker_processes 2;",
            "/run/nginx-baton.pid": f"{folder}/pid",
            "/var/log/nginx/baton": f"{folder}/baton",
            "    server_tokens off;\n": f"    server_tokens off;\n{places}",
            "listen 4318": f"listen 127.0.0.1:{self.http}",
            "listen 4317": f"listen 127.0.0.1:{self.grpc}",
            "4317    grpc": f"{self.grpc}    grpc",
        }
        for n, c in enumerate(backends, 11):
            changes |= {f"192.0.2.{n}:4318": c.http, f"192.0.2.{n}:4317": c.grpc}
        text = CONFIG.read_text()
        for old, new in changes.items():
            assert old in text, f"{CONFIG} has no {old!r}"
            text = text.replace(old, new)
        assert "192.0.2." not in text, f"{CONFIG} has more collectors than there are"
        (folder / "nginx.conf").write_text(text)
        early = folder / "early.log"
        command = [NGINX, "-e", early, "-p", folder, "-c", folder / "nginx.conf", "-g", "daemon off;"]
        with early.open("w") as out:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        for _ in range(100):
            with contextlib.suppress(OSError, http.client.HTTPException):
                connection = http.client.HTTPConnection("127.0.0.1", self.http, timeout=5)
                connection.request("GET", "/metrics")
                # What is not for senders.
                if connection.getresponse().status == 404:
                    connection.close()
                    return
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        self.stop()
        raise AssertionError(f"nginx does not listen, or shows /metrics: {early.read_text()}")

    def odd(self) -> tuple[int, int]:
        """Requests that were passed on to another collector, and requests that the sender was told to send again."""
        lines = (self.folder / "baton.log").read_text().splitlines()
        passed_on = sum(", " in line for line in lines)
        return passed_on, sum(line.split()[2] in ("502", "503", "504") for line in lines)

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()


class Numbers(IdGenerator):
    """Ids that count."""

    def __init__(self, first: int):
        self.next = first

    def generate_span_id(self) -> int:
        self.next += 1
        return self.next

    def generate_trace_id(self) -> int:
        return self.next + 1


class Sender(threading.Thread):
    """Sends requests of numbered spans until it is stopped; each until it is acknowledged, or given up."""

    def __init__(self, number: int, protocol: str, port: int):
        super().__init__()
        self.service = f"{protocol}-{number}"
        self.first = number * 10_000_000
        self.sent, self.acknowledged = 0, set()
        self.again, self.slowest = 0, 0.0
        self.stopped, self.wrong = threading.Event(), None
        if protocol == "http":
            self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=15)
            self.send = self.over_http
        else:
            self.exporter = OTLPSpanExporter(endpoint=f"http://127.0.0.1:{port}", insecure=True, timeout=15)
            resource = Resource({"service.name": self.service})
            provider = TracerProvider(resource=resource, id_generator=Numbers(self.first), shutdown_on_exit=False)
            self.tracer = provider.get_tracer("copies")
            self.send = self.over_grpc

    def run(self) -> None:
        try:
            n = 0
            while not self.stopped.is_set():
                numbers = range(self.first + self.sent + 1, self.first + self.sent + 1 + SPANS)
                self.sent += SPANS
                started = time.monotonic()
                send = self.send(numbers)
                if send():
                    self.acknowledged.update(numbers)
                    n += 1
                    if n % DOUBLE == 0:
                        send()
                self.slowest = max(self.slowest, time.monotonic() - started)
                # More than this is a test of speed.
                time.sleep(0.02)
        except Exception as e:
            self.wrong = e

    def over_http(self, numbers: range) -> Callable[[], bool]:
        now = time.time_ns()
        times = {"startTimeUnixNano": str(now), "endTimeUnixNano": str(now + 1000)}
        spans = [{"traceId": f"{n:032x}", "spanId": f"{n:016x}", "name": f"span {n}", "kind": 1, **times} for n in numbers]
        resource = {"attributes": [{"key": "service.name", "value": {"stringValue": self.service}}]}
        request = {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {"name": "copies"}, "spans": spans}]}]}
        body = json.dumps(request).encode()

        def send() -> bool:
            until = time.monotonic() + 15
            while time.monotonic() < until:
                with contextlib.suppress(OSError, http.client.HTTPException):
                    self.connection.request("POST", "/v1/traces", body, {"content-type": "application/json"})
                    answer = self.connection.getresponse()
                    text = answer.read()
                    if answer.status == 200:
                        assert not json.loads(text).get("partialSuccess"), text
                        return True
                    # By OTLP these are to be sent again, and no others.
                    assert answer.status in (429, 502, 503, 504), f"{answer.status}: {text[:200]}"
                self.connection.close()
                self.again += 1
                time.sleep(0.2)
            return False

        return send

    def over_grpc(self, numbers: range) -> Callable[[], bool]:
        spans = []
        for n in numbers:
            span = self.tracer.start_span(f"span {n}")
            assert span.get_span_context().span_id == n
            span.end()
            spans.append(span)
        return lambda: self.exporter.export(spans).name == "SUCCESS"


def send(nginx: Nginx, seconds: float, meanwhile: Callable[[], None]) -> list[Sender]:
    ports = {"http": nginx.http, "grpc": nginx.grpc}
    senders = [Sender(n, protocol, ports[protocol]) for n, protocol in enumerate(("http", "grpc", "http", "grpc"), 1)]
    until = time.monotonic() + seconds
    for s in senders:
        s.start()
    try:
        meanwhile()
        time.sleep(max(0, until - time.monotonic()))
    finally:
        for s in senders:
            s.stopped.set()
        for s in senders:
            s.join()
    for s in senders:
        if s.wrong:
            raise AssertionError(f"{s.service}: {s.wrong!r}")
    return senders


def sql(store: pathlib.Path, query: str) -> list[dict]:
    command = [BATON, "sql", query, "--store", store, "--format", "json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def check(store: pathlib.Path, senders: list[Sender]) -> str:
    """What stands in the store against what was sent and acknowledged."""
    sent = {n: s for s in senders for n in range(s.first + 1, s.first + 1 + s.sent)}
    acknowledged = set().union(*(s.acknowledged for s in senders))
    rows = sql(store, "SELECT record, service, trace_id, span_id, name FROM spans")
    found = collections.Counter(int(r["span_id"], 16) for r in rows)
    made_up = [r for r in rows if (n := int(r["span_id"], 16)) not in sent or not as_sent(r, n, sent[n].service)]
    missing = sorted(acknowledged - set(found))
    twice = sorted(n for n, times in found.items() if times > 1)
    assert not missing, f"{len(missing)} acknowledged spans are missing, such as {missing[:5]}"
    assert not twice, f"{len(twice)} spans stand twice, such as {twice[:5]}"
    assert not made_up, f"{len(made_up)} rows were never sent, such as {made_up[:2]}"
    for s in senders:
        # Given up is what was not acknowledged in fifteen seconds. It may be there all the same.
        assert len(s.acknowledged) > 0.95 * s.sent, f"{s.service}: only {len(s.acknowledged)} of {s.sent} acknowledged"
        assert s.sent >= 50 * SPANS, f"{s.service}: only {s.sent} sent"
    in_files = duckdb.sql(f"SELECT count(*) FROM read_parquet('{store}/spans/**/*.parquet', hive_partitioning=false)").fetchall()[
        0
    ][0]
    # Otherwise nothing was shown of what counts once.
    assert in_files > len(rows), f"{in_files} rows in files, {len(rows)} in the table: nothing was sent twice"
    again, slowest = sum(s.again for s in senders), max(s.slowest for s in senders)
    return (
        f"{len(sent)} spans sent, {len(acknowledged)} acknowledged, {len(found)} found, each once ({in_files} rows in files); "
        f"sent again {again} times over HTTP; slowest request {slowest:.1f} s"
    )


def as_sent(row: dict, n: int, service: str) -> bool:
    return (row["record"], row["service"], row["name"]) == ("span", service, f"span {n}")


def run(
    folder: pathlib.Path, server: objects.Objects, endpoint: str, seconds: float, meanwhile: Callable, whole: Callable
) -> tuple[int, str]:
    """Three collectors that are sent to, with what happens meanwhile. `whole` makes the object store whole again, at the end.

    Gives the number of requests for which a collector was away, and what to say.
    """
    prefix = folder.name
    with collectors(folder, f"s3://{objects.BUCKET}/{prefix}", server.environment(endpoint)) as backends:
        key = server.bucket.get(f"{prefix}/key")
        assert all((c.journal / "key").read_bytes() == key for c in backends), "the collectors have different keys"
        nginx = Nginx(folder / "nginx", backends)
        try:
            senders = send(nginx, seconds, lambda: meanwhile(backends))
            taken = [c.taken() for c in backends]
            assert all(t["http"] and t["grpc"] for t in taken), f"not all collectors were sent to: {taken}"
        finally:
            nginx.stop()
        started = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(COPIES) as pool:
            list(pool.map(Collector.stop, backends))
        took = time.monotonic() - started
        left = sum(c.waiting() for c in backends)
        whole()
        for c in backends:
            # Where the store refused to the end, the next start goes on with it.
            if c.waiting():
                c.start()
                c.stop()
        assert not any(c.waiting() for c in backends), "segments are left in a journal"
    files = server.bucket.fetch(prefix, folder / "store")
    said = check(folder / "store", senders)
    passed_on, failed = nginx.odd()
    return passed_on + failed, (
        f"{said}; nginx passed {passed_on} requests on and answered {failed} with an error; "
        f"ended in {took:.1f} s with {left} segments left over; {files} objects"
    )


def killed(folder: pathlib.Path, server: objects.Objects) -> str:
    """One collector is killed under load and comes back with its journal; then another one is ended and started."""

    def meanwhile(backends: list[Collector]) -> None:
        time.sleep(10)
        backends[0].kill()
        assert backends[0].waiting(), "it held nothing when it was killed"
        time.sleep(5)
        backends[0].start()
        # As at an update: another one is ended in order, under the same load.
        time.sleep(5)
        backends[1].stop()
        assert not backends[1].waiting(), "it ended in order and left something over"
        backends[1].start()

    away, said = run(folder, server, server.endpoint, 30, meanwhile, lambda: None)
    assert away, "nginx met no collector that was away"
    return said


def failing(folder: pathlib.Path, server: objects.Objects) -> str:
    """A fifth of the puts is refused, and more break off."""
    with faults.faults(server.endpoint) as proxy:
        # From when they run: the first start needs the store, as there is no key yet. This seed breaks off the tenth put, so that
        # also a slow machine, which puts less, meets some.
        told = {"unavailable": {"PUT": 0.2}, "cut": {"PUT": 0.15}, "slow": 20, "seed": 2}
        _, said = run(folder, server, proxy.endpoint, 15, lambda _: proxy.tell(**told), proxy.clear)
        put = proxy.counts()["PUT"]
    assert put["unavailable"] and put["cut"], put
    return f"{said}; of {put['requests']} puts {put['unavailable']} were refused and {put['cut']} broke off"


def main() -> None:
    # The exporter tells of failures that are wanted here.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    # Told to end, it ends what it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, objects.objects(f"{folder}/objects") as server:
        for part in (killed, failing):
            started = time.monotonic()
            try:
                said = part(pathlib.Path(folder) / part.__name__, server)
            except AssertionError as e:
                sys.exit(f"{part.__name__}: WRONG: {e}")
            print(f"{part.__name__}: {said} ({time.monotonic() - started:.0f} s)", flush=True)
    print(f"all there, each once ({time.monotonic() - began:.0f} s)")


main()
