"""Which message is attempted next, for a sink that delivers each message by itself; pure.

    add --> queue of its key --ready--> under way --succeeded--------------------------> done
                 ^                          |---failed, again after a pause------.
                 |                          '---failed too often, or too old----------> given up (and done)
                 '---------------------------------------------------------------'

Messages of one key follow each other; keys do not wait for each other. A destination (for a webhook: scheme, host and
port) that failed CIRCUIT_FAILURES times in a row, whatever the keys, is left alone for a pause that doubles, and then
tried with one message: so a dead host costs one attempt a pause and not one for each key. A destination that answers
for some keys is never left alone because of the others.

What can't be delivered is given up when it was attempted `attempts_max` times, when it is older than `age_max_s`, or
when nothing but failed messages is left and whoever calls this has no more room for others (`pressed`). Who calls this
tells the service, which lists it for operators.

Guarantees: nothing of a key overtakes; at most `concurrency` attempts at a time; equal calls give equal answers. Does
not: know what an attempt does, read a clock, or wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from deathless.base.backoff import next_pause, pause_after
from deathless.drivers.port import Delivery

PAUSE_MIN_S: Final = 0.1
PAUSE_MAX_S: Final = 30.0  # between two attempts of one message
ASKED_MAX_S: Final = 300.0  # the longest pause that the other side may ask for
CIRCUIT_FAILURES: Final = 5  # in a row, of one destination, before it is left alone
CIRCUIT_MAX_S: Final = 30.0  # between two attempts at a destination that is left alone


class GivenUp(NamedTuple):
    """A message that is not attempted any more, and why."""

    delivery: Delivery
    why: str


class Trouble(NamedTuple):
    """A key whose messages wait, for operators."""

    key: str
    waiting: int  # messages
    attempts: int  # of the first of them
    why: str  # the last one failed


class _Queue:
    """The messages of one key that are not done, in order."""

    __slots__ = ("again_at", "attempts", "destination", "items", "under_way", "why")

    def __init__(self) -> None:
        self.items: deque[tuple[Delivery, float]] = deque()  # with when each was taken
        self.under_way = False  # the first one is being attempted
        self.attempts = 0  # of the first one
        self.again_at = 0.0  # the first one is not attempted before
        self.destination: str | None = None  # of the first one; None: not asked for yet
        self.why = ""  # its last attempt failed; empty: none did

    def next(self) -> None:
        """Go on with the message behind the first one."""
        self.items.popleft()
        self.under_way = False
        self.attempts = 0
        self.again_at = 0.0
        self.destination = None
        self.why = ""


class _Circuit:
    """What is known of one destination."""

    __slots__ = ("failures", "open_until", "pause_s", "probing")

    def __init__(self) -> None:
        self.failures = 0  # in a row
        self.open_until = 0.0  # left alone until then
        self.pause_s = 0.0
        self.probing = False  # one attempt is under way to see whether it answers again


class KeyQueues:
    """The messages of one source that are not done.

    Args:
        destination_of: gives where a message goes; messages with the same one fail together when it is dead.
        concurrency: attempts at a time.
        attempts_max: of one message; 0: no limit.
        age_max_s: since it was taken; 0: no limit.
    """

    def __init__(
        self,
        destination_of: Callable[[Delivery], str],
        *,
        concurrency: int,
        attempts_max: int = 0,
        age_max_s: float = 0.0,
    ) -> None:
        assert concurrency > 0
        self._destination_of = destination_of
        self._concurrency = concurrency
        self._attempts_max = attempts_max
        self._age_max_s = age_max_s
        self._queues: dict[str, _Queue] = {}
        self._circuits: dict[str, _Circuit] = {}
        self._count = 0  # Invariant: of all items
        self._under_way = 0  # Invariant: of the queues that say so

    def __len__(self) -> int:
        """Messages that are not done."""
        return self._count

    def add(self, delivery: Delivery, now: float) -> None:
        """Take a message; positions ascend."""
        self._queues.setdefault(delivery.key, _Queue()).items.append((delivery, now))
        self._count += 1

    def ready(self, now: float) -> list[Delivery]:
        """Give what is to be attempted now, `now` in monotonic seconds; each is under way until its end is told."""
        found: list[Delivery] = []
        for queue in self._queues.values():
            if self._under_way >= self._concurrency:
                break
            if queue.under_way or now < queue.again_at:
                continue
            if not self._may_try(self._destination(queue), now):
                continue
            queue.under_way = True
            queue.attempts += 1
            self._under_way += 1
            found.append(queue.items[0][0])
        return found

    def _may_try(self, destination: str, now: float) -> bool:
        circuit = self._circuits.get(destination)
        if circuit is None or circuit.failures < CIRCUIT_FAILURES:
            return True
        if circuit.probing or now < circuit.open_until:
            return False
        circuit.probing = True
        return True

    # ---- how an attempt ended --------------------------------------------------------------------------------

    def succeeded(self, delivery: Delivery) -> None:
        """It is done: delivered, or refused and told to whoever waits."""
        queue = self._end(delivery)
        self._circuits.pop(self._destination(queue), None)
        self._drop(delivery.key, queue)

    def withdrawn(self, delivery: Delivery) -> None:
        """It is done without an attempt, which says nothing about its destination."""
        queue = self._end(delivery)
        circuit = self._circuits.get(self._destination(queue))
        if circuit is not None:
            circuit.probing = False
        self._drop(delivery.key, queue)

    def failed(self, delivery: Delivery, now: float, why: str, retry_after_s: float = 0.0) -> GivenUp | None:
        """The world took it not now; gives what is given up for it.

        Args:
            delivery: under way until now.
            now: monotonic seconds.
            why: for operators.
            retry_after_s: the other side asked not to be asked again before.
        """
        queue = self._end(delivery)
        self._count_failure(self._destination(queue), now)
        return self._again(delivery, queue, now, why, retry_after_s)

    def refused(self, delivery: Delivery, now: float, why: str) -> GivenUp | None:
        """The world said no for good, and the message is not to be passed over: its key waits, as after a failure."""
        queue = self._end(delivery)
        self._circuits.pop(self._destination(queue), None)  # it answers
        return self._again(delivery, queue, now, why, PAUSE_MAX_S)

    def _again(self, delivery: Delivery, queue: _Queue, now: float, why: str, retry_after_s: float) -> GivenUp | None:
        queue.why = why
        if self._attempts_max and queue.attempts >= self._attempts_max:
            self._drop(delivery.key, queue)
            return GivenUp(delivery, f"{why} (given up after {self._attempts_max} attempts)")
        pause_s = pause_after(queue.attempts - 1, first_s=PAUSE_MIN_S, most_s=PAUSE_MAX_S)
        queue.again_at = now + max(pause_s, min(retry_after_s, ASKED_MAX_S))
        return None

    def _end(self, delivery: Delivery) -> _Queue:
        queue = self._queues[delivery.key]
        assert queue.under_way
        assert queue.items[0][0] is delivery
        queue.under_way = False
        self._under_way -= 1
        return queue

    def _drop(self, key: str, queue: _Queue) -> None:
        queue.next()
        self._count -= 1
        if not queue.items:
            del self._queues[key]

    def _count_failure(self, destination: str, now: float) -> None:
        circuit = self._circuits.setdefault(destination, _Circuit())
        circuit.failures += 1
        circuit.probing = False
        if circuit.failures >= CIRCUIT_FAILURES:
            circuit.pause_s = next_pause(circuit.pause_s, first_s=PAUSE_MIN_S, most_s=CIRCUIT_MAX_S)
            circuit.open_until = now + circuit.pause_s

    # ---- time ------------------------------------------------------------------------------------------------

    def give_up(self, now: float, *, pressed: bool = False) -> list[GivenUp]:
        """Give what is not attempted any more; nothing of it is under way.

        Args:
            now: monotonic seconds.
            pressed: there is no room for more messages. When only failed ones are left, the oldest is given up.
        """
        found: list[GivenUp] = []
        for key, queue in list(self._queues.items()):
            while queue.why and not queue.under_way and queue.items and self._too_old(queue, now):
                delivery = queue.items[0][0]
                found.append(GivenUp(delivery, f"{queue.why} (given up after {self._age_max_s:g} s)"))
                self._drop_failed(key, queue)
        if pressed and not found and self._queues and all(q.why and not q.under_way for q in self._queues.values()):
            key, queue = min(self._queues.items(), key=lambda item: item[1].items[0][0].position)
            found.append(GivenUp(queue.items[0][0], f"{queue.why} (given up: there is no room for messages behind it)"))
            self._drop_failed(key, queue)
        return found

    def _too_old(self, queue: _Queue, now: float) -> bool:
        return bool(self._age_max_s) and now - queue.items[0][1] >= self._age_max_s

    def _drop_failed(self, key: str, queue: _Queue) -> None:
        """The next message of the key counts as failed too, until it was attempted: its world is the same."""
        why, again_at = queue.why, queue.again_at
        self._drop(key, queue)
        if queue.items:
            queue.why, queue.again_at = why, again_at

    def deadline(self) -> float | None:
        """When `ready` or `give_up` may give something, if nothing else happens; None: never."""
        times: list[float] = []
        for queue in self._queues.values():
            if queue.under_way:
                continue
            if self._age_max_s and queue.why:
                times.append(queue.items[0][1] + self._age_max_s)
            if self._under_way < self._concurrency:
                circuit = self._circuits.get(self._destination(queue))
                if circuit is None or circuit.failures < CIRCUIT_FAILURES:
                    times.append(queue.again_at)
                elif not circuit.probing:
                    times.append(max(queue.again_at, circuit.open_until))
        return min(times, default=None)

    def _destination(self, queue: _Queue) -> str:
        if queue.destination is None:
            queue.destination = self._destination_of(queue.items[0][0])
        return queue.destination

    def troubles(self) -> list[Trouble]:
        """Keys whose first message failed, those that wait longest first."""
        found = [(queue.items[0][0].position, key, queue) for key, queue in self._queues.items() if queue.why]
        return [Trouble(key, len(queue.items), queue.attempts, queue.why) for _, key, queue in sorted(found)]

    def check_invariants(self) -> None:
        """Assert every `Invariant:` above."""
        assert self._count == sum(len(queue.items) for queue in self._queues.values())
        assert self._under_way == sum(queue.under_way for queue in self._queues.values()) <= self._concurrency
        for queue in self._queues.values():
            assert queue.items
            positions = [delivery.position for delivery, _ in queue.items]
            assert positions == sorted(positions)
