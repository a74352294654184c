"""The refund case with the OpenAI Agents SDK.

python examples/openai_agents_refund.py good
python examples/openai_agents_refund.py weak
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass, field
from typing import Any

from agents import Agent, HandoffInputData, OpenAIResponsesModel, RunConfig, Runner, function_tool, set_trace_processors
from agents.extensions.handoff_filters import remove_all_tools
from openai import AsyncOpenAI

import refund_case as case
from baton_handoff import Constraint
from baton_handoff.openai_agents import contract_handoff, instrument
from scripted_model import ScriptedModel, Turn


@dataclass
class State:
    """The application's durable state: it reaches every agent of the run through `RunContextWrapper.context`."""

    constraints: list[Constraint] = field(default_factory=lambda: list(case.RULES))


@dataclass
class Note:
    """What the weak version hands over."""

    note: str


def only_the_request(data: HandoffInputData) -> HandoffInputData:
    """A filter that keeps what the user said, and the transfer with its contract."""
    return data.clone(pre_handoff_items=())


async def run(good: bool) -> str:
    transfer = Turn(calls=[("transfer_to_refunds_specialist", case.CONTRACT if good else {"note": case.NOTE})])
    with ScriptedModel(case.script(transfer, good)) as server:
        model = OpenAIResponsesModel("gpt-4.1-mini", AsyncOpenAI(base_url=server.base_url, api_key="none"))
        lookups: list[Any] = [function_tool(f) for f in (case.verify_identity, case.get_order, case.get_payment_log)]
        specialist = Agent[State](
            name="refunds_specialist",
            instructions=case.SPECIALIST,
            tools=[*lookups, function_tool(case.issue_refund)],
            model=model,
        )
        if good:
            handover = contract_handoff(specialist, input_filter=only_the_request, reason="a refund is asked for")
        else:
            handover = contract_handoff(specialist, input_type=Note, input_filter=remove_all_tools)
        triage = Agent[State](name="triage", instructions=case.TRIAGE, tools=lookups, handoffs=[handover], model=model)
        result = await Runner.run(triage, case.REQUEST, context=State(), run_config=RunConfig(workflow_name="refund"))
        return str(result.final_output)


def main(version: str = "good") -> None:
    provider = case.set_up_tracing("refund-openai-agents")
    # The SDK's own exporter sends to its maker.
    set_trace_processors([])
    instrument()
    print(asyncio.run(run(version == "good")))
    provider.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
