import asyncio
import dataclasses
import json
import operator
import sys
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import ContextEditingMiddleware, wrap_tool_call
from langchain.agents.middleware.context_editing import ClearToolUsesEdit
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, Send, interrupt
from langgraph_supervisor import create_supervisor
from langgraph_swarm import SwarmState, create_handoff_tool, create_swarm
from opentelemetry import trace
from opentelemetry.trace import StatusCode

from baton_handoff import Constraint, workflow
from baton_handoff.langgraph import HandoffCallback, handoff_tool, traced
from scripted_model import ScriptedModel, Turn

RULE = Constraint("refund-window-30d", "Refund only within 30 days.")
CONTRACT = {
    "intent": "Refund",
    "constraints": [{"id": RULE.id, "text": RULE.text}],
    "status": "verified",
    "evidence": ["paid"],
    "next_action": "refund",
    "stop_condition": "refunded",
}
TRANSFER = "transfer_to_b"
LOOK = Turn("Let me look.", calls=[("look", {"at": "order-4711"})])
DONE = Turn("Done.")


class State(SwarmState):
    hard_constraints: list[Any]


def look(at: str) -> str:
    """Looks."""
    return f"seen {at} in shelf 12-B"


def numbers(span):
    prefix = "baton.handoff.history."
    return {k.removeprefix(prefix): v for k, v in span.attributes.items() if k.startswith(prefix) and "tokens" not in k}


def chat_model(server):
    return ChatOpenAI(model="m", base_url=server.base_url, api_key="none")


def swarm(tool, *, transfer=None, b_middleware=(), turns=None, use_async=False, trace_it=True, config=None, **options):
    transfer = transfer or Turn(calls=[(TRANSFER, {})])
    with ScriptedModel({"a": [LOOK, transfer], "b": [DONE], **(turns or {})}) as server:
        model = chat_model(server)
        a = create_agent(model, [look, tool], system_prompt="You are a.", name="a")
        b = create_agent(model, [look], system_prompt="You are b.", name="b", middleware=b_middleware)
        graph = create_swarm([a, b], default_active_agent="a", state_schema=State).compile(name="team")
        graph = traced(graph, **options) if trace_it else graph
        start = {"messages": [HumanMessage("hello")], "hard_constraints": [RULE]}
        result = asyncio.run(graph.ainvoke(start, config)) if use_async else graph.invoke(start, config)
        return result, server.requests


# Before Python 3.11 an async graph does not hand its callbacks on to model calls.
LATER = pytest.mark.skipif(sys.version_info < (3, 11), reason="LangGraph needs Python 3.11 for this")


@pytest.mark.parametrize("use_async", [False, pytest.param(True, marks=LATER)])
def test_a_swarms_own_tools(spans, use_async):
    result, _ = swarm(create_handoff_tool(agent_name="b"), use_async=use_async)
    assert result["messages"][-1].content == "Done."
    span = spans.handoff()
    a = span.attributes
    assert (a["baton.handoff.from_agent"], a["baton.handoff.to_agent"], a["baton.handoff.mode"]) == ("a", "b", "pass_control")
    assert (a["gen_ai.tool.name"], a["gen_ai.tool.call.id"]) == (TRANSFER, "call_2_0")
    # hello, let me look, call, result, transfer | the same and the transfer's answer
    assert numbers(span) == {"items_before": 5, "items_after": 6, "filtered_count": 0}
    # It takes nothing: the payload is known to be empty.
    assert a["baton.handoff.contract.fields"] == ()
    assert a["baton.handoff.state.constraints.ids"] == ("refund-window-30d",)
    (received,) = spans.having("baton.received.constraints.ids")
    assert (received.attributes["gen_ai.agent.name"], received.attributes["baton.received.constraints.ids"]) == ("b", ())


