"""A program that sends and counts, where there is no Go to build bench/foreign_load; that says what its methods do."""

from __future__ import annotations

import struct

from deathless.ambrosia import Answer, Binding, Call, CallType, connect

START, ADD, READ, ASK, FILL = 1, 2, 3, 4, 5
HEAD = struct.Struct("<6q")  # messages, bytes, answers, calls asked for, left to make, length of the name
COUNTS = struct.Struct("<3q")
NAME_BYTES = 64


class Load(Binding):
    """Sends and counts."""

    def __init__(self) -> None:
        self.messages = self.bytes = self.answers = self.asked = self.left = 0
        self.name = b""
        self.filled = b""

    def handle(self, call: Call) -> None:
        """A call came."""
        if call.method == ADD:
            self.messages += 1
            self.bytes += len(call.arguments)
        elif call.method == START:
            messages, size = struct.unpack_from("<2I", call.arguments)
            to, note = call.arguments[8:].decode(), bytes(size)
            for _ in range(messages):
                self.fork(ADD, note, to=to)
        elif call.method == ASK:
            calls, outstanding = struct.unpack_from("<2I", call.arguments)
            self.left, self.name = self.left + calls, call.arguments[8:]
            self._next(outstanding)
        elif call.method == FILL:
            self.filled = bytes(int.from_bytes(call.arguments, "little"))
        if call.type is CallType.AWAITED:
            self.answer(call, COUNTS.pack(self.messages, self.bytes, self.answers))

    def answered(self, answer: Answer) -> None:
        """An answer came."""
        self.answers += 1
        self._next(1)

    def _next(self, most: int) -> None:
        for _ in range(min(most, self.left)):
            self.left -= 1
            self.asked += 1
            self.call(READ, b"", to=self.name.decode(), number=self.asked)

    def save(self) -> bytes:
        """All there is."""
        counts = (self.messages, self.bytes, self.answers, self.asked, self.left, len(self.name))
        return b"".join((HEAD.pack(*counts), self.name.ljust(NAME_BYTES, b"\0"), self.filled))

    def load(self, state: bytes) -> None:
        """Go on from there."""
        self.messages, self.bytes, self.answers, self.asked, self.left, size = HEAD.unpack_from(state)
        self.name = state[HEAD.size : HEAD.size + size]
        self.filled = state[HEAD.size + NAME_BYTES :]


if __name__ == "__main__":
    connect(Load()).run()
