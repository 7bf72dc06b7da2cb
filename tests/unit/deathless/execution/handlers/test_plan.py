"""Decoders and encoders chosen once."""

import msgspec
import pytest

from deathless.base.errors import InvalidArgument, TooLarge
from deathless.execution.author.service import Service
from deathless.execution.handlers.plan import Plan, StatePlan, check_key, encoder
from deathless.execution.turn.context import Context


class Account(msgspec.Struct):
    names: dict[str, int] = {}


class Tagged(msgspec.Struct):
    names: dict[str, int] = {}
    tags: set[str] = set()


def test_dicts_keep_their_order_where_no_set_can_be() -> None:
    assert msgspec.msgpack.decode(encoder(dict[str, int])({"b": 1, "a": 2})) == {"b": 1, "a": 2}
    assert list(msgspec.msgpack.decode(encoder(dict[str, int])({"b": 1, "a": 2}))) == ["b", "a"]


def test_sets_are_sorted() -> None:
    assert msgspec.msgpack.decode(encoder(Tagged)(Tagged(tags={"c", "a", "b"})))["tags"] == ["a", "b", "c"]


def test_default_state_shares_nothing_between_keys() -> None:
    states = StatePlan(Service("bank", state=Account))
    first, second = states.decode(states.default), states.decode(states.default)
    assert isinstance(first, Account)
    assert isinstance(second, Account)
    first.names["x"] = 1
    assert second.names == {}


@pytest.mark.parametrize(("stated", "scalar"), [(int, int), (None, type(None)), (str, str), (list[int], None)])
def test_results_of_plain_types_need_no_second_look(stated: object, scalar: object) -> None:
    service = Service("bank", state=Account)

    def handle(account: Account, ctx: Context) -> object: ...

    handle.__annotations__["return"] = stated
    service.handler(handle)
    assert Plan(service.specs["handle"]).scalar is scalar


def test_key_must_be_a_text_of_some_length() -> None:
    assert check_key("zoë".encode(), 4, "key") == "zoë".encode()
    with pytest.raises(TooLarge, match="5 bytes, at most 4 - at `key`"):
        check_key(b"12345", 4, "key")
    with pytest.raises(InvalidArgument, match="must not be empty"):
        check_key(b"", 4, "key")
    with pytest.raises(InvalidArgument, match="zero byte"):
        check_key(b"\0a", 4, "key")
    with pytest.raises(InvalidArgument, match="not UTF-8"):
        check_key(b"\xff", 4, "key")
