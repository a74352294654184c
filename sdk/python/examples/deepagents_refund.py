"""The refund case with Deep Agents: triage delegates to a sub-agent and waits for it.

python examples/deepagents_refund.py good
python examples/deepagents_refund.py weak
"""

from __future__ import annotations

import json
import sys
from typing import Any

from deepagents import create_deep_agent
from langchain.agents import AgentState
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI
from pydantic import SecretStr
from typing_extensions import NotRequired

import refund_case as case
from baton_handoff.deepagents import traced
from scripted_model import ScriptedModel, Turn


class State(AgentState[Any]):
    """The agent's state: it reaches sub-agents whatever the delegation says."""

    hard_constraints: NotRequired[list[Any]]


class Rules(AgentMiddleware[State, None, Any]):
    """Adds the rules to the state."""

    state_schema = State


def run(good: bool) -> str:
    description = f"Refund. The contract:\n{json.dumps(case.CONTRACT)}" if good else case.NOTE
    transfer = Turn(calls=[("task", {"subagent_type": "refunds_specialist", "description": description})])
    script = case.script(transfer, good)
    script["triage"].append(case.DONE)
    with ScriptedModel(script) as server:
        model = ChatOpenAI(model="gpt-4.1-mini", base_url=server.base_url, api_key=SecretStr("none"))
        lookups: list[Any] = [case.verify_identity, case.get_order, case.get_payment_log]
        specialist: Any = {
            "name": "refunds_specialist",
            "description": "Carries out refunds.",
            "system_prompt": case.SPECIALIST,
            "tools": [*lookups, case.issue_refund],
        }
        triage = create_deep_agent(
            model=model, tools=lookups, system_prompt=case.TRIAGE, subagents=[specialist], middleware=[Rules()], name="triage"
        )
        start: Any = {"messages": [HumanMessage(case.REQUEST)], "hard_constraints": case.RULES}
        return str(traced(triage).invoke(start)["messages"][-1].content)


def main(version: str = "good") -> None:
    provider = case.set_up_tracing("refund-deepagents")
    print(run(version == "good"))
    provider.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
