"""Arguments of a call as they are typed."""

from __future__ import annotations

import pytest

from deathless.base.errors import InvalidArgument
from deathless.cli.calls import parse_arguments


@pytest.mark.parametrize(
    ("pair", "value"),
    [
        ("a=5", 5), ("a=-1.5", -1.5), ("a=true", True), ("a=null", None), ('a="5"', "5"), ("a=alice", "alice"),
        ("a=[1,2]", [1, 2]), ('a={"b":1}', {"b": 1}), ("a=", ""), ("a=x=y", "x=y"), ("a=1 2", "1 2"), ("a=ü", "ü"),
        ("a=12345678901234567890", 12345678901234567890),
    ],
)  # fmt: skip
def test_value_is_json_or_else_a_text(pair: str, value: object) -> None:
    assert parse_arguments((pair,)) == {"a": value}


@pytest.mark.parametrize("pairs", [("a",), ("=1",), ("a b=1",), ("1a=1",), ("a=1", "a=2")])
def test_what_is_no_named_value_is_refused(pairs: tuple[str, ...]) -> None:
    with pytest.raises(InvalidArgument):
        parse_arguments(pairs)


def test_several_arguments_keep_their_names() -> None:
    assert parse_arguments(("source=a", "target=b", "amount=3")) == {"source": "a", "target": "b", "amount": 3}
