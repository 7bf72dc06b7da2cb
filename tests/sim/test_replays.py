"""Inputs that were refused are run again while everything fails: each has its effect once, however often it is ordered.

Every fifth input of a stream is refused until all others of its key have had their effect, so it has to be run again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.codec.messages import decode
from deathless.codec.peer_messages import RUN_INPUT, Order
from deathless.codec.snapshot import RefusedRecord
from deathless.codec.streams.records import OnRefusal
from deathless.core import events as ev
from deathless.core.tables.stream_table import StreamTable
from deathless.simulation.checkers import Violation
from deathless.simulation.checkers.inputs import check_inputs
from deathless.simulation.nodes.worker_node import WorkerNode
from deathless.simulation.runs.injector import ADMIN_CONN, Injector
from deathless.simulation.runs.run import Options, allowed_stops, drawn, finish
from deathless.simulation.runs.streams import PAUSE_US, StreamCluster, plan_sources
from deathless.simulation.runs.verdict import recover
from deathless.simulation.workload.inputs import KEY_PREFIX, Held, draw_streams
from deathless.simulation.workload.lab import HOOKS, Cell, tag_of
from deathless.simulation.world.scheduler import draw


class Late:
    """Which inputs are refused, and until when: a function of the state, as a handler's refusal has to be."""

    def __init__(self, streams: list[Held]) -> None:
        inputs = [item for held in streams for item in held.items if item.key and not item.end and not item.refused]
        self.tags = {item.tag: item.key for item in inputs[::5]}
        self.others: dict[str, list[str]] = {}
        for held in streams:
            for key, tags in held.expected().items():
                self.others[key] = [tag for tag in tags if tag not in self.tags]

    def refuse(self, tag: str, cell: Cell) -> None:
        key = self.tags.get(tag)
        if key is not None and not {*self.others[key]} <= {*cell.tags}:
            raise ValueError("it is not its turn")

    def expected(self, applied: dict[str, list[str]]) -> dict[str, list[str]]:
        """Give what each key must hold: those that were run again come last, in whatever order."""
        found: dict[str, list[str]] = {}
        for key, others in self.others.items():
            again = [tag for tag, of in self.tags.items() if of == key]
            told = applied.get(key, [])
            found[key] = others + sorted(again, key=lambda tag: told.index(tag) if tag in told else len(told))
        return {key: tags for key, tags in found.items() if tags}


class ReplayCluster(StreamCluster):
    """Its operator has what is refused run again, and orders it twice."""

    late: Late
    looks = 0

    @property
    def served(self) -> bool:
        node = self.maybe_primary()
        worker = node.worker_node if node is not None else None
        if not super().served or worker is None or worker.engine is None:
            return False
        return not self.setup.safeguards.run_input_once or not self.kept(worker.running.shard.sessions.streams)

    def kept(self, refused: StreamTable) -> list[RefusedRecord]:
        """Give what can be run again, and will pass one day."""
        found = [each for each in refused.refused() if each.message]
        return [each for each in found if tag_of(decode(each.message).args) in self.late.tags]

    def order(self, worker: WorkerNode, refused: StreamTable) -> None:
        self.looks += 1
        for record in self.kept(refused) if self.looks % 4 == 0 and not self.served else ():
            for request in (1, 2):
                worker.post(ev.OrderReceived(ADMIN_CONN, request, Order(RUN_INPUT, record.lsn)))


@pytest.fixture(autouse=True)
def hooks_of_this_test() -> Iterator[None]:
    yield
    HOOKS.reset()


def run(seed: int, safeguards: Safeguards = ALL_SAFEGUARDS) -> tuple[list[Violation], int]:
    """Give what is wrong in the run of a seed, and how many inputs were run again."""
    setup, plan = drawn(seed, Options(safeguards=safeguards))
    streams = [replace(held, on_refusal=OnRefusal.DEAD_LETTER) for held in draw_streams(draw(seed, "streams"))]
    late = Late(streams)
    cluster = ReplayCluster(seed, setup, streams=streams)
    cluster.late = late
    HOOKS.on_turn = late.refuse  # behind the cluster, which forgets hooks
    try:
        Injector(cluster, plan)
        plan_sources(cluster, draw(seed, "source faults"))
        cluster.start()
        violations = finish(cluster, plan.heal_us + PAUSE_US[1], allowed_stops(plan))
        cells = {key: cell.tags for key, cell in recover(cluster).cells.items() if key.startswith(KEY_PREFIX)}
        return violations + check_inputs(late.expected(cells), cells), len(late.tags)
    finally:
        cluster.close()


@pytest.mark.parametrize("seed", range(4))
def test_what_is_run_again_has_its_effect_once_whatever_fails(seed: int) -> None:
    violations, ran = run(seed)
    assert violations == [], "\n".join(map(str, violations[:5]))
    assert ran, "something was run again"


def test_without_the_safeguard_inputs_have_their_effect_again() -> None:
    violations, _ = run(1, replace(ALL_SAFEGUARDS, run_input_once=False))
    assert any(each.checker == "inputs" and "had its effect" in each.text for each in violations), violations[:5]
