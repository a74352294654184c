import hashlib
import json
import pathlib
import random
import struct

import pytest

from baton_handoff import Constraint, ConstraintSet, Contract
from baton_handoff._canonical import canonical, digest
from baton_handoff.constraint import set_hash

VECTORS = json.loads((pathlib.Path(__file__).parents[3] / "record" / "vectors.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("vector", VECTORS["constraints"], ids=lambda v: v["id"])
def test_a_constraint_has_the_published_hash(vector):
    c = Constraint(vector["id"], vector["text"])
    assert c.hash == vector["sha256"]
    assert hashlib.sha256(vector["canonical"].encode()).hexdigest() == vector["sha256"]


@pytest.mark.parametrize("vector", VECTORS["plain_constraints"], ids=lambda v: v["id"])
def test_a_sentence_has_the_published_hash_and_id(vector):
    c = Constraint.from_text(vector["text"])
    assert (c.hash, c.id) == (vector["sha256"], vector["id"])


@pytest.mark.parametrize("vector", VECTORS["constraint_sets"], ids=lambda v: v["sha256"][:8])
def test_a_set_has_the_published_hash_in_any_order(vector):
    members = vector["members"]
    assert set_hash(members) == set_hash(reversed(members)) == set_hash([*members, *members]) == vector["sha256"]


def forms():
    found = []
    for vector in VECTORS["arguments"]:
        for form in vector["forms"]:
            try:
                value = json.loads(form)
            except ValueError:
                continue  # a Python repr or a cut text: only the reader of traces knows these
            if (isinstance(value, dict) and not value.keys() <= {"inputs", "kwargs", "input_str"}) or value == {}:
                found.append(pytest.param(value, vector, id=form[:40]))
    return found


@pytest.mark.parametrize(("value", "vector"), forms())
def test_a_value_has_the_published_canonical_form(value, vector):
    assert canonical(value) == vector["canonical"]
    assert digest(value) == vector["sha256"]


@pytest.mark.parametrize("vector", VECTORS.get("constraint_entries", []), ids=lambda v: json.dumps(v["entry"])[:40])
def test_what_stands_in_a_list_of_constraints_is_read_as_published(vector):
    c = Constraint.from_value(vector["entry"])
    assert (c.id, c.hash, c.retired) == (vector["id"], vector["sha256"], vector["retired"])


@pytest.mark.parametrize("vector", VECTORS.get("contracts", []), ids=lambda v: v["sha256"][:8])
def test_a_contract_has_the_published_form_and_hashes(vector):
    contract = Contract.from_payload(vector["contract"]) or Contract()
    assert contract.to_json() == vector["canonical"]
    assert contract.digest() == vector["sha256"]
    assert contract.fields == vector["fields"]
    rules = contract.constraint_set
    assert (rules.ids, rules.hashes, rules.hash) == (
        vector["constraints_ids"],
        vector["constraints_hashes"],
        vector["constraints_hash"],
    )
    assert [c.id for c in rules.retired] == vector["constraints_retired"]


@pytest.mark.parametrize("vector", VECTORS.get("values", []), ids=lambda v: v["json"][:40])
def test_a_json_document_has_the_published_canonical_form(vector):
    value = json.loads(vector["json"])
    assert canonical(value) == vector["canonical"]
    assert digest(value) == vector["sha256"]


# RFC 8785, appendix B.
NUMBERS = [
    ("0000000000000000", "0"),
    ("8000000000000000", "0"),
    ("0000000000000001", "5e-324"),
    ("8000000000000001", "-5e-324"),
    ("7fefffffffffffff", "1.7976931348623157e+308"),
    ("4340000000000000", "9007199254740992"),
    ("c340000000000000", "-9007199254740992"),
    ("4430000000000000", "295147905179352830000"),
    ("44b52d02c7e14af5", "9.999999999999997e+22"),
    ("44b52d02c7e14af6", "1e+23"),
    ("44b52d02c7e14af7", "1.0000000000000001e+23"),
    ("444b1ae4d6e2ef4e", "999999999999999700000"),
    ("444b1ae4d6e2ef4f", "999999999999999900000"),
    ("444b1ae4d6e2ef50", "1e+21"),
    ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
    ("3eb0c6f7a0b5ed8d", "0.000001"),
    ("41b3de4355555553", "333333333.3333332"),
    ("41b3de4355555554", "333333333.33333325"),
    ("41b3de4355555555", "333333333.3333333"),
    ("becbf647612f3696", "-0.0000033333333333333333"),
    ("43143ff3c1cb0959", "1424953923781206.2"),
]


@pytest.mark.parametrize(("bits", "text"), NUMBERS)
def test_floats_are_written_as_the_standard_says(bits, text):
    assert canonical(struct.unpack(">d", bytes.fromhex(bits))[0]) == text


def test_every_float_reads_back_as_itself():
    r = random.Random(1)
    for _ in range(20_000):
        x = struct.unpack(">d", r.randbytes(8))[0]
        if x == x and abs(x) != float("inf"):
            assert float(canonical(x)) == x


def test_what_is_no_json_is_refused():
    for value, error in ((float("nan"), ValueError), ("\ud800", ValueError), ({1: 2}, TypeError), ({1, 2}, TypeError)):
        with pytest.raises(error):
            canonical(value)
    deep = []
    for _ in range(200):
        deep = [deep]
    with pytest.raises(ValueError, match="128 levels"):
        canonical(deep)


def test_integers_beyond_2_to_53_keep_their_digits():
    assert canonical({"n": 9007199254740993, "m": -(10**40)}) == '{"m":-1' + "0" * 40 + ',"n":9007199254740993}'


def test_keys_are_sorted_by_utf_16_units():
    assert canonical({"\ufb33": 1, "\U0001f600": 2}) == '{"\U0001f600":2,"\ufb33":1}'


def test_the_empty_set_has_a_hash():
    assert ConstraintSet().hash == hashlib.sha256(b"").hexdigest()
