"""Handoffs of the OpenAI Agents SDK.

`instrument()` records every handoff of the SDK. `contract_handoff()` is the SDK's own `handoff()`, which also tells the
contract and the constraints of the durable state.
"""

from __future__ import annotations

import functools
import inspect
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import agents
from agents import Agent, HandoffInputData, RunContextWrapper
from agents import Handoff as SdkHandoff
from agents.items import HandoffOutputItem
from agents.tracing import (
    AgentSpanData,
    FunctionSpanData,
    GenerationSpanData,
    HandoffSpanData,
    ResponseSpanData,
    Span,
    Trace,
    TracingProcessor,
    add_trace_processor,
    get_current_span,
    get_trace_provider,
)
from opentelemetry import context as otel_context
from opentelemetry import trace as otel
from opentelemetry.context import Context
from opentelemetry.trace import SpanKind, Status, StatusCode, TracerProvider
from opentelemetry.util.types import AttributeValue

from . import _attributes as attr
from . import _semconv as gen_ai
from ._content import allowed
from ._handoff import Handoff, Payload, current_task, get_tracer, mark_received
from ._input import ConstraintInput, ContractInput
from ._others import Spans, check_spans, is_instrumentation
from ._safe import guard
from ._state import StateSource, constraints_of
from .constraint import ConstraintSet
from .history import Tokenizer, as_mapping, held_in, json_text, texts_of

__all__ = ["ConstraintInput", "ContractInput", "HandoffProcessor", "contract_handoff", "instrument"]

_MAX_TRACES = 1000
_under_way: ContextVar[_Details | None] = ContextVar("baton_handoff_under_way", default=None)


@dataclass
class _Details:
    """What `contract_handoff` knows of a transfer under way."""

    to_agent: str
    tool_name: str
    payload: Payload | None = None
    state: ConstraintSet | None = None
    reason: str | None = None
    priority: str | None = None
    capture_content: bool | None = None
    tokenizer: Tokenizer | None = None
    # As an input filter got and gave them: for runs whose traces hold no content.
    before: list[Any] | None = None
    after: list[Any] | None = None
    error: BaseException | None = None
    # Where nothing else writes the span.
    own: Handoff | None = None


@dataclass
class _Call:
    """A model call: what it read and what it said. `None`: the trace holds no content."""

    input: object = None
    output: object = None
    instructions: str | None = None
    previous_response_id: str | None = None
    server_managed: bool = False


@dataclass
class _Transfer:
    """A handoff of the SDK from its start until the receiver has read its history."""

    started_at: int | None
    parent: Context
    sender: _Node | None
    call: _Call | None
    details: _Details | None = None
    handoff: Handoff | None = None


@dataclass
class _Node:
    """A span of the SDK that is open."""

    parent: _Node | None
    parent_id: str | None
    agent: str | None = None
    span: otel.Span | None = None
    token: object = None
    last_call: _Call | None = None
    # The transfer that made this agent run, until its first model call.
    transfer: _Transfer | None = None

    @property
    def agent_node(self) -> _Node | None:
        """The agent that this span belongs to."""
        node: _Node | None = self
        while node is not None and node.agent is None:
            node = node.parent
        return node

    @property
    def written(self) -> otel.Span | None:
        """The nearest span of ours."""
        node: _Node | None = self
        while node is not None and node.span is None:
            node = node.parent
        return node.span if node is not None else None


@dataclass
class _Run:
    """A trace of the SDK that is open."""

    root: _Node
    ambient: otel.Span
    conversation_id: str | None
    writes_all: bool
    nodes: dict[str, _Node] = field(default_factory=dict)
    transfers: dict[str, _Transfer] = field(default_factory=dict)
    waiting: list[_Transfer] = field(default_factory=list)


