"""members/: announcements are whole or left out, written later where they could not be, and taken back at the end."""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import NoReturn

import msgspec
import pytest

from deathless.shell.directory import members
from deathless.shell.directory.instance import take_generation
from deathless.shell.directory.members import (
    MEMBER_BYTES,
    Board,
    Member,
    announce_later,
    ingress_address,
    ingress_address_path,
    read_members,
    remove_member,
    write_member,
    write_small,
)

MEMBER = Member("r0", "127.0.0.1:1", client="127.0.0.1:2", pid=7)


def full(*_: object) -> NoReturn:
    raise OSError(errno.ENOSPC, "No space left on device")


def announce_ingress(directory: Path, text: bytes) -> None:
    folder = directory / "replicas" / "r0"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ingress.address").write_bytes(text)


def within_time(work: Coroutine[object, object, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 30))


class Sight:
    """What a board has seen."""

    def __init__(self) -> None:
        self.last: dict[str, Member] = {}
        self._changed = asyncio.Event()

    def __call__(self, found: dict[str, Member]) -> None:
        self.last = found
        self._changed.set()

    async def wait_for(self, wanted: Callable[[dict[str, Member]], bool]) -> None:
        while not wanted(self.last):
            self._changed.clear()
            await self._changed.wait()


def test_what_was_announced_is_read_until_it_is_taken_back(tmp_path: Path) -> None:
    other = Member("r1", "127.0.0.1:3")
    assert read_members(str(tmp_path)) == {}
    write_member(str(tmp_path), MEMBER)
    write_member(str(tmp_path), other)
    assert read_members(str(tmp_path)) == {"r0": MEMBER, "r1": other}
    remove_member(str(tmp_path), "r0")
    remove_member(str(tmp_path), "r0")
    assert read_members(str(tmp_path)) == {"r1": other}


def test_a_later_announcement_replaces_the_one_before_and_leaves_no_other_name(tmp_path: Path) -> None:
    write_member(str(tmp_path), MEMBER)
    write_member(str(tmp_path), Member("r0", "127.0.0.1:9"))
    assert read_members(str(tmp_path))["r0"].control == "127.0.0.1:9"
    assert [path.name for path in (tmp_path / "members").iterdir()] == ["r0.json"]


@pytest.mark.parametrize(
    "half", [b"", b'{"replica":"r1","con', b'{"replica":"\xff","control":"x"}', b'{"replica":1}', bytes(50)]
)
def test_a_half_written_file_is_left_out_and_hides_no_other(half: bytes, tmp_path: Path) -> None:
    write_member(str(tmp_path), MEMBER)
    (tmp_path / "members" / "a.json").write_bytes(half)
    (tmp_path / "members" / "z.json").mkdir()
    assert read_members(str(tmp_path)) == {"r0": MEMBER}


@pytest.mark.parametrize("name", ["r0.sync-conflict-20261126.json", "r0 (1).json", "Copy of r0.json", "r1.json"])
def test_record_under_another_name_is_nobodys(name: str, tmp_path: Path) -> None:
    """Tools that synchronise folders leave the older of two records beside the newer one."""
    write_member(str(tmp_path), Member("r0", "127.0.0.1:9"))
    stale = (tmp_path / "members" / "r0.json").rename(tmp_path / "members" / name)
    write_member(str(tmp_path), MEMBER)
    assert stale.exists()
    assert read_members(str(tmp_path)) == {"r0": MEMBER}


def test_on_a_full_disk_an_announcement_takes_the_room_of_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_member(str(tmp_path), MEMBER)
    monkeypatch.setattr(Path, "write_bytes", full)
    longer = Member("r0", "127.0.0.1:1", client="an.address.that.is.much.longer.than.before:65535", pid=8)
    write_member(str(tmp_path), longer)
    assert read_members(str(tmp_path)) == {"r0": longer}
    assert (tmp_path / "members" / "r0.json").stat().st_size == MEMBER_BYTES


def test_on_a_full_disk_nothing_can_be_written_in_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(FileNotFoundError):
        write_small(tmp_path / "new", b"data")
    assert list(tmp_path.iterdir()) == []


def test_an_error_that_is_not_about_space_leaves_the_old_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> NoReturn:
        raise OSError(errno.EIO, "Input/output error")

    (tmp_path / "small").write_text("old")
    monkeypatch.setattr(Path, "write_bytes", broken)
    with pytest.raises(OSError, match="Input/output error"):
        write_small(tmp_path / "small", b"new")
    assert (tmp_path / "small").read_text() == "old"


def test_an_ingress_is_where_it_says_and_nowhere_while_it_does_not(tmp_path: Path) -> None:
    assert ingress_address(str(tmp_path), "r0") == ""
    announce_ingress(tmp_path, b"127.0.0.1:80\n")
    assert ingress_address(str(tmp_path), "r0") == "127.0.0.1:80"
    announce_ingress(tmp_path, b"\xff")
    assert ingress_address(str(tmp_path), "r0") == ""


