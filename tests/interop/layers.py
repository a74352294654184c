"""The Python layer's examples send to `baton collect`: the report has what they recorded, alone and beside other instrumentations.

    python layers.py path/to/baton

It runs in an environment of the Python package with all extras (`sdk/python/check` makes one). Each example runs in a process of
its own, in a weak and a good version, against a scripted model.
"""

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

BATON = pathlib.Path(sys.argv[1]).resolve()
EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "sdk" / "python" / "examples"

# Instruments as an application would, theirs before ours, and runs one example.
RUNNER = """
import asyncio, importlib, inspect, sys
example, version, other, service = sys.argv[1:]
import refund_case
provider = refund_case.set_up_tracing(service)
agents_sdk = example.startswith("openai_agents")
if agents_sdk:
    from agents import set_trace_processors
    set_trace_processors([])
if other != "none":
    packages = {
        ("openinference", True): ("openinference.instrumentation.openai_agents", "OpenAIAgentsInstrumentor"),
        ("openinference", False): ("openinference.instrumentation.langchain", "LangChainInstrumentor"),
        ("openllmetry", True): ("opentelemetry.instrumentation.openai_agents", "OpenAIAgentsInstrumentor"),
        ("openllmetry", False): ("opentelemetry.instrumentation.langchain", "LangchainInstrumentor"),
    }
    module, name = packages[other, agents_sdk]
    getattr(importlib.import_module(module), name)().instrument()
if agents_sdk:
    from baton_handoff.openai_agents import instrument
    instrument()
done = importlib.import_module(example).run(version == "good")
if inspect.isawaitable(done):
    asyncio.run(done)
provider.shutdown()
"""

RULES = ["approval-over-500", "mask-iban", "refund-window-30d"]
SIX = ["intent", "constraints", "status", "evidence", "next_action", "stop_condition"]

# What happens in each example. Tokens depend on the texts; they are compared between runs.
EXPECTED = {
    # The whole contract arrives; a filter keeps the request and the transfer.
    ("openai_agents_refund", "good"): dict(complete=1.0, payload=1.0, view=1.0, before=8, after=3, filtered=6, lost={}),
    ("langgraph_refund", "good"): dict(complete=1.0, payload=1.0, view=1.0, before=8, after=3, filtered=6, lost={}),
    # The description of the delegation is all that the sub-agent sees.
    ("deepagents_refund", "good"): dict(complete=1.0, payload=1.0, view=1.0, before=8, after=1, filtered=8, lost={}),
    # The note names two of three rules, and the filter drops the note.
    ("openai_agents_refund", "weak"): dict(complete=0.0, payload=2 / 3, view=0.0, before=8, after=1, filtered=7, lost="filter"),
    ("langgraph_refund", "weak"): dict(complete=0.0, payload=2 / 3, view=0.0, before=8, after=1, filtered=7, lost="filter"),
    # The note is the sub-agent's message: what it names arrives.
    ("deepagents_refund", "weak"): dict(complete=0.0, payload=2 / 3, view=2 / 3, before=8, after=1, filtered=8, lost="payload"),
}
LOST = {
    "filter": {
        "approval-over-500": "dropped_by_filter",
        "mask-iban": "dropped_from_payload",
        "refund-window-30d": "dropped_by_filter",
    },
    "payload": {"mask-iban": "dropped_from_payload"},
}
OTHERS = ("none", "openinference", "openllmetry")


