"""Messages of peers, taken apart."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.deathless.execution.messaging_bench import Hub, Target, error

from deathless.codec.messages import Kind, decode, encode
from deathless.codec.peer_messages import SELF, Request, Sender, encode_body
from deathless.execution.author.service import Service
from deathless.execution.turn.context import Context


class State(msgspec.Struct):
    log: list[str] = []


service = Service("svc", state=State)


@service.handler
def note(state: State, ctx: Context) -> int:
    state.log.append(f"{ctx.key} {ctx.lsn} {ctx.now_us}")
    return len(state.log)


@service.handler
def fail(state: State, ctx: Context) -> None:
    state.log.append("never kept")
    raise ValueError("no")


@service.handler
def pass_on(state: State, ctx: Context, to: str) -> int:
    state.log.append(f"passed on {ctx.random.random()}")
    ctx.fork("stock", to, "note")
    return len(state.log)


@service.handler(keys=("one", "other"))
def both(states: dict[str, State], ctx: Context, one: str, other: str) -> None:
    states[one].log.append(other)
    states[other].log.append(one)


@service.handler
async def hold(state: State, ctx: Context) -> None:
    state.log.append("held")
    await ctx.call("stock", "s", "note")
    state.log.append("let go")


STOCK = Target("stock", 0)
GOOD = encode(Kind.FORK, method=b"note", key=b"a", idempotency_key=encode_body(Sender()), args=b"\x80")


def test_handler_sees_key_place_and_time_of_its_message() -> None:
    hub = Hub(service)
    hub.receive(GOOD, GOOD, peer=STOCK)
    assert hub.value_of() == {"log": ["a 1 1000", "a 2 1000"]}


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x02",
        encode(Kind.CALL, method=b"note", key=b"a", args=b"\x80"),
        encode(Kind.FORK, method=b"note", key=b"a", args=b"\x80"),
        encode(Kind.REQUEST, method=b"note", key=b"a", idempotency_key=b"\xc1", args=b"\x80"),
    ],
)
def test_message_that_cannot_be_read_changes_nothing_and_the_next_one_runs(message: bytes) -> None:
    hub = Hub(service)
    first, second = hub.executor.execute_peer(STOCK, 1, 1, 7, [message, GOOD])
    assert hub.value_of() == {"log": ["a 2 7"]}
    assert first != second
    assert hub.running is None


def test_method_and_key_that_are_no_text_are_answered() -> None:
    hub = Hub(service)
    request = encode_body(Request(1, 1))
    hub.receive(encode(Kind.REQUEST, method=b"\xff", key=b"a", idempotency_key=request, args=b"\x80"), peer=STOCK)
    hub.receive(encode(Kind.REQUEST, method=b"note", key=b"\xff", idempotency_key=request, args=b"\x80"), peer=STOCK)
    assert [error(decode(message).args).code for _, message in hub.sent] == ["DL3004", "DL3003"]


def fork(method: bytes, arguments: dict[str, str], key: bytes = b"a", chain: tuple[str, ...] = ()) -> bytes:
    envelope, body = encode_body(Sender(chain)), msgspec.msgpack.encode(arguments)
    return encode(Kind.FORK, method=method, key=key, idempotency_key=envelope, args=body)


FORKS = st.sampled_from(
    [
        GOOD,
        fork(b"note", {}, b"b", ("svc/0/z",)),
        fork(b"note", {}, b"\xff"),
        fork(b"note", {"surplus": "x"})[:-1],
        fork(b"fail", {}),
        fork(b"pass_on", {"to": "t"}),
        fork(b"pass_on", {"to": "t"}, b"b", ("svc/0/z",)),
        fork(b"pass_on", {"to": "\0"}),
        fork(b"both", {"one": "a", "other": "b"}),
        fork(b"both", {"one": "a", "other": "a"}),
        fork(b"hold", {}),
        fork(b"nobody", {}),
        encode(Kind.FORK, method=b"note", key=b"a", args=b"\x80"),
        encode(Kind.CALL, method=b"note", key=b"a", args=b"\x80"),
        b"\x02",
    ]
)


@given(st.lists(FORKS, max_size=12))
def test_forks_run_in_the_loop_as_they_do_one_by_one_in_the_table(messages: list[bytes]) -> None:
    loop, table = Hub(service), Hub(service)
    digests = loop.executor.execute_peer(STOCK, 1, 1, 7, messages)
    assert digests == table.executor.execute_peer(SELF, 1, 1, 7, messages)  # of ours none is run in the loop
    assert loop.executor.rolling_update() == table.executor.rolling_update()
    assert loop.executor.state() == table.executor.state()
    assert loop.executor.take_outputs() == table.executor.take_outputs()
    assert loop.running is None


def test_large_runs_are_folded_as_they_go() -> None:
    hub, other = Hub(service), Hub(service)
    digests = hub.executor.execute_peer(STOCK, 1, 1, 7, [GOOD] * 600)
    parts = [other.executor.execute_peer(STOCK, at, at, 7, [GOOD])[0] for at in range(1, 601)]
    assert digests == parts
    assert hub.executor.rolling_update() == other.executor.rolling_update()


def test_messages_of_a_peer_run_as_part_of_a_frame() -> None:
    hub, alone = Hub(service), Hub(service)
    hub.executor.open()
    digests = hub.executor.execute_peer(STOCK, 1, 1, 7, [GOOD])
    hub.executor.close()
    assert digests == alone.executor.execute_peer(STOCK, 1, 1, 7, [GOOD])
