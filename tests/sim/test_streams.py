"""Sources send streams into clusters under faults, and fail themselves: each id's effect exactly once, in order.

`DEATHLESS_SIM_SEEDS` and `DEATHLESS_SIM_FROM` choose how many and which.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from itertools import pairwise

import pytest
from tests.sim.stage import keep_apart, leads_after, primary_of

from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.codec.messages import decode
from deathless.codec.streams.records import OnRefusal
from deathless.simulation.__main__ import main
from deathless.simulation.checkers import Violation
from deathless.simulation.nodes.cluster import Setup, draw_setup
from deathless.simulation.runs.run import Options, finish
from deathless.simulation.runs.streams import StreamCluster, judge_streams, run_streams
from deathless.simulation.workload.inputs import ITEMS_MAX, draw_streams
from deathless.simulation.workload.lab import HOOKS, Cell, tag_of
from deathless.simulation.world.network import NetworkProfile
from deathless.simulation.world.scheduler import draw

FIRST = int(os.environ.get("DEATHLESS_SIM_FROM", "0"))
COUNT = int(os.environ.get("DEATHLESS_SIM_SEEDS", "40")) // 4


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_streams_under_faults_lose_and_double_nothing(seed: int) -> None:
    result = run_streams(seed)
    assert result.good, "\n".join(map(str, result.violations[:5]))


def test_a_commit_of_a_term_that_is_over_says_nothing_to_who_starts_anew() -> None:
    """The simulated source took it for its own, and forgot what nobody had."""
    result = run_streams(326)
    assert result.good, "\n".join(map(str, result.violations[:5]))


@pytest.mark.parametrize("seed", [62, 101])
def test_what_a_refused_input_said_of_its_source_holds_when_it_is_passed_over(seed: int) -> None:
    result = run_streams(seed)
    assert result.good, "\n".join(map(str, result.violations[:5]))


@pytest.mark.parametrize(
    ("safeguard", "seed", "text"),
    [
        ("admit_by_id", 2, "had its effect"),
        ("remember_end", 1, "end 6 had its effect 2 times"),
    ],
)
def test_a_safeguard_of_streams_that_is_off_shows(safeguard: str, seed: int, text: str) -> None:
    result = run_streams(seed, Options(safeguards=replace(ALL_SAFEGUARDS, **{safeguard: False})))
    assert any(each.checker == "inputs" and text in each.text for each in result.violations), result.violations[:5]
    sound = run_streams(seed)
    assert sound.good, "\n".join(map(str, sound.violations[:5]))


def resumed_at_a_primary_that_was_deposed(safeguards: Safeguards) -> list[Violation]:
    """A source goes on at a primary that does not know of its successor, and whose proofs get no answer."""
    quiet = NetworkProfile(spike_share=0.0, split_share=0.0)
    cluster = StreamCluster(4, Setup(replicas=3, fence="etcd", network=quiet, safeguards=safeguards))
    del cluster.sources["s1"]
    source = cluster.sources["s0"]
    cluster.start()
    assert cluster.run_until(lambda: source.sends and cluster.maybe_primary() is not None, 4_000_000)
    deposed, epoch = primary_of(cluster), cluster.last_epoch
    deposed.set_lock_reachable(False)
    source.process.freeze()
    heal = keep_apart(cluster, deposed)
    assert cluster.run_until(leads_after(cluster, epoch), 6_000_000)
    source.process.thaw()
    cluster.run_for(60_000)  # it sends more, which is durable there, and in no log that counts
    source.reconnect(f"{deposed.name}:1")
    cluster.run_for(100_000)
    deposed.set_lock_reachable(True)
    heal()
    found = finish(cluster, cluster.scheduler.now_us)
    found += judge_streams(cluster)
    cluster.close()
    return found


def test_who_is_welcomed_before_all_is_confirmed_loses_what_a_deposed_primary_took_in() -> None:
    assert resumed_at_a_primary_that_was_deposed(ALL_SAFEGUARDS) == []
    found = resumed_at_a_primary_that_was_deposed(replace(ALL_SAFEGUARDS, welcome_confirmed=False))
    assert any(each.checker == "inputs" and "is lost" in each.text for each in found), found


@pytest.mark.parametrize("seed", [1, 3])
def test_inputs_that_end_their_process_are_parked_where_they_stand_and_nothing_behind_them_is_lost(seed: int) -> None:
    cluster = StreamCluster(seed, Setup(replicas=3))
    inputs = [item for held in cluster.streams for item in held.items if item.key and not item.end and not item.refused]
    behind_a_gap = [b.tag for a, b in pairwise(inputs) if b.number > a.number + 1]
    killers = frozenset([*behind_a_gap[3:4], inputs[-1].tag])

    def hook(tag: str, _cell: Cell) -> None:
        current = cluster.scheduler.current
        if tag in killers and current is not None:
            current.kill()

    HOOKS.on_turn = hook
    cluster.start()
    assert cluster.run_until(lambda: cluster.served, 40_000_000)
    HOOKS.reset()
    assert finish(cluster, cluster.scheduler.now_us) == []
    assert judge_streams(cluster, killers) == []
    primary = primary_of(cluster).worker_node
    assert primary is not None
    assert {tag_of(decode(each.message).args) for each in primary.running.shard.parked} == killers
    cluster.close()


def test_sources_take_streams_from_each_other_and_let_go() -> None:
    cluster = StreamCluster(1, draw_setup(1, replicas=3))
    try:
        cluster.start()
        assert cluster.run_until(lambda: cluster.served, 12_000_000)
        assert sum(source.fenced for source in cluster.sources.values())
    finally:
        cluster.close()


def test_the_same_seed_gives_the_same_run() -> None:
    assert run_streams(3).trace_hash == run_streams(3).trace_hash


def test_the_command_runs_streams_in_every_seed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--streams", "--seeds", "2", "--jobs", "1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["good"], told["runs_of_streams"], told["runs_of_services"]) == (True, 2, 0)


def test_streams_hold_gaps_marks_ends_notes_and_inputs_that_are_refused() -> None:
    held = [stream for seed in range(60) for stream in draw_streams(draw(seed, "streams"))]
    items = [item for stream in held for item in stream.items]
    assert {stream.on_refusal for stream in held} == set(OnRefusal)
    assert {len(stream.items) < ITEMS_MAX for stream in held} == {True}
    assert {item.end for item in items} == {bool(item.key) for item in items} == {True, False}
    assert {item.refused for item in items} == {bool(item.note) for item in items} == {True, False}
    numbers = [item.number for item in held[0].items if not item.end]
    assert numbers == sorted(set(numbers))
