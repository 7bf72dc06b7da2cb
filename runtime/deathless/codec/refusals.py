"""What a BATCH_REFUSED says beside its codes: which registration it is about, and how long nothing is sent again.

A refusal of queries has session 0, as that of a registration has; the nonce tells the two apart, whatever ids a client
gives its queries. Who does not know it reads what every BATCH_REFUSED carries. Does not: register. Imports base only.
"""

from __future__ import annotations

from deathless.base.limits import REFUSED_PAUSE_MAX_S
from deathless.codec.wire import BatchRefused


class RegistrationRefused(BatchRefused, array_like=True, frozen=True):
    """What a BATCH_REFUSED carries for a REGISTER: session 0, first seq 0, and the nonce that was not registered."""

    nonce: bytes = b""


def pause_s(refused: BatchRefused) -> float:
    """Give how long nothing is sent again, in seconds: what is asked for, from 0 to REFUSED_PAUSE_MAX_S."""
    return min(max(refused.retry_after_ms, 0) / 1000, REFUSED_PAUSE_MAX_S)
