"""Why something of a source is not done now, and when it is tried again.

Guarantees: pauses double up to AGAIN_MAX_S. Does not: know clocks. Imports base.
"""

from __future__ import annotations

from typing import Final

from deathless.base.backoff import next_pause
from deathless.base.errors import DeathlessError

AGAIN_MIN_S: Final = 0.5  # after the first failure to read, or when another process took a stream
AGAIN_MAX_S: Final = 30.0
CALM_S: Final = 60.0  # what went well for so long begins with short pauses again


class Trouble:
    """Why a stream, or all of a source, is not read now, and when to try again."""

    def __init__(self) -> None:
        self.error: DeathlessError | None = None
        self.again_at = 0.0  # monotonic seconds
        self._pause_s = 0.0
        self._since = 0.0

    def met(self, error: DeathlessError, now: float) -> bool:
        """It failed; says whether that is news."""
        new = str(error) != str(self.error)
        if now - self._since > CALM_S and self.error is None:
            self._pause_s = 0.0
        self._pause_s = next_pause(self._pause_s, first_s=AGAIN_MIN_S, most_s=AGAIN_MAX_S)
        self.error, self.again_at = error, now + self._pause_s
        return new

    def over(self, now: float) -> None:
        """It went well."""
        if self.error is not None:
            self.error, self._since = None, now


def code_of(problem: str) -> str:
    """Give the code that a refusal begins with; what is no refusal (a shard has no primary for now) has none."""
    code = problem.partition(" ")[0]
    return code if code.startswith("DL") and code[2:].isdecimal() else ""
