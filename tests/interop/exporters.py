"""Real exporters send to `baton collect`: what they sent is in the store, each span once, with its handoffs.

    python exporters.py path/to/baton path/to/node_modules [path/to/otelcol]

The Python and the JavaScript OpenTelemetry SDKs over every transport they have; TLS, tokens and client certificates; a
collector that ends and starts again while it is sent to; and an OpenTelemetry Collector in between.
"""

import contextlib
import json
import logging
import os
import pathlib
import re
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

# Failed handshakes are wanted here; gRPC tells of them on its own.
os.environ["GRPC_VERBOSITY"] = "NONE"

import grpc
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter as GrpcLogs
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcMetrics
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpans
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter as HttpLogs
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpMetrics
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpans
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import set_span_in_context

BATON = pathlib.Path(sys.argv[1]).resolve()
NODE_MODULES = pathlib.Path(sys.argv[2]).resolve()
OTELCOL = pathlib.Path(sys.argv[3]).resolve() if len(sys.argv) > 3 else None
HERE = pathlib.Path(__file__).resolve().parent
TOKEN = "a-token-of-the-test"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Collector:
    """`baton collect` in a folder. It keeps its ports when it is started again."""

    def __init__(self, folder, config=""):
        self.folder = folder
        self.store = folder / "store"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "baton.toml").write_text(f'[collect]\nvisible_after = "1s"\n{config}')
        self.grpc, self.http = "127.0.0.1:0", "127.0.0.1:0"
        self.start()

    def start(self):
        # Its messages go to a file: nobody has to read a pipe for it to go on.
        log = self.folder / "log"
        with log.open("w") as out:
            command = [BATON, "--config", self.folder / "baton.toml", "collect", "--store", self.store]
            command += ["--grpc", self.grpc, "--http", self.http]
            self.process = subprocess.Popen(command, stdout=out, stderr=out)
        for _ in range(300):
            listening = re.search(r"OTLP/gRPC on (\S+), OTLP/HTTP on ([^\s;]+)", log.read_text())
            if listening:
                self.grpc, self.http = listening.groups()
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        raise AssertionError(f"the collector does not listen: {log.read_text()}")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=60)
        assert code == 0, f"exit code {code}: {(self.folder / 'log').read_text()}"

    def sql(self, query):
        command = [BATON, "sql", query, "--store", self.store, "--format", "json"]
        return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    def requests(self, protocol, code, context=None):
        """How many trace requests were answered with a code."""
        scheme = "https" if context else "http"
        r = urllib.request.Request(f"{scheme}://{self.http}/metrics", headers={"authorization": f"Bearer {TOKEN}"})
        text = urllib.request.urlopen(r, context=context, timeout=10).read().decode()
        lines = [line for line in text.splitlines() if line.startswith("baton_requests_total{")]
        wanted = (f'protocol="{protocol}"', 'signal="traces"', f'code="{code}"')
        return sum(int(line.split()[-1]) for line in lines if all(w in line for w in wanted))


@contextlib.contextmanager
def collector(folder, config=""):
    c = Collector(folder, config)
    try:
        yield c
    finally:
        if c.process.poll() is None:
            c.process.kill()
            c.process.wait()


class Told:
    """An exporter that remembers what its exports came to; batch processors do not tell."""

    def __init__(self, exporter):
        self.exporter = exporter
        self.results = []

    def export(self, batch):
        result = self.exporter.export(batch)
        self.results.append(result.name)
        return result

    def __getattr__(self, name):
        return getattr(self.exporter, name)