class HandoffProcessor(TracingProcessor):
    """Turns the SDK's handoff spans into handoff spans of OpenTelemetry, with the history before and after.

    Before is the input and output of the sender's last model call, after the input of the receiver's first one. Both are
    in the SDK's traces unless `trace_include_sensitive_data` is off; then they are known only where an input filter of a
    `contract_handoff` saw them. A run whose history the server keeps (`previous_response_id`, `conversation_id`) is marked,
    and its history is not known.

    Args:
        spans: Which spans are written.
        capture_content: Whether contracts and the arguments and results of tools may stand on spans. `None`: what
            `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` says, else no.
        tokenizer: Counts tokens. `None`: `o200k_base` where the extra `tokens` is installed.
        tracer_provider: Where spans go. `None`: the global one.

    Raises:
        ValueError: `spans` is none of its values.
    """

    def __init__(
        self,
        *,
        spans: Spans = "auto",
        capture_content: bool | None = None,
        tokenizer: Tokenizer | None = None,
        tracer_provider: TracerProvider | None = None,
    ) -> None:
        check_spans(spans)
        self._spans = spans
        self._capture_content = capture_content
        self._tokenizer = tokenizer
        self._provider = tracer_provider
        self._runs: OrderedDict[str, _Run] = OrderedDict()
        self._lock = threading.RLock()

    def on_trace_start(self, trace: Trace) -> None:
        """Opens the workflow."""
        with guard("HandoffProcessor.on_trace_start"), self._lock:
            writes_all = self._spans == "all" or (self._spans == "auto" and not _others())
            group = getattr(trace, "group_id", None)
            run = _Run(_Node(None, None), otel.get_current_span(), group, writes_all)
            self._runs[trace.trace_id] = run
            if writes_all:
                attributes = {gen_ai.OPERATION: "invoke_workflow", gen_ai.WORKFLOW: trace.name}
                self._open(run, run.root, f"invoke_workflow {trace.name}", attributes, None)
            while len(self._runs) > _MAX_TRACES:
                # Traces that never end, as those of cancelled runs.
                self._close(self._runs.popitem(last=False)[1])

    def on_trace_end(self, trace: Trace) -> None:
        """Closes the workflow."""
        with guard("HandoffProcessor.on_trace_end"), self._lock:
            run = self._runs.pop(trace.trace_id, None)
            if run is not None:
                self._close(run)

    def on_span_start(self, span: Span[Any]) -> None:
        """Opens an agent, a model call, a tool or a handoff."""
        with guard("HandoffProcessor.on_span_start"), self._lock:
            run = self._runs.get(span.trace_id)
            if run is None:
                return
            parent = run.nodes.get(span.parent_id or "", run.root)
            node = run.nodes[span.span_id] = _Node(parent, span.parent_id)
            data, at = span.span_data, _nanoseconds(span.started_at)
            if isinstance(data, AgentSpanData):
                node.agent = data.name
                self._take(run, node)
                self._open(run, node, f"invoke_agent {data.name}", {gen_ai.OPERATION: "invoke_agent"}, at)
            elif isinstance(data, (ResponseSpanData, GenerationSpanData)):
                self._open(run, node, "chat", {gen_ai.OPERATION: "chat"}, at, SpanKind.CLIENT)
            elif isinstance(data, FunctionSpanData):
                attributes = {gen_ai.OPERATION: "execute_tool", gen_ai.TOOL: data.name}
                self._open(run, node, f"execute_tool {data.name}", attributes, at)
            elif isinstance(data, HandoffSpanData):
                sender = node.agent_node
                own = node.written
                where = otel_context.get_current() if own is None else otel.set_span_in_context(own)
                call = sender.last_call if sender is not None else None
                run.transfers[span.span_id] = _Transfer(at, where, sender, call)

    def on_span_end(self, span: Span[Any]) -> None:
        """Closes it."""
        with guard("HandoffProcessor.on_span_end"), self._lock:
            run = self._runs.get(span.trace_id)
            node = run.nodes.pop(span.span_id, None) if run is not None else None
            if run is None or node is None:
                return
            data = span.span_data
            with guard("HandoffProcessor"):
                if isinstance(data, (ResponseSpanData, GenerationSpanData)):
                    self._called(run, node, data)
                elif isinstance(data, HandoffSpanData):
                    self._handed_over(run, span, data)
                elif isinstance(data, AgentSpanData) and node.transfer is not None:
                    # It ended without a model call.
                    self._settle(node.transfer)
                elif isinstance(data, FunctionSpanData) and node.span is not None and allowed(self._capture_content):
                    for key, value in ((gen_ai.TOOL_ARGUMENTS, data.input), (gen_ai.TOOL_RESULT, data.output)):
                        text = json_text(value)
                        if text is not None and value is not None:
                            node.span.set_attribute(key, text)
            self._end(node, span)

    def shutdown(self) -> None:
        """Closes what is open."""
        with guard("HandoffProcessor.shutdown"), self._lock:
            while self._runs:
                self._close(self._runs.popitem()[1])

    def force_flush(self) -> None:
        """Does nothing: the tracer provider's processors hold the spans."""

    def _tell(self, native_id: str, details: _Details) -> bool:
        """Takes what `contract_handoff` knows; false where this processor sees nothing of the handoff."""
        with self._lock:
            for run in reversed(self._runs.values()):
                transfer = run.transfers.get(native_id)
                if transfer is not None:
                    transfer.details = details
                    return True
        return False

    def _open(
        self,
        run: _Run,
        node: _Node,
        name: str,
        attributes: Mapping[str, AttributeValue],
        at: int | None,
        kind: SpanKind = SpanKind.INTERNAL,
    ) -> None:
        if not run.writes_all:
            return
        above = node.parent.written if node.parent is not None else None
        where = otel_context.get_current() if above is None else otel.set_span_in_context(above)
        owner = node.agent_node
        said: dict[str, AttributeValue | None] = {
            **attributes,
            gen_ai.AGENT: owner.agent if owner is not None else None,
            gen_ai.CONVERSATION: run.conversation_id,
            attr.BATON_TASK_ID: current_task(where),
        }
        known = {k: v for k, v in said.items() if v is not None}
        node.span = get_tracer(self._provider).start_span(name, where, kind, known, start_time=at)
        node.token = otel_context.attach(otel.set_span_in_context(node.span))

    def _end(self, node: _Node, span: Span[Any] | None) -> None:
        if node.span is None:
            return
        if node.token is not None:
            otel_context.detach(node.token)  # type: ignore[arg-type]
            node.token = None
        if span is not None and span.error is not None:
            node.span.set_status(Status(StatusCode.ERROR))
        node.span.end(_nanoseconds(span.ended_at) if span is not None else None)
        node.span = None

    def _close(self, run: _Run) -> None:
        waiting = [*run.waiting, *(n.transfer for n in run.nodes.values() if n.transfer is not None)]
        for transfer in waiting:
            self._settle(transfer)
        for node in [*reversed(run.nodes.values()), run.root]:
            self._end(node, None)

    def _take(self, run: _Run, node: _Node) -> None:
        """An agent starts: is it the receiver of a transfer of the same run?"""
        for transfer in run.waiting:
            sender = transfer.sender
            if (
                transfer.handoff is not None
                and transfer.handoff.to_agent == node.agent
                and (sender is None or sender.parent_id == node.parent_id)
            ):
                run.waiting.remove(transfer)
                node.transfer = transfer
                transfer.handoff.accept()
                return

    def _called(self, run: _Run, node: _Node, data: ResponseSpanData | GenerationSpanData) -> None:
        """A model call ended."""
        call = _call_of(data)
        owner = node.agent_node
        transfer = None
        if owner is not None:
            owner.last_call = call
            transfer, owner.transfer = owner.transfer, None
        if node.span is not None:
            self._describe(node.span, data, call)
        if transfer is None or transfer.handoff is None:
            return
        if call.previous_response_id is not None:
            # The server begins to keep the history with this very call.
            transfer.handoff.continues(call.previous_response_id)
        if call.input is not None and not call.server_managed:
            transfer.handoff.after(call.input)
            sought = [*(transfer.handoff.constraints or ()), *(transfer.handoff.state or ())]
            known = transfer.handoff.constraints is not None or transfer.handoff.state is not None
            where = node.span or otel.get_current_span()
            # The application's own span around the run is no span of the receiver.
            if known and where is not run.ambient:
                texts = [*texts_of(call.input), *([call.instructions] if call.instructions else [])]
                mark_received(held_in(ConstraintSet(sought), texts), where)
        self._settle(transfer)

    def _describe(self, span: otel.Span, data: ResponseSpanData | GenerationSpanData, call: _Call) -> None:
        response = data.response if isinstance(data, ResponseSpanData) else None
        model = response.model if response is not None else getattr(data, "model", None)
        usage = data.usage or {}
        if response is not None and response.usage is not None:
            usage = {"input_tokens": response.usage.input_tokens, "output_tokens": response.usage.output_tokens}
        said: dict[str, AttributeValue | None] = {
            gen_ai.MODEL: model,
            gen_ai.RESPONSE_ID: response.id if response is not None else None,
            gen_ai.PREVIOUS_RESPONSE_ID: call.previous_response_id,
            gen_ai.INPUT_TOKENS: usage.get("input_tokens"),
            gen_ai.OUTPUT_TOKENS: usage.get("output_tokens"),
        }
        if call.output is not None:
            said[gen_ai.FINISH_REASONS] = ["tool_calls" if _tool_calls(call.output) else "stop"]
        if model:
            span.update_name(f"chat {model}")
        for key, value in said.items():
            if value is not None:
                span.set_attribute(key, value)

    def _handed_over(self, run: _Run, span: Span[Any], data: HandoffSpanData) -> None:
        """The SDK has made a handoff, or failed to."""
        transfer = run.transfers.pop(span.span_id, None)
        if transfer is None:
            return
        details = transfer.details
        to_agent = data.to_agent or (details.to_agent if details is not None else None)
        if not to_agent or not data.from_agent:
            return
        tool = details.tool_name if details is not None else _default_tool_name(to_agent)
        asked = next((c for c in _tool_calls(transfer.call and transfer.call.output) if c.get("name") == tool), None)
        requested = [a for a in _requested(span) if a != to_agent]
        h = transfer.handoff = self._handoff(run, transfer, data.from_agent, to_agent, tool, asked)
        if details is None and asked is not None:
            h.payload(_arguments(str(asked.get("arguments") or "")))
        call = transfer.call
        if call is not None and call.input is not None and not call.server_managed:
            h.before([*_listed(call.input), *_listed(call.output)])
        elif details is not None and details.before is not None:
            h.before(details.before)
        if details is not None and details.after is not None:
            h.after(details.after)
        if data.to_agent is None:
            # The SDK tells the receiver once the handoff is made.
            error = details.error if details is not None else None
            h.fail(error if error is not None else "the handoff was not made")
            h.end(_nanoseconds(span.ended_at))
        else:
            run.waiting.append(transfer)
        for other in requested:
            name = _default_tool_name(other)
            ignored = next((c for c in _tool_calls(call and call.output) if c.get("name") == name), None)
            refused = self._handoff(run, transfer, data.from_agent, other, name, ignored, own=False)
            if ignored is not None:
                refused.payload(_arguments(str(ignored.get("arguments") or "")))
            refused.refuse("another handoff of the same turn was taken")
            refused.end(_nanoseconds(span.ended_at))

    def _handoff(
        self,
        run: _Run,
        transfer: _Transfer,
        from_agent: str,
        to_agent: str,
        tool_name: str,
        asked: Mapping[str, Any] | None,
        own: bool = True,
    ) -> Handoff:
        details = (transfer.details if own else None) or _Details(to_agent, tool_name)
        content = self._capture_content if details.capture_content is None else details.capture_content
        return Handoff(
            from_agent,
            to_agent,
            state=details.state,
            payload=details.payload,
            reason=details.reason,
            priority=details.priority,
            tool_name=tool_name,
            tool_call_id=str(asked["call_id"]) if asked is not None and asked.get("call_id") else None,
            conversation_id=run.conversation_id,
            previous_response_id=transfer.call.previous_response_id if transfer.call is not None else None,
            capture_content=content,
            tokenizer=details.tokenizer or self._tokenizer,
            tracer=get_tracer(self._provider),
            parent=transfer.parent,
            start_time=transfer.started_at,
        )

    def _settle(self, transfer: _Transfer) -> None:
        if transfer.handoff is not None:
            transfer.handoff.end()


