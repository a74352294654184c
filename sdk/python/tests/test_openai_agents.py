import asyncio
import dataclasses
import json

import agents
import pytest
from agents import (
    Agent,
    Handoff,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    RunContextWrapper,
    Runner,
    function_tool,
    handoff,
    set_trace_processors,
)
from agents.extensions.handoff_filters import remove_all_tools
from openai import AsyncOpenAI
from opentelemetry import trace
from opentelemetry.trace import StatusCode

from baton_handoff import Constraint
from baton_handoff.openai_agents import ConstraintInput, HandoffProcessor, contract_handoff, instrument
from scripted_model import ScriptedModel, Turn

RULE = Constraint("refund-window-30d", "Refund only within 30 days.")
CONTRACT = {"intent": "Refund", "constraints": [{"id": RULE.id, "text": RULE.text}], "status": "verified"}
TRANSFER = "transfer_to_b"


@dataclasses.dataclass
class Input:
    intent: str
    constraints: list[ConstraintInput] = dataclasses.field(default_factory=list)
    status: str = ""
    reason: str = ""


@dataclasses.dataclass
class State:
    constraints: list[Constraint]
    notes: list[object] = dataclasses.field(default_factory=list)


@function_tool
def look(at: str) -> str:
    """Looks."""
    return f"seen {at} in shelf 12-B"


@pytest.fixture
def native(spans):
    """The SDK's own exporter would send to its maker."""
    set_trace_processors([])
    yield instrument()
    set_trace_processors([])


LOOK = Turn("Let me look.", calls=[("look", {"at": "order-4711"})])
DONE = Turn("Done.")


def run(make, *, turns=None, transfer=None, b="You are b.", chat=False, context=None, config=None, before=None, **kwargs):
    """Runs `a`, which looks and hands over to `b`; gives the result and the requests that the model got."""
    transfer = transfer or Turn(calls=[(TRANSFER, kwargs.pop("arguments", {}))])
    script = {"a": [LOOK, transfer], "b": [DONE], "c": [DONE], **(turns or {})}
    with ScriptedModel(script) as server:
        client = AsyncOpenAI(base_url=server.base_url, api_key="none")
        model = (OpenAIChatCompletionsModel if chat else OpenAIResponsesModel)("m", client)
        second = Agent(name="b", instructions=b, model=model)
        third = Agent(name="c", instructions="You are c.", model=model)
        made = make(second, third) if make.__code__.co_argcount == 2 else [make(second)]
        first = Agent(name="a", instructions="You are a.", tools=[look], handoffs=made, model=model)
        if before:
            before(server)
        result = asyncio.run(Runner.run(first, "hello", context=context, run_config=config or RunConfig(), **kwargs))
        return result, server.requests


def numbers(span):
    prefix = "baton.handoff.history."
    return {k.removeprefix(prefix): v for k, v in span.attributes.items() if k.startswith(prefix) and "tokens" not in k}


def test_the_sdks_own_handoffs_become_ours(spans, native):
    result, _ = run(handoff, arguments=CONTRACT)
    assert result.final_output == "Done."
    a = spans.handoff().attributes
    assert (a["baton.handoff.from_agent"], a["baton.handoff.to_agent"]) == ("a", "b")
    assert a["gen_ai.tool.name"] == TRANSFER
    assert a["gen_ai.tool.call.id"] == "call_2_0"
    assert a["baton.handoff.outcome"] == "accepted"
    assert a["baton.handoff.contract.fields"] == ("intent", "constraints", "status")
    # hello, let me look, call, result, transfer | the same and the transfer's output
    assert numbers(spans.handoff()) == {"items_before": 5, "items_after": 6, "filtered_count": 0}
    assert "baton.handoff.state.constraints.ids" not in a


