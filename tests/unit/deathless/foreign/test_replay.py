"""Programs in processes of their own are run again over what a service recorded, and nothing is written."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from lab.ports import free_ports
from tests.unit.deathless.foreign.recorded import checkpoint, publish

from deathless.base.config import BindingConfig
from deathless.base.errors import (
    ApplicationEnded,
    ApplicationNotStarted,
    ApplicationStateMissing,
    InvalidArgument,
    ProgramVersionDiffers,
)
from deathless.base.limits import Limits
from deathless.foreign.replay import ReplayOrder, ReplayReport, debug, replay
from deathless.foreign.rows import Given, What, encode_items
from deathless.foreign.settings import settings_of
from deathless.protocols.ambrosia.items import EMPTY, bytes_of, chain_of
from deathless.protocols.ambrosia.lanes import LaneState
from deathless.protocols.ambrosia.messages import SELF, Kind, make_call

ROOT = Path(__file__).resolve().parents[4]
COUNTER = ROOT / "examples" / "foreign" / "counter.py"
ADD, TOTAL = 1, 2
CALLS = 30  # of one byte each; at each tenth the counter tells itself the total


@pytest.fixture(name="directory")
def recorded_directory(tmp_path: Path) -> Path:
    """A shard's directory with what the example's counter got, and its checkpoints at 0 and 11."""
    rows = [Given(What.INITIAL, b"")]
    chain = EMPTY
    for call in range(1, CALLS + 1):
        rows.append(Given(What.ITEMS, encode_items([make_call(SELF, ADD, Kind.FORK, b"x")])))
        if call % 10 == 0:
            total = make_call(SELF, TOTAL, Kind.FORK, call.to_bytes(8, "little"))
            chain = chain_of(chain, bytes_of(total))
            rows.append(Given(What.ITEMS, encode_items([total]), SELF, call // 10, chain))
    publish(tmp_path, rows)
    checkpoint(tmp_path, 0, struct.pack("<3q", 0, 0, 0))
    return tmp_path


def order(directory: Path, *command: str, **more: object) -> ReplayOrder:
    """One for a program, or the counter."""
    path = os.environ.get("PYTHONPATH", "") or os.pathsep.join(filter(None, sys.path))
    binding = BindingConfig(
        command=command or (sys.executable, str(COUNTER)), instance="c", environment={"PYTHONPATH": path}
    )
    return ReplayOrder(directory=str(directory), settings=settings_of(binding, Limits(), "r0"), **more)  # type: ignore[arg-type]


def run(wanted: ReplayOrder) -> ReplayReport:
    """Run it; nothing in the directory changes."""
    names = sorted(Path(wanted.directory).rglob("*"))
    told: list[str] = []
    report = asyncio.run(replay(wanted, told.append))
    assert sorted(Path(wanted.directory).rglob("*")) == names
    return report


@pytest.mark.parametrize("upgraded", [False, True])
def test_a_program_that_repeats_itself_is_equal(directory: Path, upgraded: bool) -> None:
    """Also one that is told to go over to its next version first."""
    report = run(order(directory, upgraded=upgraded))
    assert report.differs is None
    assert (report.checkpoint, report.end, report.rows, report.messages) == (0, 34, 34, 33)
    assert (report.outputs, report.beyond) == (3, 0)


def test_a_part_of_the_rows_is_run(directory: Path) -> None:
    """What the log has behind it is not compared."""
    report = run(order(directory, end=22))
    assert (report.differs, report.rows, report.outputs, report.beyond) == (None, 22, 2, 1)


def other_program(directory: Path, old: str, new: str) -> str:
    """The counter, changed."""
    text = COUNTER.read_text()
    assert old in text
    (directory / "other.py").write_text(text.replace(old, new))
    return str(directory / "other.py")


def test_another_program_is_compared_with_what_the_first_one_sent(directory: Path) -> None:
    """The message is named, with what was logged of it and what would have been sent."""
    program = other_program(directory, "self.bytes += len(call.arguments)", "self.bytes += 1 + self.calls // 15")
    found = run(order(directory, sys.executable, program)).differs
    assert found is not None
    assert (found.target, found.first, found.last, found.row, found.fewer) == ("", 2, 2, 23, False)
    assert found.expected == ("a fork of method 2 with 8 bytes: 1400000000000000",)
    assert found.got == ("a fork of method 2 with 8 bytes: 1a00000000000000",)


def test_a_message_that_is_not_sent_is_found(directory: Path) -> None:
    """At the end: until then it may still come."""
    program = other_program(directory, "self.calls % 10 == 0", "self.calls % 10 == 0 and self.calls < 30")
    found = run(order(directory, sys.executable, program)).differs
    assert found is not None
    assert (found.first, found.fewer, found.got) == (3, True, ())


def test_one_that_begins_from_a_checkpoint_gets_the_rows_behind_it(directory: Path) -> None:
    """The newest one, unless another is named; the counter's lanes are in it."""
    total = make_call(SELF, TOTAL, Kind.FORK, (10).to_bytes(8, "little"))
    lane = LaneState(target=SELF, floor=1, chain=chain_of(EMPTY, bytes_of(total)), emitted=1, kept=(), expected=())
    checkpoint(directory, 12, struct.pack("<3q", 10, 10, 10), lanes=(lane,))
    assert (run(order(directory)).checkpoint, run(order(directory, oldest=True)).checkpoint) == (12, 0)
    report = run(order(directory, start=12))
    assert (report.differs, report.rows, report.outputs) == (None, 22, 2)
    with pytest.raises(InvalidArgument, match="name one of these: 0, 12"):
        run(order(directory, start=3))
    with pytest.raises(InvalidArgument, match="stands at position 12, behind 4"):
        run(order(directory, end=4))
    with pytest.raises(InvalidArgument, match="last row is at position 34, before 35"):
        run(order(directory, end=35))


