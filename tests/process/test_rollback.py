"""Storage that is put back to an older moment, and damage at the end of the log, under real processes."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_tool import Bank
from replica_set import send_signal, wait_for
from test_cli_adopt import deposit, etcd

from deathless.base.errors import CorruptFrame, InvalidArgument, LogTruncated
from deathless.codec.frames import FrameKind
from deathless.engine.log.overview import describe, frames_of
from deathless.shell.disk.filesystem import RealFileSystem
from deathless.shell.link.status_page import confirmed_in_files, page_path


def kill_all(bank: Bank) -> None:
    """Kill -9 of every supervisor; their workers go with them."""
    pids = bank.supervisors()
    for pid in pids.values():
        send_signal(pid, signal.SIGKILL)
    wait_for(lambda: not bank.supervisors() or None, "all supervisors are gone")


def refused(bank: Bank, kind: type[CorruptFrame | LogTruncated]) -> str:
    """Start, and give why it was refused; nobody serves."""
    done = bank.run("up", "--detach", str(bank.manifest), code=None)
    said = wait_for(
        lambda: _told(bank, kind.code) or (done.stderr if kind.code in done.stderr else None),
        "a refusal",
        lambda: f"up: {done.returncode} {done.stdout} {done.stderr}\n{_logs(bank)}",
    )
    assert bank.run("call", "balance", "--key", "alice", "--timeout", "3", code=None).returncode != 0
    bank.run("down", code=None)
    kill_all(bank)
    return said


def _logs(bank: Bank) -> str:
    return "\n".join(path.read_text() for path in sorted((bank.directory / "replicas").glob("*/replica.log")))


def _told(bank: Bank, code: str) -> str | None:
    for path in sorted((bank.directory / "replicas").glob("*/replica.log")):
        for line in path.read_text().splitlines():
            if code in line:
                return line
    return None


def put_back(bank: Bank, copy: Path, part: str = "") -> None:
    """Replace the directory, or one folder of it, by an older copy."""
    target = bank.directory / part
    shutil.rmtree(target)
    shutil.copytree(copy / part, target)
    for path in (bank.directory / "replicas").glob("*/replica.log"):
        path.unlink()


def forget_logs(bank: Bank) -> None:
    for path in (bank.directory / "replicas").glob("*/replica.log"):
        path.unlink()


def copied(bank: Bank, folder: Path) -> Path:
    """Copy the directory while its service runs, within an epoch."""
    subprocess.run(["cp", "-a", str(bank.directory), str(folder / "copy")], check=True, stderr=subprocess.DEVNULL)
    return folder / "copy"


@pytest.mark.parametrize("end", [kill_all, Bank.down], ids=["killed", "stopped"])
@pytest.mark.parametrize("part", ["", "log"], ids=["whole directory", "log alone"])
def test_an_older_copy_put_back_is_refused_with_what_is_missing(
    part: str, end: Callable[[Bank], None], tmp_path: Path
) -> None:
    """The lock is in the directory; the machine's memory knows better, whatever was put back."""
    with Bank(tmp_path / "bank", replicas=2) as bank:
        bank.up()
        deposit(bank, 5)
        copy = copied(bank, tmp_path)
        for _ in range(5):
            deposit(bank, 1)
        end(bank)
        if part == "log":
            for path in (bank.directory / "checkpoints").glob("*"):
                path.unlink()
        put_back(bank, copy, part)
        assert "was confirmed" in str(bank.json("log", "verify", "--quick", code=65)["problems"])
        said = refused(bank, LogTruncated)
        assert "was confirmed" in said
        assert "adopt --restored" in said


@pytest.mark.parametrize("end", [kill_all, Bank.down], ids=["killed", "stopped"])
def test_with_etcd_a_log_put_back_is_refused(end: Callable[[Bank], None], tmp_path: Path) -> None:
    with etcd() as (_, lock), Bank(tmp_path / "bank", replicas=2, more=lock) as bank:
        bank.up()
        deposit(bank, 5)
        copy = copied(bank, tmp_path)
        for _ in range(5):
            deposit(bank, 1)
        end(bank)
        if end is Bank.down:  # the machine was switched off too: only the lock store knows
            for name in ("r0", "r1"):
                Path(page_path(str(bank.directory), name)).unlink()
        put_back(bank, copy)
        said = refused(bank, LogTruncated)
        assert "was confirmed" in said
        assert ("lock store" if end is Bank.down else "page") in said


