"""Answers become the frames that Grafana's data source makes of them."""

from __future__ import annotations

import unittest
from datetime import UTC, datetime
from decimal import Decimal

from walk.run import Result

from . import frames


class Frames(unittest.TestCase):
    def test_a_table_stays_as_it_is(self) -> None:
        at = datetime(2026, 1, 1, tzinfo=UTC)
        r = Result(
            ["time", "n", "ok", "who"],
            ["time", "number", "flag", "text"],
            [(at, Decimal("1.5"), True, "a"), (at, None, None, None)],
        )
        (frame,) = frames.table(r, "A")
        self.assertEqual([f["type"] for f in frame["fields"]], ["time", "number", "boolean", "string"])
        self.assertEqual([f["values"][0] for f in frame["fields"]], [1767225600000, 1.5, True, "a"])
        self.assertEqual([f["values"][1] for f in frame["fields"]][1:], [None, None, None])

    def test_an_epoch_called_time_is_a_time(self) -> None:
        (frame,) = frames.series(Result(["time", "n"], ["number", "number"], [(1767225600, 1)]), "A")
        self.assertEqual(frame["fields"][0], {"name": "time", "type": "time", "values": [1767225600000]})

    def test_texts_become_labels(self) -> None:
        r = Result(
            ["time", "who", "n", "m"], ["number", "text", "number", "number"], [(1, "b", 1, 2), (1, "a", 3, 4), (2, "a", 5, 6)]
        )
        (frame,) = frames.series(r, "A")
        got = [(f["name"], f.get("labels"), f["values"]) for f in frame["fields"]]
        self.assertEqual(got[0], ("time", None, [1000, 2000]))
        self.assertIn(("n", {"who": "b"}, [1, None]), got)
        self.assertIn(("m", {"who": "a"}, [4, 6]), got)

    def test_metric_is_a_name(self) -> None:
        r = Result(["time", "metric", "n"], ["number", "text", "number"], [(1, "a", 1)])
        (frame,) = frames.series(r, "A")
        self.assertEqual((frame["fields"][1]["name"], frame["fields"][1]["labels"]), ("a", {}))

    def test_steps_without_rows_are_filled(self) -> None:
        made = frames.series(Result(["time", "n"], ["number", "number"], [(60, 1), (240, 2)]), "A")
        (frame,) = frames.filled(made, 70000, 310000, 60000)
        self.assertEqual(frame["fields"][0]["values"], [60000, 120000, 180000, 240000, 300000])
        self.assertEqual(frame["fields"][1]["values"], [1, None, None, 2, None])

    def test_no_number_reaches_the_page_as_text(self) -> None:
        (frame,) = frames.table(Result(["n"], ["number"], [(float("nan"),)]), "A")
        self.assertEqual(frame["fields"][0]["values"], ["nan"])


if __name__ == "__main__":
    unittest.main()
