"""Messages to other services that they have not confirmed yet, by position; pure.

One outbox per shard, a function of the log's prefix: the turns of every replica append the same messages at the same
positions, and a logged TRIM (for ourselves: the run that takes them in) makes every replica forget. So whoever takes
over streams on from here and needs nothing of its predecessor.

Positions of a target count from 1 and are never given twice; a target stays known when all its messages are gone,
because its next position is still needed. `reset` alone begins anew: an operator adopted a peer that knows nothing.

    append -> first_position .. next_position - 1 -> trim

With a spool the youngest messages stand in memory, up to `outbox_memory_bytes_max`, and older ones in runs outside:

    first_position     young            next_position
          | run | run | run | in memory |               per target; the one with most in memory gives its oldest first

Where messages stand changes nothing that can be seen from outside, so replicas with other memory agree. A spool that
takes nothing leaves them in memory and is asked again later; who admits calls looks at `memory_bytes` as well.

Guarantees: equal calls give equal outboxes and snapshots; `messages_from` gives exactly what was appended, or raises
what `Run.load` does. Does not: know which frame is confirmed (who sends must not pass that, I1), connect, or refuse for
lack of room: `bytes` is compared with `outbox_bytes_max` by whoever admits calls, before they run. Imports codec,
base and core.tables.spool.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from operator import attrgetter
from typing import Final, TypeAlias

from deathless.codec.peer_history import HISTORY_BYTES, NOTHING, UNKNOWN, extended
from deathless.codec.peer_messages import SELF, Target
from deathless.codec.snapshot import OutboxRecord
from deathless.core.tables.spool import Run, Spool, Stored, store

Message: TypeAlias = bytes  # by another name, because the outbox has a property of that one
History: TypeAlias = bytes  # likewise
COMPACT_COUNT: Final = 1024  # so many forgotten messages at least are dropped from a list at a time
RUN_BYTES: Final = 256 << 10  # so much goes to the spool at a time, or one message
LOADED_MAX: Final = 8  # runs that are read stay in memory, so that a batch does not read a whole one anew
RETRY_COUNT: Final = 256  # a spool that took nothing is asked again after so many calls of `extend`
NEVER: Final = 1 << 62
_FIRST: Final = attrgetter("first")


class _Queue:
    """The messages of one target; forgotten ones are dropped from the list in bulk, so that none costs a move."""

    __slots__ = ("bytes", "cut", "first", "gone", "history", "messages", "runs", "spilled", "young")

    def __init__(self, first: int, history: bytes) -> None:
        self.history = history  # behind the message before `first`: codec.peer_history
        self.first = first  # position of the first message that is kept. Invariant: above 0, never goes back
        self.runs: list[Run] = []  # Invariant: without gaps up to `young`; `first` lies in the first of them
        self.cut = 0  # Invariant: bytes of the messages of the first run that are forgotten; 0 without runs
        self.young = first  # position of the first message in memory. Invariant: without runs it is `first`
        self.gone = 0  # items at the start of `messages` that are not in memory, each b"". Invariant: <= len(messages)
        self.messages: list[bytes] = []
        self.bytes = 0  # Invariant: of the messages that are kept
        self.spilled = 0  # Invariant: of those in runs

    @property
    def next(self) -> int:
        return self.young + len(self.messages) - self.gone

    @property
    def memory(self) -> int:
        return self.bytes - self.spilled

    def drop(self, count: int) -> int:
        """Let the oldest messages in memory go; gives their bytes."""
        start, end = self.gone, self.gone + count
        size = sum(map(len, self.messages[start:end]))
        self.messages[start:end] = [b""] * count
        self.gone = end
        self.young += count
        if (end >= COMPACT_COUNT and 2 * end >= len(self.messages)) or end == len(self.messages):
            del self.messages[:end]
            self.gone = 0
        return size

    def oldest(self) -> list[bytes]:
        """Give the oldest messages in memory, as many as a run takes."""
        found: list[bytes] = []
        size = 0
        for message in islice(self.messages, self.gone, None):
            size += len(message)
            if size > RUN_BYTES and found:
                break
            found.append(message)
        return found


class Outbox:
    """All that is kept for all targets.

    Args:
        spool: takes what does not fit in memory; None: everything stays there.
        memory_bytes_max: see `outbox_memory_bytes_max`; nothing of a replica's state depends on it.
    """

    __slots__ = ("_bytes", "_calls_left", "_loaded", "_memory_bytes_max", "_queues", "_spill_at", "_spilled", "_spool")

    def __init__(self, spool: Spool | None = None, memory_bytes_max: int = NEVER) -> None:
        self._spool = spool
        self._memory_bytes_max = memory_bytes_max if spool is not None else NEVER
        self._queues: dict[Target, _Queue] = {}
        self._bytes = 0  # Invariant: the sum over the queues
        self._spilled = 0  # Invariant: likewise
        self._spill_at = self._memory_bytes_max  # Invariant: `_bytes` at which memory is full: that and `_spilled`
        self._calls_left = 0  # `extend` and `relieve` until the spool is asked again; 0: it took the last
        self._loaded: dict[Run, list[bytes]] = {}  # Invariant: runs of queues, at most LOADED_MAX

    @property
    def bytes(self) -> int:
        """Bytes of all messages that are kept, those to ourselves included (compare with `outbox_bytes_max`)."""
        return self._bytes

    @property
    def memory_bytes(self) -> int:
        """Those of them in memory."""
        return self._bytes - self._spilled

    def relieve(self) -> int:
        """Give `memory_bytes`, of whoever asks before it admits more.

        Where memory is full this counts as a call of `extend`: while calls are refused for it no turn may run that
        would make one, and files that take messages again would not be found. Where a message stands nobody sees.
        """
        if self._bytes > self._spill_at:
            self._spill()
        return self.memory_bytes

    @property
    def refused(self) -> bool:
        """Did the spool take nothing when it was asked last?"""
        return self._calls_left > 0 and self._bytes > self._spill_at

    @property
    def others(self) -> int:
        """How many others were ever sent to (compare with `targets_max`)."""
        return len(self._queues) - (SELF in self._queues)

    def knows(self, target: Target) -> bool:
        """Was this one ever sent to?"""
        return target in self._queues

    def append(self, target: Target, message: Message) -> int:
        """Keep a message that a turn sent; gives its position."""
        self.extend(target, [message])
        return self._queues[target].next - 1

    def extend(self, target: Target, messages: Sequence[Message]) -> None:
        """Keep messages that turns sent to one target, in order."""
        queue = self._queues.get(target)
        if queue is None:
            queue = self._queues[target] = _Queue(1, _history_at_begin(target, 1))
        queue.messages += messages
        size = sum(map(len, messages))
        queue.bytes += size
        self._bytes += size
        if self._bytes > self._spill_at:
            self._spill()

    def trim(self, target: Target, through: int) -> int:
        """Forget the messages up to position `through`, which the target has confirmed.

        A position that is forgotten already, an unknown target and what lies beyond the end change nothing beyond what
        is there: a peer that confirms what it never got is told from its commits, before they are logged.

        Returns: how many were forgotten.
        """
        queue = self._queues.get(target)
        if queue is None or through < queue.first:
            return 0
        end = min(through, queue.next - 1) + 1
        count = end - queue.first
        queue.history = self._history(queue, end)
        size = self._trim_runs(queue, end) if queue.runs else 0
        if end > queue.young:
            size += queue.drop(end - queue.young)
        queue.first = end
        queue.bytes -= size
        self._bytes -= size
        return count

    def reset(self, target: Target) -> int:
        """Forget a target altogether: its next message has position 1. Gives how many messages were forgotten."""
        queue = self._queues.pop(target, None)
        if queue is None:
            return 0
        self._bytes -= queue.bytes
        self._move(queue, -queue.spilled)
        self._loaded.clear()
        return queue.next - queue.first

    def keeps(self, target: Target) -> bool:
        """Is any message to this target kept?"""
        queue = self._queues.get(target)
        return queue is not None and queue.first < queue.next

    def first_position(self, target: Target) -> int:
        """Position of the first message that is kept; with none kept that of the next."""
        queue = self._queues.get(target)
        return 1 if queue is None else queue.first

    def next_position(self, target: Target) -> int:
        """Position that the next message will have."""
        queue = self._queues.get(target)
        return 1 if queue is None else queue.next

    def history_before(self, target: Target, position: int) -> History:
        """Give the history behind the message before `position`, which is in [first_position, next_position].

        Its cost grows with the messages between the first that is kept and this one. UNKNOWN: it is not kept.
        """
        queue = self._queues.get(target)
        return _history_at_begin(target, position) if queue is None else self._history(queue, position)

    def messages_from(self, target: Target, position: int, bytes_max: int) -> list[Message]:
        """Give messages from `position` on, as many as fit in `bytes_max`, at least one; none at the end.

        Args:
            target: whom they are for.
            position: in [first_position, next_position].
            bytes_max: of all of them together; a longer one goes alone.
        """
        queue = self._queues.get(target)
        if queue is None:
            assert position == 1, f"{target} has no position {position}"
            return []
        assert queue.first <= position <= queue.next, f"{target} has no position {position}"
        if position < queue.young:
            return self._from_runs(queue, position, bytes_max)
        messages = queue.messages
        start = at = queue.gone + position - queue.young
        size = 0
        while at < len(messages):
            size += len(messages[at])
            if size > bytes_max and at > start:
                break
            at += 1
        return messages[start:at]

    def targets(self) -> list[Target]:
        """Everybody who was ever sent to, ascending, also when nothing is kept for them now."""
        return sorted(self._queues)

    def snapshot(self) -> list[OutboxRecord]:
        """Copy everything, by target ascending; later calls do not change the copy. What is in runs stays there."""
        return [
            OutboxRecord(target.service, target.shard, queue.first, _held(queue), queue.history)
            for target, queue in sorted(self._queues.items())
        ]

    def restore(self, records: Iterable[OutboxRecord]) -> None:
        """Replace everything by what `snapshot` gave; what another outbox has in a spool is shared with it."""
        self._queues = {}
        self._loaded = {}
        self._bytes = self._spilled = self._calls_left = 0
        self._spill_at = self._memory_bytes_max
        for record in records:
            target = Target(record.service, record.shard)
            self.begin(target, record.first_position)
            if record.history != UNKNOWN:
                self._queues[target].history = record.history
            if isinstance(record.messages, Stored):
                self._adopt(self._queues[target], record.messages)
                self.extend(target, record.messages.young)
            else:
                self.extend(target, list(record.messages))
        self.check_invariants()

    def begin(self, target: Target, first_position: int) -> None:
        """Know a target whose next message has this position: one of a checkpoint that is being read."""
        assert target not in self._queues
        self._queues[target] = _Queue(first_position, _history_at_begin(target, first_position))

    def check_invariants(self) -> None:
        """Assert every `Invariant:` above; linear in messages in memory and in runs."""
        for queue in self._queues.values():
            assert queue.first > 0
            assert len(queue.history) in (0, HISTORY_BYTES)
            assert 0 <= queue.gone <= len(queue.messages)
            assert not any(queue.messages[: queue.gone])
            assert queue.memory == sum(map(len, queue.messages))
            assert queue.spilled == sum(run.size for run in queue.runs) - queue.cut
            ends = [queue.first, *(run.end for run in queue.runs)]
            assert ends[-1] == queue.young
            assert all(run.first == end for run, end in zip(queue.runs[1:], ends[1:], strict=False))
            assert all(run.first <= queue.first < run.end for run in queue.runs[:1])
        assert self._bytes == sum(queue.bytes for queue in self._queues.values())
        assert self._spilled == sum(queue.spilled for queue in self._queues.values())
        assert self._spill_at == self._memory_bytes_max + self._spilled
        assert len(self._loaded) <= LOADED_MAX
        assert self._loaded.keys() <= {run for queue in self._queues.values() for run in queue.runs}

    # ---- the spool -------------------------------------------------------------------------------------------

    def _move(self, queue: _Queue, size: int) -> None:
        """So many bytes more of a queue stand in the spool."""
        queue.spilled += size
        self._spilled += size
        self._spill_at += size

    def _spill(self) -> None:
        """Move the oldest messages of whoever has most in memory, until the rest fits, or the spool takes nothing."""
        assert self._spool is not None
        if self._calls_left > 1:
            self._calls_left -= 1
            return
        self._calls_left = 0
        while self._bytes > self._spill_at:
            queue = max(self._queues.values(), key=attrgetter("memory"))
            messages = queue.oldest()
            run = store(self._spool, queue.young, messages)
            if run is None:
                self._calls_left = RETRY_COUNT
                return
            queue.runs.append(run)
            self._move(queue, queue.drop(run.count))

    def _history(self, queue: _Queue, position: int) -> History:
        count = position - queue.first
        if not count or queue.history == UNKNOWN:
            return queue.history
        parts = self._parts(queue, queue.first) if queue.runs else (islice(queue.messages, queue.gone, None),)
        return extended(queue.history, islice(chain.from_iterable(parts), count))

    def _trim_runs(self, queue: _Queue, end: int) -> int:
        """Forget what stands in runs below position `end`; gives its bytes."""
        runs = queue.runs
        size, queue.cut = -queue.cut, 0
        done = 0
        while done < len(runs) and runs[done].end <= end:
            size += runs[done].size
            self._loaded.pop(runs[done], None)
            done += 1
        del runs[:done]
        if runs and runs[0].first < end:
            queue.cut = sum(map(len, self._load(runs[0])[: end - runs[0].first]))
            size += queue.cut
        self._move(queue, -size)
        return size

    def _from_runs(self, queue: _Queue, position: int, bytes_max: int) -> list[Message]:
        """See `messages_from`."""
        found: list[Message] = []
        size = 0
        for messages in self._parts(queue, position):
            for message in messages:
                size += len(message)
                if size > bytes_max and found:
                    return found
                found.append(message)
        return found

    def _parts(self, queue: _Queue, position: int) -> Iterator[Iterable[Message]]:
        """Give what is kept from `position` on, which stands in a run, one run in memory at a time."""
        at = bisect_right(queue.runs, position, key=_FIRST) - 1
        yield islice(self._load(queue.runs[at]), position - queue.runs[at].first, None)
        for run in queue.runs[at + 1 :]:
            yield self._load(run)
        yield islice(queue.messages, queue.gone, None)

    def _load(self, run: Run) -> list[Message]:
        messages = self._loaded.get(run)
        if messages is None:
            messages = run.load()
            if len(self._loaded) >= LOADED_MAX:
                del self._loaded[next(iter(self._loaded))]
            self._loaded[run] = messages
        return messages

    def _adopt(self, queue: _Queue, stored: Stored) -> None:
        """Begin a queue with runs that a snapshot holds."""
        queue.runs = list(stored.runs)
        queue.cut = stored.cut
        queue.young = queue.runs[-1].end
        size = sum(run.size for run in queue.runs) - queue.cut
        queue.bytes += size
        self._bytes += size
        self._move(queue, size)


def _history_at_begin(target: Target, first_position: int) -> bytes:
    """Of ourselves none is kept, and of what was sent before anybody kept one none is known."""
    return NOTHING if first_position == 1 and target != SELF else UNKNOWN


def _held(queue: _Queue) -> list[bytes] | Stored:
    young = queue.messages[queue.gone :]
    return Stored(queue.runs, queue.first - queue.runs[0].first, queue.cut, young) if queue.runs else young
