"""Variables come out as Grafana quotes them for its PostgreSQL data source."""

import unittest

from walk import variables
from walk.variables import Variable


def put(sql: str, **kept: Variable) -> str:
    return variables.put(sql, kept)


class Variables(unittest.TestCase):
    def test_several_values_are_quoted_and_joined(self) -> None:
        v = Variable("v", multi=True, chosen=("a", "O'Brien"))
        self.assertEqual(put("x IN ($v)", v=v), "x IN ('a','O''Brien')")
        self.assertEqual(put("x IN (${v})", v=v), "x IN ('a','O''Brien')")
        self.assertEqual(put("x IN ([[v]])", v=v), "x IN ('a','O''Brien')")

    def test_one_value_of_many_is_quoted(self) -> None:
        self.assertEqual(put("x = $v", v=Variable("v", include_all=True, chosen=("a",))), "x = 'a'")

    def test_a_plain_value_is_not_quoted_but_its_quotes_are_doubled(self) -> None:
        self.assertEqual(put("x = '$v'", v=Variable("v", chosen=("O'Brien",))), "x = 'O''Brien'")

    def test_an_sql_string_is_always_quoted(self) -> None:
        self.assertEqual(put("x = ${v:sqlstring}", v=Variable("v", chosen=("O'Brien",))), "x = 'O''Brien'")

    def test_all_is_put_in_as_it_is(self) -> None:
        v = Variable("v", multi=True, include_all=True, all_value="'(all)'", chosen=None)
        self.assertEqual(put("x IN (${v})", v=v), "x IN ('(all)')")
        self.assertEqual(put("x = ${v:sqlstring}", v=v), "x = '(all)'")

    def test_all_without_a_value_of_its_own_is_every_option(self) -> None:
        v = Variable("v", multi=True, include_all=True, options=("a", "b"), chosen=None)
        self.assertEqual(put("x IN ($v)", v=v), "x IN ('a','b')")

    def test_a_value_is_not_looked_into(self) -> None:
        kept = {"v": Variable("v", multi=True, chosen=("${w}",)), "w": Variable("w", chosen=("no",))}
        self.assertEqual(variables.put("$v", kept), "'${w}'")

    def test_grafanas_own_stay(self) -> None:
        self.assertEqual(put("$__interval ${__from}"), "$__interval ${__from}")

    def test_a_missing_variable_or_an_odd_format_is_an_error(self) -> None:
        for sql in ("$w", "${v:csv}"):
            with self.subTest(sql), self.assertRaises(variables.VariableError):
                put(sql, v=Variable("v", chosen=("a",)))

    def test_names(self) -> None:
        self.assertEqual(variables.names("$a ${b:sqlstring} [[c]] $__interval"), {"a", "b", "c"})


if __name__ == "__main__":
    unittest.main()
