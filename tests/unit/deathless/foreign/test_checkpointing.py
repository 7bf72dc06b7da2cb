"""Checkpoints are found whole, written piece by piece, and what is not theirs yet is kept."""

import asyncio
import errno
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.deathless.foreign import recorded
from tests.unit.deathless.foreign.test_feed import publish

from deathless.base.errors import ApplicationStateMissing, StorageFailed
from deathless.engine.ports import Handle
from deathless.foreign.checkpointing import LOADING_S, UNWRITTEN_BYTES_MAX, Checkpointing, TooEarly
from deathless.foreign.checkpoints import Checkpoints, Head
from deathless.foreign.coordinator import BeginFile, EndFile, WriteFile
from deathless.foreign.feed import Feed
from deathless.foreign.rows import INPUTS, Given, What
from deathless.foreign.watching.counts import Counts
from deathless.shell.disk.filesystem import RealFileSystem
from deathless.topics.reader import TopicReader
from deathless.topics.source import TopicSource, topic_directory

SERVICE_ID = "ab" * 16


class Full(RealFileSystem):
    """A disk without room, while `full`."""

    full = True

    def write(self, handle: Handle, offset: int, data: bytes) -> None:
        """See FileSystem."""
        if self.full:
            raise OSError(errno.ENOSPC, "no space left")
        super().write(handle, offset, data)


class Lab:
    """One process's files, and what it was told."""

    def __init__(
        self,
        path: Path,
        writer: str = "r0",
        files: RealFileSystem | None = None,
        incarnation: int = 7,
        former: tuple[int, ...] = (),
        stay: int = 2,
        clock: Callable[[], float] = float,
    ) -> None:
        self.incarnation = incarnation
        self.kept: list[int] = []
        self.awaited = -1
        self.held: list[bool] = []
        folder = Checkpoints(files or RealFileSystem(path), writer)
        self.counts = Counts()
        feed = Feed(str(path), SERVICE_ID, incarnation, former=former)
        self.checkpointing = Checkpointing(
            folder, feed, self.held.append, self.told, stay, self.counts, replica=writer, clock=clock
        )

    def add(self, position: int, *pieces: bytes, version: int = 0, goes_over: bool = False) -> None:
        """Give a checkpoint."""
        length = sum(map(len, pieces))
        head = Head(
            service_id=SERVICE_ID,
            incarnation=self.incarnation,
            position=position,
            records=1,
            length=length,
            version=version,
        )
        end = EndFile(goes_over=goes_over)
        actions: list[BeginFile | WriteFile | EndFile] = [BeginFile(head), *map(WriteFile, pieces), end]
        for action in actions:
            self.checkpointing.add(action)

    async def write(self, position: int) -> None:
        """Write what was given, until a checkpoint of this position is kept."""
        self.done = asyncio.Event()
        self.awaited = position
        work = asyncio.get_running_loop().create_task(self.checkpointing.run())
        waits = asyncio.get_running_loop().create_task(self.done.wait())
        await asyncio.wait([work, waits], return_when=asyncio.FIRST_COMPLETED)
        waits.cancel()
        work.cancel()
        await asyncio.wait([work, waits])
        if not work.cancelled() and (error := work.exception()) is not None:
            raise error

    def told(self, position: int, went_over: bool) -> None:
        """A checkpoint is durable."""
        self.went_over = went_over
        self.kept.append(position)
        if position == self.awaited:
            self.done.set()


def test_checkpoint_is_found_by_the_next_process(tmp_path: Path) -> None:
    """With its bytes in their order."""

    async def work() -> None:
        lab, other = Lab(tmp_path), Lab(tmp_path, "r1")
        assert await other.checkpointing.newest() is None
        lab.add(4, b"one ", b"two")
        await lab.write(4)
        assert await other.checkpointing.look()
        assert not await other.checkpointing.look()
        found = await other.checkpointing.newest()
        assert found is not None
        assert b"".join([piece async for piece in other.checkpointing.pieces(found)]) == b"one two"

    asyncio.run(work())


def test_older_one_is_taken_where_the_newest_is_damaged(tmp_path: Path) -> None:
    """And none where all are."""

    async def work() -> None:
        lab = Lab(tmp_path)
        for position in (4, 9):
            lab.add(position, b"state")
            await lab.write(position)
        newest, older = sorted((tmp_path / "application").iterdir(), reverse=True)
        newest.write_bytes(b"torn")
        found = await lab.checkpointing.newest()
        assert found is not None
        assert found.head.position == 4
        older.write_bytes(b"")
        with pytest.raises(ApplicationStateMissing, match="no checkpoint of the application can be used"):
            await lab.checkpointing.newest()

    asyncio.run(work())


