"""Services that call and fork each other, each a whole cluster under its own faults: exactly once, in order, for all.

`DEATHLESS_SIM_SEEDS` and `DEATHLESS_SIM_FROM` choose how many and which; `python -m deathless.simulation --services
--seeds 2000` runs the same seeds and many more.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from deathless.codec.peer_messages import Target
from deathless.simulation.__main__ import main
from deathless.simulation.runs.run import Options
from deathless.simulation.runs.seeds import EVERY_SEED, services_of, shards_of
from deathless.simulation.runs.services import make_services, run_services
from deathless.simulation.workload.visits import ACTIVITIES, RESTS_US, Shape, draw_client, draw_visits
from deathless.simulation.world import spool
from deathless.simulation.world.scheduler import draw

RUNTIME = Path(__file__).parents[2] / "runtime"
FIRST = int(os.environ.get("DEATHLESS_SIM_FROM", "0"))
COUNT = int(os.environ.get("DEATHLESS_SIM_SEEDS", "40")) // 4
SEEDS = (3, 21)
PROGRAM = """
import sys
from deathless.simulation.runs.services import run_services
print(*(run_services(int(seed), 3).trace_hash for seed in sys.argv[1:]))
"""


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_services_under_faults_lose_and_double_nothing(seed: int) -> None:
    services = services_of(seed, EVERY_SEED)
    result = run_services(seed, services)
    assert result.good, "\n".join(
        map(str, [*result.violations[:5], f"see: python -m deathless.simulation --services --trace {seed}"])
    )


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_shards_of_services_under_faults_lose_and_double_nothing(seed: int) -> None:
    result = run_services(seed, 2, Options(shards=2))
    assert result.good, "\n".join(map(str, result.violations[:5]))


def sent_by(seed: int) -> dict[str, set[Target]]:
    """To whom each shard of two services sent in a run without faults."""
    services = make_services(seed, 2, Options(shards=2, kinds=()))
    for cluster in services.clusters.values():
        cluster.start()
    assert services.run_until(lambda: services.served, 12_000_000)
    for cluster in services.clusters.values():
        cluster.close()
    return {name: {target for target, _ in cluster.shared.left} for name, cluster in services.clusters.items()}


def test_every_shard_sends_to_the_others_of_its_service_and_to_those_of_others() -> None:
    all_sent = [sent_by(seed) for seed in range(12)]
    targets = {f"{service}-{shard}": Target(service, shard) for service in ("ant", "bee") for shard in (0, 1)}
    for name, target in targets.items():
        assert set().union(*(sent[name] for sent in all_sent)) == {*targets.values()} - {target}, name


def test_some_seeds_of_the_command_run_services_of_several_shards() -> None:
    drawn = {shards_of(seed, services_of(seed, EVERY_SEED)) for seed in range(12)}
    assert drawn == {1, 2}
    assert {shards_of(seed, services_of(seed, None)) for seed in range(0, 2000, 10)} == {1}
    assert {shards_of(seed, services_of(seed, None)) for seed in range(9, 2000, 10)} == {1, 2}
    assert {shards_of(seed, 5) for seed in range(12)} == {1}


def test_a_primary_that_froze_before_it_collected_finds_its_files_collected_by_its_successor() -> None:
    """Its proof had been answered; it took the files for lost, and stopped with DL4003."""
    result = run_services(20413, 3)
    assert result.good, "\n".join(map(str, result.violations[:5]))


@pytest.mark.parametrize("shape", Shape)
def test_services_visit_each_other_in_every_shape_without_faults(shape: Shape) -> None:
    seed = next(seed for seed in range(100) if draw_visits(draw(seed, "visits"), 3, span_us=1).shape is shape)
    result = run_services(seed, 3, Options(kinds=()))
    assert result.good, "\n".join(map(str, result.violations[:5]))
    assert result.operations


@pytest.mark.parametrize("seed", SEEDS)
def test_where_messages_stand_changes_nothing_that_anybody_sees(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for a spool that takes nothing, which stops calls."""
    monkeypatch.setattr(spool, "REFUSED_SHARE", 0.0)
    pieces: list[int] = []
    append = spool.SimSpool.append

    def counted(self: spool.SimSpool, data: bytes) -> spool.SimPiece | None:
        pieces.append(len(data))
        return append(self, data)

    monkeypatch.setattr(spool.SimSpool, "append", counted)
    in_memory = run_services(seed, 3, Options(limits={"outbox_memory_bytes_max": 1 << 30}))
    assert not pieces
    outside = run_services(seed, 3, Options(limits={"outbox_memory_bytes_max": 1}))
    assert pieces
    assert (outside.trace_hash, outside.good) == (in_memory.trace_hash, True)


def test_clients_ask_for_calls_forks_timers_and_activities() -> None:
    hops = [
        hop
        for seed in range(80)
        for profile in [draw_visits(draw(seed, "visits"), 4, span_us=1)]
        for visit in draw_client(draw(seed, "client"), profile, profile.names[0], "c0")
        for hop in [visit.root, *visit.root.then]
    ]
    assert {hop.how for hop in hops} == {"call", "fork", "plain", "toss", "fail"}
    assert {hop.rests for hop in hops} >= {0, *RESTS_US}
    assert {hop.acts for hop in hops} == {"", *ACTIVITIES}
    assert max(hop.times for hop in hops) > 8
    assert max(hop.pad for hop in hops) > 1000


def test_services_share_one_network_and_each_has_its_own_disk() -> None:
    services = make_services(5, 3)
    clusters = list(services.clusters.values())
    assert len({id(cluster.network) for cluster in clusters}) == 1
    assert len({id(cluster.disk) for cluster in clusters}) == 3
    assert len({name for cluster in clusters for name in cluster.setup.names()}) == sum(
        len(cluster.replicas) for cluster in clusters
    )
    for cluster in clusters:
        cluster.close()


def hashes_under(hash_seed: str) -> list[str]:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(RUNTIME)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, SEEDS)], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def test_two_processes_with_different_hash_seeds_see_the_same_traces_of_services() -> None:
    first = hashes_under("1")
    assert first == hashes_under("271828")
    assert len(set(first)) == len(SEEDS)


def test_the_command_runs_services_alone_as_many_as_each_seed_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--services", "--seeds", "2", "--jobs", "1"]) == 0
    assert "0 clusters and 2 runs of 5 services that call each other (seeds 0 to 1)" in capsys.readouterr().out


def test_the_command_runs_several_services(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--services", "2", "--seeds", "1", "--jobs", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["good"] is True
    assert main(["--services", "2", "--trace", "1", "--kinds"]) == 0
    assert capsys.readouterr().out.endswith("good\n")