def test_the_tree_without_another_instrumentation(spans):
    swarm(create_handoff_tool(agent_name="b"))
    by_id = {s.context.span_id: s.name for s in spans.all()}
    tree = {(s.name, by_id.get(s.parent and s.parent.span_id)) for s in spans.all()}
    assert tree == {
        ("invoke_workflow team", None),
        ("invoke_agent a", "invoke_workflow team"),
        ("chat m", "invoke_agent a"),
        ("execute_tool look", "invoke_agent a"),
        ("execute_tool transfer_to_b", "invoke_agent a"),
        ("invoke_agent b", "invoke_workflow team"),
        ("chat m", "invoke_agent b"),
    }
    assert not any("order-4711" in s.to_json() or "hello" in s.to_json() for s in spans.all())
    # A jump to another agent is no error.
    assert {s.status.status_code for s in spans.all()} == {StatusCode.UNSET}


def test_the_contract_of_our_tool(spans):
    def filtered(messages):
        return [m for m in messages if not isinstance(m, ToolMessage) or m.name == TRANSFER][-2:]

    tool = handoff_tool("b", history_filter=filtered, update=lambda contract: {"hard_constraints": [RULE, "Written now."]})
    _, requests = swarm(tool, transfer=Turn(calls=[(TRANSFER, {"contract": CONTRACT})]))
    a = spans.handoff().attributes
    assert a["baton.handoff.contract.fields"] == tuple(CONTRACT)
    assert a["baton.handoff.constraints.ids"] == ("refund-window-30d",)
    # What the transfer itself writes was not durable before it.
    assert a["baton.handoff.state.constraints.ids"] == ("refund-window-30d",)
    assert numbers(spans.handoff()) == {"items_before": 5, "items_after": 2, "filtered_count": 4}
    assert [m["role"] for m in requests[-1]["messages"]] == ["system", "assistant", "tool"]
    (received,) = spans.having("baton.received.constraints.ids")
    assert received.attributes["baton.received.constraints.ids"] == ("refund-window-30d",)


def test_our_tool_asks_the_model_for_what_it_is_told(spans):
    schema = handoff_tool("b").tool_call_schema.model_json_schema()
    assert schema["required"] == ["contract"]
    assert set(schema["$defs"]["ContractInput"]["required"]) == set(CONTRACT)
    assert "state" not in json.dumps(schema)
    assert handoff_tool("b", input_type=None).tool_call_schema.model_json_schema()["properties"] == {}
    note = handoff_tool("Refunds Specialist", input_type=str)
    assert note.name == "transfer_to_refunds_specialist"
    assert note.tool_call_schema.model_json_schema()["properties"]["contract"]["type"] == "string"
    result, _ = swarm(handoff_tool("b", input_type=None))
    assert result["messages"][-1].content == "Done."


def test_tracing_changes_nothing(spans):
    seen = []
    for trace_it in (True, False):
        result, requests = swarm(handoff_tool("b"), transfer=Turn(calls=[(TRANSFER, {"contract": CONTRACT})]), trace_it=trace_it)
        seen.append(([(type(m).__name__, m.content) for m in result["messages"]], [r["messages"] for r in requests]))
    assert seen[0] == seen[1]


def test_what_middleware_hides_from_the_receiver_is_filtered(spans):
    editing = ContextEditingMiddleware(edits=[ClearToolUsesEdit(trigger=0, keep=0)])
    swarm(create_handoff_tool(agent_name="b"), b_middleware=[editing])
    # Both results are blanked in place.
    assert numbers(spans.handoff()) == {"items_before": 5, "items_after": 6, "filtered_count": 1}


def test_conversation_and_task(spans):
    with workflow("case", task_id="t-1"):
        swarm(create_handoff_tool(agent_name="b"), config={"configurable": {"thread_id": "th-1"}})
    a = spans.handoff().attributes
    assert (a["gen_ai.conversation.id"], a["baton.task.id"]) == ("th-1", "t-1")
    assert len({s.context.trace_id for s in spans.all()}) == 1


