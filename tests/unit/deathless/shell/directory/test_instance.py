"""Which process is a replica: one at a time, or instances of which the later one is known without a clock."""

from __future__ import annotations

import errno
import fcntl
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from deathless.base.errors import InvalidConfig, OtherSupervisor, StorageUnfit
from deathless.shell.directory.instance import (
    ENTRY_BYTES_MAX,
    KEPT_MAX,
    NO_LINKS,
    NUMBER_MAX,
    check_instance,
    clear_former,
    lock_replica,
    take_generation,
)


def folder_in(tmp_path: Path) -> Path:
    return tmp_path / "replicas" / "r0"


def test_second_supervisor_of_a_replica_is_refused_by_the_first_ones_process(tmp_path: Path) -> None:
    held = lock_replica(folder_in(tmp_path), "r0")
    with pytest.raises(OtherSupervisor, match=f"is run by process {os.getpid()}"):
        lock_replica(folder_in(tmp_path), "r0")
    os.close(held)
    os.close(lock_replica(folder_in(tmp_path), "r0"))


def test_two_instances_of_a_replica_may_run_and_one_instance_only_once(tmp_path: Path) -> None:
    held = [lock_replica(folder_in(tmp_path), "r0", instance) for instance in ("a", "b")]
    with pytest.raises(OtherSupervisor):
        lock_replica(folder_in(tmp_path), "r0", "a")
    for descriptor in held:
        os.close(descriptor)


def test_storage_without_locks_stops_a_machines_replica_and_no_instance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(OSError, match="No locks"):
        lock_replica(folder_in(tmp_path), "r0")
    os.close(lock_replica(folder_in(tmp_path), "r0", "a"))


def test_later_instance_has_the_higher_number_and_keeps_it(tmp_path: Path) -> None:
    assert take_generation(tmp_path, "r0", "") == 0
    assert [take_generation(tmp_path, "r0", name) for name in ("a", "a", "b", "b", "c")] == [1, 1, 2, 2, 3]


def test_former_instance_does_not_start_again(tmp_path: Path) -> None:
    take_generation(tmp_path, "r0", "a")
    take_generation(tmp_path, "r0", "b")
    with pytest.raises(OtherSupervisor, match="instance b"):
        take_generation(tmp_path, "r0", "a")


def test_instances_that_start_together_get_different_numbers(tmp_path: Path) -> None:
    names = [f"i{number}" for number in range(24)]
    with ThreadPoolExecutor(8) as pool:
        numbers = list(pool.map(lambda name: take_generation(tmp_path, "r0", name), names))
    assert sorted(numbers) == list(range(1, 25))


@pytest.mark.parametrize("number", NO_LINKS)
def test_storage_without_links_is_unfit_and_not_forbidden(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: Path, target: Path) -> None:
        raise OSError(number, os.strerror(number), source, None, target)

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(StorageUnfit, match=f"lacks a call that the log needs: .*{os.strerror(number)}"):
        take_generation(tmp_path, "r0", "a")
    assert list(tmp_path.iterdir()) == [], "nothing is left there"


def test_folder_that_can_not_be_linked_in_for_another_reason_is_told_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(OSError, match="No space left"):
        take_generation(tmp_path, "r0", "a")


def test_entry_that_can_not_be_read_still_counts(tmp_path: Path) -> None:
    (tmp_path / "instance.000000007").mkdir()
    assert take_generation(tmp_path, "r0", "a") == 8


@pytest.mark.parametrize("number", [999_999_999, 1_000_000_000, NUMBER_MAX - 1])
def test_numbers_go_on_behind_nine_digits(number: int, tmp_path: Path) -> None:
    (tmp_path / f"instance.{number}").write_text("former")
    assert take_generation(tmp_path, "r0", "a") == number + 1
    assert take_generation(tmp_path, "r0", "a") == number + 1


def test_number_behind_which_none_can_be_written_is_told_with_its_file(tmp_path: Path) -> None:
    (tmp_path / f"instance.{NUMBER_MAX}").write_text("nobody")
    with pytest.raises(InvalidConfig, match=f"instance.{NUMBER_MAX}"):
        take_generation(tmp_path, "r0", "a")


def test_entry_that_is_a_pipe_or_endless_is_no_instance_and_its_number_counts(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "instance.000000003")
    (tmp_path / "instance.000000007").write_bytes(bytes(ENTRY_BYTES_MAX + 1))
    assert take_generation(tmp_path, "r0", "a") == 8


def test_only_the_last_instances_are_remembered(tmp_path: Path) -> None:
    for number in range(KEPT_MAX + 5):
        take_generation(tmp_path, "r0", f"i{number}")
    assert len(list(tmp_path.iterdir())) == KEPT_MAX


def test_leftovers_of_former_instances_go_and_those_of_living_ones_stay(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    os.close(lock_replica(folder, "r0", "gone"))
    living = lock_replica(folder, "r0", "living")
    own = lock_replica(folder, "r0", "own")
    for name in ("gone", "own"):
        (folder / f"ingress.{name}.address").touch()
    clear_former(folder, "")
    assert len(list(folder.iterdir())) == 5
    clear_former(folder, "own")
    assert {path.name for path in folder.iterdir()} == {
        "supervisor.living.lock", "supervisor.own.lock", "ingress.own.address",
    }  # fmt: skip
    os.close(living)
    os.close(own)


@pytest.mark.parametrize("instance", ["a/b", "a.b", "x" * 65, " "])
def test_instance_that_fits_no_file_name_is_refused(instance: str) -> None:
    with pytest.raises(InvalidConfig, match="instance"):
        check_instance(instance)
