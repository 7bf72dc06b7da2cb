"""`deathless ambrosia skip` refuses what was run, and lists what is skipped."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from deathless.base.config import BindingConfig, ReplicaConfig
from deathless.base.errors import ApplicationEnded
from deathless.cli.main import main
from deathless.foreign import replay
from deathless.foreign.checkpoints import Checkpoints, Head
from deathless.foreign.replay import ReplayOrder
from deathless.foreign.rows import CALLERS, Given, What, encode_items
from deathless.foreign.skips import Skips
from deathless.protocols.ambrosia.messages import SELF, Kind, make_call
from deathless.shell.disk.filesystem import RealFileSystem
from deathless.shell.link.application_status import ApplicationStatus, write_status

ROW = Given(
    What.ITEMS,
    encode_items([make_call(SELF, 5, Kind.ASYNC, b"1", name=CALLERS, sequence=7), make_call(SELF, 1, Kind.FORK, b"2")]),
)
HEAD = Head(service_id="ab" * 16, incarnation=1, position=3, records=1, length=1, lanes=b"", initial=b"")


class FeedOfOne:
    """Row 4 is there."""

    def read(self, first: int) -> list[tuple[int, Given]]:
        return [(4, ROW)] if first == 4 else []


def ends_by(killer: int) -> Callable[..., object]:
    """A replay of a program that ends by the row at this position."""

    async def run(order: ReplayOrder, _: object) -> None:
        assert order.end is not None
        if order.end >= killer:
            raise ApplicationEnded("its process ended (exit code 3)")

    return run


@pytest.fixture(name="directory")
def directory_of_a_service(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """With a checkpoint at position 3."""
    directory = tmp_path / ".deathless" / "counter"
    (directory / "replicas" / "r0").mkdir(parents=True)
    binding = BindingConfig(command=("./counter",), instance="counter")
    config = ReplicaConfig(service="counter", module="", directory=str(directory), replica="r0", binding=binding)
    (directory / "replicas" / "r0" / "config.json").write_bytes(msgspec.json.encode(config))
    writing = Checkpoints(RealFileSystem(directory), "r0").begin(HEAD)
    writing.write(b"x")
    writing.end()
    monkeypatch.setattr(replay, "feed_of", lambda *_: FeedOfOne())
    monkeypatch.setattr(replay, "replay", ends_by(4))
    return str(directory)


@pytest.fixture(name="run")
def command(directory: str, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Run it; gives the exit code and what it printed."""

    def run(*words: str) -> tuple[int, str]:
        code = main(["ambrosia", "skip", "--dir", directory, *words])
        told = capsys.readouterr()
        return code, told.out + told.err

    return run


def test_message_is_shown_skipped_and_listed(run: Callable[..., tuple[int, str]], directory: str) -> None:
    assert run() == (0, "nothing is skipped\n")
    code, told = run("4", "--item", "0", "--yes")
    assert code == 0
    assert "0: an awaited call of method 5 with 1 bytes: 31   will be skipped\n1: a fork" in told
    assert "callers that get an error: 1" in told
    (found,) = Skips(RealFileSystem(Path(directory))).read().values()
    assert (found.position, found.items, found.waiting) == (4, (0,), (7,))
    assert json.loads(run("--json")[1])["skips"][0]["position"] == 4
    assert run()[1].splitlines()[1].split()[:3] == ["4", "0", "1"]
    assert "skipped already" in run("4", "--yes")[1]


@pytest.mark.parametrize(("position", "why"), [("3", "a checkpoint of it stands at 3"), ("9", "there is no row")])
def test_what_was_run_or_is_not_there_is_refused(run: Callable[..., tuple[int, str]], position: str, why: str) -> None:
    code, told = run(position, "--yes")
    assert (code, why in told) == (64, True)


@pytest.mark.parametrize(
    ("killer", "why"), [(3, "does not get as far as"), (5, "runs the row at position 4, and goes on")]
)
def test_row_that_is_not_what_the_program_ends_by_is_not_skipped(
    run: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch, directory: str, killer: int, why: str
) -> None:
    """It was run: without it a program would send something else than what was logged."""
    monkeypatch.setattr(replay, "replay", ends_by(killer))
    code, told = run("4", "--yes")
    assert (code, why in told) == (64, True)
    assert Skips(RealFileSystem(Path(directory))).read() == {}


@pytest.mark.parametrize("ends", [False, True])
def test_row_that_a_living_process_is_past_is_not_skipped(
    run: Callable[..., tuple[int, str]], directory: str, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    """One that ends by the message is another process at the second look."""
    write_status(directory, ApplicationStatus(replica="r1", state="following", pid=5, position=8, at_us=1))

    def later(_: float) -> None:
        write_status(directory, ApplicationStatus(replica="r1", state="following", pid=6 if ends else 5, position=8))

    monkeypatch.setattr("deathless.cli.change.skip.time.sleep", later)
    code, told = run("4", "--yes")
    assert (code, "the program of r1 (process 5) got the row" in told) == ((0, False) if ends else (64, True))