def supervisor(calls, *, spans_of="auto"):
    script = {"boss": [Turn(calls=calls), DONE], "b": [Turn("b did.")], "c": [Turn("c did.")]}
    with ScriptedModel(script) as server:
        model = chat_model(server)
        workers = [create_agent(model, [], system_prompt=f"You are {n}.", name=n) for n in ("b", "c")]
        graph = create_supervisor(workers, model=model, prompt="You are boss.", supervisor_name="boss", parallel_tool_calls=True)
        graph = traced(graph.compile(name="team"), spans=spans_of)
        return graph.invoke({"messages": [HumanMessage("hello")]})


def test_a_supervisors_own_tools(spans):
    supervisor([(TRANSFER, {})])
    span = spans.handoff()
    assert (span.attributes["baton.handoff.from_agent"], span.attributes["baton.handoff.to_agent"]) == ("boss", "b")
    assert span.attributes["baton.handoff.outcome"] == "accepted"
    assert numbers(span)["items_before"] == 2


def test_of_a_supervisors_two_transfers_only_the_one_that_ran_is_accepted(spans):
    supervisor([(TRANSFER, {}), ("transfer_to_c", {})])
    found = {s.attributes["baton.handoff.to_agent"]: s.attributes.get("baton.handoff.outcome") for s in spans.handoffs()}
    # Which one runs is not fixed.
    assert found.keys() == {"b", "c"}
    assert set(found.values()) == {"accepted", None}


@tool
def split(tool_call_id: Annotated[str, InjectedToolCallId], what: str) -> Command:
    """Gives the work to both."""
    answer = [AIMessage("", tool_calls=[]), ToolMessage("split", tool_call_id=tool_call_id)]
    parts = [Send(n, {"messages": [HumanMessage(f"{what} for {n}")]}) for n in ("b", "c")]
    return Command(goto=parts, graph=Command.PARENT, update={"messages": answer})


def test_a_fan_out_reaches_each_receiver(spans):
    script = {"a": [Turn(calls=[("split", {"what": "work"})])], "b": [DONE], "c": [DONE]}
    with ScriptedModel(script) as server:
        model = chat_model(server)
        graph = StateGraph(MessagesState)
        for name, tools in (("a", [split]), ("b", []), ("c", [])):
            graph.add_node(name, create_agent(model, tools, system_prompt=f"You are {name}.", name=name))
        graph.add_edge(START, "a")
        traced(graph.compile(name="team")).invoke({"messages": [HumanMessage("hello")]})
    found = {(s.attributes["baton.handoff.to_agent"], s.attributes["baton.handoff.outcome"]) for s in spans.handoffs()}
    assert found == {("b", "accepted"), ("c", "accepted")}
    assert all(numbers(s) == {"items_before": 2, "items_after": 1, "filtered_count": 2} for s in spans.handoffs())
    # The call is told by its handoffs alone.
    assert all("baton.handoff.id" in s.attributes for s in spans.all() if s.name == "execute_tool split")


class Plain(MessagesState):
    hard_constraints: list[Any]
    seen: Annotated[list[str], operator.add]


def plain_graph(server, a=None, b=None):
    model = chat_model(server)

    def first(state):
        answer = model.invoke([("system", "You are a."), *state["messages"]])
        return Command(goto="b", update={"messages": [answer], "intent": "Refund", "status": "verified", "reason": "asked"})

    def second(state):
        return {"messages": [model.invoke([("system", f"You are b. {RULE.text}"), *state["messages"][:1]])]}

    graph = StateGraph(Plain)
    graph.add_node("a", a or first, destinations=("b",))
    graph.add_node("b", b or second)
    graph.add_edge(START, "a")
    graph.add_edge("b", END)
    return traced(graph.compile(name="plain"))


START_STATE = {"messages": [HumanMessage("hello")], "hard_constraints": [RULE, "Mask it."]}