def test_a_program_that_ends_or_is_none_is_told(directory: Path) -> None:
    """With its error, and nothing of it is left."""
    with pytest.raises(ApplicationNotStarted):
        run(order(directory, str(directory / "none")))
    gone = order(directory)
    with pytest.raises(ApplicationNotStarted):
        run(dataclasses.replace(gone, settings=dataclasses.replace(gone.settings, folder=str(directory / "none"))))
    with pytest.raises(ApplicationEnded):
        run(order(directory, sys.executable, other_program(directory, "self.calls += 1", "self.calls //= 0")))


def test_without_a_whole_checkpoint_nothing_is_run(directory: Path) -> None:
    """There is nothing to begin from."""
    (file,) = (directory / "application").iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ApplicationStateMissing, match="can't be read"):
        run(order(directory))
    file.unlink()
    with pytest.raises(ApplicationStateMissing, match="no checkpoint"):
        run(order(directory))


def test_checkpoints_are_counted_from_the_oldest_on(directory: Path) -> None:
    """From 1; a version has the rows up to the first checkpoint of another one."""
    total = make_call(SELF, TOTAL, Kind.FORK, (10).to_bytes(8, "little"))
    lane = LaneState(target=SELF, floor=1, chain=chain_of(EMPTY, bytes_of(total)), emitted=1, kept=(), expected=())
    checkpoint(directory, 12, struct.pack("<3q", 10, 10, 10), lanes=(lane,), version=0)
    checkpoint(directory, 20, b"of another version", version=1)
    first = run(order(directory, number=1, version=0))
    assert (first.checkpoint, first.end, first.differs) == (0, 20, None)
    assert run(order(directory, number=2, version=0)).checkpoint == 12
    assert run(order(directory, number=2)).end == 34
    with pytest.raises(ApplicationStateMissing, match="name one from 1 to 3"):
        run(order(directory, number=4))
    with pytest.raises(ProgramVersionDiffers, match="Expected 1 was: 0"):
        run(order(directory, number=2, version=1))


class Watched:
    """Starts a program at the ports once they are bound, and ends it behind its last checkpoint."""

    def __init__(self, command: tuple[str, ...], ports: list[int]) -> None:
        self.reports: list[ReplayReport] = []
        self._command = command
        self._ports = dict(zip(("DEATHLESS_RECEIVE_PORT", "DEATHLESS_SEND_PORT"), map(str, ports), strict=True))

    def ready(self) -> None:
        """See foreign.replay.Watching."""
        path = os.pathsep.join(filter(None, sys.path))
        environment = {**os.environ, "PYTHONPATH": path, "DEATHLESS_INSTANCE": "c", **self._ports}
        self._program = subprocess.Popen(self._command, env=environment)

    def ran(self, report: ReplayReport) -> None:
        """See foreign.replay.Watching."""
        assert self._program.poll() is None
        self.reports.append(report)
        self.end()

    def end(self) -> None:
        """End the program."""
        self._program.kill()
        self._program.wait()


def test_program_from_outside_gets_all_rows_also_behind_what_differs(directory: Path) -> None:
    """The first difference is told, and it ends when it likes."""
    ports = free_ports(2)
    wanted = order(directory, number=1)
    settings = dataclasses.replace(wanted.settings, command=(), receive_port=ports[0], send_port=ports[1])
    other = other_program(directory, "self.bytes += len", "self.bytes += 2 * len")
    watched = Watched((sys.executable, other), ports)
    asyncio.run(debug(dataclasses.replace(wanted, settings=settings), watched))
    (report,) = watched.reports
    assert report.differs is not None
    assert (report.differs.first, report.rows, report.messages) == (1, 34, CALLS + 3)
