"""Does the log hold each session's messages once, in the order they were sent, without a gap (I3)?

Input: (session, seq) in the order of the log; and, to compare with what was meant, the tags of each session in the
order its client sent them and in the order they were applied. Imports nothing of ours but the history.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from deathless.simulation.checkers.history import Violation


def check_session_order(
    logged: Iterable[tuple[int, int]],
    sent: Mapping[str, Sequence[str]] | None = None,
    applied: Sequence[str] = (),
) -> list[Violation]:
    """Judge order within each session.

    Args:
        logged: (session, seq) of every client's message, in log order; the first seq of a session is 1.
        sent: tags by session, in the order of sending.
        applied: tags of all sessions in the order of the log; those that were rolled back are absent.
    """
    violations: list[str] = []
    following: dict[int, int] = {}
    for session, seq in logged:
        expected = following.get(session, 1)
        if seq != expected:
            violations.append(f"session {session}: seq {seq} stands where {expected} must stand")
        following[session] = seq + 1
    place = {tag: index for index, tag in enumerate(applied)}
    for name, tags in (sent or {}).items():
        last, last_tag = -1, ""
        for tag in tags:
            at = place.get(tag)
            if at is None:
                continue
            if at < last:
                violations.append(f"session {name}: {tag} was sent after {last_tag} and applied before it")
            last, last_tag = at, tag
    return [Violation(checker="order", text=text) for text in violations]
