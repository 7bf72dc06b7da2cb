"""A service in an executor, without anything around it."""

from collections.abc import Callable, Collection, Sequence

import msgspec

from deathless.base.limits import Limits
from deathless.codec.messages import Kind, encode
from deathless.codec.wire import ReplyError
from deathless.execution.author.service import Service
from deathless.execution.executor import HandlerExecutor
from deathless.execution.turn.running import PAGE_BYTES, Cells, Running, read_running

SEED = bytes(range(32))


class Keys:
    """A key table that never forgets."""

    def __init__(self) -> None:
        self.replies: dict[bytes, tuple[bytes, bytes]] = {}
        self.remembered = 0

    def __contains__(self, key: bytes) -> bool:
        return key in self.replies

    def check(self, key: bytes, request_hashes: Collection[bytes]) -> bytes | None:
        known = self.replies.get(key)
        if known is None:
            return None
        return known[1] if known[0] in request_hashes else b"\x01refused"

    def remember(self, key: bytes, request_hash: bytes, reply: bytes) -> None:
        assert key
        assert key not in self.replies
        self.remembered += 1
        self.replies[key] = (request_hash, reply)


class Bench:
    """An executor and what it was given."""

    def __init__(
        self, service: Service, limits: Limits | None = None, hide: Callable[[], Callable[[], object]] | None = None
    ) -> None:
        self.service = service
        self.page = bytearray(PAGE_BYTES)
        self.keys = Keys()
        self.executor = HandlerExecutor(
            service, limits or Limits(), SEED, self.keys, Cells(self.page), hide or (lambda: lambda: None)
        )
        self.lsn = 0

    def message(self, method: str, key: str = "a", idempotency_key: bytes = b"", /, **arguments: object) -> bytes:
        encoded = msgspec.msgpack.encode(arguments)
        return encode(
            Kind.CALL, method=method.encode(), key=key.encode(), idempotency_key=idempotency_key, args=encoded
        )

    def run(self, messages: Sequence[bytes], now_us: int = 7) -> list[bytes]:
        replies, digests = self.executor.execute(3, 1, self.lsn + 1, now_us, messages)
        assert len(replies) == len(digests) == len(messages)
        self.lsn += len(messages)
        return replies

    def send(self, method: str, key: str = "a", idempotency_key: bytes = b"", /, **arguments: object) -> bytes:
        return self.run([self.message(method, key, idempotency_key, **arguments)])[0]

    def call(self, method: str, key: str = "a", /, **arguments: object) -> object:
        return value(self.send(method, key, **arguments))

    def fail(self, method: str, key: str = "a", /, **arguments: object) -> ReplyError:
        return error(self.send(method, key, **arguments))

    def ask(self, method: str, key: str = "a", /, **arguments: object) -> bytes:
        return self.executor.query(self.message(method, key, **arguments), 7)

    @property
    def running(self) -> Running | None:
        return read_running(bytes(self.page))


def value(reply: bytes) -> object:
    assert reply[0] == 0, error(reply)
    return msgspec.msgpack.decode(reply[1:])


def error(reply: bytes) -> ReplyError:
    assert reply[0] == 1, reply
    return msgspec.msgpack.decode(reply[1:], type=ReplyError)
