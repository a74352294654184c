"""Each rule fires when it should, and is silent when it should be."""

import unittest
from pathlib import Path

from gen import decisions
from walk import alerting, boards

RULES = {r["uid"]: r for r in boards.load(Path(__file__).resolve().parent.parent / "grafana")[1]}
ENOUGH: dict[str, float] = {"N": 500, "P": 3500}


def compared(now: float | None, before: float | None, **known: float) -> dict[str, float | None]:
    return {"A": now, "B": before, **ENOUGH, **known}


class Alerts(unittest.TestCase):
    def fires(self, uid: str, numbers: dict[str, float | None], expected: bool) -> None:
        self.assertEqual(alerting.fires(RULES[uid], numbers), expected, (uid, numbers))

    def test_every_rule_is_tested_here(self) -> None:
        tested = {
            "baton-retention-drop",
            "baton-redundant-rise",
            "baton-rework-rise",
            "baton-leaks",
            "baton-not-acknowledging",
            "baton-data-lag",
        }
        self.assertEqual(set(RULES), tested)

    def test_retention_drop(self) -> None:
        self.fires("baton-retention-drop", compared(0.80, 0.95), True)
        self.fires("baton-retention-drop", compared(0.93, 0.95), False)
        self.fires("baton-retention-drop", compared(0.99, 0.80), False)

    def test_redundant_rise(self) -> None:
        self.fires("baton-redundant-rise", compared(0.30, 0.10), True)
        self.fires("baton-redundant-rise", compared(0.12, 0.10), False)
        self.fires("baton-redundant-rise", compared(0.00, 0.40), False)

    def test_rework_rise(self) -> None:
        self.fires("baton-rework-rise", compared(0.50, 0.80), True)
        self.fires("baton-rework-rise", compared(0.75, 0.80), False)

    def test_too_few_handoffs_are_silent(self) -> None:
        for uid, worse in (("retention-drop", (0.0, 1.0)), ("redundant-rise", (1.0, 0.0)), ("rework-rise", (0.0, 1.0))):
            self.fires(f"baton-{uid}", compared(*worse, N=decisions.LEAST, P=decisions.LEAST), True)
            self.fires(f"baton-{uid}", compared(*worse, N=decisions.LEAST - 1), False)
            self.fires(f"baton-{uid}", compared(*worse, P=decisions.LEAST - 1), False)

    def test_a_difference_within_chance_is_silent(self) -> None:
        # Sixty handoffs a day swing by more than five points all by themselves.
        self.fires("baton-retention-drop", compared(0.50, 0.60, N=60, P=420), False)
        self.fires("baton-retention-drop", compared(0.50, 0.60, N=600, P=4200), True)
        self.fires("baton-redundant-rise", compared(0.20, 0.10, N=60, P=420), False)
        self.fires("baton-redundant-rise", compared(0.20, 0.10, N=600, P=4200), True)

    def test_nothing_at_all_is_silent(self) -> None:
        self.fires("baton-retention-drop", compared(None, None, N=0, P=0), False)
        self.fires("baton-retention-drop", compared(0.0, 0.0, N=0, P=0), False)

    def test_unknown_is_silent(self) -> None:
        self.fires("baton-retention-drop", compared(None, 0.9), False)
        self.fires("baton-redundant-rise", compared(0.9, None), False)
        self.fires("baton-leaks", {"A": None}, False)

    def test_leaks(self) -> None:
        self.fires("baton-leaks", {"A": 1.0}, True)
        self.fires("baton-leaks", {"A": 0.0}, False)

    def test_not_acknowledging(self) -> None:
        self.fires("baton-not-acknowledging", {"A": 0.2}, True)
        self.fires("baton-not-acknowledging", {"A": 0.0}, False)
        # Nothing scraped: the collector may be down.
        self.fires("baton-not-acknowledging", {"A": None}, True)

    def test_data_lag(self) -> None:
        self.fires("baton-data-lag", {"A": decisions.LAG + 1.0}, True)
        self.fires("baton-data-lag", {"A": 60.0}, False)
        self.fires("baton-data-lag", {"A": None}, True)

    def test_an_expression_that_is_not_known(self) -> None:
        with self.assertRaises(alerting.ExpressionError):
            alerting.math("$A ** 2", {"A": 1.0})
        with self.assertRaises(alerting.ExpressionError):
            alerting.math("$Z + 1", {"A": 1.0})


if __name__ == "__main__":
    unittest.main()
