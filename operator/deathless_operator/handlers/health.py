"""Plain HTTP: `/livez`, `/readyz`, `/metrics`, on one port or several (a chart keeps probes and scrapers apart).

    /livez    503 when a worker has been stuck in one object for `STUCK_S`: restarting is the only cure left. An API
              server that is away is none of that; nor is waiting for the lease.
    /readyz   200 from when the port is open: a waiting process is as ready as it will be
    /metrics  Prometheus

An event loop that hangs answers nothing, which is what a probe's time limit is for. No data of services is served.
Does not: authenticate (a NetworkPolicy says who may scrape).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from aiohttp import web

from deathless_operator.handlers.metrics import Metrics

STUCK_S = 600.0


class Health:
    """The ports.

    Args:
        metrics: what `/metrics` shows.
        stuck_s: asked at each `/livez`: seconds for which a worker has been in one object.
        refresh: called before metrics are shown, to set gauges.
    """

    def __init__(self, metrics: Metrics, *, stuck_s: Callable[[], float], refresh: Callable[[], None]) -> None:
        self._metrics = metrics
        self._stuck_s = stuck_s
        self._refresh = refresh
        self._runner: web.AppRunner | None = None

    async def start(self, host: str, ports: Iterable[int]) -> list[int]:
        """Listen on each port, 0 asks for any; gives the ports."""
        app = web.Application()
        app.router.add_get("/livez", self._live)
        app.router.add_get("/readyz", self._ready)
        app.router.add_get("/metrics", self._show)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False)
        await self._runner.setup()
        for port in dict.fromkeys(ports):
            await web.TCPSite(self._runner, host or None, port).start()
        return [int(address[1]) for address in self._runner.addresses]

    async def stop(self) -> None:
        """Close the ports."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _live(self, request: web.Request) -> web.Response:  # noqa: ARG002 - aiohttp's signature
        stuck = self._stuck_s()
        if stuck >= STUCK_S:
            return web.Response(status=503, text=f"a worker has been in one object for {stuck:.0f} s\n")
        return web.Response(text="ok\n")

    async def _ready(self, request: web.Request) -> web.Response:  # noqa: ARG002 - aiohttp's signature
        return web.Response(text="ok\n")

    async def _show(self, request: web.Request) -> web.Response:  # noqa: ARG002 - aiohttp's signature
        self._refresh()
        return web.Response(body=self._metrics.text(), content_type="text/plain", charset="utf-8")
