"""A counter that knows nothing of logs and replicas: what a service in another language does, in Python.

    deathless ambrosia check --method 1 -- python examples/foreign/counter.py

Method 1 adds the length of its arguments. At each tenth call the counter tells itself the total, by method 2, and a
call that wants an answer gets the total.
"""

from __future__ import annotations

import struct

from deathless.ambrosia import Binding, Call, CallType, connect

ADD, TOTAL = 1, 2
TOTAL_BYTES = 8
STATE = struct.Struct("<3q")


class Counter(Binding):
    """Counts calls and bytes."""

    def __init__(self) -> None:
        self.calls = 0
        self.bytes = 0
        self.told = 0  # the last total that came back

    def handle(self, call: Call) -> None:
        """A call came."""
        if call.method == TOTAL and len(call.arguments) == TOTAL_BYTES:
            self.told = int.from_bytes(call.arguments, "little", signed=True)
        elif call.method == ADD:
            self.calls += 1
            self.bytes += len(call.arguments)
            if self.calls % 10 == 0:
                self.fork(TOTAL, self.total())
        if call.type is CallType.AWAITED:
            self.answer(call, self.total())

    def total(self) -> bytes:
        """Give the total as it is sent."""
        return self.bytes.to_bytes(TOTAL_BYTES, "little", signed=True)

    def save(self) -> bytes:
        """All there is."""
        return STATE.pack(self.calls, self.bytes, self.told)

    def load(self, state: bytes) -> None:
        """Go on from there."""
        self.calls, self.bytes, self.told = STATE.unpack(state)


if __name__ == "__main__":
    connect(Counter()).run()
