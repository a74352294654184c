import pytest
from opentelemetry import trace
from opentelemetry.trace import StatusCode

import baton_handoff._safe as safe
from baton_handoff import (
    Constraint,
    ConstraintSet,
    Contract,
    History,
    Tokenizer,
    handoff,
    mark_received,
    received,
    task,
)

RULE, IBAN = (
    Constraint("refund-window-30d", "Refund only within 30 days"),
    Constraint("mask-iban", "Never repeat an IBAN"),
)
BEFORE = [{"role": "user", "content": "my money back"}, {"role": "assistant", "content": "at once"}]
WORDS = Tokenizer("words", lambda text: len(text.split()))


def test_the_span_says_what_the_transfer_carried(spans):
    contract = Contract(
        intent="Refund", constraints=[RULE], evidence="paid", artifact_refs=["doc://1"], attempted_tools=["get_order"]
    )
    with (
        task("refund-4711"),
        handoff(
            "triage",
            "Refunds Specialist",
            state=[RULE, IBAN],
            payload=contract,
            history=History(before=BEFORE, after=BEFORE[:1]),
            reason="a refund",
            priority="high",
            tool_call_id="call_1",
            tokenizer=WORDS,
        ) as h,
    ):
        assert trace.get_current_span() is h.span
        h.accept()
    span = spans.handoff()
    assert span.name == "execute_tool transfer_to_refunds_specialist"
    assert dict(span.attributes) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "transfer_to_refunds_specialist",
        "gen_ai.tool.call.id": "call_1",
        "gen_ai.agent.name": "triage",
        "gen_ai.transfer.mode": "pass_control",
        "gen_ai.transfer.target.name": "Refunds Specialist",
        "baton.task.id": "refund-4711",
        "baton.handoff.id": h.id,
        "baton.handoff.from_agent": "triage",
        "baton.handoff.to_agent": "Refunds Specialist",
        "baton.handoff.mode": "pass_control",
        "baton.handoff.reason": "a refund",
        "baton.handoff.priority": "high",
        "baton.handoff.outcome": "accepted",
        "baton.handoff.tokenizer": "words",
        "baton.handoff.payload.tokens": len(contract.to_json().split()),
        "baton.handoff.history.items_before": 2,
        "baton.handoff.history.items_after": 1,
        "baton.handoff.history.filtered_count": 1,
        "baton.handoff.history.tokens_before": 5,
        "baton.handoff.history.tokens_after": 3,
        "baton.handoff.constraints.ids": ("refund-window-30d",),
        "baton.handoff.constraints.hashes": (RULE.hash,),
        "baton.handoff.constraints.hash": ConstraintSet([RULE]).hash,
        "baton.handoff.contract.fields": ("intent", "constraints", "evidence", "attempted_tools", "artifact_refs"),
        "baton.handoff.artifacts": ("doc://1",),
        "baton.handoff.attempted_tools": ("get_order",),
        "baton.handoff.state.constraints.ids": ("refund-window-30d", "mask-iban"),
    }


def test_what_is_not_known_is_not_set(spans):
    with handoff("a", "b"):
        pass
    keys = set(spans.handoff().attributes)
    assert keys == {
        *("gen_ai.operation.name", "gen_ai.tool.name", "gen_ai.agent.name"),
        *("gen_ai.transfer.mode", "gen_ai.transfer.target.name"),
        *("baton.handoff.id", "baton.handoff.from_agent", "baton.handoff.to_agent", "baton.handoff.mode"),
    }


@pytest.mark.parametrize("payload", ["", {}, {"note": ""}])
def test_an_empty_payload_and_an_empty_state_are_known(spans, payload):
    with handoff("a", "b", state=[], payload=payload):
        pass
    a = spans.handoff().attributes
    assert a["baton.handoff.payload.tokens"] == 0
    assert a["baton.handoff.contract.fields"] == a["baton.handoff.constraints.ids"] == ()
    assert a["baton.handoff.state.constraints.ids"] == ()


def test_free_text_carries_the_rules_that_it_names(spans):
    with handoff("a", "b", state=[RULE, IBAN], payload="Go on. Mind mask-iban."):
        pass
    a = spans.handoff().attributes
    assert a["baton.handoff.contract.fields"] == ("narrative",)
    assert a["baton.handoff.constraints.ids"] == ("mask-iban",)