_installed: HandoffProcessor | None = None


def instrument(
    *,
    spans: Spans = "auto",
    capture_content: bool | None = None,
    tokenizer: Tokenizer | None = None,
    tracer_provider: TracerProvider | None = None,
) -> HandoffProcessor:
    """Records the handoffs of the SDK from now on.

    To be called after other instrumentations, since some of them replace what was there. A second call replaces the first.

    Args:
        spans: Which spans are written.
        capture_content: Whether contracts and the arguments and results of tools may stand on spans. `None`: what
            `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` says, else no.
        tokenizer: Counts tokens. `None`: `o200k_base` where the extra `tokens` is installed.
        tracer_provider: Where spans go. `None`: the global one.

    Raises:
        ValueError: `spans` is none of its values.
    """
    global _installed  # noqa: PLW0603
    processor = HandoffProcessor(spans=spans, capture_content=capture_content, tokenizer=tokenizer, tracer_provider=tracer_provider)
    with guard("instrument"):
        others = [p for p in _processors() if not isinstance(p, HandoffProcessor)]
        if len(others) == len(_processors()):
            add_trace_processor(processor)
        else:
            get_trace_provider().set_processors([*others, processor])
        _installed = processor
    return processor


def contract_handoff(
    agent: Agent[Any],
    *,
    input_type: type[Any] | None = ContractInput,
    on_handoff: Callable[..., Any] | None = None,
    input_filter: Callable[[HandoffInputData], Any] | None = None,
    state: StateSource[RunContextWrapper[Any]] = None,
    payload: Callable[[RunContextWrapper[Any], str], Payload | None] | None = None,
    reason: str | None = None,
    priority: str | None = None,
    capture_content: bool | None = None,
    tokenizer: Tokenizer | None = None,
    **options: Any,
) -> SdkHandoff[Any, Agent[Any]]:
    """The SDK's `handoff()`, whose span tells the contract and the constraints of the durable state.

    Input type, input filter and `on_handoff` work as they do there.

    Args:
        agent: The receiver.
        input_type: Type of the transfer tool's arguments; `ContractInput` asks the model for the six fields. `None`: the
            tool takes no arguments.
        on_handoff: As in the SDK. May be left out with an input type.
        input_filter: As in the SDK.
        state: Where the constraints of the durable state are: a function of the `RunContextWrapper`, or a key or attribute
            of its `context`. `None`: `constraints` or `hard_constraints` of the context.
        payload: Gives what is handed over, from the `RunContextWrapper` and the arguments as JSON, where it is not the
            arguments.
        reason: Why the work is handed over. `None`: the argument `reason`, where there is one.
        priority: How urgent it is.
        capture_content: Whether the contract's text may stand on the span. `None`: as for `instrument()`.
        tokenizer: Counts tokens. `None`: as for `instrument()`.
        options: The other arguments of the SDK's `handoff()`: `tool_name_override`, `tool_description_override`,
            `nest_handoff_history`, `is_enabled`.

    Raises:
        agents.UserError: The SDK refuses an argument.
        TypeError: `state` or `payload` is of a wrong type.
    """
    if payload is not None and not callable(payload):
        raise TypeError("payload: is no function")
    if state is not None and not callable(state) and not isinstance(state, str):
        raise TypeError(f"state: a {type(state).__name__} is neither a function nor a name")
    if input_type is not None and on_handoff is None:
        on_handoff = _accept
    observed = None if input_filter is None else _observe(input_filter)
    make: Callable[..., SdkHandoff[Any, Agent[Any]]] = agents.handoff
    made = make(agent, input_type=input_type, on_handoff=on_handoff, input_filter=observed, **options)
    invoke = made.on_invoke_handoff

    async def on_invoke_handoff(ctx: RunContextWrapper[Any], arguments: str) -> Agent[Any]:
        details: _Details | None = None
        with guard("contract_handoff"):
            # Before the application's own function, which may write to the state.
            details = _Details(
                to_agent=agent.name,
                tool_name=made.tool_name,
                payload=_arguments(arguments) if payload is None else payload(ctx, arguments),
                state=constraints_of(state, ctx, ctx.context),
                reason=reason or _argument(arguments, "reason"),
                priority=priority or _argument(arguments, "priority"),
                capture_content=capture_content,
                tokenizer=tokenizer,
            )
            native = get_current_span()
            _under_way.set(details)
            if native is None or _installed is None or not _installed._tell(native.span_id, details):
                details.own = _alone(native, details)
        try:
            result = await invoke(ctx, arguments)
        except BaseException as error:
            if details is not None:
                details.error = error
                if details.own is not None:
                    details.own.fail(error)
                    details.own.end()
            raise
        if details is not None and details.own is not None and observed is None:
            details.own.end()
        return result

    made.on_invoke_handoff = on_invoke_handoff
    return made


