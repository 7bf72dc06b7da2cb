"""Out-drivers under faults: every effect once, in order, an old epoch refused, and each safeguard of a session needed.

`DEATHLESS_SIM_SEEDS` and `DEATHLESS_SIM_FROM` choose how many (25 for each) and which. Each mutant is a safeguard of
`drivers/session.py`, or of a sink that keeps positions, switched off; its recorded seed fails with it, and no seed does
without.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pytest
from tests.sim.driver_world import Sink, run_driver_seed
from tests.sim.recorded_seeds import check_recorded

from deathless.base.errors import CorruptFrame, DeliveryRefused
from deathless.drivers.port import Delivery
from deathless.drivers.session import Session
from deathless.drivers.source_link import Passed

FIRST = int(os.environ.get("DEATHLESS_SIM_FROM", "0"))
COUNT = int(os.environ.get("DEATHLESS_SIM_SEEDS", "40")) * 25
SEEDS_TRIED_MAX: Final = 60
Mutant = Callable[[pytest.MonkeyPatch], None]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """A driver that stands says so in its log, and here each one does."""
    logging.getLogger("deathless.drivers").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("deathless.drivers").setLevel(logging.NOTSET)


def test_every_effect_is_there_once_in_order_and_every_request_has_its_answer() -> None:
    deposed = effects = 0
    for seed in range(FIRST, FIRST + COUNT):
        world = run_driver_seed(seed)
        assert not world.wrong, f"seed {seed}: " + "; ".join(world.wrong[:5])
        deposed += world.deposed
        effects += len(world.expected)
    assert deposed > COUNT // 10, "drivers of old epochs that thaw are refused"
    assert effects > COUNT


def test_the_same_seed_gives_the_same_story() -> None:
    first, second = run_driver_seed(7), run_driver_seed(7)
    assert first.outside.effects == second.outside.effects
    assert (first.messages, first.answers) == (second.messages, second.answers)


# ---- mutants ---------------------------------------------------------------------------------------------------------


def gaps_taken(patch: pytest.MonkeyPatch) -> None:
    """A higher position is taken, and what is missing before it is lost."""
    original = Session.taken

    def taken(self: Any, listener: Any, first: int, messages: Sequence[bytes]) -> None:
        try:
            original(self, listener, first, messages)
        except CorruptFrame:
            self._queue.extend(enumerate(messages, first))
            self._expected = first + len(messages)
            self._work.set()

    patch.setattr(Session, "taken", taken)


def repetitions_taken(patch: pytest.MonkeyPatch) -> None:
    """A lower position is no repetition, but one more message."""
    original = Session.taken

    def taken(self: Any, listener: Any, first: int, messages: Sequence[bytes]) -> None:
        original(self, listener, min(self._expected, max(first, self._expected)), messages)

    patch.setattr(Session, "taken", taken)


def late_packets_taken(patch: pytest.MonkeyPatch) -> None:
    """What comes over a connection that ended counts."""
    original = Session.taken

    def taken(self: Any, _: Any, first: int, messages: Sequence[bytes]) -> None:
        kept = self._listener, self._welcomed
        self._listener, self._welcomed = self, True
        try:
            original(self, self, first, messages)
        finally:
            self._listener, self._welcomed = kept

    patch.setattr(Session, "taken", taken)


def committed_when_received(patch: pytest.MonkeyPatch) -> None:
    """What has arrived is committed before it is outside."""
    original = Session._tell

    async def tell(self: Any) -> None:
        await original(self)
        if self._welcomed and self._listener is not None and self._expected - 1 > self._acked:
            self._acked = self._expected - 1
            self._listener.commit(self._acked)

    patch.setattr(Session, "_tell", tell)


def committed_without_answers(patch: pytest.MonkeyPatch) -> None:
    """What is outside is committed, and forgotten there, while the service may lack its answer."""
    patch.setattr(Session, "_unconfirmed", lambda self: self._next)


def welcomed_behind_answers(patch: pytest.MonkeyPatch) -> None:
    """A new connection goes on behind what is outside, while the service may lack answers before."""

    def welcome(self: Any) -> None:
        self._expected = self._next + len(self._queue)
        self._acked = self._next - 1
        self._welcomed = True
        self._listener.welcome(self._next)

    patch.setattr(Session, "_welcome", welcome)


def kept_answers_dropped(patch: pytest.MonkeyPatch) -> None:
    """Answers that the sink kept over the driver's death are not sent."""
    original = Session._opened

    async def opened(self: Any) -> None:
        give, self._give = self._give, lambda _: None
        try:
            await original(self)
        finally:
            self._give = give

    patch.setattr(Session, "_opened", opened)


