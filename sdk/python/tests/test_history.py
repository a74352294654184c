import pytest

from baton_handoff.constraint import Constraint
from baton_handoff.history import Tokenizer, filtered_count, held_in, items, measure, texts_of

WORDS = Tokenizer("words", lambda text: len(text.split()))

# One history in the forms of several APIs: a text, a call with its result, a text.
RESPONSES = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": [{"type": "input_text", "text": "my money back"}]},
    {"type": "reasoning", "summary": []},
    {"type": "function_call", "call_id": "c", "name": "get_order", "arguments": '{"id": 5, "deep": true}'},
    {"type": "function_call_output", "call_id": "c", "output": "{'paid': True}"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I see."}]},
]
CHAT = [
    {"role": "developer", "content": "Be kind."},
    {"role": "user", "content": "my money back"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c", "function": {"name": "get_order", "arguments": '{"deep":true,"id":5}'}}],
    },
    {"role": "tool", "tool_call_id": "c", "content": '{"paid": true}'},
    {"role": "assistant", "content": "I see."},
]
ANTHROPIC = [
    {"role": "user", "content": "my money back"},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "hm"},
            {"type": "tool_use", "id": "c", "name": "get_order", "input": {"id": 5, "deep": True}},
        ],
    },
    {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": '{"paid": true}'}]}],
    },
    {"role": "assistant", "content": [{"type": "text", "text": "I see."}]},
]
GENAI = [
    {"role": "system", "parts": [{"type": "text", "content": "Be kind."}]},
    {"role": "user", "parts": [{"type": "text", "content": "my money back"}]},
    {"role": "assistant", "parts": [{"type": "tool_call", "name": "get_order", "arguments": {"id": 5, "deep": True}}]},
    {"role": "tool", "parts": [{"type": "tool_call_response", "response": {"paid": True}}]},
    {"role": "assistant", "parts": [{"type": "text", "content": "I see."}]},
]


def langchain():
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

    return [
        SystemMessage("Be kind."),
        HumanMessage("my money back"),
        AIMessage("", tool_calls=[{"id": "c", "name": "get_order", "args": {"id": 5, "deep": True}}]),
        ToolMessage('{"paid": true}', tool_call_id="c"),
        AIMessage([{"type": "text", "text": "I see."}]),
    ]


@pytest.mark.parametrize(
    "history", [RESPONSES, CHAT, ANTHROPIC, GENAI, langchain()], ids="responses chat anthropic genai langchain".split()
)
def test_the_forms_of_all_apis_are_one_history(history):
    found = items(history)
    assert [i.kind for i in found] == ["text", "call", "result", "text"]
    assert [(i.kind, i.key) for i in found] == [(i.kind, i.key) for i in items(CHAT)]
    assert filtered_count(found, items(CHAT)) == 0


def test_a_text_and_a_call_of_one_message_are_two_items():
    message = {**CHAT[2], "content": "Let me look."}
    assert [i.kind for i in items(message)] == ["text", "call"]
    assert [i.kind for i in items("hello")] == ["text"]
    assert items([]) == items(None) == items("  ") == []


def test_hosted_tools_are_a_call_and_a_result():
    call = {"type": "web_search_call", "id": "w", "action": {"query": "q"}, "results": ["r"]}
    assert [i.kind for i in items([call])] == ["call", "result"]


def test_counts():
    before, after = items(CHAT), items([CHAT[1], {"role": "user", "content": "[cleared]"}, CHAT[4], CHAT[4]])
    assert filtered_count(before, after) == 2
    assert measure(before).tokens is None
    assert measure(before, WORDS).tokens == 3 + 1 + 2 + 2
    assert measure([], WORDS).tokens == 0


def test_what_is_no_message_is_no_fault():
    assert [i.kind for i in items([5, object(), {"x": 1}, {"role": "user"}])] == ["text", "text"]


def test_constraints_are_found_by_id_and_by_text():
    a, b, c = (Constraint(*x) for x in (("refund-window", "Only in 30 days."), ("mask-iban", "Mask it"), ("x", "Never")))
    assert held_in([a, b, c], ["we keep\n only IN 30  days, ok?"]).ids == ["refund-window"]
    assert held_in([a, b, c], ["see mask-iban."]).ids == ["mask-iban"]
    # A part of another word is no mention, nor is an id of one letter.
    assert held_in([a, b, c], ["mask-ibans x no-mask-iban"]).ids == []


def test_a_receiver_reads_instructions_too():
    assert texts_of(CHAT)[-1] == "Be kind."
