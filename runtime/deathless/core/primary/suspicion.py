"""Which frames are tried out before they are run, because a message in them may end its process (I11).

A message that ends its handler's process costs a takeover the first time: nobody knew. From then on nobody else shall
pay for its like. While a death is unexplained, and for a while after the last killer was found, every frame is run
in a copy of the process first, which may die; so is, for longer, each frame that holds a call of a handler that has
killed. A message that ends the copy is replaced in its frame by a PARKED record that carries it unrun, and the rest is
tried again. What survives is run.

    a worker died in a message  ->  frames are tried out  ->  the copy survives:      it was no killer, all goes on
                                                          ->  the copy dies in one:   that one is parked

So a killer is parked once two processes died of it, of which the second was a copy, and a message that was being run
when something else killed its process is not parked at all.

Guarantees: at most `SUSPECTS_MAX` handlers are remembered. Does not: fork or run anything, or know clocks. Imports
codec and base.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from deathless.base.ids import SYSTEM_SESSION
from deathless.codec.frames import Run
from deathless.codec.messages import HEADER, HEADER_BYTES, encode_parked
from deathless.core.tables.stream_table import gap_before

SUSPECTS_MAX: Final = 64  # handlers; the one that killed longest ago goes first
UNEXPLAINED_S: Final = 30.0  # so long a death is waited for whose message nobody has sent again
AFTER_S: Final = 5.0  # so long everything is tried out behind a killer
HANDLER_S: Final = 3600.0  # so long a handler is tried out that has killed

Runs = Sequence[tuple[Run, Sequence[bytes]]]


class Suspicion:
    """What the primary holds for possible.

    Args:
        deaths: (session, seq) -> deaths in that message; who is in it has neither completed nor been parked.
    """

    def __init__(self, deaths: dict[tuple[int, int], int]) -> None:
        self._deaths = deaths
        self._unexplained_until = -1.0
        self._until = -1.0  # everything is tried out until then
        self._handlers: dict[bytes, float] = {}  # name -> tried out until then; the last to kill is the last

    def died(self, now: float) -> None:
        """A process died in a message."""
        self._unexplained_until = now + UNEXPLAINED_S

    def found(self, methods: Sequence[bytes], now: float) -> None:
        """Copies died of calls of these handlers; b"" for what is no call."""
        self._until = now + AFTER_S
        for method in filter(None, methods):
            self._handlers.pop(method, None)
            self._handlers[method] = now + HANDLER_S
        while len(self._handlers) > SUSPECTS_MAX:
            self._handlers.pop(next(iter(self._handlers)))

    def none(self, now: float) -> bool:
        """Is no frame tried out, whatever it holds?"""
        return not self._deaths and not self._handlers and now >= self._until

    def covers(self, runs: Runs, now: float) -> bool:
        """Is this frame to be tried out?"""
        if now < self._until or (self._deaths and now < self._unexplained_until):
            return True
        if not self._handlers:
            return False
        suspects = {name for name, until in self._handlers.items() if now < until}
        return bool(suspects) and any(method_of(message) in suspects for _, part in runs for message in part)


def method_of(message: bytes) -> bytes:
    """Give the handler that a message calls; b"": it calls none."""
    if len(message) < HEADER_BYTES:
        return b""
    _, _, method_len, _, _ = HEADER.unpack_from(message)
    return message[HEADER_BYTES : HEADER_BYTES + method_len]


def set_aside(runs: Runs, session: int, seq: int, *, of_stream: bool = False) -> tuple[Runs, bytes]:
    """Give a frame in which a message is replaced by the record that parks it, and the handler that it calls.

    A turn that no message of the frame stands for (session 0, `seq` its invocation) is parked in front of all others.
    `of_stream`: the session is a stream's, whose runs say what they follow.
    """
    if session == SYSTEM_SESSION:
        return [_record(session, seq, b""), *runs], b""
    made: list[tuple[Run, Sequence[bytes]]] = []
    method = b""
    for run, messages in runs:
        at = seq - run.first_seq
        if run.session != session or not 0 <= at < run.count:
            made.append((run, messages))
            continue
        if at:
            made.append((Run(session, run.first_seq, run.acked, at), messages[:at]))
        elif of_stream and (gap := gap_before(run)) is not None:
            made.append((gap, ()))
        made.append(_record(session, seq, messages[at]))
        method = method_of(messages[at])
        if rest := messages[at + 1 :]:
            follows = seq if of_stream else run.acked
            made.append((Run(session, seq + 1, follows, len(rest)), rest))
    return made, method


def _record(session: int, seq: int, message: bytes) -> tuple[Run, Sequence[bytes]]:
    return Run(SYSTEM_SESSION, 0, 0, 1), (encode_parked(session, seq, message),)