def test_full_disk_ends_the_first_start_and_drops_a_later_checkpoint(tmp_path: Path) -> None:
    """The next one is tried."""

    async def work() -> None:
        files = Full(tmp_path)
        lab = Lab(tmp_path, files=files)
        lab.add(0, b"state")
        with pytest.raises(StorageFailed, match="no space left"):
            await lab.write(0)
        files.full = False
        lab.add(0, b"state")
        await lab.write(0)
        files.full = True
        lab.add(5, b"state")
        lab.add(9, b"state")
        files.full = False
        await lab.write(9)
        assert lab.kept[-1] == 9
        assert lab.counts.checkpoints == len(lab.kept)
        assert lab.counts.checkpoint_failures == 4 - len(lab.kept)

    asyncio.run(work())


def test_of_two_first_starts_one_counts(tmp_path: Path) -> None:
    """The other one begins again, from that."""

    async def work() -> None:
        Lab(tmp_path, "r1").add(0, b"other")
        other, lab = Lab(tmp_path, "r1"), Lab(tmp_path)
        other.add(0, b"other")
        await other.write(0)
        lab.add(0, b"mine")
        with pytest.raises(ApplicationStateMissing, match="at the same time"):
            await lab.write(0)

    asyncio.run(work())


def test_no_more_is_read_while_much_is_not_written(tmp_path: Path) -> None:
    """And again once it is."""

    async def work() -> None:
        lab = Lab(tmp_path)
        lab.add(4, bytes(UNWRITTEN_BYTES_MAX), b"x")
        assert lab.held[-1]
        await lab.write(4)
        assert not lab.held[-1]

    asyncio.run(work())


def test_checkpoint_that_the_service_never_came_to_is_set_aside_where_it_was_restored(tmp_path: Path) -> None:
    """Its position may come again, with another state; until a row stands in the new incarnation nothing is decided."""

    async def work() -> None:
        former = Lab(tmp_path)
        for position in (4, 9):
            former.add(position, b"state")
            await former.write(position)
        await asyncio.to_thread(publish, tmp_path, 1, 9)
        lab = Lab(tmp_path, incarnation=8, former=(7,))
        with pytest.raises(TooEarly):
            await lab.checkpointing.newest()
        await asyncio.to_thread(publish, tmp_path, 6, 6, epoch=2, incarnation=8, asked=True)
        found = await lab.checkpointing.newest()
        assert found is not None
        assert found.head.position == 4
        lab.add(9, b"another")
        await lab.write(9)
        found = await lab.checkpointing.newest()
        assert found is not None
        assert (found.head.position, found.head.incarnation) == (9, 8)

    asyncio.run(work())


def test_checkpoint_of_another_service_is_refused(tmp_path: Path) -> None:
    """And stays where it is."""

    async def work() -> None:
        other = Lab(tmp_path)
        other.add(4, b"state")
        await other.write(4)
        with pytest.raises(ApplicationStateMissing, match="incarnation 7"):
            await Lab(tmp_path, incarnation=8).checkpointing.newest()
        assert await other.checkpointing.newest() is not None

    asyncio.run(work())


def test_first_start_that_did_not_end_is_gone_on_with_in_a_copy(tmp_path: Path) -> None:
    """The log has nothing of the application, so no row will ever tell where its rows begin."""

    async def work() -> None:
        former = Lab(tmp_path)
        former.add(0, b"state")
        await former.write(0)
        lab = Lab(tmp_path, incarnation=8, former=(7,))
        with pytest.raises(TooEarly):
            await lab.checkpointing.newest()
        assert await lab.checkpointing.newest(is_first=True) is not None

    asyncio.run(work())


@pytest.mark.parametrize(("stay", "positions", "held"), [(2, [9, 7], 8), (0, [9, 7, 4, 0], 1)])
def test_rows_behind_the_oldest_checkpoint_that_stays_are_held(
    tmp_path: Path, stay: int, positions: list[int], held: int
) -> None:
    """With all of them every row is."""
    recorded.publish(tmp_path, [Given(What.INITIAL, b"")] * 10)

    async def work() -> None:
        for position in (0, 4, 7, 9):
            lab = Lab(tmp_path, stay=stay)
            lab.add(position, b"state")
            await lab.write(position)

    asyncio.run(work())
    assert Checkpoints(RealFileSystem(tmp_path), "").positions() == positions
    (hold,) = TopicReader(topic_directory(str(tmp_path), INPUTS), TopicSource(SERVICE_ID, 7)).holds()
    assert hold.hold is not None
    assert hold.hold.position == held


