"""The spare segment: space for the next takeover, and never one file under two names."""

from __future__ import annotations

import contextlib
import errno
import random
from collections.abc import Callable

import pytest

from deathless.codec.frames import BLOCK
from deathless.engine.log.spare import Spare
from deathless.engine.ports import FileSystem
from deathless.simulation.world.disk import SimDisk

SIZE = 8 * BLOCK
LIVE = b"live" * (BLOCK // 4)


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk(random.Random(1))
    disk.view("x").make_folder("log")
    return disk


def test_the_spare_becomes_the_segment_with_its_space(disk: SimDisk) -> None:
    fs = disk.view("r0")
    spare = Spare(fs, "r0", SIZE)
    assert spare.prepare()
    assert spare.prepare(), "one is enough"
    handle = spare.link_as("log/a")
    assert handle is not None
    assert (fs.size(handle), fs.exists("replicas/r0/spare"), spare.ready) == (SIZE, False, False)
    assert spare.link_as("log/b") is None


def test_a_spare_that_a_helper_process_gave_up_is_missed_and_made_anew(disk: SimDisk) -> None:
    spare = Spare(disk.view("r0"), "r0", SIZE)
    assert spare.prepare()
    seen = []
    spare.recheck()
    seen.append(spare.ready)
    Spare(disk.view("helper"), "r0", SIZE).free()
    spare.recheck()
    seen.append(spare.ready)
    assert spare.prepare()
    assert [*seen, spare.ready] == [True, False, True]


def test_a_spare_found_at_the_start_is_replaced_by_a_file_of_ones_own(disk: SimDisk) -> None:
    Spare(disk.view("old"), "r0", SIZE).prepare()
    old = disk.inode("replicas/r0/spare")
    Spare(disk.view("new"), "r0", SIZE).prepare()
    assert disk.inode("replicas/r0/spare") is not old


def test_a_crash_between_the_link_and_the_unlink_never_makes_one_file_two_segments(disk: SimDisk) -> None:
    """The spare's own name may come back after a power cut; the next process does not use that file."""
    for seed in range(8):
        disk.rng = random.Random(seed)
        fs = disk.view("r0")
        spare = Spare(fs, "r0", SIZE)
        spare.prepare()
        disk.fail("sync_folder", "replicas")
        with pytest.raises(OSError, match="Input/output"):
            spare.link_as(f"log/a{seed}")
        disk.cut_power()
        fs = disk.view("again")
        again = Spare(fs, "r0", SIZE)
        again.prepare()
        again.link_as(f"log/b{seed}")
        if fs.exists(f"log/a{seed}"):
            assert disk.inode(f"log/a{seed}") is not disk.inode(f"log/b{seed}")


def test_a_full_disk_keeps_an_untouched_spare_of_an_earlier_process(disk: SimDisk) -> None:
    Spare(disk.view("old"), "r0", SIZE).prepare()
    disk.capacity_bytes = disk.used_bytes()
    spare = Spare(disk.view("new"), "r0", SIZE)
    assert spare.prepare()
    assert spare.link_as("log/a") is not None


@pytest.mark.parametrize("content", [b"written", b""])
def test_a_full_disk_does_not_make_a_spare_of_a_file_that_was_used_or_is_too_short(
    disk: SimDisk, content: bytes
) -> None:
    fs = disk.view("old")
    fs.make_folder("replicas/r0")
    handle = fs.create("replicas/r0/spare")
    fs.allocate(handle, 0, SIZE if content else BLOCK)
    fs.write(handle, 0, content)
    disk.capacity_bytes = disk.used_bytes()
    assert not Spare(disk.view("new"), "r0", SIZE).prepare()


def test_no_space_and_none_found_is_no_spare(disk: SimDisk) -> None:
    disk.capacity_bytes = SIZE - 1
    spare = Spare(disk.view("r0"), "r0", SIZE)
    assert not spare.prepare()
    assert not spare.ready
    disk.capacity_bytes = None
    assert spare.prepare()


def test_other_errors_are_raised(disk: SimDisk) -> None:
    disk.fail("allocate", number=errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        Spare(disk.view("r0"), "r0", SIZE).prepare()


def test_freeing_the_spare_gives_its_space_back(disk: SimDisk) -> None:
    spare = Spare(disk.view("r0"), "r0", SIZE)
    spare.prepare()
    used = disk.used_bytes()
    spare.free()
    spare.free()
    assert disk.used_bytes() == used - SIZE
    assert spare.prepare()


# ---------------------------------------------------------------- instances


def names(disk: SimDisk) -> list[str]:
    return disk.view("looker").listing("replicas/r0")


def test_two_instances_have_a_spare_each_and_the_later_one_takes_the_formers_away(disk: SimDisk) -> None:
    old = Spare(disk.view("old"), "r0", SIZE, instance="a")
    assert old.prepare()
    new = Spare(disk.view("new"), "r0", SIZE, instance="b")
    assert new.prepare()
    assert names(disk) == ["spare.b"]
    assert old.prepare(), "the former believes that it has one"
    assert old.link_as("log/a") is None, "and finds at a takeover that it has not"
    assert not old.ready
    assert old.prepare()
    assert names(disk) == ["spare.a", "spare.b"], "it makes another, and leaves the later one's alone"
    assert new.link_as("log/b") is not None


def test_leftovers_are_spares_alone_and_go_once(disk: SimDisk) -> None:
    fs = disk.view("x")
    fs.make_folder("replicas/r0")
    for name in ("spare", "spare.new", "spare.gone", "spare.gone.new", "sparely", "identity.json"):
        fs.close(fs.create(f"replicas/r0/{name}"))
    spare = Spare(disk.view("new"), "r0", SIZE, instance="b")
    spare.prepare()
    assert names(disk) == ["identity.json", "spare.b", "sparely"]
    fs.close(fs.create("replicas/r0/spare.late"))
    spare.free()
    spare.prepare()
    assert names(disk) == ["identity.json", "spare.b", "spare.late", "sparely"]


def thawed(prepared_at: int, linked_at: int, *, names_differ: bool) -> tuple[int, bool]:
    """Run an old process; its replacement prepares before one of its calls, and takes over before another.

    Gives the count of the old one's calls, and whether a file of the replacement became the old one's too.
    """
    disk = SimDisk(random.Random(1))
    disk.view("x").make_folder("log")
    fs = disk.view("new")
    new = Spare(fs, "r0", SIZE, instance="b" if names_differ else "")

    def replacement(number: int) -> None:
        if number == prepared_at:
            new.prepare()
        if number == linked_at and (handle := new.link_as("log/new")) is not None:
            fs.write(handle, 0, LIVE)
            fs.sync(handle)

    calls = Interrupted(disk.view("old"), replacement)
    old = Spare(calls, "r0", SIZE, instance="a" if names_differ else "")  # type: ignore[arg-type]  # it has every method
    with contextlib.suppress(OSError):
        old.prepare()
        old.link_as("log/old")
    if not fs.exists("log/new"):
        return calls.count, False
    both = fs.exists("log/old") and disk.inode("log/old") is disk.inode("log/new")
    return calls.count, both or fs.read(fs.open("log/new"), 0, BLOCK) != LIVE


@pytest.mark.parametrize("names_differ", [True, False])
def test_thawed_process_never_shares_a_file_with_its_replacement(names_differ: bool) -> None:
    """With names of their own no file becomes two segments or is zeroed by the other; with one name it does."""
    calls, _ = thawed(99, 99, names_differ=names_differ)
    assert calls > 8, "the replacement comes in between every two of so many"
    found = [
        thawed(first, second, names_differ=names_differ)[1] for first in range(calls) for second in range(first, calls)
    ]
    assert any(found) != names_differ


class Interrupted:
    """A file system before whose every call something else may happen."""

    def __init__(self, inner: FileSystem, before: Callable[[int], None]) -> None:
        self._inner = inner
        self._before = before
        self.count = 0

    def __getattr__(self, name: str) -> Callable[..., object]:
        method: Callable[..., object] = getattr(self._inner, name)

        def call(*args: object, **kwargs: object) -> object:
            self._before(self.count)
            self.count += 1
            return method(*args, **kwargs)

        return call