def test_a_state_graph_whose_nodes_jump(spans):
    with ScriptedModel({"a": [Turn("Over to b.")], "b": [DONE]}) as server:
        plain_graph(server).invoke(START_STATE)
    span = spans.handoff()
    a = span.attributes
    assert (a["baton.handoff.from_agent"], a["baton.handoff.to_agent"], a["baton.handoff.reason"]) == ("a", "b", "asked")
    assert a["baton.handoff.contract.fields"] == ("intent", "status")
    assert numbers(span) == {"items_before": 2, "items_after": 1, "filtered_count": 1}
    assert a["baton.handoff.state.constraints.ids"] == (RULE.id, Constraint.from_text("Mask it.").id)
    (received,) = spans.having("baton.received.constraints.ids")
    # The rule stands in the receiver's instructions.
    assert received.attributes["baton.received.constraints.ids"] == (RULE.id,)
    assert received.attributes["gen_ai.agent.name"] == "b"


def test_a_node_of_a_sub_graph_jumps_to_the_graph_above(spans):
    with ScriptedModel({"a": [Turn("Over to b.")], "b": [DONE]}) as server:
        model = chat_model(server)

        def inner(state):
            answer = model.invoke([("system", "You are a."), *state["messages"]])
            return Command(goto="b", graph=Command.PARENT, update={"messages": [answer], "intent": "go", "status": "x"})

        def second(state):
            return {"messages": [model.invoke([("system", "You are b."), *state["messages"]])]}

        team = StateGraph(Plain)
        team.add_node("inner", inner)
        team.add_edge(START, "inner")
        graph = StateGraph(Plain)
        graph.add_node("a", team.compile(), destinations=("b",))
        graph.add_node("b", second)
        graph.add_edge(START, "a")
        traced(graph.compile(name="outer")).invoke(START_STATE)
    span = spans.handoff()
    assert (span.attributes["baton.handoff.from_agent"], span.attributes["baton.handoff.to_agent"]) == ("a", "b")
    assert numbers(span) == {"items_before": 2, "items_after": 2, "filtered_count": 0}
    assert {s.status.status_code for s in spans.all()} == {StatusCode.UNSET}


def test_a_tool_that_jumps_inside_its_own_graph_is_no_handoff(spans):
    @tool
    def again(tool_call_id: Annotated[str, InjectedToolCallId]) -> Command:
        """Thinks again."""
        return Command(goto="model", update={"messages": [ToolMessage("think again", tool_call_id=tool_call_id)]})

    with ScriptedModel({"a": [Turn(calls=[("again", {})]), DONE, DONE]}) as server:
        agent = create_agent(chat_model(server), [again], system_prompt="You are a.", name="a")
        traced(agent).invoke({"messages": [HumanMessage("hello")]})
    assert spans.handoffs() == []


def test_back_and_forth(spans):
    back = Turn(calls=[("transfer_to_a", {})])
    there = Turn(calls=[(TRANSFER, {})])
    with ScriptedModel({"a": [there, there], "b": [back, DONE]}) as server:
        model = chat_model(server)
        a = create_agent(model, [create_handoff_tool(agent_name="b")], system_prompt="You are a.", name="a")
        b = create_agent(model, [create_handoff_tool(agent_name="a")], system_prompt="You are b.", name="b")
        traced(create_swarm([a, b], default_active_agent="a").compile()).invoke({"messages": [HumanMessage("hello")]})
    ends = [(s.attributes["baton.handoff.from_agent"], s.attributes["baton.handoff.to_agent"]) for s in spans.handoffs()]
    assert ends == [("a", "b"), ("b", "a"), ("a", "b")]
    assert [numbers(s)["items_before"] for s in spans.handoffs()] == [2, 4, 6]
    assert [numbers(s)["items_after"] for s in spans.handoffs()] == [3, 5, 7]