class Sent:
    """What was sent, by service: ids of spans, handoffs, ids of spans with a log record."""

    def __init__(self):
        self.spans, self.handoffs, self.logs = {}, {}, {}

    def check(self, c):
        rows = c.sql("SELECT service, record, span_id, count(*) AS n FROM spans GROUP BY 1, 2, 3")
        for record, sent in (("span", self.spans), ("log", self.logs)):
            found = {}
            for r in rows:
                if r["record"] == record:
                    found.setdefault(r["service"], {})[r["span_id"]] = r["n"]
            assert set(found) == {s for s in sent if sent[s]}, f"{record}: services {set(found)}, sent {set(sent)}"
            for service, ids in found.items():
                lost, more = set(sent[service]) - set(ids), set(ids) - set(sent[service])
                assert not lost and not more, f"{service}: {len(lost)} {record} rows lost, {len(more)} unknown"
                assert set(ids.values()) == {1}, f"{service}: a {record} row is there more than once"
        handoffs = "SELECT service, count(*) AS n FROM handoffs"
        handoffs += " WHERE from_agent = 'triage' AND to_agent = 'refunds' AND detection = 'explicit' GROUP BY 1"
        found = {r["service"]: r["n"] for r in c.sql(handoffs)}
        assert found == self.handoffs, f"handoffs {found}, sent {self.handoffs}"
        command = [BATON, "eval", "--store", c.store, "--format", "json"]
        report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        assert len(report["handoffs"]) == sum(self.handoffs.values()), len(report["handoffs"])


class Service:
    """A service with an SDK of its own: two agents, a handoff from one to the other, and messages as a log record."""

    def __init__(self, name, spans, logs=None, sent=None, delay=200):
        self.name, self.sent = name, sent
        resource = Resource.create({"service.name": name})
        self.told = [Told(spans)]
        self.provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        # Where the queue is full, the SDK drops without a word.
        batches = {"max_queue_size": 100_000, "max_export_batch_size": 64, "schedule_delay_millis": delay}
        self.provider.add_span_processor(BatchSpanProcessor(self.told[0], **batches))
        self.tracer = self.provider.get_tracer("interop")
        self.log_provider = None
        if logs is not None:
            self.told.append(Told(logs))
            self.log_provider = LoggerProvider(resource=resource, shutdown_on_exit=False)
            self.log_provider.add_log_record_processor(BatchLogRecordProcessor(self.told[1], **batches))
            self.logger = self.log_provider.get_logger("interop")
        sent.spans[name], sent.handoffs[name], sent.logs[name] = [], 0, []

    def span(self, name, parent=None, **attributes):
        attributes = {k.replace("__", "."): v for k, v in attributes.items()}
        s = self.tracer.start_span(name, context=parent and set_span_in_context(parent), attributes=attributes)
        self.sent.spans[self.name].append(f"{s.get_span_context().span_id:016x}")
        return s

    def agent(self, name, parent):
        attributes = {"gen_ai__operation__name": "invoke_agent", "gen_ai__agent__name": name}
        return self.span(f"invoke_agent {name}", parent, **attributes)

    def task(self, n):
        root = self.span(f"task {n}")
        triage = self.agent("triage", root)
        handoff = {
            "baton__handoff__id": f"{self.name}-{n}",
            "baton__handoff__from_agent": "triage",
            "baton__handoff__to_agent": ["refunds"],
            "baton__handoff__history__items_before": 3,
        }
        self.span("transfer_to_refunds", triage, **handoff).end()
        self.sent.handoffs[self.name] += 1
        triage.end()
        refunds = self.agent("refunds", root)
        model = self.span("chat m", refunds, gen_ai__operation__name="chat", gen_ai__request__model="m")
        if self.log_provider:
            self.messages(model)
        model.end()
        refunds.end()
        root.end()

    def messages(self, span):
        context = set_span_in_context(span)
        said = json.dumps([{"role": "user", "parts": [{"type": "text", "content": "my money back"}]}])
        event = LogRecord(
            timestamp=time.time_ns(),
            context=context,
            event_name="gen_ai.client.inference.operation.details",
            attributes={"gen_ai.operation.name": "chat", "gen_ai.input.messages": said},
        )
        # Ordinary lines of a log: taken, and not kept.
        line = LogRecord(timestamp=time.time_ns(), context=context, severity_number=SeverityNumber.INFO, body="a line")
        alone = LogRecord(timestamp=time.time_ns(), body="a line without a span")
        for record in (event, line, alone):
            self.logger.emit(record)
        self.sent.logs[self.name].append(f"{span.get_span_context().span_id:016x}")

    def end(self):
        self.provider.shutdown()
        if self.log_provider:
            self.log_provider.shutdown()
        for told in self.told:
            assert told.results and set(told.results) == {"SUCCESS"}, f"{self.name}: {told.results}"


