"""Idempotency keys of a shard: the same key gives the same answer (I5); pure.

A call that carries a key is checked before it runs and remembered after. A key that came before with the same
request gets the recorded reply; with another request KeyReused; a key that is not remembered runs.

Keys are forgotten by the age of the shard (`base.times`; `idempotency_window_s`), by count (`idempotency_keys_max`) and
by the bytes of them and their replies (`idempotency_bytes_max`); both maximums are "room" below. Age is time of
service: no wall clock moves it, and a service that stands still forgets nothing. What that means depends on the key:

- A **UUIDv7** (16 raw bytes, or the 36-character text) carries its time, by the clock of whoever drew it. It is
  forgotten once it was first seen before the window and its own time lies before the window too, the latest times last;
  and refused (KeyOutsideWindow) when it lies further ahead of the primary's clocks than `time_jump_max_s`, or at or
  before the latest UUIDv7 that was ever forgotten. So it runs at most once, ever.
- Any other key is **opaque**: exactly-once for the window from when it was first seen, or until younger keys took all
  the room, whichever is first; after that it would run again.

For lack of room that key goes which was seen first, of the opaque one seen first and of the UUIDv7 with the earliest
time. Which keys are remembered depends on the set of them alone, not on the order they came in, so a table restored
from a checkpoint forgets the same ones.

Behind a TIME record of version 1, which knows a single clock, the rules of that version hold, as the digests of frames
from then demand: a UUIDv7 counts as old as its own time says, and is refused where that lies before the window. The
first record of version 2 lifts the latest forgotten time to there, so that no key falls between the two.

Guarantees: equal calls give equal tables and replies. Does not: read a clock (the times of the shard come in),
compute request hashes. Imports base and codec only.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Collection, Iterable
from typing import Final

from deathless.base.errors import KeyOutsideWindow, KeyReused
from deathless.base.limits import Limits
from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.base.times import Times
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

    __slots__ = (
        "_bytes",
        "_bytes_max",
        "_entries",
        "_floor_every",
        "_floor_us",
        "_jump_us",
        "_keys_max",
        "_opaque",
        "_timed",
        "_times",
        "_window_us",
    )  # fmt: skip

    def __init__(self, limits: Limits, safeguards: Safeguards = ALL_SAFEGUARDS) -> None:
        self._entries: dict[bytes, KeyRecord] = {}
        # Invariant: each entry is an item of one of the two heaps.
        self._opaque: list[tuple[int, bytes]] = []  # (age when first seen, key)
        self._timed: list[tuple[int, bytes]] = []  # (its own time, UUIDv7)
        self._times = Times()  # of the shard
        self._floor_us = -1  # time of the latest UUIDv7 ever forgotten; -1: none yet
        self._floor_every = safeguards.floor_for_every_key
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
        """Time of the latest UUIDv7 ever forgotten, microseconds; -1: none. Belongs to the snapshot."""
        return self._floor_us

    def moved(self, times: Times) -> None:
        """The shard's times are these now; whoever calls this calls `expire` at times."""
        if self._times.single and not times.single:
            self._floor_us = max(self._floor_us, self._times.time_us - self._window_us - 1)
        self._times = times

    def __contains__(self, key: bytes) -> bool:
        """Is this key remembered?"""
        return key in self._entries

    def check(self, key: bytes, request_hashes: Collection[bytes]) -> bytes | None:
        """Look a key up before its call runs.

        Args:
            key: not empty.
            request_hashes: each is 16 bytes over handler, entity key and arguments, one for each way in which the
                call may have been remembered; of a key that is not remembered none is needed.

        Returns: None: run the call, then `remember`. Otherwise the reply: the recorded one, DL3007 when the key
        came with another request, DL3008 when it is a UUIDv7 outside the window. A remembered key is answered even
        when the window has passed it meanwhile.
        """
        assert key
        entry = self._entries.get(key)
        if entry is not None:
            return entry.reply if entry.request_hash in request_hashes else KEY_REUSED_REPLY
        at_us = time_of_key(key)
        if at_us is None:
            return None
        times = self._times
        # The wall clock too: the caller's may be right where time has not caught up with a primary's yet.
        if at_us <= self._floor_us or at_us > max(times.time_us, times.wall_us) + self._jump_us:
            return KEY_OUTSIDE_WINDOW_REPLY
        if times.single and at_us < times.time_us - self._window_us:
            return KEY_OUTSIDE_WINDOW_REPLY
        return None

    def remember(self, key: bytes, request_hash: bytes, reply: bytes) -> None:
        """Keep the reply to a call that `check` let run. Whoever calls this calls `expire` at times."""
        assert key not in self._entries, "a remembered key does not run again"
        assert len(request_hash) == REQUEST_HASH_BYTES
        record = KeyRecord(key, request_hash, reply, self._times.age_us)
        self._enter(record)
        heap, item = self._item(record)
        heapq.heappush(heap, item)

    def expire(self) -> int:
        """Forget keys older than the window, then the oldest beyond the room there is; cheap with none.

        Called at places the log alone decides. Returns: count of forgotten keys.
        """
        before = len(self._entries)
        while self._opaque and self._is_old(self._opaque):
            self._forget(self._opaque)
        while self._timed and self._is_old(self._timed):
            self._forget(self._timed)
        while len(self._entries) > self._keys_max or (self._bytes > self._bytes_max and len(self._entries) > 1):
            self._forget(min((heap for heap in (self._opaque, self._timed) if heap), key=self._first_seen))
        return before - len(self._entries)

    def _is_old(self, heap: list[tuple[int, bytes]]) -> bool:
        """Has the window passed the first key of a heap?"""
        times, (at_us, key) = self._times, heap[0]
        if heap is self._opaque or times.single:
            return at_us < times.age_us - self._window_us
        # Not by a wall clock alone, and not by time alone: a key of a right clock is not refused when either is wrong.
        return (
            self._entries[key].at_us < times.age_us - self._window_us
            and at_us < min(times.time_us, times.wall_us) - self._window_us
        )

    def _first_seen(self, heap: list[tuple[int, bytes]]) -> tuple[int, bytes]:
        at_us, key = heap[0]
        return (at_us if self._times.single else self._entries[key].at_us), key

    def _forget(self, heap: list[tuple[int, bytes]]) -> None:
        """Forget the first key of a heap."""
        at_us, key = heapq.heappop(heap)
        self._bytes -= len(key) + len(self._entries.pop(key).reply)
        if heap is self._opaque:
            return
        # In version 1, and without the safeguard, a key that the window has passed is refused for its time alone.
        refused = at_us < self._times.time_us - self._window_us and (self._times.single or not self._floor_every)
        if not refused:
            self._floor_us = max(self._floor_us, at_us)

    def _item(self, record: KeyRecord) -> tuple[list[tuple[int, bytes]], tuple[int, bytes]]:
        """Give the heap that a key belongs to, and its item there."""
        at_us = time_of_key(record.key)
        if at_us is None:
            return self._opaque, (record.at_us, record.key)
        return self._timed, (at_us, record.key)

    def _enter(self, record: KeyRecord) -> None:
        self._entries[record.key] = record
        self._bytes += len(record.key) + len(record.reply)

    def snapshot(self) -> list[KeyRecord]:
        """Copy everything but `floor_us`, ordered by (age when first seen, key); later calls do not change the copy."""
        return sorted(self._entries.values(), key=_place)

    def restore(self, records: Iterable[KeyRecord], floor_us: int) -> None:
        """Replace everything by what `snapshot` and `floor_us` gave; `moved` must have told the times there."""
        self._entries, self._opaque, self._timed, self._bytes = {}, [], [], 0
        for record in records:
            self._enter(record)
            heap, item = self._item(record)
            heap.append(item)
        heapq.heapify(self._opaque)
        heapq.heapify(self._timed)
        self._floor_us = floor_us
        self.check_invariants()

    def check_invariants(self) -> None:
        """Assert every `Invariant:` above; n log n in remembered keys."""
        items = [self._item(record) for record in self._entries.values()]
        assert sorted(self._opaque) == sorted(item for heap, item in items if heap is self._opaque)
        assert sorted(self._timed) == sorted(item for heap, item in items if heap is self._timed)
        assert self._bytes == sum(len(key) + len(record.reply) for key, record in self._entries.items())
        for key, record in self._entries.items():
            assert record.key == key
            assert len(record.request_hash) == REQUEST_HASH_BYTES
            at_us = time_of_key(key)
            assert at_us is None or self._floor_us <= at_us, "below the floor"


def _place(record: KeyRecord) -> tuple[int, bytes]:
    return record.at_us, record.key
