"""Writes vectors.json, or another file: python3 record/vectors.py [FILE]

An implementation of its own of what record/README.md says of hashes, so that agreement means something. Python 3.10, no packages.
Each expected value is computed here from the definition; the Rust crate and the Python package only check them.
"""

import hashlib
import json
import os
import sys
import unicodedata
from decimal import Decimal

HERE = os.path.dirname(os.path.abspath(__file__))
EXACT = 2**53


def number(x: float) -> str:
    """A double as ECMAScript writes it (RFC 8785 section 3.2.2.3)."""
    if x == 0:
        return "0"
    sign, digits, exponent = Decimal(repr(x)).as_tuple()
    text = "".join(map(str, digits))
    point = len(text) + exponent  # The value is 0.text times ten to the power of this.
    text = text.rstrip("0")
    k = len(text)
    if k <= point <= 21:
        body = text + "0" * (point - k)
    elif 0 < point <= 21:
        body = text[:point] + "." + text[point:]
    elif -6 < point <= 0:
        body = "0." + "0" * -point + text
    else:
        e = point - 1
        fraction = "." + text[1:] if k > 1 else ""
        body = f"{text[0]}{fraction}e{'+' if e >= 0 else '-'}{abs(e)}"
    return ("-" if sign else "") + body


def canonical(v) -> str:
    if v is None:
        return "null"
    if isinstance(v, bool):
        return "true" if v else "false"
    if isinstance(v, int):
        # The one deviation: integers beyond 2^53 keep their digits.
        return str(v)
    if isinstance(v, float):
        return number(v)
    if isinstance(v, str):
        # Two-letter escapes, \u00xx in lower case for other control characters, everything else as it is.
        return json.dumps(v, ensure_ascii=False)
    if isinstance(v, list):
        return "[" + ",".join(map(canonical, v)) + "]"
    keys = sorted(v, key=lambda k: k.encode("utf-16-be"))
    return "{" + ",".join(canonical(k) + ":" + canonical(v[k]) for k in keys) + "}"


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


# What Unicode calls White_Space. Python's strip() takes U+001C to U+001F too.
WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"


def trim(text: str) -> str:
    return text.strip(WHITE_SPACE)


def constraint(id_: str, text: str) -> dict:
    c = canonical({"id": trim(id_), "text": trim(text)})
    return {"id": id_, "text": text, "canonical": c, "sha256": sha256(c)}


def plain(text: str) -> dict:
    c = canonical({"text": trim(text)})
    return {"text": text, "canonical": c, "sha256": sha256(c), "id": sha256(c)[:16]}


def constraint_set(members: list) -> dict:
    return {"members": members, "sha256": sha256("".join(sorted(set(members))))}


def value(text: str) -> dict:
    c = canonical(json.loads(text))
    return {"json": text, "canonical": c, "sha256": sha256(c)}


def arguments(of, *forms: str) -> dict:
    c = canonical(of)
    return {"canonical": c, "sha256": sha256(c), "forms": list(forms)}


def list_entry(entry) -> dict:
    """What stands in a list of constraints: a string, or an object with id and text."""
    if isinstance(entry, str):
        entry_id, text, retired = "", entry, False
    else:
        entry_id = next((trim(entry[k]) for k in ("id", "name", "constraint_id") if k in entry), "")
        text = next((entry[k] for k in ("text", "description", "rule", "constraint", "statement") if k in entry), "")
        retired = entry.get("retired", False)
    c = constraint(entry_id, text) if entry_id else plain(text)
    return {"entry": entry, "id": trim(c["id"]), "sha256": c["sha256"], "retired": retired}


REQUIRED = ["intent", "constraints", "status", "evidence", "next_action", "stop_condition"]
EXTENDED = {
    "task_id": None,
    "user_goal": "intent",
    "hard_constraints": "constraints",
    "soft_preferences": None,
    "completion_status": "status",
    "completed_steps": "status",
    "attempted_tools": None,
    "known_failures": None,
    "important_tool_results": "evidence",
    "unresolved_questions": None,
    "artifact_refs": "evidence",
    "narrative": None,
}
PLACEHOLDERS = ["", "n/a", "na", "none", "null", "nil", "todo", "tbd", "-", "--", "\u2026", "unknown", "placeholder"]