def send(name, sent, spans, logs=None, tasks=50):
    service = Service(name, spans, logs, sent)
    for n in range(tasks):
        service.task(n)
    service.end()


def some_metrics():
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader], shutdown_on_exit=False)
    meter = provider.get_meter("interop")
    meter.create_counter("requests").add(3, {"agent": "triage"})
    meter.create_histogram("duration").record(0.5)
    return reader.get_metrics_data()


def some_spans():
    """Spans that are exported by hand."""
    provider = TracerProvider(shutdown_on_exit=False)
    span = provider.get_tracer("interop").start_span("refused")
    span.end()
    return [span]


def refused(exporter):
    """The export fails, and long before the ten seconds for which exporters try again."""
    started = time.monotonic()
    result = exporter.export(some_spans())
    took = time.monotonic() - started
    assert result.name == "FAILURE", result
    assert took < 8, f"refused after {took:.1f} s"


def node(sent, name, protocol, compression, url, tasks=50):
    command = ["node", HERE / "exporter.js", protocol, compression, url, name, str(tasks)]
    env = {**os.environ, "NODE_PATH": str(NODE_MODULES)}
    r = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert r.returncode == 0, f"{name}: {r.stderr}"
    sent.spans[name], sent.handoffs[name], sent.logs[name] = json.loads(r.stdout), tasks, []


def plain(folder):
    sent = Sent()
    with collector(folder) as c:
        http = f"http://{c.http}/v1"
        for name, packing in (("grpc", grpc.Compression.NoCompression), ("grpc-gzip", grpc.Compression.Gzip)):
            to = {"endpoint": f"http://{c.grpc}", "compression": packing}
            send(f"py-{name}", sent, GrpcSpans(**to), GrpcLogs(**to))
            assert GrpcMetrics(**to).export(some_metrics()).name == "SUCCESS"
        for name, packing in (("http", Compression.NoCompression), ("http-gzip", Compression.Gzip)):
            logs = HttpLogs(endpoint=f"{http}/logs", compression=packing)
            send(f"py-{name}", sent, HttpSpans(endpoint=f"{http}/traces", compression=packing), logs)
            metrics = HttpMetrics(endpoint=f"{http}/metrics", compression=packing)
            assert metrics.export(some_metrics()).name == "SUCCESS"
        refused(HttpSpans(endpoint=f"{http}/traces", compression=Compression.Deflate))
        refused(GrpcSpans(endpoint=f"http://{c.grpc}", compression=grpc.Compression.Deflate))
        assert (c.requests("http", 415), c.requests("grpc", 12)) == (1, 1)
        node(sent, "js-json", "json", "none", f"{http}/traces")
        node(sent, "js-json-gzip", "json", "gzip", f"{http}/traces")
        node(sent, "js-proto", "proto", "gzip", f"{http}/traces")
        node(sent, "js-grpc", "grpc", "gzip", f"http://{c.grpc}")
        c.stop()
        sent.check(c)
    return sent


