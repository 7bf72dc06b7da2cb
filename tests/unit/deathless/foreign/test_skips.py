"""What an operator has a program skip it never gets, and whoever waits for it is told."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.unit.deathless.foreign.world import Node, World

from deathless.base.errors import CorruptFrame, InvalidArgument
from deathless.base.foreign.binding import FOLDER
from deathless.foreign.rows import CALLERS, Given, What, decode_given, encode_items
from deathless.foreign.skips import PARTIAL, Skip, Skips, skip_of, without
from deathless.protocols.ambrosia.messages import SELF, Kind, make_call
from deathless.shell.disk.filesystem import RealFileSystem

ASKED = make_call(SELF, 5, Kind.ASYNC, b"1", name=CALLERS, sequence=7)
TOLD = make_call(SELF, 1, Kind.FORK, b"2")
ROW = Given(What.ITEMS, encode_items([ASKED, TOLD]), "bank", 3, b"12345678", b"87654321")


def skips_in(path: Path) -> Skips:
    (path / FOLDER).mkdir(exist_ok=True)
    return Skips(RealFileSystem(path))


def test_what_was_decided_is_there_and_stays(tmp_path: Path) -> None:
    skips = skips_in(tmp_path)
    (tmp_path / PARTIAL).write_text("of one that was killed")
    assert skips.read() == {}
    found = skip_of(42, ROW, 0, 7, 99)
    assert found == Skip(position=42, incarnation=7, items=(0,), waiting=(7,), at_us=99)
    skips.add(found)
    with pytest.raises(InvalidArgument, match="skipped already"):
        skips.add(skip_of(42, ROW, 1, 7, 100))
    assert skips_in(tmp_path).read() == {42: found}
    assert not (tmp_path / PARTIAL).exists()


def test_what_was_skipped_in_another_incarnation_is_not_skipped(tmp_path: Path) -> None:
    """There another row may stand at that position, of which something may be skipped as well."""
    skips = skips_in(tmp_path)
    skips.add(skip_of(42, ROW, 0, 7, 99))
    assert skips.read(7) == skips.read() != {}
    assert skips.read(8) == {}
    later = skip_of(42, ROW, 1, 8, 100)
    skips.add(later)
    assert skips.read(8) == {42: later}


def test_file_that_is_damaged_is_named(tmp_path: Path) -> None:
    skips = skips_in(tmp_path)
    skips.add(skip_of(42, ROW, None, 7, 99))
    (tmp_path / FOLDER / f"skip-{42:020}").write_text("{")
    with pytest.raises(CorruptFrame, match="skip-00000000000000000042"):
        skips.read()


def test_row_keeps_what_is_not_skipped_and_where_its_lane_is() -> None:
    later = without(ROW, skip_of(42, ROW, 0, 7, 0))
    assert [each.method for each in decode_given(later.items)] == [1]
    assert msgspec.structs.replace(later, items=ROW.items) == ROW
    assert decode_given(without(ROW, skip_of(42, ROW, None, 7, 0)).items) == ()


@pytest.mark.parametrize(
    ("row", "item"), [(Given(What.INITIAL, b"begin"), None), (ROW, 2), (Given(What.ITEMS, encode_items([])), None)]
)
def test_what_can_not_be_skipped_is_refused(row: Given, item: int | None) -> None:
    with pytest.raises(InvalidArgument, match="position 42"):
        skip_of(42, row, item, 0)


def test_caller_of_what_is_skipped_gets_an_error_once_a_program_leads() -> None:
    """Also where several lead after each other, until a checkpoint stands behind the row."""
    world = World(1, replicas=1)
    while not world.log.state.begun:
        world.step()
    state = world.log.state
    state.calls, state.waiting[1] = 1, "p1"
    item = make_call(SELF, 5, Kind.ASYNC, b"3", name=CALLERS, sequence=1)
    row = Given(What.ITEMS, encode_items([item]))
    position = len(world.log.rows) + 1
    skip = skip_of(position, row, None, 0)
    world.log.rows.append(without(row, skip))  # as the feed gives it
    node = world.nodes[0] = Node(world.log, world.chance, skips={position: skip})
    node.lead()
    for _ in range(3000):
        node.step()
    assert node.error is None
    assert list(world.log.answers) == ["p1"]
    assert "an operator had the program skip the call" in str(world.log.answers["p1"])
    assert not world.log.sent
