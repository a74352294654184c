"""The handoff span, and the receiver's side of it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib import metadata
from typing import Literal, TypeAlias, get_args

from opentelemetry import baggage, context, trace
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from . import _attributes as attr
from . import _semconv as gen_ai
from ._content import allowed
from ._safe import guard, guarded
from .constraint import ConstraintLike, ConstraintSet
from .contract import Contract, is_present, slug
from .history import Item, Tokenizer, default_tokenizer, filtered_count, held_in, items, json_text, measure, text_tokens

Mode: TypeAlias = Literal["pass_control", "return_to_caller", "hand_back"]
"""`pass_control`: the receiver goes on, the sender is done. `return_to_caller`: a delegation, the sender waits.
`hand_back`: the receiver is who delegated or transferred to the sender before."""

Payload: TypeAlias = "Contract | Mapping[str, object] | str"
"""What the sender puts into the transfer: a contract, the arguments of a transfer tool, or a text."""

try:
    _VERSION = metadata.version("baton-handoff")
except metadata.PackageNotFoundError:
    _VERSION = ""

_TRACE_CONTEXT = TraceContextTextMapPropagator()
_BAGGAGE = W3CBaggagePropagator()


def get_tracer(provider: TracerProvider | None = None) -> Tracer:
    """The tracer that writes the spans of this package."""
    return trace.get_tracer("baton_handoff", _VERSION, provider)


@dataclass(frozen=True)
class History:
    """The transcript on both sides of a transfer. A side that is `None` is not known.

    Attributes:
        before: Messages that the sender's context holds: the input of its last model call, and that call's output.
        after: Messages that the receiver gets.
    """

    before: Sequence[object] | None = None
    after: Sequence[object] | None = None


class Handoff:
    """A handoff under way: a span that is open.

    `handoff()` makes one. No method raises; what goes wrong inside is logged once.

    Attributes:
        id: `baton.handoff.id`.
        from_agent: The sender.
        to_agent: The receiver.
        span: The OpenTelemetry span.
        constraints: The active constraints that the payload carries. `None`: the payload is not known.
        state: The active constraints of the durable state. `None`: the state is not known.
    """

    def __init__(
        self,
        from_agent: str,
        to_agent: str,
        *,
        state: Iterable[ConstraintLike] | None = None,
        payload: Payload | None = None,
        history: History | None = None,
        mode: Mode = "pass_control",
        reason: str | None = None,
        priority: str | None = None,
        task_id: str | None = None,
        tool_name: str | None = None,
        tool_call_id: str | None = None,
        conversation_id: str | None = None,
        previous_response_id: str | None = None,
        capture_content: bool | None = None,
        tokenizer: Tokenizer | None = None,
        tracer: Tracer | None = None,
        parent: Context | None = None,
        start_time: int | None = None,
    ) -> None:
        _require("from_agent", from_agent)
        _require("to_agent", to_agent)
        for name, value in (("reason", reason), ("priority", priority), ("task_id", task_id), ("tool_name", tool_name)):
            if value is not None:
                _require(name, value)
        if mode not in get_args(Mode):
            raise ValueError(f"mode: {mode!r} is none of {', '.join(get_args(Mode))}")
        if history is not None and not isinstance(history, History):
            raise TypeError(f"history: a {type(history).__name__} is no History")
        if payload is not None and not isinstance(payload, (Contract, Mapping, str)):
            raise TypeError(f"payload: a {type(payload).__name__} is neither a Contract nor a mapping nor a text")
        self.state = None if state is None else ConstraintSet(state).active
        self.constraints: ConstraintSet | None = None
        self.id = uuid.uuid4().hex
        self.from_agent = from_agent
        self.to_agent = to_agent
        self._content = allowed(capture_content)
        self._tokenizer = tokenizer if tokenizer is not None else default_tokenizer()
        self._before: list[Item] | None = None
        self._after: list[Item] | None = None
        self._outcome: str | None = None
        self._ended = False
        task_id = task_id or current_task(parent)
        ids = baggage.set_baggage(attr.BATON_HANDOFF_ID, self.id, parent)
        self._baggage = ids if task_id is None else baggage.set_baggage(attr.BATON_TASK_ID, task_id, ids)
        verb = "delegate" if mode == "return_to_caller" else "transfer"
        tool = tool_name or f"{verb}_to_{slug(to_agent)}"
        attributes: dict[str, AttributeValue | None] = {
            gen_ai.OPERATION: "execute_tool",
            gen_ai.TOOL: tool,
            gen_ai.TOOL_CALL_ID: tool_call_id,
            gen_ai.AGENT: from_agent,
            # The convention knows no `hand_back`.
            gen_ai.TRANSFER_MODE: "return_to_caller" if mode == "return_to_caller" else "pass_control",
            gen_ai.TRANSFER_TARGET: to_agent,
            gen_ai.CONVERSATION: conversation_id,
            gen_ai.PREVIOUS_RESPONSE_ID: previous_response_id,
            attr.BATON_TASK_ID: task_id,
            attr.BATON_HANDOFF_ID: self.id,
            attr.BATON_HANDOFF_FROM_AGENT: from_agent,
            attr.BATON_HANDOFF_TO_AGENT: to_agent,
            attr.BATON_HANDOFF_MODE: mode,
            attr.BATON_HANDOFF_REASON: reason,
            attr.BATON_HANDOFF_PRIORITY: priority,
            attr.BATON_HANDOFF_STATE_CONSTRAINTS_IDS: None if self.state is None else self.state.ids,
        }
        self.span: Span = trace.INVALID_SPAN
        with guard("handoff span"):
            self.span = (tracer or get_tracer()).start_span(
                f"execute_tool {tool}",
                context=parent,
                kind=SpanKind.INTERNAL,
                attributes={k: v for k, v in attributes.items() if v is not None},
                start_time=start_time,
            )
        if payload is not None:
            self.payload(payload)
        if history is not None and history.before is not None:
            self.before(history.before)
        if history is not None and history.after is not None:
            self.after(history.after)

    @property
    def context(self) -> Context:
        """The OpenTelemetry context of what happens under it: its span is the current one, its ids are in the baggage."""
        if not self.span.get_span_context().is_valid:
            # Nothing records; what is under it stays where it was.
            return self._baggage
        return trace.set_span_in_context(self.span, self._baggage)

    @guarded
    def payload(self, payload: Payload) -> None:
        """Records what the sender put into the transfer."""
        contract = payload if isinstance(payload, Contract) else Contract.from_payload(payload)
        text = json_text(payload.to_dict() if isinstance(payload, Contract) else payload)
        fields = contract.fields if contract is not None else []
        if not fields and isinstance(payload, (str, Mapping)) and is_present(payload):
            fields = ["narrative"]
        rules = contract.constraint_set if contract is not None else ConstraintSet()
        carried = rules.active
        if self.state is not None and text is not None:
            # Free text carries a rule too, where it names it.
            ids = set(carried.ids)
            carried |= held_in([c for c in self.state if c.id not in ids], [text])
        self.constraints = carried
        self._set(attr.BATON_HANDOFF_CONTRACT_FIELDS, fields)
        self._set(attr.BATON_HANDOFF_CONSTRAINTS_IDS, carried.ids)
        self._set(attr.BATON_HANDOFF_CONSTRAINTS_HASHES, carried.hashes)
        self._set(attr.BATON_HANDOFF_CONSTRAINTS_HASH, carried.hash)
        if contract is not None:
            self._set(attr.BATON_HANDOFF_ARTIFACTS, contract.artifacts or None)
            self._set(attr.BATON_HANDOFF_ATTEMPTED_TOOLS, contract.tools or None)
            self._set(attr.BATON_HANDOFF_CONSTRAINTS_RETIRED, [c.id for c in rules.retired] or None)
        if text is not None:
            if self._content:
                self._set(attr.BATON_HANDOFF_CONTRACT, json_text({"narrative": text}) if isinstance(payload, str) else text)
            # Nothing put in is no token, whatever the tokenizer makes of an empty object.
            empty = contract is None and not is_present(payload)
            self._set(attr.BATON_HANDOFF_PAYLOAD_TOKENS, 0 if empty else self._counted(text_tokens(text, self._tokenizer)))

    @guarded
    def before(self, messages: object) -> None:
        """Records the sender's context: the input of its last model call, and that call's output."""
        self._before = items(messages)
        m = measure(self._before, self._tokenizer)
        self._set(attr.BATON_HANDOFF_HISTORY_ITEMS_BEFORE, m.items)
        self._set(attr.BATON_HANDOFF_HISTORY_TOKENS_BEFORE, self._counted(m.tokens))
        self._compare()

    @guarded
    def after(self, messages: object) -> None:
        """Records what the receiver gets: the input of its first model call."""
        self._after = items(messages)
        m = measure(self._after, self._tokenizer)
        self._set(attr.BATON_HANDOFF_HISTORY_ITEMS_AFTER, m.items)
        self._set(attr.BATON_HANDOFF_HISTORY_TOKENS_AFTER, self._counted(m.tokens))
        self._compare()

    @guarded
    def accept(self, by: str | None = None) -> None:
        """Records that the receiver ran.

        Args:
            by: Its own name, where it was asked for by another one.
        """
        self._outcome = "accepted"
        if by is not None and by != self.to_agent:
            self.to_agent = by
            self._set(attr.BATON_HANDOFF_TO_AGENT, by)
            self._set(gen_ai.TRANSFER_TARGET, by)

    @guarded
    def continues(self, previous_response_id: str) -> None:
        """Records that the receiver's call goes on from a response that the server keeps, with what was before it."""
        self._set(gen_ai.PREVIOUS_RESPONSE_ID, previous_response_id)

    @guarded
    def refuse(self, reason: str = "refused") -> None:
        """Records that the transfer was asked for and not taken."""
        self._outcome = "refused"
        self.span.set_status(Status(StatusCode.ERROR, reason))
        self._set(gen_ai.ERROR_TYPE, "refused")

    @guarded
    def fail(self, error: BaseException | str) -> None:
        """Records that the transfer itself failed, so that the receiver never ran."""
        self._outcome = "failed"
        told = isinstance(error, str)
        # The message of an exception may hold content.
        self.span.set_status(Status(StatusCode.ERROR, str(error) if told or self._content else None))
        self._set(gen_ai.ERROR_TYPE, "failed" if told else type(error).__qualname__)

    def inject(self, carrier: MutableMapping[str, str] | None = None) -> MutableMapping[str, str]:
        """Puts the context into headers for another process: W3C `traceparent`, `tracestate` and `baggage`.

        Args:
            carrier: Headers that are added to. `None`: new ones.
        """
        carrier = {} if carrier is None else carrier
        with guard("Handoff.inject"):
            _TRACE_CONTEXT.inject(carrier, self.context)
            _BAGGAGE.inject(carrier, self.context)
        return carrier

    @property
    def ended(self) -> bool:
        """True once the span has ended: what is recorded later is lost."""
        return self._ended

    @guarded
    def end(self, end_time: int | None = None) -> None:
        """Ends the span. A second time does nothing."""
        if not self._ended:
            self._ended = True
            if self._outcome is not None:
                self._set(attr.BATON_HANDOFF_OUTCOME, self._outcome)
            self.span.end(end_time)

    def _compare(self) -> None:
        if self._before is not None and self._after is not None:
            self._set(attr.BATON_HANDOFF_HISTORY_FILTERED_COUNT, filtered_count(self._before, self._after))

    def _counted(self, tokens: int | None) -> int | None:
        if tokens is not None and self._tokenizer is not None:
            self._set(attr.BATON_HANDOFF_TOKENIZER, self._tokenizer.name)
        return tokens

    def _set(self, key: str, value: AttributeValue | None) -> None:
        if value is not None:
            self.span.set_attribute(key, value)


