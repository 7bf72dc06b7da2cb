"""Quantities of Kubernetes (`500m`, `1Gi`, `1e3`) by their value.

Why: the API server stores one spelling of each, so that `1000m` of a spec comes back as `1`.

Guarantees: two spellings of one quantity have one value, rounded as the API server rounds: up, to a billionth. Does
not: write quantities, or raise. Imports nothing of ours.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

_SHAPE: Final = re.compile(r"([+-]?)(\d+\.?\d*|\.\d+)(?:([KMGTPE]i|[numkMGTPE]?)|[eE]([+-]?\d{1,3}))", re.ASCII)
_THOUSANDS: Final = {"n": -3, "u": -2, "m": -1, "": 0, "k": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
_TEXT_MAX: Final = 64
_BILLION: Final = 10**9


def billionths(text: str) -> int | None:
    """Give a quantity in billionths; None where the text is none.

    "No fraction is stored with more than three digits of precision [below milli: nano]; larger or more precise numbers
    are rounded up" (k8s.io/apimachinery, api/resource, `Quantity`).
    """
    found = _SHAPE.fullmatch(text) if len(text) <= _TEXT_MAX else None
    if found is None:
        return None
    sign, digits, suffix, exponent = found.groups()
    if exponent is not None:
        factor = Fraction(10) ** int(exponent)
    elif suffix.endswith("i"):
        factor = Fraction(1024) ** ("KMGTPE".index(suffix[0]) + 1)
    else:
        factor = Fraction(1000) ** _THOUSANDS[suffix]
    value = -(-(Fraction(digits.rstrip(".")) * factor * _BILLION) // 1)
    return -value if sign == "-" else value