def left(path: Path) -> tuple[list[int], dict[str, int]]:
    """Give positions of checkpoints, and holds."""
    reader = TopicReader(topic_directory(str(path), INPUTS), TopicSource(SERVICE_ID, 7))
    holds = {each.name: each.hold.position for each in reader.holds() if each.hold is not None}
    return Checkpoints(RealFileSystem(path), "").positions(), holds


def test_checkpoint_that_is_loaded_slowly_stays_with_the_rows_behind_it(tmp_path: Path) -> None:
    """Until its program has got what is kept for every replica."""
    recorded.publish(tmp_path, [Given(What.INITIAL, b"")] * 20)

    async def work() -> None:
        lab, slow = Lab(tmp_path), Lab(tmp_path, "r1")

        async def write(*positions: int) -> None:
            for position in positions:
                lab.add(position, b"state")
                await lab.write(position)

        await write(4)
        found = await slow.checkpointing.newest()
        assert found is not None
        await write(7, 9, 12)
        assert left(tmp_path) == ([12, 9, 4], {"application": 10, "application.loading.r1": 5})
        assert [piece async for piece in slow.checkpointing.pieces(found)] == [b"state"]
        await slow.checkpointing.let_go(8)
        assert left(tmp_path)[1] == {"application": 10, "application.loading.r1": 5}
        await slow.checkpointing.let_go(9)
        await write(15)
        assert left(tmp_path) == ([15, 12], {"application": 13})

    asyncio.run(work())


class Closing(RealFileSystem):
    """Has something happen behind a file that is closed: after so many of them."""

    def __init__(self, root: Path, closes: int, then: Callable[[], object]) -> None:
        super().__init__(root)
        self._closes = closes
        self._then = then

    def close(self, handle: Handle) -> None:
        """See FileSystem."""
        super().close(handle)
        self._closes -= 1
        if not self._closes:
            self._then()


@pytest.mark.parametrize("closes", [1, 2], ids=["before-it-is-read", "before-it-is-kept"])
def test_checkpoint_that_others_remove_while_it_is_chosen_is_not_gone_on_with(tmp_path: Path, closes: int) -> None:
    """They have newer ones."""
    recorded.publish(tmp_path, [Given(What.INITIAL, b"")] * 10)

    def write(*positions: int) -> None:
        folder = Checkpoints(RealFileSystem(tmp_path), "r0")
        for position in positions:
            assert folder.begin(
                Head(service_id=SERVICE_ID, incarnation=7, position=position, records=1, length=0)
            ).end()
            folder.forget()

    async def work() -> None:
        found = await Lab(tmp_path, "r1", Closing(tmp_path, closes, lambda: write(7, 9))).checkpointing.newest()
        assert found is not None
        assert found.head.position == 9

    write(4)
    asyncio.run(work())
    assert left(tmp_path) == ([9, 7], {"application.loading.r1": 10})


def test_nothing_is_kept_for_ever_for_a_replica_that_never_ends_loading(tmp_path: Path) -> None:
    """It may be gone; one that loads another checkpoint meanwhile is there."""
    recorded.publish(tmp_path, [Given(What.INITIAL, b"")] * 40)
    now = 0.0

    async def work() -> None:
        nonlocal now
        lab = Lab(tmp_path, clock=lambda: now)
        for position in range(4, 32, 4):
            lab.add(position, b"state")
            await lab.write(position)
            if position == 4:
                await Lab(tmp_path, "gone").checkpointing.newest()
            if position <= 16:
                await Lab(tmp_path, "r1").checkpointing.newest()
            now += LOADING_S / 4

    asyncio.run(work())
    assert left(tmp_path) == ([28, 24, 16], {"application": 25, "application.loading.r1": 17})