@contextmanager
def handoff(
    from_agent: str,
    to_agent: str,
    *,
    state: Iterable[ConstraintLike] | None = None,
    payload: Payload | None = None,
    history: History | None = None,
    mode: Mode = "pass_control",
    reason: str | None = None,
    priority: str | None = None,
    task_id: str | None = None,
    tool_name: str | None = None,
    tool_call_id: str | None = None,
    conversation_id: str | None = None,
    previous_response_id: str | None = None,
    capture_content: bool | None = None,
    tokenizer: Tokenizer | None = None,
    tracer_provider: TracerProvider | None = None,
) -> Iterator[Handoff]:
    """Records one transfer of work as a span, which is the current span inside the block.

    State, payload and history are three channels, and each is told apart: what is `None` is not known.

    Args:
        from_agent: Name of the sender.
        to_agent: Name of the receiver.
        state: Constraints that the application's durable state holds.
        payload: What the sender puts into this transfer.
        history: The transcript before and after filtering; `Handoff.before` and `Handoff.after` can tell it later.
        mode: Whether the sender waits, passes control or gives it back.
        reason: Why the work is handed over.
        priority: How urgent it is, in the application's own words.
        task_id: Id of the task. `None`: that of `task()`.
        tool_name: Name of the transfer tool. `None`: `transfer_to_<receiver>`, of a delegation `delegate_to_<…>`.
        tool_call_id: Id of the model's tool call that asked for the transfer.
        conversation_id: Id of the conversation.
        previous_response_id: Where the server keeps the history: the id of the response that it goes on from.
        capture_content: Whether the contract's text may stand on the span. `None`: what the environment variable
            `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` says, else no.
        tokenizer: Counts tokens. `None`: `o200k_base` where the extra `tokens` is installed, else tokens are not known.
        tracer_provider: Where the span goes. `None`: the global one.

    Raises:
        TypeError: An argument is of a wrong type; the message names it.
        ValueError: An argument is empty or not one of its values; the message names it.

    An exception of the block ends the span as failed and goes on.
    """
    h = Handoff(
        from_agent,
        to_agent,
        state=state,
        payload=payload,
        history=history,
        mode=mode,
        reason=reason,
        priority=priority,
        task_id=task_id,
        tool_name=tool_name,
        tool_call_id=tool_call_id,
        conversation_id=conversation_id,
        previous_response_id=previous_response_id,
        capture_content=capture_content,
        tokenizer=tokenizer,
        tracer=get_tracer(tracer_provider),
    )
    token = context.attach(h.context)
    try:
        yield h
    except BaseException as error:
        h.fail(error)
        raise
    finally:
        with guard("handoff"):
            context.detach(token)
        h.end()