def test_the_tree_without_another_instrumentation(spans, native):
    run(handoff)
    by_id = {s.context.span_id: s.name for s in spans.all()}
    tree = {(s.name, by_id.get(s.parent and s.parent.span_id)) for s in spans.all()}
    assert tree == {
        ("invoke_workflow Agent workflow", None),
        ("invoke_agent a", "invoke_workflow Agent workflow"),
        ("chat m", "invoke_agent a"),
        ("execute_tool look", "invoke_agent a"),
        ("execute_tool transfer_to_b", "invoke_agent a"),
        ("invoke_agent b", "invoke_workflow Agent workflow"),
        ("chat m", "invoke_agent b"),
    }
    assert not any("order-4711" in s.to_json() or "hello" in s.to_json() for s in spans.all())
    assert trace.get_current_span() is trace.INVALID_SPAN


def test_the_span_tells_contract_and_state(spans, native):
    state = State([RULE, Constraint("mask-iban", "Mask it.")])
    run(lambda b: contract_handoff(b, input_type=Input, priority="high"), arguments={**CONTRACT, "reason": "asked"}, context=state)
    a = spans.handoff().attributes
    assert a["baton.handoff.constraints.ids"] == ("refund-window-30d",)
    assert a["baton.handoff.state.constraints.ids"] == ("refund-window-30d", "mask-iban")
    assert (a["baton.handoff.reason"], a["baton.handoff.priority"]) == ("asked", "high")
    (received,) = spans.having("baton.received.constraints.ids")
    assert received.attributes["gen_ai.agent.name"] == "b"
    assert received.attributes["baton.received.constraints.ids"] == ("refund-window-30d",)


def test_input_type_filter_and_on_handoff_keep_working(spans, native):
    def on_handoff(ctx: RunContextWrapper[State], given: Input) -> None:
        ctx.context.notes.append(given)
        ctx.context.constraints.append(Constraint("late", "Written by the transfer."))

    async def slow_filter(data):
        await asyncio.sleep(0)
        return remove_all_tools(data)

    def make(wrapped):
        def of(b):
            return (contract_handoff if wrapped else handoff)(
                b, input_type=Input, on_handoff=on_handoff, input_filter=slow_filter, tool_description_override="Hand over."
            )

        return of

    seen = []
    for wrapped in (True, False):
        state = State([RULE])
        _, requests = run(make(wrapped), arguments=CONTRACT, context=state)
        seen.append((requests[-1]["input"], requests[0]["tools"], [repr(n) for n in state.notes]))
    assert seen[0] == seen[1]
    assert seen[0][2] == [repr(Input("Refund", [ConstraintInput(RULE.id, RULE.text)], "verified"))]
    ours = spans.handoffs()[0]
    assert numbers(ours) == {"items_before": 5, "items_after": 2, "filtered_count": 3}
    # What on_handoff writes to the state is part of this transfer, not before it.
    assert ours.attributes["baton.handoff.state.constraints.ids"] == ("refund-window-30d",)
    first, _ = spans.having("baton.received.constraints.ids")
    # The filter dropped the contract.
    assert first.attributes["baton.received.constraints.ids"] == ()


def test_a_rule_in_dynamic_instructions_is_received(spans, native):
    run(
        lambda b: contract_handoff(b, input_filter=remove_all_tools),
        arguments={**CONTRACT, "evidence": [], "next_action": "", "stop_condition": ""},
        b=f"You are b. {RULE.text}",
        context={"hard_constraints": [RULE]},
    )
    (received,) = spans.having("baton.received.constraints.ids")
    assert received.attributes["baton.received.constraints.ids"] == ("refund-window-30d",)


@pytest.mark.parametrize("nested", ["handoff", "run", "run filter"])
def test_what_the_run_configures_is_measured_and_kept(spans, native, nested):
    config = RunConfig(
        nest_handoff_history=nested == "run", handoff_input_filter=remove_all_tools if nested == "run filter" else None
    )
    seen = []
    for make in (contract_handoff, handoff):

        def of(b, *, make=make):
            plain = {"input_type": None} if make is contract_handoff else {}
            return make(b, nest_handoff_history=True if nested == "handoff" else None, **plain)

        _, requests = run(of, config=config)
        seen.append(requests[-1]["input"])
    assert seen[0] == seen[1]
    ours, native_one = spans.handoffs()
    assert numbers(ours) == numbers(native_one)
    assert numbers(ours)["items_before"] == 5
    assert numbers(ours)["items_after"] < 5


