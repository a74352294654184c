"""Counting a message history: items, tokens, what a filter removed, which constraints a text holds.

An item is one text, one tool call or one tool result. System instructions and reasoning are none. Messages of the
OpenAI APIs (chat and Responses), Anthropic, LangChain and the OpenTelemetry GenAI conventions are read, as mappings or
as objects.
"""

from __future__ import annotations

import ast
import functools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ._canonical import canonical
from ._safe import tell
from .constraint import Constraint, ConstraintSet, model_fields

ItemKind = Literal["text", "call", "result"]
"""What an item is."""

_INSTRUCTIONS = frozenset(["system", "developer"])
_CALLS = frozenset("tool_call tool_use function_call custom_tool_call tool-call server_tool_use mcp_tool_use".split())
_RESULTS = frozenset(
    "tool_call_response tool_result function_call_output custom_tool_call_output tool_call_output tool_call_result"
    " tool-return".split()
)
_NOTHING = frozenset("reasoning reasoning_content thinking redacted_thinking item_reference compaction remove".split())
_MAX_COUNTED = 4 << 20


@dataclass(frozen=True)
class Item:
    """One item of a history.

    Attributes:
        kind: `text`, `call` or `result`.
        key: Equal for equal items, whoever says a text.
        text: What its tokens are counted of: the text, the arguments of a call, the content of a result.
    """

    kind: ItemKind
    key: str
    text: str


@dataclass(frozen=True)
class Tokenizer:
    """A named way to count tokens.

    Attributes:
        name: The name that stands on the span, such as `o200k_base`.
        count: Gives the number of tokens of a text.
    """

    name: str
    count: Callable[[str], int]


@dataclass(frozen=True)
class Measure:
    """What a history holds.

    Attributes:
        items: How many items.
        tokens: Tokens of all items. `None`: no tokenizer, or a text of more than 4 MiB.
    """

    items: int
    tokens: int | None


@functools.cache
def default_tokenizer() -> Tokenizer | None:
    """Gives `o200k_base` where the extra `tokens` is installed, else `None`."""
    try:
        import bpe_openai  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        return None
    try:
        encoding = bpe_openai.get_encoding("o200k_base")
        encoding.encode_ordinary("a")
    except Exception as error:
        tell("default_tokenizer", error)
        return None
    return Tokenizer("o200k_base", lambda text: len(encoding.encode_ordinary(text)))


def items(messages: object) -> list[Item]:
    """Reads a history as items.

    Args:
        messages: A list of messages, one message, or a text, which is one of the user.
    """
    return list(_items(messages, 0))


def measure(history: Iterable[Item], tokenizer: Tokenizer | None = None) -> Measure:
    """Counts a history."""
    history = list(history)
    return Measure(len(history), _tokens((i.text for i in history), tokenizer))


def filtered_count(before: Iterable[Item], after: Iterable[Item]) -> int:
    """How many items of before are not in after. One that was changed or blanked in place is not."""
    return (Counter((i.kind, i.key) for i in before) - Counter((i.kind, i.key) for i in after)).total()


def text_tokens(text: str, tokenizer: Tokenizer | None) -> int | None:
    """Tokens of a text; `None` without a tokenizer and for more than 4 MiB."""
    return _tokens([text], tokenizer)


def held_in(constraints: Iterable[Constraint], texts: Iterable[str]) -> ConstraintSet:
    """The constraints that texts hold: by their id as a word, or by their text whatever its case and white space."""
    folded = "\n".join(_fold(t) for t in texts)
    return ConstraintSet(
        [
            c
            for c in constraints
            if (c.text is not None and _fold(c.text).rstrip(".!;") in folded)
            or (len(c.id) > 3 and re.search(rf"(?<![\w-]){re.escape(_fold(c.id))}(?![\w-])", folded))
        ]
    )


def texts_of(messages: object) -> list[str]:
    """Every text of a message list, instructions too: what a receiver can read of it."""
    return [*(i.text for i in items(messages)), *_instructions(messages, 0)]


def _tokens(texts: Iterable[str], tokenizer: Tokenizer | None) -> int | None:
    if tokenizer is None:
        return None
    total = 0
    for text in texts:
        if len(text) > _MAX_COUNTED:
            return None
        total += tokenizer.count(text)
    return total


def _fold(text: str) -> str:
    return " ".join(text.split()).casefold()


def _items(value: object, depth: int) -> Iterator[Item]:
    if depth > 6 or value is None:
        return
    if isinstance(value, str):
        yield from _text(value)
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from _items(v, depth + 1)
    else:
        message = as_mapping(value)
        kind = _str(message, "type", "kind", "part_kind")
        speaker = _speaker(message)
        if speaker in _INSTRUCTIONS or kind in _NOTHING:
            return
        if kind in _CALLS:
            yield _call(message)
        elif kind in _RESULTS or kind.endswith("_call_output"):
            yield _result(message)
        elif kind.endswith("_call") and ("id" in message or "call_id" in message):
            # Hosted tools: call and result in one item.
            yield _call({"name": kind.removesuffix("_call"), "arguments": message.get("action"), **message})
            if message.get("output") is not None or message.get("results") is not None:
                yield _result(message)
        elif "messages" in message and "content" not in message:
            yield from _items(message["messages"], depth + 1)
        else:
            yield from _message(message, speaker, depth)


