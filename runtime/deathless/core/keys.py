"""Idempotency keys of a shard: the same key gives the same answer (I5); pure.

A call that carries a key is checked before it runs and remembered after. A key that came before with the same
request gets the recorded reply; with another request KeyReused; a key that is not remembered runs.

Keys are forgotten by logical time (`idempotency_window_s`), by count (`idempotency_keys_max`) and by the bytes of them
and their replies (`idempotency_bytes_max`); both maximums are "room" below. What that means
depends on the key:

- A **UUIDv7** (16 raw bytes, or the 36-character text) carries its time. It counts as old as that time says and is
  refused (KeyOutsideWindow) when it lies before the window, further ahead than `time_jump_max_s`, or at or before
  the latest UUIDv7 that was forgotten for lack of room. So it runs at most once, ever.
- Any other key is **opaque**: as old as the logical time it was first seen at, exactly-once for the window or until
  younger keys took all the room, whichever is first; after that it would run again.

Oldest means smallest (time, key): which keys are remembered depends on the set of them alone, not on the order
they came in, so a table restored from a checkpoint forgets the same ones.

Guarantees: equal calls give equal tables and replies. Does not: read a clock (time is logical and comes in),
compute request hashes. Imports base and codec only.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable
from typing import Final

from deathless.base.errors import KeyOutsideWindow, KeyReused
from deathless.base.limits import Limits
from deathless.codec.snapshot import REQUEST_HASH_BYTES, KeyRecord
from deathless.codec.wire import error_reply

_TEXT_V7: Final = re.compile(rb"[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-7[0-9A-Fa-f]{3}-[89ABab][0-9A-Fa-f]{3}-[0-9A-Fa-f]{12}")

KEY_REUSED_REPLY: Final = error_reply(
    KeyReused.code, KeyReused.__name__, "this idempotency key came before with another request"
)
KEY_OUTSIDE_WINDOW_REPLY: Final = error_reply(
    KeyOutsideWindow.code, KeyOutsideWindow.__name__, "the time in this idempotency key lies outside the window"
)


def time_of_key(key: bytes) -> int | None:
    """Give the time a UUIDv7 carries, in microseconds since 1970 (RFC 9562, 5.7); None for every other key.

    The text form is taken in either case. 16 raw bytes count as a UUID when version and variant bits fit, which
    no ASCII text does.
    """
    if len(key) == 16:
        if key[6] >> 4 != 7 or key[8] >> 6 != 0b10:
            return None
        return int.from_bytes(key[:6], "big") * 1000
    if len(key) == 36 and _TEXT_V7.fullmatch(key):
        return int(key[:8] + key[9:13], 16) * 1000
    return None


class KeyTable:
    """The remembered keys of one shard.

    Args:
        limits: `idempotency_keys_max`, `idempotency_bytes_max`, `idempotency_window_s` and `time_jump_max_s` are used.
    """

    __slots__ = ("_bytes", "_bytes_max", "_entries", "_floor_us", "_jump_us", "_keys_max", "_order", "_window_us")

    def __init__(self, limits: Limits) -> None:
        self._entries: dict[bytes, KeyRecord] = {}
        self._order: list[tuple[int, bytes]] = []  # heap of (time, key). Invariant: one item per entry
        self._floor_us = -1  # time of the latest UUIDv7 forgotten for lack of room; -1: none yet
        self._bytes = 0  # Invariant: of all keys and replies
        self._bytes_max = limits.idempotency_bytes_max
        self._keys_max = limits.idempotency_keys_max
        self._window_us = limits.idempotency_window_s * 1_000_000
        self._jump_us = limits.time_jump_max_s * 1_000_000

    def __len__(self) -> int:
        """Count of remembered keys."""
        return len(self._entries)

    @property
    def floor_us(self) -> int:
        """Time of the latest UUIDv7 forgotten for lack of room, microseconds; -1: none. Belongs to the snapshot."""
        return self._floor_us

    def check(self, key: bytes, request_hash: bytes, now_us: int) -> bytes | None:
        """Look a key up before its call runs.

        Args:
            key: not empty.
            request_hash: 16 bytes over handler, entity key and arguments.
            now_us: logical time, microseconds.

        Returns: None: run the call, then `remember`. Otherwise the reply: the recorded one, DL3007 when the key
        came with another request, DL3008 when it is a UUIDv7 outside the window. A remembered key is answered even
        when the window has passed it meanwhile.
        """
        assert key
        assert len(request_hash) == REQUEST_HASH_BYTES
        entry = self._entries.get(key)
        if entry is not None:
            return entry.reply if entry.request_hash == request_hash else KEY_REUSED_REPLY
        at_us = time_of_key(key)
        if at_us is None:
            return None
        if at_us <= self._floor_us or not now_us - self._window_us <= at_us <= now_us + self._jump_us:
            return KEY_OUTSIDE_WINDOW_REPLY
        return None

    def remember(self, key: bytes, request_hash: bytes, reply: bytes, now_us: int) -> None:
        """Keep the reply to a call that `check` let run. Whoever calls this calls `expire` at times."""
        assert key not in self._entries, "a remembered key does not run again"
        at_us = time_of_key(key)
        record = KeyRecord(key, request_hash, reply, now_us if at_us is None else at_us)
        self._entries[key] = record
        self._bytes += len(key) + len(reply)
        heapq.heappush(self._order, (record.at_us, key))

    def expire(self, now_us: int) -> int:
        """Forget keys older than the window, then the oldest beyond the room there is; cheap with none.

        Called at places the log alone decides, with logical time. Returns: count of forgotten keys.
        """
        before = len(self._order)
        oldest_us = now_us - self._window_us
        order = self._order
        while order and (
            order[0][0] < oldest_us or len(order) > self._keys_max or (self._bytes > self._bytes_max and len(order) > 1)
        ):
            at_us, key = heapq.heappop(order)
            self._bytes -= len(key) + len(self._entries.pop(key).reply)
            # A key the window has passed is refused for its time; one that goes for lack of room needs the floor.
            if at_us >= oldest_us and time_of_key(key) is not None:
                self._floor_us = max(self._floor_us, at_us)
        return before - len(order)

    def snapshot(self) -> list[KeyRecord]:
        """Copy everything but `floor_us`, ordered by (time, key); later calls do not change the copy."""
        return [self._entries[key] for _, key in sorted(self._order)]

    def restore(self, records: Iterable[KeyRecord], floor_us: int) -> None:
        """Replace everything by what `snapshot` and `floor_us` gave."""
        self._entries = {record.key: record for record in records}
        self._order = [(record.at_us, key) for key, record in self._entries.items()]
        heapq.heapify(self._order)
        self._bytes = sum(len(key) + len(record.reply) for key, record in self._entries.items())
        self._floor_us = floor_us
        self.check_invariants()

    def check_invariants(self) -> None:
        """Assert every `Invariant:` above; n log n in remembered keys."""
        assert sorted(self._order) == sorted((record.at_us, key) for key, record in self._entries.items())
        assert self._bytes == sum(len(key) + len(record.reply) for key, record in self._entries.items())
        for key, record in self._entries.items():
            assert record.key == key
            assert len(record.request_hash) == REQUEST_HASH_BYTES
            at_us = time_of_key(key)
            assert at_us is None or self._floor_us <= at_us == record.at_us, "below the floor, or at another time"