def _accept(ctx: RunContextWrapper[Any], given: Any) -> None:
    """The SDK wants a function beside an input type."""


def _alone(native: Span[Any] | None, details: _Details) -> Handoff | None:
    """The span where no processor sees the handoff: `instrument()` was not called, or the SDK's tracing is off."""
    data = native.span_data if native is not None else None
    if not isinstance(data, HandoffSpanData) or not data.from_agent:
        return None
    return Handoff(
        data.from_agent,
        details.to_agent,
        state=details.state,
        payload=details.payload,
        reason=details.reason,
        priority=details.priority,
        tool_name=details.tool_name,
        capture_content=details.capture_content,
        tokenizer=details.tokenizer,
    )


def _observe(input_filter: Callable[[HandoffInputData], Any]) -> Callable[[HandoffInputData], Any]:
    """The same filter, of which is told what it got and what it gave."""

    def record(data: HandoffInputData, result: Any) -> Any:
        with guard("contract_handoff.input_filter"):
            details = _under_way.get()
            if details is not None:
                said = [i for i in data.new_items if not isinstance(i, HandoffOutputItem)]
                details.before = [*_listed(data.input_history), *data.pre_handoff_items, *said]
                new = result.new_items if result.input_items is None else result.input_items
                details.after = [*_listed(result.input_history), *result.pre_handoff_items, *new]
                if details.own is not None:
                    details.own.before(details.before)
                    details.own.after(details.after)
                    details.own.end()
        return result

    @functools.wraps(input_filter)
    def wrapper(data: HandoffInputData) -> Any:
        result = input_filter(data)
        if not inspect.isawaitable(result):
            return record(data, result)

        async def later() -> Any:
            return record(data, await result)

        return later()

    return wrapper