def test_runs_side_by_side_do_not_mix(spans):
    runs = 8
    with ScriptedModel({"a": [Turn(calls=[(TRANSFER, {})])] * runs, "b": [DONE] * runs}) as server:
        model = chat_model(server)
        a = create_agent(model, [create_handoff_tool(agent_name="b")], system_prompt="You are a.", name="a")
        b = create_agent(model, [], system_prompt="You are b.", name="b")
        graph = traced(create_swarm([a, b], default_active_agent="a", state_schema=State).compile())
        start = [
            {"messages": [HumanMessage(f"run {i}")], "hard_constraints": [Constraint(f"rule-{i}", f"Rule {i}")]}
            for i in range(runs)
        ]
        graph.batch(start)
    found = {s.attributes["baton.handoff.state.constraints.ids"] for s in spans.handoffs()}
    assert found == {(f"rule-{i}",) for i in range(runs)}
    assert len({s.context.trace_id for s in spans.handoffs()}) == runs
    assert all(numbers(s) == {"items_before": 2, "items_after": 3, "filtered_count": 0} for s in spans.handoffs())


def test_a_state_that_is_an_object(spans):
    @dataclasses.dataclass
    class Typed:
        messages: Annotated[list, add_messages]
        constraints: list

    with ScriptedModel({"a": [DONE], "b": [DONE]}) as server:
        model = chat_model(server)

        def first(state):
            return Command(goto="b", update={"messages": [model.invoke([("system", "You are a."), *state.messages])]})

        def second(state):
            return {"messages": [model.invoke([("system", "You are b."), *state.messages])]}

        graph = StateGraph(Typed)
        graph.add_node("a", first, destinations=("b",))
        graph.add_node("b", second)
        graph.add_edge(START, "a")
        traced(graph.compile()).invoke(Typed([HumanMessage("hello")], [RULE]))
    assert spans.handoff().attributes["baton.handoff.state.constraints.ids"] == (RULE.id,)


def test_a_jump_to_a_node_that_is_no_agent_is_no_handoff(spans):
    with ScriptedModel({"a": [Turn("Done.")]}) as server:
        plain_graph(server, b=lambda state: {"seen": ["b"]}).invoke(START_STATE)
    assert spans.handoffs() == []


def test_a_pause_is_no_failure(spans):
    def second(state):
        interrupt("may I?")

    with ScriptedModel({"a": [Turn("Over to b.")]}) as server:
        plain_graph(server, b=second).invoke(START_STATE)
    assert {s.status.status_code for s in spans.all()} == {StatusCode.UNSET}


def test_a_failure_is_told_and_raises_as_it_did(spans):
    def second(state):
        raise KeyError("a secret")

    with ScriptedModel({"a": [Turn("Over to b.")]}) as server, pytest.raises(KeyError):
        plain_graph(server, b=second).invoke(START_STATE)
    (root,) = [s for s in spans.all() if s.name == "invoke_workflow plain"]
    assert (root.status.status_code, root.attributes["error.type"]) == (StatusCode.ERROR, "KeyError")
    assert not any("secret" in s.to_json() for s in spans.all())


def test_sending_to_nodes(spans):
    def first(state):
        return Command(goto=[Send("b", {"messages": [HumanMessage("for b")], "intent": "go", "status": "x"})])

    with ScriptedModel({"b": [DONE]}) as server:
        plain_graph(server, a=first).invoke(START_STATE)
    span = spans.handoff()
    assert span.attributes["baton.handoff.from_agent"] == "a"
    assert span.attributes["baton.handoff.contract.fields"] == ("intent", "status")
    # No model ran before: what the sender's context held is not known.
    assert numbers(span) == {"items_after": 1}


def test_a_second_turn_on_a_thread_reads_the_durable_state(spans):
    script = {"a": [Turn("Which order?"), Turn(calls=[(TRANSFER, {})])], "b": [DONE]}
    with ScriptedModel(script) as server:
        model = chat_model(server)
        a = create_agent(model, [create_handoff_tool(agent_name="b")], system_prompt="You are a.", name="a")
        b = create_agent(model, [], system_prompt="You are b.", name="b")
        swarm = create_swarm([a, b], default_active_agent="a", state_schema=State)
        graph = traced(swarm.compile(checkpointer=InMemorySaver()))
        config = {"configurable": {"thread_id": "t"}}
        graph.invoke({"messages": [HumanMessage("hello")], "hard_constraints": [RULE]}, config)
        graph.invoke({"messages": [HumanMessage("order-4711")]}, config)
    assert numbers(spans.handoff())["items_before"] == 4