@pytest.mark.parametrize(
    ("variable", "explicit", "there"),
    [(None, None, False), ("true", None, True), ("true", False, False), (None, True, True)],
)
def test_content_is_opt_in(spans, monkeypatch, variable, explicit, there):
    monkeypatch.delenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", raising=False)
    if variable:
        monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", variable)
    with handoff("a", "b", payload=Contract(intent="secret plan", status="s"), capture_content=explicit):
        pass
    span = spans.handoff()
    assert ("baton.handoff.contract" in span.attributes) is there
    assert ("secret plan" in span.to_json()) is there


def test_a_failure_of_the_block_goes_on_and_is_told_without_its_message(spans):
    with pytest.raises(KeyError), handoff("a", "b"):
        raise KeyError("secret")
    span = spans.handoff()
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes["baton.handoff.outcome"] == "failed"
    assert span.attributes["error.type"] == "KeyError"
    assert "secret" not in span.to_json()


def test_a_refusal(spans):
    with handoff("a", "b") as h:
        h.refuse("b is closed")
    span = spans.handoff()
    assert (span.status.description, span.attributes["baton.handoff.outcome"]) == ("b is closed", "refused")


def test_another_process_goes_on_with_the_trace_and_the_task(spans):
    with task("t-1"), handoff("a", "b") as h:
        headers = h.inject({"x": "y"})
    assert headers.keys() == {"x", "traceparent", "baggage"}
    assert set(headers["baggage"].split(",")) == {"baton.task.id=t-1", f"baton.handoff.id={h.id}"}
    with received("b", [RULE, Constraint("soft", "A wish", "soft")], carrier=headers) as span, handoff("b", "c"):
        assert trace.get_current_span() is not span
    there = next(s for s in spans.all() if s.name == "invoke_agent b")
    first, second = spans.handoffs()
    assert there.context.trace_id == first.context.trace_id
    assert there.parent.span_id == first.context.span_id
    assert there.attributes["baton.task.id"] == second.attributes["baton.task.id"] == "t-1"
    assert there.attributes["baton.received.constraints.ids"] == ("refund-window-30d",)
    assert there.attributes["baton.received.constraints.hash"] == ConstraintSet([RULE]).hash


def test_a_task_that_the_handoff_tells_reaches_what_happens_under_it(spans):
    with handoff("a", "b", task_id="t-2") as h:
        with received("b"), handoff("b", "c"):
            pass
        headers = h.inject()
    assert [s.attributes["baton.task.id"] for s in spans.all()] == ["t-2"] * 3
    with received("b", carrier=headers, task_id="t-3"), handoff("b", "c"):
        pass
    assert [s.attributes["baton.task.id"] for s in spans.all()[3:]] == ["t-3"] * 2


def test_the_receivers_own_span_can_be_marked(spans):
    with trace.get_tracer("app").start_as_current_span("work"):
        mark_received([])
    (span,) = spans.all()
    assert span.attributes["baton.received.constraints.ids"] == ()


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"from_agent": ""}, ValueError, "from_agent"),
        ({"to_agent": 5}, TypeError, "to_agent"),
        ({"mode": "throw"}, ValueError, "mode"),
        ({"state": [5]}, TypeError, r"constraints\[0\]"),
        ({"payload": 5}, TypeError, "payload"),
        ({"history": []}, TypeError, "history"),
        ({"reason": ""}, ValueError, "reason"),
    ],
)
def test_wrong_arguments_are_named(arguments, error, said):
    with pytest.raises(error, match=said), handoff(**{"from_agent": "a", "to_agent": "b", **arguments}):
        pass


class Broken(list):
    def __iter__(self):
        raise RuntimeError("broken")


def test_a_fault_of_ours_is_told_once_and_the_agent_goes_on(spans, caplog):
    def fails(text):
        raise RuntimeError("no tokens today")

    reached = 0
    for _ in range(2):
        with handoff("a", "b", payload={"intent": float("nan"), "status": "s"}, tokenizer=Tokenizer("bad", fails)) as h:
            h.before(BEFORE)
            h.after(Broken())
            reached += 1
    assert reached == 2
    assert len(spans.handoffs()) == 2
    told = [r.message for r in caplog.records if r.name == "baton_handoff"]
    assert len(told) == len(set(told)) > 0
    safe._told.clear()


def test_a_broken_exporter_does_not_reach_the_agent(spans, monkeypatch):
    class Tracer:
        def start_span(self, *a, **k):
            raise RuntimeError("no span today")

    import baton_handoff._handoff as module

    monkeypatch.setattr(module, "get_tracer", lambda *a: Tracer())
    with handoff("a", "b", payload="x") as h, received("b", [RULE]):
        h.accept()
        assert "traceparent" not in h.inject()
    assert spans.all() == []
    assert safe._told
    safe._told.clear()
