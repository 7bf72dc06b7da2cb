"""A run holds the forks that went into it, and what is none is refused, however its messages are cut."""

import random

import pytest

from deathless.foreign.rows import decode_items, delivered
from deathless.protocols.ambrosia.events import Deliver
from deathless.protocols.ambrosia.messages import (
    SELF,
    Kind,
    MessageType,
    Oversized,
    Rpc,
    encode_delivery,
    encode_message,
    make_call,
    make_return,
)
from deathless.protocols.ambrosia.runs import HEAD_BYTES, MAGIC, check, count_of, forks_of, is_run, join, may_run, pack
from deathless.protocols.ambrosia_binding.encoding import Call, arrived, messages_of


def forks(*sizes: int, method: int = 3) -> list[Rpc]:
    """Forks with arguments of so many bytes."""
    return [make_call(SELF, method, Kind.FORK, bytes([at % 251]) * size) for at, size in enumerate(sizes)]


@pytest.mark.parametrize("seed", range(20))
def test_forks_of_any_sizes_come_back_from_a_run(seed: int) -> None:
    """Many of one size behind each other, and others between them."""
    chance = random.Random(seed)
    items = []
    for _ in range(chance.randrange(1, 8)):
        size, count = chance.choice([0, 1, 16, 60, 63, 64, 5000]), chance.choice([1, 2, 40, 700])
        items += forks(*[size] * count, method=chance.choice([-(2**31), 0, 3, 2**31 - 1]))
    run = pack(items)
    assert is_run(run) and check(run) == count_of(run) == len(items)
    assert forks_of(run) == decode_items(run) == tuple(items)
    assert forks_of(join([run, pack(forks(1)), run])) == (*items, *forks(1), *items)
    assert join([run]) == run


def test_application_is_given_a_run_as_the_same_calls_one_by_one() -> None:
    """In one batch, also beside others."""
    items = forks(16, 16, 300)
    one_by_one = encode_delivery([*items, *items])
    assert encode_delivery([*items, *delivered(pack(items))]) == one_by_one
    event = Deliver(lsn=1, rpcs=(*delivered(pack(items[:1])),))
    assert encode_delivery(event.rpcs) == encode_message(MessageType.RPC, items[0].body)
    told = [arrived(data) for _, data in messages_of(one_by_one)]
    calls = [each.arguments for each in told if isinstance(each, Call)]
    assert calls == [each.arguments for each in [*items, *items]]


def test_other_than_forks_stand_in_no_run() -> None:
    """Whoever waits for an answer waits for it by its own message."""
    assert may_run(*forks(1))
    long = Oversized(destination=SELF, kind=Kind.FORK, method=1, name="", sequence=0, size=1 << 30)
    called = make_call(SELF, 1, Kind.ASYNC, b"", name="x", sequence=1)
    impulse, returned = make_call(SELF, 1, Kind.IMPULSE, b""), make_return(SELF, Kind.VOID, b"", name="x", sequence=1)
    assert not any(may_run(each) for each in (long, called, impulse, returned))


def spoiled() -> list[bytes]:
    """What is no run."""
    run = pack(forks(*[16] * 100))
    async_call = encode_message(MessageType.RPC, make_call(SELF, 1, Kind.ASYNC, b"", name="x", sequence=1).body)
    head = MAGIC + (1).to_bytes(4, "little")
    length = (len(run) - HEAD_BYTES) // 100
    within = HEAD_BYTES + 57 * length
    return [
        b"", MAGIC, MAGIC + bytes(4), head, run[:-1], run + b"\0", head + async_call,
        head + encode_message(MessageType.PING, forks(1)[0].body), head + b"\x08\0\0\0", head + b"\xff" * 9,
        *(run[: within + at] + bytes([run[within + at] ^ 2]) + run[within + at + 1 :] for at in (0, 1, 2, 4)),
        MAGIC + (101).to_bytes(4, "little") + run[HEAD_BYTES:], MAGIC + b"\xff" * 4 + run[HEAD_BYTES:],
    ]  # fmt: skip


@pytest.mark.parametrize("data", spoiled(), ids=range(len(spoiled())))
def test_what_is_no_run_of_forks_is_refused(data: bytes) -> None:
    """Also where one in the middle of many that are alike is another message."""
    with pytest.raises(ValueError):  # noqa: PT011  of any text
        check(data)
    with pytest.raises(ValueError):  # noqa: PT011  of any text
        forks_of(data)


@pytest.mark.parametrize("seed", range(60))
def test_whatever_is_let_through_can_be_taken_apart(seed: int) -> None:
    """Bytes are changed anywhere."""
    chance = random.Random(seed)
    for _ in range(60):
        data = bytearray(pack(forks(*[chance.choice([4, 4, 4, 9])] * chance.randrange(1, 60))))
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(len(data))] = chance.choice([0, 1, 2, 255, chance.randrange(256)])
        run = bytes(data)
        try:
            count = check(run)
        except ValueError:
            with pytest.raises(ValueError):  # noqa: PT011  of any text
                forks_of(run)
        else:
            assert len(forks_of(run)) == count
