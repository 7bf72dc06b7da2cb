"""A world outside in memory, and a sink for it; each of its safeguards can be switched off."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from deathless.base.errors import InvalidConfig
from deathless.codec.wire import ok_reply
from deathless.drivers.port import (
    Answer,
    Delivery,
    DeliveryRefused,
    Deposed,
    Opened,
    Settings,
    SinkUnavailable,
    Source,
)


@dataclass
class Memory:
    """What stands outside, and what is broken there."""

    position: int | None = None
    epoch: int = 0
    arrived: list[Delivery] = field(default_factory=list)
    answers: dict[int, Answer] = field(default_factory=dict)
    fails: list[SinkUnavailable] = field(default_factory=list)  # of the next calls
    refuses: set[int] = field(default_factory=set)  # positions
    off: str = ""  # the safeguard that is switched off
    opened: int = 0
    closed: int = 0
    hold: asyncio.Event | None = None  # deliveries wait for it

    async def numbers(self) -> list[int]:
        return [int(str(each.arguments["number"])) for each in self.arrived]

    @property
    def positions(self) -> list[int]:
        return [each.position for each in self.arrived]


class MemorySink:
    """Keeps positions, epochs and answers beside the effects."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.source: Source | None = None

    async def open(self, source: Source, first: int) -> Opened:
        memory = self.memory
        memory.opened += 1
        await asyncio.sleep(0)
        self._maybe_fail()
        if source.epoch < memory.epoch and memory.off != "epoch":
            raise Deposed(f"epoch {memory.epoch} was seen")
        memory.epoch = max(source.epoch, memory.epoch)
        self.source = source
        if memory.position is None:
            memory.position = first
        kept = [] if memory.off == "answers" else [memory.answers[at] for at in sorted(memory.answers)]
        return Opened(memory.position, kept)

    async def deliver(self, deliveries: Sequence[Delivery]) -> Sequence[Answer]:
        memory = self.memory
        self._check()
        self._maybe_fail()
        for each in deliveries:
            if each.method == "no" or each.position in memory.refuses:
                raise DeliveryRefused("the world says no", position=each.position)
        if memory.hold is not None:
            await memory.hold.wait()
        await asyncio.sleep(0)
        if memory.off == "all or nothing":
            for each in deliveries:
                memory.arrived.append(each)
                await asyncio.sleep(0)
        self._check()
        if memory.off != "all or nothing":
            memory.arrived += deliveries
        if memory.off == "position with effect":
            await asyncio.sleep(0)
        memory.position = deliveries[-1].position + 1
        await asyncio.sleep(0)
        answers = [
            Answer(each.position, each.reference, ok_reply(msgspec.msgpack.encode(each.position)))
            for each in deliveries
            if each.reference is not None
        ]
        memory.answers.update((answer.position, answer) for answer in answers)
        await asyncio.sleep(0)
        return answers[:-1] if memory.off == "an answer" else answers

    async def pass_over(self, position: int, answer: Answer | None) -> None:
        self._check()
        self.memory.position = position + 1
        if answer is not None:
            self.memory.answers[position] = answer

    async def confirmed(self, through: int) -> None:
        self._check()
        for position in [each for each in self.memory.answers if each <= through]:
            del self.memory.answers[position]

    async def close(self) -> None:
        self.memory.closed += 1

    def _check(self) -> None:
        assert self.source is not None, "it is open"
        if self.source.epoch < self.memory.epoch and self.memory.off != "fence":
            raise Deposed(f"epoch {self.memory.epoch} was seen")

    def _maybe_fail(self) -> None:
        if self.memory.fails:
            raise self.memory.fails.pop(0)


MEMORIES: dict[str, Memory] = {}
"""Worlds by the name that a driver's options give."""


def factory(settings: Settings) -> MemorySink:
    """As a manifest names it."""
    name = settings.options["memory"]
    if name not in MEMORIES:
        raise InvalidConfig(f"driver {settings.driver}: no memory {name!r}")
    return MemorySink(MEMORIES[str(name)])
