"""What the API server stores of what it is given: each quantity in one spelling, no empty fields, defaults, its gates.

Why: an operator that compares what it wrote with what is stored finds a difference for ever where it compares texts.
Guarantees: as `resource.Quantity` of k8s.io/apimachinery writes quantities, read from its documentation and apart from
the operator's own reading. Does not: know schemas; what is a quantity is told by its place.
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal
from typing import Any

import msgspec

GATED = ("matchLabelKeys",)  # dropped without a word, as a field behind a feature gate that is off
COUNTED = ("StatefulSet", "PodDisruptionBudget", "NetworkPolicy", "Certificate")  # have a metadata.generation
PLACES = ("requests", "limits")  # maps of quantities
FIELDS = ("sizeLimit", "divisor")  # quantities
BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
DECIMAL = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")


def canonical(text: str) -> str:
    """Give the one spelling of a quantity: no fraction, and the largest suffix that allows that."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([A-Za-z]*)", text)
    assert found, f"{text} is no quantity"
    value, suffix = Decimal(found[1]), found[2]
    if suffix in BINARY[1:]:
        value *= Decimal(1024) ** BINARY.index(suffix)
        if value >= 1024 and value == int(value):
            power = max(power for power in range(len(BINARY)) if int(value) % 1024**power == 0)
            return f"{int(value) // 1024**power}{BINARY[power]}"
    else:
        value *= Decimal(1000) ** (DECIMAL.index(suffix) - 3)
    tiny = int((value * 10**9).to_integral_value(ROUND_CEILING))
    if tiny == 0:
        return "0"
    power = max(power for power in range(len(DECIMAL)) if tiny % 1000**power == 0)
    return f"{tiny // 1000**power}{DECIMAL[power]}"


def stored(value: Any, place: str = "") -> Any:
    """Give what is stored of a body, or of the part of it that lies under the key `place`."""
    if isinstance(value, dict):
        kept = {key: item for key, item in value.items() if key not in GATED and item not in ("", [], None)}
        if place in PLACES:
            return {key: canonical(item) for key, item in kept.items()}
        found = {key: stored(item, key) for key, item in kept.items()}
        if "containers" in found:
            found = {"restartPolicy": "Always", "dnsPolicy": "ClusterFirst"} | found
        return found
    if isinstance(value, list):
        return [stored(item) for item in value]
    return canonical(value) if place in FIELDS else value


def copied(raw: Any) -> Any:
    """Give a copy of a JSON value; `copy.deepcopy` would be most of what a plan's test takes."""
    return msgspec.json.decode(msgspec.json.encode(raw))
