"""Health and metrics over real sockets."""

from __future__ import annotations

import aiohttp
import pytest

from deathless_operator.handlers.health import STUCK_S, Health
from deathless_operator.handlers.metrics import Metrics

pytestmark = pytest.mark.asyncio


async def test_each_port_serves_health_and_metrics() -> None:
    metrics, stuck, refreshed = Metrics(), 0.0, []
    health = Health(metrics, stuck_s=lambda: stuck, refresh=lambda: refreshed.append(1))
    ports = await health.start("127.0.0.1", [0])
    try:
        async with aiohttp.ClientSession() as session:
            for path, expected in (("/livez", 200), ("/readyz", 200), ("/metrics", 200), ("/", 404)):
                async with session.get(f"http://127.0.0.1:{ports[0]}{path}") as answer:
                    assert answer.status == expected
                    text = await answer.text()
                if path == "/metrics":
                    assert "deathless_operator_leader 0.0" in text and refreshed
            stuck = STUCK_S
            async with session.get(f"http://127.0.0.1:{ports[0]}/livez") as answer:
                assert answer.status == 503 and "600 s" in await answer.text()
    finally:
        await health.stop()