def test_chat_completions(spans, native):
    run(lambda b: contract_handoff(b, input_type=Input), arguments=CONTRACT, context=State([RULE]), chat=True)
    assert numbers(spans.handoff()) == {"items_before": 5, "items_after": 6, "filtered_count": 0}
    (received,) = spans.having("baton.received.constraints.ids")
    assert received.attributes["baton.received.constraints.ids"] == ("refund-window-30d",)


@pytest.mark.parametrize("how", [{"previous_response_id": "resp_0"}, {"auto_previous_response_id": True}])
def test_a_server_managed_conversation_is_marked_and_its_history_is_not_known(spans, native, how):
    run(lambda b: contract_handoff(b, input_type=Input), arguments=CONTRACT, context=State([RULE]), **how)
    span = spans.handoff()
    # The receiver goes on from the sender's second response.
    assert span.attributes["gen_ai.request.previous_response.id"] == "resp_2"
    assert numbers(span) == {}
    assert span.attributes["baton.handoff.contract.fields"] == ("intent", "constraints", "status")
    assert spans.having("baton.received.constraints.ids") == []


def test_without_sensitive_data_the_filter_tells(spans, native):
    config = RunConfig(trace_include_sensitive_data=False)
    run(lambda b: contract_handoff(b, input_type=None, input_filter=remove_all_tools), config=config)
    run(lambda b: contract_handoff(b, input_type=None), config=config)
    filtered, plain = spans.handoffs()
    assert numbers(filtered) == {"items_before": 5, "items_after": 2, "filtered_count": 3}
    assert numbers(plain) == {}


def test_of_several_handoffs_one_is_taken_and_the_others_are_refused(spans, native):
    transfer = Turn(calls=[("transfer_to_b", {}), ("transfer_to_c", {"note": "x"})])
    run(lambda b, c: [contract_handoff(b, input_type=None), c], transfer=transfer)
    taken, refused = sorted(spans.handoffs(), key=lambda s: s.attributes["baton.handoff.to_agent"])
    assert (taken.attributes["baton.handoff.outcome"], refused.attributes["baton.handoff.outcome"]) == ("accepted", "refused")
    assert taken.status.status_code is StatusCode.UNSET
    assert refused.attributes["gen_ai.tool.call.id"] == "call_2_1"
    assert refused.attributes["baton.handoff.contract.fields"] == ("narrative",)


def test_a_handoff_that_fails_is_told_and_raises_as_it_did(spans, native):
    def on_handoff(ctx):
        raise KeyError("a secret")

    with pytest.raises(KeyError):
        run(lambda b: contract_handoff(b, input_type=None, on_handoff=on_handoff))
    span = spans.handoff()
    assert span.attributes["baton.handoff.outcome"] == "failed"
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes["error.type"] == "KeyError"
    assert "secret" not in span.to_json()


def test_a_broken_state_or_contract_does_not_reach_the_agent(spans, native):
    def broken(ctx):
        raise RuntimeError("no state")

    result, _ = run(lambda b: contract_handoff(b, input_type=None, state=broken))
    assert result.final_output == "Done."
    assert "baton.handoff.state.constraints.ids" not in spans.handoff().attributes
    assert clear_told() == 1
    result, _ = run(lambda b: contract_handoff(b, input_type=None, payload=lambda ctx, arguments: broken(ctx)))
    assert result.final_output == "Done."
    assert len(spans.handoffs()) == 2
    assert clear_told() == 1


def clear_told():
    from baton_handoff import _safe

    n = len(_safe._told)
    _safe._told.clear()
    return n


def test_without_instrument_the_span_still_tells_the_contract(spans, monkeypatch):
    set_trace_processors([])
    monkeypatch.setattr("baton_handoff.openai_agents._installed", None)
    run(lambda b: contract_handoff(b, input_type=Input, input_filter=remove_all_tools), arguments=CONTRACT, context=State([RULE]))
    (span,) = spans.all()
    assert span.attributes["baton.handoff.from_agent"] == "a"
    assert span.attributes["baton.handoff.constraints.ids"] == ("refund-window-30d",)
    assert numbers(span) == {"items_before": 5, "items_after": 2, "filtered_count": 3}


