"""Messages to other services that they have not confirmed yet, by position; pure.

One outbox per shard, a function of the log's prefix: the turns of every replica append the same messages at the same
positions, and a logged TRIM (for ourselves: the run that takes them in) makes every replica forget. So whoever takes
over streams on from here and needs nothing of its predecessor.

Positions of a target count from 1 and are never given twice; a target stays known when all its messages are gone,
because its next position is still needed. `reset` alone begins anew: an operator adopted a peer that knows nothing.

    append -> first_position .. next_position - 1 -> trim

Guarantees: equal calls give equal outboxes and snapshots; `messages_from` gives exactly what was appended.
Does not: know which frame is confirmed (who sends must not pass that, I1), connect, or refuse for lack of room:
`bytes` is compared with `outbox_bytes_max` by whoever admits calls, before they run. Imports codec and base.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from deathless.codec.peer_messages import SELF, Target
from deathless.codec.snapshot import OutboxRecord

Message: TypeAlias = bytes  # by another name, because the outbox has a property of that one
COMPACT_COUNT: Final = 1024  # so many forgotten messages at least are dropped from a list at a time


class _Queue:
    """The messages of one target; forgotten ones are dropped from the list in bulk, so that none costs a move."""

    __slots__ = ("bytes", "first", "gone", "messages")

    def __init__(self, first: int) -> None:
        self.first = first  # position of the first message that is kept. Invariant: above 0, never goes back
        self.gone = 0  # items at the start of `messages` that are forgotten, each b"". Invariant: <= len(messages)
        self.messages: list[bytes] = []
        self.bytes = 0  # Invariant: of the messages that are kept

    @property
    def next(self) -> int:
        return self.first + len(self.messages) - self.gone


class Outbox:
    """All that is kept for all targets."""

    __slots__ = ("_bytes", "_queues")

    def __init__(self) -> None:
        self._queues: dict[Target, _Queue] = {}
        self._bytes = 0  # Invariant: the sum over the queues

    @property
    def bytes(self) -> int:
        """Bytes of all messages that are kept, those to ourselves included (compare with `outbox_bytes_max`)."""
        return self._bytes

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
            queue = self._queues[target] = _Queue(1)
        queue.messages += messages
        size = sum(map(len, messages))
        queue.bytes += size
        self._bytes += size

    def trim(self, target: Target, through: int) -> int:
        """Forget the messages up to position `through`, which the target has confirmed.

        A position that is forgotten already, an unknown target and what lies beyond the end change nothing beyond what
        is there: a peer that confirms what it never got is told from its commits, before they are logged.

        Returns: how many were forgotten.
        """
        queue = self._queues.get(target)
        if queue is None or through < queue.first:
            return 0
        count = min(through, queue.next - 1) - queue.first + 1
        start, end = queue.gone, queue.gone + count
        size = sum(map(len, queue.messages[start:end]))
        queue.messages[start:end] = [b""] * count
        queue.gone = end
        queue.first += count
        queue.bytes -= size
        self._bytes -= size
        if (end >= COMPACT_COUNT and 2 * end >= len(queue.messages)) or end == len(queue.messages):
            del queue.messages[:end]
            queue.gone = 0
        return count

    def reset(self, target: Target) -> int:
        """Forget a target altogether: its next message has position 1. Gives how many messages were forgotten."""
        queue = self._queues.pop(target, None)
        if queue is None:
            return 0
        self._bytes -= queue.bytes
        return queue.next - queue.first

    def first_position(self, target: Target) -> int:
        """Position of the first message that is kept; with none kept that of the next."""
        queue = self._queues.get(target)
        return 1 if queue is None else queue.first

    def next_position(self, target: Target) -> int:
        """Position that the next message will have."""
        queue = self._queues.get(target)
        return 1 if queue is None else queue.next

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
        messages = queue.messages
        start = at = queue.gone + position - queue.first
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
        """Copy everything, by target ascending; later calls do not change the copy."""
        return [
            OutboxRecord(target.service, target.shard, queue.first, queue.messages[queue.gone :])
            for target, queue in sorted(self._queues.items())
        ]

    def restore(self, records: Iterable[OutboxRecord]) -> None:
        """Replace everything by what `snapshot` gave."""
        self._queues = {}
        for record in records:
            queue = self._queues[Target(record.service, record.shard)] = _Queue(record.first_position)
            queue.messages = list(record.messages)
            queue.bytes = sum(map(len, record.messages))
        self._bytes = sum(queue.bytes for queue in self._queues.values())
        self.check_invariants()

    def check_invariants(self) -> None:
        """Assert every `Invariant:` above; linear in messages."""
        for queue in self._queues.values():
            assert queue.first > 0
            assert 0 <= queue.gone <= len(queue.messages)
            assert not any(queue.messages[: queue.gone])
            assert queue.bytes == sum(map(len, queue.messages))
        assert self._bytes == sum(queue.bytes for queue in self._queues.values())
