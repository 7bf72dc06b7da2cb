"""A program that has others work: python job_program.py.

ORDER's arguments are `target count size`: it sends so many messages of so many bytes to a target, by its method 1, and
asks it once with an empty one. It counts what it sent and how many answers came; ADD counts what it is sent.
"""

from __future__ import annotations

from deathless.ambrosia import Answer, Binding, Call, CallType, connect

ADD, ORDER, BOOK = 1, 2, 3


class Job(Binding):
    """Counts."""

    def __init__(self) -> None:
        self.sent = self.asked = self.answers = self.bytes = 0

    def handle(self, call: Call) -> None:
        """A call came."""
        if call.method == ORDER:
            target, count, size = call.arguments.decode().split()
            for _ in range(int(count)):
                self.fork(ADD, bytes(int(size)), to=target)
            self.sent += int(count) * int(size)
            self.asked += 1
            self.call(ADD, b"", to=target, number=self.asked)
        elif call.method == ADD:
            self.bytes += len(call.arguments)
        if call.type is CallType.AWAITED:
            self.answer(call, self.save())

    def answered(self, answer: Answer) -> None:
        """A target has counted what was sent before."""
        self.answers += 1

    def save(self) -> bytes:
        """All there is."""
        return b"%d %d %d %d" % (self.sent, self.asked, self.answers, self.bytes)

    def load(self, state: bytes) -> None:
        """Go on from there."""
        self.sent, self.asked, self.answers, self.bytes = map(int, state.split())


if __name__ == "__main__":
    connect(Job()).run()