def present(v) -> bool:
    if isinstance(v, str):
        return trim(trim(v).strip(".\"'<>[]")).lower() not in PLACEHOLDERS
    if isinstance(v, list):
        return any(map(present, v))
    if isinstance(v, dict):
        return any(map(present, v.values()))
    return v is not None


def contract(of: dict) -> dict:
    """Fields that are present, and the active constraints: hard, not retired, one of an id, as stated last."""
    stated: dict = {}
    for key in ("constraints", "hard_constraints"):
        for entry in map(list_entry, of.get(key, [])):
            stated[entry["id"]] = entry
    active = [c for c in stated.values() if not c["retired"]]
    found = {k for k in of if k in REQUIRED + list(EXTENDED) and present(of[k])}
    found |= {EXTENDED[k] for k in found if EXTENDED.get(k)}
    # An empty list says that there are none.
    if [] in (of.get("constraints"), of.get("hard_constraints")):
        found.add("constraints")
    c = canonical(of)
    return {
        "contract": of,
        "canonical": c,
        "sha256": sha256(c),
        "fields": [f for f in REQUIRED + list(EXTENDED) if f in found],
        "constraints_retired": [c["id"] for c in stated.values() if c["retired"]],
        "constraints_ids": [c["id"] for c in active],
        "constraints_hashes": [c["sha256"] for c in active],
        "constraints_hash": constraint_set([c["sha256"] for c in active])["sha256"],
    }


TEXTS = [
    "Refund only within 30 days of capture",
    "Never repeat a customer's IBAN in full.",
    "Höchstens 3 Stück – \"je\" Auftrag\n",
    "\U0001f469\u200d\U0001f4bb only",
    "Never promise a date.",
    "Ask before deleting.",
    "返金は30日以内に限る。",
    "환불은 30일 이내에만 가능합니다.",
    "Возврат только в течение 30 дней",
    "الاسترداد خلال 30 يومًا فقط",
    "החזר תוך 30 יום בלבד",
    "ธุรกรรมคืนเงินภายใน 30 วัน",
    "वापसी केवल 30 दिनों के भीतर",
    "e\u0301 and \u00e9 are two texts",
    "tab\tnewline\nreturn\rformfeed\fbackspace\b",
    "control \u0000 \u0001 \u001f \u007f \u0080",
    "back\\slash and \"quotes\" and /slash",
    "line \u2028 and paragraph \u2029 separators",
    "byte order mark \ufeff inside",
    "no-break\u00a0space and zero\u200bwidth",
    "<script>&amp;</script>",
    "a" * 1000,
    "Amount <= 100.00 EUR",
    "100%",
    "\U00010000 \U0010ffff",
    "\ufffd replacement",
]

# One letter each whose four normal forms differ in part, and what they are of.
FORMS = ["\u00e9", "\u1e9b\u0323", "\ufb01", "\u00c5", "\u212b", "\uac00", "\u0958", "\u2460", "\u00bd", "\uff21", "\u03d3", "\u1ea4"]

FLOATS = """0.0 -0.0 1.0 -1.0 1.5 0.1 0.2 0.30000000000000004 1e2 1E+2 100.0 1e21 1e20 999999999999999900000.0 1e-6 1e-7 0.000001
0.0000012 1.7976931348623157e308 2.2250738585072014e-308 5e-324 4.9406564584124654e-324 2.225073858507201e-308 9007199254740992.0
9007199254740994.0 1.2345678901234567 123456789.12345679 333333333.33333329 4.35 4.349999999999999 0.3 2e-3 10e-1 12e3
5.0000000000000005e-10 8.41e21 9.5367431640625e-7 2.98023223876953125e-8 1e23 9.999999999999999e22 6.02214076e23 1.6e-35
295147905179352830000.0 72057594037927945.0 0.1e1 -123.456e-7""".split()

INTEGERS = """0 -0 1 -1 42 9007199254740991 9007199254740992 9007199254740993 -9007199254740991 -9007199254740992 -9007199254740993
9223372036854775807 9223372036854775808 -9223372036854775808 -9223372036854775809 18446744073709551615 18446744073709551616
123456789012345678901234567890 -123456789012345678901234567890 100000000000000000000 1000000000000000000000""".split()

