"""Messages of peers, taken apart."""

import msgspec
import pytest
from tests.unit.deathless.execution.messaging_bench import Hub, Target, error

from deathless.codec.messages import Kind, decode, encode
from deathless.codec.peer_messages import Request, Sender, encode_body
from deathless.execution.context import Context
from deathless.execution.service import Service


class State(msgspec.Struct):
    log: list[str] = []


service = Service("svc", state=State)


@service.handler
def note(state: State, ctx: Context) -> int:
    state.log.append(f"{ctx.key} {ctx.lsn} {ctx.now_us}")
    return len(state.log)


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


def test_large_runs_are_folded_as_they_go() -> None:
    hub, other = Hub(service), Hub(service)
    digests = hub.executor.execute_peer(STOCK, 1, 1, 7, [GOOD] * 600)
    parts = [other.executor.execute_peer(STOCK, at, at, 7, [GOOD])[0] for at in range(1, 601)]
    assert digests == parts
    assert hub.executor.rolling_update() == other.executor.rolling_update()