def test_after_a_power_cut_the_file_beside_the_log_knows_what_a_log_put_back_lacks(tmp_path: Path) -> None:
    with Bank(tmp_path / "bank", replicas=2) as bank:
        bank.up()
        deposit(bank, 5)
        copy = copied(bank, tmp_path)
        for _ in range(3):
            deposit(bank, 1)
        bank.down()
        lsn = bank.json("log", "verify", "--quick")["lastLsn"]
        wait_for(
            lambda: any(each.point.lsn >= lsn for each in confirmed_in_files(str(bank.directory))) or None,
            "the file is written",
        )
        for name in ("r0", "r1"):  # with the machine's power goes its memory
            Path(page_path(str(bank.directory), name)).unlink()
        for path in (bank.directory / "checkpoints").glob("*"):
            path.unlink()
        put_back(bank, copy, "log")
        assert "/confirmed" in refused(bank, LogTruncated)


@pytest.mark.parametrize("store", ["directory", "etcd"])
def test_what_is_lost_is_given_up_on_a_word_and_the_same_old_copy_is_refused_again(store: str, tmp_path: Path) -> None:
    with etcd() as (_, lock), Bank(tmp_path / "bank", replicas=2, more=lock if store == "etcd" else "") as bank:
        bank.up()
        assert deposit(bank, 5) == 5
        copy = copied(bank, tmp_path)
        for _ in range(3):
            deposit(bank, 1)
        bank.down()
        put_back(bank, copy)
        refused(bank, LogTruncated)
        told = bank.run("adopt", "--restored", "--dry-run").stdout
        assert "messages, acknowledged to their senders, are given up" in told
        assert bank.json("adopt", "--restored", "--yes")["adopted"] is True
        forget_logs(bank)
        bank.up()
        assert deposit(bank, 10) == 15, "it goes on from what was put back"
        assert json.loads((bank.directory / "adopted.json").read_text())["holdOutside"] is True
        bank.down()
        assert bank.json("log", "verify")["problems"] == []
        bank.up()
        assert deposit(bank, 1) == 16
        bank.down()
        put_back(bank, copy)
        assert "older than a restore" in refused(bank, LogTruncated)


def test_a_damaged_end_is_cut_on_a_word_only_where_nothing_is_given_up_by_it(tmp_path: Path) -> None:
    with Bank(tmp_path / "bank", replicas=1) as bank:
        bank.up()
        deposit(bank, 5)
        deposit(bank, 6)
        kill_all(bank)
        path, offset, length = last_frame(bank, FrameKind.DATA)
        flip(path, offset + length - 3)
        done = bank.run("adopt", "--cut-at-end", "--yes", code=InvalidArgument.exit_code)
        assert "would lose them" in done.stderr
        Path(page_path(str(bank.directory), "r0")).unlink()  # as if the machine had been switched off, before the
        (bank.directory / "replicas" / "r0" / "confirmed").unlink(missing_ok=True)  # file beside the log was written
        assert bank.json("adopt", "--cut-at-end", "--yes")["adopted"] is True
        bank.up()
        assert deposit(bank, 1) in {6, 12}, "the last frame held the second deposit, or what came after its reply"
        assert not (bank.directory / "adopted.json").exists(), "the incarnation stays"


def test_nothing_put_back_and_all_killed_again_and_again_is_never_refused(tmp_path: Path) -> None:
    with Bank(tmp_path / "bank", replicas=2) as bank:
        for balance in (1, 2, 3):
            bank.up()
            assert deposit(bank, 1) == balance
            kill_all(bank)
        bank.up()
        assert deposit(bank, 1) == 4


def last_frame(bank: Bank, kind: FrameKind) -> tuple[Path, int, int]:
    """File, offset and length of the last frame of a kind."""
    filesystem = RealFileSystem(str(bank.directory))
    found = [
        (info.name, each.offset, len(each.raw))
        for info in describe(filesystem)
        for each in frames_of(filesystem, info.epoch, info.roll)
        if each.frame.kind == kind
    ]
    name, offset, length = found[-1]
    return bank.directory / "log" / name, offset, length


def flip(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 4]))


def test_a_bit_of_the_last_answered_frame_flipped_after_a_kill_of_all_is_refused(tmp_path: Path) -> None:
    with Bank(tmp_path / "bank", replicas=2) as bank:
        bank.up()
        deposit(bank, 5)
        deposit(bank, 6)
        kill_all(bank)
        forget_logs(bank)
        path, offset, length = last_frame(bank, FrameKind.DATA)
        flip(path, offset + length - 3)
        [*_, problem] = bank.json("log", "verify", "--quick", code=65)["problems"]
        assert "is not what was written" in problem or "was confirmed" in problem
        said = refused(bank, CorruptFrame)
        assert f"offset {offset}" in said
        assert path.name in said


def test_damage_to_the_closing_frame_of_an_orderly_stop_loses_nothing_and_starts(tmp_path: Path) -> None:
    with Bank(tmp_path / "bank", replicas=1) as bank:
        bank.up()
        deposit(bank, 5)
        bank.down()
        path, offset, length = last_frame(bank, FrameKind.CONFIRM)
        flip(path, offset + length - 3)
        bank.up()
        assert deposit(bank, 1) == 6