DOCUMENTS = [
    "{}",
    "[]",
    "[[],{},[[]]]",
    '""',
    '" "',
    "null",
    "true",
    "false",
    '{"b":1,"a":2}',
    '{"a":2,"b":1}',
    '{"":1,"a":2}',
    '{"a":{"d":1,"c":[2,{"f":3,"e":4}]},"A":5}',
    '{"10":1,"9":2,"1":3}',
    '{"\\u20ac":1,"\\r":2,"\\ufb33":3,"1":4,"\\ud83d\\ude00":5,"\\u0080":6,"\\u00f6":7}',
    '{"\\u00e9":1,"e\\u0301":2}',
    '{"e\\u0301":2,"\\u00e9":1}',
    '{"aa":1,"a":2,"aA":3,"a\\u0000":4}',
    '{"\\ud800\\udc00":1,"\\uffff":2,"\\ue000":3}',
    '"\\u0000\\u0001\\u0008\\u0009\\u000a\\u000b\\u000c\\u000d\\u001f\\u0020\\u007f"',
    '"\\/ \\u002f \\" \\\\"',
    '"\\u2028\\u2029"',
    '{"n":[9007199254740993,1.0,-0.0,1e3,null,true,"1"]}',
    '{"order_id":"4711","amount":49.90,"currency":"EUR"}',
    '{"currency":"EUR","amount":49.9,"order_id":"4711"}',
    '{"order_id":4711,"amount":49.90,"currency":"EUR"}',
    '{"intent":"Refund order 4711","constraints":[],"status":"","evidence":null,"next_action":[""],"stop_condition":{}}',
    '{"ids":[123456789012345678901234567890,"123456789012345678901234567890"]}',
]


