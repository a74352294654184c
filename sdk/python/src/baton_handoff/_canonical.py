"""The canonical JSON of a value (RFC 8785) and its digest.

One deviation: integers beyond 2^53 keep their digits, since two ids that differ in the last digit are two ids.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal

_DEPTH = 128
_quote = json.JSONEncoder(ensure_ascii=False).encode


def canonical(value: object) -> str:
    """Gives the canonical text of a JSON value.

    Raises:
        ValueError: The value holds NaN or an infinity, a lone surrogate, or is nested deeper than 128 levels.
        TypeError: The value holds something that JSON cannot, or a key that is no string.
    """
    out: list[str] = []
    _write(value, out, 0)
    return "".join(out)


def digest(value: object) -> str:
    """Gives SHA-256 over the canonical text in UTF-8, as 64 lower-case hex digits. Raises as `canonical` does."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def _write(value: object, out: list[str], depth: int) -> None:
    if depth > _DEPTH:
        raise ValueError(f"nested deeper than {_DEPTH} levels")
    if value is None:
        out.append("null")
    elif value is True:
        out.append("true")
    elif value is False:
        out.append("false")
    elif isinstance(value, str):
        out.append(_string(value))
    elif isinstance(value, int):
        out.append(int.__repr__(value))
    elif isinstance(value, float):
        out.append(_number(float(value)))
    elif isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"a key is a {type(key).__name__} and no string")
        out.append("{")
        # RFC 8785 sorts by UTF-16 units, which is not the order of code points.
        for i, key in enumerate(sorted(value, key=lambda k: k.encode("utf-16-be", "surrogatepass"))):
            out.append("," if i else "")
            out.append(_string(key))
            out.append(":")
            _write(value[key], out, depth + 1)
        out.append("}")
    elif isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray, memoryview)):
        out.append("[")
        for i, item in enumerate(value):
            out.append("," if i else "")
            _write(item, out, depth + 1)
        out.append("]")
    else:
        raise TypeError(f"{type(value).__name__} is no JSON value")


def _string(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("a lone surrogate is no Unicode text") from None
    return _quote(text)


def _number(value: float) -> str:
    """The shortest form that reads back as the same number, as ECMAScript writes it."""
    if not math.isfinite(value):
        raise ValueError(f"{value} is no JSON number")
    if value == 0:
        return "0"
    sign, digits_tuple, exponent = Decimal(repr(value)).as_tuple()
    digits = "".join(map(str, digits_tuple)).rstrip("0")
    # `Decimal` of a finite float has a whole exponent; the check tells the type checker so.
    point = len(digits_tuple) + (exponent if isinstance(exponent, int) else 0)
    n = len(digits)
    if n <= point <= 21:
        text = digits + "0" * (point - n)
    elif 0 < point <= 21:
        text = f"{digits[:point]}.{digits[point:]}"
    elif -6 < point <= 0:
        text = f"0.{'0' * -point}{digits}"
    else:
        power = point - 1
        mantissa = digits if n == 1 else f"{digits[0]}.{digits[1:]}"
        text = f"{mantissa}e{'+' if power >= 0 else '-'}{abs(power)}"
    return f"-{text}" if sign else text
