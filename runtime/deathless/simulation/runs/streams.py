"""Runs of a cluster into which sources send streams, beside clients that ask: the sources fail as well.

    two sources want the same streams; they are killed, started anew and frozen, and the cluster's own faults come too
    -> all is healed -> every stream is committed to its end -> the verdict of a cluster, and of its streams

Guarantees: `run_streams` depends on its arguments alone. Does not: print. May import the simulation's parts.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from deathless.codec.peer_messages import SKIP_INPUT, Order
from deathless.core import events as ev
from deathless.core.tables.stream_table import StreamTable
from deathless.simulation.checkers.history import Violation
from deathless.simulation.checkers.inputs import check_inputs
from deathless.simulation.nodes.cluster import SPAN_US, Cluster, Setup
from deathless.simulation.nodes.source_node import Origin, SourceNode
from deathless.simulation.nodes.worker_node import WorkerNode
from deathless.simulation.runs.injector import ADMIN_CONN, Injector
from deathless.simulation.runs.run import (
    BEGIN_US,
    Options,
    Result,
    allowed_stops,
    drawn,
    finish,
    on_a_small_volume,
    result_of,
)
from deathless.simulation.runs.verdict import recover
from deathless.simulation.workload.inputs import KEY_PREFIX, Held, draw_streams
from deathless.simulation.world.scheduler import draw

OPTIONS: Final = Options()
SOURCES: Final = 2
SEE_TO_US: Final = 50_000  # an operator looks for streams that stand so often
PAUSE_US: Final = (1_000, 600_000)  # a source is dead or frozen so long


class StreamCluster(Cluster):
    """A cluster with sources, and an operator who has refused inputs passed over; `streams`: else those of the seed."""

    def __init__(self, seed: int, setup: Setup, *, keep_trace: bool = False, streams: list[Held] | None = None) -> None:
        super().__init__(seed, setup, keep_trace=keep_trace)
        self.streams: list[Held] = draw_streams(draw(seed, "streams")) if streams is None else streams
        self.sources: dict[str, SourceNode] = {}
        origins = [Origin(held) for held in self.streams]
        for number in range(SOURCES):
            name = f"{setup.prefix}s{number}"
            addresses = [f"{replica}:1" for replica in self.replicas]
            self.sources[name] = SourceNode(name, self.shared.beside, addresses, origins)
        self.outsiders += self.sources

    def start(self) -> None:
        """Start everything."""
        super().start()
        chance = self.scheduler.fork("sources")
        for source in self.sources.values():
            self.scheduler.call_at(chance.randrange(400_000), source.start)
        self.scheduler.call_later(SEE_TO_US, self._see_to)

    def order(self, worker: WorkerNode, refused: StreamTable) -> None:
        """Do what the operator does: streams that stand at an input go on behind it."""
        for record in refused.refused():
            if refused.stands_at(record.session, record.seq):
                worker.post(ev.OrderReceived(ADMIN_CONN, 1, Order(SKIP_INPUT, record.session, record.seq)))

    @property
    def served(self) -> bool:
        """Every client has its answers, and every stream is committed to its end."""
        finished = set[int]().union(*(source.finished for source in self.sources.values()))
        return super().served and len(finished) == len(self.streams)

    def _see_to(self) -> None:
        node = self.maybe_primary()
        worker = node.worker_node if node is not None else None
        if worker is not None and worker.engine is not None:
            self.order(worker, worker.running.shard.sessions.streams)
        self.scheduler.call_later(SEE_TO_US, self._see_to)


def plan_sources(cluster: StreamCluster, chance: random.Random) -> None:
    """Have sources killed and frozen; all of them work in the end."""
    for source in cluster.sources.values():
        for _ in range(chance.randrange(4)):
            at_us, length_us = chance.randrange(BEGIN_US, SPAN_US), chance.randrange(*PAUSE_US)
            begin, end = (
                (source.kill, source.start) if chance.random() < 0.5 else (source.process.freeze, source.process.thaw)
            )
            cluster.scheduler.call_at(at_us, begin)
            cluster.scheduler.call_at(at_us + length_us, end)


def run_streams(seed: int, options: Options = OPTIONS) -> Result:
    """Simulate the cluster of a seed, with sources, and judge it."""
    begun = time.process_time()
    setup, plan = drawn(seed, options)
    setup = on_a_small_volume(draw(seed, "volume"), setup)
    cluster = StreamCluster(seed, setup, keep_trace=options.keep_trace)
    try:
        Injector(cluster, plan)
        plan_sources(cluster, draw(seed, "source faults"))
        cluster.start()
        violations = finish(cluster, plan.heal_us + PAUSE_US[1], allowed_stops(plan))
        violations += judge_streams(cluster)
        result = result_of(seed, cluster, setup, plan, violations, begun)
        inputs = sum(len(held.items) for held in cluster.streams)
        return replace(result, operations=result.operations + inputs, streams=len(cluster.streams))
    finally:
        cluster.close()


def judge_streams(cluster: StreamCluster, parked: frozenset[str] = frozenset()) -> list[Violation]:
    """Ask the checker of streams, and whether they came to their end; inputs with tags of `parked` were set aside."""
    violations: list[Violation] = []
    if not cluster.served:
        finished = {name: sorted(source.finished) for name, source in cluster.sources.items()}
        text = f"of {len(cluster.streams)} streams the sources have seen committed: {finished}"
        violations.append(Violation(checker="liveness", text=text))
    found = recover(cluster)
    expected: dict[str, list[str]] = {}
    for held in cluster.streams:
        expected |= {key: [tag for tag in tags if tag not in parked] for key, tags in held.expected().items()}
    applied = {key: cell.tags for key, cell in found.cells.items() if key.startswith(KEY_PREFIX)}
    violations += check_inputs(expected, applied)
    if not violations:
        violations += _tables(cluster, {held.key.stream: held for held in cluster.streams})
    return violations


def _tables(cluster: StreamCluster, streams: Mapping[int, Held]) -> list[Violation]:
    """What the log says of the streams themselves."""
    found = recover(cluster).shard.sessions.streams
    texts: list[str] = []
    for stream in found.streams():
        held = streams[stream.key.stream]
        refused = sum(item.refused for item in held.items)
        last = max((item.number for item in held.items), default=-1)
        if stream.next_seq - 2 != last:
            texts.append(f"{stream.key}: last id {stream.next_seq - 2}, {last} was sent")
        if stream.refused < refused:
            texts.append(f"{stream.key}: {stream.refused} inputs were refused, {refused} are such")
        if stream.note != held.last_note():
            texts.append(f"{stream.key}: note {stream.note!r}, {held.last_note()!r} was sent")
    return [Violation(checker="inputs", text=text) for text in texts]
