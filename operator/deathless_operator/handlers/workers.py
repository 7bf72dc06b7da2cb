"""Workers: take keys from the queue and have them looked at by their kind's reconciler, whatever comes.

Guarantees: an error ends one look, never a worker: ours are told by code, anything else as a bug with its trace; the
key is tried again with growing pauses. A look takes at most `LOOK_MAX_S`. Every object is looked at again at least
each `resync_s`, watches or not. Does not: know kinds; a new kind is one more entry of the table.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable, Collection, Mapping

from deathless.base.errors import DeathlessError
from deathless_operator.cluster.api import Api
from deathless_operator.cluster.errors import ApiRefused, ApiUnreachable
from deathless_operator.cluster.kinds import CONFIG_MAP, Kind
from deathless_operator.handlers.metrics import Metrics
from deathless_operator.handlers.reconcile import Outcome, Reconciler
from deathless_operator.handlers.watches import keys_of
from deathless_operator.handlers.work_queue import Key, WorkQueue
from deathless_operator.model import names

WORKERS = 8
LOOK_MAX_S = 120.0
RESYNC_RETRY_S = 5.0

logger = logging.getLogger(__name__)


class Workers:
    """The workers of one process.

    Args:
        queue: where keys come from.
        reconcilers: by kind.
        metrics: counted here.
        resync_s: each object is looked at again after this, seconds.
        clock: seconds, for durations.
    """

    def __init__(
        self,
        queue: WorkQueue,
        reconcilers: Mapping[str, Reconciler],
        metrics: Metrics,
        *,
        resync_s: float,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._queue = queue
        self._reconcilers = reconcilers
        self._metrics = metrics
        self._resync_s = resync_s
        self._clock = clock
        self._all = asyncio.Event()  # every object is to be looked at now

    async def work(self) -> None:
        """Work until the queue is closed; run `WORKERS` of these."""
        while (key := await self._queue.get()) is not None:
            began = self._clock()
            try:
                async with asyncio.timeout(LOOK_MAX_S):
                    outcome = await self._reconcilers[key.kind].reconcile(key)
            except asyncio.CancelledError:
                self._queue.done(key)
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, the next key must be looked at
                self._tell(key, error)
            else:
                self._finish(key, outcome)
            self._metrics.reconciles.labels(key.kind).inc()
            self._metrics.seconds.labels(key.kind).observe(self._clock() - began)

    def _finish(self, key: Key, outcome: Outcome) -> None:
        if outcome.failure:
            pause = self._queue.failed(key)
            self._metrics.errors.labels(key.kind, "Refused").inc()
            logger.warning("%s: %s; retrying in %g s", key, outcome.failure, pause)
            return
        for told in outcome.refused:
            self._metrics.errors.labels(key.kind, "Refused").inc()
            logger.warning("%s: %s; everything else continues", key, told)
        self._queue.done(key, again_in_s=outcome.again_in_s)

    def _tell(self, key: Key, error: Exception) -> None:
        pause = self._queue.failed(key)
        code = error.code if isinstance(error, DeathlessError) else "Bug"
        self._metrics.errors.labels(key.kind, code).inc()
        if isinstance(error, DeathlessError):
            logger.warning("%s: %s; retrying in %g s", key, error, pause)
        elif isinstance(error, TimeoutError):
            logger.warning("%s: took more than %g s; retrying in %g s", key, LOOK_MAX_S, pause)
        else:
            logger.error("%s: a bug in the operator; retrying in %g s", key, pause, exc_info=error)

    def look_at_all(self) -> None:
        """Have every object looked at now: what all of them depend on has changed."""
        self._all.set()

    async def resync(self, api: Api, kinds: Collection[Kind], namespaces: tuple[str, ...], records: str = "") -> None:
        """Add every object there is, now, each `resync_s`, spread over a tenth of that, and at `look_at_all`; for ever.

        Args:
            api: the API server.
            kinds: of objects.
            namespaces: where; none: everywhere.
            records: where those are of services that are gone and have keys to erase; empty: nowhere.
        """
        spread = 0.0
        while True:
            try:
                for kind in kinds:
                    for namespace in namespaces or (None,):
                        for found in await api.list(kind, namespace):
                            meta = found["metadata"]
                            key = Key(kind.kind, str(meta["namespace"]), str(meta["name"]))
                            self._queue.add(key, delay_s=random.random() * spread)  # noqa: S311 - no secret
                purpose = f"{names.LABEL_PURPOSE}={names.PURPOSE_ERASE}"
                for found in await api.list(CONFIG_MAP, records, labels=purpose) if records else ():
                    for key in keys_of(found):
                        if namespaces and key.namespace not in namespaces:
                            continue  # we are to look after it no longer
                        self._queue.add(key, delay_s=random.random() * spread)  # noqa: S311 - no secret
            except (ApiUnreachable, ApiRefused) as error:
                logger.warning("objects cannot be listed: %s", error)
                await asyncio.sleep(RESYNC_RETRY_S)
                continue
            spread = self._resync_s / 10
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all.wait(), self._resync_s)
                self._all.clear()
                spread = 0.0
