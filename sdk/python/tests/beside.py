"""Runs an example beside an instrumentation, in a process of its own, and prints its spans as JSON.

python beside.py openai_agents_refund good openinference
"""

import asyncio
import importlib
import inspect
import json
import pathlib
import sys

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "examples"))


INSTRUMENTORS = {
    ("openinference", True): ("openinference.instrumentation.openai_agents", "OpenAIAgentsInstrumentor"),
    ("openinference", False): ("openinference.instrumentation.langchain", "LangChainInstrumentor"),
    ("openllmetry", True): ("opentelemetry.instrumentation.openai_agents", "OpenAIAgentsInstrumentor"),
    ("openllmetry", False): ("opentelemetry.instrumentation.langchain", "LangchainInstrumentor"),
    ("official", True): ("opentelemetry.instrumentation.genai.openai_agents", "OpenAIAgentsInstrumentor"),
    ("official", False): ("opentelemetry.instrumentation.genai.langchain", "LangChainInstrumentor"),
}


def set_up_logfire(provider):
    import logfire

    logfire.configure(send_to_logfire=False, console=False, additional_span_processors=[provider])
    logfire.instrument_openai_agents()


def instrument(example, other, processor):
    """Instruments as an application would: theirs first, ours after."""
    agents_sdk = example.startswith("openai_agents")
    if agents_sdk:
        from agents import set_trace_processors

        # The SDK's own exporter sends to its maker.
        set_trace_processors([])
    if other == "logfire":
        set_up_logfire(processor)
    elif other != "none":
        module, name = INSTRUMENTORS[other, agents_sdk]
        getattr(importlib.import_module(module), name)().instrument()
    if agents_sdk:
        from baton_handoff.openai_agents import instrument

        instrument()


def main(example, version, other):
    exporter = InMemorySpanExporter()
    processor = SimpleSpanProcessor(exporter)
    if other != "logfire":
        provider = TracerProvider()
        provider.add_span_processor(processor)
        trace.set_tracer_provider(provider)
    instrument(example, other, processor)
    done = importlib.import_module(example).run(version == "good")
    if inspect.isawaitable(done):
        asyncio.run(done)
    spans = exporter.get_finished_spans()
    by_id = {s.context.span_id: s for s in spans}
    out = []
    for s in spans:
        above, up = [], s
        while up is not None:
            above.append(up.name)
            up = by_id.get(up.parent.span_id) if up.parent else None
        said = {"name": s.name, "scope": s.instrumentation_scope.name, "trace": f"{s.context.trace_id:032x}"}
        out.append({**said, "above": above, "attributes": dict(s.attributes)})
    json.dump(out, sys.stdout, default=str)


if __name__ == "__main__":
    main(*sys.argv[1:])
