"""What outputs are compared by: a chain over all of them, and the shape of each."""

from __future__ import annotations

import pytest

from deathless.protocols.ambrosia.items import EMPTY, bytes_of, chain_of, shape_of
from deathless.protocols.ambrosia.messages import Kind, MessageType, Oversized, Rpc, make_call, make_return


def post(arguments: bytes) -> Rpc:
    return make_call("b", -1, Kind.FORK, arguments)


def test_a_chain_stands_for_all_items_and_their_order() -> None:
    one, two = (bytes_of(make_call("b", 1, Kind.FORK, text)) for text in (b"1", b"2"))
    chain = chain_of(chain_of(EMPTY, one), two)
    assert len(chain) == 8
    assert chain != chain_of(chain_of(EMPTY, two), one)
    assert chain != chain_of(EMPTY, one + two[1:])


def test_the_target_is_no_part_of_an_item() -> None:
    assert bytes_of(make_call("b", 1, Kind.FORK, b"")) == bytes_of(make_call("c", 1, Kind.FORK, b""))


def test_an_item_that_was_too_long_is_told_from_others() -> None:
    def tomb(size: int) -> Oversized:
        return Oversized(destination="b", kind=Kind.FORK, method=1, name="", sequence=0, size=size)

    assert len({bytes_of(tomb(5)), bytes_of(tomb(6)), bytes_of(make_call("b", 1, Kind.FORK, b""))}) == 3
    assert shape_of(tomb(5)) == shape_of(make_call("b", 1, Kind.FORK, b"other"))


@pytest.mark.parametrize(
    "other",
    [
        make_call("b", 2, Kind.FORK, b"x"),
        make_call("b", 1, Kind.ASYNC, b"x", name="a", sequence=0),
        make_return("b", Kind.VALUE, b"x", name="a", sequence=1),
        make_return("b", Kind.VALUE, b"x", name="a", sequence=2),
    ],
)
def test_kind_method_and_sequence_are_the_shape(other: Rpc) -> None:
    assert shape_of(make_call("b", 1, Kind.FORK, b"x")) == shape_of(make_call("b", 1, Kind.FORK, b"y"))
    assert shape_of(other) != shape_of(make_call("b", 1, Kind.FORK, b"x"))


def test_a_call_by_name_has_name_and_call_in_its_shape() -> None:
    one = post(b'{"methodName":"pay","callID":1,"arg:at":17}')
    assert shape_of(one) == shape_of(post(b'{"callID":1,"methodName":"pay","arg:at":18}'))
    assert shape_of(one) != shape_of(post(b'{"methodName":"pay","callID":2,"arg:at":17}'))
    assert shape_of(one) != shape_of(post(b'{"methodName":"buy","callID":1,"arg:at":17}'))


@pytest.mark.parametrize(
    "arguments", [b"", b"\xff\0", b"{", b"[" * 100_000, b'{"methodName":1}', b'{"methodName":"\\ud800"}']
)
def test_arguments_that_are_no_call_by_name_have_a_shape_too(arguments: bytes) -> None:
    assert len(shape_of(post(arguments))) == 8


def test_pings_are_told_from_calls() -> None:
    call = make_call("b", 1, Kind.FORK, b"")
    ping = Rpc(destination="b", kind=Kind.FORK, body=call.body, type=MessageType.PING, method=1)
    assert bytes_of(ping) != bytes_of(call)
