"""Macros come out as Grafana's PostgreSQL data source writes them."""

import unittest
from datetime import UTC, datetime

from walk import macros

RANGE = macros.Range(datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 11, 2, 3, 4, 5, 600000, tzinfo=UTC))
FROM, TO = "2026-11-01T00:00:00Z", "2026-11-02T03:04:05.6Z"


class Macros(unittest.TestCase):
    def expands(self, sql: str, to: str, interval: int = 300000) -> None:
        self.assertEqual(macros.expand(sql, RANGE, interval), to)

    def test_time_filter(self) -> None:
        self.expands('WHERE $__timeFilter("time")', f"WHERE \"time\" BETWEEN '{FROM}' AND '{TO}'")

    def test_ends_of_the_range(self) -> None:
        self.expands("$__timeFrom() $__timeTo()", f"'{FROM}' '{TO}'")
        self.expands("$__unixEpochFrom() $__unixEpochTo()", "1793491200 1793588645")

    def test_groups(self) -> None:
        plain = "floor(extract(epoch from t)/300)*300"
        self.expands("$__timeGroup(t, '5m') ORDER", plain + " ORDER")
        self.expands("$__timeGroup(t, $__interval, NULL) x", plain + " x")
        self.expands("$__timeGroupAlias(t, $__interval), x", plain + ' AS "time", x')
        self.expands("$__unixEpochGroup(t, 5m) x", "floor((t)/300)*300 x")
        self.expands("$__unixEpochGroupAlias(t, 5m)", 'floor((t)/300)*300 AS "time"')

    def test_a_comma_behind_a_group_makes_it_an_alias(self) -> None:
        self.expands("$__timeGroup(t,5m), x", 'floor(extract(epoch from t)/300)*300 AS "time", x')

    def test_epoch_filters(self) -> None:
        self.expands("$__unixEpochFilter(t)", "t >= 1793491200 AND t <= 1793588645")
        self.expands("$__unixEpochNanoFilter(t)", "t >= 1793491200000000000 AND t <= 1793588645600000000")

    def test_intervals(self) -> None:
        self.expands("$__interval $__interval_ms ${__interval}", "5m 300000 5m")
        self.expands("$__interval", "1d", 86400000)
        self.expands("$__interval", "1500ms", 1500)

    def test_time_columns(self) -> None:
        self.expands("$__time(t)", 't AS "time"')
        self.expands("$__timeEpoch(t)", 'extract(epoch from t) as "time"')

    def test_an_argument_ends_at_the_first_bracket(self) -> None:
        self.expands("$__timeFilter(f(x))", f"f(x BETWEEN '{FROM}' AND '{TO}')")

    def test_what_grafana_refuses(self) -> None:
        for sql in ("$__timeFilter()", "$__timeGroup(t)", "$__nothing(t)", "$__timeGroup(t, soon)"):
            with self.subTest(sql), self.assertRaises(macros.MacroError):
                macros.expand(sql, RANGE)

    def test_lengths(self) -> None:
        for text, seconds in (("90", 90), ("1h30m", 5400), ("2d", 172800), ("250ms", 0.25)):
            self.assertEqual(macros.seconds_of(text), seconds)

    def test_the_step_is_no_shorter_than_the_least(self) -> None:
        self.assertEqual(macros.step(RANGE, None), 120000)
        self.assertEqual(macros.step(RANGE, "5m"), 300000)


if __name__ == "__main__":
    unittest.main()
