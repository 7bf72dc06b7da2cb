"""A program as it is started for AMBROSIA: by somebody else than its coordinator, with name and ports as arguments.

    python original_program.py NAME RECEIVE_PORT SEND_PORT

Method 1 adds the length of its arguments, method 2 has another instance, which its arguments name, add one.
"""

from __future__ import annotations

import sys

from deathless.ambrosia import Binding, Call, CallType, connect

ADD, ASK = 1, 2


class Program(Binding):
    """Counts bytes."""

    def __init__(self) -> None:
        self.bytes = 0

    def handle(self, call: Call) -> None:
        """A call came."""
        if call.method == ADD:
            self.bytes += len(call.arguments)
        elif call.method == ASK:
            self.fork(ADD, b"x", to=call.arguments.decode())
        if call.type is CallType.AWAITED:
            self.answer(call, b"%d" % self.bytes)

    def save(self) -> bytes:
        """All there is."""
        return b"%d" % self.bytes

    def load(self, state: bytes) -> None:
        """Go on from there."""
        self.bytes = int(state)


if __name__ == "__main__":
    name, receive_port, send_port = sys.argv[1:]
    connect(Program(), name=name, receive_port=int(receive_port), send_port=int(send_port)).run()
