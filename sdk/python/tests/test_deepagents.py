import json

import pytest
from deepagents import create_deep_agent
from langchain.agents import AgentState
from langchain.agents.middleware import AgentMiddleware, wrap_tool_call
from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI
from opentelemetry.trace import StatusCode

from baton_handoff import Constraint
from baton_handoff.deepagents import traced
from scripted_model import ScriptedModel, Turn

RULE = Constraint("refund-window-30d", "Refund only within 30 days.")
CONTRACT = {"intent": "Refund", "constraints": [{"id": RULE.id, "text": RULE.text}], "status": "verified"}
DONE = Turn("Done.")


class State(AgentState):
    hard_constraints: list


class Rules(AgentMiddleware):
    state_schema = State


def look(at: str) -> str:
    """Looks."""
    return f"seen {at}"


def task(description, to="b"):
    return ("task", {"subagent_type": to, "description": description})


def numbers(span):
    prefix = "baton.handoff.history."
    return {k.removeprefix(prefix): v for k, v in span.attributes.items() if k.startswith(prefix) and "tokens" not in k}


def run(calls, *, turns=None, mode=None, middleware=(), **options):
    script = {"a": [Turn(calls=[("look", {"at": "1"})]), Turn("To b.", calls=calls), DONE], "b": [Turn("b did.")] * 2, "c": [DONE]}
    with ScriptedModel({**script, **(turns or {})}) as server:
        model = ChatOpenAI(model="m", base_url=server.base_url, api_key="none")
        subagents = [{"name": n, "description": n, "system_prompt": f"You are {n}.", "tools": [look]} for n in ("b", "c")]
        if mode:
            subagents[0]["mode"] = mode
        agent = create_deep_agent(
            model=model, name="a", system_prompt="You are a.", tools=[look], subagents=subagents, middleware=[Rules(), *middleware]
        )
        return traced(agent, **options).invoke({"messages": [HumanMessage("hello")], "hard_constraints": [RULE]})


def test_a_delegation_with_a_contract_in_its_description(spans):
    run([task(f"Refund.\n{json.dumps(CONTRACT)}")])
    span = spans.handoff()
    a = span.attributes
    assert (a["baton.handoff.from_agent"], a["baton.handoff.to_agent"], a["baton.handoff.mode"]) == ("a", "b", "return_to_caller")
    assert a["baton.handoff.contract.fields"] == ("intent", "constraints", "status")
    assert a["baton.handoff.constraints.ids"] == a["baton.handoff.state.constraints.ids"] == ("refund-window-30d",)
    # hello, call, result, "To b.", task | the description
    assert numbers(span) == {"items_before": 5, "items_after": 1, "filtered_count": 5}
    (received,) = spans.having("baton.received.constraints.ids")
    assert (received.attributes["gen_ai.agent.name"], received.attributes["baton.received.constraints.ids"]) == (
        "b",
        ("refund-window-30d",),
    )


def test_a_delegation_by_a_sentence_loses_the_rule(spans):
    run([task("Please help.")])
    a = spans.handoff().attributes
    assert a["baton.handoff.contract.fields"] == ("narrative",)
    assert a["baton.handoff.constraints.ids"] == ()
    (received,) = spans.having("baton.received.constraints.ids")
    assert received.attributes["baton.received.constraints.ids"] == ()


def test_the_sub_agent_runs_inside_its_delegation(spans):
    run([task("Please help.")])
    by_id = {s.context.span_id: s.name for s in spans.all()}
    tree = {(s.name, by_id.get(s.parent and s.parent.span_id)) for s in spans.all()}
    assert tree == {
        ("invoke_agent a", None),
        ("chat m", "invoke_agent a"),
        ("execute_tool look", "invoke_agent a"),
        ("execute_tool task", "invoke_agent a"),
        ("invoke_agent b", "execute_tool task"),
        ("chat m", "invoke_agent b"),
    }


def test_delegations_side_by_side(spans):
    run([task("For b."), task("For c.", "c"), task("For b again.")])
    found = sorted((s.attributes["gen_ai.tool.call.id"], s.attributes["baton.handoff.to_agent"]) for s in spans.handoffs())
    assert found == [("call_2_0", "b"), ("call_2_1", "c"), ("call_2_2", "b")]
    assert all(numbers(s) == {"items_before": 7, "items_after": 1, "filtered_count": 7} for s in spans.handoffs())


def test_a_fork_inherits_the_history(spans):
    run([task("Please help.")], mode="fork")
    assert numbers(spans.handoff())["items_after"] > 1


def test_a_sub_agent_that_uses_a_tool_is_measured_at_its_first_call(spans):
    run([task("Please help.")], turns={"b": [Turn(calls=[("look", {"at": "2"})]), DONE]})
    assert numbers(spans.handoff())["items_after"] == 1
    assert len(spans.having("baton.received.constraints.ids")) == 1


def test_an_agent_that_does_not_exist_takes_nothing(spans):
    run([task("Please help.", "nobody")])
    span = spans.handoff()
    assert span.attributes["baton.handoff.to_agent"] == "nobody"
    assert "baton.handoff.outcome" not in span.attributes


def test_a_delegation_that_fails_is_told_and_raises_as_it_did(spans):
    @wrap_tool_call
    def broken(request, handler):
        raise KeyError("a secret")

    with ScriptedModel({"a": [Turn(calls=[task("x")])], "b": [Turn(calls=[("look", {"at": "1"})])]}) as server:
        model = ChatOpenAI(model="m", base_url=server.base_url, api_key="none")
        b = {"name": "b", "description": "b", "system_prompt": "You are b.", "tools": [look], "middleware": [broken]}
        agent = create_deep_agent(model=model, name="a", system_prompt="You are a.", subagents=[b])
        with pytest.raises(KeyError):
            traced(agent).invoke({"messages": [HumanMessage("hello")]})
    span = spans.handoff()
    assert (span.status.status_code, span.attributes["error.type"]) == (StatusCode.ERROR, "KeyError")
    assert "secret" not in span.to_json()
