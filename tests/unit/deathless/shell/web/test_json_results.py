"""Results as JSON: exact, or refused with the place."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest

from deathless.base.errors import ResultUnreadable
from deathless.shell.web.json_results import result_as_json

pack = msgspec.msgpack.encode
NAN = float("nan")
INF = float("inf")


class Rate(msgspec.Struct):
    value: float


@dataclass
class Pair:
    left: float


class Angry(msgspec.Struct):
    n: int = 0

    def __post_init__(self) -> None:
        raise KeyError("no")


class Unspeakable(msgspec.Struct):
    n: int = 0

    def __post_init__(self) -> None:
        raise SilentError


class SilentError(Exception):
    def __str__(self) -> str:
        raise KeyError


def decoder(type_: Any) -> Any:
    return msgspec.msgpack.Decoder(type_).decode


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"\xff\x00", "/wA="),
        ({1: "a"}, {"1": "a"}),
        ({b"\xff": 1}, {"/w==": 1}),
        (2**64 - 1, 2**64 - 1),
        (-(2**63), -(2**63)),
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "2026-01-02T03:04:05Z"),
        (date(2026, 1, 2), "2026-01-02"),
        (timedelta(seconds=90), "PT90S"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        ("\x7f\xf0 caf\u00e9 \xcb\x7f\xff", "\x7f\xf0 caf\u00e9 \xcb\x7f\xff"),
        (b"\xcb\x7f\xf0", "y3/w"),
        (1.5, 1.5),
    ],
)
def test_value_with_a_form_in_json_keeps_it(value: object, text: object) -> None:
    assert json.loads(result_as_json(pack(value), decoder(type(value)))) == text


@pytest.mark.parametrize(
    ("value", "type_", "place"),
    [
        (NAN, Any, "`$`"),
        ([1.0, -INF], Any, "`$[1]`"),
        ({"a": [{"b": NAN}]}, Any, "`$.a[0].b`"),
        ({"a": INF}, dict[str, float], "`$.a`"),
        (Rate(NAN), Rate, "`$.value`"),
        (Pair(INF), Pair, "`$.left`"),
        ({(1, 2): "a"}, dict[tuple[int, int], str], "`$`"),
        ({"x": {(1, 2): "a"}}, dict[str, dict[tuple[int, int], str]], "`$.x`"),
        ({NAN: 1}, dict[float, int], "`$`"),
    ],
)
def test_value_without_a_form_in_json_is_refused_with_its_place(value: object, type_: Any, place: str) -> None:
    with pytest.raises(ResultUnreadable) as caught:
        result_as_json(pack(value), decoder(type_))
    assert place in caught.value.message


@pytest.mark.parametrize("type_", [Angry, Unspeakable])
def test_types_that_raise_cost_their_own_result_alone(type_: Any) -> None:
    with pytest.raises(ResultUnreadable):
        result_as_json(pack({"n": 1}), decoder(type_))


def test_result_that_another_version_wrote_is_told_as_plain_values() -> None:
    assert result_as_json(pack({"n": "text"}), decoder(dict[str, int])) == b'{"n":"text"}'


def test_result_that_is_nested_too_deep_is_refused() -> None:
    with pytest.raises(ResultUnreadable):
        result_as_json(b"\x91" * 100_000 + b"\xc0")
