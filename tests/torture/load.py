"""Callers of a torture run: each makes one call at a time, as often as it is answered, and all is written down."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
from tests.torture.service import ACCOUNTS

from deathless import Client

REGISTERS = 4
CALLERS = 6
VALUES = 4  # few, so that a swap often finds what it looks for
PAUSE_S = 0.01  # between two calls of a caller


class Operation(msgspec.Struct, rename={"returned": "return"}):
    """One call, as lab/linearizability.go reads it; times in microseconds."""

    client: int
    call: int
    op: str
    key: str
    args: list[int]
    tag: str = ""  # empty: a query
    returned: int = -1  # -1: not answered
    result: object = None


class Load:
    """Calls in a thread of its own, until told to stop.

    Args:
        directory: the service's.
        seed: of what is called.
    """

    def __init__(self, directory: Path, seed: int) -> None:
        self.operations: list[Operation] = []
        self.answered = 0
        self.errors: list[BaseException] = []
        self._directory = directory
        self._seed = seed
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, patience_s: float) -> None:
        """Begin no more calls, and wait for the answers that are owed."""
        self._stop.set()
        self._thread.join(patience_s)
        if self._thread.is_alive():
            raise AssertionError(f"calls were not answered within {patience_s:g} s after all faults had ended")
        if self.errors:
            raise self.errors[0]

    async def _run(self) -> None:
        await asyncio.gather(*(self._caller(number) for number in range(CALLERS)))

    async def _caller(self, number: int) -> None:
        chance = random.Random(self._seed * 1000 + number)
        try:
            async with Client("torture", [f"dir:{self._directory}"]) as client:
                count = 0
                while not self._stop.is_set():
                    await self._one(client, self._draw(chance, number, f"{number}.{count}"))
                    count += 1
                    await asyncio.to_thread(self._stop.wait, PAUSE_S)
        except BaseException as error:
            self.errors.append(error)
            raise

    def _draw(self, chance: random.Random, number: int, tag: str) -> Operation:
        if chance.random() < 0.4:
            if chance.random() < 0.3:
                return Operation(number, 0, "total", "bank", [])
            source, target = chance.sample(range(ACCOUNTS), 2)
            return Operation(number, 0, "transfer", "bank", [source, target, chance.randint(1, 60)], tag)
        key = f"r{chance.randrange(REGISTERS)}"
        match chance.choice(("read", "write", "cas")):
            case "read":
                return Operation(number, 0, "read", key, [])
            case "write":
                return Operation(number, 0, "write", key, [chance.randrange(VALUES)], tag)
            case _:
                return Operation(number, 0, "cas", key, [chance.randrange(VALUES), chance.randrange(VALUES)], tag)

    async def _one(self, client: Client, operation: Operation) -> None:
        names = {"write": ("value",), "cas": ("old", "new"), "transfer": ("source", "target", "amount")}
        operation.call = time.monotonic_ns() // 1000
        self.operations.append(operation)
        answer: Any
        if operation.tag:
            arguments: dict[str, object] = dict(zip(names[operation.op], operation.args, strict=True))
            named = {"tag": operation.tag, **arguments}
            answer = await client.request(operation.op, operation.key, named, timeout=None)
        else:
            answer = await client.query(operation.op, operation.key, timeout=None)
        operation.returned = time.monotonic_ns() // 1000
        operation.result = answer
        self.answered += 1
