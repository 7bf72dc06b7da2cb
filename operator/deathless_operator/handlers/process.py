"""The operator's process: wait for the lease, then watch and work, until told to end or the lease is lost.

    start    the port opens; the API server is asked for the lease (and waited for)
    lead     authority, queue, workers, kopf's watches, resync, each a task; the first that ends, ends the process
    SIGTERM  no more keys are given out; what is in work gets `DRAIN_S`; watches stop; the lease is given up: exit 0
    lost     all is dropped where it stands: exit code of `LeaseLost`. Its pod starts again and waits.

Guarantees: work is done only between winning and losing the lease. Being killed at any moment costs nothing but the
lease's time: whatever was begun is found by the next leader's first look. Does not: read arguments (the command does).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import signal
import socket
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from deathless.base.errors import DeathlessError, InvalidConfig
from deathless_operator.cluster.api import Api
from deathless_operator.cluster.carry_out import Performer
from deathless_operator.cluster.connection import Connection
from deathless_operator.cluster.errors import ApiRefused, ApiUnreachable
from deathless_operator.cluster.events import Recorder
from deathless_operator.cluster.kinds import (
    CERTIFICATE,
    DRILL,
    LIVE_UPGRADE,
    NODE,
    PIPELINE,
    REHEARSAL,
    REPLAY,
    SERVICE,
    Kind,
)
from deathless_operator.cluster.lease import Election, LeaseTimes
from deathless_operator.cluster.observe import Observer
from deathless_operator.cluster.observe_drill import DrillObserver
from deathless_operator.cluster.observe_log_run import LogRunKind, LogRunObserver
from deathless_operator.cluster.observe_pipeline import PipelineObserver
from deathless_operator.cluster.trust import Trust
from deathless_operator.handlers.health import Health
from deathless_operator.handlers.metrics import Metrics
from deathless_operator.handlers.reconcile import Reconciler, ServiceReconciler
from deathless_operator.handlers.reconcile_drill import DrillReconciler
from deathless_operator.handlers.reconcile_log_run import LogRunReconciler
from deathless_operator.handlers.reconcile_pipeline import PipelineReconciler
from deathless_operator.handlers.watches import NodeTable, make_registry, make_settings, watch
from deathless_operator.handlers.work_queue import WorkQueue
from deathless_operator.handlers.workers import WORKERS, Workers
from deathless_operator.model.settings import OperatorSettings
from deathless_operator.plan.log_runs.reading import read_rehearsal, read_replay
from deathless_operator.plan.log_runs.rehearsals import REHEARSAL as REHEARSAL_TOOL
from deathless_operator.plan.log_runs.replays import REPLAY as REPLAY_TOOL

DRAIN_S = 8.0
MAINTAIN_S = 15.0  # who takes an authority away waits no longer than this
RETRY_S = 3.0
LEASE_PATIENCE_S = 1.0
ALWAYS = (SERVICE, DRILL)  # nothing is done before these are served
LATER = (LIVE_UPGRADE, REPLAY, REHEARSAL, PIPELINE)
"""Kinds of later releases: an operator that is upgraded before its CRDs goes on with those that are served."""
TOLD_WITH_SERVICE = (LIVE_UPGRADE,)  # no key of the queue: one is told about with its service
LATER_S = 60.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What the command was told."""

    connection: Connection
    settings: OperatorSettings
    namespaces: tuple[str, ...] = ()  # whose objects are served; none: all
    lease_namespace: str = ""  # empty: where the operator is
    lease_name: str = "deathless-operator"
    lease_times: LeaseTimes = field(default_factory=LeaseTimes)
    elect: bool = True  # False: lead at once (one process, for development)
    host: str = ""  # where health and metrics listen; empty: every address
    ports: tuple[int, ...] = (8081, 8080)  # for health and metrics, all paths on each
    identity: str = ""  # a random end is added; empty: the host name