def _message(message: Mapping[str, object], speaker: str, depth: int) -> Iterator[Item]:
    content = next((message[k] for k in ("content", "parts", "text") if message.get(k) is not None), None)
    parts = content if isinstance(content, (list, tuple)) else None
    holds_results = parts is not None and any(_str(as_mapping(p), "type") in _RESULTS for p in parts)
    if speaker in ("tool", "function") and not holds_results:
        yield _result({"content": content})
        return
    called = False
    for item in _parts(content, depth):
        called |= item.kind == "call"
        yield item
    calls = message.get("tool_calls")
    # LangChain repeats the calls of content blocks under `tool_calls`.
    for call in calls if isinstance(calls, (list, tuple)) and not called else []:
        yield _call(as_mapping(call))


def _parts(content: object, depth: int) -> Iterator[Item]:
    if isinstance(content, str):
        yield from _text(content)
    elif isinstance(content, (list, tuple)):
        for part in content:
            yield from _parts(part, depth + 1)
    elif content is not None:
        part = as_mapping(content)
        kind = _str(part, "type", "kind", "part_kind")
        if kind in _NOTHING:
            return
        if kind in _CALLS:
            yield _call(part)
        elif kind in _RESULTS:
            yield _result(part)
        else:
            text = next((part[k] for k in ("text", "content", "refusal") if isinstance(part.get(k), str)), None)
            yield from _text(text) if isinstance(text, str) else [Item("text", _stable(part), kind)]


def _instructions(value: object, depth: int) -> Iterator[str]:
    if depth > 6 or value is None or isinstance(value, str):
        return
    if isinstance(value, (list, tuple)):
        for v in value:
            yield from _instructions(v, depth + 1)
    else:
        message = as_mapping(value)
        if _speaker(message) in _INSTRUCTIONS:
            yield from (i.text for i in _parts(message.get("content") or message.get("parts"), 0))


def _text(text: str) -> Iterator[Item]:
    if text.strip():
        yield Item("text", " ".join(text.split()), text)


def _call(call: Mapping[str, object]) -> Item:
    function = call.get("function")
    if isinstance(function, Mapping):
        call = {**call, **function}
    arguments = next((call[k] for k in ("arguments", "args", "input") if call.get(k) is not None), {})
    parsed = _parsed(arguments) if isinstance(arguments, str) else arguments
    text = _stable(parsed)
    return Item("call", f"{_str(call, 'name', 'tool_name')} {text}", text)


def _result(result: Mapping[str, object]) -> Item:
    keys = ("output", "content", "response", "result", "results")
    content = next((result[k] for k in keys if result.get(k) is not None), "")
    if isinstance(content, (list, tuple)):
        # Content blocks that are text are one text.
        blocks = [_str(as_mapping(b), "text") if not isinstance(b, str) else b for b in content]
        content = "\n".join(blocks) if all(blocks) else content
    text = content if isinstance(content, str) else _stable(content)
    # A result is JSON in one place and a Python repr of it in another.
    parsed = _parsed(text)
    return Item("result", _stable(parsed) if not isinstance(parsed, str) else " ".join(parsed.split()), text)


def _parsed(text: str) -> object:
    stripped = text.strip()
    if not stripped.startswith(("{", "[")) or len(stripped) > _MAX_COUNTED:
        return text
    for read in (json.loads, ast.literal_eval):
        try:
            return read(stripped)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
    return text


def _stable(value: object) -> str:
    try:
        return canonical(value)
    except (TypeError, ValueError):
        return repr(value)


def as_mapping(value: object) -> Mapping[str, object]:
    """A message as a mapping: a mapping itself, a model object, or an SDK's wrapper around one."""
    if isinstance(value, Mapping):
        return value
    raw = getattr(value, "raw_item", None)
    if raw is not None:
        return as_mapping(raw)
    # LangChain messages; dumping them whole would copy what is not asked for.
    if hasattr(value, "content") and hasattr(value, "type") and hasattr(value, "additional_kwargs"):
        return {k: getattr(value, k) for k in ("type", "content", "tool_calls", "name") if getattr(value, k, None)}
    try:
        return model_fields(value)
    except TypeError:
        return {"content": str(value)}


_SPEAKERS = {"human": "user", "ai": "assistant", "aimessagechunk": "assistant"}


def _speaker(message: Mapping[str, object]) -> str:
    said = _str(message, "role", "type").lower()
    return _SPEAKERS.get(said, said)


def _str(message: Mapping[str, object], *keys: str) -> str:
    return next((v for v in (message.get(k) for k in keys) if isinstance(v, str) and v), "")


def json_text(value: object) -> str | None:
    """A value as canonical JSON, a text as it is; `None` where it is no JSON value."""
    if isinstance(value, str):
        return value
    try:
        return canonical(value)
    except (TypeError, ValueError):
        return None


Messages = Sequence[object]
"""A list of messages of any of the forms that `items` reads."""
