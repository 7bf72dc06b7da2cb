"""Files as a source: every line once and in order, from any place on; what was changed or is gone is told by name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from deathless.base.errors import InvalidArgument, InvalidConfig, SourceGap, SourceUnavailable
from deathless.sources import files
from deathless.sources.files import FilesReader, reader
from deathless.sources.port import NOTE_BYTES_MAX, Partition, Point, Reader, Record, Settings

FRESH = Point(-1, b"")
STREAM = Partition(0, "lines")


@pytest.fixture(autouse=True)
def _always_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LOOK_S", 0.0)


def write(folder: Path, name: str, text: str) -> None:
    """As a writer does: elsewhere, then renamed into place."""
    made = folder / f".{name}"
    made.write_text(text)
    made.rename(folder / name)


def made(folder: Path) -> Reader:
    return reader(Settings("lines", {"folder": "."}, str(folder)))


async def rest(of: Reader, records_max: int = 100) -> list[Record]:
    """Read until nothing more is there."""
    found: list[Record] = []
    while True:
        batch = await of.read(STREAM, records_max, 1 << 20)
        found += batch.records
        if not batch.records:
            assert batch.last_id >= (found[-1].id if found else -1)
            return found


async def opened(folder: Path, *points: Point) -> Reader:
    found = made(folder)
    await found.open(STREAM, points or (FRESH,))
    return found


def told(records: list[Record]) -> list[tuple[int, bytes | None]]:
    return [(each.id, each.value) for each in records]


@pytest.mark.asyncio
async def test_lines_of_all_files_are_one_stream_in_the_order_of_names(tmp_path: Path) -> None:
    write(tmp_path, "2.jsonl", "c\n\nd")
    write(tmp_path, "1.jsonl", "a\r\nb\n")
    write(tmp_path, "0.csv", "no\n")
    (tmp_path / ".0.jsonl").write_text("no\n")
    of = await opened(tmp_path)
    assert await of.partitions() == [STREAM]
    assert told(await rest(of)) == [(0, b"a"), (1, b"b"), (2, b"c"), (4, b"d")]
    write(tmp_path, "3.jsonl", "e\n")
    found = await rest(of)
    assert told(found) == [(5, b"e")]
    assert len(found[0].note) <= NOTE_BYTES_MAX
    await of.leave(STREAM)
    await of.close()


@pytest.mark.asyncio
async def test_a_reader_goes_on_behind_any_row(tmp_path: Path) -> None:
    for name in ("1", "2", "3"):
        write(tmp_path, f"{name}.jsonl", f"{name}a\n\n{name}b\n")
    write(tmp_path, "4.jsonl", "")
    write(tmp_path, "5.jsonl", "5a\n")
    every = await rest(await opened(tmp_path))
    for at, record in enumerate(every):
        again = await opened(tmp_path, Point(record.id, record.note))
        assert await rest(again, records_max=1) == every[at + 1 :]
        behind = every[at + 1 : at + 2]
        for following in behind:  # it was refused: its note is logged, its id is not
            refused = await opened(tmp_path, Point(record.id, following.note))
            assert await rest(refused) == every[at + 1 :]


@pytest.mark.asyncio
async def test_a_note_of_a_refused_row_in_a_later_file_moves_no_row(tmp_path: Path) -> None:
    """The first row of file 4 was refused, so its note is logged; before it there are lines that are no rows."""
    for name, text in (("1", "1a\n1b\n\n"), ("2", "\n\n"), ("3", ""), ("4", "4a\n4b\n")):
        write(tmp_path, f"{name}.jsonl", text)
    every = await rest(await opened(tmp_path))
    assert told(every) == [(0, b"1a"), (1, b"1b"), (5, b"4a"), (6, b"4b")]
    for last_id in (-1, 0, 1, 2, 3, 4):
        again = await opened(tmp_path, Point(last_id, every[2].note))
        assert await rest(again, records_max=1) == [each for each in every if each.id > last_id]
    write(tmp_path, "2.jsonl", " \n")  # as long as it was, with fewer lines
    with pytest.raises(SourceGap, match=r"row 0 is in none of the files before 4\.jsonl"):
        await opened(tmp_path, Point(-1, every[2].note))


@pytest.mark.asyncio
async def test_rows_of_other_shards_before_a_refused_one_are_read(tmp_path: Path) -> None:
    """Shard 0 has row 0 and refused row 3, the first of a file; shard 1 has rows up to 1, or of both files."""
    write(tmp_path, "1.jsonl", "0\n1\n2\n")
    write(tmp_path, "2.jsonl", "3\n4\n5\n")
    every = await rest(await opened(tmp_path))
    for other in (1, 2, 4):
        points = [Point(0, every[3].note), Point(other, every[other].note)]
        assert told(await rest(await opened(tmp_path, *points))) == told(every[1:])


@pytest.mark.asyncio
async def test_shards_that_are_farther_are_compared_when_reading_comes_to_them(tmp_path: Path) -> None:
    for name in ("1", "2", "3"):
        write(tmp_path, f"{name}.jsonl", f"{name}a\n{name}b\n")
    every = await rest(await opened(tmp_path))
    points = [Point(-1, b""), Point(1, every[1].note), Point(5, every[5].note)]
    assert await rest(await opened(tmp_path, *points)) == every
    write(tmp_path, "3.jsonl", "3a\n3B\n")
    of = await opened(tmp_path, *points)
    with pytest.raises(SourceGap, match=r"file 3\.jsonl is not what was read: it was renamed, or has another content"):
        await rest(of)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda d: write(d, "2.jsonl", "2a\n2B\n"), r"file 2.jsonl is not what was read: .*another content"),
        (lambda d: write(d, "2.jsonl", "2a\n"), r"file 2.jsonl is not what was read: it had 6 bytes, and has 3"),
        (lambda d: write(d, "2.jsonl", "2a\n2b\n2c\n"), r"it had 6 bytes, and has 9"),
        (lambda d: (d / "2.jsonl").unlink(), r"2 files were read, and 1 are there"),
        (lambda d: (d / "1.jsonl").unlink(), r"2 files were read, and 1 are there"),
        (lambda d: (d / "2.jsonl").rename(d / "22.jsonl"), r"file 22.jsonl is not what was read"),
        (lambda d: (d / "1.jsonl").rename(d / "11.jsonl"), r"the 1 files before 2.jsonl are not those"),
        (lambda d: write(d, "1.jsonl", "1a\n"), r"the 1 files before 2.jsonl are not those"),
        (lambda d: write(d, "0.jsonl", "0\n"), r"the 1 files before 1.jsonl are not those"),
    ],
)
@pytest.mark.asyncio
async def test_a_folder_that_is_not_what_was_read_is_not_read_on(tmp_path: Path, change: object, why: str) -> None:
    write(tmp_path, "1.jsonl", "1a\n1b\n")
    write(tmp_path, "2.jsonl", "2a\n2b\n")
    last = (await rest(await opened(tmp_path)))[-2]
    assert callable(change)
    change(tmp_path)
    with pytest.raises(SourceGap, match=why):
        await opened(tmp_path, Point(last.id, last.note))
    with pytest.raises(SourceGap, match=why):  # as often as it is asked
        await opened(tmp_path, Point(last.id, last.note))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda d: write(d, "1.jsonl", "1a\n1B\n"), r"file 1.jsonl, which was read, was changed"),
        (lambda d: write(d, "2.jsonl", "2a\n2b\n2c\n"), r"file 2.jsonl, which was read, was changed"),
        (lambda d: (d / "1.jsonl").unlink(), r"file 1.jsonl, which was read, is gone"),
        (lambda d: write(d, "11.jsonl", "x\n"), r"file 11.jsonl came before 2.jsonl, which was read"),
    ],
)
@pytest.mark.asyncio
async def test_a_reader_at_work_sees_what_happens_to_files_that_it_has_read(
    tmp_path: Path, change: object, why: str
) -> None:
    write(tmp_path, "1.jsonl", "1a\n1b\n")
    write(tmp_path, "2.jsonl", "2a\n2b\n")
    of = await opened(tmp_path)
    await rest(of)
    assert callable(change)
    change(tmp_path)
    with pytest.raises(SourceGap, match=why):
        await rest(of)


@pytest.mark.asyncio
async def test_a_file_that_is_written_in_place_while_it_is_read_gives_no_row_of_that(tmp_path: Path) -> None:
    write(tmp_path, "1.jsonl", "1a\n1b\n")
    of = await opened(tmp_path)
    assert told(list((await of.read(STREAM, 1, 1 << 20)).records)) == [(0, b"1a")]
    with (tmp_path / "1.jsonl").open("r+") as file:
        file.write("XX")
    os.utime(tmp_path / "1.jsonl", ns=(1, 1))
    with pytest.raises(SourceGap, match=r"file 1.jsonl was changed while it was read"):
        await of.read(STREAM, 1, 1 << 20)


@pytest.mark.asyncio
async def test_a_file_that_was_only_touched_is_what_it_was(tmp_path: Path) -> None:
    write(tmp_path, "1.jsonl", "1a\n")
    of = await opened(tmp_path)
    await rest(of)
    os.utime(tmp_path / "1.jsonl", ns=(1, 1))
    write(tmp_path, "2.jsonl", "2a\n")
    assert told(await rest(of)) == [(1, b"2a")]


@pytest.mark.asyncio
async def test_a_folder_that_can_not_be_read_is_an_outage(tmp_path: Path) -> None:
    of = reader(Settings("lines", {"folder": "in"}, str(tmp_path)))
    with pytest.raises(SourceUnavailable, match="source lines"):
        await of.open(STREAM, [FRESH])


@pytest.mark.asyncio
async def test_what_another_kind_of_source_noted_is_none_of_ours(tmp_path: Path) -> None:
    with pytest.raises(SourceGap, match="another kind of source"):
        await opened(tmp_path, Point(3, b"kafka"))
    with pytest.raises(SourceGap, match="nothing is known of the file of row 3"):
        await opened(tmp_path, Point(3, b""))


@pytest.mark.asyncio
async def test_an_operator_says_with_which_line_it_goes_on(tmp_path: Path) -> None:
    write(tmp_path, "1.jsonl", "1a\n1b\n")
    write(tmp_path, "2.jsonl", "2a\n2b\n")
    of = made(tmp_path)
    places: tuple[tuple[int, str, list[bytes]], ...] = (
        (7, "2.jsonl", [b"2a", b"2b"]),
        (7, "1.jsonl:2", [b"1b", b"2a", b"2b"]),
        (0, "2.jsonl:3", []),
    )
    for last, at, rows in places:
        point = await of.adopt(STREAM, last, at)
        assert point.last_id > last
        found = await rest(await opened(tmp_path, point))
        assert [each.value for each in found] == rows
        assert [each.id for each in found] == [*range(point.last_id + 1, point.last_id + 1 + len(rows))]
    for wrong in ("3.jsonl", "1.jsonl:0", "1.jsonl:x", "1.jsonl:9"):
        with pytest.raises(InvalidArgument):
            await of.adopt(STREAM, 0, wrong)


def test_options_are_checked() -> None:
    for options in ({}, {"folder": ""}, {"folder": "in", "glob": "a/*"}, {"folder": "in", "more": 1}):
        with pytest.raises(InvalidConfig, match="source lines: options"):
            reader(Settings("lines", dict(options)))
    assert isinstance(reader(Settings("lines", {"folder": "in"})), FilesReader)


@pytest.mark.asyncio
async def test_a_name_that_is_no_text_is_read_and_told_so_that_it_can_be_written_down(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"1\xff.jsonl")).write_text("a\n")
    of = await opened(tmp_path)
    assert told(await rest(of)) == [(0, b"a")]
    (tmp_path / os.fsdecode(b"1\xff.jsonl")).unlink()
    with pytest.raises(SourceGap, match="is gone") as gap:
        await of.read(STREAM, 1, 1)
    assert b"1\\udcff.jsonl" in str(gap.value).encode()


@pytest.mark.asyncio
@pytest.mark.parametrize("at", ["2026-01-02T10:30.jsonl", "2026-01-02T10:30.jsonl:1"])
async def test_a_name_with_colons_can_be_gone_on_with(tmp_path: Path, at: str) -> None:
    write(tmp_path, "2026-01-01T10:30.jsonl", "a\n")
    write(tmp_path, "2026-01-02T10:30.jsonl", "b\nc\n")
    point = await (await opened(tmp_path)).adopt(STREAM, 4, at)
    assert [each.value for each in await rest(await opened(tmp_path, point))] == [b"b", b"c"]
