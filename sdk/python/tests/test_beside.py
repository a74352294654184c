"""With another instrumentation active the numbers stay the same, and no handoff is written twice."""

import json
import pathlib
import subprocess
import sys
from functools import cache

import pytest

HERE = pathlib.Path(__file__).parent


@cache
def run(example, version, other):
    command = [sys.executable, "-W", "ignore", str(HERE / "beside.py"), example, version, other]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    # Nothing of ours failed, nor an instrumentation because of us.
    assert "baton_handoff" not in done.stderr, done.stderr
    return json.loads(done.stdout)


def told(spans):
    """Everything of ours but ids that differ from run to run."""
    found = [{k: v for k, v in s["attributes"].items() if k.startswith("baton.")} for s in spans]
    found = [{k: v for k, v in attributes.items() if k != "baton.handoff.id"} for attributes in found if attributes]
    return sorted(found, key=lambda a: sorted(a))


CASES = [
    ("openai_agents_refund", "openinference", "good"),
    ("openai_agents_refund", "openinference", "weak"),
    ("openai_agents_refund", "openllmetry", "good"),
    ("openai_agents_refund", "logfire", "good"),
    ("openai_agents_refund", "official", "good"),
    ("langgraph_refund", "openinference", "good"),
    ("langgraph_refund", "openinference", "weak"),
    ("langgraph_refund", "openllmetry", "good"),
    ("langgraph_refund", "official", "good"),
    ("deepagents_refund", "openinference", "good"),
    ("deepagents_refund", "openllmetry", "good"),
    ("deepagents_refund", "official", "good"),
]


@pytest.mark.parametrize(("example", "other", "version"), CASES)
def test_the_numbers_stay_the_same(example, other, version):
    alone, beside = run(example, version, "none"), run(example, version, other)
    assert told(beside) == told(alone)
    assert len(told(alone)) == 2, "one handoff, one receiver"
    # Beside another one nothing but the handoff is written.
    (ours,) = [s for s in beside if s["scope"] == "baton_handoff"]
    assert ours["attributes"]["baton.handoff.from_agent"] == "triage"
    (received,) = [s for s in beside if "baton.received.constraints.ids" in s["attributes"]]
    # In one trace; inside the sender, and inside the receiver.
    assert received["trace"] == ours["trace"]
    assert any("triage" in name for name in ours["above"][1:])
    assert any("refunds_specialist" in name for name in received["above"])
