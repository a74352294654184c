"""The code of the guide runs, and does what the guide says."""

import json
import os
import pathlib
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from scripted_model import ScriptedModel, Turn

ROOT = pathlib.Path(__file__).parents[1]

BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
CONTRACT = {
    "intent": "Refund order 4711",
    "constraints": [{"id": "refund-window-30d", "text": "Refund only within 30 days of capture."}],
    "status": "-",
    "evidence": [],
    "next_action": "refund",
    "stop_condition": "refunded",
    "attempted_tools": [],
    "artifact_refs": [],
}
# Prints the handoff spans of a block at its end.
SHOW = """
import atexit, json, sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
exporter = InMemorySpanExporter()
provider = TracerProvider(shutdown_on_exit=False)
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
said = lambda: [dict(s.attributes) for s in exporter.get_finished_spans() if "baton.handoff.id" in s.attributes]
atexit.register(lambda: print("SPANS", json.dumps(said(), default=str)))
"""


def block(marker):
    (found,) = [b for b in BLOCKS if marker in b]
    return found


def execute(code, **env):
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, **env}, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "baton_handoff" not in done.stderr, done.stderr
    return done.stdout


class Collector:
    """Takes what an exporter sends."""

    def __enter__(self):
        self.bodies = bodies = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                bodies.append(self.rfile.read(int(self.headers["content-length"])))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *args):
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *exc):
        self.server.shutdown()
        self.server.server_close()


def test_every_block_is_run_by_a_test():
    assert len(BLOCKS) == 4


def test_the_first_span_arrives():
    with Collector() as collector:
        port = collector.server.server_address[1]
        out = execute(block("provider.shutdown()").replace("127.0.0.1:4318", f"127.0.0.1:{port}"))
    assert out == "", "the contract has no problem"
    sent = b"".join(collector.bodies)
    for text in (b"execute_tool transfer_to_refunds", b"invoke_agent refunds", b"refund-4711", b"mask-iban"):
        assert text in sent
    assert b"Captured 12 days ago" not in sent, "content is opt-in"


@pytest.mark.parametrize(
    ("marker", "call"),
    [
        ("Runner.run", ("transfer_to_refunds", CONTRACT)),
        ("create_swarm", ("transfer_to_refunds", {"contract": CONTRACT})),
        ("create_deep_agent", ("task", {"subagent_type": "refunds", "description": json.dumps(CONTRACT)})),
    ],
)
def test_the_frameworks_blocks_record_a_handoff(marker, call):
    script = {"triage": [Turn(calls=[call]), Turn("Done.")], "refunds": [Turn("Done.")]}
    # The SDK's own exporter would send to its maker.
    quiet = "from agents import set_trace_processors\nset_trace_processors([])\n" if marker == "Runner.run" else ""
    with ScriptedModel(script) as server:
        out = execute(SHOW + quiet + block(marker), OPENAI_BASE_URL=server.base_url, OPENAI_API_KEY="none")
    answer, spans = out.split("SPANS ")
    assert answer.strip() == "Done."
    (span,) = json.loads(spans)
    assert (span["baton.handoff.from_agent"], span["baton.handoff.to_agent"]) == ("triage", "refunds")
    assert span["baton.handoff.contract.fields"] == ["intent", "constraints", "next_action", "stop_condition"]
    assert span["baton.handoff.constraints.ids"] == ["refund-window-30d"]
    state = None if marker == "create_deep_agent" else ["refund-window-30d"]
    assert span.get("baton.handoff.state.constraints.ids") == state
