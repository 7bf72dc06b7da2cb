"""Which files of Spark's state belong to a version, what a run hands over, and what is removed when."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import NoReturn

import pytest

from deathless.base.errors import StateMissing
from deathless.pipelines.ledger import Tip
from deathless.spark.state import KeptState, chain, files_of

OFFSETS = 'v1\n{{"batchWatermarkMs":{0},"batchTimestampMs":{0}}}\n{{"at":{0}}}'


def tip(batch: int, state: str) -> Tip:
    """Where a query stands behind a batch."""
    return Tip("p", batch, "some-id", OFFSETS.format(batch), 1, 0, 0, OFFSETS.format(batch - 1), state)


def computed(folder: Path, *batches: int) -> None:
    """Have Spark have computed these batches in a checkpoint, as far as `foreachBatch` shows it."""
    for place in ("offsets", "commits", "state/0/0", "state/0/1/left", "state/0/_metadata"):
        (folder / place).mkdir(parents=True, exist_ok=True)
    (folder / "state/0/_metadata/metadata").write_text("operators", encoding="utf-8")
    for batch in batches:
        (folder / "offsets" / str(batch)).write_text(OFFSETS.format(batch), encoding="utf-8")
        (folder / "commits" / str(batch - 1)).write_text(f"done {batch - 1}", encoding="utf-8")
        for store in ("0/0", "0/1/left"):
            (folder / "state" / store / f"{batch + 1}.delta").write_text(f"{folder.name} {batch}", encoding="utf-8")
            (folder / "state" / store / f".{batch + 1}.delta.crc").write_text("sum", encoding="utf-8")


def decided(home: Path, number: int, last: int) -> KeptState:
    """A run that has computed and decided batches from the first one on."""
    state = KeptState(home, number)
    computed(state.folder, *range(last + 1))
    state.settle(last)
    return state


@pytest.mark.parametrize(
    ("names", "version", "wanted"),
    [
        (["1.delta", "2.delta", "3.delta"], 2, ["1.delta", "2.delta"]),
        (["1.delta", "2.delta", "2.snapshot", "3.delta"], 3, ["2.snapshot", "3.delta"]),
        (["2.snapshot", "3.delta", "3.snapshot", "4.delta"], 3, ["3.snapshot"]),
        (["9.snapshot", "10.delta", "11.delta", "11.delta.tmp", "x"], 10, ["9.snapshot", "10.delta"]),
    ],
)
def test_a_version_is_the_newest_snapshot_and_what_follows(names: list[str], version: int, wanted: list[str]) -> None:
    """Nothing that is newer than the version, and nothing that is not needed."""
    assert chain(names, version, "here") == wanted


@pytest.mark.parametrize(
    ("names", "lacking"), [([], 1), (["2.delta"], 1), (["1.delta", "1.snapshot", "3.delta", "3.snapshot"], 2)]
)
def test_a_version_with_a_gap_is_refused_by_name(names: list[str], lacking: int) -> None:
    """A snapshot that is too new does not close it."""
    with pytest.raises(StateMissing, match=rf"here: version 2 of the state lacks {lacking}\.delta"):
        chain(names, 2, "here")


def test_a_folder_gives_files_of_all_stores_with_their_checksums(tmp_path: Path) -> None:
    """And what has no version; what is being written is no part of it."""
    computed(tmp_path, 0, 1, 2)
    (tmp_path / "state/0/0/.temporary").touch()
    found = {str(each) for each in files_of(tmp_path, 1)}
    stores = {f"state/{each}/{name}" for each in ("0/0", "0/1/left") for name in ("1.delta", ".1.delta.crc")}
    assert found == {*stores, "state/0/_metadata/metadata"}
    (tmp_path / "state/0/1/left/1.delta").unlink()
    with pytest.raises(StateMissing, match="0/1/left: version 1 of the state lacks"):
        files_of(tmp_path, 1)
    with pytest.raises(StateMissing, match="has no state"):
        files_of(tmp_path / "elsewhere", 1)


@pytest.mark.parametrize("has_links", [True, False])
def test_a_run_goes_on_from_what_the_decision_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool
) -> None:
    """The version that the decided batch has read, and no word that the batch is done; by copies where that must be."""

    def no_link(*_: object) -> NoReturn:
        raise OSError(errno.EPERM, "no links")

    if not has_links:
        monkeypatch.setattr(os, "link", no_link)
    former, new = decided(tmp_path, 4, 3), KeptState(tmp_path, 5)
    new.lay(tip(3, former.name))
    folder = new.folder
    assert sorted(os.listdir(folder / "offsets")) == ["2", "3"]
    assert (folder / "offsets/2").read_text(encoding="utf-8") == OFFSETS.format(2)
    assert os.listdir(folder / "commits") == ["2"]
    assert sorted(os.listdir(folder / "state/0/0")) == [f"{dot}{n}.delta{crc}" for dot, crc in ((".", ".crc"), ("", ""))
                                                        for n in (1, 2, 3)]  # fmt: skip
    assert b"some-id" in (folder / "metadata").read_bytes()


def test_what_a_deposed_driver_writes_reaches_nobody_else(tmp_path: Path) -> None:
    """Neither later versions nor others of the same names, as Spark writes them: a new file in the place of one."""
    former, new = decided(tmp_path, 4, 3), KeptState(tmp_path, 5)
    new.lay(tip(3, former.name))
    before = {path: path.read_bytes() for path in new.folder.rglob("*") if path.is_file()}
    computed(former.folder, 4, 5)
    for path in [*former.folder.rglob("*.delta"), former.folder / "commits/2"]:
        path.with_suffix(".new").write_text("of the deposed one", encoding="utf-8")
        path.with_suffix(".new").replace(path)
    assert {path: path.read_bytes() for path in new.folder.rglob("*") if path.is_file()} == before


def test_a_folder_that_a_decision_may_name_outlives_its_run(tmp_path: Path) -> None:
    """One that no decision was asked for does not."""
    former, unnamed = decided(tmp_path, 4, 3), KeptState(tmp_path, 5)
    unnamed.lay(tip(3, former.name))
    former.close()
    unnamed.close()
    assert os.listdir(tmp_path) == [former.name]


def test_a_decision_lets_go_of_folders_of_older_drivers(tmp_path: Path) -> None:
    """And of the one that was gone on from; never of a newer driver's, or another one's of the same number."""
    oldest, former, twin = decided(tmp_path, 3, 1), decided(tmp_path, 4, 3), decided(tmp_path, 4, 3)
    newer, stranger = decided(tmp_path, 5, 3), tmp_path / "notes"
    stranger.mkdir()
    run = KeptState(tmp_path, 4)
    run.lay(tip(3, former.name))
    run.decided()
    assert sorted(os.listdir(tmp_path)) == sorted([twin.name, newer.name, run.name, "notes"])
    assert not oldest.folder.exists()


def test_state_that_nobody_kept_is_told(tmp_path: Path) -> None:
    """A query that had none, a folder that is gone, a batch that is not done, and a name that is a path."""
    run = KeptState(tmp_path, 5)
    for name in ("", "../4-000000000000", "4-00000000000"):
        with pytest.raises(StateMissing, match="without keeping state"):
            run.lay(tip(3, name))
    with pytest.raises(StateMissing, match="is not there"):
        run.lay(tip(3, "4-000000000000"))
    former = decided(tmp_path, 4, 3)
    (former.folder / "commits/2").unlink()
    with pytest.raises(StateMissing, match="does not say that batch 2 is done"):
        KeptState(tmp_path, 5).lay(tip(3, former.name))


def test_all_of_a_version_is_on_the_disk_before_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file and each folder once; what was brought there before is not brought again."""
    synced: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(os.path.relpath(os.readlink(f"/proc/self/fd/{descriptor}"), tmp_path))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    home = tmp_path / "a" / "b"
    run = decided(home, 4, 2)
    here = f"a/b/{run.name}"
    assert {f"{here}/state/0/0/1.delta", f"{here}/state/0/1/left/.2.delta.crc", f"{here}/commits/1"} <= set(synced)
    assert {".", "a", "a/b", here, f"{here}/state", f"{here}/state/0/0", f"{here}/commits"} <= set(synced)
    assert not any("3.delta" in each for each in synced)
    synced.clear()
    computed(run.folder, 3)
    run.settle(3)
    assert {each for each in synced if "delta" in each and "2" in each.rpartition("/")[2]} == set()
    assert f"{here}/state/0/0/3.delta" in synced