@contextmanager
def received(
    agent: str,
    constraints: Iterable[ConstraintLike] | None = None,
    *,
    carrier: Mapping[str, str] | None = None,
    task_id: str | None = None,
    tracer_provider: TracerProvider | None = None,
) -> Iterator[Span]:
    """Records the receiver's side of a transfer: the span of the agent that took over, current inside the block.

    Args:
        agent: Name of the receiver.
        constraints: The constraints that it got. `None`: not known.
        carrier: Headers that `Handoff.inject` filled in another process. `None`: the current context.
        task_id: Id of the task. `None`: that of `task()` or of the carrier.
        tracer_provider: Where the span goes. `None`: the global one.

    Raises:
        TypeError: An argument is of a wrong type; the message names it.
        ValueError: An argument is empty; the message names it.
    """
    _require("agent", agent)
    got = None if constraints is None else ConstraintSet(constraints)
    parent = context.get_current()
    if carrier is not None:
        with guard("received"):
            parent = _BAGGAGE.extract(dict(carrier), _TRACE_CONTEXT.extract(dict(carrier), parent))
    if task_id is not None:
        _require("task_id", task_id)
        parent = baggage.set_baggage(attr.BATON_TASK_ID, task_id, parent)
    span: Span = trace.INVALID_SPAN
    with guard("receiver's span"):
        span = get_tracer(tracer_provider).start_span(
            f"invoke_agent {agent}",
            context=parent,
            attributes={
                gen_ai.OPERATION: "invoke_agent",
                gen_ai.AGENT: agent,
                **_task(current_task(parent)),
            },
        )
    if got is not None:
        mark_received(got, span)
    with _current(span, parent):
        yield span


