"""The least size of the log's volume: what is said of a smaller one, and that docs and CRD name the number (DL3050)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from deathless.base.limits import Limits
from deathless.base.manifest import ServiceSpec, least_volume, volume_problem
from deathless.base.manifest_parts import LEAST_VOLUME, LimitsSpec, LogStorage
from deathless.base.topics.settings import Topic
from deathless.base.volume import find_shortage, show_bytes

ROOT = Path(__file__).parents[4]
MIB = 1 << 20


@pytest.mark.parametrize(
    ("size", "shown"),
    [(1, "1Ki"), (480 << 10, "480Ki"), (MIB, "1Mi"), (MIB + 1, "2Mi"), (96 * MIB, "96Mi"), (10 << 30, "10240Mi")],
)
def test_sizes_are_shown_as_quantities_rounded_up(size: int, shown: str) -> None:
    assert show_bytes(size) == shown


@pytest.mark.parametrize("replicas", [1, 3, 7])
@pytest.mark.parametrize("shards", [1, 4])
@pytest.mark.parametrize("state", [0, 5 * MIB])
def test_a_volume_is_too_small_below_the_least_and_not_at_it(replicas: int, shards: int, state: int) -> None:
    limits = Limits()
    least = limits.least_volume_bytes(replicas, shards=shards, state_bytes=state)
    assert find_shortage(least, limits, replicas=replicas, shards=shards, state_bytes=state) is None
    told = find_shortage(least - 1, limits, replicas=replicas, shards=shards, state_bytes=state)
    assert told is not None
    assert show_bytes(least) in told


@pytest.mark.parametrize("size", [0, -1])
def test_a_volume_that_does_not_say_its_size_is_taken(size: int) -> None:
    assert find_shortage(size, Limits(), replicas=3) is None


def test_limits_that_a_volume_changes_make_no_difference() -> None:
    limits = Limits()
    for size in (1 << 20, 64 << 20, 1 << 40):
        fitted = limits.fitted(size)
        assert fitted.least_volume_bytes(3) == limits.least_volume_bytes(3)
    assert limits.least_volume_bytes(3) > replace(limits, spare_bytes=8 * MIB).least_volume_bytes(3)


def test_a_spec_is_judged_by_its_replicas_shards_and_limits() -> None:
    spec = ServiceSpec(module="m:a", replicas=3, shards=2)
    assert least_volume(spec) == "192Mi"
    assert volume_problem(spec, 192 * MIB) is None
    assert volume_problem(spec, 191 * MIB) == (
        "the log's volume has 195584Ki, and the least for 2 shards of 3 replicas with these limits is 192Mi"
    )
    with_topic = msgspec.structs.replace(spec, topics=(Topic(name="sales", keep_bytes="1Gi"),))
    assert least_volume(with_topic) == "2240Mi"
    assert volume_problem(with_topic, 2240 * MIB) is None
    assert "with these limits, and 2048Mi of topics, is 2240Mi" in str(volume_problem(with_topic, 2239 * MIB))
    small = LimitsSpec(spare_bytes=2 * MIB, frame_bytes_max=MIB, allocate_bytes=MIB)
    assert least_volume(msgspec.structs.replace(spec, shards=1, limits=small)) == "18Mi"


@pytest.mark.parametrize(
    "page",
    [
        "docs/kubernetes/storage.md",
        "docs/kubernetes/reference.md",
        "crds/deathless.dev_deathlessservices.yaml",
        "charts/deathless-crds/templates/deathless.dev_deathlessservices.yaml",
    ],
)
def test_pages_and_crd_name_the_least_for_three_replicas(page: str) -> None:
    assert least_volume(ServiceSpec(module="m:a", log_storage=LogStorage())) == LEAST_VOLUME
    assert LEAST_VOLUME in (ROOT / page).read_text()


def test_the_errors_page_names_the_least_of_the_limits_that_it_advises() -> None:
    limits = replace(Limits(), spare_bytes=2 * MIB, frame_bytes_max=MIB, allocate_bytes=MIB)
    assert f"is {limits.least_volume_bytes(3) // MIB} MiB" in (ROOT / "docs/errors/DL3050.md").read_text()
