"""A model that says what it is told to: an HTTP server on this machine that speaks the OpenAI APIs.

The examples run against it, with no network and no key. With a real model, leave it out.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Turn:
    """What the model says in one turn: a text, tool calls, or both."""

    text: str = ""
    calls: Sequence[tuple[str, Mapping[str, Any]]] = field(default_factory=tuple)


class ScriptedModel:
    """The server, as a context manager. The agent is told by the first words of its instructions: "You are NAME."."""

    def __init__(self, script: Mapping[str, Sequence[Turn]]) -> None:
        self.requests: list[dict[str, Any]] = []
        self._script = {agent: iter(turns) for agent, turns in script.items()}
        self._lock = threading.Lock()
        model = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                answer = json.dumps(model._answer(self.path, json.loads(body))).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.base_url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> ScriptedModel:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, path: str, request: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            self.requests.append(request)
            number = len(self.requests)
            turn = next(self._script[self._agent(request)])
        calls = [
            {"call_id": f"call_{number}_{i}", "name": name, "arguments": json.dumps(arguments)}
            for i, (name, arguments) in enumerate(turn.calls)
        ]
        return _response(number, request, turn, calls) if path.endswith("/responses") else _chat(number, request, turn, calls)

    def _agent(self, request: dict[str, Any]) -> str:
        text = request.get("instructions") or ""
        messages = request.get("messages") or request.get("input") or []
        for message in messages if isinstance(messages, list) else []:
            if message.get("role") in ("system", "developer"):
                content = message["content"]
                text += content if isinstance(content, str) else "".join(part["text"] for part in content)
        # Of a sub-agent with the instructions of its parent before its own the last one counts.
        found = {text.rfind(f"You are {agent}."): agent for agent in self._script}
        at = max(found)
        if at < 0:
            raise LookupError(f"no agent of the script in: {text[:200]}")
        return found[at]


def _response(number: int, request: dict[str, Any], turn: Turn, calls: list[dict[str, str]]) -> dict[str, Any]:
    output: list[dict[str, Any]] = []
    if turn.text:
        content = [{"type": "output_text", "text": turn.text, "annotations": []}]
        output.append({"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed", "content": content})
    output += [{"type": "function_call", "id": f"fc_{c['call_id']}", "status": "completed", **c} for c in calls]
    tokens = {
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": request["model"],
        "instructions": request.get("instructions"),
        "previous_response_id": request.get("previous_response_id"),
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {"input_tokens": 100, "output_tokens": 20, "total_tokens": 120, **tokens},
    }


def _chat(number: int, request: dict[str, Any], turn: Turn, calls: list[dict[str, str]]) -> dict[str, Any]:
    tools = [{"id": c["call_id"], "type": "function", "function": {"name": c["name"], "arguments": c["arguments"]}} for c in calls]
    message = {"role": "assistant", "content": turn.text or None, **({"tool_calls": tools} if tools else {})}
    return {
        "id": f"chatcmpl_{number}",
        "object": "chat.completion",
        "created": 1,
        "model": request["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if tools else "stop"}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
    }