@guarded
def mark_received(constraints: Iterable[ConstraintLike], span: Span | None = None) -> None:
    """Records on a span of the receiver which constraints it got.

    Args:
        constraints: The constraints.
        span: The receiver's first span. `None`: the current one.
    """
    got = ConstraintSet(constraints).active
    span = span if span is not None else trace.get_current_span()
    span.set_attribute(attr.BATON_RECEIVED_CONSTRAINTS_IDS, got.ids)
    span.set_attribute(attr.BATON_RECEIVED_CONSTRAINTS_HASH, got.hash)


@contextmanager
def workflow(
    name: str,
    *,
    task_id: str | None = None,
    conversation_id: str | None = None,
    tracer_provider: TracerProvider | None = None,
) -> Iterator[Span]:
    """Opens the span that holds one run of several agents together, as the current span of the block.

    Where the application has a span around the run already, such as that of a web request, it is not needed.

    Args:
        name: Name of the workflow.
        task_id: Id of the task. `None`: that of `task()`, where there is one.
        conversation_id: Id of the conversation.
        tracer_provider: Where the span goes. `None`: the global one.

    Raises:
        TypeError: An argument is of a wrong type; the message names it.
        ValueError: An argument is empty; the message names it.
    """
    _require("name", name)
    with task(task_id) if task_id is not None else nullcontext():
        attributes: dict[str, AttributeValue] = {
            gen_ai.OPERATION: "invoke_workflow",
            gen_ai.WORKFLOW: name,
            **_task(current_task()),
        }
        if conversation_id is not None:
            attributes[gen_ai.CONVERSATION] = conversation_id
        span: Span = trace.INVALID_SPAN
        with guard("workflow span"):
            span = get_tracer(tracer_provider).start_span(f"invoke_workflow {name}", attributes=attributes)
        with _current(span):
            yield span


