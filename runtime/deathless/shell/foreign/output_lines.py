"""Lines of what an application prints, up to so many bytes a second.

Why it exists: whoever starts a process with pipes has to read them, or it blocks at its next word. What it prints goes
to our log, so a program that prints without an end would fill that; and a line without an end would fill memory.

Guarantees: all bytes are taken; beyond RATE_BYTES a second they are counted and dropped, and a line says how many; a
line costs LINE_BYTES beside its own, so that short ones are not a hundred thousand a second; a line holds
LINE_BYTES_MAX at most, longer ones come in pieces. Does not: read; know a clock. Imports nothing of ours.
"""

from __future__ import annotations

from typing import Final

RATE_BYTES: Final = 1 << 20
LINE_BYTES_MAX: Final = 8 << 10
LINE_BYTES: Final = 256
"""What a line costs beside its bytes: each becomes a line of our log, with a time and names."""


class Lines:
    """One stream of one process.

    Args:
        rate: bytes a second that are kept, at least 1; as many may come at once.
        line_bytes: that a line counts for beside its own.
    """

    __slots__ = ("_budget", "_last", "_line_bytes", "_rest", "_untold", "dropped", "rate")

    def __init__(self, rate: int = RATE_BYTES, line_bytes: int = LINE_BYTES) -> None:
        self.rate = rate
        self._line_bytes = line_bytes
        self.dropped = 0  # bytes so far
        self._budget = float(rate)
        self._last: float | None = None
        self._rest = b""  # of a line that has not ended
        self._untold = 0  # bytes dropped that no line has told yet

    def feed(self, data: bytes, now: float) -> list[str]:
        """Take what was printed; gives the lines that are whole.

        Args:
            data: any bytes.
            now: monotonic seconds, never less than before.
        """
        passed = now - self._last if self._last is not None else 0.0
        self._last = now
        self._budget = min(float(self.rate), self._budget + passed * self.rate)
        kept, cost = self._affordable(data)
        self._budget -= cost
        lines: list[str] = []
        if kept and self._untold:
            lines += [*self._cut(b"\n"), f"({self._untold} bytes of output were dropped)"]
            self._untold = 0
        lines += self._cut(kept)
        self.dropped += len(data) - len(kept)
        self._untold += len(data) - len(kept)
        return lines

    def end(self) -> list[str]:
        """Nothing more will come; gives what is left."""
        lines = self._cut(b"\n") if self._rest else []
        if self._untold:
            lines.append(f"({self._untold} bytes of output were dropped)")
            self._untold = 0
        return lines

    def _affordable(self, data: bytes) -> tuple[bytes, int]:
        """Give what may be kept of it, whole lines and a beginning of the next one, and what that costs."""
        most, at, cost = int(self._budget), 0, 0
        while at < len(data) and cost < most:
            end = data.find(b"\n", at) + 1 or len(data)
            kept = min(end - at, most - cost)
            at += kept
            cost += kept + (self._line_bytes if data[at - 1 : at] == b"\n" else 0)
        return data[:at], cost

    def _cut(self, data: bytes) -> list[str]:
        whole = (self._rest + data).split(b"\n")
        self._rest = whole.pop()
        while len(self._rest) > LINE_BYTES_MAX:
            whole.append(self._rest[:LINE_BYTES_MAX])
            self._rest = self._rest[LINE_BYTES_MAX:]
        return [
            line[start : start + LINE_BYTES_MAX].decode(errors="backslashreplace")
            for line in whole
            for start in range(0, max(1, len(line)), LINE_BYTES_MAX)
            if line
        ]
