"""Arguments as JSON: what has no form there is refused with its place, and never becomes something else."""

from __future__ import annotations

import pytest

from deathless.base.errors import DeliveryRefused
from deathless.drivers.json_body import json_of


def test_what_json_can_carry_is_written_as_it_is() -> None:
    arguments = {"a": None, "b": ["null", 1.5, 2**63, {"c": b"x"}]}
    assert json_of(arguments, arguments, 1) == b'{"a":null,"b":["null",1.5,9223372036854775808,{"c":"eA=="}]}'


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"a": [1.0, float("nan")]}, r"the message holds nan, .* at `\$.a\[1\]`"),
        ({"a": {"b": float("-inf")}}, r"holds -inf, .* at `\$.a.b`"),
        ({"a": object()}, "object"),
        ({"a": {(1, 2): 3}}, "key"),
    ],
)
def test_what_has_no_json_form_is_refused_with_its_place(arguments: object, says: str) -> None:
    with pytest.raises(DeliveryRefused, match=says) as told:
        json_of({"line": arguments}, arguments, 7)
    assert told.value.position == 7