@contextmanager
def task(task_id: str) -> Iterator[None]:
    """Says which task the block belongs to: on every handoff in it, and as baggage in other processes.

    Traces of one task are joined by its id: pause and resume, a second turn of the user, a remote agent.

    Args:
        task_id: Id of the task.

    Raises:
        TypeError: It is no text.
        ValueError: It is empty.
    """
    _require("task_id", task_id)
    token = context.attach(baggage.set_baggage(attr.BATON_TASK_ID, task_id))
    try:
        yield
    finally:
        context.detach(token)


def current_task(parent: Context | None = None) -> str | None:
    """The id of the task that a context belongs to."""
    found = baggage.get_baggage(attr.BATON_TASK_ID, parent)
    return found if isinstance(found, str) and found else None


@contextmanager
def _current(span: Span, parent: Context | None = None) -> Iterator[None]:
    """Makes a span the current one, and ends it with the block. What the block raises goes on."""
    token = context.attach(trace.set_span_in_context(span, parent))
    try:
        yield
    except BaseException as error:
        with guard("span"):
            span.set_status(Status(StatusCode.ERROR))
            span.set_attribute(gen_ai.ERROR_TYPE, type(error).__qualname__)
        raise
    finally:
        with guard("span"):
            context.detach(token)
            span.end()


def _task(task_id: str | None) -> dict[str, AttributeValue]:
    return {} if task_id is None else {attr.BATON_TASK_ID: task_id}


def _require(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{name}: a {type(value).__name__} is no text")
    if not value.strip():
        raise ValueError(f"{name}: is empty")


def now() -> int:
    """Nanoseconds since 1970, as spans take them."""
    return time.time_ns()
