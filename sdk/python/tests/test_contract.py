import dataclasses

import pytest

from baton_handoff import Constraint, ConstraintSet, Contract

FULL = {
    "intent": "Refund order 4711",
    "constraints": [{"id": "refund-window-30d", "text": "Refund only within 30 days of capture"}],
    "status": "identity verified",
    "evidence": ["payment captured on 2 March"],
    "next_action": "Issue the refund",
    "stop_condition": "The refund is issued or refused",
}


def test_a_complete_contract_has_no_problem():
    contract = Contract(**FULL)
    assert contract.validate() == []
    assert contract.fields == list(FULL)


def test_problems_name_their_field():
    refs = ["r" * 2049]
    contract = Contract(
        intent=" n/a ",
        constraints=[{"kind": "hard"}],
        artifact_refs=refs,
        evidence="e" * 50,
        next_action=float("nan"),
        status=["todo", ""],
    )
    found = {(p.field, p.fault) for p in contract.validate(max_chars=40)}
    assert found == {
        ("intent", "placeholder"),
        ("status", "placeholder"),
        ("stop_condition", "missing"),
        ("evidence", "too_long"),
        ("next_action", "invalid"),
        ("constraints[0]", "invalid"),
        ("artifact_refs", "too_long"),
        ("artifact_refs[0]", "too_long"),
    }
    assert str(Contract().validate()[0]) == "intent: missing"


def test_an_empty_list_of_constraints_is_a_statement_and_other_empty_lists_are_not():
    assert Contract(constraints=[], evidence=[], status="").fields == ["constraints"]


def test_aliases_fill_fields():
    contract = Contract.from_payload({"goal": "g", "Hard Constraints": ["never"], "completed_steps": ["a"], "done_when": "d"})
    assert contract.fields == [
        "intent",
        "constraints",
        "status",
        "stop_condition",
        "hard_constraints",
        "completed_steps",
    ]
    assert contract.constraint_set.ids == [Constraint.from_text("never").id]


@pytest.mark.parametrize(
    ("payload", "fields"),
    [
        ({"description": 'Do it:\n{"intent": "i", "status": "s"}', "subagent_type": "x"}, ["intent", "status"]),
        ({"prompt": 'Please.\n```json\n{"intent": "i", "status": "s"}\n```'}, ["intent", "status"]),
        ({"contract": {"intent": "i", "status": "s"}}, ["intent", "status"]),
        ({"intent": "i"}, ["intent"]),
        ({"task": "Do it."}, None),
        ({"input": "Do it.", "context": "c"}, None),
        ("Please go on.", None),
        ("", None),
        ('{"intent": ', None),
        (None, None),
    ],
)
def test_contracts_are_found_where_they_stand(payload, fields):
    contract = Contract.from_payload(payload)
    assert (contract and contract.fields) == fields


def test_an_applications_own_types_are_read():
    @dataclasses.dataclass
    class Rule:
        id: str
        text: str

    @dataclasses.dataclass
    class Handover:
        intent: str
        constraints: list

    contract = Contract.from_payload(Handover("i", [Rule("a-rule", "A rule")]))
    assert contract.constraint_set == ConstraintSet([Constraint("a-rule", "A rule")])


def test_a_constraint_is_hard_or_soft_by_where_it_stands():
    contract = Contract(constraints=[Constraint("a", "A", "soft")], soft_preferences=["B"])
    assert [(c.text, c.kind) for c in contract.constraint_set] == [("A", "hard"), ("B", "soft")]
    assert contract.constraint_set.active.ids == ["a"]


def test_a_contract_is_read_back_as_it_was():
    contract = Contract(constraints=["Never promise a date.", Constraint("b", "B", retired=True)], intent="i")
    again = Contract.from_payload(contract.to_json())
    assert again.constraint_set == contract.constraint_set
    assert again.constraint_set.ids == [Constraint.from_text("Never promise a date.").id]
    assert again.to_json() == contract.to_json()


@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        (lambda: Constraint("", "t"), ValueError, "constraint.id"),
        (lambda: Constraint("i", 5), TypeError, "constraint.text"),
        (lambda: Constraint("i", "t", "maybe"), ValueError, "constraint.kind"),
        (lambda: Constraint("i", "\ud800"), ValueError, "constraint.text"),
        (lambda: ConstraintSet(["ok", 5]), TypeError, r"constraints\[1\]"),
        (lambda: ConstraintSet("one"), TypeError, "no list"),
        (lambda: Constraint.from_value({"scope": "x"}), ValueError, "neither id nor text"),
        (lambda: Constraint.from_text(None), TypeError, "constraint.text"),
    ],
)
def test_bad_constraints_name_what_is_wrong(make, error, said):
    with pytest.raises(error, match=said):
        make()


def test_sets():
    a, b = Constraint("a", "A"), Constraint("b", "B")
    both = ConstraintSet([a, b, a])
    assert len(both) == 2
    # The later of one id counts: a rule can be reworded.
    assert [c.text for c in ConstraintSet([a, b, Constraint("a", "A anew")])] == ["A anew", "B"]
    assert ConstraintSet([a, Constraint("s", "S", "soft"), Constraint("r", "R", retired=True)]).hash == ConstraintSet([a]).hash
    assert both.hash == ConstraintSet([b, a]).hash
    assert a in both
    assert both.retire("a").active == ConstraintSet([b])
    assert [c.id for c in both.retire("a").retired] == ["a"]
    assert (ConstraintSet([a]) | ConstraintSet([b])) == both
