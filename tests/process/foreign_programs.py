"""Programs that get the AMBROSIA client protocol wrong, each in one way: python foreign_programs.py NAME.

fewer           sends a message only if it was never run before: it is missing on replay
outside         keeps a counter that is in no checkpoint
clock           puts a clock into a message
late            sends what it emitted behind the checkpoint
forgets         keeps back the last message, and in no checkpoint
impulse         sends an impulse from a handler
answers-twice   answers a call twice
early           its checkpoint lacks the message before it
ahead           its checkpoint has the message behind it
unordered       writes its state in the order of a set
deaf            connects, and never reads
lingers         stays when its connections end
"""

from __future__ import annotations

import itertools
import signal
import socket
import sys
import time
from pathlib import Path
from typing import ClassVar

from deathless.ambrosia import Binding, Call, CallType, Connection, connect
from deathless.ambrosia.connection import _port

EACH = 5


class Echo(Binding):
    """Sends itself the number of calls, at each fifth call."""

    def __init__(self) -> None:
        self.calls = 0

    def handle(self, call: Call) -> None:
        if call.method != 1:
            return
        self.calls += 1
        if self.calls % EACH == 0:
            self.tell(b"%d" % self.calls)
        if call.type is CallType.AWAITED:
            self.answer(call, b"%d" % self.calls)

    def tell(self, text: bytes) -> None:
        self.fork(2, text)

    def save(self) -> bytes:
        return b"%d" % self.calls

    def load(self, state: bytes) -> None:
        self.calls = int(state)


class Fewer(Echo):
    """Remembers beside the log what it has sent."""

    mark = Path("sent")

    def tell(self, text: bytes) -> None:
        if text == b"%d" % (20 * EACH) and self.mark.exists():
            return
        if text == b"%d" % (20 * EACH):
            self.mark.write_bytes(b"")
        super().tell(text)


class Outside(Echo):
    """Numbers its messages by a variable of the process."""

    numbers = itertools.count()

    def tell(self, text: bytes) -> None:
        super().tell(text + b" %d" % next(self.numbers))


class Clock(Echo):
    """Says when."""

    def tell(self, text: bytes) -> None:
        super().tell(text + b" %d" % time.time_ns())


class Impulse(Echo):
    """Takes an impulse for a fork."""

    def tell(self, text: bytes) -> None:
        self._handling = False
        if self.is_primary:
            self.impulse(2, text)
        else:
            assert self._machine is not None
            self._machine.primary = True
            self.impulse(2, text)
            self._machine.primary = False
        self._handling = True


class Twice(Echo):
    """Is too polite."""

    def answer(self, call: Call, payload: bytes | None = None, *, error: bytes | None = None) -> None:
        super().answer(call, payload, error=error)
        super().answer(call, payload, error=error)


class Early(Echo):
    """Saves the state as it was before the last call."""

    def __init__(self) -> None:
        super().__init__()
        self.before = 0

    def handle(self, call: Call) -> None:
        self.before = self.calls
        super().handle(call)

    def save(self) -> bytes:
        return b"%d" % self.before


class Ahead(Echo):
    """Saves the state as it will be behind the next call, as a binding does that reads ahead."""

    def save(self) -> bytes:
        return b"%d" % (self.calls + 1)


class Unordered(Echo):
    """Has a set of words in its state, whose order is another in each process."""

    words: ClassVar = {"one", "two", "three", "four", "five", "six", "seven", "eight"}

    def save(self) -> bytes:
        return super().save() + b" " + " ".join(self.words).encode()

    def load(self, state: bytes) -> None:
        super().load(state.split()[0])


class Keeping(Echo):
    """Has a queue of its own before that of the binding."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: list[bytes] = []

    def tell(self, text: bytes) -> None:
        self.empty()
        self.queue.append(text)

    def empty(self) -> None:
        for text in self.queue:
            self.fork(2, text)
        self.queue.clear()


class LateConnection(Connection):
    """Sends what waits behind the checkpoint."""

    __slots__ = ()

    def _save(self) -> None:
        super()._save()
        application = self._application
        assert isinstance(application, Keeping)
        application._handling = True
        application.empty()
        application._handling = False


def deaf() -> None:
    """Connect, and read nothing."""
    held = [socket.create_connection(("127.0.0.1", _port(f"DEATHLESS_{name}_PORT"))) for name in ("RECEIVE", "SEND")]
    signal.pause()
    del held


def main(name: str) -> None:
    """Run one of them."""
    kinds = {
        "ahead": Ahead,
        "clock": Clock,
        "early": Early,
        "fewer": Fewer,
        "forgets": Keeping,
        "impulse": Impulse,
        "late": Keeping,
        "lingers": Echo,
        "outside": Outside,
        "right": Echo,
        "answers-twice": Twice,
        "unordered": Unordered,
    }
    if name == "deaf":
        deaf()
        return
    connection = connect(kinds[name]())
    if name == "late":
        connection.__class__ = LateConnection
    connection.run()
    if name == "lingers":
        signal.pause()


if __name__ == "__main__":
    main(sys.argv[1])