class Operator:
    """One process.

    Args:
        options: what it was told.
    """

    def __init__(self, options: RunOptions) -> None:
        self.options = options
        self.metrics = Metrics()
        self.stop = asyncio.Event()
        # A random end: a container that was started anew must not take itself for the one before.
        base = options.identity or socket.gethostname()
        self.identity = f"{base}_{secrets.token_hex(4)}"
        self.queue = WorkQueue()
        self.ports: list[int] = []  # of health and metrics, once open

    async def run(self) -> int:
        """Run to the end; gives the exit code."""
        health = Health(self.metrics, stuck_s=self.queue.longest_s, refresh=self._refresh)
        self.ports = await health.start(self.options.host, self.options.ports)
        self.take_signals()
        connection = self.options.connection
        try:
            async with Api(connection) as api, Api(connection, patience_s=LEASE_PATIENCE_S) as lease_api:
                election = self._election(lease_api)
                if not await self._wait_to_lead(election):
                    return 0
                try:
                    return await self._lead(api, election)
                finally:
                    await election.release()
        finally:
            await health.stop()

    def take_signals(self) -> None:
        """Have SIGTERM and SIGINT end the process politely; kopf takes them for itself, so this is called again."""
        for number in (signal.SIGTERM, signal.SIGINT):
            with contextlib.suppress(RuntimeError, ValueError):  # not the main thread: tests end it by `stop`
                asyncio.get_running_loop().add_signal_handler(number, self.stop.set)

    def _refresh(self) -> None:
        self.metrics.queue_depth.set(self.queue.depth)

    def _election(self, api: Api) -> Election:
        options = self.options
        return Election(
            api,
            namespace=options.lease_namespace or options.settings.namespace,
            name=options.lease_name,
            identity=self.identity,
            times=options.lease_times,
        )

    async def _wait_to_lead(self, election: Election) -> bool:
        """Wait for the lease; False when the process was told to end meanwhile."""
        if not self.options.elect:
            return True
        logger.info("waiting for the lease as %s", self.identity)
        await _first(election.acquire(), self.stop.wait())
        return election.leading

    async def _lead(self, api: Api, election: Election) -> int:
        """Do the work of a leader until something ends it."""
        logger.info("leading as %s", self.identity)
        self.metrics.leader.set(1)
        settings, nodes = self.options.settings, NodeTable()
        trust = Trust(
            api,
            namespace=settings.namespace,
            life_s=settings.authority_life_s,
            certificate_life_s=settings.certificate_life_s,
        )
        observer = Observer(api, trust, settings)
        reconcilers = self._reconcilers(api, trust, observer, nodes)
        workers = Workers(self.queue, reconcilers, self.metrics, resync_s=settings.resync_s)
        stop_watching = asyncio.Event()
        tasks: list[asyncio.Task[Any]] = []
        working: list[asyncio.Task[None]] = []
        try:
            if self.options.elect:
                tasks.append(asyncio.create_task(election.hold(), name="lease"))
            tasks.append(asyncio.create_task(self.stop.wait(), name="stop"))
            prepared = asyncio.create_task(self._prepare(api, trust), name="prepare")
            await asyncio.wait([*tasks, prepared], return_when=asyncio.FIRST_COMPLETED)
            if not prepared.done():
                prepared.cancel()
                return await self._end(tasks, working, stop_watching)
            besides = prepared.result()
            served = [*ALWAYS, *(kind for kind in LATER if kind in besides)]
            looked_at = [kind for kind in served if kind not in TOLD_WITH_SERVICE]
            if missing := [kind for kind in LATER if kind not in besides]:
                tasks.append(asyncio.create_task(self._wait_for(api, missing), name="later kinds"))
            working = [asyncio.create_task(workers.work(), name=f"worker-{index}") for index in range(WORKERS)]
            tasks += working
            tasks.append(asyncio.create_task(self._maintain(trust, workers), name="authority"))
            tasks.append(
                asyncio.create_task(
                    workers.resync(api, looked_at, self.options.namespaces, settings.namespace), name="resync"
                )
            )
            registry = make_registry(
                lambda key, delay_s: self.queue.add(key, delay_s=delay_s),
                observer.forget,
                nodes,
                self.options.connection,
                watch_nodes=NODE in besides,
                kinds=served,
                watch_certificates=CERTIFICATE in besides,
            )
            watching = watch(
                registry,
                make_settings(),
                namespaces=self.options.namespaces,
                stop=stop_watching,
                spawned=self.take_signals,
            )
            tasks.append(asyncio.create_task(watching, name="watches"))
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return await self._end(tasks, working, stop_watching)
        finally:
            self.metrics.leader.set(0)
            for task in tasks:
                task.cancel()

    def _reconcilers(self, api: Api, trust: Trust, observer: Observer, nodes: NodeTable) -> Mapping[str, Reconciler]:
        """Return who looks at which kind."""
        settings = self.options.settings
        recorder = Recorder(api, instance=self.identity, wall=time.time)
        performer = Performer(api, trust)
        service = ServiceReconciler(
            observer=observer,
            performer=performer,
            recorder=recorder,
            settings=settings,
            metrics=self.metrics,
            nodes=nodes,
        )
        drill = DrillReconciler(
            observer=DrillObserver(api, observer, settings),
            performer=performer,
            recorder=recorder,
            settings=settings,
            metrics=self.metrics,
        )
        replays = LogRunKind(kind=REPLAY, tool=REPLAY_TOOL, read=read_replay)
        rehearsals = LogRunKind(kind=REHEARSAL, tool=REHEARSAL_TOOL, read=read_rehearsal)
        runs = {
            each.kind.kind: LogRunReconciler(
                observer=LogRunObserver(api, observer, each),
                performer=performer,
                recorder=recorder,
                run_kind=each,
                settings=settings,
                metrics=self.metrics,
            )
            for each in (replays, rehearsals)
        }
        pipeline = PipelineReconciler(
            observer=PipelineObserver(api, observer),
            performer=performer,
            recorder=recorder,
            settings=settings,
            metrics=self.metrics,
        )
        return {SERVICE.kind: service, DRILL.kind: drill, PIPELINE.kind: pipeline, **runs}

    async def _wait_for(self, api: Api, missing: Sequence[Kind]) -> None:
        """Wait until a kind of a later release is served; then this process ends, and is started again with it."""
        while True:
            await asyncio.sleep(LATER_S)
            with contextlib.suppress(ApiRefused, ApiUnreachable):
                if found := [kind.plural for kind in missing if await api.serves(kind)]:
                    logger.info("the API server knows %s now: starting again", found)
                    self.stop.set()
                    return

    async def _prepare(self, api: Api, trust: Trust) -> frozenset[Kind]:
        """Wait until our kinds are served and there is an authority; tells what else is served and can be watched."""
        while True:
            try:
                missing = [kind.plural for kind in ALWAYS if not await api.serves(kind)]
                if not missing:
                    await self._keep_authority(trust)
                    besides = [kind for kind in (*LATER, CERTIFICATE) if await api.serves(kind)]
                    if later := [kind.plural for kind in LATER if kind not in besides]:
                        logger.warning("the API server does not know %s: upgrade the chart deathless-crds", later)
                    if await api.may("watch", NODE):
                        besides.append(NODE)
                    else:
                        logger.warning("no permission to watch nodes: a lost one is noticed only by the resync")
                    return frozenset(besides)
                logger.warning("the API server does not know %s: install the chart deathless-crds", missing)
            except (ApiRefused, ApiUnreachable, InvalidConfig) as error:
                logger.warning("cannot start yet: %s", error)
            await asyncio.sleep(RETRY_S)

    async def _keep_authority(self, trust: Trust) -> None:
        done = await trust.maintain(time.time())
        if done is not None:
            logger.info("certificates: %s", done)

    async def _maintain(self, trust: Trust, workers: Workers) -> None:
        """Look after the authority for ever; where who is trusted changes, every service is looked at."""
        while True:
            await asyncio.sleep(MAINTAIN_S)
            before = trust.facts()
            try:
                await self._keep_authority(trust)
                if trust.facts() != before:
                    workers.look_at_all()
            except (ApiRefused, ApiUnreachable, InvalidConfig) as error:
                logger.warning("the authority cannot be maintained: %s", error)
            except Exception:  # services are looked after all the same, and the authority at the next turn
                logger.exception("the authority cannot be maintained")

    async def _end(
        self, tasks: list[asyncio.Task[Any]], working: list[asyncio.Task[None]], stop_watching: asyncio.Event
    ) -> int:
        """Say why, and end what still runs: politely when told to end, at once when the lease is lost."""
        by_name = {task.get_name(): task for task in tasks}
        self.queue.close()
        if self.stop.is_set():
            logger.info("stopping: a stop was requested")
            if working:
                await asyncio.wait(working, timeout=DRAIN_S)
            code = 0
        else:
            code = _reason([task for task in tasks if task.done()])
        for task in working:
            task.cancel()
        stop_watching.set()
        if "watches" in by_name:
            await asyncio.wait([by_name["watches"]], timeout=DRAIN_S)
        return code


def _reason(ended: list[asyncio.Task[Any]]) -> int:
    """Log what ended that should not have, and give the exit code for it."""
    for task in ended:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, DeathlessError):
            logger.error("stopping: %s", error)
            return error.exit_code
        logger.error("stopping: task %s ended", task.get_name(), exc_info=error)
    return 1


async def _first(*awaited: Coroutine[Any, Any, Any]) -> None:
    """Wait for the first of several and cancel the others; raises what it raised."""
    tasks = [asyncio.ensure_future(each) for each in awaited]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
