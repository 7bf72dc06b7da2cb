"""A program that does in one method each what a program should not: python hostile_program.py.

The arguments of each method but ADD and FILL are a number in digits. It calls FILL itself, for what counts as sent.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from deathless.ambrosia import Answer, Binding, Call, CallType, connect

ADD, RAISE, GIVE, SPREAD, GROW, PRINT, LEAVE, STORM, FILL = range(1, 10)
STORM_BYTES = 4096
MARK = Path("left")


class Hostile(Binding):
    """Counts what it is sent, and its own calls' answers."""

    def __init__(self) -> None:
        self.bytes = 0
        self.back = 0
        self.size = 0  # of the state beside these

    def handle(self, call: Call) -> None:
        """A call came."""
        if call.method in (ADD, FILL):
            self.bytes += len(call.arguments)
            self.reply(call)
            return
        number = int(call.arguments)
        match call.method:
            case 2:  # RAISE
                self.answer(call, error=b"\xff" * number)
                return
            case 3:  # GIVE
                self.answer(call, bytes(number))
                return
            case 4:  # SPREAD
                for each in range(number):
                    self.call(ADD, b"", to=f"bank/{each}", number=each)
            case 5:  # GROW
                self.size = number
            case 6:  # PRINT
                print("a\n" * number, flush=True)
            case 7:  # LEAVE
                leave()
            case _:  # STORM
                for _ in range(number):
                    self.fork(FILL, bytes(STORM_BYTES))
        self.reply(call)

    def reply(self, call: Call) -> None:
        """Say what was counted."""
        if call.type is CallType.AWAITED:
            self.answer(call, b"%d %d" % (self.bytes, self.back))

    def answered(self, answer: Answer) -> None:
        """A call of its own came back."""
        self.back += 1

    def save(self) -> bytes:
        """All there is."""
        return b"%d %d %d " % (self.bytes, self.back, self.size) + bytes(self.size)

    def load(self, state: bytes) -> None:
        """Go on from there."""
        self.bytes, self.back, self.size = map(int, state.split(b" ", 3)[:3])


def leave() -> None:
    """Leave the connections to a child and end, if nobody has done so before."""
    if MARK.exists():
        return
    child = os.fork()
    if child:
        MARK.write_text(str(child))
        os._exit(3)
    signal.pause()


if __name__ == "__main__":
    connect(Hostile()).run()
