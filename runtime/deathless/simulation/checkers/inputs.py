"""Had each input of each stream its effect exactly once, and in the order of its ids?

Input: by key of the state, the tags that it must hold in the end, and those that the recovered state holds. Imports
nothing of ours but the history.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from deathless.simulation.checkers.history import Violation


def check_inputs(expected: Mapping[str, Sequence[str]], applied: Mapping[str, Sequence[str]]) -> list[Violation]:
    """Compare what streams held with what was applied.

    Args:
        expected: tags by key, each in the order of ids.
        applied: the same of the recovered state; keys that streams have nothing to do with are left out.
    """
    texts: list[str] = []
    for key in sorted({*expected, *applied}):
        meant, found = list(expected.get(key, ())), list(applied.get(key, ()))
        counts = Counter(found)
        texts += [f"{key}: {tag} had its effect {count} times" for tag, count in counts.items() if count > 1]
        texts += [f"{key}: {tag} is lost" for tag in meant if tag not in counts]
        texts += [f"{key}: {tag} had an effect, and nobody sent it" for tag in counts if tag not in set(meant)]
        if Counter(meant) == counts and meant != found:
            at = next(index for index, (ours, theirs) in enumerate(zip(meant, found, strict=True)) if ours != theirs)
            texts.append(f"{key}: {found[at]} had its effect where {meant[at]} comes first")
    return [Violation(checker="inputs", text=text) for text in texts]