def certificates(folder):
    """An authority, a server's certificate for 127.0.0.1 and a client's."""
    folder.mkdir(parents=True)

    def openssl(*args):
        subprocess.run(["openssl", *args], cwd=folder, check=True, capture_output=True)

    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    authority = ["-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign"]
    openssl("req", "-x509", *key, "-subj", "/CN=authority", *authority, "-keyout", "ca.key", "-out", "ca.pem")
    for name, subject in (("server", "subjectAltName=IP:127.0.0.1"), ("client", "subjectAltName=DNS:client")):
        openssl("req", *key[:-2], "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        (folder / f"{name}.ext").write_text(f"{subject}\nbasicConstraints=CA:FALSE\n")
        sign = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", f"{name}.ext"]
        openssl("x509", "-req", "-in", f"{name}.csr", *sign, "-out", f"{name}.pem")
    self_signed = ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"]
    openssl("req", "-x509", *key, "-subj", "/CN=self", *self_signed, "-keyout", "self.key", "-out", "self.pem")
    return folder


def token(folder):
    """TLS with a certificate that signs itself, and a bearer token."""
    certs = certificates(folder / "certificates")
    (folder / "token").write_text(TOKEN + "\n")
    config = f'token_file = "{folder}/token"\n[collect.tls]\ncert = "{certs}/self.pem"\nkey = "{certs}/self.key"\n'
    sent = Sent()
    with collector(folder / "collector", config) as c:
        trust = (certs / "self.pem").read_bytes()

        def over_grpc(exporter, token, **more):
            credentials = grpc.ssl_channel_credentials(root_certificates=trust)
            headers = {"authorization": f"Bearer {token}"} if token else {}
            return exporter(endpoint=f"https://{c.grpc}", credentials=credentials, headers=headers, **more)

        def over_http(exporter, signal, token):
            headers = {"authorization": f"Bearer {token}"} if token else {}
            to = f"https://{c.http}/v1/{signal}"
            return exporter(endpoint=to, certificate_file=str(certs / "self.pem"), headers=headers)

        send("py-grpc", sent, over_grpc(GrpcSpans, TOKEN), over_grpc(GrpcLogs, TOKEN))
        send("py-http", sent, over_http(HttpSpans, "traces", TOKEN), over_http(HttpLogs, "logs", TOKEN))
        for n, wrong in enumerate(("another", None), 1):
            refused(over_grpc(GrpcSpans, wrong))
            refused(over_http(HttpSpans, "traces", wrong))
            # Refused once each: neither exporter tried again.
            context = ssl.create_default_context(cafile=certs / "self.pem")
            assert c.requests("grpc", 16, context) == n, "UNAUTHENTICATED"
            assert c.requests("http", 401, context) == n, "401"
        # Without TLS nobody is heard.
        refused(GrpcSpans(endpoint=f"http://{c.grpc}", timeout=1))
        refused(HttpSpans(endpoint=f"http://{c.http}/v1/traces", timeout=1))
        c.stop()
        sent.check(c)
    return sent


def mutual(folder):
    """TLS where both sides show a certificate."""
    certs = certificates(folder / "certificates")
    names = {"cert": "server.pem", "key": "server.key", "client_ca": "ca.pem"}
    config = "[collect.tls]\n" + "".join(f'{k} = "{certs / v}"\n' for k, v in names.items())
    sent = Sent()
    with collector(folder / "collector", config) as c:
        own = {"private_key": (certs / "client.key").read_bytes(), "certificate_chain": (certs / "client.pem").read_bytes()}
        stranger = {"private_key": (certs / "self.key").read_bytes(), "certificate_chain": (certs / "self.pem").read_bytes()}
        files = {"client_key_file": str(certs / "client.key"), "client_certificate_file": str(certs / "client.pem")}
        strange = {"client_key_file": str(certs / "self.key"), "client_certificate_file": str(certs / "self.pem")}

        def over_grpc(shown, **more):
            credentials = grpc.ssl_channel_credentials((certs / "ca.pem").read_bytes(), **shown)
            return GrpcSpans(endpoint=f"https://{c.grpc}", credentials=credentials, **more)

        def over_http(shown, **more):
            to = f"https://{c.http}/v1/traces"
            return HttpSpans(endpoint=to, certificate_file=str(certs / "ca.pem"), **shown, **more)

        send("py-grpc", sent, over_grpc(own))
        send("py-http", sent, over_http(files))
        for wrong_grpc, wrong_http in (({}, {}), (stranger, strange)):
            # To an exporter a failed handshake is a broken connection, which it tries again until its time is up.
            refused(over_grpc(wrong_grpc, timeout=1))
            refused(over_http(wrong_http, timeout=1))
        c.stop()
        sent.check(c)
    return sent


def arrive(c, sent, services):
    """Waits until as many spans as were sent are there."""
    wanted = {s: len(sent.spans[s]) for s in services}
    for _ in range(60):
        rows = c.sql("SELECT service, count(*) AS n FROM spans WHERE record = 'span' GROUP BY 1")
        found = {r["service"]: r["n"] for r in rows if r["service"] in wanted}
        if found == wanted:
            return
        time.sleep(0.5)
    raise AssertionError(f"sent {wanted}, there are {found}")


def restarts(folder):
    """The collector ends and starts again, twice, while three services send."""
    sent = Sent()
    with contextlib.ExitStack() as ends:
        c = ends.enter_context(collector(folder / "collector"))
        to = {"endpoint": f"http://{c.grpc}", "timeout": 60}
        services = [
            Service("py-grpc", GrpcSpans(**to), GrpcLogs(**to), sent, delay=100),
            Service("py-http", HttpSpans(endpoint=f"http://{c.http}/v1/traces", timeout=60), None, sent, delay=100),
        ]
        between = None
        if OTELCOL:
            between = ends.enter_context(otelcol(folder, c))
            for name, port in between.ports.items():
                # The Collector takes what it is sent at once, and tries again itself.
                services.append(Service(name, GrpcSpans(endpoint=f"http://127.0.0.1:{port}"), None, sent, delay=100))
        stop = threading.Event()

        def work(service):
            n = 0
            while not stop.is_set():
                service.task(n)
                n += 1
                time.sleep(0.005)

        threads = [threading.Thread(target=work, args=(s,)) for s in services]
        for t in threads:
            t.start()
        for _ in range(2):
            time.sleep(2)
            c.stop()
            time.sleep(1.5)
            c.start()
        time.sleep(1)
        stop.set()
        for t in threads:
            t.join()
        for s in services:
            s.end()
        if between:
            # It drops what it is about to try again when it is told to stop.
            arrive(c, sent, between.ports)
            between.stop()
        c.stop()
        sent.check(c)
        for service, tasks in sent.handoffs.items():
            assert tasks > 100, f"{service}: only {tasks} tasks"
    return sent


class Between:
    def __init__(self, process, ports, log):
        self.process, self.ports, self.log = process, ports, log

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=60)
        assert code == 0, f"otelcol: exit code {code}: {self.log.read_text()}"


