"""How pauses grow from one failure to the next: the one place that computes it.

Every retry of ours pauses `first_s` after the first failure, `factor` times as long after each further one, and never
longer than `most_s`. A caller keeps one of two things:

    pause_s = next_pause(pause_s, first_s=AGAIN_MIN_S, most_s=AGAIN_MAX_S)     the last pause; 0: none yet
    pause_s = pause_after(failures, first_s=AGAIN_MIN_S, most_s=AGAIN_MAX_S)   how many failures went before

Guarantees: same arguments, same pause, on every platform (it multiplies: a power is rounded differently by different
libraries); no overflow, however often something failed. Does not: own the constants (whoever retries does), draw by
chance, or know a clock: who wants jitter gives the number drawn.
"""

from __future__ import annotations

from typing import Final

FACTOR: Final = 2.0
GROWTHS_MAX: Final = 1000  # after so many failures a pause grows no more, whatever its factor


def next_pause(pause_s: float, *, first_s: float, most_s: float, factor: float = FACTOR) -> float:
    """Give the pause that follows `pause_s`.

    Args:
        pause_s: the pause before; 0: there was none.
        first_s: the pause after the first failure, seconds (>= 0).
        most_s: the longest pause, seconds.
        factor: by what it grows (>= 1).
    """
    return min(max(factor * pause_s, first_s), most_s)


def pause_after(failures: int, *, first_s: float, most_s: float, factor: float = FACTOR, chance: float = 1.0) -> float:
    """Give the pause after a failure that so many others went before.

    Args:
        failures: how many went before (>= 0); 0 for the first failure.
        first_s: the pause after the first failure, seconds (>= 0).
        most_s: the longest pause, seconds; infinite: there is none.
        factor: by what it grows (>= 1).
        chance: a number drawn from [0, 1), for jitter: the pause is between its half and its whole; 1: the whole.
    """
    pause_s = first_s
    for _ in range(min(failures, GROWTHS_MAX)):
        if pause_s >= most_s:
            break
        pause_s *= factor
    return min(pause_s, most_s) * (0.5 + 0.5 * chance)
