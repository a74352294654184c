"""Handoffs of LangGraph: swarms, supervisors, state graphs.

`traced(graph)` records the handoffs of a compiled graph. `handoff_tool()` makes a transfer tool that asks the model for a contract.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler, BaseCallbackManager
from langchain_core.messages import BaseMessage, RemoveMessage, ToolMessage
from langchain_core.outputs import LLMResult
from langchain_core.tools import BaseTool, InjectedToolCallId, StructuredTool
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.prebuilt import InjectedState
from langgraph.types import Command, Send
from opentelemetry import context as otel_context
from opentelemetry import trace as otel
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider
from opentelemetry.util.types import AttributeValue

from . import _attributes as attr
from . import _semconv as gen_ai
from ._content import allowed
from ._handoff import Handoff, Mode, Payload, current_task, get_tracer, mark_received, now
from ._input import ConstraintInput, ContractInput
from ._others import Spans, check_spans, is_instrumentation
from ._safe import guard
from ._state import StateSource, constraints_of
from .constraint import ConstraintSet
from .contract import Contract, slug
from .history import Tokenizer, held_in, json_text, texts_of

__all__ = ["ConstraintInput", "ContractInput", "HandoffCallback", "handoff_tool", "traced"]

G = TypeVar("G")

_DESTINATION = "__handoff_destination"
_MAX_RUNS = 1000


@dataclass
class _Call:
    """A model call: what it read and what it said."""

    input: Sequence[BaseMessage]
    output: list[BaseMessage] = field(default_factory=list)


@dataclass
class _Transfer:
    """A transfer until the receiver has read its history. Its span is made at once, or when the target turns out to be an agent."""

    names: set[str]
    sender: str | None
    make: Callable[[], Handoff]
    handoff: Handoff | None = None


@dataclass
class _Run:
    """A run of LangChain that is under way."""

    id: UUID
    parent: _Run | None
    agent: str | None
    node: str | None
    at: int
    state: Mapping[str, object] | None = None
    span: Span | None = None
    call: _Call | None = None
    # Last model call of each agent below.
    calls: dict[str, _Call] = field(default_factory=dict)
    # A delegation that this tool run is.
    delegation: Handoff | None = None
    tool: str | None = None
    tool_inputs: Mapping[str, object] | None = None
    tool_call_id: str | None = None
    # By its metadata it is a transfer tool.
    transfers: bool = False
    # Of the root.
    waiting: list[_Transfer] = field(default_factory=list)
    below: list[UUID] = field(default_factory=list)
    ambient: Span = otel.INVALID_SPAN
    writes_all: bool = False
    conversation_id: str | None = None
    others: Sequence[object] = ()

    def up(self) -> Iterator[_Run]:
        """This run and those above."""
        run: _Run | None = self
        while run is not None:
            yield run
            run = run.parent

    @property
    def root(self) -> _Run:
        """The run that was started by the application."""
        return list(self.up())[-1]


class HandoffCallback(BaseCallbackHandler):
    """Turns the transfers of a graph into handoff spans of OpenTelemetry, with the history before and after.

    A transfer is a tool that returns a `Command` with `goto`, a tool that delegates, or a node that returns a `Command` with
    `goto` to a node that calls a model. Before is the input and output of the sender's last model call, after the input of the
    receiver's first one.

    Args:
        state: Where the constraints of the durable state are: a function of the graph's state, or a key of it. `None`:
            `constraints` or `hard_constraints`.
        delegations: Tools that run another agent and wait for it, each with the argument that names the agent.
        spans: Which spans are written.
        capture_content: Whether contracts and the arguments and results of tools may stand on spans. `None`: what
            `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` says, else no.
        tokenizer: Counts tokens. `None`: `o200k_base` where the extra `tokens` is installed.
        tracer_provider: Where spans go. `None`: the global one.

    Raises:
        TypeError: `state` is neither a function nor a text.
        ValueError: `spans` is none of its values.
    """

    # In the thread and the context of the run, so that what happened comes in its order.
    run_inline = True

    def __init__(
        self,
        *,
        state: StateSource[Mapping[str, object]] = None,
        delegations: Mapping[str, str] | None = None,
        spans: Spans = "auto",
        capture_content: bool | None = None,
        tokenizer: Tokenizer | None = None,
        tracer_provider: TracerProvider | None = None,
    ) -> None:
        check_spans(spans)
        if state is not None and not callable(state) and not isinstance(state, str):
            raise TypeError(f"state: a {type(state).__name__} is neither a function nor a name")
        self._state = state
        self._delegations = dict(delegations or {})
        self._spans = spans
        self._capture_content = capture_content
        self._tokenizer = tokenizer
        self._provider = tracer_provider
        self._runs: dict[UUID, _Run] = {}
        self._roots: OrderedDict[UUID, _Run] = OrderedDict()
        self._lock = threading.RLock()

    def on_chain_start(
        self,
        serialized: dict[str, Any] | None,
        inputs: Any,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """A graph, an agent or a node starts."""
        with guard("HandoffCallback.on_chain_start"), self._lock:
            run = self._start(run_id, parent_run_id, metadata)
            # A state may be a mapping, a dataclass or a Pydantic model.
            run.state = inputs if isinstance(inputs, Mapping) else getattr(inputs, "__dict__", None)
            if run.parent is not None:
                return
            thread = (metadata or {}).get("thread_id")
            run.conversation_id = str(thread) if thread is not None else None
            run.ambient = otel.get_current_span()
            run.others = _others()
            run.writes_all = self._spans == "all" or (self._spans == "auto" and not run.others and not _langsmith())
            if run.writes_all and run.agent is None:
                name = str(kwargs.get("name") or "LangGraph")
                attributes = {gen_ai.OPERATION: "invoke_workflow", gen_ai.WORKFLOW: name}
                run.span = self._open(run, f"invoke_workflow {name}", attributes, run.at)

    def on_chain_end(self, outputs: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """It ended."""
        with guard("HandoffCallback.on_chain_end"), self._lock:
            run = self._runs.get(run_id)
            if run is not None:
                for command in outputs if isinstance(outputs, list) else [outputs]:
                    if isinstance(command, Command) and command.graph is None:
                        self._jumped(run, command)
                self._end(run)

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """It failed, was interrupted, or jumps out with a command."""
        with guard("HandoffCallback.on_chain_error"), self._lock:
            run = self._runs.get(run_id)
            if run is not None:
                for command in getattr(error, "args", ()):
                    # A jump to the graph above; it passes every run up to there.
                    if isinstance(command, Command):
                        self._jumped(run, command)
            self._end(run, error)

    def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """A model is called."""
        with guard("HandoffCallback.on_chat_model_start"), self._lock:
            run = self._start(run_id, parent_run_id, metadata)
            run.call = _Call(messages[0] if messages else [])
            if run.root.writes_all:
                self._agent_span(run)
                model = (kwargs.get("invocation_params") or {}).get("model") or (metadata or {}).get("ls_model_name")
                said = {gen_ai.OPERATION: "chat", **({gen_ai.MODEL: str(model)} if model else {})}
                run.span = self._open(run, f"chat {model or ''}".strip(), said, run.at, SpanKind.CLIENT)
            self._arrived(run)

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        """The model answered."""
        with guard("HandoffCallback.on_llm_end"), self._lock:
            run = self._runs.get(run_id)
            if run is None:
                return
            if run.call is not None:
                run.call.output = [m for g in response.generations[:1] for c in g[:1] if (m := getattr(c, "message", None))]
                if run.agent is not None:
                    for above in run.up():
                        above.calls[run.agent] = run.call
                if run.span is not None:
                    for message in run.call.output:
                        _describe(run.span, message)
            self._end(run)

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """The model call failed."""
        with guard("HandoffCallback.on_llm_error"), self._lock:
            self._end(self._runs.get(run_id), error)

    def on_tool_start(
        self,
        serialized: dict[str, Any],
        input_str: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: dict[str, Any] | None = None,
        inputs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """A tool is called."""
        with guard("HandoffCallback.on_tool_start"), self._lock:
            run = self._start(run_id, parent_run_id, metadata)
            run.tool = str((serialized or {}).get("name") or kwargs.get("name") or "tool")
            run.tool_inputs = inputs
            run.tool_call_id = kwargs.get("tool_call_id")
            run.transfers = _DESTINATION in (metadata or {})
            routing = self._delegations.get(run.tool)
            target = (inputs or {}).get(routing) if routing is not None else None
            if isinstance(target, str) and target.strip():
                given = {k: v for k, v in (inputs or {}).items() if k != routing}
                run.delegation = self._handoff(run, target, given, "return_to_caller")
            elif not run.transfers and run.root.writes_all:
                said: dict[str, AttributeValue] = {gen_ai.OPERATION: "execute_tool", gen_ai.TOOL: run.tool}
                if run.tool_call_id:
                    said[gen_ai.TOOL_CALL_ID] = run.tool_call_id
                if allowed(self._capture_content):
                    said[gen_ai.TOOL_ARGUMENTS] = json_text(inputs) or input_str
                run.span = self._open(run, f"execute_tool {run.tool}", said, run.at)

    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """The tool answered, or jumps to another agent."""
        with guard("HandoffCallback.on_tool_end"), self._lock:
            run = self._runs.get(run_id)
            if run is None:
                return
            targets = _targets(output) if isinstance(output, Command) else []
            if run.delegation is not None:
                run.delegation.end()
            elif targets and (run.transfers or output.graph == Command.PARENT):
                self._transferred(run, output, targets)
                # It is the transfer and no tool of its own: a span that never ends is never exported.
                run.span = None
            elif targets:
                # A jump inside the agent's own graph, as far as can be seen from here.
                self._jumped(run, output)
            elif run.span is not None and allowed(self._capture_content):
                text = json_text(getattr(output, "content", output))
                if text is not None:
                    run.span.set_attribute(gen_ai.TOOL_RESULT, text)
            self._end(run)

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """The tool failed, or was interrupted."""
        with guard("HandoffCallback.on_tool_error"), self._lock:
            run = self._runs.get(run_id)
            if run is not None and run.delegation is not None:
                # A pause is none.
                if not _is_control_flow(error):
                    run.delegation.fail(error)
                run.delegation.end()
            self._end(run, error)

    def _start(self, run_id: UUID, parent_id: UUID | None, metadata: Mapping[str, Any] | None) -> _Run:
        parent = self._runs.get(parent_id) if parent_id is not None else None
        agent, node = _names(metadata or {})
        run = self._runs[run_id] = _Run(run_id, parent, agent, node, now())
        if parent is None:
            self._roots[run_id] = run
            while len(self._roots) > _MAX_RUNS:
                # Runs that never end.
                self._end(next(iter(self._roots.values())))
        else:
            run.root.below.append(run_id)
        return run

    def _end(self, run: _Run | None, error: BaseException | None = None) -> None:
        if run is None:
            return
        if run.parent is None:
            for transfer in run.waiting:
                if transfer.handoff is not None:
                    transfer.handoff.end()
            for id in run.below:
                below = self._runs.get(id)
                if below is not None:
                    self._end(below)
            self._roots.pop(run.id, None)
        if run.span is not None:
            if error is not None and not _is_control_flow(error):
                run.span.set_status(Status(StatusCode.ERROR))
                run.span.set_attribute(gen_ai.ERROR_TYPE, type(error).__qualname__)
            run.span.end()
            run.span = None
        self._runs.pop(run.id, None)

    def _open(
        self, run: _Run, name: str, attributes: Mapping[str, AttributeValue], at: int, kind: SpanKind = SpanKind.INTERNAL
    ) -> Span:
        where = self._where(run.parent if run.parent is not None else run)
        said: dict[str, AttributeValue | None] = {
            gen_ai.AGENT: run.agent,
            gen_ai.CONVERSATION: run.root.conversation_id,
            attr.BATON_TASK_ID: current_task(),
            **attributes,
        }
        known = {k: v for k, v in said.items() if v is not None}
        return get_tracer(self._provider).start_span(name, where, kind, known, start_time=at)

    def _where(self, run: _Run) -> Context:
        """The context of the nearest span above, ours or theirs."""
        for above in run.up():
            own = above.delegation.span if above.delegation is not None else above.span
            if own is None:
                own = _span_of(run.root.others, above.id)
            if own is not None:
                return otel.set_span_in_context(own)
        return otel_context.get_current()

    def _agent_span(self, call: _Run) -> None:
        """Opens the span of the agent that makes a model call: on the topmost of its own runs."""
        own: _Run | None = None
        for above in call.up():
            if above is not call and (above.agent != call.agent or above.tool is not None):
                break
            own = above
        if own is None or own is call or own.span is not None or own.agent is None:
            return
        said = {gen_ai.OPERATION: "invoke_agent", gen_ai.AGENT: own.agent}
        own.span = self._open(own, f"invoke_agent {own.agent}", said, own.at)

    def _arrived(self, call: _Run) -> None:
        """A model call: is it the first one of a receiver?"""
        names = {slug(n) for above in call.up() for n in (above.agent, above.node) if n is not None and above.tool is None}
        for above in call.up():
            h = above.delegation
            if h is not None and not h.ended and call.agent is not None:
                # Only the first call, and not one of a tool or a filter of the sender's own.
                if above.calls.get(call.agent) is None and slug(h.to_agent) in names:
                    self._took(call, h)
                return
        root = call.root
        for transfer in root.waiting:
            if transfer.names & names:
                root.waiting.remove(transfer)
                if transfer.handoff is None and transfer.sender == call.agent:
                    # An agent that jumps inside its own graph hands nothing over.
                    return
                transfer.handoff = transfer.handoff or transfer.make()
                self._took(call, transfer.handoff)
                transfer.handoff.end()
                return

    def _took(self, call: _Run, h: Handoff) -> None:
        messages = call.call.input if call.call is not None else []
        h.accept(call.agent)
        h.after(messages)
        if h.constraints is None and h.state is None:
            return
        got = held_in(ConstraintSet([*(h.constraints or ()), *(h.state or ())]), texts_of(messages))
        span = call.span
        for above in call.up():
            span = span or _span_of(call.root.others, above.id)
        if span is None:
            span = otel.get_current_span()
        # The application's own span around the run is no span of the receiver.
        if span is not call.root.ambient:
            mark_received(got, span)

    def _transferred(self, run: _Run, command: Command[Any], targets: list[tuple[str, object]]) -> None:
        """A tool returned a command that gives control to others."""
        for target, sent in targets:
            update = sent if sent is not None else command.update
            inputs = dict(run.tool_inputs or {})
            payload: Payload = inputs
            if Contract.from_payload(inputs) is None and isinstance(update, Mapping):
                # The contract may travel as state of its own.
                told = {k: v for k, v in update.items() if k not in ("messages", "active_agent")}
                before = self._graph_state(run)
                changed = {k: v for k, v in told.items() if k not in before or before[k] is not v}
                payload = {**inputs, **changed} if Contract.from_payload(changed) is not None else inputs
            back = str(run.tool).startswith("transfer_back_to")
            h = self._handoff(run, target, payload, "hand_back" if back else "pass_control")
            run.root.waiting.append(_Transfer({slug(target)}, run.agent, lambda h=h: h, h))  # type: ignore[misc]

    def _awaited(self, run: _Run, command: Command[Any]) -> bool:
        """Whether a receiver of a command is waited for already."""
        names = {slug(target) for target, _ in _targets(command)}
        return any(transfer.names & names for transfer in run.root.waiting)

    def _jumped(self, run: _Run, command: Command[Any]) -> None:
        """A node returned a command: a transfer, if what it jumps to calls a model. A tool inside it may have told it already."""
        if run.node is None or self._awaited(run, command):
            return
        for target, sent in _targets(command):
            if target == run.node:
                continue
            update = sent if sent is not None else command.update
            told = update if isinstance(update, Mapping) else dict(update) if isinstance(update, (list, tuple)) else {}
            payload = {str(k): v for k, v in told.items() if k != "messages"}
            at, where = now(), self._where(run)
            known = {**self._graph_state(run), **payload}
            call = next((c for c in (run.calls.get(run.agent or ""), *run.calls.values()) if c is not None), None)

            def make(
                run: _Run = run,
                target: str = target,
                payload: Mapping[str, object] = payload,
                at: int = at,
                where: Context = where,
                known: Mapping[str, object] = known,
                call: _Call | None = call,
            ) -> Handoff:
                h = self._made(run, run.agent or run.node or "", target, payload, "pass_control", known, at, where)
                if call is not None:
                    h.before([*call.input, *call.output])
                return h

            run.root.waiting.append(_Transfer({slug(target)}, run.agent, make))

    def _handoff(self, run: _Run, target: str, payload: Payload, mode: Mode) -> Handoff:
        """Makes the span of a transfer that a tool makes."""
        sender = run.agent or next((a.node for a in run.up() if a.node is not None), None) or "unknown"
        where = self._where(run.parent if run.parent is not None else run)
        h = self._made(run, sender, target, payload, mode, self._graph_state(run), run.at, where)
        call = next((a.calls[run.agent] for a in run.up() if run.agent in a.calls), None) if run.agent is not None else None
        if call is not None:
            h.before([*call.input, *call.output])
        return h

    def _made(
        self,
        run: _Run,
        sender: str,
        target: str,
        payload: Payload,
        mode: Mode,
        state: Mapping[str, object],
        at: int,
        where: Context,
    ) -> Handoff:
        reason = payload.get("reason") if isinstance(payload, Mapping) else None
        return Handoff(
            sender,
            target,
            state=constraints_of(self._state, state, state),
            payload=payload,
            mode=mode,
            reason=reason.strip() or None if isinstance(reason, str) else None,
            tool_name=run.tool,
            tool_call_id=run.tool_call_id,
            conversation_id=run.root.conversation_id,
            capture_content=self._capture_content,
            tokenizer=self._tokenizer,
            tracer=get_tracer(self._provider),
            parent=where,
            start_time=at,
        )

    def _graph_state(self, run: _Run) -> dict[str, object]:
        """The state as the runs above got it: what is nearer counts."""
        out: dict[str, object] = {}
        for above in run.up():
            for key, value in (above.state or {}).items():
                out.setdefault(key, value)
        return out


def traced(
    graph: G,
    *,
    state: StateSource[Mapping[str, object]] = None,
    spans: Spans = "auto",
    capture_content: bool | None = None,
    tokenizer: Tokenizer | None = None,
    tracer_provider: TracerProvider | None = None,
) -> G:
    """Gives the same graph, whose runs record their handoffs: a swarm, a supervisor, a state graph.

    Args:
        graph: A compiled graph, or an agent.
        state: Where the constraints of the durable state are: a function of the graph's state, or a key of it. `None`:
            `constraints` or `hard_constraints`.
        spans: Which spans are written.
        capture_content: Whether contracts and the arguments and results of tools may stand on spans. `None`: what
            `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` says, else no.
        tokenizer: Counts tokens. `None`: `o200k_base` where the extra `tokens` is installed.
        tracer_provider: Where spans go. `None`: the global one.

    Raises:
        TypeError: `graph` is no graph, or `state` neither a function nor a text.
        ValueError: `spans` is none of its values.
    """
    callback = HandoffCallback(
        state=state, spans=spans, capture_content=capture_content, tokenizer=tokenizer, tracer_provider=tracer_provider
    )
    return with_callback(graph, callback)


def with_callback(graph: G, callback: HandoffCallback) -> G:
    """Gives the same graph with a callback.

    Raises:
        TypeError: It is no graph.
    """
    with_config = getattr(graph, "with_config", None)
    if not callable(with_config):
        raise TypeError(f"graph: a {type(graph).__name__} is no compiled graph")
    made: G = with_config(callbacks=[callback])
    return made


def handoff_tool(
    agent_name: str,
    *,
    input_type: type[Any] | None = ContractInput,
    name: str | None = None,
    description: str | None = None,
    history_filter: Callable[[list[BaseMessage]], Iterable[BaseMessage]] | None = None,
    update: Callable[[Any], Mapping[str, object]] | None = None,
) -> BaseTool:
    """Makes a tool that gives control to another agent: it returns a `Command` with `goto` and an update of the state.

    It fits swarms and every graph whose nodes are agents and whose state has `messages`.

    Args:
        agent_name: The receiver: the name of its node in the graph.
        input_type: What the model is asked for, as the argument `contract`: `ContractInput` has the six fields; `str` is a
            note. `None`: the tool takes no arguments.
        name: Name of the tool. `None`: `transfer_to_<agent_name>`.
        description: What the model is told of it.
        history_filter: Gives the messages that the receiver gets, from those of the sender and the answer of this tool. `None`:
            all.
        update: Gives further keys of the state, from the argument.

    Raises:
        TypeError: An argument is of a wrong type.
        ValueError: `agent_name` is empty.
    """
    if not isinstance(agent_name, str):
        raise TypeError(f"agent_name: a {type(agent_name).__name__} is no text")
    if not agent_name.strip():
        raise ValueError("agent_name: is empty")
    for label, given in (("history_filter", history_filter), ("update", update)):
        if given is not None and not callable(given):
            raise TypeError(f"{label}: is no function")
    tool_name = name or f"transfer_to_{slug(agent_name)}"

    def command(state: Any, tool_call_id: str, contract: Any = None) -> Command[Any]:
        messages = state["messages"] if isinstance(state, Mapping) else state.messages
        answer = ToolMessage(f"Transferred to {agent_name}", name=tool_name, tool_call_id=tool_call_id)
        forwarded: list[BaseMessage] = [*messages, answer]
        if history_filter is not None:
            forwarded = [RemoveMessage(id=REMOVE_ALL_MESSAGES), *history_filter(forwarded)]
        further = update(contract) if update is not None else {}
        return Command(goto=agent_name, graph=Command.PARENT, update={**further, "messages": forwarded, "active_agent": agent_name})

    def without(state: Any, tool_call_id: str) -> Command[Any]:
        return command(state, tool_call_id)

    function: Any = without if input_type is None else command
    function.__annotations__ = {
        "state": Annotated[Any, InjectedState],
        "tool_call_id": Annotated[str, InjectedToolCallId],
        **({} if input_type is None else {"contract": input_type}),
        "return": Command,
    }
    if input_type is not None:
        # The model must say it.
        function.__defaults__ = None
    made = StructuredTool.from_function(
        function, name=tool_name, description=description or f"Hand the work over to {agent_name}, with all that it needs to know."
    )
    made.metadata = {_DESTINATION: agent_name}
    return made


def _names(metadata: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """The agent that a run belongs to, and the node: by the agent's own name, else the outermost node."""
    node = metadata.get("langgraph_node")
    outer = str(metadata.get("langgraph_checkpoint_ns") or "").partition("|")[0].partition(":")[0]
    agent = metadata.get("lc_agent_name") or outer or node
    return (str(agent) if agent else None), (str(node) if node else None)


