"""A program as it is started for AMBROSIA: by somebody else than its coordinator, with name and ports as arguments.

    python original_program.py NAME RECEIVE_PORT SEND_PORT [VERSION]

Method 1 adds the length of its arguments, method 2 has another instance, which its arguments name, add one. At each
tenth call it tells itself how much it has. It has two versions in it, 0 and 1, and begins with VERSION; the next one
counts twice, and its state begins with a 1.

KILL_AT and KILL_PID in its environment: at that step it kills that process, with SIGKILL.
"""

from __future__ import annotations

import os
import signal
import sys

from deathless.ambrosia import Binding, Call, CallType, connect

ADD, ASK, TOTAL = 1, 2, 3
TELLS = 10


class Program(Binding):
    """Counts bytes.

    Args:
        version: that it begins with.
    """

    def __init__(self, version: int) -> None:
        self.version = version
        self.bytes = self.calls = self.told = 0
        self.switched = self.saved = False

    def handle(self, call: Call) -> None:
        """A call came."""
        step("handle")
        if call.method == ADD:
            self.bytes += len(call.arguments) * (1 + self.version)
            self.calls += 1
            if self.calls % TELLS == 0:
                self.fork(TOTAL, b"%d" % self.bytes)
        elif call.method == ASK:
            self.fork(ADD, b"x", to=call.arguments.decode())
        elif call.method == TOTAL:
            self.told += 1
        if call.type is CallType.AWAITED:
            self.answer(call, b"%d" % self.bytes)

    def save(self) -> bytes:
        """All there is."""
        if self.switched:
            step("again" if self.saved else "save")
            self.saved = True
        return b"%d %d %d %d" % (self.version, self.bytes, self.calls, self.told)

    def load(self, state: bytes) -> None:
        """Go on from there."""
        version, self.bytes, self.calls, self.told = map(int, state.split())
        assert version == self.version, "a state of another version"

    def upgrade(self, *, test: bool) -> None:
        """Go over to the next version."""
        step("upgrade")
        self.version, self.switched = self.version + 1, True
        print(f"goes over to {self.version}{' in a test' if test else ''}", flush=True)


def step(name: str) -> None:
    """End whoever is to be ended at this step."""
    if name and os.environ.get("KILL_AT") == name:
        os.kill(int(os.environ["KILL_PID"]), signal.SIGKILL)
        signal.pause()  # nothing of ours goes on behind it


if __name__ == "__main__":
    name, receive_port, send_port, *more = sys.argv[1:]
    program = Program(int(more[0]) if more else 0)
    connect(program, name=name, receive_port=int(receive_port), send_port=int(send_port)).run()