def test_a_node_that_holds_an_agent_of_another_name(spans):
    with ScriptedModel({"a": [Turn(calls=[("transfer_to_desk", {})])], "b": [DONE]}) as server:
        model = chat_model(server)
        a = create_agent(model, [create_handoff_tool(agent_name="desk")], system_prompt="You are a.", name="a")
        b = create_agent(model, [], system_prompt="You are b.", name="b")
        graph = StateGraph(MessagesState)
        graph.add_node("a", a, destinations=("desk",))
        graph.add_node("desk", b)
        graph.add_edge(START, "a")
        traced(graph.compile(name="team")).invoke({"messages": [HumanMessage("hello")]})
    assert spans.handoff().attributes["baton.handoff.to_agent"] == "b"


def test_a_transfer_that_nobody_takes_ends_without_an_outcome(spans):
    @wrap_tool_call
    def forget(request, handler):
        handler(request)
        return ToolMessage("not today", tool_call_id=request.tool_call["id"])

    with ScriptedModel({"a": [Turn(calls=[(TRANSFER, {})]), DONE]}) as server:
        a = create_agent(
            chat_model(server), [create_handoff_tool(agent_name="b")], system_prompt="You are a.", name="a", middleware=[forget]
        )
        traced(a).invoke({"messages": [HumanMessage("hello")]})
    span = spans.handoff()
    assert "baton.handoff.outcome" not in span.attributes
    assert numbers(span) == {"items_before": 2}


def test_content_is_opt_in(spans):
    swarm(handoff_tool("b"), transfer=Turn(calls=[(TRANSFER, {"contract": CONTRACT})]), capture_content=True)
    assert json.loads(spans.handoff().attributes["baton.handoff.contract"])["contract"]["intent"] == "Refund"
    (tool,) = [s for s in spans.all() if s.name == "execute_tool look"]
    assert json.loads(tool.attributes["gen_ai.tool.call.arguments"]) == {"at": "order-4711"}
    assert tool.attributes["gen_ai.tool.call.result"] == "seen order-4711 in shelf 12-B"


def test_a_broken_state_does_not_reach_the_graph(spans):
    def broken(state):
        raise RuntimeError("no state")

    result, _ = swarm(create_handoff_tool(agent_name="b"), state=broken)
    assert result["messages"][-1].content == "Done."
    assert "baton.handoff.state.constraints.ids" not in spans.handoff().attributes
    from baton_handoff import _safe

    assert len(_safe._told) == 1
    _safe._told.clear()


def test_nothing_is_kept_after_a_run(spans):
    callback = HandoffCallback()
    with ScriptedModel({"a": [DONE, DONE]}) as server:
        agent = create_agent(chat_model(server), [], system_prompt="You are a.", name="a")
        for _ in range(2):
            agent.invoke({"messages": [AIMessage("x")]}, {"callbacks": [callback]})
    assert (callback._runs, len(callback._roots)) == ({}, 0)


def test_wrong_arguments_are_refused_when_it_is_made():
    with pytest.raises(TypeError, match="graph"):
        traced(5)
    with pytest.raises(TypeError, match="state"):
        HandoffCallback(state=5)
    with pytest.raises(ValueError, match="spans"):
        HandoffCallback(spans="some")
    with pytest.raises(ValueError, match="agent_name"):
        handoff_tool(" ")
    with pytest.raises(TypeError, match="history_filter"):
        handoff_tool("b", history_filter=5)
    assert trace.get_current_span() is trace.INVALID_SPAN