def main() -> None:
    ids = ["refund-window-30d", "mask-iban", "größe", "emoji"]
    constraints = [constraint(i, t) for i, t in zip(ids, TEXTS)]
    constraints += [constraint(f"rule-{n}", t) for n, t in enumerate(TEXTS[4:])]
    for n, letter in enumerate(FORMS):
        for form in ("NFC", "NFD", "NFKC", "NFKD"):
            text = unicodedata.normalize(form, letter)
            new = constraint(f"form-{n}", f"Always {text}")
            if new not in constraints:
                constraints.append(new)
    constraints += [constraint(" spaces ", "\u3000at both ends\u00a0"), constraint("\u00e9", "x"), constraint("e\u0301", "x")]
    constraints += [constraint("separators", "\u001cstay\u001f"), constraint("empty", "")]

    plains = [plain(t) for t in TEXTS]
    plains += [plain(unicodedata.normalize(f, "Prüfe jede Rückgabe")) for f in ("NFC", "NFD")]

    entries = [
        list_entry("Never promise a date."),
        list_entry("  Never promise a date.\n"),
        list_entry({"id": "a", "text": "A rule"}),
        list_entry({"text": "A rule", "id": "a"}),
        list_entry({"id": " a ", "text": "\tA rule\n"}),
        list_entry({"id": "a", "text": "A rule", "kind": "soft", "scope": "refunds"}),
        list_entry({"id": "a", "text": "A rule", "retired": True}),
        list_entry({"text": "A rule"}),
        list_entry({"name": "a", "description": "A rule"}),
        list_entry({"constraint_id": "a", "rule": "A rule"}),
        list_entry({"id": "a"}),
        list_entry({"id": "", "text": "A rule"}),
    ]

    h = [c["sha256"] for c in constraints]
    p = [c["sha256"] for c in plains]
    sets = [[], h[:1], h[1:2], p[:1], h[:2], h[1::-1], h[:2] + h[:1], h[:4], h[3::-1], h[:4] + p[:1], [h[0]] * 3]
    sets += [h[:n] for n in (8, 16, 32, 64)] + [h[:n:-1] for n in (8, 16, 32)] + [h + p, sorted(h + p), p, p[::-1]]

    args = [
        arguments(
            {"a": 1, "b": "x"},
            '{"a":1,"b":"x"}',
            '{"b": "x", "a": 1.0}',
            "{'a': 1, 'b': 'x'}",
            '{"inputs": {"a": 1, "b": "x"}}',
            '{"kwargs": {"b": "x", "a": 1}}',
            '"{\\"a\\":1,\\"b\\":\\"x\\"}"',
        ),
        arguments({"id": 9007199254740993}, '{"id": 9007199254740993}', "{'id': 9007199254740993}"),
        arguments(
            {"s": "é\u000b€", "n": None, "t": True},
            '{"s":"\\u00e9\\u000b\\u20ac","n":null,"t":true}',
            "{'s': 'é\\x0b€', 't': True, 'n': None}",
        ),
        arguments({"x": [1e21, 1e-7, 333333333.33333329, 0]}, '{"x":[1e21,0.0000001,333333333.33333329,-0.0]}'),
        arguments({}, "{}", "  {} "),
        arguments({"\ufb33": 1, "\U0001f602": 2}, '{"\\ufb33":1,"\\ud83d\\ude02":2}'),
        arguments({"q": "it's"}, '{"q":"it\'s"}', '{\'q\': "it\'s"}'),
        arguments({"q": "12"}, '{"q":"12"}', "{'q': '12'}"),
        arguments({"q": '{"a": 1}'}, '{"q":"{\\"a\\": 1}"}'),
        arguments({"path": "C:\\x"}, '{"path":"C:\\\\x"}', "{'path': 'C:\\\\x'}"),
        arguments({"f": 0.1, "g": [True, False, None]}, '{"f":0.1,"g":[true,false,null]}', "{'f': 0.1, 'g': [True, False, None]}"),
        arguments({"name": "x"}, '{"name":"x"}'),
    ]

    rule = {"id": "refund-window-30d", "text": "Refund only within 30 days of capture"}
    contracts = [
        contract({}),
        contract({"intent": "Refund order 4711", "constraints": []}),
        contract({"intent": "Refund order 4711", "constraints": [rule, "Never promise a date."]}),
        contract({"constraints": ["Never promise a date.", rule], "intent": "Refund order 4711"}),
        contract(
            {
                "intent": "Refund order 4711",
                "constraints": [rule],
                "status": "Identity verified",
                "evidence": [{"order": "4711", "amount": 49.9, "ids": [9007199254740993]}, "captured 12 days ago"],
                "next_action": "Issue the refund",
                "stop_condition": "Refunded or declined",
            }
        ),
        contract({"constraints": [rule], "hard_constraints": [{**rule, "text": "Refund only within 14 days of capture"}]}),
        contract({"constraints": [rule, {"id": "mask-iban", "text": "Mask IBANs", "retired": True}], "status": "TODO"}),
        contract({"constraints": [rule], "hard_constraints": [{**rule, "retired": True}], "soft_preferences": ["Be brief"]}),
        contract({"constraints": [{"id": "a", "text": "A", "scope": "refunds"}], "evidence": ["n/a", " "], "next_action": "\u2026"}),
        contract({"user_goal": "money back", "completed_steps": ["verify"], "artifact_refs": ["s3://e/1"], "narrative": "\u00e9 e\u0301"}),
    ]

    vectors = {
        "about": "Test vectors; record/README.md states the algorithm, record/vectors.py computed them. canonical is RFC 8785, except that "
        "integers beyond 2^53 keep their digits; text is never normalised. Of a constraint, id and text are trimmed before. sha256 is lower-case hex over the UTF-8 bytes of canonical; of a "
        "set: over its sorted member hashes, each once, one after the other. A plain text constraint has no id of its own: its canonical form "
        "holds the text alone, its id is the first 16 digits of its hash. constraint_entries are what may stand in a list of constraints. Of "
        "contracts, fields are those that are present, constraints_* are those in force. Of values, json is the text of a JSON document. Each of forms, as the text of a tool call's arguments, has the same "
        "canonical form.",
        "constraints": constraints,
        "plain_constraints": plains,
        "constraint_entries": entries,
        "contracts": contracts,
        "constraint_sets": [constraint_set(s) for s in sets],
        "values": [value(t) for t in FLOATS + INTEGERS + DOCUMENTS],
        "arguments": args,
    }
    # Escaped, so that no tool on the way normalises a text.
    path = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "vectors.json")
    with open(path, "w", encoding="ascii") as f:
        json.dump(vectors, f, indent=1)
        f.write("\n")


main()
