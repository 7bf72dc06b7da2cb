"""Is the answer to a request the same bytes each time it is given, and the bytes the log stands for (I5)?

Input: every answer seen on the wire, whoever sent it and whether or not it arrived, and the answers that a
crash-free replay of the final log gives in a fresh process. Imports nothing of ours but the history.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from deathless.simulation.checkers.history import Violation

Request = tuple[int, int] | str
"""What a request is known by on all its retries: (session, seq), or an idempotency key."""


def check_replies(
    seen: Iterable[tuple[Request, bytes]], replayed: Mapping[Request, bytes] | None = None
) -> list[Violation]:
    """Compare all answers to each request, and with the replay where there is one."""
    first: dict[Request, bytes] = {}
    told: dict[Request, None] = {}
    violations: list[str] = []
    for request, reply in seen:
        known = first.setdefault(request, reply)
        if request in told:
            continue
        if known != reply:
            violations.append(f"two answers to {request}: {known!r} and {reply!r}")
            told[request] = None
        elif replayed is not None and request not in replayed:
            violations.append(f"answer to {request} that the log does not know: {reply!r}")
            told[request] = None
        elif replayed is not None and replayed[request] != reply:
            violations.append(f"answer to {request} differs from replay: {reply!r}, replay {replayed[request]!r}")
            told[request] = None
    return [Violation(checker="replies", text=text) for text in violations]
