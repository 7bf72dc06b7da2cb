"""Questions to the installation's Prometheus: what an expression gives now, as one number.

Guarantees: no question raises; whatever keeps a number from being told is told in its place, in a sentence. What does
not answer in time is asked no longer, no redirect is followed, and nothing but the expression is sent. Does not: judge
(plan.service.upgrading.ramp does), or remember.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any, Final

import aiohttp
import msgspec

from deathless.base.errors import TooLarge
from deathless.codec.untrusted import read_json
from deathless_operator.cluster.bounded import read_whole
from deathless_operator.plan.snapshot import Measured

REQUEST_TIMEOUT_S: Final = 5.0
ANSWER_BYTES_MAX: Final = 1 << 20
SHOWN: Final = 300
Measure = Callable[[str], Awaitable[Measured]]
"""Asks for the value of an expression."""


class Prometheus:
    """One server with the interface of Prometheus.

    Args:
        url: without a slash at the end; empty: there is none.
    """

    def __init__(self, url: str) -> None:
        self._url = url

    async def measure(self, query: str) -> Measured:
        """Give what a PromQL expression is now."""
        if not self._url:
            return Measured(problem="the operator was given no Prometheus (operator.prometheusUrl of its chart)")
        timeout = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, trust_env=False) as session,
                session.post(f"{self._url}/api/v1/query", data={"query": query}, allow_redirects=False) as answer,
            ):
                raw = await read_whole(answer, self._url, ANSWER_BYTES_MAX)
                return read_answer(answer.status, raw)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, TooLarge) as error:
            return Measured(problem=f"Prometheus does not answer: {type(error).__name__}: {error}"[:SHOWN])


def read_answer(status: int, raw: bytes) -> Measured:
    """Read the answer to one expression.

    Args:
        status: of HTTP.
        raw: the body.
    """
    try:
        answer = read_json(raw, dict[str, Any])
    except msgspec.DecodeError:
        return Measured(problem=f"Prometheus answers with HTTP {status} and no JSON object")
    if status != 200 or answer.get("status") != "success":
        told = answer.get("error") or f"HTTP {status}"
        return Measured(problem=f"Prometheus refuses the expression: {told}"[:SHOWN])
    data = answer.get("data")
    kind, result = (data.get("resultType"), data.get("result")) if isinstance(data, dict) else (None, None)
    if kind == "vector" and isinstance(result, list):
        if not result:
            return Measured(problem="there is no data")
        if len(result) > 1:
            return Measured(problem=f"the expression gives {len(result)} series, not one number")
        result = result[0].get("value") if isinstance(result[0], dict) else None
    elif kind != "scalar":
        return Measured(problem=f"the expression gives a {str(kind)[:SHOWN]}, not one number")
    return _number(result)


def _number(sample: object) -> Measured:
    """Read a time with its value, as Prometheus writes them."""
    text = sample[1] if isinstance(sample, list) and len(sample) == 2 else None
    try:
        value = float(text) if isinstance(text, str) else math.nan
    except ValueError:
        value = math.nan
    if math.isnan(value):
        return Measured(problem="its value is no number")
    return Measured(value=value)