class Collector:
    """`baton collect` in a folder."""

    def __init__(self, folder):
        self.store = folder / "store"
        (folder / "baton.toml").write_text('[collect]\nvisible_after = "1s"\n')
        self.log = folder / "log"
        with self.log.open("w") as out:
            command = [BATON, "--config", folder / "baton.toml", "collect", "--store", self.store]
            command += ["--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0"]
            self.process = subprocess.Popen(command, stdout=out, stderr=out)
        for _ in range(300):
            listening = re.search(r"OTLP/HTTP on ([^\s;]+)", self.log.read_text())
            if listening:
                self.url = f"http://{listening[1]}"
                return
            assert self.process.poll() is None, f"the collector does not listen: {self.log.read_text()}"
            time.sleep(0.1)
        raise AssertionError(f"the collector does not listen: {self.log.read_text()}")

    def report(self):
        """Ends the collector, so that all is in files, and evaluates its store."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=60)
        assert code == 0, f"exit code {code}: {self.log.read_text()}"
        done = subprocess.run([BATON, "eval", "--store", self.store, "--format", "json"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@contextlib.contextmanager
def collector(folder):
    folder.mkdir(parents=True)
    c = Collector(folder)
    try:
        yield c
    finally:
        if c.process.poll() is None:
            c.process.kill()
            c.process.wait()


def send(c, example, version, other):
    service = f"{example}-{version}"
    command = [sys.executable, "-W", "ignore", "-c", RUNNER, example, version, other, service]
    # Another instrumentation keeps content by default, ours does not.
    env = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": c.url, "PYTHONPATH": str(EXAMPLES)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{service} beside {other}: {done.stderr}"
    assert "baton_handoff" not in done.stderr, done.stderr


def numbers(h):
    """What must be the same whatever else is recorded."""
    return {
        "completeness": h["completeness"],
        "retention": h["constraint_retention"],
        "retention_payload": h["constraint_retention_payload"],
        "items": [h["context"][k] for k in ("items_before", "items_after", "filtered_items")],
        "tokens": [h["context"][k] for k in ("tokens_before", "tokens_after")],
        "payload_tokens": h["payload"]["tokens"],
        "fields": h["payload"]["fields"],
        "active": h["constraints"]["active"],
        "lost": {x["id"]: x["cause"] for x in h["constraints"]["lost"]},
        "hash": h["constraints"]["hash"],
        "artifacts": h["artifacts"]["refs"],
    }


def check(report, example, version, other):
    where = f"{example} {version} beside {other}"
    service = f"{example}-{version}"
    tasks = {t["task_id"] for t in report["tasks"] if t["service"] == service}
    handoffs = [h for h in report["handoffs"] if h["task_id"] in tasks]
    assert len(tasks) == 1 and len(handoffs) == 1, f"{where}: {len(tasks)} tasks, handoffs {json.dumps(handoffs, indent=1)}"
    (h,) = handoffs
    delegates = example == "deepagents_refund"
    assert (h["from_agent"], h["to_agent"]) == ("triage", "refunds_specialist"), (where, h)
    assert h["mode"] == ("return_to_caller" if delegates else "pass_control"), (where, h)
    assert (h["outcome"], h["detection"], h["confidence"]) == ("accepted", "explicit", "certain"), (where, h)
    wanted = EXPECTED[example, version]
    found = numbers(h)
    assert found["completeness"] == wanted["complete"], (where, h)
    assert found["retention"] == wanted["view"], (where, h)
    assert found["retention_payload"] == wanted["payload"], (where, h)
    assert found["items"] == [wanted["before"], wanted["after"], wanted["filtered"]], (where, h)
    assert all(isinstance(n, int) and n > 0 for n in [*found["tokens"], found["payload_tokens"]]), (where, h)
    assert found["active"] == RULES, (where, h)
    assert found["lost"] == (LOST[wanted["lost"]] if wanted["lost"] else {}), (where, h)
    if version == "good":
        assert set(SIX) <= set(found["fields"]), (where, h)
        assert found["artifacts"] == ["payment://pay_7F3M"], (where, h)
    # The findings about what was lost, one for each rule.
    lost = [f for f in report["findings"] if f["handoff_id"] == h["handoff_id"] and f["kind"] == "constraint_lost"]
    assert len(lost) == len(found["lost"]), (where, lost)
    assert all(any(rule in f["text"] for f in lost) for rule in found["lost"]), (where, lost)
    if other != "none" and version == "weak":
        # What another instrumentation adds: the arguments of tools, so that repeated calls are told.
        assert h["redundant_tool_calls"] == 3, (where, h)
    return found


def main():
    faults, seen = [], {}
    with tempfile.TemporaryDirectory() as folder:
        for other in OTHERS:
            started = time.monotonic()
            with collector(pathlib.Path(folder) / other) as c:
                for example, version in EXPECTED:
                    send(c, example, version, other)
                report = c.report()
            for case in EXPECTED:
                try:
                    found = check(report, *case, other)
                    alone = seen.setdefault(case, found)
                    assert found == alone, f"{case} beside {other}: {found}, alone {alone}"
                except AssertionError as fault:
                    faults.append(str(fault))
            name = "alone" if other == "none" else f"beside {other}"
            print(f"{name}: {len(EXPECTED)} examples, {len(report['handoffs'])} handoffs ({time.monotonic() - started:.0f} s)", flush=True)
    for fault in faults:
        print(f"FAULT {fault}", file=sys.stderr)
    sys.exit(1 if faults else 0)


main()
