"""What is waited for of a rehearsal's processes; on real logs tests/process/test_cli_rehearse.py runs it."""

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deathless.base.config import ReplicaConfig
from deathless.base.errors import CodeEndedProcess, ImportNotEnded, InvalidArgument, LockUnavailable
from deathless.shell.operate.upgrading import rehearsal as module
from deathless.shell.operate.upgrading.live_log import Followed
from deathless.shell.operate.upgrading.rehearsal import Child, ChildEnded, Rehearsed, Served
from deathless.shell.operate.upgrading.rehearsal_child import Word
from deathless.shell.service_code import separate_process
from deathless.shell.upgrade.former_link import PREAMBLE, Use
from deathless.shell.upgrade.former_server import listen_at


@pytest.fixture(name="silent")
def silent_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Child]:
    """A process that never says a word."""
    (tmp_path / "silent_child.py").write_text("import signal\nsignal.pause()\n")
    monkeypatch.setattr(module, "MODULE", "silent_child")
    with (tmp_path / "file").open("wb") as file:
        child = Child(sys.executable, {**os.environ, "PYTHONPATH": str(tmp_path)}, file.fileno())
        yield child
        child.close()


def test_a_turn_that_does_not_end_is_ended(silent: Child) -> None:
    with pytest.raises(ChildEnded):
        silent.hear(Word.JUDGED, 0.01)
    assert silent.ended() == "nothing ended for 0.01 s"
    assert silent._process.wait(30) < 0


def test_a_process_that_reads_no_more_holds_up_nobody(silent: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TURNS_S", 0.01)
    silent.say(Word.APPLY, bytes(1 << 24))
    silent.say(Word.APPLY, b"")
    with pytest.raises(ChildEnded):
        silent.hear(Word.SAME, 30.0)
    assert silent.ended() == "nothing ended for 0.01 s"
    assert silent._process.wait(30) < 0


def test_a_process_that_ends_says_how(silent: Child) -> None:
    silent._process.kill()
    with pytest.raises(ChildEnded):
        silent.hear(Word.JUDGED, 30.0)
    assert silent.ended() == "it was ended by signal 9"


def test_former_code_that_is_served_is_asked_for_with_its_hash_seed(tmp_path: Path) -> None:
    path = str(tmp_path / "former.sock")
    with listen_at(path) as listener:
        served = Served(path, 41)
        listener.setblocking(True)
        line, _ = listener.accept()
        with line:
            assert PREAMBLE.unpack(line.recv(64)) == (41, Use.REHEARSAL)
        with pytest.raises(ChildEnded):
            served.hear(Word.READY, 30.0)
        assert served.ended() == "it has closed its end"
        served.close()


def test_nobody_who_serves_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONNECT_S", 0.0)
    with pytest.raises(InvalidArgument, match="nobody serves the former code"):
        Served(str(tmp_path / "former.sock"), 41)


def test_a_process_is_not_told_of_ctrl_c(silent: Child) -> None:
    assert os.getpgid(silent._process.pid) == silent._process.pid != os.getpgid(0)


def test_what_several_shards_followed_is_put_together() -> None:
    first = Followed(seconds=5.0, caught_up=True, from_lsn=3, messages=4, compared=4, behind_max=2)
    second = Followed(seconds=2.0, messages=6, compared=1, behind_max=5, interrupted=True, ended="it was interrupted")
    found = module._all_followed([first, second])
    assert found is not None
    assert (found.caught_up, found.messages, found.compared, found.behind) == (False, 10, 5, 5)
    assert (found.behind_max, found.complete, found.ended) == (5, False, "it was interrupted")
    assert module._all_followed([]) is None


def test_who_interrupts_it_gets_a_verdict_and_what_else_ends_it_is_told() -> None:
    told = Rehearsed(from_version=1, to_version=2)
    assert told.cut_short == ""
    told.followed = Followed(seconds=1.0, ended="other code serves")
    assert told.cut_short == "other code serves"
    told.followed = Followed(seconds=1.0, ended="it was interrupted", interrupted=True)
    assert told.cut_short == ""


def test_a_lock_store_that_hangs_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hangs(config: ReplicaConfig) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(module, "inspect", hangs)
    monkeypatch.setattr(module, "ASK_S", 0.01)
    with pytest.raises(LockUnavailable):
        module.head_of(ReplicaConfig(service="bank", module="m:a", directory="d", replica="r0"))


def test_a_process_whose_import_never_ends_is_not_waited_for(
    silent: Child, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(separate_process, "IMPORT_TOLD_S", 0.0)
    monkeypatch.setattr(separate_process, "IMPORT_MAX_S", 0.1)
    with pytest.raises(ImportNotEnded, match=r"the import of till\.py:till has not ended after 0\.1 s"):
        silent.hear_import("till.py:till")
    assert "waiting for the import of till.py:till" in capfd.readouterr().err


def test_a_process_that_ends_at_its_import_is_told_as_elsewhere(silent: Child) -> None:
    silent._process.kill()
    with pytest.raises(
        CodeEndedProcess, match=r"the process that ran till\.py:till ended by signal 9, and said nothing"
    ):
        silent.hear_import("till.py:till")


def test_work_on_a_whole_state_is_told_of_and_not_ended(silent: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(separate_process, "IMPORT_TOLD_S", 0.0)
    told: list[str] = []

    def say(text: str) -> None:
        told.append(text)
        silent._process.kill()

    monkeypatch.setattr(separate_process, "_say", say)
    with pytest.raises(CodeEndedProcess, match="ended by signal 9"):
        module._heard(silent, Word.READY, "till.py:till", long=module._whole("till.py:till"))
    assert told == ["waiting for the work of till.py:till on the whole state, which has not ended after 0 s"]


def test_former_code_of_an_image_of_before_says_no_import(tmp_path: Path) -> None:
    path = str(tmp_path / "former.sock")
    with listen_at(path):
        served = Served(path, 41)
        served.hear_import("till.py:till")  # nobody says a word
        served.close()


def test_new_code_whose_import_never_ends_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(separate_process, "IMPORT_TOLD_S", 0.0)
    monkeypatch.setattr(separate_process, "IMPORT_MAX_S", 0.1)
    path = tmp_path / "rehearsed_purse.py"
    path.write_text("import time\ntime.sleep(3600)\n")
    with pytest.raises(ImportNotEnded, match=r"rehearsed_purse\.py:purse"):
        module.rehearse([], f"{path}:purse", dict(os.environ), module.Window())
