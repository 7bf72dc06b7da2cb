"""What the run of a seed is."""

from deathless.simulation.runs.run import Options
from deathless.simulation.runs.seeds import EVERY_SEED, run, run_one, services_of


def test_every_tenth_seed_is_a_run_of_services_unless_it_is_said_how_many() -> None:
    drawn = [services_of(seed, None) for seed in range(50)]
    assert [at for at, count in enumerate(drawn) if count > 1] == [9, 19, 29, 39, 49]
    assert [drawn[at] for at in (9, 19, 29, 39, 49)] == [2, 3, 4, 5, 2]
    assert services_of(9, 1) == 1
    assert services_of(8, 4) == 4


def test_every_seed_can_be_a_run_of_services_as_many_as_the_seed_says() -> None:
    assert [services_of(seed, EVERY_SEED) for seed in range(6)] == [2, 3, 4, 5, 2, 3]


def test_a_pool_gets_the_same_result_without_its_trace() -> None:
    work = (8, 1, Options(keep_trace=True))
    whole, sent = run(work), run_one(work)
    assert whole.trace
    assert not sent.trace
    assert (whole.operations, whole.epochs) == (sent.operations, sent.epochs)
