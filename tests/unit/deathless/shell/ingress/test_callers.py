"""What callers are told at the HTTP port, and how many may wait for an issuer. Real doors: test_callers."""

from __future__ import annotations

import asyncio

import pytest

from deathless.base.errors import NotAuthenticated, Overloaded, Unauthorized
from deathless.base.limits import CALLERS_WAITING_MAX
from deathless.shell.ingress.callers import CallersAtFront, challenge
from deathless.shell.ingress.operators import Operators
from deathless.shell.net.callers import Callers
from deathless.shell.web.metrics import MetricSet


@pytest.mark.parametrize(
    ("error", "header"),
    [
        (Unauthorized("token is missing or wrong"), b"Bearer"),
        (NotAuthenticated("no token came"), b"Bearer"),
        (NotAuthenticated("the token has expired"), b'Bearer error="invalid_token"'),
    ],
)
def test_challenge_says_whether_a_token_came(error: Unauthorized, header: bytes) -> None:
    assert challenge(error) == header


class Slow(Callers):
    """Its issuer answers when it is let."""

    def __init__(self) -> None:
        self.answered = asyncio.Event()

    async def fetch(self) -> None:
        """See Callers."""
        await self.answered.wait()


@pytest.mark.asyncio
async def test_requests_that_wait_for_an_issuer_have_a_maximum() -> None:
    callers = Slow()
    front = CallersAtFront("", callers, Operators(refusal="nobody"), MetricSet("x", labels={}))
    waiting = [asyncio.ensure_future(front.fetch()) for _ in range(CALLERS_WAITING_MAX)]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded):
        await front.fetch()
    callers.answered.set()
    await asyncio.gather(*waiting)
    await front.fetch()