class Telling(RealFileSystem):
    """Counts files, and says when the first bytes behind a head are written."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.written = threading.Event()
        self.opened = self.closed = 0

    def create(self, path: str) -> Handle:
        """See FileSystem."""
        self.opened += 1
        return super().create(path)

    def close(self, handle: Handle) -> None:
        """See FileSystem."""
        super().close(handle)
        self.closed += 1

    def write(self, handle: Handle, offset: int, data: bytes) -> None:
        """See FileSystem."""
        super().write(handle, offset, data)
        if offset:
            self.written.set()


@pytest.mark.parametrize("call", ["write", "sync"])
def test_checkpoint_that_fails_leaves_nothing_and_is_told(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until one is kept again."""

    async def work() -> None:
        files = Telling(tmp_path)
        lab = Lab(tmp_path, files=files)
        lab.add(0, b"state")
        await lab.write(0)
        told: list[str] = []
        works, creates = getattr(files, call), files.create

        def fails_once(*_: object) -> None:
            monkeypatch.setattr(files, call, works)
            raise OSError(errno.EIO, "input/output error")

        def create(path: str) -> Handle:
            told.append(lab.checkpointing.problem)
            return creates(path)

        monkeypatch.setattr(files, call, fails_once)
        monkeypatch.setattr(files, "create", create)
        lab.add(5, b"lost")
        lab.add(9, b"state")
        await lab.write(9)
        assert [bool(each) for each in told] == [False, True]
        assert "input/output error" in told[1]
        assert lab.checkpointing.problem == ""
        assert sorted(path.name[-2:] for path in (tmp_path / "application").iterdir()) == ["00", "09"]
        assert files.opened == files.closed == 3

    asyncio.run(work())


def test_blob_that_ends_early_leaves_no_file_and_no_room_taken(tmp_path: Path) -> None:
    """Its program died while it gave it."""

    async def work() -> None:
        files = Telling(tmp_path)
        lab = Lab(tmp_path, files=files)
        head = Head(service_id=SERVICE_ID, incarnation=7, position=4, records=1, length=1 << 20)
        for action in (BeginFile(head), WriteFile(b"a beginning")):
            lab.checkpointing.add(action)
        running = asyncio.get_running_loop().create_task(lab.checkpointing.run())
        await asyncio.to_thread(files.written.wait)
        running.cancel()
        await asyncio.wait([running])
        assert list((tmp_path / "application").iterdir()) == []
        assert files.opened == files.closed == 1

    asyncio.run(work())


def test_checkpoint_of_the_next_version_takes_the_place_of_the_former_one(tmp_path: Path) -> None:
    """At once; and one that can't be written ends the process, since the application has gone over already."""

    async def work() -> None:
        files = Full(tmp_path)
        lab, files.full = Lab(tmp_path, files=files), False
        lab.add(0, b"first")
        await lab.write(0)
        lab.add(4, b"former")
        await lab.write(4)
        lab.add(4, b"next", version=1, goes_over=True)
        files.full = True
        with pytest.raises(StorageFailed, match="next version"):
            await lab.write(4)
        assert lab.checkpointing._folder.version() == 0
        files.full = False
        lab.add(4, b"next", version=1, goes_over=True)
        await lab.write(4)
        found = await lab.checkpointing.newest()
        assert lab.went_over
        assert found is not None
        assert (found.head.version, [piece async for piece in lab.checkpointing.pieces(found)]) == (1, [b"next"])

    asyncio.run(work())


def test_checkpoint_of_a_former_version_is_none_to_fall_back_to(tmp_path: Path) -> None:
    """The rows behind it were the next version's."""

    async def work() -> None:
        lab = Lab(tmp_path)
        for position, version in ((0, 0), (4, 0), (7, 1)):
            lab.add(position, b"state", version=version)
            await lab.write(position)
        path = tmp_path / "application" / f"checkpoint-{7:020d}"
        path.write_bytes(path.read_bytes()[:-1])
        with pytest.raises(ApplicationStateMissing, match="former version"):
            await lab.checkpointing.newest()

    asyncio.run(work())


def test_many_pieces_are_written_together_and_a_failing_one_leaves_the_next_checkpoint_whole(tmp_path: Path) -> None:
    """What stands behind pieces that were taken together is not lost with them."""
    files = Full(tmp_path)
    files.full = False
    lab = Lab(tmp_path, files=files)
    write = Full.write

    def failing(self: Full, handle: Handle, offset: int, data: bytes) -> None:
        if data == b"bad":
            raise OSError(errno.EIO, "broken")
        write(self, handle, offset, data)

    lab.add(1, b"first")
    lab.add(2, *[b"good"] * 50, b"bad", b"good")
    lab.add(3, *[b"%04d" % at for at in range(300)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Full, "write", failing)
        asyncio.run(lab.write(3))
    assert lab.kept == [1, 3]
    folder = Checkpoints(RealFileSystem(tmp_path), "r1")
    assert b"".join(folder.blob(folder.look(3))) == b"".join(b"%04d" % at for at in range(300))
