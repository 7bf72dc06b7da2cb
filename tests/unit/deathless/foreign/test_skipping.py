"""A row is skipped where the program ends by it, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from deathless.base.errors import ApplicationEnded, InvalidArgument
from deathless.foreign import skipping
from deathless.foreign.checkpoints import Checkpoints, Head
from deathless.foreign.replay import ReplayOrder
from deathless.foreign.rows import CALLERS, Given, What, encode_items
from deathless.foreign.skipping import Killer, SkipOrder, examine
from deathless.foreign.skips import Skips
from deathless.protocols.ambrosia.messages import SELF, Kind, make_call
from deathless.shell.disk.filesystem import RealFileSystem
from deathless.shell.foreign.application import ApplicationSettings
from deathless.shell.link.application_status import ApplicationStatus, write_status
from deathless.topics.source import TopicSource

pytestmark = pytest.mark.asyncio

ASKED = make_call(SELF, 5, Kind.ASYNC, b"1", name=CALLERS, sequence=7)
TOLD = make_call(SELF, 1, Kind.FORK, b"2")
HEAD = Head(service_id="ab" * 16, incarnation=1, position=3, records=1, length=1, lanes=b"", initial=b"")


class FeedOfOne:
    """Row 4 is there."""

    source = TopicSource("ab" * 16, 7)

    def read(self, first: int) -> list[tuple[int, Given]]:
        return [(4, Given(What.ITEMS, encode_items([ASKED, TOLD])))] if first == 4 else []


def ends_by(killer: int) -> Callable[..., object]:
    """A replay of a program that ends by the row at this position."""

    async def run(order: ReplayOrder, _: object) -> None:
        assert order.end is not None and order.start == HEAD.position
        if order.end >= killer:
            raise ApplicationEnded("its process ended (exit code 3)")

    return run


@pytest.fixture(name="directory")
def directory_of_a_service(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """With a checkpoint at position 3, and a program that ends by row 4."""
    writing = Checkpoints(RealFileSystem(tmp_path), "r0").begin(HEAD)
    writing.write(b"x")
    writing.end()
    monkeypatch.setattr(skipping, "feed_of", lambda *_: FeedOfOne())
    monkeypatch.setattr(skipping, "replay", ends_by(4))
    return str(tmp_path)


async def examined(directory: str, position: int = 4, item: int | None = None) -> Killer:
    settings = ApplicationSettings(command=("./counter",), instance="counter")
    order = SkipOrder(directory=directory, settings=settings, position=position, item=item)
    return await examine(order, lambda _: None)


async def test_row_that_the_program_ends_by_may_be_skipped(directory: str) -> None:
    killer = await examined(directory, item=0)
    assert [each.method for each in killer.items] == [5, 1]
    assert (killer.skip.position, killer.skip.items, killer.skip.waiting) == (4, (0,), (7,))
    assert Skips(RealFileSystem(Path(directory))).read() == {}, "nothing is written"


@pytest.mark.parametrize(("position", "why"), [(3, "a checkpoint of it stands at 3"), (9, "there is no row")])
async def test_what_was_run_or_is_not_there_is_refused(directory: str, position: int, why: str) -> None:
    with pytest.raises(InvalidArgument, match=why):
        await examined(directory, position)


@pytest.mark.parametrize(("killer", "why"), [(3, "does not get as far as"), (5, "position 4, and goes on")])
async def test_row_that_is_not_what_the_program_ends_by_is_refused(
    directory: str, monkeypatch: pytest.MonkeyPatch, killer: int, why: str
) -> None:
    """It was run: without it a program would send something else than what was logged."""
    monkeypatch.setattr(skipping, "replay", ends_by(killer))
    with pytest.raises(InvalidArgument, match=why):
        await examined(directory)


@pytest.mark.parametrize(
    ("state", "later", "allowed"), [("following", 5, False), ("following", 6, True), ("loading", 5, True)]
)
async def test_row_that_a_living_process_is_past_is_refused(
    directory: str, monkeypatch: pytest.MonkeyPatch, state: str, later: int, allowed: bool
) -> None:
    """One that ends by the message is another process at the second look."""
    write_status(directory, ApplicationStatus(replica="r1", state=state, pid=5, position=8))

    async def pause(_: float) -> None:
        write_status(directory, ApplicationStatus(replica="r1", state=state, pid=later, position=8))

    monkeypatch.setattr("deathless.foreign.skipping.asyncio.sleep", pause)
    if allowed:
        await examined(directory)
        return
    with pytest.raises(InvalidArgument, match=r"program of r1 \(process 5\) got the row"):
        await examined(directory)