def what_stood_before_a_refusal_dropped(patch: pytest.MonkeyPatch) -> None:
    """The world refuses one message of a batch, and those before it are not delivered."""
    original = Session._deliver

    async def deliver(self: Any, deliveries: list[Delivery]) -> None:
        try:
            answers = await self._sink.deliver(deliveries) if deliveries else ()
        except DeliveryRefused as error:
            await original(self, [each for each in deliveries if each.position >= error.position])
            return
        self._give(list(answers))
        if deliveries:
            self._done(deliveries[-1].position)

    patch.setattr(Session, "_deliver", deliver)


def passed_over_in_memory(patch: pytest.MonkeyPatch) -> None:
    """That a position is done without effect is known to the driver alone."""

    async def pass_over(self: Any, item: Passed) -> None:
        if item.answer is not None:
            self._give([item.answer])
        self._done(item.position)

    patch.setattr(Session, "_pass_over", pass_over)


def empty_positions_left(patch: pytest.MonkeyPatch) -> None:
    """A CANCEL at the end of a batch is never done."""
    original = Session._pass_over

    async def pass_over(self: Any, item: Passed) -> None:
        if item.answer is not None:
            await original(self, item)
            return
        while self._queue and self._queue[0][0] <= item.position:
            self._queue.popleft()

    patch.setattr(Session, "_pass_over", pass_over)


def queue_forgotten_at_a_welcome(patch: pytest.MonkeyPatch) -> None:
    """A new connection sends again what waits here, and both count."""

    def welcome(self: Any) -> None:
        self._expected = self._next
        position = max(min(self._next, self._unconfirmed()), min(self._first, self._next))
        self._acked, self._welcomed = position - 1, True
        self._listener.welcome(position)

    patch.setattr(Session, "_welcome", welcome)


def sinks_without_a_fence(patch: pytest.MonkeyPatch) -> None:
    """A sink takes what an old epoch's driver brings."""
    patch.setattr(Sink, "_fence", lambda _: None)


def positions_apart_from_effects(patch: pytest.MonkeyPatch) -> None:
    """A sink writes how far it is in a transaction behind that of the effects."""
    original = Sink.deliver

    async def deliver(self: Any, deliveries: Sequence[Delivery]) -> Any:
        before = self._outside.position
        step = self._step

        async def between() -> None:
            if self._outside.position == before:
                await step()
                return
            after, self._outside.position = self._outside.position, before
            await step()
            self._outside.position = after

        self._step = between
        try:
            return await original(self, deliveries)
        finally:
            self._step = step

    patch.setattr(Sink, "deliver", deliver)


def answers_forgotten_outside(patch: pytest.MonkeyPatch) -> None:
    """A sink keeps no answers."""
    original = Sink.deliver

    async def deliver(self: Any, deliveries: Sequence[Delivery]) -> Any:
        try:
            return await original(self, deliveries)
        finally:
            self._outside.answers.clear()

    patch.setattr(Sink, "deliver", deliver)


MUTANTS: Final[dict[Mutant, int]] = {
    gaps_taken: 2,
    repetitions_taken: 0,
    late_packets_taken: 34,
    committed_when_received: 0,
    committed_without_answers: 0,
    welcomed_behind_answers: 0,
    kept_answers_dropped: 0,
    what_stood_before_a_refusal_dropped: 1,
    passed_over_in_memory: 0,
    empty_positions_left: 6,
    queue_forgotten_at_a_welcome: 63,
    sinks_without_a_fence: 53,
    positions_apart_from_effects: 0,
    answers_forgotten_outside: 0,
}
"""Each with a seed that shows it."""


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_the_recorded_seed_shows_what_a_safeguard_is_for(mutant: Mutant) -> None:
    """It does; where it no longer does the program has changed, and the seed to record is named."""
    seed = MUTANTS[mutant]
    assert not run_driver_seed(seed).wrong
    with pytest.MonkeyPatch.context() as patch:
        mutant(patch)
        check_recorded(seed, is_wrong, mutant.__name__, tried_max=SEEDS_TRIED_MAX)


def is_wrong(seed: int) -> bool:
    return bool(run_driver_seed(seed).wrong)