def _call_of(data: ResponseSpanData | GenerationSpanData) -> _Call:
    if isinstance(data, GenerationSpanData):
        return _Call(data.input, data.output)
    response = data.response
    if response is None:
        return _Call(data.input)
    instructions = response.instructions if isinstance(response.instructions, str) else None
    previous = response.previous_response_id
    conversation = getattr(response, "conversation", None)
    managed = previous is not None or conversation is not None
    return _Call(data.input, response.output, instructions, previous, managed)


def _tool_calls(output: object) -> list[dict[str, Any]]:
    """The function calls of a model's answer, with `name`, `arguments` and `call_id`."""
    found: list[dict[str, Any]] = []
    for message in map(as_mapping, _listed(output)):
        if message.get("type") == "function_call":
            found.append({k: message.get(k) for k in ("name", "arguments", "call_id")})
        calls = message.get("tool_calls")
        for call in map(as_mapping, calls if isinstance(calls, list) else []):
            function = call.get("function")
            if isinstance(function, Mapping):
                found.append({**function, "call_id": call.get("id")})
    return found


def _listed(messages: object) -> list[Any]:
    if messages is None:
        return []
    return list(messages) if isinstance(messages, (list, tuple)) else [messages]


def _requested(span: Span[Any]) -> list[str]:
    """Where a turn asked for several handoffs: the names of all their receivers."""
    data = span.error.get("data") if span.error is not None else None
    names = data.get("requested_agents") if isinstance(data, Mapping) else None
    return [str(n) for n in names] if isinstance(names, list) else []


def _default_tool_name(agent: str) -> str:
    return SdkHandoff.default_tool_name(Agent(name=agent))


def _arguments(text: str) -> Payload:
    try:
        parsed = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return text
    return parsed if isinstance(parsed, dict) else text


def _argument(text: str, name: str) -> str | None:
    arguments = _arguments(text)
    value = arguments.get(name) if isinstance(arguments, dict) else None
    return value.strip() or None if isinstance(value, str) else None


def _nanoseconds(at: str | None) -> int | None:
    if at is None:
        return None
    return int(datetime.fromisoformat(at).timestamp() * 1_000_000) * 1000


def _processors() -> tuple[TracingProcessor, ...]:
    """The SDK's processors. It has no public list of them."""
    multi = getattr(get_trace_provider(), "_multi_processor", None)
    return tuple(getattr(multi, "_processors", ()))


def _others() -> bool:
    """Whether another instrumentation writes the SDK's spans to OpenTelemetry."""
    present = [get_trace_provider(), *_processors()]
    return any(is_instrumentation(p) for p in present)