def _targets(command: Command[Any]) -> list[tuple[str, object]]:
    """Where a command goes, each with what is sent there."""
    goto = command.goto if isinstance(command.goto, (list, tuple)) else [command.goto]
    found: list[tuple[str, object]] = []
    for g in goto:
        if isinstance(g, Send):
            found.append((g.node, g.arg))
        elif isinstance(g, str) and g and g != "__end__":
            found.append((g, None))
    return found


def _is_control_flow(error: BaseException) -> bool:
    """LangGraph jumps and pauses by exceptions; they are no errors."""
    return any(c.__name__ == "GraphBubbleUp" for c in type(error).__mro__)


def _describe(span: Span, message: BaseMessage) -> None:
    said = message.response_metadata or {}
    usage: Mapping[str, Any] = getattr(message, "usage_metadata", None) or {}
    calls = getattr(message, "tool_calls", None)
    values: dict[str, AttributeValue | None] = {
        gen_ai.RESPONSE_ID: said.get("id"),
        gen_ai.RESPONSE_MODEL: said.get("model_name"),
        gen_ai.INPUT_TOKENS: usage.get("input_tokens"),
        gen_ai.OUTPUT_TOKENS: usage.get("output_tokens"),
        gen_ai.FINISH_REASONS: ["tool_calls" if calls else "stop"],
    }
    for key, value in values.items():
        if value is not None:
            span.set_attribute(key, value)


def _others() -> list[object]:
    """The handlers that instrumentations add to every callback manager."""
    return [h for h in BaseCallbackManager(handlers=[]).handlers if is_instrumentation(h)]


def _langsmith() -> bool:
    return any(os.environ.get(f"{p}_OTEL_ENABLED", "").lower() == "true" for p in ("LANGSMITH", "LANGCHAIN"))


def _span_of(others: Sequence[object], run_id: UUID) -> Span | None:
    """The span that another instrumentation has made of a run, where it tells: it may make it no current one."""
    for handler in others:
        # No two of them have the same way to ask, and none a public one.
        with contextlib.suppress(Exception):
            get = getattr(handler, "get_span", None)
            found = get(run_id) if callable(get) else handler.spans[run_id].span  # type: ignore[attr-defined]
            if isinstance(found, Span):
                return found
    return None