def test_where_tracing_of_the_sdk_is_off_the_span_still_tells_the_contract(spans, native):
    config = RunConfig(tracing_disabled=True)
    result, _ = run(lambda b: contract_handoff(b, input_type=Input), arguments=CONTRACT, config=config)
    assert result.final_output == "Done."
    (span,) = spans.all()
    assert span.attributes["baton.handoff.from_agent"] == "a"
    assert span.attributes["baton.handoff.contract.fields"] == ("intent", "constraints", "status")
    assert numbers(span) == {}


def test_content_of_tools_and_contracts_is_opt_in(spans):
    set_trace_processors([])
    instrument(capture_content=True)
    run(lambda b: contract_handoff(b, input_type=Input), arguments=CONTRACT)
    assert json.loads(spans.handoff().attributes["baton.handoff.contract"])["status"] == "verified"
    (tool,) = [s for s in spans.all() if s.name == "execute_tool look"]
    assert json.loads(tool.attributes["gen_ai.tool.call.arguments"]) == {"at": "order-4711"}
    assert "12-B" in tool.attributes["gen_ai.tool.call.result"]
    set_trace_processors([])


def test_a_receiver_that_hands_on(spans, native):
    state = State([RULE])
    turns = {"b": [Turn(calls=[("transfer_to_c", {"intent": "go on", "status": ""})])]}

    def make(b, c):
        b.handoffs = [contract_handoff(c, input_type=Input)]
        return [contract_handoff(b, input_type=Input)]

    run(make, turns=turns, arguments=CONTRACT, context=state)
    second = spans.handoffs()[1]
    assert numbers(second) == {"items_before": 7, "items_after": 8, "filtered_count": 0}
    assert second.attributes["baton.handoff.constraints.ids"] == ()
    assert [s.attributes["gen_ai.agent.name"] for s in spans.having("baton.received.constraints.ids")] == ["b", "c"]


def test_runs_side_by_side_do_not_mix(spans, native):
    runs = 8

    async def gather(server):
        model = OpenAIResponsesModel("m", AsyncOpenAI(base_url=server.base_url, api_key="none"))
        b = Agent(name="b", instructions="You are b.", model=model)
        a = Agent(name="a", instructions="You are a.", model=model, handoffs=[contract_handoff(b, input_type=None)])
        states = [State([Constraint(f"rule-{i}", f"Rule {i}")]) for i in range(runs)]
        await asyncio.gather(*(Runner.run(a, f"run {i}", context=s) for i, s in enumerate(states)))

    with ScriptedModel({"a": [Turn(calls=[(TRANSFER, {})])] * runs, "b": [DONE] * runs}) as server:
        asyncio.run(gather(server))
    found = {s.attributes["baton.handoff.state.constraints.ids"] for s in spans.handoffs()}
    assert found == {(f"rule-{i}",) for i in range(runs)}
    assert len({s.context.trace_id for s in spans.handoffs()}) == runs
    assert all(numbers(s) == {"items_before": 2, "items_after": 3, "filtered_count": 0} for s in spans.handoffs())
    assert native._runs == {}


def test_back_and_forth(spans, native):
    def make(b):
        b.handoffs = [first := Agent(name="a", instructions="You are a.", model=b.model)]
        first.handoffs = [contract_handoff(b, input_type=None)]
        return first.handoffs[0]

    there, back = Turn(calls=[(TRANSFER, {})]), Turn(calls=[("transfer_to_a", {})])
    run(make, turns={"a": [LOOK, there, there], "b": [back, DONE]})
    ends = [(s.attributes["baton.handoff.from_agent"], s.attributes["baton.handoff.to_agent"]) for s in spans.handoffs()]
    assert ends == [("a", "b"), ("b", "a"), ("a", "b")]
    assert [numbers(s)["items_before"] for s in spans.handoffs()] == [5, 7, 9]
    assert [numbers(s)["items_after"] for s in spans.handoffs()] == [6, 8, 10]


def test_two_calls_of_instrument_record_once(spans, native):
    instrument()
    run(handoff)
    assert len(spans.handoffs()) == 1


