"""Another program goes on where the former one was, or the former one does."""

from __future__ import annotations

import asyncio
import os
import struct
import sys
from pathlib import Path

import pytest
from tests.unit.deathless.foreign.recorded import checkpoint, publish

from deathless.base.config import BindingConfig
from deathless.base.errors import ApplicationEnded, ProgramClaimed, ProgramNotRepeated
from deathless.base.limits import Limits
from deathless.foreign.checkpoints import Checkpoints, Found, Writing, decode_lanes
from deathless.foreign.claim import claim
from deathless.foreign.rows import Given, What, encode_items
from deathless.foreign.settings import settings_of
from deathless.foreign.upgrade import UpgradeOrder, UpgradeReport, upgrade
from deathless.protocols.ambrosia.messages import SELF, Kind, make_call
from deathless.shell.disk.filesystem import RealFileSystem

ROOT = Path(__file__).resolve().parents[4]
COUNTER = ROOT / "examples" / "foreign" / "counter.py"
CALLS = 12
FORMER = struct.pack("<3q", CALLS, CALLS, 0)
NEXT = b"next " + FORMER
LOAD = """        self.calls, self.bytes, self.told = STATE.unpack(state)
"""
# The next version writes its state in another format, and reads the former one.
NEXT_CODE = {
    "return STATE.pack(": 'return b"next " + STATE.pack(',
    LOAD: LOAD.replace("unpack(state)", 'unpack(state.removeprefix(b"next "))'),
}


@pytest.fixture(name="directory")
def stopped_service(tmp_path: Path) -> Path:
    """A shard's directory: the counter's first checkpoint, and rows of calls behind it; its last fork is not logged."""
    calls = [Given(What.ITEMS, encode_items([make_call(SELF, 1, Kind.FORK, b"x")])) for _ in range(CALLS)]
    publish(tmp_path, [Given(What.INITIAL, b""), *calls])
    checkpoint(tmp_path, 0, struct.pack("<3q", 0, 0, 0))
    return tmp_path


def program(directory: Path, name: str, changes: dict[str, str]) -> tuple[str, str]:
    """The counter, changed."""
    text = COUNTER.read_text()
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    (directory / name).write_text(text)
    return sys.executable, str(directory / name)


def run(directory: Path, former: dict[str, str], later: dict[str, str], *, dry: bool = False) -> UpgradeReport:
    """Upgrade from one changed counter to another."""
    path = os.environ.get("PYTHONPATH", "") or os.pathsep.join(filter(None, sys.path))
    binding = BindingConfig(command=("none",), instance="c", environment={"PYTHONPATH": path})
    order = UpgradeOrder(
        directory=str(directory),
        former=settings_of(binding, Limits(), "r0", command=program(directory, "former.py", former)),
        next=settings_of(binding, Limits(), "r0", command=program(directory, "next.py", later)),
        dry=dry,
    )
    return asyncio.run(upgrade(order, lambda _: None))


def newest(directory: Path) -> tuple[Found, bytes]:
    """The checkpoint that the service goes on from."""
    folder = Checkpoints(RealFileSystem(directory), "test")
    found = folder.look(folder.positions()[0])
    return found, b"".join(folder.blob(found))


def partial(directory: Path) -> list[Path]:
    return list((directory / "application").glob("partial-*"))


def test_the_next_program_goes_on_where_the_former_one_was(directory: Path) -> None:
    """With what the former one sent and the log has not."""
    report = run(directory, {}, NEXT_CODE)
    assert (report.position, report.rows, report.upgraded) == (CALLS + 1, CALLS + 1, True)
    found, blob = newest(directory)
    assert (found.head.position, blob) == (CALLS + 1, NEXT)
    (lane,) = decode_lanes(found.head.lanes)
    assert (lane.target, lane.floor, lane.emitted, len(lane.kept)) == (SELF, 0, 1, 1)
    assert partial(directory) == []
    again = run(directory, NEXT_CODE, NEXT_CODE)
    assert (again.rows, newest(directory)) == (0, (found, NEXT))


def test_two_upgrades_follow_each_other(directory: Path) -> None:
    """The second begins where the first ended, with nothing between them; back again is one as well."""
    last = {**NEXT_CODE, "return STATE.pack(": 'return b"last " + STATE.pack('}
    for former, later, state in (({}, NEXT_CODE, NEXT), (NEXT_CODE, last, b"last " + FORMER)):
        assert run(directory, former, later).upgraded
        assert newest(directory)[1] == state
    assert partial(directory) == []


def test_a_next_program_that_fails_changes_nothing(directory: Path) -> None:
    """The former one's checkpoint is the newest: it goes on from there."""
    with pytest.raises(ApplicationEnded):
        run(directory, {}, {LOAD: "        raise ValueError\n"})
    assert (newest(directory)[1], partial(directory)) == (FORMER, [])
    assert run(directory, {}, NEXT_CODE, dry=True).upgraded is False
    assert (newest(directory)[1], partial(directory)) == (FORMER, [])


def test_a_former_program_that_sends_something_else_is_refused(directory: Path) -> None:
    """It is not the one that ran, so its state is not known."""
    total = make_call(SELF, 2, Kind.FORK, (11).to_bytes(8, "little"))
    (directory / "topics" / "inputs").rename(directory / "gone")
    publish(
        directory,
        [
            Given(What.INITIAL, b""),
            Given(What.ITEMS, encode_items([make_call(SELF, 1, Kind.FORK, b"x")] * 10)),
            Given(What.ITEMS, encode_items([total]), SELF, 1, b"another."),
        ],
    )
    with pytest.raises(ProgramNotRepeated, match="position 1 than what was logged by row 3"):
        run(directory, {}, NEXT_CODE)
    assert (newest(directory)[0].head.position, partial(directory)) == (0, [])


def test_nothing_is_upgraded_while_a_replica_has_its_program(directory: Path) -> None:
    """Old or new, and never both."""
    with claim(str(directory), alone=False), pytest.raises(ProgramClaimed):
        run(directory, {}, NEXT_CODE)


class Killed(BaseException):
    """The process ends here."""


def killed(_writing: object) -> None:
    raise Killed


def test_whoever_is_killed_leaves_the_former_or_the_next_program(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each step that others can see; the next attempt makes it."""
    seen: list[bytes] = []
    for step in ("end", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(Writing, step, killed)
            with pytest.raises(Killed):
                run(directory, {}, NEXT_CODE)
        seen.append(newest(directory)[1])
    assert seen == [struct.pack("<3q", 0, 0, 0), FORMER]
    run(directory, {}, NEXT_CODE)
    assert (newest(directory)[1], partial(directory)) == (NEXT, [])