def test_a_board_announces_sees_the_others_and_withdraws(tmp_path: Path) -> None:
    async def main() -> None:
        sight = Sight()
        board = Board(str(tmp_path), "r0", sight)
        board.start()
        board.announce(msgspec.structs.replace(MEMBER, ingress="127.0.0.1:0"))
        write_member(str(tmp_path), Member("r1", "127.0.0.1:3"))
        board.look()
        await sight.wait_for(lambda found: set(found) == {"r0", "r1"})
        assert sight.last["r0"].ingress == "127.0.0.1:0", "as configured, until it says where it listens"
        announce_ingress(tmp_path, b"127.0.0.1:4")
        board.look()
        await sight.wait_for(lambda found: found["r0"].ingress == "127.0.0.1:4")
        board.close(withdraw=True)
        assert set(read_members(str(tmp_path))) == {"r1"}

    within_time(main())


def test_a_board_that_is_not_asked_to_leaves_its_announcement(tmp_path: Path) -> None:
    async def main() -> None:
        sight = Sight()
        board = Board(str(tmp_path), "r0", sight)
        board.announce(MEMBER)
        board.start()
        await sight.wait_for(lambda found: "r0" in found)
        board.close(withdraw=False)
        assert read_members(str(tmp_path)) == {"r0": MEMBER}

    within_time(main())


def test_a_board_whose_loop_has_ended_and_one_never_started_end_too(tmp_path: Path) -> None:
    async def main() -> Board:
        Board(str(tmp_path), "r0", lambda _: None).close(withdraw=True)
        return Board(str(tmp_path), "r0", lambda _: None)

    board = asyncio.run(main())
    board.announce(MEMBER)
    board.start()
    board.close(withdraw=False)
    assert not board._thread.is_alive()


def test_what_could_not_be_written_is_written_later_and_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        refused, enough = [0], asyncio.Event()
        loop = asyncio.get_running_loop()

        def refuse(directory: str, member: Member) -> None:
            refused[0] += 1
            if refused[0] == 2:
                monkeypatch.setattr(members, "write_member", write_member)
                loop.call_soon_threadsafe(enough.set)
            full()

        monkeypatch.setattr(members, "write_member", refuse)
        sight = Sight()
        board = Board(str(tmp_path), "r0", sight)
        board.announce(MEMBER)
        board.start()
        await enough.wait()
        board.look()
        await sight.wait_for(lambda found: found == {"r0": MEMBER})
        board.close(withdraw=False)

    within_time(main())
    assert [record.levelname for record in caplog.records if record.name == "deathless.members"] == ["WARNING"]


# ---------------------------------------------------------------- instances of one replica


def instance(name: str, generation: int) -> Member:
    return msgspec.structs.replace(MEMBER, instance=name, generation=generation)


def test_announcement_that_a_former_instance_wrote_over_ours_is_written_again(tmp_path: Path) -> None:
    async def main() -> None:
        sight = Sight()
        board = Board(str(tmp_path), "r0", sight, "b")
        board.announce(instance("b", 2))
        board.start()
        for lost in (instance("a", 1), None):
            await sight.wait_for(lambda found: found.get("r0") == instance("b", 2))
            sight.last = {}
            if lost is None:
                remove_member(str(tmp_path), "r0")
            else:
                write_member(str(tmp_path), lost)
            board.look()
        await sight.wait_for(lambda found: found.get("r0") == instance("b", 2))
        board.close(withdraw=True)
        assert read_members(str(tmp_path)) == {}

    within_time(main())


def test_announcement_of_a_later_instance_is_neither_written_over_nor_taken_back(tmp_path: Path) -> None:
    async def main() -> None:
        folder = tmp_path / "replicas" / "r0"
        folder.mkdir(parents=True)
        assert [take_generation(folder, "r0", name) for name in ("a", "b")] == [1, 2]
        write_member(str(tmp_path), instance("b", 2))
        sight = Sight()
        board = Board(str(tmp_path), "r0", sight, "a")
        board.announce(instance("a", 1))
        board.start()
        await sight.wait_for(lambda found: "r0" in found)
        board.close(withdraw=True)
        assert read_members(str(tmp_path)) == {"r0": instance("b", 2)}

    within_time(main())


def test_instances_of_a_replica_say_apart_where_their_ingress_listens(tmp_path: Path) -> None:
    for name in ("", "a", "b"):
        path = ingress_address_path(str(tmp_path), "r0", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"127.0.0.1:{len(name)}")
    assert [ingress_address(str(tmp_path), "r0", name) for name in ("", "b", "c")] == ["127.0.0.1:0", "127.0.0.1:1", ""]


def test_address_that_can_not_be_written_now_is_written_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = ingress_address_path(str(tmp_path), "r0")
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        path.parent.mkdir(parents=True)  # the storage is back

    monkeypatch.setattr(time, "sleep", pause)
    announce_later(path, "127.0.0.1:9")
    assert (len(pauses), ingress_address(str(tmp_path), "r0")) == (1, "127.0.0.1:9")