def test_streaming(spans, native):
    async def stream(first):
        result = Runner.run_streamed(first, "hello")
        async for _ in result.stream_events():
            pass
        return result.final_output

    class Model(agents.Model):
        """Answers in one event; the scripted server does not stream."""

        def __init__(self, *outputs):
            self.outputs = list(outputs)

        async def get_response(self, *args, **kwargs):
            raise NotImplementedError

        async def stream_response(self, system, input, settings, tools, schema, handoffs, tracing, **kwargs):
            from openai.types.responses import Response, ResponseCompletedEvent

            with agents.tracing.response_span() as span:
                response = Response.model_validate(self.outputs.pop(0))
                span.span_data.response, span.span_data.input = response, input
                yield ResponseCompletedEvent(type="response.completed", response=response, sequence_number=0)

    from scripted_model import _response

    def answer(n, text="", calls=()):
        made = [{"call_id": f"c{i}", "name": name, "arguments": "{}"} for i, name in enumerate(calls)]
        return _response(n, {"model": "m"}, Turn(text), made)

    b = Agent(name="b", model=Model(answer(2, "Done.")))
    a = Agent(name="a", model=Model(answer(1, calls=[TRANSFER])), handoffs=[contract_handoff(b, input_type=None)])
    assert asyncio.run(stream(a)) == "Done."
    assert numbers(spans.handoff()) == {"items_before": 2, "items_after": 3, "filtered_count": 0}


def instrumentor(name):
    if name == "openinference":
        from openinference.instrumentation.openai_agents import OpenAIAgentsInstrumentor
    else:
        from opentelemetry.instrumentation.openai_agents import OpenAIAgentsInstrumentor
    return OpenAIAgentsInstrumentor()


@pytest.mark.parametrize("first", ["theirs", "ours"])
@pytest.mark.parametrize("name", ["openinference", "openllmetry"])
def test_beside_another_instrumentation_only_handoffs_are_written(spans, name, first):
    set_trace_processors([])
    other = instrumentor(name)
    if first == "ours":
        instrument()
    other.instrument()
    if first == "theirs" or name == "openinference":
        # OpenInference replaces what was there.
        instrument()
    try:
        run(lambda b: contract_handoff(b, input_type=Input), arguments=CONTRACT, context=State([RULE]))
    finally:
        other.uninstrument()
        set_trace_processors([])
    ours = [s for s in spans.all() if s.instrumentation_scope.name == "baton_handoff"]
    assert [s.name for s in ours] == ["execute_tool transfer_to_b"]
    span = spans.handoff()
    assert numbers(span) == {"items_before": 5, "items_after": 6, "filtered_count": 0}
    (received,) = spans.having("baton.received.constraints.ids")
    assert received.instrumentation_scope.name != "baton_handoff"
    assert received.attributes["baton.received.constraints.ids"] == ("refund-window-30d",)
    by_id = {s.context.span_id: s for s in spans.all()}
    # One trace, inside the sender, and the receiver's mark inside the receiver.
    assert {s.context.trace_id for s in spans.all()} == {span.context.trace_id}
    assert "a" in names_above(span, by_id)
    assert "b" in names_above(received, by_id)


def names_above(span, by_id):
    names = []
    while span is not None:
        names += [span.attributes.get("agent.name"), span.attributes.get("gen_ai.agent.name")]
        span = by_id.get(span.parent.span_id) if span.parent else None
    return names


def test_wrong_arguments_are_refused_when_it_is_made():
    b = Agent(name="b")
    with pytest.raises(TypeError, match="state"):
        contract_handoff(b, state=5)
    with pytest.raises(TypeError, match="payload"):
        contract_handoff(b, payload="x")
    with pytest.raises(agents.UserError):
        contract_handoff(b, on_handoff=lambda: None)
    with pytest.raises(ValueError, match="spans"):
        HandoffProcessor(spans="some")
    made = contract_handoff(b, is_enabled=False, tool_name_override="give_to_b")
    assert isinstance(made, Handoff)
    assert (made.tool_name, made.is_enabled) == ("give_to_b", False)
