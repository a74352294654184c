"""The refund case with LangGraph: a swarm of two agents.

python examples/langgraph_refund.py good
python examples/langgraph_refund.py weak
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_openai import ChatOpenAI
from langgraph_swarm import SwarmState, create_swarm
from pydantic import SecretStr

import refund_case as case
from baton_handoff.langgraph import handoff_tool, traced
from scripted_model import ScriptedModel, Turn


class State(SwarmState):
    """The graph's state: what is durable in it outlives every filter of the messages."""

    hard_constraints: list[Any]


def the_request_and_the_transfer(messages: list[BaseMessage]) -> Iterable[BaseMessage]:
    """A filter that keeps what the user said, and the transfer with its contract."""
    return [*(m for m in messages if isinstance(m, HumanMessage)), *messages[-2:]]


def only_what_the_user_said(messages: list[BaseMessage]) -> Iterable[BaseMessage]:
    """A filter that loses the note of the weak version."""
    return [m for m in messages if isinstance(m, HumanMessage) or (isinstance(m, AIMessage) and not m.tool_calls)]


def run(good: bool) -> str:
    transfer = Turn(calls=[("transfer_to_refunds_specialist", {"contract": case.CONTRACT if good else case.NOTE})])
    with ScriptedModel(case.script(transfer, good)) as server:
        model = ChatOpenAI(model="gpt-4.1-mini", base_url=server.base_url, api_key=SecretStr("none"))
        if good:
            handover = handoff_tool("refunds_specialist", history_filter=the_request_and_the_transfer)
        else:
            handover = handoff_tool("refunds_specialist", input_type=str, history_filter=only_what_the_user_said)
        lookups: list[Any] = [case.verify_identity, case.get_order, case.get_payment_log]
        triage = create_agent(model, [*lookups, handover], system_prompt=case.TRIAGE, name="triage")
        specialist = create_agent(model, [*lookups, case.issue_refund], system_prompt=case.SPECIALIST, name="refunds_specialist")
        swarm = create_swarm([triage, specialist], default_active_agent="triage", state_schema=State)
        graph = traced(swarm.compile(name="refund"))
        start: Any = {"messages": [HumanMessage(case.REQUEST)], "hard_constraints": case.RULES}
        return str(graph.invoke(start)["messages"][-1].content)


def main(version: str = "good") -> None:
    provider = case.set_up_tracing("refund-langgraph")
    print(run(version == "good"))
    provider.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
