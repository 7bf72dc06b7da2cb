"""What is taken for an exported log, and what is refused with nothing left."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.deathless.shell.operate.test_log_export import driver_in, looked, quiet

from deathless.base.errors import DeathlessError, InvalidArgument
from deathless.shell.operate.log_export import plan_export, write_export
from deathless.shell.operate.log_import import read_import


@pytest.fixture(scope="module", name="whole")
def exported_log(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("original") / "data"
    driver_in(folder)
    out = io.BytesIO()
    with plan_export(looked(folder)) as plan:
        write_export(plan, out, quiet)
    return out.getvalue()


def take(data: bytes, folder: Path) -> None:
    read_import(io.BytesIO(data), "it.dlog", folder, quiet)


def refused(data: bytes, folder: Path) -> str:
    """Import what is refused; gives why. Nothing is left."""
    with pytest.raises(DeathlessError) as found:
        take(data, folder / "made")
    assert list(folder.iterdir()) == []
    return str(found.value)


def made_of(whole: bytes, change: Callable[[tarfile.TarInfo, bytes], list[tuple[tarfile.TarInfo, bytes]]]) -> bytes:
    """The same file with other members."""
    out = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(whole)) as before, tarfile.open(fileobj=out, mode="w") as after:
        for member in before:
            file = before.extractfile(member)
            assert file is not None
            for info, data in change(member, file.read()):
                info.size = len(data) if info.isreg() else 0
                after.addfile(info, io.BytesIO(data) if info.isreg() else None)
    return out.getvalue()


def test_folder_has_what_was_exported(tmp_path: Path, whole: bytes) -> None:
    take(whole, tmp_path / "made")
    with tarfile.open(fileobj=io.BytesIO(whole)) as archive:
        for member in archive:
            if member.name != "digests.json":
                assert (tmp_path / "made" / member.name).read_bytes() == archive.extractfile(member).read()  # type: ignore[union-attr]
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


def test_folder_that_is_there_and_empty_is_taken_and_another_one_is_not(tmp_path: Path, whole: bytes) -> None:
    (tmp_path / "made").mkdir()
    take(whole, tmp_path / "made")
    with pytest.raises(InvalidArgument, match="is not empty"):
        take(whole, tmp_path / "made")
    (tmp_path / "next.new").mkdir()
    with pytest.raises(InvalidArgument, match=r"next\.new is left of an import"):
        take(whole, tmp_path / "next")


@settings(max_examples=60, deadline=None)
@given(share=st.floats(0, 1, exclude_max=True))
def test_file_that_was_cut_short_is_refused(
    tmp_path_factory: pytest.TempPathFactory, whole: bytes, share: float
) -> None:
    end = whole.rindex(b"digests.json")
    refused(whole[: int(share * end)], tmp_path_factory.mktemp("cut"))


@settings(max_examples=100, deadline=None)
@given(share=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_flipped_bit_is_found_or_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, whole: bytes, share: float, bit: int
) -> None:
    folder = tmp_path_factory.mktemp("flip")
    data = bytearray(whole)
    data[int(share * len(data))] ^= 1 << bit
    try:
        take(bytes(data), folder / "made")
    except DeathlessError:
        assert list(folder.iterdir()) == []
        return
    take(whole, folder / "right")
    files = {path.relative_to(folder / "right"): path.read_bytes() for path in (folder / "right").rglob("*.*")}
    assert files == {path.relative_to(folder / "made"): path.read_bytes() for path in (folder / "made").rglob("*.*")}


@settings(max_examples=100, deadline=None)
@given(data=st.binary(max_size=2000))
def test_any_bytes_are_refused_by_name(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    assert "it.dlog" in refused(data, tmp_path_factory.mktemp("any"))


@pytest.mark.parametrize(
    "name",
    [
        "/etc/passwd",
        "../outside",
        "code/" + "a" * 32 + "/files/../../../outside",
        "code/" + "a" * 32 + "/files/./a",
        "log/../../outside",
        "service.json",
        "log/e000000000001.r000000.seg\n",
        "replicas/r1/config.json",
    ],
)
def test_name_that_is_none_of_a_log_is_refused(tmp_path: Path, whole: bytes, name: str) -> None:
    def add(info: tarfile.TarInfo, data: bytes) -> list[tuple[tarfile.TarInfo, bytes]]:
        other = tarfile.TarInfo(name)
        return [(info, data), (other, b"x")] if info.name == "exported.json" else [(info, data)]

    assert "is no file of a log" in refused(made_of(whole, add), tmp_path)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE])
def test_what_is_no_file_is_refused(tmp_path: Path, whole: bytes, kind: bytes) -> None:
    def link(info: tarfile.TarInfo, data: bytes) -> list[tuple[tarfile.TarInfo, bytes]]:
        if info.name.endswith(".seg"):
            info.type, info.linkname = kind, "/etc/passwd"
        return [(info, data)]

    assert "is no file of a log" in refused(made_of(whole, link), tmp_path)


@pytest.mark.parametrize(
    ("which", "said"),
    [("exported.json", "it begins with"), (".seg", "is missing or damaged"), ("digests.json", "its end is missing")],
)
def test_file_that_is_missing_is_named(tmp_path: Path, whole: bytes, which: str, said: str) -> None:
    left_out = made_of(whole, lambda info, data: [] if info.name.endswith(which) else [(info, data)])
    assert said in refused(left_out, tmp_path)


def test_file_that_is_there_twice_is_refused(tmp_path: Path, whole: bytes) -> None:
    twice = made_of(whole, lambda info, data: [(info, data)] * (2 if info.name.endswith(".seg") else 1))
    assert "is there twice" in refused(twice, tmp_path)


def test_file_in_memory_has_a_bound(tmp_path: Path, whole: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deathless.shell.operate.log_import.SMALL_BYTES_MAX", 10)
    assert "exported.json has more than 10 bytes" in refused(whole, tmp_path)
