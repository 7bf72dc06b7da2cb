"""JSON from strangers: what is ambiguous, too deep or no JSON at all."""

from __future__ import annotations

import pytest

from deathless.base.errors import InvalidArgument
from deathless.base.limits import NESTING_MAX
from deathless.shell.web.json_bodies import check_body


def deep(levels: int) -> bytes:
    return b'{"x":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b'{"a": 1, "b": {"a": 1}}',
        b'{"N": ":::", "b": "Infinity"}',
        deep(NESTING_MAX),
        b'{"x": "' + b"[" * 5000 + b'", "y": 1}',
        b'{"x": ' + b"9" * 6000 + b', "y": 1}',
    ],
)
def test_good_body_passes(body: bytes) -> None:
    check_body(body)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b'{"amount": 1, "amount": 100}', "`$.amount`"),
        (b'{"x": [1, {"y": {"a": 1, "a": 1}}], "z": 2}', "`$.x[1].y.a`"),
        (b'{"a\\u0062": 1, "ab": 2}', "`$.ab`"),
        (b'{"x": NaN}', "NaN"),
        (b'{"x": -Infinity, "y": 1}', "-Infinity"),
        (b'{"x": "\xff", "y": 1}', "UTF-8"),
        (deep(NESTING_MAX + 1), "levels"),
        (deep(100_000), "levels"),
        (b'{"x": ' + b"[" * 200_000, "levels"),
    ],
)
def test_body_whose_meaning_is_open_is_refused_with_its_place(body: bytes, told: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        check_body(body)
    assert told in caught.value.message


def test_what_is_no_json_is_left_to_the_decoder() -> None:
    check_body(b'{"a": 1, "b": }')
