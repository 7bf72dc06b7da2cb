"""Workloads are functions of the seed, and every change has a tag of its own."""

from deathless.simulation.checkers import MODELS
from deathless.simulation.workload.workload import Request, draw_profile, draw_repeats, draw_requests
from deathless.simulation.world.scheduler import draw


def requests(seed: int) -> list[Request]:
    chance = draw(seed, "workload")
    profile = draw_profile(chance, requests=30, span_us=2_000_000)
    return [r for client in ("c0", "c1") for r in draw_requests(chance, profile, client)]


def test_the_same_seed_gives_the_same_requests() -> None:
    assert requests(1) == requests(1)
    assert requests(1) != requests(2)


def test_tags_are_unique_and_only_reads_have_none() -> None:
    for seed in range(50):
        drawn = requests(seed)
        tags = [request.tag for request in drawn if request.tag]
        assert len(tags) == len(set(tags))
        assert all(request.is_read == (not request.tag) for request in drawn)


def test_models_know_every_action() -> None:
    for seed in range(50):
        for request in requests(seed):
            assert request.action in MODELS[request.model].actions


def test_only_keyed_requests_are_asked_for_twice() -> None:
    chance = draw(5, "repeats")
    for seed in range(50):
        profile = draw_profile(chance, requests=30, span_us=1)
        drawn = draw_requests(draw(seed, "w"), profile, "c0")
        repeats = draw_repeats(chance, profile, drawn)
        assert all(repeat.idempotency_key for repeat in repeats)
