"""Whether an alert rule fires on given numbers, as Grafana's expressions have it."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from .boards import Json

Numbers = Mapping[str, float | None]

_BINARY: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda a, b: a / b if b else float("nan"),
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
}


class ExpressionError(ValueError):
    """An expression that is not known here."""


def fires(rule: Json, numbers: Numbers) -> bool:
    """True where the rule's condition holds. No number at all is what `noDataState` says."""
    values: dict[str, float | None] = dict(numbers)
    for q in rule["data"]:
        model = q["model"]
        if model.get("type") == "math":
            values[q["refId"]] = math(model["expression"], values)
        elif model.get("type") == "threshold":
            compared = values.get(model["expression"])
            evaluator = model["conditions"][0]["evaluator"]
            if evaluator["type"] != "gt":
                raise ExpressionError(f"threshold {evaluator['type']}")
            limit = float(evaluator["params"][0])
            values[q["refId"]] = None if compared is None else float(compared > limit)
    decided = values.get(rule["condition"])
    return rule["noDataState"] == "Alerting" if decided is None else decided != 0


def math(expression: str, numbers: Numbers) -> float | None:
    """Sums, products and comparisons; an unknown number makes the whole unknown."""
    text = re.sub(r"\$(\w+)", r"\1", expression).replace("&&", " and ")
    tree = ast.parse(text, mode="eval")
    return _value(tree.body, numbers)


def _value(node: ast.AST, numbers: Numbers) -> float | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return float(node.value)
    if isinstance(node, ast.Name):
        if node.id not in numbers:
            raise ExpressionError(f"no number {node.id}")
        return numbers[node.id]
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return _joined(type(node.ops[0]), node.left, node.comparators[0], numbers)
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        values = [_value(v, numbers) for v in node.values]
        return None if None in values else float(all(values))
    if isinstance(node, ast.BinOp):
        return _joined(type(node.op), node.left, node.right, numbers)
    raise ExpressionError(ast.dump(node))


def _joined(op: type[ast.AST], left: ast.AST, right: ast.AST, numbers: Numbers) -> float | None:
    if op not in _BINARY:
        raise ExpressionError(op.__name__)
    a, b = _value(left, numbers), _value(right, numbers)
    return None if a is None or b is None else float(_BINARY[op](a, b))