@contextlib.contextmanager
def otelcol(folder, c):
    """An OpenTelemetry Collector that forwards: what comes to one port over gRPC with zstd, to another as JSON with gzip."""
    ports = {"otelcol-grpc": free_port(), "otelcol-json": free_port()}
    receiver = lambda port: {"protocols": {"grpc": {"endpoint": f"127.0.0.1:{port}"}}}
    retry = {"retry_on_failure": {"enabled": True, "initial_interval": "200ms", "max_interval": "1s"}}
    to_grpc = {"endpoint": c.grpc, "tls": {"insecure": True}, "compression": "zstd", **retry}
    to_http = {"endpoint": f"http://{c.http}", "encoding": "json", "compression": "gzip", **retry}
    pipeline = lambda kind, name: {"receivers": [f"otlp/{name}"], "processors": ["batch"], "exporters": [f"{kind}/{name}"]}
    config = {
        "receivers": {f"otlp/{name}": receiver(port) for name, port in ports.items()},
        "processors": {"batch": {"timeout": "100ms"}},
        "exporters": {"otlp_grpc/otelcol-grpc": to_grpc, "otlp_http/otelcol-json": to_http},
        "service": {
            "telemetry": {"metrics": {"level": "none"}, "logs": {"level": "warn"}},
            "pipelines": {
                "traces/grpc": pipeline("otlp_grpc", "otelcol-grpc"),
                "traces/json": pipeline("otlp_http", "otelcol-json"),
            },
        },
    }
    # JSON is YAML too.
    (folder / "otelcol.yaml").write_text(json.dumps(config))
    log = folder / "otelcol.log"
    with log.open("w") as out:
        process = subprocess.Popen([OTELCOL, "--config", folder / "otelcol.yaml"], stdout=out, stderr=out)
    try:
        for port in ports.values():
            for _ in range(300):
                assert process.poll() is None, log.read_text()
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    break
                time.sleep(0.1)
            else:
                raise AssertionError(f"otelcol does not listen: {log.read_text()}")
        yield Between(process, ports, log)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def main():
    # `requests` trusts what these name, and not the certificate that an exporter is given.
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        os.environ.pop(name, None)
    # Exporters tell of failures that are wanted here.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        for part in (plain, token, mutual, restarts):
            started = time.monotonic()
            sent = part(pathlib.Path(folder) / part.__name__)
            spans = sum(map(len, sent.spans.values()))
            took = time.monotonic() - started
            print(f"{part.__name__}: {spans} spans of {', '.join(sent.spans)}: all there, each once ({took:.0f} s)", flush=True)
    if not OTELCOL:
        print("without an OpenTelemetry Collector in between")


main()
